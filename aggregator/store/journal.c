#include "aggregator/store/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/journal_file.h"
#include "edge/core/bytes.h"

#define CARRY_PIECE ((size_t)1 << 18) /* bytes copied at a time */

/* Why a crash, at any moment, costs no acknowledged update. A write may come to the disk late,
 * in part, or before an earlier one; what fedge_os_sync has returned for is there.
 *
 * 1. While the file is made. It has a temporary name until header, OPEN record and the room for
 *    all slots are synced. Rename and sync of the folder come before the first task: either
 *    there is no journal by this name, and the phase begins anew, or a whole one. Later writes
 *    need no new room: a full disk cannot come between an update and its record.
 * 2. While an upload comes. Its bytes lie in its slot, and no record speaks of them: recovery
 *    ignores them and the client sends again. A slot that is accepted is not written any more
 *    (check_slot), and nobody writes to one while it is assigned anew.
 * 3. Between the record ACCEPT and the end of the sync. No ACK has gone out: record and bytes
 *    may be there, in part, or neither. A record in part has a wrong CRC and ends the log. A
 *    whole record over bytes that are not all there is found by the CRC over the slot: the slot
 *    is open again. Both there: the update counts, and when the client sends it again it is a
 *    duplicate.
 * 4. After the sync, before the ACK, or when the ACK is lost: as the last of 3.
 * 5. While several wait for one sync. sync_all notes num_writes and log_end before it lets the
 *    lock go: what is written while it runs is not taken for stored and waits for the next.
 * 6. While the phase ends. [ending] lets nothing more in; all updates are synced before CLOSE is
 *    written, and CLOSE before it is acted on. So a file with CLOSE has all of them.
 * 7. When a write or a sync fails. What the kernel has kept is not known, and a second sync may
 *    succeed with the pages lost: the journal is broken for good (break_journal), and recovery
 *    reads what is there.
 * 8. While recovery cuts a torn end. It only writes zeros behind the last whole record, and does
 *    the same again after a crash. Without them an old record could count once the log has grown
 *    up to it.
 * 9. When the disk damages what it had stored. Each record says how far the log was durable when
 *    it was written: a hole before that place is told as damage, and is not taken for a torn end
 *    (3).
 *
 * A buffered phase, of an asynchronous strategy, has these cases more.
 *
 * 10. Which updates a round has. The first [wanted] records ACCEPT, in the order in which they were
 *    appended under the lock: accept() lets no more in, before the caller has noticed and after a
 *    crash alike. The staleness of each follows from the base of its task, which OPEN has for tasks
 *    that were open when it was written, and which is the newest model for those of ASSIGN. So the
 *    same round has the same updates with the same weights whenever it is summed.
 * 11. Between CLOSE and the OPEN of the next round. Tasks that go on are in memory and in no
 * journal of the future: after a crash here they are unknown. Nothing of theirs was acknowledged;
 * their results are refused as stale, and their clients are given new tasks. Once OPEN is synced
 * they are in it, with their bases, and the models of the bases are in the strategy's state.
 * 12. Bytes that are carried over. They are written before any byte of the new phase to the same
 *    slot and are not durable, as in 2: after a crash the upload begins anew.
 */

/* --- facts ------------------------------------------------------------------------------------ */

const char *fedge_journal_note(const fedge_journal *journal)
{
    return journal->note;
}

uint32_t fedge_journal_num_damaged(const fedge_journal *journal)
{
    return journal->num_damaged;
}

const char *fedge_journal_path(const fedge_journal *journal)
{
    return journal->file.path;
}

const fedge_journal_phase *fedge_journal_get_phase(const fedge_journal *journal)
{
    return &journal->phase;
}

fedge_journal_state fedge_journal_get_state(fedge_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    fedge_journal_state state = journal->state;
    pthread_mutex_unlock(&journal->lock);
    return state;
}

uint32_t fedge_journal_num_accepted(fedge_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    uint32_t num_accepted = journal->num_accepted;
    pthread_mutex_unlock(&journal->lock);
    return num_accepted;
}

