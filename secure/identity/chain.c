#include "secure/identity/chain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/sha256.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/certificate.h"
#include "secure/identity/tls_private.h"
#include "secure/identity/x509.h"

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

static void see(fedge_tls_group *group, const mbedtls_x509_crt *certificate, int depth)
{
    fedge_chain *seen = &group->chain;
    if (!group->chain_begun) {
        group->chain_begun = true;
        seen->not_before_ms = 0;
        seen->not_after_ms = UINT64_MAX;
        root_of(certificate, seen->root);
        if (depth > 0)
            return; /* fedge_chain_check uses the present root's validity */
    }
    uint64_t from_ms = fedge_x509_ms(&certificate->valid_from);
    uint64_t to_ms = fedge_x509_ms(&certificate->valid_to);
    seen->not_before_ms = seen->not_before_ms > from_ms ? seen->not_before_ms : from_ms;
    seen->not_after_ms = seen->not_after_ms < to_ms ? seen->not_after_ms : to_ms;
    group->chain_whole = depth == 0;
}

static void end_step(fedge_tls_group *group, int socket)
{
    /* A chain counts only if verification reached the device's certificate. */
    if (group->chain_whole && socket >= 0 && group->verified)
        group->verified(group->verified_user, socket, &group->chain);
    group->chain_begun = group->chain_whole = false;
}

void fedge_chain_on_verified(fedge_tls_group *group, fedge_chain_verified_fn fn, void *user)
{
    group->verified = fn;
    group->verified_user = user;
    group->see_chain = fn ? see : NULL;
    group->end_chain = fn ? end_step : NULL;
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

fedge_status fedge_chain_check(const fedge_tls *tls, const fedge_chain *chain, uint64_t now_ms,
                               fedge_error *err)
{
    fedge_status status =
        fedge_fail(err, FEDGE_DENIED, "the root of the certificate's chain is no longer trusted");
    for (const mbedtls_x509_crt *root = fedge_tls_roots(tls); root != NULL; root = root->next) {
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

typedef struct fedge_chain_cache {
    pthread_mutex_t mutex;
    cached *table; /* (mask + 1); a chain has one possible entry */
    size_t mask;
    _Atomic uint64_t hits;
} fedge_chain_cache;

fedge_status fedge_chain_cache_begin(fedge_tls *tls, uint32_t number, fedge_error *err)
{
    size_t size = 64;
    /* At least two entries per device: chains with the same entry replace each other. */
    while (size < 2 * (size_t)number && size < FEDGE_CHAIN_CACHE_MAX)
        size *= 2;
    fedge_chain_cache_end(tls);
    fedge_chain_cache *cache = calloc(1, sizeof(*cache));
    if (cache)
        cache->table = calloc(size, sizeof(*cache->table));
    if (!cache || !cache->table) {
        free(cache);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cache of %zu chains", size);
    }
    pthread_mutex_init(&cache->mutex, NULL);
    cache->mask = size - 1;
    tls->cache = cache;
    return FEDGE_OK;
}

void fedge_chain_cache_end(fedge_tls *tls)
{
    fedge_chain_cache *cache = tls->cache;
    tls->cache = NULL;
    if (cache) {
        pthread_mutex_destroy(&cache->mutex);
        free(cache->table);
        free(cache);
    }
}

uint64_t fedge_chain_cache_hits(const fedge_tls *tls)
{
    return tls->cache ? atomic_load(&tls->cache->hits) : 0;
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

static cached *entry_of(const fedge_chain_cache *cache, const uint8_t name[FEDGE_FINGERPRINT_SIZE])
{
    size_t at = 0;
    memcpy(&at, name, sizeof(at));
    return &cache->table[at & cache->mask];
}

static bool recall(const fedge_tls *tls, const uint8_t name[FEDGE_FINGERPRINT_SIZE], uint64_t roots,
                   fedge_chain *chain)
{
    fedge_error err;
    fedge_chain_cache *cache = tls->cache;
    pthread_mutex_lock(&cache->mutex);
    const cached *found = entry_of(cache, name);
    const bool known =
        found->roots == roots && memcmp(found->certificates, name, FEDGE_FINGERPRINT_SIZE) == 0;
    if (known)
        *chain = found->chain;
    pthread_mutex_unlock(&cache->mutex);
    /* Outside the lock, since it hashes the roots. */
    if (!known || fedge_chain_check(tls, chain, fedge_clock_now_ms(tls->clock), &err) != FEDGE_OK)
        return false;
    atomic_fetch_add(&cache->hits, 1);
    return true;
}

static void remember(fedge_chain_cache *cache, const uint8_t name[FEDGE_FINGERPRINT_SIZE],
                     uint64_t roots, const fedge_chain *chain)
{
    pthread_mutex_lock(&cache->mutex);
    cached *entry = entry_of(cache, name);
    memcpy(entry->certificates, name, FEDGE_FINGERPRINT_SIZE);
    entry->roots = roots;
    entry->chain = *chain;
    pthread_mutex_unlock(&cache->mutex);
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
    fedge_tls_group *group = fedge_tls_entered();
    /* Only servers have a handler of verified chains. */
    const bool ours = group && group->tls->cache && group->verified && verify && !host;
    const uint64_t version = ours ? atomic_load(&group->tls->roots_version) : 0;
    const bool named = ours && name_of(shown, name);
    if (named && recall(group->tls, name, version, &chain)) {
        *flags = 0;
        const int code = verify(user, shown, 0, flags); /* the peer's names and role */
        group->chain = chain;
        group->chain_begun = group->chain_whole = true;
        return code == 0 && *flags != 0 ? MBEDTLS_ERR_X509_CERT_VERIFY_FAILED : code;
    }
    const int code = __real_mbedtls_x509_crt_verify_restartable(shown, roots, revoked, profile,
                                                                host, flags, verify, user, restart);
    if (named && code == 0 && *flags == 0 && group->chain_whole)
        remember(group->tls->cache, name, version, &group->chain);
    return code;
}

/* NOLINTEND(bugprone-reserved-identifier) */
