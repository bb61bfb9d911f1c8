/* What a silo's optimizer keeps: of what is trained alone, as fp32 or bf16, in the bytes that are
 * told beforehand. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/silo_drawn.h"

enum { MUCH = 1000000 };

/* What is said before there is a GPU is what is taken. */
static void memory_is_told_beforehand(void **state)
{
    (void)state;
    silo_draw(1);
    const fedge_silo_config config = silo_config_of(2);
    uint64_t all = 0, least = 0, of_four = 0;
    fedge_error err;
    assert_int_equal(fedge_silo_bytes(&config, 1, &all, &least, &err), FEDGE_OK);
    assert_int_equal(fedge_silo_bytes(&config, 4, &of_four, &least, &err), FEDGE_OK);
    assert_true(least < of_four && of_four < all);
}

/* Bytes of GPU 0 that a silo of so many GPUs takes for a machine's memory. */
static uint64_t bytes_taken(const fedge_silo_config *config, uint32_t gpus, size_t memory)
{
    fedge_error err;
    fedge_silo *silo = NULL;
    size_t left = 0, total = 0;
    if (!emulator_start(
            &(emulator_config){.num_gpus = gpus, .joins = gpus > 1, .memory_bytes = memory}))
        return 0;
    if (fedge_silo_new(config, &silo, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
    fedge_silo_free(silo);
    return total - left;
}

/* Near what fp32 gives, with the same bits for 1, 2 and 8 GPUs, with states on the host, and
 * when a task that was lost is begun again. */
static void states_in_bf16_do_not_show_gpus(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) { /* momentum, Adam */
        fedge_error err;
        fedge_silo_facts facts = {0};
        silo_draw(seed);
        silo_training.local_epochs = 2;
        silo_train_on(1, 2, 0);
        const double loss = silo_result.loss_sum;
        memcpy(silo_expected, silo_trained, sizeof(silo_expected));
        silo_bf16 = true;
        silo_train_on(1, 2, 0);
        silo_keep_first();
        assert_memory_not_equal(silo_first, silo_expected, silo_num_values * sizeof(float));
        assert_true(fabs(silo_result.loss_sum - loss) <= 1e-3 * loss);
        for (size_t i = 0; i < silo_num_values; i++)
            assert_true(fabs((double)silo_trained[i] - (double)silo_expected[i]) <= 0.01);
        silo_train_on(8, 2, 0);
        silo_compare_with_first();
        uint64_t all = 0, least = 0;
        const fedge_silo_config config = silo_config_of(2);
        assert_int_equal(fedge_silo_bytes(&config, 2, &all, &least, &err), FEDGE_OK);
        size_t memory = (least / 9 + 1) * 10 + EXAMPLES * (VALUES + sizeof(float)) * 10 / 9 + 1000;
        (void)silo_train_on(2, 2, memory);
        silo_compare_with_first();
        if (emulator_start(&(emulator_config){
                .num_gpus = 2, .fail_at = "step_all", .fail_call = 7, .unprotected = true}))
            assert_int_equal(silo_try(&config, &facts, &err), FEDGE_GPU_LOST);
        silo_train_on(2, 2, 0);
        silo_compare_with_first();
        silo_bf16 = false;
    }
}

/* Momentum or moments of what is trained alone: of all, of an end, of factors of low rank. */
static void states_are_of_what_is_trained(void **state)
{
    (void)state;
    static const uint32_t TRAINED[][2] = {{1, 95 + 45 * 3 + 3}, {4, 45 * 3 + 3}, {3, 95 + 2 * 48}};
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t all = 0, least = 0, with = 0, without = 0, unused = 0;
        fedge_error err;
        silo_draw(TRAINED[i][0]);
        silo_options.optimizer = FEDGE_OPTIMIZER_ADAM;
        fedge_silo_config config = silo_config_of(2);
        config.cohort.sets[0].count = 0; /* as --plan, which knows of none */
        assert_int_equal(fedge_silo_bytes(&config, 1, &all, &least, &err), FEDGE_OK);
        const uint64_t taken = bytes_taken(&config, 1, MUCH);
        assert_int_equal(taken, taken > 0 ? all : 0);
        assert_int_equal(bytes_taken(&config, 1, (least / 9 + 1) * 10), taken > 0 ? least : 0);
        silo_options.optimizer = FEDGE_OPTIMIZER_SGD;
        silo_options.momentum = 0.0f;
        assert_int_equal(fedge_silo_bytes(&config, 1, &without, &unused, &err), FEDGE_OK);
        silo_options.momentum = 0.9f;
        assert_int_equal(fedge_silo_bytes(&config, 1, &with, &unused, &err), FEDGE_OK);
        const uint64_t each = ((uint64_t)TRAINED[i][1] * sizeof(float) + 255) / 256 * 256;
        assert_int_equal(with - without, each);
        assert_int_equal(all - without, 2 * each);
        config.states_bf16 = true;
        const uint64_t half = ((uint64_t)TRAINED[i][1] * sizeof(uint16_t) + 255) / 256 * 256;
        assert_int_equal(fedge_silo_bytes(&config, 1, &with, &unused, &err), FEDGE_OK);
        assert_int_equal(with - without, half);
        assert_int_equal(bytes_taken(&config, 1, MUCH), taken > 0 ? with : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_told_beforehand),
        cmocka_unit_test(states_in_bf16_do_not_show_gpus),
        cmocka_unit_test(states_are_of_what_is_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