uint64_t fedge_journal_next_task_id(fedge_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    uint64_t next_task_id = journal->next_task_id;
    pthread_mutex_unlock(&journal->lock);
    return next_task_id;
}

fedge_journal_slot fedge_journal_get_slot(fedge_journal *journal, uint32_t slot)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    fedge_journal_slot facts = journal->slots[slot].facts;
    pthread_mutex_unlock(&journal->lock);
    return facts;
}

fedge_status fedge_journal_find(fedge_journal *journal, uint64_t task_id, uint32_t *slot,
                                fedge_error *err)
{
    fedge_status status = FEDGE_STALE;
    pthread_mutex_lock(&journal->lock);
    for (uint32_t i = 0; i < journal->phase.num_tasks && status != FEDGE_OK; i++) {
        if (journal->slots[i].facts.task.task_id == task_id) {
            *slot = i;
            status = FEDGE_OK;
        }
    }
    pthread_mutex_unlock(&journal->lock);
    if (status != FEDGE_OK) {
        return fedge_fail(err, status,
                          "task %" PRIu64 " is not of round %" PRIu32 " attempt %" PRIu32, task_id,
                          journal->phase.round, journal->phase.attempt);
    }
    return FEDGE_OK;
}

/* --- under the lock --------------------------------------------------------------------------- */

static fedge_status check_alive(const fedge_journal *journal, fedge_error *err)
{
    if (journal->broken)
        return fedge_fail(err, FEDGE_IO, "%s", journal->broken_message);
    return FEDGE_OK;
}

/* Remembers the failure [why] for good and passes it on as FEDGE_IO. */
static fedge_status break_journal(fedge_journal *journal, const fedge_error *why, fedge_error *err)
{
    if (!journal->broken) {
        journal->broken = true;
        memcpy(journal->broken_message, why->message, sizeof(journal->broken_message));
        pthread_cond_broadcast(&journal->synced_more);
    }
    return check_alive(journal, err);
}

/* The phase is open and the slot, not accepted, works for [task_id]. */
static fedge_status check_slot(const fedge_journal *journal, uint32_t slot, uint64_t task_id,
                               fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    /* The order is what clients rely on: after a failed sync nothing is known to be accepted; what
     * is accepted stays so when the phase has ended, so that who sends it again hears of a
     * duplicate and not of a closed round. */
    const fedge_journal_slot *facts = &journal->slots[slot].facts;
    FEDGE_TRY(check_alive(journal, err));
    if (facts->task.task_id != task_id) {
        return fedge_fail(err, FEDGE_STALE,
                          "slot %" PRIu32 " works for task %" PRIu64 ", not %" PRIu64, slot,
                          facts->task.task_id, task_id);
    }
    if (facts->accepted) {
        return fedge_fail(err, FEDGE_DUPLICATE,
                          "the update of task %" PRIu64 " is accepted already", task_id);
    }
    if (journal->ending || journal->state != FEDGE_JOURNAL_OPEN) {
        return fedge_fail(err, FEDGE_CLOSED, "round %" PRIu32 " attempt %" PRIu32 " has ended",
                          journal->phase.round, journal->phase.attempt);
    }
    return FEDGE_OK;
}

/* Appends the record whose body lies in journal->record. */
static fedge_status append(fedge_journal *journal, uint32_t type, uint32_t body_size,
                           fedge_error *err)
{
    size_t size = fedge_journal_seal_record(journal->record, body_size, journal->next_number, type,
                                            journal->durable);
    assert(journal->log_end + size <= journal->layout.slots_offset);
    fedge_error why;
    if (fedge_os_write_at(&journal->file, journal->log_end, journal->record, size, &why) !=
        FEDGE_OK)
        return break_journal(journal, &why, err);
    journal->log_end += size;
    journal->next_number++;
    journal->num_writes++;
    return FEDGE_OK;
}

