/* One GPU of an accumulator: its timing, memory and work. */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_GPU_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/cuda/geometry.h"
#include "edge/train/cuda/gpu.h"

/* Kinds of work, which are timed by events on their stream. Overlapping work counts each time. */
typedef enum fedge_cuda_work {
    FEDGE_CUDA_COPY,   /* copying updates to the GPU */
    FEDGE_CUDA_DECODE, /* checking and decoding updates */
    FEDGE_CUDA_REDUCE, /* adding updates to the sums, and reducing the sums of several GPUs */
    FEDGE_CUDA_STEP,   /* the step, including copies of its values */
    FEDGE_CUDA_NUM_WORKS
} fedge_cuda_work;

typedef struct fedge_cuda_times {
    _Atomic uint64_t ns[FEDGE_CUDA_NUM_WORKS];
} fedge_cuda_times;

/* Times one operation at a time, in one or two parts. */
typedef struct fedge_cuda_timing {
    cudaEvent_t begun, split; /* [split]: the second part begins */
    cudaEvent_t done;         /* end of the last operation; signalled when there was none */
    fedge_cuda_work first, second;
    bool has_second; /* true if there is a second part */
    bool counts;     /* true if it has ended and is not in the times yet */
} fedge_cuda_timing;

cudaError_t fedge_cuda_timing_init(fedge_cuda_timing *timing); /* all zero before */
void fedge_cuda_timing_fini(fedge_cuda_timing *timing);        /* may follow a failed init */

/* Queue an event on [stream] before, within and after the work. */
cudaError_t fedge_cuda_timing_begin(fedge_cuda_timing *timing, fedge_cuda_work first,
                                    cudaStream_t stream);
cudaError_t fedge_cuda_timing_split(fedge_cuda_timing *timing, fedge_cuda_work second,
                                    cudaStream_t stream);
cudaError_t fedge_cuda_timing_end(fedge_cuda_timing *timing, cudaStream_t stream);

/* Adds the last operation to [times] once it is done; otherwise the next call does. */
cudaError_t fedge_cuda_timing_count(fedge_cuda_timing *timing, fedge_cuda_times *times);

/* A GPU has the sums of some blocks of coordinates. Updates arrive by lanes, each with its stream
 * and pinned buffers, and stay in slots until the GPU's stream of sums adds them. Every function
 * makes the GPU the thread's current one. Errors are FEDGE_GPU_LOST with the GPU's number;
 * FEDGE_NO_MEMORY does not mean that the GPU is lost.
 *
 * Threads: one thread at a time uses a lane or slot, and one at a time calls the functions that
 * change sums. accumulator_cuda.c assigns them.
 */

#ifndef FEDGE_CUDA_CHUNK_BYTES
#define FEDGE_CUDA_CHUNK_BYTES ((size_t)4 << 20) /* bytes of one copy; a multiple of 2,048 */
#endif
#define FEDGE_CUDA_LANES 4
/* Events of the latest tickets. A wait for an older ticket waits for the next one with an event. */
#define FEDGE_CUDA_TICKETS 64
/* Blocks of a chunk of the step, which has two buffers of floats and, with several GPUs, of sums.
 */
#define FEDGE_CUDA_STEP_BLOCKS ((uint32_t)(FEDGE_CUDA_CHUNK_BYTES / 2048))

/* A lane has two, to fill one while the other is copied. */
typedef struct fedge_cuda_buffer {
    uint8_t *pinned, *device; /* FEDGE_CUDA_CHUNK_BYTES each */
    fedge_cuda_timing timing; /* [done]: both are free again */
} fedge_cuda_buffer;

typedef struct fedge_cuda_lane {
    cudaStream_t stream;
    fedge_cuda_buffer buffers[2];
    int8_t *pinned_bounds, *bounds; /* b of all tensors */
    unsigned long long *pinned_bad, *bad;
    uint64_t host_bad; /* first bad value found by the host */
    /* With a sparsifier: memory for the largest directory, malloc'ed, and a buffer on the GPU for
     * an update that is only checked. NULL without. */
    void *directory;
    uint8_t *check_buffer;
} fedge_cuda_lane;

