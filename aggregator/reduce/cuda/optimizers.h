/* The kernels of the server's optimizers: steps that keep vectors of their own. C interface,
 * implemented in optimizers.cu. As kernels.h says of its kernels; all is in double, each operation
 * rounds once, and the results are those of aggregator/rounds/strategies, bit for bit. */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_OPTIMIZERS_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_OPTIMIZERS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "aggregator/reduce/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* values, sums, kept[0] and, if the rule keeps two, kept[1]: (count), on the GPU. total_weight ≥ 1;
 * unit: 2^−F. */
cudaError_t fedge_cuda_optimize(const fedge_optimizer_step *step, float *values,
                                float *const kept[2], const int64_t *sums, uint32_t count,
                                uint64_t total_weight, double unit, double rate,
                                cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
