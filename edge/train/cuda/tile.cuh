/* A tile of C = A B for one slot, by 256 threads: each owns ROWS × COLUMNS
 * elements and adds their products from the first k to the last, so that the
 * sum depends on neither the tile's size nor its place. Operands are told how
 * they lie by types that have
 *
 *     static const bool K_FIRST   neighbours in memory have neighbouring k
 * (else neighbouring i) at(i)                       what does not depend on k,
 * of row or column i get(at, k)                  the element; k is below
 * depth() size(), depth()             how many i there are, and how many k
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_TILE_CUH
#define FEDGE_EDGE_TRAIN_CUDA_TILE_CUH

#include <cuda_runtime.h>

#include "edge/train/cuda/kernels.h"

enum { TILE_THREADS = 256, TILE_SIDE = 16, TILE_DEPTH = 16 };

/* As cvt.rna.tf32.f32 and cvt.rn.bf16.f32 have it, and the same bits on every machine. */
static __device__ __forceinline__ float round_factor(float x, uint32_t dropped)
{
    const uint32_t bits = (uint32_t)__float_as_int(x);
    if (dropped == 0 || !isfinite(x))
        return x;
    const uint32_t half = 1u << (dropped - 1), even = bits >> dropped & 1;
    const uint32_t up = dropped == FEDGE_COHORT_BF16 ? half - 1 + even : half;
    return __int_as_float((int)((bits + up) >> dropped << dropped));
}

/* One operand's share of a step in k: SIZE rows or columns, TILE_DEPTH deep. */
template <typename Operand, int SIZE> struct tile_loader {
    static const int EACH = SIZE * TILE_DEPTH / TILE_THREADS; /* elements of a thread */
    static const int WIDTH = SIZE + 1; /* of a row in shared memory; odd, for its banks */
    typename Operand::place places[EACH];

    static __device__ __forceinline__ int row(int e) /* which of the tile's i */
    {
        return Operand::K_FIRST ? (int)threadIdx.x / TILE_DEPTH + e * TILE_SIDE
                                : (int)threadIdx.x % SIZE;
    }
    static __device__ __forceinline__ int step(int e) /* which of the tile's k */
    {
        return Operand::K_FIRST ? (int)threadIdx.x % TILE_DEPTH
                                : (int)threadIdx.x / SIZE + e * (TILE_THREADS / SIZE);
    }
    __device__ __forceinline__ void begin(const Operand &from, uint32_t first)
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const uint32_t i = first + (uint32_t)row(e);
            places[e] = from.at(i < from.size() ? i : 0);
        }
    }
    __device__ __forceinline__ void load(const Operand &from, uint32_t first, uint32_t k0,
                                         uint32_t dropped, float *shared) const
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const uint32_t k = k0 + (uint32_t)step(e);
            const bool there = first + (uint32_t)row(e) < from.size() && k < from.depth();
            shared[step(e) * WIDTH + row(e)] =
                there ? round_factor(from.get(places[e], k), dropped) : 0.0f;
        }
    }
};

/* store(m, n, sum) for each element that there is. All threads of the block
 * call it. */
template <int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void multiply_tile(const A &a, const B &b, uint32_t first_row,
                                                     uint32_t first_column, uint32_t dropped,
                                                     const Store &store)
{
    const int HEIGHT = ROWS * TILE_SIDE, WIDTH = COLUMNS * TILE_SIDE;
    __shared__ float rows[TILE_DEPTH * (HEIGHT + 1)], columns[TILE_DEPTH * (WIDTH + 1)];
    const int mine_n = (int)threadIdx.x % TILE_SIDE, mine_m = (int)threadIdx.x / TILE_SIDE;
    tile_loader<A, HEIGHT> load_a;
    tile_loader<B, WIDTH> load_b;
    float sums[ROWS][COLUMNS] = {};
    load_a.begin(a, first_row);
    load_b.begin(b, first_column);
    for (uint32_t k0 = 0; k0 < a.depth(); k0 += TILE_DEPTH) {
        load_a.load(a, first_row, k0, dropped, rows);
        load_b.load(b, first_column, k0, dropped, columns);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_DEPTH; k++) {
            float x[ROWS], y[COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                x[i] = rows[k * (HEIGHT + 1) + mine_m + i * TILE_SIDE];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                y[j] = columns[k * (WIDTH + 1) + mine_n + j * TILE_SIDE];
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

/* A matrix whose neighbours along k lie side by side: element (i, k) at i ·
 * pitch + k. */
struct tile_rows {
    static const bool K_FIRST = true;
    typedef const float *place;
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
    __device__ __forceinline__ float get(place row, uint32_t k) const
    {
        return row[k];
    }
};

/* The other way round: element (i, k) at k · pitch + i. */
struct tile_columns {
    static const bool K_FIRST = false;
    typedef const float *place;
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
    __device__ __forceinline__ float get(place column, uint32_t k) const
    {
        return column[k * pitch];
    }
};

/* Tiles of [height] × [width] over [rows] × [columns] for each slot: columns in
 * x, rows in y. */
static inline cudaLaunchConfig_t tile_grid(const fedge_cohort_shape *shape, uint32_t rows,
                                           uint32_t height, uint32_t columns, uint32_t width)
{
    cudaLaunchConfig_t config = {};
    config.gridDim =
        dim3((columns + width - 1) / width, (rows + height - 1) / height, shape->slots);
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
