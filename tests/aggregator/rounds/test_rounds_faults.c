/* A whole federation with faults: seeded sequences of joins, leaves, reports, losses and clock
 * ticks against the round machine, with the rules checked after every step. A failure names its
 * seed. */
#include "aggregator/rounds/rounds_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/message.h"
#include "edge/core/rng.h"

enum {
    NUM_SEEDS = 3000,
    MAX_CLIENTS = 24,
    FAULTY_STEPS = 400,
    MAX_STEPS = 20000,
    MAX_TASKS = 1 << 14, /* in one run */
};

/* What the test knows of a task. */
typedef struct known_task {
    uint32_t client_index;
    bool sent, cancelled;
    uint8_t ended; /* 1 reported, 2 lost; both are final */
} known_task;

typedef struct federation {
    uint64_t seed;
    fedge_rng rng;
    fedge_rounds_spec spec;
    fedge_rounds *rounds;
    uint64_t now_ms;
    uint32_t num_clients;
    bool connected[MAX_CLIENTS];
    known_task tasks[MAX_TASKS];
    uint64_t phase_tasks[MAX_CLIENTS]; /* the client's task in this phase, 0 when none */
    uint64_t gave_up_ms[MAX_CLIENTS];  /* when, and 1: in this round, and it has not come anew */
    uint32_t num_again;                /* tasks for clients that gave up before in the phase */
    bool must_open, must_end;          /* an action is waiting to be carried out */
    bool finished, draining;
    uint32_t next_round, next_attempt; /* what the next training phase must be */
    uint64_t first_task;               /* of the present phase */
    uint32_t num_closed;
    uint32_t num_early; /* attempts that failed before their deadline */
    uint64_t deadline_ms;
    uint32_t trace; /* CRC-32 of all actions */
} federation;

#define CHECK(federation, condition)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu: %s", (unsigned long long)(federation)->seed, #condition);         \
    } while (0)

static uint32_t draw(federation *f, uint32_t bound)
{
    return fedge_rng_below(&f->rng, bound);
}

static void start(federation *f, uint64_t seed)
{
    memset(f, 0, sizeof(*f));
    f->seed = seed;
    f->rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 0, 0, 0);
    f->num_clients = 3 + draw(f, MAX_CLIENTS - 2);
    uint32_t min_nodes = 1 + draw(f, f->num_clients / 2);
    f->spec = (fedge_rounds_spec){
        .num_server_rounds = 1 + draw(f, 6),
        .fraction_train = 0.1 * (1 + draw(f, 10)),
        .fraction_evaluate = draw(f, 2) ? 0.0 : 0.5,
        .min_train_nodes = min_nodes,
        .min_evaluate_nodes = 1 + draw(f, 2),
        .min_available_nodes = 1 + draw(f, f->num_clients),
        .over_selection = draw(f, 2) ? 1.0 : 1.4,
        .max_cohort = min_nodes + draw(f, MAX_CLIENTS),
        .max_weight = 1,
        .round_deadline_ms = 100,
        .min_report_fraction = 0.25 * (1 + draw(f, 4)),
    };
    f->next_round = 1;
    assert_int_equal(fedge_rounds_new(&f->spec, seed, &f->rounds, NULL), FEDGE_OK);
}

static known_task *known(federation *f, uint64_t task_id)
{
    CHECK(f, task_id >= 1 && task_id < MAX_TASKS);
    return &f->tasks[task_id < MAX_TASKS ? task_id : 0];
}

/* The client gets a task: the only one it has in this phase. */
static void note_task(federation *f, uint64_t task_id, uint32_t client_index)
{
    known_task *task = known(f, task_id);
    CHECK(f, client_index < f->num_clients);
    CHECK(f, f->phase_tasks[client_index] == 0);
    CHECK(f, f->gave_up_ms[client_index] == 0 ||
                 f->now_ms + 1 >= f->gave_up_ms[client_index] + FEDGE_ROUNDS_RETRY_MS);
    CHECK(f, task->client_index == 0 && task->ended == 0 && !task->sent);
    f->phase_tasks[client_index] = task_id;
    task->client_index = client_index;
}

