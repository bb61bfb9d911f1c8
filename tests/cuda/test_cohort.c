/* A cohort on GPUs against the CPU's trainer: clients of different sizes, every optimizer. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "edge/core/codec/codec.h"
#include "tests/cuda/cohort_drawn.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/long.h"

#ifdef RACES
enum { SEEDS = 3, QUICK_SEEDS = 1 };
#else
enum { SEEDS = 10, QUICK_SEEDS = 2 };
#endif

static void clients_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? SEEDS : QUICK_SEEDS); seed++) {
        drawn_are_floats = seed % 4 == 1;
        drawn_model(seed);
        drawn_train_on_cpu();
        drawn_train_on_gpu(seed, 1 + (uint32_t)seed % (CLIENTS + 1));
        drawn_compare(seed);
    }
}

static void old_chips_are_refused(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .old_chip = true}))
        return;
    drawn_model(0);
    drawn_options.precision = FEDGE_PRECISION_TF32;
    const fedge_cohort_config config = drawn_config_of(1);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_UNSUPPORTED);
    assert_string_equal(err.message, "GPU 0 has compute capability 7.5, and precision tf32 wants "
                                     "8.0: set the job's precision to fp32");
    drawn_options.precision = FEDGE_PRECISION_FP32;
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    fedge_cohort_free(cohort);
    drawn_end();
}

static void optimizers_that_gpus_lack_are_named(void **state)
{
    (void)state;
    static const fedge_optimizer_type lacking[] = {FEDGE_OPTIMIZER_RMSPROP, FEDGE_OPTIMIZER_ADAGRAD,
                                                   FEDGE_OPTIMIZER_LION};
    drawn_model(0);
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        char expected[128];
        fedge_error err;
        drawn_options.optimizer = lacking[i];
        const fedge_cohort_config config = drawn_config_of(1);
        (void)snprintf(expected, sizeof(expected),
                       "%s: GPUs do not train with it yet: take --engine cpu",
                       fedge_optimizer_type_name(lacking[i]));
        assert_int_equal(fedge_cohort_check(&config, &err), FEDGE_UNSUPPORTED);
        assert_string_equal(err.message, expected);
    }
    drawn_options.optimizer = FEDGE_OPTIMIZER_SGD;
}

/* On a machine whose [at] fails once with [error], 0: none does; how often it was called. */
static fedge_status train_on(const char *at, int error, uint64_t *calls, fedge_error *err)
{
    fedge_cohort *cohort = NULL;
    const fedge_cohort_config config = drawn_config_of(3);
    assert_true(emulator_start(&(emulator_config){.num_gpus = 1,
                                                  .order = EMULATOR_RANDOM,
                                                  .fail_at = at,
                                                  .fail_call = error != 0,
                                                  .fail_error = error,
                                                  .unprotected = true}));
    assert_int_equal(fedge_cohort_new(&config, &cohort, err), FEDGE_OK);
    const fedge_status status = drawn_run(cohort, &drawn_training, err);
    *calls = emulator_counted();
    fedge_cohort_free(cohort);
    drawn_end();
    return status;
}

/* Steps are recorded once and launched again. What is refused is done without, with the same bits;
 * a lost GPU is told. */
static void steps_are_recorded(void **state)
{
    (void)state;
    enum { NO_MEMORY = 2, ECC = 214, UNSUPPORTED = 801, INVALIDATED = 901 };
    static const struct refusal {
        const char *at;
        int error;
    } REFUSALS[] = {{"cudaStreamBeginCapture", UNSUPPORTED},
                    {"cudaStreamEndCapture", INVALIDATED},
                    {"cudaGraphInstantiate", NO_MEMORY},
                    {"cudaGraphLaunch", NO_MEMORY}};
    static float recorded[CLIENTS][MAX_VALUES];
    uint64_t calls = 0;
    fedge_error err;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .fail_at = "cudaGraphLaunch"}))
        return;
    drawn_model(0);
    drawn_training.local_steps = 4;
    assert_int_equal(train_on("cudaGraphLaunch", 0, &calls, &err), FEDGE_OK);
    memcpy(recorded, drawn_trained, sizeof(recorded));
    assert_true(calls > 3);
    assert_int_equal(train_on("cudaStreamBeginCapture", 0, &calls, &err), FEDGE_OK);
    assert_in_range(calls, 1, 3); /* of 1, 2 and 3 slots */
    for (size_t i = 0; i < sizeof(REFUSALS) / sizeof(*REFUSALS); i++) {
        memset(drawn_trained, 0, sizeof(drawn_trained));
        if (train_on(REFUSALS[i].at, REFUSALS[i].error, &calls, &err) != FEDGE_OK)
            fail_msg("%s: %s", REFUSALS[i].at, err.message);
        assert_int_equal(calls, 1); /* and not again */
        for (uint32_t c = 0; c < CLIENTS; c++) {
            assert_memory_equal(drawn_trained[c], recorded[c], drawn_num_values * sizeof(float));
            assert_int_equal(drawn_tasks[c].status, FEDGE_OK);
        }
        assert_int_equal(train_on(REFUSALS[i].at, ECC, &calls, &err), FEDGE_GPU_LOST);
        assert_string_equal(err.message,
                            "GPU 0 is lost while training: uncorrectable ECC error encountered; "
                            "start again with --resume, with the GPUs that there are");
    }
}

