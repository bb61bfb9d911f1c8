#include "aggregator/run/engine.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/plot.h"
#include "aggregator/run/engine_async.h"
#include "aggregator/run/engine_phase.h"
#include "aggregator/run/engine_state.h"
#include "aggregator/run/engine_upload.h"
#include "aggregator/store/model_file.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"
#include "secure/crypto/sha256.h"

/* True when clients can make the model from the plan's seed: it is untrained, and nothing follows
 * its file. */
static bool is_made_from_seed(const fedge_engine *engine, uint32_t last_closed)
{
    return last_closed == 0 && engine->server.control_size == 0 &&
           engine->config.job->initial_model[0] == '\0';
}

static fedge_status make_blobs(fedge_engine *engine, uint32_t last_closed, fedge_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_plan_write(engine->server.plan, &text, &size, err));
    FEDGE_TRY(fedge_blob_new((uint8_t *)text, size, &engine->plan, err));
    engine->model = fedge_server_run_take_model(&engine->server);
    memcpy(engine->model_hash, engine->server.model_hash, sizeof(engine->model_hash));
    if (is_made_from_seed(engine, last_closed))
        memcpy(engine->initial, engine->model->hash, sizeof(engine->initial));
    return FEDGE_OK;
}

/* True when clients were to evaluate the last closed round's model, and there is neither a line of
 * that evaluation nor an attempt at the next round. */
static bool evaluation_was_cut_off(const fedge_engine *engine, const fedge_recovery *recovery)
{
    const fedge_round_log *log = &engine->server.round_log;
    return engine->config.job->rounds.fraction_evaluate > 0.0 && !engine->server.run.finished &&
           recovery->last_closed > 0 && recovery->num_tasks == 0 && recovery->attempt == 0 &&
           log->last_round == recovery->last_closed && log->last_kind == FEDGE_TASK_TRAIN;
}

/* True when the run was requested by its id: it may be finished then. */
static bool is_named(const fedge_engine_config *config, const fedge_run *run)
{
    return config->run.run_id && strcmp(config->run.run_id, run->run_id) == 0;
}

static void log_opened(const fedge_engine *engine, uint32_t last_closed)
{
    const fedge_run *run = &engine->server.run;
    const fedge_log *log = engine->config.log;
    if (run->finished && !is_named(&engine->config, run)) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "results-missing", fedge_log_str("run", run->run_id),
                  fedge_log_str("advice", "they are written now; the next start, or --new-run, "
                                          "begins another run"));
    }
    if (run->lost[0]) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "results-lost", fedge_log_str("run", run->lost),
                  fedge_log_str("advice",
                                "that run is finished, and no checkpoint is left to write "
                                "its missing results from: the job is trained anew; to "
                                "have them, stop and restore its directory from a "
                                "backup"));
    }
    FEDGE_LOG(log, FEDGE_LOG_INFO, run->resumed ? "run-resumed" : "run-started",
              fedge_log_str("run", run->run_id), fedge_log_int("rounds-closed", last_closed),
              fedge_log_int("updates-recovered",
                            engine->journal ? fedge_journal_num_accepted(engine->journal) : 0),
              fedge_log_str("dir", run->dir));
}

