#include "aggregator/run/engine_phase.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/error_means.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/run/engine_async.h"
#include "aggregator/run/engine_upload.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"

void fedge_engine_free_slots(fedge_engine *engine)
{
    for (uint32_t i = 0; i < engine->num_slots; i++)
        fedge_grant_free(engine->slots[i].announced);
    fedge_intake_end(&engine->intake);
    free(engine->slots);
    engine->slots = NULL;
    engine->num_slots = 0;
}

fedge_status fedge_engine_new_slots(fedge_engine *engine, uint32_t num_slots, fedge_error *err)
{
    fedge_engine_free_slots(engine);
    engine->slots = calloc(num_slots, sizeof(*engine->slots));
    if (!engine->slots)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_slots);
    engine->num_slots = num_slots;
    return FEDGE_OK;
}

fedge_status fedge_engine_begin_intake(fedge_engine *engine, fedge_error *err)
{
    FEDGE_TRY(fedge_intake_begin(&engine->intake, engine->journal, err));
    /* A recovered journal has accepted some updates already; these are not requested again. */
    for (uint32_t i = 0; i < engine->num_slots; i++) {
        if (fedge_journal_get_slot(engine->journal, i).accepted)
            engine->slots[i].lease.state = FEDGE_LEASE_COUNTED;
    }
    return FEDGE_OK;
}

fedge_journal_task fedge_engine_journal_task(const fedge_engine *engine,
                                             const fedge_rounds_task *of)
{
    const uint32_t client_index = of->client_index;
    fedge_journal_task task = {
        .task_id = of->task_id, .client_index = client_index, .base = of->base};
    const bool present = fedge_engine_conn_of(engine, client_index) != FEDGE_CONN_ALL;
    snprintf(task.device_id, sizeof(task.device_id), "%s",
             present ? engine->devices[client_index].device_id
                     : "00000000-0000-0000-0000-000000000000");
    return task;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Opens the phase on this rank, after the others: a phase without a journal here was not opened. */
static fedge_status open_this_rank(fedge_engine *engine, fedge_error *err)
{
    /* This precedes the post: the finalizer may replace the accumulator until the phase is open. */
    if (engine->gpus_wanted)
        fedge_engine_snapshot_sums(engine, &engine->sums_snapshot);
    const fedge_status status =
        fedge_round_finalizer_open(engine->finalizer, &engine->phase, engine->other_ranks.tasks,
                                   engine->gpus_wanted ? &engine->config.sums : NULL, err);
    if (status == FEDGE_OK) {
        engine->gpus_change = engine->gpus_wanted;
        engine->gpus_wanted = false;
    }
    free(engine->other_ranks.tasks);
    engine->other_ranks.tasks = NULL;
    return status;
}

static fedge_status journal_cohort(fedge_engine *engine, fedge_error *err)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    const fedge_plan *plan = engine->server.plan;
    fedge_journal_phase *phase = &engine->phase;
    *phase = (fedge_journal_phase){.incarnation = engine->server.run.incarnation,
                                   .round = fedge_rounds_round(engine->rounds),
                                   .attempt = fedge_rounds_attempt(engine->rounds),
                                   .wanted = fedge_rounds_wanted(engine->rounds),
                                   .slot_size = fedge_update_max_size(plan),
                                   .num_tasks = num_tasks,
                                   .buffered = fedge_engine_has_buffer(engine),
                                   .by_cohort = engine->server.model.strategy->by_cohort,
                                   .draw = fedge_rounds_draw(engine->rounds),
                                   .num_bounds = plan->sent.schema.num_tensors};
    fedge_upload_set_phase(&engine->server.model, phase);
    memcpy(phase->run_id, engine->server.run.run_id, sizeof(phase->run_id));
    memcpy(phase->model, engine->model_hash, sizeof(phase->model));
    /* The journal has the bounds, since they follow from a model that a replay may no longer have,
     * and updates decode only with the bounds that they were encoded with. */
    fedge_sections_bounds(plan, engine->server.model.values, phase->bounds_log2);
    fedge_journal_task *tasks = calloc(num_tasks, sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++)
        tasks[i] = fedge_engine_journal_task(engine, &cohort[i]);
    free(engine->other_ranks.tasks);
    engine->other_ranks.tasks = tasks;
    return fedge_engine_open_other_ranks(engine) ? FEDGE_OK : open_this_rank(engine, err);
}

