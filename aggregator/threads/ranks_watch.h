/* A watch on ranks that say nothing any more.
 *
 * Open MPI ends all ranks when a process ends, or when a machine is silent towards that of mpirun.
 * It does not notice a process that hangs, nor two machines that have lost only each other, and its
 * calls wait without a limit. So the thread that speaks to the other ranks tells its watch when it
 * begins and ends a call in which it waits for them, and from whom it has heard; every rank says
 * something each second. A thread of the watch tells when either has taken too long. That is for
 * good: it ends the process.
 */
#ifndef FEDGE_AGGREGATOR_THREADS_RANKS_WATCH_H
#define FEDGE_AGGREGATOR_THREADS_RANKS_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_RANKS_WATCH_MAX 1024u   /* ranks with higher numbers are not watched */
#define FEDGE_RANKS_SILENCE_MS 90000u /* over NCCL's limit, which says more */
#define FEDGE_RANKS_SILENCE_VARIABLE                                                               \
    "FEDGE_RANK_SILENCE_S" /* environment variable that overrides it on all ranks */
/* A slow network may take longer for many bytes; slower than this it counts as none. */
#define FEDGE_RANKS_LEAST_BYTES_PER_MS 10000u

typedef void (*fedge_ranks_stuck_fn)(void *user, const fedge_error *err);

typedef struct fedge_ranks_watch {
    fedge_ranks_stuck_fn stuck;
    void *user;
    uint64_t limit_ms;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the members below */
    pthread_cond_t changed;
    bool runs, ends;
    const char *doing;                        /* the collective call in progress; NULL: none */
    uint64_t since_ms;                        /* start of that call */
    uint64_t heard_ms[FEDGE_RANKS_WATCH_MAX]; /* 0: nothing is expected of the rank */
} fedge_ranks_watch;

/* What holds for calls that move [bytes], in ms. */
uint64_t fedge_ranks_silence_ms(uint64_t bytes);

/* Starts the thread, which calls [stuck] with FEDGE_TIMEOUT, once or more often. FEDGE_NO_MEMORY.
 */
FEDGE_MUST_USE fedge_status fedge_ranks_watch_init(fedge_ranks_watch *watch, uint64_t limit_ms,
                                                   fedge_ranks_stuck_fn stuck, void *user,
                                                   fedge_error *err);
void fedge_ranks_watch_fini(fedge_ranks_watch *watch); /* all zero is fine */

/* Around a call of all ranks; the text is kept. What they say meanwhile cannot be read. */
void fedge_ranks_watch_begin(fedge_ranks_watch *watch, const char *doing);
void fedge_ranks_watch_end(fedge_ranks_watch *watch);

/* Something has come from the rank, or is expected of it from now on. */
void fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank);
/* It says nothing more. */
void fedge_ranks_watch_forget(fedge_ranks_watch *watch, uint32_t rank);
/* Nothing is read for now: what is there counts as heard. */
void fedge_ranks_watch_pause(fedge_ranks_watch *watch);

#endif
