/* Numbers that are never used twice. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/exchange/exchange.h"

#define CAPACITY 3

static void a_number_finds_its_thing_until_it_is_given_back(void **state)
{
    (void)state;
    fedge_slots slots;
    fedge_error err;
    int things[CAPACITY];
    uint64_t ids[CAPACITY];
    assert_int_equal(fedge_slots_init(&slots, CAPACITY, 0, &err), FEDGE_OK);
    for (int i = 0; i < CAPACITY; i++) {
        ids[i] = fedge_slots_take(&slots, &things[i]);
        assert_true(ids[i] >= 1);
    }
    for (int i = 0; i < CAPACITY; i++)
        assert_ptr_equal(fedge_slots_find(&slots, ids[i]), &things[i]);
    fedge_slots_give_back(&slots, ids[1]);
    assert_null(fedge_slots_find(&slots, ids[1]));
    const uint64_t next = fedge_slots_take(&slots, &things[1]);
    assert_true(next != ids[1]);
    assert_null(fedge_slots_find(&slots, ids[1]));
    assert_ptr_equal(fedge_slots_find(&slots, next), &things[1]);
    assert_ptr_equal(fedge_slots_find(&slots, ids[2]), &things[2]);
    fedge_slots_fini(&slots);
}

static void numbers_of_nothing_find_nothing(void **state)
{
    (void)state;
    fedge_slots slots;
    fedge_error err;
    int thing;
    assert_int_equal(fedge_slots_init(&slots, CAPACITY, 0, &err), FEDGE_OK);
    assert_null(fedge_slots_find(&slots, 0));
    assert_null(fedge_slots_find(&slots, CAPACITY));
    assert_null(fedge_slots_find(&slots, UINT64_MAX));
    const uint64_t id = fedge_slots_take(&slots, &thing);
    assert_null(fedge_slots_find(&slots, id + 1));
    assert_null(fedge_slots_find(&slots, id + ((uint64_t)1 << 32)));
    fedge_slots_fini(&slots);
}

static void tables_with_other_tags_give_other_numbers(void **state)
{
    (void)state;
    const uint32_t tags[] = {0, 1, FEDGE_SLOTS_MAX_TAG};
    fedge_slots slots[3];
    uint64_t ids[3];
    fedge_error err;
    int thing;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fedge_slots_init(&slots[i], CAPACITY, tags[i], &err), FEDGE_OK);
        ids[i] = fedge_slots_take(&slots[i], &thing);
        assert_int_equal(fedge_slots_tag(ids[i]), tags[i]);
    }
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++)
            assert_ptr_equal(fedge_slots_find(&slots[i], ids[k]), i == k ? &thing : NULL);
    }
    for (int i = 0; i < 3; i++) {
        fedge_slots_give_back(&slots[i], ids[i]);
        assert_null(fedge_slots_find(&slots[i], ids[i]));
        fedge_slots_fini(&slots[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_finds_its_thing_until_it_is_given_back),
        cmocka_unit_test(numbers_of_nothing_find_nothing),
        cmocka_unit_test(tables_with_other_tags_give_other_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
