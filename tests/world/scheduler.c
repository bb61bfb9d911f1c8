#include "tests/world/scheduler.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fibers/fiber.h"
#include "tests/world/threads.h"
#include "tests/world/trace.h"

/* The product's deepest calls use 200 KB of stack, which includes buffers of whole messages. */
#define STACK_BYTES ((size_t)512 << 10)
enum { MAX_STEP_NS = 20000, MAX_DROPS = 4 };

typedef enum strand_state { STRAND_FREE, STRAND_READY, STRAND_WAITING } strand_state;

/* One thread of a node. */
typedef struct strand {
    strand_state state;
    uint32_t node;
    uint32_t serial; /* never reused: tells a thread from an earlier one in the same slot */
    fiber *fiber;
    void (*entry)(void *argument);
    void *argument;
    const char *name;
    uint64_t until_ns; /* STRAND_WAITING: end of the wait */
    bool woken;
    bool woken_held; /* woken while its node stood still */
    int saved_errno;
} strand;

static struct {
    strand strands[WORLD_MAX_FIBERS];
    /* Arrays over all strands, as every step searches them. */
    uint64_t ready[WORLD_MAX_FIBERS / 64];   /* a bit for each: STRAND_READY */
    const void *addresses[WORLD_MAX_FIBERS]; /* STRAND_WAITING: address of the wait, or NULL */
    uint32_t num_used;                       /* strands beyond are free */
    uint32_t num_ready;
    uint32_t num_of_node[WORLD_MAX_NODES];
    uint64_t num_ends; /* how many times a node's last strand ended */
    strand *running;   /* NULL: the host's stack */
    strand *dying;     /* its node is to be killed */
    uint32_t next_serial;
    uint32_t yield_bits; /* one of 2^yield_bits scheduling points switches fibers */
    uint64_t now_ns;
    uint64_t due_ns; /* no strand waits for an earlier moment */
    uint64_t monotonic_ns[WORLD_MAX_NODES], unix_ns[WORLD_MAX_NODES];
    uint64_t held_ns[WORLD_MAX_NODES]; /* the node stands still until then */
    fedge_rng draw;
    uint32_t atomic_depth; /* > 0: no scheduling point switches fibers */
    char failure[1024];
    bool failed;
} world;

/* Registered once for all worlds. */
static void (*drops[MAX_DROPS])(uint32_t node);
static uint32_t num_drops;

/* ---- the world's own view -------------------------------------------------------------------- */

void world_scheduler_begin(uint64_t seed)
{
    for (uint32_t i = 0; i < world.num_used; i++) {
        if (world.strands[i].state != STRAND_FREE)
            abort();
    }
    memset(&world, 0, sizeof(world));
    world.draw = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 1, 0, 0);
    world.yield_bits = fedge_rng_below(&world.draw, 5);
    world.due_ns = WORLD_NEVER;
    world.next_serial = 1;
    world_trace_begin();
}

void world_scheduler_end(void)
{
    for (uint32_t node = 0; node < WORLD_MAX_NODES; node++) {
        if (world_num_fibers(node) > 0)
            world_kill(node);
    }
}

fedge_rng *world_draw(void)
{
    return &world.draw;
}

uint64_t world_now_ns(void)
{
    return world.now_ns;
}

void world_set_clocks(uint32_t node, uint64_t monotonic_ns, uint64_t unix_ns)
{
    world.monotonic_ns[node] = monotonic_ns;
    world.unix_ns[node] = unix_ns;
}

uint64_t world_monotonic_ns(void)
{
    return world.now_ns + world.monotonic_ns[world_node()];
}

uint64_t world_unix_ns(void)
{
    return world.now_ns + world.unix_ns[world_node()];
}

void world_fail(const char *format, ...)
{
    if (world.failed)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world.failure, sizeof(world.failure), format, arguments);
    va_end(arguments);
    world.failed = true;
    world_trace("FAILED: %s", world.failure);
}

const char *world_failure(void)
{
    return world.failed ? world.failure : NULL;
}

/* ---- strands --------------------------------------------------------------------------------- */

