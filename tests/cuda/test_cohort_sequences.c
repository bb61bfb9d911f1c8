/* Layers of sequences, within the same bound of the CPU's. */
#include "tests/edge/core/cmocka_all.h"

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

static void sequences_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    static const enum drawn_family FAMILIES[] = {DRAWN_SEQUENCE, DRAWN_TEXT, DRAWN_ENCODERS};
    const bool is_long = fedge_test_is_long();
    for (uint64_t seed = 0; seed < 6; seed += is_long || seed != 1 ? 1 : 4)
        drawn_agree(FAMILIES[seed % 3], seed, is_long ? 1 + (uint32_t)seed % (CLIENTS + 1) : 2);
}

static void directions_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 8 : 2); seed++)
        drawn_agree(DRAWN_DIRECTIONS, seed, 2);
}

/* With dropout too, whose draws are the CPU's. */
static void attention_becomes_what_the_cpu_makes_of_it(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? 12 : 2); seed++)
        drawn_agree(DRAWN_ATTENTION, seed, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(attention_becomes_what_the_cpu_makes_of_it),
        cmocka_unit_test(directions_become_what_the_cpu_makes_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
