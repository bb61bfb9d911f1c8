/* Worker pools: threads with a queue each.
 *
 *   post        queues a task for one worker. A worker runs its tasks in order, so tasks that must
 *               stay in order go to the same worker.
 *   begin, end  run one call on every worker after its earlier tasks: shared work, of which the
 *               caller may do a part between the two; or a barrier.
 *
 * The ingest workers, the round finalizer, the checkpoint writer, a robust rule's helpers, the
 * simulator's trainers and the runs of a sweep are pools. Other threads are not:
 *
 *   run engine         a loop with a clock that waits for messages (run/engine_thread.h)
 *   network threads    loops of libwebsockets
 *   rank thread        waits for MPI's messages (cluster/ranks.c)
 *   GPU and rank watches  sleep (edge/train/cuda/gpu.h, ranks_watch.h)
 *   heartbeat of a simulation  waits for MPI's messages (simulate/run/heartbeat.h)
 *   client's worker    runs only the newest job (client/worker.h)
 */
#ifndef FEDGE_AGGREGATOR_THREADS_WORKER_POOL_H
#define FEDGE_AGGREGATOR_THREADS_WORKER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* The first member of a task. The sender owns it and may post it again once [run] is called. */
typedef struct fedge_work {
    struct fedge_work *next;
    void (*run)(void *user, uint32_t worker, struct fedge_work *work);
} fedge_work;

typedef struct fedge_worker_pool_config {
    const char *name;   /* worker's name in messages: "ingest worker" */
    const char *thread; /* thread's name in the system (fedge_os_name_thread) */
    const char *advice; /* advice for a failed start: "use fewer --threads"; may be NULL */
    uint32_t num_workers;
    bool allow_fewer;  /* accept fewer threads than num_workers */
    size_t stack_size; /* bytes; 0: the system's default */
    /* Spin time before an idle worker, or a thread that waits for all of them, sleeps (waiting.h).
     * 0: sleep at once. */
    uint64_t spin_ns;
    void *user; /* argument of run and between */
    /* Called before each task and before a worker sleeps; may be NULL. [more]: a task is queued.
     * True: it did something; call it again. */
    bool (*between)(void *user, uint32_t worker, bool more);
} fedge_worker_pool_config;

typedef struct fedge_worker_pool fedge_worker_pool;

/* FEDGE_NO_MEMORY, or the reason why a thread cannot start. With num_workers 0, begin and end do
 * nothing. */
FEDGE_MUST_USE fedge_status fedge_worker_pool_new(fedge_worker_pool **pool,
                                                  const fedge_worker_pool_config *config,
                                                  fedge_error *err);
/* Waits until all posted tasks have run, and ends the threads. NULL is allowed. */
void fedge_worker_pool_free(fedge_worker_pool *pool);

/* The number of started workers. */
uint32_t fedge_worker_pool_size(const fedge_worker_pool *pool);

/* Any thread may call it. */
void fedge_worker_pool_post(fedge_worker_pool *pool, uint32_t worker, fedge_work *work);
/* Waits until every worker has run the tasks posted to it. Do not call it on a worker, nor while
 * other threads post. */
void fedge_worker_pool_wait(fedge_worker_pool *pool);

/* Begin run(user, worker) on every worker; end waits until all have returned. One call at a time,
 * not on a worker. */
void fedge_worker_pool_begin(fedge_worker_pool *pool, void (*run)(void *user, uint32_t worker),
                             void *user);
void fedge_worker_pool_end(fedge_worker_pool *pool);

#endif
