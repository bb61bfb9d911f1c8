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
#ifndef FEDGE_EDGE_TRAIN_CUDA_KERNELS_TENSOR_CORE_CUH
#define FEDGE_EDGE_TRAIN_CUDA_KERNELS_TENSOR_CORE_CUH

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
#endif
