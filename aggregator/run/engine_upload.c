#include "aggregator/run/engine_upload.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/run/engine_async.h"
#include "aggregator/run/engine_phase.h"
#include "edge/plan/update.h"

/* Notes why a client gave up, for the state of a round that waits. [text] may come from the device.
 */
static void note_why(fedge_engine *engine, uint32_t client_index, fedge_reason reason,
                     const char *text)
{
    snprintf(engine->gave_up, sizeof(engine->gave_up), "client %u: %s: %.140s", client_index,
             fedge_reason_name(reason), text);
    fedge_text_plain(engine->gave_up);
    engine->gave_up_client = client_index;
}

/* Logs the refusal of an update whose device has left. All such lines share one quota: devices that
 * come and go must not fill the log. */
static void log_refusal(fedge_engine *engine, uint64_t task_id, fedge_reason reason,
                        const char *text, uint64_t now_ms)
{
    engine->updates_refused++;
    if (!fedge_quota_take(&engine->refusal_lines, FEDGE_ENGINE_REFUSAL_LINES,
                          FEDGE_ENGINE_REFUSAL_LINES, now_ms))
        return;
    FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "update-refused",
              fedge_log_int("task", (int64_t)task_id), fedge_log_str("device", "gone"),
              fedge_log_str("reason", fedge_reason_name(reason)), fedge_log_str("error", text));
}

static void refuse_task(fedge_engine *engine, uint64_t conn_id, uint32_t client_index,
                        uint64_t task_id, fedge_reason reason, const char *text)
{
    engine->updates_refused++;
    /* A client whose refusal is final would be refused again: it is selected last until it
     * reconnects. After other refusals it comes back by itself. */
    if (strcmp(fedge_reason_class(reason), "never") == 0) {
        note_why(engine, client_index, reason, text);
        fedge_rounds_defer(engine->rounds, client_index, UINT64_MAX);
    }
    fedge_notice notice = {.has_task = true, .task_id = task_id, .reason = reason};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    fedge_engine_send_notice(engine, conn_id, FEDGE_MESSAGE_REFUSE, &notice);
}

static void refuse_upload(fedge_engine *engine, const fedge_request *from, fedge_reason reason,
                          const char *text)
{
    refuse_task(engine, from->conn_id, from->client_index, from->message.upload->task_id, reason,
                text);
}

static void refuse_for_memory(fedge_engine *engine, const fedge_request *from, const char *text)
{
    fedge_engine_close_conn(engine, from->conn_id, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BUSY, 1000,
                            text);
}

static void acknowledge(fedge_engine *engine, uint64_t conn_id, uint64_t task_id, bool duplicate)
{
    engine->updates_duplicate += duplicate;
    if (conn_id != FEDGE_CONN_ALL) {
        const fedge_reply reply = {.ack = {.task_id = task_id, .duplicate = duplicate}};
        fedge_engine_send(engine, conn_id, FEDGE_MESSAGE_ACK, &reply);
    }
}

/* Answers a result that is durable, or need not be: ACK when it counts in the open phase. A result
 * of a dropped phase is dropped with it. True: the result counts for the first time. */
static bool answer_result(fedge_engine *engine, uint64_t conn_id, uint32_t client_index,
                          uint64_t task_id, bool duplicate, uint64_t now_ms)
{
    fedge_error err;
    const fedge_status status = fedge_rounds_report(engine->rounds, task_id, &err);
    if (status == FEDGE_OK || status == FEDGE_DUPLICATE)
        acknowledge(engine, conn_id, task_id, duplicate);
    else if (conn_id == FEDGE_CONN_ALL)
        log_refusal(engine, task_id, FEDGE_REASON_STALE_TASK, err.message, now_ms);
    else
        refuse_task(engine, conn_id, client_index, task_id, FEDGE_REASON_STALE_TASK, err.message);
    return status == FEDGE_OK;
}

/* Gives up a task that will have no result: its slot may go to another client. */
static void lose_now(fedge_engine *engine, uint64_t task_id, uint64_t now_ms)
{
    fedge_error err;
    if (fedge_rounds_give_up(engine->rounds, task_id, &err) != FEDGE_OK) {
        FEDGE_LOG(engine->config.log, FEDGE_LOG_DEBUG, "task-already-over",
                  fedge_log_int("task", (int64_t)task_id), fedge_log_str("why", err.message));
    }
    fedge_engine_pump(engine, now_ms);
}

