#include "aggregator/server/round_finalizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/io/client_hooks.h"

typedef enum task_type {
    TASK_NONE,
    TASK_OPEN,
    TASK_STEP,
    TASK_DROP,
    TASK_LOG,
    TASK_STOP
} task_type;

struct fedge_round_finalizer {
    fedge_global *global;
    fedge_ingest *ingest;
    fedge_mailbox *mailbox;
    fedge_saver *saver;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    task_type type; /* of the task in hand; TASK_NONE: idle */
    fedge_journal_phase phase;
    fedge_journal_task *tasks;
    bool changes_gpus; /* OPEN: [sums] are to be opened */
    fedge_accumulator_config sums;
    fedge_journal *journal;
    fedge_round_summary summary;
    fedge_completion *completion;
    fedge_round_finalizer_result *result;
    fedge_ingest_stats before; /* the workers' times when the phase opened */
};

void fedge_round_finalizer_result_free(fedge_round_finalizer_result *result)
{
    if (result) {
        fedge_journal_free(result->journal);
        fedge_blob_release(result->model);
        free(result);
    }
}

/* Bytes of the table of last accepted updates when this cohort's are in it. */
static uint64_t last_accepted_size(const fedge_round_finalizer *finalizer)
{
    uint32_t clients = finalizer->global->last_accepted.num_clients;
    for (uint32_t i = 0; i < finalizer->phase.num_tasks; i++) {
        const uint32_t index = finalizer->tasks[i].client_index;
        clients = index >= clients ? index + 1 : clients;
    }
    return clients * sizeof(uint64_t);
}

/* Bytes that must stay free once the cohort's room is taken: what the operator wants, the last
 * checkpoint, which may not be written yet, and twice the one that will end the phase, since it is
 * written beside its place. */
static uint64_t room_to_leave(const fedge_round_finalizer *finalizer)
{
    const fedge_global *global = finalizer->global;
    const fedge_section *delta = &global->plan->sent.sections[0];
    uint64_t model = global->plan->schema.num_elements * sizeof(float);
    uint64_t strategy =
        (uint64_t)delta->schema.num_elements * global->model.strategy->state_per_value;
    uint64_t last_accepted = fedge_plan_keeps(global->plan) ? last_accepted_size(finalizer) : 0;
    return global->job->min_free_disk +
           3 * (model + strategy + last_accepted + FEDGE_CHECKPOINT_MAX_STATE);
}

static fedge_status open_phase(fedge_round_finalizer *finalizer, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    fedge_status status = fedge_run_path(&finalizer->global->run, "journal", dir, err);
    if (status == FEDGE_OK && finalizer->changes_gpus) {
        status = fedge_global_change_gpus(finalizer->global, &finalizer->sums, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_journal_create(dir, &finalizer->phase, finalizer->tasks,
                                      room_to_leave(finalizer), &finalizer->result->journal, err);
    }
    fedge_ingest_get_stats(finalizer->ingest, &finalizer->before);
    return status;
}

/* The last checkpoint is on the disk: what ends the next phase goes on from there. */
static fedge_status wait_for_save(fedge_round_finalizer *finalizer, fedge_error *err)
{
    fedge_save *save = NULL;
    const fedge_status status = fedge_saver_wait(finalizer->saver, &save, err);
    if (status == FEDGE_OK && save) {
        fedge_global_saved(finalizer->global, save);
    }
    fedge_save_free(save);
    return status;
}

static fedge_status end_phase(fedge_round_finalizer *finalizer, fedge_error *err)
{
    fedge_ingest_stats after;
    fedge_save *save = NULL;
    fedge_round_finalizer_result *result = finalizer->result;
    fedge_status status = wait_for_save(finalizer, err);
    if (status == FEDGE_OK) {
        status = fedge_ingest_flush(finalizer->ingest, err);
    }
    if (status != FEDGE_OK) { /* the journal stays open: recovery sums it again */
        fedge_journal_free(finalizer->journal);
        finalizer->journal = NULL;
        return status;
    }
    fedge_ingest_get_stats(finalizer->ingest, &after);
    result->summary = finalizer->summary;
    result->summary.seconds_validate =
        (double)(after.validate_ns - finalizer->before.validate_ns) * 1e-9;
    result->summary.seconds_journal =
        (double)(after.journal_ns - finalizer->before.journal_ns) * 1e-9;
    result->summary.seconds_sum = (double)(after.sum_ns - finalizer->before.sum_ns) * 1e-9;
    if (finalizer->type == TASK_STEP) {
        status =
            fedge_global_step(finalizer->global, finalizer->journal, &result->summary, &save, err);
        result->model = fedge_global_take_model(finalizer->global);
        if (status == FEDGE_OK) {
            fedge_saver_start(finalizer->saver, save);
        }
    } else {
        status = fedge_global_drop(finalizer->global, finalizer->journal, &finalizer->summary, err);
        result->failed = true;
    }
    fedge_journal_free(finalizer->journal);
    finalizer->journal = NULL;
    return status;
}

static void carry_out(fedge_round_finalizer *finalizer)
{
    fedge_error err = {0};
    fedge_completion *completion = finalizer->completion;
    completion->type =
        finalizer->type == TASK_OPEN ? FEDGE_COMPLETION_OPENED : FEDGE_COMPLETION_CLOSED;
    if (finalizer->type == TASK_OPEN) {
        completion->status = open_phase(finalizer, &err);
    } else if (finalizer->type == TASK_LOG) {
        finalizer->result->summary = finalizer->summary;
        completion->status = wait_for_save(finalizer, &err);
        if (completion->status == FEDGE_OK) {
            completion->status =
                fedge_global_log_evaluation(finalizer->global, &finalizer->summary, &err);
        }
    } else {
        completion->status = end_phase(finalizer, &err);
    }
    finalizer->result->over = fedge_selection_is_over(&finalizer->global->selection);
    memcpy(completion->message, err.message, sizeof(completion->message));
    completion->result = finalizer->result;
    finalizer->completion = NULL;
    finalizer->result = NULL;
    free(finalizer->tasks);
    finalizer->tasks = NULL;
}

static void *close_loop(void *arg)
{
    fedge_round_finalizer *finalizer = arg;
    fedge_os_name_thread("finalizer");
    pthread_mutex_lock(&finalizer->mutex);
    for (;;) {
        while (finalizer->type == TASK_NONE) {
            pthread_cond_wait(&finalizer->changed, &finalizer->mutex);
        }
        if (finalizer->type == TASK_STOP) {
            break;
        }
        pthread_mutex_unlock(&finalizer->mutex);
        fedge_completion *completion = finalizer->completion;
        carry_out(finalizer);
        pthread_mutex_lock(&finalizer->mutex);
        finalizer->type =
            TASK_NONE; /* idle before the answer: its receiver may start the next task */
        pthread_cond_broadcast(&finalizer->changed);
        fedge_mailbox_post(finalizer->mailbox, &completion->item);
    }
    pthread_mutex_unlock(&finalizer->mutex);
    return NULL;
}

fedge_status fedge_round_finalizer_new(fedge_round_finalizer **finalizer, fedge_global *global,
                                       fedge_ingest *ingest, fedge_mailbox *mailbox,
                                       fedge_error *err)
{
    *finalizer = NULL;
    fedge_round_finalizer *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the round finalizer");
    }
    fresh->global = global;
    fresh->ingest = ingest;
    fresh->mailbox = mailbox;
    const fedge_status status = fedge_saver_new(&fresh->saver, mailbox, global->log, err);
    if (status != FEDGE_OK) {
        free(fresh);
        return status;
    }
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_cond_init(&fresh->changed, NULL);
    int failed = pthread_create(&fresh->thread, NULL, close_loop, fresh);
    if (failed) {
        fedge_saver_free(fresh->saver);
        free(fresh);
        return fedge_fail_errno(err, failed, "cannot start the round finalizer's thread");
    }
    *finalizer = fresh;
    return FEDGE_OK;
}

