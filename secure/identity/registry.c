#include "secure/identity/registry.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/core/text.h"
#include "secure/identity/certificate.h"
#include "secure/identity/registry_table.h"
#include "secure/identity/x509.h"

#define MIN_BITS 4u

const char *fedge_certificate_state_name(fedge_certificate_state state)
{
    static const char *const names[] = {
        [FEDGE_CERTIFICATE_PENDING] = "pending",
        [FEDGE_CERTIFICATE_ACTIVE] = "active",
        [FEDGE_CERTIFICATE_REVOKED] = "revoked",
    };
    return (unsigned)state < sizeof(names) / sizeof(*names) ? names[state] : NULL;
}

/* --- hash tables ------------------------------------------------------------------------------ */

static const uint8_t *key_of(const fedge_registry *registry, bool by_id, uint32_t index)
{
    return by_id ? registry->devices[index].id.bytes : registry->certificates[index].fingerprint;
}

/* The slot of [key], or the empty one for it. */
static uint32_t *slot_of(const fedge_registry *registry, bool by_id, const uint8_t *key)
{
    const fedge_registry_slots *table = by_id ? &registry->by_id : &registry->by_fingerprint;
    size_t key_size = by_id ? sizeof(fedge_device_id) : FEDGE_FINGERPRINT_SIZE;
    uint32_t mask = (UINT32_C(1) << table->bits) - 1;
    /* Multiplying by Knuth's golden ratio spreads ids that were numbered by hand. */
    uint64_t hash = (fedge_get_u64(key) ^ fedge_get_u64(key + 8)) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) & mask;
    while (table->slots[at] != 0 &&
           memcmp(key_of(registry, by_id, table->slots[at] - 1), key, key_size) != 0)
        at = (at + 1) & mask;
    return &table->slots[at];
}

/* Creates the table of 2^[bits] slots and fills it with [count] entries. */
static fedge_status rebuild(fedge_registry *registry, bool by_id, uint32_t count, unsigned bits,
                            fedge_error *err)
{
    fedge_registry_slots *table = by_id ? &registry->by_id : &registry->by_fingerprint;
    uint32_t *slots = calloc((size_t)1 << bits, sizeof(*slots));
    if (!slots) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the registry's index of %u entries",
                          count);
    }
    free(table->slots);
    table->slots = slots;
    table->bits = bits;
    /* Index + 1; 0 marks an empty slot. */
    for (uint32_t i = 0; i < count; i++)
        *slot_of(registry, by_id, key_of(registry, by_id, i)) = i + 1;
    return FEDGE_OK;
}

/* Makes the table large enough for one more than [count]. */
static fedge_status reserve_slot(fedge_registry *registry, bool by_id, uint32_t count,
                                 fedge_error *err)
{
    const fedge_registry_slots *table = by_id ? &registry->by_id : &registry->by_fingerprint;
    /* At most half full: a search by linear probing then looks at one or two slots. */
    if ((uint64_t)(count + 1) * 2 <= UINT64_C(1) << table->bits)
        return FEDGE_OK;
    return rebuild(registry, by_id, count, table->bits + 1, err);
}

/* Doubles an array when it is full. */
static fedge_status grow(void **items, uint32_t count, uint32_t *capacity, size_t item_size,
                         fedge_error *err)
{
    if (count < *capacity)
        return FEDGE_OK;
    uint32_t wanted = *capacity == 0 ? 16 : *capacity * 2;
    void *grown = realloc(*items, wanted * item_size);
    if (!grown)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a registry of %u entries", wanted);
    *items = grown;
    *capacity = wanted;
    return FEDGE_OK;
}

/* --- making it -------------------------------------------------------------------------------- */

fedge_status fedge_registry_new(fedge_registry **registry, fedge_error *err)
{
    *registry = NULL;
    fedge_registry *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a registry");
    fedge_status status;
    FEDGE_TRY_OR(rebuild(fresh, true, 0, MIN_BITS, err), fail);
    FEDGE_TRY_OR(rebuild(fresh, false, 0, MIN_BITS, err), fail);
    *registry = fresh;
    return FEDGE_OK;
fail:
    fedge_registry_free(fresh);
    return status;
}

void fedge_registry_free(fedge_registry *registry)
{
    if (!registry)
        return;
    free(registry->by_id.slots);
    free(registry->by_fingerprint.slots);
    free(registry->devices);
    free(registry->certificates);
    free(registry);
}

