/* Fibers: stacks between which one host thread switches. */
#ifndef FEDGE_EMULATOR_FIBER_H
#define FEDGE_EMULATOR_FIBER_H

typedef struct emulated_fiber emulated_fiber;

/* A fiber that runs [entry] at the next switch to it; entry never returns but by
 * emulated_fiber_go. From a pool; NULL never. */
emulated_fiber *emulated_fiber_take(void (*entry)(void));
void emulated_fiber_release(emulated_fiber *fiber); /* into the pool: not the one that runs */
/* From the host's stack, until one comes back: returns that. */
emulated_fiber *emulated_fiber_resume(emulated_fiber *fiber);
void emulated_fiber_go(emulated_fiber *fiber); /* from the running one; NULL: to the host's stack */
emulated_fiber *emulated_fiber_self(void);     /* the running one */

#endif
