#include "secure/identity/chain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/sha256.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/certificate.h"
#include "secure/identity/tls.h"
#include "secure/identity/tls_private.h"
#include "secure/identity/x509.h"

/* Handler of this thread. */
static _Thread_local fedge_chain_verified_fn verified_fn;
static _Thread_local void *verified_user;

/* The chain that this thread's handshake step verifies, root first. */
static _Thread_local fedge_chain seen;
static _Thread_local bool begun, whole;

/* Hashes name and key: a root renewed with its key stays the same root for its chains. */
static void root_of(const mbedtls_x509_crt *certificate, uint8_t root[FEDGE_FINGERPRINT_SIZE])
{
    mbedtls_sha256_context hash;
    mbedtls_sha256_init(&hash);
    if (mbedtls_sha256_starts(&hash, 0) != 0 ||
        mbedtls_sha256_update(&hash, certificate->subject_raw.p, certificate->subject_raw.len) !=
            0 ||
        mbedtls_sha256_update(&hash, certificate->pk_raw.p, certificate->pk_raw.len) != 0 ||
        mbedtls_sha256_finish(&hash, root) != 0)
        memset(root, 0, FEDGE_FINGERPRINT_SIZE); /* hash of no certificate */
    mbedtls_sha256_free(&hash);
}

static void see(const mbedtls_x509_crt *certificate, int depth)
{
    if (!begun) {
        begun = true;
        seen.not_before_ms = 0;
        seen.not_after_ms = UINT64_MAX;
        root_of(certificate, seen.root);
        if (depth > 0)
            return; /* fedge_chain_check uses the present root's validity */
    }
    uint64_t from_ms = fedge_x509_ms(&certificate->valid_from);
    uint64_t to_ms = fedge_x509_ms(&certificate->valid_to);
    seen.not_before_ms = seen.not_before_ms > from_ms ? seen.not_before_ms : from_ms;
    seen.not_after_ms = seen.not_after_ms < to_ms ? seen.not_after_ms : to_ms;
    whole = depth == 0;
}

static void end_step(int socket)
{
    /* A chain counts only if verification reached the device's certificate. */
    if (whole && socket >= 0 && verified_fn)
        verified_fn(verified_user, socket, &seen);
    begun = whole = false;
}

void fedge_chain_on_verified(fedge_chain_verified_fn fn, void *user)
{
    verified_fn = fn;
    verified_user = user;
    fedge_tls_watch_chains(fn ? see : NULL, fn ? end_step : NULL);
}

static fedge_status check_time(const char *what, uint64_t not_before_ms, uint64_t not_after_ms,
                               uint64_t now_ms, fedge_error *err)
{
    char at[FEDGE_CALENDAR_TEXT];
    char now[FEDGE_CALENDAR_TEXT];
    if (now_ms >= not_before_ms && now_ms <= not_after_ms)
        return FEDGE_OK;
    bool early = now_ms < not_before_ms;
    fedge_calendar_text(early ? not_before_ms : not_after_ms, at);
    fedge_calendar_text(now_ms, now);
    return fedge_fail(err, FEDGE_EXPIRED, "%s %s %s, and it is %s here", what,
                      early ? "is valid from" : "expired at", at, now);
}

fedge_status fedge_chain_check(const fedge_chain *chain, uint64_t now_ms, fedge_error *err)
{
    fedge_status status =
        fedge_fail(err, FEDGE_DENIED, "the root of the certificate's chain is no longer trusted");
    for (const mbedtls_x509_crt *root = fedge_tls_roots(); root != NULL; root = root->next) {
        uint8_t name[FEDGE_FINGERPRINT_SIZE];
        root_of(root, name);
        if (memcmp(name, chain->root, sizeof(name)) != 0)
            continue;
        status = check_time("the root of the certificate's chain", fedge_x509_ms(&root->valid_from),
                            fedge_x509_ms(&root->valid_to), now_ms, err);
        if (status == FEDGE_OK) {
            return check_time("the certificate, or the one that signed it,", chain->not_before_ms,
                              chain->not_after_ms, now_ms, err);
        }
    }
    return status;
}

/* --- the cache of verified chains ---------------------------------------------------------------
 */

typedef struct cached {
    uint8_t certificates[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of all certificates that the peer
                                                     presented */
    uint64_t roots;                               /* version of the roots; 0: the entry is empty */
    fedge_chain chain;
} cached;

/* Global: the wrapped function gets no context. */
static struct {
    pthread_mutex_t mutex;
    cached *table; /* (mask + 1); a chain has one possible entry */
    size_t mask;
    _Atomic uint64_t hits;
} memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};

