/* What bench_gpu measures the kernels against: reading memory and nothing else. */
#ifndef FEDGE_TESTS_GPU_BANDWIDTH_H
#define FEDGE_TESTS_GPU_BANDWIDTH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* words[i] = (random bits & mask) | set, for i < count. */
cudaError_t bandwidth_fill(uint32_t *words, size_t count, uint32_t mask, uint32_t set,
                           uint32_t seed, cudaStream_t stream);

/* Reads words (count, a multiple of 4, aligned to 16 bytes) once. *sink gets what no reader can do
 * without. */
cudaError_t bandwidth_read(const uint32_t *words, size_t count, uint32_t *sink, uint32_t num_blocks,
                           cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
