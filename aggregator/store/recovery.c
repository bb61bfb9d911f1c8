#include "aggregator/store/recovery.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* --- the run's directories -------------------------------------------------------------------- */

/* Removes the incomplete files of a crash. The aggregator's lock excludes other writers. */
static fedge_status remove_leftover(void *user, const char *name, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    if (!fedge_path_ends_with(name, FEDGE_OS_TEMPORARY_SUFFIX) &&
        !fedge_path_ends_with(name, ".new") && !fedge_path_ends_with(name, ".old"))
        return FEDGE_OK;
    int length = snprintf(path, sizeof(path), "%s/%s", (const char *)user, name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return fedge_fail(err, FEDGE_TOO_BIG, "path of %.60s is too long", name);
    return fedge_os_remove_tree(path, err);
}

/* Does the same in the run's own directory, where a person may have other files: removes only names
 * that fedge_os_write_file gives, a dot and six characters before the suffix. */
static fedge_status remove_temporary(void *user, const char *name, fedge_error *err)
{
    const size_t tail = 7 + sizeof(FEDGE_OS_TEMPORARY_SUFFIX) - 1, length = strlen(name);
    const bool ours = length > tail && name[length - tail] == '.' &&
                      fedge_path_ends_with(name, FEDGE_OS_TEMPORARY_SUFFIX);
    return ours ? remove_leftover(user, name, err) : FEDGE_OK;
}

typedef struct journal_visit {
    const char *dir;
    uint32_t round; /* round to look for */
    bool exists;
    uint32_t attempt; /* highest attempt at that round */
    bool any;         /* a journal of any round exists */
    bool later;       /* a journal of a later round exists */
    uint32_t before;  /* journals of earlier rounds are removed */
    uint32_t after;   /* journals of later rounds are removed; 0: none */
} journal_visit;

static fedge_status visit_journal(void *user, const char *name, fedge_error *err)
{
    journal_visit *visit = user;
    uint32_t round, attempt;
    char path[FEDGE_MAX_PATH];
    if (!fedge_journal_parse_name(name, &round, &attempt))
        return FEDGE_OK;
    visit->any = true;
    visit->later = visit->later || round > visit->round;
    if (round == visit->round && (!visit->exists || attempt > visit->attempt)) {
        visit->exists = true;
        visit->attempt = attempt;
    }
    if (round >= visit->before && (visit->after == 0 || round <= visit->after))
        return FEDGE_OK;
    FEDGE_TRY(fedge_journal_make_path(visit->dir, round, attempt, path, err));
    return fedge_os_remove(path, err);
}

/* --- recovery --------------------------------------------------------------------------------- */

static fedge_status check_journal(const fedge_run *run, const fedge_recovery *recovery,
                                  fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(recovery->journal);
    const char *path = fedge_journal_path(recovery->journal);
    if (strcmp(phase->run_id, run->run_id) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s is of run %s: it does not belong here", path,
                          phase->run_id);
    }
    if (phase->round != recovery->last_closed + 1)
        return fedge_fail(err, FEDGE_CORRUPT, "%s is of round %" PRIu32, path, phase->round);
    if (strcmp(phase->model, recovery->checkpoint.checkpoint.model) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s has base model %s, but the checkpoint of round %" PRIu32
                          " is %s: files of different runs are mixed",
                          path, phase->model, recovery->last_closed,
                          recovery->checkpoint.checkpoint.model);
    }
    return FEDGE_OK;
}

static int by_client_then_age(const void *a, const void *b)
{
    const fedge_rounds_task *x = *(fedge_rounds_task *const *)a,
                            *y = *(fedge_rounds_task *const *)b;
    return x->client_index != y->client_index
               ? (x->client_index < y->client_index ? -1 : 1)
               : (x->task_id > y->task_id) - (x->task_id < y->task_id);
}

/* A client that gave up its task and came back may have been assigned another slot. Its former slot
 * is then empty, although no record says so. */
