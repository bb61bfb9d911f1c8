/* Every kind of kernel that a client's training takes, launched by small models of one step, so
 * that the race detector sees each in every run of the tests: test_cohort_kernels.c and _other.c
 * have those of products, pools, tables and sums. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>

#include "tests/cuda/cohort_drawn.h"
#include "tests/cuda/emulator/emulator.h"

/* Of a case's kernels: a run counts one of them, and the detector sees all in any run. */
#ifdef RACES
enum { COUNTED = 1 };
#else
enum { COUNTED = 8 };
#endif

/* One step of each client, with what only some jobs have: changes are added to sums, and gradients
 * are clipped. Returns how often [kernel] was launched. */
static uint64_t train(enum drawn_family family, uint64_t seed, const char *kernel)
{
    fedge_cohort *cohort = NULL;
    fedge_error err;
    void *sums = NULL;
    drawn_family = family;
    drawn_model(seed);
    drawn_training.local_steps = 1;
    drawn_training.batch_size = drawn_options.max_batch = 2;
    drawn_training.optimizer.clip_norm = 0.5f;
    drawn_options.clip = true;
    drawn_accumulates = true;
    assert_true(emulator_start(&(emulator_config){.num_gpus = 1,
                                                  .seed = seed,
                                                  .order = EMULATOR_RANDOM,
                                                  .fail_at = kernel,
                                                  .unprotected = true}));
    assert_int_equal(cudaMalloc(&sums, MAX_VALUES * sizeof(int64_t)), cudaSuccess);
    drawn_num_chunks = 0;
    for (size_t at = 0; at < drawn_num_values; at += FEDGE_COHORT_CHUNK) {
        const size_t left = drawn_num_values - at;
        drawn_chunks[drawn_num_chunks++] = (fedge_cohort_chunk){
            .sums = (int64_t *)sums + at,
            .first = (uint32_t)at,
            .count = (uint16_t)(left < FEDGE_COHORT_CHUNK ? left : FEDGE_COHORT_CHUNK),
            .codec = FEDGE_COHORT_CODEC_INT8};
    }
    const fedge_cohort_config config = drawn_config_of(2);
    if (fedge_cohort_new(&config, &cohort, &err) != FEDGE_OK ||
        drawn_run(cohort, &drawn_training, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const uint64_t launched = emulator_counted();
    fedge_cohort_free(cohort);
    assert_int_equal(cudaFree(sums), cudaSuccess);
    drawn_end();
    drawn_accumulates = false;
    drawn_family = DRAWN_PLAIN;
    return launched;
}

static void each_kernel_keeps_its_threads_apart(void **state)
{
    (void)state;
    static const struct {
        enum drawn_family family;
        uint64_t seed;
        const char *kernels[8]; /* NULL behind the last */
    } CASES[] = {
        {DRAWN_PLAIN,
         2,
         {"begin_slots", "advance", "gather", "sum_losses", "sum_squares", "step_all", "find_bad",
          "accumulate"}},
        {DRAWN_ENCODERS,
         1,
         {"attend", "attend_queries", "attend_keys", "norm_forward", "norm_dx", "norm_dweight",
          "dropout", "activation"}},
        {DRAWN_DIRECTIONS, 0, {"clear", "cell_forward", "cell_backward", "state_backward"}},
        {DRAWN_BATCH_NORMS, 0, {"batchnorm_forward", "batchnorm_backward"}},
        {DRAWN_RESIDUAL, 0, {"activation", "activation_backward"}},
    };
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .fail_at = "step_all"}))
        skip();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        for (uint32_t k = 0; k < COUNTED && CASES[i].kernels[k]; k++) {
            if (train(CASES[i].family, CASES[i].seed, CASES[i].kernels[k]) == 0)
                fail_msg("%s was not launched", CASES[i].kernels[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kernel_keeps_its_threads_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
