/* Devices: places that sum updates (a CPU, a GPU).
 *
 * A device holds one block of int64 sums, whatever the number of clients, and adds validated
 * fixed-point updates to it: sum[i] += weight · v[i] (edge/core/fixed.h). Integer addition makes
 * the result independent of order, threads and of which device got which update.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_DEVICE_H
#define FEDGE_AGGREGATOR_REDUCE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

typedef struct fedge_device_totals {
    uint64_t total_weight; /* Σ w */
    uint32_t num_updates;
} fedge_device_totals;

typedef struct fedge_device_ops {
    size_t struct_size; /* sizeof(fedge_device_ops) when compiled; may grow at its end */
    const char *name;   /* "cpu", "cuda" */

    /* Makes a device for updates of [num_elements] values, all sums 0. [ordinal]: which one of its
     * kind, from 0. */
    fedge_status (*open)(uint32_t ordinal, size_t num_elements, void **device, fedge_error *err);
    /* Adds one update: v has num_elements values, |v| ≤ 2^30 (as fedge_codec_decode gives them);
     * weight ≥ 1. FEDGE_OUT_OF_RANGE, with nothing added, when the total weight would exceed
     * FEDGE_FIXED_MAX_TOTAL_WEIGHT. Any number of threads at once. */
    fedge_status (*accumulate)(void *device, const int32_t *v, uint32_t weight, fedge_error *err);
    /* Adds the device's sums to [sums] (num_elements) and its totals to [totals]; the device keeps
     * them. FEDGE_OUT_OF_RANGE, with nothing added, when the weights together would exceed
     * FEDGE_FIXED_MAX_TOTAL_WEIGHT. No accumulate may be running (here and below). */
    fedge_status (*add_to)(void *device, int64_t *sums, fedge_device_totals *totals,
                           fedge_error *err);
    fedge_status (*reset)(void *device, fedge_error *err); /* all sums and totals 0 */
    void (*close)(void *device);                           /* NULL is fine */

    /* accumulate for an update that is made piece by piece: begin counts it and its weight and
     * fails as accumulate does; then each of its values is added once, v (count) being those from
     * [first] on. */
    fedge_status (*begin)(void *device, uint32_t weight, fedge_error *err);
    void (*add)(void *device, const int32_t *v, size_t first, size_t count, uint32_t weight);
} fedge_device_ops;

extern const fedge_device_ops fedge_device_cpu;

/* An open device. */
typedef struct fedge_device {
    const fedge_device_ops *ops;
    void *state;
} fedge_device;

FEDGE_MUST_USE fedge_status fedge_device_open(const fedge_device_ops *ops, uint32_t ordinal,
                                              size_t num_elements, fedge_device *device,
                                              fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_device_accumulate(fedge_device *device, const int32_t *v,
                                                    uint32_t weight, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_device_begin(fedge_device *device, uint32_t weight,
                                               fedge_error *err);
void fedge_device_add(fedge_device *device, const int32_t *v, size_t first, size_t count,
                      uint32_t weight);
FEDGE_MUST_USE fedge_status fedge_device_reset(fedge_device *device, fedge_error *err);
void fedge_device_close(fedge_device *device); /* one that is closed or all zero is fine */

/* sums = Σ over [devices] (num_elements, overwritten), totals likewise. FEDGE_OUT_OF_RANGE when
 * their weights together exceed FEDGE_FIXED_MAX_TOTAL_WEIGHT. */
FEDGE_MUST_USE fedge_status fedge_devices_sum(fedge_device *devices, uint32_t num_devices,
                                              int64_t *sums, size_t num_elements,
                                              fedge_device_totals *totals, fedge_error *err);

#endif
