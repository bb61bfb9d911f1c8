/* The order of an asynchronous run, from its lines and back. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/run/simulation.h"
#include "aggregator/store/round_log.h"

#define PATH "replay-rounds.jsonl"

static fedge_error err;

/* Lines of rounds 1 to [rounds]: round r has r updates, of which the k-th is of client 10 r + k and
 * k rounds old; round [silent] does not name them. */
static void write_lines(uint32_t rounds, uint32_t silent)
{
    fedge_round_log log;
    fedge_buffered_update told[8];
    (void)remove(PATH);
    assert_int_equal(fedge_round_log_open(&log, PATH, 0, &err), FEDGE_OK);
    log.lazy = true;
    for (uint32_t round = 1; round <= rounds; round++) {
        for (uint32_t k = 0; k < round; k++)
            told[k] = (fedge_buffered_update){10 * round + k, k};
        const fedge_round_summary summary = {.round = round,
                                             .kind = FEDGE_TASK_TRAIN,
                                             .reported = round,
                                             .loss = NAN,
                                             .accuracy = NAN,
                                             .buffered = told,
                                             .num_buffered = round == silent ? 0 : round,
                                             .model = "ab12"};
        fedge_buffer line;
        fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
        assert_int_equal(fedge_round_summary_write(&summary, &line, &err), FEDGE_OK);
        assert_int_equal(
            fedge_round_log_append(&log, round, FEDGE_TASK_TRAIN, (const char *)line.data, &err),
            FEDGE_OK);
        fedge_buffer_fini(&line);
    }
    fedge_round_log_close(&log);
}

static void what_is_told_is_read(void **state)
{
    (void)state;
    fedge_replay replay;
    const fedge_buffered_update *updates = NULL;
    uint32_t num = 0;
    write_lines(4, 0);
    assert_int_equal(fedge_replay_read(PATH, &replay, &err), FEDGE_OK);
    assert_int_equal(replay.num_rounds, 4);
    assert_int_equal(replay.num_updates, 10);
    assert_int_equal(replay.max_updates, 4);
    for (uint32_t round = 1; round <= 4; round++) {
        assert_int_equal(fedge_replay_round(&replay, round, &updates, &num, &err), FEDGE_OK);
        assert_int_equal(num, round);
        for (uint32_t k = 0; k < num; k++) {
            assert_int_equal(updates[k].client, 10 * round + k);
            assert_int_equal(updates[k].staleness, k);
        }
    }
    assert_int_equal(fedge_replay_round(&replay, 5, &updates, &num, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "the file has 4 rounds, and round 5 is to be run"));
    assert_int_equal(fedge_replay_round(&replay, 0, &updates, &num, &err), FEDGE_MISMATCH);
    fedge_replay_fini(&replay);
    (void)remove(PATH);
}

static void what_is_no_order_is_refused(void **state)
{
    (void)state;
    fedge_replay replay;
    write_lines(3, 2);
    assert_int_equal(fedge_replay_read(PATH, &replay, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "round 2 does not name its updates"));
    assert_null(replay.updates);
    static const struct {
        const char *line;
        fedge_status status;
    } wrong[] = {{"\"clients\":1", FEDGE_MISMATCH},
                 {"\"clients\":2,\"updates\":[[0,0]]", FEDGE_MISMATCH},
                 {"\"clients\":1,\"updates\":[[0]]", FEDGE_CORRUPT},
                 {"\"clients\":1,\"updates\":[[\"a\",0]]", FEDGE_CORRUPT},
                 {"\"clients\":1,\"updates\":[[0,-1]]", FEDGE_CORRUPT},
                 {"\"clients\":1,\"updates\":[7]", FEDGE_CORRUPT},
                 {"\"clients\":1,\"updates\":[[5000000000,0]]", FEDGE_CORRUPT}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        FILE *file = fopen(PATH, "w");
        assert_non_null(file);
        assert_true(fprintf(file, "{\"round\":1,\"phase\":\"train\",%s}\n", wrong[i].line) > 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(fedge_replay_read(PATH, &replay, &err), wrong[i].status);
    }
    (void)remove(PATH);
    assert_int_not_equal(fedge_replay_read(PATH, &replay, &err), FEDGE_OK);
    assert_non_null(strstr(err.message, "--replay " PATH));
    fedge_replay_fini(&replay);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_read),
        cmocka_unit_test(what_is_no_order_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
