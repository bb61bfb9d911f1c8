#include "aggregator/server/closer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum job_type { JOB_NONE, JOB_OPEN, JOB_STEP, JOB_DROP, JOB_LOG, JOB_STOP } job_type;

struct fedge_closer {
    fedge_global *global;
    fedge_ingest *ingest;
    fedge_mailbox *mailbox;
    fedge_saver *saver;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job_type type; /* of the job in hand; JOB_NONE: idle */
    fedge_journal_phase phase;
    fedge_journal_task *tasks;
    bool changes_gpus; /* OPEN: [sums] are to be opened */
    fedge_accumulator_config sums;
    fedge_journal *journal;
    fedge_round_summary summary;
    fedge_completion *mail;
    fedge_closer_result *result;
    fedge_ingest_stats before; /* the workers' times when the phase opened */
};

void fedge_closer_result_free(fedge_closer_result *result)
{
    if (result) {
        fedge_journal_free(result->journal);
        fedge_blob_release(result->model);
        free(result);
    }
}

/* Bytes of the table of counted updates when this cohort's are in it. */
static uint64_t counted_size(const fedge_closer *closer)
{
    uint32_t clients = closer->global->counted.num_clients;
    for (uint32_t i = 0; i < closer->phase.num_tasks; i++) {
        const uint32_t index = closer->tasks[i].client_index;
        clients = index >= clients ? index + 1 : clients;
    }
    return clients * sizeof(uint64_t);
}

/* Bytes that must stay free once the cohort's room is taken: what the operator wants, the last
 * checkpoint, which may not be written yet, and twice the one that will end the phase, since it is
 * written beside its place. */
static uint64_t room_to_leave(const fedge_closer *closer)
{
    const fedge_global *global = closer->global;
    const fedge_section *delta = &global->plan->sent.sections[0];
    uint64_t model = global->plan->schema.num_elements * sizeof(float);
    uint64_t strategy =
        (uint64_t)delta->schema.num_elements * global->center.strategy->state_per_value;
    uint64_t counted = global->center.strategy->forget ? counted_size(closer) : 0;
    return global->job->min_free_disk +
           3 * (model + strategy + counted + FEDGE_CHECKPOINT_MAX_STATE);
}

static fedge_status open_phase(fedge_closer *closer, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    fedge_status status = fedge_run_path(&closer->global->run, "journal", dir, err);
    if (status == FEDGE_OK && closer->changes_gpus) {
        status = fedge_global_change_gpus(closer->global, &closer->sums, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_journal_create(dir, &closer->phase, closer->tasks, room_to_leave(closer),
                                      &closer->result->journal, err);
    }
    fedge_ingest_get_stats(closer->ingest, &closer->before);
    return status;
}

/* The last checkpoint is on the disk: what ends the next phase goes on from there. */
static fedge_status settle(fedge_closer *closer, fedge_error *err)
{
    fedge_save *save = NULL;
    const fedge_status status = fedge_saver_wait(closer->saver, &save, err);
    if (status == FEDGE_OK && save) {
        fedge_global_saved(closer->global, save);
    }
    fedge_save_free(save);
    return status;
}

static fedge_status end_phase(fedge_closer *closer, fedge_error *err)
{
    fedge_ingest_stats after;
    fedge_save *save = NULL;
    fedge_closer_result *result = closer->result;
    fedge_status status = settle(closer, err);
    if (status == FEDGE_OK) {
        status = fedge_ingest_flush(closer->ingest, err);
    }
    if (status != FEDGE_OK) { /* the journal stays open: recovery sums it again */
        fedge_journal_free(closer->journal);
        closer->journal = NULL;
        return status;
    }
    fedge_ingest_get_stats(closer->ingest, &after);
    result->summary = closer->summary;
    result->summary.seconds_validate =
        (double)(after.validate_ns - closer->before.validate_ns) * 1e-9;
    result->summary.seconds_journal = (double)(after.journal_ns - closer->before.journal_ns) * 1e-9;
    result->summary.seconds_sum = (double)(after.sum_ns - closer->before.sum_ns) * 1e-9;
    if (closer->type == JOB_STEP) {
        status = fedge_global_step(closer->global, closer->journal, &result->summary, &save, err);
        result->model = fedge_global_take_model(closer->global);
        if (status == FEDGE_OK) {
            fedge_saver_start(closer->saver, save);
        }
    } else {
        status = fedge_global_drop(closer->global, closer->journal, &closer->summary, err);
        result->failed = true;
    }
    fedge_journal_free(closer->journal);
    closer->journal = NULL;
    return status;
}

static void carry_out(fedge_closer *closer)
{
    fedge_error err = {0};
    fedge_completion *mail = closer->mail;
    mail->type = closer->type == JOB_OPEN ? FEDGE_COMPLETION_OPENED : FEDGE_COMPLETION_CLOSED;
    if (closer->type == JOB_OPEN) {
        mail->status = open_phase(closer, &err);
    } else if (closer->type == JOB_LOG) {
        closer->result->summary = closer->summary;
        mail->status = settle(closer, &err);
        if (mail->status == FEDGE_OK) {
            mail->status = fedge_global_log_evaluation(closer->global, &closer->summary, &err);
        }
    } else {
        mail->status = end_phase(closer, &err);
    }
    closer->result->over = fedge_selection_is_over(&closer->global->selection);
    memcpy(mail->message, err.message, sizeof(mail->message));
    mail->result = closer->result;
    closer->mail = NULL;
    closer->result = NULL;
    free(closer->tasks);
    closer->tasks = NULL;
}

static void *close_loop(void *arg)
{
    fedge_closer *closer = arg;
    pthread_mutex_lock(&closer->mutex);
    for (;;) {
        while (closer->type == JOB_NONE) {
            pthread_cond_wait(&closer->changed, &closer->mutex);
        }
        if (closer->type == JOB_STOP) {
            break;
        }
        pthread_mutex_unlock(&closer->mutex);
        fedge_completion *mail = closer->mail;
        carry_out(closer);
        pthread_mutex_lock(&closer->mutex);
        closer->type = JOB_NONE; /* idle before the answer: its receiver may start the next job */
        pthread_cond_broadcast(&closer->changed);
        fedge_mailbox_post(closer->mailbox, &mail->item);
    }
    pthread_mutex_unlock(&closer->mutex);
    return NULL;
}

fedge_status fedge_closer_new(fedge_closer **closer, fedge_global *global, fedge_ingest *ingest,
                              fedge_mailbox *mailbox, fedge_error *err)
{
    *closer = NULL;
    fedge_closer *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the closer");
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
        return fedge_fail_errno(err, failed, "cannot start the closer's thread");
    }
    *closer = fresh;
    return FEDGE_OK;
}