/* Restores the round machine, and takes over an open phase. */
static fedge_status restore(fedge_engine *engine, fedge_recovery *recovery, uint64_t now_ms,
                            fedge_error *err)
{
    FEDGE_TRY(fedge_rounds_new(&engine->config.job->rounds, engine->server.plan->seed,
                               &engine->rounds, err));
    fedge_rounds_draw_by(engine->rounds, &engine->server.model.clients);
    engine->rounds_closed = recovery->last_closed;
    engine->run_bytes_up = engine->server.checkpoint.bytes_up;
    engine->run_bytes_down = engine->server.checkpoint.bytes_down;
    engine->loss = engine->server.checkpoint.loss;
    engine->accuracy = engine->server.checkpoint.accuracy;
    engine->phase_started_ms = now_ms;
    if (fedge_selection_is_over(&engine->server.selection))
        fedge_engine_stop_early(engine);
    if (recovery->journal) {
        engine->journal = recovery->journal;
        recovery->journal = NULL;
        engine->phase = *fedge_journal_get_phase(engine->journal);
        engine->other_ranks.phase = 1; /* ranks that have recovered the phase number it alike */
        FEDGE_TRY(fedge_engine_new_slots(engine, recovery->num_tasks, err));
        FEDGE_TRY(fedge_engine_begin_intake(engine, err));
    }
    if (evaluation_was_cut_off(engine, recovery)) {
        FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "evaluation-again",
                  fedge_log_int("round", recovery->last_closed));
        fedge_rounds_restore_evaluation(engine->rounds, recovery->last_closed,
                                        recovery->next_task_id);
    } else {
        const fedge_rounds_progress progress = {.last_closed = recovery->last_closed,
                                                .next_task_id = recovery->next_task_id,
                                                .attempt = recovery->attempt,
                                                .wanted = recovery->wanted,
                                                .tasks = recovery->tasks,
                                                .num_tasks = recovery->num_tasks};
        FEDGE_TRY(fedge_rounds_restore(engine->rounds, &progress, now_ms, err));
        fedge_upload_set_phase(&engine->server.model, &engine->phase);
        fedge_rounds_restore_draw(engine->rounds, &engine->phase.draw);
    }
    FEDGE_TRY(fedge_engine_restore_old_models(engine, err));
    log_opened(engine, recovery->last_closed);
    return FEDGE_OK;
}

/* A callback of fedge_intake. */
static void post_reply(void *user, fedge_reply *reply)
{
    fedge_engine *engine = user;
    fedge_mailbox_post(engine->config.replies, &reply->item);
}

static fedge_status start_threads(fedge_engine *engine, fedge_error *err)
{
    FEDGE_TRY(
        fedge_mailbox_new(&engine->mailbox, engine->config.wake, engine->config.wake_user, err));
    FEDGE_TRY(fedge_ingest_new(&engine->ingest, engine->server.plan,
                               &engine->server.model.accumulator, engine->mailbox,
                               engine->config.num_workers, err));
    engine->intake = (fedge_intake){.ingest = engine->ingest,
                                    .reply = post_reply,
                                    .user = engine,
                                    .skips = fedge_engine_has_buffer(engine)};
    return fedge_round_finalizer_new(&engine->finalizer, &engine->server, engine->ingest,
                                     engine->mailbox, err);
}

void fedge_engine_hand_over(fedge_engine *engine)
{
    engine->owner = pthread_self();
}

static bool is_owner(const fedge_engine *engine)
{
    return pthread_equal(engine->owner, pthread_self());
}

fedge_status fedge_engine_new(const fedge_engine_config *config, uint64_t now_ms,
                              fedge_engine **engine, fedge_error *err)
{
    *engine = NULL;
    fedge_engine *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the engine");
    fedge_engine_hand_over(fresh);
    fresh->config = *config;
    fresh->loss = NAN;
    fresh->accuracy = NAN;
    fresh->other_ranks.num = config->ranks ? config->ranks->collective->num_ranks - 1 : 0;
    fedge_recovery recovery = {0};
    const fedge_server_run_config server = {.job = config->job,
                                            .request = config->run,
                                            .evaluator = config->evaluator,
                                            .state_dir = config->state_dir,
                                            .restored = config->restored,
                                            .accumulator = config->accumulator,
                                            .sums = &config->sums,
                                            .ranks = config->ranks,
                                            .log = config->log};
    fedge_status status;
    FEDGE_TRY_OR(fedge_server_run_open(&fresh->server, &server, &recovery, err), done);
    FEDGE_TRY_OR(make_blobs(fresh, recovery.last_closed, err), done);
    FEDGE_TRY_OR(start_threads(fresh, err), done);
    FEDGE_TRY_OR(restore(fresh, &recovery, now_ms, err), done);
    *engine = fresh;
done:
    fedge_recovery_fini(&recovery);
    if (status != FEDGE_OK)
        fedge_engine_free(fresh);
    return status;
}

