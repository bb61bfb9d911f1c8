/* The sums of the same updates are the same bits, whatever the order, the batches, the threads, the
 * lanes, and whether their bytes lie in memory or are pulled; and they are what the codec's own
 * decoder and plain integer arithmetic give. */
#define _DEFAULT_SOURCE /* getrusage */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/bytes.h"
#include "edge/core/fixed.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"

enum { NUM_UPDATES = 37, MAX_THREADS = 8, MAX_TENSORS = 8, NUM_SECTIONS = 6 };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_FAULTS /* with sanitizers some are theirs */
#endif
#define EXTREME ((int32_t)1 << FEDGE_FIXED_VALUE_BITS)

/* Tensors that end in part of a block, of a tile and of a stripe; sections in all codecs. */
static const size_t counts[MAX_TENSORS] = {257, 20000, 1, 8192, 3, 9001, 300, 5001};
static const uint32_t first_tensor[NUM_SECTIONS + 1] = {0, 2, 3, 5, 6, 7, 8};
static const fedge_codec *const codecs[NUM_SECTIONS] = {&INT8, &NONE, &INT8, &F16, &BF16, &INT4};
static const int8_t bounds_log2[MAX_TENSORS] = {2, -3, 5, 0, 20, 3, -20, 1};

static fedge_tensor_spec tensors[MAX_TENSORS];
static fedge_schema schemas[NUM_SECTIONS];
static fedge_update_layout layout;
static uint8_t *updates[NUM_UPDATES];
static uint32_t weights[NUM_UPDATES];
static int64_t *expected, *sums;
static uint64_t expected_weight;

/* A value of the tensor's range, now and then its end. */
static float draw_value(fedge_rng *rng, int bound_log2)
{
    const float bound = ldexpf(1.0f, bound_log2);
    const uint32_t kind = fedge_rng_below(rng, 16);
    return kind == 0   ? bound
           : kind == 1 ? -bound
           : kind < 6  ? 0.0f
                       : (float)fedge_rng_normal(rng) * bound / 8;
}

static void make_layout(void)
{
    size_t offset = 0;
    layout.num_sections = NUM_SECTIONS;
    for (uint32_t s = 0; s < NUM_SECTIONS; s++) {
        const uint32_t first = first_tensor[s], last = first_tensor[s + 1];
        schemas[s] = (fedge_schema){.tensors = tensors + first, .num_tensors = last - first};
        for (uint32_t t = first; t < last; t++) {
            tensors[t] = (fedge_tensor_spec){.count = counts[t], .offset = offset};
            snprintf(tensors[t].name, sizeof(tensors[t].name), "t%u", (unsigned)t);
            offset += counts[t];
            schemas[s].num_elements += counts[t];
        }
        layout.sections[s] =
            (fedge_update_layout_section){.codec = *codecs[s], .schema = &schemas[s]};
        layout.size += fedge_codec_size(codecs[s], &schemas[s]);
    }
    layout.num_elements = offset;
}

/* Encodes one update tensor by tensor, and sums what the decoder makes of it. */
static void make_update(fedge_rng *rng, uint8_t *bytes, uint32_t weight)
{
    float values[20000];
    int32_t v[20000];
    for (uint32_t s = 0; s < NUM_SECTIONS; s++) {
        for (uint32_t t = first_tensor[s]; t < first_tensor[s + 1]; t++) {
            fedge_tensor_spec alone = tensors[t];
            const size_t size = fedge_codec_run_size(codecs[s], alone.count);
            alone.offset = 0;
            const fedge_schema one = {
                .tensors = &alone, .num_tensors = 1, .num_elements = alone.count};
            for (size_t i = 0; i < alone.count; i++)
                values[i] = draw_value(rng, bounds_log2[t]);
            assert_int_equal(
                encode_all(codecs[s], &one, &bounds_log2[t], values, bytes, size, NULL, NULL),
                FEDGE_OK);
            assert_int_equal(
                fedge_codec_decode(codecs[s], &one, &bounds_log2[t], bytes, size, v, NULL),
                FEDGE_OK);
            for (size_t i = 0; i < alone.count; i++)
                expected[tensors[t].offset + i] += (int64_t)weight * v[i];
            bytes += size;
        }
    }
}

