/* An upload in its journal slot, as an accumulator reads it (fedge_encoded).
 *
 * Sections that were sent as they are stay on the disk and are read piece by piece, so an update of
 * any size takes no memory here. An upload with a section that is deflated, or whose codec chooses,
 * is unpacked whole into a buffer that is lent to its worker.
 */
#ifndef FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_SOURCE_H
#define FEDGE_AGGREGATOR_RUN_INGEST_UPLOAD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/store/journal.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* Where such uploads are unpacked, one at a time. All zero at first; grows when needed. */
typedef struct fedge_upload_buffer {
    uint8_t *inflated; /* as the accumulator wants it */
    size_t size;
} fedge_upload_buffer;

void fedge_upload_buffer_fini(fedge_upload_buffer *buffer);

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
