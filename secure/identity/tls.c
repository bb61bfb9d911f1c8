/* The settings of tls.h, and the wrapped functions of mbedTLS that apply them. Both are in one
 * file, so that a program which sets anything links all wrappers. Checked against
 * libwebsockets 4.3.5 (lib/tls/mbedtls) and mbedTLS 3.6. */
#include "secure/identity/tls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/error.h>
#include <mbedtls/md.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/pk.h>
#include <mbedtls/platform.h>
#include <mbedtls/platform_time.h>
#include <mbedtls/platform_util.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_ciphersuites.h>

#include "edge/core/os.h"
#include "secure/crypto/ciphers.h"
#include "secure/identity/certificate.h"
#include "secure/identity/tls_private.h"
#include "secure/identity/x509.h"

/* Handshakes in progress point to replaced credentials; none takes this long. */
#define RETIRE_MS 600000u

/* Roots, or the server's chain with its key. */
struct fedge_tls_credentials {
    mbedtls_x509_crt certificates;
    mbedtls_pk_context key;
    uint8_t ticket_secret[FEDGE_TICKET_SECRET_SIZE]; /* set if there is a key */
    uint64_t retired_ms;                             /* monotonic; when it was replaced */
    fedge_tls_credentials *older;
};

/* What a handshake step knows about the peer's certificate. */
typedef struct peer_check {
    char subject[FEDGE_X509_MAX_SUBJECT];
    char reason[FEDGE_ERROR_MESSAGE_SIZE]; /* fedge's reason; "" if mbedTLS itself refuses */
    uint32_t flags;                        /* MBEDTLS_X509_BADCERT_… of the whole chain */
    const char *host;                      /* the name a client connected to; NULL on a server */
} peer_check;

/* The wrapped functions get no other context. */
static _Thread_local fedge_tls_group *entered;
/* Of the present call of a wrapped function alone. */
static _Thread_local peer_check seen;

/* --- time ------------------------------------------------------------------------------------- */

/* mbedTLS has one source of time for all connections. */
static mbedtls_time_t certificate_time(mbedtls_time_t *out)
{
    static const fedge_clock unset;
    const fedge_clock *clock = entered ? entered->tls->clock : &unset;
    mbedtls_time_t now = (mbedtls_time_t)(fedge_clock_now_ms(clock) / 1000);
    if (out)
        *out = now;
    return now;
}

static void set_certificate_time(void)
{
    mbedtls_platform_set_time(certificate_time);
}

/* Set once, since connections of other threads read it. */
static void use_certificate_time(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_certificate_time);
}

/* --- roots and identity ----------------------------------------------------------------------- */

static void credentials_free(fedge_tls_credentials *newest)
{
    while (newest) {
        fedge_tls_credentials *older = newest->older;
        mbedtls_x509_crt_free(&newest->certificates);
        mbedtls_pk_free(&newest->key);
        mbedtls_platform_zeroize(newest->ticket_secret, sizeof(newest->ticket_secret));
        free(newest);
        newest = older;
    }
}

static fedge_status credentials_new(const char *pem, const char *what,
                                    fedge_tls_credentials **fresh, fedge_error *err)
{
    *fresh = NULL;
    fedge_tls_credentials *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %s", what);
    mbedtls_x509_crt_init(&made->certificates);
    mbedtls_pk_init(&made->key);
    const fedge_status status = fedge_x509_parse_chain(pem, what, &made->certificates, err);
    if (status == FEDGE_OK)
        *fresh = made;
    else
        credentials_free(made);
    return status;
}

/* Publishes [fresh], and frees old credentials that no handshake can still use. */
static void replace(fedge_tls_credentials *_Atomic *current, fedge_tls_credentials *fresh)
{
    uint64_t now_ms = fedge_os_monotonic_ms();
    fresh->older = atomic_load(current);
    if (fresh->older)
        fresh->older->retired_ms = now_ms;
    for (fedge_tls_credentials *at = fresh; at->older != NULL; at = at->older) {
        if (now_ms - at->older->retired_ms > RETIRE_MS) {
            credentials_free(at->older);
            at->older = NULL;
            break;
        }
    }
    /* Published last: other threads use it from here on. */
    atomic_store(current, fresh);
}

