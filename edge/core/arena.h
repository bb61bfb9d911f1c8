/* A bump allocator over the caller's block: all of a model's or a round's memory is one block,
 * carved from front to back and given back at once.
 */
#ifndef FEDGE_EDGE_CORE_ARENA_H
#define FEDGE_EDGE_CORE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_ARENA_ALIGN 64 /* of every piece: a cache line, and an AVX-512 vector */

/* Not thread-safe. The fields are for reading. */
typedef struct fedge_arena {
    uint8_t *base;
    size_t size;       /* bytes of the block */
    size_t used;       /* bytes handed out, padding included */
    size_t high_water; /* the largest [used] so far */
} fedge_arena;

/* [size] rounded up to FEDGE_ARENA_ALIGN: what a piece takes. The sum over all pieces is the block
 * they need when the block itself is aligned; up to FEDGE_ARENA_ALIGN − 1 bytes more otherwise.
 * SIZE_MAX when it does not fit in a size_t. */
size_t fedge_arena_round(size_t size);

/* An arena over [block], which the caller owns and which must outlive it. */
void fedge_arena_init(fedge_arena *arena, void *block, size_t size);

/* [count] elements of [element_size] bytes, aligned, not cleared. FEDGE_NO_MEMORY when the arena is
 * full (the message has the numbers); the arena is unchanged then. */
FEDGE_MUST_USE fedge_status fedge_arena_alloc(fedge_arena *arena, size_t count, size_t element_size,
                                              void **out, fedge_error *err);

/* Gives back everything handed out since [used] had the value [mark]; 0 gives back all. */
void fedge_arena_reset(fedge_arena *arena, size_t mark);

#endif
