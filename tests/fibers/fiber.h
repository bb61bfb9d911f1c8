/* Fibers: stacks between which one OS thread switches. The sanitizers are informed of each switch.
 */
#ifndef FEDGE_TESTS_FIBERS_FIBER_H
#define FEDGE_TESTS_FIBERS_FIBER_H

#include <stddef.h>

/* Enough for code of a few kilobytes of stack, with the address sanitizer's additions. */
#if defined(__SANITIZE_ADDRESS__)
#define FIBER_SMALL_STACK ((size_t)256 << 10)
#else
#define FIBER_SMALL_STACK ((size_t)64 << 10)
#endif

typedef struct fiber fiber;

/* A fiber from a pool, which runs [entry] at the next switch to it. [entry] never returns but calls
 * fiber_go. Never NULL. */
fiber *fiber_take(void (*entry)(void), size_t stack_size);
/* Returns a fiber that is not running to the pool, wherever it stopped. */
void fiber_release(fiber *self);
/* Runs [to] from the host's stack until some fiber switches back; returns that fiber. */
fiber *fiber_resume(fiber *to);
void fiber_go(fiber *to); /* switches from the running fiber to [to]; NULL: to the host's stack */
fiber *fiber_self(void);  /* the running fiber */

#endif