/* True when this task's result counted in the phase before, and came from this client. */
static bool was_accepted(const fedge_engine *engine, uint64_t task_id, uint32_t client_index)
{
    for (uint32_t i = 0; i < engine->num_accepted; i++) {
        if (engine->accepted[i].task_id == task_id)
            return engine->accepted[i].client_index == client_index;
    }
    return false;
}

/* ---- UPLOAD ---------------------------------------------------------------------------------- */

static void take_evaluation(fedge_engine *engine, const fedge_request *from,
                            fedge_engine_slot *slot, uint64_t now_ms)
{
    const fedge_upload *upload = from->message.upload;
    double loss = fedge_upload_metric(upload, "loss");
    double accuracy = fedge_upload_metric(upload, "accuracy");
    if (upload->num_examples == 0 || !isfinite(loss) || !(accuracy >= 0.0 && accuracy <= 1.0)) {
        refuse_upload(engine, from, FEDGE_REASON_SCHEMA_MISMATCH,
                      "an evaluation has at least one example, and the metrics loss and accuracy");
        lose_now(engine, upload->task_id, now_ms);
        return;
    }
    slot->loss = loss;
    slot->accuracy = accuracy;
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++)
        slot->errors[i] = fedge_upload_metric(upload, fedge_error_metric_names[i]);
    slot->examples = fedge_report_weight(engine->config.job, upload->num_examples);
    engine->updates_accepted +=
        answer_result(engine, from->conn_id, from->client_index, upload->task_id, false, now_ms);
    fedge_engine_pump(engine, now_ms);
}

/* True when the workers of this rank have all bytes of the slot's update, or a result counts. */
static bool is_with_workers(const fedge_engine *engine, uint32_t index)
{
    return (index < engine->intake.num_slots && engine->intake.slots[index].holder.finishing) ||
           (index < engine->num_slots && engine->slots[index].lease.state == FEDGE_LEASE_COUNTED);
}

/* The weight of the update in the open phase, which may be later than the task's. */
static uint32_t weigh(const fedge_engine *engine, const fedge_upload *upload,
                      const fedge_rounds_task *task)
{
    const fedge_update_facts facts = fedge_upload_facts(
        &engine->server.model, upload, engine->phase.round, task->client_index, task->base);
    return fedge_update_weight(&engine->server.model, &facts);
}

static fedge_grant *new_grant(const fedge_engine *engine, const fedge_request *from, uint32_t index)
{
    const fedge_upload *upload = from->message.upload;
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, upload->task_id, NULL);
    fedge_grant *grant = calloc(1, sizeof(*grant));
    fedge_ingest_upload *incoming = malloc(sizeof(*incoming));
    if (!grant || !incoming) {
        free(grant);
        free(incoming);
        return NULL;
    }
    *grant = (fedge_grant){.slot = index,
                           .task = fedge_engine_journal_task(engine, task),
                           .conn_id = from->conn_id,
                           .incoming = incoming};
    incoming->upload = *upload;
    incoming->weight = weigh(engine, upload, task);
    incoming->meta_size = from->meta_size;
    memcpy(incoming->meta, from->meta, from->meta_size);
    return grant;
}

/* Answers the last announcement for a slot that is filled. */
static void answer_announced(fedge_engine *engine, uint32_t index, uint64_t now_ms)
{
    fedge_engine_slot *slot = &engine->slots[index];
    fedge_grant *announced = slot->announced;
    slot->announced = NULL;
    if (!announced)
        return;
    (void)answer_result(engine, announced->conn_id, announced->task.client_index,
                        announced->task.task_id, true, now_ms);
    fedge_grant_free(announced);
}

/* Carries out an action of the slot's lease. */
static void act(fedge_engine *engine, uint32_t index, fedge_slot_lease_action action,
                uint64_t now_ms)
{
    fedge_error err;
    fedge_engine_slot *slot = &engine->slots[index];
    if (action == FEDGE_LEASE_RECALL && slot->lease.rank == 0 &&
        fedge_intake_recall(&engine->intake, index))
        action = fedge_slot_lease_released(&slot->lease, 0);
    if (action == FEDGE_LEASE_ANSWER_FILLED) {
        answer_announced(engine, index, now_ms);
    } else if (action == FEDGE_LEASE_GIVE_UP) {
        lose_now(engine, slot->lease.task_id, now_ms);
    } else if (action == FEDGE_LEASE_RECALL && slot->lease.rank != 0) {
        fedge_engine_recall(engine, index);
    } else if (action == FEDGE_LEASE_GRANT) {
        fedge_grant *grant = slot->announced;
        slot->announced = NULL;
        grant->number = slot->lease.number;
        if (slot->lease.rank != 0)
            fedge_engine_grant(engine, slot->lease.rank, grant);
        else if (fedge_intake_grant(&engine->intake, grant, now_ms, &err) != FEDGE_OK)
            fedge_engine_fail(engine, &err);
        fedge_grant_free(grant);
    }
}

