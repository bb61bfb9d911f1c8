/* The registry: which device may connect, and which certificates are its own.
 *
 * A device_id has an index (its place in the order of enrolment among those of its role, from 0,
 * never reused), a name for people, and certificates by SHA-256 fingerprint, each pending, active
 * or revoked. Renewal adds a certificate; it never changes who a device is. One JSON file, replaced
 * atomically; the server only reads it:
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

/* What the registry says of a certificate. */
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

/* Those of role device: their indices are 0 … n − 1. */
uint32_t fedge_registry_num_devices(const fedge_registry *registry);

/* How many of them are in each state; they sum up to fedge_registry_num_devices. */
typedef struct fedge_registry_counts {
    uint32_t active;  /* with an active certificate: those that may connect */
    uint32_t pending; /* with a pending certificate, and none that is active */
    uint32_t revoked; /* all others */
} fedge_registry_counts;
fedge_registry_counts fedge_registry_count(const fedge_registry *registry);

/* The certificate with this fingerprint. FEDGE_NOT_FOUND: nobody's. A revoked one is found, with
 * its state: the caller refuses it. Constant time in the number of devices. */
FEDGE_MUST_USE fedge_status fedge_registry_find(const fedge_registry *registry,
                                                const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
                                                fedge_registry_match *match, fedge_error *err);

/* The whole decision about a connected peer, for server and client alike: parses the certificate,
 * demands [role], checks validity at [now_ms], and, when [registry] is not NULL, that it is
 * registered to the same device with the same role and active. FEDGE_DENIED, FEDGE_EXPIRED (also:
 * not valid yet), FEDGE_REVOKED or FEDGE_NOT_FOUND with a message that says which and why; [match]
 * then has what is known (all zero where the certificate could not be read), for logs. Without a
 * registry its index is 0 and its name the certificate's subject. */
FEDGE_MUST_USE fedge_status fedge_peer_check(const uint8_t *der, size_t der_size, fedge_role role,
                                             uint64_t now_ms, const fedge_registry *registry,
                                             fedge_registry_match *match, fedge_error *err);

/* The same of a peer that has resumed a session: its certificate was read when the session began,
 * and of what was found then [known] is what the registry is asked for (device_id, role,
 * fingerprint; the rest is not looked at). */
FEDGE_MUST_USE fedge_status fedge_peer_check_again(const fedge_certificate_info *known,
                                                   fedge_role role, const fedge_registry *registry,
                                                   fedge_registry_match *match, fedge_error *err);

/* --- changing it: fedge-keys ------------------------------------------------------------------ */

/* Creates DIR and takes its writers' lock, FEDGE_BUSY when another process has it. Release with
 * fedge_os_unlock. */
FEDGE_MUST_USE fedge_status fedge_registry_lock(const char *dir, int *lock, fedge_error *err);

/* As fedge_registry_load, but a missing file is an empty registry. */
FEDGE_MUST_USE fedge_status fedge_registry_open(const char *dir, fedge_registry **registry,
                                                fedge_error *err);

/* Writes DIR/registry.json, atomically. */
FEDGE_MUST_USE fedge_status fedge_registry_save(const fedge_registry *registry, const char *dir,
                                                fedge_error *err);

/* Adds a certificate. Its device is new (FEDGE_EXISTS otherwise) unless [renewal], then it must be
 * known with the same role (FEDGE_NOT_FOUND, FEDGE_DENIED) and not revoked (FEDGE_REVOKED); with
 * FEDGE_REGISTRY_MAX_CERTIFICATES already, the one that expires first makes room. FEDGE_TOO_BIG:
 * the registry is full. [match]: the device as it is now. */
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

/* Calls [visit] for every certificate, devices in the order of enrolment; a state that it writes to
 * row->match.state is kept. It returns FEDGE_OK to go on. */
typedef fedge_status (*fedge_registry_visit_fn)(void *user, fedge_registry_row *row,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_registry_visit(fedge_registry *registry,
                                                 fedge_registry_visit_fn visit, void *user,
                                                 fedge_error *err);

#endif
