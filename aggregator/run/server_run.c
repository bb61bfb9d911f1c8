#include "aggregator/run/server_run.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/run/model_parts.h"
#include "aggregator/run/server_run_ranks.h"
#include "aggregator/run/server_run_updates.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/client_hooks.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define MAX_STEP_THREADS 8

/* ---- rounds.jsonl ---------------------------------------------------------------------------- */

static fedge_status append_line(fedge_global *global, const fedge_round_summary *summary,
                                fedge_error *err)
{
    fedge_buffer line;
    fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
    fedge_status status = fedge_round_summary_write(summary, &line, err);
    if (status == FEDGE_OK) {
        status = fedge_round_log_append(&global->round_log, summary->round, summary->kind,
                                        (const char *)line.data, err);
    }
    fedge_buffer_fini(&line);
    return status == FEDGE_DUPLICATE ? FEDGE_OK : status; /* written before a crash */
}

/* What a GPU has done between two looks at it; its memory is that of the last. */
static fedge_gpu_stats difference(fedge_gpu_stats now, const fedge_gpu_stats *before)
{
    now.decoded_bytes -= before->decoded_bytes;
    now.seconds_copy -= before->seconds_copy;
    now.seconds_decode -= before->seconds_decode;
    now.seconds_reduce -= before->seconds_reduce;
    now.seconds_step -= before->seconds_step;
    return now;
}

/* The line has what GPUs did since the last one. */
static fedge_status append_training_line(fedge_global *global, fedge_round_summary *summary,
                                         fedge_error *err)
{
    fedge_gpu_stats now[FEDGE_ACCUMULATOR_MAX_GPUS], done[FEDGE_ACCUMULATOR_MAX_GPUS];
    const uint32_t count =
        fedge_accumulator_stats(&global->model.accumulator, now, FEDGE_ACCUMULATOR_MAX_GPUS);
    for (uint32_t i = 0; i < count; i++) {
        done[i] = difference(now[i], &global->told[i]);
        global->told[i] = now[i];
    }
    summary->gpus = done;
    summary->num_gpus = count;
    const fedge_status status = append_line(global, summary, err);
    summary->gpus = NULL;
    summary->num_gpus = 0;
    return status;
}

/* Durable with the checkpoint. */
static void count_bytes(fedge_global *global, const fedge_round_summary *summary)
{
    global->checkpoint.bytes_up += summary->bytes_up;
    global->checkpoint.bytes_down += summary->bytes_down;
}

/* For a phase that leaves no checkpoint of its own: in that of the last closed round. */
static fedge_status count_in_checkpoint(fedge_global *global, const fedge_round_summary *summary,
                                        fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    count_bytes(global, summary);
    FEDGE_TRY(fedge_run_path(&global->run, "checkpoints", dir, err));
    return fedge_checkpoint_update(dir, &global->checkpoint, err);
}

fedge_status fedge_global_log_evaluation(fedge_global *global, const fedge_round_summary *summary,
                                         fedge_error *err)
{
    assert(summary->kind == FEDGE_TASK_EVALUATE);
    (void)fedge_selection_add(&global->selection, summary);
    global->checkpoint.selection = global->selection.state;
    /* Before the line: without one the evaluation is repeated. */
    FEDGE_TRY(count_in_checkpoint(global, summary, err));
    return append_line(global, summary, err);
}

/* ---- moving the model ------------------------------------------------------------------------ */

/* The model file of the present values, replacing the one that is held. */
static fedge_status write_model(fedge_global *global, fedge_error *err)
{
    uint8_t *file = NULL;
    fedge_blob *model = NULL;
    FEDGE_TRY(fedge_global_model_write(&global->model, &file, &global->model_size,
                                       &global->control_size, err));
    FEDGE_TRY(fedge_blob_new(file, global->model_size + global->control_size, &model, err));
    /* A blob's name is the hash of all its bytes. With a control section behind the model that is
     * not the model's, which must not depend on the strategy. */
    if (global->control_size == 0)
        memcpy(global->model_hash, model->hash, sizeof(global->model_hash));
    else
        fedge_sha256_text(model->bytes, global->model_size, global->model_hash);
    fedge_blob_release(global->model_file);
    global->model_file = model;
    return fedge_model_parts_add(model, &global->plan->schema, global->model_size,
                                 &global->last_parts, err);
}

