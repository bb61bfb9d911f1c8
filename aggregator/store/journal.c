#include "aggregator/store/journal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/journal_file.h"
#include "edge/core/bytes.h"

#define CARRY_CHUNK ((size_t)1 << 18) /* bytes copied at a time */

/* Why a crash at any moment costs no acknowledged update. A write may reach the disk late, in part,
 * or before an earlier one; only what fedge_os_sync has returned for is there.
 *
 * 1. While the file is made. It has a temporary name until header, OPEN record and the space of all
 *    slots are synced. Rename and sync of the folder precede the first task: either no journal has
 *    this name and the phase begins anew, or a complete one has. Later writes allocate nothing: a
 *    full disk cannot separate an update from its record.
 * 2. While an upload arrives. Its bytes are in its slot, but no record mentions them: recovery
 *    ignores them and the client sends them again. Nobody writes to an accepted slot (check_slot),
 *    or to a slot that is being reassigned.
 * 3. Between the record ACCEPT and the end of the sync. No ACK has been sent; record and bytes may
 *    both be on the disk, in part, or not at all. A partial record has a wrong CRC and ends the
 *    log. A complete record over incomplete bytes fails the CRC of the slot, which is then open
 *    again. With both complete the update counts, and a second upload of it is a duplicate.
 * 4. After the sync, before the ACK, or when the ACK is lost. Same as the last case of 3.
 * 5. While several threads wait for one sync. sync_all records num_writes and log_end before it
 *    releases the lock: what is written during the sync does not count as stored and waits for the
 *    next one.
 * 6. While the phase ends. [ending] stops all acceptances; all updates are synced before CLOSE is
 *    written, and CLOSE before anything depends on it. A file with CLOSE therefore has all of them.
 * 7. When a write or a sync fails. It is unknown what the kernel has written, and a second sync may
 *    succeed although pages are lost: the journal is broken for good (break_journal). The next
 *    process may read bytes that are only in memory, and that its own sync would pass over. So
 *    recovery writes all that it goes on with again before it syncs: the records, the accepted
 *    updates, and the zeros behind the log. Header and OPEN are on the disk since case 1.
 * 8. While recovery writes. It writes bytes as it has read them, and zeros after the last complete
 *    record; after a crash it does the same again. Without the zeros an old record could count once
 *    the log has grown up to it. The log reaches at most JOURNAL_MAX_UNSYNCED bytes beyond its
 *    durable part, so nothing was ever written further than twice that behind the end that
 *    recovery finds, even if that end is a durable record that the disk has damaged: any record
 *    within the first such distance behind it would say so (9).
 * 9. When the disk damages what it had stored. Each record says how far the log was durable when it
 *    was written: a gap before that offset is reported as damage, not taken for a torn end (3).
 *
 * A buffered phase, of an asynchronous strategy, adds these cases.
 *
 * 10. Which updates a round has. The first [wanted] ACCEPT records in the order in which they were
 *     appended under the lock: accept() admits no more, both before the caller has noticed and
 *     after a crash. The staleness of each follows from the base of its task. OPEN records the
 *     base of tasks that were open when it was written; for tasks of ASSIGN it is the newest
 *     model. So a round has the same updates with the same weights whenever it is summed.
 * 11. Between CLOSE and the OPEN of the next round. Tasks that continue exist only in memory: after
 *     a crash here they are unknown. None of their updates was acknowledged; their results are
 *     refused as stale, and their clients get new tasks. Once OPEN is synced it holds them with
 *     their bases, and the strategy's state holds the models of the bases.
 * 12. Bytes that are carried over. They are written before any byte of the new phase to the same
 *     slot and are not durable, as in 2: after a crash the upload begins anew.
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

/* Checks that the phase is open and that the slot has task [task_id] and no accepted update. */
static fedge_status check_slot(const fedge_journal *journal, uint32_t slot, uint64_t task_id,
                               fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    /* Clients rely on this order. After a failed sync nothing is known to be accepted. An accepted
     * update stays accepted when the phase has ended: a client that sends it again is answered with
     * "duplicate", not "closed". */
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

/* Syncs before [size] more bytes reach too far beyond the durable part (8 above). Under the lock:
 * the record's body waits in the journal's only buffer, and group commits make this rare. */
static fedge_status limit_unsynced(fedge_journal *journal, uint64_t size, fedge_error *err)
{
    fedge_error why;
    if (journal->log_end + size - journal->durable <= JOURNAL_MAX_UNSYNCED)
        return FEDGE_OK;
    journal->num_syncs++;
    if (fedge_os_sync(&journal->file, &why) != FEDGE_OK)
        return break_journal(journal, &why, err);
    journal->durable = journal->log_end;
    return FEDGE_OK;
}

/* Appends the record whose body lies in journal->record. */
static fedge_status append(fedge_journal *journal, uint32_t type, uint32_t body_size,
                           fedge_error *err)
{
    FEDGE_TRY(limit_unsynced(journal, fedge_journal_record_size(body_size), err));
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
    /* A gap would hold bytes of the slot's former task. */
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
    FEDGE_TRY(status);
    uint64_t at = journal->layout.slots_offset + slot * journal->layout.slot_stride + offset;
    fedge_error why;
    /* The lock is not held, so that uploads of many clients are written concurrently and delay no
     * ACK. A slot has one writer, the ingest worker of its number. */
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
    /* The bytes are forgotten in memory only: no record mentions them (2 above). */
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
    uint8_t *chunk = size > 0 ? malloc(CARRY_CHUNK) : NULL;
    if (size > 0 && !chunk)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to carry an upload over");
    fedge_status status = FEDGE_OK;
    for (uint64_t at = 0; at < size;) {
        const size_t count = size - at < CARRY_CHUNK ? (size_t)(size - at) : CARRY_CHUNK;
        FEDGE_TRY_OR(fedge_journal_read(from, old, at, chunk, count, err), end);
        FEDGE_TRY_OR(fedge_journal_write(journal, slot, facts.task.task_id, at, chunk, count, err),
                     end);
        at += count;
    }
end:
    free(chunk);
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

/* True: the log has space for another [size] bytes of records beside the acceptances of [open]
 * slots and the end of the phase. */
static bool has_space(const fedge_journal *journal, uint64_t size, uint32_t open)
{
    return journal->layout.slots_offset - journal->log_end >=
           size + open * fedge_journal_max_accept() + fedge_journal_record_size(JOURNAL_END_BODY);
}

static uint32_t count_open(const fedge_journal *journal)
{
    return journal->phase.num_tasks - journal->num_accepted;
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
    /* One more than needed, since malloc(0) may return NULL. */
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
    FEDGE_TRY(check_slot(journal, slot, facts->task.task_id, err));
    if (!has_space(journal, fedge_journal_record_size(JOURNAL_ASSIGN_BODY), count_open(journal))) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%s has no more room for new tasks: %d per slot were reserved",
                          journal->file.path, FEDGE_JOURNAL_ASSIGNS_PER_SLOT);
    }
    uint8_t packed[JOURNAL_OPEN_TASK], *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_journal_pack_task(task, packed);
    fedge_put_u32(body, slot);
    memcpy(body + 4, packed, sizeof(packed));
    /* Memory first: nothing may fail once the record is in the log. */
    FEDGE_TRY(fedge_journal_note_replaced(journal, slot, err));
    FEDGE_TRY(append(journal, JOURNAL_ASSIGN, JOURNAL_ASSIGN_BODY, err));
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
    FEDGE_TRY(check_slot(journal, slot, task_id, err));
    journal_slot *entry = &journal->slots[slot];
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
    if (size != entry->facts.written) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "the update of task %" PRIu64 " has %" PRIu64 " bytes, but %" PRIu64
                          " were written",
                          task_id, size, entry->facts.written);
    }
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u32(body + 4, crc32);
    fedge_put_u64(body + 8, task_id);
    fedge_put_u64(body + 16, size);
    if (metadata_size > 0)
        memcpy(body + JOURNAL_ACCEPT_FIXED, metadata, metadata_size);
    uint64_t at = journal->log_end;
    FEDGE_TRY(append(journal, JOURNAL_ACCEPT, JOURNAL_ACCEPT_FIXED + metadata_size, err));
    entry->facts.accepted = true;
    entry->facts.size = size;
    entry->facts.crc32 = crc32;
    entry->facts.metadata_size = metadata_size;
    /* Read back from the log when needed, so that it takes no memory while the phase is open. */
    entry->metadata_offset = at + JOURNAL_RECORD_HEADER + JOURNAL_ACCEPT_FIXED;
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
    const uint32_t open = count_open(journal);
    FEDGE_TRY(check_slot(journal, slot, journal->slots[slot].facts.task.task_id, err));
    assert(open > 0);
    const uint64_t size =
        fedge_journal_record_size(JOURNAL_ELSEWHERE_FIXED + theirs->metadata_size);
    if (theirs->metadata_size > FEDGE_JOURNAL_MAX_METADATA || !has_space(journal, size, open - 1)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has no room to note an update of another rank",
                          journal->file.path);
    }
    return FEDGE_OK;
}