/* Starts the clock and the byte counters of a phase. */
static void begin_counting(fedge_engine *engine, uint64_t now_ms)
{
    engine->phase_started_ms = now_ms;
    engine->phase_bytes_up = atomic_load(&engine->config.traffic->up);
    engine->phase_bytes_down = atomic_load(&engine->config.traffic->down);
}

static fedge_status open_phase(fedge_engine *engine, fedge_task_kind kind, uint64_t now_ms,
                               fedge_error *err)
{
    uint32_t num_tasks = 0;
    (void)fedge_rounds_cohort(engine->rounds, &num_tasks);
    begin_counting(engine, now_ms);
    FEDGE_TRY(fedge_engine_new_slots(engine, num_tasks, err));
    if (kind == FEDGE_TASK_TRAIN)
        return journal_cohort(engine, err);
    /* An evaluation has no journal: what a crash loses of it is requested again. */
    fedge_rounds_opened(engine->rounds, now_ms);
    return FEDGE_OK;
}

static void wait_for_space(fedge_engine *engine, const fedge_error *why, uint64_t now_ms)
{
    /* Logged once for each wait, not for each attempt. */
    if (!engine->waiting_for_space)
        fedge_log_failure(engine->config.log, FEDGE_LOG_WARN, "round-waits-for-disk", why);
    engine->waiting_for_space = true;
    snprintf(engine->missing_space, sizeof(engine->missing_space), "%s", why->message);
    engine->retry_open_ms = now_ms + FEDGE_ENGINE_SPACE_RETRY_MS;
}

void fedge_engine_other_ranks_opened(fedge_engine *engine, uint64_t now_ms)
{
    fedge_error err;
    const fedge_error *worst = &engine->other_ranks.worst;
    if (worst->status == FEDGE_NO_SPACE)
        wait_for_space(engine, worst, now_ms);
    else if (worst->status != FEDGE_OK)
        fedge_engine_fail(engine, worst);
    else if (open_this_rank(engine, &err) != FEDGE_OK)
        fedge_engine_fail(engine, &err);
}

void fedge_engine_on_opened(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms)
{
    fedge_round_finalizer_result *result = completion->result;
    fedge_error err = {.status = completion->status};
    memcpy(err.message, completion->message, sizeof(err.message));
    if (completion->status == FEDGE_OK || completion->status == FEDGE_NO_SPACE)
        engine->gpus_change = false; /* other failures may leave no accumulator */
    if (completion->status == FEDGE_NO_SPACE) {
        wait_for_space(engine, &err, now_ms);
        return;
    }
    engine->waiting_for_space = false;
    if (completion->status != FEDGE_OK) {
        fedge_engine_fail(engine, &err);
        return;
    }
    assert(!engine->journal && result->journal);
    engine->journal = result->journal;
    result->journal = NULL;
    if (fedge_engine_begin_intake(engine, &err) != FEDGE_OK) {
        fedge_engine_fail(engine, &err);
        return;
    }
    FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "round-opened",
              fedge_log_int("round", engine->phase.round),
              fedge_log_int("attempt", engine->phase.attempt),
              fedge_log_int("clients", engine->phase.num_tasks),
              fedge_log_str("model", engine->phase.model));
    /* Tasks are sent from here on: their updates need the journal. */
    fedge_rounds_opened(engine->rounds, now_ms);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void finish(fedge_engine *engine)
{
    bool complete = fedge_rounds_is_complete(engine->rounds);
    FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, complete ? "run-complete" : "drained",
              fedge_log_int("rounds", engine->rounds_closed));
    fedge_engine_close_conn(engine, FEDGE_CONN_ALL, FEDGE_MESSAGE_BYE,
                            complete ? FEDGE_REASON_RUN_COMPLETE : FEDGE_REASON_SHUTTING_DOWN,
                            complete ? 0 : 10000, complete ? "the run is complete" : "drained");
    engine->done = true;
}