/* The same, once no other rank can report the task's update: it could count beside that of a new
 * task of the same client. */
static void lose(fedge_engine *engine, uint64_t task_id, uint64_t now_ms)
{
    uint32_t index = 0;
    if (!fedge_rounds_find(engine->rounds, task_id, &index) || index >= engine->num_slots) {
        lose_now(engine, task_id, now_ms);
        return;
    }
    fedge_engine_slot *slot = &engine->slots[index];
    const fedge_slot_lease_action action = fedge_slot_lease_give_up(&slot->lease, task_id);
    act(engine, index, action, now_ms);
    if (action != FEDGE_LEASE_GIVE_UP) {
        fedge_grant_free(slot->announced);
        slot->announced = NULL;
    }
}

/* Requests the slot's lease. Its holder then answers RESUME with the first missing byte. */
static void ask_for(fedge_engine *engine, fedge_grant *grant, uint64_t now_ms)
{
    fedge_engine_slot *slot = &engine->slots[grant->slot];
    /* A repeated announcement, on a new connection for example, replaces the first. */
    fedge_grant_free(slot->announced);
    slot->announced = grant;
    act(engine, grant->slot,
        fedge_slot_lease_request(&slot->lease, fedge_engine_rank_of(engine, grant->conn_id),
                                 grant->task.task_id),
        now_ms);
}

static bool takes_updates(const fedge_engine *engine)
{
    return engine->journal && !engine->other_ranks.closing;
}

static void begin_upload(fedge_engine *engine, const fedge_request *from, uint32_t index,
                         uint64_t now_ms)
{
    fedge_grant *grant = new_grant(engine, from, index);
    if (!grant)
        refuse_for_memory(engine, from, "out of memory");
    else if (takes_updates(engine))
        ask_for(engine, grant, now_ms);
    else
        fedge_engine_defer_upload(engine, grant);
}

void fedge_engine_resume_deferred(fedge_engine *engine, uint64_t now_ms)
{
    fedge_grant **deferred = NULL;
    uint32_t num = 0;
    if (!takes_updates(engine))
        return;
    fedge_engine_take_deferred(engine, &deferred, &num);
    for (uint32_t i = 0; i < num; i++) {
        fedge_grant *grant = deferred[i];
        /* The update counts in a later round than it was announced in: its base is older, and its
         * weight changes. */
        const fedge_rounds_task *task =
            fedge_rounds_find(engine->rounds, grant->task.task_id, NULL);
        grant->task = fedge_engine_journal_task(engine, task);
        grant->incoming->weight = weigh(engine, &grant->incoming->upload, task);
        ask_for(engine, grant, now_ms);
    }
    free(deferred);
}

static void take_update(fedge_engine *engine, const fedge_request *from, uint32_t index,
                        uint64_t now_ms)
{
    const fedge_upload *upload = from->message.upload;
    fedge_error err;
    if (!takes_updates(engine) && !fedge_engine_has_buffer(engine)) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the round is closing");
    } else if (takes_updates(engine) && engine->intake.slots[index].holder.finishing &&
               engine->intake.slots[index].holder.task_id == upload->task_id) {
        return; /* the workers have the update, and the ACK follows */
    } else if (upload->num_examples == 0) {
        refuse_upload(engine, from, FEDGE_REASON_BAD_VALUE,
                      "an update over no examples has no weight");
        lose(engine, upload->task_id, now_ms);
    } else if (fedge_update_check(engine->server.plan, upload, &err) != FEDGE_OK) {
        refuse_upload(engine, from,
                      err.status == FEDGE_TOO_BIG ? FEDGE_REASON_TOO_BIG
                                                  : FEDGE_REASON_SCHEMA_MISMATCH,
                      err.message);
        lose(engine, upload->task_id, now_ms);
    } else {
        begin_upload(engine, from, index, now_ms);
    }
}

/* The client sent an old result whose id was used again, as after a crash of the server. It
 * discards that result and works on its present task. */