static fedge_status accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                     const fedge_journal_slot *theirs,
                                     const fedge_journal_location *location, const char *metadata,
                                     fedge_error *err)
{
    FEDGE_TRY(check_elsewhere(journal, slot, theirs, err));
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u32(body + 4, theirs->crc32);
    fedge_journal_pack_task(&theirs->task, body + 8);
    fedge_put_u64(body + 8 + JOURNAL_OPEN_TASK, theirs->size);
    fedge_put_u64(body + 16 + JOURNAL_OPEN_TASK, location->disk);
    fedge_put_u32(body + 24 + JOURNAL_OPEN_TASK, location->rank);
    fedge_put_u32(body + 28 + JOURNAL_OPEN_TASK, 0);
    if (theirs->metadata_size > 0)
        memcpy(body + JOURNAL_ELSEWHERE_FIXED, metadata, theirs->metadata_size);
    const uint64_t at = journal->log_end;
    FEDGE_TRY(
        append(journal, JOURNAL_ELSEWHERE, JOURNAL_ELSEWHERE_FIXED + theirs->metadata_size, err));
    journal_slot *entry = &journal->slots[slot];
    entry->facts = *theirs;
    entry->facts.accepted = true;
    entry->facts.written = 0;
    entry->facts.elsewhere = true;
    entry->facts.location = *location;
    entry->metadata_offset = at + JOURNAL_RECORD_HEADER + JOURNAL_ELSEWHERE_FIXED;
    journal->num_accepted++;
    if (theirs->task.task_id >= journal->next_task_id)
        journal->next_task_id = theirs->task.task_id + 1;
    return FEDGE_OK;
}

