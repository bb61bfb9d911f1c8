/* The heap of each node. A kill of the node frees its heap. The number of blocks and bytes is
 * known. */
#ifndef FEDGE_TESTS_WORLD_HEAP_H
#define FEDGE_TESTS_WORLD_HEAP_H

#include <stddef.h>
#include <stdint.h>

void world_heap_begin(void);         /* begins a new world */
void world_heap_drop(uint32_t node); /* frees all blocks of the node */
uint64_t world_heap_bytes(uint32_t node);
uint64_t world_heap_blocks(uint32_t node);
uint64_t world_heap_peak(uint32_t node); /* most bytes at a time since world_heap_begin */

#endif
