/* Products of matrices by tiles, on tensor cores or without.
 *
 * Tensor cores: a warp computes D = A B + D of small matrices, with sums in fp32.
 *
 * A is 16 × K and B is K × 8, K being 8 for tf32 and 16 for bf16 (PTX ISA, mma.m16n8k8 and
 * mma.m16n8k16). A lane has 4 words of A, 2 of B and 4 sums of D. With g = lane / 4 and t = lane
 * % 4,
 *
 *     word r of A:  row g + 8 (r mod 2), k of word t + 4 (r / 2)
 *     word r of B:  column g,            k of word t + 4 r
 *     sum r of D:   row g + 8 (r / 2),   column 2 t + r mod 2
 *
 * where a word is one tf32 number, or two bf16 numbers (2 k and 2 k + 1) with the first in the
 * lower half. All 32 lanes must call it. Factors are rounded before; tf32 reads the upper 19 of
 * fp32's bits. The order in which a GPU adds the K products is its own, but GPUs of one model give
 * the same bits.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_TILE_CUH
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_TILE_CUH

#include <cuda_runtime.h>

#include "edge/train/cuda/kernels/kernels.h"

enum { CORE_ROWS = 16, CORE_COLUMNS = 8, CORE_WORDS = 8 /* along k */ };

/* Two rounded factors as one word. */
static __device__ __forceinline__ uint32_t pack_bf16(float first, float second)
{
    return (uint32_t)__float_as_int(first) >> 16 | ((uint32_t)__float_as_int(second) & 0xffff0000u);
}

#ifdef __CUDACC__

static __device__ __forceinline__ void multiply_tf32(float d[4], const uint32_t a[4],
                                                     const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap(); /* the host refuses such a GPU (cohort.c) */
#endif
}

static __device__ __forceinline__ void multiply_bf16(float d[4], const uint32_t a[4],
                                                     const uint32_t b[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

#else /* CPU: the same by the table above; each sum goes from its first k to its last */

static inline uint32_t word_of_a(const emulated_words *warp, uint32_t row, uint32_t word)
{
    return warp[row % 8 * 4 + word % 4][row / 8 + 2 * (word / 4)];
}

static inline uint32_t word_of_b(const emulated_words *warp, uint32_t column, uint32_t word)
{
    return warp[column * 4 + word % 4][4 + word / 4];
}

template <typename Product>
static inline void multiply_by_lanes(float d[4], const uint32_t a[4], const uint32_t b[2],
                                     unsigned line, const Product &add)
{
    const emulated_words mine = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const emulated_words *warp = emulated_exchange(line, mine);
    const uint32_t lane = emulated_lane();
    for (uint32_t r = 0; r < 4; r++) {
        const uint32_t row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
        for (uint32_t word = 0; word < CORE_WORDS; word++)
            d[r] = add(word_of_a(warp, row, word), word_of_b(warp, column, word), d[r]);
    }
}

static inline float float_of(uint32_t bits)
{
    return __int_as_float((int)bits);
}

static inline void multiply_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    const uint32_t read = ~0u << FEDGE_COHORT_TF32;
    multiply_by_lanes(d, a, b, __LINE__, [=](uint32_t x, uint32_t y, float sum) {
        return fmaf(float_of(x & read), float_of(y & read), sum);
    });
}

static inline void multiply_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    multiply_by_lanes(d, a, b, __LINE__, [](uint32_t x, uint32_t y, float sum) {
        sum = fmaf(float_of(x << 16), float_of(y << 16), sum);
        return fmaf(float_of(x & 0xffff0000u), float_of(y & 0xffff0000u), sum);
    });
}

#endif

/* 256 threads compute a tile of C = A B for one slot. Each thread owns ROWS × COLUMNS elements and
 * adds their products from the first k to the last, so that a sum depends on neither the tile's
 * size nor its position. Where factors are rounded, tensor cores add 8 or 16 products at a time,
 * from the first k to the last. cuBLAS may be faster, but its order of sums depends on the GPU's
 * size and on the number of products in a launch. A type describes the memory layout of an operand
 * by
 *
 *     static const bool K_FIRST   neighbours in memory have neighbouring k, otherwise neighbouring
 * i line at(i)                  offset of row or column i; a thread calls it once for each i step
 * along(k)               offset of k; a thread calls it once for each k get(at(i), along(k)) the
 * element, for k below depth() size(), depth()             number of i, and number of k
 */

