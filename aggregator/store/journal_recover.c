/* Recovery of a journal: header, OPEN, the records in order, the end of the log, and the updates
 * that they accept. journal.c explains what each crash leaves.
 *
 * The log ends at the first incomplete record. The bytes after it distinguish a torn end from
 * damage: each record says how far the log was on the disk when it was written, so a complete later
 * record that covers this offset proves that a stored record is lost, and perhaps an acknowledged
 * update with it. Such a file is refused.
 *
 * Recovery writes all that it goes on with again: case 7 in journal.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/journal.h"
#include "aggregator/store/journal_file.h"
#include "edge/core/bytes.h"
#include "edge/core/message.h"

#define CHUNK ((size_t)65536) /* bytes read at a time */

#define ADVICE "move the file away to run the round again without its updates"

/* --- one record ------------------------------------------------------------------------------- */

/* Reads the record at [offset], header included, into *bytes, which the caller frees; NULL: there
 * is no complete, valid one. */
static fedge_status read_record(const fedge_os_file *file, uint64_t offset, uint64_t log_limit,
                                journal_record *record, uint8_t **bytes, fedge_error *err)
{
    uint8_t header[JOURNAL_RECORD_HEADER];
    *bytes = NULL;
    if (offset > log_limit || log_limit - offset < sizeof(header))
        return FEDGE_OK;
    FEDGE_TRY(fedge_os_read_at(file, offset, header, sizeof(header), err));
    if (!fedge_journal_peek_record(header, log_limit - offset, record))
        return FEDGE_OK;
    uint8_t *block = malloc((size_t)record->total);
    if (!block) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a record of %" PRIu64 " bytes of %s",
                          record->total, file->path);
    }
    const fedge_status status = fedge_os_read_at(file, offset, block, (size_t)record->total, err);
    if (status != FEDGE_OK ||
        !fedge_journal_check_record(block, block + JOURNAL_RECORD_HEADER, record->body_size)) {
        free(block);
        return status;
    }
    *bytes = block;
    return FEDGE_OK;
}

/* --- replay ----------------------------------------------------------------------------------- */

static fedge_status fail_record(const fedge_journal *journal, const char *what, fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT, "%s at byte %" PRIu64 ": %s; " ADVICE, journal->file.path,
                      journal->log_end, what);
}

static void forget_accepted(fedge_journal *journal, journal_slot *entry)
{
    journal->num_accepted -= entry->facts.accepted;
    entry->facts = (fedge_journal_slot){.task = entry->facts.task};
}

