/* Checked against mbedTLS 3.6 (library/ssl_tls13_server.c): the functions for tickets are called
 * within a step of the handshake, on the thread that makes it. */
#include "secure/identity/tickets.h"

#include <assert.h>
#include <string.h>

#include <mbedtls/gcm.h>
#include <mbedtls/md.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/ssl.h>

#include "edge/core/bytes.h"
#include "secure/identity/certificate.h"
#include "secure/identity/tls_private.h"
#include "secure/identity/x509.h"

#if defined(MBEDTLS_SSL_SRV_C) && defined(MBEDTLS_SSL_SESSION_TICKETS) /* omitted on devices */

#define VERSION 1
#define DAY_SIZE 4
#define NONCE_SIZE 12
#define TAG_SIZE 16
#define HEAD_SIZE (DAY_SIZE + NONCE_SIZE)
#define MAX_KEY 48 /* size of a session's secret: a hash */
/* version, suite, flags, age, key with its size, time issued; fingerprint, device, role, chain */
#define BODY_SIZE                                                                                  \
    (1 + 4 + 1 + 4 + 1 + MAX_KEY + 8 + FEDGE_FINGERPRINT_SIZE + FEDGE_UUID_TEXT + 1 +              \
     FEDGE_FINGERPRINT_SIZE + 8 + 8)
#define TICKET_SIZE (HEAD_SIZE + BODY_SIZE + TAG_SIZE)

static_assert(MBEDTLS_SSL_TLS1_3_TICKET_RESUMPTION_KEY_LEN <= MAX_KEY, "a session's key");

#define OF(session, field) ((session)->MBEDTLS_PRIVATE(field))

/* --- keys ------------------------------------------------------------------------------------- */

static uint32_t day_of(uint64_t unix_ms)
{
    return (uint32_t)(unix_ms / FEDGE_DAY_MS);
}

/* HMAC-SHA256 of the day with the identity's secret. */
static bool key_of(const fedge_tls *tls, uint32_t day, mbedtls_gcm_context *gcm)
{
    uint8_t secret[FEDGE_TICKET_SECRET_SIZE];
    uint8_t text[DAY_SIZE];
    uint8_t key[32];
    fedge_put_u32(text, day);
    bool ok = fedge_tls_ticket_secret(tls, secret) &&
              mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), secret, sizeof(secret),
                              text, sizeof(text), key) == 0 &&
              mbedtls_gcm_setkey(gcm, MBEDTLS_CIPHER_ID_AES, key, 256) == 0;
    mbedtls_platform_zeroize(secret, sizeof(secret));
    mbedtls_platform_zeroize(key, sizeof(key));
    return ok;
}

/* --- what is sealed --------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *at, const void *data, size_t size)
{
    memcpy(at, data, size);
    return at + size;
}

static const uint8_t *get(const uint8_t *at, void *data, size_t size)
{
    memcpy(data, at, size);
    return at + size;
}

static void write_body(uint8_t body[BODY_SIZE], const mbedtls_ssl_session *session,
                       const fedge_ticket_owner *owner, uint64_t now_ms)
{
    uint8_t *at = body;
    uint8_t number[8];
    memset(body, 0, BODY_SIZE);
    *at++ = VERSION;
    fedge_put_u32(number, (uint32_t)OF(session, ciphersuite));
    at = put(at, number, 4);
    *at++ = OF(session, ticket_flags);
    fedge_put_u32(number, OF(session, ticket_age_add));
    at = put(at, number, 4);
    *at++ = OF(session, resumption_key_len);
    (void)put(at, OF(session, resumption_key), sizeof(OF(session, resumption_key)));
    at += MAX_KEY;
    fedge_put_u64(number, now_ms);
    at = put(at, number, 8);
    at = put(at, owner->fingerprint, sizeof(owner->fingerprint));
    at = put(at, owner->device_id, sizeof(owner->device_id));
    *at++ = (uint8_t)owner->role;
    at = put(at, owner->chain.root, sizeof(owner->chain.root));
    fedge_put_u64(number, owner->chain.not_before_ms);
    at = put(at, number, 8);
    fedge_put_u64(number, owner->chain.not_after_ms);
    (void)put(at, number, 8);
}

/* Parses what write_body wrote. Only the version needs a check, since this server sealed the
 * others. */
