#include "aggregator/reduce/sum.h"

#include <assert.h>
#include <math.h>

#include "edge/core/bytes.h"
#include "edge/core/codec.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define SCALE_BYTES 2
#define SCALE_SHIFT 7
#define BLOCK_BYTES (SCALE_BYTES + FEDGE_CODEC_BLOCK)

void fedge_sum_floats_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count,
                             size_t first, size_t n, int bound_log2)
{
    const float scale = ldexpf(1.0f, FEDGE_FIXED_VALUE_BITS - bound_log2);
    for (uint32_t u = 0; u < count; u++) {
        for (size_t i = first; i < n; i++) {
            const float x = fedge_get_f32(updates[u].bytes + i * sizeof(float));
            sum[i] += (int64_t)updates[u].weight * (int32_t)lrintf(x * scale);
        }
    }
}

/* The vectors' products are of signed 32-bit numbers. */
static bool weights_are_signed(const fedge_summand *updates, uint32_t count)
{
    for (uint32_t u = 0; u < count; u++) {
        if (updates[u].weight > INT32_MAX) {
            return false;
        }
    }
    return true;
}

void fedge_sum_floats(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                      int bound_log2)
{
    assert(count <= FEDGE_SUM_MAX_UPDATES);
    const unsigned features = fedge_os_cpu_features();
    size_t done = 0;
    if (weights_are_signed(updates, count)) {
        if (features & FEDGE_CPU_AVX512) {
            done = fedge_sum_floats_avx512(sum, updates, count, n, bound_log2);
        } else if (features & FEDGE_CPU_AVX2) {
            done = fedge_sum_floats_avx2(sum, updates, count, n, bound_log2);
        }
    }
    fedge_sum_floats_scalar(sum, updates, count, done, n, bound_log2);
}

/* ---- int8 ------------------------------------------------------------------------------------ */

static void add_block_scalar(int64_t *sum, const int8_t *q, size_t first, size_t n, uint16_t scale,
                             uint32_t weight)
{
    const int64_t factor = ((int64_t)scale << SCALE_SHIFT) * (int64_t)weight;
    for (size_t i = first; i < n; i++) {
        sum[i] += q[i] * factor;
    }
}

void fedge_sum_int8_scalar(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n)
{
    for (uint32_t u = 0; u < count; u++) {
        const uint8_t *in = updates[u].bytes;
        for (size_t at = 0; at < n; at += FEDGE_CODEC_BLOCK, in += BLOCK_BYTES) {
            const size_t left = n - at, size = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
            add_block_scalar(sum + at, (const int8_t *)in + SCALE_BYTES, 0, size, fedge_get_u16(in),
                             updates[u].weight);
        }
    }
}

/* 127 · 32767 · FEDGE_SUM_MAX_UPDATES < 2^31: the vectors add products of limbs in 32 bits. */
static_assert((int64_t)127 * ((1 << FEDGE_SUM_LIMB_BITS) - 1) * FEDGE_SUM_MAX_UPDATES < INT32_MAX,
              "sums of limbs fit");

static void make_block(fedge_sum_block *block, const fedge_summand *updates, uint32_t count,
                       size_t offset)
{
    const uint64_t mask = (1u << FEDGE_SUM_LIMB_BITS) - 1;
    uint64_t largest = 1;
    block->num_pairs = (count + 1) / 2;
    for (uint32_t u = 0; u < 2 * block->num_pairs; u++) {
        const fedge_summand *from = &updates[u < count ? u : u - 1];
        const uint8_t *in = from->bytes + offset;
        uint64_t product = u < count ? (uint64_t)from->weight * fedge_get_u16(in) : 0;
        block->q[u] = (const int8_t *)in + SCALE_BYTES;
        largest = product > largest ? product : largest;
        for (uint32_t limb = 0; limb < FEDGE_SUM_MAX_LIMBS; limb++) {
            const uint32_t part = (uint32_t)(product & mask);
            uint32_t *pair = &block->limbs[limb][u / 2];
            *pair = u % 2 == 0 ? part : *pair | part << 16;
            product >>= FEDGE_SUM_LIMB_BITS;
        }
    }
    block->num_limbs = 0;
    for (; largest > 0; largest >>= FEDGE_SUM_LIMB_BITS) {
        block->num_limbs++;
    }
}

void fedge_sum_int8(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n)
{
    assert(count >= 1 && count <= FEDGE_SUM_MAX_UPDATES);
    const unsigned features = fedge_os_cpu_features();
    if (!(features & (FEDGE_CPU_AVX2 | FEDGE_CPU_AVX512))) {
        fedge_sum_int8_scalar(sum, updates, count, n);
        return;
    }
    size_t offset = 0;
    for (size_t at = 0; at < n; at += FEDGE_CODEC_BLOCK, offset += BLOCK_BYTES) {
        const size_t left = n - at, size = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        fedge_sum_block block;
        make_block(&block, updates, count, offset);
        const size_t done = features & FEDGE_CPU_AVX512
                                ? fedge_sum_block_avx512(sum + at, &block, size)
                                : fedge_sum_block_avx2(sum + at, &block, size);
        for (uint32_t u = 0; done < size && u < count; u++) {
            const uint8_t *in = updates[u].bytes + offset;
            add_block_scalar(sum + at, (const int8_t *)in + SCALE_BYTES, done, size,
                             fedge_get_u16(in), updates[u].weight);
        }
    }
}