static void discard_completions(fedge_mailbox *mailbox)
{
    for (fedge_mailbox_item *item = fedge_mailbox_take(mailbox), *next; item; item = next) {
        fedge_completion *completion = (fedge_completion *)item;
        next = item->next;
        fedge_round_finalizer_result_free(completion->result);
        free(completion);
    }
}

void fedge_engine_free(fedge_engine *engine)
{
    if (!engine)
        return;
    assert(is_owner(engine));
    /* The order is the reverse of start_threads: the finalizer flushes the ingest, and threads of
     * both post to the mailbox until they have ended. */
    fedge_round_finalizer_free(engine->finalizer);
    fedge_ingest_free(engine->ingest);
    if (engine->mailbox) {
        discard_completions(engine->mailbox);
        fedge_mailbox_free(engine->mailbox);
    }
    fedge_journal_free(engine->journal);
    fedge_engine_free_slots(engine);
    fedge_engine_free_old_models(engine);
    fedge_engine_free_deferred(engine);
    free(engine->other_ranks.tasks);
    free(engine->accepted);
    free(engine->devices);
    fedge_rounds_free(engine->rounds);
    fedge_blob_release(engine->plan);
    fedge_blob_release(engine->model);
    for (uint32_t i = 0; i < engine->num_deltas; i++)
        fedge_blob_release(engine->deltas[i]);
    fedge_server_run_close(&engine->server);
    free(engine);
}

bool fedge_engine_done(const fedge_engine *engine, fedge_error *failure)
{
    if (engine->done)
        *failure = engine->failure;
    return engine->done;
}

/* Writes the best round's model beside the last. Retention has kept its checkpoint; one that the
 * disk has damaged costs this file alone, and the summary then names no best model. */
static fedge_status export_best(fedge_engine *engine, fedge_error *err)
{
    const fedge_run *run = &engine->server.run;
    fedge_selected *best = &engine->server.selection.state.best;
    char path[FEDGE_MAX_PATH], checkpoints[FEDGE_MAX_PATH];
    fedge_checkpoint_data data = {0};
    if (best->round == 0)
        return FEDGE_OK;
    FEDGE_TRY(fedge_run_path(run, FEDGE_RUN_BEST_MODEL, path, err));
    FEDGE_TRY(fedge_run_path(run, "checkpoints", checkpoints, err));
    if (fedge_checkpoint_load(checkpoints, best->round, &data, err) != FEDGE_OK) {
        fedge_log_failure(engine->config.log, FEDGE_LOG_WARN, "best-model-lost", err);
        best->model[0] = '\0';
        return FEDGE_OK;
    }
    fedge_model_facts facts = {.run_id = run->run_id,
                               .round = best->round,
                               .loss = best->loss,
                               .accuracy = best->accuracy,
                               .validation_loss = best->validation_loss,
                               .validation_accuracy = best->validation_accuracy};
    memcpy(facts.model, best->model, sizeof(facts.model));
    const fedge_status status =
        fedge_model_file_write(path, engine->server.plan, &facts, data.model, data.model_size, err);
    fedge_checkpoint_data_fini(&data);
    return status;
}

/* With several models for clients to choose from, writes those after the first. */
static fedge_status export_clusters(fedge_engine *engine, const fedge_model_facts *facts,
                                    fedge_error *err)
{
    const size_t size = engine->server.control_size;
    if (!fedge_plan_is_clustered(engine->server.plan) || size == 0)
        return FEDGE_OK;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for model files of %zu bytes", size);
    fedge_status status;
    FEDGE_TRY_OR(fedge_engine_read_model(engine, engine->model->size - size, bytes, size, err),
                 done);
    status = fedge_model_file_write_clusters(engine->server.run.dir, engine->server.plan, facts,
                                             bytes, size, err);
done:
    free(bytes);
    return status;
}