static bool read_body(const uint8_t body[BODY_SIZE], mbedtls_ssl_session *session,
                      fedge_ticket_owner *owner, uint64_t *issued_ms)
{
    const uint8_t *at = body;
    uint8_t number[8];
    if (*at++ != VERSION)
        return false;
    at = get(at, number, 4);
    OF(session, ciphersuite) = (int)fedge_get_u32(number);
    OF(session, ticket_flags) = *at++;
    at = get(at, number, 4);
    OF(session, ticket_age_add) = fedge_get_u32(number);
    OF(session, resumption_key_len) = *at++;
    (void)get(at, OF(session, resumption_key), sizeof(OF(session, resumption_key)));
    at += MAX_KEY;
    at = get(at, number, 8);
    *issued_ms = fedge_get_u64(number);
    at = get(at, owner->fingerprint, sizeof(owner->fingerprint));
    at = get(at, owner->device_id, sizeof(owner->device_id));
    owner->role = (fedge_role)*at++;
    at = get(at, owner->chain.root, sizeof(owner->chain.root));
    at = get(at, number, 8);
    owner->chain.not_before_ms = fedge_get_u64(number);
    (void)get(at, number, 8);
    owner->chain.not_after_ms = fedge_get_u64(number);
    return OF(session, resumption_key_len) <= sizeof(OF(session, resumption_key));
}

/* --- mbedTLS's functions ---------------------------------------------------------------------- */

/* False without a certificate, as after a resumption: if a ticket led to a new ticket, a device
 * could stay for years without showing its certificate. */
static bool owner_of(const fedge_tls_group *group, const mbedtls_ssl_session *session,
                     fedge_ticket_owner *owner)
{
    fedge_certificate_info info;
    fedge_error err;
    const mbedtls_x509_crt *certificate = OF(session, peer_cert);
    memset(owner, 0, sizeof(*owner));
    const fedge_tickets *hooks = &group->tickets;
    if (!certificate || !hooks->chain_of(hooks->user, group->socket_in_step, &owner->chain) ||
        fedge_x509_info(certificate, &info, &err) != FEDGE_OK)
        return false;
    memcpy(owner->fingerprint, info.fingerprint, sizeof(owner->fingerprint));
    memcpy(owner->device_id, info.device_id, sizeof(owner->device_id));
    owner->role = info.role;
    return true;
}

/* mbedTLS cannot omit the ticket. Clients ignore an empty one without lifetime (4.6.1). */
static int write_none(unsigned char *out, const unsigned char *end, size_t *size, uint32_t *life_s)
{
    if (end == out)
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    *out = 0;
    *size = 1;
    *life_s = 0;
    return 0;
}

static int write_ticket(void *user, const mbedtls_ssl_session *session, unsigned char *out,
                        const unsigned char *end, size_t *size, uint32_t *life_s)
{
    const fedge_tls_group *group = user;
    const uint64_t now_ms = fedge_clock_now_ms(group->tls->clock);
    fedge_ticket_owner owner;
    uint8_t body[BODY_SIZE];
    if (!owner_of(group, session, &owner))
        return write_none(out, end, size, life_s);
    if ((size_t)(end - out) < TICKET_SIZE)
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    fedge_put_u32(out, day_of(now_ms));
    write_body(body, session, &owner, now_ms);
    /* A random nonce of 96 bits with a daily key: with 2^32 tickets a day the probability of a
     * repeat is below 2^-32, and no counter must survive a restart. The day selects the key, so it
     * is authenticated, too. */
    const bool ok = fedge_x509_random(NULL, out + DAY_SIZE, NONCE_SIZE) == 0 &&
                    key_of(group->tls, day_of(now_ms), &gcm) &&
                    mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, BODY_SIZE, out + DAY_SIZE,
                                              NONCE_SIZE, out, DAY_SIZE, body, out + HEAD_SIZE,
                                              TAG_SIZE, out + HEAD_SIZE + BODY_SIZE) == 0;
    mbedtls_gcm_free(&gcm);
    mbedtls_platform_zeroize(body, sizeof(body));
    if (!ok)
        return write_none(out, end, size, life_s);
    *size = TICKET_SIZE;
    *life_s = (uint32_t)(FEDGE_TICKET_LIFETIME_MS / 1000);
    return 0;
}

