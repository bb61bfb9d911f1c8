/* Threads of the product as fibers: replacements of POSIX threads, clocks, sleep and randomness
 * (threads.c), and the functions of the scheduler that only they need. */
#ifndef FEDGE_TESTS_WORLD_THREADS_H
#define FEDGE_TESTS_WORLD_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* Starts a thread and returns its number, which no other thread of this world has; 0: there are too
 * many threads. */
uint64_t world_spawn_thread(uint32_t node, void (*entry)(void *argument), void *argument,
                            const char *name);
bool world_is_alive(uint64_t thread);
uint64_t world_thread(void); /* number of the running thread; 0 on the host's stack */
const char *world_thread_name(void);
void world_name_thread(const char *name); /* not copied */
void world_pass(uint64_t ns);             /* lets time pass while the fiber runs */
void world_threads_drop(uint32_t node);   /* the node was killed */

/* Between begin and end no other fiber runs, and allocated memory belongs to the world. For what a
 * process does once. Calls may be nested. */
void world_atomic(bool begins);

#endif
