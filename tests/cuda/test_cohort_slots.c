/* How many clients are trained at once, in which order threads go on, and which outputs are made
 * again for want of memory does not show in a single bit. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

static void slots_and_threads_do_not_show(void **state)
{
    (void)state;
    static float first[CLIENTS][MAX_VALUES];
    drawn_are_floats = false;
    for (uint64_t seed = 0; seed < 6; seed += fedge_test_is_long() ? 1 : 3) {
        static const enum drawn_family FAMILIES[] = {DRAWN_PLAIN, DRAWN_PLAIN,    DRAWN_RESIDUAL,
                                                     DRAWN_TEXT,  DRAWN_SEQUENCE, DRAWN_ENCODERS};
        drawn_family = FAMILIES[seed];
        drawn_model(seed);
        drawn_train_on_gpu(seed, 1);
        memcpy(first, drawn_trained, sizeof(first));
        for (uint32_t slots = 2; slots <= (drawn_family == DRAWN_PLAIN ? CLIENTS : 3); slots += 2) {
            drawn_train_on_gpu(seed + 10 * slots, slots);
            assert_memory_equal(first, drawn_trained, sizeof(first));
        }
    }
    drawn_family = DRAWN_PLAIN;
}

static size_t slot_bytes(void)
{
    const fedge_cohort_config config = drawn_config_of(1);
    fedge_cohort_memory memory;
    fedge_error err;
    assert_int_equal(fedge_cohort_bytes(&config, &memory, &err), FEDGE_OK);
    return memory.slot;
}

/* Layers whose outputs are made again take fewer bytes and have the same bits. */
static void outputs_are_made_again(void **state)
{
    (void)state;
    static const enum drawn_family FAMILIES[] = {DRAWN_PLAIN, DRAWN_RESIDUAL, DRAWN_BATCH_NORMS,
                                                 DRAWN_DROPPED, DRAWN_ENCODERS};
    static float kept[CLIENTS][MAX_VALUES];
    const uint32_t most = fedge_test_is_long() ? 15 : 3;
    uint32_t smaller = 0;
    for (uint32_t i = 0; i < most; i++) {
        const uint64_t seed = 1 + 2 * (i / 5) + (i % 5 == 0);
        drawn_family = FAMILIES[i % 5];
        drawn_model(seed);
        drawn_train_on_gpu(seed, 2);
        memcpy(kept, drawn_trained, sizeof(kept));
        const size_t bytes = slot_bytes();
        drawn_recomputes = true;
        drawn_model(seed);
        drawn_train_on_gpu(seed, 2);
        smaller += slot_bytes() < bytes;
        drawn_recomputes = false;
        for (uint32_t c = 0; c < CLIENTS; c++) {
            if (memcmp(drawn_trained[c], kept[c], drawn_num_values * sizeof(float)) != 0)
                fail_msg("family %u, seed %u", (unsigned)drawn_family, (unsigned)seed);
        }
    }
    drawn_family = DRAWN_PLAIN;
    assert_true(smaller >= most / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_and_threads_do_not_show),
        cmocka_unit_test(outputs_are_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