/* The checkpoint of the present state: a copy of all that it needs. */
static fedge_status make_save(fedge_global *global, fedge_save **save, fedge_error *err)
{
    fedge_buffer strategy;
    *save = NULL;
    fedge_save *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a checkpoint");
    fresh->checkpoint = global->checkpoint;
    /* Shared with who serves it. Shared, not copied: a blob's bytes never change, and clients fetch
     * it meanwhile. */
    fresh->model = fedge_blob_retain(global->model_file);
    fresh->model_size = global->model_size;
    memcpy(fresh->model_hash, global->model_hash, sizeof(fresh->model_hash));
    fresh->run = &global->run;
    fresh->keep_checkpoints = global->job->keep_checkpoints;
    fresh->best_round = global->selection.state.best.round;
    fedge_buffer_init(&strategy, FEDGE_STRATEGY_MAX_STATE);
    fedge_status status = fedge_global_model_save(&global->model, &strategy, err);
    fresh->strategy_state = strategy.data;
    fresh->strategy_state_size = strategy.size;
    if (status == FEDGE_OK) {
        status = fedge_last_accepted_write(&global->last_accepted, &fresh->last_accepted,
                                           &fresh->last_accepted_size, err);
    }
    if (status != FEDGE_OK) {
        fedge_save_free(fresh);
        return status;
    }
    *save = fresh;
    return FEDGE_OK;
}

void fedge_global_saved(fedge_global *global, const fedge_save *save)
{
    const fedge_checkpoint *written = &save->checkpoint;
    fedge_checkpoint *present = &global->checkpoint;
    assert(written->round == present->round); /* the last that was made */
    /* The hashes alone: the rest of [present] may be ahead of what was written. */
    memcpy(present->model, written->model, sizeof(present->model));
    memcpy(present->strategy_state, written->strategy_state, sizeof(present->strategy_state));
    memcpy(present->last_accepted, written->last_accepted, sizeof(present->last_accepted));
}

/* Where nothing waits for it: at the start. */
static fedge_status save_now(fedge_global *global, fedge_save *save, fedge_error *err)
{
    const fedge_status status = fedge_save_write(save, err);
    if (status == FEDGE_OK)
        fedge_global_saved(global, save);
    fedge_save_free(save);
    return status;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
}

/* Which updates count for what clients keep; none, and the strategy begins anew, once a client has
 * lost what it kept for it. */
static fedge_status derive_last_accepted(fedge_global *global, fedge_journal *journal,
                                         uint32_t lost, fedge_error *err)
{
    const fedge_strategy_ops *strategy = global->model.strategy;
    if (!fedge_plan_keeps(global->plan))
        return FEDGE_OK;
    if (lost == 0 || !strategy->forget)
        return fedge_last_accepted_add(&global->last_accepted, journal, err);
    fedge_global_model_forget(&global->model);
    fedge_last_accepted_clear(&global->last_accepted);
    FEDGE_LOG(global->log, FEDGE_LOG_WARN, "control-variates-begin-anew",
              fedge_log_int("round", fedge_journal_get_phase(journal)->round),
              fedge_log_int("clients-that-lost-theirs", lost),
              fedge_log_str("advice", "give clients a --state that stays"));
    return FEDGE_OK;
}

/* Who was asked and brought nothing: whose task went to another, and at a deadline whose was open.
 * A phase that had all that it wanted has cancelled the others. All of it is in the journal, so a
 * round that is closed again says the same. */
