/* Robust rules with an accumulator on GPUs: a step has the bits of the CPU's; where GPUs have no
 * room for a round's updates the CPU takes it, and the log says so; a lost GPU ends it. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"

enum { UPDATES = 11, ROUNDS = 2 };

static fedge_error err;
static char logged[4096];

static void keep_line(void *user, const char *line, size_t size)
{
    const size_t used = strlen(logged);
    (void)user;
    if (used + size < sizeof(logged))
        memcpy(logged + used, line, size);
}

static const fedge_log LOG = {.level = FEDGE_LOG_INFO, .write = keep_line};

static fedge_job *parse(const char *strategy)
{
    char text[1024];
    fedge_job *job = NULL;
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"net\", \"model\": {\"input-shape\": [64], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 64, \"out_features\": 150},"
        "{\"type\": \"Linear\", \"in_features\": 150, \"out_features\": 7}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [64], \"dtype\": \"f32\", \"labels\": 7},"
        "\"training\": {\"learning-rate\": 0.1}, \"strategy\": %s,"
        "\"rounds\": {\"num-server-rounds\": 3, \"min-available-nodes\": %d},"
        "\"update\": {\"codec\": \"none\"}}",
        strategy, UPDATES);
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

#define ROOT_VALUES "test-robust-cuda-values.npy"
#define ROOT_LABELS "test-robust-cuda-labels.npy"

static void write_npy(const char *path, const char *type, const char *shape, const void *data,
                      size_t size)
{
    char head[128] = "\x93NUMPY\x01\0\x76"; /* of 118 bytes behind the first ten */
    const int used = snprintf(
        head + 10, 117, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    memset(head + 10 + used, ' ', (size_t)(117 - used));
    head[127] = '\n';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, sizeof(head), file), sizeof(head));
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* What FLTrust trains on. */
static int write_root_set(void **state)
{
    static float values[24][64];
    int64_t labels[24];
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 24, 0, 0);
    for (int i = 0; i < 24; i++) {
        labels[i] = i % 7;
        for (int k = 0; k < 64; k++)
            values[i][k] = (float)fedge_rng_normal(&rng) + (k % 7 == i % 7 ? 1.0f : 0.0f);
    }
    write_npy(ROOT_VALUES, "<f4", "24, 64", values, sizeof(values));
    write_npy(ROOT_LABELS, "<i8", "24,", labels, sizeof(labels));
    return 0;
}

static int remove_root_set(void **state)
{
    (void)state;
    return remove(ROOT_VALUES) | remove(ROOT_LABELS);
}

/* Random updates, of which one is far off. */
static void keep_updates(fedge_global_model *model, uint64_t seed, fedge_updates *updates)
{
    const size_t count = model->plan->schema.num_elements;
    int32_t *v = malloc(count * sizeof(*v));
    uint32_t order[UPDATES], first = 0;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 23, 0, 0);
    assert_non_null(v);
    assert_int_equal(fedge_stored_updates_reserve(&model->stored, UPDATES, &first, &err), FEDGE_OK);
    for (uint32_t i = 0; i < UPDATES; i++) {
        for (size_t k = 0; k < count; k++)
            v[k] = (int32_t)fedge_rng_below(&rng, 1u << 28) - (1 << 27) + (i == 4 ? 1 << 29 : 0);
        assert_int_equal(fedge_stored_updates_put(&model->stored, first + i, v, &err), FEDGE_OK);
        assert_int_equal(fedge_accumulator_begin(&model->accumulator, 1, &err), FEDGE_OK);
        order[i] = first + i;
    }
    assert_int_equal(fedge_stored_updates_list(&model->stored, order, UPDATES, updates, &err),
                     FEDGE_OK);
    free(v);
}

static fedge_status step(fedge_global_model *model, uint32_t round)
{
    int8_t bounds[FEDGE_MAX_TENSORS];
    const fedge_update_facts facts[UPDATES] = {{0}};
    fedge_updates updates;
    keep_updates(model, round, &updates);
    fedge_sections_bounds(model->plan, model->values, bounds);
    fedge_status status = fedge_global_model_step(model, round, bounds, facts, &updates, &err);
    return status == FEDGE_OK ? fedge_global_model_reset(model, &err) : status;
}

