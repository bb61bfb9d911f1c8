#include "aggregator/reduce/cuda/tile_kernels.h"

#include "aggregator/reduce/cuda/values.cuh"

#define PAST_ALL 0x7fffffff /* sorts after every value */

static __device__ __forceinline__ int32_t value_at(const fedge_cuda_tile &tile,
                                                   const fedge_cuda_rows &chosen, uint32_t i,
                                                   uint64_t k)
{
    const uint32_t row = chosen.rows ? chosen.rows[i] : i;
    return tile.values[row * tile.stride + k];
}

/* One thread per coordinate. */
static cudaLaunchConfig_t for_each(uint32_t count, cudaStream_t stream)
{
    return shape(((uint64_t)count + THREADS - 1) / THREADS, MAX_GRID, stream);
}

#define EACH_COORDINATE(k, count)                                                                  \
    for (uint64_t k = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; k < (count);                \
         k += (uint64_t)gridDim.x * blockDim.x)

/* ---- mix ------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS)
    mix(fedge_cuda_tile tile, const uint32_t *far, uint32_t num_far, uint32_t num_mixed,
        int32_t *to)
{
    const double num_near = (double)(num_mixed - num_far);
    EACH_COORDINATE(k, tile.count)
    {
        long long all = 0;
        for (uint32_t i = 0; i < num_mixed; i++)
            all += tile.values[i * tile.stride + k];
        for (uint32_t i = 0; i < num_mixed; i++) {
            long long sum = all;
            for (uint32_t j = 0; j < num_far; j++)
                sum -= tile.values[far[(uint64_t)i * num_far + j] * tile.stride + k];
            to[i * tile.stride + k] = (int32_t)rint((double)sum / num_near);
        }
        for (uint32_t i = num_mixed; i < tile.num; i++)
            to[i * tile.stride + k] = tile.values[i * tile.stride + k];
    }
}

cudaError_t fedge_cuda_mix(const fedge_cuda_tile *tile, const uint32_t *far, uint32_t num_far,
                           uint32_t num_mixed, int32_t *to, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = for_each(tile->count, stream);
    return cudaLaunchKernelEx(&config, mix, *tile, far, num_far, num_mixed, to);
}

/* ---- dots ------------------------------------------------------------------------------------ */

#define EDGE 16    /* rows of a square of pairs; each thread computes one pair */
#define DEPTH 64   /* coordinates in shared memory */
#define CHUNK 4096 /* coordinates of a block: the sum of their squares, 2^48 each, fits */
#define APART (DEPTH + 1)

static_assert(EDGE * EDGE == THREADS, "a thread for each pair");

/* Loads DEPTH coordinates of rows first..first + EDGE, shortened; rows after the last are 0. */
static __device__ __forceinline__ void load_rows(const fedge_cuda_tile &tile, uint32_t first,
                                                 uint64_t at, int shift, int32_t *to)
{
    const int32_t half = (int32_t)1 << (shift - 1);
    for (uint32_t i = threadIdx.x; i < EDGE * DEPTH; i += THREADS) {
        const uint32_t row = first + i / DEPTH;
        const uint64_t k = at + i % DEPTH;
        const bool there = row < tile.num && k < tile.count;
        to[i / DEPTH * APART + i % DEPTH] =
            there ? (tile.values[row * tile.stride + k] + half) >> shift : 0;
    }
}

/* The row and column (*square) of a square of pairs in the triangle. Of norms only the diagonal,
 * and with the last row's products also the squares of its row, are computed. */
static __device__ __forceinline__ uint32_t locate_block(fedge_tile_products products,
                                                        uint32_t edges, uint32_t *block_col)
{
    uint32_t block_row = 0;
    if (products != FEDGE_PRODUCTS_ALL) {
        if (*block_col < edges)
            return *block_col;
        *block_col -= edges;
        return edges - 1;
    }
    while (*block_col > block_row) {
        *block_col -= block_row + 1;
        block_row++;
    }
    return block_row;
}

static __device__ __forceinline__ bool is_wanted(fedge_tile_products products, uint32_t i,
                                                 uint32_t j, uint32_t num)
{
    const bool any =
        products == FEDGE_PRODUCTS_ALL || (products == FEDGE_PRODUCTS_LAST && i == num - 1);
    return i < num && (any ? j <= i : j == i);
}