static fedge_status note_missed(fedge_global *global, fedge_journal *journal, fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    /* Clients whose task was cancelled since the round had enough have missed nothing. */
    const bool late = fedge_journal_num_accepted(journal) < phase->wanted;
    uint32_t *replaced = NULL, num = 0;
    fedge_status status = fedge_journal_replaced(journal, &replaced, &num, err);
    for (uint32_t i = 0; i < num && status == FEDGE_OK; i++)
        status = fedge_global_model_miss(&global->model, replaced[i], err);
    free(replaced);
    for (uint32_t i = 0; late && i < phase->num_tasks && status == FEDGE_OK; i++) {
        const fedge_journal_slot slot = fedge_journal_get_slot(journal, i);
        status = slot.accepted
                     ? FEDGE_OK
                     : fedge_global_model_miss(&global->model, slot.task.client_index, err);
    }
    return status;
}

/* Which updates a buffer had, for the line. */
static fedge_status tell_updates(const fedge_global *global, const fedge_update_facts *facts,
                                 fedge_round_summary *summary, fedge_error *err)
{
    if (global->job->rounds.buffer_size == 0 || summary->reported > FEDGE_ROUND_SUMMARY_MAX_TOLD)
        return FEDGE_OK;
    summary->told = calloc((size_t)summary->reported + 1, sizeof(*summary->told));
    if (!summary->told)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a line of a round");
    for (summary->num_told = 0; summary->num_told < summary->reported; summary->num_told++) {
        const fedge_update_facts *of = &facts[summary->num_told];
        summary->told[summary->num_told] = (fedge_told_update){of->client, of->staleness};
    }
    return FEDGE_OK;
}

static fedge_status step_and_evaluate(fedge_global *global, fedge_journal *journal,
                                      fedge_gathered *gathered, fedge_round_summary *summary,
                                      fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    const fedge_updates updates = fedge_accepted_updates_get(&gathered->updates);
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status =
        fedge_global_model_step(&global->model, phase->round, phase->bounds_log2, gathered->facts,
                                global->model.strategy->collects ? &updates : NULL, err);
    if (status == FEDGE_OK)
        status = note_missed(global, journal, err);
    if (status == FEDGE_OK)
        status = derive_last_accepted(global, journal, gathered->states_lost, err);
    if (status == FEDGE_OK)
        status = write_model(global, err);
    summary->seconds_step = seconds_since(start);
    start = fedge_os_monotonic_ns();
    summary->loss = NAN;
    summary->accuracy = NAN;
    if (status == FEDGE_OK && global->evaluator) {
        status = fedge_evaluator_run(global->evaluator, global->model.values, &summary->loss,
                                     &summary->accuracy, err);
        if (status == FEDGE_OK) {
            status = fedge_evaluator_measure(global->evaluator, global->model.values,
                                             &summary->metrics, err);
        }
    }
    summary->seconds_evaluate = seconds_since(start);
    return status;
}

/* The phase goes on without the updates that were damaged: they were counted as they came. */
static fedge_status reopen(fedge_global *global, fedge_journal *journal, fedge_error *err)
{
    /* The losses first: with them no start takes the updates for whole. */
    FEDGE_TRY(fedge_journal_sync(journal, err));
    FEDGE_TRY(fedge_global_model_reset(&global->model, err));
    return fedge_global_replay(global, journal, err);
}

/* The seal, and all that follows it up to the model. */
static fedge_status close_with(fedge_global *global, fedge_journal *journal,
                               fedge_gathered *gathered, fedge_round_summary *summary,
                               fedge_error *err)
{
    /* The seal comes before the step. With it a crash during the step closes the round again with
     * just these updates; without it a late one could join them, and the model would be another. */
    fedge_status status = fedge_journal_close(journal, err);
    /* After the seal: until then updates came in on every rank. */
    if (status == FEDGE_OK)
        status = fedge_global_join_sums(global, err);
    if (status == FEDGE_OK)
        status = step_and_evaluate(global, journal, gathered, summary, err);
    return status == FEDGE_OK ? tell_updates(global, gathered->facts, summary, err) : status;
}

