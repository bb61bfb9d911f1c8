#include "aggregator/simulate/cohort/trainer_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
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

static void expect_none(fedge_trainer_values *values, uint32_t client, const char *key)
{
    fedge_error err;
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(fedge_trainer_values_get(values, client, key, &data, &size, &err),
                     FEDGE_NOT_FOUND);
}

static void an_open_phase_is_taken_back(void **state)
{
    (void)state;
    fedge_trainer_values values;
    fedge_error err;
    assert_int_equal(fedge_trainer_values_init(&values, 2, &err), FEDGE_OK);
    put(&values, 0, "old", "before");
    put(&values, 0, "same", "stays");
    put(&values, 1, "empty", "");
    fedge_trainer_values_commit(&values);
    put(&values, 0, "new", "a");
    put(&values, 0, "old", "after");
    put(&values, 0, "old", "after that");
    put(&values, 0, "newer", "b");
    put(&values, 1, "empty", "full");
    put(&values, 1, "new", "c");
    expect(&values, 0, "old", "after that");
    fedge_trainer_values_roll_back(&values);
    expect(&values, 0, "old", "before");
    expect(&values, 0, "same", "stays");
    expect(&values, 1, "empty", "");
    expect_none(&values, 0, "new");
    expect_none(&values, 0, "newer");
    expect_none(&values, 1, "new");
    put(&values, 0, "old", "at last");
    fedge_trainer_values_commit(&values);
    fedge_trainer_values_roll_back(&values);
    expect(&values, 0, "old", "at last");
    fedge_trainer_values_fini(&values);
}

#define FILE_NAME "trainer-values.bin"

static fedge_status load(uint32_t num_clients, fedge_trainer_values *values)
{
    fedge_error err;
    assert_int_equal(fedge_trainer_values_init(values, num_clients, &err), FEDGE_OK);
    return fedge_trainer_values_load(values, FILE_NAME, &err);
}

/* Changes a byte, or cuts the file there. */
static void damage(const uint8_t *file, size_t size, size_t at, bool cut)
{
    fedge_error err;
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, file, size);
    copy[at] ^= 1;
    assert_int_equal(fedge_os_write_file(FILE_NAME, copy, cut ? at : size, 0600, &err), FEDGE_OK);
    free(copy);
}

static void a_file_has_them_all(void **state)
{
    (void)state;
    fedge_trainer_values values, loaded;
    fedge_error err;
    uint8_t *file = NULL;
    size_t size = 0;
    assert_int_equal(fedge_trainer_values_init(&values, 3, &err), FEDGE_OK);
    put(&values, 0, "a", "first");
    put(&values, 2, "a", "third");
    put(&values, 2, "b", "");
    assert_int_equal(fedge_trainer_values_save(&values, FILE_NAME, &err), FEDGE_OK);
    fedge_trainer_values_fini(&values);
    assert_int_equal(load(3, &loaded), FEDGE_OK);
    expect(&loaded, 0, "a", "first");
    expect(&loaded, 2, "a", "third");
    expect(&loaded, 2, "b", "");
    expect_none(&loaded, 1, "a");
    fedge_trainer_values_roll_back(&loaded); /* of no open phase */
    expect(&loaded, 0, "a", "first");
    fedge_trainer_values_fini(&loaded);
    assert_int_equal(load(4, &loaded), FEDGE_MISMATCH);
    fedge_trainer_values_fini(&loaded);
    assert_int_equal(fedge_os_read_file(FILE_NAME, 10000, &file, &size, &err), FEDGE_OK);
    for (size_t at = 0; at < size; at++) {
        damage(file, size, at, false);
        assert_int_not_equal(load(3, &loaded), FEDGE_OK);
        fedge_trainer_values_fini(&loaded);
        damage(file, size, at, true);
        assert_int_equal(load(3, &loaded), FEDGE_TRUNCATED);
        fedge_trainer_values_fini(&loaded);
    }
    free(file);
    assert_int_equal(fedge_os_remove(FILE_NAME, &err), FEDGE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_client_has_its_own), cmocka_unit_test(keys_are_those_of_a_device),
        cmocka_unit_test(an_open_phase_is_taken_back), cmocka_unit_test(a_file_has_them_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