static fedge_status replay_assign(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                  fedge_error *err)
{
    if (size != JOURNAL_ASSIGN_BODY || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an assignment contradicts itself", err);
    journal_slot *entry = &journal->slots[fedge_get_u32(body)];
    FEDGE_TRY(fedge_journal_note_replaced(journal, fedge_get_u32(body), err));
    forget_accepted(journal, entry);
    fedge_journal_unpack_task(body + 4, &entry->facts.task);
    entry->facts.task.base = journal->phase.round - 1;
    if (entry->facts.task.task_id >= journal->next_task_id)
        journal->next_task_id = entry->facts.task.task_id + 1;
    return FEDGE_OK;
}

/* A log can accept a slot twice, if an earlier recovery found its bytes damaged. */
static fedge_status replay_accept(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                  fedge_error *err)
{
    if (size < JOURNAL_ACCEPT_FIXED || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an acceptance contradicts itself", err);
    journal_slot *entry = &journal->slots[fedge_get_u32(body)];
    uint64_t bytes = fedge_get_u64(body + 16);
    if (fedge_get_u64(body + 8) != entry->facts.task.task_id || bytes > journal->phase.slot_size)
        return fail_record(journal, "an acceptance does not fit its slot", err);
    forget_accepted(journal, entry);
    entry->facts.accepted = true;
    entry->facts.crc32 = fedge_get_u32(body + 4);
    entry->facts.size = bytes;
    entry->facts.metadata_size = size - JOURNAL_ACCEPT_FIXED;
    entry->metadata_offset = journal->log_end + JOURNAL_RECORD_HEADER + JOURNAL_ACCEPT_FIXED;
    journal->num_accepted++;
    return FEDGE_OK;
}

static fedge_status replay_elsewhere(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                     fedge_error *err)
{
    if (size < JOURNAL_ELSEWHERE_FIXED || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an acceptance of another rank contradicts itself", err);
    journal_slot *entry = &journal->slots[fedge_get_u32(body)];
    forget_accepted(journal, entry);
    fedge_journal_unpack_task(body + 8, &entry->facts.task);
    entry->facts.accepted = true;
    entry->facts.elsewhere = true;
    entry->facts.crc32 = fedge_get_u32(body + 4);
    entry->facts.size = fedge_get_u64(body + 8 + JOURNAL_OPEN_TASK);
    entry->facts.location =
        (fedge_journal_location){.disk = fedge_get_u64(body + 16 + JOURNAL_OPEN_TASK),
                                 .rank = fedge_get_u32(body + 24 + JOURNAL_OPEN_TASK)};
    entry->facts.metadata_size = size - JOURNAL_ELSEWHERE_FIXED;
    entry->metadata_offset = journal->log_end + JOURNAL_RECORD_HEADER + JOURNAL_ELSEWHERE_FIXED;
    journal->num_accepted++;
    if (entry->facts.task.task_id >= journal->next_task_id)
        journal->next_task_id = entry->facts.task.task_id + 1;
    return FEDGE_OK;
}

static fedge_status replay_lose(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                fedge_error *err)
{
    if (size != JOURNAL_LOSE_BODY || fedge_get_u32(body) >= journal->phase.num_tasks ||
        !journal->slots[fedge_get_u32(body)].facts.accepted)
        return fail_record(journal, "a loss contradicts itself", err);
    forget_accepted(journal, &journal->slots[fedge_get_u32(body)]);
    return FEDGE_OK;
}

static fedge_status replay_end(fedge_journal *journal, const journal_record *record,
                               const uint8_t *body, fedge_error *err)
{
    if (record->body_size != JOURNAL_END_BODY || fedge_get_u32(body) != journal->num_accepted)
        return fail_record(journal, "the end of the phase has another number of updates", err);
    journal->state = record->type == JOURNAL_CLOSE ? FEDGE_JOURNAL_CLOSED : FEDGE_JOURNAL_FAILED;
    return FEDGE_OK;
}

static fedge_status replay_body(fedge_journal *journal, const journal_record *record,
                                const uint8_t *body, fedge_error *err)
{
    switch (record->type) {
    case JOURNAL_ASSIGN:
        return replay_assign(journal, body, record->body_size, err);
    case JOURNAL_ACCEPT:
        return replay_accept(journal, body, record->body_size, err);
    case JOURNAL_ELSEWHERE:
        return replay_elsewhere(journal, body, record->body_size, err);
    case JOURNAL_LOSE:
        return replay_lose(journal, body, record->body_size, err);
    case JOURNAL_CLOSE:
    case JOURNAL_FAIL:
        return replay_end(journal, record, body, err);
    default:
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s at byte %" PRIu64 ": record of type %" PRIu32
                          ", which this release does not know",
                          journal->file.path, journal->log_end, record->type);
    }
}

static fedge_status replay(fedge_journal *journal, const journal_record *record,
                           const uint8_t *body, fedge_error *err)
{
    if (record->number != journal->next_number)
        return fail_record(journal, "a record is missing", err);
    if (journal->state != FEDGE_JOURNAL_OPEN)
        return fail_record(journal, "a record follows the end of the phase", err);
    FEDGE_TRY(replay_body(journal, record, body, err));
    journal->log_end += record->total;
    journal->next_number++;
    return FEDGE_OK;
}

/* Makes the journal from the body of its first record. */
static fedge_status unpack_phase(const char *path, const uint8_t *body, uint32_t body_size,
                                 uint32_t num_slots, uint64_t slot_size, fedge_journal **journal,
                                 fedge_error *err)
{
    fedge_journal_phase phase;
    size_t tasks = 0;
    FEDGE_TRY(fedge_journal_unpack_open(body, body_size, &phase, &tasks, path, err));
    if (phase.num_tasks != num_slots || phase.slot_size != slot_size) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s at byte %" PRIu64 ": phase and header disagree; " ADVICE, path,
                          JOURNAL_PAGE);
    }
    FEDGE_TRY(fedge_journal_allocate(&phase, journal, err));
    const uint8_t *bases = body + tasks + (size_t)phase.num_tasks * JOURNAL_OPEN_TASK;
    for (uint32_t i = 0; i < phase.num_tasks; i++) {
        fedge_journal_task *task = &(*journal)->slots[i].facts.task;
        fedge_journal_unpack_task(body + tasks + (size_t)i * JOURNAL_OPEN_TASK, task);
        task->base =
            phase.buffered ? fedge_get_u32(bases + (size_t)i * JOURNAL_OPEN_BASE) : phase.round - 1;
        if (task->task_id >= (*journal)->next_task_id)
            (*journal)->next_task_id = task->task_id + 1;
    }
    return FEDGE_OK;
}

