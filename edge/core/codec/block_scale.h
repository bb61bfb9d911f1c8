/* What codec_int8.c and codec_int4.c do with a block's values and its scale; internal to edge/core
 * and its tests.
 *
 * v: (count) fixed-point integers, |v| ≤ 2^30; q: (count); 1 ≤ count ≤ FEDGE_CODEC_BLOCK. */
#ifndef FEDGE_EDGE_CORE_CODEC_BLOCK_SCALE_H
#define FEDGE_EDGE_CORE_CODEC_BLOCK_SCALE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define FEDGE_AVX2 __attribute__((target("avx2")))
/* Where the processor has this feature, FEDGE_BLOCK_FAST(f) does what f does. Neither is defined
 * for machines without such functions. */
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_AVX2
#define FEDGE_BLOCK_FAST(f) f##_avx2
#elif defined(__aarch64__)
#include <arm_neon.h>
#define FEDGE_BLOCK_FEATURE FEDGE_CPU_NEON
#define FEDGE_BLOCK_FAST(f) f##_neon
#endif

/* Returns the smallest m with most · m · 2^shift ≥ max |v|, at most 65535 (0 for a block of zeros);
 * writes q = round-to-nearest-even(v / (m · 2^shift)) cut to ±most, and q · m · 2^shift, which is
 * what it will be decoded to, in the place of v. most · 65535 · 2^shift < 2^30. The fastest kernel
 * is chosen at run time; _scalar is the reference, whose bits the others match. */
uint16_t fedge_block_encode(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);
uint16_t fedge_block_encode_scalar(int32_t *v, size_t count, int shift, int8_t most, int8_t *q);

#endif
