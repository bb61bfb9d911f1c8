#define _POSIX_C_SOURCE 200809L /* pthread_rwlock_t */

#include "aggregator/net/peers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/chain.h"
#include "secure/identity/tls.h"

#define EXPIRY_WARNING_MS ((uint64_t)30 * 24 * 3600 * 1000)

#define MAX_NOISY 64 /* devices whose suppressed lines are counted separately within a second */

/* Log state of a device, across its connections. */
typedef struct device_note {
    fedge_quota lines;
    uint32_t displaced; /* replacements since [displaced_since_ms] */
    uint64_t displaced_since_ms;
    fedge_peer_address latest; /* address of its last connection */
} device_note;

typedef struct noisy_device {
    char device_id[FEDGE_UUID_TEXT];
    uint32_t unlogged;
} noisy_device;

struct fedge_peers {
    const char *identity_dir, *trust_dir, *registry_dir;
    const fedge_log *log;
    fedge_clock clock;
    fedge_tls *tls;
    pthread_rwlock_t loaded; /* protects identity and registry */
    fedge_identity *identity;
    fedge_registry *registry;

    pthread_mutex_t mutex; /* protects the fields below */
    uint64_t second_ms;    /* start of the present second of refusals */
    uint32_t logged, unlogged;
    uint64_t refused;

    _Atomic uint64_t remembered[FEDGE_PEERS_REMEMBERED]; /* fedge_peer_address_key; 0: empty */
    device_note *notes;                                  /* indexed by client */
    uint32_t num_notes;
    noisy_device noisy[MAX_NOISY]; /* refused in the present second */
    uint32_t num_noisy, unlogged_of_others;
};

static void warn_of_expiry(const fedge_peers *peers)
{
    uint64_t now_ms = fedge_clock_now_ms(&peers->clock);
    uint64_t end_ms = peers->identity->certificate.not_after_ms;
    if (end_ms < now_ms + EXPIRY_WARNING_MS) {
        uint64_t left_ms = end_ms > now_ms ? end_ms - now_ms : 0;
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "own-certificate-expires-soon",
                  fedge_log_str("identity", peers->identity_dir),
                  fedge_log_int("days-left", (int64_t)(left_ms / 86400000)));
    }
}

/* A registry only grows. Without memory, new devices have no limits. */
static void make_notes(fedge_peers *peers, uint32_t num_devices)
{
    if (num_devices <= peers->num_notes)
        return;
    device_note *notes = calloc(num_devices, sizeof(*notes)); /* untouched pages cost no memory */
    if (notes) {
        if (peers->num_notes > 0)
            memcpy(notes, peers->notes, peers->num_notes * sizeof(*notes));
        free(peers->notes);
        peers->notes = notes;
        peers->num_notes = num_devices;
    }
}

static fedge_status reload_registry(fedge_peers *peers, fedge_error *err)
{
    fedge_registry *registry = NULL;
    FEDGE_TRY(fedge_registry_load(peers->registry_dir, &registry, err));
    pthread_mutex_lock(&peers->mutex);
    make_notes(peers, fedge_registry_num_devices(registry));
    pthread_mutex_unlock(&peers->mutex);
    pthread_rwlock_wrlock(&peers->loaded);
    fedge_registry_free(peers->registry);
    peers->registry = registry;
    pthread_rwlock_unlock(&peers->loaded);
    return FEDGE_OK;
}

static fedge_status reload_roots(fedge_peers *peers, fedge_error *err)
{
    char *roots = NULL;
    FEDGE_TRY(fedge_trust_load(peers->trust_dir, &roots, err));
    const fedge_status status = fedge_tls_set_roots(peers->tls, roots, err);
    free(roots);
    return status;
}

