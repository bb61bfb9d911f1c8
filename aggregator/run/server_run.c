#include "aggregator/run/server_run.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/rounds/evaluator.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

#define MAX_STEP_THREADS 8

/* ---- rounds.jsonl ---------------------------------------------------------------------------- */

static fedge_status append_line(fedge_server_run *server, const fedge_round_summary *summary,
                                fedge_error *err)
{
    fedge_buffer line;
    fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_round_summary_write(summary, &line, err), done);
    status = fedge_round_log_append(&server->round_log, summary->round, summary->kind,
                                    (const char *)line.data, err);
done:
    fedge_buffer_fini(&line);
    return status == FEDGE_DUPLICATE ? FEDGE_OK : status; /* duplicate: written before a crash */
}

/* A GPU's work between two snapshots; its memory is that of the later one. */
static fedge_gpu_stats difference(fedge_gpu_stats now, const fedge_gpu_stats *before)
{
    now.decoded_bytes -= before->decoded_bytes;
    now.seconds_copy -= before->seconds_copy;
    now.seconds_decode -= before->seconds_decode;
    now.seconds_reduce -= before->seconds_reduce;
    now.seconds_step -= before->seconds_step;
    return now;
}

/* The line reports the GPUs' work since the last line. */
static fedge_status append_training_line(fedge_server_run *server, fedge_round_summary *summary,
                                         fedge_error *err)
{
    fedge_gpu_stats now[FEDGE_ACCUMULATOR_MAX_GPUS], done[FEDGE_ACCUMULATOR_MAX_GPUS];
    const uint32_t count =
        fedge_accumulator_stats(&server->model.accumulator, now, FEDGE_ACCUMULATOR_MAX_GPUS);
    for (uint32_t i = 0; i < count; i++) {
        done[i] = difference(now[i], &server->logged_gpus[i]);
        server->logged_gpus[i] = now[i];
    }
    summary->gpus = done;
    summary->num_gpus = count;
    const fedge_status status = append_line(server, summary, err);
    summary->gpus = NULL;
    summary->num_gpus = 0;
    return status;
}

/* The checkpoint makes them durable. */
static void count_bytes(fedge_server_run *server, const fedge_round_summary *summary)
{
    server->checkpoint.bytes_up += summary->bytes_up;
    server->checkpoint.bytes_down += summary->bytes_down;
}

/* Counts a phase that writes no checkpoint in that of the last closed round. */
static fedge_status count_in_checkpoint(fedge_server_run *server,
                                        const fedge_round_summary *summary, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    count_bytes(server, summary);
    FEDGE_TRY(fedge_run_path(&server->run, "checkpoints", dir, err));
    return fedge_checkpoint_update(dir, &server->checkpoint, err);
}

fedge_status fedge_server_run_log_evaluation(fedge_server_run *server,
                                             const fedge_round_summary *summary, fedge_error *err)
{
    assert(summary->kind == FEDGE_TASK_EVALUATE);
    (void)fedge_selection_add(&server->selection, summary);
    server->checkpoint.selection = server->selection.state;
    /* This comes before the line: without one the evaluation is repeated. */
    FEDGE_TRY(count_in_checkpoint(server, summary, err));
    return append_line(server, summary, err);
}

/* ---- moving the model ------------------------------------------------------------------------ */

/* The checkpoint of the present state: a copy of all that it needs. */
static fedge_status make_save(fedge_server_run *server, fedge_save **save, fedge_error *err)
{
    fedge_buffer strategy;
    *save = NULL;
    fedge_save *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a checkpoint");
    fresh->checkpoint = server->checkpoint;
    /* Shared, not copied: a blob's bytes never change, and clients fetch it meanwhile. */
    fresh->model = fedge_blob_retain(server->model_file);
    fresh->model_size = server->model_size;
    memcpy(fresh->model_hash, server->model_hash, sizeof(fresh->model_hash));
    fresh->run = &server->run;
    fresh->keep_checkpoints = server->job->keep_checkpoints;
    fresh->best_round = server->selection.state.best.round;
    fedge_buffer_init(&strategy, FEDGE_STRATEGY_MAX_STATE);
    fedge_status status;
    FEDGE_TRY_OR(fedge_last_accepted_write(&server->last_accepted, &fresh->last_accepted,
                                           &fresh->last_accepted_size, err),
                 done);
    status = fedge_global_model_save(&server->model, &strategy, err);
    fresh->strategy_state = strategy.data;
    fresh->strategy_state_size = strategy.size;
done:
    if (status == FEDGE_OK)
        *save = fresh;
    else
        fedge_save_free(fresh);
    return status;
}

