/* How long a GPU works, and at what: spans of work on a stream, measured by events around it.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_GPU_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/cuda/geometry.h"
#include "edge/train/cuda/gpu.h"

/* What work is for. Spans on several streams may overlap: each counts. */
typedef enum fedge_cuda_work {
    FEDGE_CUDA_COPY,   /* updates, to the GPU */
    FEDGE_CUDA_DECODE, /* they are checked and laid out */
    FEDGE_CUDA_REDUCE, /* they are added to the sums, and GPUs join theirs */
    FEDGE_CUDA_STEP,   /* the step, with its values on their way */
    FEDGE_CUDA_NUM_WORKS
} fedge_cuda_work;

typedef struct fedge_cuda_times {
    _Atomic uint64_t ns[FEDGE_CUDA_NUM_WORKS];
} fedge_cuda_times;

/* One span at a time, in one or two parts. */
typedef struct fedge_cuda_timing {
    cudaEvent_t begun, split; /* turned: where the second part begins */
    cudaEvent_t done;         /* of the last one; has come when there was none */
    fedge_cuda_work first, second;
    bool has_second; /* there is a second part */
    bool counts;     /* it has ended, and is not in the times yet */
} fedge_cuda_timing;

cudaError_t fedge_cuda_timing_init(fedge_cuda_timing *timing); /* all zero at first */
void fedge_cuda_timing_fini(fedge_cuda_timing *timing);        /* also after a failed init */

/* Queued on [stream], before, within and behind the work. */
cudaError_t fedge_cuda_timing_begin(fedge_cuda_timing *timing, fedge_cuda_work first,
                                    cudaStream_t stream);
cudaError_t fedge_cuda_timing_split(fedge_cuda_timing *timing, fedge_cuda_work second,
                                    cudaStream_t stream);
cudaError_t fedge_cuda_timing_end(fedge_cuda_timing *timing, cudaStream_t stream);

/* Adds a span that is done to [times], once; one that is not is left for the next call. */
cudaError_t fedge_cuda_timing_count(fedge_cuda_timing *timing, fedge_cuda_times *times);

/* What one GPU holds of an accumulator, and the work that is given to it.
 *
 * A GPU has the sums of some blocks of coordinates. Updates come in by lanes, each with a stream
 * and pinned buffers of its own, and lie in slots until they are summed on the GPU's one stream of
 * sums. Every function makes the GPU the thread's current one. Errors are FEDGE_GPU_LOST with the
 * GPU's number, but for memory, of which the GPU is not lost (FEDGE_NO_MEMORY).
 *
 * Threads: each lane and slot is one thread's at a time; what works on sums is called by one thread
 * at a time. Which thread that is, accumulator_cuda.c decides.
 */

#ifndef FEDGE_CUDA_CHUNK_BYTES
#define FEDGE_CUDA_CHUNK_BYTES ((size_t)4 << 20) /* of a copy to a GPU; a multiple of 2,048 */
#endif
#define FEDGE_CUDA_LANES 4
#define FEDGE_CUDA_TICKETS                                                                         \
    64 /* events for the latest ones; a wait for an older is for its next                          \
        */
/* Blocks of a chunk of the step: two such buffers of floats, and of sums where GPUs join theirs. */
#define FEDGE_CUDA_STEP_BLOCKS ((uint32_t)(FEDGE_CUDA_CHUNK_BYTES / 2048))

/* Two buffers, so that one is filled while the other travels. */
typedef struct fedge_cuda_buffer {
    uint8_t *pinned, *device; /* FEDGE_CUDA_CHUNK_BYTES each */
    fedge_cuda_timing timing; /* done: both are free again */
} fedge_cuda_buffer;

typedef struct fedge_cuda_lane {
    cudaStream_t stream;
    fedge_cuda_buffer buffers[2];
    int8_t *pinned_bounds, *bounds; /* of all tensors */
    unsigned long long *pinned_bad, *bad;
    uint64_t host_bad; /* what the host found, before the GPU */
    /* Of a section whose codec chooses, the largest: its directory, malloc'ed, and room on the GPU
     * for an update that is only checked. NULL: there is none. */
    void *directory;
    uint8_t *check_buffer;
} fedge_cuda_lane;

