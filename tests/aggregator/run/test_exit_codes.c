#include "aggregator/run/exit_codes.h"

#include "tests/edge/core/cmocka_all.h"

/* What decides is not what the program was doing. */
static void what_failed_has_a_code_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const fedge_exit_code otherwise = i == 0 ? FEDGE_EXIT_CONFIG : FEDGE_EXIT_FAILURE;
        assert_int_equal(fedge_exit_code_of(FEDGE_IO, otherwise), FEDGE_EXIT_DISK);
        assert_int_equal(fedge_exit_code_of(FEDGE_NO_SPACE, otherwise), FEDGE_EXIT_DISK);
        assert_int_equal(fedge_exit_code_of(FEDGE_NO_MEMORY, otherwise), FEDGE_EXIT_FAILURE);
        assert_int_equal(fedge_exit_code_of(FEDGE_GPU_LOST, otherwise), FEDGE_EXIT_GPU);
        assert_int_equal(fedge_exit_code_of(FEDGE_GPU_MEMORY, otherwise), FEDGE_EXIT_GPU_MEMORY);
        assert_int_equal(fedge_exit_code_of(FEDGE_CORRUPT, otherwise), otherwise);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_failed_has_a_code_of_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
