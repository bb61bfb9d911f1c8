/* Reading a journal back: header, OPEN, the records one after another, the end of the log, and the
 * updates that it says are there. journal.c argues which crash leaves what.
 *
 * The log ends at the first record that is not whole. What lies behind that place tells a torn end
 * from damage: each record says up to where the log was on the disk when it was written, so a whole
 * later one that claims this place means that a record which was safe has been lost, and with it
 * maybe an acknowledged update. Then nothing is guessed, and the file is refused. */
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

/* What to do with a journal that cannot be used, for messages. */
#define ADVICE "move the file away to run the round again without its updates"

/* --- one record ------------------------------------------------------------------------------- */

/* Reads the record at [offset] into a malloc'ed *bytes, header included; *bytes is NULL when there
 * is no whole, valid one. */
static fedge_status read_record(const fedge_os_file *file, uint64_t offset, uint64_t log_limit,
                                journal_record *record, uint8_t **bytes, fedge_error *err)
{
    uint8_t header[JOURNAL_RECORD_HEADER];
    *bytes = NULL;
    if (offset > log_limit || log_limit - offset < sizeof(header))
        return FEDGE_OK;
    fedge_status status = fedge_os_read_at(file, offset, header, sizeof(header), err);
    if (status != FEDGE_OK || !fedge_journal_peek_record(header, log_limit - offset, record))
        return status;
    uint8_t *block = malloc((size_t)record->total);
    if (!block) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a record of %" PRIu64 " bytes of %s",
                          record->total, file->path);
    }
    status = fedge_os_read_at(file, offset, block, (size_t)record->total, err);
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

static void forget_accepted(fedge_journal *journal, journal_slot *own)
{
    journal->num_accepted -= own->facts.accepted;
    own->facts = (fedge_journal_slot){.task = own->facts.task};
}

