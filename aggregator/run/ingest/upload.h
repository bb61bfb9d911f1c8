/* An upload: its client's description, and its bytes in the journal slot, as an accumulator reads
 * them (fedge_encoded).
 *
 * Plain sections stay on disk and are read chunk by chunk, so an update of any size takes no memory
 * here. An upload with a deflated section, or one whose codec sparsifies, is inflated whole into a
 * buffer that its worker borrows.
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

/* ---- what a client says of its update -------------------------------------------------------- */

/* Sets the phase of the next updates; their weights depend on it. */
void fedge_upload_set_phase(fedge_global_model *model, const fedge_journal_phase *phase);

/* The facts of an update of this round that strategies use; [base]: the round of its task's model.
 */
fedge_update_facts fedge_upload_facts(const fedge_global_model *model, const fedge_upload *upload,
                                      uint32_t round, uint32_t client, uint32_t base);

/* The metric named [name] of an upload, or NaN. */
double fedge_upload_metric(const fedge_upload *upload, const char *name);

/* ---- buffers --------------------------------------------------------------------------------- */

/* Memory for one inflated upload. All zero at first; grows when needed. */
typedef struct fedge_upload_buffer {
    uint8_t *inflated; /* values in the accumulator's layout */
    size_t size;
} fedge_upload_buffer;

void fedge_upload_buffer_fini(fedge_upload_buffer *buffer);

/* A pool of buffers, each lent to one worker at a time: as many as fit into a budget, at least one,
 * since an update is as large as the model. Thread-safe. */

#define FEDGE_UPLOAD_BUFFERS_MAX 64
#define FEDGE_UPLOAD_BUFFERS_BYTES ((size_t)64 << 20)

typedef struct fedge_upload_buffers {
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    uint32_t count;
    bool is_taken[FEDGE_UPLOAD_BUFFERS_MAX];
    fedge_upload_buffer of[FEDGE_UPLOAD_BUFFERS_MAX];
} fedge_upload_buffers;

/* Takes sizes for updates of at most [size] bytes and [num_workers] workers, 1 to
 * FEDGE_UPLOAD_BUFFERS_MAX. No memory is taken yet. */
void fedge_upload_buffers_init(fedge_upload_buffers *buffers, size_t size, uint32_t num_workers);
void fedge_upload_buffers_fini(fedge_upload_buffers *buffers);

/* Blocks until a buffer is free. A holder must not block before returning it. */
fedge_upload_buffer *fedge_upload_buffers_take(fedge_upload_buffers *buffers);
void fedge_upload_buffers_give_back(fedge_upload_buffers *buffers,
                                    const fedge_upload_buffer *buffer);

/* Frees the memory of free buffers. */
void fedge_upload_buffers_empty(fedge_upload_buffers *buffers);

/* ---- an upload in its journal slot ----------------------------------------------------------- */

/* True when the upload must be inflated whole. */
bool fedge_upload_needs_buffer(const fedge_plan *plan, const fedge_upload *upload);

/* It must not be moved once open: encoded.user points to it. */
typedef struct fedge_upload_source {
    fedge_encoded encoded;
    fedge_journal *journal;
    uint32_t slot;
    uint64_t size;                       /* bytes of the upload */
    uint32_t crc32;                      /* announced CRC-32 */
    uint32_t crc;                        /* CRC-32 of the first [checked] bytes */
    uint64_t checked;                    /* bytes that [crc] covers */
    uint64_t sizes[FEDGE_SECTION_KINDS]; /* inflated bytes of each section */
} fedge_upload_source;

/* Opens an upload of [plan] whose bytes are all in the slot. [journal] outlives it. Where
 * encoded.bytes is set, it lies in [buffer] until that is used again; [buffer] may be NULL where
 * none is needed. FEDGE_MISMATCH, FEDGE_TOO_BIG, FEDGE_CORRUPT, FEDGE_TRUNCATED: the upload does
 * not match the plan or its announcement. FEDGE_IO, FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_upload_source_open(fedge_upload_source *source,
                                                     const fedge_plan *plan, fedge_journal *journal,
                                                     uint32_t slot, const fedge_upload *upload,
                                                     uint32_t weight, fedge_upload_buffer *buffer,
                                                     fedge_error *err);

/* Checks every value on [accumulator], and the checksum. Damaged bytes are FEDGE_CORRUPT, whatever
 * values they decode to. After a failure the accumulator has nothing of the upload. */
FEDGE_MUST_USE fedge_status fedge_upload_source_validate(fedge_upload_source *source,
                                                         fedge_accumulator *accumulator,
                                                         fedge_error *err);

#endif
