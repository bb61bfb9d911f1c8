/* Names and creation of journals. Case 1 in journal.c explains why a name means a complete journal.
 */
#include "aggregator/store/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/progress.h"
#include "aggregator/store/journal_file.h"

/* --- names ------------------------------------------------------------------------------------ */

fedge_status fedge_journal_make_path(const char *dir, uint32_t round, uint32_t attempt,
                                     char path[FEDGE_MAX_PATH], fedge_error *err)
{
    int length = snprintf(path, FEDGE_MAX_PATH, "%s/round-%06" PRIu32 "-a%" PRIu32 ".fj", dir,
                          round, attempt);
    if (length < 0 || length >= FEDGE_MAX_PATH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path of a journal in %.200s... is over %d bytes",
                          dir, FEDGE_MAX_PATH - 1);
    }
    return FEDGE_OK;
}

bool fedge_journal_parse_name(const char *name, uint32_t *round, uint32_t *attempt)
{
    char canonical[64];
    int length = sscanf(name, "round-%10" SCNu32 "-a%10" SCNu32, round, attempt);
    if (length != 2)
        return false;
    snprintf(canonical, sizeof(canonical), "round-%06" PRIu32 "-a%" PRIu32 ".fj", *round, *attempt);
    return strcmp(name, canonical) == 0;
}

/* --- creation --------------------------------------------------------------------------------- */

static fedge_status check_space(const char *dir, uint64_t needed, uint64_t min_free_bytes,
                                fedge_error *err)
{
    /* Reserving could take the last byte, but checkpoints and logs need min_free_bytes. */
    uint64_t available = 0;
    FEDGE_TRY(fedge_os_free_bytes(dir, &available, err));
    if (available < min_free_bytes || available - min_free_bytes < needed) {
        char takes[FEDGE_BYTES_TEXT], stays[FEDGE_BYTES_TEXT], has[FEDGE_BYTES_TEXT];
        return fedge_fail(err, FEDGE_NO_SPACE,
                          "the journal of a round takes %s and the job's min-free-disk is %s, but "
                          "the disk of %s has %s free: free some, or lower min-free-disk",
                          fedge_bytes_text(needed, takes), fedge_bytes_text(min_free_bytes, stays),
                          dir, fedge_bytes_text(available, has));
    }
    return FEDGE_OK;
}

/* Reserves the open file and writes header and OPEN record. */
static fedge_status fill(fedge_journal *journal, const fedge_journal_task *tasks, fedge_error *err)
{
    uint8_t page[JOURNAL_PAGE];
    uint32_t body = fedge_journal_open_body(&journal->phase);
    uint8_t *record = malloc((size_t)fedge_journal_record_size(body));
    if (!record) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the first record of %s",
                          journal->file.path);
    }
    fedge_journal_pack_header(&journal->phase, &journal->layout, page);
    fedge_journal_pack_open(&journal->phase, tasks, record + JOURNAL_RECORD_HEADER);
    size_t size = fedge_journal_seal_record(record, body, 0, JOURNAL_OPEN, 0);
    /* First, so that no write below can find the disk full. The order of the writes is irrelevant:
     * one sync covers all three, and only then does the file get its name. */
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_reserve(&journal->file, journal->layout.file_size, err), end);
    FEDGE_TRY_OR(fedge_os_write_at(&journal->file, 0, page, sizeof(page), err), end);
    FEDGE_TRY_OR(fedge_os_write_at(&journal->file, JOURNAL_PAGE, record, size, err), end);
    status = fedge_os_sync(&journal->file, err);
end:
    free(record);
    journal->log_end = journal->durable = JOURNAL_PAGE + size;
    journal->next_number = 1;
    return status;
}

/* Makes the file under a temporary name, so that the journal's name means a complete journal. On
 * failure no file is left. */
static fedge_status make_file(fedge_journal *journal, const char *dir, const char *path,
                              const fedge_journal_task *tasks, fedge_error *err)
{
    char temporary[FEDGE_MAX_PATH];
    int length = snprintf(temporary, sizeof(temporary), "%s" FEDGE_OS_TEMPORARY_SUFFIX, path);
    if (length < 0 || (size_t)length >= sizeof(temporary)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path %.200s... is over %d bytes", path,
                          FEDGE_MAX_PATH - 1);
    }
    /* The rename would replace it and its accepted updates. */
    if (fedge_os_exists(path))
        return fedge_fail(err, FEDGE_EXISTS, "%s exists already", path);
    /* A crash may have left one. */
    FEDGE_TRY(fedge_os_remove_tree(temporary, err));
    FEDGE_TRY(fedge_os_open(&journal->file, temporary, FEDGE_OS_CREATE, err));
    fedge_status status;
    FEDGE_TRY_OR(fill(journal, tasks, err), failed);
    FEDGE_TRY_OR(fedge_os_rename(temporary, path, err), failed);
    snprintf(journal->file.path, sizeof(journal->file.path), "%s", path);
    FEDGE_TRY_OR(fedge_os_sync_dir(dir, err), failed);
    return FEDGE_OK;
failed:
    /* The first error is the one to report. */
    (void)!fedge_os_remove(journal->file.path, NULL);
    return status;
}

typedef struct attempt_visit {
    const char *dir;
    uint32_t round, attempt;
} attempt_visit;

static fedge_status remove_other_attempt(void *user, const char *name, fedge_error *err)
{
    const attempt_visit *visit = user;
    uint32_t round, attempt;
    char path[FEDGE_MAX_PATH];
    if (!fedge_journal_parse_name(name, &round, &attempt) || round != visit->round ||
        attempt == visit->attempt)
        return FEDGE_OK;
    FEDGE_TRY(fedge_journal_make_path(visit->dir, round, attempt, path, err));
    return fedge_os_remove(path, err);
}

fedge_status fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                  const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                  fedge_journal **journal, fedge_error *err)
{
    *journal = NULL;
    assert(phase->wanted >= 1 && phase->wanted <= phase->num_tasks);
    assert(phase->num_bounds <= FEDGE_MAX_TENSORS);
    journal_layout layout;
    fedge_journal *made = NULL;
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_journal_make_layout(phase, &layout, err));
    FEDGE_TRY(fedge_journal_make_path(dir, phase->round, phase->attempt, path, err));
    FEDGE_TRY(check_space(dir, layout.file_size, min_free_bytes, err));
    FEDGE_TRY(fedge_journal_allocate(phase, &made, err));
    made->layout = layout;
    for (uint32_t slot = 0; slot < phase->num_tasks; slot++) {
        made->slots[slot].facts.task = tasks[slot];
        if (tasks[slot].task_id >= made->next_task_id)
            made->next_task_id = tasks[slot].task_id + 1;
    }
    fedge_status status;
    FEDGE_TRY_OR(make_file(made, dir, path, tasks, err), failed);
    /* The old one is removed last: a crash in between leaves two, and recovery takes the later
     * attempt. */
    attempt_visit visit = {dir, phase->round, phase->attempt};
    FEDGE_TRY_OR(fedge_os_list_dir(dir, remove_other_attempt, &visit, err), failed);
    *journal = made;
    return FEDGE_OK;
failed:
    fedge_journal_free(made);
    return status;
}
