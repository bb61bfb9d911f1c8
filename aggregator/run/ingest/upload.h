/* An upload in its journal slot, as an accumulator reads it (fedge_encoded).
 *
 * Sections that were sent as they are stay on the disk and are read piece by piece, so an update of
 * any size takes no memory here. An upload with a section that is deflated, or whose codec chooses,
 * is unpacked whole into a buffer that is lent to its worker.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_H
#define FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* ---- what a client says of its update ---------------------------------------------------------
 */

/* The updates that follow are of [phase], which their weights depend on. */
void fedge_upload_set_phase(fedge_global_model *model, const fedge_journal_phase *phase);

/* What an update of this round says of itself; [base]: of its task. */
fedge_update_facts fedge_upload_facts(const fedge_global_model *model, const fedge_upload *upload,
                                      uint32_t round, uint32_t client, uint32_t base);

/* The metric named [name] of an upload, or NaN. */
double fedge_upload_metric(const fedge_upload *upload, const char *name);

/* ---- buffers ----------------------------------------------------------------------------------
 */

/* Where such uploads are unpacked, one at a time. All zero at first; grows when needed. */
typedef struct fedge_upload_buffer {
    uint8_t *inflated; /* as the accumulator wants it */
    size_t size;
} fedge_upload_buffer;

void fedge_upload_buffer_fini(fedge_upload_buffer *buffer);

/* The buffers in which updates are unpacked that cannot be read piece by piece: lent to one worker
 * at a time, as many as fit into a budget, and one at the least, since an update of a large model
 * is as large as the model. Thread-safe.
 */

#define FEDGE_UPLOAD_BUFFERS_MAX 64
#define FEDGE_UPLOAD_BUFFERS_BYTES ((size_t)64 << 20)

typedef struct fedge_upload_buffers {
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    uint32_t count;
    bool is_taken[FEDGE_UPLOAD_BUFFERS_MAX];
    fedge_upload_buffer of[FEDGE_UPLOAD_BUFFERS_MAX];
} fedge_upload_buffers;

/* For updates of at most [size] bytes and [num_workers] workers, 1 to FEDGE_UPLOAD_BUFFERS_MAX. No
 * memory is taken yet. */
void fedge_upload_buffers_init(fedge_upload_buffers *buffers, size_t size, uint32_t num_workers);
void fedge_upload_buffers_fini(fedge_upload_buffers *buffers);

/* Waits for a buffer that nobody has. Who has one waits for nothing before it gives it back. */
fedge_upload_buffer *fedge_upload_buffers_take(fedge_upload_buffers *buffers);
void fedge_upload_buffers_give_back(fedge_upload_buffers *buffers,
                                    const fedge_upload_buffer *buffer);

/* Frees the memory of buffers that nobody has. */
void fedge_upload_buffers_empty(fedge_upload_buffers *buffers);

/* ---- an upload in its journal slot ------------------------------------------------------------
 */

/* Whether it cannot be read piece by piece, and takes a buffer. */
bool fedge_upload_needs_buffer(const fedge_plan *plan, const fedge_upload *upload);

/* Not to be moved once open: encoded.user points to it. */
typedef struct fedge_upload_source {
    fedge_encoded encoded;
    fedge_journal *journal;
    uint32_t slot;
    uint64_t size;                       /* of the upload */
    uint32_t crc32;                      /* as announced */
    uint32_t crc;                        /* of the first [checked] bytes */
    uint64_t checked;                    /* bytes whose checksum has been taken */
    uint64_t sizes[FEDGE_SECTION_KINDS]; /* of its sections, inflated */
} fedge_upload_source;

/* Takes an upload of [plan] whose bytes are all in the slot. [bounds_log2] (one per tensor) and
 * [journal] stay valid. When source->encoded.bytes is set, it lies in [buffer] until the buffer is
 * used again; [buffer] may be NULL where none is needed. FEDGE_MISMATCH, FEDGE_TOO_BIG,
 * FEDGE_CORRUPT, FEDGE_TRUNCATED: the upload is not what the plan wants or not what was announced;
 * FEDGE_IO, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_upload_source_open(fedge_upload_source *source,
                                                     const fedge_plan *plan, fedge_journal *journal,
                                                     uint32_t slot, const fedge_upload *upload,
                                                     const int8_t *bounds_log2, uint32_t weight,
                                                     fedge_upload_buffer *buffer, fedge_error *err);

/* Checks every value on [accumulator], and the checksum: bytes that are damaged are FEDGE_CORRUPT,
 * whatever values they make. On failure the accumulator holds nothing of it. */
FEDGE_MUST_USE fedge_status fedge_upload_source_validate(fedge_upload_source *source,
                                                         fedge_accumulator *accumulator,
                                                         fedge_error *err);

#endif
