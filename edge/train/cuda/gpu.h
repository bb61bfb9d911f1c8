/* Choosing a GPU, and one that cannot be taken. What the runtime answers before a GPU has work is
 * no loss of it: its memory is others', it is closed to this process, or the build has no code for
 * its kind. Whoever takes any machinery that can is given another. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_GPU_H
#define FEDGE_EDGE_TRAIN_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Chooses a GPU for the first time in this process: makes its context, in which a thread that waits
 * for a stream blocks, where by default it spins and keeps a core busy. Afterwards cudaSetDevice
 * will do. Events that a thread waits for need cudaEventBlockingSync besides. */
cudaError_t fedge_gpu_choose(int gpu);

/* FEDGE_NOT_FOUND, with why there is no GPU and [advice] in the message: the machine has no driver,
 * it has one that is older than this build, or there is no GPU. [error]: what cudaGetDeviceCount
 * said, cudaSuccess with a count of 0. */
fedge_status fedge_gpu_none(cudaError_t error, const char *advice, fedge_error *err);

/* FEDGE_NO_MEMORY, FEDGE_NOT_FOUND: [error] is one of these, with [advice] in the message.
 * FEDGE_OK: it is none, or another error. */
FEDGE_MUST_USE fedge_status fedge_gpu_refused(int gpu, cudaError_t error, const char *advice,
                                              fedge_error *err);

/* A watch on calls of the host that wait for GPUs.
 *
 * CUDA waits for a stream or an event, and NCCL starts, queues and ends collectives, by calls that
 * have no limit of time: a GPU that does not answer holds the caller for ever, and no other thread
 * can end such a call. So a thread looks at how long each call has taken, and when one has taken
 * too long it tells the program, which ends: the next process begins with the GPUs that there are.
 *
 * What is only queued on streams is not watched here, but when somebody waits for it.
 */

#ifndef FEDGE_CUDA_CALL_MS
#define FEDGE_CUDA_CALL_MS 30000
#endif
/* Opening a GPU makes its context, loads the kernels and takes all memory, pinned memory included:
 * on a cold machine with 8 GPUs that takes more than half a minute. */
#ifndef FEDGE_CUDA_OPEN_MS
#define FEDGE_CUDA_OPEN_MS 120000
#endif
#ifndef FEDGE_NCCL_CALL_MS
#define FEDGE_NCCL_CALL_MS 60000 /* starting NCCL on 8 GPUs takes some seconds */
#endif

/* Whose limit of time holds for a call. */
typedef enum fedge_gpu_library {
    FEDGE_GPU_CUDA,      /* FEDGE_CUDA_CALL_MS */
    FEDGE_GPU_CUDA_OPEN, /* FEDGE_CUDA_OPEN_MS */
    FEDGE_GPU_NCCL       /* FEDGE_NCCL_CALL_MS */
} fedge_gpu_library;

/* Told, on the watch's thread, that a call does not return: FEDGE_GPU_LOST with the GPUs. It ends
 * the process, for nothing that the caller holds will ever be free. */
typedef void (*fedge_gpu_stuck_fn)(const fedge_error *err);

/* A call under way, on its caller's stack. The texts are kept. */
typedef struct fedge_gpu_call {
    fedge_gpu_library library;
    const char *gpus;  /* "GPU 3", "one of GPUs 3,0" */
    const char *doing; /* "joining sums" */
    uint64_t since;    /* ms of the monotonic clock; the watch's */
    struct fedge_gpu_call *next;
    uint64_t bit; /* 1 << the driver's number of the one GPU that it is about; 0: of several */
} fedge_gpu_call;

typedef struct fedge_gpu_watch {
    fedge_gpu_stuck_fn stuck; /* NULL: nobody watches */
    _Atomic uint64_t *lost;   /* gets the bit of a call that does not return; may be NULL */
    pthread_mutex_t lock;
    fedge_gpu_call *calls; /* under way, of all threads; guarded */
    pthread_t thread;
    bool runs;
    atomic_bool ends;
} fedge_gpu_watch;

/* Starts the thread, if there is somebody to tell. [lost] outlives it. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_gpu_watch_init(fedge_gpu_watch *watch, fedge_gpu_stuck_fn stuck,
                                                 _Atomic uint64_t *lost, fedge_error *err);
void fedge_gpu_watch_fini(fedge_gpu_watch *watch); /* all zero is fine */

/* Around one call, or a group of them, on any thread. A call within another is watched as well.
 * [watch] may be NULL, or all zero: nobody watches. */
void fedge_gpu_watch_begin(fedge_gpu_watch *watch, fedge_gpu_call *call);
void fedge_gpu_watch_end(fedge_gpu_watch *watch, fedge_gpu_call *call);

#endif