/* --- uploads ---------------------------------------------------------------------------------- */

static fedge_status check_write(const fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                uint64_t offset, size_t size, fedge_error *err)
{
    FEDGE_TRY(check_slot(journal, slot, task_id, err));
    uint64_t limit = journal->phase.slot_size;
    uint64_t written = journal->slots[slot].facts.written;
    if (offset > limit || size > limit - offset) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%zu bytes at %" PRIu64 " of task %" PRIu64
                          "'s upload are over its limit "
                          "of %" PRIu64,
                          size, offset, task_id, limit);
    }
    /* A hole would hold bytes of the slot's former task. */
    if (offset > written) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "bytes at %" PRIu64 " of task %" PRIu64 "'s upload, but it has %" PRIu64
                          " so far",
                          offset, task_id, written);
    }
    return FEDGE_OK;
}

fedge_status fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                 uint64_t offset, const void *bytes, size_t size, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    fedge_status status = check_write(journal, slot, task_id, offset, size, err);
    pthread_mutex_unlock(&journal->lock);
    if (status != FEDGE_OK)
        return status;
    uint64_t at = journal->layout.slots_offset + slot * journal->layout.slot_stride + offset;
    fedge_error why;
    /* Without the lock: parts of many clients are written side by side, and no ACK waits for them.
     * A slot has one writer, the ingest's worker of its number. */
    fedge_status written = fedge_os_write_at(&journal->file, at, bytes, size, &why);
    pthread_mutex_lock(&journal->lock);
    fedge_journal_slot *facts = &journal->slots[slot].facts;
    if (written != FEDGE_OK)
        status = break_journal(journal, &why, err);
    else if (facts->task.task_id == task_id && facts->written < offset + size)
        facts->written = offset + size;
    journal->num_writes++;
    pthread_mutex_unlock(&journal->lock);
    return status;
}

fedge_status fedge_journal_rewind(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                  fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    fedge_status status = check_slot(journal, slot, task_id, err);
    /* In memory alone: no record has spoken of the bytes (2 above). */
    if (status == FEDGE_OK)
        journal->slots[slot].facts.written = 0;
    pthread_mutex_unlock(&journal->lock);
    return status;
}

fedge_status fedge_journal_carry(fedge_journal *journal, uint32_t slot, fedge_journal *from,
                                 uint32_t old, fedge_error *err)
{
    const fedge_journal_slot facts = fedge_journal_get_slot(from, old);
    const uint64_t size = facts.accepted ? 0 : facts.written;
    uint8_t *piece = size > 0 ? malloc(CARRY_PIECE) : NULL;
    if (size > 0 && !piece)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to carry an upload over");
    fedge_status status = FEDGE_OK;
    for (uint64_t at = 0; at < size && status == FEDGE_OK;) {
        const size_t count = size - at < CARRY_PIECE ? (size_t)(size - at) : CARRY_PIECE;
        status = fedge_journal_read(from, old, at, piece, count, err);
        if (status == FEDGE_OK)
            status = fedge_journal_write(journal, slot, facts.task.task_id, at, piece, count, err);
        at += count;
    }
    free(piece);
    return status;
}

fedge_status fedge_journal_read(fedge_journal *journal, uint32_t slot, uint64_t offset, void *out,
                                size_t size, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    uint64_t limit = journal->phase.slot_size;
    if (offset > limit || size > limit - offset) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%zu bytes at %" PRIu64 " of slot %" PRIu32
                          " are over its size of %" PRIu64,
                          size, offset, slot, limit);
    }
    uint64_t at = journal->layout.slots_offset + slot * journal->layout.slot_stride + offset;
    return fedge_os_read_at(&journal->file, at, out, size, err);
}

/* --- records ---------------------------------------------------------------------------------- */