/* One block of threads for each square of pairs and CHUNK coordinates. */
static __global__ void __launch_bounds__(THREADS)
    dots(fedge_cuda_tile tile, int shift, fedge_tile_products products, uint32_t chunks,
         unsigned long long *high, unsigned long long *low)
{
    __shared__ int32_t a[EDGE * APART], b[EDGE * APART];
    uint32_t block_col = blockIdx.x / chunks;
    const uint32_t block_row = locate_block(products, (tile.num + EDGE - 1) / EDGE, &block_col);
    const uint32_t i = block_row * EDGE + threadIdx.x / EDGE,
                   j = block_col * EDGE + threadIdx.x % EDGE;
    const uint64_t begin = (uint64_t)(blockIdx.x % chunks) * CHUNK;
    const int32_t *x = a + threadIdx.x / EDGE * APART, *y = b + threadIdx.x % EDGE * APART;
    long long sum = 0;
    for (uint64_t at = begin; at < begin + CHUNK && at < tile.count; at += DEPTH) {
        load_rows(tile, block_row * EDGE, at, shift, a);
        load_rows(tile, block_col * EDGE, at, shift, b);
        __syncthreads();
        for (uint32_t k = 0; k < DEPTH; k++)
            sum += (long long)x[k] * y[k];
        __syncthreads();
    }
    if (is_wanted(products, i, j, tile.num)) {
        const uint64_t pair = (uint64_t)i * (i + 1) / 2 + j;
        atomicAdd(&high[pair], (unsigned long long)(sum >> 32));
        atomicAdd(&low[pair], (unsigned long long)(sum & 0xffffffff));
    }
}

cudaError_t fedge_cuda_dots(const fedge_cuda_tile *tile, int shift, fedge_tile_products products,
                            unsigned long long *high, unsigned long long *low, cudaStream_t stream)
{
    const uint64_t edges = (tile->num + EDGE - 1) / EDGE;
    const uint64_t squares = products == FEDGE_PRODUCTS_ALL    ? edges * (edges + 1) / 2
                             : products == FEDGE_PRODUCTS_LAST ? 2 * edges - 1
                                                               : edges;
    const uint32_t chunks = (tile->count + CHUNK - 1) / CHUNK;
    if (squares * chunks > 0x7fffffff)
        return cudaErrorInvalidConfiguration;
    const cudaLaunchConfig_t config = shape(squares * chunks, 0x7fffffff, stream);
    return cudaLaunchKernelEx(&config, dots, *tile, shift, products, chunks, high, low);
}

/* ---- mean ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS)
    mean(fedge_cuda_tile tile, fedge_cuda_rows chosen, int64_t *sums)
{
    EACH_COORDINATE(k, tile.count)
    {
        long long sum = 0;
        for (uint32_t i = 0; i < chosen.num; i++)
            sum += (long long)chosen.weights[i] * value_at(tile, chosen, i, k);
        sums[k] = sum;
    }
}

cudaError_t fedge_cuda_mean(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                            int64_t *sums, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = for_each(tile->count, stream);
    return cudaLaunchKernelEx(&config, mean, *tile, *chosen, sums);
}

/* ---- between, by a network ------------------------------------------------------------------- */

/* A stage of Batcher's odd-even merge sort (Knuth, The art of computer programming, 5.3.4) and all
 * later ones: K apart, in sequences of 2 P. The compiler knows all indices, so the values stay in
 * registers. */
