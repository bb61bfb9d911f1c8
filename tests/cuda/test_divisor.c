/* Division by a product and a shift gives what the machine's own gives. */
#include "tests/edge/core/cmocka_all.h"

#include "edge/core/rng.h"
#include "edge/train/cuda/kernels/shared.h"

static void check(uint32_t n, uint32_t by)
{
    const fedge_divided parts = fedge_divide(n, fedge_divisor_of(by));
    if (parts.quotient != n / by || parts.remainder != n % by)
        fail_msg("%u / %u: %u, remainder %u", n, by, parts.quotient, parts.remainder);
}

/* Where a quotient becomes the next, and at both ends. */
static void check_steps(uint32_t n, uint32_t by)
{
    const uint32_t step = n / by * by;
    check(n, by);
    check(step, by);
    check(step - 1, by);
    check(UINT32_MAX, by);
    check(0, by);
}

static void quotients_are_exact(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 25, 0, 0);
    for (uint32_t power = 0; power < 32; power++) {
        const uint32_t around = (uint32_t)1 << power;
        for (uint32_t i = 0; i < 1000; i++) {
            const uint32_t n = fedge_rng_below(&rng, UINT32_MAX) >> fedge_rng_below(&rng, 32);
            check_steps(n, around);
            check_steps(n, around + (i % 3 == 0 ? 1 : fedge_rng_below(&rng, around)));
            check_steps(n, around > 1 ? around - 1 : UINT32_MAX - i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quotients_are_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