/* An assignment may not take the room that acceptances and the end of the phase need. */
static bool has_room_for_assign(const fedge_journal *journal)
{
    uint64_t open = journal->phase.num_tasks - journal->num_accepted;
    uint64_t needed = fedge_journal_record_size(JOURNAL_ASSIGN_BODY) +
                      open * fedge_journal_accept_room() +
                      fedge_journal_record_size(JOURNAL_END_BODY);
    return journal->layout.slots_offset - journal->log_end >= needed;
}

fedge_status fedge_journal_note_replaced(fedge_journal *journal, uint32_t slot, fedge_error *err)
{
    if (journal->num_replaced == journal->replaced_capacity) {
        const uint32_t capacity = 2 * journal->replaced_capacity + 16;
        uint32_t *grown = realloc(journal->replaced, capacity * sizeof(*grown));
        if (!grown) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " new tasks",
                              capacity);
        }
        journal->replaced = grown;
        journal->replaced_capacity = capacity;
    }
    journal->replaced[journal->num_replaced++] = journal->slots[slot].facts.task.client_index;
    return FEDGE_OK;
}

fedge_status fedge_journal_replaced(fedge_journal *journal, uint32_t **clients, uint32_t *num,
                                    fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    const uint32_t count = journal->num_replaced;
    /* One more than there are, since malloc may give NULL for nothing. */
    *clients = malloc((count + (size_t)1) * sizeof(**clients));
    if (*clients && count > 0)
        memcpy(*clients, journal->replaced, count * sizeof(**clients));
    pthread_mutex_unlock(&journal->lock);
    *num = !*clients ? 0 : count;
    return *clients ? FEDGE_OK
                    : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " clients", count);
}

static fedge_status assign(fedge_journal *journal, uint32_t slot, const fedge_journal_task *task,
                           fedge_error *err)
{
    fedge_journal_slot *facts = &journal->slots[slot].facts;
    fedge_status status = check_slot(journal, slot, facts->task.task_id, err);
    if (status != FEDGE_OK)
        return status;
    if (!has_room_for_assign(journal)) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%s has no more room for new tasks: %d per slot were reserved",
                          journal->file.path, FEDGE_JOURNAL_ASSIGNS_PER_SLOT);
    }
    uint8_t packed[JOURNAL_OPEN_TASK], *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_journal_pack_task(task, packed);
    fedge_put_u32(body, slot);
    memcpy(body + 4, packed, sizeof(packed));
    /* Memory first: once the record is in the log nothing may fail any more. */
    status = fedge_journal_note_replaced(journal, slot, err);
    if (status == FEDGE_OK)
        status = append(journal, JOURNAL_ASSIGN, JOURNAL_ASSIGN_BODY, err);
    if (status != FEDGE_OK)
        return status;
    *facts = (fedge_journal_slot){.task = *task};
    if (task->task_id >= journal->next_task_id)
        journal->next_task_id = task->task_id + 1;
    return FEDGE_OK;
}

fedge_status fedge_journal_assign(fedge_journal *journal, uint32_t slot,
                                  const fedge_journal_task *task, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    fedge_status status = assign(journal, slot, task, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

static fedge_status accept(fedge_journal *journal, uint32_t slot, uint64_t task_id, uint64_t size,
                           uint32_t crc32, const char *metadata, uint32_t metadata_size,
                           fedge_error *err)
{
    fedge_status status = check_slot(journal, slot, task_id, err);
    if (status != FEDGE_OK)
        return status;
    journal_slot *own = &journal->slots[slot];
    if (journal->phase.buffered && journal->num_accepted >= journal->phase.wanted) {
        return fedge_fail(err, FEDGE_CLOSED,
                          "round %" PRIu32 " has the %" PRIu32 " updates that it wants",
                          journal->phase.round, journal->phase.wanted);
    }
    if (metadata_size > FEDGE_JOURNAL_MAX_METADATA) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the metadata of task %" PRIu64 "'s update has %" PRIu32
                          " bytes; at most %" PRIu32 " are allowed",
                          task_id, metadata_size, (uint32_t)FEDGE_JOURNAL_MAX_METADATA);
    }
    if (size != own->facts.written) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "the update of task %" PRIu64 " has %" PRIu64 " bytes, but %" PRIu64
                          " were written",
                          task_id, size, own->facts.written);
    }
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u32(body + 4, crc32);
    fedge_put_u64(body + 8, task_id);
    fedge_put_u64(body + 16, size);
    if (metadata_size > 0)
        memcpy(body + JOURNAL_ACCEPT_FIXED, metadata, metadata_size);
    uint64_t at = journal->log_end;
    status = append(journal, JOURNAL_ACCEPT, JOURNAL_ACCEPT_FIXED + metadata_size, err);
    if (status != FEDGE_OK)
        return status;
    own->facts.accepted = true;
    own->facts.size = size;
    own->facts.crc32 = crc32;
    own->facts.metadata_size = metadata_size;
    /* They are read back from the log, and take no memory while the phase is open. */
    own->metadata_offset = at + JOURNAL_RECORD_HEADER + JOURNAL_ACCEPT_FIXED;
    journal->num_accepted++;
    return FEDGE_OK;
}