void fedge_round_finalizer_free(fedge_round_finalizer *finalizer)
{
    if (!finalizer) {
        return;
    }
    pthread_mutex_lock(&finalizer->mutex);
    while (finalizer->type != TASK_NONE) {
        pthread_cond_wait(&finalizer->changed, &finalizer->mutex);
    }
    finalizer->type = TASK_STOP;
    pthread_cond_broadcast(&finalizer->changed);
    pthread_mutex_unlock(&finalizer->mutex);
    pthread_join(finalizer->thread, NULL);
    fedge_saver_free(finalizer->saver);
    pthread_cond_destroy(&finalizer->changed);
    pthread_mutex_destroy(&finalizer->mutex);
    free(finalizer->tasks);
    free(finalizer);
}

fedge_status fedge_round_finalizer_wait(fedge_round_finalizer *finalizer, fedge_error *err)
{
    pthread_mutex_lock(&finalizer->mutex);
    while (finalizer->type != TASK_NONE) {
        pthread_cond_wait(&finalizer->changed, &finalizer->mutex);
    }
    pthread_mutex_unlock(&finalizer->mutex);
    return wait_for_save(finalizer, err);
}

/* Takes what the answer needs first, so that a finished task can always answer. */
static fedge_status start(fedge_round_finalizer *finalizer, task_type type, fedge_journal *journal,
                          const fedge_round_summary *summary, fedge_error *err)
{
    fedge_completion *completion = calloc(1, sizeof(*completion));
    fedge_round_finalizer_result *result = calloc(1, sizeof(*result));
    if (!completion || !result) {
        free(completion);
        free(result);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to open or close a phase");
    }
    pthread_mutex_lock(&finalizer->mutex);
    finalizer->completion = completion;
    finalizer->result = result;
    finalizer->journal = journal;
    if (summary) {
        finalizer->summary = *summary;
    }
    finalizer->type = type;
    pthread_cond_broadcast(&finalizer->changed);
    pthread_mutex_unlock(&finalizer->mutex);
    return FEDGE_OK;
}

fedge_status fedge_round_finalizer_open(fedge_round_finalizer *finalizer,
                                        const fedge_journal_phase *phase,
                                        const fedge_journal_task *tasks,
                                        const fedge_accumulator_config *sums, fedge_error *err)
{
    fedge_journal_task *copy = calloc(phase->num_tasks, sizeof(*copy));
    if (!copy) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", phase->num_tasks);
    }
    memcpy(copy, tasks, phase->num_tasks * sizeof(*copy));
    free(finalizer->tasks);
    finalizer->tasks = copy;
    finalizer->phase = *phase;
    finalizer->changes_gpus = sums != NULL;
    if (sums) {
        finalizer->sums = *sums;
    }
    return start(finalizer, TASK_OPEN, NULL, NULL, err);
}

fedge_status fedge_round_finalizer_step(fedge_round_finalizer *finalizer, fedge_journal *journal,
                                        const fedge_round_summary *summary, fedge_error *err)
{
    return start(finalizer, TASK_STEP, journal, summary, err);
}

fedge_status fedge_round_finalizer_drop(fedge_round_finalizer *finalizer, fedge_journal *journal,
                                        const fedge_round_summary *summary, fedge_error *err)
{
    return start(finalizer, TASK_DROP, journal, summary, err);
}

fedge_status fedge_round_finalizer_log(fedge_round_finalizer *finalizer,
                                       const fedge_round_summary *summary, fedge_error *err)
{
    return start(finalizer, TASK_LOG, NULL, summary, err);
}