void fedge_server_run_saved(fedge_server_run *server, const fedge_save *save)
{
    const fedge_checkpoint *written = &save->checkpoint;
    fedge_checkpoint *present = &server->checkpoint;
    assert(written->round == present->round); /* it is the last one made */
    /* The hashes alone: the rest of [present] may be ahead of what was written. */
    memcpy(present->model, written->model, sizeof(present->model));
    memcpy(present->strategy_state, written->strategy_state, sizeof(present->strategy_state));
    memcpy(present->last_accepted, written->last_accepted, sizeof(present->last_accepted));
}

/* Writes a checkpoint at the start, where nothing can run meanwhile. */
static fedge_status save_now(fedge_server_run *server, fedge_save *save, fedge_error *err)
{
    const fedge_status status = fedge_save_write(save, err);
    if (status == FEDGE_OK)
        fedge_server_run_saved(server, save);
    fedge_save_free(save);
    return status;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
}

/* Records which updates the clients' state follows. Once a client has lost its state there are
 * none, and the strategy begins anew. */
static fedge_status derive_last_accepted(fedge_server_run *server, fedge_journal *journal,
                                         uint32_t lost, fedge_error *err)
{
    const fedge_strategy_ops *strategy = server->model.strategy;
    if (!fedge_plan_has_client_state(server->plan))
        return FEDGE_OK;
    if (lost == 0 || !strategy->forget)
        return fedge_last_accepted_add(&server->last_accepted, journal, err);
    fedge_global_model_forget(&server->model);
    fedge_last_accepted_clear(&server->last_accepted);
    FEDGE_LOG(server->log, FEDGE_LOG_WARN, "control-variates-begin-anew",
              fedge_log_int("round", fedge_journal_get_phase(journal)->round),
              fedge_log_int("clients-that-lost-theirs", lost),
              fedge_log_str("advice", "give clients a --state that stays"));
    return FEDGE_OK;
}

/* Notes the clients that were asked and delivered nothing: those whose task went to another client,
 * and at a deadline those whose task was still open. A phase with enough updates has cancelled the
 * remaining tasks. All of it comes from the journal, so closing the round again notes the same. */
static fedge_status note_missed(fedge_server_run *server, fedge_journal *journal, fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    /* Clients whose task was cancelled since the round had enough have missed nothing. */
    const bool late = fedge_journal_num_accepted(journal) < phase->wanted;
    uint32_t *replaced = NULL, num = 0;
    fedge_status status;
    FEDGE_TRY_OR(fedge_journal_replaced(journal, &replaced, &num, err), done);
    for (uint32_t i = 0; i < num; i++)
        FEDGE_TRY_OR(fedge_global_model_miss(&server->model, replaced[i], err), done);
    for (uint32_t i = 0; late && i < phase->num_tasks; i++) {
        const fedge_journal_slot slot = fedge_journal_get_slot(journal, i);
        if (!slot.accepted) {
            FEDGE_TRY_OR(fedge_global_model_miss(&server->model, slot.task.client_index, err),
                         done);
        }
    }
done:
    free(replaced);
    return status;
}

/* Lists the updates of a buffer, for the line. */
static fedge_status list_buffered(const fedge_server_run *server, const fedge_update_facts *facts,
                                  fedge_round_summary *summary, fedge_error *err)
{
    if (server->job->rounds.buffer_size == 0 ||
        summary->reported > FEDGE_ROUND_SUMMARY_MAX_BUFFERED)
        return FEDGE_OK;
    summary->buffered = calloc((size_t)summary->reported + 1, sizeof(*summary->buffered));
    if (!summary->buffered)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a line of a round");
    for (summary->num_buffered = 0; summary->num_buffered < summary->reported;
         summary->num_buffered++) {
        const fedge_update_facts *of = &facts[summary->num_buffered];
        summary->buffered[summary->num_buffered] =
            (fedge_buffered_update){of->client, of->staleness};
    }
    return FEDGE_OK;
}

/* Lists the devices, for the line. A loss of 0 was not reported. */
static fedge_status list_devices(const fedge_update_facts *facts, fedge_round_summary *summary,
                                 fedge_error *err)
{
    for (uint32_t i = 0; i < summary->reported; i++) {
        FEDGE_TRY(fedge_round_summary_add_device(
            summary,
            &(fedge_device_part){facts[i].client, facts[i].num_examples,
                                 facts[i].loss != 0.0 ? facts[i].loss : NAN},
            err));
    }
    return FEDGE_OK;
}

