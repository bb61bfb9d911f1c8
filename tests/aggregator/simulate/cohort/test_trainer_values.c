#include "aggregator/simulate/cohort/trainer_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/simulated.h"
#include "tests/edge/core/cmocka_all.h"

static void put(fedge_trainer_values *values, uint32_t client, const char *key, const char *text)
{
    fedge_error err;
    assert_int_equal(fedge_trainer_values_put(values, client, key, text, strlen(text), &err),
                     FEDGE_OK);
}

static void expect(fedge_trainer_values *values, uint32_t client, const char *key, const char *text)
{
    fedge_error err;
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(fedge_trainer_values_get(values, client, key, &data, &size, &err), FEDGE_OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(data ? data : "", text, size);
    free(data);
}

static void each_client_has_its_own(void **state)
{
    (void)state;
    fedge_trainer_values values;
    fedge_error err;
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(fedge_trainer_values_init(&values, 3, &err), FEDGE_OK);
    put(&values, 0, "a", "first");
    put(&values, 2, "a", "third");
    put(&values, 0, "b", "");
    put(&values, 0, "a", "changed");
    expect(&values, 0, "a", "changed");
    expect(&values, 2, "a", "third");
    expect(&values, 0, "b", "");
    assert_int_equal(fedge_trainer_values_get(&values, 1, "a", &data, &size, &err),
                     FEDGE_NOT_FOUND);
    fedge_trainer_values_fini(&values);
}

static void keys_are_those_of_a_device(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", ".a", "a/b", "a b"};
    fedge_trainer_values values;
    fedge_error err;
    char key[16];
    assert_int_equal(fedge_trainer_values_init(&values, 1, &err), FEDGE_OK);
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
        assert_int_equal(fedge_trainer_values_put(&values, 0, BAD[i], "x", 1, &err),
                         FEDGE_INVALID_ARGUMENT);
    }
    for (int i = 0; i < FEDGE_SIMULATED_MAX_KEYS; i++) {
        (void)snprintf(key, sizeof(key), "key-%d", i);
        put(&values, 0, key, "x");
    }
    assert_int_equal(fedge_trainer_values_put(&values, 0, "more", "x", 1, &err), FEDGE_TOO_BIG);
    put(&values, 0, "key-7", "again");
    expect(&values, 0, "key-7", "again");
    fedge_trainer_values_fini(&values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_client_has_its_own),
                                       cmocka_unit_test(keys_are_those_of_a_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
