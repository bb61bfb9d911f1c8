#include "aggregator/rounds/rounds.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/rounds_internal.h"
#include "aggregator/rounds/sampler.h"

/* The last number of a sampling stream's key: the phase of the round, or a restored phase. */
enum { STREAM_TRAIN = 0, STREAM_EVALUATE = 1, STREAM_RESTORED = 2 };

/* The largest cohort that [connected] clients can give. */
static uint32_t cohort_limit(const fedge_rounds *rounds, uint32_t connected)
{
    return connected < rounds->spec.max_cohort ? connected : rounds->spec.max_cohort;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* --- actions ---------------------------------------------------------------------------------- */

static void push(fedge_rounds *rounds, fedge_rounds_action_type type, uint32_t slot, bool fresh)
{
    size_t at = rounds->first_action + rounds->num_actions;
    /* Full only when the caller continues without taking the actions. */
    assert(at < rounds->actions_capacity);
    fedge_rounds_action action = {
        .type = type, .kind = rounds->kind, .round = rounds->round, .attempt = rounds->attempt};
    if (type == FEDGE_ROUNDS_SEND || type == FEDGE_ROUNDS_CANCEL) {
        action.task_id = rounds->tasks[slot].task_id;
        action.client_index = rounds->tasks[slot].client_index;
        action.slot = slot;
        action.fresh = fresh;
    }
    rounds->actions[at] = action;
    rounds->num_actions++;
}

bool fedge_rounds_next(fedge_rounds *rounds, fedge_rounds_action *action)
{
    if (rounds->num_actions == 0)
        return false;
    *action = rounds->actions[rounds->first_action++];
    rounds->num_actions--;
    if (rounds->num_actions == 0)
        rounds->first_action = 0;
    return true;
}

/* --- phases ----------------------------------------------------------------------------------- */

static void finish(fedge_rounds *rounds)
{
    rounds->state = FEDGE_ROUNDS_FINISHED;
    rounds->deadline_ms = 0;
    push(rounds, FEDGE_ROUNDS_FINISH, 0, false);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static fedge_rounds_task new_task(fedge_rounds *rounds, uint32_t client_index)
{
    return (fedge_rounds_task){.task_id = rounds->next_task_id++,
                               .client_index = client_index,
                               .base = rounds->round - 1,
                               .state = FEDGE_TASK_OPEN};
}

/* The number of clients that get a new task as the phase opens, of [listed] that have none. */
static uint32_t num_to_ask(fedge_rounds *rounds, const fedge_cohort_size *size, uint32_t listed)
{
    if (!fedge_rounds_has_buffer(rounds))
        return size->asked;
    const uint32_t at_work = fedge_rounds_num_at_work(rounds);
    const uint32_t more = size->asked > at_work ? size->asked - at_work : 0;
    rounds->at_work = size->asked;
    return min_u32(min_u32(more, listed), FEDGE_ROUNDS_MAX_SLOTS - rounds->num_tasks);
}

/* Reserves slots. With a buffer disconnected clients have tasks, too, which no other event
 * reserves memory for. False without memory. */
static bool reserve_slots(fedge_rounds *rounds, const fedge_cohort_size *size)
{
    return !fedge_rounds_has_buffer(rounds) ||
           fedge_rounds_reserve(rounds, rounds->num_connected,
                                rounds->num_tasks + size->asked + size->wanted, NULL) == FEDGE_OK;
}

/* Adds slots for clients that are asked again while the buffer fills. Each report but the last lets
 * one client work again. */
static void add_empty_slots(fedge_rounds *rounds, const fedge_cohort_size *size)
{
    for (uint32_t i = 1; i < size->wanted && rounds->num_tasks < FEDGE_ROUNDS_MAX_SLOTS; i++) {
        rounds->tasks[rounds->num_tasks++] = (fedge_rounds_task){
            .client_index = UINT32_MAX, .base = rounds->round - 1, .state = FEDGE_TASK_LOST};
    }
}

/* WAITING → OPENING when enough clients are connected. */
static void try_open(fedge_rounds *rounds, uint64_t now_ms)
{
    if (rounds->state != FEDGE_ROUNDS_WAITING || now_ms < rounds->open_at_ms)
        return;
    if (rounds->retry_at_ms != 0 && now_ms >= rounds->retry_at_ms) {
        rounds->retry_at_ms = 0;
        fedge_rounds_keep_carried(rounds, false);
    }
    const uint32_t ready = fedge_rounds_num_available(rounds);
    /* Each join and each tick tries again. */
    if (ready < fedge_cohort_needed(&rounds->spec, rounds->kind))
        return;
    const uint32_t listed = fedge_rounds_list_available(rounds);
    const fedge_cohort_size size = fedge_cohort_size_of(&rounds->spec, rounds->kind, ready);
    const uint32_t asked = num_to_ask(rounds, &size, listed);
    if (!reserve_slots(rounds, &size))
        return; /* the next tick tries again */
    const uint32_t available = fedge_rounds_omit_deferred(rounds, listed, asked, now_ms);
    uint16_t stream = rounds->kind == FEDGE_TASK_TRAIN ? STREAM_TRAIN : STREAM_EVALUATE;
    /* Each attempt has a separate stream, so it asks other clients and does not depend on what
     * earlier attempts drew. */
    rounds->rng = fedge_rng_stream(rounds->seed, FEDGE_PURPOSE_SAMPLE, rounds->round,
                                   rounds->attempt, stream);
    rounds->draw = (fedge_draw){0};
    if (rounds->history && rounds->kind == FEDGE_TASK_TRAIN) {
        rounds->draw = fedge_draw_cohort(&rounds->spec.sampler, rounds->history, rounds->round,
                                         &rounds->rng, rounds->sampled, available, asked);
    } else {
        fedge_sample(&rounds->rng, rounds->sampled, available, asked);
    }
    /* Slots are sorted by client index. The same cohort then gives the same journal, log and sums,
     * whatever the order of the draw. */
    qsort(rounds->sampled, asked, sizeof(uint32_t), compare_u32);

    const uint32_t carried = fedge_rounds_has_buffer(rounds) ? rounds->num_tasks : 0;
    assert(carried + asked <= rounds->tasks_capacity &&
           rounds->num_participants + asked <= rounds->participants_capacity);
    for (uint32_t i = 0; i < asked; i++) {
        rounds->tasks[carried + i] = new_task(rounds, rounds->sampled[i]);
        fedge_rounds_add_participant(rounds, rounds->sampled[i], carried + i);
    }
    rounds->num_tasks = rounds->num_open = carried + asked; /* carried tasks are open */
    rounds->num_reported = 0;
    if (fedge_rounds_has_buffer(rounds))
        add_empty_slots(rounds, &size);
    rounds->given_up = false;
    rounds->wanted = size.wanted;
    rounds->fail_at_ms = 0;
    rounds->state = FEDGE_ROUNDS_OPENING;
    push(rounds, FEDGE_ROUNDS_OPEN, 0, false);
}

static bool has_min_reports(const fedge_rounds *rounds)
{
    return rounds->num_reported >= fedge_cohort_min_reports(&rounds->spec, rounds->wanted);
}

static void cancel_open(fedge_rounds *rounds)
{
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->tasks[slot].state == FEDGE_TASK_OPEN)
            push(rounds, FEDGE_ROUNDS_CANCEL, slot, false);
    }
}

