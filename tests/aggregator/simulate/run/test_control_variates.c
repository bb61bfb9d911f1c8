#include "aggregator/simulate/run/control_variates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/lossy_disk.h"

#define FILE_NAME "variates-test.bin"
#define VALUES 3u

static void make(fedge_control_variates *variates, uint32_t clients, size_t values)
{
    fedge_error err;
    assert_int_equal(fedge_control_variates_init(variates, clients, values, &err), FEDGE_OK);
}

static void set(fedge_control_variates *variates, uint32_t client, float first)
{
    float *of = fedge_control_variates_of(variates, client);
    assert_non_null(of);
    for (uint32_t i = 0; i < VALUES; i++) {
        of[i] = first + (float)i;
    }
}

static void a_dropped_round_is_undone(void **state)
{
    (void)state;
    fedge_control_variates variates;
    make(&variates, 4, VALUES);
    set(&variates, 1, 5.0f);
    fedge_control_variates_keep(&variates, 1);
    set(&variates, 1, 9.0f);
    set(&variates, 1, 10.0f); /* twice: as it was when the round began, still */
    set(&variates, 2, 7.0f);
    fedge_control_variates_undo(&variates);
    assert_true(variates.of[1][0] == 5.0f && variates.of[1][2] == 7.0f);
    assert_true(variates.of[2][0] == 0.0f && variates.of[2][2] == 0.0f);
    set(&variates, 1, 11.0f);
    fedge_control_variates_keep(&variates, 2);
    fedge_control_variates_undo(&variates);
    assert_true(variates.of[1][0] == 11.0f);
    assert_int_equal(variates.round, 2);
    fedge_control_variates_fini(&variates);
}

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    fedge_error err;
    fedge_control_variates variates, other;
    make(&variates, 4, VALUES);
    set(&variates, 3, -1.5f);
    set(&variates, 0, 2.25f);
    fedge_control_variates_keep(&variates, 17);
    assert_int_equal(fedge_control_variates_save(&variates, FILE_NAME, &err), FEDGE_OK);
    make(&other, 4, VALUES);
    assert_int_equal(fedge_control_variates_load(&other, FILE_NAME, &err), FEDGE_OK);
    assert_int_equal(other.round, 17);
    assert_memory_equal(other.of[3], variates.of[3], VALUES * sizeof(float));
    assert_memory_equal(other.of[0], variates.of[0], VALUES * sizeof(float));
    assert_null(other.of[1]);
    fedge_control_variates_fini(&variates);
    fedge_control_variates_fini(&other);
}

static void what_is_saved_survives_a_power_failure(void **state)
{
    (void)state;
    enum { DRAWS = 24 };
    char dir[LOSSY_DISK_PLACE], image[LOSSY_DISK_PLACE + 8], path[LOSSY_DISK_PLACE + 32];
    fedge_error err;
    fedge_control_variates variates, other;
    lossy_disk_place("variates", dir);
    snprintf(image, sizeof(image), "%s.image", dir);
    assert_int_equal(fedge_os_make_dirs(dir, &err), FEDGE_OK);
    lossy_disk_begin(dir);
    make(&variates, 4, VALUES);
    set(&variates, 3, -1.5f);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, dir);
    assert_int_equal(fedge_control_variates_save(&variates, path, &err), FEDGE_OK);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, image);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        make(&other, 4, VALUES);
        assert_int_equal(fedge_control_variates_load(&other, path, &err), FEDGE_OK);
        assert_memory_equal(other.of[3], variates.of[3], VALUES * sizeof(float));
        fedge_control_variates_fini(&other);
    }
    fedge_control_variates_fini(&variates);
    lossy_disk_end();
    assert_int_equal(fedge_os_remove_tree(dir, &err), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(image, &err), FEDGE_OK);
}

/* Loads FILE_NAME's bytes but the last [cut], with the byte at [flip] changed, if any. */
static fedge_status load_damaged(size_t flip, size_t cut, fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_control_variates variates;
    assert_int_equal(fedge_os_read_file(FILE_NAME, 1000, &bytes, &size, err), FEDGE_OK);
    if (flip < size) {
        bytes[flip] ^= 1;
    }
    assert_int_equal(fedge_os_write_file("variates-bad.bin", bytes, size - cut, 0600, err),
                     FEDGE_OK);
    free(bytes);
    make(&variates, 4, VALUES);
    const fedge_status status = fedge_control_variates_load(&variates, "variates-bad.bin", err);
    fedge_control_variates_fini(&variates);
    return status;
}

static void a_damaged_file_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_control_variates variates;
    make(&variates, 4, VALUES);
    set(&variates, 1, 1.0f);
    set(&variates, 2, 2.0f);
    assert_int_equal(fedge_control_variates_save(&variates, FILE_NAME, &err), FEDGE_OK);
    fedge_control_variates_fini(&variates);
    const size_t none = 1000;
    assert_int_equal(load_damaged(none, 0, &err), FEDGE_OK);
    assert_int_equal(load_damaged(none, 1, &err), FEDGE_TRUNCATED);
    assert_int_equal(load_damaged(none, 50, &err), FEDGE_TRUNCATED);
    assert_int_equal(load_damaged(0, 0, &err), FEDGE_CORRUPT);   /* not such a file */
    assert_int_equal(load_damaged(12, 0, &err), FEDGE_MISMATCH); /* clients */
    assert_int_equal(load_damaged(16, 0, &err), FEDGE_MISMATCH); /* values */
    assert_int_equal(load_damaged(32, 0, &err), FEDGE_CORRUPT);  /* client 0 in the place of 1 */
    assert_int_equal(load_damaged(35, 0, &err), FEDGE_CORRUPT);  /* a client that is not there */
    assert_int_equal(load_damaged(40, 0, &err), FEDGE_CORRUPT);  /* a value */
    make(&variates, 4, VALUES);
    assert_int_equal(fedge_control_variates_load(&variates, "variates-none.bin", &err),
                     FEDGE_NOT_FOUND);
    fedge_control_variates_fini(&variates);
}

static void their_size_is_known_before(void **state)
{
    (void)state;
    const uint64_t places = 1000 * 2 * sizeof(float *);
    /* 3 rounds of 10 clients train 30 at most; 200 rounds all; and 10 copies. */
    assert_int_equal(fedge_control_variates_size(1000, 10, 3, 50), 40 * 50 * 4 + places);
    assert_int_equal(fedge_control_variates_size(1000, 10, 200, 50), 1010 * 50 * 4 + places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dropped_round_is_undone),
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(what_is_saved_survives_a_power_failure),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(their_size_is_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
