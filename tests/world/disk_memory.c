/* Memory of the simulated disks. Its blocks lie in a mapping of their own, as the heap of a killed
 * node is freed. */
#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/world/disk_state.h"

#define ARENA_SIZE ((size_t)16 << 30) /* address space; pages are allocated at first use */
#define KEPT_SIZE ((size_t)64 << 20)  /* memory that is kept for later worlds */

enum { MIN_CLASS = 5, NUM_CLASSES = 36 };

/* A free block of 2^class bytes. */
typedef struct free_block {
    struct free_block *next;
} free_block;

static struct {
    uint8_t *base;
    size_t used;
    free_block *free[NUM_CLASSES];
} arena;

void disk_must(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "world's disk: %s\n", what);
        abort();
    }
}

static unsigned class_of(size_t size)
{
    const unsigned bits = size > 1 ? 64u - (unsigned)__builtin_clzll(size - 1) : 0;
    const unsigned class = bits > MIN_CLASS ? bits : MIN_CLASS;
    disk_must(class < NUM_CLASSES, "a block is too large");
    return class;
}

static void map_arena(void)
{
    void *base = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    disk_must(base != MAP_FAILED, "no addresses for the disks");
    arena.base = base;
}

void *disk_take(size_t size)
{
    const unsigned class = class_of(size);
    free_block *block = arena.free[class];
    if (block) {
        arena.free[class] = block->next;
        return block;
    }
    if (!arena.base)
        map_arena();
    disk_must(((size_t)1 << class) <= ARENA_SIZE - arena.used, "the disks are full");
    void *fresh = arena.base + arena.used;
    arena.used += (size_t)1 << class;
    return fresh;
}

void disk_give(void *block, size_t size)
{
    if (block) {
        const unsigned class = class_of(size);
        free_block *given = block;
        given->next = arena.free[class];
        arena.free[class] = given;
    }
}

char *disk_take_text(const char *text)
{
    const size_t size = strlen(text) + 1;
    return memcpy(disk_take(size), text, size);
}

void disk_give_text(char *text)
{
    if (text)
        disk_give(text, strlen(text) + 1);
}

void disk_forget_memory(void)
{
    if (arena.used > KEPT_SIZE)
        (void)madvise(arena.base + KEPT_SIZE, arena.used - KEPT_SIZE, MADV_DONTNEED);
    arena.used = 0;
    memset(arena.free, 0, sizeof(arena.free));
}