static fedge_status evaluate(fedge_server_run *server, fedge_round_summary *summary,
                             fedge_error *err)
{
    const uint64_t start = fedge_os_monotonic_ns();
    summary->loss = NAN;
    summary->accuracy = NAN;
    if (server->evaluator) {
        FEDGE_TRY(fedge_evaluator_run(server->evaluator, server->model.values, &summary->loss,
                                      &summary->accuracy, err));
        FEDGE_TRY(fedge_evaluator_measure(server->evaluator, server->model.values, summary, err));
    }
    summary->seconds_evaluate = seconds_since(start);
    return FEDGE_OK;
}

static fedge_status step_and_evaluate(fedge_server_run *server, fedge_journal *journal,
                                      fedge_gathered *gathered, fedge_round_summary *summary,
                                      fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    const fedge_updates updates = fedge_accepted_updates_get(&gathered->updates);
    const uint64_t start = fedge_os_monotonic_ns();
    FEDGE_TRY(fedge_global_model_step(&server->model, phase->round, phase->bounds_log2,
                                      gathered->facts,
                                      server->model.strategy->collects ? &updates : NULL, err));
    FEDGE_TRY(note_missed(server, journal, err));
    FEDGE_TRY(derive_last_accepted(server, journal, gathered->states_lost, err));
    FEDGE_TRY(fedge_server_run_write_model(server, err));
    summary->seconds_step = seconds_since(start);
    return evaluate(server, summary, err);
}

/* Continues the phase without the damaged updates, whose values were added as they arrived. */
static fedge_status reopen(fedge_server_run *server, fedge_journal *journal, fedge_error *err)
{
    /* Syncs the losses first: with them no start takes the updates for intact. */
    FEDGE_TRY(fedge_journal_sync(journal, err));
    FEDGE_TRY(fedge_global_model_reset(&server->model, err));
    return fedge_server_run_replay(server, journal, err);
}

/* Seals the phase, steps the model and evaluates it. */
static fedge_status close_with(fedge_server_run *server, fedge_journal *journal,
                               fedge_gathered *gathered, fedge_round_summary *summary,
                               fedge_error *err)
{
    /* The seal comes before the step. With it a crash during the step closes the round again with
     * just these updates; without it a late one could join them, and the model would be another. */
    FEDGE_TRY(fedge_journal_close(journal, err));
    /* This comes after the seal: until then updates came in on every rank. */
    FEDGE_TRY(fedge_server_run_join_sums(server, err));
    FEDGE_TRY(step_and_evaluate(server, journal, gathered, summary, err));
    FEDGE_TRY(list_devices(gathered->facts, summary, err));
    return list_buffered(server, gathered->facts, summary, err);
}

/* Closes the phase, or continues it if the disk has damaged updates that the step reads. */
static fedge_status close_or_reopen(fedge_server_run *server, fedge_journal *journal,
                                    fedge_round_summary *summary, bool *reopened, fedge_error *err)
{
    fedge_gathered gathered;
    fedge_status status;
    FEDGE_TRY_OR(fedge_server_run_gather(server, journal, summary, &gathered, err), done);
    *reopened = gathered.num_damaged > 0;
    if (!*reopened)
        status = close_with(server, journal, &gathered, summary, err);
done:
    fedge_gathered_fini(&gathered);
    return *reopened ? reopen(server, journal, err) : status;
}

fedge_status fedge_server_run_step(fedge_server_run *server, fedge_journal *journal,
                                   fedge_round_summary *summary, bool *reopened, fedge_save **save,
                                   fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    assert(phase->round == server->checkpoint.round + 1); /* rounds are stepped once, in order */
    *save = NULL;
    *reopened = false;
    fedge_status status = close_or_reopen(server, journal, summary, reopened, err);
    if (status != FEDGE_OK) {
        fedge_round_summary_fini(summary);
        return fedge_error_prefix(err, status, "round %u", phase->round);
    }
    if (*reopened)
        return FEDGE_OK;
    fedge_checkpoint *checkpoint = &server->checkpoint;
    memcpy(summary->model, server->model_hash, sizeof(summary->model));
    checkpoint->round = phase->round;
    checkpoint->next_task_id = fedge_journal_next_task_id(journal);
    checkpoint->loss = summary->loss;
    checkpoint->accuracy = summary->accuracy;
    (void)fedge_selection_add(&server->selection, summary);
    checkpoint->selection = server->selection.state;
    checkpoint->elapsed_ms =
        server->elapsed_before_ms + fedge_os_monotonic_ms() - server->opened_ms;
    count_bytes(server, summary);
    /* The line before the checkpoint: a crash in between closes the round again and finds its line
     * there (FEDGE_DUPLICATE). The other way round a round could be without a line. */
    status = append_training_line(server, summary, err);
    fedge_round_summary_fini(summary);
    if (status != FEDGE_OK)
        return status;
    /* The sums are 0 before the next phase opens, which adds its updates to them. */
    FEDGE_TRY(fedge_global_model_reset(&server->model, err));
    return make_save(server, save, err);
}

