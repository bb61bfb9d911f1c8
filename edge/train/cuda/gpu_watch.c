#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "edge/train/cuda/gpu_watch.h"

#include <time.h>

#include "edge/core/os.h"

#define LOOK_MS 50 /* from one look at the calls to the next; _fini waits for one */

static const struct {
    const char *name;
    uint32_t limit_ms;
} LIBRARIES[] = {[FEDGE_GPU_CUDA] = {"CUDA", FEDGE_CUDA_CALL_MS},
                 [FEDGE_GPU_CUDA_OPEN] = {"CUDA", FEDGE_CUDA_OPEN_MS},
                 [FEDGE_GPU_NCCL] = {"NCCL", FEDGE_NCCL_CALL_MS}};

static void tell(const fedge_gpu_watch *self, const fedge_gpu_call *call)
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

/* The first of the calls that take too long: others may only wait for it. */
static bool find_stuck(fedge_gpu_watch *self, fedge_gpu_call *found)
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
        *found = *first;
    (void)pthread_mutex_unlock(&self->lock);
    return first != NULL;
}

/* It looks now and then, and is not woken: a call pays for one reading of the clock and its place
 * in the list. */
static void *look(void *user)
{
    fedge_gpu_watch *self = user;
    while (!atomic_load(&self->ends)) {
        fedge_gpu_call found;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        if (find_stuck(self, &found))
            tell(self, &found);
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
        failed = pthread_create(&watch->thread, NULL, look, watch);
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
    fedge_gpu_call **place = &watch->calls;
    while (*place != call)
        place = &(*place)->next;
    *place = call->next;
    (void)pthread_mutex_unlock(&watch->lock);
}