static fedge_status reload_identity(fedge_peers *peers, fedge_error *err)
{
    fedge_identity *identity = NULL;
    FEDGE_TRY(fedge_identity_load(peers->identity_dir, FEDGE_ROLE_SERVER,
                                  fedge_clock_now_ms(&peers->clock), &identity, err));
    const fedge_status status = fedge_tls_set_server_identity(peers->tls, identity, err);
    if (status != FEDGE_OK) {
        fedge_identity_free(identity);
        return status;
    }
    pthread_rwlock_wrlock(&peers->loaded);
    fedge_identity_free(peers->identity);
    peers->identity = identity;
    pthread_rwlock_unlock(&peers->loaded);
    warn_of_expiry(peers);
    return FEDGE_OK;
}

/* Each part is loaded separately: a revocation or a removed root must not wait until another file
 * is repaired. All failures are reported, since repairing the first would not load the others. */
fedge_status fedge_peers_reload(fedge_peers *peers, fedge_error *err)
{
    static fedge_status (*const parts[])(fedge_peers *, fedge_error *) = {
        reload_identity, reload_roots, reload_registry};
    const bool at_start = !peers->registry;
    fedge_status first = FEDGE_OK;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        fedge_error why;
        const fedge_status status = parts[i](peers, &why);
        if (status == FEDGE_OK)
            continue;
        if (first != FEDGE_OK && !at_start)
            fedge_log_failure(peers->log, FEDGE_LOG_ERROR, "reload-failed", &why);
        if (first == FEDGE_OK) {
            first = status;
            *err = why;
        }
    }
    return first;
}

static void dispose(fedge_peers *peers)
{
    if (peers->tls)
        fedge_chain_cache_end(peers->tls);
    fedge_tls_free(peers->tls);
    fedge_identity_free(peers->identity);
    fedge_registry_free(peers->registry);
    free(peers->notes);
    pthread_mutex_destroy(&peers->mutex);
    pthread_rwlock_destroy(&peers->loaded);
    free(peers);
}

fedge_status fedge_peers_new(const char *identity_dir, const char *trust_dir,
                             const char *registry_dir, const fedge_log *log, fedge_peers **peers,
                             fedge_error *err)
{
    *peers = NULL;
    fedge_peers *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the registry of peers");
    fresh->identity_dir = identity_dir;
    fresh->trust_dir = trust_dir;
    fresh->registry_dir = registry_dir;
    fresh->log = log;
    pthread_rwlock_init(&fresh->loaded, NULL);
    pthread_mutex_init(&fresh->mutex, NULL);
    fedge_status status;
    FEDGE_TRY_OR(fedge_tls_new(&fresh->clock, &fresh->tls, err), failed);
    FEDGE_TRY_OR(fedge_peers_reload(fresh, err), failed);
    FEDGE_TRY_OR(
        fedge_chain_cache_begin(fresh->tls, fedge_registry_num_devices(fresh->registry), err),
        failed);
    *peers = fresh;
    return FEDGE_OK;
failed:
    dispose(fresh);
    return status;
}

void fedge_peers_free(fedge_peers *peers)
{
    if (peers)
        dispose(peers);
}

fedge_tls *fedge_peers_tls(const fedge_peers *peers)
{
    return peers->tls;
}

uint64_t fedge_peers_now_ms(const fedge_peers *peers)
{
    return fedge_clock_now_ms(&peers->clock);
}

const fedge_identity *fedge_peers_identity(const fedge_peers *peers)
{
    return peers->identity;
}

uint32_t fedge_peers_num_devices(fedge_peers *peers)
{
    pthread_rwlock_rdlock(&peers->loaded);
    const uint32_t number = fedge_registry_num_devices(peers->registry);
    pthread_rwlock_unlock(&peers->loaded);
    return number;
}

fedge_registry_counts fedge_peers_count(fedge_peers *peers)
{
    pthread_rwlock_rdlock(&peers->loaded);
    const fedge_registry_counts counts = fedge_registry_count(peers->registry);
    pthread_rwlock_unlock(&peers->loaded);
    return counts;
}

