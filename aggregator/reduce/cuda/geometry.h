/* Where an update's values lie: among its encoded bytes, among the sums that others see, and among
 * the padded coordinates of a GPU (kernels.h).
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_GEOMETRY_H

#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/kernels.h"

/* A tensor, in the order in which they travel. */
typedef struct fedge_cuda_tensor {
    const fedge_tensor_spec *spec; /* offset: of its sums, as others see them */
    uint32_t first_block, num_blocks;
} fedge_cuda_tensor;

/* A codec that a GPU can sum. */
typedef struct fedge_cuda_codec {
    const char *name;
    int kernel;         /* FEDGE_CUDA_NONE, … */
    size_t block_bytes; /* of a block's values on a plane */
    /* The error of a bad value, whose bits [bits] are, as fedge_codec_decode has it. */
    fedge_status (*fail_value)(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                               uint32_t bits, fedge_error *err);
} fedge_cuda_codec;

/* The one list, by the codecs' names; NULL: there are no kernels for this one. */
const fedge_cuda_codec *fedge_cuda_codec_of(const fedge_codec *codec);

/* FEDGE_INVALID_ARGUMENT names the first codec without kernels. */
FEDGE_MUST_USE fedge_status fedge_cuda_can_sum(const fedge_layout *layout, fedge_error *err);

/* Blocks in one codec, behind each other in an update. */
typedef struct fedge_cuda_segment {
    const fedge_cuda_codec *codec;
    uint32_t first_block, num_blocks;
    size_t plane; /* bytes of the planes of segments before: a multiple of 1,024 or 256 */
} fedge_cuda_segment;

typedef struct fedge_cuda_geometry {
    uint32_t num_tensors, num_segments, num_blocks;
    fedge_cuda_tensor *tensors; /* (num_tensors), malloc'ed */
    fedge_cuda_block *blocks;   /* (num_blocks), malloc'ed */
    fedge_cuda_segment segments[FEDGE_ACCUMULATOR_MAX_SECTIONS];
    size_t num_elements, size; /* as in the layout */
} fedge_cuda_geometry;

/* [layout]: one of which fedge_cuda_can_sum says so. */
FEDGE_MUST_USE fedge_status fedge_cuda_geometry_init(fedge_cuda_geometry *geometry,
                                                     const fedge_layout *layout, fedge_error *err);
void fedge_cuda_geometry_fini(fedge_cuda_geometry *geometry); /* all zero is fine */

/* Where the bytes of [block] begin in an update; the update's size for num_blocks. */
uint64_t fedge_cuda_offset_of(const fedge_cuda_geometry *geometry, uint32_t block);

/* A run of sums within one tensor. */
typedef struct fedge_cuda_run {
    uint32_t tensor; /* number of it */
    uint64_t padded; /* coordinate of its first */
    size_t count;
} fedge_cuda_run;

/* The sums from [first] on, up to the end of their tensor or [count] of them. */
fedge_cuda_run fedge_cuda_run_at(const fedge_cuda_geometry *geometry, size_t first, size_t count);

/* The error of a bad value, as fedge_codec_decode has it. [bad]: as fedge_cuda_stage reports it. */
fedge_status fedge_cuda_fail_value(const fedge_cuda_geometry *geometry, uint64_t bad,
                                   const int8_t *bounds_log2, fedge_error *err);

#endif
