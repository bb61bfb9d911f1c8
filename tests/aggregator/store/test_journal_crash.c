/* What a crash or a bad disk can leave of a journal, made by hand: every byte of the last records
 * cut, garbled, or written out of order. */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/store/journal_file.h"
#include "edge/core/bytes.h"
#include "edge/core/rng.h"

typedef struct crash_file {
    char path[FEDGE_MAX_PATH];
    uint8_t *bytes; /* the file of a phase with all slots accepted */
    size_t size;
    uint64_t ends[TEST_SLOTS + 2]; /* of the log after OPEN, each ACCEPT, and the end record */
} crash_file;

/* Slots 0 and 1 are accepted and synced (acknowledged); 2 and 3 follow without a sync. */
static crash_file make_crash(const char *dir, bool closed)
{
    crash_file made;
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(3, 1);
    OK(fedge_journal_make_path(dir, 3, 1, made.path, NULL));
    OK(fedge_os_remove_tree(made.path, NULL));
    OK(test_create(dir, &phase, &journal, NULL));
    made.ends[0] = journal->log_end;
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        OK(test_accept(journal, slot, slot + 1, NULL));
        if (slot == 1)
            OK(fedge_journal_sync(journal, NULL));
        made.ends[slot + 1] = journal->log_end;
    }
    if (closed)
        OK(fedge_journal_close(journal, NULL));
    made.ends[TEST_SLOTS + 1] = journal->log_end;
    fedge_journal_free(journal);
    OK(fedge_os_read_file(made.path, (size_t)1 << 30, &made.bytes, &made.size, NULL));
    return made;
}

/* Puts the file there with [size] of its bytes changed at [offset], recovers and counts. */
static fedge_status recover_with(const crash_file *crash, uint64_t offset, const void *change,
                                 size_t size, fedge_journal **journal, fedge_error *err)
{
    fedge_os_file file;
    OK(fedge_os_open(&file, crash->path, FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_write_at(&file, 0, crash->bytes, crash->size, NULL));
    OK(fedge_os_write_at(&file, offset, change, size, NULL));
    fedge_os_close(&file);
    return fedge_journal_recover(crash->path, journal, err);
}

static void assert_prefix(fedge_journal *journal, uint32_t num_accepted)
{
    assert_int_equal(fedge_journal_num_accepted(journal), num_accepted);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++)
        assert_int_equal(fedge_journal_get_slot(journal, slot).accepted, slot < num_accepted);
}