static int make_updates(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, 0, 0, 0);
    make_layout();
    expected = calloc(layout.num_elements, sizeof(*expected));
    sums = malloc(layout.num_elements * sizeof(*sums));
    for (int i = 0; i < NUM_UPDATES; i++) {
        updates[i] = malloc(layout.size);
        assert_non_null(updates[i]);
        weights[i] = i % 5 == 0 ? FEDGE_FIXED_DEFAULT_MAX_WEIGHT
                                : 1 + fedge_rng_below(&rng, FEDGE_FIXED_DEFAULT_MAX_WEIGHT);
        expected_weight += weights[i];
        make_update(&rng, updates[i], weights[i]);
    }
    return 0;
}

static int free_updates(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_UPDATES; i++)
        free(updates[i]);
    free(expected);
    free(sums);
    return 0;
}

/* Pulls an update's bytes, and sees that they are asked for in order. */
typedef struct source {
    const uint8_t *bytes;
    uint64_t next;
    uint64_t fail_at; /* a read that reaches so far fails */
} source;

static fedge_status pull(void *user, uint64_t offset, uint8_t *bytes, size_t size, fedge_error *err)
{
    source *self = user;
    assert_true(offset == self->next || offset == 0);
    assert_true(offset + size <= layout.size);
    if (offset + size > self->fail_at) {
        return fedge_fail(err, FEDGE_IO, "the disk failed at byte %llu",
                          (unsigned long long)self->fail_at);
    }
    memcpy(bytes, self->bytes + offset, size);
    self->next = offset + size;
    return FEDGE_OK;
}

static fedge_encoded encoded_of(uint32_t index, source *from)
{
    fedge_encoded encoded = {.bounds_log2 = bounds_log2, .weight = weights[index]};
    if (from) {
        *from = (source){.bytes = updates[index], .fail_at = UINT64_MAX};
        encoded.read = pull;
        encoded.user = from;
    } else {
        encoded.bytes = updates[index];
    }
    return encoded;
}

static fedge_accumulator open_cpu(uint32_t num_lanes)
{
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = num_lanes};
    fedge_accumulator accumulator;
    fedge_error err;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err), FEDGE_OK);
    return accumulator;
}

/* One thread: adds its share of the updates in batches. */
typedef struct worker {
    fedge_accumulator *accumulator;
    const uint32_t *order;
    uint32_t first, step, batch;
} worker;

static void *work(void *argument)
{
    worker *self = argument;
    fedge_encoded encoded[FEDGE_ACCUMULATOR_MAX_BATCH], *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
    source sources[FEDGE_ACCUMULATOR_MAX_BATCH];
    uint32_t count = 0;
    for (uint32_t i = self->first; i < NUM_UPDATES; i += self->step) {
        const uint32_t index = self->order[i];
        encoded[count] = encoded_of(index, index % 2 ? &sources[count] : NULL);
        batch[count] = &encoded[count];
        assert_int_equal(fedge_accumulator_validate(self->accumulator, batch[count], NULL),
                         FEDGE_OK);
        count++;
        if (count == self->batch || i + self->step >= NUM_UPDATES) {
            uint64_t ticket = 0;
            assert_int_equal(fedge_accumulator_add(self->accumulator, batch, count, &ticket, NULL),
                             FEDGE_OK);
            assert_int_equal(fedge_accumulator_wait(self->accumulator, ticket, NULL), FEDGE_OK);
            count = 0;
        }
    }
    return NULL;
}

static void assert_sums(fedge_accumulator *accumulator)
{
    const size_t half = layout.num_elements / 2;
    const fedge_accumulator_totals totals = fedge_accumulator_get_totals(accumulator);
    memset(sums, 0xFF, layout.num_elements * sizeof(*sums));
    assert_int_equal(
        fedge_accumulator_read(accumulator, half, layout.num_elements - half, sums + half, NULL),
        FEDGE_OK);
    assert_int_equal(fedge_accumulator_read(accumulator, 0, half, sums, NULL), FEDGE_OK);
    assert_memory_equal(sums, expected, layout.num_elements * sizeof(*sums));
    assert_int_equal(totals.total_weight, expected_weight);
    assert_int_equal(totals.num_updates, NUM_UPDATES);
}

