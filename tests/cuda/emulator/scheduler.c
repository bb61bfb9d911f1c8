/* The threads of a kernel, block by block, in an order drawn from the seed.
 *
 * A thread gets a stack of its own only when it waits: threads that never do run one after another
 * on one. Which thread goes on next is drawn, so that a missing barrier shows as a wrong result. */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulator/internal.h"
#include "tests/fibers/fiber.h"

enum { MAX_THREADS = 1024, WARP = 32, SHARED_BYTES = 227 << 10 };
enum { BARRIER, SYNCWARP, SHUFFLE, BALLOT }; /* as in cuda_runtime.h */
typedef enum life { NEW, RUNNING, WAITING, READY, DONE } life;

typedef struct thread {
    life life;
    int kind;
    uint32_t line, mask, source, barriers, warp_syncs, exchanges;
    uint64_t value, result;
    fiber *fiber;
} thread;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static struct {
    const emulated_kernel *kernel;
    thread threads[MAX_THREADS + 1]; /* the last: none */
    uint32_t order[MAX_THREADS];     /* in which they begin */
    uint32_t ready[MAX_THREADS];     /* those that can go on */
    uint3 places[MAX_THREADS];       /* threadIdx of each */
    dim3 placed;                     /* the blockDim that these are of */
    uint32_t count, begun, done, at_barrier, num_ready, block, current;
    uint64_t launch;
    bool active, stopped;
} run;
static _Alignas(16) unsigned char dynamic_shared[SHARED_BYTES];
static uint64_t random_state = 1;

/* Those of kernels that are linked in; weak: there may be none. */
extern unsigned char __start_emulated_shared[] __attribute__((weak));
extern unsigned char __stop_emulated_shared[] __attribute__((weak));

void emulated_seed(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
}

uint32_t emulated_random(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) * below >> 32);
}

void *emulated_dynamic_shared(void);
void *emulated_dynamic_shared(void)
{
    return dynamic_shared;
}

unsigned emulated_lane(void);
unsigned emulated_lane(void)
{
    return run.current % WARP;
}

void emulated_atomic_access(const void *address, size_t size) __attribute__((weak)); /* race.c */
void emulated_atomic(const void *address, size_t size);
void emulated_atomic(const void *address, size_t size)
{
    if (emulated_atomic_access)
        emulated_atomic_access(address, size);
}

bool emulated_is_shared(const void *address)
{
    const unsigned char *at = address;
    return (at >= __start_emulated_shared && at < __stop_emulated_shared) ||
           (at >= dynamic_shared && at < dynamic_shared + SHARED_BYTES);
}

emulated_place emulated_here(void)
{
    const thread *self = &run.threads[run.current];
    return (emulated_place){run.active ? run.launch : 0, run.block,      run.current,
                            run.current / WARP,          self->barriers, self->warp_syncs};
}

static void enter_thread(uint32_t index)
{
    run.current = index;
    run.threads[index].life = RUNNING;
    threadIdx = run.places[index];
}