fedge_status fedge_registry_put_device(fedge_registry *registry, const fedge_device_id *id,
                                       fedge_role role, const char *name, uint32_t *device_index,
                                       fedge_error *err)
{
    char text[FEDGE_DEVICE_ID_TEXT_SIZE];
    if (*slot_of(registry, true, id->bytes) != 0) {
        return fedge_fail(err, FEDGE_DUPLICATE, "device %s is there twice",
                          fedge_device_id_format(id, text));
    }
    if (registry->num_devices == FEDGE_REGISTRY_MAX_DEVICES) {
        return fedge_fail(err, FEDGE_TOO_BIG, "the registry is full: it has %u devices",
                          FEDGE_REGISTRY_MAX_DEVICES);
    }
    FEDGE_TRY(grow((void **)&registry->devices, registry->num_devices, &registry->cap_devices,
                   sizeof(*registry->devices), err));
    FEDGE_TRY(reserve_slot(registry, true, registry->num_devices, err));
    fedge_registry_device *device = &registry->devices[registry->num_devices];
    *device = (fedge_registry_device){
        .id = *id,
        .role = role,
        /* Numbered by role, in the file's order. The index names random numbers and client states,
           so devices are revoked, but never removed. */
        .index = registry->num_of_role[role]++,
        .first = FEDGE_REGISTRY_NONE,
        .last = FEDGE_REGISTRY_NONE};
    assert(strlen(name) < sizeof(device->name));
    memcpy(device->name, name, strlen(name) + 1);
    *device_index = registry->num_devices++;
    *slot_of(registry, true, id->bytes) = *device_index + 1;
    return FEDGE_OK;
}

fedge_status fedge_registry_put_certificate(fedge_registry *registry, uint32_t device,
                                            const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                            fedge_certificate_state state, uint64_t not_after_ms,
                                            fedge_error *err)
{
    fedge_registry_device *owner = &registry->devices[device];
    if (*slot_of(registry, false, fingerprint) != 0) {
        return fedge_fail(err, FEDGE_DUPLICATE, "a certificate of '%s' is there twice",
                          owner->name);
    }
    if (owner->num_certificates == FEDGE_REGISTRY_MAX_CERTIFICATES) {
        return fedge_fail(err, FEDGE_TOO_BIG, "'%s' has more than %d certificates", owner->name,
                          FEDGE_REGISTRY_MAX_CERTIFICATES);
    }
    /* Allocate everything first, so that nothing after this can fail. */
    FEDGE_TRY(grow((void **)&registry->certificates, registry->num_certificates,
                   &registry->cap_certificates, sizeof(*registry->certificates), err));
    FEDGE_TRY(reserve_slot(registry, false, registry->num_certificates, err));
    uint32_t index = registry->num_certificates++;
    fedge_registry_certificate *certificate = &registry->certificates[index];
    *certificate = (fedge_registry_certificate){.not_after_ms = not_after_ms,
                                                .device = device,
                                                .next = FEDGE_REGISTRY_NONE,
                                                .state = state};
    memcpy(certificate->fingerprint, fingerprint, FEDGE_FINGERPRINT_SIZE);
    if (owner->last == FEDGE_REGISTRY_NONE)
        owner->first = index;
    else
        registry->certificates[owner->last].next = index;
    owner->last = index;
    owner->num_certificates++;
    *slot_of(registry, false, fingerprint) = index + 1;
    return FEDGE_OK;
}

/* --- looking things up ------------------------------------------------------------------------ */

uint32_t fedge_registry_num_devices(const fedge_registry *registry)
{
    return registry->num_of_role[FEDGE_ROLE_DEVICE];
}

fedge_registry_counts fedge_registry_count(const fedge_registry *registry)
{
    fedge_registry_counts counts = {.active = 0};
    for (uint32_t i = 0; i < registry->num_devices; i++) {
        bool has[FEDGE_CERTIFICATE_REVOKED + 1] = {false};
        uint32_t at = registry->devices[i].first;
        for (; at != FEDGE_REGISTRY_NONE; at = registry->certificates[at].next)
            has[registry->certificates[at].state] = true;
        if (registry->devices[i].role != FEDGE_ROLE_DEVICE)
            continue;
        if (has[FEDGE_CERTIFICATE_ACTIVE])
            counts.active++;
        else if (has[FEDGE_CERTIFICATE_PENDING])
            counts.pending++;
        else
            counts.revoked++;
    }
    return counts;
}

static void fill_match(const fedge_registry *registry,
                       const fedge_registry_certificate *certificate, fedge_registry_match *match)
{
    const fedge_registry_device *device = &registry->devices[certificate->device];
    *match = (fedge_registry_match){
        .index = device->index, .role = device->role, .state = certificate->state};
    fedge_device_id_format(&device->id, match->device_id);
    memcpy(match->name, device->name, sizeof(match->name));
}

