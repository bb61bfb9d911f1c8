/* The updates of a round, one by one, for strategies that need more than their sum
 * (aggregator/rounds/robust). A server reads them from its journal
 * (aggregator/run/ingest/accepted_updates.h); fedge_stored_updates holds them in memory and in a
 * file.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_UPDATES_H
#define FEDGE_AGGREGATOR_ROUNDS_UPDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/os.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

/* Values of a chunk, the most that one read returns. Each tensor begins a new chunk. */
#define FEDGE_UPDATES_CHUNK (16 * FEDGE_CODEC_BLOCK)

typedef struct fedge_updates {
    uint32_t num; /* number of updates, in the order of the cohort's slots */
    /* Reads v (count): the decoded values [at, at + count) of a tensor of the delta in update
     * [index], in units of 2^−F. at is a multiple of FEDGE_CODEC_BLOCK, count at most
     * FEDGE_UPDATES_CHUNK. Safe for any number of threads. */
    fedge_status (*read)(void *user, uint32_t index, uint32_t tensor, size_t at, size_t count,
                         int32_t *v, fedge_error *err);
    void *user;
} fedge_updates;

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A chunk of a stored sequence, and the part of it that a reader wants. A store with one checksum
 * per chunk reads whole chunks, checks them, and copies the part. */
typedef struct fedge_chunk {
    size_t number;       /* index of the chunk in its store */
    size_t first, count; /* range of the chunk, in items of a sequence that may be one of several */
    size_t skip, taken;  /* the wanted part: items [first + skip, first + skip + taken) */
} fedge_chunk;

/* The chunk of [size] items that holds item [at] of a sequence of [total], at < total, when
 * [wanted] items from [at] on are to be read; chunks count from 0. */
static inline fedge_chunk fedge_chunk_at(size_t total, size_t size, size_t at, size_t wanted)
{
    const size_t number = at / size, first = number * size, skip = at - first;
    const size_t count = total - first < size ? total - first : size;
    return (fedge_chunk){.number = number,
                         .first = first,
                         .count = count,
                         .skip = skip,
                         .taken = count - skip < wanted ? count - skip : wanted};
}

/* The chunks of an update, FEDGE_UPDATES_CHUNK values each, numbered through all its tensors. Plain
 * data that owns [first]; all 0 is empty. */
typedef struct fedge_update_chunks {
    const fedge_schema *schema;
    size_t *first; /* (num_tensors): the number of each tensor's first chunk */
    size_t num;    /* chunks of an update */
} fedge_update_chunks;

/* [schema] must outlive it. FEDGE_NO_MEMORY. _fini is to be called also after a failure. */
FEDGE_MUST_USE fedge_status fedge_update_chunks_init(fedge_update_chunks *chunks,
                                                     const fedge_schema *schema, fedge_error *err);
void fedge_update_chunks_fini(fedge_update_chunks *chunks);

/* fedge_chunk_at for the values of one tensor. */
fedge_chunk fedge_update_chunks_at(const fedge_update_chunks *chunks, uint32_t tensor, size_t at,
                                   size_t wanted);

/* ---- updates kept until their round closes --------------------------------------------------- */

/* Decoded updates, in memory up to a limit and then in an unlinked file in TMPDIR or /var/tmp.
 *
 *     _init → { _reserve → _put of each, by any thread → _list → read → _clear } … → _fini
 *
 * Plain data that owns all but the schema; all 0 is empty. */
typedef struct fedge_stored_updates {
    const fedge_schema *schema; /* layout of a delta */
    uint64_t limit;             /* most bytes of updates in memory */
    uint32_t num, capacity;     /* updates reserved now, and capacity of the arrays */
    int32_t **values;   /* (capacity): schema->num_elements values each; NULL: it is in the file */
    uint32_t **sums;    /* (capacity): the CRC-32 of each chunk; NULL: it is in memory */
    fedge_os_file file; /* the updates that are not in memory */
    fedge_update_chunks chunks; /* all 0 until the file exists */
    bool has_file;
    uint32_t *order; /* the argument of the last _list */
} fedge_stored_updates;

/* [schema] must outlive it; its first tensor lies at offset 0. limit: bytes. */
void fedge_stored_updates_init(fedge_stored_updates *stored, const fedge_schema *schema,
                               uint64_t limit);
void fedge_stored_updates_fini(fedge_stored_updates *stored);

/* Reserves [count] more updates; *first is the index of the first of them. FEDGE_NO_MEMORY,
 * FEDGE_IO, FEDGE_NO_SPACE. */
FEDGE_MUST_USE fedge_status fedge_stored_updates_reserve(fedge_stored_updates *stored,
                                                         uint32_t count, uint32_t *first,
                                                         fedge_error *err);
/* v: schema->num_elements fixed-point integers. Threads may put to different indices at once. */
FEDGE_MUST_USE fedge_status fedge_stored_updates_put(fedge_stored_updates *stored, uint32_t index,
                                                     const int32_t *v, fedge_error *err);
/* As fedge_updates.read. FEDGE_CORRUPT: the file's bytes are not those that were written. */
FEDGE_MUST_USE fedge_status fedge_stored_updates_read(fedge_stored_updates *stored, uint32_t index,
                                                      uint32_t tensor, size_t at, size_t count,
                                                      int32_t *v, fedge_error *err);
/* The updates at indices[0, num), in that order, as a round's updates. Valid until the next call of
 * anything but read; [indices] is copied. */
FEDGE_MUST_USE fedge_status fedge_stored_updates_list(fedge_stored_updates *stored,
                                                      const uint32_t *indices, uint32_t num,
                                                      fedge_updates *updates, fedge_error *err);
/* Drops all reservations; the memory and the file stay for the next round. */
void fedge_stored_updates_clear(fedge_stored_updates *stored);

#endif