fedge_status fedge_journal_accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                            const fedge_journal_slot *theirs,
                                            const fedge_journal_location *location,
                                            const char *metadata, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    fedge_status status = accept_elsewhere(journal, slot, theirs, location, metadata, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

static fedge_status append_loss(fedge_journal *journal, uint32_t slot, fedge_error *err)
{
    uint8_t *body = journal->record + JOURNAL_RECORD_HEADER;
    fedge_put_u32(body, slot);
    fedge_put_u64(body + 4, journal->slots[slot].facts.task.task_id);
    return append(journal, JOURNAL_LOSE, JOURNAL_LOSE_BODY, err);
}

static fedge_status lose(fedge_journal *journal, uint32_t slot, fedge_error *err)
{
    journal_slot *entry = &journal->slots[slot];
    FEDGE_TRY(check_alive(journal, err));
    if (!has_space(journal, fedge_journal_record_size(JOURNAL_LOSE_BODY),
                   count_open(journal) + 1)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has no room to note the loss of an update",
                          journal->file.path);
    }
    FEDGE_TRY(append_loss(journal, slot, err));
    entry->facts = (fedge_journal_slot){.task = entry->facts.task};
    journal->num_accepted--;
    return FEDGE_OK;
}

fedge_status fedge_journal_lose(fedge_journal *journal, uint32_t slot, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks && journal->slots[slot].facts.accepted);
    pthread_mutex_lock(&journal->lock);
    const fedge_status status = lose(journal, slot, err);
    pthread_mutex_unlock(&journal->lock);
    return status;
}

fedge_status fedge_journal_note_damaged(fedge_journal *journal, fedge_error *err)
{
    for (uint32_t slot = 0; slot < journal->phase.num_tasks; slot++) {
        journal_slot *entry = &journal->slots[slot];
        if (entry->damaged &&
            has_space(journal, fedge_journal_record_size(JOURNAL_LOSE_BODY), count_open(journal)))
            FEDGE_TRY(append_loss(journal, slot, err));
        entry->damaged = false;
    }
    return FEDGE_OK;
}

/* Overwrites the last record, CLOSE, with zeros. */
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
    return fedge_journal_note_damaged(journal, err);
}

static fedge_status append_end(fedge_journal *journal, fedge_journal_state state, fedge_error *err)
{
    FEDGE_TRY(check_alive(journal, err));
    if (journal->state == state)
        return FEDGE_OK;
    if (journal->state != FEDGE_JOURNAL_OPEN) {
        return fedge_fail(err, FEDGE_CLOSED, "round %" PRIu32 " attempt %" PRIu32 " has %s already",
                          journal->phase.round, journal->phase.attempt,
                          state == FEDGE_JOURNAL_CLOSED ? "failed" : "closed");
    }
    fedge_put_u32(journal->record + JOURNAL_RECORD_HEADER, journal->num_accepted);
    uint32_t type = state == FEDGE_JOURNAL_CLOSED ? JOURNAL_CLOSE : JOURNAL_FAIL;
    FEDGE_TRY(append(journal, type, JOURNAL_END_BODY, err));
    journal->state = state;
    return FEDGE_OK;
}

