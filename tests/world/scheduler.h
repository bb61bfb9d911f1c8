/* The threads of all nodes as fibers of one OS thread, in virtual time.
 *
 * A node is a process of the simulated world: node 0 is the world itself, which nothing kills, node
 * 1 the server, and the others are clients, or further ranks of the server. Each thread of the
 * product becomes a fiber of the node that created it: the linker replaces pthread_create and
 * everything that threads wait with.
 * Exactly one fiber runs, and only at the calls below may another one go on: the seed draws which.
 * One seed is therefore one execution, step by step.
 *
 * Time stands still while a fiber runs. Each step takes a drawn number of microseconds, and when no
 * fiber can go on, time jumps to the earliest moment that one waits for.
 */
#ifndef FEDGE_TESTS_WORLD_SCHEDULER_H
#define FEDGE_TESTS_WORLD_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"

enum {
    WORLD_ITSELF = 0,
    WORLD_SERVER = 1,
    WORLD_FIRST_CLIENT = 2,
    WORLD_FIRST_RANK = 24, /* ranks of the server from 1 on: ranks.h */
    WORLD_MAX_NODES = 32,
    WORLD_MAX_FIBERS = 256
};
#define WORLD_NEVER UINT64_MAX

/* ---- for the world, on the host's stack ------------------------------------------------------ */

/* Starts at time 0 without fibers. */
void world_scheduler_begin(uint64_t seed);
void world_scheduler_end(void); /* kills all nodes */

/* Starts a fiber of [node]. [name] is not copied. */
void world_spawn(uint32_t node, void (*entry)(void *argument), void *argument, const char *name);

/* Runs one fiber up to its next scheduling point, after a jump in time where none can run. False if
 * no fiber can ever run again, or if time would jump beyond [until_ns]: then it is [until_ns]. */
bool world_step(uint64_t until_ns);

/* The node's process ends at once, as by SIGKILL: its fibers, heap and descriptors are gone, and
 * its locks are free. Not while one of its fibers runs. */
void world_kill(uint32_t node);
uint32_t world_num_fibers(uint32_t node);
/* How many times the last fiber of a node has ended: where this stays, no process has ended. */
uint64_t world_num_ends(void);

/* Called once for each node that is killed; for the heap and the disk. */
void world_at_kill(void (*drop)(uint32_t node));

/* ---- clocks ---------------------------------------------------------------------------------- */

uint64_t world_now_ns(void); /* since the beginning, on no node's clock */
/* What the node's clocks show is world_now_ns() plus these. Both are 0 at first. The monotonic one
 * begins anew at a boot. */
void world_set_clocks(uint32_t node, uint64_t monotonic_ns, uint64_t unix_ns);
uint64_t world_monotonic_ns(void); /* of the running fiber's node */
uint64_t world_unix_ns(void);

/* ---- for the stand-ins of system calls, on a fiber ------------------------------------------- */

uint32_t world_node(void); /* node of the running fiber; WORLD_ITSELF on the host's stack */

/* A scheduling point: another fiber may run before this returns. Does nothing on the host's stack.
 */
void world_yield(void);
void world_sleep(uint64_t ns);
/* Waits until world_wake_all or world_wake_one for the same address, or for [ns] (WORLD_NEVER: no
 * limit). True: it was woken. May also return true without a reason, as POSIX allows: the caller
 * looks again. */
bool world_wait(const void *address, uint64_t ns);
/* One of the waiting fibers, drawn by the seed, or all of them can run again. */
void world_wake_one(const void *address);
void world_wake_all(const void *address);
/* The running fiber's node is killed at this point; does not return. */
void world_die(void) __attribute__((noreturn));

/* The random stream for everything that is not drawn in advance. */
fedge_rng *world_draw(void);

/* ---- findings -------------------------------------------------------------------------------- */

/* Notes the first failure of this world; the run of it ends soon after. printf format. */
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *world_failure(void); /* NULL: none */
/* One line of the world's story; node and virtual time stand before it. Cheap where nobody reads
 * it: every line goes into the world's hash, and is printed with --trace. */
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
