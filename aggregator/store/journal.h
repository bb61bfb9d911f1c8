/* The journal: every acknowledged update of an open training phase, on disk.
 *
 * Each phase has one file, journal/round-RRRRRR-aA.fj, reserved in full before the first task is
 * sent:
 *
 *     offset      0  header (4096 bytes) with the offsets below
 *              4096  log region: records, appended one after another
 *      slots_offset  num_slots slots of slot_stride bytes: one per task of the cohort
 *
 * The bytes of an upload go straight into the slot of its task, at any offset (no update is held in
 * memory); an ACCEPT record in the log makes them count. All integers are little-endian. A record,
 * at a multiple of 8:
 *
 *      0  4  size of the body in bytes
 *      4  4  CRC-32 of bytes 0–3, of bytes 8–23 and of the body
 *      8  4  number of the record, from 0
 *     12  4  type
 *     16  8  durable: the log was on the disk up to this offset when the record was written
 *     24     body, padded with zeros to a multiple of 8
 *
 * The log ends at the first offset without a complete, valid record. If a valid record further on
 * was written when that offset had already been durable, the disk has damaged what it had stored,
 * and the file is FEDGE_CORRUPT. Otherwise recovery cuts the file there and its note says so:
 * either it is the torn end of a crash, of which nothing was acknowledged, or the last records are
 * damaged, of which something may have been. These two cases cannot be told apart.
 *
 * A failed write or sync is final: that call and every later one returns FEDGE_IO, and the caller
 * stops the program. Thread-safe except where stated.
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
#define FEDGE_JOURNAL_MAX_METADATA FEDGE_MESSAGE_MAX_META /* bytes of one update's metadata */
#define FEDGE_JOURNAL_DEVICE_ID 37                        /* UUID text and NUL */
#define FEDGE_JOURNAL_ASSIGNS_PER_SLOT 4 /* ASSIGN records reserved per slot, on average */

/* The task of a slot. */
typedef struct fedge_journal_task {
    uint64_t task_id; /* 0: none yet */
    uint32_t client_index;
    uint32_t base; /* closed rounds when its model was made: phase.round − 1, or fewer if
                      phase.buffered */
    char device_id[FEDGE_JOURNAL_DEVICE_ID];
} fedge_journal_task;

/* A phase, as the first record of its journal describes it. */
typedef struct fedge_journal_phase {
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    uint32_t round;              /* number of the round, from 1 */
    uint32_t attempt;            /* attempt at the round, from 0 */
    uint32_t wanted;             /* reports that close the phase (fedge_rounds_wanted) */
    char model[FEDGE_HASH_TEXT]; /* SHA-256 of the base model's file */
    uint64_t slot_size;          /* upper limit of an upload in bytes (fedge_update_max_size) */
    uint32_t num_tasks;          /* number of slots */
    bool buffered;               /* asynchronous strategy: each task has its own base, and at most
                                    [wanted] updates are accepted */
    bool by_cohort;              /* weights follow from num_tasks; false in journals of older
                                    releases and with strategies whose weights never do */
    fedge_draw draw;             /* draw of the cohort; all 0: uniform */
    uint32_t num_bounds;         /* 0, or one per tensor */
    int8_t bounds_log2[FEDGE_MAX_TENSORS];
} fedge_journal_phase;

/* Location of an update that another rank accepted: the phase's journal in the folder of [rank]
 * (disk.h) on [disk]. */
typedef struct fedge_journal_location {
    uint64_t disk;
    uint32_t rank;
} fedge_journal_location;

typedef enum fedge_journal_state {
    FEDGE_JOURNAL_OPEN,
    FEDGE_JOURNAL_CLOSED, /* the accepted set is final: step and checkpoint */
    FEDGE_JOURNAL_FAILED  /* too few reports: none of its updates counts */
} fedge_journal_state;

/* A consistent snapshot of one slot. */
typedef struct fedge_journal_slot {
    fedge_journal_task task;
    bool accepted;
    uint64_t size;          /* if accepted: bytes of the update */
    uint32_t crc32;         /* if accepted: checksum of those bytes */
    uint32_t metadata_size; /* if accepted: bytes of the UPLOAD's JSON */
    uint64_t written;       /* if not accepted: bytes received without a gap, in this process */
    bool elsewhere; /* if accepted: true when the bytes are at [location], not in this file */
    fedge_journal_location location;
} fedge_journal_slot;

