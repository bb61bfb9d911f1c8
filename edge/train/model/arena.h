/* Handing out aligned parts of one block; private to edge/train.
 *
 * Planning and carving are the same walk: without a block only the bytes are counted, so the
 * planned size is exact.
 */
#ifndef FEDGE_EDGE_TRAIN_MODEL_ARENA_H
#define FEDGE_EDGE_TRAIN_MODEL_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FEDGE_BLOCK_ALIGNMENT 64

typedef struct fedge_carver {
    uint8_t *block; /* NULL: count only */
    size_t used;
    bool overflow; /* more than this machine can address was asked for */
} fedge_carver;

/* [count] aligned elements, added in bytes to *account. NULL without a block. */
void *fedge_carve(fedge_carver *from, size_t count, size_t element_size, size_t *account);

/* The product, or SIZE_MAX (which no block holds) when it does not fit. */
size_t fedge_carve_product(size_t a, size_t b);

#endif
