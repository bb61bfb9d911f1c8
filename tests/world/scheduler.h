/* A scheduler that runs the threads of all nodes as fibers of one OS thread, in virtual time.
 *
 * A node is a process of the simulated world. Node 0 is the world itself, which nothing kills; node
 * 1 is the server; the others are clients, or further ranks of the server. Each thread of the
 * product becomes a fiber of the node that created it: the linker replaces pthread_create and all
 * functions with which threads wait. Exactly one fiber runs. Another fiber may continue only at the
 * calls below, and the seed draws which. So one seed is one execution, step by step.
 *
 * Time stands still while a fiber runs. Each step takes a random number of nanoseconds. When no
 * fiber can continue, time jumps to the earliest time for which one waits. */
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
    WORLD_FIRST_RANK = 24, /* the server's rank 1: ranks.h */
    WORLD_MAX_NODES = 32,
    WORLD_MAX_FIBERS = 256
};
#define WORLD_NEVER UINT64_MAX

/* ---- for the world, on the host's stack ------------------------------------------------------ */

/* Begins a world at time 0, without fibers. */
void world_scheduler_begin(uint64_t seed);
void world_scheduler_end(void); /* kills all nodes */

/* Starts a fiber of [node]. [name] is not copied. */
void world_spawn(uint32_t node, void (*entry)(void *argument), void *argument, const char *name);

/* Runs one fiber up to its next scheduling point; if none can run, time jumps first. False: no
 * fiber can ever run again, or time would jump beyond [until_ns], which is the time now. */
bool world_step(uint64_t until_ns);

/* Ends the node's process at once, as SIGKILL does: its fibers, heap and descriptors are gone, and
 * its locks are free. None of its fibers may be running. */
void world_kill(uint32_t node);
uint32_t world_num_fibers(uint32_t node);
/* The number of times that the last fiber of some node has ended. While it is the same, no process
 * has ended. */
uint64_t world_num_ends(void);
/* Stops the node's process until [until_ns], as SIGSTOP does. Its clocks go on, and a kill ends the
 * stop. None of its fibers may be running. */
void world_hold(uint32_t node, uint64_t until_ns);

/* Registers a function that is called once for each killed node, to free its heap and close its
 * files. */
void world_at_kill(void (*drop)(uint32_t node));

/* ---- clocks ---------------------------------------------------------------------------------- */

uint64_t world_now_ns(void); /* time since the beginning of the world */
/* Sets the offsets of the node's clocks from world_now_ns(), which are 0 at first. The monotonic
 * clock restarts at a boot. */
void world_set_clocks(uint32_t node, uint64_t monotonic_ns, uint64_t unix_ns);
uint64_t world_monotonic_ns(void); /* clock of the running fiber's node */
uint64_t world_unix_ns(void);

/* ---- for the stand-ins of system calls, on a fiber ------------------------------------------- */

uint32_t world_node(void); /* node of the running fiber; WORLD_ITSELF on the host's stack */

/* A scheduling point: another fiber may run before this returns. Does nothing on the host's stack.
 */
void world_yield(void);
void world_sleep(uint64_t ns);
/* Waits for world_wake_all or world_wake_one with the same address, or for [ns] (WORLD_NEVER: no
 * limit). True: it was woken. As in POSIX it may also return true for no reason, so the caller
 * checks its condition again. */
bool world_wait(const void *address, uint64_t ns);
/* Wakes one of the waiting fibers, which the seed draws, or all of them. */
void world_wake_one(const void *address);
void world_wake_all(const void *address);
/* Kills the running fiber's node at this point. Does not return. */
void world_die(void) __attribute__((noreturn));

/* The random stream for all that is not drawn in advance. */
fedge_rng *world_draw(void);

/* ---- findings -------------------------------------------------------------------------------- */

/* Records the first failure of this world, which ends soon afterwards. printf format. */
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *world_failure(void); /* NULL: none */
/* Adds a line to the world's trace, after the node and the virtual time. All lines enter the
 * world's hash; --trace prints them. Without --trace the line is not formatted. */
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