/* Opens a round that waits for the disk, or ends a draining run instead: no task was sent yet. */
static void retry_open(fedge_engine *engine, uint64_t now_ms)
{
    fedge_error err;
    if (engine->retry_open_ms == 0)
        return;
    if (engine->draining) {
        finish(engine);
    } else if (now_ms >= engine->retry_open_ms) {
        /* This comes before the attempt, which sets it again if space is still missing. */
        engine->retry_open_ms = 0;
        if (journal_cohort(engine, &err) != FEDGE_OK)
            fedge_engine_fail(engine, &err);
    }
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void offer_delta(const fedge_engine *engine, uint32_t index, fedge_task *task)
{
    if (task->num_deltas == FEDGE_MAX_DELTAS)
        return;
    fedge_delta_ref *delta = &task->deltas[task->num_deltas++];
    delta->size = engine->deltas[index]->size;
    memcpy(delta->base, engine->bases[index], sizeof(delta->base));
    memcpy(delta->hash, engine->deltas[index]->hash, sizeof(delta->hash));
}

/* Offers the delta from the model of the device's last task first, then those from the newest
 * models. */
static void offer_deltas(const fedge_engine *engine, fedge_engine_device *device, fedge_task *task)
{
    const uint32_t present = engine->model_number + 1;
    if (device->model != present) { /* if equal, the task is sent again */
        device->before = device->model;
        device->model = present;
    }
    /* A device without a task so far has the initial model, if clients can make it. */
    const uint32_t before = device->before > 0 ? device->before : engine->initial[0] != '\0';
    const uint32_t age = before > 0 ? present - before : 0;
    const bool known = age > 0 && age <= engine->num_deltas;
    if (known)
        offer_delta(engine, age - 1, task);
    for (uint32_t i = 0; i < engine->num_deltas; i++) {
        if (!known || i != age - 1)
            offer_delta(engine, i, task);
    }
}

static void send_task(fedge_engine *engine, const fedge_rounds_action *action, uint64_t now_ms)
{
    fedge_error err;
    const fedge_rounds_task *of = fedge_rounds_find(engine->rounds, action->task_id, NULL);
    fedge_blob *model = of ? fedge_engine_model_of(engine, of->base) : NULL;
    if (!model)
        return; /* the task is over */
    assert(action->slot < engine->num_slots);
    fedge_engine_slot *slot = &engine->slots[action->slot];
    if (action->fresh && action->kind == FEDGE_TASK_TRAIN) {
        /* No sync is needed: the acceptance of its update follows in the same log, and a crash
         * before that loses a task of which nothing was acknowledged. */
        const fedge_journal_task task = fedge_engine_journal_task(engine, of);
        if (fedge_intake_assign(&engine->intake, action->slot, &task, &err) != FEDGE_OK) {
            fedge_engine_fail(engine, &err);
            return;
        }
    }
    /* A task that is sent again keeps the received bytes of its upload: the client resumes there.
     */
    if (slot->task_id != action->task_id) {
        *slot = (fedge_engine_slot){.task_id = action->task_id,
                                    .lease = slot->lease,
                                    .announced = slot->announced,
                                    .timed = slot->timed,
                                    .seconds_upload = slot->seconds_upload};
    }
    const uint64_t conn_id = fedge_engine_conn_of(engine, action->client_index);
    if (conn_id == FEDGE_CONN_ALL)
        return; /* the client gets the task when it comes back */
    fedge_engine_device *device = &engine->devices[action->client_index];
    if (fedge_engine_has_buffer(engine) && device->sent_task_id == action->task_id)
        return; /* the client has worked on it since an earlier round */
    device->sent_task_id = action->task_id;
    if (engine->gave_up_client == action->client_index)
        engine->gave_up[0] = '\0'; /* the client tries again */
    /* With a buffer a task has no deadline, and belongs to the round that its model was for. */
    const bool buffered = fedge_engine_has_buffer(engine);
    const uint64_t deadline_ms = buffered ? 0 : fedge_rounds_deadline_ms(engine->rounds);
    const uint32_t round = buffered ? of->base + 1 : action->round;
    const fedge_plan *plan = engine->server.plan;
    fedge_reply reply = {0};
    fedge_task *task = &reply.task;
    *task = (fedge_task){.task_id = action->task_id,
                         .kind = action->kind,
                         .round = round,
                         .model_size = model->size,
                         .control_size = engine->server.control_size,
                         /* The time left, as the clocks of boards are seldom right. */
                         .deadline_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0,
                         .learning_rate = fedge_plan_learning_rate(plan, round)};
    memcpy(task->model, model->hash, sizeof(task->model));
    offer_deltas(engine, device, task);
    if (model->parts) {
        memcpy(task->parts, model->parts->hash, sizeof(task->parts));
        task->parts_size = model->parts->size;
    }
    if (fedge_plan_has_client_state(plan) &&
        (action->kind == FEDGE_TASK_TRAIN || fedge_plan_is_personal(plan))) {
        task->has_last_accepted = true;
        task->last_accepted =
            fedge_last_accepted_task(&engine->server.last_accepted, action->client_index);
    }
    /* Without them a client has the same bounds of the plan and the model. */
    if (action->kind == FEDGE_TASK_TRAIN && plan->sent.num_sections > 1 &&
        engine->phase.num_bounds <= FEDGE_MAX_TASK_BOUNDS) {
        task->num_bounds = engine->phase.num_bounds;
        memcpy(task->bounds_log2, engine->phase.bounds_log2, task->num_bounds);
    }
    fedge_engine_send(engine, conn_id, FEDGE_MESSAGE_TASK, &reply);
}

void fedge_engine_resend_task(fedge_engine *engine, uint32_t index, uint64_t now_ms)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *task = &fedge_rounds_cohort(engine->rounds, &num_tasks)[index];
    const fedge_rounds_action action = {.kind = fedge_rounds_kind(engine->rounds),
                                        .round = fedge_rounds_round(engine->rounds),
                                        .task_id = task->task_id,
                                        .client_index = task->client_index,
                                        .slot = index};
    /* Otherwise send_task assumes that the device is at work on it. */
    if (task->client_index < engine->num_devices)
        engine->devices[task->client_index].sent_task_id = 0;
    send_task(engine, &action, now_ms);
}