fedge_status fedge_global_step(fedge_global *global, fedge_journal *journal,
                               fedge_round_summary *summary, bool *reopened, fedge_save **save,
                               fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(journal);
    assert(phase->round == global->checkpoint.round + 1); /* no round twice, and none left out */
    fedge_gathered gathered;
    *save = NULL;
    fedge_status status = fedge_global_gather(global, journal, summary, &gathered, err);
    *reopened = status == FEDGE_OK && gathered.num_damaged > 0;
    if (status == FEDGE_OK && !*reopened)
        status = close_with(global, journal, &gathered, summary, err);
    fedge_gathered_fini(&gathered);
    if (*reopened)
        status = reopen(global, journal, err);
    if (*reopened && status == FEDGE_OK)
        return FEDGE_OK;
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "round %u", phase->round);
    fedge_checkpoint *checkpoint = &global->checkpoint;
    memcpy(summary->model, global->model_hash, sizeof(summary->model));
    checkpoint->round = phase->round;
    checkpoint->next_task_id = fedge_journal_next_task_id(journal);
    checkpoint->loss = summary->loss;
    checkpoint->accuracy = summary->accuracy;
    (void)fedge_selection_add(&global->selection, summary);
    checkpoint->selection = global->selection.state;
    checkpoint->elapsed_ms =
        global->elapsed_before_ms + fedge_os_monotonic_ms() - global->opened_ms;
    count_bytes(global, summary);
    /* The line before the checkpoint: a crash in between closes the round again and finds its line
     * there (FEDGE_DUPLICATE). The other way round a round could be without a line. */
    status = append_training_line(global, summary, err);
    free(summary->told);
    summary->told = NULL;
    summary->num_told = 0;
    /* Before the next phase opens, whose updates are added to zeros. */
    if (status == FEDGE_OK)
        status = fedge_global_model_reset(&global->model, err);
    return status == FEDGE_OK ? make_save(global, save, err) : status;
}

