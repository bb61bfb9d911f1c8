#include "aggregator/simulate/cohort/client_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"

#define FILE_NAME "variates-test.bin"
#define VALUES 3u

static void make(fedge_client_states *states, uint32_t clients, size_t values)
{
    fedge_error err;
    assert_int_equal(fedge_client_states_init(states, clients, values, NULL, &err), FEDGE_OK);
}

/* Puts first, first + 1, … */
static void set(fedge_client_states *states, uint32_t client, float first)
{
    fedge_error err;
    float values[VALUES];
    for (uint32_t i = 0; i < VALUES; i++)
        values[i] = first + (float)i;
    assert_int_equal(fedge_client_states_put(states, client, values, &err), FEDGE_OK);
}

static void expect(const fedge_client_states *states, uint32_t client, float first, float last)
{
    fedge_error err;
    float values[VALUES];
    assert_int_equal(fedge_client_states_get(states, client, values, &err), FEDGE_OK);
    assert_true(values[0] == first && values[VALUES - 1] == last);
}

static void check_rounds(fedge_client_states *states)
{
    set(states, 1, 5.0f);
    assert_true(fedge_client_states_has_pending(states, 1) && !fedge_client_states_has(states, 1));
    fedge_client_states_commit(states, 1);
    assert_true(!fedge_client_states_has_pending(states, 1) && fedge_client_states_has(states, 1));
    set(states, 1, 9.0f);
    set(states, 1, 10.0f); /* twice: as it was when the round began, still */
    set(states, 2, 7.0f);
    expect(states, 1, 10.0f, 12.0f);
    fedge_client_states_roll_back(states);
    expect(states, 1, 5.0f, 7.0f);
    expect(states, 2, 0.0f, 0.0f);
    set(states, 1, 11.0f);
    fedge_client_states_commit(states, 2);
    fedge_client_states_roll_back(states);
    expect(states, 1, 11.0f, 13.0f);
    assert_int_equal(states->round, 2);
}

static void a_dropped_round_is_undone(void **state)
{
    (void)state;
    fedge_client_states states;
    make(&states, 4, VALUES);
    check_rounds(&states);
    assert_false(states.has_file);
    fedge_client_states_fini(&states);
}

static void count_spills(void *user, const char *folder)
{
    assert_string_equal(folder, ".");
    ++*(uint32_t *)user;
}

/* With room in memory for none, one, two, … of the clients' values: the same values, no more
 * memory, and slots of the file that are used again. */
static void what_memory_does_not_hold_lies_in_a_file(void **state)
{
    (void)state;
    fedge_error err;
    for (uint32_t rows = 0; rows < 6; rows++) {
        fedge_client_states states;
        uint32_t spills = 0;
        const uint64_t memory = rows * VALUES * sizeof(float) + 1;
        const fedge_client_states_limit limit = {memory, ".", count_spills, &spills};
        assert_int_equal(fedge_client_states_init(&states, 4, VALUES, &limit, &err), FEDGE_OK);
        check_rounds(&states);
        for (uint32_t round = 3; round < 20; round++) {
            for (uint32_t client = 0; client < 3; client++)
                set(&states, client, (float)(round * 10 + client));
            assert_true(states.used <= memory);
            fedge_client_states_commit(&states, round);
            assert_true(states.used <= memory);
        }
        for (uint32_t client = 0; client < 3; client++)
            expect(&states, client, (float)(190 + client), (float)(192 + client));
        expect(&states, 3, 0.0f, 0.0f);
        assert_int_equal(spills, rows < 6 && states.num_slots > 0);
        assert_int_equal(states.has_file, spills);
        assert_true(states.num_slots <= 6 && (rows > 0 || states.num_slots == 6));
        fedge_client_states_fini(&states);
    }
}

static void a_file_that_cannot_be_is_told(void **state)
{
    (void)state;
    fedge_error err;
    fedge_client_states states;
    const float values[VALUES] = {0};
    const fedge_client_states_limit limit = {.memory = 1, .folder = "no-such-folder"};
    assert_int_equal(fedge_client_states_init(&states, 4, VALUES, &limit, &err), FEDGE_OK);
    assert_int_equal(fedge_client_states_put(&states, 0, values, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "raise --client-state-memory"));
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
    fedge_client_states_commit(&states, 17);
    assert_int_equal(fedge_client_states_save(&states, FILE_NAME, &err), FEDGE_OK);
    make(&other, 4, VALUES);
    assert_int_equal(fedge_client_states_load(&other, FILE_NAME, &err), FEDGE_OK);
    assert_int_equal(other.round, 17);
    expect(&other, 3, -1.5f, 0.5f);
    expect(&other, 0, 2.25f, 4.25f);
    assert_false(fedge_client_states_has(&other, 1));
    fedge_client_states_fini(&states);
    fedge_client_states_fini(&other);
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
    fedge_client_states_commit(&states, 1);
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
    const uint64_t places = 1000 * 2 * sizeof(fedge_client_location);
    /* 3 rounds of 10 clients train 30 at most; 200 rounds all; and 10 copies. */
    assert_int_equal(fedge_client_states_size(1000, 10, 3, 50, 0), 40 * 50 * 4 + places);
    assert_int_equal(fedge_client_states_size(1000, 10, 200, 50, 0), 1010 * 50 * 4 + places);
    assert_int_equal(fedge_client_states_size(1000, 10, 200, 50, 4000), 4000 + places);
    assert_int_equal(fedge_client_states_size(1000, 10, 3, 50, 9000), 40 * 50 * 4 + places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dropped_round_is_undone),
        cmocka_unit_test(what_memory_does_not_hold_lies_in_a_file),
        cmocka_unit_test(a_file_that_cannot_be_is_told),
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(their_size_is_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