static void set_state(strand *self, strand_state state)
{
    const size_t index = (size_t)(self - world.strands);
    const uint64_t bit = (uint64_t)1 << index % 64;
    world.num_ready -= self->state == STRAND_READY;
    world.num_ready += state == STRAND_READY;
    if (state == STRAND_READY)
        world.ready[index / 64] |= bit;
    else
        world.ready[index / 64] &= ~bit;
    world.addresses[index] = NULL;
    self->state = state;
}

static void free_strand(strand *self)
{
    set_state(self, STRAND_FREE);
    if (--world.num_of_node[self->node] == 0)
        world.num_ends++;
    fiber_release(self->fiber);
    self->fiber = NULL;
}

/* The first function of each fiber: runs its thread. */
static void live(void)
{
    strand *self = world.running;
    self->entry(self->argument);
    self->entry = NULL;
    fiber_go(NULL);
}

uint64_t world_spawn_thread(uint32_t node, void (*entry)(void *argument), void *argument,
                            const char *name)
{
    uint32_t i = 0;
    while (i < world.num_used && world.strands[i].state != STRAND_FREE)
        i++;
    if (i == WORLD_MAX_FIBERS)
        return 0;
    world.num_used += i == world.num_used;
    strand *self = &world.strands[i];
    *self = (strand){.node = node,
                     .serial = world.next_serial++,
                     .fiber = fiber_take(live, STACK_BYTES),
                     .entry = entry,
                     .argument = argument,
                     .name = name};
    set_state(self, STRAND_READY);
    world.num_of_node[node]++;
    return (uint64_t)self->serial << 16 | i;
}

void world_spawn(uint32_t node, void (*entry)(void *argument), void *argument, const char *name)
{
    if (world_spawn_thread(node, entry, argument, name) == 0) {
        fprintf(stderr, "world: more than %d threads\n", WORLD_MAX_FIBERS);
        abort();
    }
}

bool world_is_alive(uint64_t thread)
{
    const strand *self = &world.strands[thread & 0xffff];
    return self->state != STRAND_FREE && self->serial == (uint32_t)(thread >> 16);
}

uint64_t world_thread(void)
{
    const strand *self = world.running;
    return self ? (uint64_t)self->serial << 16 | (uint64_t)(self - world.strands) : 0;
}

uint32_t world_node(void)
{
    return world.running && world.atomic_depth == 0 ? world.running->node : WORLD_ITSELF;
}

const char *world_thread_name(void)
{
    return world.running ? world.running->name : "world";
}

void world_name_thread(const char *name)
{
    if (world.running)
        world.running->name = name;
}

void world_pass(uint64_t ns)
{
    world.now_ns += ns;
}

void world_atomic(bool begins)
{
    world.atomic_depth = begins ? world.atomic_depth + 1 : world.atomic_depth - 1;
}

uint32_t world_num_fibers(uint32_t node)
{
    return world.num_of_node[node];
}

uint64_t world_num_ends(void)
{
    return world.num_ends;
}

void world_at_kill(void (*drop)(uint32_t node))
{
    if (num_drops == MAX_DROPS)
        abort();
    drops[num_drops++] = drop;
}