fedge_status fedge_global_drop(fedge_global *global, fedge_journal *journal,
                               const fedge_round_summary *summary, fedge_error *err)
{
    FEDGE_TRY(count_in_checkpoint(global, summary, err));
    FEDGE_TRY(fedge_journal_fail(journal, err));
    return fedge_global_model_reset(&global->model, err);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* "all" is what there is now, which only an open can tell. */
static bool are_in_use(const fedge_global *global, const fedge_accumulator_config *sums)
{
    fedge_gpu_stats stats[FEDGE_ACCUMULATOR_MAX_GPUS];
    const uint32_t count =
        fedge_accumulator_stats(&global->model.accumulator, stats, FEDGE_ACCUMULATOR_MAX_GPUS);
    bool same = sums->num_gpus > 0 && sums->num_gpus == count;
    for (uint32_t i = 0; i < count && same; i++)
        same = stats[i].gpu == sums->gpus[i];
    return same;
}

fedge_status fedge_global_change_gpus(fedge_global *global, const fedge_accumulator_config *sums,
                                      fedge_error *err)
{
    if (are_in_use(global, sums))
        return FEDGE_OK;
    /* Who names a GPU that was lost wants it again. */
    const uint64_t lost = sums->lost ? atomic_load(&sums->lost->numbers) : 0;
    fedge_lost_gpus_forget(sums->lost, sums->gpus, sums->num_gpus);
    fedge_error why;
    const char *present = fedge_joined_kind(&global->model.accumulator);
    /* Where GPUs sum, the CPU is no answer to a list that cannot be opened. */
    const char *name =
        strcmp(present, fedge_accumulator_cpu.name) == 0 ? global->accumulator : present;
    if (fedge_global_model_reopen(&global->model, name, sums, &why) == FEDGE_OK) {
        global->sums = *sums;
        memset(global->told, 0, sizeof(global->told)); /* they count from 0 again */
        return fedge_global_wrap_sums(global, err);
    }
    fedge_log_failure(global->log, FEDGE_LOG_ERROR, "gpus-refused", &why);
    memset(global->told, 0, sizeof(global->told));
    if (sums->lost)
        (void)atomic_fetch_or(&sums->lost->numbers, lost);
    /* What was in use a moment ago can be opened again, or a GPU has been lost and the process
     * ends. */
    FEDGE_TRY(fedge_global_model_reopen(&global->model, name, &global->sums, err));
    return fedge_global_wrap_sums(global, err);
}

fedge_blob *fedge_global_take_model(fedge_global *global)
{
    fedge_blob *model = global->model_file;
    global->model_file = NULL;
    return model;
}

fedge_status fedge_global_make_deltas(const fedge_global *global, fedge_blob **deltas,
                                      uint32_t *count, fedge_error *err)
{
    const fedge_downlink *downlink = &global->model.downlink;
    uint32_t ages = 0;
    uint8_t *bytes = NULL;
    *count = 0;
    for (uint64_t size; ages < FEDGE_DOWNLINK_STEPS; ages++) {
        size = fedge_downlink_size(downlink, ages + 1);
        /* Sizes grow with age: none behind this one saves anything. */
        if (size == 0 || size >= global->model_size)
            break;
    }
    if (ages == 0)
        return FEDGE_OK;
    fedge_blob *oldest = NULL;
    fedge_status status = fedge_downlink_delta(downlink, ages, &bytes, err);
    if (status == FEDGE_OK)
        status = fedge_blob_new(bytes, (size_t)fedge_downlink_size(downlink, ages), &oldest, err);
    /* A chain ends with that of each younger model. */
    while (status == FEDGE_OK && *count + 1 < ages) {
        status = fedge_blob_new_end(oldest, (size_t)fedge_downlink_size(downlink, *count + 1),
                                    &deltas[*count], err);
        *count += status == FEDGE_OK;
    }
    if (status == FEDGE_OK)
        deltas[(*count)++] = oldest;
    else
        fedge_blob_release(oldest);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Round 0: the model before any training. */
static fedge_status begin_run(fedge_global *global, fedge_error *err)
{
    fedge_status status = fedge_global_model_begin(&global->model, err);
    if (status == FEDGE_OK)
        status = write_model(global, err);
    if (status == FEDGE_OK) {
        global->checkpoint = (fedge_checkpoint){.next_task_id = 1, .loss = NAN, .accuracy = NAN};
        memcpy(global->checkpoint.run_id, global->run.run_id, sizeof(global->run.run_id));
        memcpy(global->checkpoint.strategy, global->model.strategy->reader.name,
               strlen(global->model.strategy->reader.name) + 1);
        global->checkpoint.incarnation = global->run.incarnation;
        fedge_save *save = NULL;
        status = make_save(global, &save, err);
        if (status == FEDGE_OK)
            status = save_now(global, save, err);
    }
    return status;
}

/* What clients fetch is the checkpoint's file, and need not lie in memory as well. */
static void serve_from_checkpoint(const fedge_global *global)
{
    char dir[FEDGE_MAX_PATH], path[FEDGE_MAX_PATH];
    const fedge_checkpoint *checkpoint = &global->checkpoint;
    if (strcmp(global->model_file->hash, checkpoint->model) == 0 &&
        fedge_run_path(&global->run, "checkpoints", dir, NULL) == FEDGE_OK &&
        fedge_checkpoint_model_path(dir, checkpoint->round, path, NULL) == FEDGE_OK &&
        fedge_blob_move_to_file(global->model_file, path, NULL) != FEDGE_OK)
        return; /* it is served from memory, then */
}

/* Takes over what a checkpoint holds. */
static fedge_status load_checkpoint(fedge_global *global, fedge_checkpoint_data *data,
                                    fedge_error *err)
{
    if (strcmp(data->checkpoint.strategy, global->model.strategy->reader.name) != 0) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "the run's checkpoint is of strategy %s and the job asks for %s; start "
                          "with --new-run",
                          data->checkpoint.strategy, global->model.strategy->reader.name);
    }
    fedge_status status =
        fedge_global_model_load(&global->model, data->model, data->model_size, data->strategy_state,
                                data->strategy_state_size, err);
    if (status == FEDGE_OK) {
        status = fedge_last_accepted_read(&global->last_accepted, data->last_accepted,
                                          data->last_accepted_size, err);
    }
    if (status == FEDGE_OK && global->last_accepted.num_clients == 0 &&
        global->model.strategy->forget)
        fedge_global_model_forget(&global->model); /* nobody has a part of it */
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "checkpoint of round %u", data->checkpoint.round);
    fedge_selected last = {.round = data->checkpoint.round,
                           .loss = data->checkpoint.loss,
                           .accuracy = data->checkpoint.accuracy,
                           .validation_loss = NAN,
                           .validation_accuracy = NAN};
    memcpy(last.model, data->checkpoint.model, sizeof(last.model));
    fedge_selection_restore(&global->selection, &data->checkpoint.selection, &last);
    global->checkpoint = data->checkpoint;
    global->elapsed_before_ms = data->checkpoint.elapsed_ms;
    global->checkpoint.incarnation = global->run.incarnation;
    status = write_model(global, err);
    if (status == FEDGE_OK)
        serve_from_checkpoint(global);
    return status;
}