/* RUNNING → CLOSING. Tasks stay OPEN until fedge_rounds_closed: the journal will hold a result that
 * is being written at this moment, so the machine must count it as well. */
static void end_phase(fedge_rounds *rounds)
{
    rounds->failing = !has_min_reports(rounds);
    rounds->state = FEDGE_ROUNDS_CLOSING;
    rounds->deadline_ms = 0;
    /* With a buffer open tasks carry over into the next round. */
    if (!fedge_rounds_has_buffer(rounds))
        cancel_open(rounds);
    push(rounds, rounds->failing ? FEDGE_ROUNDS_FAIL : FEDGE_ROUNDS_CLOSE, 0, false);
}

/* Ends the phase when enough clients, or all that can, have reported. It also ends before the
 * deadline when clients have given up, none is at work, and the disconnected ones would not be
 * enough. It waits for disconnected clients that would be enough, and for replacements of tasks
 * that were lost without a message, as in simulations. An evaluation is not repeated, so it waits
 * for neither. */
static void end_if_over(fedge_rounds *rounds)
{
    if (rounds->state != FEDGE_ROUNDS_RUNNING)
        return;
    const bool evaluates = rounds->kind == FEDGE_TASK_EVALUATE;
    const uint32_t enough = fedge_cohort_min_reports(&rounds->spec, rounds->wanted);
    const bool stuck = rounds->given_up && rounds->num_reported + rounds->num_open < enough;
    if (rounds->num_reported >= rounds->wanted ||
        (rounds->num_open == 0 && (evaluates || has_min_reports(rounds)))) {
        end_phase(rounds);
    } else if (stuck && fedge_rounds_is_stalled(rounds)) {
        rounds->hopeless = true;
        end_phase(rounds);
    }
}

