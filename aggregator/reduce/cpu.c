/* The CPU as a device: one block of sums in stripes, each with its own lock, so that workers that
 * add updates at the same time work on different stripes. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/device.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"
#include "edge/core/tensor.h"

/* 64 KiB of sums: stays in a core's cache while it is worked on, and taking a lock is small beside
 * the additions. */
#define STRIPE_ELEMENTS ((size_t)8192)

typedef struct cpu_device {
    size_t num_elements;
    size_t num_stripes;
    int64_t *sums;          /* num_elements */
    pthread_mutex_t *locks; /* num_stripes, of which num_locks are made */
    size_t num_locks;
    atomic_uint_fast64_t total_weight; /* claimed before the values are added */
    atomic_uint_fast32_t num_updates;
    atomic_size_t next_start; /* stripe where the next update begins */
} cpu_device;

static void cpu_close(void *device)
{
    cpu_device *self = device;
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->num_locks; i++)
        pthread_mutex_destroy(&self->locks[i]);
    free(self->locks);
    free(self->sums);
    free(self);
}

static fedge_status cpu_allocate(cpu_device *self, fedge_error *err)
{
    self->sums = calloc(self->num_elements, sizeof self->sums[0]);
    self->locks = calloc(self->num_stripes, sizeof self->locks[0]);
    fedge_os_large_pages(self->sums, self->num_elements * sizeof self->sums[0]);
    if (self->sums == NULL || self->locks == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the sums of %zu values (%zu MiB)",
                          self->num_elements, self->num_elements * sizeof self->sums[0] >> 20);
    for (; self->num_locks < self->num_stripes; self->num_locks++) {
        int error = pthread_mutex_init(&self->locks[self->num_locks], NULL);
        if (error != 0)
            return fedge_fail_errno(err, error, "cannot make a lock for the sums");
    }
    return FEDGE_OK;
}

static fedge_status cpu_open(uint32_t ordinal, size_t num_elements, void **device, fedge_error *err)
{
    (void)ordinal; /* the host's processors are one memory */
    if (num_elements == 0 || num_elements > FEDGE_MAX_ELEMENTS)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "a device sums updates of 1 to %zu values, not %zu", FEDGE_MAX_ELEMENTS,
                          num_elements);
    cpu_device *self = calloc(1, sizeof *self);
    if (self == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a device");
    self->num_elements = num_elements;
    self->num_stripes = (num_elements + STRIPE_ELEMENTS - 1) / STRIPE_ELEMENTS;
    atomic_init(&self->total_weight, 0);
    atomic_init(&self->num_updates, 0);
    atomic_init(&self->next_start, 0);
    fedge_status status = cpu_allocate(self, err);
    if (status != FEDGE_OK) {
        cpu_close(self);
        return status;
    }
    *device = self;
    return FEDGE_OK;
}

static fedge_status check_weight(uint64_t total, uint64_t weight, fedge_error *err)
{
    if (weight > FEDGE_FIXED_MAX_TOTAL_WEIGHT || total > FEDGE_FIXED_MAX_TOTAL_WEIGHT - weight)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "weight %" PRIu64 " on top of %" PRIu64 " is over the %" PRIu64
                          " that the sums are safe for; lower the largest weight or cohort",
                          weight, total, FEDGE_FIXED_MAX_TOTAL_WEIGHT);
    return FEDGE_OK;
}

/* The total weight is claimed first: when it is over the limit, nothing has been added. */
static fedge_status claim_weight(cpu_device *self, uint32_t weight, fedge_error *err)
{
    if (weight == 0)
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "an update's weight must be at least 1");
    uint_fast64_t total = atomic_load(&self->total_weight);
    do {
        fedge_status status = check_weight(total, weight, err);
        if (status != FEDGE_OK)
            return status;
    } while (!atomic_compare_exchange_weak(&self->total_weight, &total, total + weight));
    return FEDGE_OK;
}

