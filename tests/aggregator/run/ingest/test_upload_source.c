/* What becomes of an upload whose values or bytes are bad, and of one that an accumulator cannot
 * read any more. */
#include "tests/aggregator/store/store_fixture.h"

#include "aggregator/run/ingest/upload.h"

typedef struct fake {
    fedge_status answers;
    unsigned dropped;
} fake;

/* It reads nothing: what is not checked is left to the source. */
static fedge_status validate(void *state, fedge_encoded *update, fedge_error *err)
{
    const fake *self = state;
    (void)update;
    return self->answers == FEDGE_OK ? FEDGE_OK : fedge_fail(err, self->answers, "as told");
}

static void drop(void *state, fedge_encoded *update)
{
    (void)update;
    ((fake *)state)->dropped++;
}

static const fedge_accumulator_ops FAKE = {.name = "fake", .validate = validate, .drop = drop};

static fedge_journal *journal;

static void expect(fedge_status answers, bool intact, fedge_status expected, unsigned dropped)
{
    uint8_t bytes[TEST_SLOT_SIZE];
    fedge_error err;
    fake self = {.answers = answers};
    fedge_accumulator accumulator = {.ops = &FAKE, .state = &self};
    test_update(1, bytes);
    fedge_upload_source source = {.journal = journal,
                                  .size = sizeof(bytes),
                                  .crc32 = fedge_crc32(0, bytes, sizeof(bytes)) ^ !intact};
    assert_int_equal(fedge_upload_source_validate(&source, &accumulator, &err), expected);
    assert_int_equal(self.dropped, dropped);
    if (expected == answers && expected != FEDGE_OK)
        assert_string_equal(err.message, "as told");
}

static void damaged_bytes_are_told_before_bad_values(void **state)
{
    (void)state;
    expect(FEDGE_OK, true, FEDGE_OK, 0);
    expect(FEDGE_OK, false, FEDGE_CORRUPT, 1);
    expect(FEDGE_OUT_OF_RANGE, true, FEDGE_OUT_OF_RANGE, 0);
    expect(FEDGE_OUT_OF_RANGE, false, FEDGE_CORRUPT, 0);
}

/* The process ends, and its client is not told that its bytes were damaged. */
static void what_fails_here_says_nothing_of_the_bytes(void **state)
{
    (void)state;
    const fedge_status here[] = {FEDGE_GPU_LOST, FEDGE_IO, FEDGE_NO_MEMORY};
    for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
        expect(here[i], false, here[i], 0);
}

static int set_up(void **state)
{
    uint8_t bytes[TEST_SLOT_SIZE];
    if (test_dir_setup(state) != 0)
        return 1;
    const fedge_journal_phase phase = test_phase(1, 0);
    test_update(1, bytes);
    return test_create(*state, &phase, &journal, NULL) != FEDGE_OK ||
           fedge_journal_write(journal, 0, 1, 0, bytes, sizeof(bytes), NULL) != FEDGE_OK;
}

static int tear_down(void **state)
{
    fedge_journal_free(journal);
    return test_dir_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_bytes_are_told_before_bad_values),
        cmocka_unit_test(what_fails_here_says_nothing_of_the_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
