/* How many clients are trained at once, and in which order threads go on, does not show in a single
 * bit. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_and_threads_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
