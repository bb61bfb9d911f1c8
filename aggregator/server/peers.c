#include "aggregator/server/peers.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "secure/identity/tls.h"

#define EXPIRY_WARNING_MS ((uint64_t)30 * 24 * 3600 * 1000)

struct fedge_peers {
    const char *identity_dir, *trust_dir, *registry_dir;
    const fedge_log *log;
    fedge_identity *identity;
    fedge_registry *registry;

    uint64_t second_ms; /* start of the present second of refusals */
    uint32_t logged, unlogged;
    uint64_t refused;
};

/* Roots before identity: identity_load has checked that the latter's key and chain parse, so the
 * last step fails only for want of memory and the three never part. */
static fedge_status apply(const fedge_identity *identity, const char *roots, fedge_error *err)
{
    fedge_status status = fedge_tls_set_roots(roots, err);
    return status == FEDGE_OK ? fedge_tls_set_server_identity(identity, err) : status;
}

static void warn_of_expiry(const fedge_peers *peers)
{
    uint64_t now_ms = fedge_tls_now_ms();
    uint64_t end_ms = peers->identity->certificate.not_after_ms;
    if (end_ms < now_ms + EXPIRY_WARNING_MS) {
        uint64_t left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "own-certificate-expires-soon",
                  fedge_log_str("identity", peers->identity_dir),
                  fedge_log_int("days-left", (int64_t)(left_ms / 86400000)));
    }
}

fedge_status fedge_peers_reload(fedge_peers *peers, fedge_error *err)
{
    fedge_identity *identity = NULL;
    fedge_registry *registry = NULL;
    char *roots = NULL;
    fedge_status status = fedge_identity_load(peers->identity_dir, FEDGE_ROLE_SERVER,
                                              fedge_tls_now_ms(), &identity, err);
    if (status == FEDGE_OK) {
        status = fedge_trust_load(peers->trust_dir, &roots, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_registry_load(peers->registry_dir, &registry, err);
    }
    if (status == FEDGE_OK) {
        status = apply(identity, roots, err);
    }
    free(roots);
    if (status != FEDGE_OK) {
        fedge_identity_free(identity);
        fedge_registry_free(registry);
        return status;
    }
    fedge_identity_free(peers->identity);
    fedge_registry_free(peers->registry);
    peers->identity = identity;
    peers->registry = registry;
    warn_of_expiry(peers);
    return FEDGE_OK;
}

fedge_status fedge_peers_new(const char *identity_dir, const char *trust_dir,
                             const char *registry_dir, const fedge_log *log, fedge_peers **peers,
                             fedge_error *err)
{
    *peers = NULL;
    fedge_peers *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the registry of peers");
    }
    fresh->identity_dir = identity_dir;
    fresh->trust_dir = trust_dir;
    fresh->registry_dir = registry_dir;
    fresh->log = log;
    fedge_status status = fedge_peers_reload(fresh, err);
    if (status != FEDGE_OK) {
        free(fresh);
        return status;
    }
    *peers = fresh;
    return FEDGE_OK;
}

void fedge_peers_free(fedge_peers *peers)
{
    if (!peers) {
        return;
    }
    fedge_tls_reset();
    fedge_identity_free(peers->identity);
    fedge_registry_free(peers->registry);
    free(peers);
}

const fedge_identity *fedge_peers_identity(const fedge_peers *peers)
{
    return peers->identity;
}

uint32_t fedge_peers_num_devices(const fedge_peers *peers)
{
    return fedge_registry_num_devices(peers->registry);
}

fedge_status fedge_peers_admit(const fedge_peers *peers, const uint8_t *der, size_t der_size,
                               uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                               fedge_registry_match *match, fedge_error *err)
{
    fedge_status status = fedge_peer_check(der, der_size, FEDGE_ROLE_DEVICE, fedge_tls_now_ms(),
                                           peers->registry, match, err);
    if (status == FEDGE_OK) {
        fedge_sha256(der, der_size, fingerprint);
    }
    return status;
}

fedge_status fedge_peers_keep(const fedge_peers *peers,
                              const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                              const fedge_registry_match *was, fedge_error *err)
{
    fedge_registry_match match;
    fedge_status status = fedge_registry_find(peers->registry, fingerprint, &match, err);
    if (status != FEDGE_OK) {
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is no longer in the registry");
    }
    if (match.state != FEDGE_CERTIFICATE_ACTIVE || match.role != FEDGE_ROLE_DEVICE) {
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is %s now",
                          fedge_certificate_state_name(match.state));
    }
    if (match.index != was->index || strcmp(match.device_id, was->device_id) != 0) {
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is another device's now");
    }
    return FEDGE_OK;
}

void fedge_peers_refused(fedge_peers *peers, const char *address, const char *who,
                         const char *reason, uint64_t now_ms)
{
    peers->refused++;
    fedge_peers_tick(peers, now_ms);
    if (peers->logged >= FEDGE_REFUSALS_PER_SECOND) {
        peers->unlogged++;
        return;
    }
    peers->logged++;
    FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "connection-refused", fedge_log_str("address", address),
              fedge_log_str("who", who), fedge_log_str("reason", reason));
}

void fedge_peers_tick(fedge_peers *peers, uint64_t now_ms)
{
    if (now_ms < peers->second_ms + 1000) {
        return;
    }
    if (peers->unlogged > 0) {
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "more-connections-refused",
                  fedge_log_int("number", peers->unlogged));
    }
    peers->second_ms = now_ms;
    peers->logged = 0;
    peers->unlogged = 0;
}

uint64_t fedge_peers_num_refused(const fedge_peers *peers)
{
    return peers->refused;
}
