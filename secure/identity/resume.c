/* Checked against mbedTLS 3.6 (library/ssl_msg.c): a ticket is read in two calls of
 * mbedtls_ssl_read, of which the second may not wait for more bytes to come. */
#include "secure/identity/resume.h"

#include <string.h>

#include <mbedtls/ssl.h>

#include "secure/identity/tls_private.h"

#if defined(MBEDTLS_SSL_SESSION_TICKETS) && defined(MBEDTLS_SSL_CLI_C)

/* Of this thread. */
static _Thread_local mbedtls_ssl_session kept;
static _Thread_local bool is_kept;
static _Thread_local bool was_lost; /* the last handshake that offered it broke off */

static bool is_client(const mbedtls_ssl_config *conf)
{
    return mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_CLIENT;
}

static void configure(mbedtls_ssl_config *conf)
{
    if (is_client(conf)) {
        mbedtls_ssl_conf_tls13_enable_signal_new_session_tickets(
            conf, MBEDTLS_SSL_TLS1_3_SIGNAL_NEW_SESSION_TICKETS_ENABLED);
    }
}

static bool is_for(const mbedtls_ssl_context *ssl)
{
    const char *host = ssl->MBEDTLS_PRIVATE(hostname);
    /* A ticket is shown to the server that gave it, and to no other of the list. */
    const char *other = kept.MBEDTLS_PRIVATE(hostname);
    return host && other && strcmp(host, other) == 0;
}

static void before_step(mbedtls_ssl_context *ssl, int socket)
{
    (void)socket;
    if (is_kept && ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_HELLO_REQUEST && is_for(ssl) &&
        mbedtls_ssl_set_session(ssl, &kept) != 0)
        fedge_resume_forget();
}

static void after_step(mbedtls_ssl_context *ssl, int code)
{
    if (code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE)
        return;
    if (code == 0) {
        if (ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_HANDSHAKE_OVER)
            was_lost = false;
        return;
    }
    /* The ticket may be to blame: the next handshake does without one. A connection that is lost
     * says nothing against it, the first time: a server that is killed, say, loses them all. */
    const bool lost = fedge_tls_is_lost(code) && !was_lost;
    if (!lost)
        fedge_resume_forget();
    was_lost = lost;
}

static bool after_read(mbedtls_ssl_context *ssl, int code)
{
    if (code == MBEDTLS_ERR_SSL_WANT_READ)
        return ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_TLS1_3_NEW_SESSION_TICKET;
    if (code != MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET)
        return false;
    /* The newest one counts; a server may take each only once. */
    fedge_resume_forget();
    mbedtls_ssl_session_init(&kept);
    is_kept = mbedtls_ssl_get_session(ssl, &kept) == 0;
    if (!is_kept)
        mbedtls_ssl_session_free(&kept);
    return true;
}

void fedge_resume_begin(void)
{
    static const fedge_tls_resumption client = {.configure = configure,
                                                .before_step = before_step,
                                                .after_step = after_step,
                                                .after_read = after_read};
    fedge_tls_resume(&client);
}

void fedge_resume_forget(void)
{
    if (is_kept)
        mbedtls_ssl_session_free(&kept);
    is_kept = false;
}

void fedge_resume_end(void)
{
    fedge_resume_forget();
    fedge_tls_resume(NULL);
}

#else

void fedge_resume_begin(void)
{
}

void fedge_resume_forget(void)
{
}

void fedge_resume_end(void)
{
}

#endif
