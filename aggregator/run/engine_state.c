#include "aggregator/run/engine_state.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/store/json_file.h"

void fedge_engine_fail(fedge_engine *engine, const fedge_error *err)
{
    if (engine->failure.status == FEDGE_OK) {
        engine->failure = *err;
        fedge_log_failure(engine->config.log, FEDGE_LOG_ERROR, "stopping", err);
    }
    engine->done = true;
}

void fedge_engine_snapshot_sums(const fedge_engine *engine, fedge_sums_snapshot *snapshot)
{
    assert(!engine->gpus_change); /* the round finalizer may be closing them */
    const fedge_accumulator *sums = &engine->server.model.accumulator;
    snprintf(snapshot->kind, sizeof(snapshot->kind), "%s", sums->ops->name);
    snapshot->num_gpus = fedge_accumulator_stats(sums, snapshot->gpus, FEDGE_ACCUMULATOR_MAX_GPUS);
}

void fedge_engine_check_evaluation(fedge_engine *engine, const fedge_round_summary *summary)
{
    if (engine->nothing_held_out || summary->examples > 0 ||
        !fedge_selection_asks_clients(&engine->server.selection))
        return;
    engine->nothing_held_out = true;
    FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "nothing-held-out",
              fedge_log_int("round", summary->round),
              fedge_log_str("advice",
                            "no client has evaluated the model, and keep-best or early-stopping "
                            "goes by that: give clients a validation-fraction in their files, or "
                            "take a test-... metric"));
}

void fedge_engine_check_selection(const fedge_engine *engine)
{
    const fedge_criterion metric = fedge_selection_lacks(&engine->server.selection);
    if (metric == FEDGE_CRITERION_AUTO)
        return;
    FEDGE_LOG(engine->config.log, FEDGE_LOG_WARN, "nothing-chosen",
              fedge_log_str("metric", fedge_criterion_text(metric)),
              fedge_log_str("advice",
                            "no evaluation gave it a value, so keep-best has kept no model "
                            "and early-stopping could not end the run"));
}

void fedge_engine_stop_early(fedge_engine *engine)
{
    const fedge_selection *selection = &engine->server.selection;
    const fedge_watch_state *state = &selection->state.stop;
    if (engine->stopped_early ||
        engine->rounds_closed >= engine->config.job->rounds.num_server_rounds)
        return; /* an evaluation of that round has ended, or the round was the last anyway */
    engine->stopped_early = true;
    fedge_rounds_end_after(engine->rounds, engine->rounds_closed);
    FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "stopping-early",
              fedge_log_int("round", engine->rounds_closed),
              fedge_log_str("metric", fedge_criterion_text(selection->stop.metric)),
              fedge_log_int("best-round", state->best_round), fedge_log_num("best", state->best),
              fedge_log_int("evaluations-since", state->waited));
}

/* ---- replies --------------------------------------------------------------------------------- */

uint64_t fedge_engine_conn_of(const fedge_engine *engine, uint32_t client_index)
{
    return client_index < engine->num_devices ? engine->devices[client_index].conn_id
                                              : FEDGE_CONN_ALL;
}

static fedge_reply *new_reply(fedge_engine *engine, uint64_t conn_id, fedge_reply_type type)
{
    fedge_reply *reply = calloc(1, sizeof(*reply));
    if (!reply) { /* a client would wait for ever */
        fedge_error err;
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to answer a client");
        fedge_engine_fail(engine, &err);
        return NULL;
    }
    reply->type = type;
    reply->conn_id = conn_id;
    return reply;
}

static void post(fedge_engine *engine, fedge_reply *reply)
{
    fedge_mailbox_post(engine->config.replies, &reply->item);
}

void fedge_engine_send(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                       const fedge_reply *content)
{
    assert(conn_id != FEDGE_CONN_ALL);
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_MESSAGE);
    if (reply) {
        *reply = *content;
        reply->type = FEDGE_REPLY_MESSAGE;
        reply->conn_id = conn_id;
        reply->message = message;
        post(engine, reply);
    }
}

void fedge_engine_send_notice(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                              const fedge_notice *notice)
{
    fedge_engine_send(engine, conn_id, message, &(fedge_reply){.notice = *notice});
}