fedge_status fedge_journal_accept(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                  uint64_t size, uint32_t crc32, const char *metadata,
                                  uint32_t metadata_size, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    fedge_status status = accept(journal, slot, task_id, size, crc32, metadata, metadata_size, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

static fedge_status check_elsewhere(const fedge_journal *journal, uint32_t slot,
                                    const fedge_journal_slot *theirs, fedge_error *err)
{
    const uint32_t open = journal->phase.num_tasks - journal->num_accepted;
    FEDGE_TRY(check_slot(journal, slot, journal->slots[slot].facts.task.task_id, err));
    assert(open > 0);
    const uint64_t needed =
        fedge_journal_record_size(JOURNAL_ELSEWHERE_FIXED + theirs->metadata_size) +
        (open - 1) * fedge_journal_accept_room() + fedge_journal_record_size(JOURNAL_END_BODY);
    if (theirs->metadata_size > FEDGE_JOURNAL_MAX_METADATA ||
        journal->layout.slots_offset - journal->log_end < needed) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has no room to note an update of another rank",
                          journal->file.path);
    }
    return FEDGE_OK;
}

static fedge_status accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                     const fedge_journal_slot *theirs,
                                     const fedge_journal_place *place, const char *metadata,
                                     fedge_error *err)
{
    fedge_status status = check_elsewhere(journal, slot, theirs, err);
    if (status != FEDGE_OK)
        return status;
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u32(body + 4, theirs->crc32);
    fedge_journal_pack_task(&theirs->task, body + 8);
    fedge_put_u64(body + 8 + JOURNAL_OPEN_TASK, theirs->size);
    fedge_put_u64(body + 16 + JOURNAL_OPEN_TASK, place->disk);
    fedge_put_u32(body + 24 + JOURNAL_OPEN_TASK, place->rank);
    fedge_put_u32(body + 28 + JOURNAL_OPEN_TASK, 0);
    if (theirs->metadata_size > 0)
        memcpy(body + JOURNAL_ELSEWHERE_FIXED, metadata, theirs->metadata_size);
    const uint64_t at = journal->log_end;
    status =
        append(journal, JOURNAL_ELSEWHERE, JOURNAL_ELSEWHERE_FIXED + theirs->metadata_size, err);
    if (status != FEDGE_OK)
        return status;
    journal_slot *own = &journal->slots[slot];
    own->facts = *theirs;
    own->facts.accepted = true;
    own->facts.written = 0;
    own->facts.elsewhere = true;
    own->facts.place = *place;
    own->metadata_offset = at + JOURNAL_RECORD_HEADER + JOURNAL_ELSEWHERE_FIXED;
    journal->num_accepted++;
    if (theirs->task.task_id >= journal->next_task_id)
        journal->next_task_id = theirs->task.task_id + 1;
    return FEDGE_OK;
}