/* Opens a ticket; false unless this server sealed it within the lifetime. */
static bool open_ticket(const fedge_tls *tls, const unsigned char *ticket, size_t size,
                        uint64_t now_ms, uint8_t body[BODY_SIZE])
{
    if (size != TICKET_SIZE)
        return false;
    const uint32_t day = fedge_get_u32(ticket);
    /* Checked before any cryptography, so that invalid tickets are cheap. */
    if (day > day_of(now_ms) || day_of(now_ms) - day > FEDGE_TICKET_LIFETIME_MS / FEDGE_DAY_MS)
        return false;
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    const bool ok = key_of(tls, day, &gcm) &&
                    mbedtls_gcm_auth_decrypt(&gcm, BODY_SIZE, ticket + DAY_SIZE, NONCE_SIZE, ticket,
                                             DAY_SIZE, ticket + HEAD_SIZE + BODY_SIZE, TAG_SIZE,
                                             ticket + HEAD_SIZE, body) == 0;
    mbedtls_gcm_free(&gcm);
    return ok;
}

static int read_ticket(void *user, mbedtls_ssl_session *session, unsigned char *ticket, size_t size)
{
    const fedge_tls_group *group = user;
    const uint64_t now_ms = fedge_clock_now_ms(group->tls->clock);
    uint64_t issued_ms = 0;
    fedge_ticket_owner owner;
    fedge_error err;
    uint8_t body[BODY_SIZE];
    mbedtls_ssl_session_init(session);
    if (!open_ticket(group->tls, ticket, size, now_ms, body))
        return MBEDTLS_ERR_SSL_INVALID_MAC;
    const bool read = read_body(body, session, &owner, &issued_ms);
    mbedtls_platform_zeroize(body, sizeof(body));
    if (!read)
        return MBEDTLS_ERR_SSL_INVALID_MAC;
    if (now_ms < issued_ms || now_ms - issued_ms > FEDGE_TICKET_LIFETIME_MS ||
        /* A ticket proves the device's identity, not that it is still admitted: root and times are
         * checked here, the registry by the connection (shown). */
        fedge_chain_check(group->tls, &owner.chain, now_ms, &err) != FEDGE_OK)
        return MBEDTLS_ERR_SSL_SESSION_TICKET_EXPIRED;
    OF(session, tls_version) = MBEDTLS_SSL_VERSION_TLS1_3;
    OF(session, endpoint) = MBEDTLS_SSL_IS_SERVER;
    /* mbedTLS's clock restarts with the machine. */
    OF(session, ticket_creation_time) = mbedtls_ms_time() - (mbedtls_ms_time_t)(now_ms - issued_ms);
    group->tickets.shown(group->tickets.user, group->socket_in_step, &owner);
    return 0;
}

/* --- hooks of tls.c --------------------------------------------------------------------------- */

static void server_configure(fedge_tls_group *group, mbedtls_ssl_config *conf)
{
    if (mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_SERVER)
        mbedtls_ssl_conf_session_tickets_cb(conf, write_ticket, read_ticket, group);
}

static void server_before_step(fedge_tls_group *group, mbedtls_ssl_context *ssl, int socket)
{
    (void)ssl;
    group->socket_in_step = socket;
}

