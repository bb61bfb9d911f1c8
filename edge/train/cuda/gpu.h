/* Choosing a GPU, errors of GPUs that cannot be used, and a watch on calls that wait for GPUs.
 *
 * An error of the runtime before a GPU has work does not mean that the GPU is lost: another process
 * may have its memory, it may be closed to this process, or the build may have no code for it. A
 * caller that accepts any backend then takes another one. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_GPU_H
#define FEDGE_EDGE_TRAIN_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Chooses a GPU for the first time in this process. Creates its context so that a thread that waits
 * for a stream blocks instead of spinning on a core. Later calls of cudaSetDevice suffice. Events
 * need cudaEventBlockingSync, too. */
cudaError_t fedge_gpu_choose(int gpu);

/* Returns FEDGE_NOT_FOUND. The message has [advice] and the reason: there is no driver, the driver
 * is older than this build, or there is no GPU. [error]: the result of cudaGetDeviceCount;
 * cudaSuccess means a count of 0. */
fedge_status fedge_gpu_none(cudaError_t error, const char *advice, fedge_error *err);

/* Returns FEDGE_NO_MEMORY or FEDGE_NOT_FOUND, with [advice] in the message, when [error] means that
 * the GPU cannot be used; FEDGE_OK for success and any other error. */
FEDGE_MUST_USE fedge_status fedge_gpu_refused(int gpu, cudaError_t error, const char *advice,
                                              fedge_error *err);

/* A watch on calls of the host that wait for GPUs.
 *
 * CUDA's calls that wait for streams and events, and NCCL's calls, have no time limit: a GPU that
 * does not answer blocks the caller for ever, and no other thread can end such a call. So a thread
 * checks how long each call has taken. When one has taken too long, it calls the program back,
 * which ends; the next process begins with the GPUs that are left.
 *
 * Work that is only queued on streams is not watched until a call waits for it.
 */

#ifndef FEDGE_CUDA_CALL_MS
#define FEDGE_CUDA_CALL_MS 30000
#endif
/* Opening a GPU creates its context, loads the kernels and allocates all memory, also pinned
 * memory. On a cold machine with 8 GPUs that takes more than half a minute. */
#ifndef FEDGE_CUDA_OPEN_MS
#define FEDGE_CUDA_OPEN_MS 120000
#endif
#ifndef FEDGE_NCCL_CALL_MS
#define FEDGE_NCCL_CALL_MS 60000 /* starting NCCL on 8 GPUs takes some seconds */
#endif

/* Selects the time limit of a call. */
typedef enum fedge_gpu_library {
    FEDGE_GPU_CUDA,      /* FEDGE_CUDA_CALL_MS */
    FEDGE_GPU_CUDA_OPEN, /* FEDGE_CUDA_OPEN_MS */
    FEDGE_GPU_NCCL       /* FEDGE_NCCL_CALL_MS */
} fedge_gpu_library;

/* Called on the watch's thread when a call does not return, with FEDGE_GPU_LOST and the GPUs. It
 * must end the process, since the stuck call's resources can never be freed. */
typedef void (*fedge_gpu_stuck_fn)(const fedge_error *err);

/* A call in progress, on its caller's stack. The strings must live until fedge_gpu_watch_end. */
typedef struct fedge_gpu_call {
    fedge_gpu_library library;
    const char *gpus;  /* "GPU 3", "one of GPUs 3,0" */
    const char *doing; /* "joining sums" */
    uint64_t since;    /* ms of the monotonic clock; set by fedge_gpu_watch_begin */
    struct fedge_gpu_call *next;
    uint64_t bit; /* 1 << the driver's number of the GPU; 0: the call concerns several */
} fedge_gpu_call;

typedef struct fedge_gpu_watch {
    fedge_gpu_stuck_fn stuck; /* NULL: calls are not watched */
    _Atomic uint64_t *lost;   /* receives the bit of a stuck call; may be NULL */
    pthread_mutex_t lock;
    fedge_gpu_call *calls; /* calls in progress on all threads; guarded by lock */
    pthread_t thread;
    bool runs;
    atomic_bool ends;
} fedge_gpu_watch;

/* Starts the thread if [stuck] is not NULL. [lost] must outlive the watch. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_gpu_watch_init(fedge_gpu_watch *watch, fedge_gpu_stuck_fn stuck,
                                                 _Atomic uint64_t *lost, fedge_error *err);
void fedge_gpu_watch_fini(fedge_gpu_watch *watch); /* all zero is fine */

/* Enclose one call, or a group of calls, on any thread. They may be nested. With a [watch] that is
 * NULL or all zero they do nothing. */
void fedge_gpu_watch_begin(fedge_gpu_watch *watch, fedge_gpu_call *call);
void fedge_gpu_watch_end(fedge_gpu_watch *watch, fedge_gpu_call *call);

#endif