fedge_status fedge_journal_accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                            const fedge_journal_slot *theirs,
                                            const fedge_journal_place *place, const char *metadata,
                                            fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    fedge_status status = accept_elsewhere(journal, slot, theirs, place, metadata, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

fedge_status fedge_journal_lose(fedge_journal *journal, uint32_t slot, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks && journal->slots[slot].facts.accepted);
    pthread_mutex_lock(&journal->lock);
    journal_slot *own = &journal->slots[slot];
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u64(body + 4, own->facts.task.task_id);
    const uint32_t open = journal->phase.num_tasks - journal->num_accepted + 1;
    const uint64_t needed = fedge_journal_record_size(JOURNAL_LOSE_BODY) +
                            open * fedge_journal_accept_room() +
                            fedge_journal_record_size(JOURNAL_END_BODY);
    fedge_status status = check_alive(journal, err);
    if (status == FEDGE_OK && journal->layout.slots_offset - journal->log_end < needed) {
        status = fedge_fail(err, FEDGE_TOO_BIG, "%s has no room to note the loss of an update",
                            journal->file.path);
    }
    if (status == FEDGE_OK)
        status = append(journal, JOURNAL_LOSE, JOURNAL_LOSE_BODY, err);
    if (status == FEDGE_OK) {
        own->facts = (fedge_journal_slot){.task = own->facts.task};
        journal->num_accepted--;
    }
    pthread_mutex_unlock(&journal->lock);
    return status;
}

/* Its record is the last, and becomes what is behind a log's end. */
fedge_status fedge_journal_reopen(fedge_journal *journal, fedge_error *err)
{
    static const uint8_t zeros[JOURNAL_RECORD_HEADER + 8];
    const uint64_t size = fedge_journal_record_size(JOURNAL_END_BODY);
    assert(journal->state == FEDGE_JOURNAL_CLOSED && size <= sizeof(zeros));
    FEDGE_TRY(fedge_os_write_at(&journal->file, journal->log_end - size, zeros, (size_t)size, err));
    FEDGE_TRY(fedge_os_sync(&journal->file, err));
    journal->log_end -= size;
    journal->durable = journal->log_end;
    journal->next_number--;
    journal->state = FEDGE_JOURNAL_OPEN;
    journal->ending = false;
    return FEDGE_OK;
}

static fedge_status append_end(fedge_journal *journal, fedge_journal_state state, fedge_error *err)
{
    fedge_status status = check_alive(journal, err);
    if (status != FEDGE_OK || journal->state == state)
        return status;
    if (journal->state != FEDGE_JOURNAL_OPEN) {
        return fedge_fail(err, FEDGE_CLOSED, "round %" PRIu32 " attempt %" PRIu32 " has %s already",
                          journal->phase.round, journal->phase.attempt,
                          state == FEDGE_JOURNAL_CLOSED ? "failed" : "closed");
    }
    fedge_put_u32(journal->record + JOURNAL_RECORD_HEADER, journal->num_accepted);
    uint32_t type = state == FEDGE_JOURNAL_CLOSED ? JOURNAL_CLOSE : JOURNAL_FAIL;
    status = append(journal, type, JOURNAL_END_BODY, err);
    if (status == FEDGE_OK)
        journal->state = state;
    return status;
}

/* The updates come to the disk before the record that makes them final: a file with that record
 * has them whole. */
static fedge_status end_phase(fedge_journal *journal, fedge_journal_state state, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    journal->ending = true; /* nothing is accepted between the sync and the record */
    pthread_mutex_unlock(&journal->lock);
    fedge_status status = fedge_journal_sync(journal, err);
    if (status != FEDGE_OK)
        return status;
    pthread_mutex_lock(&journal->lock);
    status = append_end(journal, state, err);
    pthread_mutex_unlock(&journal->lock);
    return status == FEDGE_OK ? fedge_journal_sync(journal, err) : status;
}

fedge_status fedge_journal_close(fedge_journal *journal, fedge_error *err)
{
    return end_phase(journal, FEDGE_JOURNAL_CLOSED, err);
}

