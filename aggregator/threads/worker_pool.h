/* Worker pools: threads with a queue each.
 *
 *   post        a task for one worker, which carries out its tasks in the order in which they came.
 *               Tasks that must stay in order go to the same worker.
 *   begin, end  one call on every worker, each behind what was posted to it before: work that all
 *               share, of which the caller may do a part in between; or a barrier.
 *
 * The ingest's workers, the round finalizer, the checkpoint writer, a robust rule's helpers, the
 * simulator's trainers and the runs of a sweep are such pools. These threads are none:
 *   the engine's       a loop with a clock of its own, which is woken for messages and carries out
 *                      no tasks (run/engine_thread.h);
 *   the network's      their library's loops;
 *   between ranks      it waits for MPI's messages (cluster/ranks.c);
 *   the watchers of GPUs and of ranks  they sleep (edge/train/cuda/gpu.h,
 *                      ranks_watch.h);
 *   a simulation's beats  it waits for MPI's messages (simulate/run/beats.h);
 *   a client's worker  it keeps one job and drops the one before (client/worker.h), on devices that
 *                      have no use for more.
 */
#ifndef FEDGE_AGGREGATOR_THREADS_WORKER_POOL_H
#define FEDGE_AGGREGATOR_THREADS_WORKER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* A task begins with this; it is the poster's, and free to be posted again once [run] is called. */
typedef struct fedge_work {
    struct fedge_work *next;
    void (*run)(void *user, uint32_t worker, struct fedge_work *work);
} fedge_work;

typedef struct fedge_worker_pool_config {
    const char *name;   /* of a worker, for messages: "ingest worker" */
    const char *thread; /* as the system shows it (fedge_os_name_thread) */
    const char *advice; /* NULL, or what helps when one cannot start: "use fewer --threads" */
    uint32_t num_workers;
    bool fewer_will_do; /* start those that the system has room for */
    size_t stack_size;  /* bytes; 0: the system's */
    /* How long a worker without a task, or who waits for all of them, looks for the end of that
     * before it sleeps (spin_backoff.h); 0: not at all. */
    uint64_t spin_ns;
    void *user; /* for run and between */
    /* NULL, or what a worker asks before each task, and before it sleeps. [more]: there is a task.
     * True: it has done something, and is to be asked again. */
    bool (*between)(void *user, uint32_t worker, bool more);
} fedge_worker_pool_config;

typedef struct fedge_worker_pool fedge_worker_pool;

/* FEDGE_NO_MEMORY, or why a thread cannot be started. No workers are fine: begin and end do nothing
 * then. */
FEDGE_MUST_USE fedge_status fedge_worker_pool_new(fedge_worker_pool **pool,
                                                  const fedge_worker_pool_config *config,
                                                  fedge_error *err);
/* Waits until all that was posted is carried out, and ends the threads. NULL is fine. */
void fedge_worker_pool_free(fedge_worker_pool *pool);

/* Those that were started. */
uint32_t fedge_worker_pool_size(const fedge_worker_pool *pool);

/* From any thread. */
void fedge_worker_pool_post(fedge_worker_pool *pool, uint32_t worker, fedge_work *work);
/* Waits until every worker has carried out what was posted to it. Not on a worker, nor while others
 * go on posting. */
void fedge_worker_pool_wait(fedge_worker_pool *pool);

/* run(user, worker) on every worker; end waits until all have returned. One such call at a time.
 * Not on a worker. */
void fedge_worker_pool_begin(fedge_worker_pool *pool, void (*run)(void *user, uint32_t worker),
                             void *user);
void fedge_worker_pool_end(fedge_worker_pool *pool);

#endif