void fedge_closer_free(fedge_closer *closer)
{
    if (!closer) {
        return;
    }
    pthread_mutex_lock(&closer->mutex);
    while (closer->type != JOB_NONE) {
        pthread_cond_wait(&closer->changed, &closer->mutex);
    }
    closer->type = JOB_STOP;
    pthread_cond_broadcast(&closer->changed);
    pthread_mutex_unlock(&closer->mutex);
    pthread_join(closer->thread, NULL);
    fedge_saver_free(closer->saver);
    pthread_cond_destroy(&closer->changed);
    pthread_mutex_destroy(&closer->mutex);
    free(closer->tasks);
    free(closer);
}

fedge_status fedge_closer_settle(fedge_closer *closer, fedge_error *err)
{
    pthread_mutex_lock(&closer->mutex);
    while (closer->type != JOB_NONE) {
        pthread_cond_wait(&closer->changed, &closer->mutex);
    }
    pthread_mutex_unlock(&closer->mutex);
    return settle(closer, err);
}

/* Takes what the job's answer needs first, so that a finished job can always answer. */
static fedge_status start(fedge_closer *closer, job_type type, fedge_journal *journal,
                          const fedge_round_summary *summary, fedge_error *err)
{
    fedge_completion *mail = calloc(1, sizeof(*mail));
    fedge_closer_result *result = calloc(1, sizeof(*result));
    if (!mail || !result) {
        free(mail);
        free(result);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to open or close a phase");
    }
    pthread_mutex_lock(&closer->mutex);
    closer->mail = mail;
    closer->result = result;
    closer->journal = journal;
    if (summary) {
        closer->summary = *summary;
    }
    closer->type = type;
    pthread_cond_broadcast(&closer->changed);
    pthread_mutex_unlock(&closer->mutex);
    return FEDGE_OK;
}

fedge_status fedge_closer_open(fedge_closer *closer, const fedge_journal_phase *phase,
                               const fedge_journal_task *tasks,
                               const fedge_accumulator_config *sums, fedge_error *err)
{
    fedge_journal_task *copy = calloc(phase->num_tasks, sizeof(*copy));
    if (!copy) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", phase->num_tasks);
    }
    memcpy(copy, tasks, phase->num_tasks * sizeof(*copy));
    free(closer->tasks);
    closer->tasks = copy;
    closer->phase = *phase;
    closer->changes_gpus = sums != NULL;
    if (sums) {
        closer->sums = *sums;
    }
    return start(closer, JOB_OPEN, NULL, NULL, err);
}

fedge_status fedge_closer_step(fedge_closer *closer, fedge_journal *journal,
                               const fedge_round_summary *summary, fedge_error *err)
{
    return start(closer, JOB_STEP, journal, summary, err);
}

fedge_status fedge_closer_drop(fedge_closer *closer, fedge_journal *journal,
                               const fedge_round_summary *summary, fedge_error *err)
{
    return start(closer, JOB_DROP, journal, summary, err);
}

fedge_status fedge_closer_log(fedge_closer *closer, const fedge_round_summary *summary,
                              fedge_error *err)
{
    return start(closer, JOB_LOG, NULL, summary, err);
}