static fedge_status close_again(fedge_global *global, fedge_recovery *recovery, fedge_error *err)
{
    fedge_round_summary summary = {.round = recovery->last_closed + 1,
                                   .attempt = recovery->attempt,
                                   .kind = FEDGE_TASK_TRAIN,
                                   /* What it was is not in the journal. */
                                   .seconds_upload = NAN};
    FEDGE_LOG(global->log, FEDGE_LOG_INFO, "round-closed-again",
              fedge_log_int("round", summary.round));
    fedge_save *save = NULL;
    bool reopened = false; /* never: it is sealed */
    const fedge_status status =
        fedge_global_step(global, recovery->journal, &summary, &reopened, &save, err);
    return status == FEDGE_OK && save ? save_now(global, save, err) : status;
}

/* Lines for people are not worth a run: damaged ones are left out. */
static fedge_status open_round_log(fedge_global *global, const char *path, uint32_t last_closed,
                                   fedge_error *err)
{
    fedge_status status = fedge_round_log_open(&global->round_log, path, last_closed, err);
    if (status != FEDGE_CORRUPT)
        return status;
    FEDGE_LOG(global->log, FEDGE_LOG_WARN, "round-log-damaged",
              fedge_log_str("error", err->message),
              fedge_log_str("put-aside-as", FEDGE_ROUND_LOG_DAMAGED));
    status = fedge_round_log_mend(path, err);
    return status == FEDGE_OK ? fedge_round_log_open(&global->round_log, path, last_closed, err)
                              : status;
}

/* One turn of recovery.h's loop. *done: the run stands where [recovery] says. */
static fedge_status recover_once(fedge_global *global, fedge_recovery *recovery, bool *done,
                                 fedge_error *err)
{
    fedge_status status = fedge_recover(&global->run, recovery, err);
    if (status != FEDGE_OK)
        return status;
    if (recovery->note[0])
        FEDGE_LOG(global->log, FEDGE_LOG_WARN, "recovered", fedge_log_str("note", recovery->note));
    *done = false;
    if (!recovery->has_checkpoint)
        return begin_run(global, err);
    status = load_checkpoint(global, &recovery->checkpoint, err);
    /* Once: recover_once may be called again after a round was closed. */
    if (status == FEDGE_OK && !global->round_log.file.path[0]) {
        char path[FEDGE_MAX_PATH];
        status = fedge_run_path(&global->run, "rounds.jsonl", path, err);
        if (status == FEDGE_OK)
            status = open_round_log(global, path, recovery->last_closed, err);
        if (status == FEDGE_OK && global->round_log.last_round < recovery->last_closed) {
            FEDGE_LOG(global->log, FEDGE_LOG_WARN, "round-log-incomplete",
                      fedge_log_str("file", path),
                      fedge_log_int("last-line-of-round", global->round_log.last_round),
                      fedge_log_int("rounds-closed", recovery->last_closed));
        }
    }
    if (status == FEDGE_OK && recovery->journal)
        status = fedge_global_find_updates(global, recovery, err);
    if (status == FEDGE_OK && recovery->journal)
        status = fedge_global_replay(global, recovery->journal, err);
    if (status != FEDGE_OK)
        return status;
    if (recovery->reclose)
        return close_again(global, recovery, err);
    *done = true;
    return FEDGE_OK;
}