/* Ends a draining phase that no client has worked on for a while: disconnected clients may stay
 * away for long. With too few reports the phase stays open for a restart. */
static void end_if_deserted(fedge_rounds *rounds, uint64_t now_ms)
{
    const bool deserted = rounds->draining && rounds->state == FEDGE_ROUNDS_RUNNING &&
                          fedge_rounds_is_stalled(rounds);
    if (!deserted || !rounds->deserted) {
        rounds->deserted = deserted;
        rounds->deserted_at_ms = now_ms;
    } else if (now_ms - rounds->deserted_at_ms >= rounds->grace_ms) {
        if (has_min_reports(rounds))
            end_phase(rounds);
        else
            finish(rounds);
    }
}

/* The deadline of a phase that begins now; 0 is "never", as in the job. */
static uint64_t deadline_from(const fedge_rounds *rounds, uint64_t now_ms)
{
    const uint64_t length = rounds->spec.round_deadline_ms;
    const bool endless = length == 0 || now_ms > UINT64_MAX - length;
    return endless ? 0 : now_ms + length;
}

static void start_deadline(fedge_rounds *rounds, uint64_t now_ms)
{
    rounds->deadline_ms = deadline_from(rounds, now_ms);
}

/* Gives [client_index] a new task in a LOST slot. */
static void assign(fedge_rounds *rounds, uint32_t slot, uint32_t client_index)
{
    rounds->tasks[slot] = new_task(rounds, client_index);
    rounds->num_open++;
    fedge_rounds_add_participant(rounds, client_index, slot);
    push(rounds, FEDGE_ROUNDS_SEND, slot, true);
}

/* With a buffer: gives empty slots to free clients until enough are at work. */
static void fill(fedge_rounds *rounds)
{
    uint32_t slot = 0, client_index = 0;
    uint32_t at_work = fedge_rounds_num_at_work(rounds);
    while (at_work < rounds->at_work && rounds->num_participants < rounds->participants_capacity) {
        slot = fedge_rounds_empty_slot(rounds, slot);
        if (slot == rounds->num_tasks || !fedge_rounds_pick_free(rounds, &client_index))
            return;
        assign(rounds, slot, client_index);
        at_work++;
    }
}

/* --- making and restoring --------------------------------------------------------------------- */

static fedge_status check_spec(const fedge_rounds_spec *spec, fedge_error *err)
{
    const char *wrong = NULL;
    if (spec->num_server_rounds == 0 || spec->num_server_rounds == UINT32_MAX)
        wrong = "num-server-rounds must be at least 1 and below 4294967295";
    else if (!(spec->fraction_train > 0.0 && spec->fraction_train <= 1.0))
        wrong = "fraction-train must be in (0, 1]";
    else if (!(spec->fraction_evaluate >= 0.0 && spec->fraction_evaluate <= 1.0))
        wrong = "fraction-evaluate must be in [0, 1]";
    else if (!(spec->over_selection >= 1.0 && spec->over_selection <= (double)UINT32_MAX))
        wrong = "the over-selection factor must be at least 1";
    else if (!(spec->min_report_fraction > 0.0 && spec->min_report_fraction <= 1.0))
        wrong = "the minimum fraction of reports must be in (0, 1]";
    else if (spec->max_cohort == 0)
        wrong = "the largest cohort must be at least 1";
    else if (spec->max_cohort < spec->min_train_nodes)
        wrong = "the largest cohort must be at least min-train-nodes";
    if (wrong)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "rounds: %s", wrong);
    return FEDGE_OK;
}

fedge_status fedge_rounds_new(const fedge_rounds_spec *spec, uint64_t seed, fedge_rounds **rounds,
                              fedge_error *err)
{
    *rounds = NULL;
    FEDGE_TRY(check_spec(spec, err));
    fedge_rounds *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the round machine");
    made->spec = *spec;
    made->seed = seed;
    made->state = FEDGE_ROUNDS_WAITING;
    made->kind = FEDGE_TASK_TRAIN;
    made->round = 1;
    made->next_task_id = 1;
    const fedge_status status = fedge_rounds_reserve(made, 1, 1, err);
    if (status != FEDGE_OK) {
        fedge_rounds_free(made);
        return status;
    }
    *rounds = made;
    return FEDGE_OK;
}

