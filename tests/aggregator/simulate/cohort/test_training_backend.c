#include "aggregator/simulate/cohort/training_backend.h"
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

static void engines_have_names(void **state)
{
    (void)state;
    fedge_error err;
    assert_int_equal(fedge_sim_backend_check_name("cpu", &err), FEDGE_OK);
    assert_int_equal(fedge_sim_backend_check_name("auto", &err), FEDGE_OK);
    assert_int_equal(fedge_sim_backend_check_name("gpu", &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message, "--engine: 'gpu' is not auto, cpu or cuda");
    uint32_t cpus = 0;
    for (const fedge_sim_backend_ops *const *at = fedge_sim_backends; *at; at++) {
        cpus += strcmp((*at)->name, "cpu") == 0;
        assert_int_equal(fedge_sim_backend_check_name((*at)->name, &err), FEDGE_OK);
    }
    assert_int_equal(cpus, 1);
}

static void the_cpu_can_do_all(void **state)
{
    (void)state;
    fedge_error err;
    const fedge_sim_backend_config config = {.num_threads = 1};
    const fedge_sim_backend_ops *ops = NULL;
    assert_int_equal(fedge_sim_backend_choose("cpu", &config, &ops, &err), FEDGE_OK);
    assert_string_equal(ops->name, "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_have_names),
        cmocka_unit_test(the_cpu_can_do_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
