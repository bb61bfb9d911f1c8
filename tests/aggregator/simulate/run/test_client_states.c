#include "aggregator/simulate/run/client_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/lossy_disk.h"

#define FILE_NAME "variates-test.bin"
#define VALUES 3u

static void make(fedge_client_states *states, uint32_t clients, size_t values)
{
    fedge_error err;
    assert_int_equal(fedge_client_states_init(states, clients, values, &err), FEDGE_OK);
}

static void set(fedge_client_states *states, uint32_t client, float first)
{
    float *of = fedge_client_states_of(states, client);
    assert_non_null(of);
    for (uint32_t i = 0; i < VALUES; i++)
        of[i] = first + (float)i;
}

static void a_dropped_round_is_undone(void **state)
{
    (void)state;
    fedge_client_states states;
    make(&states, 4, VALUES);
    set(&states, 1, 5.0f);
    fedge_client_states_keep(&states, 1);
    set(&states, 1, 9.0f);
    set(&states, 1, 10.0f); /* twice: as it was when the round began, still */
    set(&states, 2, 7.0f);
    fedge_client_states_undo(&states);
    assert_true(states.of[1][0] == 5.0f && states.of[1][2] == 7.0f);
    assert_true(states.of[2][0] == 0.0f && states.of[2][2] == 0.0f);
    set(&states, 1, 11.0f);
    fedge_client_states_keep(&states, 2);
    fedge_client_states_undo(&states);
    assert_true(states.of[1][0] == 11.0f);
    assert_int_equal(states.round, 2);
    fedge_client_states_fini(&states);
}

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    fedge_error err;
    fedge_client_states states, other;
    make(&states, 4, VALUES);
    set(&states, 3, -1.5f);
    set(&states, 0, 2.25f);
    fedge_client_states_keep(&states, 17);
    assert_int_equal(fedge_client_states_save(&states, FILE_NAME, &err), FEDGE_OK);
    make(&other, 4, VALUES);
    assert_int_equal(fedge_client_states_load(&other, FILE_NAME, &err), FEDGE_OK);
    assert_int_equal(other.round, 17);
    assert_memory_equal(other.of[3], states.of[3], VALUES * sizeof(float));
    assert_memory_equal(other.of[0], states.of[0], VALUES * sizeof(float));
    assert_null(other.of[1]);
    fedge_client_states_fini(&states);
    fedge_client_states_fini(&other);
}

static void what_is_saved_survives_a_power_failure(void **state)
{
    (void)state;
    enum { DRAWS = 24 };
    char dir[LOSSY_DISK_PLACE], image[LOSSY_DISK_PLACE + 8], path[LOSSY_DISK_PLACE + 32];
    fedge_error err;
    fedge_client_states states, other;
    lossy_disk_place("variates", dir);
    snprintf(image, sizeof(image), "%s.image", dir);
    assert_int_equal(fedge_os_make_dirs(dir, &err), FEDGE_OK);
    lossy_disk_begin(dir);
    make(&states, 4, VALUES);
    set(&states, 3, -1.5f);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, dir);
    assert_int_equal(fedge_client_states_save(&states, path, &err), FEDGE_OK);
    snprintf(path, sizeof(path), "%s/" FILE_NAME, image);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        make(&other, 4, VALUES);
        assert_int_equal(fedge_client_states_load(&other, path, &err), FEDGE_OK);
        assert_memory_equal(other.of[3], states.of[3], VALUES * sizeof(float));
        fedge_client_states_fini(&other);
    }
    fedge_client_states_fini(&states);
    lossy_disk_end();
    assert_int_equal(fedge_os_remove_tree(dir, &err), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(image, &err), FEDGE_OK);
}

/* Loads FILE_NAME's bytes but the last [cut], with the byte at [flip] changed, if any. */
static fedge_status load_damaged(size_t flip, size_t cut, fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_client_states states;
    assert_int_equal(fedge_os_read_file(FILE_NAME, 1000, &bytes, &size, err), FEDGE_OK);
    if (flip < size)
        bytes[flip] ^= 1;
    assert_int_equal(fedge_os_write_file("variates-bad.bin", bytes, size - cut, 0600, err),
                     FEDGE_OK);
    free(bytes);
    make(&states, 4, VALUES);
    const fedge_status status = fedge_client_states_load(&states, "variates-bad.bin", err);
    fedge_client_states_fini(&states);
    return status;
}

static void a_damaged_file_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_client_states states;
    make(&states, 4, VALUES);
    set(&states, 1, 1.0f);
    set(&states, 2, 2.0f);
    assert_int_equal(fedge_client_states_save(&states, FILE_NAME, &err), FEDGE_OK);
    fedge_client_states_fini(&states);
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
    make(&states, 4, VALUES);
    assert_int_equal(fedge_client_states_load(&states, "variates-none.bin", &err), FEDGE_NOT_FOUND);
    fedge_client_states_fini(&states);
}

static void their_size_is_known_before(void **state)
{
    (void)state;
    const uint64_t places = 1000 * 2 * sizeof(float *);
    /* 3 rounds of 10 clients train 30 at most; 200 rounds all; and 10 copies. */
    assert_int_equal(fedge_client_states_size(1000, 10, 3, 50), 40 * 50 * 4 + places);
    assert_int_equal(fedge_client_states_size(1000, 10, 200, 50), 1010 * 50 * 4 + places);
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
