/* Layers of images and signals, within the same bound of the CPU's. */
#include "tests/edge/core/cmocka_all.h"

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

static void images_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 4 : 1); seed++)
        drawn_agree(DRAWN_RESIDUAL, seed, 1 + (uint32_t)seed % (CLIENTS + 1));
}

/* Every kind of window, with an optimizer of its own. */
static void windows_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 16 : 2); seed++)
        drawn_agree(DRAWN_SIGNAL, seed, 3);
}

/* The same values as on the CPU, in a batch of any size and whatever the slot. */
static void what_is_dropped_is_what_the_cpu_drops(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 8 : 2); seed++)
        drawn_agree(DRAWN_DROPPED, seed, 1 + (uint32_t)seed % 3);
}

/* Statistics move as the CPU's do, each slot's by itself. */
static void statistics_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 8 : 2); seed++)
        drawn_agree(DRAWN_BATCH_NORMS, seed, 1 + (uint32_t)seed % 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(what_is_dropped_is_what_the_cpu_drops),
        cmocka_unit_test(statistics_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(windows_become_what_the_cpu_makes_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
