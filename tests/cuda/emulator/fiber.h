/* Fibers: stacks between which one host thread switches. */
#ifndef FEDGE_EMULATOR_FIBER_H
#define FEDGE_EMULATOR_FIBER_H

typedef struct emulated_fiber emulated_fiber;

/* A fiber that runs [entry] at the next switch to it; entry never returns but by
 * emulated_fiber_back. From a pool; NULL never. */
emulated_fiber *emulated_fiber_take(void (*entry)(void));
void emulated_fiber_release(emulated_fiber *fiber); /* into the pool: not the one that runs */
void emulated_fiber_resume(emulated_fiber *fiber);  /* from the host's stack, until it comes back */
void emulated_fiber_back(void);                     /* from the running fiber to the host's stack */

#endif
