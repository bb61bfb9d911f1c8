/* Values as bfloat16, 2 bytes: the upper half of a binary32, little-endian. */
#include <math.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/values.h"
#include "edge/core/half.h"

#define CHUNK 1024 /* values decoded at a time, on the stack */

static size_t bf16_size(size_t count)
{
    return count * sizeof(uint16_t);
}

/* A bound is a power of two, so rounding cannot exceed it. */
static void bf16_encode(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                        fedge_codec_stats *stats)
{
    float clipped[FEDGE_CODEC_BLOCK];
    fedge_codec_cut(bound_log2, x, n, clipped, stats);
    for (size_t i = fedge_bf16_narrow_simd(clipped, n, out); i < n; i++) {
        const uint16_t half = fedge_bf16_from_float(clipped[i]);
        clipped[i] = fedge_bf16_to_float(half);
        if (out)
            fedge_put_u16(out + i * sizeof(half), half);
    }
    uint64_t none = 0;
    fedge_fixed_quantise(clipped, n, bound_log2, v, &none, &none);
}

static fedge_status bf16_decode(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    float chunk[CHUNK];
    for (size_t done = 0; done < count; done += CHUNK) {
        const size_t n = count - done < CHUNK ? count - done : CHUNK;
        const uint8_t *at = in + done * sizeof(uint16_t);
        for (size_t i = fedge_bf16_widen_simd(at, n, chunk); i < n; i++)
            chunk[i] = fedge_bf16_to_float(fedge_get_u16(at + i * sizeof(uint16_t)));
        if (fedge_fixed_quantise_strict(chunk, n, bound_log2, v + done, NULL) != FEDGE_OK)
            return fedge_codec_fail_value(spec, bound_log2, first + done, chunk, err);
    }
    return FEDGE_OK;
}

static fedge_status bf16_validate(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                  size_t count, const uint8_t *in, fedge_error *err)
{
    const uint32_t limit = fedge_float_bits(ldexpf(1.0f, bound_log2)) >> 16;
    for (size_t i = fedge_half_within_simd(in, count, (uint16_t)limit); i < count; i++) {
        const uint16_t half = fedge_get_u16(in + i * sizeof(half));
        if ((half & 0x7fffu) > limit) {
            const float value = fedge_bf16_to_float(half);
            return fedge_codec_fail_value(spec, bound_log2, first + i, &value, err);
        }
    }
    return FEDGE_OK;
}

const fedge_codec_ops fedge_codec_bf16 = {
    .name = "bf16",
    .size = bf16_size,
    .encode = bf16_encode,
};

const fedge_codec_reader fedge_codec_bf16_reader = {
    .decode = bf16_decode,
    .validate = bf16_validate,
};
