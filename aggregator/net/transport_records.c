/* TLS records with fewer system calls than libwebsockets makes: for each record it reads the
 * header, reads the body, waits, and writes. Checked against libwebsockets 4.3.5 (lib/tls/mbedtls,
 * lib/roles/ws/ops-ws.c, lib/plat/unix) and mbedTLS 3.6 (library/ssl_msg.c).
 *
 * Reading: the body of a record is read together with the next record's header, if that has
 * arrived; then the connection's next record is read at once. Waiting for the socket stays correct
 * with the header read ahead, since the record's body is still unread.
 *
 * Writing: MSG_MORE tells the kernel that more records of the message follow, so it sends them
 * together.
 */
#define _GNU_SOURCE /* libwebsockets.h needs more than C11 */

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>

#include "aggregator/net/transport_internal.h"

#define RECORD_SIZE 16384  /* maximum of its content */
#define RECORD_OVERHEAD 22 /* minimum of header, type and tag */
#define ASK_SIZE 20000     /* larger than a record, so that a read ends with it */
#define RECORDS_AT_ONCE                                                                            \
    4 /* records of one message, before other peers' records; libwebsockets: < 9 */

static_assert(ASK_SIZE > RECORD_SIZE, "a read must not be filled by a record");

/* The connection this thread works on. */
static _Thread_local fedge_peer *reading;
static _Thread_local size_t left_to_write;

static int error_code(int wait_code, int other_code)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return wait_code;
    return errno == EPIPE || errno == ECONNRESET ? MBEDTLS_ERR_NET_CONN_RESET : other_code;
}

static int take_ahead(fedge_peer *peer, unsigned char *out, size_t size)
{
    const size_t taken = size < peer->num_ahead ? size : peer->num_ahead;
    memcpy(out, peer->ahead, taken);
    peer->num_ahead -= (uint8_t)taken;
    memmove(peer->ahead, peer->ahead + taken, peer->num_ahead);
    return (int)taken;
}

/* The header that libwebsockets adds is not counted: the last record may leave with its neighbours,
 * and never waits. */
int fedge_peer_write(struct lws *wsi, uint8_t *frame, size_t size)
{
    left_to_write = size;
    const int written = lws_write(wsi, frame, size, LWS_WRITE_BINARY);
    left_to_write = 0;
    return written;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

int __real_lws_ssl_capable_read(struct lws *wsi, unsigned char *buf, size_t len);
int __wrap_lws_ssl_capable_read(struct lws *wsi, unsigned char *buf, size_t len);
int __real_lws_ssl_pending(struct lws *wsi);
int __wrap_lws_ssl_pending(struct lws *wsi);
int __real_lws_plat_mbedtls_net_recv(void *ctx, unsigned char *buf, size_t len);
int __wrap_lws_plat_mbedtls_net_recv(void *ctx, unsigned char *buf, size_t len);
int __real_lws_plat_mbedtls_net_send(void *ctx, const uint8_t *buf, size_t len);
int __wrap_lws_plat_mbedtls_net_send(void *ctx, const uint8_t *buf, size_t len);

int __wrap_lws_ssl_capable_read(struct lws *wsi, unsigned char *buf, size_t len)
{
    reading = lws_get_opaque_user_data(wsi);
    const int size = __real_lws_ssl_capable_read(wsi, buf, len);
    reading = NULL;
    return size;
}

/* Called when all read bytes are handled: whether to read on before waiting. */
int __wrap_lws_ssl_pending(struct lws *wsi)
{
    fedge_peer *peer = lws_get_opaque_user_data(wsi);
    const int pending = __real_lws_ssl_pending(wsi);
    if (pending > 0 || !peer || !peer->conn || peer->num_ahead < sizeof(peer->ahead))
        return pending;
    peer->records_at_once = (uint8_t)((peer->records_at_once + 1) % RECORDS_AT_ONCE);
    return peer->records_at_once > 0 ? ASK_SIZE : 0;
}

int __wrap_lws_plat_mbedtls_net_recv(void *ctx, unsigned char *buf, size_t len)
{
    fedge_peer *peer = reading;
    const int socket = ((mbedtls_net_context *)ctx)->fd;
    if (!peer || peer->socket != socket)
        return __real_lws_plat_mbedtls_net_recv(ctx, buf, len);
    if (peer->num_ahead > 0)
        return take_ahead(peer, buf, len);
    /* Smaller reads are a header, or a small record that may be the last. */
    struct iovec parts[] = {{buf, len}, {peer->ahead, sizeof(peer->ahead)}};
    const ssize_t size = readv(socket, parts, len > sizeof(peer->ahead) ? 2 : 1);
    if (size < 0)
        return error_code(MBEDTLS_ERR_SSL_WANT_READ, MBEDTLS_ERR_NET_RECV_FAILED);
    if ((size_t)size > len) {
        peer->num_ahead = (uint8_t)((size_t)size - len);
        return (int)len;
    }
    return (int)size;
}

int __wrap_lws_plat_mbedtls_net_send(void *ctx, const uint8_t *buf, size_t len)
{
    if (left_to_write == 0)
        return __real_lws_plat_mbedtls_net_send(ctx, buf, len);
    const size_t content = len > RECORD_OVERHEAD ? len - RECORD_OVERHEAD : 0;
    const bool more = left_to_write > content;
    const ssize_t size =
        send(((mbedtls_net_context *)ctx)->fd, buf, len, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (size < 0)
        return error_code(MBEDTLS_ERR_SSL_WANT_WRITE, MBEDTLS_ERR_NET_SEND_FAILED);
    left_to_write -= more ? content : left_to_write;
    return (int)size;
}

/* NOLINTEND(bugprone-reserved-identifier) */
