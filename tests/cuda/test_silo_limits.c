/* A silo with too little memory, which does not show in a single bit until it is told, and without
 * GPUs that it had. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/silo_drawn.h"

enum { MUCH = 50000 };

/* Less and less memory: parts one after another, then the optimizer's state on the host, then an
 * error that has the numbers. */
static void too_little_memory_does_not_show(void **state)
{
    (void)state;
    bool in_waves = false, alone = false, on_host = false;
    fedge_error err;
    silo_draw(1);
    silo_training.local_steps = 2;
    silo_train_on(1, 2, 0);
    silo_keep_first();
    size_t memory = MUCH;
    for (;; memory -= alone ? 1024 : 8192) {
        fedge_silo_facts facts = {0};
        const fedge_silo_config config = silo_config_of(2);
        if (!emulator_start(
                &(emulator_config){.num_gpus = 2, .memory_bytes = memory, .unprotected = true}))
            return;
        const fedge_status status = silo_try(&config, &facts, &err);
        if (status != FEDGE_OK) {
            assert_int_equal(status, FEDGE_NO_MEMORY);
            assert_non_null(strstr(err.message, " MiB are needed"));
            break;
        }
        silo_compare_with_first();
        in_waves |= facts.at_once < (facts.num_parts + 1) / 2 && !facts.states_on_host;
        on_host |= facts.states_on_host;
        alone |= facts.at_once <= 2;
    }
    assert_true(in_waves);
    assert_true(on_host);
}

enum { OUT_OF_MEMORY = 2 };

/* A machine whose call [i] of [at] fails; NULL: of all. */
static fedge_status fail_at(uint64_t i, const char *at, int error, fedge_error *err)
{
    const fedge_silo_config config = silo_config_of(11);
    fedge_silo_facts facts = {0};
    assert_true(emulator_start(&(emulator_config){
        .num_gpus = 2, .fail_call = i, .fail_at = at, .fail_error = error, .unprotected = true}));
    return silo_try(&config, &facts, err);
}

static bool begin_failures(void)
{
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(11);
    silo_training.local_steps = 1;
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .joins = true}) ||
        emulator_real_gpus() > 0)
        return false;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_OK);
    silo_keep_first();
    return true;
}

/* Each fails once: what was taken is given back, and either the optimizer's state finds room on the
 * host and nothing shows, or the message says what to do. */
static void out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    uint32_t failed = 0;
    if (!begin_failures())
        return;
    for (uint64_t i = 1; i == failed + 1; i++) {
        fedge_error err;
        const fedge_status status = fail_at(i, "allocation", OUT_OF_MEMORY, &err);
        failed += emulator_failed();
        if (status == FEDGE_OK)
            silo_compare_with_first();
        else if (status != FEDGE_NO_MEMORY || !strstr(err.message, "--engine cpu"))
            fail_msg("allocation %u: status %d: %s", (unsigned)i, (int)status, err.message);
    }
    assert_true(failed > 20); /* of two GPUs: their blocks, and what is pinned for each */
}

/* While it is opened, gets examples, trains, joins gradients or gives the model back. */
static void a_gpu_is_lost_in_every_phase(void **state)
{
    (void)state;
    fedge_error err;
    if (!begin_failures())
        return;
    const uint64_t calls = emulator_calls();
    uint32_t lost = 0;
    for (uint64_t i = 1; i <= calls; i += i < 40 ? 3 : 41) {
        const fedge_status status = fail_at(i, NULL, 0, &err);
        if (status == FEDGE_OK) { /* the model was there, and what was taken was given back */
            silo_compare_with_first();
            continue;
        }
        if (status == FEDGE_NOT_FOUND && strstr(err.message, "is found"))
            continue; /* it was asked for the number of GPUs, or for NCCL's version */
        if (status != FEDGE_GPU_LOST || !strstr(err.message, " is lost while ")) {
            fail_msg("call %u of %u: status %d: %s", (unsigned)i, (unsigned)calls, (int)status,
                     err.message);
        }
        lost++;
    }
    assert_true(lost > 15);
    /* NCCL fails after it has made one of two communicators, which is given back, too. */
    assert_int_equal(fail_at(1, "ncclCommInitAll", 999, &err), FEDGE_GPU_LOST);
}

/* By an error that does not come again: what was asked for then lay on the caller's stack, and
 * nothing of it is looked at any more. */
static void an_evaluation_that_lost_its_gpu_is_over(void **state)
{
    (void)state;
    enum { REFUSED = 701 };
    fedge_silo *silo = NULL;
    fedge_error err;
    fedge_trainer_result result;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(11);
    if (!emulator_start(&(emulator_config){
            .num_gpus = 1, .fail_call = 2, .fail_at = "sum_losses", .fail_error = REFUSED}))
        return;
    assert_int_equal(fedge_silo_new(&config, &silo, &err), FEDGE_OK);
    for (uint32_t again = 0; again < 2; again++) {
        const fedge_cohort_task task = silo_task_of();
        assert_int_equal(fedge_silo_evaluate(silo, &task, silo_start, NULL, NULL, &result, &err),
                         FEDGE_GPU_LOST);
        assert_non_null(strstr(err.message, "GPU 0 is lost while evaluating: "));
        assert_int_equal(emulator_counted(), 2);
    }
    fedge_silo_free(silo);
    assert_int_equal(emulator_leaks(), 0);
}

static void a_gpu_without_a_part_is_looked_for(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    fedge_silo_config config = silo_config_of(BATCH); /* of which there is one */
    config.num_gpus = 2;
    config.gpus[1] = 64;
    if (!emulator_start(&(emulator_config){.num_gpus = 1}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "GPU 64 is not there: there are 0 to "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_memory_does_not_show),
        cmocka_unit_test(out_of_memory_at_every_allocation),
        cmocka_unit_test(a_gpu_is_lost_in_every_phase),
        cmocka_unit_test(an_evaluation_that_lost_its_gpu_is_over),
        cmocka_unit_test(a_gpu_without_a_part_is_looked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
