/* Updates that are kept, in memory and in a file. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/updates.h"

#define VALUES 1000

static fedge_tensor_spec tensors[2] = {
    {.name = "a", .offset = 0, .count = 600},
    {.name = "b", .offset = 600, .count = 400},
};
static const fedge_schema SCHEMA = {.num_tensors = 2, .tensors = tensors, .num_elements = VALUES};

static void what_was_put_is_read(void **state)
{
    (void)state;
    fedge_stored_updates kept;
    fedge_updates updates;
    int32_t v[VALUES];
    const uint32_t order[] = {4, 0, 3};
    uint32_t first = 9;
    fedge_stored_updates_init(&kept, &SCHEMA, 2 * sizeof(v)); /* two of five */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(fedge_stored_updates_reserve(&kept, 2, &first, NULL), FEDGE_OK);
        assert_int_equal(first, 0);
        assert_int_equal(fedge_stored_updates_reserve(&kept, 3, &first, NULL), FEDGE_OK);
        assert_int_equal(first, 2);
        for (uint32_t i = 0; i < 5; i++) {
            for (int k = 0; k < VALUES; k++)
                v[k] = (int)i * VALUES + k + round;
            assert_int_equal(fedge_stored_updates_put(&kept, i, v, NULL), FEDGE_OK);
        }
        assert_int_equal(fedge_stored_updates_list(&kept, order, 3, &updates, NULL), FEDGE_OK);
        assert_int_equal(updates.num, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(updates.read(updates.user, i, 1, 256, 100, v, NULL), FEDGE_OK);
            for (int k = 0; k < 100; k++)
                assert_int_equal(v[k], (int)order[i] * VALUES + 600 + 256 + k + round);
        }
        fedge_stored_updates_clear(&kept);
    }
    fedge_stored_updates_fini(&kept);
}

/* More than a piece, so that one is read in parts and another lies behind it. */
static void damage_in_the_file_is_found(void **state)
{
    (void)state;
    enum { LONG = FEDGE_UPDATES_CHUNK + 600 };
    fedge_tensor_spec tensor = {.name = "a", .offset = 0, .count = LONG};
    const fedge_schema schema = {.num_tensors = 1, .tensors = &tensor, .num_elements = LONG};
    static int32_t v[LONG], read[LONG];
    fedge_stored_updates kept;
    fedge_error err;
    uint32_t first = 0;
    for (int k = 0; k < LONG; k++)
        v[k] = 3 * k;
    fedge_stored_updates_init(&kept, &schema, 0);
    assert_int_equal(fedge_stored_updates_reserve(&kept, 2, &first, &err), FEDGE_OK);
    assert_int_equal(fedge_stored_updates_put(&kept, 1, v, &err), FEDGE_OK);
    assert_int_equal(fedge_stored_updates_read(&kept, 1, 0, 256, 4096, read, &err), FEDGE_OK);
    assert_memory_equal(read, v + 256, 4096 * sizeof(*v));
    v[LONG - 1] ^= 1;
    assert_int_equal(
        fedge_os_write_at(&kept.file, sizeof(v) + sizeof(v) - 4, &v[LONG - 1], 4, &err), FEDGE_OK);
    assert_int_equal(fedge_stored_updates_read(&kept, 1, 0, 0, 4096, read, &err), FEDGE_OK);
    assert_int_equal(fedge_stored_updates_read(&kept, 1, 0, 4096, 256, read, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "other bytes than were written"));
    assert_int_equal(fedge_stored_updates_put(&kept, 1, v, &err), FEDGE_OK);
    assert_int_equal(fedge_stored_updates_read(&kept, 1, 0, 4096, 256, read, &err), FEDGE_OK);
    fedge_stored_updates_fini(&kept);
}

static void a_folder_that_is_not_there_is_said(void **state)
{
    (void)state;
    fedge_stored_updates kept;
    fedge_error err;
    uint32_t first = 0;
    const char *before = getenv("TMPDIR");
    char folder[1024];
    (void)snprintf(folder, sizeof(folder), "%s", before ? before : "");
    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    fedge_stored_updates_init(&kept, &SCHEMA, 0);
    assert_int_equal(fedge_stored_updates_reserve(&kept, 1, &first, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "raise --robust-memory"));
    fedge_stored_updates_fini(&kept);
    if (before)
        assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    else
        assert_int_equal(unsetenv("TMPDIR"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_read),
        cmocka_unit_test(damage_in_the_file_is_found),
        cmocka_unit_test(a_folder_that_is_not_there_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