static void sums_do_not_depend_on_order_batches_threads_or_lanes(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(6, FEDGE_PURPOSE_TEST, 0, 0, 0);
    uint32_t order[NUM_UPDATES];
    for (uint32_t i = 0; i < NUM_UPDATES; i++)
        order[i] = i;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        fedge_accumulator accumulator = open_cpu(lanes);
        for (uint32_t num_threads = 1; num_threads <= MAX_THREADS; num_threads *= 2) {
            pthread_t threads[MAX_THREADS];
            worker workers[MAX_THREADS];
            fedge_rng_shuffle(&rng, order, NUM_UPDATES);
            for (uint32_t i = 0; i < num_threads; i++) {
                workers[i] = (worker){&accumulator, order, i, num_threads,
                                      1 + (lanes * 7 + i * 5) % FEDGE_ACCUMULATOR_MAX_BATCH};
                assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
            }
            for (uint32_t i = 0; i < num_threads; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_sums(&accumulator);
            assert_sums(&accumulator); /* reading changes nothing */
            assert_int_equal(fedge_accumulator_reset(&accumulator, NULL), FEDGE_OK);
        }
        fedge_accumulator_close(&accumulator);
        fedge_accumulator_close(&accumulator);
    }
}

/* The same updates value by value, in pieces that fit no stripe, on every lane. */
static void values_may_come_in_pieces(void **state)
{
    (void)state;
    enum { LANES = 3, PIECE = 777 };
    fedge_accumulator accumulator = open_cpu(LANES);
    int32_t v[PIECE];
    int64_t *plain = calloc(layout.num_elements, sizeof(*plain));
    assert_non_null(plain);
    for (uint32_t i = 0; i < NUM_UPDATES; i++) {
        assert_int_equal(fedge_accumulator_begin(&accumulator, weights[i], NULL), FEDGE_OK);
        for (size_t at = 0; at < layout.num_elements; at += PIECE) {
            const size_t left = layout.num_elements - at, n = left < PIECE ? left : PIECE;
            for (size_t k = 0; k < n; k++) {
                v[k] = (int32_t)(((at + k) * 2654435761u + i) % (2u * EXTREME + 1)) - EXTREME;
                plain[at + k] += (int64_t)weights[i] * v[k];
            }
            assert_int_equal(
                fedge_accumulator_add_values(&accumulator, i % LANES, v, at, n, weights[i], NULL),
                FEDGE_OK);
        }
    }
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    assert_memory_equal(sums, plain, layout.num_elements * sizeof(*sums));
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).total_weight, expected_weight);
    free(plain);
    fedge_accumulator_close(&accumulator);
}

enum { SHARERS = 4, SHARED_VALUES = 3000 };

typedef struct sharer {
    fedge_accumulator *accumulator;
    uint32_t lane, weight;
} sharer;

/* All add the same coordinates, so that they meet in every stripe. */
static void *add_to_shared(void *argument)
{
    const sharer *self = argument;
    static const int32_t v[SHARED_VALUES] = {[0] = EXTREME, [1] = -EXTREME, [2] = 1};
    for (int round = 0; round < 200; round++) {
        for (size_t at = 0; at + SHARED_VALUES <= layout.num_elements; at += SHARED_VALUES) {
            assert_int_equal(fedge_accumulator_add_values(self->accumulator, self->lane, v, at,
                                                          SHARED_VALUES, self->weight, NULL),
                             FEDGE_OK);
        }
    }
    return NULL;
}

/* As GPUs do that train, when there are more of them than lanes: nothing that is added is lost. */
static void threads_may_share_a_lane(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 2; lanes++) {
        fedge_accumulator accumulator = open_cpu(lanes);
        pthread_t threads[SHARERS];
        sharer sharers[SHARERS];
        int64_t weight = 0;
        for (uint32_t i = 0; i < SHARERS; i++) {
            sharers[i] = (sharer){&accumulator, i % lanes, i + 1};
            weight += 200 * (i + 1);
            assert_int_equal(pthread_create(&threads[i], NULL, add_to_shared, &sharers[i]), 0);
        }
        for (uint32_t i = 0; i < SHARERS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                         FEDGE_OK);
        for (size_t at = 0; at + SHARED_VALUES <= layout.num_elements; at += SHARED_VALUES) {
            assert_true(sums[at] == weight * EXTREME && sums[at + 1] == -weight * EXTREME);
            assert_true(sums[at + 2] == weight && sums[at + 3] == 0);
        }
        fedge_accumulator_close(&accumulator);
    }
}