static fedge_status export_last(fedge_engine *engine, const char *path,
                                const fedge_model_facts *facts, fedge_error *err)
{
    const size_t size = engine->model->size - engine->server.control_size;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model file of %zu bytes", size);
    fedge_status status;
    FEDGE_TRY_OR(fedge_engine_read_model(engine, 0, bytes, size, err), done);
    status = fedge_model_file_write(path, engine->server.plan, facts, bytes, size, err);
done:
    free(bytes);
    return status;
}

fedge_status fedge_engine_export(fedge_engine *engine, fedge_error *err)
{
    assert(is_owner(engine) && engine->done);
    const fedge_run *run = &engine->server.run;
    char model[FEDGE_MAX_PATH], log[FEDGE_MAX_PATH], picture[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_round_finalizer_wait(engine->finalizer, err));
    FEDGE_TRY(fedge_run_path(run, FEDGE_RUN_MODEL, model, err));
    FEDGE_TRY(fedge_run_path(run, "rounds.jsonl", log, err));
    FEDGE_TRY(fedge_run_path(run, FEDGE_RUN_PICTURE, picture, err));
    /* This comes before the model, whose file marks the results as written. */
    FEDGE_TRY(export_best(engine, err));
    const fedge_selected *last = &engine->server.selection.last;
    fedge_model_facts facts = {.run_id = run->run_id,
                               .round = engine->rounds_closed,
                               .loss = engine->loss,
                               .accuracy = engine->accuracy,
                               .validation_loss = last->validation_loss,
                               .validation_accuracy = last->validation_accuracy};
    memcpy(facts.model, engine->model_hash, sizeof(facts.model));
    FEDGE_TRY(export_last(engine, model, &facts, err));
    FEDGE_TRY(export_clusters(engine, &facts, err));
    FEDGE_TRY(fedge_plot_rounds(log, picture, engine->server.plan->name, err));
    if (fedge_rounds_is_complete(engine->rounds))
        fedge_engine_check_selection(engine);
    return FEDGE_OK;
}

fedge_status fedge_engine_conclude(fedge_engine *engine, fedge_error *err)
{
    assert(is_owner(engine) && engine->done);
    /* The next start continues a drained run. */
    return fedge_rounds_is_complete(engine->rounds) ? fedge_run_finish(&engine->server.run, err)
                                                    : FEDGE_OK;
}

void fedge_engine_tick(fedge_engine *engine, uint64_t now_ms)
{
    assert(is_owner(engine));
    if (!engine->done) {
        fedge_rounds_tick(engine->rounds, now_ms);
        fedge_engine_pump(engine, now_ms);
        fedge_engine_repair_models(engine);
        fedge_engine_send_not_before(engine, now_ms);
        fedge_engine_log_wait(engine, now_ms);
    }
}

void fedge_engine_drain(fedge_engine *engine, uint64_t now_ms)
{
    assert(is_owner(engine));
    FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "draining",
              fedge_log_int("round", fedge_rounds_round(engine->rounds)));
    engine->draining = true;
    fedge_rounds_drain(engine->rounds);
    fedge_engine_pump(engine, now_ms);
}