static void refuse_kind(fedge_engine *engine, const fedge_request *from, uint32_t index,
                        uint64_t now_ms)
{
    refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the result is of another kind of task");
    if (is_with_workers(engine, index))
        return; /* the right result has come already */
    assert(index < engine->num_slots);
    if (++engine->slots[index].bad_uploads >= FEDGE_ENGINE_MAX_BAD_UPLOADS)
        lose(engine, from->message.upload->task_id, now_ms);
    else
        fedge_engine_resend_task(engine, index, now_ms);
}

static bool is_of_kind(const fedge_upload *upload, fedge_task_kind kind)
{
    return (upload->num_sections == 0 && upload->size == 0) == (kind == FEDGE_TASK_EVALUATE);
}

/* Between phases there are no slots. Only updates of a buffered strategy wait for the next phase.
 */
static bool may_be_taken(const fedge_engine *engine, const fedge_upload *upload, uint32_t index)
{
    return index < engine->num_slots ||
           (fedge_engine_has_buffer(engine) && is_of_kind(upload, FEDGE_TASK_TRAIN));
}

void fedge_engine_upload(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    const fedge_upload *upload = from->message.upload;
    uint32_t index = 0;
    /* Task ids are unique within one run and incarnation only, so these are checked first. Results
     * that counted in the phase before come next: their ACK was lost, and a refusal as stale would
     * make the client discard them as if they had not counted. */
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, upload->task_id, &index);
    if (strcmp(upload->run_id, engine->server.run.run_id) != 0) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_RUN, "the result belongs to another run");
    } else if (upload->incarnation != engine->server.run.incarnation) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_INCARNATION,
                      "the result belongs to another incarnation of this run");
    } else if ((!task || index >= engine->num_slots) &&
               was_accepted(engine, upload->task_id, from->client_index)) {
        acknowledge(engine, from->conn_id, upload->task_id, true);
    } else if (!task || !may_be_taken(engine, upload, index)) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the task is not open (any more)");
    } else if (task->client_index != from->client_index) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK,
                      "the task was given to another device");
    } else if (task->state == FEDGE_TASK_REPORTED) {
        (void)answer_result(engine, from->conn_id, from->client_index, upload->task_id, true,
                            now_ms);
    } else if (task->state == FEDGE_TASK_LOST) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the task is over");
    } else if (!is_of_kind(upload, fedge_rounds_kind(engine->rounds))) {
        refuse_kind(engine, from, index, now_ms);
    } else if (fedge_rounds_kind(engine->rounds) == FEDGE_TASK_EVALUATE) {
        take_evaluation(engine, from, &engine->slots[index], now_ms);
    } else {
        take_update(engine, from, index, now_ms);
    }
}

/* ---- PART ------------------------------------------------------------------------------------ */

void fedge_engine_part(fedge_engine *engine, fedge_request *from, uint64_t now_ms)
{
    fedge_error err;
    uint32_t index = 0;
    const fedge_rounds_task *task =
        fedge_rounds_find(engine->rounds, from->message.position.task_id, &index);
    if (!task || !engine->journal || engine->other_ranks.closing || index >= engine->num_slots ||
        task->client_index != from->client_index || task->state != FEDGE_TASK_OPEN)
        return; /* the task ended meanwhile; the client gets an answer about that */
    if (fedge_intake_part(&engine->intake, index, from, now_ms, &err) != FEDGE_OK)
        fedge_engine_fail(engine, &err);
}

/* ---- results of the workers ------------------------------------------------------------------ */

static fedge_reason reason_of(fedge_status status)
{
    switch (status) {
    case FEDGE_CORRUPT:
    case FEDGE_TRUNCATED:
        return FEDGE_REASON_BAD_DATA;
    case FEDGE_TOO_BIG:
        return FEDGE_REASON_TOO_BIG;
    case FEDGE_NOT_FINITE:
    case FEDGE_OUT_OF_RANGE:
        return FEDGE_REASON_BAD_VALUE;
    case FEDGE_MISMATCH:
        return FEDGE_REASON_SCHEMA_MISMATCH;
    case FEDGE_STALE:
    case FEDGE_CLOSED:
        return FEDGE_REASON_STALE_TASK;
    default:
        return FEDGE_REASON_INTERNAL;
    }
}

