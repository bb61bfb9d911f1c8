#include "edge/core/arena.h"

#include <assert.h>

size_t fedge_arena_round(size_t size)
{
    if (size > SIZE_MAX - (FEDGE_ARENA_ALIGN - 1))
        return SIZE_MAX;
    return (size + (FEDGE_ARENA_ALIGN - 1)) & ~(size_t)(FEDGE_ARENA_ALIGN - 1);
}

void fedge_arena_init(fedge_arena *arena, void *block, size_t size)
{
    *arena = (fedge_arena){.base = block, .size = size};
}

fedge_status fedge_arena_alloc(fedge_arena *arena, size_t count, size_t element_size, void **out,
                               fedge_error *err)
{
    size_t bytes =
        element_size == 0 || count <= SIZE_MAX / element_size ? count * element_size : SIZE_MAX;
    size_t rounded = fedge_arena_round(bytes);
    /* The first piece of an unaligned block starts a little later; all others are aligned then. */
    size_t misaligned = (size_t)((uintptr_t)(arena->base + arena->used) % FEDGE_ARENA_ALIGN);
    size_t padding = misaligned == 0 ? 0 : FEDGE_ARENA_ALIGN - misaligned;
    size_t left = arena->size - arena->used;
    if (padding > left || rounded > left - padding)
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "%zu elements of %zu bytes do not fit in an arena with %zu of %zu bytes "
                          "free",
                          count, element_size, left, arena->size);
    *out = arena->base + arena->used + padding;
    arena->used += padding + rounded;
    if (arena->used > arena->high_water)
        arena->high_water = arena->used;
    return FEDGE_OK;
}

void fedge_arena_reset(fedge_arena *arena, size_t mark)
{
    assert(mark <= arena->used);
    arena->used = mark;
}