void fedge_rounds_draw_by(fedge_rounds *rounds, const fedge_client_history *history)
{
    rounds->history = fedge_sampler_uses_history(&rounds->spec.sampler) ? history : NULL;
}

void fedge_rounds_restore_draw(fedge_rounds *rounds, const fedge_draw *draw)
{
    rounds->draw = *draw;
}

void fedge_rounds_free(fedge_rounds *rounds)
{
    if (!rounds)
        return;
    free(rounds->tasks);
    free(rounds->participants);
    free(rounds->connected);
    free(rounds->sampled);
    free(rounds->deferrals);
    free(rounds->actions);
    free(rounds);
}

/* Restores the tasks of an open phase; the caller has reserved memory for them. */
static fedge_status restore_tasks(fedge_rounds *rounds, const fedge_rounds_task *tasks,
                                  uint32_t num_tasks, fedge_error *err)
{
    /* The tasks come from disk, so they are checked as input and not asserted. */
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        const fedge_rounds_task *task = &tasks[slot];
        if (task->task_id >= rounds->next_task_id) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "restored task %" PRIu64 " is not below the next task id %" PRIu64,
                              task->task_id, rounds->next_task_id);
        }
        rounds->tasks[slot] = *task;
        if (task->state == FEDGE_TASK_LOST)
            continue;
        const bool fits = fedge_rounds_has_buffer(rounds)
                              ? fedge_rounds_restore_participant(rounds, slot)
                              : !fedge_rounds_find_participant(rounds, task->client_index);
        if (!fits) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "client %" PRIu32 " has two tasks in the restored phase",
                              task->client_index);
        }
        if (!fedge_rounds_has_buffer(rounds))
            fedge_rounds_add_participant(rounds, task->client_index, slot);
        rounds->num_open += task->state == FEDGE_TASK_OPEN;
        rounds->num_reported += task->state == FEDGE_TASK_REPORTED;
    }
    rounds->num_tasks = num_tasks;
    /* With 0 no client would get work again. */
    rounds->at_work = rounds->num_open > 0 ? rounds->num_open : 1;
    return FEDGE_OK;
}

fedge_status fedge_rounds_restore(fedge_rounds *rounds, const fedge_rounds_progress *progress,
                                  uint64_t now_ms, fedge_error *err)
{
    const uint32_t num_tasks = progress->num_tasks;
    assert(rounds->state == FEDGE_ROUNDS_WAITING && rounds->next_task_id == 1);
    const uint32_t most =
        fedge_rounds_has_buffer(rounds) ? FEDGE_ROUNDS_MAX_SLOTS : rounds->spec.max_cohort;
    if (progress->next_task_id == 0 || num_tasks > most) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "cannot restore a phase of %" PRIu32 " tasks (at most %" PRIu32
                          ") with next task id %" PRIu64,
                          num_tasks, most, progress->next_task_id);
    }
    rounds->next_task_id = progress->next_task_id;
    if (progress->last_closed >= rounds->spec.num_server_rounds) {
        rounds->round = rounds->spec.num_server_rounds;
        rounds->complete = true;
        finish(rounds);
        return FEDGE_OK;
    }
    rounds->round = progress->last_closed + 1;
    rounds->attempt = progress->attempt;
    if (num_tasks == 0)
        return FEDGE_OK;
    if (progress->wanted == 0 || progress->wanted > num_tasks) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "cannot restore a phase of %" PRIu32 " tasks that wants %" PRIu32
                          " reports",
                          num_tasks, progress->wanted);
    }
    FEDGE_TRY(fedge_rounds_reserve(rounds, 1, num_tasks, err));
    FEDGE_TRY(restore_tasks(rounds, progress->tasks, num_tasks, err));
    rounds->wanted = progress->wanted;
    /* What the phase drew before the restart is unknown; a separate stream does not repeat it. */
    rounds->rng = fedge_rng_stream(rounds->seed, FEDGE_PURPOSE_SAMPLE, rounds->round,
                                   progress->attempt, STREAM_RESTORED);
    rounds->state = FEDGE_ROUNDS_RUNNING;
    /* After a restart all clients are disconnected. They return within their longest backoff. */
    rounds->grace_ms = FEDGE_ROUNDS_RESTORED_GRACE_MS;
    start_deadline(rounds, now_ms);
    /* All clients may have reported before the restart. */
    end_if_over(rounds);
    return FEDGE_OK;
}

