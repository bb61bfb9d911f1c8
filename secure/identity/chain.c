#include "secure/identity/chain.h"

#include <string.h>

#include <mbedtls/sha256.h>

#include "secure/identity/calendar.h"
#include "secure/identity/tls_private.h"
#include "secure/identity/x509.h"

/* Of each thread that runs connections. */
static _Thread_local fedge_chain_verified_fn verified_fn;
static _Thread_local void *verified_user;

/* The chain that this thread's handshake step verifies, from its root down. */
static _Thread_local fedge_chain seen;
static _Thread_local bool begun, whole;

/* Of its name and key, not of the whole certificate: a root that was renewed with its key is the
 * same root to the chains below it. */
static void root_of(const mbedtls_x509_crt *certificate, uint8_t root[FEDGE_FINGERPRINT_SIZE])
{
    mbedtls_sha256_context hash;
    mbedtls_sha256_init(&hash);
    if (mbedtls_sha256_starts(&hash, 0) != 0 ||
        mbedtls_sha256_update(&hash, certificate->subject_raw.p, certificate->subject_raw.len) !=
            0 ||
        mbedtls_sha256_update(&hash, certificate->pk_raw.p, certificate->pk_raw.len) != 0 ||
        mbedtls_sha256_finish(&hash, root) != 0)
        memset(root, 0, FEDGE_FINGERPRINT_SIZE); /* of no certificate */
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
            return; /* its own time is that of whichever root has this name and key then */
    }
    uint64_t from_ms = fedge_x509_ms(&certificate->valid_from);
    uint64_t to_ms = fedge_x509_ms(&certificate->valid_to);
    seen.not_before_ms = seen.not_before_ms > from_ms ? seen.not_before_ms : from_ms;
    seen.not_after_ms = seen.not_after_ms < to_ms ? seen.not_after_ms : to_ms;
    whole = depth == 0;
}

static void end_step(int socket)
{
    /* Only a chain that was seen down to the device's own certificate counts. */
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

bool fedge_chain_is_watched(void)
{
    return verified_fn != NULL;
}

bool fedge_chain_seen(fedge_chain *chain)
{
    *chain = seen;
    return whole;
}

void fedge_chain_recall(const fedge_chain *chain)
{
    seen = *chain;
    begun = whole = true;
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