typedef struct fedge_cuda_slot {
    uint8_t *planes;          /* values, segment by segment, then scales */
    uint64_t num_encoded;     /* encoded bytes of the update */
    fedge_cuda_timing timing; /* timing of its first batch; [done]: it may be overwritten */
} fedge_cuda_slot;

typedef struct fedge_cuda_gpu {
    int ordinal;
    char name[16];          /* such as "GPU 3" */
    fedge_gpu_watch *watch; /* watches its calls */
    const fedge_cuda_geometry *geometry;
    uint32_t first_block, num_blocks; /* range of the blocks with sums on this GPU */
    uint32_t max_grid;                /* thread blocks that run at once */
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS]; /* parts on this GPU */
    fedge_cuda_chosen chosen[FEDGE_ACCUMULATOR_MAX_SECTIONS];    /* tables of sparse segments */
    uint32_t num_segments;
    size_t scales; /* offset of the scales in a slot */
    fedge_cuda_block *blocks;
    int64_t *sums;
    cudaStream_t stream;
    cudaEvent_t tickets[FEDGE_CUDA_TICKETS];
    fedge_cuda_lane lanes[FEDGE_CUDA_LANES];
    fedge_cuda_slot *slots;
    uint32_t num_slots;
    _Atomic uint64_t decoded_bytes; /* bytes of slots that were summed */
    fedge_cuda_times times;
    fedge_cuda_buffer work[2]; /* buffers of the stream of sums */
    int64_t *reduced[2];       /* (FEDGE_CUDA_STEP_BLOCKS, 256): all GPUs' sums; NULL: one GPU */
    float *values;             /* values of the coordinates that it steps */
    size_t values_bytes;
    float *moments[2];             /* moments of an optimizer; NULL until they are allocated */
    _Atomic uint64_t moment_bytes; /* allocated bytes of moments */
    _Atomic uint64_t tile_bytes;   /* bytes of robust rules' tiles (tile_cuda.c) */
} fedge_cuda_gpu;

/* Bytes of memory on a GPU. [sharers]: the GPUs that have sums of the same blocks and divide the
 * step; 1: only this one. */
typedef struct fedge_cuda_bytes {
    size_t sums;
    size_t values;  /* bytes of the coordinates' values that it steps */
    size_t moments; /* bytes of an optimizer's moments */
    size_t slot;    /* bytes of each update's slot */
    size_t others;  /* bytes of the buffers of lanes and of the step, and of the tables */
} fedge_cuda_bytes;
fedge_cuda_bytes fedge_cuda_gpu_bytes(const fedge_cuda_geometry *geometry, uint32_t first_block,
                                      uint32_t num_blocks, uint32_t sharers, unsigned num_moments);

typedef struct fedge_cuda_gpu_config {
    const fedge_cuda_geometry *geometry; /* borrowed */
    int ordinal;                         /* CUDA's number of the GPU */
    uint32_t first_block, num_blocks;    /* range of the blocks summed on this GPU */
    uint32_t num_slots;                  /* number of staged updates */
    uint32_t sharers;                    /* argument of fedge_cuda_gpu_bytes */
    fedge_gpu_watch *watch;              /* borrowed */
} fedge_cuda_gpu_config;

/* Opens a GPU with all sums 0. The caller closes [gpu] also on failure. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_open(fedge_cuda_gpu *gpu,
                                                const fedge_cuda_gpu_config *config,
                                                fedge_error *err);
void fedge_cuda_gpu_close(fedge_cuda_gpu *gpu); /* all zero is fine */

