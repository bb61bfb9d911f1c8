/* A tile of C = A B for one slot, by 256 threads: each owns ROWS × COLUMNS
 * elements and adds their products from the first k to the last, so that the
 * sum depends on neither the tile's size nor its place. Where factors are
 * rounded, tensor cores add the products, so many k at a time from the first to
 * the last. cuBLAS may be faster, but chooses the order of a sum by the GPU's
 * size and by how many products a launch has (docs/simulation.md). Operands are
 * told how they lie by types that have
 *
 *     static const bool K_FIRST   neighbours in memory have neighbouring k (else neighbouring i)
 *     place at(i)                 what depends on row or column i alone: once for each of a thread
 *     step along(k)               what depends on k alone: once for each k of a thread
 *     get(at(i), along(k))        the element; k is below depth()
 *     size(), depth()             how many i there are, and how many k
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_TILE_CUH
#define FEDGE_EDGE_TRAIN_CUDA_TILE_CUH

#include <cuda_runtime.h>

#include "edge/train/cuda/kernels.h"
#include "edge/train/cuda/tensor_core.cuh"

enum { TILE_THREADS = 256, TILE_SIDE = 16, TILE_DEPTH = 16 };
enum { TILE_PITCH = TILE_DEPTH + 4 }; /* of a row for tensor cores: no two lanes in one bank */

/* As cvt.rna.tf32.f32 and cvt.rn.bf16.f32 have it, and the same bits on every machine. */
static __device__ __forceinline__ float round_factor(float x, uint32_t dropped)
{
    const uint32_t bits = (uint32_t)__float_as_int(x);
    if (dropped == 0)
        return x;
    if (!isfinite(x))
        return x + x; /* a NaN that is told by its upper bits */
    const uint32_t half = 1u << (dropped - 1), even = bits >> dropped & 1;
    const uint32_t up = dropped == FEDGE_COHORT_BF16 ? half - 1 + even : half;
    return __int_as_float((int)((bits + up) >> dropped << dropped));
}

/* One operand's share of a step in k: SIZE rows or columns, TILE_DEPTH deep. A thread has so many
 * places in i, and so many in k. */
template <typename Operand, int SIZE> struct tile_loader {
    static const int EACH = SIZE * TILE_DEPTH / TILE_THREADS;
    static const int PLACES = Operand::K_FIRST ? EACH : 1, STEPS = EACH / PLACES;
    typename Operand::place places[PLACES];

    static __device__ __forceinline__ int row(int p) /* which of the tile's i */
    {
        return Operand::K_FIRST ? (int)threadIdx.x / TILE_DEPTH + p * TILE_SIDE
                                : (int)threadIdx.x % SIZE;
    }
    static __device__ __forceinline__ int step(int q) /* which of the tile's k */
    {
        return Operand::K_FIRST ? (int)threadIdx.x % TILE_DEPTH
                                : (int)threadIdx.x / SIZE + q * (TILE_THREADS / SIZE);
    }
    __device__ __forceinline__ void begin(const Operand &from, uint32_t first)
    {
#pragma unroll
        for (int p = 0; p < PLACES; p++) {
            const uint32_t i = first + (uint32_t)row(p);
            places[p] = from.at(i < from.size() ? i : 0);
        }
    }
    /* To shared[row · of_row + step · of_step]. */
    __device__ __forceinline__ void load(const Operand &from, uint32_t first, uint32_t k0,
                                         uint32_t dropped, float *shared, int of_row,
                                         int of_step) const
    {
#pragma unroll
        for (int q = 0; q < STEPS; q++) {
            const uint32_t k = k0 + (uint32_t)step(q);
            const typename Operand::step along = from.along(k);
#pragma unroll
            for (int p = 0; p < PLACES; p++) {
                const bool there = first + (uint32_t)row(p) < from.size() && k < from.depth();
                shared[row(p) * of_row + step(q) * of_step] =
                    there ? round_factor(from.get(places[p], along), dropped) : 0.0f;
            }
        }
    }
};