static void cancel_task(fedge_engine *engine, const fedge_rounds_action *action)
{
    const uint64_t conn_id = fedge_engine_conn_of(engine, action->client_index);
    if (conn_id != FEDGE_CONN_ALL) {
        fedge_notice notice = {.has_task = true,
                               .task_id = action->task_id,
                               .reason = FEDGE_REASON_STALE_TASK,
                               .text = "the round goes on without this result"};
        fedge_engine_send_notice(engine, conn_id, FEDGE_MESSAGE_CANCEL, &notice);
    }
}

/* ---- closing --------------------------------------------------------------------------------- */

static double mean_upload_seconds(const fedge_engine *engine)
{
    double sum = 0.0, count = 0.0;
    for (uint32_t i = 0; i < engine->num_slots; i++) {
        if (engine->slots[i].timed) {
            sum += engine->slots[i].seconds_upload;
            count += 1.0;
        }
    }
    return count > 0.0 ? sum / count : NAN;
}

static fedge_round_summary begin_summary(const fedge_engine *engine,
                                         const fedge_rounds_action *action, uint64_t now_ms)
{
    return (fedge_round_summary){
        .round = action->round,
        .attempt = action->attempt,
        .kind = action->kind,
        .asked = engine->num_slots,
        .bytes_up = atomic_load(&engine->config.traffic->up) - engine->phase_bytes_up,
        .bytes_down = atomic_load(&engine->config.traffic->down) - engine->phase_bytes_down,
        .seconds = (double)(now_ms - engine->phase_started_ms) * 1e-3,
        .seconds_upload = mean_upload_seconds(engine),
        .loss = NAN,
        .accuracy = NAN,
        .train_loss = NAN,
        .train_accuracy = NAN,
        .seconds_train = NAN,
        .seconds_encode = NAN,
    };
}

/* Means over the clients' own examples, in slot order. A sum of doubles depends on its order, and
 * arrival would be another order each time. */
static void summarise_evaluation(const fedge_engine *engine, fedge_round_summary *summary)
{
    double loss = 0.0, correct = 0.0;
    uint32_t num_tasks = 0;
    fedge_error_means errors = {{0}, {0}};
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    double *each = malloc(((size_t)num_tasks + 1) * sizeof(*each)); /* NULL: no quantiles */
    for (uint32_t i = 0; i < num_tasks && i < engine->num_slots; i++) {
        const fedge_engine_slot *slot = &engine->slots[i];
        if (cohort[i].state == FEDGE_TASK_REPORTED) {
            if (each)
                each[summary->reported] = slot->accuracy;
            summary->reported++;
            summary->examples += slot->examples;
            loss += slot->loss * (double)slot->examples;
            correct += slot->accuracy * (double)slot->examples;
            fedge_error_means_add(&errors, slot->errors, (double)slot->examples);
        }
    }
    if (summary->examples > 0) {
        summary->loss = loss / (double)summary->examples;
        summary->accuracy = fedge_has_accuracy(&engine->config.job->plan)
                                ? correct / (double)summary->examples
                                : NAN;
    }
    if (summary->examples > 0 && fedge_plan_has_errors(&engine->config.job->plan)) {
        double values[FEDGE_ERROR_METRICS];
        fedge_error_means_get(&errors, values);
        fedge_metrics_set_errors(&summary->metrics, values);
    }
    if (each && fedge_has_accuracy(&engine->config.job->plan))
        fedge_accuracy_quantiles_measure(&summary->quantiles, each, summary->reported);
    free(each);
}