static fedge_status empty_former_slots(fedge_recovery *recovery, fedge_error *err)
{
    const uint32_t count = recovery->num_tasks;
    fedge_rounds_task **tasks = malloc(count * sizeof(*tasks));
    if (!tasks)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " tasks", count);
    for (uint32_t slot = 0; slot < count; slot++)
        tasks[slot] = &recovery->tasks[slot];
    qsort(tasks, count, sizeof(*tasks), by_client_then_age);
    for (uint32_t i = 0; i + 1 < count; i++) {
        if (tasks[i]->client_index == tasks[i + 1]->client_index &&
            tasks[i]->state == FEDGE_TASK_OPEN)
            tasks[i]->state = FEDGE_TASK_LOST;
    }
    free(tasks);
    return FEDGE_OK;
}

fedge_status fedge_recovery_take_tasks(fedge_recovery *recovery, fedge_error *err)
{
    const fedge_journal_phase *phase = fedge_journal_get_phase(recovery->journal);
    free(recovery->tasks);
    recovery->tasks = calloc(phase->num_tasks, sizeof(recovery->tasks[0]));
    if (!recovery->tasks) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " tasks",
                          phase->num_tasks);
    }
    recovery->num_tasks = phase->num_tasks;
    recovery->wanted = phase->wanted;
    for (uint32_t slot = 0; slot < phase->num_tasks; slot++) {
        fedge_journal_slot facts = fedge_journal_get_slot(recovery->journal, slot);
        recovery->tasks[slot] = (fedge_rounds_task){
            .task_id = facts.task.task_id,
            .client_index = facts.task.client_index,
            .base = facts.task.base,
            .state = facts.accepted            ? FEDGE_TASK_REPORTED
                     : facts.task.task_id == 0 ? FEDGE_TASK_LOST
                                               : FEDGE_TASK_OPEN,
        };
    }
    return empty_former_slots(recovery, err);
}

static void add_note(fedge_recovery *recovery, const char *text)
{
    size_t used = strlen(recovery->note);
    snprintf(recovery->note + used, sizeof(recovery->note) - used, "%s", text);
}

/* Handles damaged updates of a closed round. If it is the last one, no client has answered with its
 * model, so the round is reopened. Otherwise later rounds depend on a model that other updates
 * would not reproduce. */
static fedge_status reopen_damaged(const fedge_run *run, bool is_last, fedge_recovery *recovery,
                                   fedge_error *err)
{
    if (is_last)
        return fedge_recovery_reopen(run, recovery, err);
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s: %" PRIu32 " stored updates are damaged, so the closed round %" PRIu32
                      " cannot be repeated with the same updates; move the file away to run the "
                      "round again without its updates. %s",
                      fedge_journal_path(recovery->journal),
                      fedge_journal_num_damaged(recovery->journal), recovery->last_closed + 1,
                      fedge_journal_note(recovery->journal));
}

/* Takes over the newest journal of the next round; a failed one only determines the next attempt.
 * is_last: no later round has a journal, and neither it nor this one has a checkpoint. */
static fedge_status take_journal(const fedge_run *run, const char *path, bool is_last,
                                 fedge_recovery *recovery, fedge_error *err)
{
    FEDGE_TRY(fedge_journal_recover(path, &recovery->journal, err));
    FEDGE_TRY(check_journal(run, recovery, err));
    add_note(recovery, fedge_journal_note(recovery->journal));
    const fedge_journal_phase *phase = fedge_journal_get_phase(recovery->journal);
    uint64_t next_task_id = fedge_journal_next_task_id(recovery->journal);
    if (next_task_id > recovery->next_task_id)
        recovery->next_task_id = next_task_id;
    recovery->attempt = phase->attempt;
    switch (fedge_journal_get_state(recovery->journal)) {
    case FEDGE_JOURNAL_FAILED:
        recovery->attempt++;
        fedge_journal_free(recovery->journal);
        recovery->journal = NULL;
        return FEDGE_OK;
    case FEDGE_JOURNAL_CLOSED:
        recovery->reclose = true;
        if (fedge_journal_num_damaged(recovery->journal) > 0)
            FEDGE_TRY(reopen_damaged(run, is_last, recovery, err));
        break;
    case FEDGE_JOURNAL_OPEN:
        break;
    }
    if (fedge_journal_num_damaged(recovery->journal) > 0)
        add_note(recovery, "Updates that are not whole are asked for again. ");
    return fedge_recovery_take_tasks(recovery, err);
}

