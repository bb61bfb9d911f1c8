/* The race detector: kernels are compiled with -fsanitize=thread, and this stands in for libtsan.
 *
 * Two accesses of one launch to the same bytes, one of them a write, not both atomic, must be of
 * one thread, of one block with a barrier between, or of one warp with a __syncwarp between. Shadow
 * cells of 4 bytes hold the last four accesses each. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulator/internal.h"

enum { CELLS = 1 << 18, ACCESSES = 4 };

typedef struct access {
    emulated_place by;
    uint8_t bytes; /* of the cell's four */
    bool write, atomic;
} access;

typedef struct cell {
    uintptr_t address; /* / 4 */
    uint64_t launch;
    bool shared;
    uint32_t count;
    access last[ACCESSES];
} cell;

static cell *cells;
static uint64_t seen;
static bool atomic_now;

uint64_t emulator_races_seen(void)
{
    return seen;
}

static cell *find(uintptr_t address, uint64_t launch)
{
    if (!cells)
        cells = calloc(CELLS, sizeof(*cells));
    static uint64_t present, used;
    used = present == launch ? used : 0;
    present = launch;
    size_t at = (address * 0x9e3779b97f4a7c15u >> 40) % CELLS;
    while (cells[at].launch == launch && cells[at].address != address)
        at = (at + 1) % CELLS;
    if (cells[at].launch != launch) {
        cells[at] = (cell){.address = address, .launch = launch};
        if (++used == CELLS - 1) {
            emulated_fault("a launch touches more memory than the race detector can hold");
            abort();
        }
    }
    return &cells[at];
}

static bool ordered(const emulated_place *a, const emulated_place *b, bool shared)
{
    if (a->block != b->block)
        return shared; /* another block's shared memory is another */
    return a->thread == b->thread || a->barriers != b->barriers ||
           (a->warp == b->warp && a->warp_syncs != b->warp_syncs);
}

static void note(cell *c, const access *now, const void *address)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const access *then = &c->last[i];
        if ((then->bytes & now->bytes) && (then->write || now->write) &&
            !(then->atomic && now->atomic) && !ordered(&then->by, &now->by, c->shared)) {
            emulated_fault("race on %s memory at %p: block %u thread %u %s, block %u thread %u %s",
                           c->shared ? "shared" : "global", address, then->by.block,
                           then->by.thread, then->write ? "writes" : "reads", now->by.block,
                           now->by.thread, now->write ? "writes" : "reads");
        }
    }
    for (uint32_t i = 0; i < c->count; i++) {
        access *then = &c->last[i];
        if (memcmp(&then->by, &now->by, sizeof(now->by)) == 0 && then->write == now->write &&
            then->atomic == now->atomic) {
            then->bytes |= now->bytes;
            return;
        }
    }
    c->last[c->count < ACCESSES ? c->count++ : emulated_random(ACCESSES)] = *now;
}

static void touch(const void *address, size_t size, bool write)
{
    const emulated_place here = emulated_here();
    const bool shared = emulated_is_shared(address);
    if (here.launch == 0 || (!shared && !emulated_is_device(address, 1)))
        return;
    seen++;
    const uintptr_t first = (uintptr_t)address, end = first + size;
    for (uintptr_t word = first / 4; word * 4 < end; word++) {
        access now = {.by = here, .write = write, .atomic = atomic_now};
        for (uintptr_t i = 0; i < 4; i++)
            now.bytes |= (uint8_t)((word * 4 + i >= first && word * 4 + i < end) << i);
        cell *c = find(word, here.launch);
        c->shared = shared;
        note(c, &now, address);
    }
}

void emulated_atomic_access(const void *address, size_t size);
void emulated_atomic_access(const void *address, size_t size)
{
    atomic_now = true;
    touch(address, size, true);
    atomic_now = false;
}

#define ACCESS(name, size, write)                                                                  \
    void __tsan_##name(void *address);                                                             \
    void __tsan_##name(void *address)                                                              \
    {                                                                                              \
        touch(address, size, write);                                                               \
    }
ACCESS(read1, 1, false)
ACCESS(read2, 2, false)
ACCESS(read4, 4, false)
ACCESS(read8, 8, false)
ACCESS(read16, 16, false)
ACCESS(write1, 1, true)
ACCESS(write2, 2, true)
ACCESS(write4, 4, true)
ACCESS(write8, 8, true)
ACCESS(write16, 16, true)
ACCESS(unaligned_read2, 2, false)
ACCESS(unaligned_read4, 4, false)
ACCESS(unaligned_read8, 8, false)
ACCESS(unaligned_read16, 16, false)
ACCESS(unaligned_write2, 2, true)
ACCESS(unaligned_write4, 4, true)
ACCESS(unaligned_write8, 8, true)
ACCESS(unaligned_write16, 16, true)
ACCESS(func_entry, 0, false)

void __tsan_read_range(void *address, size_t size);
void __tsan_read_range(void *address, size_t size)
{
    touch(address, size, false);
}

void __tsan_write_range(void *address, size_t size);
void __tsan_write_range(void *address, size_t size)
{
    touch(address, size, true);
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
void __tsan_init(void);
void __tsan_init(void)
{
}
