/* Values as IEEE 754 binary16, 2 bytes, little-endian: h is that of x · 2^(15 − b), so that the
 * bound becomes 2^15, and the smallest steps are 2^-39 of it whatever it is. v = round(h · 2^15).
 */
#include <math.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/values.h"
#include "edge/core/half.h"

#define CHUNK 1024    /* values decoded at a time, on the stack */
#define BOUND_LOG2 15 /* bound of h */
#define BOUND_BITS 0x7800u

static size_t f16_size(size_t count)
{
    return count * sizeof(uint16_t);
}

static void f16_encode(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                       fedge_codec_stats *stats)
{
    const float scale = ldexpf(1.0f, BOUND_LOG2 - bound_log2);
    float clipped[FEDGE_CODEC_BLOCK];
    fedge_codec_cut(bound_log2, x, n, clipped, stats);
    for (size_t i = 0; i < n; i++)
        clipped[i] *= scale;
    for (size_t i = fedge_f16_narrow_simd(clipped, n, out); i < n; i++) {
        const uint16_t half = fedge_f16_from_float(clipped[i]);
        clipped[i] = fedge_f16_to_float(half);
        if (out)
            fedge_put_u16(out + i * sizeof(half), half);
    }
    uint64_t none = 0;
    fedge_fixed_quantise(clipped, n, BOUND_LOG2, v, &none, &none);
}

/* Reports the value before scaling. */
static fedge_status fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t index,
                               uint16_t half, fedge_error *err)
{
    const float value = ldexpf(fedge_f16_to_float(half), bound_log2 - BOUND_LOG2);
    return fedge_codec_fail_value(spec, bound_log2, index, &value, err);
}

static fedge_status f16_validate(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                 size_t count, const uint8_t *in, fedge_error *err)
{
    for (size_t i = fedge_half_within_simd(in, count, BOUND_BITS); i < count; i++) {
        const uint16_t half = fedge_get_u16(in + i * sizeof(half));
        if ((half & 0x7fffu) > BOUND_BITS)
            return fail_value(spec, bound_log2, first + i, half, err);
    }
    return FEDGE_OK;
}

static fedge_status f16_decode(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                               size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    float chunk[CHUNK];
    uint64_t none = 0;
    const fedge_status status = f16_validate(spec, bound_log2, first, count, in, err);
    for (size_t done = 0; done < count && status == FEDGE_OK; done += CHUNK) {
        const size_t n = count - done < CHUNK ? count - done : CHUNK;
        const uint8_t *at = in + done * sizeof(uint16_t);
        for (size_t i = fedge_f16_widen_simd(at, n, chunk); i < n; i++)
            chunk[i] = fedge_f16_to_float(fedge_get_u16(at + i * sizeof(uint16_t)));
        fedge_fixed_quantise(chunk, n, BOUND_LOG2, v + done, &none, &none);
    }
    return status;
}

const fedge_codec_ops fedge_codec_f16 = {
    .name = "f16",
    .size = f16_size,
    .encode = f16_encode,
};

const fedge_codec_reader fedge_codec_f16_reader = {
    .decode = f16_decode,
    .validate = f16_validate,
};