static void server_after_step(fedge_tls_group *group, mbedtls_ssl_context *ssl, int code)
{
    (void)ssl, (void)code;
    group->socket_in_step = -1;
}

void fedge_tickets_begin(fedge_tls_group *group, const fedge_tickets *tickets)
{
    static const fedge_tls_resumption server = {.configure = server_configure,
                                                .before_step = server_before_step,
                                                .after_step = server_after_step};
    group->tickets = *tickets;
    group->resumption = &server;
}

#endif

/* --- a client's tickets ------------------------------------------------------------------------
 *
 * Checked against mbedTLS 3.6 (library/ssl_msg.c): a ticket is read in two calls of
 * mbedtls_ssl_read, of which the second may not wait for more bytes to come. */

#if defined(MBEDTLS_SSL_SESSION_TICKETS) && defined(MBEDTLS_SSL_CLI_C)

static void client_configure(fedge_tls_group *group, mbedtls_ssl_config *conf)
{
    (void)group;
    if (mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_CLIENT) {
        mbedtls_ssl_conf_tls13_enable_signal_new_session_tickets(
            conf, MBEDTLS_SSL_TLS1_3_SIGNAL_NEW_SESSION_TICKETS_ENABLED);
    }
}

static bool is_for(const fedge_tls_group *group, const mbedtls_ssl_context *ssl)
{
    const char *host = ssl->MBEDTLS_PRIVATE(hostname);
    /* Only the server that issued a ticket gets it. */
    const char *other = group->latest.MBEDTLS_PRIVATE(hostname);
    return host && other && strcmp(host, other) == 0;
}

static void client_before_step(fedge_tls_group *group, mbedtls_ssl_context *ssl, int socket)
{
    (void)socket;
    if (group->has_latest && ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_HELLO_REQUEST &&
        is_for(group, ssl) && mbedtls_ssl_set_session(ssl, &group->latest) != 0)
        fedge_resume_forget(group);
}

static void client_after_step(fedge_tls_group *group, mbedtls_ssl_context *ssl, int code)
{
    if (code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE)
        return;
    if (code == 0) {
        if (ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_HANDSHAKE_OVER)
            group->was_lost = false;
        return;
    }
    /* The ticket may be the cause, so the next handshake has none. The first lost connection does
     * not count: a killed server loses all of them. */
    const bool lost = fedge_tls_is_lost(code) && !group->was_lost;
    if (!lost)
        fedge_resume_forget(group);
    group->was_lost = lost;
}

static bool client_after_read(fedge_tls_group *group, mbedtls_ssl_context *ssl, int code)
{
    if (code == MBEDTLS_ERR_SSL_WANT_READ)
        return ssl->MBEDTLS_PRIVATE(state) == MBEDTLS_SSL_TLS1_3_NEW_SESSION_TICKET;
    if (code != MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET)
        return false;
    /* Keep only the newest; a server may accept each only once. */
    fedge_resume_forget(group);
    mbedtls_ssl_session_init(&group->latest);
    group->has_latest = mbedtls_ssl_get_session(ssl, &group->latest) == 0;
    if (!group->has_latest)
        mbedtls_ssl_session_free(&group->latest);
    return true;
}

void fedge_resume_begin(fedge_tls_group *group)
{
    static const fedge_tls_resumption client = {.configure = client_configure,
                                                .before_step = client_before_step,
                                                .after_step = client_after_step,
                                                .after_read = client_after_read};
    group->resumption = &client;
}

void fedge_resume_forget(fedge_tls_group *group)
{
    if (group->has_latest)
        mbedtls_ssl_session_free(&group->latest);
    group->has_latest = false;
}

#else

void fedge_resume_begin(fedge_tls_group *group)
{
    (void)group;
}

void fedge_resume_forget(fedge_tls_group *group)
{
    (void)group;
}

#endif