/* The updates reach the disk before the record that makes them final, so a file with that record
 * has all their bytes. */
static fedge_status end_phase(fedge_journal *journal, fedge_journal_state state, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    journal->ending = true; /* nothing is accepted between the sync and the record */
    pthread_mutex_unlock(&journal->lock);
    FEDGE_TRY(fedge_journal_sync(journal, err));
    pthread_mutex_lock(&journal->lock);
    const fedge_status status = append_end(journal, state, err);
    pthread_mutex_unlock(&journal->lock);
    FEDGE_TRY(status);
    return fedge_journal_sync(journal, err);
}

fedge_status fedge_journal_close(fedge_journal *journal, fedge_error *err)
{
    return end_phase(journal, FEDGE_JOURNAL_CLOSED, err);
}

fedge_status fedge_journal_fail(fedge_journal *journal, fedge_error *err)
{
    return end_phase(journal, FEDGE_JOURNAL_FAILED, err);
}

/* Reads an ACCEPT or ELSEWHERE record to [record]: all of it, since its checksum covers all. */
static fedge_status read_acceptance(const fedge_journal *journal, const journal_slot *entry,
                                    uint32_t fixed, uint8_t *record, fedge_error *err)
{
    const uint32_t body_size = fixed + entry->facts.metadata_size;
    const uint64_t at = entry->metadata_offset - fixed - JOURNAL_RECORD_HEADER;
    FEDGE_TRY(fedge_os_read_at(&journal->file, at, record, JOURNAL_RECORD_HEADER + body_size, err));
    if (fedge_get_u32(record) == body_size &&
        fedge_journal_check_record(record, record + JOURNAL_RECORD_HEADER, body_size))
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_CORRUPT,
                      "%s at byte %" PRIu64 ": the disk has damaged the record of task %" PRIu64
                      "'s update",
                      journal->file.path, at, entry->facts.task.task_id);
}

fedge_status fedge_journal_metadata(fedge_journal *journal, uint32_t slot, char *out,
                                    size_t out_size, fedge_error *err)
{
    assert(slot < journal->phase.num_tasks);
    pthread_mutex_lock(&journal->lock);
    /* A copy suffices: records are never rewritten. */
    journal_slot entry = journal->slots[slot];
    pthread_mutex_unlock(&journal->lock);
    if (!entry.facts.accepted)
        return fedge_fail(err, FEDGE_NOT_FOUND, "slot %" PRIu32 " has no accepted update", slot);
    if (out_size <= entry.facts.metadata_size) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "the metadata of slot %" PRIu32 " has %" PRIu32 " bytes", slot,
                          entry.facts.metadata_size);
    }
    const uint32_t fixed = entry.facts.elsewhere ? JOURNAL_ELSEWHERE_FIXED : JOURNAL_ACCEPT_FIXED;
    uint8_t *record = malloc((size_t)JOURNAL_RECORD_HEADER + fixed + entry.facts.metadata_size);
    if (!record)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to read a record of the journal");
    const fedge_status status = read_acceptance(journal, &entry, fixed, record, err);
    if (status == FEDGE_OK)
        memcpy(out, record + JOURNAL_RECORD_HEADER + fixed, entry.facts.metadata_size);
    out[entry.facts.metadata_size] = '\0';
    free(record);
    return status;
}

/* --- group commit ----------------------------------------------------------------------------- */

/* One fdatasync for all finished writes; releases the lock during it. */
static void sync_all(fedge_journal *journal)
{
    /* Later writes may miss this sync, so they wait for the next (5 above). */
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
        if (journal->durable < log_end) { /* append may have synced more meanwhile */
            journal->durable = log_end;
        }
    } else if (break_journal(journal, &why, NULL) == FEDGE_OK) {
        assert(!"a broken journal stays broken");
    }
    pthread_cond_broadcast(&journal->synced_more);
}

fedge_status fedge_journal_sync(fedge_journal *journal, fedge_error *err)
{
    pthread_mutex_lock(&journal->lock);
    /* Writes that begin later are not waited for. */
    uint64_t target = journal->num_writes;
    while (!journal->broken && journal->synced < target) {
        /* The first thread syncs for all that wait. */
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