static fedge_status set_up(fedge_global *global, const fedge_run_request *request,
                           const char *state_dir, const char *accumulator,
                           const fedge_accumulator_config *sums, fedge_error *err)
{
    fedge_status status =
        fedge_global_model_init(&global->model, global->job, accumulator, sums, err);
    if (status == FEDGE_OK)
        status = fedge_global_wrap_sums(global, err);
    const unsigned cpus = fedge_os_num_cpus(); /* no other work is done while a step is taken */
    global->model.num_threads = cpus < MAX_STEP_THREADS ? cpus : MAX_STEP_THREADS;
    if (status == FEDGE_OK)
        status = fedge_state_open(state_dir, &global->state, err);
    fedge_run_request wanted = *request;
    wanted.num_cluster_models =
        fedge_plan_chooses(global->plan) ? fedge_plan_num_told(global->plan) : 0;
    if (status == FEDGE_OK)
        status = fedge_run_open(&global->state, &wanted, &global->run, err);
    return status;
}

fedge_status fedge_global_open(fedge_global *global, const fedge_job *job,
                               const fedge_run_request *request, fedge_evaluator *evaluator,
                               const char *state_dir, bool restored, const char *accumulator,
                               const fedge_accumulator_config *sums, const fedge_rank_link *ranks,
                               const fedge_log *log, fedge_recovery *recovery, fedge_error *err)
{
    *global = (fedge_global){.job = job,
                             .plan = &job->plan,
                             .accumulator = accumulator,
                             .sums = *sums,
                             .ranks = ranks,
                             .log = log,
                             .evaluator = evaluator,
                             .opened_ms = fedge_os_monotonic_ms(),
                             .state.lock = -1,
                             .round_log.file.fd = -1};
    *recovery = (fedge_recovery){0};
    fedge_status status = fedge_selection_init(&global->selection, job, false, err);
    /* The lock of the state directory is taken here: nothing before it touches the run. */
    if (status == FEDGE_OK)
        status = set_up(global, request, state_dir, accumulator, sums, err);
    /* Before anybody can connect: what clients hold of the old incarnation is refused from the
     * first word on. */
    if (status == FEDGE_OK && restored && global->run.resumed && !global->run.finished)
        status = fedge_run_raise_incarnation(&global->run, err);
    status = fedge_global_meet(global, state_dir, status, err);
    const bool met = status == FEDGE_OK;
    bool done = false;
    /* Every turn reads the disk anew, also behind one that wrote to it: the run stands on what any
     * later start would find. */
    while (status == FEDGE_OK && !done) {
        fedge_recovery_fini(recovery);
        *recovery = (fedge_recovery){0};
        status = recover_once(global, recovery, &done, err);
    }
    if (status == FEDGE_OK && !global->run.finished)
        status = fedge_global_agree_on_sums(global, err);
    if (met)
        fedge_global_part(global);
    if (status == FEDGE_OK && !global->run.finished)
        status = fedge_run_begin_task_ids(&global->run, recovery->next_task_id, err);
    if (status != FEDGE_OK) {
        fedge_recovery_fini(recovery);
        *recovery = (fedge_recovery){0};
    }
    return status;
}

void fedge_global_close(fedge_global *global)
{
    if (global->round_log.file.path[0])
        fedge_round_log_close(&global->round_log);
    fedge_state_close(&global->state);
    fedge_global_model_fini(&global->model);
    fedge_blob_release(global->last_parts);
    fedge_blob_release(global->model_file);
    fedge_last_accepted_clear(&global->last_accepted);
    *global = (fedge_global){.state.lock = -1};
}
