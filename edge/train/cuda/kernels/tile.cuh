/* Tensor cores: products of small matrices by a warp, D = A B + D with sums in fp32.
 *
 * A is 16 × K and B is K × 8, K being 8 for tf32 and 16 for bf16 (PTX ISA, mma.m16n8k8 and
 * mma.m16n8k16). A lane has 4 words of A, 2 of B and 4 sums of D. With g = lane / 4 and t = lane
 * % 4,
 *
 *     word r of A:  row g + 8 (r mod 2), k of word t + 4 (r / 2)
 *     word r of B:  column g,            k of word t + 4 r
 *     sum r of D:   row g + 8 (r / 2),   column 2 t + r mod 2
 *
 * where a word is one tf32 number, k its place, or two of bf16, 2 k and 2 k + 1, the first in the
 * lower half. All 32 lanes call it. Factors are rounded before: of fp32's bits tf32 reads the upper
 * 19. In which order a GPU adds the K products is its own; GPUs of one kind give the same bits.
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
    __trap(); /* the host refuses such a chip (cohort.c) */
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

#else /* on a CPU: the same by the table above, each sum from its first k to its last */

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

/* A tile of C = A B for one slot, by 256 threads: each owns ROWS × COLUMNS
 * elements and adds their products from the first k to the last, so that the
 * sum depends on neither the tile's size nor its place. Where factors are
 * rounded, tensor cores add the products, so many k at a time from the first to
 * the last. cuBLAS may be faster, but chooses the order of a sum by the GPU's
 * size and by how many products a launch has. Operands are
 * told how they lie by types that have
 *
 *     static const bool K_FIRST   neighbours in memory have neighbouring k (else neighbouring i)
 *     place at(i)                 what depends on row or column i alone: once for each of a thread
 *     step along(k)               what depends on k alone: once for each k of a thread
 *     get(at(i), along(k))        the element; k is below depth()
 *     size(), depth()             how many i there are, and how many k
 */

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
template <typename Operand, int SIZE, int DROPPED> struct tile_loader {
    static const int EACH = SIZE * TILE_DEPTH / TILE_THREADS;
    static const int PLACES = Operand::K_FIRST ? EACH : 1, STEPS = EACH / PLACES;
    typename Operand::place places[PLACES];
    float fetched[STEPS][PLACES];

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
    /* Reads are under way until their values are put. */
    __device__ __forceinline__ void fetch(const Operand &from, uint32_t first, uint32_t k0)
    {
#pragma unroll
        for (int q = 0; q < STEPS; q++) {
            const uint32_t k = k0 + (uint32_t)step(q);
            const typename Operand::step along = from.along(k);
#pragma unroll
            for (int p = 0; p < PLACES; p++) {
                const bool there = first + (uint32_t)row(p) < from.size() && k < from.depth();
                fetched[q][p] = there ? from.get(places[p], along) : 0.0f;
            }
        }
    }
    /* For tensor cores row by row, else k by k at an odd pitch, for the banks. */
    __device__ __forceinline__ void put(float *shared) const
    {
        const int of_row = DROPPED ? TILE_PITCH : 1, of_step = DROPPED ? 1 : SIZE + 1;
#pragma unroll
        for (int q = 0; q < STEPS; q++) {
#pragma unroll
            for (int p = 0; p < PLACES; p++)
                shared[row(p) * of_row + step(q) * of_step] = round_factor(fetched[q][p], DROPPED);
        }
    }
};

/* Factors of two steps in k, taken in turn. */
template <int ROWS, int COLUMNS> struct tile_factors {
    float rows[2][ROWS * TILE_SIDE * TILE_PITCH], columns[2][COLUMNS * TILE_SIDE * TILE_PITCH];
};

/* multiply(rows, columns) for each step in k, from the first to the last, while the next one's
 * factors are fetched. A thread may put those as soon as all have come to multiply these: then all
 * are done with the ones before, in whose place they come. */
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
        const uint32_t turn = k0 / TILE_DEPTH % 2;
        load_a.put(factors.rows[turn]);
        load_b.put(factors.columns[turn]);
        __syncthreads();
        load_a.fetch(a, first_row, k0 + TILE_DEPTH); /* behind the last one: nothing */
        load_b.fetch(b, first_column, k0 + TILE_DEPTH);
        multiply(factors.rows[turn], factors.columns[turn]);
    }
}

/* A step's products, added to a thread's sums: rows and columns from its own first ones on. */
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void add_products(const float *rows, const float *columns,
                                                    float sums[ROWS][COLUMNS])
{
    const int HEIGHT = ROWS * TILE_SIDE + 1, WIDTH = COLUMNS * TILE_SIDE + 1; /* of a k */
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

/* By the tile's threads themselves, in fp32. */
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

/* A lane's words of the factors in shared memory, which begin with its own row or column: word [t]
 * along k, from number [k0] on. */
template <int DROPPED>
static __device__ __forceinline__ uint32_t core_word(const float *from, int k0, int t)
{
    return DROPPED == FEDGE_COHORT_BF16 ? pack_bf16(from[k0 + 2 * t], from[k0 + 2 * t + 1])
                                        : (uint32_t)__float_as_int(from[k0 + t]);
}

/* A step's products by tensor cores: of 16 rows and [BLOCKS] times 8 columns, the lane's own first.
 */
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

/* By tensor cores, of which each of the 8 warps has one. */
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

/* store(m, n, sum) for each element that there is. All threads of the block
 * call it. */
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