typedef struct fedge_journal fedge_journal;

/* Makes the path DIR/round-RRRRRR-aA.fj; fedge_journal_parse_name reverses it and returns false for
 * any other name. */
FEDGE_MUST_USE fedge_status fedge_journal_make_path(const char *dir, uint32_t round,
                                                    uint32_t attempt, char path[FEDGE_MAX_PATH],
                                                    fedge_error *err);
bool fedge_journal_parse_name(const char *name, uint32_t *round, uint32_t *attempt);

/* Reserves the journal of a phase in DIR (the run's "journal") and makes it durable with its OPEN
 * record, then removes journals of other attempts of the round. tasks: (phase->num_tasks), task i
 * in slot i. FEDGE_NO_SPACE: less than the file and min_free_bytes is free; nothing is left behind
 * and the call may be repeated later. FEDGE_EXISTS: this attempt has a journal. */
FEDGE_MUST_USE fedge_status fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                                 const fedge_journal_task *tasks,
                                                 uint64_t min_free_bytes, fedge_journal **journal,
                                                 fedge_error *err);

/* Recovers a journal: replays the log, checks the CRC of every accepted update against the bytes in
 * its slot, and cuts a torn end. Records and updates are durable when this returns, also after a
 * sync of an earlier process has failed: they are all written again. A damaged update reopens its
 * slot, which the note says; a closed phase that has one cannot be stepped with
 * (fedge_journal_num_damaged). FEDGE_CORRUPT (the message has file and offset), FEDGE_UNSUPPORTED:
 * a newer release wrote it. */
FEDGE_MUST_USE fedge_status fedge_journal_recover(const char *path, fedge_journal **journal,
                                                  fedge_error *err);
void fedge_journal_free(fedge_journal *journal); /* the file stays; NULL is allowed */

/* Describes for the log what recovery repaired; "": nothing. */
const char *fedge_journal_note(const fedge_journal *journal);
/* Accepted updates that recovery has found damaged. */
uint32_t fedge_journal_num_damaged(const fedge_journal *journal);
const char *fedge_journal_path(const fedge_journal *journal);
const fedge_journal_phase *fedge_journal_get_phase(const fedge_journal *journal);
fedge_journal_state fedge_journal_get_state(fedge_journal *journal);
uint32_t fedge_journal_num_accepted(fedge_journal *journal);
/* One more than the highest task id in the file. */
uint64_t fedge_journal_next_task_id(fedge_journal *journal);
/* slot < phase->num_tasks, here and below. */
fedge_journal_slot fedge_journal_get_slot(fedge_journal *journal, uint32_t slot);
/* Clients whose tasks were reassigned, one entry per reassignment, in the order of the log. The
 * caller frees *clients, (*num). FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_journal_replaced(fedge_journal *journal, uint32_t **clients,
                                                   uint32_t *num, fedge_error *err);
/* The slot whose task is [task_id]. FEDGE_STALE: none. */
FEDGE_MUST_USE fedge_status fedge_journal_find(fedge_journal *journal, uint64_t task_id,
                                               uint32_t *slot, fedge_error *err);

/* Writes upload bytes at [offset] of the slot. FEDGE_OUT_OF_RANGE: a gap, offset > slot.written.
 * FEDGE_TOO_BIG: offset + size > slot_size. FEDGE_STALE: the slot has another task.
 * FEDGE_DUPLICATE: it is accepted. FEDGE_CLOSED: the phase has ended. One thread at a time per
 * slot. */
FEDGE_MUST_USE fedge_status fedge_journal_write(fedge_journal *journal, uint32_t slot,
                                                uint64_t task_id, uint64_t offset,
                                                const void *bytes, size_t size, fedge_error *err);
/* Sets slot.written to 0: the upload restarts because another size or CRC was announced. */
FEDGE_MUST_USE fedge_status fedge_journal_rewind(fedge_journal *journal, uint32_t slot,
                                                 uint64_t task_id, fedge_error *err);