typedef struct fedge_cuda_slot {
    uint8_t *planes;          /* values, segment by segment, then scales */
    uint64_t num_encoded;     /* bytes that the update had */
    fedge_cuda_timing timing; /* of the batch that it was first of; done: it is summed, and may be
                             overwritten */
} fedge_cuda_slot;

typedef struct fedge_cuda_gpu {
    int ordinal;
    char name[16];          /* "GPU 3" */
    fedge_gpu_watch *watch; /* of its calls */
    const fedge_cuda_geometry *geometry;
    uint32_t first_block, num_blocks; /* whose sums it holds */
    uint32_t max_grid;                /* thread blocks that run at once */
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS]; /* as far as they are its own */
    fedge_cuda_chosen
        chosen[FEDGE_ACCUMULATOR_MAX_SECTIONS]; /* of segments that have a sparsifier */
    uint32_t num_segments;
    size_t scales; /* where they begin in a slot */
    fedge_cuda_block *blocks;
    int64_t *sums;
    cudaStream_t stream;
    cudaEvent_t tickets[FEDGE_CUDA_TICKETS];
    fedge_cuda_lane lanes[FEDGE_CUDA_LANES];
    fedge_cuda_slot *slots;
    uint32_t num_slots;
    _Atomic uint64_t decoded_bytes; /* of slots that were summed */
    fedge_cuda_times times;
    fedge_cuda_buffer work[2]; /* of the stream of sums */
    int64_t *joined[2];        /* (FEDGE_CUDA_STEP_BLOCKS, 256): all GPUs' sums; NULL: one GPU */
    float *values;             /* of the coordinates that it steps, chunk by chunk */
    size_t values_bytes;
    float *moments[2];             /* likewise, of an optimizer; NULL until they are taken */
    _Atomic uint64_t moment_bytes; /* of these */
    _Atomic uint64_t tile_bytes;   /* of robust rules' tiles (tile_cuda.c) */
} fedge_cuda_gpu;

/* What a GPU needs of its memory, in bytes. [sharers]: GPUs that join their sums of these blocks
 * and share the step; 1: it has them alone. */
typedef struct fedge_cuda_bytes {
    size_t sums;
    size_t values;  /* that it steps */
    size_t moments; /* of an optimizer */
    size_t slot;    /* of each update */
    size_t others;  /* buffers of lanes and of the step, and the tables */
} fedge_cuda_bytes;
fedge_cuda_bytes fedge_cuda_gpu_bytes(const fedge_cuda_geometry *geometry, uint32_t first_block,
                                      uint32_t num_blocks, uint32_t sharers, unsigned num_moments);

typedef struct fedge_cuda_gpu_config {
    const fedge_cuda_geometry *geometry; /* borrowed */
    int ordinal;                         /* CUDA's number of the GPU */
    uint32_t first_block, num_blocks;    /* summed on this GPU */
    uint32_t num_slots;                  /* staged updates */
    uint32_t sharers;                    /* as in fedge_cuda_gpu_bytes */
    fedge_gpu_watch *watch;              /* borrowed */
} fedge_cuda_gpu_config;

/* Sets all sums to 0. The caller closes [gpu] also on failure. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_open(fedge_cuda_gpu *gpu,
                                                const fedge_cuda_gpu_config *config,
                                                fedge_error *err);
void fedge_cuda_gpu_close(fedge_cuda_gpu *gpu); /* all zero is fine */