fedge_status fedge_tls_set_roots(fedge_tls *tls, const char *pem, fedge_error *err)
{
    fedge_tls_credentials *fresh = NULL;
    FEDGE_TRY(credentials_new(pem, "the roots", &fresh, err));
    replace(&tls->roots, fresh);
    /* After the roots: a chain verified in between is cached under the older version, which no
     * lookup uses. */
    atomic_fetch_add(&tls->roots_version, 1);
    return FEDGE_OK;
}

/* Derives the tickets' secret from the key's text, which only its owner has. */
static fedge_status make_ticket_secret(fedge_tls_credentials *fresh, const char *key_pem,
                                       fedge_error *err)
{
    static const unsigned char purpose[] = "fedge session tickets";
    const int code = mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256),
                                     (const unsigned char *)key_pem, strlen(key_pem), purpose,
                                     sizeof(purpose), fresh->ticket_secret);
    return code == 0 ? FEDGE_OK : fedge_x509_fail(err, FEDGE_CORRUPT, code, "the server's key");
}

fedge_status fedge_tls_set_server_identity(fedge_tls *tls, const fedge_identity *identity,
                                           fedge_error *err)
{
    fedge_tls_credentials *fresh;
    FEDGE_TRY(credentials_new(identity->chain_pem, "the server's chain", &fresh, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_x509_parse_key(identity->key_pem, "the server's key", &fresh->key, err),
                 failed);
    FEDGE_TRY_OR(make_ticket_secret(fresh, identity->key_pem, err), failed);
    replace(&tls->identity, fresh);
    return FEDGE_OK;
failed:
    credentials_free(fresh);
    return status;
}

const mbedtls_x509_crt *fedge_tls_roots(const fedge_tls *tls)
{
    const fedge_tls_credentials *roots = atomic_load(&tls->roots);
    return roots ? &roots->certificates : NULL;
}

bool fedge_tls_ticket_secret(const fedge_tls *tls, uint8_t secret[FEDGE_TICKET_SECRET_SIZE])
{
    const fedge_tls_credentials *identity = atomic_load(&tls->identity);
    if (identity)
        memcpy(secret, identity->ticket_secret, FEDGE_TICKET_SECRET_SIZE);
    return identity != NULL;
}

/* What wrapped functions use: the roots and identity of the group that this thread has entered. */
static fedge_tls_credentials *present_roots(void)
{
    return entered ? atomic_load(&entered->tls->roots) : NULL;
}

static fedge_tls_credentials *present_identity(void)
{
    return entered ? atomic_load(&entered->tls->identity) : NULL;
}

/* --- nodes and groups ------------------------------------------------------------------------- */

fedge_status fedge_tls_new(const fedge_clock *clock, fedge_tls **tls, fedge_error *err)
{
    *tls = NULL;
    fedge_tls *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the settings of TLS");
    fresh->clock = clock;
    *tls = fresh;
    return FEDGE_OK;
}

void fedge_tls_free(fedge_tls *tls)
{
    if (!tls)
        return;
    credentials_free(atomic_load(&tls->roots));
    credentials_free(atomic_load(&tls->identity));
    free(tls);
}

fedge_status fedge_tls_group_new(fedge_tls *tls, fedge_tls_group **group, fedge_error *err)
{
    *group = NULL;
    fedge_tls_group *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a group of connections");
    fresh->tls = tls;
    fresh->socket_in_step = -1;
    *group = fresh;
    return FEDGE_OK;
}

void fedge_tls_group_free(fedge_tls_group *group)
{
    if (!group)
        return;
    if (group->has_latest)
        mbedtls_ssl_session_free(&group->latest);
    mbedtls_free(group->spare_in);
    mbedtls_free(group->spare_out);
    free(group);
}

fedge_tls_group *fedge_tls_enter(fedge_tls_group *group)
{
    fedge_tls_group *before = entered;
    entered = group;
    return before;
}

fedge_tls_group *fedge_tls_entered(void)
{
    return entered;
}

/* --- reporting refusals ----------------------------------------------------------------------- */

void fedge_tls_on_refused(fedge_tls_group *group, fedge_tls_refused_fn fn, void *user)
{
    group->refused = fn;
    group->refused_user = user;
}

/* libwebsockets and mbedTLS's sockets both pass mbedtls_net_context to the transport. */
static int socket_of(const mbedtls_ssl_context *ssl)
{
    const mbedtls_net_context *net = ssl->MBEDTLS_PRIVATE(p_bio);
    return net ? net->fd : -1;
}

static void report(const mbedtls_ssl_context *ssl, const char *subject, const char *reason)
{
    if (entered && entered->refused)
        entered->refused(entered->refused_user, socket_of(ssl), subject, reason);
}

static const char *flags_text(uint32_t flags)
{
    static const struct {
        uint32_t flag;
        const char *text;
    } texts[] = {
        {MBEDTLS_X509_BADCERT_NOT_TRUSTED, "not signed by a trusted root"},
        {MBEDTLS_X509_BADCERT_EXPIRED, "expired"},
        {MBEDTLS_X509_BADCERT_FUTURE, "not valid yet"},
        {MBEDTLS_X509_BADCERT_CN_MISMATCH, "not for the host name connected to"},
        {MBEDTLS_X509_BADCERT_BAD_KEY, "a key other than P-256"},
        {MBEDTLS_X509_BADCERT_BAD_PK, "a key other than P-256"},
        {MBEDTLS_X509_BADCERT_BAD_MD, "a signature other than ECDSA with SHA-256"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if ((flags & texts[i].flag) != 0)
            return texts[i].text;
    }
    return "failed verification";
}

/* Texts that begin with a colon state the fault of the certificate from the peer's view. */
static const char *alert_text(int alert)
{
    switch (alert) {
    case MBEDTLS_SSL_ALERT_MSG_HANDSHAKE_FAILURE:
        return "the peer found no common suite, group or signature";
    case MBEDTLS_SSL_ALERT_MSG_NO_CERT:
    case MBEDTLS_SSL_ALERT_MSG_CERT_REQUIRED:
        return "the peer demands a certificate";
    case MBEDTLS_SSL_ALERT_MSG_BAD_CERT:
        return ": bad certificate or host name";
    case MBEDTLS_SSL_ALERT_MSG_UNSUPPORTED_CERT:
        return ": unsupported key or usage";
    case MBEDTLS_SSL_ALERT_MSG_CERT_REVOKED:
        return ": revoked";
    case MBEDTLS_SSL_ALERT_MSG_CERT_EXPIRED:
        return ": expired";
    case MBEDTLS_SSL_ALERT_MSG_CERT_UNKNOWN:
        return ": not valid";
    case MBEDTLS_SSL_ALERT_MSG_UNKNOWN_CA:
        return ": not signed by a root that it trusts";
    case MBEDTLS_SSL_ALERT_MSG_ACCESS_DENIED:
        return ": role or names";
    case MBEDTLS_SSL_ALERT_MSG_PROTOCOL_VERSION:
        return "the peer does not speak TLS 1.3";
    default:
        return NULL;
    }
}

bool fedge_tls_is_lost(int code)
{
    return code == MBEDTLS_ERR_SSL_CONN_EOF || code == MBEDTLS_ERR_NET_RECV_FAILED ||
           code == MBEDTLS_ERR_NET_SEND_FAILED || code == MBEDTLS_ERR_NET_CONN_RESET ||
           code == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY;
}

/* The alert behind MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE: the record is still in the buffer, level
 * and number in two bytes. */
static const char *last_alert(const mbedtls_ssl_context *ssl)
{
    const unsigned char *message = ssl->MBEDTLS_PRIVATE(in_msg);
    const char *text = message ? alert_text(message[1]) : NULL;
    if (!text || text[0] != ':')
        return text;
    snprintf(seen.reason, sizeof(seen.reason), "the peer refused the certificate%s", text);
    return seen.reason;
}

static bool is_client(const mbedtls_ssl_context *ssl)
{
    return mbedtls_ssl_conf_get_endpoint(mbedtls_ssl_context_get_config(ssl)) ==
           MBEDTLS_SSL_IS_CLIENT;
}

/* mbedTLS's TLS 1.3 encrypts an alert about a certificate with handshake keys when its peer expects
 * application keys, so the peer cannot authenticate the reason. */
#define BROKEN_OFF                                                                                 \
    "the peer broke off at the end of the handshake, most likely because it refused this side's "  \
    "certificate; its own log says why"

#define NO_TLS "it does not speak TLS: is this the port of the server's --http, not of --listen?"

static void report_failure(const mbedtls_ssl_context *ssl, int code)
{
    char text[160];
    const char *reason = NULL;
    if (fedge_tls_is_lost(code)) {
        /* A server would log every port scanner; a client has no other sign of a failure. */
        if (!is_client(ssl))
            return;
        reason = "the connection was closed during the handshake";
    } else if (seen.reason[0] != '\0') {
        reason = seen.reason;
    } else if (seen.flags != 0 || code == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED) {
        reason = flags_text(seen.flags);
    } else if (code == MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE) {
        reason = "no certificate";
    } else if (code == MBEDTLS_ERR_SSL_BAD_PROTOCOL_VERSION) {
        reason = "no TLS 1.3";
    } else if (code == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE) {
        reason = last_alert(ssl);
    } else if (code == MBEDTLS_ERR_SSL_INVALID_MAC) {
        reason = BROKEN_OFF;
    } else if (code == MBEDTLS_ERR_SSL_INVALID_RECORD && is_client(ssl)) {
        reason = NO_TLS;
    }
    if (!reason) {
        fedge_x509_error_text(code, text, sizeof(text));
        reason = text;
    }
    report(ssl, seen.subject, reason);
}

/* --- verification ----------------------------------------------------------------------------- */

/* Writes the reason: the host connected to, and the hosts in the certificate. */
static void name_hosts(const mbedtls_x509_crt *certificate)
{
    fedge_x509_names names;
    char hosts[FEDGE_X509_HOSTS_TEXT];
    if (seen.host &&
        fedge_x509_names_read(&certificate->subject_alt_names, &names, NULL) == FEDGE_OK &&
        fedge_x509_check_hosts(&names, NULL) == FEDGE_OK) {
        snprintf(seen.reason, sizeof(seen.reason),
                 "the server's certificate is not for %.100s, but for %s", seen.host,
                 fedge_x509_hosts_text(&names, hosts));
    }
}

/* Checks names and role of the peer's certificate. [user]: the configuration. */
static int verify(void *user, mbedtls_x509_crt *certificate, int depth, uint32_t *flags)
{
    const mbedtls_ssl_config *conf = user;
    seen.flags |= *flags;
    if (entered && entered->see_chain)
        entered->see_chain(entered, certificate, depth);
    if (depth != 0)
        return 0;
    fedge_certificate_info info;
    fedge_error err;
    fedge_x509_subject(&certificate->subject, seen.subject, sizeof(seen.subject));
    if (seen.flags == MBEDTLS_X509_BADCERT_CN_MISMATCH)
        name_hosts(certificate);
    if (seen.flags != 0)
        return 0;
    bool of_client = mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_CLIENT;
    fedge_status status = fedge_x509_info(certificate, &info, &err);
    if (status == FEDGE_OK && of_client != (info.role == FEDGE_ROLE_SERVER)) {
        status =
            fedge_fail(&err, FEDGE_DENIED, "role %s cannot be a %s (device %s)",
                       fedge_role_name(info.role), of_client ? "server" : "client", info.device_id);
    }
    if (status != FEDGE_OK) {
        snprintf(seen.reason, sizeof(seen.reason), "%s", err.message);
        /* Only a flag: mbedTLS continues to the end of the chain and then refuses. */
        *flags |= MBEDTLS_X509_BADCERT_OTHER;
    }
    return 0;
}

/* --- the wrapped functions -------------------------------------------------------------------- */

/* A server selects its client's first supported suite: AES-GCM if the client's CPU has AES
 * instructions, which every server's CPU has. */
static const int *suites(void)
{
    static const int aes_first[] = {MBEDTLS_TLS1_3_AES_128_GCM_SHA256,
                                    MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256,
                                    MBEDTLS_TLS1_3_AES_256_GCM_SHA384, 0};
    static const int chacha_first[] = {MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256,
                                       MBEDTLS_TLS1_3_AES_128_GCM_SHA256,
                                       MBEDTLS_TLS1_3_AES_256_GCM_SHA384, 0};
    return (fedge_os_cpu_features() & FEDGE_CPU_AES) != 0 ? aes_first : chacha_first;
}

static void apply_settings(mbedtls_ssl_config *conf)
{
    static const uint16_t groups[] = {MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1,
                                      MBEDTLS_SSL_IANA_TLS_GROUP_NONE};
    static const uint16_t signatures[] = {MBEDTLS_TLS1_3_SIG_ECDSA_SECP256R1_SHA256,
                                          MBEDTLS_TLS1_3_SIG_NONE};
    static const mbedtls_x509_crt_profile profile = {
        .allowed_mds = MBEDTLS_X509_ID_FLAG(MBEDTLS_MD_SHA256),
        .allowed_pks =
            MBEDTLS_X509_ID_FLAG(MBEDTLS_PK_ECKEY) | MBEDTLS_X509_ID_FLAG(MBEDTLS_PK_ECDSA),
        .allowed_curves = MBEDTLS_X509_ID_FLAG(MBEDTLS_ECP_DP_SECP256R1),
        .rsa_min_bitlen = 0};
    mbedtls_ssl_conf_min_tls_version(conf, MBEDTLS_SSL_VERSION_TLS1_3);
    mbedtls_ssl_conf_max_tls_version(conf, MBEDTLS_SSL_VERSION_TLS1_3);
    mbedtls_ssl_conf_ciphersuites(conf, suites());
    mbedtls_ssl_conf_groups(conf, groups);
    mbedtls_ssl_conf_sig_algs(conf, signatures);
    mbedtls_ssl_conf_cert_profile(conf, &profile);
    mbedtls_ssl_conf_verify(conf, verify, conf);
#if defined(MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_PSK_EPHEMERAL_ENABLED)
    /* Resumed sessions have forward secrecy, too. */
    mbedtls_ssl_conf_tls13_key_exchange_modes(
        conf, MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_EPHEMERAL |
                  MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_PSK_EPHEMERAL);
#endif
    const fedge_tls_resumption *resumption = entered ? entered->resumption : NULL;
    if (resumption && resumption->configure)
        resumption->configure(entered, conf);
    use_certificate_time();
}

FEDGE_TLS_WRAP(void, mbedtls_ssl_conf_ca_chain, mbedtls_ssl_config *conf, mbedtls_x509_crt *roots,
               mbedtls_x509_crl *revoked)
{
    fedge_tls_credentials *set = present_roots();
    __real_mbedtls_ssl_conf_ca_chain(conf, set ? &set->certificates : roots, revoked);
}

FEDGE_TLS_WRAP(int, mbedtls_ssl_config_defaults, mbedtls_ssl_config *conf, int endpoint,
               int transport, int preset)
{
    int code = __real_mbedtls_ssl_config_defaults(conf, endpoint, transport, preset);
    /* A wrong cipher would fail in the first record with a misleading reason. */
    if (code == 0 && fedge_ciphers_check(NULL) != FEDGE_OK)
        code = MBEDTLS_ERR_PLATFORM_FEATURE_UNSUPPORTED;
    if (code != 0)
        return code;
    apply_settings(conf);
    /* Set per connection, so a reload applies from the next one on. */
    fedge_tls_credentials *roots = present_roots();
    if (roots)
        __real_mbedtls_ssl_conf_ca_chain(conf, &roots->certificates, NULL);
    return 0;
}

/* libwebsockets would set 1.2. */
FEDGE_TLS_WRAP(void, mbedtls_ssl_conf_min_version, mbedtls_ssl_config *conf, int major, int minor)
{
    (void)conf, (void)major, (void)minor;
}

FEDGE_TLS_WRAP(void, mbedtls_ssl_conf_max_version, mbedtls_ssl_config *conf, int major, int minor)
{
    (void)conf, (void)major, (void)minor;
}

/* A client always verifies; a server that asks for a certificate demands it. */
static int strict_mode(const mbedtls_ssl_config *conf, int mode)
{
    bool is_client = mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_CLIENT;
    return is_client || mode == MBEDTLS_SSL_VERIFY_OPTIONAL ? MBEDTLS_SSL_VERIFY_REQUIRED : mode;
}

FEDGE_TLS_WRAP(void, mbedtls_ssl_conf_authmode, mbedtls_ssl_config *conf, int mode)
{
    __real_mbedtls_ssl_conf_authmode(conf, strict_mode(conf, mode));
}

/* libwebsockets uses the set_hs_ functions if the client names a host. */
FEDGE_TLS_WRAP(void, mbedtls_ssl_set_hs_authmode, mbedtls_ssl_context *ssl, int mode)
{
    __real_mbedtls_ssl_set_hs_authmode(ssl, strict_mode(mbedtls_ssl_context_get_config(ssl), mode));
}

FEDGE_TLS_WRAP(void, mbedtls_ssl_set_hs_ca_chain, mbedtls_ssl_context *ssl, mbedtls_x509_crt *roots,
               mbedtls_x509_crl *revoked)
{
    fedge_tls_credentials *set = present_roots();
    __real_mbedtls_ssl_set_hs_ca_chain(ssl, set ? &set->certificates : roots, revoked);
}

FEDGE_TLS_WRAP(int, mbedtls_ssl_conf_own_cert, mbedtls_ssl_config *conf, mbedtls_x509_crt *chain,
               mbedtls_pk_context *key)
{
    /* libwebsockets sets it again before each handshake step, and mbedTLS would store each. */
    if (conf->MBEDTLS_PRIVATE(key_cert))
        return 0;
    bool is_server = mbedtls_ssl_conf_get_endpoint(conf) == MBEDTLS_SSL_IS_SERVER;
    fedge_tls_credentials *identity = present_identity();
    if (is_server && identity)
        return __real_mbedtls_ssl_conf_own_cert(conf, &identity->certificates, &identity->key);
    return __real_mbedtls_ssl_conf_own_cert(conf, chain, key);
}

FEDGE_TLS_WRAP(int, mbedtls_ssl_set_hs_own_cert, mbedtls_ssl_context *ssl, mbedtls_x509_crt *chain,
               mbedtls_pk_context *key)
{
    fedge_tls_credentials *identity = present_identity();
    if (identity)
        return __real_mbedtls_ssl_set_hs_own_cert(ssl, &identity->certificates, &identity->key);
    return __real_mbedtls_ssl_set_hs_own_cert(ssl, chain, key);
}

/* A connection's callback would override the configuration's, which is verify(). */
FEDGE_TLS_WRAP(void, mbedtls_ssl_set_verify, mbedtls_ssl_context *ssl,
               int (*callback)(void *, mbedtls_x509_crt *, int, uint32_t *), void *user)
{
    (void)ssl, (void)callback, (void)user;
}

FEDGE_TLS_WRAP(int, mbedtls_ssl_handshake_step, mbedtls_ssl_context *ssl)
{
    const fedge_tls_resumption *resumption = entered ? entered->resumption : NULL;
    /* Reasons of an earlier connection on this thread must not be reported for this one. */
    seen = (peer_check){.host = ssl->MBEDTLS_PRIVATE(hostname)};
    if (resumption && resumption->before_step)
        resumption->before_step(entered, ssl, socket_of(ssl));
    int code = __real_mbedtls_ssl_handshake_step(ssl);
    if (resumption && resumption->after_step)
        resumption->after_step(entered, ssl, code);
    if (code != 0 && code != MBEDTLS_ERR_SSL_WANT_READ && code != MBEDTLS_ERR_SSL_WANT_WRITE)
        report_failure(ssl, code);
    if (entered && entered->end_chain)
        entered->end_chain(entered, code == 0 ? socket_of(ssl) : -1);
    return code;
}

/* In TLS 1.3 a server checks the client's certificate after the client's handshake has ended, so
 * the client reads a refusal instead of the first data. */
FEDGE_TLS_WRAP(int, mbedtls_ssl_read, mbedtls_ssl_context *ssl, unsigned char *out, size_t size)
{
    const fedge_tls_resumption *resumption = entered ? entered->resumption : NULL;
    if (entered && entered->take_buffers && !entered->take_buffers(entered, ssl))
        return MBEDTLS_ERR_SSL_ALLOC_FAILED;
    int code = __real_mbedtls_ssl_read(ssl, out, size);
    /* A ticket is a separate record; the data follow it. */
    while (resumption && resumption->after_read && resumption->after_read(entered, ssl, code))
        code = __real_mbedtls_ssl_read(ssl, out, size);
    const char *reason = NULL;
    if (code == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE)
        reason = last_alert(ssl);
    else if (code == MBEDTLS_ERR_SSL_INVALID_MAC)
        reason = BROKEN_OFF;
    if (reason)
        report(ssl, "", reason);
    if (entered && entered->give_buffers)
        entered->give_buffers(entered, ssl);
    return code;
}