void fedge_rounds_restore_evaluation(fedge_rounds *rounds, uint32_t last_closed,
                                     uint64_t next_task_id)
{
    assert(rounds->state == FEDGE_ROUNDS_WAITING && rounds->next_task_id == 1);
    assert(last_closed >= 1 && last_closed <= rounds->spec.num_server_rounds && next_task_id >= 1);
    rounds->next_task_id = next_task_id;
    rounds->round = last_closed;
    rounds->kind = FEDGE_TASK_EVALUATE;
}

/* --- events ----------------------------------------------------------------------------------- */

/* Sends the client's open task again. A client that has had no task gets an empty slot. */
static void give_work(fedge_rounds *rounds, uint32_t client_index)
{
    const participant *found = fedge_rounds_find_participant(rounds, client_index);
    if (found) {
        if (fedge_rounds_open_task(rounds, found))
            push(rounds, FEDGE_ROUNDS_SEND, found->slot, false);
        return;
    }
    const uint32_t slot = fedge_rounds_empty_slot(rounds, 0);
    const bool enough =
        fedge_rounds_has_buffer(rounds) && fedge_rounds_num_at_work(rounds) >= rounds->at_work;
    if (slot < rounds->num_tasks && !enough)
        assign(rounds, slot, client_index);
}

fedge_status fedge_rounds_join(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms,
                               fedge_error *err)
{
    uint32_t position = fedge_rounds_connected_position(rounds, client_index);
    bool known = position < rounds->num_connected && rounds->connected[position] == client_index;
    if (!known && rounds->num_connected >= FEDGE_ROUNDS_MAX_CLIENTS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "client %" PRIu32 " is one more than the limit of %u",
                          client_index, FEDGE_ROUNDS_MAX_CLIENTS);
    }
    /* Reserve before anything changes: a join that fails leaves the machine as it was. */
    uint32_t connected = rounds->num_connected + !known;
    FEDGE_TRY(fedge_rounds_reserve(rounds, connected, cohort_limit(rounds, connected), err));
    if (!known) {
        uint32_t *at = rounds->connected + position;
        memmove(at + 1, at, (rounds->num_connected - position) * sizeof(*at));
        *at = client_index;
        rounds->num_connected++;
        fedge_rounds_note_connected(rounds, client_index, true);
    }
    /* A client that gave up and joins again may have been repaired. A time that it gave, such as
     * its site's hours, also holds on its next connection. */
    if (fedge_rounds_not_before(rounds, client_index) == UINT64_MAX)
        fedge_rounds_undefer(rounds, client_index);
    participant *found = fedge_rounds_find_participant(rounds, client_index);
    if (found)
        found->declined = false;
    if (found && found->aside)
        fedge_rounds_remove_participant(rounds, found);
    if (rounds->state == FEDGE_ROUNDS_RUNNING)
        give_work(rounds, client_index);
    else
        try_open(rounds, now_ms);
    return FEDGE_OK;
}

fedge_status fedge_rounds_join_all(fedge_rounds *rounds, const uint32_t *client_indices,
                                   uint32_t num_clients, uint64_t now_ms, fedge_error *err)
{
    assert(rounds->state == FEDGE_ROUNDS_WAITING || rounds->state == FEDGE_ROUNDS_FINISHED);
    assert(rounds->num_connected == 0);
    if (num_clients > FEDGE_ROUNDS_MAX_CLIENTS) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%" PRIu32 " clients are more than the limit of %u",
                          num_clients, FEDGE_ROUNDS_MAX_CLIENTS);
    }
    FEDGE_TRY(fedge_rounds_reserve(rounds, num_clients, cohort_limit(rounds, num_clients), err));
    memcpy(rounds->connected, client_indices, num_clients * sizeof(*client_indices));
    rounds->num_connected = num_clients;
    try_open(rounds, now_ms);
    return FEDGE_OK;
}

void fedge_rounds_leave(fedge_rounds *rounds, uint32_t client_index)
{
    if (!fedge_rounds_is_connected(rounds, client_index))
        return;
    uint32_t *at = rounds->connected + fedge_rounds_connected_position(rounds, client_index);
    rounds->num_connected--;
    memmove(at, at + 1, (size_t)(rounds->connected + rounds->num_connected - at) * sizeof(*at));
    fedge_rounds_note_connected(rounds, client_index, false);
    end_if_over(rounds);
}