/* Copies the GPU's part of an update by [lane], checks it and lays it into [slot] (NULL: only
 * checks). What read returns is passed on. Then _result, with the same [slot], waits and tells the
 * first bad value, FEDGE_CUDA_NOT_BAD when there is none; it is to be called also after a failure.
 */
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
/* Where the sum of padded coordinate [padded] lies, one of the GPU's; what was queued is done. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_sums_pointer(fedge_cuda_gpu *gpu, uint64_t padded,
                                                        int64_t **sums, fedge_error *err);
/* sums[i] += those from padded coordinate [padded] on, as far as they are the GPU's. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_read(fedge_cuda_gpu *gpu, uint64_t padded, size_t count,
                                                int64_t *sums, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_reset(fedge_cuda_gpu *gpu, fedge_error *err);

/* Room for [num_moments] vectors of an optimizer beside the values; *fits: there is. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_take_moments(fedge_cuda_gpu *gpu, unsigned num_moments,
                                                        bool *fits, fedge_error *err);

/* Adds what the GPU has summed to its times, as far as it is done. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_count_times(fedge_cuda_gpu *gpu, fedge_error *err);

FEDGE_MUST_USE fedge_status fedge_cuda_gpu_mark(fedge_cuda_gpu *gpu, uint64_t ticket,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_wait(fedge_cuda_gpu *gpu, uint64_t ticket,
                                                fedge_error *err);

/* ---- of gpu_memory.c and gpu_chosen.c -------------------------------------------------------- */

FEDGE_MUST_USE fedge_status fedge_cuda_gpu_use(const fedge_cuda_gpu *gpu, fedge_error *err);
/* FEDGE_GPU_LOST: what was being done, and why it failed, and the GPU is marked as lost;
 * FEDGE_NO_MEMORY: with what is free, and what can be done; FEDGE_OK for cudaSuccess. */
fedge_status fedge_cuda_check(const fedge_cuda_gpu *gpu, cudaError_t error, const char *doing,
                              fedge_error *err);

/* A call, or a group of them, for the GPU's watch. */
fedge_gpu_call fedge_cuda_call(const fedge_cuda_gpu *gpu, const char *doing);
/* As the runtime's functions, watched. */
FEDGE_MUST_USE cudaError_t fedge_cuda_wait_event(const fedge_cuda_gpu *gpu, cudaEvent_t event);
FEDGE_MUST_USE cudaError_t fedge_cuda_wait_stream(const fedge_cuda_gpu *gpu, cudaStream_t stream);
FEDGE_MUST_USE cudaError_t fedge_cuda_copy(const fedge_cuda_gpu *gpu, void *to, const void *from,
                                           size_t size, enum cudaMemcpyKind kind,
                                           cudaStream_t stream);

/* Memory of the GPU, or pinned of the host, to the pointer at [pointer]. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_take(const fedge_cuda_gpu *gpu, void *pointer,
                                                size_t size, bool pinned, fedge_error *err);
/* Copies a table to the GPU by way of the work buffers, and waits. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_copy(fedge_cuda_gpu *gpu, void *to, const void *from,
                                                size_t size, fedge_error *err);

/* What segments with a sparsifier need besides their slots: on the GPU, in bytes. */
size_t fedge_cuda_chosen_bytes(const fedge_cuda_geometry *geometry,
                               const fedge_cuda_segment *segments, uint32_t num_segments);
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_open_chosen(fedge_cuda_gpu *gpu, fedge_error *err);
void fedge_cuda_gpu_close_chosen(fedge_cuda_gpu *gpu);
/* Copies what the GPU has of segment [s], to its place in a slot, or to the lane's room, and checks
 * it. *turn: which buffer is next. */
FEDGE_MUST_USE fedge_status fedge_cuda_gpu_stage_chosen(fedge_cuda_gpu *gpu, fedge_cuda_lane *lane,
                                                        fedge_cuda_slot *slot, uint32_t s,
                                                        const fedge_encoded *update,
                                                        uint32_t *next_buffer, fedge_error *err);
cudaError_t fedge_cuda_gpu_add_chosen(fedge_cuda_gpu *gpu, uint32_t s, const uint32_t *slots,
                                      const uint32_t *weights, uint32_t count);

#endif