/* Goes on after recovery, and recovers again: nothing that was cut comes back. */
static void assert_goes_on(const crash_file *crash, fedge_journal *journal)
{
    uint32_t before = fedge_journal_num_accepted(journal);
    fedge_journal *again;
    if (before < TEST_SLOTS)
        OK(test_accept(journal, before, before + 1, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_recover(crash->path, &again, NULL));
    assert_string_equal(fedge_journal_note(again), "");
    assert_prefix(again, before < TEST_SLOTS ? before + 1 : before);
    fedge_journal_free(again);
}

static void a_log_cut_at_any_byte_is_a_prefix(void **state)
{
    crash_file made = make_crash(*state, false);
    size_t unsynced = (size_t)(made.ends[4] - made.ends[2]);
    uint8_t *zeros = calloc(1, unsynced + 64);
    for (uint64_t cut = made.ends[2]; cut <= made.ends[4]; cut++) {
        fedge_journal *journal;
        uint32_t whole = 2;
        /* The last byte of a record may be padding, or zero anyway. */
        OK(recover_with(&made, cut, zeros, (size_t)(made.ends[4] - cut), &journal, NULL));
        whole += fedge_journal_num_accepted(journal) > 2;
        whole += fedge_journal_num_accepted(journal) > 3;
        assert_prefix(journal, whole);
        assert_true(cut < made.ends[3] ? whole <= 3 : whole >= 3);
        assert_true(cut + 8 < made.ends[3] ? whole == 2 : true);
        assert_int_equal(cut == made.ends[4], whole == 4 && cut >= made.ends[4]);
        assert_goes_on(&made, journal);
    }
    free(zeros);
    free(made.bytes);
}

static void a_garbled_end_is_cut(void **state)
{
    crash_file made = make_crash(*state, false);
    for (uint64_t at = made.ends[2]; at < made.ends[3]; at++) {
        fedge_journal *journal;
        uint8_t flipped = made.bytes[at] ^ 0x40;
        OK(recover_with(&made, at, &flipped, 1, &journal, NULL));
        /* The record after the damaged one is whole, but nothing says that this one was stored. A
         * flip in the padding changes nothing. */
        uint32_t num_accepted = fedge_journal_num_accepted(journal);
        assert_true(num_accepted == 2 || num_accepted == 4);
        assert_true(num_accepted == 4 || strstr(fedge_journal_note(journal), "torn"));
        assert_true(num_accepted == 4 ||
                    strstr(fedge_journal_note(journal), "with 1 whole behind it"));
        assert_prefix(journal, num_accepted);
        assert_goes_on(&made, journal);
    }
    free(made.bytes);
}

/* The last record was synced, and its update acknowledged: nothing says so, and nothing claims the
 * opposite. */
static void what_is_known_of_the_last_record_is_told(void **state)
{
    crash_file made = make_crash(*state, true);
    for (uint64_t at = made.ends[4]; at < made.ends[5]; at++) {
        fedge_journal *journal;
        uint8_t flipped = made.bytes[at] ^ 0x40;
        OK(recover_with(&made, at, &flipped, 1, &journal, NULL));
        assert_prefix(journal, 4);
        if (fedge_journal_get_state(journal) == FEDGE_JOURNAL_OPEN) { /* else it is padding */
            const char *note = fedge_journal_note(journal);
            assert_non_null(strstr(note, "it may have been"));
            assert_non_null(strstr(note, "All before it is whole"));
            assert_null(strstr(note, "nothing in"));
            if (at >= made.ends[4] + JOURNAL_RECORD_HEADER)
                assert_non_null(strstr(note, "record 5 (the end of the round)"));
        }
        fedge_journal_free(journal);
    }
    free(made.bytes);
}

/* Damage to what later records say was stored is not a torn end. */
static void damage_to_stored_records_is_told(void **state)
{
    crash_file made = make_crash(*state, false);
    uint32_t told = 0;
    for (uint64_t at = made.ends[0]; at < made.ends[2]; at++) {
        fedge_journal *journal;
        fedge_error err;
        uint8_t flipped = made.bytes[at] ^ 0x40;
        fedge_status status = recover_with(&made, at, &flipped, 1, &journal, &err);
        if (status == FEDGE_OK) { /* padding */
            assert_prefix(journal, 4);
            fedge_journal_free(journal);
            continue;
        }
        assert_int_equal(status, FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, made.path));
        assert_non_null(strstr(err.message, "at byte"));
        told++;
    }
    assert_true(told > (made.ends[2] - made.ends[0]) / 2);
    free(made.bytes);
}

static void damage_to_the_head_is_told(void **state)
{
    crash_file made = make_crash(*state, false);
    for (uint64_t at = 0; at < made.ends[0]; at++) {
        fedge_journal *journal = NULL;
        fedge_error err;
        uint8_t flipped = made.bytes[at] ^ 0x01;
        if (at >= JOURNAL_HEADER_FIELDS && at < JOURNAL_PAGE)
            continue;
        fedge_status status = recover_with(&made, at, &flipped, 1, &journal, &err);
        if (status == FEDGE_OK) { /* padding of the first record */
            assert_true(at + 8 > made.ends[0]);
            fedge_journal_free(journal);
            continue;
        }
        assert_true(status == FEDGE_CORRUPT || (status == FEDGE_UNSUPPORTED && at >= 8 && at < 12));
        assert_non_null(strstr(err.message, made.path));
    }
    free(made.bytes);
}

static void a_cut_file_is_told(void **state)
{
    crash_file made = make_crash(*state, false);
    const size_t sizes[] = {0, 1, 51, 4095, 4096, 5000, made.size - 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        fedge_journal *journal;
        fedge_error err;
        OK(fedge_os_write_file(made.path, made.bytes, sizes[i], 0600, NULL));
        assert_int_equal(fedge_journal_recover(made.path, &journal, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, made.path));
    }
    free(made.bytes);
}

/* The log reached the disk before the update's bytes: the update does not count, and can come
 * again. */