/* [acks_announced]: the client that waits for the slot gets the ACK instead. */
static void count_result(fedge_engine *engine, const fedge_engine_result *result,
                         bool acks_announced, uint64_t now_ms)
{
    const bool duplicate = result->status == FEDGE_DUPLICATE;
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, result->task_id, NULL);
    if (!task)
        return; /* the slot has gone to another client meanwhile */
    const uint32_t client_index = task->client_index;
    const uint64_t conn_id = fedge_engine_conn_of(engine, client_index);
    const bool counts =
        acks_announced
            ? fedge_rounds_report(engine->rounds, result->task_id, NULL) == FEDGE_OK
            : answer_result(engine, conn_id, client_index, result->task_id, duplicate, now_ms);
    engine->updates_accepted += counts && !duplicate;
}

static void refuse_result(fedge_engine *engine, const fedge_engine_result *result, uint64_t now_ms)
{
    fedge_engine_slot *slot = &engine->slots[result->slot];
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, result->task_id, NULL);
    if (!task)
        return; /* the update does not count */
    const uint32_t client_index = task->client_index;
    if (fedge_engine_has_buffer(engine) && result->status == FEDGE_CLOSED) {
        /* The buffer was full when the update was validated: it counts in the next round. */
        fedge_engine_defer_slot(engine, result->slot, task);
        return;
    }
    const fedge_reason reason = reason_of(result->status);
    const uint64_t conn_id = fedge_engine_conn_of(engine, client_index);
    if (conn_id == FEDGE_CONN_ALL)
        log_refusal(engine, result->task_id, reason, result->message, now_ms);
    else
        refuse_task(engine, conn_id, client_index, result->task_id, reason, result->message);
    /* Damaged bytes may come whole the next time; after other failures the same bytes would come
     * again. */
    const bool damaged = reason == FEDGE_REASON_BAD_DATA;
    if (damaged && ++slot->bad_uploads < FEDGE_ENGINE_MAX_BAD_UPLOADS)
        return;
    if (damaged)
        fedge_rounds_defer(engine->rounds, client_index, UINT64_MAX);
    lose(engine, result->task_id, now_ms);
}

void fedge_engine_take_result(fedge_engine *engine, const fedge_engine_result *result,
                              uint64_t now_ms)
{
    if (result->slot >= engine->num_slots)
        return;
    fedge_engine_slot *slot = &engine->slots[result->slot];
    const bool valid = result->status == FEDGE_OK || result->status == FEDGE_DUPLICATE;
    const fedge_slot_lease_action action =
        result->held ? fedge_slot_lease_validated(&slot->lease, result->rank, result->number, valid)
                     : FEDGE_LEASE_WAIT;
    if (valid) {
        const bool acks_announced = action == FEDGE_LEASE_ANSWER_FILLED && slot->announced &&
                                    slot->announced->task.task_id == result->task_id;
        slot->timed = result->held;
        slot->seconds_upload = result->seconds_upload;
        count_result(engine, result, acks_announced, now_ms);
        act(engine, result->slot, action, now_ms);
    } else if (!result->held || slot->lease.state == FEDGE_LEASE_FREE) {
        /* Otherwise the update comes again. */
        refuse_result(engine, result, now_ms);
    }
}

void fedge_engine_on_validated(fedge_engine *engine, const fedge_completion *completion,
                               uint64_t now_ms)
{
    fedge_engine_result result = {.slot = completion->slot,
                                  .task_id = completion->task_id,
                                  .status = completion->status,
                                  .message = completion->message};
    if (completion->slot >= engine->intake.num_slots)
        return; /* the phase failed meanwhile, so the update does not count */
    const fedge_intake_slot *slot = &engine->intake.slots[completion->slot];
    result.seconds_upload = slot->seconds_upload;
    result.number = slot->holder.number;
    /* Otherwise there is no update: the journal had no space for the task's record. */
    result.held = slot->holder.finishing && slot->holder.task_id == completion->task_id;
    const bool valid = result.status == FEDGE_OK || result.status == FEDGE_DUPLICATE;
    const bool release =
        result.held && fedge_intake_validated(&engine->intake, completion->slot, valid);
    fedge_engine_take_result(engine, &result, now_ms);
    /* After the result: releasing may grant the slot to another rank that waits for it. */
    if (release)
        fedge_engine_released(engine, completion->slot, 0, now_ms);
}

void fedge_engine_released(fedge_engine *engine, uint32_t index, uint32_t rank, uint64_t now_ms)
{
    /* While the phase ends no slot is granted any more. */
    if (index >= engine->num_slots || engine->other_ranks.closing)
        return;
    act(engine, index, fedge_slot_lease_released(&engine->slots[index].lease, rank), now_ms);
}

