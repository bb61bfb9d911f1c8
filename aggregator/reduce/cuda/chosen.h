/* The kernels for sections whose codec chooses which values travel (docs/reference/protocol.md,
 * "Codecs that choose"): a C interface, implemented in chosen.cu.
 *
 * Such a section lies on a GPU as it travelled, behind a directory of where its tensors and groups
 * begin, which the host makes of the section's indices (directory.h). Sums are added to straight
 * from the bytes, by atomic additions of integers, whose order does not matter.
 *
 *     check_chosen  every value and every place, as fedge_codec_read_tensor does
 *     add_chosen    sums[i] += weight · v[i] for all that travels, for a batch of checked updates
 *
 * Pointers, streams, bits and errors are as in kernels.h.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_CHOSEN_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_CHOSEN_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "aggregator/reduce/cuda/kernels.h"

#define FEDGE_CUDA_GROUP 32768 /* coordinates whose gaps are read alone; FEDGE_CODEC_GROUP */
#define FEDGE_CUDA_INDEX_BYTES 4
#define FEDGE_CUDA_KEY_BYTES 8
#define FEDGE_CUDA_MAGNITUDE_BYTES 4

#ifdef __cplusplus
extern "C" {
#endif

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
