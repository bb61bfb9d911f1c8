/* The registry: the devices that may connect, and their certificates.
 *
 * A device_id has an index (its number in the order of enrolment within its role, from 0, never
 * reused), a name for people, and certificates by SHA-256 fingerprint, each pending, active or
 * revoked. Renewal adds a certificate to the same device_id. It is a JSON file that
 * is replaced atomically; the server only reads it:
 *
 *   {"format":1,"devices":[
 *   {"device_id":"…","role":"device","index":0,"name":"pi-4","certificates":[
 *    {"sha256":"…","state":"active","not_after_ms":1793491200000}]}
 *   ]}
 */
#ifndef FEDGE_SECURE_IDENTITY_REGISTRY_H
#define FEDGE_SECURE_IDENTITY_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "secure/identity/identity.h"

#define FEDGE_REGISTRY_MAX_DEVICES 1000000u
#define FEDGE_REGISTRY_MAX_CERTIFICATES 8 /* per device */

typedef enum fedge_certificate_state {
    FEDGE_CERTIFICATE_PENDING,
    FEDGE_CERTIFICATE_ACTIVE,
    FEDGE_CERTIFICATE_REVOKED
} fedge_certificate_state;

/* A certificate's device and state in the registry. */
typedef struct fedge_registry_match {
    char device_id[FEDGE_UUID_TEXT];
    uint32_t index;
    fedge_role role;
    fedge_certificate_state state;
    char name[FEDGE_NAME_SIZE];
} fedge_registry_match;

/* Opaque; read-only after loading, so any thread may read it. */
typedef struct fedge_registry fedge_registry;

/* "pending", "active", "revoked"; NULL if unknown. */
const char *fedge_certificate_state_name(fedge_certificate_state state);

/* Loads DIR/registry.json. FEDGE_NOT_FOUND: no file; FEDGE_CORRUPT: a broken one;
 * FEDGE_UNSUPPORTED: a later format; FEDGE_DENIED: others can write it or DIR. */
FEDGE_MUST_USE fedge_status fedge_registry_load(const char *dir, fedge_registry **registry,
                                                fedge_error *err);
void fedge_registry_free(fedge_registry *registry); /* NULL is allowed */

/* The number n of devices with role device; their indices are 0 … n − 1. */
uint32_t fedge_registry_num_devices(const fedge_registry *registry);

/* Devices by state; the counts sum to fedge_registry_num_devices. */
typedef struct fedge_registry_counts {
    uint32_t active;  /* have an active certificate: may connect */
    uint32_t pending; /* have a pending certificate, and no active one */
    uint32_t revoked; /* all other devices */
} fedge_registry_counts;
fedge_registry_counts fedge_registry_count(const fedge_registry *registry);

/* Finds a certificate by its fingerprint, including revoked ones, which the caller refuses.
 * FEDGE_NOT_FOUND: it is not registered. Takes constant time. */
FEDGE_MUST_USE fedge_status fedge_registry_find(const fedge_registry *registry,
                                                const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                                fedge_registry_match *match, fedge_error *err);

/* Checks a connected peer, on servers and clients: parses the certificate, requires [role], checks
 * validity at [now_ms] and, if [registry] is not NULL, that it is registered for the same device
 * and role and active. FEDGE_DENIED, FEDGE_EXPIRED (also: not yet valid), FEDGE_REVOKED or
 * FEDGE_NOT_FOUND, with the reason. For logs, [match] then has what is known (all 0 if the
 * certificate is unreadable). Without a registry its index is 0 and its name the certificate's
 * subject. */
FEDGE_MUST_USE fedge_status fedge_peer_check(const uint8_t *der, size_t der_size, fedge_role role,
                                             uint64_t now_ms, const fedge_registry *registry,
                                             fedge_registry_match *match, fedge_error *err);

/* Checks a peer that resumed a session by the certificate of the session's start: device_id, role
 * and fingerprint of [known]; other members are ignored. */
FEDGE_MUST_USE fedge_status fedge_peer_recheck(const fedge_certificate_info *known, fedge_role role,
                                               const fedge_registry *registry,
                                               fedge_registry_match *match, fedge_error *err);

/* --- changing it: fedge-keys ------------------------------------------------------------------ */

/* Creates DIR and takes its writers' lock; release it with fedge_os_unlock. FEDGE_BUSY: another
 * process has it. */
FEDGE_MUST_USE fedge_status fedge_registry_lock(const char *dir, int *lock, fedge_error *err);

/* As fedge_registry_load, but a missing file is an empty registry. */
FEDGE_MUST_USE fedge_status fedge_registry_open(const char *dir, fedge_registry **registry,
                                                fedge_error *err);

/* Writes DIR/registry.json, atomically. */
FEDGE_MUST_USE fedge_status fedge_registry_save(const fedge_registry *registry, const char *dir,
                                                fedge_error *err);

/* Adds a certificate. Its device must be new (otherwise FEDGE_EXISTS); for a [renewal] it must
 * exist with the same role (FEDGE_NOT_FOUND, FEDGE_DENIED) and not be revoked (FEDGE_REVOKED). At
 * FEDGE_REGISTRY_MAX_CERTIFICATES it replaces the one that expires first. FEDGE_TOO_BIG: the
 * registry is full. [match] gets the device's new state. */
FEDGE_MUST_USE fedge_status fedge_registry_add(fedge_registry *registry,
                                               const fedge_certificate_info *certificate,
                                               const char *name, fedge_certificate_state state,
                                               bool renewal, fedge_registry_match *match,
                                               fedge_error *err);

/* A certificate with its device, for fedge_registry_visit. */
typedef struct fedge_registry_row {
    fedge_registry_match match;
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    uint64_t not_after_ms;
} fedge_registry_row;

/* Calls [visit] for every certificate, devices in the order of enrolment, until it fails. It may
 * change the certificate's state through row->match.state. */
typedef fedge_status (*fedge_registry_visit_fn)(void *user, fedge_registry_row *row,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_registry_visit(fedge_registry *registry,
                                                 fedge_registry_visit_fn visit, void *user,
                                                 fedge_error *err);

#endif