void fedge_engine_send_blob(fedge_engine *engine, uint64_t conn_id, fedge_blob *blob,
                            uint64_t offset, uint64_t size)
{
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_BLOB);
    if (reply) {
        reply->blob = fedge_blob_retain(blob);
        reply->offset = offset;
        reply->size = size;
        post(engine, reply);
    }
}

void fedge_engine_close_conn(fedge_engine *engine, uint64_t conn_id, fedge_message_type message,
                             fedge_reason reason, uint64_t after_ms, const char *text)
{
    fedge_reply *reply = new_reply(engine, conn_id, FEDGE_REPLY_CLOSE);
    if (reply) {
        reply->message = message;
        reply->notice.reason = reason;
        reply->notice.after_ms = after_ms;
        snprintf(reply->notice.text, sizeof(reply->notice.text), "%s", text);
        post(engine, reply);
    }
}

void fedge_engine_resume_all(fedge_engine *engine)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_RESUME);
    if (reply)
        post(engine, reply);
}

static void withdraw(fedge_engine *engine, fedge_blob *blob)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_WITHDRAW);
    if (reply) {
        reply->blob = fedge_blob_retain(blob);
        post(engine, reply);
    }
}

void fedge_engine_withdraw(fedge_engine *engine, fedge_blob *blob)
{
    withdraw(engine, blob);
    if (blob->parts)
        withdraw(engine, blob->parts);
}

void fedge_engine_send_round(fedge_engine *engine, const fedge_round_summary *summary)
{
    fedge_reply *reply = new_reply(engine, FEDGE_CONN_ALL, FEDGE_REPLY_ROUND);
    if (reply) {
        reply->summary = *summary;
        post(engine, reply);
    }
}

/* ---- orders to other ranks ------------------------------------------------------------------- */

static void send_order(const fedge_engine *engine, uint32_t to, const fedge_order *order,
                       const void *bytes)
{
    engine->config.ranks->send_order(engine->config.ranks->user, to, order, bytes);
}

uint32_t fedge_engine_rank_of(const fedge_engine *engine, uint64_t conn_id)
{
    /* Each rank numbers its network threads from a multiple of FEDGE_RANKS_TAGS. */
    return engine->other_ranks.num > 0 ? fedge_slots_tag(conn_id) / FEDGE_RANKS_TAGS : 0;
}

void fedge_engine_grant(fedge_engine *engine, uint32_t rank, const fedge_grant *grant)
{
    const fedge_order order = {.kind = FEDGE_ORDER_GRANT,
                               .slot = grant->slot,
                               .phase = engine->other_ranks.phase,
                               .conn_id = grant->conn_id,
                               .number = grant->number,
                               .task = grant->task,
                               .weight = grant->incoming->weight,
                               .size = grant->incoming->meta_size};
    send_order(engine, rank, &order, grant->incoming->meta);
}

void fedge_engine_recall(fedge_engine *engine, uint32_t slot)
{
    const fedge_order order = {
        .kind = FEDGE_ORDER_RECALL, .slot = slot, .phase = engine->other_ranks.phase};
    send_order(engine, engine->slots[slot].lease.rank, &order, NULL);
}

static bool order_all(fedge_engine *engine, const fedge_order *order, const void *bytes)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    for (uint32_t to = 1; to <= others->num; to++)
        send_order(engine, to, order, bytes);
    others->waiting = others->num;
    return others->num > 0;
}

bool fedge_engine_open_other_ranks(fedge_engine *engine)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    const size_t size = engine->phase.num_tasks * sizeof(*others->tasks);
    /* A journal is removed together with the checkpoint that followed it. */
    const uint32_t keep = engine->config.job->keep_checkpoints, round = engine->phase.round;
    fedge_error err;
    others->phase++;
    others->worst = (fedge_error){.status = FEDGE_OK};
    if (others->num == 0)
        return false;
    uint8_t *bytes = malloc(sizeof(engine->phase) + size);
    if (!bytes) {
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to tell other ranks of a round");
        fedge_engine_fail(engine, &err);
        return true;
    }
    memcpy(bytes, &engine->phase, sizeof(engine->phase));
    memcpy(bytes + sizeof(engine->phase), others->tasks, size);
    const fedge_order order = {.kind = FEDGE_ORDER_OPEN,
                               .phase = others->phase,
                               .oldest = round > keep ? round - keep : 0,
                               .size = (uint32_t)(sizeof(engine->phase) + size)};
    const bool any = order_all(engine, &order, bytes);
    free(bytes);
    return any;
}

