/* The kernels of the CUDA accumulator: a C interface, implemented in kernels.cu.
 *
 * Coordinates on a GPU are padded: each tensor begins at a multiple of FEDGE_CUDA_BLOCK. A block of
 * that many coordinates belongs to one tensor and has one scale, and vector loads are aligned.
 * Values and sums of padding are 0.
 *
 *     stage       checks a chunk of an encoded update, and stores values and scales in planes
 *     accumulate  sums[i] += Σ weight · v[i] over a batch of staged updates, each read once
 *     add_fixed   sums[i] += weight · v[i] for values that are integers already
 *     step        values[i] += (float)(rate · (sums[i] / W · unit))
 *
 * All pointers are device pointers, and all work is queued on [stream] of the current GPU. Results
 * equal the scalar references in edge/core bit for bit. A launcher returns the error of the launch;
 * later calls of CUDA return errors of the kernel.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_KERNELS_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "aggregator/reduce/optimizer.h"

#define FEDGE_CUDA_BLOCK 256    /* coordinates of a block (FEDGE_CODEC_BLOCK) */
#define FEDGE_CUDA_MAX_BATCH 16 /* most updates of one launch */
#define FEDGE_CUDA_NOT_BAD UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

/* Value codecs with kernels; geometry.c has their names. Kernels for sparsifiers are below. */
enum { FEDGE_CUDA_NONE, FEDGE_CUDA_INT8, FEDGE_CUDA_F16, FEDGE_CUDA_BF16, FEDGE_CUDA_INT4 };

/* Fails, for example with cudaErrorNoKernelImageForDevice, when this build has no kernels for the
 * current GPU. */
cudaError_t fedge_cuda_has_code(void);

/* The position of a block's values in the bytes of its section. */
typedef struct fedge_cuda_block {
    uint64_t offset; /* offset of its first byte (int8: of its scale) */
    uint32_t tensor; /* index over all sections */
    uint32_t count;  /* values, 1 to FEDGE_CUDA_BLOCK; the others are padding */
} fedge_cuda_block;

/* A part of a section without a sparsifier. */
typedef struct fedge_cuda_chunk {
    int codec;                      /* codec, such as FEDGE_CUDA_NONE */
    uint32_t first_block;           /* index of the chunk's first block in the layout */
    uint32_t num_blocks;            /* ≥ 1 */
    const fedge_cuda_block *blocks; /* (num_blocks) */
    const uint8_t *bytes;           /* bytes of the blocks, at any alignment */
    uint64_t offset;                /* offset of bytes[0] in the section */
    const int8_t *bounds_log2;      /* b of all tensors */
    /* The planes of these blocks; values NULL: only check. values: (num_blocks, 256) float or int8;
     * scales: (num_blocks), F of float, m of int8. f16 and bf16 are stored as float, int4 as int8:
     * 16 q, since q · 2^11 = 16 q · 2^7. */
    void *values;
    uint16_t *scales;
    /* Set to the minimum of itself and (padded coordinate << 32 | the value's bits) of the first
     * bad value: one without |x| ≤ B, such as NaN; −128, or −8 of int4; or padding of int4 that is
     * not 0. FEDGE_CUDA_NOT_BAD at first. */
    unsigned long long *bad;
} fedge_cuda_chunk;

cudaError_t fedge_cuda_stage(const fedge_cuda_chunk *chunk, cudaStream_t stream);

/* Staged updates; the pointers are to the first summed block of each plane. */
typedef struct fedge_cuda_batch {
    const void *values[FEDGE_CUDA_MAX_BATCH];
    const uint16_t *scales[FEDGE_CUDA_MAX_BATCH];
    uint32_t weights[FEDGE_CUDA_MAX_BATCH];
    uint32_t count; /* 1 to FEDGE_CUDA_MAX_BATCH */
} fedge_cuda_batch;

/* sums: (num_blocks, 256), aligned to 16 bytes. [max_grid]: the thread blocks that the GPU runs at
 * once; each processes several parts. */
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
 * results equal those of fedge_optimizer_move bit for bit. */
cudaError_t fedge_cuda_optimize(const fedge_optimizer_step *step,
                                const fedge_cuda_optimizer_range *range, cudaStream_t stream);