/* The step is fedge_fixed_step on the joined sums, and may be taken part by part. */
static void steps_are_those_of_fixed_point(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(2);
    uint32_t order[NUM_UPDATES];
    for (uint32_t i = 0; i < NUM_UPDATES; i++)
        order[i] = i;
    worker alone = {&accumulator, order, 0, 1, 3};
    work(&alone);
    float *values = malloc(layout.num_elements * sizeof(*values));
    float *wanted = malloc(layout.num_elements * sizeof(*wanted));
    assert_true(values && wanted);
    fedge_step_part parts[MAX_TENSORS];
    for (size_t i = 0; i < layout.num_elements; i++)
        values[i] = wanted[i] = (float)i * 0.001f;
    for (uint32_t t = 0; t < MAX_TENSORS; t++) {
        parts[t] = (fedge_step_part){.first = tensors[t].offset,
                                     .count = tensors[t].count,
                                     .bound_log2 = bounds_log2[t],
                                     .rate = 0.3 + t,
                                     .values = values + tensors[t].offset};
        fedge_fixed_step_scalar(wanted + tensors[t].offset, expected + tensors[t].offset,
                                tensors[t].count, expected_weight, bounds_log2[t], 0.3 + t);
    }
    assert_int_equal(fedge_accumulator_step(&accumulator, parts, 2, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_step(&accumulator, parts + 2, MAX_TENSORS - 2, NULL),
                     FEDGE_OK);
    assert_memory_equal(values, wanted, layout.num_elements * sizeof(*values));
    free(values);
    free(wanted);
    fedge_accumulator_close(&accumulator);
}

/* Value [index] of tensor [t] in an update's bytes. */
static uint8_t *value_in(uint8_t *bytes, uint32_t t, size_t index)
{
    for (uint32_t s = 0; s < NUM_SECTIONS; s++) {
        for (uint32_t k = first_tensor[s]; k < first_tensor[s + 1]; k++) {
            if (k == t && codecs[s] == &NONE)
                return bytes + index * sizeof(float);
            if (k == t)
                return bytes + index + 2 * (index / FEDGE_CODEC_BLOCK + 1);
            bytes += fedge_codec_run_size(codecs[s], counts[k]);
        }
    }
    return NULL;
}

static void assert_refused(fedge_accumulator *accumulator, uint8_t *bytes, fedge_status wanted,
                           const char *names)
{
    fedge_error err;
    fedge_encoded encoded = {.bytes = bytes, .bounds_log2 = bounds_log2, .weight = 1};
    assert_int_equal(fedge_accumulator_validate(accumulator, &encoded, &err), wanted);
    assert_non_null(strstr(err.message, names));
}

/* Wherever the bad value lies, and the message counts in the tensor. */
static void bad_values_are_found(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(1);
    uint8_t *bytes = malloc(layout.size);
    assert_non_null(bytes);
    const size_t places[] = {0, 255, 256, 8191, 8192, 19999};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char names[64];
        memcpy(bytes, updates[0], layout.size);
        *value_in(bytes, 1, places[i]) = 0x80;
        snprintf(names, sizeof(names), "value %zu of tensor \"t1\" is -128", places[i]);
        assert_refused(&accumulator, bytes, FEDGE_CORRUPT, names);
    }
    memcpy(bytes, updates[0], layout.size);
    fedge_put_f32(value_in(bytes, 2, 0), 32.5f);
    assert_refused(&accumulator, bytes, FEDGE_OUT_OF_RANGE, "value 0 of tensor \"t2\" is 32.5");
    fedge_put_f32(value_in(bytes, 2, 0), NAN);
    assert_refused(&accumulator, bytes, FEDGE_NOT_FINITE, "tensor \"t2\"");
    memcpy(bytes, updates[0], layout.size);
    *value_in(bytes, 4, 2) = 0x80;
    assert_refused(&accumulator, bytes, FEDGE_CORRUPT, "value 2 of tensor \"t4\"");
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).num_updates, 0);
    free(bytes);
    fedge_accumulator_close(&accumulator);
}

static void errors_of_a_source_are_passed_on(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(1);
    fedge_error err;
    source from;
    fedge_encoded encoded = encoded_of(1, &from), *batch = &encoded;
    uint64_t ticket;
    from.fail_at = layout.size - 1;
    assert_int_equal(fedge_accumulator_validate(&accumulator, &encoded, &err), FEDGE_IO);
    from.fail_at = UINT64_MAX;
    from.next = 0;
    assert_int_equal(fedge_accumulator_validate(&accumulator, &encoded, &err), FEDGE_OK);
    from.fail_at = layout.size / 2;
    assert_int_equal(fedge_accumulator_add(&accumulator, &batch, 1, &ticket, &err), FEDGE_IO);
    assert_non_null(strstr(err.message, "the disk failed"));
    fedge_accumulator_close(&accumulator);
}

