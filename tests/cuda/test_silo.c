/* A silo against the CPU's trainer, and against itself: how many GPUs there are does not show in a
 * single bit. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/silo_drawn.h"
#include "tests/edge/core/long.h"

#ifdef RACES
enum { SEEDS = 2 };
#else
enum { SEEDS = 5 };
#endif

static _Alignas(64) uint8_t scratch[1 << 18];

static void the_number_of_gpus_does_not_show(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        silo_draw(seed);
        silo_train_on_cpu();
        silo_train_on(1, 0, 0);
        silo_keep_first();
        silo_compare_with_cpu();
        assert_int_equal(silo_result.num_steps, silo_of_cpu.num_steps);
        assert_int_equal(silo_result.num_seen, silo_of_cpu.num_seen);
        assert_int_equal(silo_result.correct, silo_of_cpu.correct);
        assert_true(fabs(silo_result.loss_sum - silo_of_cpu.loss_sum) <=
                    1e-4 * silo_of_cpu.loss_sum);
        for (uint32_t i = 0; i < 3; i++) {
            static const uint32_t GPUS[] = {2, 3, 8};
            if (!fedge_test_is_long() && seed != 1 && i != seed % 3)
                continue; /* of the others, one number each */
            silo_train_on(GPUS[i], 0, 0);
            silo_compare_with_first();
        }
        if (emulator_real_gpus() > 3) {
            silo_train_on(emulator_real_gpus(), 0, 0);
            silo_compare_with_first();
        }
    }
}

/* Each GPU's parts are queued one by one in the first step alone. */
static void steps_are_recorded(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    silo_training.local_steps = 5;
    const fedge_silo_config config = silo_config_of(0);
    for (uint32_t gpus = 1; gpus <= 2; gpus++) {
        if (!emulator_start(&(emulator_config){
                .num_gpus = gpus, .joins = gpus > 1, .fail_at = "cudaGraphLaunch"}))
            return;
        assert_int_equal(silo_try(&config, &facts, &err), FEDGE_OK);
        assert_int_equal(silo_result.num_steps, 5);
        assert_int_equal(emulator_counted(), gpus * 4);
    }
}

/* A batch's statistics want all of it on one GPU. */
static void a_batch_norm_is_not_cut(void **state)
{
    (void)state;
    silo_draw(3);
    silo_spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_BATCHNORM2D,
                                             .u.batchnorm2d = {.num_features = 5,
                                                               .eps = 1e-5f,
                                                               .momentum = 0.1f,
                                                               .affine = true,
                                                               .track_running_stats = true}};
    silo_options.correction = false;
    silo_num_values += 10;
    fedge_model_init_values(&silo_spec, 3, silo_start);
    fedge_model_init_buffers(&silo_spec, silo_start + silo_num_values);
    silo_num_values += 10;
    silo_train_on_cpu();
    const fedge_silo_facts facts = silo_train_on(3, 0, 0);
    assert_int_equal(facts.num_parts, 1);
    assert_int_equal(facts.num_gpus, 1);
    silo_compare_with_cpu();
    assert_memory_not_equal(silo_trained + silo_num_values - 10, silo_start + silo_num_values - 10,
                            10 * sizeof(float));
}

/* Where the CPU draws for one micro-batch after another, so does a silo. */
static void micro_batches_drop_the_same(void **state)
{
    (void)state;
    silo_micro_batch = 5;
    silo_draw(3);
    silo_micro_batch = 0;
    silo_train_on_cpu();
    silo_train_on(1, 5, 0);
    silo_keep_first();
    silo_compare_with_cpu();
    silo_train_on(3, 5, 0);
    silo_compare_with_first();
}

static void a_hanging_collective_is_seen(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(0);
    if (!emulator_start(&(emulator_config){
            .num_gpus = 2, .hang_collective = 3, .nccl_async_error = true, .watched = true}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_GPU_LOST);
    assert_non_null(strstr(err.message, "NCCL"));
}

/* The process begins anew: what was queued of the step may still be under way. */
static void lack_of_memory_ends_it(void **state)
{
    (void)state;
    enum { NO_MEMORY = 2 };
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(0);
    if (!emulator_start(&(emulator_config){
            .num_gpus = 2, .fail_at = "gather", .fail_call = 2, .fail_error = NO_MEMORY}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_GPU_LOST);
    if (!strstr(err.message, "GPU 1 has no memory left while training: ") ||
        !strstr(err.message, "MiB are free; start again to train less at once"))
        fail_msg("%s", err.message);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    fedge_silo_config config = silo_config_of(0);
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .no_nccl = true}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "NCCL is not found"));
    config.num_gpus = 1;
    config.gpus[0] = 2;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_NOT_FOUND);
    assert_string_equal(err.message, "GPU 2 is not there: there are 0 to 1");
}

static void training_that_diverges_is_told(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    silo_training.optimizer.learning_rate = 1e30f;
    const fedge_silo_config config = silo_config_of(0);
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .joins = true}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "round 2"));
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void evaluation_and_cancelling(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo *silo = NULL;
    fedge_trainer_result of_gpu;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(4);
    const fedge_cohort_task task = silo_task_of();
    const fedge_examples examples = silo_examples();
    const fedge_trainer_workspace workspace = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .joins = true}))
        return;
    fedge_model *model = silo_model();
    assert_int_equal(
        fedge_trainer_evaluate(model, &examples, BATCH, &workspace, &silo_of_cpu, &err), FEDGE_OK);
    assert_int_equal(fedge_silo_new(&config, &silo, &err), FEDGE_OK);
    memcpy(silo_trained, silo_start, sizeof(silo_trained));
    assert_int_equal(fedge_silo_train(silo, &task, &silo_training, silo_trained, at_once, NULL,
                                      &silo_result, &err),
                     FEDGE_CANCELLED);
    assert_int_equal(fedge_silo_evaluate(silo, &task, silo_start, NULL, NULL, &of_gpu, &err),
                     FEDGE_OK);
    assert_int_equal(of_gpu.num_seen, EXAMPLES);
    assert_int_equal(of_gpu.correct, silo_of_cpu.correct);
    assert_true(fabs(of_gpu.loss_sum - silo_of_cpu.loss_sum) <= 1e-5 * silo_of_cpu.loss_sum);
    assert_int_equal(fedge_silo_evaluate(silo, &task, silo_start, at_once, NULL, &of_gpu, &err),
                     FEDGE_CANCELLED);
    /* A second task begins anew. */
    assert_int_equal(
        fedge_silo_train(silo, &task, &silo_training, silo_trained, NULL, NULL, &silo_result, &err),
        FEDGE_OK);
    memcpy(silo_first, silo_trained, sizeof(silo_first));
    memcpy(silo_trained, silo_start, sizeof(silo_trained));
    assert_int_equal(
        fedge_silo_train(silo, &task, &silo_training, silo_trained, NULL, NULL, &silo_result, &err),
        FEDGE_OK);
    assert_memory_equal(silo_trained, silo_first, silo_num_values * sizeof(float));
    fedge_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_gpus_does_not_show),
        cmocka_unit_test(steps_are_recorded),
        cmocka_unit_test(a_batch_norm_is_not_cut),
        cmocka_unit_test(micro_batches_drop_the_same),
        cmocka_unit_test(a_hanging_collective_is_seen),
        cmocka_unit_test(lack_of_memory_ends_it),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(training_that_diverges_is_told),
        cmocka_unit_test(evaluation_and_cancelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
