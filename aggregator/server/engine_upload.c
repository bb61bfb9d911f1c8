/* What clients send to the engine: results, their bytes, refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/server/engine_phase.h"
#include "aggregator/server/engine_reply.h"
#include "aggregator/server/engine_upload.h"
#include "edge/io/update.h"

/* For whoever asks what a round waits for; a device's own words may be in it. */
static void note_why(fedge_engine *engine, uint32_t client_index, fedge_reason reason,
                     const char *text)
{
    snprintf(engine->gave_up, sizeof(engine->gave_up), "client %u: %s: %.140s", client_index,
             fedge_reason_name(reason), text);
    fedge_text_plain(engine->gave_up);
    engine->gave_up_client = client_index;
}

/* [conn_id] FEDGE_CONN_ALL: the device is gone, and only the log is told. */
static void refuse_task(fedge_engine *engine, uint64_t conn_id, uint32_t client_index,
                        uint64_t task_id, fedge_reason reason, const char *text)
{
    engine->updates_refused++;
    if (conn_id == FEDGE_CONN_ALL) {
        FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "update-refused",
                  fedge_log_int("task", (int64_t)task_id), fedge_log_str("device", "gone"),
                  fedge_log_str("reason", fedge_reason_name(reason)), fedge_log_str("error", text));
        return;
    }
    if (strcmp(fedge_reason_class(reason), "never") == 0)
        note_why(engine, client_index, reason, text);
    fedge_notice notice = {.has_task = true, .task_id = task_id, .reason = reason};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    fedge_engine_send_notice(engine, conn_id, FEDGE_MESSAGE_REFUSE, &notice);
}

static void refuse_upload(fedge_engine *engine, const fedge_request *from, fedge_reason reason,
                          const char *text)
{
    refuse_task(engine, from->conn_id, from->client_index, from->upload->task_id, reason, text);
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

/* A task that will bring nothing more: the slot may go to another client, and its own is set aside.
 */
static void lose(fedge_engine *engine, uint64_t task_id, uint64_t now_ms)
{
    fedge_error err;
    if (fedge_rounds_give_up(engine->rounds, task_id, &err) != FEDGE_OK) {
        FEDGE_LOG(engine->config.log, FEDGE_LOG_DEBUG, "task-already-over",
                  fedge_log_int("task", (int64_t)task_id), fedge_log_str("why", err.message));
    }
    fedge_engine_pump(engine, now_ms);
}

/* Whether this task's result counted in the phase before, and the asker is the one who sent it. */
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
    const fedge_upload *upload = from->upload;
    fedge_error err;
    double loss = fedge_upload_metric(upload, "loss");
    double accuracy = fedge_upload_metric(upload, "accuracy");
    if (upload->num_examples == 0 || !isfinite(loss) || !(accuracy >= 0.0 && accuracy <= 1.0)) {
        refuse_upload(engine, from, FEDGE_REASON_SCHEMA_MISMATCH,
                      "an evaluation has at least one example, and the metrics loss and accuracy");
        lose(engine, upload->task_id, now_ms);
        return;
    }
    slot->loss = loss;
    slot->accuracy = accuracy;
    slot->examples = fedge_report_weight(engine->config.job, upload->num_examples);
    if (fedge_rounds_report(engine->rounds, upload->task_id, &err) == FEDGE_OK)
        engine->updates_accepted++;
    acknowledge(engine, from->conn_id, upload->task_id, false);
    fedge_engine_pump(engine, now_ms);
}

static bool same_upload(const fedge_engine_slot *slot, const fedge_upload *upload)
{
    return slot->incoming && slot->incoming->upload.size == upload->size &&
           slot->incoming->upload.crc32 == upload->crc32;
}

