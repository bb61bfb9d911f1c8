/* The naive version of each fast product, norm and attention: one thread for each value, which
 * adds its terms from the first to the last. The arguments are those of the fast launchers in
 * kernels.h. Tests compare both; no program calls these.
 *
 * Factors are never rounded, y_factor and dx_factor count as 1, nothing is added to what is there,
 * and attention drops nothing.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_NAIVE_H
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_NAIVE_H

#include "edge/train/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y, and dx, dweight and dbias. */
cudaError_t fedge_naive_launch_linear(const fedge_cohort_shape *shape,
                                      const fedge_cohort_linear *args);
cudaError_t fedge_naive_launch_linear_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_linear *args);

/* With any number of groups. */
cudaError_t fedge_naive_launch_conv2d(const fedge_cohort_shape *shape,
                                      const fedge_cohort_conv2d *args);
cudaError_t fedge_naive_launch_conv2d_backward(const fedge_cohort_shape *shape,
                                               const fedge_cohort_conv2d *args);

/* y and moments, and dx from them. */
cudaError_t fedge_naive_launch_norm(const fedge_cohort_shape *shape, const fedge_cohort_norm *args);
cudaError_t fedge_naive_launch_norm_backward(const fedge_cohort_shape *shape,
                                             const fedge_cohort_norm *args);

/* Shares and context, and dscores and dqkv from them. */
cudaError_t fedge_naive_launch_attention(const fedge_cohort_shape *shape,
                                         const fedge_cohort_attention *args);
cudaError_t fedge_naive_launch_attention_backward(const fedge_cohort_shape *shape,
                                                  const fedge_cohort_attention *args);

#ifdef __cplusplus
}
#endif

#endif