static void place_threads(void)
{
    if (memcmp(&run.placed, &blockDim, sizeof(blockDim)) == 0)
        return;
    run.placed = blockDim;
    for (uint32_t i = 0; i < run.count; i++) {
        run.places[i] =
            (uint3){i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    }
}

static void stop(const char *why, uint32_t line)
{
    if (!run.stopped)
        emulated_fault("%s, line %u, block %u, thread %u", why, line, run.block, run.current);
    run.stopped = true;
}

static void make_ready(uint32_t index)
{
    run.threads[index].life = READY;
    run.ready[run.num_ready++] = index;
}

/* Once all threads of the block are at its barrier. */
static void release_block(void)
{
    uint64_t count = 0;
    if (++run.at_barrier < run.count)
        return;
    run.at_barrier = 0;
    for (uint32_t i = 0; i < run.count; i++)
        count += run.threads[i].value;
    for (uint32_t i = 0; i < run.count; i++) {
        thread *t = &run.threads[i];
        if (t->line != run.threads[0].line)
            stop("divergent barrier: not all threads wait at this one", t->line);
        make_ready(i);
        t->result = count;
        t->barriers++;
    }
}

static void release_warp(uint32_t index)
{
    const thread *first = &run.threads[index];
    thread *warp = &run.threads[index / WARP * WARP];
    const uint32_t mask = first->mask, line = first->line;
    const uint32_t lanes = run.count - index / WARP * WARP;
    const int kind = first->kind;
    uint64_t ballot = 0;
    for (uint32_t i = 0; i < WARP && i < lanes; i++) {
        const thread *t = &warp[i];
        if (!(mask >> i & 1))
            continue;
        if (t->life != WAITING || t->kind != kind || t->line != line)
            return;
        if (t->mask != mask)
            stop("the lanes of a warp name different masks", line);
        ballot |= (t->value & 1) << i;
    }
    for (uint32_t i = 0; i < WARP && i < lanes; i++) {
        thread *t = &warp[i];
        if (mask >> i & 1) {
            if (kind == SHUFFLE && !(mask >> t->source & 1))
                stop("a shuffle reads a lane that is not in its mask", line);
            make_ready(index / WARP * WARP + i);
            t->result = kind == SHUFFLE ? warp[t->source].value : ballot;
            t->warp_syncs += kind == SYNCWARP;
        }
    }
}

static void work(void);

/* A thread that can go on, drawn; there is one. */
static uint32_t take_ready(void)
{
    const uint32_t at = emulated_random(run.num_ready), index = run.ready[at];
    run.ready[at] = run.ready[--run.num_ready];
    return index;
}

/* The stack of who goes on: a thread that can, or those that have not begun. NULL: nobody can. */
static fiber *choose(void)
{
    const bool fresh = run.begun < run.count && (run.num_ready == 0 || emulated_random(2) == 0);
    if (run.stopped || (!fresh && run.num_ready == 0))
        return NULL;
    run.current = fresh ? MAX_THREADS : take_ready();
    fiber *next = fresh ? fiber_take(work, FIBER_SMALL_STACK) : run.threads[run.current].fiber;
    run.threads[run.current].fiber = NULL;
    return next;
}

unsigned long long emulated_meet(int kind, unsigned line, unsigned mask, unsigned long long value,
                                 unsigned source);
unsigned long long emulated_meet(int kind, unsigned line, unsigned mask, unsigned long long value,
                                 unsigned source)
{
    const uint32_t index = run.current;
    thread *self = &run.threads[index];
    self->life = WAITING;
    self->kind = kind;
    self->line = line;
    self->mask = mask;
    self->value = value;
    self->source = source;
    if (kind == BARRIER)
        release_block();
    else if (!(mask >> index % WARP & 1))
        stop("a lane is not in the mask that it names", line);
    else
        release_warp(index);
    self->fiber = fiber_self();
    fiber *next = choose();
    if (next != fiber_self())
        fiber_go(next);
    enter_thread(index);
    return self->result;
}

typedef unsigned emulated_words[6]; /* as in cuda_runtime.h */
const emulated_words *emulated_exchange(unsigned line, const emulated_words mine);
/* Two boards for each warp, in turn: a lane that goes on to its next exchange cannot come to the
 * one behind it before all have read this. */
const emulated_words *emulated_exchange(unsigned line, const emulated_words mine)
{
    static emulated_words boards[2][MAX_THREADS];
    thread *self = &run.threads[run.current];
    const uint32_t index = run.current;
    emulated_words *board = boards[self->exchanges++ % 2];
    memcpy(board[index], mine, sizeof(emulated_words));
    (void)emulated_meet(BALLOT, line, ~0u, 0, 0);
    return board + index / WARP * WARP;
}

/* On a fiber: runs threads that have not begun, until one of them waits (then this is its stack).
 */
static void work(void)
{
    while (run.begun < run.count && !run.stopped) {
        const uint32_t index = run.order[run.begun++];
        enter_thread(index);
        run.kernel->body(run.kernel->closure);
        run.threads[run.current].life = DONE;
        run.done++;
        if (emulated_random(8) == 0)
            break;
    }
    run.current = MAX_THREADS;
    fiber_go(NULL);
}

static void run_threads(void)
{
    while (run.done < run.count && !run.stopped) {
        fiber *next = choose();
        if (!next) {
            uint32_t waits = 0;
            while (run.threads[waits].life != WAITING)
                waits++;
            run.current = waits;
            stop("divergent barrier, vote or shuffle: others never come to it",
                 run.threads[waits].line);
            break;
        }
        /* Threads that wait go to one another. */
        next = fiber_resume(next);
        if (run.current == MAX_THREADS)
            fiber_release(next);
    }
    for (uint32_t i = 0; i < run.count; i++) {
        if (run.threads[i].fiber) { /* stopped: what is on that stack is abandoned */
            fiber_release(run.threads[i].fiber);
        }
    }
}

static void run_block(uint32_t block)
{
    run.block = block;
    run.begun = run.done = run.at_barrier = run.num_ready = 0;
    blockIdx =
        (uint3){block % gridDim.x, block / gridDim.x % gridDim.y, block / (gridDim.x * gridDim.y)};
    memset(run.threads, 0, run.count * sizeof(run.threads[0]));
    for (uint32_t i = 0; i < run.count; i++) {
        const uint32_t other = emulated_random(i + 1);
        run.order[i] = run.order[other];
        run.order[other] = i;
    }
    if (__start_emulated_shared) { /* not 0: a GPU's shared memory is never clean */
        memset(__start_emulated_shared, 0xA5,
               (size_t)(__stop_emulated_shared - __start_emulated_shared));
    }
    memset(dynamic_shared, 0xA5, run.kernel->shared_bytes);
    run_threads();
}

bool emulated_run(const emulated_kernel *kernel)
{
    run.kernel = kernel;
    run.count = kernel->block.x * kernel->block.y * kernel->block.z;
    run.launch++;
    run.active = true;
    run.stopped = false;
    blockDim = kernel->block;
    gridDim = kernel->grid;
    place_threads();
    const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
    /* All blocks once, from a drawn one on, up or down. */
    const uint32_t first = emulated_random(blocks), down = emulated_random(2);
    for (uint32_t i = 0; i < blocks && !run.stopped; i++)
        run_block((first + (down ? blocks - i : i)) % blocks);
    run.active = false;
    return !run.stopped;
}
