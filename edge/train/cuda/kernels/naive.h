/* Naive versions of the fast kernels: one thread adds all terms of a result, from the first to the
 * last. The arguments are those of the fast launchers in kernels.h. Tests compare both; no program
 * calls these. Other kernels (elementwise, embedding, gather, pooling) are naive themselves.
 *
 * Factors are never rounded, y_factor and dx_factor count as 1, outputs are overwritten, attention
 * ignores dropout, and every output of a backward pass is wanted.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_NAIVE_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_NAIVE_H

#include "edge/train/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets y; backward dx, dweight and dbias. */
cudaError_t fedge_naive_launch_linear(const fedge_cohort_shape *shape,
                                      const fedge_cohort_linear *args);
cudaError_t fedge_naive_launch_linear_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_linear *args);

/* Likewise, with any number of groups. */
cudaError_t fedge_naive_launch_conv2d(const fedge_cohort_shape *shape,
                                      const fedge_cohort_conv2d *args);
cudaError_t fedge_naive_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_conv2d *args);

/* Sets y and moments; backward dx, dweight and dbias. */
cudaError_t fedge_naive_launch_norm(const fedge_cohort_shape *shape, const fedge_cohort_norm *args);
cudaError_t fedge_naive_launch_norm_backward(const fedge_cohort_shape *shape,
                                             const fedge_cohort_norm *args);

/* Sets y, moments and tracked; backward dx, dweight and dbias. */
cudaError_t fedge_naive_launch_batchnorm(const fedge_cohort_shape *shape,
                                         const fedge_cohort_batchnorm *args);
cudaError_t fedge_naive_launch_batchnorm_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_batchnorm *args);

/* Sets shares and context; backward dscores and dqkv. */
cudaError_t fedge_naive_launch_attention(const fedge_cohort_shape *shape,
                                         const fedge_cohort_attention *args);
cudaError_t fedge_naive_launch_attention_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_attention *args);

/* Sets gates, cell, before and h; backward gates, dstate, dh and dcell. */
cudaError_t fedge_naive_launch_recurrent(const fedge_cohort_shape *shape,
                                         const fedge_cohort_recurrent *args);
cudaError_t fedge_naive_launch_recurrent_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_recurrent *args);

/* Sets dy and predicted, and adds to loss_sum and correct of the tallies. */
cudaError_t fedge_naive_launch_loss(const fedge_cohort_shape *shape, const fedge_cohort_loss *args);

/* Sums into the first part of each slot's squares; the other parts are 0. */
cudaError_t fedge_naive_launch_squares(const fedge_cohort_shape *shape,
                                       const fedge_cohort_step *args);

/* Adds to the sums and sets bad_value and clamped of the tally, as the fast one. */
cudaError_t fedge_naive_launch_accumulate(const fedge_cohort_accumulate *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