fedge_status fedge_registry_find(const fedge_registry *registry,
                                 const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                 fedge_registry_match *match, fedge_error *err)
{
    uint32_t slot = *slot_of(registry, false, fingerprint);
    if (slot == 0) {
        char text[2 * FEDGE_FINGERPRINT_SIZE + 1];
        return fedge_fail(err, FEDGE_NOT_FOUND, "no certificate with SHA-256 %s is registered",
                          fedge_hex_encode(fingerprint, FEDGE_FINGERPRINT_SIZE, text));
    }
    fill_match(registry, &registry->certificates[slot - 1], match);
    return FEDGE_OK;
}

fedge_status fedge_registry_visit(fedge_registry *registry, fedge_registry_visit_fn visit,
                                  void *user, fedge_error *err)
{
    for (uint32_t i = 0; i < registry->num_devices; i++) {
        uint32_t at = registry->devices[i].first;
        for (; at != FEDGE_REGISTRY_NONE; at = registry->certificates[at].next) {
            fedge_registry_certificate *certificate = &registry->certificates[at];
            fedge_registry_row row = {.not_after_ms = certificate->not_after_ms};
            fill_match(registry, certificate, &row.match);
            memcpy(row.fingerprint, certificate->fingerprint, sizeof(row.fingerprint));
            FEDGE_TRY(visit(user, &row, err));
            certificate->state = row.match.state;
        }
    }
    return FEDGE_OK;
}

/* --- changing it ------------------------------------------------------------------------------ */

fedge_status fedge_registry_lock(const char *dir, int *lock, fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(fedge_x509_path(path, sizeof(path), dir, "lock", err));
    FEDGE_TRY(fedge_os_make_dirs(dir, err));
    return fedge_os_lock(path, lock, err);
}

/* A device whose certificates are all revoked must not return by renewal. */
static bool is_revoked(const fedge_registry *registry, const fedge_registry_device *device)
{
    if (device->num_certificates == 0)
        return false;
    uint32_t at = device->first;
    for (; at != FEDGE_REGISTRY_NONE; at = registry->certificates[at].next) {
        if (registry->certificates[at].state != FEDGE_CERTIFICATE_REVOKED)
            return false;
    }
    return true;
}

/* Replaces the device's certificate that expires first. */
static fedge_status replace_certificate(fedge_registry *registry, uint32_t device,
                                        const fedge_certificate_info *info,
                                        fedge_certificate_state state, fedge_error *err)
{
    if (*slot_of(registry, false, info->fingerprint) != 0)
        return fedge_fail(err, FEDGE_DUPLICATE, "this certificate is registered already");
    uint32_t oldest = registry->devices[device].first;
    uint32_t at = oldest;
    for (; at != FEDGE_REGISTRY_NONE; at = registry->certificates[at].next) {
        if (registry->certificates[at].not_after_ms < registry->certificates[oldest].not_after_ms)
            oldest = at;
    }
    fedge_registry_certificate *replaced = &registry->certificates[oldest];
    memcpy(replaced->fingerprint, info->fingerprint, sizeof(replaced->fingerprint));
    replaced->not_after_ms = info->not_after_ms;
    replaced->state = state;
    /* Rebuild: removing a key from a table with linear probing would hide keys after it. */
    return rebuild(registry, false, registry->num_certificates, registry->by_fingerprint.bits, err);
}

static fedge_status check_renewal(const fedge_registry *registry, uint32_t slot,
                                  const fedge_certificate_info *info, fedge_error *err)
{
    if (slot == 0) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "device %s is not registered, so there is nothing to renew: sign its "
                          "first request instead",
                          info->device_id);
    }
    const fedge_registry_device *device = &registry->devices[slot - 1];
    if (device->role != info->role) {
        return fedge_fail(
            err, FEDGE_DENIED, "device %s is registered with role %s; renewal cannot make it %s",
            info->device_id, fedge_role_name(device->role), fedge_role_name(info->role));
    }
    if (is_revoked(registry, device)) {
        return fedge_fail(err, FEDGE_REVOKED,
                          "device %s ('%s') is revoked: let it back in with 'fedge-keys activate', "
                          "or request a new identity",
                          info->device_id, device->name);
    }
    return FEDGE_OK;
}

