#include "edge/core/codec/values.h"

#include <assert.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/os.h"

#define SCALE_BYTES 2
#define SCALE_SHIFT 7
#define Q_MAX 127

static_assert(((int64_t)Q_MAX << SCALE_SHIFT) * UINT16_MAX < (int64_t)1 << FEDGE_FIXED_VALUE_BITS,
              "a decoded value is within the bound whatever the bytes");

bool fedge_int8_decode_scalar(const int8_t *q, size_t count, uint16_t scale, int32_t *v)
{
    const int32_t factor = (int32_t)scale << SCALE_SHIFT;
    bool valid = true;
    for (size_t i = 0; i < count; i++) {
        valid = valid && q[i] != INT8_MIN;
        v[i] = q[i] == INT8_MIN ? 0 : q[i] * factor;
    }
    return valid;
}

#if defined(__x86_64__) || defined(__i386__)

FEDGE_AVX2 static bool decode_avx2(const int8_t *q, size_t count, uint16_t scale, int32_t *v)
{
    const __m256i factor = _mm256_set1_epi32((int32_t)scale << SCALE_SHIFT);
    const __m128i forbidden = _mm_set1_epi8(INT8_MIN);
    __m128i matches = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(q + i));
        matches = _mm_or_si128(matches, _mm_cmpeq_epi8(bytes, forbidden));
        __m256i low = _mm256_cvtepi8_epi32(bytes);
        __m256i high = _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8));
        _mm256_storeu_si256((__m256i *)(v + i), _mm256_mullo_epi32(low, factor));
        _mm256_storeu_si256((__m256i *)(v + i + 8), _mm256_mullo_epi32(high, factor));
    }
    bool tail_is_valid = fedge_int8_decode_scalar(q + i, count - i, scale, v + i);
    return tail_is_valid && _mm_movemask_epi8(matches) == 0;
}

#elif defined(__aarch64__)

static bool decode_neon(const int8_t *q, size_t count, uint16_t scale, int32_t *v)
{
    const int32_t factor = (int32_t)scale << SCALE_SHIFT;
    const int8x16_t forbidden = vdupq_n_s8(INT8_MIN);
    uint8x16_t matches = vdupq_n_u8(0);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const int8x16_t bytes = vld1q_s8(q + i);
        const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
        matches = vorrq_u8(matches, vceqq_s8(bytes, forbidden));
        vst1q_s32(v + i, vmulq_n_s32(vmovl_s16(vget_low_s16(low)), factor));
        vst1q_s32(v + i + 4, vmulq_n_s32(vmovl_high_s16(low), factor));
        vst1q_s32(v + i + 8, vmulq_n_s32(vmovl_s16(vget_low_s16(high)), factor));
        vst1q_s32(v + i + 12, vmulq_n_s32(vmovl_high_s16(high), factor));
    }
    const bool tail_is_valid = fedge_int8_decode_scalar(q + i, count - i, scale, v + i);
    return tail_is_valid && vmaxvq_u8(matches) == 0;
}

#endif

uint16_t fedge_int8_encode(int32_t *v, size_t count, int8_t *q)
{
    return fedge_block_encode(v, count, SCALE_SHIFT, Q_MAX, q);
}

bool fedge_int8_decode(const int8_t *q, size_t count, uint16_t scale, int32_t *v)
{
#ifdef FEDGE_BLOCK_FEATURE
    if ((fedge_os_cpu_features() & FEDGE_BLOCK_FEATURE) != 0)
        return FEDGE_BLOCK_FAST(decode)(q, count, scale, v);
#endif
    return fedge_int8_decode_scalar(q, count, scale, v);
}

/* ---- the codec ------------------------------------------------------------------------------- */

static size_t int8_size(size_t count)
{
    const size_t blocks = (count + FEDGE_CODEC_BLOCK - 1) / FEDGE_CODEC_BLOCK;
    return count + blocks * SCALE_BYTES;
}

static void int8_encode(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                        fedge_codec_stats *stats)
{
    int8_t unwanted[FEDGE_CODEC_BLOCK];
    int8_t *q = out ? (int8_t *)out + SCALE_BYTES : unwanted;
    fedge_fixed_quantise(x, n, bound_log2, v, &stats->clamped, &stats->not_finite);
    const uint16_t scale = fedge_int8_encode(v, n, q);
    if (out)
        fedge_put_u16(out, scale);
}

static fedge_status fail_value(const fedge_tensor_spec *spec, size_t index, fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT,
                      "value %zu of tensor \"%s\" is -128; int8 uses -127 to 127", index,
                      spec->name);
}

static fedge_status int8_decode(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    (void)bound_log2;
    for (size_t done = 0; done < count; done += FEDGE_CODEC_BLOCK) {
        const size_t left = count - done, n = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        const int8_t *q = (const int8_t *)in + SCALE_BYTES;
        if (!fedge_int8_decode(q, n, fedge_get_u16(in), v + done)) {
            const int8_t *bad = memchr(q, 0x80, n);
            return fail_value(spec, first + done + (size_t)(bad - q), err);
        }
        in += SCALE_BYTES + n;
    }
    return FEDGE_OK;
}

static fedge_status int8_validate(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                  size_t count, const uint8_t *in, fedge_error *err)
{
    (void)bound_log2;
    for (size_t done = 0; done < count; done += FEDGE_CODEC_BLOCK) {
        const size_t left = count - done, n = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        const uint8_t *q = in + SCALE_BYTES, *bad = memchr(q, 0x80, n);
        if (bad)
            return fail_value(spec, first + done + (size_t)(bad - q), err);
        in += SCALE_BYTES + n;
    }
    return FEDGE_OK;
}

const fedge_codec_ops fedge_codec_int8 = {
    .name = "int8",
    .size = int8_size,
    .encode = int8_encode,
};

const fedge_codec_reader fedge_codec_int8_reader = {
    .decode = int8_decode,
    .validate = int8_validate,
};
