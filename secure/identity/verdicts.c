#include "secure/identity/verdicts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/sha256.h>
#include <mbedtls/x509_crt.h>

#include "secure/identity/chain.h"
#include "secure/identity/tls.h"
#include "secure/identity/tls_private.h"

typedef struct verdict {
    uint8_t certificates[FEDGE_FINGERPRINT_SIZE]; /* SHA-256 of all that the peer has shown */
    uint64_t roots;                               /* which they were; 0: nothing is here */
    fedge_chain chain;
} verdict;

/* The wrapped function gets no context. */
static struct {
    pthread_mutex_t mutex;
    verdict *table; /* (mask + 1), each chain has one place in it */
    size_t mask;
    _Atomic uint64_t recalled;
} memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};

fedge_status fedge_verdicts_begin(uint32_t number, fedge_error *err)
{
    size_t size = 64;
    /* At least two places for each device: two chains in one place push each other out, and are
     * verified again. */
    while (size < 2 * (size_t)number && size < FEDGE_VERDICTS_MAX)
        size *= 2;
    fedge_verdicts_end();
    memory.table = calloc(size, sizeof(*memory.table));
    memory.mask = size - 1;
    memory.recalled = 0;
    return memory.table
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for verdicts on %zu chains", size);
}

void fedge_verdicts_end(void)
{
    free(memory.table);
    memory.table = NULL;
}

uint64_t fedge_verdicts_recalled(void)
{
    return atomic_load(&memory.recalled);
}

static bool name_of(const mbedtls_x509_crt *shown, uint8_t name[FEDGE_FINGERPRINT_SIZE])
{
    mbedtls_sha256_context hash;
    mbedtls_sha256_init(&hash);
    bool ok = mbedtls_sha256_starts(&hash, 0) == 0;
    for (; ok && shown && shown->raw.len > 0; shown = shown->next) { /* DER has its length */
        ok = mbedtls_sha256_update(&hash, shown->raw.p, shown->raw.len) == 0;
    }
    ok = ok && mbedtls_sha256_finish(&hash, name) == 0;
    mbedtls_sha256_free(&hash);
    return ok;
}

static verdict *place_of(const uint8_t name[FEDGE_FINGERPRINT_SIZE])
{
    size_t at = 0;
    memcpy(&at, name, sizeof(at));
    /* A hash's first bytes are as good as any. */
    return &memory.table[at & memory.mask];
}

static bool recall(const uint8_t name[FEDGE_FINGERPRINT_SIZE], uint64_t roots, fedge_chain *chain)
{
    fedge_error err;
    pthread_mutex_lock(&memory.mutex);
    const verdict *found = place_of(name);
    const bool known =
        found->roots == roots && memcmp(found->certificates, name, FEDGE_FINGERPRINT_SIZE) == 0;
    if (known)
        *chain = found->chain;
    pthread_mutex_unlock(&memory.mutex);
    /* This computes hashes of the roots: other threads need not wait for it. */
    if (!known || fedge_chain_check(chain, fedge_tls_now_ms(), &err) != FEDGE_OK)
        return false;
    atomic_fetch_add(&memory.recalled, 1);
    return true;
}

static void remember(const uint8_t name[FEDGE_FINGERPRINT_SIZE], uint64_t roots,
                     const fedge_chain *chain)
{
    pthread_mutex_lock(&memory.mutex);
    verdict *place = place_of(name);
    memcpy(place->certificates, name, FEDGE_FINGERPRINT_SIZE);
    place->roots = roots;
    place->chain = *chain;
    pthread_mutex_unlock(&memory.mutex);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

typedef int judge_fn(void *user, mbedtls_x509_crt *certificate, int depth, uint32_t *flags);

int __real_mbedtls_x509_crt_verify_restartable(mbedtls_x509_crt *shown, mbedtls_x509_crt *roots,
                                               mbedtls_x509_crl *revoked,
                                               const mbedtls_x509_crt_profile *profile,
                                               const char *host, uint32_t *flags, judge_fn *judge,
                                               void *user, mbedtls_x509_crt_restart_ctx *restart);
int __wrap_mbedtls_x509_crt_verify_restartable(mbedtls_x509_crt *shown, mbedtls_x509_crt *roots,
                                               mbedtls_x509_crl *revoked,
                                               const mbedtls_x509_crt_profile *profile,
                                               const char *host, uint32_t *flags, judge_fn *judge,
                                               void *user, mbedtls_x509_crt_restart_ctx *restart);

int __wrap_mbedtls_x509_crt_verify_restartable(mbedtls_x509_crt *shown, mbedtls_x509_crt *roots,
                                               mbedtls_x509_crl *revoked,
                                               const mbedtls_x509_crt_profile *profile,
                                               const char *host, uint32_t *flags, judge_fn *judge,
                                               void *user, mbedtls_x509_crt_restart_ctx *restart)
{
    uint8_t name[FEDGE_FINGERPRINT_SIZE];
    fedge_chain chain;
    const uint64_t version = fedge_tls_roots_version();
    /* In handshakes of a server alone does somebody look at what a chain rests on. */
    const bool ours =
        memory.table && fedge_chain_is_watched() && judge && !host && name_of(shown, name);
    if (ours && recall(name, version, &chain)) {
        *flags = 0;
        const int code = judge(user, shown, 0, flags); /* the peer's own names and role */
        fedge_chain_recall(&chain);
        return code == 0 && *flags != 0 ? MBEDTLS_ERR_X509_CERT_VERIFY_FAILED : code;
    }
    const int code = __real_mbedtls_x509_crt_verify_restartable(shown, roots, revoked, profile,
                                                                host, flags, judge, user, restart);
    if (ours && code == 0 && *flags == 0 && fedge_chain_seen(&chain))
        remember(name, version, &chain);
    return code;
}

/* NOLINTEND(bugprone-reserved-identifier) */