fedge_status fedge_registry_add(fedge_registry *registry, const fedge_certificate_info *certificate,
                                const char *name, fedge_certificate_state state, bool renewal,
                                fedge_registry_match *match, fedge_error *err)
{
    fedge_device_id id;
    FEDGE_TRY(fedge_device_id_parse(certificate->device_id, &id, err));
    uint32_t slot = *slot_of(registry, true, id.bytes);
    if (!fedge_name_valid(name)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the name '%.70s' is not 1 to %d letters, digits and ' ._:@-'", name,
                          FEDGE_NAME_SIZE - 1);
    }
    uint32_t device;
    if (renewal) {
        FEDGE_TRY(check_renewal(registry, slot, certificate, err));
        device = slot - 1;
    } else if (slot != 0) {
        return fedge_fail(err, FEDGE_EXISTS, "device %s is registered already, as '%s'",
                          certificate->device_id, registry->devices[slot - 1].name);
    } else {
        FEDGE_TRY(fedge_registry_put_device(registry, &id, certificate->role, name, &device, err));
    }
    FEDGE_TRY(registry->devices[device].num_certificates == FEDGE_REGISTRY_MAX_CERTIFICATES
                  ? replace_certificate(registry, device, certificate, state, err)
                  : fedge_registry_put_certificate(registry, device, certificate->fingerprint,
                                                   state, certificate->not_after_ms, err));
    return fedge_registry_find(registry, certificate->fingerprint, match, err);
}

/* --- the decision about a connected peer --------------------------------------------------------
 */

static fedge_status check_time(const fedge_certificate_info *info, uint64_t now_ms,
                               fedge_error *err)
{
    char at[FEDGE_CALENDAR_TEXT];
    char now[FEDGE_CALENDAR_TEXT];
    fedge_calendar_text(now_ms, now);
    if (now_ms < info->not_before_ms) {
        fedge_calendar_text(info->not_before_ms, at);
        return fedge_fail(err, FEDGE_EXPIRED,
                          "certificate of %s is valid from %s only, and it is %s here: check both "
                          "clocks",
                          info->subject, at, now);
    }
    if (now_ms > info->not_after_ms) {
        fedge_calendar_text(info->not_after_ms, at);
        return fedge_fail(err, FEDGE_EXPIRED,
                          "certificate of %s expired at %s, and it is %s here: renew it "
                          "('fedge-keys renew')",
                          info->subject, at, now);
    }
    return FEDGE_OK;
}

static fedge_status check_registered(const fedge_certificate_info *info,
                                     const fedge_registry *registry, fedge_registry_match *match,
                                     fedge_error *err)
{
    char text[2 * FEDGE_FINGERPRINT_SIZE + 1];
    fedge_status status = fedge_registry_find(registry, info->fingerprint, match, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status, "certificate of %s (device %s)", info->subject,
                                  info->device_id);
    }
    fedge_hex_encode(info->fingerprint, FEDGE_FINGERPRINT_SIZE, text);
    if (strcmp(match->device_id, info->device_id) != 0 || match->role != info->role) {
        return fedge_fail(err, FEDGE_DENIED,
                          "certificate %.16s... says device %s, role %s; the registry says %s, %s",
                          text, info->device_id, fedge_role_name(info->role), match->device_id,
                          fedge_role_name(match->role));
    }
    if (match->state == FEDGE_CERTIFICATE_REVOKED) {
        return fedge_fail(err, FEDGE_REVOKED, "certificate %.16s... of '%s' (device %s) is revoked",
                          text, match->name, match->device_id);
    }
    if (match->state != FEDGE_CERTIFICATE_ACTIVE) {
        return fedge_fail(err, FEDGE_DENIED,
                          "certificate %.16s... of '%s' (device %s) is pending: let it in with "
                          "'fedge-keys activate'",
                          text, match->name, match->device_id);
    }
    return FEDGE_OK;
}

fedge_status fedge_peer_check(const uint8_t *der, size_t der_size, fedge_role role, uint64_t now_ms,
                              const fedge_registry *registry, fedge_registry_match *match,
                              fedge_error *err)
{
    memset(match, 0, sizeof(*match));
    fedge_certificate_info info;
    FEDGE_TRY(fedge_certificate_read(der, der_size, &info, err));
    memcpy(match->device_id, info.device_id, sizeof(match->device_id));
    match->role = info.role;
    match->state = FEDGE_CERTIFICATE_ACTIVE;
    snprintf(match->name, sizeof(match->name), "%.63s", info.subject);
    if (info.role != role) {
        return fedge_fail(err, FEDGE_DENIED, "certificate of %s (device %s) has role %s, not %s",
                          info.subject, info.device_id, fedge_role_name(info.role),
                          fedge_role_name(role));
    }
    FEDGE_TRY(check_time(&info, now_ms, err));
    return registry ? check_registered(&info, registry, match, err) : FEDGE_OK;
}

fedge_status fedge_peer_recheck(const fedge_certificate_info *known, fedge_role role,
                                const fedge_registry *registry, fedge_registry_match *match,
                                fedge_error *err)
{
    memset(match, 0, sizeof(*match));
    memcpy(match->device_id, known->device_id, sizeof(match->device_id));
    if (known->role != role) {
        return fedge_fail(err, FEDGE_DENIED, "the session of device %s has role %s, not %s",
                          known->device_id, fedge_role_name(known->role), fedge_role_name(role));
    }
    return check_registered(known, registry, match, err);
}
