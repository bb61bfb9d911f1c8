#include "edge/core/codec_block.h"

#include <assert.h>
#include <math.h>

#include "edge/core/bytes.h"
#include "edge/core/codec_int8.h"

#define SCALE_BYTES 2

static size_t block_none(int bound_log2, const float *x, size_t n, uint8_t *out)
{
    const float bound = ldexpf(1.0f, bound_log2);
    float cut[FEDGE_CODEC_BLOCK];
    if (out != NULL) {
        for (size_t i = 0; i < n; i++)
            cut[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
        fedge_put_f32s(out, cut, n);
    }
    return n * sizeof(float);
}

/* v: as quantised, then as decoded. */
static size_t block_int8(int32_t *v, size_t n, uint8_t *out)
{
    int8_t unwanted[FEDGE_CODEC_BLOCK];
    int8_t *q = out != NULL ? (int8_t *)out + SCALE_BYTES : unwanted;
    const uint16_t scale = fedge_int8_encode(v, n, q);
    const bool valid = fedge_int8_decode(q, n, scale, v);
    assert(valid);
    (void)valid;
    if (out != NULL)
        fedge_put_u16(out, scale);
    return SCALE_BYTES + n;
}

size_t fedge_codec_block(fedge_codec codec, int bound_log2, const float *x, size_t n, int32_t *v,
                         uint8_t *out, fedge_codec_stats *stats)
{
    assert(n >= 1 && n <= FEDGE_CODEC_BLOCK);
    fedge_fixed_quantise(x, n, bound_log2, v, &stats->clamped, &stats->not_finite);
    return codec == FEDGE_CODEC_NONE ? block_none(bound_log2, x, n, out) : block_int8(v, n, out);
}