static fedge_rounds_task *find_task(const fedge_rounds *rounds, uint64_t task_id)
{
    /* Task ids count up with the slots, except where a slot was given to another client. */
    if (rounds->num_tasks > 0 && task_id >= rounds->tasks[0].task_id) {
        uint64_t slot = task_id - rounds->tasks[0].task_id;
        if (slot < rounds->num_tasks && rounds->tasks[slot].task_id == task_id)
            return &rounds->tasks[slot];
    }
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->tasks[slot].task_id == task_id)
            return &rounds->tasks[slot];
    }
    return NULL;
}

const fedge_rounds_task *fedge_rounds_find(const fedge_rounds *rounds, uint64_t task_id,
                                           uint32_t *slot)
{
    const fedge_rounds_task *task = find_task(rounds, task_id);
    if (task && slot)
        *slot = (uint32_t)(task - rounds->tasks);
    return task;
}

static fedge_status fail_stale(const fedge_rounds *rounds, uint64_t task_id, fedge_error *err)
{
    return fedge_fail(err, FEDGE_STALE,
                      "task %" PRIu64 " is not open; round %" PRIu32 " attempt %" PRIu32
                      " is the present one",
                      task_id, rounds->round, rounds->attempt);
}

fedge_status fedge_rounds_report(fedge_rounds *rounds, uint64_t task_id, fedge_error *err)
{
    fedge_rounds_task *task = find_task(rounds, task_id);
    if (!task || task->state == FEDGE_TASK_LOST)
        return fail_stale(rounds, task_id, err);
    if (rounds->state == FEDGE_ROUNDS_CLOSING && rounds->failing) {
        /* Its result is discarded with the phase. With a buffer a task that stayed open would carry
         * over into the next phase, where no client works on it. */
        if (task->state == FEDGE_TASK_OPEN) {
            task->state = FEDGE_TASK_LOST;
            rounds->num_open--;
        }
        return fail_stale(rounds, task_id, err);
    }
    if (task->state == FEDGE_TASK_REPORTED) {
        return fedge_fail(err, FEDGE_DUPLICATE, "task %" PRIu64 " has been reported before",
                          task_id);
    }
    if (rounds->state != FEDGE_ROUNDS_RUNNING && rounds->state != FEDGE_ROUNDS_CLOSING)
        return fail_stale(rounds, task_id, err);
    task->state = FEDGE_TASK_REPORTED;
    rounds->num_open--;
    rounds->num_reported++;
    if (fedge_rounds_has_buffer(rounds))
        fedge_rounds_release(rounds, (uint32_t)(task - rounds->tasks));
    end_if_over(rounds);
    if (fedge_rounds_has_buffer(rounds) && rounds->state == FEDGE_ROUNDS_RUNNING)
        fill(rounds);
    return FEDGE_OK;
}

/* Drops a task that will bring no result. Its slot goes to another client if one is free. */
static fedge_status drop_task(fedge_rounds *rounds, uint64_t task_id, bool gives_up,
                              fedge_error *err)
{
    fedge_rounds_task *task = find_task(rounds, task_id);
    if (!task || task->state != FEDGE_TASK_OPEN || rounds->state == FEDGE_ROUNDS_FINISHED)
        return fail_stale(rounds, task_id, err);
    uint32_t slot = (uint32_t)(task - rounds->tasks);
    if (rounds->state == FEDGE_ROUNDS_WAITING) {
        fedge_rounds_drop_carried(rounds, slot);
        return FEDGE_OK;
    }
    /* Reserve one more task and its action before the old task is lost. */
    FEDGE_TRY(fedge_rounds_reserve(rounds, rounds->num_connected,
                                   cohort_limit(rounds, rounds->num_connected), err));
    rounds->tasks[slot].state = FEDGE_TASK_LOST;
    rounds->num_open--;
    uint32_t client_index = task->client_index;
    if (gives_up) {
        /* It is not asked again in this attempt. */
        fedge_rounds_find_participant(rounds, client_index)->aside = true;
        rounds->given_up = true;
    }
    if (rounds->state == FEDGE_ROUNDS_RUNNING && fedge_rounds_has_buffer(rounds))
        fill(rounds);
    else if (rounds->state == FEDGE_ROUNDS_RUNNING && fedge_rounds_pick_free(rounds, &client_index))
        assign(rounds, slot, client_index);
    end_if_over(rounds);
    return FEDGE_OK;
}

