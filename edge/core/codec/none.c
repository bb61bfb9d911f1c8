/* Unchanged values: IEEE 754 binary32, little-endian, 4 bytes each. */
#include <math.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/values.h"

#define CHUNK 1024 /* floats decoded at a time, on the stack */

static size_t none_size(size_t count)
{
    return count * sizeof(float);
}

static void none_encode(int bound_log2, const float *x, size_t n, int32_t *v, uint8_t *out,
                        fedge_codec_stats *stats)
{
    const float bound = ldexpf(1.0f, bound_log2);
    float cut[FEDGE_CODEC_BLOCK];
    fedge_fixed_quantise(x, n, bound_log2, v, &stats->clamped, &stats->not_finite);
    if (!out)
        return;
    for (size_t i = 0; i < n; i++)
        cut[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
    fedge_put_f32s(out, cut, n);
}

static fedge_status none_decode(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    float chunk[CHUNK];
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        fedge_get_f32s(in + done * sizeof(float), chunk, n);
        if (fedge_fixed_quantise_strict(chunk, n, bound_log2, v + done, NULL) != FEDGE_OK)
            return fedge_codec_fail_value(spec, bound_log2, first + done, chunk, err);
    }
    return FEDGE_OK;
}

static fedge_status none_validate(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                  size_t count, const uint8_t *in, fedge_error *err)
{
    int32_t v[CHUNK];
    for (size_t done = 0; done < count; done += CHUNK) {
        const size_t n = count - done < CHUNK ? count - done : CHUNK;
        FEDGE_TRY(
            none_decode(spec, bound_log2, first + done, n, in + done * sizeof(float), v, err));
    }
    return FEDGE_OK;
}

const fedge_codec_ops fedge_codec_none = {
    .name = "none",
    .keeps_quantised = true,
    .size = none_size,
    .encode = none_encode,
};

const fedge_codec_reader fedge_codec_none_reader = {
    .decode = none_decode,
    .validate = none_validate,
};
