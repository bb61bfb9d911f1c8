/* The kernels that reduce tiles of updates (aggregator/reduce/tile.h): a C interface, implemented
 * in tile_kernels.cu.
 *
 *     mix       each of the first rows the mean of those of them that are not far from it
 *     dots      exact products of all pairs of rows
 *     mean      Σ a_i v_i of each coordinate
 *     between   sorted by a network in registers, up to 64 rows, else by radix selection: the sum
 *               of what is between two ranks
 *     nearest   by radix selection: the sum of the values nearest to their median
 *
 * A tile is (num, stride) of int32, |v| ≤ 2^30, of which [count] ≤ stride coordinates count. All
 * pointers are to the GPU's memory, all work is queued on [stream], and all results are those of
 * fedge_tile_cpu, bit for bit.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_CUDA_TILE_KERNELS_H
#define FEDGE_AGGREGATOR_REDUCE_CUDA_TILE_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "aggregator/reduce/tile.h"

#define FEDGE_CUDA_NETWORK 64 /* rows that are sorted in registers */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fedge_cuda_tile {
    const int32_t *values;
    uint32_t num, count;
    uint64_t stride;
} fedge_cuda_tile;

/* The selected rows of a tile. */
typedef struct fedge_cuda_rows {
    const uint32_t *rows;    /* (num); NULL: the first ones */
    const uint32_t *weights; /* (num): weights of mean */
    uint32_t num;
} fedge_cuda_rows;

/* far (num_mixed, num_far), num_far < num_mixed ≤ tile->num; to: as the tile's values. */
cudaError_t fedge_cuda_mix(const fedge_cuda_tile *tile, const uint32_t *far, uint32_t num_far,
                           uint32_t num_mixed, int32_t *to, cudaStream_t stream);
/* Adds u_i · u_j of j ≤ i to high[p] · 2^32 + low[p], p = i (i + 1) / 2 + j; u, shift and
 * products: as fedge_tile_ops.dots. */
cudaError_t fedge_cuda_dots(const fedge_cuda_tile *tile, int shift, fedge_tile_products products,
                            unsigned long long *high, unsigned long long *low, cudaStream_t stream);
/* sums (count). */
cudaError_t fedge_cuda_mean(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                            int64_t *sums, cudaStream_t stream);
/* Sums the ranks from..to, from < to ≤ chosen->num. */
cudaError_t fedge_cuda_between(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                               uint32_t from, uint32_t to, int64_t *sums, cudaStream_t stream);
/* Sums without the [cut] < chosen->num farthest. */
cudaError_t fedge_cuda_nearest(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                               uint32_t cut, int64_t *sums, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
