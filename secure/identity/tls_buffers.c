/* Checked against mbedTLS 3.6 (library/ssl_msg.c, ssl_tls.c): between records a connection needs
 * only eight bytes of its buffers, the incoming record counter. */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <mbedtls/platform.h>
#include <mbedtls/ssl.h>

#include "secure/identity/tls_private.h"

/* A buffer of mbedTLS has a record's content, a header and at most this many bytes. */
#define OVERHEAD 1024
#define COUNTER_SIZE 8 /* bytes of the record counter, which precedes the header */
#define HEADER_SIZE 5
#define MESSAGE_AT (COUNTER_SIZE + HEADER_SIZE)

static_assert(sizeof(uint64_t) == COUNTER_SIZE, "what a counter is held in");

#define OF(ssl, field) ((ssl)->MBEDTLS_PRIVATE(field))

static bool input_is_idle(const mbedtls_ssl_context *ssl)
{
    const unsigned char *base = OF(ssl, in_buf);
    return base && OF(ssl, in_left) == 0 && OF(ssl, in_msglen) == 0 && OF(ssl, in_hslen) == 0 &&
           !OF(ssl, in_offt) && OF(ssl, keep_current_message) == 0 && OF(ssl, in_ctr) == base &&
           OF(ssl, in_hdr) == base + COUNTER_SIZE && OF(ssl, in_msg) == base + MESSAGE_AT;
}

static bool output_is_idle(const mbedtls_ssl_context *ssl)
{
    const unsigned char *base = OF(ssl, out_buf);
    return base && OF(ssl, out_left) == 0 && OF(ssl, out_ctr) == base &&
           OF(ssl, out_hdr) == base + COUNTER_SIZE && OF(ssl, out_msg) == base + MESSAGE_AT;
}

static void put_back(unsigned char **spare_buffer, unsigned char *buffer)
{
    /* One of each kind is enough: a thread works on one connection at a time. */
    if (!*spare_buffer)
        *spare_buffer = buffer;
    else
        mbedtls_free(buffer);
}

static void give_back(fedge_tls_group *group, mbedtls_ssl_context *ssl)
{
    if (!mbedtls_ssl_is_handshake_over(ssl))
        return;
    if (input_is_idle(ssl)) {
        uint64_t counter = 0;
        memcpy(&counter, OF(ssl, in_buf), sizeof(counter));
        mbedtls_ssl_set_user_data_n(ssl, (uintptr_t)counter);
        put_back(&group->spare_in, OF(ssl, in_buf));
        OF(ssl, in_buf) = NULL;
    }
    if (output_is_idle(ssl)) {
        put_back(&group->spare_out, OF(ssl, out_buf));
        OF(ssl, out_buf) = NULL;
    }
}

/* [spare_buffer] may be NULL. */
static unsigned char *take_buffer(unsigned char **spare_buffer, size_t content)
{
    unsigned char *buffer = spare_buffer ? *spare_buffer : NULL;
    if (!buffer)
        return mbedtls_calloc(1, content + OVERHEAD);
    *spare_buffer = NULL;
    return buffer;
}

/* Without a group, as when a server ends, the buffers are new. */
static bool take(fedge_tls_group *group, mbedtls_ssl_context *ssl)
{
    if (!OF(ssl, in_buf)) {
        unsigned char *base =
            take_buffer(group ? &group->spare_in : NULL, MBEDTLS_SSL_IN_CONTENT_LEN);
        if (!base)
            return false;
        const uint64_t counter = mbedtls_ssl_get_user_data_n(ssl);
        memcpy(base, &counter, sizeof(counter));
        OF(ssl, in_buf) = OF(ssl, in_ctr) = base;
        OF(ssl, in_hdr) = base + COUNTER_SIZE;
        OF(ssl, in_len) = base + COUNTER_SIZE + 3;
        OF(ssl, in_iv) = OF(ssl, in_msg) = base + MESSAGE_AT;
#if defined(MBEDTLS_SSL_DTLS_CONNECTION_ID)
        OF(ssl, in_cid) = OF(ssl, in_len);
#endif
    }
    if (!OF(ssl, out_buf)) {
        unsigned char *base =
            take_buffer(group ? &group->spare_out : NULL, MBEDTLS_SSL_OUT_CONTENT_LEN);
        if (!base)
            return false;
        OF(ssl, out_buf) = OF(ssl, out_ctr) = base;
        OF(ssl, out_hdr) = base + COUNTER_SIZE;
        OF(ssl, out_len) = base + COUNTER_SIZE + 3;
        OF(ssl, out_iv) = OF(ssl, out_msg) = base + MESSAGE_AT;
#if defined(MBEDTLS_SSL_DTLS_CONNECTION_ID)
        OF(ssl, out_cid) = OF(ssl, out_len);
#endif
    }
    return true;
}

void fedge_tls_share_buffers(fedge_tls_group *group)
{
    group->take_buffers = take;
    /* The counter needs all of mbedTLS's field for users. */
    group->give_buffers = sizeof(uintptr_t) >= COUNTER_SIZE ? give_back : NULL;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

FEDGE_TLS_WRAP(int, mbedtls_ssl_write, mbedtls_ssl_context *ssl, const unsigned char *data,
               size_t size)
{
    fedge_tls_group *group = fedge_tls_entered();
    if (!take(group, ssl))
        return MBEDTLS_ERR_SSL_ALLOC_FAILED;
    const int code = __real_mbedtls_ssl_write(ssl, data, size);
    if (group && group->give_buffers)
        group->give_buffers(group, ssl);
    return code;
}

FEDGE_TLS_WRAP(int, mbedtls_ssl_close_notify, mbedtls_ssl_context *ssl)
{
    fedge_tls_group *group = fedge_tls_entered();
    if (!take(group, ssl))
        return MBEDTLS_ERR_SSL_ALLOC_FAILED;
    const int code = __real_mbedtls_ssl_close_notify(ssl);
    if (group && group->give_buffers)
        group->give_buffers(group, ssl);
    return code;
}

/* NOLINTEND(bugprone-reserved-identifier) */