/* The open task of a client in this phase; NULL when it has none. */
static const fedge_rounds_task *open_task_of(const fedge_engine *engine, uint32_t client_index)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (cohort[i].client_index == client_index && cohort[i].state == FEDGE_TASK_OPEN)
            return &cohort[i];
    }
    return NULL;
}

/* A device whose site forbids the work for now says when to send a task again; a device that cannot
 * do it at all is selected last until it reconnects. Other reasons, such as training that failed,
 * concern this task alone. */
static uint64_t not_before_of_decline(const fedge_notice *notice, uint64_t now_ms)
{
    if (strcmp(fedge_reason_class(notice->reason), "never") == 0)
        return UINT64_MAX;
    return notice->reason == FEDGE_REASON_INTERNAL ? 0 : now_ms + notice->after_ms;
}

void fedge_engine_decline(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    uint32_t index = 0;
    const fedge_notice *notice = &from->message.notice;
    const uint32_t client_index = from->client_index;
    /* A DECLINE without a task is about the plan, and ends the client's open task. */
    const fedge_rounds_task *task = notice->has_task ? NULL : open_task_of(engine, client_index);
    if (notice->has_task || task) {
        uint64_t task_id = task ? task->task_id : notice->task_id;
        task = fedge_rounds_find(engine->rounds, task_id, &index);
    }
    if (!notice->has_task) {
        note_why(engine, client_index, notice->reason, notice->text);
        fedge_rounds_decline(engine->rounds, client_index, now_ms);
    }
    if (task && task->client_index == client_index && !is_with_workers(engine, index)) {
        note_why(engine, client_index, notice->reason, notice->text);
        if (not_before_of_decline(notice, now_ms) > now_ms)
            fedge_rounds_defer(engine->rounds, client_index, not_before_of_decline(notice, now_ms));
        lose(engine, task->task_id, now_ms);
    }
}

/* ---- reports of other ranks ------------------------------------------------------------------ */

/* A phase for which any rank has no disk space waits; any other failure ends the run. */
static void opened(fedge_engine *engine, const fedge_report *report, uint64_t now_ms)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    fedge_error *worst = &others->worst;
    if (report->status != FEDGE_OK &&
        (worst->status == FEDGE_OK || worst->status == FEDGE_NO_SPACE))
        (void)fedge_fail(worst, report->status, "rank %u: %s", report->rank, report->message);
    if (--others->waiting == 0)
        fedge_engine_other_ranks_opened(engine, now_ms);
}

static void validated(fedge_engine *engine, const fedge_report *report, const char *meta,
                      uint64_t now_ms)
{
    fedge_error err;
    if (report->slot >= engine->num_slots || !engine->journal)
        return;
    /* This rank's journal gets it as well, which a restart reads first: it says which rank has the
     * bytes. */
    if (report->status == FEDGE_OK &&
        fedge_journal_accept_elsewhere(engine->journal, report->slot, &report->facts,
                                       &report->location, meta, &err) != FEDGE_OK) {
        fedge_engine_fail(engine, &err);
        return;
    }
    const fedge_engine_result result = {
        .slot = report->slot,
        .rank = report->rank,
        .task_id = report->task_id,
        .number = report->number,
        .held = true,
        /* The rank has an update in this slot that does not count. */
        .status = report->status == FEDGE_DUPLICATE ? FEDGE_INTERNAL : report->status,
        .message = report->message,
        .seconds_upload = report->seconds_upload};
    fedge_engine_take_result(engine, &result, now_ms);
}

void fedge_engine_report(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    fedge_report report;
    if (from->payload_size < sizeof(report))
        return;
    memcpy(&report, from->payload, sizeof(report));
    /* The text comes from another process, which may be failing. */
    report.message[sizeof(report.message) - 1] = '\0';
    const char *meta = (const char *)from->payload + sizeof(report);
    /* Reports about a phase that is over come too late. */
    if (report.phase != engine->other_ranks.phase ||
        report.size != from->payload_size - sizeof(report))
        return;
    switch (report.kind) {
    case FEDGE_REPORT_OPENED:
        opened(engine, &report, now_ms);
        break;
    case FEDGE_REPORT_VALIDATED:
        validated(engine, &report, meta, now_ms);
        break;
    case FEDGE_REPORT_RELEASED:
        fedge_engine_released(engine, report.slot, report.rank, now_ms);
        break;
    case FEDGE_REPORT_FLUSHED:
        if (--engine->other_ranks.waiting == 0)
            fedge_engine_other_ranks_closed(engine);
        break;
    }
    fedge_engine_pump(engine, now_ms);
}
