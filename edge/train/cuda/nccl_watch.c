#include "edge/train/cuda/nccl_watch.h"

#include <time.h>

#include "edge/core/os.h"

#define LOOK_MS 50 /* from one look at the clock to the next; _fini waits for one */

static void tell(const fedge_nccl_watch *self)
{
    fedge_error err;
    (void)fedge_fail(&err, FEDGE_GPU_LOST,
                     "%s is lost while %s: NCCL's call has not returned in %g s; start "
                     "again, with the GPUs that there are",
                     self->gpus, self->doing, FEDGE_NCCL_CALL_MS / 1000.0);
    self->stuck(&err);
}

/* It looks now and then, and is not woken: a call pays for one reading of the clock and no more. */
static int look(void *user)
{
    fedge_nccl_watch *self = user;
    while (!atomic_load(&self->ends)) {
        (void)thrd_sleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        const uint64_t since = atomic_load(&self->since);
        if (since > 0 && fedge_os_monotonic_ms() > since + FEDGE_NCCL_CALL_MS)
            tell(self);
    }
    return 0;
}

fedge_status fedge_nccl_watch_init(fedge_nccl_watch *watch, fedge_gpu_stuck_fn stuck,
                                   const char *gpus, fedge_error *err)
{
    *watch = (fedge_nccl_watch){.stuck = stuck, .gpus = gpus};
    watch->runs = stuck && thrd_create(&watch->thread, look, watch) == thrd_success;
    return !stuck || watch->runs
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NO_MEMORY, "cannot start a thread that watches NCCL");
}

void fedge_nccl_watch_fini(fedge_nccl_watch *watch)
{
    atomic_store(&watch->ends, true);
    if (watch->runs)
        (void)thrd_join(watch->thread, NULL);
    *watch = (fedge_nccl_watch){0};
}

void fedge_nccl_watch_begin(fedge_nccl_watch *watch, const char *doing)
{
    watch->doing = doing;
    atomic_store(&watch->since, watch->runs ? fedge_os_monotonic_ms() : 0);
}

void fedge_nccl_watch_end(fedge_nccl_watch *watch)
{
    atomic_store(&watch->since, 0);
}