/* Plays some rounds; the values are malloc'ed, NULL after a failure, which *status has. */
static float *play(const fedge_job *job, uint32_t num_gpus, uint32_t num_threads,
                   fedge_status *status)
{
    const fedge_accumulator_config config = {
        .num_lanes = num_threads, .num_gpus = num_gpus, .gpus = {0, 1, 2}, .log = &LOG};
    fedge_global_model model;
    float *values = NULL;
    memset(logged, 0, sizeof(logged));
    *status = fedge_global_model_init(&model, job, num_gpus > 0 ? "cuda" : "cpu", &config, &err);
    if (*status == FEDGE_OK)
        *status = fedge_global_model_begin(&model, &err);
    for (uint32_t round = 1; round <= ROUNDS && *status == FEDGE_OK; round++)
        *status = step(&model, round);
    if (*status == FEDGE_OK) {
        const size_t size = model.plan->schema.num_elements * sizeof(*values);
        values = malloc(size);
        assert_non_null(values);
        memcpy(values, model.values, size);
    }
    fedge_global_model_fini(&model);
    return values;
}

static void check_same(const fedge_job *job, const float *expected, float *found)
{
    assert_non_null(found);
    assert_memory_equal(expected, found, job->plan.schema.num_elements * sizeof(*found));
    free(found);
}

static void rules_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static const char *const RULES[] = {
        "{\"type\": \"FedMedian\"}",
        "{\"type\": \"FedTrimmedAvg\", \"mixing\": true, \"num-malicious-nodes\": 2}",
        "{\"type\": \"Krum\", \"num-malicious-nodes\": 2}",
        "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 3, \"mixing\": true}",
        "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 2}",
        "{\"type\": \"RFA\"}",
        "{\"type\": \"NormClipping\", \"norm\": 3}",
        "{\"type\": \"FLTrust\", \"root-set\": {\"values\": \"" ROOT_VALUES
        "\", \"labels\": \"" ROOT_LABELS "\"}}",
    };
    for (uint32_t i = 0; i < sizeof(RULES) / sizeof(*RULES); i++) {
        const uint32_t num_gpus = 1 + i % 3;
        fedge_status status;
        fedge_job *job = parse(RULES[i]);
        assert_true(emulator_start(&(emulator_config){
            .num_gpus = 3, .order = (emulator_order)(i % 3), .seed = i, .unprotected = i > 0}));
        float *expected = play(job, 0, 1, &status);
        float *found = play(job, num_gpus, 2, &status);
        assert_int_equal(status, FEDGE_OK);
        check_same(job, expected, found);
        /* Once, since what was taken stays for the next round. */
        char *told = strstr(logged, "robust-rule kind=cuda");
        assert_non_null(told);
        assert_null(strstr(told + 1, "robust-rule"));
        free(expected);
        fedge_job_free(job);
        assert_null(emulator_fault());
        assert_int_equal(emulator_leaks(), 0);
    }
}

/* Each call of its kind fails once. */
static void fail_each(const char *at, int error)
{
    fedge_status status;
    fedge_job *job = parse("{\"type\": \"Krum\", \"num-malicious-nodes\": 2, \"mixing\": true}");
    assert_true(emulator_start(&(emulator_config){.num_gpus = 2}));
    float *expected = play(job, 0, 1, &status);
    uint32_t on_cpu = 0, lost = 0;
    for (uint64_t call = 1;; call++) {
        assert_true(emulator_start(&(emulator_config){.num_gpus = 2,
                                                      .unprotected = true,
                                                      .fail_call = call,
                                                      .fail_at = at,
                                                      .fail_error = error}));
        float *found = play(job, 2, 2, &status);
        if (status == FEDGE_OK) {
            check_same(job, expected, found);
        } else { /* while the accumulator is opened, or a GPU is lost */
            assert_int_equal(status, error != 0 ? FEDGE_GPU_MEMORY : FEDGE_GPU_LOST);
            assert_non_null(strstr(err.message, "GPU "));
            lost++;
        }
        if (strstr(logged, "robust-rule-on-cpu")) {
            assert_int_equal(status, FEDGE_OK);
            assert_non_null(strstr(logged, "lower --robust-memory or rounds.max-cohort"));
            on_cpu++;
        }
        if (!emulator_failed())
            break;
    }
    assert_true(error != 0 ? on_cpu > 8 : lost > 8);
    free(expected);
    fedge_job_free(job);
}

static void where_memory_is_short_the_cpu_goes_on(void **state)
{
    (void)state;
    fail_each("allocation", 2 /* cudaErrorMemoryAllocation */);
}

static void a_lost_gpu_ends_the_step(void **state)
{
    (void)state;
    fail_each("allocation", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rules_have_the_bits_of_the_cpu, write_root_set,
                                        remove_root_set),
        cmocka_unit_test(where_memory_is_short_the_cpu_goes_on),
        cmocka_unit_test(a_lost_gpu_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