template <int N, int P, int K> static __device__ __forceinline__ void sort_from(int32_t *v)
{
    constexpr int FIRST = K % P;
#pragma unroll
    for (int i = FIRST; i < N - K; i++) {
        if ((i - FIRST) % (2 * K) < K && i / (2 * P) == (i + K) / (2 * P)) {
            const int32_t x = v[i], y = v[i + K];
            v[i] = x < y ? x : y;
            v[i + K] = x < y ? y : x;
        }
    }
    if constexpr (K > 1)
        sort_from<N, P, K / 2>(v);
    else if constexpr (2 * P < N)
        sort_from<N, 2 * P, 2 * P>(v);
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
    between(fedge_cuda_tile tile, fedge_cuda_rows chosen, uint32_t from, uint32_t to, int64_t *sums)
{
    EACH_COORDINATE(k, tile.count)
    {
        int32_t v[N];
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            v[i] = i < chosen.num ? value_at(tile, chosen, i, k) : PAST_ALL;
        sort_from<N, 1, 1>(v);
        long long sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            sum += i >= from && i < to ? v[i] : 0;
        sums[k] = sum;
    }
}

/* ---- by radix selection ---------------------------------------------------------------------- */

#define DIGIT 4 /* bits decided in one pass over the rows */
#define DIGITS (1 << DIGIT)

/* The key of a given rank of a coordinate, and how many keys are less and equal. */
struct selection {
    unsigned long long key;
    uint32_t less, same;
};

/* key(i), i < num: of BITS bits. counts: the thread's, THREADS apart. */
template <int BITS, typename Key>
static __device__ __forceinline__ selection select_rank(uint32_t num, uint32_t rank,
                                                        uint32_t *counts, const Key &key)
{
    selection at = {0, 0, num};
    for (int shift = BITS - DIGIT; shift >= 0; shift -= DIGIT) {
        for (int d = 0; d < DIGITS; d++)
            counts[d * THREADS] = 0;
        for (uint32_t i = 0; i < num; i++) {
            const unsigned long long prefix = key(i) >> shift;
            if (prefix >> DIGIT == at.key)
                counts[(prefix % DIGITS) * THREADS]++;
        }
        uint32_t digit = 0;
        for (; at.less + counts[digit * THREADS] <= rank; digit++)
            at.less += counts[digit * THREADS];
        at.same = counts[digit * THREADS];
        at.key = at.key << DIGIT | digit;
    }
    return at;
}

/* The key in the order of the values. */
static __device__ __forceinline__ unsigned long long key_of(int32_t v)
{
    return (uint32_t)v ^ 0x80000000u;
}

static __device__ __forceinline__ int32_t value_of(unsigned long long key)
{
    return (int32_t)((uint32_t)key ^ 0x80000000u);
}

static __global__ void __launch_bounds__(THREADS)
    between_selected(fedge_cuda_tile tile, fedge_cuda_rows chosen, uint32_t from, uint32_t to,
                     int64_t *sums)
{
    __shared__ uint32_t counts[DIGITS * THREADS];
    EACH_COORDINATE(k, tile.count)
    {
        const auto key = [&](uint32_t i) { return key_of(value_at(tile, chosen, i, k)); };
        uint32_t *histogram = counts + threadIdx.x;
        const selection low = select_rank<32>(chosen.num, from, histogram, key);
        const selection high = select_rank<32>(chosen.num, to - 1, histogram, key);
        long long sum = 0;
        if (low.key == high.key) {
            sums[k] = (long long)(to - from) * value_of(low.key);
            continue;
        }
        for (uint32_t i = 0; i < chosen.num; i++) {
            const unsigned long long one = key(i);
            sum += one > low.key && one < high.key ? value_of(one) : 0;
        }
        sum += (long long)(low.less + low.same - from) * value_of(low.key);
        sum += (long long)(to - high.less) * value_of(high.key);
        sums[k] = sum;
    }
}

cudaError_t fedge_cuda_between(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                               uint32_t from, uint32_t to, int64_t *sums, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = for_each(tile->count, stream);
    const uint32_t num = chosen->num;
    if (num <= 8)
        return cudaLaunchKernelEx(&config, between<8>, *tile, *chosen, from, to, sums);
    if (num <= 16)
        return cudaLaunchKernelEx(&config, between<16>, *tile, *chosen, from, to, sums);
    if (num <= 32)
        return cudaLaunchKernelEx(&config, between<32>, *tile, *chosen, from, to, sums);
    if (num <= FEDGE_CUDA_NETWORK)
        return cudaLaunchKernelEx(&config, between<64>, *tile, *chosen, from, to, sums);
    return cudaLaunchKernelEx(&config, between_selected, *tile, *chosen, from, to, sums);
}

/* ---- nearest --------------------------------------------------------------------------------- */

/* The key by distance from the median m: 2 v − 2 m, of 33 bits; at equal distance the greater value
 * comes later. */
static __global__ void __launch_bounds__(THREADS)
    nearest(fedge_cuda_tile tile, fedge_cuda_rows chosen, uint32_t cut, int64_t *sums)
{
    __shared__ uint32_t counts[DIGITS * THREADS];
    EACH_COORDINATE(k, tile.count)
    {
        const uint32_t num = chosen.num, end = num - cut;
        uint32_t *histogram = counts + threadIdx.x;
        const auto plain = [&](uint32_t i) { return key_of(value_at(tile, chosen, i, k)); };
        const long long twice =
            (long long)value_of(select_rank<32>(num, (num - 1) / 2, histogram, plain).key) +
            value_of(select_rank<32>(num, num / 2, histogram, plain).key);
        const auto key = [&](uint32_t i) {
            const long long off = 2 * (long long)value_at(tile, chosen, i, k) - twice;
            return (unsigned long long)(off > 0 ? 2 * off + 1 : -2 * off);
        };
        const selection last = select_rank<36>(num, end - 1, histogram, key);
        long long sum = 0;
        for (uint32_t i = 0; i < num; i++)
            sum += key(i) < last.key ? value_at(tile, chosen, i, k) : 0;
        const long long far = (long long)(last.key >> 1);
        const long long value = (twice + ((last.key & 1) != 0 ? far : -far)) / 2;
        sums[k] = sum + (long long)(end - last.less) * value;
    }
}

cudaError_t fedge_cuda_nearest(const fedge_cuda_tile *tile, const fedge_cuda_rows *chosen,
                               uint32_t cut, int64_t *sums, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = for_each(tile->count, stream);
    return cudaLaunchKernelEx(&config, nearest, *tile, *chosen, cut, sums);
}