/* Memory may also end where none is asked for by name: what a driver needs for itself. */
static void lack_of_memory_is_no_loss(void **state)
{
    (void)state;
    enum { NO_MEMORY = 2 };
    static const char *const AT[] = {"gather", "read"};
    uint64_t calls = 0;
    fedge_error err;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .fail_at = "gather"}))
        return;
    drawn_model(0);
    for (size_t i = 0; i < sizeof(AT) / sizeof(*AT); i++) {
        assert_int_equal(train_on(AT[i], NO_MEMORY, &calls, &err), FEDGE_NO_MEMORY);
        if (!strstr(err.message, "GPU 0 has no memory left while ") ||
            !strstr(err.message, "MiB are free; start again with --resume to train less at once"))
            fail_msg("%s: %s", AT[i], err.message);
    }
}

/* A ReLU that alone reads a product is a part of it, and no launch of its own but going back. */
static void rectifiers_are_parts_of_products(void **state)
{
    (void)state;
    uint64_t calls = 0;
    fedge_error err;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .fail_at = "activation"}))
        return;
    for (uint64_t seed = 0; seed < 2; seed++) {
        drawn_model(seed);
        assert_int_equal(train_on("activation", 0, &calls, &err), FEDGE_OK);
        assert_int_equal(calls, 0);
        assert_int_equal(train_on("activation_backward", 0, &calls, &err), FEDGE_OK);
        assert_true(calls > 0);
    }
    drawn_family = DRAWN_RESIDUAL; /* over sums and norms */
    drawn_model(0);
    assert_int_equal(train_on("activation", 0, &calls, &err), FEDGE_OK);
    assert_true(calls > 0);
    drawn_family = DRAWN_PLAIN;
}

/* Pieces of random lengths, as tensors have them, with gaps between their sums. */
static size_t make_pieces(int64_t *sums)
{
    size_t at = 0;
    drawn_num_chunks = 0;
    for (size_t i = 0; i < drawn_num_values;) {
        const size_t left = drawn_num_values - i,
                     most = 1 + fedge_rng_below(&drawn_rng, FEDGE_COHORT_CHUNK);
        const size_t count = left < most ? left : most;
        drawn_chunks[drawn_num_chunks++] =
            (fedge_cohort_chunk){.sums = sums + at,
                                 .first = (uint32_t)i,
                                 .count = (uint16_t)count,
                                 .bound_log2 = (int8_t)fedge_rng_below(&drawn_rng, 8) - 7,
                                 .codec = (uint8_t)fedge_rng_below(&drawn_rng, 2)};
        i += count;
        at += count + fedge_rng_below(&drawn_rng, 3);
    }
    return at;
}

/* What the codecs make of the changes in [trained], added to [sums]; how many of a client's were
 * cut. */
static void accumulate_on_cpu(int64_t *all, const int64_t *first, uint64_t cut[CLIENTS])
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        fedge_codec_stats stats = {0};
        for (uint32_t p = 0; p < drawn_num_chunks; p++) {
            const fedge_cohort_chunk *piece = &drawn_chunks[p];
            const fedge_codec_ops *codec =
                piece->codec == FEDGE_COHORT_CODEC_INT8 ? &fedge_codec_int8 : &fedge_codec_none;
            float change[FEDGE_COHORT_CHUNK];
            int32_t v[FEDGE_COHORT_CHUNK];
            for (uint32_t i = 0; i < piece->count; i++)
                change[i] = drawn_trained[c][piece->first + i] - drawn_start[piece->first + i];
            codec->encode(piece->bound_log2, change, piece->count, v, NULL, &stats);
            for (uint32_t i = 0; i < piece->count; i++)
                all[piece->sums - first + i] += (int64_t)drawn_weight_of(c) * v[i];
        }
        cut[c] = stats.clamped;
    }
}