/* By the tile's threads themselves, in fp32. */
template <int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void multiply_plain(const A &a, const B &b, uint32_t first_row,
                                                      uint32_t first_column, float *rows,
                                                      float *columns, const Store &store)
{
    /* Of a step in shared memory; odd, for its banks. */
    const int HEIGHT = ROWS * TILE_SIDE + 1, WIDTH = COLUMNS * TILE_SIDE + 1;
    const int mine_n = (int)threadIdx.x % TILE_SIDE, mine_m = (int)threadIdx.x / TILE_SIDE;
    tile_loader<A, ROWS * TILE_SIDE> load_a;
    tile_loader<B, COLUMNS * TILE_SIDE> load_b;
    float sums[ROWS][COLUMNS] = {};
    load_a.begin(a, first_row);
    load_b.begin(b, first_column);
    for (uint32_t k0 = 0; k0 < a.depth(); k0 += TILE_DEPTH) {
        load_a.load(a, first_row, k0, 0, rows, 1, HEIGHT);
        load_b.load(b, first_column, k0, 0, columns, 1, WIDTH);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_DEPTH; k++) {
            float x[ROWS], y[COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                x[i] = rows[k * HEIGHT + mine_m + i * TILE_SIDE];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                y[j] = columns[k * WIDTH + mine_n + j * TILE_SIDE];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const uint32_t m = first_row + (uint32_t)(mine_m + i * TILE_SIDE);
            const uint32_t n = first_column + (uint32_t)(mine_n + j * TILE_SIDE);
            if (m < a.size() && n < b.size())
                store(m, n, sums[i][j]);
        }
    }
}

/* A lane's words of the factors in shared memory, which begin with its own row or column: word [t]
 * along k, from number [k0] on. */
template <int DROPPED>
static __device__ __forceinline__ uint32_t core_word(const float *from, int k0, int t)
{
    return DROPPED == FEDGE_COHORT_BF16 ? pack_bf16(from[k0 + 2 * t], from[k0 + 2 * t + 1])
                                        : (uint32_t)__float_as_int(from[k0 + t]);
}

/* By tensor cores: each of the 8 warps has 16 rows, and [BLOCKS] times 8 columns. */
template <int DROPPED, int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void multiply_by_cores(const A &a, const B &b, uint32_t first_row,
                                                         uint32_t first_column, float *rows,
                                                         float *columns, const Store &store)
{
    const int BLOCKS = ROWS * COLUMNS * TILE_SIDE / (TILE_THREADS / 32) / CORE_COLUMNS;
    const int DEPTH = DROPPED == FEDGE_COHORT_BF16 ? 2 * CORE_WORDS : CORE_WORDS; /* k at a time */
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int mine_m = (int)threadIdx.x / 32 % ROWS * CORE_ROWS;
    const int mine_n = (int)threadIdx.x / 32 / ROWS * BLOCKS * CORE_COLUMNS;
    tile_loader<A, ROWS * TILE_SIDE> load_a;
    tile_loader<B, COLUMNS * TILE_SIDE> load_b;
    float sums[BLOCKS][4] = {};
    load_a.begin(a, first_row);
    load_b.begin(b, first_column);
    for (uint32_t k0 = 0; k0 < a.depth(); k0 += TILE_DEPTH) {
        load_a.load(a, first_row, k0, DROPPED, rows, TILE_PITCH, 1);
        load_b.load(b, first_column, k0, DROPPED, columns, TILE_PITCH, 1);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_DEPTH; k += DEPTH) {
            uint32_t x[4], y[2];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const float *row = rows + (mine_m + g + r % 2 * 8) * TILE_PITCH;
                x[r] = core_word<DROPPED>(row, k, t + r / 2 * 4);
            }
#pragma unroll
            for (int j = 0; j < BLOCKS; j++) {
                const float *column = columns + (mine_n + j * CORE_COLUMNS + g) * TILE_PITCH;
                y[0] = core_word<DROPPED>(column, k, t);
                y[1] = core_word<DROPPED>(column, k, t + 4);
                if (DROPPED == FEDGE_COHORT_BF16)
                    multiply_bf16(sums[j], x, y);
                else
                    multiply_tf32(sums[j], x, y);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < BLOCKS * 4; i++) {
        const uint32_t m = first_row + (uint32_t)(mine_m + g + i % 4 / 2 * 8);
        const uint32_t n = first_column + (uint32_t)(mine_n + i / 4 * CORE_COLUMNS + 2 * t + i % 2);
        if (m < a.size() && n < b.size())
            store(m, n, sums[i / 4][i % 4]);
    }
}

