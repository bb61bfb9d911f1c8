/* Sections: what is decoded is within the bound, in slices as in one go, and encodes to a section
 * that is accepted. */
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "tests/edge/core/codec/encode.h"
#include "tests/fuzz/codec_seed.h"

#define HEAD CODEC_SEED_HEAD
#define MAX_VALUES (CODEC_SEED_MANY + 256)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct slice {
    size_t from, to;
    int32_t *v;
} slice;

static fedge_status take(void *user, size_t at, const uint32_t *places, size_t n, const int32_t *v,
                         fedge_error *err)
{
    const slice *of = user;
    (void)err;
    for (size_t i = 0; i < n; i++) {
        const size_t place = places ? places[i] : at + i;
        if (place < of->from || place >= of->to)
            abort();
        of->v[place] = v[i];
    }
    return FEDGE_OK;
}

/* v: the first tensor's values. */
static void read_in_slices(const fedge_codec *codec, const fedge_schema *schema,
                           const int8_t *bounds, const uint8_t *bytes, size_t size,
                           const int32_t *v)
{
    static int32_t again[MAX_VALUES];
    const size_t count = schema->tensors[0].count,
                 cuts[] = {0, count / 3, count - count / 5, count};
    fedge_error err;
    memset(again, 0, sizeof(again));
    for (size_t i = 0; fedge_codec_sparsifies(codec, &schema->tensors[0]) && i < 3; i++) {
        slice of = {cuts[i], cuts[i + 1], again};
        const fedge_codec_tensor tensor = {.codec = codec,
                                           .spec = &schema->tensors[0],
                                           .bound_log2 = bounds[0],
                                           .from = of.from,
                                           .to = of.to,
                                           .give = take,
                                           .user = &of};
        size_t used = 0;
        if (of.from < of.to &&
            (fedge_codec_read_tensor(&tensor, bytes, size, &used, &err) != FEDGE_OK ||
             memcmp(again + of.from, v + of.from, (of.to - of.from) * sizeof(*v)) != 0))
            abort();
    }
}

/* Any bytes as floats: encoding fails only for NaN, and decoding takes what encoding made. */
static void encode_anything(const fedge_codec *codec, const fedge_schema *schema,
                            const int8_t *bounds, const uint8_t *bytes, size_t size, int32_t *v)
{
    static float values[MAX_VALUES];
    static float residual[MAX_VALUES];
    static uint8_t out[MAX_VALUES * (sizeof(float) + 1)];
    fedge_error err;
    fedge_codec_stats stats;
    memset(values, 0, sizeof(values));
    memset(residual, 0, sizeof(residual));
    size_t n = size / sizeof(float);
    fedge_get_f32s(bytes, values, n < schema->num_elements ? n : schema->num_elements);
    size_t most = fedge_codec_size(codec, schema), out_size = 0;
    fedge_status status =
        codec_encode(codec, schema, bounds, values, residual, out, most, &out_size, &stats, &err);
    if (status == FEDGE_OK && out_size > most)
        abort();
    if ((status == FEDGE_OK) != (stats.not_finite == 0))
        abort();
    if (status != FEDGE_OK)
        return;
    if (fedge_codec_decode(codec, schema, bounds, out, out_size, v, &err) != FEDGE_OK)
        abort();
    read_in_slices(codec, schema, bounds, out, out_size, v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t v[MAX_VALUES];
    codec_seed seed;
    fedge_error err;
    if (size < HEAD)
        return 0;
    if (!codec_seed_read(&seed, data))
        abort();
    const fedge_codec *codec = &seed.codec;
    const fedge_schema *schema = &seed.schema;
    const int8_t *bounds = seed.bounds;
    if (fedge_codec_decode(codec, schema, bounds, data + HEAD, size - HEAD, v, &err) == FEDGE_OK) {
        for (size_t i = 0; i < schema->num_elements; i++) {
            if (v[i] > 1 << FEDGE_FIXED_VALUE_BITS || v[i] < -(1 << FEDGE_FIXED_VALUE_BITS))
                abort();
        }
        read_in_slices(codec, schema, bounds, data + HEAD, size - HEAD, v);
    }
    if (abs(bounds[0]) <= FEDGE_FIXED_MAX_BOUND_LOG2 &&
        abs(bounds[1]) <= FEDGE_FIXED_MAX_BOUND_LOG2)
        encode_anything(codec, schema, bounds, data + HEAD, size - HEAD, v);
    return 0;
}