/* Continues an upload that was in progress when its phase closed: copies the slot.written bytes of
 * slot [old] of [from] to [slot], which has the same task. */
FEDGE_MUST_USE fedge_status fedge_journal_carry(fedge_journal *journal, uint32_t slot,
                                                fedge_journal *from, uint32_t old,
                                                fedge_error *err);
/* Reads bytes of the slot that were written before; offset + size ≤ slot_size. They may be damaged:
 * the caller compares their checksum with slot.crc32, or with one taken of verified bytes. */
FEDGE_MUST_USE fedge_status fedge_journal_read(fedge_journal *journal, uint32_t slot,
                                               uint64_t offset, void *out, size_t size,
                                               fedge_error *err);

/* ---- records; each is durable only after fedge_journal_sync ---------------------------------- */

/* Gives the slot a new task. The caller ensures that no write to the slot is in progress.
 * FEDGE_DUPLICATE: the slot is accepted. FEDGE_CLOSED. FEDGE_TOO_BIG: the space for such records is
 * used up; leave the slot empty. */
FEDGE_MUST_USE fedge_status fedge_journal_assign(fedge_journal *journal, uint32_t slot,
                                                 const fedge_journal_task *task, fedge_error *err);
/* Accepts the validated update in the slot. [metadata]: the JSON of the UPLOAD message, as
 * received. FEDGE_OUT_OF_RANGE: another number of bytes than [size] was written. FEDGE_DUPLICATE,
 * FEDGE_STALE, FEDGE_CLOSED, FEDGE_TOO_BIG as above; FEDGE_CLOSED also when a buffered phase has
 * all the updates it wants. */
FEDGE_MUST_USE fedge_status fedge_journal_accept(fedge_journal *journal, uint32_t slot,
                                                 uint64_t task_id, uint64_t size, uint32_t crc32,
                                                 const char *metadata, uint32_t metadata_size,
                                                 fedge_error *err);
/* Accepts an update that another rank has validated and made durable in its own journal. [theirs]:
 * its slot there; its task may be newer than that of [slot]. FEDGE_DUPLICATE: the slot is accepted.
 * FEDGE_CLOSED, FEDGE_TOO_BIG: there is no space for the record. */
FEDGE_MUST_USE fedge_status fedge_journal_accept_elsewhere(fedge_journal *journal, uint32_t slot,
                                                           const fedge_journal_slot *theirs,
                                                           const fedge_journal_location *location,
                                                           const char *metadata, fedge_error *err);
/* Reopens the slot of an accepted update that is lost or does not count. FEDGE_TOO_BIG: there is no
 * space for this record and another update. */
FEDGE_MUST_USE fedge_status fedge_journal_lose(fedge_journal *journal, uint32_t slot,
                                               fedge_error *err);
/* Durably reopens a closed phase that has lost updates, after recovery. */
FEDGE_MUST_USE fedge_status fedge_journal_reopen(fedge_journal *journal, fedge_error *err);

/* Ends the phase and syncs. From the moment of the call nothing is accepted or assigned.
 * FEDGE_CLOSED: it has already ended the other way. */
FEDGE_MUST_USE fedge_status fedge_journal_close(fedge_journal *journal, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_journal_fail(fedge_journal *journal, fedge_error *err);

/* Returns when everything written and appended before the call is on the disk. Concurrent calls
 * share one fdatasync (group commit). */
FEDGE_MUST_USE fedge_status fedge_journal_sync(fedge_journal *journal, fedge_error *err);
/* Number of fdatasync calls, for metrics. */
uint64_t fedge_journal_num_syncs(fedge_journal *journal);

/* Reads the metadata of an accepted update, slot.metadata_size bytes, to [out] and appends a NUL;
 * out_size > metadata_size. FEDGE_CORRUPT: the disk has damaged the record. */
FEDGE_MUST_USE fedge_status fedge_journal_metadata(fedge_journal *journal, uint32_t slot, char *out,
                                                   size_t out_size, fedge_error *err);

#endif