enum { TILE_THREADS = 256, TILE_SIDE = 16, TILE_DEPTH = 16 };
enum { TILE_PITCH = TILE_DEPTH + 4 }; /* row pitch for tensor cores; avoids bank conflicts */

/* Rounds as cvt.rna.tf32.f32 and cvt.rn.bf16.f32 do, with the same bits on every machine. */
static __device__ __forceinline__ float round_factor(float x, uint32_t dropped)
{
    const uint32_t bits = (uint32_t)__float_as_int(x);
    if (dropped == 0)
        return x;
    if (!isfinite(x))
        return x + x; /* quiet NaNs; their upper bits alone say NaN */
    const uint32_t half = 1u << (dropped - 1), even = bits >> dropped & 1;
    const uint32_t up = dropped == FEDGE_COHORT_BF16 ? half - 1 + even : half;
    return __int_as_float((int)((bits + up) >> dropped << dropped));
}

/* Loads one operand for a step in k: SIZE rows or columns by TILE_DEPTH values of k. A thread loads
 * LINES values of i and STEPS of k. */
template <typename Operand, int SIZE, int DROPPED> struct tile_loader {
    static const int EACH = SIZE * TILE_DEPTH / TILE_THREADS;
    static const int LINES = Operand::K_FIRST ? EACH : 1, STEPS = EACH / LINES;
    typename Operand::line lines[LINES];
    float fetched[STEPS][LINES];

    static __device__ __forceinline__ int row(int p) /* i within the tile */
    {
        return Operand::K_FIRST ? (int)threadIdx.x / TILE_DEPTH + p * TILE_SIDE
                                : (int)threadIdx.x % SIZE;
    }
    static __device__ __forceinline__ int step(int q) /* k within the tile */
    {
        return Operand::K_FIRST ? (int)threadIdx.x % TILE_DEPTH
                                : (int)threadIdx.x / SIZE + q * (TILE_THREADS / SIZE);
    }
    __device__ __forceinline__ void begin(const Operand &from, uint32_t first)
    {
#pragma unroll
        for (int p = 0; p < LINES; p++) {
            const uint32_t i = first + (uint32_t)row(p);
            lines[p] = from.at(i < from.size() ? i : 0);
        }
    }
    /* Starts reads, which end when put uses their values. */
    __device__ __forceinline__ void fetch(const Operand &from, uint32_t first, uint32_t k0)
    {
#pragma unroll
        for (int q = 0; q < STEPS; q++) {
            const uint32_t k = k0 + (uint32_t)step(q);
            const typename Operand::step along = from.along(k);
#pragma unroll
            for (int p = 0; p < LINES; p++) {
                const bool there = first + (uint32_t)row(p) < from.size() && k < from.depth();
                fetched[q][p] = there ? from.get(lines[p], along) : 0.0f;
            }
        }
    }
    /* Row by row for tensor cores, otherwise k by k with an odd pitch against bank conflicts. */
    __device__ __forceinline__ void put(float *shared) const
    {
        const int of_row = DROPPED ? TILE_PITCH : 1, of_step = DROPPED ? 1 : SIZE + 1;
#pragma unroll
        for (int q = 0; q < STEPS; q++) {
#pragma unroll
            for (int p = 0; p < LINES; p++)
                shared[row(p) * of_row + step(q) * of_step] = round_factor(fetched[q][p], DROPPED);
        }
    }
};

/* Factors of two steps in k, used alternately. */
template <int ROWS, int COLUMNS> struct tile_factors {
    float rows[2][ROWS * TILE_SIDE * TILE_PITCH], columns[2][COLUMNS * TILE_SIDE * TILE_PITCH];
};

/* Calls multiply(rows, columns) for each step in k in order, while the next step's factors are
 * fetched. One barrier a step suffices: when all threads are past it, none reads the buffer of the
 * step before, which the next step overwrites. */
template <int DROPPED, int ROWS, int COLUMNS, typename A, typename B, typename Multiply>
static __device__ __forceinline__ void
multiply_steps(const A &a, const B &b, uint32_t first_row, uint32_t first_column,
               tile_factors<ROWS, COLUMNS> &factors, const Multiply &multiply)
{
    tile_loader<A, ROWS * TILE_SIDE, DROPPED> load_a;
    tile_loader<B, COLUMNS * TILE_SIDE, DROPPED> load_b;
    load_a.begin(a, first_row);
    load_b.begin(b, first_column);
    load_a.fetch(a, first_row, 0);
    load_b.fetch(b, first_column, 0);
    for (uint32_t k0 = 0; k0 < a.depth(); k0 += TILE_DEPTH) {
        const uint32_t parity = k0 / TILE_DEPTH % 2;
        load_a.put(factors.rows[parity]);
        load_b.put(factors.columns[parity]);
        __syncthreads();
        load_a.fetch(a, first_row, k0 + TILE_DEPTH); /* fetches zeros after the last step */
        load_b.fetch(b, first_column, k0 + TILE_DEPTH);
        multiply(factors.rows[parity], factors.columns[parity]);
    }
}