static void reset_forgets_everything(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(3);
    const int32_t v[2] = {EXTREME, -EXTREME};
    for (uint32_t lane = 0; lane < 3; lane++) {
        assert_int_equal(fedge_accumulator_begin(&accumulator, 3, NULL), FEDGE_OK);
        assert_int_equal(fedge_accumulator_add_values(&accumulator, lane, v,
                                                      layout.num_elements - 2, 2, 3, NULL),
                         FEDGE_OK);
    }
    assert_int_equal(fedge_accumulator_reset(&accumulator, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    for (size_t i = 0; i < layout.num_elements; i++)
        assert_int_equal(sums[i], 0);
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).total_weight, 0);
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).num_updates, 0);
    fedge_accumulator_close(&accumulator);
}

/* Updates and values alike; the limit of the weights holds. */
static void what_is_only_counted_is_not_summed(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(2);
    accumulator.counts_only = true;
    const int32_t v[2] = {EXTREME, -EXTREME};
    uint64_t ticket = 7;
    fedge_encoded update = {.bytes = updates[0], .bounds_log2 = bounds_log2, .weight = 3};
    fedge_encoded *const batch[] = {&update, &update};
    assert_int_equal(fedge_accumulator_validate(&accumulator, &update, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add(&accumulator, batch, 2, &ticket, NULL), FEDGE_OK);
    assert_int_equal(ticket, 7);
    assert_int_equal(fedge_accumulator_begin(&accumulator, 5, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add_values(&accumulator, 1, v, 0, 2, 5, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    for (size_t i = 0; i < layout.num_elements; i++)
        assert_int_equal(sums[i], 0);
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).total_weight, 11);
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).num_updates, 3);
    update.weight = 0;
    assert_int_equal(fedge_accumulator_add(&accumulator, batch, 1, &ticket, NULL),
                     FEDGE_OUT_OF_RANGE);
    fedge_accumulator_close(&accumulator);
}

