/* Lists of a blob's parts: with one a client sees which bytes of a model it has already, in an
 * older model or earlier in the same, and fetches the others alone.
 *
 *     8 bytes "FEDGPRT1", the blob's SHA-256 (32), u64 its size, little-endian; then for each part,
 *     in the order of the blob and without gaps, u32 its bytes and its SHA-256 (32)
 *
 * A part ends where a tensor does or begins, so that a tensor has the same parts in whatever model
 * it lies and wherever; larger tensors are cut every FEDGE_PART_MAX_BYTES, and small ones lie
 * together in one. A list is a blob itself, named by its SHA-256.
 */
#ifndef FEDGE_EDGE_WIRE_PART_LIST_H
#define FEDGE_EDGE_WIRE_PART_LIST_H

#include <stdbool.h>

#ifdef FEDGE_SMALL
#define FEDGE_TAKES_PARTS false /* small clients fetch models whole */
#else
#define FEDGE_TAKES_PARTS true
#endif

#define FEDGE_PART_MAX_BYTES (1u << 20)
#define FEDGE_PART_MIN_BYTES 4096u /* a tensor of this size or more has parts of its own */
#define FEDGE_PART_LIST_MAGIC "FEDGPRT1"
#define FEDGE_PART_LIST_HEAD 48u  /* bytes before the first entry */
#define FEDGE_PART_LIST_ENTRY 36u /* bytes */
#define FEDGE_PART_LIST_MAX_PARTS 65536u
#define FEDGE_PART_LIST_MAX_SIZE                                                                   \
    (FEDGE_PART_LIST_HEAD + FEDGE_PART_LIST_MAX_PARTS * FEDGE_PART_LIST_ENTRY)

#endif
