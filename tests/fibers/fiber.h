/* Fibers: stacks between which one thread of the system switches. The sanitizers are told of each
 * switch. */
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

/* A fiber that runs [entry] at the next switch to it; entry never returns but by fiber_go. Comes
 * from a pool, never NULL. */
fiber *fiber_take(void (*entry)(void), size_t stack_size);
/* Returns it to the pool, wherever it stopped: not the one that runs. */
void fiber_release(fiber *self);
/* Runs [to] from the host's stack, until a fiber goes back there; returns that one. */
fiber *fiber_resume(fiber *to);
void fiber_go(fiber *to); /* from the running one; NULL: to the host's stack */
fiber *fiber_self(void);  /* the running one */

#endif
