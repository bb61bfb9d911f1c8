/* The power fails, calls fail, and processes are killed, at every call of a run's life: what was
 * acknowledged or announced before is there afterwards, once and with its bytes.
 *
 * A life goes from the start of a process to the end of its run, as the aggregator would, and notes
 * from when on the world knows something. It is killed somewhere, another one may go on from there,
 * and the disk is looked at as it may be after a power failure. */
#include "tests/aggregator/store/store_fixture.h"

#include <errno.h>

#include "aggregator/store/recovery.h"
#include "aggregator/store/round_log.h"
#include "edge/core/rng.h"
#include "tests/world/disk_stub.h"

#define STATE WORLD_DISK_ROOT "/state"
enum { LAST_ROUND = 3, KEEP = 1, MAX_FACTS = 2000, MAX_ATTEMPTS = 3, STRIDE = 3 };

typedef enum fact_kind {
    FACT_RUN,      /* the run exists */
    FACT_CLOSED,   /* the model after a round is announced */
    FACT_OPENED,   /* tasks of a phase are with devices */
    FACT_ACKED,    /* an update is acknowledged */
    FACT_ENDED,    /* a phase has ended with these updates */
    FACT_FINISHED, /* the run is over */
} fact_kind;

/* What the world knows from a moment on. */
typedef struct fact {
    fact_kind kind;
    uint32_t round, attempt, slot;
    uint64_t task_id; /* FACT_ACKED; FACT_OPENED: the highest */
    fedge_journal_state state;
    bool accepted[TEST_SLOTS]; /* FACT_ENDED */
} fact;

typedef struct world {
    char run_id[FEDGE_RUN_ID_TEXT];
    fact facts[MAX_FACTS];
    uint32_t num_facts;
    fedge_rng rng;
} world;

static void know(world *w, fact what)
{
    assert_true(w->num_facts < MAX_FACTS);
    w->facts[w->num_facts++] = what;
}

/* --- a life ----------------------------------------------------------------------------------- */

static bool may_fail; /* a call of the disk */

/* An error ends the process. */
static void go_on_after(fedge_status status)
{
    if (status != FEDGE_OK && may_fail)
        world_die();
    OK(status);
}
#define GO(call) go_on_after(call)

typedef struct process {
    fedge_state state;
    fedge_run run;
    char checkpoints[FEDGE_MAX_PATH], journals[FEDGE_MAX_PATH], lines[FEDGE_MAX_PATH];
    uint64_t next_task_id;
} process;

static void begin_process(process *p)
{
    GO(fedge_state_open(STATE, &p->state, NULL));
    GO(fedge_run_open(&p->state, &(fedge_run_request){.job = "{}", .job_size = 2}, &p->run, NULL));
    GO(fedge_run_path(&p->run, "checkpoints", p->checkpoints, NULL));
    GO(fedge_run_path(&p->run, "journal", p->journals, NULL));
    GO(fedge_run_path(&p->run, "rounds.jsonl", p->lines, NULL));
}

static int model_text(uint32_t round, char text[32])
{
    return snprintf(text, 32, "model of round %u", (unsigned)round);
}

static void save_checkpoint(const process *p, uint32_t round)
{
    char text[32];
    int size = model_text(round, text);
    fedge_checkpoint facts = {
        .round = round, .incarnation = 1, .strategy = "FedAvg", .next_task_id = p->next_task_id};
    memcpy(facts.run_id, p->run.run_id, sizeof(facts.run_id));
    const fedge_checkpoint_files files = {.model = (const uint8_t *)text,
                                          .model_size = (size_t)size,
                                          .strategy_state = (const uint8_t *)"state",
                                          .strategy_state_size = 5};
    GO(fedge_checkpoint_save(p->checkpoints, &facts, &files, NULL));
}

/* Everything accepted is on the disk now, and told to the devices. */
static void acknowledge_all(world *w, fedge_journal *journal)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        if (facts.accepted) {
            know(w, (fact){.kind = FACT_ACKED,
                           .round = phase->round,
                           .attempt = phase->attempt,
                           .slot = slot,
                           .task_id = facts.task.task_id});
        }
    }
}

