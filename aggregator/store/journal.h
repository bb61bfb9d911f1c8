/* The journal: every acknowledged update of an open training phase, on disk.
 *
 * One file per phase, journal/round-RRRRRR-aA.fj, all of it reserved before the first task is sent:
 *
 *     offset      0  header (4096 bytes): what follows where
 *              4096  log region: records, appended one after another
 *      slots_offset  num_slots slots of slot_stride bytes: one per task of the cohort
 *
 * The bytes of an upload go straight into its task's slot, wherever they start (no update is held
 * in memory), and an ACCEPT record in the log makes them count. All integers are little-endian. A
 * record, at a multiple of 8:
 *
 *      0  4  size of the body in bytes
 *      4  4  CRC-32 of bytes 0–3, of bytes 8–23 and of the body
 *      8  4  number of the record, from 0
 *     12  4  type
 *     16  8  durable: the log was on the disk up to this offset when the record was written
 *     24     body, padded with zeros to a multiple of 8
 *
 * The first place that is not a whole, valid record ends the log. If a valid record further on was
 * written when that place had already been durable, the disk has damaged what it had stored: then
 * the file is FEDGE_CORRUPT. Otherwise it is cut, and the note says so: it is the torn end of a
 * crash, of which nothing was acknowledged, or damage to the last records, of which something may
 * have been; these two cannot be told apart.
 *
 * An error of a write or a sync is final: that call and every later one returns FEDGE_IO, and the
 * caller stops the program. Thread-safe except where stated.
 */
#ifndef FEDGE_AGGREGATOR_STORE_JOURNAL_H
#define FEDGE_AGGREGATOR_STORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

#define FEDGE_JOURNAL_MAX_SLOTS 65536u
#define FEDGE_JOURNAL_MAX_METADATA FEDGE_MESSAGE_MAX_META /* of one update, bytes */
#define FEDGE_JOURNAL_DEVICE_ID 37                        /* UUID text and NUL */
#define FEDGE_JOURNAL_ASSIGNS_PER_SLOT                                                             \
    4 /* room for so many ASSIGN records, shared by all slots                                      \
       */

/* Who works for a slot. */
typedef struct fedge_journal_task {
    uint64_t task_id; /* 0: nobody yet */
    uint32_t client_index;
    uint32_t base; /* rounds that had closed when its model was made: phase.round − 1, or fewer when
                      phase.buffered */
    char device_id[FEDGE_JOURNAL_DEVICE_ID];
} fedge_journal_task;

/* What a phase is: the first record of its journal. */
typedef struct fedge_journal_phase {
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    uint32_t round;              /* from 1 */
    uint32_t attempt;            /* from 0 */
    uint32_t wanted;             /* fedge_rounds_wanted: the phase closes with this many reports */
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of the base model's file */
    uint64_t slot_size;          /* most bytes of one upload: fedge_update_max_size */
    uint32_t num_tasks;          /* slots */
    bool buffered;               /* of an asynchronous strategy: tasks have bases of their own, and
                                    no more than [wanted] updates are accepted */
    bool by_cohort;              /* weights follow from num_tasks; false in a release before that,
                                    and with strategies whose weights never do */
    fedge_draw draw;             /* of the cohort; all 0: uniform */
    uint32_t num_bounds;         /* 0, or one per tensor */
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
} fedge_journal_phase;

/* Where an update lies that another rank of the aggregator took: in the journal of the phase in
 * which folder (of rank [rank], store/disk.h) of which disk. */
typedef struct fedge_journal_place {
    uint64_t disk;
    uint32_t rank;
} fedge_journal_place;

typedef enum fedge_journal_state {
    FEDGE_JOURNAL_OPEN,
    FEDGE_JOURNAL_CLOSED, /* the accepted set is final: step and checkpoint */
    FEDGE_JOURNAL_FAILED  /* too few reports: nothing of it counts */
} fedge_journal_state;

