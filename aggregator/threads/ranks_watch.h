/* Detects ranks that hang.
 *
 * Open MPI ends all ranks when a process ends, or when a machine stops answering that of mpirun. It
 * does not notice a hanging process, or two machines that have lost only each other, and its calls
 * block without a limit. Therefore the thread that talks to other ranks tells its watch when a
 * blocking call begins and ends, and from which ranks it has received something; every rank sends
 * something each second. The watch's thread reports when either takes too long, which ends the
 * process.
 */
#ifndef FEDGE_AGGREGATOR_THREADS_RANKS_WATCH_H
#define FEDGE_AGGREGATOR_THREADS_RANKS_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_RANKS_WATCH_MAX 1024u /* ranks with higher numbers are not watched */
#define FEDGE_RANKS_SILENCE_MS                                                                     \
    90000u /* longer than NCCL's limit, whose message is more precise                              \
            */
#define FEDGE_RANKS_SILENCE_VARIABLE                                                               \
    "FEDGE_RANK_SILENCE_S" /* environment variable that overrides it on all ranks */
/* A slow network needs longer for large transfers, but a slower one counts as hanging. */
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
    uint64_t heard_ms[FEDGE_RANKS_WATCH_MAX]; /* 0: the rank is not watched */
} fedge_ranks_watch;

/* Time limit in ms of calls that move [bytes]. */
uint64_t fedge_ranks_silence_ms(uint64_t bytes);

/* Starts the thread, which calls [stuck] with FEDGE_TIMEOUT, once or several times.
 * FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_ranks_watch_init(fedge_ranks_watch *watch, uint64_t limit_ms,
                                                   fedge_ranks_stuck_fn stuck, void *user,
                                                   fedge_error *err);
void fedge_ranks_watch_fini(fedge_ranks_watch *watch); /* a struct of zeros is allowed */

/* Marks the begin and end of a collective call; [doing] is not copied. Messages are not read during
 * the call. */
void fedge_ranks_watch_begin(fedge_ranks_watch *watch, const char *doing);
void fedge_ranks_watch_end(fedge_ranks_watch *watch);

/* The rank has sent something, or is watched from now on. */
void fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank);
/* Stops watching the rank. */
void fedge_ranks_watch_forget(fedge_ranks_watch *watch, uint32_t rank);
/* Messages are not read for now, so ranks count as alive. */
void fedge_ranks_watch_pause(fedge_ranks_watch *watch);

#endif