/* Makes the journal and passes [file] to it. */
static fedge_status begin(fedge_os_file *file, const journal_layout *layout, uint32_t num_slots,
                          uint64_t slot_size, fedge_journal **journal, fedge_error *err)
{
    journal_record record = {0};
    uint8_t *bytes;
    FEDGE_TRY(read_record(file, JOURNAL_PAGE, layout->slots_offset, &record, &bytes, err));
    const fedge_status status =
        bytes && record.type == JOURNAL_OPEN && record.number == 0
            ? unpack_phase(file->path, bytes + JOURNAL_RECORD_HEADER, record.body_size, num_slots,
                           slot_size, journal, err)
            : fedge_fail(err, FEDGE_CORRUPT,
                         "%s at byte %" PRIu64 ": the record of the phase is damaged; " ADVICE,
                         file->path, JOURNAL_PAGE);
    free(bytes);
    FEDGE_TRY(status);
    (*journal)->file = *file;
    file->fd = -1;
    (*journal)->layout = *layout;
    (*journal)->log_end = JOURNAL_PAGE + record.total;
    (*journal)->next_number = 1;
    return FEDGE_OK;
}

/* *crc: of all records after OPEN. */
static fedge_status replay_log(fedge_journal *journal, uint32_t *crc, fedge_error *err)
{
    *crc = 0;
    for (;;) {
        journal_record record = {0};
        uint8_t *bytes;
        FEDGE_TRY(read_record(&journal->file, journal->log_end, journal->layout.slots_offset,
                              &record, &bytes, err));
        if (!bytes)
            return FEDGE_OK;
        const fedge_status status = replay(journal, &record, bytes + JOURNAL_RECORD_HEADER, err);
        if (status == FEDGE_OK)
            *crc = fedge_crc32(*crc, bytes, (size_t)record.total);
        free(bytes);
        FEDGE_TRY(status);
    }
}

/* --- the end of the log ----------------------------------------------------------------------- */

/* FEDGE_CORRUPT: a valid record at [offset] proves that the end of the log was on the disk once.
 * Counts a valid one that does not in *num_later. */
static fedge_status check_later_record(const fedge_journal *journal, uint64_t offset,
                                       const uint8_t *header, uint32_t *num_later, fedge_error *err)
{
    journal_record record = {0};
    uint64_t limit = journal->layout.slots_offset;
    if (!fedge_journal_peek_record(header, limit - offset, &record) ||
        record.number <= journal->next_number)
        return FEDGE_OK;
    uint8_t *bytes;
    FEDGE_TRY(read_record(&journal->file, offset, limit, &record, &bytes, err));
    if (!bytes)
        return FEDGE_OK;
    free(bytes);
    if (record.durable <= journal->log_end) {
        ++*num_later;
        return FEDGE_OK;
    }
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s at byte %" PRIu64 ": record %" PRIu32
                      " was stored and is damaged now (record %" PRIu32
                      " after it says so); " ADVICE,
                      journal->file.path, journal->log_end, journal->next_number, record.number);
}

/* Scans the region after the end of the log. *dirty_end: end of its last non-zero word; *num_later:
 * number of complete records in it. */
static fedge_status scan_tail(const fedge_journal *journal, uint64_t *dirty_end,
                              uint32_t *num_later, fedge_error *err)
{
    uint64_t limit = journal->layout.slots_offset;
    uint8_t *chunk = malloc(CHUNK + JOURNAL_RECORD_HEADER);
    if (!chunk)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read %s", journal->file.path);
    fedge_status status = FEDGE_OK;
    *dirty_end = journal->log_end;
    for (uint64_t at = journal->log_end; at < limit; at += CHUNK) {
        /* A header at the end of a chunk extends into the next one. */
        uint64_t left = limit - at;
        size_t wanted = CHUNK + JOURNAL_RECORD_HEADER;
        size_t size = left < wanted ? (size_t)left : wanted;
        FEDGE_TRY_OR(fedge_os_read_at(&journal->file, at, chunk, size, err), end);
        for (size_t i = 0; i < size && i < CHUNK; i += 8) {
            if (fedge_get_u64(chunk + i) == 0)
                continue;
            *dirty_end = at + i + 8;
            if (size - i >= JOURNAL_RECORD_HEADER)
                FEDGE_TRY_OR(check_later_record(journal, at + i, chunk + i, num_later, err), end);
        }
    }
end:
    free(chunk);
    return status;
}

