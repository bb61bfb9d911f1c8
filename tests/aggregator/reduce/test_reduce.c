/* The sums of the same updates are the same bits, whatever the order, the threads and the devices.
 */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/reduce/device.h"
#include "edge/core/fixed.h"
#include "edge/core/rng.h"

enum { NUM_UPDATES = 24, NUM_ELEMENTS = 40001, MAX_DEVICES = 3, MAX_THREADS = 8 };
#define EXTREME ((int32_t)1 << FEDGE_FIXED_VALUE_BITS)

static int32_t *updates[NUM_UPDATES];
static uint32_t weights[NUM_UPDATES];
static int64_t expected[NUM_ELEMENTS], sums[NUM_ELEMENTS];
static uint64_t expected_weight;

static int make_updates(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int i = 0; i < NUM_UPDATES; i++) {
        updates[i] = malloc(NUM_ELEMENTS * sizeof(int32_t));
        if (updates[i] == NULL)
            return 1;
        weights[i] = 1 + fedge_rng_below(&rng, FEDGE_FIXED_DEFAULT_MAX_WEIGHT);
        expected_weight += weights[i];
        for (int j = 0; j < NUM_ELEMENTS; j++) {
            uint32_t draw = fedge_rng_u32(&rng);
            updates[i][j] = draw % 8 == 0 ? (draw & 8 ? EXTREME : -EXTREME)
                                          : (int32_t)(draw >> 1) - (int32_t)(1u << 30);
            expected[j] += (int64_t)weights[i] * updates[i][j];
        }
    }
    return 0;
}

static int free_updates(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_UPDATES; i++)
        free(updates[i]);
    return 0;
}

/* One worker: adds its share of the updates, each to the device that falls to it. */
typedef struct worker {
    const uint32_t *order;
    uint32_t first, step, num_devices;
    fedge_device *devices;
    fedge_status status;
} worker;

static void *work(void *argument)
{
    worker *self = argument;
    self->status = FEDGE_OK;
    for (uint32_t i = self->first; i < NUM_UPDATES && self->status == FEDGE_OK; i += self->step) {
        uint32_t update = self->order[i];
        self->status = fedge_device_accumulate(&self->devices[update % self->num_devices],
                                               updates[update], weights[update], NULL);
    }
    return NULL;
}

static void add_all(fedge_device *devices, uint32_t num_devices, uint32_t num_threads,
                    const uint32_t *order)
{
    pthread_t threads[MAX_THREADS];
    worker workers[MAX_THREADS];
    for (uint32_t i = 0; i < num_threads; i++) {
        workers[i] = (worker){order, i, num_threads, num_devices, devices, FEDGE_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < num_threads; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].status, FEDGE_OK);
    }
}

static void sums_do_not_depend_on_order_threads_or_devices(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(6, FEDGE_PURPOSE_TEST, 0, 0, 0);
    uint32_t order[NUM_UPDATES];
    for (uint32_t i = 0; i < NUM_UPDATES; i++)
        order[i] = i;
    for (uint32_t num_devices = 1; num_devices <= MAX_DEVICES; num_devices++) {
        fedge_device devices[MAX_DEVICES];
        for (uint32_t i = 0; i < num_devices; i++)
            assert_int_equal(
                fedge_device_open(&fedge_device_cpu, i, NUM_ELEMENTS, &devices[i], NULL), FEDGE_OK);
        for (uint32_t num_threads = 1; num_threads <= MAX_THREADS; num_threads *= 2) {
            fedge_rng_shuffle(&rng, order, NUM_UPDATES);
            add_all(devices, num_devices, num_threads, order);
            fedge_device_totals totals;
            memset(sums, 0xFF, sizeof sums);
            assert_int_equal(
                fedge_devices_sum(devices, num_devices, sums, NUM_ELEMENTS, &totals, NULL),
                FEDGE_OK);
            assert_memory_equal(sums, expected, sizeof sums);
            assert_int_equal(totals.total_weight, expected_weight);
            assert_int_equal(totals.num_updates, NUM_UPDATES);
            for (uint32_t i = 0; i < num_devices; i++)
                assert_int_equal(fedge_device_reset(&devices[i], NULL), FEDGE_OK);
        }
        for (uint32_t i = 0; i < num_devices; i++) {
            fedge_device_close(&devices[i]);
            fedge_device_close(&devices[i]);
        }
    }
}