/* One slot. A copy, taken at one moment. */
typedef struct fedge_journal_slot {
    fedge_journal_task task;
    bool accepted;
    uint64_t size;          /* accepted: bytes of the update */
    uint32_t crc32;         /* accepted: of those bytes */
    uint32_t metadata_size; /* accepted: bytes of the UPLOAD's JSON */
    uint64_t written;       /* not accepted: bytes received without a gap, in this process */
    bool elsewhere;         /* accepted: its bytes are not in this file, but: */
    fedge_journal_place place;
} fedge_journal_slot;

typedef struct fedge_journal fedge_journal;

/* DIR/round-RRRRRR-aA.fj, and the way back: false for any other name. */
FEDGE_MUST_USE fedge_status fedge_journal_make_path(const char *dir, uint32_t round,
                                                    uint32_t attempt, char path[FEDGE_MAX_PATH],
                                                    fedge_error *err);
bool fedge_journal_parse_name(const char *name, uint32_t *round, uint32_t *attempt);

/* Reserves and writes the journal of a phase in DIR (the run's "journal") and makes it durable with
 * its OPEN record. Journals of other attempts of the round are removed then. tasks:
 * phase->num_tasks of them, task i in slot i.
 * FEDGE_NO_SPACE: there is no room (or, with min_free_bytes > 0, less than that would be left);
 * nothing is left behind and the call may be repeated later. FEDGE_EXISTS: this attempt has a
 * journal. */
FEDGE_MUST_USE fedge_status fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                                 const fedge_journal_task *tasks,
                                                 uint64_t min_free_bytes, fedge_journal **journal,
                                                 fedge_error *err);

/* Recovers a journal: replays the log, checks the CRC of every accepted update against its slot's
 * bytes, cuts a torn end. An accepted update whose bytes are damaged is open again and the note
 * says so; a phase that was closed with it cannot be stepped with (fedge_journal_num_damaged).
 * FEDGE_CORRUPT (the message has file and offset), FEDGE_UNSUPPORTED: of a newer release.
 */
FEDGE_MUST_USE fedge_status fedge_journal_recover(const char *path, fedge_journal **journal,
                                                  fedge_error *err);
void fedge_journal_free(fedge_journal *journal); /* closes the file and keeps it; NULL is fine */

/* What recovery had to do, for the log; "" when nothing. */
const char *fedge_journal_note(const fedge_journal *journal);
/* How many accepted updates recovery has found damaged. */
uint32_t fedge_journal_num_damaged(const fedge_journal *journal);
const char *fedge_journal_path(const fedge_journal *journal);
const fedge_journal_phase *fedge_journal_get_phase(const fedge_journal *journal);
fedge_journal_state fedge_journal_get_state(fedge_journal *journal);
uint32_t fedge_journal_num_accepted(fedge_journal *journal);
/* One more than the highest task id in the file. */
uint64_t fedge_journal_next_task_id(fedge_journal *journal);
/* slot < phase->num_tasks, here and below. */
fedge_journal_slot fedge_journal_get_slot(fedge_journal *journal, uint32_t slot);
/* Whose tasks went to others, one for each time: *clients is malloc'ed, (*num), in the order of the
 * log. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_journal_replaced(fedge_journal *journal, uint32_t **clients,
                                                   uint32_t *num, fedge_error *err);
/* The slot that [task_id] works for now. FEDGE_STALE when none. */
FEDGE_MUST_USE fedge_status fedge_journal_find(fedge_journal *journal, uint64_t task_id,
                                               uint32_t *slot, fedge_error *err);

/* Writes upload bytes at [offset] of the slot; offset ≤ slot.written (a gap is FEDGE_OUT_OF_RANGE),
 * offset + size ≤ slot_size (FEDGE_TOO_BIG). FEDGE_STALE when the slot has another task now,
 * FEDGE_DUPLICATE when it is accepted, FEDGE_CLOSED after the phase. One thread at a time per slot.
 */
FEDGE_MUST_USE fedge_status fedge_journal_write(fedge_journal *journal, uint32_t slot,
                                                uint64_t task_id, uint64_t offset,
                                                const void *bytes, size_t size, fedge_error *err);
/* slot.written becomes 0: the upload begins anew (another size or CRC was announced). */
FEDGE_MUST_USE fedge_status fedge_journal_rewind(fedge_journal *journal, uint32_t slot,
                                                 uint64_t task_id, fedge_error *err);