fedge_status fedge_peers_admit(fedge_peers *peers, const uint8_t *der, size_t der_size,
                               uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                               fedge_registry_match *match, fedge_error *err)
{
    pthread_rwlock_rdlock(&peers->loaded);
    fedge_status status =
        fedge_peer_check(der, der_size, FEDGE_ROLE_DEVICE, fedge_clock_now_ms(&peers->clock),
                         peers->registry, match, err);
    pthread_rwlock_unlock(&peers->loaded);
    if (status == FEDGE_OK)
        fedge_sha256(der, der_size, fingerprint);
    return status;
}

fedge_status fedge_peers_admit_resumed(fedge_peers *peers, const fedge_ticket_owner *owner,
                                       fedge_registry_match *match, fedge_error *err)
{
    fedge_certificate_info known = {.role = owner->role, .subject = "a resumed session"};
    memcpy(known.device_id, owner->device_id, sizeof(known.device_id));
    memcpy(known.fingerprint, owner->fingerprint, sizeof(known.fingerprint));
    pthread_rwlock_rdlock(&peers->loaded);
    fedge_status status =
        fedge_peer_recheck(&known, FEDGE_ROLE_DEVICE, peers->registry, match, err);
    /* The chain was verified when the ticket was issued, and the caller verifies it now; only the
     * registry may have changed. */
    pthread_rwlock_unlock(&peers->loaded);
    return status;
}

fedge_status fedge_peers_recheck(fedge_peers *peers,
                                 const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                 const fedge_registry_match *was, fedge_error *err)
{
    fedge_registry_match match;
    pthread_rwlock_rdlock(&peers->loaded);
    fedge_status status = fedge_registry_find(peers->registry, fingerprint, &match, err);
    pthread_rwlock_unlock(&peers->loaded);
    if (status != FEDGE_OK)
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is no longer in the registry");
    if (match.state != FEDGE_CERTIFICATE_ACTIVE || match.role != FEDGE_ROLE_DEVICE) {
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is %s now",
                          fedge_certificate_state_name(match.state));
    }
    if (match.index != was->index || strcmp(match.device_id, was->device_id) != 0)
        return fedge_fail(err, FEDGE_REVOKED, "the certificate is another device's now");
    return FEDGE_OK;
}

/* Ends a second: logs the number of suppressed lines. */
static void end_second(fedge_peers *peers, uint64_t now_ms)
{
    if (now_ms < peers->second_ms + 1000)
        return;
    if (peers->unlogged > 0) {
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "more-connections-refused",
                  fedge_log_int("number", peers->unlogged));
    }
    for (uint32_t i = 0; i < peers->num_noisy; i++) {
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "more-lines-of-device",
                  fedge_log_str("device", peers->noisy[i].device_id),
                  fedge_log_int("number", peers->noisy[i].unlogged));
    }
    if (peers->unlogged_of_others > 0) {
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "more-lines-of-devices",
                  fedge_log_int("number", peers->unlogged_of_others));
    }
    peers->second_ms = now_ms;
    peers->logged = 0;
    peers->unlogged = 0;
    peers->num_noisy = 0;
    peers->unlogged_of_others = 0;
}

void fedge_peers_tick(fedge_peers *peers, uint64_t now_ms)
{
    pthread_mutex_lock(&peers->mutex);
    end_second(peers, now_ms);
    pthread_mutex_unlock(&peers->mutex);
}

void fedge_peers_refused(fedge_peers *peers, const char *address, const char *who,
                         const char *reason, uint64_t now_ms)
{
    pthread_mutex_lock(&peers->mutex);
    peers->refused++;
    end_second(peers, now_ms);
    const bool logged = peers->logged < FEDGE_REFUSALS_PER_SECOND;
    peers->logged += logged;
    peers->unlogged += !logged;
    pthread_mutex_unlock(&peers->mutex);
    if (logged) {
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "connection-refused",
                  fedge_log_str("address", address), fedge_log_str("who", who),
                  fedge_log_str("reason", reason));
    }
}

