#include "edge/core/codec.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec_int8.h"

#define SCALE_BYTES 2
#define CHUNK 1024 /* floats that the none codec copies at a time, on the stack */

const char *fedge_codec_name(unsigned codec)
{
    switch (codec) {
    case FEDGE_CODEC_NONE:
        return "none";
    case FEDGE_CODEC_INT8:
        return "int8";
    default:
        return NULL;
    }
}

fedge_status fedge_codec_from_name(const char *name, fedge_codec *codec, fedge_error *err)
{
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        if (strcmp(fedge_codec_name(i), name) == 0) {
            *codec = (fedge_codec)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "codec \"%.40s\" is not known; use \"none\" or \"int8\"", name);
}

size_t fedge_codec_run_size(fedge_codec codec, size_t count)
{
    if (codec == FEDGE_CODEC_NONE)
        return count * sizeof(float);
    size_t blocks = (count + FEDGE_CODEC_BLOCK - 1) / FEDGE_CODEC_BLOCK;
    return count + blocks * SCALE_BYTES;
}

size_t fedge_codec_size(fedge_codec codec, const fedge_schema *schema)
{
    assert((unsigned)codec < FEDGE_CODEC_COUNT);
    size_t size = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++)
        size += fedge_codec_run_size(codec, schema->tensors[i].count);
    return size;
}

static fedge_status check_bounds(const fedge_schema *schema, const int8_t *bounds_log2,
                                 fedge_error *err)
{
    for (uint32_t i = 0; i < schema->num_tensors; i++)
        if (bounds_log2[i] < FEDGE_FIXED_MIN_BOUND_LOG2 ||
            bounds_log2[i] > FEDGE_FIXED_MAX_BOUND_LOG2)
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "bound 2^%d of tensor \"%s\" is outside 2^%d to 2^%d", bounds_log2[i],
                              schema->tensors[i].name, FEDGE_FIXED_MIN_BOUND_LOG2,
                              FEDGE_FIXED_MAX_BOUND_LOG2);
    return FEDGE_OK;
}

static fedge_status fail_nan(const fedge_tensor_spec *spec, const float *x, size_t from,
                             fedge_error *err)
{
    size_t i = from;
    while (!isnan(x[i]))
        i++;
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is NaN; training has diverged", i, spec->name);
}

/* x: (spec->count) floats; out: fedge_codec_run_size bytes. */
static fedge_status encode_none(const fedge_tensor_spec *spec, int bound_log2, const float *x,
                                uint8_t *out, fedge_codec_stats *stats, fedge_error *err)
{
    const float bound = ldexpf(1.0f, bound_log2);
    float chunk[CHUNK];
    for (size_t done = 0; done < spec->count; done += CHUNK) {
        size_t n = spec->count - done < CHUNK ? spec->count - done : CHUNK;
        for (size_t i = 0; i < n; i++) {
            float value = x[done + i];
            stats->not_finite += isnan(value) ? 1 : 0;
            stats->clamped += fabsf(value) > bound ? 1 : 0;
            chunk[i] = value > bound ? bound : value < -bound ? -bound : value;
        }
        if (stats->not_finite > 0)
            return fail_nan(spec, x, done, err);
        fedge_put_f32s(out + done * sizeof(float), chunk, n);
    }
    return FEDGE_OK;
}

static fedge_status encode_int8(const fedge_tensor_spec *spec, int bound_log2, const float *x,
                                uint8_t *out, fedge_codec_stats *stats, fedge_error *err)
{
    int32_t block[FEDGE_CODEC_BLOCK];
    for (size_t done = 0; done < spec->count; done += FEDGE_CODEC_BLOCK) {
        size_t n = spec->count - done;
        n = n < FEDGE_CODEC_BLOCK ? n : FEDGE_CODEC_BLOCK;
        fedge_fixed_quantise(x + done, n, bound_log2, block, &stats->clamped, &stats->not_finite);
        if (stats->not_finite > 0)
            return fail_nan(spec, x, done, err);
        fedge_put_u16(out, fedge_int8_encode(block, n, (int8_t *)out + SCALE_BYTES));
        out += SCALE_BYTES + n;
    }
    return FEDGE_OK;
}