static void check_accumulate(uint64_t seed)
{
    static int64_t all[2 * MAX_VALUES], fetched[2 * MAX_VALUES];
    fedge_cohort *cohort = NULL;
    fedge_error err;
    void *memory = NULL, *pinned = NULL;
    uint64_t cut[CLIENTS];
    drawn_model(seed);
    drawn_train_on_gpu(seed, 3);
    drawn_accumulates = true;
    drawn_begin(seed);
    assert_int_equal(cudaMalloc(&memory, sizeof(all)), cudaSuccess);
    assert_int_equal(cudaHostAlloc(&pinned, sizeof(all), cudaHostAllocPortable), cudaSuccess);
    int64_t *sums = memory;
    const size_t count = make_pieces(sums);
    memset(all, 0, sizeof(all));
    accumulate_on_cpu(all, sums, cut);
    const fedge_cohort_config config = drawn_config_of(2);
    cudaStream_t stream;
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(memory, 0, sizeof(all), stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(drawn_run(cohort, &drawn_training, &err), FEDGE_OK);
    assert_int_equal(cudaMemcpyAsync(pinned, memory, sizeof(all), cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    memcpy(fetched, pinned, sizeof(all));
    assert_memory_equal(fetched, all, count * sizeof(*all));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        assert_int_equal(drawn_tasks[c].clamped, cut[c]);
        assert_int_equal(drawn_tasks[c].bad_value, UINT32_MAX);
    }
    fedge_cohort_free(cohort);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    drawn_end();
    drawn_accumulates = false;
}

static void changes_are_summed_as_codecs_make_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 4 : 2); seed++)
        check_accumulate(seed);
}

/* What diverges is told of its client, with the step; the others go on. */
static void losses_that_are_no_numbers_are_told(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    drawn_are_floats = true;
    drawn_model(20);
    for (size_t v = 0; v < drawn_example_values; v++) { /* of client 0 */
        drawn_floats[drawn_places[drawn_firsts[0]] * drawn_example_values + v] = 1e38f;
    }
    const fedge_cohort_config config = drawn_config_of(3);
    drawn_begin(2);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(drawn_run(cohort, &drawn_training, &err), FEDGE_OK);
    assert_int_equal(drawn_num_done, CLIENTS);
    assert_int_equal(drawn_tasks[0].status, FEDGE_NOT_FINITE);
    assert_non_null(strstr(drawn_tasks[0].error.message, "round 3, step "));
    assert_non_null(
        strstr(drawn_tasks[0].error.message, "CrossEntropyLoss: the loss of a batch of "));
    for (uint32_t c = 1; c < CLIENTS; c++)
        assert_int_equal(drawn_tasks[c].status, FEDGE_OK);
    fedge_cohort_free(cohort);
    drawn_end();
    drawn_are_floats = false;
}

static void clients_without_examples_are_told(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    drawn_model(0);
    const uint32_t kept = drawn_firsts[1];
    drawn_firsts[1] = drawn_firsts[0];
    const fedge_cohort_config config = drawn_config_of(2);
    drawn_begin(0);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(drawn_run(cohort, &drawn_training, &err), FEDGE_OK);
    assert_int_equal(drawn_tasks[0].status, FEDGE_INVALID_ARGUMENT);
    assert_string_equal(drawn_tasks[0].error.message, "there are no examples to read");
    assert_int_equal(drawn_tasks[1].status, FEDGE_OK);
    fedge_cohort_free(cohort);
    drawn_end();
    drawn_firsts[1] = kept;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(old_chips_are_refused),
        cmocka_unit_test(optimizers_that_gpus_lack_are_named),
        cmocka_unit_test(steps_are_recorded),
        cmocka_unit_test(lack_of_memory_is_no_loss),
        cmocka_unit_test(rectifiers_are_parts_of_products),
        cmocka_unit_test(changes_are_summed_as_codecs_make_them),
        cmocka_unit_test(losses_that_are_no_numbers_are_told),
        cmocka_unit_test(clients_without_examples_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