static void log_closed(const fedge_engine *engine, const fedge_round_summary *summary, bool failed)
{
    const char *event = failed                              ? "round-failed"
                        : summary->kind == FEDGE_TASK_TRAIN ? "round-closed"
                                                            : "evaluation-closed";
    fedge_log_field fields[9] = {fedge_log_int("round", summary->round),
                                 fedge_log_int("asked", summary->asked),
                                 fedge_log_int("clients", summary->reported)};
    size_t num = 3;
    /* Values that were not measured are left out. A loss alone is NaN if the model has diverged. */
    const bool evaluated = !isnan(summary->loss) || !isnan(summary->accuracy);
    if (!isnan(summary->accuracy))
        fields[num++] = fedge_log_num("accuracy", summary->accuracy);
    if (evaluated)
        fields[num++] = fedge_log_num("loss", summary->loss);
    fields[num++] = fedge_log_int("bytes-up", (int64_t)summary->bytes_up);
    fields[num++] = fedge_log_int("bytes-down", (int64_t)summary->bytes_down);
    fields[num++] = fedge_log_num("seconds", summary->seconds);
    if (summary->model[0])
        fields[num++] = fedge_log_str("model", summary->model);
    fedge_log_write(engine->config.log, failed ? FEDGE_LOG_WARN : FEDGE_LOG_INFO, event, fields,
                    num);
}

static void end_phase(fedge_engine *engine, const fedge_rounds_action *action,
                      fedge_round_summary summary)
{
    fedge_error err;
    fedge_status status;
    if (action->kind == FEDGE_TASK_EVALUATE) {
        summarise_evaluation(engine, &summary);
        status = fedge_round_finalizer_log(engine->finalizer, &summary, &err);
    } else if (action->type == FEDGE_ROUNDS_CLOSE) {
        status = fedge_round_finalizer_step(engine->finalizer, engine->journal, &summary, &err);
    } else {
        status = fedge_round_finalizer_drop(engine->finalizer, engine->journal, &summary, &err);
    }
    /* Without a journal uploads are refused as stale: it is being sealed on another thread. */
    if (status != FEDGE_OK)
        fedge_engine_fail(engine, &err);
    else if (action->kind == FEDGE_TASK_TRAIN)
        engine->journal = NULL; /* the round finalizer owns it now */
}

static void close_phase(fedge_engine *engine, const fedge_rounds_action *action, uint64_t now_ms)
{
    const bool opened = engine->num_slots > 0;
    if (!opened)
        begin_counting(engine, now_ms);
    const fedge_round_summary summary = begin_summary(engine, action, now_ms);
    const bool dropped = action->type != FEDGE_ROUNDS_CLOSE;
    engine->other_ranks.closing = false;
    if (action->kind == FEDGE_TASK_TRAIN && !opened) {
        log_closed(engine, &summary, true); /* the phase left no trace on any rank */
        fedge_rounds_closed(engine->rounds, now_ms);
    } else if (action->kind == FEDGE_TASK_TRAIN &&
               fedge_engine_close_other_ranks(engine, dropped)) {
        engine->other_ranks.closing = true;
        engine->other_ranks.ending = *action;
        engine->other_ranks.summary = summary;
    } else {
        end_phase(engine, action, summary);
    }
}

/* All results of the other ranks were reported before: they are in the journal. */
void fedge_engine_other_ranks_closed(fedge_engine *engine)
{
    engine->other_ranks.closing = false;
    end_phase(engine, &engine->other_ranks.ending, engine->other_ranks.summary);
}