static void reset_forgets_everything(void **state)
{
    (void)state;
    fedge_device device;
    fedge_device_totals totals;
    assert_int_equal(fedge_device_open(&fedge_device_cpu, 0, 100, &device, NULL), FEDGE_OK);
    assert_int_equal(fedge_device_accumulate(&device, updates[0], 3, NULL), FEDGE_OK);
    assert_int_equal(fedge_device_reset(&device, NULL), FEDGE_OK);
    assert_int_equal(fedge_devices_sum(&device, 1, sums, 100, &totals, NULL), FEDGE_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(sums[i], 0);
    assert_int_equal(totals.total_weight, 0);
    assert_int_equal(totals.num_updates, 0);
    fedge_device_close(&device);
}

/* At the limit of 2^32 the largest values still sum without overflow, and one more is refused. */
static void the_total_weight_has_a_limit(void **state)
{
    (void)state;
    fedge_device devices[2];
    fedge_device_totals totals;
    fedge_error err;
    const int32_t v[2] = {EXTREME, -EXTREME};
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(fedge_device_open(&fedge_device_cpu, i, 2, &devices[i], NULL), FEDGE_OK);
    assert_int_equal(fedge_device_accumulate(&devices[0], v, UINT32_MAX, NULL), FEDGE_OK);
    assert_int_equal(fedge_device_accumulate(&devices[0], v, 2, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_device_accumulate(&devices[0], v, 0, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_device_accumulate(&devices[0], v, 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_devices_sum(devices, 2, sums, 2, &totals, NULL), FEDGE_OK);
    assert_true(sums[0] == (int64_t)1 << 62 && sums[1] == -((int64_t)1 << 62));
    assert_int_equal(totals.total_weight, FEDGE_FIXED_MAX_TOTAL_WEIGHT);
    assert_int_equal(totals.num_updates, 2);
    assert_int_equal(fedge_device_accumulate(&devices[1], v, 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_devices_sum(devices, 2, sums, 2, &totals, &err), FEDGE_OUT_OF_RANGE);
    for (uint32_t i = 0; i < 2; i++)
        fedge_device_close(&devices[i]);
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    fedge_device device;
    assert_int_equal(fedge_device_open(&fedge_device_cpu, 0, 0, &device, NULL),
                     FEDGE_INVALID_ARGUMENT);
    fedge_device_close(&device);
    assert_int_equal(fedge_device_open(&fedge_device_cpu, 0, FEDGE_MAX_ELEMENTS + 1, &device, NULL),
                     FEDGE_INVALID_ARGUMENT);
    fedge_device_close(&device);
}

static void one_process_needs_no_collective(void **state)
{
    (void)state;
    void *collective = &collective;
    int64_t values[2] = {1, -2};
    fedge_device_totals totals = {.total_weight = 7, .num_updates = 2};
    const fedge_collective_ops *none = &fedge_collective_none;
    assert_int_equal(none->open(&collective, NULL), FEDGE_OK);
    assert_int_equal(none->rank(collective), 0);
    assert_int_equal(none->size(collective), 1);
    assert_int_equal(none->allreduce(collective, values, 2, &totals, NULL), FEDGE_OK);
    assert_true(values[0] == 1 && values[1] == -2 && totals.total_weight == 7);
    none->close(collective);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_order_threads_or_devices),
        cmocka_unit_test(reset_forgets_everything),
        cmocka_unit_test(the_total_weight_has_a_limit),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(one_process_needs_no_collective),
    };
    return cmocka_run_group_tests(tests, make_updates, free_updates);
}