fedge_status fedge_chain_cache_begin(uint32_t number, fedge_error *err)
{
    size_t size = 64;
    /* At least two entries per device: chains with the same entry replace each other. */
    while (size < 2 * (size_t)number && size < FEDGE_CHAIN_CACHE_MAX)
        size *= 2;
    fedge_chain_cache_end();
    memory.table = calloc(size, sizeof(*memory.table));
    memory.mask = size - 1;
    memory.hits = 0;
    return memory.table
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cache of %zu chains", size);
}

void fedge_chain_cache_end(void)
{
    free(memory.table);
    memory.table = NULL;
}

uint64_t fedge_chain_cache_hits(void)
{
    return atomic_load(&memory.hits);
}

static bool name_of(const mbedtls_x509_crt *shown, uint8_t name[FEDGE_FINGERPRINT_SIZE])
{
    mbedtls_sha256_context hash;
    mbedtls_sha256_init(&hash);
    bool ok = mbedtls_sha256_starts(&hash, 0) == 0;
    for (; ok && shown && shown->raw.len > 0; shown = shown->next) { /* DER includes its length */
        ok = mbedtls_sha256_update(&hash, shown->raw.p, shown->raw.len) == 0;
    }
    ok = ok && mbedtls_sha256_finish(&hash, name) == 0;
    mbedtls_sha256_free(&hash);
    return ok;
}

static cached *entry_of(const uint8_t name[FEDGE_FINGERPRINT_SIZE])
{
    size_t at = 0;
    memcpy(&at, name, sizeof(at));
    return &memory.table[at & memory.mask];
}

static bool recall(const uint8_t name[FEDGE_FINGERPRINT_SIZE], uint64_t roots, fedge_chain *chain)
{
    fedge_error err;
    pthread_mutex_lock(&memory.mutex);
    const cached *found = entry_of(name);
    const bool known =
        found->roots == roots && memcmp(found->certificates, name, FEDGE_FINGERPRINT_SIZE) == 0;
    if (known)
        *chain = found->chain;
    pthread_mutex_unlock(&memory.mutex);
    /* Outside the lock, since it hashes the roots. */
    if (!known || fedge_chain_check(chain, fedge_tls_now_ms(), &err) != FEDGE_OK)
        return false;
    atomic_fetch_add(&memory.hits, 1);
    return true;
}

static void remember(const uint8_t name[FEDGE_FINGERPRINT_SIZE], uint64_t roots,
                     const fedge_chain *chain)
{
    pthread_mutex_lock(&memory.mutex);
    cached *entry = entry_of(name);
    memcpy(entry->certificates, name, FEDGE_FINGERPRINT_SIZE);
    entry->roots = roots;
    entry->chain = *chain;
    pthread_mutex_unlock(&memory.mutex);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

typedef int verify_callback(void *user, mbedtls_x509_crt *certificate, int depth, uint32_t *flags);

/* Clients link this file without the wrapper; only servers use what follows. */
#pragma weak __real_mbedtls_x509_crt_verify_restartable

FEDGE_TLS_WRAP(int, mbedtls_x509_crt_verify_restartable, mbedtls_x509_crt *shown,
               mbedtls_x509_crt *roots, mbedtls_x509_crl *revoked,
               const mbedtls_x509_crt_profile *profile, const char *host, uint32_t *flags,
               verify_callback *verify, void *user, mbedtls_x509_crt_restart_ctx *restart)
{
    uint8_t name[FEDGE_FINGERPRINT_SIZE];
    fedge_chain chain;
    const uint64_t version = fedge_tls_roots_version();
    /* Only servers have a handler of verified chains. */
    const bool ours = memory.table && verified_fn && verify && !host && name_of(shown, name);
    if (ours && recall(name, version, &chain)) {
        *flags = 0;
        const int code = verify(user, shown, 0, flags); /* the peer's names and role */
        seen = chain;
        begun = whole = true;
        return code == 0 && *flags != 0 ? MBEDTLS_ERR_X509_CERT_VERIFY_FAILED : code;
    }
    const int code = __real_mbedtls_x509_crt_verify_restartable(shown, roots, revoked, profile,
                                                                host, flags, verify, user, restart);
    if (ours && code == 0 && *flags == 0 && whole)
        remember(name, version, &seen);
    return code;
}

/* NOLINTEND(bugprone-reserved-identifier) */
