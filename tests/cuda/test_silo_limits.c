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

/* Every allocation fails once, and every other call: what was taken is given back, and the answer
 * says what happened. */
static void gpus_are_lost_at_every_call(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    silo_draw(0);
    const fedge_silo_config config = silo_config_of(11);
    static const int ERRORS[] = {2, 214}; /* out of memory, ECC */
    silo_training.local_steps = 2;
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .joins = true}))
        return;
    assert_int_equal(silo_try(&config, &facts, &err), FEDGE_OK);
    const uint64_t calls = emulator_calls();
    for (uint64_t i = 1; i <= calls; i += i < 40 ? 1 : 97) {
        const emulator_config emulator = {
            .num_gpus = 2, .fail_call = i, .fail_error = ERRORS[i % 2], .unprotected = true};
        assert_true(emulator_start(&emulator));
        const fedge_status status = silo_try(&config, &facts, &err);
        if (status == FEDGE_OK) { /* while it was freed, or after its state went to the host */
            continue;
        }
        if (status != FEDGE_GPU_LOST && status != FEDGE_NO_MEMORY && status != FEDGE_NOT_FOUND)
            fail_msg("call %u: %s", (unsigned)i, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_memory_does_not_show),
        cmocka_unit_test(gpus_are_lost_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