/* The kernels for sections with a sparsifier (docs/reference/protocol.md, "Codecs that choose"): a
 * C interface, implemented in chosen.cu.
 *
 * Such a section is stored on a GPU in encoded form after a directory of its tensors' and groups'
 * offsets, which the host makes from the section's indices (directory.c). Values are added to the
 * sums directly from the encoded bytes by atomic integer additions, whose order does not matter.
 *
 *     check_chosen  checks every value and index, as fedge_codec_read_tensor does
 *     add_chosen    sums[i] += weight · v[i] for all sent values of a batch of checked updates
 *
 * Pointers, streams, bits and errors are as in kernels.h.
 */

#define FEDGE_CUDA_GROUP 32768 /* coordinates whose gaps are read alone (FEDGE_CODEC_GROUP) */
#define FEDGE_CUDA_INDEX_BYTES 4
#define FEDGE_CUDA_KEY_BYTES 8
#define FEDGE_CUDA_MAGNITUDE_BYTES 4

/* How the indices of a tensor's sent values are encoded. */
typedef enum fedge_cuda_index_coding {
    FEDGE_CUDA_ALL,   /* all values are sent, such as biases and norms */
    FEDGE_CUDA_GAPS,  /* gaps between indices: topk */
    FEDGE_CUDA_SIGNS, /* gaps between indices, with only a sign for each: ternary */
    FEDGE_CUDA_DRAWN  /* indices drawn from a key: randk */
} fedge_cuda_index_coding;

/* The properties of a tensor that are the same for all updates. */
typedef struct fedge_cuda_chosen_tensor {
    int64_t base;    /* its first coordinate minus the GPU's first; may be negative */
    uint64_t head;   /* bytes before its values */
    uint32_t count;  /* number of coordinates */
    uint32_t chosen; /* values sent, 1 to count */
    uint32_t rice;   /* bits of a gap's lower part */
    uint32_t coding; /* one of FEDGE_CUDA_ALL, … */
} fedge_cuda_chosen_tensor;

/* A part of a tensor: up to 256 of its sent values, or a group of its coordinates. */
typedef struct fedge_cuda_part {
    uint32_t tensor;
    uint32_t first; /* index of the value or coordinate */
} fedge_cuda_part;

/* The part of a section on a GPU. */
typedef struct fedge_cuda_chosen {
    int codec; /* codec of the values, such as FEDGE_CUDA_NONE */
    uint32_t num_tensors, num_blocks, num_groups;
    const fedge_cuda_chosen_tensor *tensors; /* (num_tensors) */
    const fedge_cuda_part *blocks; /* (num_blocks): 256 values each; none of FEDGE_CUDA_SIGNS */
    const fedge_cuda_part *groups; /* (num_groups): groups of tensors with gaps */
    uint64_t num_sums;
} fedge_cuda_chosen;

/* The directory of an update: (num_tensors) tensor entries, (num_groups) group entries, then the
 * encoded bytes. */
typedef struct fedge_cuda_tensor_entry {
    uint64_t offset; /* offset of its bytes, from the end of the directory */
    int32_t bound_log2;
    int32_t magnitude; /* FEDGE_CUDA_SIGNS: 0 to 2^30 */
} fedge_cuda_tensor_entry;

typedef struct fedge_cuda_group_entry {
    uint64_t gaps;  /* offset of its gaps' bytes, from the end of the directory */
    uint32_t first; /* index of its first value in the tensor */
    uint16_t count; /* number of values */
    uint16_t size;  /* bytes of its gaps */
} fedge_cuda_group_entry;

/* update: the directory, aligned to 16 bytes, then bytes at any alignment. *bad becomes at most
 * [code] when anything is wrong. */
cudaError_t fedge_cuda_check_chosen(const fedge_cuda_chosen *section, const uint8_t *update,
                                    unsigned long long code, unsigned long long *bad,
                                    cudaStream_t stream);

/* Checked updates of one section, with the same bounds. */
typedef struct fedge_cuda_chosen_batch {
    const uint8_t *updates[FEDGE_CUDA_MAX_BATCH]; /* each a directory, then encoded bytes */
    uint32_t weights[FEDGE_CUDA_MAX_BATCH];
    uint32_t count; /* 1 to FEDGE_CUDA_MAX_BATCH */
} fedge_cuda_chosen_batch;

/* sums: (section->num_sums). Each thread adds a group of an update, or a value. */
cudaError_t fedge_cuda_add_chosen(const fedge_cuda_chosen *section,
                                  const fedge_cuda_chosen_batch *batch, int64_t *sums,
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