/* Adds a step's products to a thread's sums. rows and columns point to the thread's first ones. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_products(const float *rows, const float *columns,
                                                    float sums[ROWS][COLUMNS])
{
    const int HEIGHT = ROWS * TILE_SIDE + 1, WIDTH = COLUMNS * TILE_SIDE + 1; /* pitches of k */
#pragma unroll
    for (int k = 0; k < TILE_DEPTH; k++) {
        float x[ROWS], y[COLUMNS];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            x[i] = rows[k * HEIGHT + i * TILE_SIDE];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            y[j] = columns[k * WIDTH + j * TILE_SIDE];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
    }
}

/* Without tensor cores, in fp32. */
template <int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void
multiply_plain(const A &a, const B &b, uint32_t first_row, uint32_t first_column,
               tile_factors<ROWS, COLUMNS> &factors, const Store &store)
{
    const int mine_n = (int)threadIdx.x % TILE_SIDE, mine_m = (int)threadIdx.x / TILE_SIDE;
    float sums[ROWS][COLUMNS] = {};
    multiply_steps<0>(a, b, first_row, first_column, factors,
                      [&](const float *rows, const float *columns) {
                          add_products<ROWS, COLUMNS>(rows + mine_m, columns + mine_n, sums);
                      });
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

/* Word [t] along k of the lane's row or column [from], counted from k0. */
template <int DROPPED>
static __device__ __forceinline__ uint32_t core_word(const float *from, int k0, int t)
{
    return DROPPED == FEDGE_COHORT_BF16 ? pack_bf16(from[k0 + 2 * t], from[k0 + 2 * t + 1])
                                        : (uint32_t)__float_as_int(from[k0 + t]);
}

/* Adds a step's products of 16 rows and BLOCKS times 8 columns by tensor cores. rows and columns
 * point to the lane's first ones. */
template <int DROPPED, int BLOCKS>
static __device__ __forceinline__ void add_by_cores(const float *rows, const float *columns,
                                                    float sums[BLOCKS][4])
{
    const int DEPTH = DROPPED == FEDGE_COHORT_BF16 ? 2 * CORE_WORDS : CORE_WORDS; /* k at a time */
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < TILE_DEPTH; k += DEPTH) {
        uint32_t x[4], y[2];
#pragma unroll
        for (int r = 0; r < 4; r++)
            x[r] = core_word<DROPPED>(rows + r % 2 * 8 * TILE_PITCH, k, t + r / 2 * 4);
#pragma unroll
        for (int j = 0; j < BLOCKS; j++) {
            const float *column = columns + j * CORE_COLUMNS * TILE_PITCH;
            y[0] = core_word<DROPPED>(column, k, t);
            y[1] = core_word<DROPPED>(column, k, t + 4);
            if (DROPPED == FEDGE_COHORT_BF16)
                multiply_bf16(sums[j], x, y);
            else
                multiply_tf32(sums[j], x, y);
        }
    }
}

/* With tensor cores: each of the 8 warps computes one part of the tile. */
template <int DROPPED, int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void
multiply_by_cores(const A &a, const B &b, uint32_t first_row, uint32_t first_column,
                  tile_factors<ROWS, COLUMNS> &factors, const Store &store)
{
    const int BLOCKS = ROWS * COLUMNS * TILE_SIDE / (TILE_THREADS / 32) / CORE_COLUMNS;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int mine_m = (int)threadIdx.x / 32 % ROWS * CORE_ROWS;
    const int mine_n = (int)threadIdx.x / 32 / ROWS * BLOCKS * CORE_COLUMNS;
    float sums[BLOCKS][4] = {};
    multiply_steps<DROPPED>(
        a, b, first_row, first_column, factors, [&](const float *rows, const float *columns) {
            add_by_cores<DROPPED, BLOCKS>(rows + (mine_m + g) * TILE_PITCH,
                                          columns + (mine_n + g) * TILE_PITCH, sums);
        });
#pragma unroll
    for (int i = 0; i < BLOCKS * 4; i++) {
        const uint32_t m = first_row + (uint32_t)(mine_m + g + i % 4 / 2 * 8);
        const uint32_t n = first_column + (uint32_t)(mine_n + i / 4 * CORE_COLUMNS + 2 * t + i % 2);
        if (m < a.size() && n < b.size())
            store(m, n, sums[i / 4][i % 4]);
    }
}