/* v: (count), which go to [first] and behind it, all in one stripe. */
static void add_to_stripe(cpu_device *self, size_t first, const int32_t *v, size_t count,
                          uint32_t weight)
{
    pthread_mutex_t *lock = &self->locks[first / STRIPE_ELEMENTS];
    pthread_mutex_lock(lock);
    fedge_fixed_accumulate(self->sums + first, v, count, weight);
    pthread_mutex_unlock(lock);
}

static fedge_status cpu_accumulate(void *device, const int32_t *v, uint32_t weight,
                                   fedge_error *err)
{
    cpu_device *self = device;
    fedge_status status = claim_weight(self, weight, err);
    if (status != FEDGE_OK)
        return status;
    /* Updates begin at different stripes, so that two workers seldom want the same one. */
    size_t spread = self->num_stripes / 4 + 1;
    size_t stripe = atomic_fetch_add(&self->next_start, spread) % self->num_stripes;
    for (size_t done = 0; done < self->num_stripes; done++) {
        size_t first = stripe * STRIPE_ELEMENTS;
        size_t left = self->num_elements - first;
        size_t count = left < STRIPE_ELEMENTS ? left : STRIPE_ELEMENTS;
        add_to_stripe(self, first, v + first, count, weight);
        stripe = stripe + 1 == self->num_stripes ? 0 : stripe + 1;
    }
    atomic_fetch_add(&self->num_updates, 1);
    return FEDGE_OK;
}

static fedge_status cpu_begin(void *device, uint32_t weight, fedge_error *err)
{
    cpu_device *self = device;
    const fedge_status status = claim_weight(self, weight, err);
    if (status == FEDGE_OK)
        atomic_fetch_add(&self->num_updates, 1);
    return status;
}

static void cpu_add(void *device, const int32_t *v, size_t first, size_t count, uint32_t weight)
{
    cpu_device *self = device;
    assert(first <= self->num_elements && count <= self->num_elements - first);
    while (count > 0) {
        const size_t left = STRIPE_ELEMENTS - first % STRIPE_ELEMENTS;
        const size_t part = left < count ? left : count;
        add_to_stripe(self, first, v, part, weight);
        v += part;
        first += part;
        count -= part;
    }
}

static fedge_status cpu_add_to(void *device, int64_t *sums, fedge_device_totals *totals,
                               fedge_error *err)
{
    cpu_device *self = device;
    uint64_t weight = atomic_load(&self->total_weight);
    fedge_status status = check_weight(totals->total_weight, weight, err);
    if (status != FEDGE_OK)
        return status;
    for (size_t stripe = 0; stripe < self->num_stripes; stripe++) {
        size_t first = stripe * STRIPE_ELEMENTS;
        size_t left = self->num_elements - first;
        pthread_mutex_lock(&self->locks[stripe]); /* for the memory order only */
        fedge_fixed_merge(sums + first, self->sums + first,
                          left < STRIPE_ELEMENTS ? left : STRIPE_ELEMENTS);
        pthread_mutex_unlock(&self->locks[stripe]);
    }
    totals->total_weight += weight;
    totals->num_updates += (uint32_t)atomic_load(&self->num_updates);
    return FEDGE_OK;
}

static fedge_status cpu_reset(void *device, fedge_error *err)
{
    (void)err;
    cpu_device *self = device;
    memset(self->sums, 0, self->num_elements * sizeof self->sums[0]);
    atomic_store(&self->total_weight, 0);
    atomic_store(&self->num_updates, 0);
    return FEDGE_OK;
}

const fedge_device_ops fedge_device_cpu = {
    .struct_size = sizeof(fedge_device_ops),
    .name = "cpu",
    .open = cpu_open,
    .accumulate = cpu_accumulate,
    .add_to = cpu_add_to,
    .reset = cpu_reset,
    .close = cpu_close,
    .begin = cpu_begin,
    .add = cpu_add,
};