/* What has come of an upload that was under way when its phase closed: the first bytes of [from]'s
 * slot [old], as many as were written, become those of [slot], which works for the same task. */
FEDGE_MUST_USE fedge_status fedge_journal_carry(fedge_journal *journal, uint32_t slot,
                                                fedge_journal *from, uint32_t old,
                                                fedge_error *err);
/* Reads bytes of the slot, written before; offset + size ≤ slot_size. They are as the disk gives
 * them: who uses them compares their checksum with slot.crc32, or with one that was taken of bytes
 * whose checksum was right. */
FEDGE_MUST_USE fedge_status fedge_journal_read(fedge_journal *journal, uint32_t slot,
                                               uint64_t offset, void *out, size_t size,
                                               fedge_error *err);

/* Records; each is durable only after fedge_journal_sync. */

/* The slot works for a new task from now on. The caller sees to it that no write to the slot is
 * under way. FEDGE_DUPLICATE when the slot is accepted, FEDGE_CLOSED, FEDGE_TOO_BIG when the room
 * for such records is used up (leave the slot empty then). */
FEDGE_MUST_USE fedge_status fedge_journal_assign(fedge_journal *journal, uint32_t slot,
                                                 const fedge_journal_task *task, fedge_error *err);
/* The update in the slot is validated and counts. [metadata]: the JSON of the UPLOAD message, as
 * received. FEDGE_OUT_OF_RANGE when [size] is not what was written; FEDGE_DUPLICATE, FEDGE_STALE,
 * FEDGE_CLOSED, FEDGE_TOO_BIG as above; FEDGE_CLOSED too when the phase is buffered and has all
 * that it wants. */
FEDGE_MUST_USE fedge_status fedge_journal_accept(fedge_journal *journal, uint32_t slot,
                                                 uint64_t task_id, uint64_t size, uint32_t crc32,
                                                 const char *metadata, uint32_t metadata_size,
                                                 fedge_error *err);
/* An update that another rank has validated and made durable in its own journal counts: [slot] as
 * it is there, with its task, which may be newer than that of the slot. FEDGE_DUPLICATE when the
 * slot is accepted, FEDGE_CLOSED after the phase, FEDGE_TOO_BIG when there is no room. */
FEDGE_MUST_USE fedge_status fedge_journal_accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                                           const fedge_journal_slot *theirs,
                                                           const fedge_journal_place *place,
                                                           const char *metadata, fedge_error *err);
/* The accepted update of the slot is gone, or does not count: the slot is open again. FEDGE_TOO_BIG
 * when there is no room for the record and for another update. */
FEDGE_MUST_USE fedge_status fedge_journal_lose(fedge_journal *journal, uint32_t slot,
                                               fedge_error *err);
/* After recovery: a phase that was closed is open again, since updates of it are gone. Durable. */
FEDGE_MUST_USE fedge_status fedge_journal_reopen(fedge_journal *journal, fedge_error *err);

/* Ends the phase and syncs; nothing is accepted or assigned from the moment of the call.
 * FEDGE_CLOSED when it has ended before, in the other way. */
FEDGE_MUST_USE fedge_status fedge_journal_close(fedge_journal *journal, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_journal_fail(fedge_journal *journal, fedge_error *err);

/* Returns when everything written and appended before the call is on the disk. Threads that call it
 * at the same time share one fdatasync (group commit). */
FEDGE_MUST_USE fedge_status fedge_journal_sync(fedge_journal *journal, fedge_error *err);
/* How many fdatasync calls were made: for metrics. */
uint64_t fedge_journal_num_syncs(fedge_journal *journal);

/* The metadata of an accepted update: slot.metadata_size bytes to [out], and a NUL behind them;
 * out_size > metadata_size. FEDGE_CORRUPT: the disk has damaged the record. */
FEDGE_MUST_USE fedge_status fedge_journal_metadata(fedge_journal *journal, uint32_t slot, char *out,
                                                   size_t out_size, fedge_error *err);

#endif