static void on_open(federation *f, const fedge_rounds_action *action)
{
    uint32_t num_tasks, connected = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(f->rounds, &num_tasks);
    const uint32_t available = fedge_rounds_num_available(f->rounds);
    for (uint32_t client = 0; client < f->num_clients; client++)
        connected += f->connected[client];
    CHECK(f, available <= connected);
    fedge_cohort_size size = fedge_cohort_size_of(&f->spec, action->kind, available);
    CHECK(f, available >= fedge_cohort_needed(&f->spec, action->kind));
    CHECK(f, num_tasks == size.asked && fedge_rounds_wanted(f->rounds) == size.wanted);
    CHECK(f, num_tasks <= f->spec.max_cohort);
    if (action->kind == FEDGE_TASK_TRAIN)
        CHECK(f, action->round == f->next_round && action->attempt == f->next_attempt);
    else
        CHECK(f, action->round + 1 == f->next_round && f->spec.fraction_evaluate > 0.0);
    CHECK(f, !f->must_open && !f->must_end && !f->draining);
    memset(f->phase_tasks, 0, sizeof(f->phase_tasks));
    f->first_task = tasks[0].task_id;
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        CHECK(f, f->connected[tasks[slot].client_index]);
        note_task(f, tasks[slot].task_id, tasks[slot].client_index);
    }
    f->must_open = true;
}

static void on_send(federation *f, const fedge_rounds_action *action)
{
    uint32_t slot;
    CHECK(f, f->connected[action->client_index]);
    if (action->fresh)
        note_task(f, action->task_id, action->client_index);
    CHECK(f, fedge_rounds_find(f->rounds, action->task_id, &slot) != NULL);
    CHECK(f, slot == action->slot);
    known_task *task = known(f, action->task_id);
    CHECK(f, task->client_index == action->client_index && task->ended == 0 && !task->cancelled);
    task->sent = true;
}

static void on_end(federation *f, const fedge_rounds_action *action)
{
    uint32_t reported = f->rounds->num_reported;
    uint32_t enough = fedge_cohort_min_reports(&f->spec, fedge_rounds_wanted(f->rounds));
    bool failed = action->type == FEDGE_ROUNDS_FAIL;
    CHECK(f, !f->must_open && !f->must_end);
    CHECK(f, failed ? reported < enough : reported >= enough);
    CHECK(f, reported <= f->spec.max_cohort);
    if (action->kind == FEDGE_TASK_TRAIN && failed) {
        f->next_attempt = action->attempt + 1;
        f->num_early += f->now_ms < f->deadline_ms;
    } else if (action->kind == FEDGE_TASK_TRAIN) {
        f->next_attempt = 0;
        f->next_round = action->round + 1;
        f->num_closed++;
    }
    /* Another round, or one that the deadline ended, asks everybody. */
    if (!failed || f->now_ms >= f->deadline_ms || action->kind == FEDGE_TASK_EVALUATE)
        memset(f->gave_up_ms, 0, sizeof(f->gave_up_ms));
    f->must_end = true;
}

/* Carries out what the machine asks; OPEN and CLOSE take their time. */
static void take_actions(federation *f)
{
    fedge_rounds_action action;
    while (fedge_rounds_next(f->rounds, &action)) {
        CHECK(f, !f->finished);
        const uint32_t words[] = {
            (uint32_t)action.type,    (uint32_t)action.kind, action.round, action.attempt,
            (uint32_t)action.task_id, action.client_index,   action.slot,  action.fresh};
        f->trace = fedge_crc32(f->trace, words, sizeof(words));
        switch (action.type) {
        case FEDGE_ROUNDS_OPEN:
            on_open(f, &action);
            break;
        case FEDGE_ROUNDS_SEND:
            on_send(f, &action);
            break;
        case FEDGE_ROUNDS_CANCEL:
            CHECK(f, !known(f, action.task_id)->cancelled);
            CHECK(f, known(f, action.task_id)->ended == 0);
            known(f, action.task_id)->cancelled = true;
            break;
        case FEDGE_ROUNDS_CLOSE:
        case FEDGE_ROUNDS_FAIL:
            on_end(f, &action);
            break;
        case FEDGE_ROUNDS_FINISH:
            CHECK(f, f->draining || f->num_closed == f->spec.num_server_rounds);
            f->finished = true;
            break;
        }
    }
}