/* When a checkpoint newer than the loaded one is damaged, its round was closed and must be closed
 * again; otherwise acknowledged updates would be lost silently. */
static fedge_status check_nothing_lost(const char *checkpoints, const fedge_recovery *recovery,
                                       fedge_error *err)
{
    uint32_t newest = 0;
    FEDGE_TRY(fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err));
    if (newest > recovery->last_closed && !recovery->reclose) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "round %" PRIu32
                          " was closed, but neither its checkpoint nor its journal "
                          "is there; restore them, or remove the checkpoints after round %" PRIu32
                          " in %s to go back to it",
                          recovery->last_closed + 1, recovery->last_closed, checkpoints);
    }
    return FEDGE_OK;
}

static fedge_status recover(const fedge_run *run, const char *checkpoints, const char *journals,
                            fedge_recovery *recovery, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    const fedge_status loaded = fedge_checkpoint_load_newest(
        checkpoints, &recovery->checkpoint, recovery->note, sizeof(recovery->note), err);
    recovery->has_checkpoint = loaded == FEDGE_OK;
    if (loaded != FEDGE_OK && loaded != FEDGE_NOT_FOUND)
        return loaded;
    recovery->last_closed = recovery->checkpoint.checkpoint.round;
    journal_visit visit = {.dir = journals, .round = recovery->last_closed + 1};
    FEDGE_TRY(fedge_os_list_dir(journals, visit_journal, &visit, err));
    if (!recovery->has_checkpoint) {
        recovery->next_task_id = 1;
        if (visit.any) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "run %s has journals but no checkpoint; restore %s", run->run_id,
                              checkpoints);
        }
        return FEDGE_OK;
    }
    if (strcmp(recovery->checkpoint.checkpoint.run_id, run->run_id) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s has a checkpoint of run %s", checkpoints,
                          recovery->checkpoint.checkpoint.run_id);
    }
    recovery->next_task_id = recovery->checkpoint.checkpoint.next_task_id;
    if (visit.exists) {
        uint32_t newest = recovery->last_closed;
        FEDGE_TRY(fedge_journal_make_path(journals, visit.round, visit.attempt, path, err));
        FEDGE_TRY(fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err));
        const bool is_last = !visit.later && newest == recovery->last_closed;
        FEDGE_TRY(take_journal(run, path, is_last, recovery, err));
    }
    FEDGE_TRY(check_nothing_lost(checkpoints, recovery, err));
    if (run->next_task_id > recovery->next_task_id)
        recovery->next_task_id = run->next_task_id;
    if (run->resumed)
        recovery->next_task_id += FEDGE_RECOVERY_TASK_ID_GAP;
    return FEDGE_OK;
}

/* Makes the renames of a killed process durable before anything depends on them: this process sees
 * them, but a power failure could still undo them. */
static fedge_status sync_dirs(const fedge_run *run, const char *checkpoints, const char *journals,
                              fedge_error *err)
{
    FEDGE_TRY(fedge_os_sync_dir(run->dir, err));
    FEDGE_TRY(fedge_os_sync_dir(checkpoints, err));
    return fedge_os_sync_dir(journals, err);
}

