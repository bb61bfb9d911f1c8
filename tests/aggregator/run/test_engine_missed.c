/* Who was asked and brought nothing, as the sampler "available" looks back at it: by the journal
 * alone, so that a round which is closed again says the same. */
#include "tests/edge/core/cmocka_all.h"

#include <stdatomic.h>
#include <string.h>

#include "aggregator/run/engine_state.h"
#include "tests/aggregator/run/federation.h"

/* Of five devices four are asked, and a round may close with two of them. */
#define ROUNDS                                                                                     \
    "\"num-server-rounds\":2,\"fraction-train\":0.8,\"min-train-nodes\":2,"                        \
    "\"min-available-nodes\":5,\"min-report-fraction\":0.5,\"round-deadline-s\":100,"              \
    "\"sampler\":{\"type\":\"available\"}"

enum { DEVICES = 5 };

static federation fed;
static atomic_bool say_lost; /* checkpoints are, but for the first */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __real_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
/* NOLINTEND(bugprone-reserved-identifier) */

fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err)
{
    return say_lost && checkpoint->round > 0
               ? fedge_fail(err, FEDGE_IO, "the disk is gone, says the test")
               : __real_fedge_checkpoint_save(dir, checkpoint, files, err);
}

/* What became of each device. */
typedef struct parts {
    uint32_t declined, late, not_asked;
} parts;

/* Round 1 until its deadline: of those that are asked one declines, whose task goes to the fifth,
 * and one is late. */
static parts play(void)
{
    parts of = {DEVICES, DEVICES, DEVICES};
    fed_init(&fed, "missed-test", ROUNDS);
    fed_open(&fed);
    for (uint32_t i = 0; i < FED_DEVICES; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, DEVICES);
    fed_settle(&fed);
    for (uint32_t i = 0; i < DEVICES; i++) {
        uint32_t *part = fed.devices[i].task.task_id == 0 ? &of.not_asked
                         : of.declined == DEVICES         ? &of.declined
                                                          : &of.late;
        *part = i;
    }
    assert_true(of.declined < DEVICES && of.late < DEVICES && of.not_asked < DEVICES);
    fed_decline(&fed.devices[of.declined], true);
    fed_settle(&fed);
    for (uint32_t i = 0; i < DEVICES; i++) {
        if (i == of.declined || i == of.late)
            continue;
        assert_int_not_equal(fed.devices[i].task.task_id, 0);
        fed_make_result(&fed.devices[i]);
        fed_announce(&fed.devices[i]);
        fed_settle(&fed);
        while (fed.devices[i].sending)
            fed_send_part(&fed.devices[i]);
        fed_settle(&fed);
        assert_int_equal(fed.devices[i].num_acks, 1);
    }
    assert_int_equal(fed_status(&fed).rounds_closed, 0);
    fed.now_ms += 101 * 1000;
    return of;
}

static void assert_seen(const parts *of)
{
    const fedge_client_history *clients = &fed.engine->server.model.clients;
    for (uint32_t i = 0; i < DEVICES; i++) {
        const fedge_client_record record = fedge_client_history_get(clients, i);
        const bool missed = i == of->declined || i == of->late;
        assert_int_equal(record.missed, missed);
        assert_int_equal(record.reported, !missed);
        assert_int_equal(record.last_round, !missed);
        assert_int_equal(record.examples, missed ? 0 : 10 + 7 * i);
    }
}

static bool first_is_closed(const federation *of)
{
    return fed_status(of).rounds_closed == 1;
}

static void what_was_not_brought_is_counted_once(void **state)
{
    (void)state;
    const parts of = play();
    fed_until(&fed, first_is_closed, "round 1");
    fed_settle(&fed);
    assert_seen(&of);
    fed_close(&fed);
    fed_open(&fed); /* from the checkpoint */
    assert_seen(&of);
    fed_fini(&fed);
}

static void a_round_that_is_closed_again_counts_the_same(void **state)
{
    (void)state;
    fedge_error failure;
    say_lost = true;
    const parts of = play();
    fed_finish(&fed, &failure);
    assert_int_equal(failure.status, FEDGE_IO);
    fed_close(&fed);
    say_lost = false;
    fed_open(&fed); /* from the journal, whose round has no checkpoint */
    assert_int_equal(fed_status(&fed).rounds_closed, 1);
    assert_seen(&of);
    fed_fini(&fed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_brought_is_counted_once),
        cmocka_unit_test(a_round_that_is_closed_again_counts_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