static fedge_status replay_assign(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                  fedge_error *err)
{
    if (size != JOURNAL_ASSIGN_BODY || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an assignment contradicts itself", err);
    journal_slot *own = &journal->slots[fedge_get_u32(body)];
    FEDGE_TRY(fedge_journal_note_replaced(journal, fedge_get_u32(body), err));
    forget_accepted(journal, own);
    fedge_journal_unpack_task(body + 4, &own->facts.task);
    own->facts.task.base = journal->phase.round - 1;
    if (own->facts.task.task_id >= journal->next_task_id)
        journal->next_task_id = own->facts.task.task_id + 1;
    return FEDGE_OK;
}

/* A slot can be accepted twice in a log: when an earlier recovery found its bytes damaged. */
static fedge_status replay_accept(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                  fedge_error *err)
{
    if (size < JOURNAL_ACCEPT_FIXED || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an acceptance contradicts itself", err);
    journal_slot *own = &journal->slots[fedge_get_u32(body)];
    uint64_t bytes = fedge_get_u64(body + 16);
    if (fedge_get_u64(body + 8) != own->facts.task.task_id || bytes > journal->phase.slot_size)
        return fail_record(journal, "an acceptance does not fit its slot", err);
    forget_accepted(journal, own);
    own->facts.accepted = true;
    own->facts.crc32 = fedge_get_u32(body + 4);
    own->facts.size = bytes;
    own->facts.metadata_size = size - JOURNAL_ACCEPT_FIXED;
    own->metadata_offset = journal->log_end + JOURNAL_RECORD_HEADER + JOURNAL_ACCEPT_FIXED;
    journal->num_accepted++;
    return FEDGE_OK;
}

static fedge_status replay_elsewhere(fedge_journal *journal, const uint8_t *body, uint32_t size,
                                     fedge_error *err)
{
    if (size < JOURNAL_ELSEWHERE_FIXED || fedge_get_u32(body) >= journal->phase.num_tasks)
        return fail_record(journal, "an acceptance of another rank contradicts itself", err);
    journal_slot *own = &journal->slots[fedge_get_u32(body)];
    forget_accepted(journal, own);
    fedge_journal_unpack_task(body + 8, &own->facts.task);
    own->facts.accepted = true;
    own->facts.elsewhere = true;
    own->facts.crc32 = fedge_get_u32(body + 4);
    own->facts.size = fedge_get_u64(body + 8 + JOURNAL_OPEN_TASK);
    own->facts.place = (fedge_journal_place){.disk = fedge_get_u64(body + 16 + JOURNAL_OPEN_TASK),
                                             .rank = fedge_get_u32(body + 24 + JOURNAL_OPEN_TASK)};
    own->facts.metadata_size = size - JOURNAL_ELSEWHERE_FIXED;
    own->metadata_offset = journal->log_end + JOURNAL_RECORD_HEADER + JOURNAL_ELSEWHERE_FIXED;
    journal->num_accepted++;
    if (own->facts.task.task_id >= journal->next_task_id)
        journal->next_task_id = own->facts.task.task_id + 1;
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

/* Takes one valid record over. */
static fedge_status replay(fedge_journal *journal, const journal_record *record,
                           const uint8_t *body, fedge_error *err)
{
    if (record->number != journal->next_number)
        return fail_record(journal, "a record is missing", err);
    if (journal->state != FEDGE_JOURNAL_OPEN)
        return fail_record(journal, "a record follows the end of the phase", err);
    fedge_status status;
    switch (record->type) {
    case JOURNAL_ASSIGN:
        status = replay_assign(journal, body, record->body_size, err);
        break;
    case JOURNAL_ACCEPT:
        status = replay_accept(journal, body, record->body_size, err);
        break;
    case JOURNAL_ELSEWHERE:
        status = replay_elsewhere(journal, body, record->body_size, err);
        break;
    case JOURNAL_LOSE:
        status = replay_lose(journal, body, record->body_size, err);
        break;
    case JOURNAL_CLOSE:
    case JOURNAL_FAIL:
        status = replay_end(journal, record, body, err);
        break;
    default:
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s at byte %" PRIu64 ": record of type %" PRIu32
                          ", which this release does not know",
                          journal->file.path, journal->log_end, record->type);
    }
    if (status == FEDGE_OK) {
        journal->log_end += record->total;
        journal->next_number++;
    }
    return status;
}

/* Makes the journal from its first record. */
static fedge_status begin(fedge_os_file *file, const journal_layout *layout, uint32_t num_slots,
                          uint64_t slot_size, fedge_journal **journal, fedge_error *err)
{
    journal_record record = {0};
    uint8_t *bytes;
    fedge_status status =
        read_record(file, JOURNAL_PAGE, layout->slots_offset, &record, &bytes, err);
    if (status != FEDGE_OK)
        return status;
    if (!bytes || record.type != JOURNAL_OPEN || record.number != 0) {
        free(bytes);
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s at byte %" PRIu64 ": the record of the phase is damaged; " ADVICE,
                          file->path, JOURNAL_PAGE);
    }
    const uint8_t *body = bytes + JOURNAL_RECORD_HEADER;
    fedge_journal_phase phase;
    size_t tasks = 0;
    status = fedge_journal_unpack_open(body, record.body_size, &phase, &tasks, file->path, err);
    if (status == FEDGE_OK && (phase.num_tasks != num_slots || phase.slot_size != slot_size)) {
        status = fedge_fail(err, FEDGE_CORRUPT,
                            "%s at byte %" PRIu64 ": phase and header disagree; " ADVICE,
                            file->path, JOURNAL_PAGE);
    }
    if (status == FEDGE_OK)
        status = fedge_journal_allocate(&phase, journal, err);
    const uint8_t *bases = body + tasks + (size_t)phase.num_tasks * JOURNAL_OPEN_TASK;
    for (uint32_t i = 0; status == FEDGE_OK && i < phase.num_tasks; i++) {
        fedge_journal_task *task = &(*journal)->slots[i].facts.task;
        fedge_journal_unpack_task(body + tasks + (size_t)i * JOURNAL_OPEN_TASK, task);
        task->base =
            phase.buffered ? fedge_get_u32(bases + (size_t)i * JOURNAL_OPEN_BASE) : phase.round - 1;
        if (task->task_id >= (*journal)->next_task_id)
            (*journal)->next_task_id = task->task_id + 1;
    }
    free(bytes);
    if (status != FEDGE_OK)
        return status;
    (*journal)->file = *file;
    file->fd = -1;
    (*journal)->layout = *layout;
    (*journal)->log_end = JOURNAL_PAGE + record.total;
    (*journal)->next_number = 1;
    return FEDGE_OK;
}

static fedge_status replay_log(fedge_journal *journal, fedge_error *err)
{
    for (;;) {
        journal_record record = {0};
        uint8_t *bytes;
        fedge_status status = read_record(&journal->file, journal->log_end,
                                          journal->layout.slots_offset, &record, &bytes, err);
        if (status != FEDGE_OK || !bytes)
            return status;
        status = replay(journal, &record, bytes + JOURNAL_RECORD_HEADER, err);
        free(bytes);
        if (status != FEDGE_OK)
            return status;
    }
}

/* --- the end of the log ----------------------------------------------------------------------- */

/* FEDGE_CORRUPT when a valid record at [offset] says that the end of the log was on the disk once.
 * Counts in *num_later one that does not say so. */
static fedge_status check_later_record(const fedge_journal *journal, uint64_t offset,
                                       const uint8_t *header, uint32_t *num_later, fedge_error *err)
{
    journal_record record = {0};
    uint64_t limit = journal->layout.slots_offset;
    if (!fedge_journal_peek_record(header, limit - offset, &record) ||
        record.number <= journal->next_number)
        return FEDGE_OK;
    uint8_t *bytes;
    fedge_status status = read_record(&journal->file, offset, limit, &record, &bytes, err);
    if (status != FEDGE_OK || !bytes)
        return status;
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

/* Looks at all behind the end of the log; *dirty_end is where its last byte that is not zero ends,
 * *num_later how many whole records are in it. */
static fedge_status scan_tail(const fedge_journal *journal, uint64_t *dirty_end,
                              uint32_t *num_later, fedge_error *err)
{
    uint64_t limit = journal->layout.slots_offset;
    uint8_t *chunk = malloc(CHUNK + JOURNAL_RECORD_HEADER);
    if (!chunk)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read %s", journal->file.path);
    fedge_status status = FEDGE_OK;
    *dirty_end = journal->log_end;
    for (uint64_t at = journal->log_end; at < limit && status == FEDGE_OK; at += CHUNK) {
        /* The last records' headers of a chunk reach into the next one. */
        uint64_t left = limit - at;
        size_t wanted = CHUNK + JOURNAL_RECORD_HEADER;
        size_t size = left < wanted ? (size_t)left : wanted;
        status = fedge_os_read_at(&journal->file, at, chunk, size, err);
        for (size_t i = 0; i < size && i < CHUNK && status == FEDGE_OK; i += 8) {
            if (fedge_get_u64(chunk + i) == 0)
                continue;
            *dirty_end = at + i + 8;
            if (size - i >= JOURNAL_RECORD_HEADER)
                status = check_later_record(journal, at + i, chunk + i, num_later, err);
        }
    }
    free(chunk);
    return status;
}

/* What the record at the end of the log was to be, as far as its header can be read. */
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
    const uint64_t room = journal->layout.slots_offset - journal->log_end;
    *name = "not readable";
    if (room < sizeof(header))
        return FEDGE_OK;
    FEDGE_TRY(fedge_os_read_at(&journal->file, journal->log_end, header, sizeof(header), err));
    if (fedge_journal_peek_record(header, room, &record) && record.number == journal->next_number &&
        record.type >= JOURNAL_ASSIGN && record.type <= JOURNAL_LOSE)
        *name = names[record.type];
    return FEDGE_OK;
}

/* Whether it was acknowledged cannot be known: only a later record could say that it was stored. */
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

/* Overwrites the torn end with zeros: what is left of it must not look like a record once the log
 * has grown up to it. */
static fedge_status cut_tail(fedge_journal *journal, fedge_error *err)
{
    static const uint8_t zeros[4096];
    uint64_t dirty_end = 0;
    uint32_t num_later = 0;
    const char *name = "";
    fedge_status status = scan_tail(journal, &dirty_end, &num_later, err);
    if (status != FEDGE_OK || dirty_end == journal->log_end)
        return status;
    status = name_torn(journal, &name, err);
    for (uint64_t at = journal->log_end; at < dirty_end && status == FEDGE_OK;) {
        uint64_t left = dirty_end - at;
        size_t size = left < sizeof(zeros) ? (size_t)left : sizeof(zeros);
        status = fedge_os_write_at(&journal->file, at, zeros, size, err);
        at += size;
    }
    note_cut(journal, dirty_end - journal->log_end, name, num_later);
    return status;
}

/* --- the updates ------------------------------------------------------------------------------ */

static fedge_status slot_crc(const fedge_journal *journal, uint32_t slot, uint8_t *chunk,
                             uint32_t *crc, fedge_error *err)
{
    uint64_t at = journal->layout.slots_offset + slot * journal->layout.slot_stride;
    uint64_t left = journal->slots[slot].facts.size;
    *crc = 0;
    while (left > 0) {
        size_t size = left < CHUNK ? (size_t)left : CHUNK;
        FEDGE_TRY(fedge_os_read_at(&journal->file, at, chunk, size, err));
        *crc = fedge_crc32(*crc, chunk, size);
        at += size;
        left -= size;
    }
    return FEDGE_OK;
}

/* The bytes of an accepted update are not what was accepted. */
static void drop_damaged(fedge_journal *journal, uint32_t slot)
{
    journal_slot *own = &journal->slots[slot];
    size_t used = strlen(journal->note);
    snprintf(journal->note + used, sizeof(journal->note) - used,
             "The stored update of task %" PRIu64 " is not whole. ", own->facts.task.task_id);
    forget_accepted(journal, own);
    journal->num_damaged++;
}

static fedge_status check_updates(fedge_journal *journal, fedge_error *err)
{
    uint8_t *chunk = malloc(CHUNK);
    if (!chunk)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read %s", journal->file.path);
    fedge_status status = FEDGE_OK;
    for (uint32_t slot = 0; slot < journal->phase.num_tasks && status == FEDGE_OK; slot++) {
        uint32_t crc = 0;
        const fedge_journal_slot *facts = &journal->slots[slot].facts;
        /* Updates elsewhere are for their own rank to check, and those of a failed attempt count no
         * more. */
        if (!facts->accepted || facts->elsewhere || journal->state == FEDGE_JOURNAL_FAILED)
            continue;
        status = slot_crc(journal, slot, chunk, &crc, err);
        if (status == FEDGE_OK && crc != journal->slots[slot].facts.crc32)
            drop_damaged(journal, slot);
    }
    free(chunk);
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static fedge_status read_header(const fedge_os_file *file, journal_layout *layout,
                                uint32_t *num_slots, uint64_t *slot_size, fedge_error *err)
{
    uint8_t page[JOURNAL_PAGE];
    uint64_t size = 0;
    fedge_status status = fedge_os_file_size(file, &size, err);
    if (status != FEDGE_OK)
        return status;
    if (size < sizeof(page)) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s has %" PRIu64 " bytes, less than a journal's header; " ADVICE,
                          file->path, size);
    }
    status = fedge_os_read_at(file, 0, page, sizeof(page), err);
    if (status == FEDGE_OK) {
        status =
            fedge_journal_unpack_header(page, size, file->path, layout, num_slots, slot_size, err);
    }
    return status;
}

fedge_status fedge_journal_recover(const char *path, fedge_journal **journal, fedge_error *err)
{
    *journal = NULL;
    fedge_os_file file;
    journal_layout layout = {0};
    uint32_t num_slots = 0;
    uint64_t slot_size = 0;
    fedge_journal *made = NULL;
    fedge_status status = fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, err);
    if (status != FEDGE_OK)
        return status;
    status = read_header(&file, &layout, &num_slots, &slot_size, err);
    if (status == FEDGE_OK)
        status = begin(&file, &layout, num_slots, slot_size, &made, err);
    if (status == FEDGE_OK)
        status = replay_log(made, err);
    if (status == FEDGE_OK)
        status = cut_tail(made, err);
    if (status == FEDGE_OK)
        status = check_updates(made, err);
    /* What was read may have been in memory only: from here on it counts. */
    if (status == FEDGE_OK)
        status = fedge_os_sync(&made->file, err);
    fedge_os_close(&file);
    if (status != FEDGE_OK) {
        fedge_journal_free(made);
        return status;
    }
    made->ending = made->state != FEDGE_JOURNAL_OPEN;
    made->durable = made->log_end;
    *journal = made;
    return FEDGE_OK;
}
