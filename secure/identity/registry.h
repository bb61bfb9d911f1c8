/* The registry: which devices may connect, and with which certificates.
 *
 * A device_id has an index (its number in the order of enrolment within its role, from 0, never
 * reused), a name for people, and certificates by SHA-256 fingerprint, each pending, active or
 * revoked. Renewal adds a certificate to the same device_id. One JSON file, replaced atomically;
 * the server only reads it:
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

/* Opaque; read-only after loading, so any thread may look up. */
typedef struct fedge_registry fedge_registry;

/* "pending", "active", "revoked"; NULL for an unknown one. */
const char *fedge_certificate_state_name(fedge_certificate_state state);

/* Loads DIR/registry.json. A missing file is FEDGE_NOT_FOUND, a broken one FEDGE_CORRUPT, one of a
 * later format FEDGE_UNSUPPORTED; FEDGE_DENIED when anyone may write it or DIR. */
FEDGE_MUST_USE fedge_status fedge_registry_load(const char *dir, fedge_registry **registry,
                                                fedge_error *err);
void fedge_registry_free(fedge_registry *registry); /* NULL is fine */

/* The number n of devices of role device, whose indices are 0 … n − 1. */
uint32_t fedge_registry_num_devices(const fedge_registry *registry);

/* Devices by state; the counts sum up to fedge_registry_num_devices. */
typedef struct fedge_registry_counts {
    uint32_t active;  /* have an active certificate: may connect */
    uint32_t pending; /* have a pending certificate, and no active one */
    uint32_t revoked; /* all others */
} fedge_registry_counts;
fedge_registry_counts fedge_registry_count(const fedge_registry *registry);

/* Finds a certificate by its fingerprint, also a revoked one, which the caller refuses.
 * FEDGE_NOT_FOUND: it is not registered. Constant time in the number of devices. */
FEDGE_MUST_USE fedge_status fedge_registry_find(const fedge_registry *registry,
                                                const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                                fedge_registry_match *match, fedge_error *err);

/* Decides about a connected peer, for server and client alike: parses the certificate, demands
 * [role], checks validity at [now_ms], and, when [registry] is not NULL, that it is registered to
 * the same device with the same role and active. FEDGE_DENIED, FEDGE_EXPIRED (also: not valid yet),
 * FEDGE_REVOKED or FEDGE_NOT_FOUND, with the reason as the message; for logs, [match] then has what
 * is known (all zero if the certificate could not be read). Without a registry its index is 0 and
 * its name the certificate's subject. */
FEDGE_MUST_USE fedge_status fedge_peer_check(const uint8_t *der, size_t der_size, fedge_role role,
                                             uint64_t now_ms, const fedge_registry *registry,
                                             fedge_registry_match *match, fedge_error *err);

/* Decides about a peer that has resumed a session, by what its certificate said when the session
 * began: device_id, role and fingerprint of [known]; other members are ignored. */
FEDGE_MUST_USE fedge_status fedge_peer_recheck(const fedge_certificate_info *known, fedge_role role,
                                               const fedge_registry *registry,
                                               fedge_registry_match *match, fedge_error *err);

/* --- changing it: fedge-keys ------------------------------------------------------------------ */

/* Creates DIR and takes its writers' lock; the caller releases it by fedge_os_unlock. FEDGE_BUSY:
 * another process has it. */
FEDGE_MUST_USE fedge_status fedge_registry_lock(const char *dir, int *lock, fedge_error *err);

/* As fedge_registry_load, but a missing file is an empty registry. */
FEDGE_MUST_USE fedge_status fedge_registry_open(const char *dir, fedge_registry **registry,
                                                fedge_error *err);

/* Writes DIR/registry.json, atomically. */
FEDGE_MUST_USE fedge_status fedge_registry_save(const fedge_registry *registry, const char *dir,
                                                fedge_error *err);

/* Adds a certificate. Its device must be new (else FEDGE_EXISTS), but for a [renewal] known with
 * the same role (else FEDGE_NOT_FOUND, FEDGE_DENIED) and not revoked (else FEDGE_REVOKED). At
 * FEDGE_REGISTRY_MAX_CERTIFICATES it replaces the one that expires first. FEDGE_TOO_BIG: the
 * registry is full. [match] gets the device's new state. */
FEDGE_MUST_USE fedge_status fedge_registry_add(fedge_registry *registry,
                                               const fedge_certificate_info *certificate,
                                               const char *name, fedge_certificate_state state,
                                               bool renewal, fedge_registry_match *match,
                                               fedge_error *err);

/* One certificate with its device, as fedge_registry_visit shows it. */
typedef struct fedge_registry_row {
    fedge_registry_match match;
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    uint64_t not_after_ms;
} fedge_registry_row;

/* Calls [visit] for every certificate, devices in the order of enrolment, until it fails. It may
 * change the certificate's state by row->match.state. */
typedef fedge_status (*fedge_registry_visit_fn)(void *user, fedge_registry_row *row,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_registry_visit(fedge_registry *registry,
                                                 fedge_registry_visit_fn visit, void *user,
                                                 fedge_error *err);

#endif
