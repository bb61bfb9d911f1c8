/* The kernels of the CUDA accumulator: a C interface, implemented in kernels.cu.
 *
 * Coordinates on a GPU are padded: each tensor begins at a multiple of FEDGE_CUDA_BLOCK, so that a
 * block of that many is of one tensor, has one scale, and vector loads are aligned. What is padding
 * has value and sum 0.
 *
 *     stage       checks a chunk of an encoded update, and lays values and scales on planes
 *     accumulate  sums[i] += Σ weight · v[i] over a batch of staged updates, each read once
 *     add_fixed   sums[i] += weight · v[i] for values that are integers already
 *     step        values[i] += (float)(rate · (sums[i] / W · unit))
 *
 * All pointers are to the GPU's memory and all work is queued on [stream], of the current GPU. All
 * results are those of the scalar references in edge/core, bit for bit. A launcher returns what the
 * launch returned; errors of the kernels themselves come later, as CUDA has it.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_KERNELS_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "aggregator/reduce/optimizer.h"

#define FEDGE_CUDA_BLOCK 256    /* coordinates; FEDGE_CODEC_BLOCK */
#define FEDGE_CUDA_MAX_BATCH 16 /* updates of one launch */
#define FEDGE_CUDA_NOT_BAD UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

/* The codecs of values that there are kernels for: geometry.c has their names. Below are the
 * kernels for those that choose which values travel. */
enum { FEDGE_CUDA_NONE, FEDGE_CUDA_INT8, FEDGE_CUDA_F16, FEDGE_CUDA_BF16, FEDGE_CUDA_INT4 };

/* cudaErrorNoKernelImageForDevice, or what else says so: the current GPU is of a kind that this
 * build has no kernels for. */
cudaError_t fedge_cuda_has_code(void);

/* Where a block's values lie among the bytes of its section. */
typedef struct fedge_cuda_block {
    uint64_t offset; /* of its first byte (int8: of its scale) */
    uint32_t tensor; /* of which it is, over all sections */
    uint32_t count;  /* of its values, 1 to FEDGE_CUDA_BLOCK; the rest is padding */
} fedge_cuda_block;

/* A part of a section, whose codec does not choose. */
typedef struct fedge_cuda_chunk {
    int codec;                      /* FEDGE_CUDA_NONE, … */
    uint32_t first_block;           /* of these among the layout's blocks */
    uint32_t num_blocks;            /* ≥ 1 */
    const fedge_cuda_block *blocks; /* (num_blocks) */
    const uint8_t *bytes;           /* of the blocks, at any alignment */
    uint64_t offset;                /* of bytes[0] in the section */
    const int8_t *bounds_log2;      /* of all tensors */
    /* The planes, for these blocks; values NULL: only check. There are two kinds, whatever the
     * codec: values: float or int8, (num_blocks, 256); scales: (num_blocks), F of float, m of int8.
     * f16 and bf16 lie there as float, int4 as int8: 16 q, for q · 2^11 = 16 q · 2^7. */
    void *values;
    uint16_t *scales;
    /* Lowered to (padded coordinate << 32 | the value's bits) of the first bad value: one that is
     * not |x| ≤ B (NaN is not), −128, of int4 −8, or what is behind its last value and not 0.
     * FEDGE_CUDA_NOT_BAD at first. */
    unsigned long long *bad;
} fedge_cuda_chunk;

cudaError_t fedge_cuda_stage(const fedge_cuda_chunk *chunk, cudaStream_t stream);

/* Staged updates; the planes' pointers are for the first of the blocks that are summed. */
typedef struct fedge_cuda_batch {
    const void *values[FEDGE_CUDA_MAX_BATCH];
    const uint16_t *scales[FEDGE_CUDA_MAX_BATCH];
    uint32_t weights[FEDGE_CUDA_MAX_BATCH];
    uint32_t count; /* 1 to FEDGE_CUDA_MAX_BATCH */
} fedge_cuda_batch;

/* sums: (num_blocks, 256), aligned to 16 bytes. [max_grid]: as many thread blocks as the GPU runs
 * at once, each of which takes several parts. */
cudaError_t fedge_cuda_accumulate(int codec, const fedge_cuda_batch *batch, int64_t *sums,
                                  uint32_t num_blocks, uint32_t max_grid, cudaStream_t stream);

/* v, sums: (count). */
cudaError_t fedge_cuda_add_fixed(const int32_t *v, uint32_t weight, int64_t *sums, uint32_t count,
                                 cudaStream_t stream);

/* values, sums: (count). total_weight ≥ 1; unit: 2^−F. As fedge_fixed_step. */
cudaError_t fedge_cuda_step(float *values, const int64_t *sums, uint32_t count,
                            uint64_t total_weight, double unit, double rate, cudaStream_t stream);

