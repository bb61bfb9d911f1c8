#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "edge/train/cuda/gpu.h"

#include <time.h>

#include "edge/core/os.h"

/* ---- choosing a GPU ---- */

cudaError_t fedge_gpu_choose(int gpu)
{
    const cudaError_t error = cudaSetDevice(gpu);
    return error == cudaSuccess ? cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) : error;
}

fedge_status fedge_gpu_none(cudaError_t error, const char *advice, fedge_error *err)
{
    int driver = 0;
    if (error != cudaErrorInsufficientDriver) {
        const cudaError_t why = error == cudaSuccess ? cudaErrorNoDevice : error;
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "no GPU is found (%s): see what nvidia-smi says, %s",
                          cudaGetErrorString(why), advice);
    }
    /* The runtime returns this error also when there is no driver. */
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "this machine has no NVIDIA driver: install one, %s", advice);
    }
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "the NVIDIA driver is for CUDA up to %d.%d, and this build is of %d.%d: "
                      "install a newer driver, %s",
                      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                      CUDART_VERSION % 1000 / 10, advice);
}

fedge_status fedge_gpu_refused(int gpu, cudaError_t error, const char *advice, fedge_error *err)
{
    const char *why = cudaGetErrorString(error);
    int major = 0, minor = 0;
    switch (error) {
    case cudaErrorMemoryAllocation:
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "GPU %d has no memory left for another process (%s): see with nvidia-smi "
                          "who has it, %s",
                          gpu, why, advice);
    case cudaErrorDevicesUnavailable:
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "GPU %d is closed to this process (%s): see its compute mode with "
                          "nvidia-smi -q, %s",
                          gpu, why, advice);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorUnsupportedPtxVersion:
        (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
        (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "GPU %d has compute capability %d.%d, and this build has no code for it "
                          "(%s), only for sm " FEDGE_CUDA_BUILT_FOR
                          ": build with -DFEDGE_CUDA_ARCHITECTURES=%d%d, %s",
                          gpu, major, minor, why, major, minor, advice);
    default:
        return FEDGE_OK;
    }
}

/* ---- the watch ---- */

#define LOOK_MS 50 /* time between checks of the calls; _fini waits for one */

static const struct {
    const char *name;
    uint32_t limit_ms;
} LIBRARIES[] = {[FEDGE_GPU_CUDA] = {"CUDA", FEDGE_CUDA_CALL_MS},
                 [FEDGE_GPU_CUDA_OPEN] = {"CUDA", FEDGE_CUDA_OPEN_MS},
                 [FEDGE_GPU_NCCL] = {"NCCL", FEDGE_NCCL_CALL_MS}};

static void report(const fedge_gpu_watch *self, const fedge_gpu_call *call)
{
    fedge_error err;
    if (self->lost)
        (void)atomic_fetch_or(self->lost, call->bit);
    (void)fedge_fail(&err, FEDGE_GPU_LOST,
                     "%s is lost while %s: %s's call has not returned in %g s; start again, with "
                     "the GPUs that there are",
                     call->gpus, call->doing, LIBRARIES[call->library].name,
                     LIBRARIES[call->library].limit_ms / 1000.0);
    self->stuck(&err);
}

/* Finds the earliest call that takes too long; others may only wait for it. */
static bool find_stuck(fedge_gpu_watch *self, fedge_gpu_call *stuck_call)
{
    const uint64_t now = fedge_os_monotonic_ms();
    const fedge_gpu_call *first = NULL;
    (void)pthread_mutex_lock(&self->lock);
    for (const fedge_gpu_call *call = self->calls; call; call = call->next) {
        if (now > call->since + LIBRARIES[call->library].limit_ms &&
            (!first || call->since < first->since))
            first = call;
    }
    if (first)
        *stuck_call = *first;
    (void)pthread_mutex_unlock(&self->lock);
    return first != NULL;
}

/* Polls, so that a call costs no more than one reading of the clock and an entry in a list. */
static void *watch_calls(void *user)
{
    fedge_gpu_watch *self = user;
    while (!atomic_load(&self->ends)) {
        fedge_gpu_call stuck_call;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        if (find_stuck(self, &stuck_call))
            report(self, &stuck_call);
    }
    return NULL;
}

fedge_status fedge_gpu_watch_init(fedge_gpu_watch *watch, fedge_gpu_stuck_fn stuck,
                                  _Atomic uint64_t *lost, fedge_error *err)
{
    *watch = (fedge_gpu_watch){.stuck = stuck, .lost = lost};
    if (!stuck)
        return FEDGE_OK;
    int failed = pthread_mutex_init(&watch->lock, NULL);
    const bool locks = failed == 0;
    if (locks)
        failed = pthread_create(&watch->thread, NULL, watch_calls, watch);
    watch->runs = failed == 0;
    if (watch->runs)
        return FEDGE_OK;
    if (locks)
        (void)pthread_mutex_destroy(&watch->lock);
    return fedge_fail_errno(err, failed, "cannot start a thread that watches GPUs");
}

void fedge_gpu_watch_fini(fedge_gpu_watch *watch)
{
    if (watch->runs) {
        atomic_store(&watch->ends, true);
        (void)pthread_join(watch->thread, NULL);
        (void)pthread_mutex_destroy(&watch->lock);
    }
    *watch = (fedge_gpu_watch){0};
}

void fedge_gpu_watch_begin(fedge_gpu_watch *watch, fedge_gpu_call *call)
{
    if (!watch || !watch->runs)
        return;
    call->since = fedge_os_monotonic_ms();
    (void)pthread_mutex_lock(&watch->lock);
    call->next = watch->calls;
    watch->calls = call;
    (void)pthread_mutex_unlock(&watch->lock);
}

void fedge_gpu_watch_end(fedge_gpu_watch *watch, fedge_gpu_call *call)
{
    if (!watch || !watch->runs)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    fedge_gpu_call **link = &watch->calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    (void)pthread_mutex_unlock(&watch->lock);
}
