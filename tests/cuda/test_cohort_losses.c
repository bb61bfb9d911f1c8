/* Losses, within the same bound of the CPU's. */
#include "tests/edge/core/cmocka_all.h"

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

/* Of one output, whose target is the label, and of several. */
static void losses_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    static const fedge_loss_type LOSSES[] = {FEDGE_LOSS_BCE_WITH_LOGITS, FEDGE_LOSS_MSE,
                                             FEDGE_LOSS_L1, FEDGE_LOSS_HUBER, FEDGE_LOSS_SMOOTH_L1};
    drawn_are_floats = false;
    static const uint64_t SOME[] = {0, 3, 4, 6, 7};
    for (uint64_t i = 0; i < (fedge_test_is_long() ? 10 : 5); i++) {
        const uint64_t seed = fedge_test_is_long() ? i : SOME[i];
        drawn_loss = LOSSES[seed % 5];
        drawn_outputs = seed < 4 ? 1 : CLASSES;
        drawn_model(2 * seed); /* without convolutions */
        drawn_train_on_cpu();
        drawn_train_on_gpu(seed, 2);
        drawn_compare(seed);
    }
    drawn_loss = FEDGE_LOSS_CROSS_ENTROPY;
    drawn_outputs = CLASSES;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_become_what_the_cpu_makes_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
