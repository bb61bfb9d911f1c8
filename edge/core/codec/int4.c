/* Values as integers of 4 bits, −7 … 7, with an integer scale for each block of 256:
 *
 *     u16 m (little-endian), then two q in a byte, the first in the lower half; of an odd number
 * the last byte's upper half is 0.    v = q · m · 2^11
 *
 * The encoder takes the smallest m with 7 · m · 2^11 ≥ max |v| of the block, at most 65535 (0 for a
 * block of zeros), and q = round-to-nearest-even(v / (m · 2^11)) cut to ±7. Limit: 7 · 65535 · 2^11
 * < 2^30, so the largest int4 value is 0.87499 · B. */
#include <assert.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/codec/values.h"
#include "edge/core/os.h"

#define SCALE_BYTES 2
#define SCALE_SHIFT 11
#define Q_MAX 7
#define NOT_USED 8 /* −8, in 4 bits */

static_assert(((int64_t)Q_MAX << SCALE_SHIFT) * UINT16_MAX < (int64_t)1 << FEDGE_FIXED_VALUE_BITS,
              "a decoded value is within the bound whatever the bytes");

static size_t bytes_of(size_t count)
{
    return (count + 1) / 2;
}

static size_t int4_size(size_t count)
{
    const size_t whole = count / FEDGE_CODEC_BLOCK, remainder = count % FEDGE_CODEC_BLOCK;
    return whole * (SCALE_BYTES + FEDGE_CODEC_BLOCK / 2) +
           (remainder > 0 ? SCALE_BYTES + bytes_of(remainder) : 0);
}

/* n even. */
static void pack_scalar(const int8_t *q, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += 2)
        out[i / 2] = (uint8_t)((q[i] & 0xf) | (q[i + 1] & 0xf) << 4);
}

#if defined(__x86_64__) || defined(__i386__)

FEDGE_AVX2 static void pack_avx2(const int8_t *q, size_t n, uint8_t *out)
{
    const __m128i lower = _mm_set1_epi8(0xf), weights = _mm_set1_epi16(1 | 16 << 8);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i nibbles = _mm_and_si128(_mm_loadu_si128((const __m128i *)(q + i)), lower);
        const __m128i pairs = _mm_maddubs_epi16(nibbles, weights);
        _mm_storel_epi64((__m128i *)(out + i / 2), _mm_packus_epi16(pairs, pairs));
    }
    pack_scalar(q + i, n - i, out + i / 2);
}

#elif defined(__aarch64__)

static void pack_neon(const int8_t *q, size_t n, uint8_t *out)
{
    const uint8x8_t lower = vdup_n_u8(0xf);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const uint8x8x2_t pairs = vld2_u8((const uint8_t *)q + i);
        vst1_u8(out + i / 2, vorr_u8(vand_u8(pairs.val[0], lower), vshl_n_u8(pairs.val[1], 4)));
    }
    pack_scalar(q + i, n - i, out + i / 2);
}

#endif

static void pack(const int8_t *q, size_t n, uint8_t *out)
{
#ifdef FEDGE_BLOCK_FEATURE
    if ((fedge_os_cpu_features() & FEDGE_BLOCK_FEATURE) != 0) {
        FEDGE_BLOCK_FAST(pack)(q, n, out);
        return;
    }
#endif
    pack_scalar(q, n, out);
}

static void int4_encode(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                        fedge_codec_stats *stats)
{
    int8_t q[FEDGE_CODEC_BLOCK + 1];
    fedge_fixed_quantise(x, n, bound_log2, v, &stats->clamped, &stats->not_finite);
    const uint16_t scale = fedge_block_encode(v, n, SCALE_SHIFT, Q_MAX, q);
    q[n] = 0; /* the upper half of an odd number's last byte */
    if (!out)
        return;
    fedge_put_u16(out, scale);
    pack(q, n + n % 2, out + SCALE_BYTES);
}

static fedge_status fail_value(const fedge_tensor_spec *spec, size_t index, fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT, "value %zu of tensor \"%s\" is -8; int4 uses -7 to 7",
                      index, spec->name);
}

/* One block; q: its values. */
static fedge_status check_block(const fedge_tensor_spec *spec, size_t first, size_t n,
                                const uint8_t *q, fedge_error *err)
{
    unsigned bad = 0; /* compilers vectorise this loop */
    for (size_t i = 0; i < n / 2; i++)
        bad |= (unsigned)((q[i] & 0xf) == NOT_USED) | (unsigned)(q[i] >> 4 == NOT_USED);
    for (size_t i = 0; i < n / 2 && bad != 0; i++) {
        if ((q[i] & 0xf) == NOT_USED || q[i] >> 4 == NOT_USED)
            return fail_value(spec, first + 2 * i + ((q[i] & 0xf) != NOT_USED), err);
    }
    if (n % 2 == 1 && (q[n / 2] & 0xf) == NOT_USED)
        return fail_value(spec, first + n - 1, err);
    if (n % 2 == 1 && q[n / 2] >> 4 != 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "tensor \"%s\": the bits behind the last value are not 0", spec->name);
    }
    return FEDGE_OK;
}

static fedge_status int4_validate(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                  size_t count, const uint8_t *in, fedge_error *err)
{
    (void)bound_log2;
    fedge_status status = FEDGE_OK;
    for (size_t done = 0; done < count && status == FEDGE_OK; done += FEDGE_CODEC_BLOCK) {
        const size_t left = count - done, n = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        status = check_block(spec, first + done, n, in + SCALE_BYTES, err);
        in += SCALE_BYTES + bytes_of(n);
    }
    return status;
}

static fedge_status int4_decode(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    const fedge_status status = int4_validate(spec, bound_log2, first, count, in, err);
    for (size_t done = 0; done < count && status == FEDGE_OK; done += FEDGE_CODEC_BLOCK) {
        const size_t left = count - done, n = left < FEDGE_CODEC_BLOCK ? left : FEDGE_CODEC_BLOCK;
        const int32_t step = (int32_t)fedge_get_u16(in) << SCALE_SHIFT;
        const uint8_t *q = in + SCALE_BYTES;
        for (size_t i = 0; i < n / 2; i++) {
            v[done + 2 * i] = (((q[i] & 0xf) ^ 8) - 8) * step;
            v[done + 2 * i + 1] = ((q[i] >> 4 ^ 8) - 8) * step;
        }
        if (n % 2 == 1)
            v[done + n - 1] = (((q[n / 2] & 0xf) ^ 8) - 8) * step;
        in += SCALE_BYTES + bytes_of(n);
    }
    return status;
}

const fedge_codec_ops fedge_codec_int4 = {
    .name = "int4",
    .size = int4_size,
    .encode = int4_encode,
};

const fedge_codec_reader fedge_codec_int4_reader = {
    .decode = int4_decode,
    .validate = int4_validate,
};