/* Remembers what is announced, and asks for its bytes from where they are missing. */
static void begin_upload(fedge_engine *engine, const fedge_request *from, uint32_t index,
                         uint64_t now_ms)
{
    const fedge_upload *upload = from->upload;
    fedge_error err;
    fedge_engine_slot *slot = &engine->slots[index];
    if (!slot->uploading || !same_upload(slot, upload)) {
        if (!slot->incoming)
            slot->incoming = malloc(sizeof(*slot->incoming));
        if (!slot->incoming || fedge_ingest_rewind(engine->ingest, engine->journal, index,
                                                   upload->task_id, &err) != FEDGE_OK) {
            refuse_for_memory(engine, from, "out of memory");
            return;
        }
        slot->uploading = true;
        slot->next = 0;
        slot->started_ms = now_ms;
    }
    slot->incoming->upload = *upload;
    const fedge_update_facts facts =
        fedge_upload_facts(&engine->global.model, upload, engine->phase.round,
                           fedge_journal_get_slot(engine->journal, index).task.client_index);
    slot->incoming->weight = fedge_update_weight(&engine->global.model, &facts);
    slot->incoming->meta_size = from->meta_size;
    memcpy(slot->incoming->meta, from->meta, from->meta_size);
    const fedge_reply reply = {.position = {.task_id = upload->task_id, .offset = slot->next}};
    fedge_engine_send(engine, from->conn_id, FEDGE_MESSAGE_RESUME, &reply);
}

static void take_update(fedge_engine *engine, const fedge_request *from, uint32_t index,
                        uint64_t now_ms)
{
    const fedge_upload *upload = from->upload;
    fedge_error err;
    fedge_engine_slot *slot = &engine->slots[index];
    if (!engine->journal) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the round is closing");
    } else if (slot->finishing) {
        return; /* the workers have it: the ACK is on its way */
    } else if (upload->num_examples == 0) {
        refuse_upload(engine, from, FEDGE_REASON_BAD_VALUE,
                      "an update over no examples has no weight");
        lose(engine, upload->task_id, now_ms);
    } else if (fedge_update_check(engine->global.plan, upload, &err) != FEDGE_OK) {
        refuse_upload(engine, from,
                      err.status == FEDGE_TOO_BIG ? FEDGE_REASON_TOO_BIG
                                                  : FEDGE_REASON_SCHEMA_MISMATCH,
                      err.message);
        lose(engine, upload->task_id, now_ms);
    } else {
        begin_upload(engine, from, index, now_ms);
    }
}

/* A client that took a result of another time for this task's, as one whose server came back from a
 * crash with ids that were used before: it discards it, and works on what it was asked for. */
static void refuse_kind(fedge_engine *engine, const fedge_request *from, uint32_t index,
                        uint64_t now_ms)
{
    refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the result is of another kind of task");
    if (engine->slots[index].finishing)
        return; /* the right one has come already */
    if (++engine->slots[index].bad_uploads >= FEDGE_ENGINE_MAX_BAD_UPLOADS)
        lose(engine, from->upload->task_id, now_ms);
    else
        fedge_engine_send_again(engine, index, now_ms);
}

static bool is_of_kind(const fedge_upload *upload, fedge_task_kind kind)
{
    return (upload->num_sections == 0 && upload->size == 0) == (kind == FEDGE_TASK_EVALUATE);
}

