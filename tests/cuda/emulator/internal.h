/* What the emulator's files share. */
#ifndef FEDGE_EMULATOR_INTERNAL_H
#define FEDGE_EMULATOR_INTERNAL_H

#include "tests/cuda/emulator/emulator.h"
#include <cuda_runtime_api.h>

/* ---- scheduler.c ------------------------------------------------------------------------------
 */

typedef struct emulated_kernel {
    dim3 grid, block;
    size_t shared_bytes;
    void (*body)(const void *closure);
    const void *closure;
} emulated_kernel;

/* Who makes an access: read by the race detector. */
typedef struct emulated_place {
    uint64_t launch; /* from 1; 0: no kernel is running */
    uint32_t block, thread, warp, barriers, warp_syncs;
} emulated_place;

bool emulated_run(const emulated_kernel *kernel); /* false: it was stopped by a fault */
emulated_place emulated_here(void);
uint32_t emulated_random(uint32_t below);
void emulated_seed(uint64_t seed);
bool emulated_is_shared(const void *address); /* of the running block */

/* ---- runtime.c --------------------------------------------------------------------------------
 */

void emulated_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
const emulator_config *emulated_config(void);
/* 0 or a cudaError for this call; the lock is held behind it until emulated_leave. */
cudaError_t emulated_enter(void);
cudaError_t emulated_enter_as(const char *name); /* of fail_at */
cudaError_t emulated_leave(cudaError_t error);
void emulated_count(int change); /* of things to be freed */
bool emulated_is_device(const void *address, size_t size);

cudaError_t emulated_call(const char *name); /* counts one more, behind emulated_enter */
struct emulated_graph **
emulated_recording(cudaStream_t stream); /* NULL there: it is not captured */

typedef struct emulated_work {
    void (*run)(void *data);
    uint64_t ns; /* of its stream's time */
} emulated_work;
/* graph.c: queues work with a copy of [data], or keeps it for the stream's graph. */
void emulated_add(cudaStream_t stream, const char *name, emulated_work work, const void *data,
                  size_t size);
/* Work on a stream that takes [ns] of its time; [ready] NULL: always. [data] is freed behind [run].
 */
void emulated_enqueue(cudaStream_t stream, bool (*ready)(void *data), void (*run)(void *data),
                      void *data, uint64_t ns);
/* Opens a GPU's memory to the host while work of it runs; -1: of all. */
void emulated_expose(int gpu, bool open);
void emulated_progress(void); /* as the order has it, after work was added */
void emulated_nccl_reset(void);

#endif