/* The coordinates of an optimizer's step. All vectors lie on the GPU. */
typedef struct fedge_cuda_optimizer_range {
    float *values;         /* (count) */
    float *moments[2];     /* (count) each; [1] is NULL if the rule has one */
    const int64_t *sums;   /* (count) */
    uint32_t count;        /* coordinates */
    uint64_t total_weight; /* ≥ 1 */
    double unit;           /* 2^−F */
    double rate;           /* the server's learning rate */
} fedge_cuda_optimizer_range;

/* The server's optimizers. Everything is computed in double, each operation rounds once, and the
 * results equal those of fedge_optimizer_apply bit for bit. */
cudaError_t fedge_cuda_optimize(const fedge_optimizer_step *step,
                                const fedge_cuda_optimizer_range *range, cudaStream_t stream);

/* The kernels for sections whose codec chooses which values travel (docs/reference/protocol.md,
 * "Codecs that choose"): a C interface, implemented in chosen.cu.
 *
 * Such a section lies on a GPU as it travelled, behind a directory of where its tensors and groups
 * begin, which the host makes of the section's indices (directory.c). Sums are added to straight
 * from the bytes, by atomic additions of integers, whose order does not matter.
 *
 *     check_chosen  every value and every place, as fedge_codec_read_tensor does
 *     add_chosen    sums[i] += weight · v[i] for all that travels, for a batch of checked updates
 *
 * Pointers, streams, bits and errors are as in kernels.h.
 */

#define FEDGE_CUDA_GROUP 32768 /* coordinates whose gaps are read alone; FEDGE_CODEC_GROUP */
#define FEDGE_CUDA_INDEX_BYTES 4
#define FEDGE_CUDA_KEY_BYTES 8
#define FEDGE_CUDA_MAGNITUDE_BYTES 4

/* How the places of a tensor's values travel. */
typedef enum fedge_cuda_places {
    FEDGE_CUDA_ALL,   /* all values travel: of biases and norms */
    FEDGE_CUDA_GAPS,  /* as gaps: topk */
    FEDGE_CUDA_SIGNS, /* as gaps, with only a sign for each: ternary */
    FEDGE_CUDA_DRAWN  /* drawn by a key: randk */
} fedge_cuda_places;

/* A tensor, whatever the update. */
typedef struct fedge_cuda_chosen_tensor {
    int64_t base;    /* coordinate of its first value among the GPU's; may be negative */
    uint64_t head;   /* bytes before its values */
    uint32_t count;  /* of its coordinates */
    uint32_t chosen; /* of its values that travel, 1 to count */
    uint32_t rice;   /* bits of a gap's lower part */
    uint32_t places; /* FEDGE_CUDA_ALL, … */
} fedge_cuda_chosen_tensor;

/* Some of a tensor: up to 256 of its values that travel, or a group of its coordinates. */
typedef struct fedge_cuda_part {
    uint32_t tensor;
    uint32_t first; /* value, or coordinate */
} fedge_cuda_part;

/* A section as far as a GPU has it. */
typedef struct fedge_cuda_chosen {
    int codec; /* of the values: FEDGE_CUDA_NONE, … */
    uint32_t num_tensors, num_blocks, num_groups;
    const fedge_cuda_chosen_tensor *tensors; /* (num_tensors) */
    const fedge_cuda_part *blocks; /* (num_blocks): of all but FEDGE_CUDA_SIGNS, each 256 values */
    const fedge_cuda_part *groups; /* (num_groups): of those whose places are gaps */
    uint64_t num_sums;
} fedge_cuda_chosen;

/* The directory of an update: (num_tensors) of these, (num_groups) of those, then the bytes. */
typedef struct fedge_cuda_tensor_place {
    uint64_t offset; /* of its bytes, from the end of the directory */
    int32_t bound_log2;
    int32_t magnitude; /* FEDGE_CUDA_SIGNS: 0 to 2^30 */
} fedge_cuda_tensor_place;

typedef struct fedge_cuda_group_place {
    uint64_t gaps;  /* of its gaps' bytes, from the end of the directory */
    uint32_t first; /* value of the tensor that it has */
    uint16_t count; /* of its values */
    uint16_t size;  /* bytes of its gaps */
} fedge_cuda_group_place;

/* update: the directory, aligned to 16 bytes, and bytes at any alignment behind it. *bad is lowered
 * to [code] when anything is wrong. */
cudaError_t fedge_cuda_check_chosen(const fedge_cuda_chosen *section, const uint8_t *update,
                                    unsigned long long code, unsigned long long *bad,
                                    cudaStream_t stream);

/* Checked updates of one section, with the same bounds. */
typedef struct fedge_cuda_chosen_batch {
    const uint8_t *updates[FEDGE_CUDA_MAX_BATCH]; /* as above */
    uint32_t weights[FEDGE_CUDA_MAX_BATCH];
    uint32_t count; /* 1 to FEDGE_CUDA_MAX_BATCH */
} fedge_cuda_chosen_batch;

/* sums: (section->num_sums). A thread takes a group of an update, or a value. */
cudaError_t fedge_cuda_add_chosen(const fedge_cuda_chosen *section,
                                  const fedge_cuda_chosen_batch *batch, int64_t *sums,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