static void step_client(federation *f, uint32_t client, bool faults)
{
    uint64_t task_id = f->phase_tasks[client];
    if (!f->connected[client]) {
        f->connected[client] = true;
        if (f->gave_up_ms[client] != 0) {
            f->gave_up_ms[client] = f->phase_tasks[client] = 0;
            f->num_again++;
        }
        CHECK(f, fedge_rounds_join(f->rounds, client, f->now_ms, NULL) == FEDGE_OK);
    } else if (faults && draw(f, 4) == 0) {
        f->connected[client] = false;
        fedge_rounds_leave(f->rounds, client);
    } else if (task_id != 0 && known(f, task_id)->sent) {
        known_task *task = known(f, task_id);
        bool lose = faults && draw(f, 4) == 0;
        bool gives_up = lose && draw(f, 2) == 0;
        uint32_t before = f->rounds->num_reported;
        fedge_status (*event)(fedge_rounds *, uint64_t, fedge_error *) =
            gives_up ? fedge_rounds_give_up
            : lose   ? fedge_rounds_lose
                     : fedge_rounds_report;
        fedge_status status = event(f->rounds, task_id, NULL);
        if (status == FEDGE_OK) {
            CHECK(f, task->ended == 0);
            task->ended = lose ? 2 : 1;
            CHECK(f, f->rounds->num_reported == before + !lose);
            if (gives_up && !f->must_end)
                f->gave_up_ms[client] = f->now_ms + 1;
        } else {
            CHECK(f, status == FEDGE_STALE || (status == FEDGE_DUPLICATE && task->ended == 1));
            CHECK(f, f->rounds->num_reported == before);
        }
    }
}

static void step(federation *f, bool faults)
{
    uint32_t what = draw(f, 16);
    if (what == 0) {
        bool waits = fedge_rounds_get_state(f->rounds) == FEDGE_ROUNDS_WAITING;
        f->now_ms += draw(f, faults ? 60 : waits ? 20000 : 20);
        fedge_rounds_tick(f->rounds, f->now_ms);
    } else if (what <= 3 && f->must_open) {
        f->must_open = false;
        fedge_rounds_opened(f->rounds, f->now_ms);
        f->deadline_ms = f->now_ms + f->spec.round_deadline_ms;
    } else if (what <= 3 && f->must_end) {
        f->must_end = false;
        fedge_rounds_closed(f->rounds, f->now_ms);
    } else if (faults && draw(f, 4000) == 0) {
        f->draining = true;
        fedge_rounds_drain(f->rounds);
    } else if (faults && what == 4) { /* ids from anywhere change nothing */
        uint64_t task_id = draw(f, 2) ? draw(f, (uint32_t)f->first_task + 1) : UINT64_MAX;
        bool old = task_id < f->first_task;
        fedge_status status = fedge_rounds_report(f->rounds, task_id, NULL);
        if (old || task_id == UINT64_MAX)
            CHECK(f, status == FEDGE_STALE);
        else if (status == FEDGE_OK)
            known(f, task_id)->ended = 1;
    } else {
        step_client(f, draw(f, f->num_clients), faults);
    }
    take_actions(f);
}

/* A time of faults, then a time without: the run must come to its end. */
static uint32_t run_federation(federation *f, uint64_t seed)
{
    start(f, seed);
    uint32_t steps = 0;
    for (; steps < FAULTY_STEPS && !f->finished; steps++)
        step(f, true);
    for (; steps < MAX_STEPS && !f->finished; steps++)
        step(f, false);
    CHECK(f, f->finished);
    fedge_rounds_free(f->rounds);
    return f->trace;
}

static void federations_obey_the_rules(void **state)
{
    (void)state;
    federation *f = malloc(sizeof(*f));
    assert_non_null(f);
    uint32_t total_closed = 0, total_early = 0, total_again = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        uint32_t trace = run_federation(f, seed);
        total_closed += f->num_closed;
        total_early += f->num_early;
        total_again += f->num_again;
        if (seed % 10 == 0)
            CHECK(f, run_federation(f, seed) == trace);
    }
    assert_true(total_closed > 2 * NUM_SEEDS);
    assert_true(total_early > NUM_SEEDS / 30 && total_again > NUM_SEEDS / 10);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(federations_obey_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