/* Copies the GPU's part of an update by [lane], checks it and stores it in [slot] (NULL: only
 * checks). Errors of update->read are returned. Then call _result with the same [slot], also after
 * a failure: it waits and sets *bad to the first bad value, or FEDGE_CUDA_NOT_BAD. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_stage(fedge_cuda_gpu *gpu, uint32_t lane,
                                                 const uint32_t *slot, const fedge_encoded *update,
                                                 fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_result(fedge_cuda_gpu *gpu, uint32_t lane,
                                                  const uint32_t *slot, uint64_t *bad,
                                                  fedge_error *err);

/* Sums [count] slots and releases them. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_add(fedge_cuda_gpu *gpu, const uint32_t *slots,
                                               const uint32_t *weights, uint32_t count,
                                               fedge_error *err);
/* Adds weight · v[i] to the sums from padded coordinate [padded] on, all of them the GPU's. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_add_values(fedge_cuda_gpu *gpu, const int32_t *v,
                                                      uint64_t padded, size_t count,
                                                      uint32_t weight, fedge_error *err);
/* Waits for queued work and sets *sums to the device pointer of the sum of padded coordinate
 * [padded], which is the GPU's. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_sums_pointer(fedge_cuda_gpu *gpu, uint64_t padded,
                                                        int64_t **sums, fedge_error *err);
/* Adds the GPU's sums from padded coordinate [padded] on to sums (count); others stay. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_read(fedge_cuda_gpu *gpu, uint64_t padded, size_t count,
                                                int64_t *sums, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_reset(fedge_cuda_gpu *gpu, fedge_error *err);

/* Allocates [num_moments] moments of an optimizer; *fits: there was enough memory. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_take_moments(fedge_cuda_gpu *gpu, unsigned num_moments,
                                                        bool *fits, fedge_error *err);

/* Adds finished work to the GPU's times. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_count_times(fedge_cuda_gpu *gpu, fedge_error *err);

FEDGE_MUST_USE fedge_status fedge_cuda_gpu_mark(fedge_cuda_gpu *gpu, uint64_t ticket,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_wait(fedge_cuda_gpu *gpu, uint64_t ticket,
                                                fedge_error *err);

/* ---- of gpu_memory.c and gpu_chosen.c -------------------------------------------------------- */

FEDGE_MUST_USE fedge_status fedge_cuda_gpu_use(const fedge_cuda_gpu *gpu, fedge_error *err);
/* Turns an error of CUDA into a status. FEDGE_GPU_LOST says what failed and why, and marks the GPU
 * as lost. FEDGE_NO_MEMORY says what is free and what to do. FEDGE_OK for cudaSuccess. */
fedge_status fedge_cuda_check(const fedge_cuda_gpu *gpu, cudaError_t error, const char *doing,
                              fedge_error *err);

/* Describes a call, or a group of calls, to the GPU's watch. */
fedge_gpu_call fedge_cuda_call(const fedge_cuda_gpu *gpu, const char *doing);
/* CUDA's functions of these names, but watched. */
FEDGE_MUST_USE cudaError_t fedge_cuda_wait_event(const fedge_cuda_gpu *gpu, cudaEvent_t event);
FEDGE_MUST_USE cudaError_t fedge_cuda_wait_stream(const fedge_cuda_gpu *gpu, cudaStream_t stream);
FEDGE_MUST_USE cudaError_t fedge_cuda_copy(const fedge_cuda_gpu *gpu, void *to, const void *from,
                                           size_t size, enum cudaMemcpyKind kind,
                                           cudaStream_t stream);

/* Allocates memory of the GPU, or pinned memory of the host, and stores its address in the pointer
 * at [pointer]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_take(const fedge_cuda_gpu *gpu, void *pointer,
                                                size_t size, bool pinned, fedge_error *err);
/* Copies a table to the GPU through the work buffers, and waits. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_copy(fedge_cuda_gpu *gpu, void *to, const void *from,
                                                size_t size, fedge_error *err);

/* Bytes on the GPU for segments with a sparsifier, besides slots. */
size_t fedge_cuda_chosen_bytes(const fedge_cuda_geometry *geometry,
                               const fedge_cuda_segment *segments, uint32_t num_segments);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_open_chosen(fedge_cuda_gpu *gpu, fedge_error *err);
void fedge_cuda_gpu_close_chosen(fedge_cuda_gpu *gpu);
/* Copies the GPU's part of segment [s] to a slot or to the lane's buffer, and checks it.
 * *next_buffer: the index of the lane's next free buffer. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_stage_chosen(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane,
                                                        fedge_cuda_slot *slot, uint32_t s,
                                                        const fedge_encoded *update,
                                                        uint32_t *next_buffer, fedge_error *err);
cudaError_t fedge_cuda_gpu_add_chosen(fedge_cuda_gpu *gpu, uint32_t s, const uint32_t *slots,
                                      const uint32_t *weights, uint32_t count);

#endif