static void an_update_without_its_bytes_is_open(void **state)
{
    crash_file made = make_crash(*state, false);
    fedge_journal *journal;
    journal_layout layout;
    uint32_t num_slots;
    uint64_t slot_size;
    OK(fedge_journal_unpack_header(made.bytes, made.size, "", &layout, &num_slots, &slot_size,
                                   NULL));
    uint64_t third = layout.slots_offset + 3 * layout.slot_stride;
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    assert_prefix(journal, 3);
    assert_non_null(strstr(fedge_journal_note(journal), "task 4 is not whole"));
    assert_goes_on(&made, journal);
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    fedge_journal_task next = test_task(77);
    OK(fedge_journal_assign(journal, 3, &next, NULL));
    OK(test_accept(journal, 3, 77, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_recover(made.path, &journal, NULL));
    assert_prefix(journal, 4);
    assert_int_equal(fedge_journal_get_slot(journal, 3).task.task_id, 77);
    fedge_journal_free(journal);
    free(made.bytes);

    /* Once the phase is closed all of it was stored: then it is damage. */
    made = make_crash(*state, true);
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    assert_int_equal(fedge_journal_num_damaged(journal), 1);
    assert_int_equal(fedge_journal_get_state(journal), FEDGE_JOURNAL_CLOSED);
    assert_non_null(strstr(fedge_journal_note(journal), "task 4 is not whole"));
    fedge_journal_free(journal);
    free(made.bytes);
}

/* Ends the phase without the update that was not whole, and recovers the journal again. */
static void end_without_it(const crash_file *made, fedge_journal *journal,
                           fedge_status (*end)(fedge_journal *journal, fedge_error *err),
                           fedge_journal_state state)
{
    OK(end(journal, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_recover(made->path, &journal, NULL));
    assert_int_equal(fedge_journal_get_state(journal), state);
    assert_prefix(journal, 3);
    assert_int_equal(fedge_journal_num_damaged(journal), 0);
    fedge_journal_free(journal);
}

static void a_phase_ends_without_an_update_that_was_not_whole(void **state)
{
    crash_file made = make_crash(*state, false);
    fedge_journal *journal;
    journal_layout layout;
    uint32_t num_slots;
    uint64_t slot_size;
    OK(fedge_journal_unpack_header(made.bytes, made.size, "", &layout, &num_slots, &slot_size,
                                   NULL));
    const uint64_t third = layout.slots_offset + 3 * layout.slot_stride;
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    end_without_it(&made, journal, fedge_journal_fail, FEDGE_JOURNAL_FAILED);
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    end_without_it(&made, journal, fedge_journal_close, FEDGE_JOURNAL_CLOSED);
    free(made.bytes);

    made = make_crash(*state, true);
    OK(recover_with(&made, third + 4999, "\x00", 1, &journal, NULL));
    OK(fedge_journal_reopen(journal, NULL));
    end_without_it(&made, journal, fedge_journal_close, FEDGE_JOURNAL_CLOSED);
    free(made.bytes);
}

/* Recovery looks at every byte of every accepted update, the first slot's as well. */
static void each_slot_is_checked(void **state)
{
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        crash_file made = make_crash(*state, false);
        journal_layout layout;
        uint32_t num_slots;
        uint64_t slot_size;
        OK(fedge_journal_unpack_header(made.bytes, made.size, "", &layout, &num_slots, &slot_size,
                                       NULL));
        const uint64_t start = layout.slots_offset + slot * layout.slot_stride;
        const uint64_t places[] = {0, TEST_SLOT_SIZE / 2, TEST_SLOT_SIZE - 1};
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            fedge_journal *journal;
            uint8_t flipped = made.bytes[start + places[i]] ^ 0x10;
            OK(recover_with(&made, start + places[i], &flipped, 1, &journal, NULL));
            assert_int_equal(fedge_journal_num_accepted(journal), TEST_SLOTS - 1);
            for (uint32_t other = 0; other < TEST_SLOTS; other++)
                assert_int_equal(fedge_journal_get_slot(journal, other).accepted, other != slot);
            char part[32];
            snprintf(part, sizeof(part), "task %u is not whole", slot + 1);
            assert_non_null(strstr(fedge_journal_note(journal), part));
            fedge_journal_free(journal);
        }
        free(made.bytes);
    }
}

/* A slot whose damaged update was given to another task is that task's, even when the bytes in it
 * are those of the update that was accepted before. */
