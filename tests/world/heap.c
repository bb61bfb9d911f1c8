/* The system's allocator does the work, so that the address sanitizer sees each block. A table
 * holds the node of each block. Shared libraries allocate blocks that are not in the table; no node
 * owns them. */
#define _GNU_SOURCE

#include "tests/world/heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/scheduler.h"

/* A small table stays in the processor's cache. */
enum { SLOT_BITS = 13, NUM_SLOTS = 1 << SLOT_BITS, MAX_BLOCKS = NUM_SLOTS / 2 };

typedef struct slot {
    void *block; /* NULL: free */
    uint32_t size, node;
} slot;

static slot slots[NUM_SLOTS]; /* open addressing, linear probing */
static uint32_t num_blocks;
static struct {
    uint64_t bytes, blocks, peak;
} heaps[WORLD_MAX_NODES];

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);

static uint32_t home(const void *block)
{
    return (uint32_t)((uintptr_t)block >> 4) * 2654435761u >> (32 - SLOT_BITS);
}

static slot *find(const void *block)
{
    uint32_t at = home(block);
    while (slots[at].block && slots[at].block != block)
        at = (at + 1) % NUM_SLOTS;
    return &slots[at];
}

static void *add(void *block, size_t size)
{
    const uint32_t node = world_node();
    if (!block || node == WORLD_ITSELF)
        return block;
    if (++num_blocks > MAX_BLOCKS || size > UINT32_MAX) {
        fprintf(stderr, "world: more than %d blocks, or one of %zu bytes\n", MAX_BLOCKS, size);
        abort();
    }
    *find(block) = (slot){block, (uint32_t)size, node};
    heaps[node].blocks++;
    heaps[node].bytes += size;
    if (heaps[node].bytes > heaps[node].peak)
        heaps[node].peak = heaps[node].bytes;
    return block;
}

/* Entries that were displaced by this one move back. */
static void erase(slot *at)
{
    uint32_t hole = (uint32_t)(at - slots);
    heaps[at->node].blocks--;
    heaps[at->node].bytes -= at->size;
    num_blocks--;
    for (uint32_t i = (hole + 1) % NUM_SLOTS; slots[i].block; i = (i + 1) % NUM_SLOTS) {
        const uint32_t wanted = home(slots[i].block);
        if ((i - wanted) % NUM_SLOTS >= (i - hole) % NUM_SLOTS) {
            slots[hole] = slots[i];
            hole = i;
        }
    }
    slots[hole].block = NULL;
}

void *__wrap_malloc(size_t size)
{
    return add(__real_malloc(size), size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return add(__real_calloc(count, size), count * size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return add(__real_aligned_alloc(alignment, size), size);
}

void *__wrap_realloc(void *block, size_t size)
{
    if (!block)
        return __wrap_malloc(size);
    slot *at = find(block);
    if (!at->block)
        return __real_realloc(block, size);
    const slot old = *at;
    void *moved = __real_realloc(block, size);
    if (!moved)
        return NULL;
    erase(find(old.block));
    return add(moved, size);
}

char *__wrap_strdup(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void __wrap_free(void *block)
{
    if (!block)
        return;
    slot *at = find(block);
    if (at->block)
        erase(at);
    __real_free(block);
}

/* Kills are rarer than allocations. So this scans the whole table, but only if the node has blocks.
 */
void world_heap_drop(uint32_t node)
{
    uint32_t at = 0;
    while (heaps[node].blocks > 0 && at < NUM_SLOTS) {
        void *block = slots[at].node == node ? slots[at].block : NULL;
        if (block) {
            erase(&slots[at]); /* another entry may have moved here */
            __real_free(block);
        } else {
            at++;
        }
    }
    /* An entry may have moved across the table's end. */
    if (heaps[node].blocks > 0)
        world_heap_drop(node);
}

/* Shared libraries call the real malloc, so their blocks are lost when a process is killed. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcjson\nleak:libgcrypt\n";
}
/* NOLINTEND(bugprone-reserved-identifier) */

void world_heap_begin(void)
{
    for (uint32_t node = 0; node < WORLD_MAX_NODES; node++)
        heaps[node].peak = 0;
}

uint64_t world_heap_bytes(uint32_t node)
{
    return heaps[node].bytes;
}

uint64_t world_heap_blocks(uint32_t node)
{
    return heaps[node].blocks;
}

uint64_t world_heap_peak(uint32_t node)
{
    return heaps[node].peak;
}