fedge_status fedge_server_run_drop(fedge_server_run *server, fedge_journal *journal,
                                   const fedge_round_summary *summary, fedge_error *err)
{
    FEDGE_TRY(count_in_checkpoint(server, summary, err));
    FEDGE_TRY(fedge_journal_fail(journal, err));
    return fedge_global_model_reset(&server->model, err);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* True when the GPUs of [sums] are those in use. Never true for "all": only opening finds those. */
static bool are_in_use(const fedge_server_run *server, const fedge_accumulator_config *sums)
{
    fedge_gpu_stats stats[FEDGE_ACCUMULATOR_MAX_GPUS];
    const uint32_t count =
        fedge_accumulator_stats(&server->model.accumulator, stats, FEDGE_ACCUMULATOR_MAX_GPUS);
    bool same = sums->num_gpus > 0 && sums->num_gpus == count;
    for (uint32_t i = 0; i < count && same; i++)
        same = stats[i].gpu == sums->gpus[i];
    return same;
}

fedge_status fedge_server_run_change_gpus(fedge_server_run *server,
                                          const fedge_accumulator_config *sums, fedge_error *err)
{
    if (are_in_use(server, sums))
        return FEDGE_OK;
    /* Naming a lost GPU asks for it again. */
    const uint64_t lost = sums->lost ? atomic_load(&sums->lost->numbers) : 0;
    fedge_lost_gpus_forget(sums->lost, sums->gpus, sums->num_gpus);
    fedge_error why;
    const char *present = server->model.accumulator.ops->name;
    /* If GPUs sum, a list that cannot be opened must not fall back to the CPU. */
    const char *name =
        strcmp(present, fedge_accumulator_cpu.name) == 0 ? server->accumulator : present;
    if (fedge_global_model_reopen(&server->model, name, sums, &why) == FEDGE_OK) {
        server->sums = *sums;
        memset(server->logged_gpus, 0, sizeof(server->logged_gpus)); /* they count from 0 again */
        return fedge_server_run_wrap_sums(server, err);
    }
    fedge_log_failure(server->log, FEDGE_LOG_ERROR, "gpus-refused", &why);
    memset(server->logged_gpus, 0, sizeof(server->logged_gpus));
    if (sums->lost)
        (void)atomic_fetch_or(&sums->lost->numbers, lost);
    /* What was in use a moment ago can be opened again, or a GPU has been lost and the process
     * ends. */
    FEDGE_TRY(fedge_global_model_reopen(&server->model, name, &server->sums, err));
    return fedge_server_run_wrap_sums(server, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Round 0: the model before any training. */
static fedge_status begin_run(fedge_server_run *server, fedge_error *err)
{
    FEDGE_TRY(fedge_global_model_begin(&server->model, err));
    FEDGE_TRY(fedge_server_run_write_model(server, err));
    server->checkpoint = (fedge_checkpoint){.next_task_id = 1, .loss = NAN, .accuracy = NAN};
    memcpy(server->checkpoint.run_id, server->run.run_id, sizeof(server->run.run_id));
    memcpy(server->checkpoint.strategy, server->model.strategy->reader.name,
           strlen(server->model.strategy->reader.name) + 1);
    server->checkpoint.incarnation = server->run.incarnation;
    fedge_save *save = NULL;
    FEDGE_TRY(make_save(server, &save, err));
    return save_now(server, save, err);
}

/* Serves the model from the checkpoint's file, so that it need not stay in memory. */
static void serve_from_checkpoint(const fedge_server_run *server)
{
    char dir[FEDGE_MAX_PATH], path[FEDGE_MAX_PATH];
    const fedge_checkpoint *checkpoint = &server->checkpoint;
    if (strcmp(server->model_file->hash, checkpoint->model) == 0 &&
        fedge_run_path(&server->run, "checkpoints", dir, NULL) == FEDGE_OK &&
        fedge_checkpoint_model_path(dir, checkpoint->round, path, NULL) == FEDGE_OK &&
        fedge_blob_move_to_file(server->model_file, path, NULL) != FEDGE_OK)
        return; /* the model stays in memory */
}

static fedge_status restore_model(fedge_server_run *server, const fedge_checkpoint_data *data,
                                  fedge_error *err)
{
    FEDGE_TRY(fedge_global_model_load(&server->model, data->model, data->model_size,
                                      data->strategy_state, data->strategy_state_size, err));
    FEDGE_TRY(fedge_last_accepted_read(&server->last_accepted, data->last_accepted,
                                       data->last_accepted_size, err));
    if (server->last_accepted.num_clients == 0 && server->model.strategy->forget)
        fedge_global_model_forget(&server->model); /* no client has state */
    return FEDGE_OK;
}

/* Takes over what a checkpoint holds. */
static fedge_status load_checkpoint(fedge_server_run *server, fedge_checkpoint_data *data,
                                    fedge_error *err)
{
    if (strcmp(data->checkpoint.strategy, server->model.strategy->reader.name) != 0) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "the run's checkpoint is of strategy %s and the job asks for %s; start "
                          "with --new-run",
                          data->checkpoint.strategy, server->model.strategy->reader.name);
    }
    const fedge_status status = restore_model(server, data, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "checkpoint of round %u", data->checkpoint.round);
    fedge_selected last = {.round = data->checkpoint.round,
                           .loss = data->checkpoint.loss,
                           .accuracy = data->checkpoint.accuracy,
                           .validation_loss = NAN,
                           .validation_accuracy = NAN};
    memcpy(last.model, data->checkpoint.model, sizeof(last.model));
    fedge_selection_restore(&server->selection, &data->checkpoint.selection, &last);
    server->checkpoint = data->checkpoint;
    server->elapsed_before_ms = data->checkpoint.elapsed_ms;
    server->checkpoint.incarnation = server->run.incarnation;
    FEDGE_TRY(fedge_server_run_write_model(server, err));
    serve_from_checkpoint(server);
    return FEDGE_OK;
}

static fedge_status close_recovered(fedge_server_run *server, fedge_recovery *recovery,
                                    fedge_error *err)
{
    fedge_round_summary summary = {.round = recovery->last_closed + 1,
                                   .attempt = recovery->attempt,
                                   .kind = FEDGE_TASK_TRAIN,
                                   /* The journal does not have it. */
                                   .seconds_upload = NAN};
    FEDGE_LOG(server->log, FEDGE_LOG_INFO, "round-closed-again",
              fedge_log_int("round", summary.round));
    fedge_save *save = NULL;
    bool reopened = false; /* a sealed phase is never reopened */
    FEDGE_TRY(fedge_server_run_step(server, recovery->journal, &summary, &reopened, &save, err));
    return save ? save_now(server, save, err) : FEDGE_OK;
}

/* Damaged lines do not stop a run, since they are for people: they are left out. */
static fedge_status open_round_log(fedge_server_run *server, const char *path, uint32_t last_closed,
                                   fedge_error *err)
{
    const fedge_status status = fedge_round_log_open(&server->round_log, path, last_closed, err);
    if (status != FEDGE_CORRUPT)
        return status;
    FEDGE_LOG(server->log, FEDGE_LOG_WARN, "round-log-damaged",
              fedge_log_str("error", err->message),
              fedge_log_str("put-aside-as", FEDGE_ROUND_LOG_DAMAGED));
    FEDGE_TRY(fedge_round_log_mend(path, err));
    return fedge_round_log_open(&server->round_log, path, last_closed, err);
}

/* One pass of the loop in aggregator/store/recovery.h. *done: the run is restored to [recovery]. */
static fedge_status recover_once(fedge_server_run *server, fedge_recovery *recovery, bool *done,
                                 fedge_error *err)
{
    FEDGE_TRY(fedge_recover(&server->run, recovery, err));
    if (recovery->note[0])
        FEDGE_LOG(server->log, FEDGE_LOG_WARN, "recovered", fedge_log_str("note", recovery->note));
    *done = false;
    if (!recovery->has_checkpoint)
        return begin_run(server, err);
    FEDGE_TRY(load_checkpoint(server, &recovery->checkpoint, err));
    /* The log is opened once: recover_once may be called again after a round was closed. */
    if (!server->round_log.file.path[0]) {
        char path[FEDGE_MAX_PATH];
        FEDGE_TRY(fedge_run_path(&server->run, "rounds.jsonl", path, err));
        FEDGE_TRY(open_round_log(server, path, recovery->last_closed, err));
        if (server->round_log.last_round < recovery->last_closed) {
            FEDGE_LOG(server->log, FEDGE_LOG_WARN, "round-log-incomplete",
                      fedge_log_str("file", path),
                      fedge_log_int("last-line-of-round", server->round_log.last_round),
                      fedge_log_int("rounds-closed", recovery->last_closed));
        }
    }
    if (recovery->journal)
        FEDGE_TRY(fedge_server_run_recover_updates(server, recovery, err));
    if (recovery->journal)
        FEDGE_TRY(fedge_server_run_replay(server, recovery->journal, err));
    if (recovery->reclose)
        return close_recovered(server, recovery, err);
    *done = true;
    return FEDGE_OK;
}

static fedge_status set_up(fedge_server_run *server, const fedge_server_run_config *config,
                           fedge_error *err)
{
    FEDGE_TRY(fedge_selection_init(&server->selection, config->job, false, err));
    FEDGE_TRY(fedge_global_model_init(&server->model, server->job, config->accumulator,
                                      config->sums, err));
    FEDGE_TRY(fedge_server_run_wrap_sums(server, err));
    const unsigned cpus = fedge_os_num_cpus(); /* no other work is done during a step */
    server->model.num_threads = cpus < MAX_STEP_THREADS ? cpus : MAX_STEP_THREADS;
    /* Takes the lock of the state directory: nothing before it touches the run. */
    FEDGE_TRY(fedge_state_open(config->state_dir, &server->state, err));
    fedge_run_request wanted = config->request;
    wanted.num_cluster_models =
        fedge_plan_is_clustered(server->plan) ? fedge_plan_num_broadcast(server->plan) : 0;
    FEDGE_TRY(fedge_run_open(&server->state, &wanted, &server->run, err));
    /* The incarnation rises before any device can connect: results of the old one are refused from
     * the first message on. */
    return config->restored && server->run.resumed && !server->run.finished
               ? fedge_run_raise_incarnation(&server->run, err)
               : FEDGE_OK;
}

static fedge_status recover(fedge_server_run *server, fedge_recovery *recovery, fedge_error *err)
{
    /* Each pass reads the disk again, even after one that wrote to it: the run continues from what
     * any later start would find. */
    for (bool done = false; !done;) {
        fedge_recovery_fini(recovery);
        *recovery = (fedge_recovery){0};
        FEDGE_TRY(recover_once(server, recovery, &done, err));
    }
    return server->run.finished ? FEDGE_OK : fedge_server_run_agree_on_sums(server, err);
}

fedge_status fedge_server_run_open(fedge_server_run *server, const fedge_server_run_config *config,
                                   fedge_recovery *recovery, fedge_error *err)
{
    *server = (fedge_server_run){.job = config->job,
                                 .plan = &config->job->plan,
                                 .accumulator = config->accumulator,
                                 .sums = *config->sums,
                                 .ranks = config->ranks,
                                 .log = config->log,
                                 .evaluator = config->evaluator,
                                 .opened_ms = fedge_os_monotonic_ms(),
                                 .state.lock = -1,
                                 .round_log.file.fd = -1};
    *recovery = (fedge_recovery){0};
    fedge_status status = set_up(server, config, err);
    /* The other ranks wait there for this one's status, whatever it is. */
    FEDGE_TRY(fedge_server_run_rendezvous(server, config->state_dir, status, err));
    status = recover(server, recovery, err);
    fedge_server_run_end_rendezvous(server);
    if (status == FEDGE_OK && !server->run.finished)
        status = fedge_run_begin_task_ids(&server->run, recovery->next_task_id, err);
    if (status != FEDGE_OK) {
        fedge_recovery_fini(recovery);
        *recovery = (fedge_recovery){0};
    }
    return status;
}

void fedge_server_run_close(fedge_server_run *server)
{
    if (server->round_log.file.path[0])
        fedge_round_log_close(&server->round_log);
    fedge_state_close(&server->state);
    fedge_global_model_fini(&server->model);
    fedge_blob_release(server->last_parts);
    fedge_blob_release(server->model_file);
    fedge_last_accepted_clear(&server->last_accepted);
    *server = (fedge_server_run){.state.lock = -1};
}