/* At the limit of 2^32 the largest values still sum without overflow, and one more is refused. */
static void the_total_weight_has_a_limit(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(2);
    fedge_error err;
    uint64_t ticket;
    const int32_t v[2] = {EXTREME, -EXTREME};
    assert_int_equal(fedge_accumulator_begin(&accumulator, UINT32_MAX, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add_values(&accumulator, 0, v, 0, 2, UINT32_MAX, NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_accumulator_begin(&accumulator, 2, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_accumulator_begin(&accumulator, 0, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_accumulator_begin(&accumulator, 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add_values(&accumulator, 1, v, 0, 2, 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, 2, sums, NULL), FEDGE_OK);
    assert_true(sums[0] == (int64_t)1 << 62 && sums[1] == -((int64_t)1 << 62));
    fedge_encoded first = encoded_of(0, NULL), none = encoded_of(1, NULL);
    none.weight = 0;
    assert_int_equal(
        fedge_accumulator_add(&accumulator, (fedge_encoded *[]){&first}, 1, &ticket, &err),
        FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_accumulator_reset(&accumulator, NULL), FEDGE_OK);
    assert_int_equal(
        fedge_accumulator_add(&accumulator, (fedge_encoded *[]){&first, &none}, 2, &ticket, &err),
        FEDGE_OUT_OF_RANGE);
    assert_int_equal(fedge_accumulator_get_totals(&accumulator).total_weight, 0);
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    for (size_t i = 0; i < layout.num_elements; i++)
        assert_int_equal(sums[i], 0);
    fedge_accumulator_close(&accumulator);
}

#ifdef COUNTS_FAULTS

static long page_faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* A round of batches of 16, all of them validated, pulled and added, and the sums read. */
static void play_batches(fedge_accumulator *accumulator, uint32_t num_batches)
{
    fedge_encoded encoded[FEDGE_ACCUMULATOR_MAX_BATCH], *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
    source sources[FEDGE_ACCUMULATOR_MAX_BATCH];
    for (uint32_t b = 0; b < num_batches; b++) {
        uint64_t ticket = 0;
        for (uint32_t i = 0; i < FEDGE_ACCUMULATOR_MAX_BATCH; i++) {
            encoded[i] = encoded_of((b + i) % NUM_UPDATES, &sources[i]);
            encoded[i].weight = 1;
            batch[i] = &encoded[i];
            assert_int_equal(fedge_accumulator_validate(accumulator, batch[i], NULL), FEDGE_OK);
        }
        assert_int_equal(
            fedge_accumulator_add(accumulator, batch, FEDGE_ACCUMULATOR_MAX_BATCH, &ticket, NULL),
            FEDGE_OK);
        assert_int_equal(fedge_accumulator_wait(accumulator, ticket, NULL), FEDGE_OK);
    }
    assert_int_equal(fedge_accumulator_read(accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_accumulator_reset(accumulator, NULL), FEDGE_OK);
}

/* What is needed is taken by the first round, and kept. */
static void the_steady_state_has_no_page_faults(void **state)
{
    (void)state;
    fedge_accumulator accumulator = open_cpu(2);
    for (int round = 0; round < 2; round++)
        play_batches(&accumulator, 2); /* one on each lane */
    const long before = page_faults();
    play_batches(&accumulator, 100);
    const long after = page_faults();
    fedge_accumulator_close(&accumulator);
    assert_int_equal(after, before);
}

#endif

static void what_cannot_be_opened_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_accumulator accumulator;
    fedge_update_layout none = layout;
    fedge_accumulator_config config = {.layout = &none, .num_lanes = 1};
    assert_int_equal(fedge_accumulator_open("abacus", &config, &accumulator, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "this build has auto, "));
    assert_non_null(strstr(err.message, "cpu"));
    if (fedge_accumulator_check_name("cuda", &err) != FEDGE_OK)
        assert_non_null(strstr(err.message, "built without CUDA: take one of auto, cpu;"));
    none.num_elements = 0;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err),
                     FEDGE_INVALID_ARGUMENT);
    none.num_elements = FEDGE_MAX_ELEMENTS + 1;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err),
                     FEDGE_INVALID_ARGUMENT);
    none = layout;
    none.num_sections = 0;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err),
                     FEDGE_INVALID_ARGUMENT);
    none = layout;
    config.num_lanes = FEDGE_ACCUMULATOR_MAX_LANES + 1;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err),
                     FEDGE_OUT_OF_RANGE);
    assert_null(accumulator.ops);
    fedge_accumulator_close(&accumulator);
}

static void what_is_taken_is_described(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 3; lanes++) {
        char text[128], wanted[128];
        fedge_accumulator accumulator;
        const fedge_accumulator_config config = {.layout = &layout, .num_lanes = lanes};
        assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, NULL), FEDGE_OK);
        fedge_accumulator_describe(&accumulator, text, sizeof(text));
        fedge_accumulator_close(&accumulator);
        snprintf(wanted, sizeof(wanted), "CPU: %zu bytes of sums in %u block%s",
                 layout.num_elements * sizeof(int64_t) * lanes, lanes, lanes == 1 ? "" : "s");
        assert_string_equal(text, wanted);
    }
}

static void auto_takes_what_there_is(void **state)
{
    (void)state;
    fedge_error err;
    fedge_accumulator accumulator;
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
    assert_int_equal(fedge_accumulator_open("auto", &config, &accumulator, &err), FEDGE_OK);
    assert_non_null(accumulator.ops->name);
    fedge_accumulator_close(&accumulator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_do_not_depend_on_order_batches_threads_or_lanes),
        cmocka_unit_test(values_may_come_in_pieces),
        cmocka_unit_test(threads_may_share_a_lane),
        cmocka_unit_test(steps_are_those_of_fixed_point),
        cmocka_unit_test(bad_values_are_found),
        cmocka_unit_test(errors_of_a_source_are_passed_on),
        cmocka_unit_test(reset_forgets_everything),
        cmocka_unit_test(what_is_only_counted_is_not_summed),
        cmocka_unit_test(the_total_weight_has_a_limit),
#ifdef COUNTS_FAULTS
        cmocka_unit_test(the_steady_state_has_no_page_faults),
#endif
        cmocka_unit_test(what_cannot_be_opened_is_refused),
        cmocka_unit_test(what_is_taken_is_described),
        cmocka_unit_test(auto_takes_what_there_is),
    };
    return cmocka_run_group_tests(tests, make_updates, free_updates);
}
