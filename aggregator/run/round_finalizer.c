#include "aggregator/run/round_finalizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/threads/worker_pool.h"
#include "edge/plan/client_hooks.h"

struct fedge_round_finalizer {
    fedge_server_run *server;
    fedge_ingest *ingest;
    fedge_mailbox *mailbox;
    fedge_checkpoint_writer *writer;
    fedge_worker_pool *worker;
    fedge_ingest_stats before; /* the workers' times when the phase opened */
    fedge_journal *previous;   /* with a buffer: last phase's journal until the next has its
                                  unfinished uploads */
};

/* A task of the thread, and its result. */
typedef struct task {
    fedge_work work;
    fedge_status (*carry_out)(fedge_round_finalizer *finalizer, struct task *task,
                              fedge_error *err);
    fedge_completion *completion;
    fedge_round_finalizer_result *result; /* result of the completion */
    fedge_round_summary summary;
    fedge_journal *journal; /* owned; NULL: the task opens a phase */
    /* The fields below are only used to open a phase. */
    fedge_journal_phase phase;
    fedge_journal_task *slots; /* (phase.num_tasks) */
    bool changes_gpus;         /* open [sums] */
    fedge_accumulator_config sums;
} task;

void fedge_round_finalizer_result_free(fedge_round_finalizer_result *result)
{
    if (result) {
        fedge_journal_free(result->journal);
        fedge_blob_release(result->model);
        for (uint32_t i = 0; i < result->num_deltas; i++)
            fedge_blob_release(result->deltas[i]);
        free(result);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Bytes of the table of last accepted updates when this cohort's are in it. */
static uint64_t last_accepted_size(const fedge_server_run *server, const task *opening)
{
    uint32_t clients = server->last_accepted.num_clients;
    for (uint32_t i = 0; i < opening->phase.num_tasks; i++) {
        const uint32_t index = opening->slots[i].client_index;
        clients = opening->slots[i].task_id != 0 && index >= clients ? index + 1 : clients;
    }
    return clients * sizeof(uint64_t);
}

/* Bytes that must stay free after the cohort's space is reserved: min-free-disk, the last
 * checkpoint, which may not be written yet, and twice the one that ends the phase, which is written
 * beside the file that it replaces. */
static uint64_t min_free_bytes(const fedge_server_run *server, const task *opening)
{
    const fedge_section *delta = &server->plan->sent.sections[0];
    uint64_t model = server->plan->schema.num_elements * sizeof(float);
    uint64_t strategy = (uint64_t)delta->schema.num_elements *
                            fedge_strategy_state_per_value(server->model.strategy, server->job) +
                        fedge_downlink_state_size(server->plan);
    uint64_t last_accepted =
        fedge_plan_has_client_state(server->plan) ? last_accepted_size(server, opening) : 0;
    return server->job->min_free_disk +
           3 * (model + strategy + last_accepted + FEDGE_CHECKPOINT_MAX_STATE);
}

/* Uploads under way continue in the new journal at the byte where they stopped. */
static fedge_status carry_uploads(fedge_round_finalizer *finalizer, const task *opening,
                                  fedge_error *err)
{
    fedge_journal *from = finalizer->previous, *to = opening->result->journal;
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; from && i < opening->phase.num_tasks; i++) {
        uint32_t old = 0;
        const uint64_t task_id = opening->slots[i].task_id;
        if (task_id != 0 && fedge_journal_find(from, task_id, &old, NULL) == FEDGE_OK)
            FEDGE_TRY_OR(fedge_journal_carry(to, i, from, old, err), done);
    }
done:
    fedge_journal_free(from);
    finalizer->previous = NULL;
    return status;
}

static fedge_status open_phase(fedge_round_finalizer *finalizer, task *opening, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_run_path(&finalizer->server->run, "journal", dir, err));
    if (opening->changes_gpus)
        FEDGE_TRY(fedge_server_run_change_gpus(finalizer->server, &opening->sums, err));
    FEDGE_TRY(fedge_journal_create(dir, &opening->phase, opening->slots,
                                   min_free_bytes(finalizer->server, opening),
                                   &opening->result->journal, err));
    FEDGE_TRY(carry_uploads(finalizer, opening, err));
    /* The workers' times count from the start of the process; a phase's are the difference. */
    fedge_ingest_get_stats(finalizer->ingest, &finalizer->before);
    return FEDGE_OK;
}

