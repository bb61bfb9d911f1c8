#include "aggregator/reduce/cuda/naive.h"

#include "aggregator/reduce/cuda/values.cuh"

#define EACH(i, count)                                                                             \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                \
         i += (uint64_t)gridDim.x * blockDim.x)

static cudaLaunchConfig_t one_each(uint64_t count, cudaStream_t stream)
{
    return shape((count + THREADS - 1) / THREADS, MAX_GRID, stream);
}

/* ---- accumulate ------------------------------------------------------------------------------ */

static __global__ void accumulate(bool bytes, fedge_cuda_batch batch, int64_t *sums, uint64_t count)
{
    EACH(i, count)
    {
        for (uint32_t u = 0; u < batch.count; u++) {
            const uint32_t scale = batch.scales[u][i / FEDGE_CUDA_BLOCK];
            const int64_t v =
                bytes ? (int64_t)((const int8_t *)batch.values[u])[i] * scale * 128
                      : (int64_t)rintf(ldexpf(((const float *)batch.values[u])[i], (int)scale));
            sums[i] += batch.weights[u] * v;
        }
    }
}

cudaError_t fedge_naive_accumulate(int codec, const fedge_cuda_batch *batch, int64_t *sums,
                                   uint32_t num_blocks, cudaStream_t stream)
{
    const uint64_t count = (uint64_t)num_blocks * FEDGE_CUDA_BLOCK;
    const bool bytes = codec == FEDGE_CUDA_INT8 || codec == FEDGE_CUDA_INT4;
    const cudaLaunchConfig_t config = one_each(count, stream);
    return cudaLaunchKernelEx(&config, accumulate, bytes, *batch, sums, count);
}

/* ---- dots ------------------------------------------------------------------------------------ */

static __device__ int64_t shortened(int32_t v, int shift)
{
    return ((int64_t)v + (1ll << (shift - 1))) >> shift;
}

static __global__ void dots(fedge_cuda_tile tile, int shift, fedge_tile_products products,
                            unsigned long long *high, unsigned long long *low)
{
    EACH(square, (uint64_t)tile.num * tile.num)
    {
        const uint64_t i = square / tile.num, j = square % tile.num, pair = i * (i + 1) / 2 + j;
        const bool in_last_row = products == FEDGE_PRODUCTS_LAST && i == tile.num - 1;
        if (j > i || (products != FEDGE_PRODUCTS_ALL && i != j && !in_last_row))
            continue;
        for (uint32_t k = 0; k < tile.count; k++) {
            const int64_t product = shortened(tile.values[i * tile.stride + k], shift) *
                                    shortened(tile.values[j * tile.stride + k], shift);
            high[pair] += (unsigned long long)(product >> 32);
            low[pair] += (unsigned long long)product & 0xffffffffu;
        }
    }
}

cudaError_t fedge_naive_dots(const fedge_cuda_tile *tile, int shift, fedge_tile_products products,
                             unsigned long long *high, unsigned long long *low, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = one_each((uint64_t)tile->num * tile->num, stream);
    return cudaLaunchKernelEx(&config, dots, *tile, shift, products, high, low);
}

/* ---- ranks of a coordinate's values ---------------------------------------------------------- */

static __device__ int64_t value_of(const fedge_cuda_tile &tile, const fedge_cuda_rows &chosen,
                                   uint32_t i, uint64_t k)
{
    return tile.values[(chosen.rows ? chosen.rows[i] : i) * tile.stride + k];
}

/* The rank of value i among its coordinate's, by |2 v − origin| and then by v. */
static __device__ uint32_t rank_of(const fedge_cuda_tile &tile, const fedge_cuda_rows &chosen,
                                   uint32_t i, uint64_t k, int64_t origin)
{
    const int64_t v = value_of(tile, chosen, i, k);
    uint32_t rank = 0;
    for (uint32_t j = 0; j < chosen.num; j++) {
        const int64_t other = value_of(tile, chosen, j, k);
        const int64_t distance = llabs(2 * v - origin), others = llabs(2 * other - origin);
        rank += others < distance || (others == distance && (other < v || (other == v && j < i)));
    }
    return rank;
}

/* Below 2 v for every v, so that the order by distance from it is the order of v. */
#define LEAST (-(1ll << 32))

static __device__ int64_t sum_ranks(const fedge_cuda_tile &tile, const fedge_cuda_rows &chosen,
                                    uint32_t from, uint32_t to, uint64_t k, int64_t origin)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < chosen.num; i++) {
        const uint32_t rank = rank_of(tile, chosen, i, k, origin);
        sum += rank >= from && rank < to ? value_of(tile, chosen, i, k) : 0;
    }
    return sum;
}

static __global__ void between(fedge_cuda_tile tile, fedge_cuda_rows chosen, uint32_t from,
                               uint32_t to, int64_t *sums)
{
    EACH(k, tile.count)
    sums[k] = sum_ranks(tile, chosen, from, to, k, LEAST);
}

cudaError_t fedge_naive_between(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                                uint32_t from, uint32_t to, int64_t *sums, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = one_each(tile->count, stream);
    return cudaLaunchKernelEx(&config, between, *tile, *chosen, from, to, sums);
}

static __global__ void nearest(fedge_cuda_tile tile, fedge_cuda_rows chosen, uint32_t cut,
                               int64_t *sums)
{
    const uint32_t num = chosen.num;
    EACH(k, tile.count)
    {
        const int64_t twice_median =
            num % 2 == 1 ? 2 * sum_ranks(tile, chosen, num / 2, num / 2 + 1, k, LEAST)
                         : sum_ranks(tile, chosen, num / 2 - 1, num / 2 + 1, k, LEAST);
        sums[k] = sum_ranks(tile, chosen, 0, num - cut, k, twice_median);
    }
}

cudaError_t fedge_naive_nearest(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                                uint32_t cut, int64_t *sums, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = one_each(tile->count, stream);
    return cudaLaunchKernelEx(&config, nearest, *tile, *chosen, cut, sums);
}