/* Names the kind of the torn record at the end of the log, if its header is readable. */
static fedge_status name_torn(const fedge_journal *journal, const char **name, fedge_error *err)
{
    static const char *const names[] = {[JOURNAL_ASSIGN] = "an assignment",
                                        [JOURNAL_ACCEPT] = "an accepted update",
                                        [JOURNAL_CLOSE] = "the end of the round",
                                        [JOURNAL_FAIL] = "the end of the attempt",
                                        [JOURNAL_ELSEWHERE] = "an update that another rank has",
                                        [JOURNAL_LOSE] = "the loss of an update"};
    uint8_t header[JOURNAL_RECORD_HEADER];
    journal_record record;
    const uint64_t available = journal->layout.slots_offset - journal->log_end;
    *name = "not readable";
    if (available < sizeof(header))
        return FEDGE_OK;
    FEDGE_TRY(fedge_os_read_at(&journal->file, journal->log_end, header, sizeof(header), err));
    if (fedge_journal_peek_record(header, available, &record) &&
        record.number == journal->next_number && record.type >= JOURNAL_ASSIGN &&
        record.type <= JOURNAL_LOSE)
        *name = names[record.type];
    return FEDGE_OK;
}

/* Only a later record could prove that the cut one was stored, so it is unknown whether it was
 * acknowledged. */
static void note_cut(fedge_journal *journal, uint64_t size, const char *name, uint32_t num_later)
{
    char later[64] = "";
    if (num_later > 0)
        snprintf(later, sizeof(later), ", with %" PRIu32 " whole behind it", num_later);
    snprintf(journal->note, sizeof(journal->note),
             "%s: cut %" PRIu64 " bytes at byte %" PRIu64 ": record %" PRIu32 " (%s) is torn or "
             "damaged%s. If a crash broke off its writing, it was not acknowledged yet; if the "
             "disk has damaged it since, it may have been. All before it is whole; what is missing "
             "is asked for again. ",
             journal->file.path, size, journal->log_end, journal->next_number, name, later);
}

/* Notes a torn end, and overwrites with zeros what may follow the log: remains of the end could
 * look like a record once the log has grown up to them. Where zeros are read already, an earlier
 * recovery may have written them, and its sync may have failed; case 8 in journal.c says how far.
 */
static fedge_status cut_tail(fedge_journal *journal, fedge_error *err)
{
    uint64_t dirty_end = 0;
    uint32_t num_later = 0;
    const char *name = "";
    FEDGE_TRY(scan_tail(journal, &dirty_end, &num_later, err));
    if (dirty_end > journal->log_end) {
        FEDGE_TRY(name_torn(journal, &name, err));
        note_cut(journal, dirty_end - journal->log_end, name, num_later);
    }
    uint64_t end = journal->log_end + 2 * JOURNAL_MAX_UNSYNCED;
    if (end < dirty_end)
        end = dirty_end;
    if (end > journal->layout.slots_offset)
        end = journal->layout.slots_offset;
    uint8_t *zeros = calloc(1, CHUNK);
    if (!zeros)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to cut %s", journal->file.path);
    fedge_status status = FEDGE_OK;
    for (uint64_t at = journal->log_end; at < end && !status;) {
        const size_t size = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        status = fedge_os_write_at(&journal->file, at, zeros, size, err);
        at += size;
    }
    free(zeros);
    return status;
}

/* --- what is relied on ------------------------------------------------------------------------ */

typedef enum pass { PASS_READ, PASS_REWRITE } pass;

/* CRC of [size] bytes at [at], which PASS_REWRITE writes again as they are. A power failure
 * meanwhile changes none of them, as long as the disk writes sectors whole; every record that is
 * appended relies on that too. */
static fedge_status pass_over(const fedge_os_file *file, uint64_t at, uint64_t size, pass kind,
                              uint32_t *crc, fedge_error *err)
{
    uint8_t *chunk = malloc(CHUNK);
    if (!chunk)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read %s", file->path);
    fedge_status status = FEDGE_OK;
    *crc = 0;
    while (size > 0) {
        const size_t count = size < CHUNK ? (size_t)size : CHUNK;
        FEDGE_TRY_OR(fedge_os_read_at(file, at, chunk, count, err), end);
        if (kind == PASS_REWRITE)
            FEDGE_TRY_OR(fedge_os_write_at(file, at, chunk, count, err), end);
        *crc = fedge_crc32(*crc, chunk, count);
        at += count;
        size -= count;
    }
end:
    free(chunk);
    return status;
}

/* [crc]: of the [size] bytes of records at [at], as replayed. */
static fedge_status rewrite_log(const fedge_journal *journal, uint64_t at, uint64_t size,
                                uint32_t crc, fedge_error *err)
{
    uint32_t found = 0;
    FEDGE_TRY(pass_over(&journal->file, at, size, PASS_REWRITE, &found, err));
    /* The system may have dropped a page that it took for stored, and read an older one. */
    return found == crc
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_IO, "%s changes while it is read", journal->file.path);
}