/* Waits until the last checkpoint is on the disk; the end of the next phase builds on it. */
static fedge_status wait_for_save(fedge_round_finalizer *finalizer, fedge_error *err)
{
    fedge_save *save = NULL;
    const fedge_status status = fedge_checkpoint_writer_wait(finalizer->writer, &save, err);
    if (status == FEDGE_OK && save)
        fedge_server_run_saved(finalizer->server, save);
    fedge_save_free(save);
    return status;
}

/* Waits until all accepted updates are in the sums, and measures how long the workers took. */
static fedge_status gather(fedge_round_finalizer *finalizer, task *ending, fedge_error *err)
{
    const fedge_ingest_stats *before = &finalizer->before;
    fedge_ingest_stats after;
    /* First: workers may be writing to the journal, which is freed if anything fails. */
    FEDGE_TRY(fedge_ingest_flush(finalizer->ingest, err));
    FEDGE_TRY(wait_for_save(finalizer, err));
    fedge_ingest_get_stats(finalizer->ingest, &after);
    fedge_round_summary *summary = &ending->result->summary;
    *summary = ending->summary;
    summary->seconds_validate = (double)(after.validate_ns - before->validate_ns) * 1e-9;
    summary->seconds_journal = (double)(after.journal_ns - before->journal_ns) * 1e-9;
    summary->seconds_sum = (double)(after.sum_ns - before->sum_ns) * 1e-9;
    return FEDGE_OK;
}

static fedge_status step(fedge_round_finalizer *finalizer, task *ending, fedge_error *err)
{
    assert(ending->journal);
    fedge_save *save = NULL;
    bool reopened = false;
    /* After a failure the journal stays open: recovery sums it again. */
    FEDGE_TRY(gather(finalizer, ending, err));
    const fedge_status status = fedge_server_run_step(
        finalizer->server, ending->journal, &ending->result->summary, &reopened, &save, err);
    if (reopened) {
        ending->result->journal = ending->journal;
        ending->journal = NULL;
        return status;
    }
    /* After a failure as well: it is freed with the result. */
    ending->result->model = fedge_server_run_take_model(finalizer->server);
    if (status != FEDGE_OK)
        return status;
    /* The checkpoint is written while deltas are made. */
    fedge_checkpoint_writer_start(finalizer->writer, save);
    return fedge_server_run_make_deltas(finalizer->server, ending->result->deltas,
                                        &ending->result->num_deltas, err);
}

static fedge_status drop(fedge_round_finalizer *finalizer, task *ending, fedge_error *err)
{
    assert(ending->journal);
    FEDGE_TRY(gather(finalizer, ending, err));
    ending->result->failed = true;
    return fedge_server_run_drop(finalizer->server, ending->journal, &ending->summary, err);
}

static fedge_status log_evaluation(fedge_round_finalizer *finalizer, task *ending, fedge_error *err)
{
    ending->result->summary = ending->summary;
    /* It is written into the checkpoint of the last round, which must be there. */
    FEDGE_TRY(wait_for_save(finalizer, err));
    return fedge_server_run_log_evaluation(finalizer->server, &ending->summary, err);
}

static void keep_journal(fedge_round_finalizer *finalizer, task *ended)
{
    if (ended->journal && fedge_journal_get_phase(ended->journal)->buffered) {
        fedge_journal_free(finalizer->previous);
        finalizer->previous = ended->journal;
        ended->journal = NULL;
    }
}

static void task_free(task *unposted)
{
    if (unposted) {
        fedge_journal_free(unposted->journal);
        free(unposted->slots);
        free(unposted);
    }
}