static void what_was_reassigned_stays_open(void **state)
{
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        crash_file made = make_crash(*state, false);
        journal_layout layout;
        uint32_t num_slots;
        uint64_t slot_size;
        uint8_t bytes[TEST_SLOT_SIZE];
        fedge_journal *journal;
        OK(fedge_journal_unpack_header(made.bytes, made.size, "", &layout, &num_slots, &slot_size,
                                       NULL));
        OK(recover_with(&made, layout.slots_offset + slot * layout.slot_stride, "\xff", 1, &journal,
                        NULL));
        fedge_journal_task next = test_task(77);
        OK(fedge_journal_assign(journal, slot, &next, NULL));
        test_update(slot + 1, bytes);
        OK(fedge_journal_write(journal, slot, 77, 0, bytes, sizeof(bytes), NULL));
        fedge_journal_free(journal);
        OK(fedge_journal_recover(made.path, &journal, NULL));
        assert_string_equal(fedge_journal_note(journal), "");
        assert_int_equal(fedge_journal_num_accepted(journal), TEST_SLOTS - 1);
        const fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        assert_int_equal(facts.task.task_id, 77);
        assert_false(facts.accepted);
        assert_int_equal(facts.size + facts.crc32 + facts.metadata_size + facts.written, 0);
        assert_int_equal(fedge_journal_next_task_id(journal), 78);
        OK(test_accept(journal, slot, 77, NULL));
        fedge_journal_free(journal);
        OK(fedge_journal_recover(made.path, &journal, NULL));
        assert_prefix(journal, TEST_SLOTS);
        assert_int_equal(fedge_journal_get_slot(journal, slot).task.task_id, 77);
        fedge_journal_free(journal);
        free(made.bytes);
    }
}

/* Random bytes anywhere in the log never crash it, never invent an update. */
static void random_damage_is_survived(void **state)
{
    crash_file made = make_crash(*state, true);
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 1, 0, 0);
    for (int i = 0; i < 500; i++) {
        uint8_t noise[64];
        fedge_journal *journal;
        uint32_t size = 1 + fedge_rng_below(&rng, sizeof(noise));
        for (uint32_t j = 0; j < size; j++)
            noise[j] = (uint8_t)fedge_rng_u32(&rng);
        uint64_t room = made.ends[TEST_SLOTS + 1] + 200;
        uint64_t at = fedge_rng_below(&rng, (uint32_t)room);
        fedge_status status = recover_with(&made, at, noise, size, &journal, NULL);
        if (status != FEDGE_OK)
            continue;
        assert_prefix(journal, fedge_journal_num_accepted(journal));
        fedge_journal_free(journal);
    }
    free(made.bytes);
}

/* A record with a right checksum that makes no sense: another release, or a bug, not a crash. */
static void senseless_records_are_told(void **state)
{
    crash_file made = make_crash(*state, false);
    const struct {
        uint32_t number, type, body_size, slot;
        fedge_status status;
    } cases[] = {
        {5, 9, 8, 0, FEDGE_UNSUPPORTED},
        {6, JOURNAL_CLOSE, JOURNAL_END_BODY, TEST_SLOTS, FEDGE_CORRUPT},
        {5, JOURNAL_CLOSE, JOURNAL_END_BODY, 2, FEDGE_CORRUPT}, /* 4 are accepted */
        {5, JOURNAL_CLOSE, 8, TEST_SLOTS, FEDGE_CORRUPT},
        {5, JOURNAL_ASSIGN, JOURNAL_ASSIGN_BODY, TEST_SLOTS, FEDGE_CORRUPT},
        {5, JOURNAL_ASSIGN, 8, 0, FEDGE_CORRUPT},
        {5, JOURNAL_ACCEPT, JOURNAL_ACCEPT_FIXED, TEST_SLOTS, FEDGE_CORRUPT},
        {5, JOURNAL_ACCEPT, JOURNAL_ACCEPT_FIXED, 0, FEDGE_CORRUPT}, /* task 0 has no slot */
        {5, JOURNAL_ACCEPT, 4, 0, FEDGE_CORRUPT},
        {5, JOURNAL_OPEN, 8, 0, FEDGE_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_journal *journal;
        fedge_error err;
        uint8_t record[128] = {0};
        fedge_put_u32(record + JOURNAL_RECORD_HEADER, cases[i].slot);
        size_t size = fedge_journal_seal_record(record, cases[i].body_size, cases[i].number,
                                                cases[i].type, 0);
        assert_int_equal(recover_with(&made, made.ends[4], record, size, &journal, &err),
                         cases[i].status);
        assert_non_null(strstr(err.message, made.path));
    }
    free(made.bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_log_cut_at_any_byte_is_a_prefix),
        TEST(a_garbled_end_is_cut),
        TEST(what_is_known_of_the_last_record_is_told),
        TEST(damage_to_stored_records_is_told),
        TEST(damage_to_the_head_is_told),
        TEST(a_cut_file_is_told),
        TEST(an_update_without_its_bytes_is_open),
        TEST(a_phase_ends_without_an_update_that_was_not_whole),
        TEST(each_slot_is_checked),
        TEST(what_was_reassigned_stays_open),
        TEST(random_damage_is_survived),
        TEST(senseless_records_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