/* Updates arrive, in any order of slots, some from another device than the first. */
static void take_updates(world *w, process *p, fedge_journal *journal)
{
    uint32_t first = fedge_rng_below(&w->rng, TEST_SLOTS);
    for (uint32_t i = 0; i < TEST_SLOTS; i++) {
        uint32_t slot = (first + i) % TEST_SLOTS;
        fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        if (facts.accepted || fedge_rng_below(&w->rng, 4) == 0)
            continue;
        if (fedge_rng_below(&w->rng, 3) == 0) {
            fedge_journal_task task = test_task(p->next_task_id++);
            GO(fedge_journal_write(journal, slot, facts.task.task_id, 0, "half", 4, NULL));
            GO(fedge_journal_assign(journal, slot, &task, NULL));
            facts.task = task;
        }
        GO(test_accept(journal, slot, facts.task.task_id, NULL));
        if (fedge_rng_below(&w->rng, 2) == 0) {
            GO(fedge_journal_sync(journal, NULL));
            acknowledge_all(w, journal);
        }
    }
}

static fact end_of(fedge_journal *journal)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    fact end = {.kind = FACT_ENDED,
                .round = phase->round,
                .attempt = phase->attempt,
                .state = fedge_journal_get_state(journal)};
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++)
        end.accepted[slot] = fedge_journal_get_slot(journal, slot).accepted;
    return end;
}

static void close_round(world *w, process *p, uint32_t round)
{
    fedge_round_log log;
    GO(fedge_round_log_open(&log, p->lines, round - 1, NULL));
    GO(fedge_round_log_append(&log, round, FEDGE_TASK_TRAIN, "\"clients\":4", NULL));
    fedge_round_log_close(&log);
    save_checkpoint(p, round);
    know(w, (fact){.kind = FACT_CLOSED, .round = round});
    GO(fedge_retention_apply(&p->run, KEEP, 0, NULL));
}

static fedge_journal *open_phase(world *w, process *p, const fedge_recovery *recovery)
{
    fedge_journal *journal;
    fedge_journal_task tasks[TEST_SLOTS];
    fedge_journal_phase phase = test_phase(recovery->last_closed + 1, recovery->attempt);
    memcpy(phase.run_id, p->run.run_id, sizeof(phase.run_id));
    memcpy(phase.model, recovery->checkpoint.checkpoint.model, sizeof(phase.model));
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++)
        tasks[slot] = test_task(p->next_task_id++);
    GO(fedge_journal_create(p->journals, &phase, tasks, 0, &journal, NULL));
    know(w, (fact){.kind = FACT_OPENED,
                   .round = phase.round,
                   .attempt = phase.attempt,
                   .task_id = p->next_task_id - 1});
    return journal;
}

/* One phase, or what is left of it. */
static void work(world *w, process *p, fedge_recovery *recovery)
{
    fedge_journal *journal = recovery->journal;
    recovery->journal = NULL;
    if (journal)
        acknowledge_all(w, journal); /* who asks is told */
    else
        journal = open_phase(w, p, recovery);
    if (fedge_journal_get_state(journal) == FEDGE_JOURNAL_OPEN) {
        take_updates(w, p, journal);
        bool fails = recovery->attempt < MAX_ATTEMPTS && fedge_rng_below(&w->rng, 3) == 0;
        GO(fails ? fedge_journal_fail(journal, NULL) : fedge_journal_close(journal, NULL));
    }
    know(w, end_of(journal));
    bool closed = fedge_journal_get_state(journal) == FEDGE_JOURNAL_CLOSED;
    fedge_journal_free(journal);
    if (closed)
        close_round(w, p, recovery->last_closed + 1);
}

static void live(world *w)
{
    process p;
    fedge_recovery recovery;
    begin_process(&p);
    if (strcmp(w->run_id, p.run.run_id) != 0) { /* the one before was killed when it had finished */
        w->num_facts = 0;
    }
    memcpy(w->run_id, p.run.run_id, sizeof(w->run_id));
    know(w, (fact){.kind = FACT_RUN});
    for (;;) {
        GO(fedge_recover(&p.run, &recovery, NULL));
        p.next_task_id = recovery.next_task_id;
        if (!recovery.has_checkpoint) {
            save_checkpoint(&p, 0);
            know(w, (fact){.kind = FACT_CLOSED});
        } else {
            know(w, (fact){.kind = FACT_CLOSED, .round = recovery.last_closed});
            if (recovery.last_closed == LAST_ROUND)
                break;
            work(w, &p, &recovery);
        }
        fedge_recovery_fini(&recovery);
    }
    fedge_recovery_fini(&recovery);
    GO(fedge_run_finish(&p.run, NULL));
    know(w, (fact){.kind = FACT_FINISHED});
    fedge_state_close(&p.state);
}