fedge_status fedge_codec_encode(fedge_codec codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const float *values, uint8_t *out,
                                size_t out_size, fedge_codec_stats *stats, fedge_error *err)
{
    fedge_codec_stats unused;
    if (stats == NULL)
        stats = &unused;
    *stats = (fedge_codec_stats){0};
    size_t size = fedge_codec_size(codec, schema);
    if (out_size != size)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the section takes exactly %zu bytes as %s, not %zu", size,
                          fedge_codec_name(codec), out_size);
    fedge_status status = check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        const float *x = values + spec->offset;
        status = codec == FEDGE_CODEC_NONE ? encode_none(spec, bounds_log2[i], x, out, stats, err)
                                           : encode_int8(spec, bounds_log2[i], x, out, stats, err);
        out += fedge_codec_run_size(codec, spec->count);
    }
    return status;
}

/* Names the first bad value of in[] at or after [from]; there is one. in[0] is value [first] of the
 * tensor. */
static fedge_status fail_value(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                               const uint8_t *in, size_t from, fedge_status status,
                               fedge_error *err)
{
    const float bound = ldexpf(1.0f, bound_log2);
    size_t i = from;
    while (fabsf(fedge_get_f32(in + i * sizeof(float))) <= bound)
        i++;
    return fedge_fail(err, status, "value %zu of tensor \"%s\" is %g; |x| <= %g is demanded",
                      first + i, spec->name, (double)fedge_get_f32(in + i * sizeof(float)),
                      (double)bound);
}

static fedge_status decode_none(const fedge_tensor_spec *spec, int bound_log2, size_t first,
                                size_t count, const uint8_t *in, int32_t *v, fedge_error *err)
{
    float chunk[CHUNK];
    for (size_t done = 0; done < count; done += CHUNK) {
        size_t n = count - done < CHUNK ? count - done : CHUNK;
        fedge_get_f32s(in + done * sizeof(float), chunk, n);
        fedge_status status = fedge_fixed_quantise_strict(chunk, n, bound_log2, v + done, NULL);
        if (status != FEDGE_OK)
            return fail_value(spec, bound_log2, first, in, done, status, err);
    }
    return FEDGE_OK;
}

static fedge_status decode_int8(const fedge_tensor_spec *spec, size_t first, size_t count,
                                const uint8_t *in, int32_t *v, fedge_error *err)
{
    for (size_t done = 0; done < count; done += FEDGE_CODEC_BLOCK) {
        size_t n = count - done;
        n = n < FEDGE_CODEC_BLOCK ? n : FEDGE_CODEC_BLOCK;
        const int8_t *q = (const int8_t *)in + SCALE_BYTES;
        if (!fedge_int8_decode(q, n, fedge_get_u16(in), v + done)) {
            const int8_t *bad = memchr(q, 0x80, n);
            return fedge_fail(err, FEDGE_CORRUPT,
                              "value %zu of tensor \"%s\" is -128; int8 uses -127 to 127",
                              first + done + (size_t)(bad - q), spec->name);
        }
        in += SCALE_BYTES + n;
    }
    return FEDGE_OK;
}

fedge_status fedge_codec_decode_run(fedge_codec codec, const fedge_tensor_spec *spec,
                                    int bound_log2, size_t first, size_t count, const uint8_t *in,
                                    int32_t *v, fedge_error *err)
{
    assert(first % FEDGE_CODEC_BLOCK == 0 && first <= spec->count && count <= spec->count - first);
    return codec == FEDGE_CODEC_NONE ? decode_none(spec, bound_log2, first, count, in, v, err)
                                     : decode_int8(spec, first, count, in, v, err);
}

fedge_status fedge_codec_decode(fedge_codec codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const uint8_t *in, size_t in_size,
                                int32_t *v, fedge_error *err)
{
    size_t size = fedge_codec_size(codec, schema);
    if (in_size != size)
        return fedge_fail(err, in_size < size ? FEDGE_TRUNCATED : FEDGE_TOO_BIG,
                          "section of %zu bytes; its schema takes exactly %zu as %s", in_size, size,
                          fedge_codec_name(codec));
    fedge_status status = check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        status = fedge_codec_decode_run(codec, spec, bounds_log2[i], 0, spec->count, in,
                                        v + spec->offset, err);
        in += fedge_codec_run_size(codec, spec->count);
    }
    return status;
}