/* Checks the bytes of an accepted update, and writes them again if they are good. Checked twice, as
 * in rewrite_log: once more where they can no longer change. */
static fedge_status check_update(const fedge_journal *journal, uint32_t slot, bool *good,
                                 fedge_error *err)
{
    const fedge_journal_slot *facts = &journal->slots[slot].facts;
    const uint64_t at = journal->layout.slots_offset + slot * journal->layout.slot_stride;
    uint32_t crc = 0;
    FEDGE_TRY(pass_over(&journal->file, at, facts->size, PASS_READ, &crc, err));
    if (crc == facts->crc32)
        FEDGE_TRY(pass_over(&journal->file, at, facts->size, PASS_REWRITE, &crc, err));
    *good = crc == facts->crc32;
    return FEDGE_OK;
}

/* Reopens a slot whose bytes differ from the accepted update. */
static void drop_damaged(fedge_journal *journal, uint32_t slot)
{
    journal_slot *entry = &journal->slots[slot];
    size_t used = strlen(journal->note);
    snprintf(journal->note + used, sizeof(journal->note) - used,
             "The stored update of task %" PRIu64 " is not whole. ", entry->facts.task.task_id);
    forget_accepted(journal, entry);
    entry->damaged = true;
    journal->num_damaged++;
}

static fedge_status check_updates(fedge_journal *journal, fedge_error *err)
{
    for (uint32_t slot = 0; slot < journal->phase.num_tasks; slot++) {
        bool good = true;
        const fedge_journal_slot *facts = &journal->slots[slot].facts;
        /* Updates elsewhere are checked by the rank that has them; those of a failed attempt no
         * longer count. */
        if (facts->accepted && !facts->elsewhere && journal->state != FEDGE_JOURNAL_FAILED)
            FEDGE_TRY(check_update(journal, slot, &good, err));
        if (!good)
            drop_damaged(journal, slot);
    }
    return FEDGE_OK;
}

/* --- the journal ------------------------------------------------------------------------------ */

static fedge_status read_header(const fedge_os_file *file, journal_layout *layout,
                                uint32_t *num_slots, uint64_t *slot_size, fedge_error *err)
{
    uint8_t page[JOURNAL_PAGE];
    uint64_t size = 0;
    FEDGE_TRY(fedge_os_file_size(file, &size, err));
    if (size < sizeof(page)) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s has %" PRIu64 " bytes, less than a journal's header; " ADVICE,
                          file->path, size);
    }
    FEDGE_TRY(fedge_os_read_at(file, 0, page, sizeof(page), err));
    return fedge_journal_unpack_header(page, size, file->path, layout, num_slots, slot_size, err);
}

/* Replays the log of the journal that OPEN has made, and makes all that it goes on with durable. */
static fedge_status recover_log(fedge_journal *journal, fedge_error *err)
{
    const uint64_t first = journal->log_end;
    uint32_t crc = 0;
    FEDGE_TRY(replay_log(journal, &crc, err));
    FEDGE_TRY(cut_tail(journal, err));
    FEDGE_TRY(rewrite_log(journal, first, journal->log_end - first, crc, err));
    FEDGE_TRY(check_updates(journal, err));
    /* Otherwise the end of the phase would have fewer updates than the log. */
    if (journal->state == FEDGE_JOURNAL_OPEN)
        FEDGE_TRY(fedge_journal_note_damaged(journal, err));
    FEDGE_TRY(fedge_os_sync(&journal->file, err));
    journal->ending = journal->state != FEDGE_JOURNAL_OPEN;
    journal->durable = journal->log_end;
    return FEDGE_OK;
}

fedge_status fedge_journal_recover(const char *path, fedge_journal **journal, fedge_error *err)
{
    *journal = NULL;
    fedge_os_file file;
    journal_layout layout = {0};
    uint32_t num_slots = 0;
    uint64_t slot_size = 0;
    fedge_journal *made = NULL;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, err));
    fedge_status status;
    FEDGE_TRY_OR(read_header(&file, &layout, &num_slots, &slot_size, err), failed);
    FEDGE_TRY_OR(begin(&file, &layout, num_slots, slot_size, &made, err), failed);
    FEDGE_TRY_OR(recover_log(made, err), failed);
    *journal = made;
    return FEDGE_OK;
failed:
    fedge_os_close(&file);
    fedge_journal_free(made);
    return status;
}