/* --- after the power failure ------------------------------------------------------------------ */

static void check_update(fedge_journal *journal, uint32_t slot)
{
    uint8_t expected[TEST_SLOT_SIZE], found[TEST_SLOT_SIZE];
    char metadata[32], expected_metadata[32];
    fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
    if (!facts.accepted)
        return;
    test_update(facts.task.task_id, expected);
    assert_int_equal(facts.size, TEST_SLOT_SIZE);
    OK(fedge_journal_read(journal, slot, 0, found, sizeof(found), NULL));
    assert_memory_equal(found, expected, sizeof(found));
    OK(fedge_journal_metadata(journal, slot, metadata, sizeof(metadata), NULL));
    snprintf(expected_metadata, sizeof(expected_metadata), "{\"task\":%u}",
             (unsigned)facts.task.task_id);
    assert_string_equal(metadata, expected_metadata);
}

/* The fact is of the phase that the recovery found, or of one that must have been found. */
static void check_phase_fact(const fact *known, const fedge_recovery *recovery)
{
    if (known->round != recovery->last_closed + 1 || known->attempt < recovery->attempt)
        return;
    bool failed = known->kind == FACT_ENDED && known->state == FEDGE_JOURNAL_FAILED;
    if (failed) { /* the next attempt comes, and has no journal yet */
        assert_true(recovery->attempt > known->attempt);
        return;
    }
    assert_int_equal(recovery->attempt, known->attempt);
    assert_non_null(recovery->journal);
    if (known->kind == FACT_ACKED) {
        fedge_journal_slot slot = fedge_journal_get_slot(recovery->journal, known->slot);
        assert_true(slot.accepted);
        assert_int_equal(slot.task.task_id, known->task_id);
    } else if (known->kind == FACT_ENDED) {
        assert_int_equal(fedge_journal_get_state(recovery->journal), known->state);
        for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
            assert_int_equal(fedge_journal_get_slot(recovery->journal, slot).accepted,
                             known->accepted[slot]);
        }
    }
}

static void check_fact(const fact *known, const process *p, const fedge_recovery *recovery)
{
    switch (known->kind) {
    case FACT_RUN:
    case FACT_FINISHED:
        break;
    case FACT_CLOSED:
        assert_true(recovery->has_checkpoint);
        assert_true(recovery->last_closed >= known->round);
        break;
    case FACT_OPENED:
        assert_true(recovery->next_task_id > known->task_id);
        check_phase_fact(known, recovery);
        break;
    case FACT_ACKED:
    case FACT_ENDED:
        check_phase_fact(known, recovery);
        break;
    }
    assert_true(p->run.resumed);
}

static void check_recovered(const process *p, const fedge_recovery *recovery)
{
    char text[32];
    fedge_round_log log;
    if (!recovery->has_checkpoint)
        return;
    model_text(recovery->last_closed, text);
    assert_int_equal(recovery->checkpoint.model_size, strlen(text));
    assert_memory_equal(recovery->checkpoint.model, text, strlen(text));
    for (uint32_t slot = 0; recovery->journal && slot < TEST_SLOTS; slot++)
        check_update(recovery->journal, slot);
    OK(fedge_round_log_open(&log, p->lines, recovery->last_closed, NULL));
    assert_int_equal(log.last_round, recovery->last_closed);
    fedge_round_log_close(&log);
}

/* The power fails now. */
static void check(const world *w)
{
    process p;
    fedge_recovery recovery;
    bool done = false, finished = false;
    for (uint32_t i = 0; i < w->num_facts; i++) {
        done |= w->facts[i].kind == FACT_CLOSED && w->facts[i].round == LAST_ROUND;
        finished |= w->facts[i].kind == FACT_FINISHED;
    }
    power_off();
    begin_process(&p);
    bool over = p.run.finished || strcmp(p.run.run_id, w->run_id) != 0;
    assert_true(over || !finished);
    assert_true(!over || w->num_facts == 0 || done);
    if (strcmp(p.run.run_id, w->run_id) == 0) {
        OK(fedge_recover(&p.run, &recovery, NULL));
        check_recovered(&p, &recovery);
        for (uint32_t i = 0; i < w->num_facts; i++)
            check_fact(&w->facts[i], &p, &recovery);
        fedge_recovery_fini(&recovery);
    }
    fedge_state_close(&p.state);
}

