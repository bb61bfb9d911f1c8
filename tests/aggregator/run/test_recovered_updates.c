/* Who reads which journals, and that what was found comes to rank 0 as it was. */
#include "tests/edge/core/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/run/rendezvous.h"

static fedge_rank_disks at(uint32_t rank, const fedge_rank_disks *all)
{
    fedge_rank_disks here = *all;
    here.rank = rank;
    return here;
}

/* Each folder of each disk is for one rank that is there. */
static void test_each_folder_has_one_reader(void **state)
{
    (void)state;
    static const fedge_rank_disks CASES[] = {
        {.num_ranks = 1, .disks = {7}},
        {.num_ranks = 4, .disks = {7, 7, 7, 7}},
        {.num_ranks = 4, .disks = {7, 8, 9, 10}},
        {.num_ranks = 5, .disks = {7, 8, 8, 7, 9}},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (uint64_t disk = 7; disk <= 10; disk++) {
            for (uint32_t folder = 1; folder < FEDGE_RANKS_MAX; folder++) {
                uint32_t readers = 0, there = 0;
                for (uint32_t rank = 0; rank < CASES[i].num_ranks; rank++) {
                    const fedge_rank_disks here = at(rank, &CASES[i]);
                    const bool has = here.disks[rank] == disk;
                    there += has;
                    readers += has && fedge_rank_disks_reads(&here, folder);
                }
                assert_int_equal(readers, there > 0);
            }
        }
    }
    const fedge_rank_disks second = at(2, &CASES[3]);
    assert_true(fedge_rank_disks_reads(&second, 2));
    assert_false(fedge_rank_disks_reads(&second, 1)); /* rank 1's, on the same disk */
    assert_false(fedge_rank_disks_reads(&second, 4)); /* rank 1 reads it */
}

static fedge_recovered_update update(uint32_t slot, const char *meta)
{
    char *copy = calloc(1, strlen(meta) + 1);
    assert_non_null(copy);
    memcpy(copy, meta, strlen(meta));
    fedge_recovered_update one = {.slot = slot,
                                  .facts = {.task = {.task_id = slot + 10u},
                                            .accepted = true,
                                            .metadata_size = (uint32_t)strlen(meta),
                                            .location = {.disk = 9, .rank = 2}},
                                  .meta = copy};
    return one;
}

static void test_findings_come_as_they_were(void **state)
{
    (void)state;
    fedge_recovered_updates sent = {0}, got = {0};
    fedge_error err;
    uint8_t *bytes = NULL;
    uint64_t size = 0;
    sent.items = calloc(2, sizeof(*sent.items));
    assert_non_null(sent.items);
    sent.capacity = sent.num = 2;
    sent.items[0] = update(3, "{\"a\":1}");
    sent.items[1] = update(5, "");
    assert_int_equal(fedge_recovered_updates_pack(&sent, &bytes, &size, &err), FEDGE_OK);
    assert_int_equal(fedge_recovered_updates_unpack(&got, bytes, size, &err), FEDGE_OK);
    assert_int_equal(got.num, 2);
    assert_int_equal(got.items[0].slot, 3);
    assert_string_equal(got.items[0].meta, "{\"a\":1}");
    assert_string_equal(got.items[1].meta, "");
    assert_int_equal(got.items[1].facts.task.task_id, 15);
    fedge_recovered_updates_free(&got);
    for (uint64_t less = 1; less < size; less++) { /* any end that is cut off */
        if (less == sizeof(fedge_recovered_update) + 7)
            continue;
        assert_int_equal(fedge_recovered_updates_unpack(&got, bytes, less, &err), FEDGE_CORRUPT);
        fedge_recovered_updates_free(&got);
    }
    free(bytes);
    fedge_recovered_updates_free(&sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_folder_has_one_reader),
        cmocka_unit_test(test_findings_come_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
