#include "aggregator/server/saver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/server/completion.h"
#include "aggregator/store/recovery.h"
#include "edge/core/os.h"

struct fedge_saver {
    fedge_mailbox *mailbox;
    const fedge_log *log;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    fedge_save *save; /* in hand, or written and not given back */
    bool writes, stop;
    fedge_error failed;      /* status FEDGE_OK: nothing has */
    fedge_completion *fatal; /* NULL once it is posted */
};

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
    fedge_status status = fedge_run_path(save->run, "checkpoints", dir, err);
    if (status == FEDGE_OK) {
        status = fedge_checkpoint_save(dir, &save->checkpoint, &files, err);
    }
    return status == FEDGE_OK
               ? fedge_retention_apply(save->run, save->keep_checkpoints, save->best_round, err)
               : status;
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

/* Said once; the process ends, and the next one closes the round again. */
static void tell(fedge_saver *saver)
{
    fedge_completion *completion = saver->fatal;
    saver->fatal = NULL;
    if (completion) {
        completion->type = FEDGE_COMPLETION_FATAL;
        completion->status = saver->failed.status;
        memcpy(completion->message, saver->failed.message, sizeof(completion->message));
        fedge_mailbox_post(saver->mailbox, &completion->item);
    }
}

static void write_one(fedge_saver *saver, fedge_save *save)
{
    fedge_error err = {0};
    const uint64_t start_ns = fedge_os_monotonic_ns();
    const fedge_status status = fedge_save_write(save, &err);
    if (status == FEDGE_OK) {
        FEDGE_LOG(saver->log, FEDGE_LOG_INFO, "checkpoint-saved",
                  fedge_log_int("round", save->checkpoint.round),
                  fedge_log_num("seconds", (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9));
    }
    pthread_mutex_lock(&saver->mutex);
    if (status != FEDGE_OK) {
        saver->failed = err;
        tell(saver);
    }
    saver->writes = false;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

static void *save_loop(void *arg)
{
    fedge_saver *saver = arg;
    fedge_os_name_thread("saver");
    for (;;) {
        pthread_mutex_lock(&saver->mutex);
        while (!saver->writes && !saver->stop) {
            pthread_cond_wait(&saver->changed, &saver->mutex);
        }
        fedge_save *save = saver->writes ? saver->save : NULL;
        pthread_mutex_unlock(&saver->mutex);
        if (!save) {
            return NULL;
        }
        write_one(saver, save);
    }
}

fedge_status fedge_saver_new(fedge_saver **saver, fedge_mailbox *mailbox, const fedge_log *log,
                             fedge_error *err)
{
    *saver = NULL;
    fedge_saver *fresh = calloc(1, sizeof(*fresh));
    fedge_completion *fatal = calloc(1, sizeof(*fatal));
    if (!fresh || !fatal) {
        free(fresh);
        free(fatal);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the thread of checkpoints");
    }
    fresh->mailbox = mailbox;
    fresh->log = log;
    fresh->fatal = fatal;
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_cond_init(&fresh->changed, NULL);
    const int failed = pthread_create(&fresh->thread, NULL, save_loop, fresh);
    if (failed) {
        free(fatal);
        free(fresh);
        return fedge_fail_errno(err, failed, "cannot start the thread of checkpoints");
    }
    *saver = fresh;
    return FEDGE_OK;
}

void fedge_saver_free(fedge_saver *saver)
{
    if (!saver) {
        return;
    }
    pthread_mutex_lock(&saver->mutex);
    saver->stop = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    pthread_join(saver->thread, NULL);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    fedge_save_free(saver->save);
    free(saver->fatal);
    free(saver);
}

/* ---- from other threads ---------------------------------------------------------------------- */

void fedge_saver_start(fedge_saver *saver, fedge_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    saver->save = save;
    saver->writes = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

fedge_status fedge_saver_wait(fedge_saver *saver, fedge_save **save, fedge_error *err)
{
    pthread_mutex_lock(&saver->mutex);
    while (saver->writes) {
        pthread_cond_wait(&saver->changed, &saver->mutex);
    }
    const fedge_error failed = saver->failed;
    *save = saver->save;
    saver->save = NULL;
    pthread_mutex_unlock(&saver->mutex);
    return failed.status == FEDGE_OK ? FEDGE_OK
                                     : fedge_fail(err, failed.status, "%s", failed.message);
}