bool fedge_engine_close_other_ranks(fedge_engine *engine, bool dropped)
{
    const fedge_order order = {
        .kind = FEDGE_ORDER_CLOSE, .phase = engine->other_ranks.phase, .dropped = dropped};
    return order_all(engine, &order, NULL);
}

/* ---- status ---------------------------------------------------------------------------------- */

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size)
{
    if (engine->failure.status != FEDGE_OK) {
        snprintf(text, size, "%s", engine->failure.message);
        return;
    }
    if (engine->waiting_for_space) {
        snprintf(text, size, "waiting for room on the disk: %s", engine->missing_space);
        return;
    }
    fedge_rounds_describe(engine->rounds, text, size);
    const size_t used = strlen(text);
    if (engine->gave_up[0] && used < size && fedge_rounds_is_stalled(engine->rounds))
        snprintf(text + used, size - used, " (%s)", engine->gave_up);
}

void fedge_engine_log_wait(fedge_engine *engine, uint64_t now_ms)
{
    char text[sizeof(engine->wait_logged)];
    if (engine->done || !fedge_rounds_is_stalled(engine->rounds)) {
        engine->stalled = false;
        return;
    }
    if (!engine->stalled) {
        engine->stalled = true;
        engine->stalled_ms = now_ms;
        engine->wait_logged[0] = '\0';
    }
    const bool repeated = engine->wait_logged[0] != '\0';
    if (repeated ? now_ms - engine->wait_logged_ms < FEDGE_ENGINE_WAIT_REPEAT_MS
                 : now_ms - engine->stalled_ms < FEDGE_ENGINE_WAIT_MS)
        return;
    fedge_engine_describe(engine, text, sizeof(text));
    engine->wait_logged_ms = now_ms;
    if (strcmp(text, engine->wait_logged) != 0) {
        memcpy(engine->wait_logged, text, sizeof(text));
        FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "round-waits",
                  fedge_log_int("round", fedge_rounds_round(engine->rounds)),
                  fedge_log_str("for", text));
    }
}

/* Nothing without keep-best or early-stopping. */
static bool add_selection(cJSON *json, const fedge_run_status *status)
{
    const fedge_selected *best = &status->best;
    const bool any = best->round > 0;
    if (status->stopped_early && !cJSON_AddTrueToObject(json, "stopped_early"))
        return false;
    return !status->keeps_best ||
           (cJSON_AddNumberToObject(json, "best_round", any ? (double)best->round : (double)NAN) &&
            cJSON_AddStringToObject(json, "best_metric", fedge_criterion_text(status->criterion)) &&
            cJSON_AddNumberToObject(json, "best_value", any ? status->best_value : NAN) &&
            cJSON_AddNumberToObject(json, "best_accuracy", any ? best->accuracy : NAN) &&
            cJSON_AddNumberToObject(json, "best_loss", any ? best->loss : NAN) &&
            (best->model[0] ? cJSON_AddStringToObject(json, "best_model_sha256", best->model)
                            : cJSON_AddNullToObject(json, "best_model_sha256")));
}

fedge_status fedge_engine_status_json(const fedge_run_status *status, char **text, fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    /* Values that are not finite become null. */
    bool made = cJSON_AddNumberToObject(json, "rounds", status->rounds_closed) &&
                cJSON_AddNumberToObject(json, "accuracy", status->accuracy) &&
                cJSON_AddNumberToObject(json, "loss", status->loss) &&
                cJSON_AddNumberToObject(json, "bytes_up", (double)status->run_bytes_up) &&
                cJSON_AddNumberToObject(json, "bytes_down", (double)status->run_bytes_down) &&
                cJSON_AddNumberToObject(json, "seconds", status->seconds) &&
                cJSON_AddStringToObject(json, "model_sha256", status->model_hash) &&
                add_selection(json, status) &&
                cJSON_AddStringToObject(json, "run_dir", status->run_dir) &&
                fedge_json_keep_digits(json);
    *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
