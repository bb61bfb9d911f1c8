/* Where a model's change is added to sums that lie on the GPU: plain data for hosts and kernels. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_PIECE_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_PIECE_H

#include <stdint.h>

#define FEDGE_COHORT_PIECE 256 /* values of a piece, at most: a codec's block */

/* Codecs of changes (edge/core/codec/codec.h) that GPUs know. */
enum { FEDGE_COHORT_CODEC_NONE, FEDGE_COHORT_CODEC_INT8 };

/* Up to 256 values of one tensor, from a multiple of 256 on. */
typedef struct fedge_cohort_piece {
    int64_t *sums;  /* on the cohort's GPU: of its first value, the others behind it */
    uint32_t first; /* of the model's values */
    uint16_t count;
    int8_t bound_log2; /* b: changes are cut to ±2^b, and in units of 2^(b − 30) */
    uint8_t codec;
} fedge_cohort_piece;

#endif