void fedge_engine_handle_completions(fedge_engine *engine, uint64_t now_ms)
{
    assert(is_owner(engine));
    for (fedge_mailbox_item *item = fedge_mailbox_take(engine->mailbox), *next; item; item = next) {
        fedge_completion *completion = (fedge_completion *)item;
        /* Read before the item is freed. */
        next = item->next;
        switch (completion->type) {
        case FEDGE_COMPLETION_VALIDATED:
            fedge_engine_on_validated(engine, completion, now_ms);
            break;
        case FEDGE_COMPLETION_RESUME:
            fedge_engine_resume_all(engine);
            break;
        case FEDGE_COMPLETION_OPENED:
            /* Uploads announced between two rounds have waited for this journal. */
            fedge_engine_on_opened(engine, completion, now_ms);
            fedge_engine_resume_deferred(engine, now_ms);
            break;
        case FEDGE_COMPLETION_CLOSED:
            fedge_engine_on_closed(engine, completion, now_ms);
            break;
        case FEDGE_COMPLETION_FATAL: {
            fedge_error err = {.status = completion->status};
            memcpy(err.message, completion->message, sizeof(err.message));
            fedge_engine_fail(engine, &err);
            break;
        }
        }
        fedge_round_finalizer_result_free(completion->result);
        free(completion);
    }
    fedge_engine_pump(engine, now_ms);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Many devices may lose the server at once: how long it takes to let all of them in again. A device
 * learns of a reloaded registry when it connects next. */
static uint32_t return_within_ms(const fedge_engine *engine)
{
    const fedge_engine_config *config = &engine->config;
    const uint64_t registered = config->num_registered(config->registry);
    const uint64_t ms = registered * config->return_every_us / 1000;
    return ms < FEDGE_MAX_RETURN_WITHIN_MS ? (uint32_t)ms : FEDGE_MAX_RETURN_WITHIN_MS;
}

static void welcome(fedge_engine *engine, const fedge_request *from)
{
    fedge_reply reply = {.welcome = {.protocol = FEDGE_PROTOCOL_MAX,
                                     .client_index = from->client_index,
                                     .server_time_ms = fedge_os_unix_ms(),
                                     .incarnation = engine->server.run.incarnation,
                                     .plan_size = engine->plan->size,
                                     .heartbeat_s = engine->config.heartbeat_s,
                                     .return_within_ms = return_within_ms(engine)}};
    memcpy(reply.welcome.run_id, engine->server.run.run_id, sizeof(reply.welcome.run_id));
    memcpy(reply.welcome.plan, engine->plan->hash, sizeof(reply.welcome.plan));
    /* Model 0 is current, or a delta starts from it. */
    if (engine->model_number <= engine->num_deltas)
        memcpy(reply.welcome.initial_model, engine->initial, sizeof(engine->initial));
    fedge_engine_send(engine, from->conn_id, FEDGE_MESSAGE_WELCOME, &reply);
}

static fedge_status grow_devices(fedge_engine *engine, uint32_t client_index, fedge_error *err)
{
    if (client_index < engine->num_devices)
        return FEDGE_OK;
    if (client_index >= FEDGE_REGISTRY_MAX_DEVICES) {
        return fedge_fail(err, FEDGE_TOO_BIG, "client index %u; at most %u devices are served",
                          client_index, FEDGE_REGISTRY_MAX_DEVICES);
    }
    const uint32_t wanted = client_index + 1;
    /* At least twice as many: devices that join in the order of their indices would otherwise have
     * the table copied for each. */
    const uint32_t count = wanted > 2 * engine->num_devices ? wanted : 2 * engine->num_devices;
    fedge_engine_device *devices = realloc(engine->devices, count * sizeof(*devices));
    if (!devices)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u connections", count);
    memset(devices + engine->num_devices, 0, (count - engine->num_devices) * sizeof(*devices));
    engine->devices = devices;
    engine->num_devices = count;
    return FEDGE_OK;
}

/* The device is ready. An older connection of the same device gets BYE and is closed. */
static fedge_status admit(fedge_engine *engine, const fedge_request *from, uint64_t now_ms,
                          fedge_error *err)
{
    FEDGE_TRY(grow_devices(engine, from->client_index, err));
    fedge_engine_device *device = &engine->devices[from->client_index];
    if (device->conn_id != FEDGE_CONN_ALL) {
        fedge_engine_close_conn(engine, device->conn_id, FEDGE_MESSAGE_BYE, FEDGE_REASON_REPLACED,
                                0, "the same device has connected again");
    }
    device->conn_id = from->conn_id;
    device->hangs_up = from->hangs_up;
    /* The task may not have arrived on the old connection: send it again. */
    device->sent_task_id = 0;
    if (engine->gave_up_client == from->client_index)
        engine->gave_up[0] = '\0'; /* the client tries again */
    memcpy(device->device_id, from->device_id, sizeof(device->device_id));
    /* WELCOME goes first: joining may send a task, and a client reads WELCOME first. */
    welcome(engine, from);
    const fedge_status status = fedge_rounds_join(engine->rounds, from->client_index, now_ms, err);
    if (status != FEDGE_OK)
        device->conn_id = FEDGE_CONN_ALL;
    return status;
}

static void join(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    fedge_error err;
    if (admit(engine, from, now_ms, &err) == FEDGE_OK) {
        fedge_engine_pump(engine, now_ms);
    } else {
        fedge_engine_close_conn(engine, from->conn_id, FEDGE_MESSAGE_REFUSE, FEDGE_REASON_INTERNAL,
                                10000, err.message);
    }
}

static void leave(fedge_engine *engine, const fedge_request *from)
{
    if (fedge_engine_conn_of(engine, from->client_index) == from->conn_id) {
        engine->devices[from->client_index].conn_id = FEDGE_CONN_ALL;
        /* The next tick acts on it, so that clients that leave together are handled together. */
        fedge_rounds_leave(engine->rounds, from->client_index);
    }
}

static void fetch(fedge_engine *engine, const fedge_request *from)
{
    /* The hash decides, never "the newest": a late client must get the bytes its task named. */
    const fedge_blob_ref *wanted = &from->message.blob;
    const char *hash = wanted->hash;
    fedge_blob *blob = strcmp(hash, engine->plan->hash) == 0    ? engine->plan
                       : strcmp(hash, engine->model->hash) == 0 ? engine->model
                                                                : NULL;
    for (uint32_t i = 0; i < engine->num_deltas && !blob; i++)
        blob = strcmp(hash, engine->deltas[i]->hash) == 0 ? engine->deltas[i] : NULL;
    if (!blob && engine->model->parts && strcmp(hash, engine->model->parts->hash) == 0)
        blob = engine->model->parts;
    if (!blob)
        blob = fedge_engine_find_old_model(engine, hash);
    if (blob) {
        fedge_engine_send_blob(engine, from->conn_id, blob, wanted->offset, wanted->size);
    } else {
        const fedge_notice notice = fedge_stale_blob_notice(hash);
        fedge_engine_send_notice(engine, from->conn_id, FEDGE_MESSAGE_REFUSE, &notice);
    }
}

/* True for a request of an old connection: the device has connected again since. */
static bool is_displaced(const fedge_engine *engine, const fedge_request *from)
{
    const uint64_t present = fedge_engine_conn_of(engine, from->client_index);
    return from->type != FEDGE_REQUEST_JOIN && present != FEDGE_CONN_ALL &&
           present != from->conn_id;
}

/* Uses these GPUs from the next round on. All of them must exist, whatever skip_missing says: an
 * operator has just written the list. */
static void want_gpus(fedge_engine *engine, const fedge_accumulator_config *sums)
{
    fedge_accumulator_config *wanted = &engine->config.sums;
    wanted->num_gpus = sums->num_gpus;
    memcpy(wanted->gpus, sums->gpus, sizeof(wanted->gpus));
    wanted->skip_missing = false;
    engine->gpus_wanted = true;
}

static void handle_message(fedge_engine *engine, fedge_request *request, uint64_t now_ms)
{
    switch (request->message.type) {
    case FEDGE_MESSAGE_FETCH:
        fetch(engine, request);
        break;
    case FEDGE_MESSAGE_UPLOAD:
        fedge_engine_upload(engine, request, now_ms);
        break;
    case FEDGE_MESSAGE_PART:
        fedge_engine_part(engine, request, now_ms);
        break;
    case FEDGE_MESSAGE_DECLINE:
        fedge_engine_decline(engine, request, now_ms);
        break;
    default: /* the connection answers all other messages */
        break;
    }
}

static void handle(fedge_engine *engine, fedge_request *request, uint64_t now_ms)
{
    switch (request->type) {
    case FEDGE_REQUEST_JOIN:
        join(engine, request, now_ms);
        break;
    case FEDGE_REQUEST_LEAVE:
        leave(engine, request);
        break;
    case FEDGE_REQUEST_MESSAGE:
        handle_message(engine, request, now_ms);
        break;
    case FEDGE_REQUEST_DRAIN:
        fedge_engine_drain(engine, now_ms);
        break;
    case FEDGE_REQUEST_REPORT:
        fedge_engine_report(engine, request, now_ms);
        break;
    case FEDGE_REQUEST_GPUS:
        want_gpus(engine, &request->sums);
    }
}

void fedge_engine_handle(fedge_engine *engine, fedge_request *request, uint64_t now_ms)
{
    assert(is_owner(engine));
    /* Types from DRAIN on come from this process or from other ranks, not from a device. */
    const bool of_device = request->type < FEDGE_REQUEST_DRAIN;
    if (!engine->done && (!of_device || !is_displaced(engine, request)))
        handle(engine, request, now_ms);
    fedge_request_free(request);
}

/* ---- status ---------------------------------------------------------------------------------- */

void fedge_engine_get_status(const fedge_engine *engine, fedge_run_status *status)
{
    fedge_ingest_stats stats;
    fedge_ingest_get_stats(engine->ingest, &stats);
    *status = (fedge_run_status){
        .healthy = engine->failure.status == FEDGE_OK,
        .complete = fedge_rounds_is_complete(engine->rounds),
        .round = fedge_rounds_round(engine->rounds),
        .rounds_closed = engine->rounds_closed,
        .num_server_rounds = engine->config.job->rounds.num_server_rounds,
        .connected = fedge_rounds_num_connected(engine->rounds),
        .incarnation = engine->server.run.incarnation,
        .updates_accepted = engine->updates_accepted,
        .updates_refused = engine->updates_refused,
        .updates_duplicate = engine->updates_duplicate,
        .bytes_up = atomic_load(&engine->config.traffic->up),
        .bytes_down = atomic_load(&engine->config.traffic->down),
        .run_bytes_up = engine->run_bytes_up,
        .run_bytes_down = engine->run_bytes_down,
        .seconds = (double)(engine->server.elapsed_before_ms + fedge_os_monotonic_ms() -
                            engine->server.opened_ms) *
                   1e-3,
        .ingest_queued_bytes = stats.queued_bytes,
        .seconds_validate = (double)stats.validate_ns * 1e-9,
        .seconds_journal = (double)stats.journal_ns * 1e-9,
        .seconds_sum = (double)stats.sum_ns * 1e-9,
        .accuracy = engine->accuracy,
        .loss = engine->loss,
    };
    const fedge_selection *selection = &engine->server.selection;
    status->stopped_early = engine->stopped_early;
    status->keeps_best = selection->keep.present;
    status->criterion = selection->keep.metric;
    if (engine->done) { /* the round finalizer, which writes the selection, is idle */
        status->best = selection->state.best;
        status->best_value = selection->state.keep.best;
    }
    memcpy(status->run_id, engine->server.run.run_id, sizeof(status->run_id));
    memcpy(status->model_hash, engine->model_hash, sizeof(status->model_hash));
    /* While GPUs are replaced the accumulator belongs to the round finalizer's thread. */
    fedge_sums_snapshot now;
    if (!engine->gpus_change)
        fedge_engine_snapshot_sums(engine, &now);
    const fedge_sums_snapshot *sums = engine->gpus_change ? &engine->sums_snapshot : &now;
    memcpy(status->accumulator, sums->kind, sizeof(status->accumulator));
    status->num_gpus = sums->num_gpus;
    memcpy(status->gpus, sums->gpus, sums->num_gpus * sizeof(*sums->gpus));
    memcpy(status->run_dir, engine->server.run.dir, sizeof(status->run_dir));
    fedge_engine_describe(engine, status->state, sizeof(status->state));
}
