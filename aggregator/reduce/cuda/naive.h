/* Naive versions of the fast kernels: one thread computes one result, term by term. Tests compare
 * both; no program calls these. Arguments and results are those of the fast kernels (kernels.h,
 * tile_kernels.h), whose other kernels have one thread per result themselves.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_NAIVE_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_NAIVE_H

#include "aggregator/reduce/cuda/kernels.h"
#include "aggregator/reduce/cuda/tile_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t fedge_naive_accumulate(int codec, const fedge_cuda_batch *batch, int64_t *sums,
                                   uint32_t num_blocks, cudaStream_t stream);
cudaError_t fedge_naive_dots(const fedge_cuda_tile *tile, int shift, fedge_tile_products products,
                             unsigned long long *high, unsigned long long *low,
                             cudaStream_t stream);
cudaError_t fedge_naive_between(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                                uint32_t from, uint32_t to, int64_t *sums, cudaStream_t stream);
cudaError_t fedge_naive_nearest(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                                uint32_t cut, int64_t *sums, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