/* Calls store(m, n, sum) for each element of the tile inside C. All threads of the block must call
 * it. */
template <int ROWS, int COLUMNS, typename A, typename B, typename Store>
static __device__ __forceinline__ void multiply_tile(const A &a, const B &b, uint32_t first_row,
                                                     uint32_t first_column, uint32_t dropped,
                                                     const Store &store)
{
    __shared__ tile_factors<ROWS, COLUMNS> factors;
    if (dropped == FEDGE_COHORT_TF32)
        multiply_by_cores<FEDGE_COHORT_TF32>(a, b, first_row, first_column, factors, store);
    else if (dropped == FEDGE_COHORT_BF16)
        multiply_by_cores<FEDGE_COHORT_BF16>(a, b, first_row, first_column, factors, store);
    else
        multiply_plain(a, b, first_row, first_column, factors, store);
}

/* The output y, after a ReLU where one is fused; the same bits as elementwise.cu's ReLU. */
static __device__ __forceinline__ float activated(float y, uint32_t relu)
{
    return relu && y < 0.0f ? 0.0f : y;
}

/* A matrix with element (i, k) at i · pitch + k. */
struct tile_rows {
    static const bool K_FIRST = true;
    typedef const float *line;
    typedef uint32_t step;
    const float *from;
    size_t pitch;
    uint32_t num_lines, num_k;
    __device__ __forceinline__ uint32_t size() const
    {
        return num_lines;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return num_k;
    }
    __device__ __forceinline__ line at(uint32_t i) const
    {
        return from + i * pitch;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        return k;
    }
    __device__ __forceinline__ float get(line row, step k) const
    {
        return row[k];
    }
};

/* A matrix with element (i, k) at k · pitch + i. */
struct tile_columns {
    static const bool K_FIRST = false;
    typedef const float *line;
    typedef size_t step;
    const float *from;
    size_t pitch;
    uint32_t num_lines, num_k;
    __device__ __forceinline__ uint32_t size() const
    {
        return num_lines;
    }
    __device__ __forceinline__ uint32_t depth() const
    {
        return num_k;
    }
    __device__ __forceinline__ line at(uint32_t i) const
    {
        return from + i;
    }
    __device__ __forceinline__ step along(uint32_t k) const
    {
        return k * pitch;
    }
    __device__ __forceinline__ float get(line column, step k) const
    {
        return column[k];
    }
};

static __host__ __device__ __forceinline__ uint32_t tiles_over(uint32_t values, uint32_t size)
{
    return values / size + (values % size > 0);
}

/* The block's tile among rows and columns of tiles, for [columns] in tiles of [width]. */
struct tile_index {
    uint32_t row, column;
};
static __device__ __forceinline__ tile_index find_tile(uint32_t columns, uint32_t width)
{
    const uint32_t across = tiles_over(columns, width);
    return {blockIdx.x / across, blockIdx.x % across};
}

/* Tiles of [height] × [width] over [rows] × [columns] for each slot, row by row. All are in the
 * grid's x, since only x may exceed 65,535. */
static inline cudaLaunchConfig_t tile_grid(const fedge_cohort_shape *shape, uint32_t rows,
                                           uint32_t height, uint32_t columns, uint32_t width)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles_over(columns, width) * tiles_over(rows, height), 1, shape->slots);
    config.blockDim = dim3(TILE_THREADS);
    config.stream = shape->stream;
    return config;
}

/* One thread for each of a slot's [values]; value_index() is its number, blockIdx.z its slot. */
static inline cudaLaunchConfig_t value_grid(const fedge_cohort_shape *shape, size_t values)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((values + TILE_THREADS - 1) / TILE_THREADS), 1, shape->slots);
    config.blockDim = dim3(TILE_THREADS);
    config.stream = shape->stream;
    return config;
}

static __device__ __forceinline__ uint32_t value_index()
{
    return blockIdx.x * TILE_THREADS + threadIdx.x;
}

#endif
