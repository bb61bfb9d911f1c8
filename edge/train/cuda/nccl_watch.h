/* A watch on NCCL's calls of the host.
 *
 * NCCL starts, queues and ends collectives by calls that wait for every GPU, and none of them has a
 * limit of time: a GPU that does not answer holds the caller for ever. No other thread can end such
 * a call. So a thread looks at how long the call has taken, and after FEDGE_NCCL_CALL_MS tells the
 * program, which ends: the next process begins with the GPUs that there are.
 *
 * What is queued on streams is not watched here; who waits for it looks at the clock.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_NCCL_WATCH_H
#define FEDGE_EDGE_TRAIN_CUDA_NCCL_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <threads.h>

#include "edge/core/status.h"

#ifndef FEDGE_NCCL_CALL_MS
#define FEDGE_NCCL_CALL_MS 60000 /* starting NCCL on 8 GPUs takes some seconds */
#endif

/* Told, on the watch's thread, that a call does not return: FEDGE_GPU_LOST with the GPUs. It ends
 * the process, for nothing that the caller holds will ever be free. */
typedef void (*fedge_gpu_stuck_fn)(const fedge_error *err);

typedef struct fedge_nccl_watch {
    fedge_gpu_stuck_fn stuck; /* NULL: nobody watches */
    const char *gpus;         /* for the message: "one of GPUs 3,0" */
    const char *doing;        /* "joining sums": set before [since] */
    _Atomic uint64_t since;   /* ms of the monotonic clock, when the call began; 0: none is made */
    thrd_t thread;
    bool runs;
    atomic_bool ends;
} fedge_nccl_watch;

/* Starts the thread, if there is somebody to tell. [gpus] is kept. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_nccl_watch_init(fedge_nccl_watch *watch, fedge_gpu_stuck_fn stuck,
                                                  const char *gpus, fedge_error *err);
void fedge_nccl_watch_fini(fedge_nccl_watch *watch); /* all zero is fine */

/* Around one call, or a group of them; not nested. [doing] is kept. One thread at a time. */
void fedge_nccl_watch_begin(fedge_nccl_watch *watch, const char *doing);
void fedge_nccl_watch_end(fedge_nccl_watch *watch);

#endif
