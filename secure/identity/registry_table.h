/* The registry in memory, shared by registry.c (lookups and changes) and registry_json.c (the
 * file).
 *
 * Devices and certificates are two arrays; each device's certificates form a list by index. Two
 * open hash tables find certificates by fingerprint and devices by id; a slot holds index + 1, or 0
 * if empty. Both keys are hashes or random numbers, so eight of their bytes serve as the hash.
 */
#ifndef FEDGE_SECURE_IDENTITY_REGISTRY_TABLE_H
#define FEDGE_SECURE_IDENTITY_REGISTRY_TABLE_H

#include "edge/core/text.h"
#include "secure/identity/registry.h"

#define FEDGE_REGISTRY_NONE UINT32_MAX

typedef struct fedge_registry_certificate {
    uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE];
    uint64_t not_after_ms;
    uint32_t device; /* index in devices */
    uint32_t next;   /* the device's next certificate, or FEDGE_REGISTRY_NONE */
    fedge_certificate_state state;
} fedge_registry_certificate;

typedef struct fedge_registry_device {
    fedge_device_id id;
    char name[FEDGE_NAME_SIZE];
    fedge_role role;
    uint32_t index;
    uint32_t first, last; /* first and last certificate, or FEDGE_REGISTRY_NONE */
    uint32_t num_certificates;
} fedge_registry_device;

/* An open hash table of 2^bits slots, at most half full. */
typedef struct fedge_registry_slots {
    uint32_t *slots;
    unsigned bits;
} fedge_registry_slots;

struct fedge_registry {
    fedge_registry_device *devices;
    fedge_registry_certificate *certificates;
    uint32_t num_devices, cap_devices;
    uint32_t num_certificates, cap_certificates;
    uint32_t num_of_role[FEDGE_ROLE_COUNT];
    fedge_registry_slots by_id, by_fingerprint;
};

FEDGE_MUST_USE fedge_status fedge_registry_new(fedge_registry **registry, fedge_error *err);

/* Appends a device without certificates; its index is the next of its role. FEDGE_DUPLICATE: the id
 * exists; FEDGE_TOO_BIG. *device: its position in devices. */
FEDGE_MUST_USE fedge_status fedge_registry_put_device(fedge_registry *registry,
                                                      const fedge_device_id *id, fedge_role role,
                                                      const char *name, uint32_t *device,
                                                      fedge_error *err);

/* Appends a certificate to a device. FEDGE_DUPLICATE: the fingerprint exists; FEDGE_TOO_BIG: the
 * device has FEDGE_REGISTRY_MAX_CERTIFICATES. */
FEDGE_MUST_USE fedge_status fedge_registry_put_certificate(
    fedge_registry *registry, uint32_t device, const uint8_t fingerprint[FEDGE_FINGERPRINT_SIZE],
    fedge_certificate_state state, uint64_t not_after_ms, fedge_error *err);

#endif