void fedge_engine_upload(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    const fedge_upload *upload = from->upload;
    uint32_t index = 0;
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, upload->task_id, &index);
    if (strcmp(upload->run_id, engine->global.run.run_id) != 0) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_RUN, "the result belongs to another run");
    } else if (upload->incarnation != engine->global.run.incarnation) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_INCARNATION,
                      "the result belongs to another incarnation of this run");
    } else if ((!task || index >= engine->num_slots) &&
               was_accepted(engine, upload->task_id, from->client_index)) {
        acknowledge(engine, from->conn_id, upload->task_id, true);
    } else if (!task || index >= engine->num_slots) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK, "the task is not open (any more)");
    } else if (task->client_index != from->client_index) {
        refuse_upload(engine, from, FEDGE_REASON_STALE_TASK,
                      "the task was given to another device");
    } else if (task->state == FEDGE_TASK_REPORTED) {
        acknowledge(engine, from->conn_id, upload->task_id, true);
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

static void finish_upload(fedge_engine *engine, uint32_t index, uint64_t now_ms)
{
    fedge_error err;
    fedge_engine_slot *slot = &engine->slots[index];
    fedge_ingest_upload *incoming = slot->incoming;
    slot->incoming = NULL;
    slot->uploading = false;
    slot->finishing = true;
    slot->seconds_upload = (double)(now_ms - slot->started_ms) * 1e-3;
    if (fedge_ingest_finish(engine->ingest, engine->journal, index, incoming,
                            engine->phase.bounds_log2, &err) != FEDGE_OK)
        fedge_engine_fail(engine, &err);
}

void fedge_engine_part(fedge_engine *engine, fedge_request *from, uint64_t now_ms)
{
    const fedge_position *position = &from->position;
    const uint32_t size = from->payload_size;
    fedge_error err;
    uint32_t index = 0;
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, position->task_id, &index);
    if (!task || !engine->journal || index >= engine->num_slots ||
        task->client_index != from->client_index || task->state != FEDGE_TASK_OPEN)
        return; /* was on its way when the task ended; the client has been or will be told */
    fedge_engine_slot *slot = &engine->slots[index];
    if (!slot->uploading || position->offset != slot->next || size == 0 ||
        size > slot->incoming->upload.size - slot->next) {
        char text[160];
        snprintf(text, sizeof(text),
                 "PART at byte %llu of %u bytes does not continue the upload at byte %llu",
                 (unsigned long long)position->offset, size, (unsigned long long)slot->next);
        fedge_engine_close_conn(engine, from->conn_id, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_BAD_STATE,
                                0, text);
        return;
    }
    bool full = false;
    if (fedge_ingest_write(engine->ingest, engine->journal, index, position->task_id,
                           position->offset, &from->frame, from->payload, size, &full,
                           &err) != FEDGE_OK) {
        refuse_for_memory(engine, from, err.message);
        return;
    }
    slot->next += size;
    if (full)
        fedge_engine_pause(engine, from->conn_id);
    if (slot->next == slot->incoming->upload.size)
        finish_upload(engine, index, now_ms);
}

/* ---- what the workers found ------------------------------------------------------------------ */

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

void fedge_engine_on_validated(fedge_engine *engine, const fedge_completion *completion,
                               uint64_t now_ms)
{
    fedge_error err;
    uint32_t index = 0;
    const fedge_rounds_task *task = fedge_rounds_find(engine->rounds, completion->task_id, &index);
    if (!task || index >= engine->num_slots)
        return; /* the phase failed meanwhile: nothing of it counts */
    uint32_t client_index = task->client_index;
    const uint64_t conn_id = fedge_engine_conn_of(engine, client_index);
    if (completion->status == FEDGE_OK || completion->status == FEDGE_DUPLICATE) {
        engine->updates_accepted += completion->status == FEDGE_OK;
        if (fedge_rounds_report(engine->rounds, completion->task_id, &err) != FEDGE_OK) {
            FEDGE_LOG(engine->config.log, FEDGE_LOG_DEBUG, "report-not-counted",
                      fedge_log_int("task", (int64_t)completion->task_id),
                      fedge_log_str("why", err.message));
        }
        acknowledge(engine, conn_id, completion->task_id, completion->status == FEDGE_DUPLICATE);
        return;
    }
    fedge_engine_slot *slot = &engine->slots[index];
    fedge_reason reason = reason_of(completion->status);
    slot->finishing = false;
    slot->next = 0;
    refuse_task(engine, conn_id, client_index, completion->task_id, reason, completion->message);
    if (reason != FEDGE_REASON_BAD_DATA || ++slot->bad_uploads >= FEDGE_ENGINE_MAX_BAD_UPLOADS)
        lose(engine, completion->task_id, now_ms);
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

void fedge_engine_decline(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    uint32_t index = 0;
    const fedge_notice *notice = &from->notice;
    const uint32_t client_index = from->client_index;
    const fedge_rounds_task *task = notice->has_task ? NULL : open_task_of(engine, client_index);
    if (notice->has_task || task) {
        uint64_t task_id = task ? task->task_id : notice->task_id;
        task = fedge_rounds_find(engine->rounds, task_id, &index);
    }
    if (task && task->client_index == client_index &&
        !(index < engine->num_slots && engine->slots[index].finishing)) {
        note_why(engine, client_index, notice->reason, notice->text);
        lose(engine, task->task_id, now_ms);
    }
}
