#include "aggregator/reduce/sum.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define SCALE_BYTES 2
#define BLOCK_BYTES (SCALE_BYTES + FEDGE_CODEC_BLOCK)

/* 127 · 32767 · FEDGE_SUM_MAX_UPDATES < 2^31: kernels add products of limbs in 32 bits. */
static_assert((int64_t)127 * ((1 << FEDGE_SUM_LIMB_BITS) - 1) * FEDGE_SUM_MAX_UPDATES < INT32_MAX,
              "sums of limbs fit");
static_assert(FEDGE_SUM_MAX_LIMBS == 4 && FEDGE_SUM_LIMB_BITS * FEDGE_SUM_MAX_LIMBS >= 32 + 16,
              "limbs hold every factor");
static_assert(FEDGE_SUM_MAX_UPDATES % 4 == 0, "updates are taken by fours");

static const fedge_sum_kernels *const all_kernels[] = {
#if defined(__x86_64__)
    &fedge_sum_avx512vnni, &fedge_sum_avx512, &fedge_sum_avx2,
#elif defined(__ARM_NEON)
    &fedge_sum_neon,
#endif
    NULL};

const fedge_sum_kernels *fedge_sum_kernels_at(size_t index)
{
    assert(index < sizeof(all_kernels) / sizeof(all_kernels[0]));
    return all_kernels[index];
}

const fedge_sum_kernels *fedge_sum_kernels_choose(unsigned features)
{
    const fedge_sum_kernels *const *at = all_kernels;
    while (*at && (features & (*at)->needs) != (*at)->needs)
        at++;
    return *at;
}

/* A codec needs no entry here: without one the accumulator decodes each run with the codec's decode
 * and adds the integers, with the same sums. The list has codecs for which a kernel that reads
 * several updates at once is faster. It compares the whole text, since a codec with a sparsifier
 * ("topk:0.01+int8") has other bytes than its last stage alone. */
fedge_sum_fn fedge_sum_of(const fedge_codec *codec)
{
    static const struct {
        const char *name;
        fedge_sum_fn add;
    } LIST[] = {{"none", fedge_sum_floats}, {"int8", fedge_sum_int8}};
    char text[FEDGE_CODEC_TEXT];
    fedge_codec_text(codec, text);
    for (size_t i = 0; i < sizeof(LIST) / sizeof(LIST[0]); i++) {
        if (strcmp(LIST[i].name, text) == 0)
            return LIST[i].add;
    }
    return NULL;
}

/* ---- floats ---------------------------------------------------------------------------------- */

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
        if (updates[u].weight > INT32_MAX)
            return false;
    }
    return true;
}

void fedge_sum_floats(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                      int bound_log2)
{
    assert(count <= FEDGE_SUM_MAX_UPDATES);
    const fedge_sum_kernels *kernels = fedge_sum_kernels_choose(fedge_os_cpu_features());
    size_t done = 0;
    if (kernels && weights_are_signed(updates, count))
        done = kernels->floats(sum, updates, count, n, bound_log2);
    fedge_sum_floats_scalar(sum, updates, count, done, n, bound_log2);
}

/* ---- int8 ------------------------------------------------------------------------------------ */

static void add_block_scalar(int64_t *sum, const int8_t *q, size_t first, size_t n, uint16_t scale,
                             uint32_t weight)
{
    const int64_t factor = ((int64_t)scale << FEDGE_SUM_SCALE_SHIFT) * (int64_t)weight;
    for (size_t i = first; i < n; i++)
        sum[i] += q[i] * factor;
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

static void make_block(fedge_sum_block *block, const fedge_summand *updates, uint32_t count,
                       size_t offset)
{
    block->count = (count + 3) / 4 * 4;
    block->bits = 0;
    /* Kernels process four updates at a time. Missing ones of the last four point at readable bytes
     * and have a factor of 0. */
    for (uint32_t u = 0; u < block->count; u++) {
        const fedge_summand *from = &updates[u < count ? u : count - 1];
        const uint8_t *in = from->bytes + offset;
        block->q[u] = (const int8_t *)in + SCALE_BYTES;
        block->factors[u] = u < count ? (uint64_t)from->weight * fedge_get_u16(in) : 0;
        block->bits |= block->factors[u];
    }
}

void fedge_sum_split(const fedge_sum_block *block, fedge_sum_limbs *limbs)
{
    const uint64_t mask = (1u << FEDGE_SUM_LIMB_BITS) - 1;
    /* Factors below 2^30, as of weights up to 2^14, need two limbs; four cost twice as many
     * products. */
    limbs->num_limbs = block->bits >> 2 * FEDGE_SUM_LIMB_BITS ? 4 : 2;
    for (uint32_t limb = 0; limb < limbs->num_limbs; limb++) {
        for (uint32_t u = 0; u < block->count; u++) {
            limbs->limbs[limb][u] =
                (int16_t)(block->factors[u] >> limb * FEDGE_SUM_LIMB_BITS & mask);
        }
    }
}

void fedge_sum_int8(int64_t *sum, const fedge_summand *updates, uint32_t count, size_t n,
                    int bound_log2)
{
    (void)bound_log2;
    assert(count >= 1 && count <= FEDGE_SUM_MAX_UPDATES);
    const fedge_sum_kernels *kernels = fedge_sum_kernels_choose(fedge_os_cpu_features());
    if (!kernels) {
        fedge_sum_int8_scalar(sum, updates, count, n);
        return;
    }
    size_t offset = 0;
    for (size_t at = 0; at < n; at += FEDGE_CODEC_BLOCK, offset += BLOCK_BYTES) {
        const size_t left = n - at, size = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        fedge_sum_block block;
        make_block(&block, updates, count, offset);
        const size_t done = kernels->block(sum + at, &block, size);
        for (uint32_t u = 0; done < size && u < count; u++) {
            const uint8_t *in = updates[u].bytes + offset;
            add_block_scalar(sum + at, (const int8_t *)in + SCALE_BYTES, done, size,
                             fedge_get_u16(in), updates[u].weight);
        }
    }
}