fedge_status fedge_journal_fail(fedge_journal *journal, fedge_error *err)
{
    return end_phase(journal, FEDGE_JOURNAL_FAILED, err);
}

/* The whole record of an acceptance, since its checksum is over all of it, to [record]. */
static fedge_status read_acceptance(const fedge_journal *journal, const journal_slot *own,
                                    uint32_t fixed, uint8_t *record, fedge_error *err)
{
    const uint32_t body_size = fixed + own->facts.metadata_size;
    const uint64_t at = own->metadata_offset - fixed - JOURNAL_RECORD_HEADER;
    const fedge_status status =
        fedge_os_read_at(&journal->file, at, record, JOURNAL_RECORD_HEADER + body_size, err);
    if (status != FEDGE_OK ||
        (fedge_get_u32(record) == body_size &&
         fedge_journal_check_record(record, record + JOURNAL_RECORD_HEADER, body_size)))
        return status;
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s at byte %" PRIu64 ": the disk has damaged the record of task %" PRIu64
                      "'s update",
                      journal->file.path, at, own->facts.task.task_id);
}

fedge_status fedge_journal_metadata(fedge_journal *journal, uint32_t slot, char *out,
                                    size_t out_size, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    /* A copy is enough: records are never written again. */
    journal_slot own = journal->slots[slot];
    pthread_mutex_unlock(&journal->lock);
    if (!own.facts.accepted)
        return fedge_fail(err, FEDGE_NOT_FOUND, "slot %" PRIu32 " has no accepted update", slot);
    if (out_size <= own.facts.metadata_size) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the metadata of slot %" PRIu32 " has %" PRIu32 " bytes", slot,
                          own.facts.metadata_size);
    }
    const uint32_t fixed = own.facts.elsewhere ? JOURNAL_ELSEWHERE_FIXED : JOURNAL_ACCEPT_FIXED;
    uint8_t *record = malloc((size_t)JOURNAL_RECORD_HEADER + fixed + own.facts.metadata_size);
    if (!record)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read a record of the journal");
    const fedge_status status = read_acceptance(journal, &own, fixed, record, err);
    if (status == FEDGE_OK)
        memcpy(out, record + JOURNAL_RECORD_HEADER + fixed, own.facts.metadata_size);
    out[own.facts.metadata_size] = '\0';
    free(record);
    return status;
}

/* --- group commit ----------------------------------------------------------------------------- */

/* One fdatasync for all that is finished now; the lock is released meanwhile. */
static void sync_all(fedge_journal *journal)
{
    /* What is written from here on may miss the sync, and waits for the next (5 above). */
    uint64_t num_writes = journal->num_writes, log_end = journal->log_end;
    fedge_error why;
    journal->syncing = true;
    pthread_mutex_unlock(&journal->lock);
    fedge_status status = fedge_os_sync(&journal->file, &why);
    pthread_mutex_lock(&journal->lock);
    journal->syncing = false;
    journal->num_syncs++;
    if (status == FEDGE_OK) {
        journal->synced = num_writes;
        journal->durable = log_end;
    } else if (break_journal(journal, &why, NULL) == FEDGE_OK) {
        assert(!"a broken journal stays broken");
    }
    pthread_cond_broadcast(&journal->synced_more);
}

fedge_status fedge_journal_sync(fedge_journal *journal, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    /* What others write meanwhile is not waited for. */
    uint64_t target = journal->num_writes;
    while (!journal->broken && journal->synced < target) {
        /* Who finds nobody at it does it for all who wait. */
        if (journal->syncing)
            pthread_cond_wait(&journal->synced_more, &journal->lock);
        else
            sync_all(journal);
    }
    fedge_status status = check_alive(journal, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

uint64_t fedge_journal_num_syncs(fedge_journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    uint64_t num_syncs = journal->num_syncs;
    pthread_mutex_unlock(&journal->lock);
    return num_syncs;
}
