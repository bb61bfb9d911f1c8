/* Threads of the product as fibers: the linker's stand-ins for POSIX threads, clocks, sleep and
 * randomness (threads.c), with what they need of the scheduler. */
#ifndef FEDGE_TESTS_WORLD_THREADS_H
#define FEDGE_TESTS_WORLD_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* A number that no other thread of this world ever has, 0: too many threads. */
uint64_t world_spawn_thread(uint32_t node, void (*entry)(void *argument), void *argument,
                            const char *name);
bool world_is_alive(uint64_t thread);
uint64_t world_thread(void); /* the running one; 0 on the host's stack */
const char *world_thread_name(void);
void world_name_thread(const char *name); /* not copied */
void world_pass(uint64_t ns);             /* time goes on while the fiber runs */
void world_threads_drop(uint32_t node);   /* the node was killed */

/* Between begin and end no other fiber runs, and memory belongs to the world: for what a process
 * does once. May be nested. */
void world_atomic(bool begins);

#endif