/* store(m, n, sum) for each element that there is. All threads of the block
 * call it. */
template <int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void multiply_tile(const A &a, const B &b, uint32_t first_row,
                                                     uint32_t first_column, uint32_t dropped,
                                                     const Store &store)
{
    __shared__ float rows[ROWS * TILE_SIDE * TILE_PITCH], columns[COLUMNS * TILE_SIDE * TILE_PITCH];
    if (dropped == FEDGE_COHORT_TF32) {
        multiply_by_cores<FEDGE_COHORT_TF32, ROWS, COLUMNS>(a, b, first_row, first_column, rows,
                                                            columns, store);
    } else if (dropped == FEDGE_COHORT_BF16) {
        multiply_by_cores<FEDGE_COHORT_BF16, ROWS, COLUMNS>(a, b, first_row, first_column, rows,
                                                            columns, store);
    } else {
        multiply_plain<ROWS, COLUMNS>(a, b, first_row, first_column, rows, columns, store);
    }
}

/* What a layer stores: activation.cu's bits, where a ReLU works over its output. */
static __device__ __forceinline__ float activated(float y, uint32_t relu)
{
    return relu && y < 0.0f ? 0.0f : y;
}

/* A matrix whose neighbours along k lie side by side: element (i, k) at i ·
 * pitch + k. */
struct tile_rows {
    static const bool K_FIRST = true;
    typedef const float *place;
    typedef uint32_t step;
    const float *from;
    size_t pitch;
    uint32_t many, deep;
    __device__ __forceinline__ uint32_t size() const
    {
        return many;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return deep;
    }
    __device__ __forceinline__ place at(uint32_t i) const
    {
        return from + i * pitch;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        return k;
    }
    __device__ __forceinline__ float get(place row, step k) const
    {
        return row[k];
    }
};

/* The other way round: element (i, k) at k · pitch + i. */
struct tile_columns {
    static const bool K_FIRST = false;
    typedef const float *place;
    typedef size_t step;
    const float *from;
    size_t pitch;
    uint32_t many, deep;
    __device__ __forceinline__ uint32_t size() const
    {
        return many;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return deep;
    }
    __device__ __forceinline__ place at(uint32_t i) const
    {
        return from + i;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        return k * pitch;
    }
    __device__ __forceinline__ float get(place column, step k) const
    {
        return column[k];
    }
};

static __host__ __device__ __forceinline__ uint32_t tiles_over(uint32_t values, uint32_t size)
{
    return values / size + (values % size > 0);
}

/* The block's tile, of [columns] in tiles of [width]: which one from the top, and from the left. */
struct tile_place {
    uint32_t down, right;
};
static __device__ __forceinline__ tile_place place_of_tile(uint32_t columns, uint32_t width)
{
    const uint32_t across = tiles_over(columns, width);
    return {blockIdx.x / across, blockIdx.x % across};
}

/* Tiles of [height] × [width] over [rows] × [columns] for each slot, row by row: all of them in x,
 * which alone may be longer than 65,535. */
static inline cudaLaunchConfig_t tile_grid(const fedge_cohort_shape *shape, uint32_t rows,
                                           uint32_t height, uint32_t columns, uint32_t width)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles_over(columns, width) * tiles_over(rows, height), 1, shape->slots);
    config.blockDim = dim3(TILE_THREADS);
    config.stream = shape->stream;
    return config;
}

/* A thread for each of [values] of a slot. */
static inline cudaLaunchConfig_t value_grid(const fedge_cohort_shape *shape, size_t values)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((values + TILE_THREADS - 1) / TILE_THREADS), 1, shape->slots);
    config.blockDim = dim3(TILE_THREADS);
    config.stream = shape->stream;
    return config;
}

#endif