/* Records which results counted, for clients that missed their ACK. */
static void remember_accepted(fedge_engine *engine)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    free(engine->accepted);
    engine->num_accepted = 0;
    engine->accepted = calloc(num_tasks, sizeof(*engine->accepted));
    for (uint32_t i = 0; engine->accepted && i < num_tasks; i++) {
        if (cohort[i].state == FEDGE_TASK_REPORTED) {
            engine->accepted[engine->num_accepted++] = (fedge_engine_accepted){
                .task_id = cohort[i].task_id, .client_index = cohort[i].client_index};
        }
    }
}

/* Withdraws downloads of the old model, so that memory has one model however slowly clients read.
 */
static void replace_model(fedge_engine *engine, fedge_round_finalizer_result *result)
{
    for (uint32_t i = 0; i < engine->num_deltas; i++) {
        fedge_engine_withdraw(engine, engine->deltas[i]);
        fedge_blob_release(engine->deltas[i]);
    }
    engine->model_number++;
    /* deltas[i] starts from the model of i + 1 rounds ago, whose hash is bases[i]. */
    memmove(engine->bases[1], engine->bases[0], sizeof(engine->bases) - sizeof(engine->bases[0]));
    memcpy(engine->bases[0], engine->model->hash, sizeof(engine->bases[0]));
    memcpy(engine->deltas, result->deltas, sizeof(engine->deltas));
    engine->num_deltas = result->num_deltas;
    result->num_deltas = 0;
    /* In a buffered run a task that is still open may have it as its base. */
    if (!fedge_engine_keep_old_model(engine)) {
        fedge_engine_withdraw(engine, engine->model);
        fedge_blob_release(engine->model);
    }
    engine->model = result->model;
    result->model = NULL;
}

/* Reopens a phase that was closing: updates that the disk has damaged are requested again. */
static fedge_status reopen_phase(fedge_engine *engine, fedge_round_finalizer_result *result,
                                 uint64_t now_ms, fedge_error *err)
{
    uint32_t num_tasks = 0, num_damaged = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    engine->journal = result->journal;
    result->journal = NULL;
    FEDGE_TRY(fedge_engine_new_slots(engine, num_tasks, err));
    FEDGE_TRY(fedge_engine_begin_intake(engine, err));
    uint32_t *damaged = malloc(((size_t)num_tasks + 1) * sizeof(*damaged));
    if (!damaged)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (cohort[i].state == FEDGE_TASK_REPORTED &&
            !fedge_journal_get_slot(engine->journal, i).accepted)
            damaged[num_damaged++] = i;
    }
    fedge_rounds_reopen(engine->rounds, damaged, num_damaged, now_ms);
    free(damaged);
    return FEDGE_OK;
}

void fedge_engine_on_closed(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms)
{
    fedge_round_finalizer_result *result = completion->result;
    fedge_error err = {.status = completion->status};
    memcpy(err.message, completion->message, sizeof(err.message));
    if (completion->status != FEDGE_OK) {
        fedge_engine_fail(engine, &err);
        return;
    }
    if (result->journal) {
        if (reopen_phase(engine, result, now_ms, &err) != FEDGE_OK)
            fedge_engine_fail(engine, &err);
        return;
    }
    const fedge_round_summary *summary = &result->summary;
    if (result->model) {
        replace_model(engine, result);
        memcpy(engine->model_hash, summary->model, sizeof(engine->model_hash));
    }
    log_closed(engine, summary, result->failed);
    if (summary->kind == FEDGE_TASK_EVALUATE)
        fedge_engine_check_evaluation(engine, summary);
    engine->run_bytes_up += summary->bytes_up;
    engine->run_bytes_down += summary->bytes_down;
    if (summary->kind == FEDGE_TASK_TRAIN && !result->failed) {
        engine->rounds_closed = summary->round;
        fedge_engine_note_round(engine, (uint64_t)(summary->seconds * 1e3));
        engine->gave_up[0] = '\0';
        engine->loss = summary->loss;
        engine->accuracy = summary->accuracy;
        remember_accepted(engine);
    }
    if (!result->failed)
        fedge_engine_send_round(engine, summary);
    if (result->over)
        fedge_engine_stop_early(engine);
    fedge_engine_defer_uploads(engine);
    fedge_engine_free_slots(engine);
    /* Last, since this may open the next phase, which wants new slots and the new model. */
    fedge_rounds_closed(engine->rounds, now_ms);
    fedge_engine_drop_old_models(engine);
}

