/* Kernels with a mistake each, and without: what the emulator must find, and must not. */
#ifndef FEDGE_TESTS_CUDA_PLANTED_H
#define FEDGE_TESTS_CUDA_PLANTED_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = in[n − 1 − i] by way of shared memory; n ≤ 256. */
cudaError_t planted_reverse(const int *in, int *out, int n, int without_barrier, cudaStream_t s);
/* *sum += 1 by each of [n] threads. */
cudaError_t planted_count(int *sum, int n, int without_atomic, cudaStream_t s);
/* out[block] = sum of the block's 128 values, by shuffles and dynamic shared memory. */
cudaError_t planted_sum(const int *in, int *out, int blocks, cudaStream_t s);
cudaError_t planted_divergent_barrier(int *out, cudaStream_t s);
cudaError_t planted_early_exit(int *out, cudaStream_t s);
cudaError_t planted_wrong_mask(int *out, cudaStream_t s);
/* Lane 0 writes what lane 1 reads; a warp without the __syncwarp between. */
cudaError_t planted_warp(int *out, int without_sync, cudaStream_t s);
cudaError_t planted_misaligned(const char *in, int *out, cudaStream_t s);
cudaError_t planted_set(int *out, int n, int value, cudaStream_t s);

#ifdef __cplusplus
}
#endif
#endif
