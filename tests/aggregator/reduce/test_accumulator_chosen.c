/* Sums of updates whose codecs choose: those of the decoder and plain integer arithmetic, whatever
 * the batches, the threads and the lanes. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/rng.h"
#include "tests/edge/core/codec/codecs.h"

enum { NUM_UPDATES = 24, NUM_SECTIONS = 2, THREADS = 4 };

static const int8_t BOUNDS[4] = {2, -1, 0, 20};
static fedge_tensor_spec tensors[4];
static fedge_schema schemas[NUM_SECTIONS];
static fedge_update_layout layout;
static uint8_t *updates[NUM_UPDATES];
static uint64_t sizes[NUM_UPDATES][NUM_SECTIONS];
static int64_t *expected, *sums;

/* A matrix of several groups, a bias and a small matrix whose codec chooses; statistics. */
static void make_layout(const char *pipeline)
{
    static const uint32_t SHAPES[4][2] = {{300, 250}, {300}, {7, 3}, {400}};
    static const uint32_t RANKS[4] = {2, 1, 2, 1};
    fedge_schema all;
    fedge_schema_init(&all, tensors, 4);
    for (uint32_t t = 0; t < 4; t++) {
        char name[2] = {(char)('a' + t), '\0'};
        assert_int_equal(fedge_schema_add(&all, name, FEDGE_F32, RANKS[t], SHAPES[t], NULL),
                         FEDGE_OK);
    }
    schemas[0] = (fedge_schema){
        .tensors = tensors, .num_tensors = 3, .capacity = 3, .num_elements = tensors[3].offset};
    schemas[1] = (fedge_schema){
        .tensors = tensors + 3, .num_tensors = 1, .capacity = 1, .num_elements = tensors[3].count};
    layout = (fedge_update_layout){.num_sections = NUM_SECTIONS, .num_elements = all.num_elements};
    layout.sections[0] = (fedge_update_layout_section){codec_named(pipeline), &schemas[0]};
    layout.sections[1] = (fedge_update_layout_section){codec_named("none"), &schemas[1]};
    for (uint32_t s = 0; s < NUM_SECTIONS; s++)
        layout.size += fedge_codec_size(&layout.sections[s].codec, &schemas[s]);
}

static void make_update(uint32_t i, fedge_rng *rng)
{
    const size_t n = layout.num_elements;
    float *values = malloc(n * sizeof(*values)), *residual = calloc(n, sizeof(*residual));
    int32_t *v = calloc(n, sizeof(*v));
    uint8_t *bytes = updates[i] = malloc(layout.size);
    assert_true(values && residual && v && bytes);
    for (size_t k = 0; k < n; k++)
        values[k] = 0.4f * (fedge_rng_float(rng) - 0.5f);
    for (uint32_t s = 0; s < NUM_SECTIONS; s++) {
        /* Offsets are those of all sections, so a section alone is decoded where it lies. */
        fedge_schema alone = schemas[s];
        size_t size = 0;
        assert_int_equal(codec_encode(&layout.sections[s].codec, &alone, BOUNDS + 3 * s, values,
                                      residual, bytes, layout.size, &size, NULL, NULL),
                         FEDGE_OK);
        assert_int_equal(fedge_codec_decode(&layout.sections[s].codec, &alone, BOUNDS + 3 * s,
                                            bytes, size, v, NULL),
                         FEDGE_OK);
        sizes[i][s] = size;
        bytes += size;
    }
    for (size_t k = 0; k < n; k++)
        expected[k] += (int64_t)(i + 1) * v[k];
    free(values);
    free(residual);
    free(v);
}

typedef struct worker {
    fedge_accumulator *accumulator;
    uint32_t first, step, batch;
} worker;

static void *work(void *argument)
{
    const worker *self = argument;
    fedge_encoded encoded[FEDGE_ACCUMULATOR_MAX_BATCH], *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
    uint32_t count = 0;
    for (uint32_t i = self->first; i < NUM_UPDATES; i += self->step) {
        encoded[count] = (fedge_encoded){
            .bytes = updates[i], .sizes = sizes[i], .bounds_log2 = BOUNDS, .weight = i + 1};
        batch[count] = &encoded[count];
        assert_int_equal(fedge_accumulator_validate(self->accumulator, batch[count], NULL),
                         FEDGE_OK);
        if (++count == self->batch || i + self->step >= NUM_UPDATES) {
            uint64_t ticket = 0;
            assert_int_equal(fedge_accumulator_add(self->accumulator, batch, count, &ticket, NULL),
                             FEDGE_OK);
            assert_int_equal(fedge_accumulator_wait(self->accumulator, ticket, NULL), FEDGE_OK);
            count = 0;
        }
    }
    return NULL;
}

static void check_sums(uint32_t lanes)
{
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = lanes};
    fedge_accumulator accumulator;
    fedge_error err;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err), FEDGE_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){&accumulator, i, THREADS, 1 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(fedge_accumulator_read(&accumulator, 0, layout.num_elements, sums, NULL),
                     FEDGE_OK);
    assert_memory_equal(sums, expected, layout.num_elements * sizeof(*sums));
    fedge_accumulator_close(&accumulator);
}

/* A damaged update is refused before anything of it is added. */
static void check_refusal(void)
{
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
    fedge_accumulator accumulator;
    fedge_error err;
    uint64_t one_more[NUM_SECTIONS] = {sizes[0][0] - 1, sizes[0][1]};
    fedge_encoded encoded = {
        .bytes = updates[0], .sizes = one_more, .bounds_log2 = BOUNDS, .weight = 1};
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, &err), FEDGE_OK);
    assert_int_equal(fedge_accumulator_validate(&accumulator, &encoded, &err), FEDGE_TRUNCATED);
    fedge_accumulator_close(&accumulator);
}

static void sums_are_those_of_the_decoder(void **state)
{
    (void)state;
    static const char *const PIPELINES[] = {"topk:0.01+int8", "topk:0.5",         "randk:0.02+int4",
                                            "ternary:0.01",   "ternary:0.1+int8", "topk:1+bf16"};
    for (size_t p = 0; p < sizeof(PIPELINES) / sizeof(PIPELINES[0]); p++) {
        fedge_rng rng = fedge_rng_stream(p, FEDGE_PURPOSE_TEST, 0, 0, 0);
        make_layout(PIPELINES[p]);
        expected = calloc(layout.num_elements, sizeof(*expected));
        sums = malloc(layout.num_elements * sizeof(*sums));
        for (uint32_t i = 0; i < NUM_UPDATES; i++)
            make_update(i, &rng);
        check_sums(1);
        check_sums(3);
        check_refusal();
        for (uint32_t i = 0; i < NUM_UPDATES; i++)
            free(updates[i]);
        free(expected);
        free(sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_the_decoder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