fedge_status fedge_recover(const fedge_run *run, fedge_recovery *recovery, fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH], journals[FEDGE_MAX_PATH];
    *recovery = (fedge_recovery){0};
    FEDGE_TRY(fedge_run_path(run, "checkpoints", checkpoints, err));
    FEDGE_TRY(fedge_run_path(run, "journal", journals, err));
    char dir[FEDGE_MAX_PATH];
    memcpy(dir, run->dir, sizeof(dir));
    FEDGE_TRY(fedge_os_list_dir(dir, remove_temporary, dir, err));
    FEDGE_TRY(fedge_os_list_dir(checkpoints, remove_leftover, checkpoints, err));
    FEDGE_TRY(fedge_os_list_dir(journals, remove_leftover, journals, err));
    FEDGE_TRY(sync_dirs(run, checkpoints, journals, err));
    const fedge_status status = recover(run, checkpoints, journals, recovery, err);
    if (status != FEDGE_OK)
        fedge_recovery_fini(recovery);
    return status;
}

fedge_status fedge_recovery_reopen(const fedge_run *run, fedge_recovery *recovery, fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH], journals[FEDGE_MAX_PATH];
    uint32_t newest = 0;
    assert(recovery->reclose);
    FEDGE_TRY(fedge_run_path(run, "checkpoints", checkpoints, err));
    FEDGE_TRY(fedge_run_path(run, "journal", journals, err));
    FEDGE_TRY(fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err));
    while (newest > recovery->last_closed) {
        FEDGE_TRY(fedge_checkpoint_remove(checkpoints, newest, err));
        FEDGE_TRY(fedge_checkpoint_find(checkpoints, UINT32_MAX, &newest, err));
    }
    /* Later rounds are opened anew once this one has closed. */
    journal_visit visit = {.dir = journals, .after = recovery->last_closed + 1};
    FEDGE_TRY(fedge_os_list_dir(journals, visit_journal, &visit, err));
    /* Durable before the journal is reopened: an open one beside a later checkpoint would look like
     * a loss. */
    FEDGE_TRY(sync_dirs(run, checkpoints, journals, err));
    FEDGE_TRY(fedge_journal_reopen(recovery->journal, err));
    recovery->reclose = false;
    return FEDGE_OK;
}

void fedge_recovery_fini(fedge_recovery *recovery)
{
    fedge_checkpoint_data_fini(&recovery->checkpoint);
    fedge_journal_free(recovery->journal);
    free(recovery->tasks);
    *recovery = (fedge_recovery){0};
}

/* --- retention -------------------------------------------------------------------------------- */

fedge_status fedge_retention_apply(const fedge_run *run, uint32_t keep, uint32_t best,
                                   fedge_error *err)
{
    char checkpoints[FEDGE_MAX_PATH], journals[FEDGE_MAX_PATH];
    uint32_t oldest = 0;
    assert(keep >= 1);
    FEDGE_TRY(fedge_run_path(run, "checkpoints", checkpoints, err));
    FEDGE_TRY(fedge_run_path(run, "journal", journals, err));
    fedge_status status = fedge_checkpoint_find(checkpoints, UINT32_MAX, &oldest, err);
    for (uint32_t num = 1; num < keep && status == FEDGE_OK && oldest > 0; num++)
        status = fedge_checkpoint_find(checkpoints, oldest - 1, &oldest, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK; /* fewer than [keep] exist */
    FEDGE_TRY(status);
    for (uint32_t round = oldest; round > 0;) {
        status = fedge_checkpoint_find(checkpoints, round - 1, &round, err);
        if (status == FEDGE_NOT_FOUND)
            break;
        FEDGE_TRY(status);
        status =
            best > 0 && round == best ? FEDGE_OK : fedge_checkpoint_remove(checkpoints, round, err);
        /* Another process may have removed it. */
        if (status != FEDGE_NOT_FOUND)
            FEDGE_TRY(status);
    }
    journal_visit visit = {.dir = journals, .before = oldest};
    return fedge_os_list_dir(journals, visit_journal, &visit, err);
}