fedge_status fedge_rounds_lose(fedge_rounds *rounds, uint64_t task_id, fedge_error *err)
{
    return drop_task(rounds, task_id, false, err);
}

fedge_status fedge_rounds_give_up(fedge_rounds *rounds, uint64_t task_id, fedge_error *err)
{
    return drop_task(rounds, task_id, true, err);
}

void fedge_rounds_decline(fedge_rounds *rounds, uint32_t client_index, uint64_t now_ms)
{
    participant *found = fedge_rounds_find_participant(rounds, client_index);
    if (!found) {
        /* Without memory the client counts as one that left. */
        const uint32_t most = cohort_limit(rounds, rounds->num_connected);
        if (fedge_rounds_reserve(rounds, rounds->num_connected, most, NULL) != FEDGE_OK)
            return;
        fedge_rounds_add_participant(rounds, client_index, FEDGE_ROUNDS_NO_SLOT);
        found = fedge_rounds_find_participant(rounds, client_index);
        found->aside = true;
    }
    found->declined = true;
    /* A pending again_at_ms asks clients again sooner than the deadline. */
    if (rounds->state == FEDGE_ROUNDS_WAITING && rounds->fail_at_ms == 0 &&
        rounds->retry_at_ms == 0)
        rounds->fail_at_ms = deadline_from(rounds, now_ms);
}

/* WAITING → CLOSING at the deadline when clients have declined: waiting longer is pointless. */
static void end_if_declined(fedge_rounds *rounds, uint64_t now_ms)
{
    if (rounds->state != FEDGE_ROUNDS_WAITING || rounds->fail_at_ms == 0 ||
        now_ms < rounds->fail_at_ms)
        return;
    rounds->fail_at_ms = 0;
    bool any = false;
    for (uint32_t p = 0; p < rounds->num_participants; p++)
        any = any || rounds->participants[p].declined;
    if (!any)
        return; /* those that declined have joined again; other clients are missing */
    rounds->failing = true;
    rounds->num_reported = 0;
    rounds->state = FEDGE_ROUNDS_CLOSING;
    push(rounds, FEDGE_ROUNDS_FAIL, 0, false);
}

void fedge_rounds_tick(fedge_rounds *rounds, uint64_t now_ms)
{
    try_open(rounds, now_ms);
    end_if_declined(rounds, now_ms);
    if (rounds->state == FEDGE_ROUNDS_RUNNING && rounds->deadline_ms != 0 &&
        now_ms >= rounds->deadline_ms)
        end_phase(rounds);
    /* Clients at work may have left, and no report need follow. */
    if (fedge_rounds_has_buffer(rounds) && rounds->state == FEDGE_ROUNDS_RUNNING)
        fill(rounds);
    end_if_deserted(rounds, now_ms);
}

void fedge_rounds_opened(fedge_rounds *rounds, uint64_t now_ms)
{
    assert(rounds->state == FEDGE_ROUNDS_OPENING);
    rounds->state = FEDGE_ROUNDS_RUNNING;
    rounds->grace_ms = FEDGE_ROUNDS_GRACE_MS;
    start_deadline(rounds, now_ms);
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        uint32_t client_index = rounds->tasks[slot].client_index;
        if (rounds->tasks[slot].state != FEDGE_TASK_LOST) {
            /* A disconnected client gets its task when it joins. */
            if (fedge_rounds_is_connected(rounds, client_index))
                push(rounds, FEDGE_ROUNDS_SEND, slot, false);
        } else if (!fedge_rounds_has_buffer(rounds) &&
                   rounds->num_participants < rounds->participants_capacity &&
                   fedge_rounds_pick_free(rounds, &client_index)) {
            assign(rounds, slot, client_index); /* the task was lost while OPENING */
        }
    }
    if (fedge_rounds_has_buffer(rounds))
        fill(rounds);
    end_if_over(rounds);
}

/* min([base] · 2^n, [most]) milliseconds. */
static uint64_t backoff(uint64_t base, uint32_t n, uint64_t most)
{
    /* base << n fits 64 bits. */
    return n < 32 && (base << n) < most ? base << n : most;
}

/* Schedules the next attempt at a round that failed because clients gave up: the second attempt at
 * once with the remaining clients, later ones after a pause. */