void world_kill(uint32_t node)
{
    if (world.running)
        abort();
    for (uint32_t i = 0; i < world.num_used; i++) {
        if (world.strands[i].state != STRAND_FREE && world.strands[i].node == node)
            free_strand(&world.strands[i]);
    }
    world.held_ns[node] = 0;
    world_threads_drop(node);
    for (uint32_t i = 0; i < num_drops; i++)
        drops[i](node);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Not ready before the node goes on. */
static void hold(strand *self, bool woken)
{
    const uint64_t until_ns = world.held_ns[self->node];
    set_state(self, STRAND_WAITING);
    self->until_ns = until_ns;
    self->woken_held = self->woken_held || woken;
    world.due_ns = until_ns < world.due_ns ? until_ns : world.due_ns;
}

static void make_ready(strand *self, bool woken)
{
    if (world.now_ns < world.held_ns[self->node]) {
        hold(self, woken);
        return;
    }
    set_state(self, STRAND_READY);
    self->woken = woken || self->woken_held;
    self->woken_held = false;
}

void world_hold(uint32_t node, uint64_t until_ns)
{
    world.held_ns[node] = until_ns;
    for (uint32_t i = 0; i < world.num_used; i++) {
        strand *self = &world.strands[i];
        if (self->state == STRAND_READY && self->node == node)
            hold(self, self->woken);
    }
}

/* Makes strands ready whose wait has ended. */
static void pass_time(void)
{
    if (world.now_ns < world.due_ns)
        return;
    world.due_ns = WORLD_NEVER;
    for (uint32_t i = 0; i < world.num_used; i++) {
        strand *self = &world.strands[i];
        if (self->state != STRAND_WAITING)
            continue;
        if (self->until_ns <= world.now_ns)
            make_ready(self, false);
        else if (self->until_ns < world.due_ns)
            world.due_ns = self->until_ns;
    }
}

static strand *draw_ready(void)
{
    uint32_t left = world.num_ready == 1 ? 0 : fedge_rng_below(&world.draw, world.num_ready);
    for (uint32_t word = 0; word < WORLD_MAX_FIBERS / 64; word++) {
        for (uint64_t bits = world.ready[word]; bits != 0; bits &= bits - 1) {
            if (left-- == 0)
                return &world.strands[64 * word + (uint32_t)__builtin_ctzll(bits)];
        }
    }
    abort();
}

bool world_step(uint64_t until_ns)
{
    pass_time();
    if (world.num_ready == 0) {
        const uint64_t due_ns = world.due_ns;
        if (due_ns == WORLD_NEVER && until_ns == WORLD_NEVER)
            return false;
        if (due_ns > until_ns) {
            world.now_ns = until_ns > world.now_ns ? until_ns : world.now_ns;
            return false;
        }
        world.now_ns = due_ns > world.now_ns ? due_ns : world.now_ns;
        pass_time();
        /* The time may be that of a strand that was already woken. */
        if (world.num_ready == 0)
            return true;
    }
    strand *self = draw_ready();
    world.running = self;
    errno = self->saved_errno;
    (void)fiber_resume(self->fiber);
    self->saved_errno = errno;
    world.running = NULL;
    if (!self->entry)
        free_strand(self);
    world.now_ns += 1 + fedge_rng_below(&world.draw, MAX_STEP_NS);
    if (world.dying) {
        const uint32_t node = world.dying->node;
        world.dying = NULL;
        world_kill(node);
    }
    return true;
}

/* ---- on a fiber ------------------------------------------------------------------------------ */

static bool may_switch(void)
{
    return world.running && world.atomic_depth == 0;
}

void world_yield(void)
{
    if (may_switch() &&
        (world.yield_bits == 0 || fedge_rng_below(&world.draw, 1u << world.yield_bits) == 0))
        fiber_go(NULL);
}

bool world_wait(const void *address, uint64_t ns)
{
    strand *self = world.running;
    if (!may_switch()) {
        fprintf(stderr, "world: %s waits where it must not\n", world_thread_name());
        abort();
    }
    set_state(self, STRAND_WAITING);
    world.addresses[self - world.strands] = address;
    self->until_ns = ns > WORLD_NEVER - world.now_ns ? WORLD_NEVER : world.now_ns + ns;
    if (self->until_ns < world.due_ns)
        world.due_ns = self->until_ns;
    fiber_go(NULL);
    return self->woken;
}

void world_sleep(uint64_t ns)
{
    if (may_switch())
        (void)world_wait(NULL, ns);
}

void world_wake_all(const void *address)
{
    for (uint32_t i = 0; address && i < world.num_used; i++) {
        if (world.addresses[i] == address)
            make_ready(&world.strands[i], true);
    }
}

void world_wake_one(const void *address)
{
    strand *waiting[WORLD_MAX_FIBERS];
    uint32_t count = 0;
    for (uint32_t i = 0; address && i < world.num_used; i++) {
        if (world.addresses[i] == address)
            waiting[count++] = &world.strands[i];
    }
    if (count > 0)
        make_ready(waiting[count == 1 ? 0 : fedge_rng_below(&world.draw, count)], true);
}

void world_die(void)
{
    world.dying = world.running;
    fiber_go(NULL);
    abort();
}