/* --- tests ------------------------------------------------------------------------------------ */

static world the_world;

static void live_in_it(void)
{
    live(&the_world);
}

/* [seed]: of the life, [draw]: of the disk. */
static void begin_world(uint64_t seed, uint64_t draw)
{
    begin(draw);
    memset(&the_world, 0, sizeof(the_world));
    the_world.rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 17, 0, 0);
}

/* Calls of an undisturbed life. */
static uint32_t num_calls(uint64_t seed)
{
    begin_world(seed, 1);
    live_in_it();
    return (uint32_t)world_disk_num_calls(NODE);
}

static void the_power_fails_at_every_call(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        bool killed = true;
        for (uint64_t call = 1; killed; call++) {
            for (uint64_t draw = 0; draw < 6; draw++) {
                begin_world(seed, draw + 6 * call);
                killed = killed_at(call, live_in_it);
                check(&the_world);
            }
        }
    }
}

/* What a process reads may have been in memory only, written by one that was killed before it came
 * to sync it. */
static void the_power_fails_after_a_kill_at_every_call(void **state)
{
    (void)state;
    const uint32_t end = num_calls(7);
    for (uint32_t call = 1; call <= end; call += STRIDE) {
        for (uint32_t i = 0; i < 12; i++) {
            begin_world(7, 12 * call + i);
            assert_true(killed_at(call, live_in_it));
            const uint32_t later = i < 6 ? 12 : end - call + 1;
            (void)killed_at(1 + fedge_rng_below(world_draw(), later), live_in_it);
            check(&the_world);
        }
    }
}

static void the_power_fails_after_many_kills(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 130; seed++) {
        const uint32_t end = num_calls(seed);
        for (uint32_t i = 0; i < 24; i++) {
            begin_world(seed, i);
            for (int kills = 0; kills < 5; kills++)
                (void)killed_at(1 + fedge_rng_below(world_draw(), end / 2), live_in_it);
            check(&the_world);
        }
    }
}

/* After a sync that failed, the next process reads what is not on the disk. */
static void the_power_fails_after_a_call_failed(void **state)
{
    (void)state;
    const uint32_t end = num_calls(7);
    for (uint32_t call = 1; call <= end; call += STRIDE) {
        for (uint32_t i = 0; i < 12; i++) {
            begin_world(7, 12 * call + i);
            may_fail = true;
            (void)ended_by((world_disk_faults){.fail_at = call, .fail_errno = EIO}, live_in_it);
            may_fail = false;
            (void)killed_at(1 + fedge_rng_below(world_draw(), end), live_in_it);
            check(&the_world);
        }
    }
}

#define LINES WORLD_DISK_ROOT "/rounds.jsonl"

static void write_lines(void)
{
    fedge_round_log log;
    OK(fedge_round_log_open(&log, LINES, 2, NULL));
    for (uint32_t round = 1; round <= 2; round++) {
        OK(fedge_round_log_append(&log, round, FEDGE_TASK_TRAIN, "\"clients\":4", NULL));
        OK(fedge_round_log_append(&log, round, FEDGE_TASK_EVALUATE, "\"clients\":3", NULL));
    }
    fedge_round_log_close(&log);
}

/* The phase of a line that a start has read is not repeated. */
static void lines_that_were_read_after_a_kill_stay(void **state)
{
    (void)state;
    bool killed = true;
    for (uint64_t call = 1; killed; call++) {
        for (uint64_t draw = 0; draw < 6; draw++) {
            fedge_round_log read, later;
            begin(draw + 6 * call);
            killed = killed_at(call, write_lines);
            OK(fedge_round_log_open(&read, LINES, 2, NULL));
            fedge_round_log_close(&read);
            power_off();
            OK(fedge_round_log_open(&later, LINES, 2, NULL));
            fedge_round_log_close(&later);
            assert_int_equal(later.last_round, read.last_round);
            assert_int_equal(later.last_kind, read.last_kind);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_power_fails_at_every_call),
        TEST(the_power_fails_after_a_kill_at_every_call),
        TEST(the_power_fails_after_many_kills),
        TEST(the_power_fails_after_a_call_failed),
        TEST(lines_that_were_read_after_a_kill_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