static void run_task(void *user, uint32_t worker, fedge_work *work)
{
    (void)worker;
    fedge_round_finalizer *finalizer = user;
    task *present = (task *)work;
    fedge_error err = {0};
    fedge_completion *completion = present->completion;
    completion->type =
        present->carry_out == open_phase ? FEDGE_COMPLETION_OPENED : FEDGE_COMPLETION_CLOSED;
    completion->status = present->carry_out(finalizer, present, &err);
    memcpy(completion->message, err.message, sizeof(completion->message));
    present->result->over = fedge_selection_is_over(&finalizer->server->selection);
    completion->result = present->result;
    keep_journal(finalizer, present);
    task_free(present);
    /* Last: from here on the engine may read what this thread has written. */
    fedge_mailbox_post(finalizer->mailbox, &completion->item);
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_status fedge_round_finalizer_new(fedge_round_finalizer **finalizer, fedge_server_run *server,
                                       fedge_ingest *ingest, fedge_mailbox *mailbox,
                                       fedge_error *err)
{
    *finalizer = NULL;
    fedge_round_finalizer *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the round finalizer");
    fresh->server = server;
    fresh->ingest = ingest;
    fresh->mailbox = mailbox;
    fedge_status status = fedge_checkpoint_writer_new(&fresh->writer, mailbox, server->log, err);
    if (status != FEDGE_OK) {
        free(fresh);
        return status;
    }
    const fedge_worker_pool_config config = {
        .name = "round finalizer", .thread = "finalizer", .num_workers = 1, .user = fresh};
    status = fedge_worker_pool_new(&fresh->worker, &config, err);
    if (status != FEDGE_OK) {
        fedge_checkpoint_writer_free(fresh->writer);
        free(fresh);
        return status;
    }
    *finalizer = fresh;
    return FEDGE_OK;
}

void fedge_round_finalizer_free(fedge_round_finalizer *finalizer)
{
    if (!finalizer)
        return;
    /* Its thread uses all that is freed below. */
    fedge_worker_pool_free(finalizer->worker);
    fedge_checkpoint_writer_free(finalizer->writer);
    fedge_journal_free(finalizer->previous);
    free(finalizer);
}

/* ---- from the engine's thread ---------------------------------------------------------------- */

fedge_status fedge_round_finalizer_wait(fedge_round_finalizer *finalizer, fedge_error *err)
{
    fedge_worker_pool_wait(finalizer->worker);
    return wait_for_save(finalizer, err);
}

/* Allocates the completion first, so that a finished task can always answer. */
static task *new_task(fedge_status (*carry_out)(fedge_round_finalizer *finalizer, task *present,
                                                fedge_error *err),
                      fedge_error *err)
{
    task *fresh = calloc(1, sizeof(*fresh));
    fedge_completion *completion = calloc(1, sizeof(*completion));
    fedge_round_finalizer_result *result = calloc(1, sizeof(*result));
    if (!fresh || !completion || !result) {
        free(fresh);
        free(completion);
        free(result);
        (void)fedge_fail(err, FEDGE_NO_MEMORY, "no memory to open or close a phase");
        return NULL;
    }
    fresh->work.run = run_task;
    fresh->carry_out = carry_out;
    fresh->completion = completion;
    fresh->result = result;
    return fresh;
}

static void discard(task *unposted)
{
    free(unposted->completion);
    free(unposted->result);
    task_free(unposted);
}

static void post(fedge_round_finalizer *finalizer, task *next)
{
    fedge_worker_pool_post(finalizer->worker, 0, &next->work);
}

fedge_status fedge_round_finalizer_open(fedge_round_finalizer *finalizer,
                                        const fedge_journal_phase *phase,
                                        const fedge_journal_task *tasks,
                                        const fedge_accumulator_config *sums, fedge_error *err)
{
    task *opening = new_task(open_phase, err);
    if (!opening)
        return FEDGE_NO_MEMORY;
    opening->slots = calloc(phase->num_tasks, sizeof(*opening->slots));
    if (!opening->slots) {
        discard(opening);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", phase->num_tasks);
    }
    memcpy(opening->slots, tasks, phase->num_tasks * sizeof(*tasks));
    opening->phase = *phase;
    opening->changes_gpus = sums != NULL;
    if (sums)
        opening->sums = *sums;
    post(finalizer, opening);
    return FEDGE_OK;
}

static fedge_status end(fedge_round_finalizer *finalizer, task *ending, fedge_journal *journal,
                        const fedge_round_summary *summary)
{
    if (!ending)
        return FEDGE_NO_MEMORY;
    ending->journal = journal;
    ending->summary = *summary;
    post(finalizer, ending);
    return FEDGE_OK;
}

fedge_status fedge_round_finalizer_step(fedge_round_finalizer *finalizer, fedge_journal *journal,
                                        const fedge_round_summary *summary, fedge_error *err)
{
    return end(finalizer, new_task(step, err), journal, summary);
}

fedge_status fedge_round_finalizer_drop(fedge_round_finalizer *finalizer, fedge_journal *journal,
                                        const fedge_round_summary *summary, fedge_error *err)
{
    return end(finalizer, new_task(drop, err), journal, summary);
}

fedge_status fedge_round_finalizer_log(fedge_round_finalizer *finalizer,
                                       const fedge_round_summary *summary, fedge_error *err)
{
    return end(finalizer, new_task(log_evaluation, err), NULL, summary);
}
