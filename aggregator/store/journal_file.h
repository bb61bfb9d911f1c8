/* Internals of the journal: layout, records and the struct behind the handle. For journal*.c and
 * their tests only.
 */
#ifndef FEDGE_AGGREGATOR_STORE_JOURNAL_FILE_H
#define FEDGE_AGGREGATOR_STORE_JOURNAL_FILE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/store/journal.h"
#include "edge/core/os.h"
#include "edge/core/status.h"

/* Header: magic, version, num_slots, slots_offset, slot_stride, slot_size, file_size, CRC-32 of all
 * these; the remaining bytes of the page are zero. */
#define JOURNAL_MAGIC "FEDGEJNL"
#define JOURNAL_VERSION 1u
#define JOURNAL_PAGE ((uint64_t)4096) /* size of the header; slots begin at multiples of it */
#define JOURNAL_HEADER_FIELDS 52      /* bytes of the header in use, CRC included */

#define JOURNAL_RECORD_HEADER 24
#define JOURNAL_OPEN_FIXED 128 /* bytes of OPEN without bounds and tasks */
#define JOURNAL_OPEN_TASK 48   /* bytes of a task: task_id, client_index, device_id without NUL */
#define JOURNAL_OPEN_DRAW 32   /* bytes of the draw; follows the tasks unless uniform */
#define JOURNAL_OPEN_BASE 4    /* bytes of a task's base; follow the tasks if buffered */
#define JOURNAL_BUFFERED ((uint32_t)1 << 31)  /* flag in OPEN's number of bounds */
#define JOURNAL_BY_COHORT ((uint32_t)1 << 30) /* flag in OPEN's number of bounds */
#define JOURNAL_ASSIGN_BODY 52
#define JOURNAL_ACCEPT_FIXED 24 /* bytes of ACCEPT without the metadata */
#define JOURNAL_END_BODY 4
/* ELSEWHERE without the metadata: slot, crc32, the task as in OPEN, size, disk, rank, 0. It exceeds
 * an ACCEPT by less than the size of one ASSIGN. */
#define JOURNAL_ELSEWHERE_FIXED 80
#define JOURNAL_LOSE_BODY 12 /* bytes of slot and task_id */
/* Bytes that the log may reach beyond its durable part: the next record waits for a sync. */
#define JOURNAL_MAX_UNSYNCED ((uint64_t)1 << 20)
#define JOURNAL_MAX_BODY                                                                           \
    (JOURNAL_OPEN_FIXED + (size_t)FEDGE_MAX_TENSORS +                                              \
     (size_t)(JOURNAL_OPEN_TASK + JOURNAL_OPEN_BASE) * FEDGE_JOURNAL_MAX_SLOTS +                   \
     JOURNAL_OPEN_DRAW)

/* Values are part of the format. */
enum journal_record_type {
    JOURNAL_OPEN = 1,      /* the phase and its tasks; only the first record */
    JOURNAL_ASSIGN = 2,    /* slot, client_index, task_id, device_id */
    JOURNAL_ACCEPT = 3,    /* slot, crc32, task_id, size, metadata */
    JOURNAL_CLOSE = 4,     /* number of accepted updates */
    JOURNAL_FAIL = 5,      /* number of accepted updates */
    JOURNAL_ELSEWHERE = 6, /* an update accepted by another rank: see JOURNAL_ELSEWHERE_FIXED */
    JOURNAL_LOSE = 7       /* slot, task_id: its update is lost */
};

typedef struct journal_layout {
    uint64_t slots_offset; /* end of the log region */
    uint64_t slot_stride;
    uint64_t file_size;
} journal_layout;

typedef struct journal_slot {
    fedge_journal_slot facts;
    uint64_t metadata_offset; /* offset in the file, if accepted */
    bool damaged; /* recovery found its accepted update damaged, and the log does not say so yet */
} journal_slot;