static void count_unlogged(fedge_peers *peers, const char *device_id)
{
    uint32_t i = 0;
    while (i < peers->num_noisy && strcmp(peers->noisy[i].device_id, device_id) != 0)
        i++;
    /* The table's size is fixed, so that noisy devices cannot use up memory. */
    if (i == MAX_NOISY) {
        peers->unlogged_of_others++;
        return;
    }
    if (i == peers->num_noisy) {
        peers->noisy[i].unlogged = 0;
        memcpy(peers->noisy[i].device_id, device_id, sizeof(peers->noisy[i].device_id));
        peers->num_noisy++;
    }
    peers->noisy[i].unlogged++;
}

static device_note *note_of(fedge_peers *peers, const fedge_registry_match *match)
{
    return match->index < peers->num_notes ? &peers->notes[match->index] : NULL;
}

bool fedge_peers_may_log(fedge_peers *peers, const fedge_registry_match *match,
                         fedge_quota *connection, uint64_t now_ms)
{
    pthread_mutex_lock(&peers->mutex);
    device_note *note = note_of(peers, match);
    bool may =
        fedge_quota_take(connection, FEDGE_LINES_PER_SECOND, FEDGE_LINES_PER_SECOND, now_ms) &&
        (!note ||
         fedge_quota_take(&note->lines, FEDGE_LINES_BURST, FEDGE_LINES_PER_SECOND, now_ms));
    if (!may)
        count_unlogged(peers, match->device_id);
    pthread_mutex_unlock(&peers->mutex);
    return may;
}

static _Atomic uint64_t *cell_of(fedge_peers *peers, uint64_t key)
{
    /* The later of two addresses in one cell stays. The other only loses its priority in a flood.
     */
    return &peers->remembered[(key ^ (key >> 32)) % FEDGE_PEERS_REMEMBERED];
}

bool fedge_peers_has_seen(fedge_peers *peers, const fedge_peer_address *address)
{
    const uint64_t key = fedge_peer_address_key(address);
    return atomic_load(cell_of(peers, key)) == key;
}

void fedge_peers_connected(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address)
{
    const uint64_t key = fedge_peer_address_key(address);
    atomic_store(cell_of(peers, key), key);
    pthread_mutex_lock(&peers->mutex);
    device_note *note = note_of(peers, match);
    if (note)
        note->latest = *address;
    pthread_mutex_unlock(&peers->mutex);
}

/* Whether this is the limit within the time; *latest: the device's present address. */
static bool count_displaced(device_note *note, fedge_peer_address *latest, uint64_t now_ms)
{
    if (now_ms >= note->displaced_since_ms + FEDGE_DISPLACED_MS) {
        note->displaced_since_ms = now_ms;
        note->displaced = 0;
    }
    *latest = note->latest;
    return ++note->displaced == FEDGE_DISPLACED_TIMES;
}

void fedge_peers_displaced(fedge_peers *peers, const fedge_registry_match *match,
                           const fedge_peer_address *address, uint64_t now_ms)
{
    fedge_peer_address latest;
    pthread_mutex_lock(&peers->mutex);
    device_note *note = note_of(peers, match);
    const bool too_often = note && count_displaced(note, &latest, now_ms);
    pthread_mutex_unlock(&peers->mutex);
    if (too_often) {
        char text[FEDGE_ADDRESS_TEXT];
        char other[FEDGE_ADDRESS_TEXT];
        FEDGE_LOG(peers->log, FEDGE_LOG_WARN, "identity-in-use-twice",
                  fedge_log_str("device", match->device_id), fedge_log_str("name", match->name),
                  fedge_log_str("address", fedge_peer_address_text(address, text)),
                  fedge_log_str("other-address", fedge_peer_address_text(&latest, other)),
                  fedge_log_int("times", FEDGE_DISPLACED_TIMES),
                  fedge_log_str("advice", "an identity belongs to one device: give the other "
                                          "device its own, or revoke a stolen one"));
    }
}

uint64_t fedge_peers_num_refused(fedge_peers *peers)
{
    pthread_mutex_lock(&peers->mutex);
    const uint64_t refused = peers->refused;
    pthread_mutex_unlock(&peers->mutex);
    return refused;
}
