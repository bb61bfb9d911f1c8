#include "aggregator/run/checkpoint_writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/recovery.h"
#include "aggregator/threads/mailbox.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"

struct fedge_checkpoint_writer {
    fedge_mailbox *mailbox;
    const fedge_log *log;
    fedge_worker_pool *worker;
    fedge_work work;         /* the worker owns the members below from its post to its end */
    fedge_save *save;        /* being written, or written and not returned yet */
    fedge_error failed;      /* FEDGE_OK: no failure */
    fedge_completion *fatal; /* NULL once it is posted */
};

/* Serves the model from the checkpoint's file and frees its memory, unless clients fetch more than
 * that file. If the move fails it is served from memory. */
static void free_model(const fedge_save *save, const char *dir)
{
    char path[FEDGE_MAX_PATH];
    if (save->model->size == save->model_size &&
        fedge_checkpoint_model_path(dir, save->checkpoint.round, path, NULL) == FEDGE_OK &&
        fedge_blob_move_to_file(save->model, path, NULL) != FEDGE_OK)
        return;
}

/* ---- one checkpoint -------------------------------------------------------------------------- */

fedge_status fedge_save_write(fedge_save *save, fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    const fedge_checkpoint_files files = {.model_sha256 = save->model_hash,
                                          .model = save->model->bytes,
                                          .model_size = save->model_size,
                                          .strategy_state = save->strategy_state,
                                          .strategy_state_size = save->strategy_state_size,
                                          .last_accepted = save->last_accepted,
                                          .last_accepted_size = save->last_accepted_size};
    FEDGE_TRY(fedge_run_path(save->run, "checkpoints", dir, err));
    FEDGE_TRY(fedge_checkpoint_save(dir, &save->checkpoint, &files, err));
    free_model(save, dir);
    /* Older rounds are removed only now: until this checkpoint was whole, only the one before it
     * and the journal could restore its model. */
    return fedge_retention_apply(save->run, save->keep_checkpoints, save->best_round, err);
}

void fedge_save_free(fedge_save *save)
{
    if (save) {
        fedge_blob_release(save->model);
        free(save->strategy_state);
        free(save->last_accepted);
        free(save);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Posts the first failure only: the process ends, and the next start closes the round again. */
static void post_failure(fedge_checkpoint_writer *writer)
{
    fedge_completion *completion = writer->fatal;
    writer->fatal = NULL;
    if (completion) {
        completion->type = FEDGE_COMPLETION_FATAL;
        completion->status = writer->failed.status;
        memcpy(completion->message, writer->failed.message, sizeof(completion->message));
        fedge_mailbox_post(writer->mailbox, &completion->item);
    }
}

static void write_checkpoint(void *user, uint32_t worker, fedge_work *work)
{
    (void)worker, (void)work;
    fedge_checkpoint_writer *writer = user;
    fedge_error err = {0};
    const uint64_t start_ns = fedge_os_monotonic_ns();
    if (fedge_save_write(writer->save, &err) == FEDGE_OK) {
        FEDGE_LOG(writer->log, FEDGE_LOG_INFO, "checkpoint-saved",
                  fedge_log_int("round", writer->save->checkpoint.round),
                  fedge_log_num("seconds", (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9));
    } else {
        writer->failed = err;
        post_failure(writer);
    }
}

fedge_status fedge_checkpoint_writer_new(fedge_checkpoint_writer **writer, fedge_mailbox *mailbox,
                                         const fedge_log *log, fedge_error *err)
{
    *writer = NULL;
    fedge_checkpoint_writer *fresh = calloc(1, sizeof(*fresh));
    fedge_completion *fatal = calloc(1, sizeof(*fatal));
    if (!fresh || !fatal) {
        free(fresh);
        free(fatal);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the thread of checkpoints");
    }
    fresh->mailbox = mailbox;
    fresh->log = log;
    fresh->fatal = fatal;
    const fedge_worker_pool_config config = {
        .name = "thread for checkpoints", .thread = "writer", .num_workers = 1, .user = fresh};
    const fedge_status status = fedge_worker_pool_new(&fresh->worker, &config, err);
    if (status != FEDGE_OK) {
        free(fatal);
        free(fresh);
        return status;
    }
    *writer = fresh;
    return FEDGE_OK;
}

void fedge_checkpoint_writer_free(fedge_checkpoint_writer *writer)
{
    if (!writer)
        return;
    fedge_worker_pool_free(writer->worker);
    fedge_save_free(writer->save);
    free(writer->fatal);
    free(writer);
}

/* ---- from other threads ---------------------------------------------------------------------- */

void fedge_checkpoint_writer_start(fedge_checkpoint_writer *writer, fedge_save *save)
{
    /* One at a time, so that memory holds at most one model that waits for the disk; a phase waits
     * here rather than queueing a second. */
    assert(!writer->save);
    writer->save = save;
    writer->work.run = write_checkpoint;
    fedge_worker_pool_post(writer->worker, 0, &writer->work);
}

fedge_status fedge_checkpoint_writer_wait(fedge_checkpoint_writer *writer, fedge_save **save,
                                          fedge_error *err)
{
    fedge_worker_pool_wait(writer->worker);
    *save = writer->save;
    writer->save = NULL;
    const fedge_error *failed = &writer->failed;
    return failed->status == FEDGE_OK ? FEDGE_OK
                                      : fedge_fail(err, failed->status, "%s", failed->message);
}