struct fedge_journal {
    journal_layout layout;
    fedge_journal_phase phase;
    fedge_os_file file;
    bool lock_made;
    char note[1024];
    uint32_t num_damaged; /* updates that recovery found damaged */

    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t synced_more;
    journal_slot *slots; /* (phase.num_tasks) */
    uint8_t *record;     /* scratch for one record after OPEN */
    uint64_t next_task_id;
    uint64_t log_end;    /* offset of the next record */
    uint64_t num_writes; /* finished writes of slots and records */
    uint64_t synced;     /* number of those that are on the disk */
    uint64_t durable;    /* offset up to which the log is on the disk */
    uint64_t num_syncs;
    uint32_t next_number; /* number of the next record */
    uint32_t num_accepted;
    uint32_t *replaced; /* (num_replaced): clients whose tasks were reassigned */
    uint32_t num_replaced, replaced_capacity;
    fedge_journal_state state;
    bool ending;  /* nothing more is accepted or assigned */
    bool syncing; /* a thread is in fdatasync */
    bool broken;  /* a write or sync failed: every call fails */
    char broken_message[FEDGE_ERROR_MESSAGE_SIZE];
};

/* The header of a record. */
typedef struct journal_record {
    uint32_t number, type;
    uint64_t durable;
    uint32_t body_size;
    uint64_t total; /* size in the file, header and padding included */
} journal_record;

/* Bytes of a record in the file. */
uint64_t fedge_journal_record_size(uint64_t body_size);
/* Bytes of an ACCEPT with the largest metadata. */
uint64_t fedge_journal_max_accept(void);

fedge_status fedge_journal_make_layout(const fedge_journal_phase *phase, journal_layout *layout,
                                       fedge_error *err);
void fedge_journal_pack_header(const fedge_journal_phase *phase, const journal_layout *layout,
                               uint8_t page[4096]);
/* Checks the header against the actual size of the file. Sets *layout, *num_slots and *slot_size.
 */
fedge_status fedge_journal_unpack_header(const uint8_t page[4096], uint64_t true_size,
                                         const char *path, journal_layout *layout,
                                         uint32_t *num_slots, uint64_t *slot_size,
                                         fedge_error *err);

/* Adds header and padding to the body at out + JOURNAL_RECORD_HEADER; returns the record's size.
 * [out] has space for fedge_journal_record_size bytes. */
size_t fedge_journal_seal_record(uint8_t *out, uint32_t body_size, uint32_t number, uint32_t type,
                                 uint64_t durable);

/* Reads a record's header from [in], JOURNAL_RECORD_HEADER bytes; [available] bytes remain from its
 * start to the end of the log. False: it cannot be a header. */
bool fedge_journal_peek_record(const uint8_t *in, uint64_t available, journal_record *record);
/* True: the CRC of header and body is correct. */
bool fedge_journal_check_record(const uint8_t *header, const uint8_t *body, uint32_t body_size);

/* Size of OPEN's body, and the body itself. */
uint32_t fedge_journal_open_body(const fedge_journal_phase *phase);
void fedge_journal_pack_open(const fedge_journal_phase *phase, const fedge_journal_task *tasks,
                             uint8_t *out);
/* Fills *phase. The tasks start at in + *tasks_offset, JOURNAL_OPEN_TASK bytes each, followed by
 * their bases if phase->buffered. */
fedge_status fedge_journal_unpack_open(const uint8_t *in, uint32_t size, fedge_journal_phase *phase,
                                       size_t *tasks_offset, const char *path, fedge_error *err);
void fedge_journal_pack_task(const fedge_journal_task *task, uint8_t out[JOURNAL_OPEN_TASK]);
/* Leaves task->base unchanged. */
void fedge_journal_unpack_task(const uint8_t in[JOURNAL_OPEN_TASK], fedge_journal_task *task);

/* Records that the slot's task goes to another client. FEDGE_NO_MEMORY. */
fedge_status fedge_journal_note_replaced(fedge_journal *journal, uint32_t slot, fedge_error *err);

/* Appends a LOSE for each update that recovery found damaged, as far as there is room. The journal
 * is open. */
fedge_status fedge_journal_note_damaged(fedge_journal *journal, fedge_error *err);

/* Makes a journal with slots, lock and scratch buffer, but without a file. */
fedge_status fedge_journal_allocate(const fedge_journal_phase *phase, fedge_journal **journal,
                                    fedge_error *err);

#endif