void fedge_engine_pump(fedge_engine *engine, uint64_t now_ms)
{
    fedge_rounds_action action;
    fedge_error err;
    /* This comes before the actions: a round that waits for the disk has none. */
    if (!engine->done)
        retry_open(engine, now_ms);
    while (!engine->done && fedge_rounds_next(engine->rounds, &action)) {
        switch (action.type) {
        case FEDGE_ROUNDS_OPEN:
            if (open_phase(engine, action.kind, now_ms, &err) != FEDGE_OK)
                fedge_engine_fail(engine, &err);
            break;
        case FEDGE_ROUNDS_SEND:
            send_task(engine, &action, now_ms);
            break;
        case FEDGE_ROUNDS_CANCEL:
            cancel_task(engine, &action);
            break;
        case FEDGE_ROUNDS_CLOSE:
        case FEDGE_ROUNDS_FAIL:
            close_phase(engine, &action, now_ms);
            break;
        case FEDGE_ROUNDS_FINISH:
            finish(engine);
            break;
        }
    }
}

/* ---- clients that may be away ---------------------------------------------------------------- */

void fedge_engine_note_round(fedge_engine *engine, uint64_t took_ms)
{
    /* Errs on the short side: a client that is back too soon waits; one too late misses the next
     * round. */
    const bool less = engine->round_ms == 0 || took_ms < engine->round_ms;
    engine->round_ms = less ? took_ms : engine->round_ms + (took_ms - engine->round_ms) / 4;
}

/* How long a device without a task may be away, in ms; 0: it stays. It should be back when the
 * present phase is expected to end: the next phase draws from the devices present when it opens. A
 * device may come back up to an eighth late, so the time sent is shorter by that. */
static uint64_t not_before(const fedge_engine *engine, uint64_t now_ms)
{
    /* How long evaluations take is not known, and a round of training follows. */
    if (fedge_rounds_kind(engine->rounds) != FEDGE_TASK_TRAIN)
        return 0;
    const uint64_t passed = now_ms - engine->phase_started_ms;
    const uint64_t deadline_ms = fedge_rounds_deadline_ms(engine->rounds);
    const uint64_t most = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    uint64_t absence = FEDGE_ENGINE_FIRST_NOT_BEFORE_MS;
    if (engine->round_ms > 0)
        absence = engine->round_ms > passed ? engine->round_ms - passed : 0;
    absence = absence < most ? absence : most;
    /* A client that is back this little too soon stays. */
    return absence < FEDGE_ENGINE_MIN_NOT_BEFORE_MS || absence < engine->round_ms / 8
               ? 0
               : absence - absence / 9;
}

/* A device that has announced until when it cannot work may be away that long, if it is longer. */
static uint64_t not_before_of(const fedge_engine *engine, uint32_t index, uint64_t now_ms)
{
    const uint64_t absence = not_before(engine, now_ms);
    const uint64_t until = fedge_rounds_not_before(engine->rounds, index);
    const bool away = until != UINT64_MAX && until >= now_ms + FEDGE_ENGINE_MIN_NOT_BEFORE_MS;
    return away && until - now_ms > absence ? until - now_ms : absence;
}

static void mark(fedge_engine *engine, bool at_work)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (cohort[i].client_index < engine->num_devices && cohort[i].state == FEDGE_TASK_OPEN)
            engine->devices[cohort[i].client_index].at_work = at_work;
    }
}

void fedge_engine_send_not_before(fedge_engine *engine, uint64_t now_ms)
{
    if (fedge_rounds_get_state(engine->rounds) != FEDGE_ROUNDS_RUNNING ||
        now_ms < engine->not_before_checked_ms + FEDGE_ENGINE_NOT_BEFORE_CHECK_MS ||
        now_ms < engine->phase_started_ms + FEDGE_ENGINE_NOT_BEFORE_CHECK_MS)
        return;
    engine->not_before_checked_ms = now_ms;
    mark(engine, true);
    for (uint32_t i = 0; i < engine->num_devices; i++) {
        const fedge_engine_device *device = &engine->devices[i];
        if (device->conn_id == FEDGE_CONN_ALL || !device->hangs_up || device->at_work)
            continue;
        const uint64_t absence = not_before_of(engine, i, now_ms);
        if (absence > 0) {
            fedge_engine_close_conn(engine, device->conn_id, FEDGE_MESSAGE_BYE,
                                    FEDGE_REASON_COME_LATER, absence,
                                    "this round has no task for the client");
        }
    }
    mark(engine, false);
}