static void schedule_attempt(fedge_rounds *rounds, uint64_t now_ms)
{
    const uint32_t n = rounds->num_hopeless++;
    rounds->open_at_ms =
        n == 0 ? 0 : now_ms + backoff(FEDGE_ROUNDS_PAUSE_MS, n - 1, FEDGE_ROUNDS_MAX_PAUSE_MS);
    rounds->retry_at_ms = now_ms + backoff(FEDGE_ROUNDS_RETRY_MS, n, FEDGE_ROUNDS_MAX_RETRY_MS);
}

static void cancel_stale(fedge_rounds *rounds, uint32_t slot)
{
    push(rounds, FEDGE_ROUNDS_CANCEL, slot, false);
}

/* Ends the phase's open tasks, or with a buffer carries them over into [round]. */
static void end_tasks(fedge_rounds *rounds, uint32_t round, bool goes_on)
{
    if (fedge_rounds_has_buffer(rounds) && goes_on) {
        fedge_rounds_carry_over(rounds, round, cancel_stale);
        return;
    }
    if (fedge_rounds_has_buffer(rounds))
        cancel_open(rounds);
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        if (rounds->failing || rounds->tasks[slot].state == FEDGE_TASK_OPEN)
            rounds->tasks[slot].state = FEDGE_TASK_LOST;
    }
    rounds->num_open = 0;
}

void fedge_rounds_closed(fedge_rounds *rounds, uint64_t now_ms)
{
    assert(rounds->state == FEDGE_ROUNDS_CLOSING);
    const bool train = rounds->kind == FEDGE_TASK_TRAIN;
    const bool repeat = train && rounds->failing;
    const bool evaluate = train && !rounds->failing && rounds->spec.fraction_evaluate > 0.0;
    const bool last = rounds->round == rounds->spec.num_server_rounds && !repeat && !evaluate;
    const uint32_t next = repeat || evaluate ? rounds->round : rounds->round + 1;
    const bool hopeless = repeat && rounds->hopeless;
    end_tasks(rounds, next, !rounds->draining && !last);
    if (hopeless) {
        schedule_attempt(rounds, now_ms);
    } else {
        rounds->num_hopeless = 0;
        rounds->open_at_ms = rounds->retry_at_ms = 0;
    }
    rounds->failing = rounds->hopeless = false;
    rounds->complete = last;
    /* A finished run does not open again when clients join. */
    if (rounds->draining || last) {
        fedge_rounds_keep_aside(rounds, hopeless);
        finish(rounds);
        return;
    }
    fedge_rounds_keep_carried(rounds, hopeless);
    rounds->state = FEDGE_ROUNDS_WAITING;
    rounds->attempt = repeat ? rounds->attempt + 1 : 0;
    rounds->kind = evaluate ? FEDGE_TASK_EVALUATE : FEDGE_TASK_TRAIN;
    rounds->round = next;
    try_open(rounds, now_ms);
}

void fedge_rounds_reopen(fedge_rounds *rounds, const uint32_t *slots, uint32_t num_slots,
                         uint64_t now_ms)
{
    assert(rounds->state == FEDGE_ROUNDS_CLOSING && !rounds->failing);
    assert(rounds->num_actions == 0 && !fedge_rounds_has_buffer(rounds));
    rounds->state = FEDGE_ROUNDS_RUNNING;
    rounds->hopeless = false;
    start_deadline(rounds, now_ms);
    for (uint32_t i = 0; i < num_slots; i++) {
        assert(rounds->tasks[slots[i]].state == FEDGE_TASK_REPORTED);
        rounds->tasks[slots[i]].state = FEDGE_TASK_OPEN;
    }
    rounds->num_open += num_slots;
    rounds->num_reported -= num_slots;
    /* Closing cancelled the tasks that were open, so they are sent again, too. */
    for (uint32_t slot = 0; slot < rounds->num_tasks; slot++) {
        const fedge_rounds_task *task = &rounds->tasks[slot];
        if (task->state == FEDGE_TASK_OPEN && fedge_rounds_is_connected(rounds, task->client_index))
            push(rounds, FEDGE_ROUNDS_SEND, slot, false);
    }
    end_if_over(rounds);
}

void fedge_rounds_drain(fedge_rounds *rounds)
{
    rounds->draining = true;
    if (rounds->state == FEDGE_ROUNDS_WAITING)
        finish(rounds);
}

void fedge_rounds_end_after(fedge_rounds *rounds, uint32_t round)
{
    rounds->spec.num_server_rounds = round;
}
