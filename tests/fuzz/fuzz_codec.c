/* Sections: what is decoded is within the bound, in slices as in one go, and encodes to a section
 * that is accepted. The first bytes choose codec, bounds and sizes, the rest is the section. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/codec.h"

#define HEAD 5
#define MANY 70000 /* values of a matrix of several groups (codec_chosen.h) */
#define MAX_VALUES (MANY + 256)

#define NUM_WRITE 5 /* of the codecs, the first: those that write values */

static const char *const SHARES[] = {"0.01", "0.1", "0.5", "1"};

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
    for (size_t i = 0; fedge_codec_chooses_of(codec, &schema->tensors[0]) && i < 3; i++) {
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
    fedge_status status = fedge_codec_encode(codec, schema, bounds, values, residual, out, most,
                                             &out_size, &stats, &err);
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
    fedge_tensor_spec storage[2];
    fedge_schema schema;
    fedge_error err;
    if (size < HEAD)
        return 0;
    fedge_codec codec;
    const char *name = fedge_codec_name(data[0] % FEDGE_CODEC_COUNT);
    char text[FEDGE_CODEC_TEXT];
    (void)snprintf(text, sizeof(text), "%s:%s+%s", name, SHARES[data[0] / 16 % 4],
                   fedge_codec_name(data[0] / 32 % NUM_WRITE));
    if (fedge_codec_parse(name, &codec, &err) != FEDGE_OK &&
        fedge_codec_parse(text, &codec, &err) != FEDGE_OK)
        abort();
    const int8_t bounds[2] = {(int8_t)(data[1] % 44 - 22), (int8_t)(data[2] % 44 - 22)};
    const uint32_t shapes[2][2] = {{data[3] == 255 ? MANY : 1 + data[3] * 4u, 1}, {1 + data[4]}};
    fedge_schema_init(&schema, storage, 2);
    if (fedge_schema_add(&schema, "a", FEDGE_F32, 2, shapes[0], &err) != FEDGE_OK ||
        fedge_schema_add(&schema, "b", FEDGE_F32, 1, shapes[1], &err) != FEDGE_OK)
        abort();
    if (fedge_codec_decode(&codec, &schema, bounds, data + HEAD, size - HEAD, v, &err) ==
        FEDGE_OK) {
        for (size_t i = 0; i < schema.num_elements; i++) {
            if (v[i] > 1 << FEDGE_FIXED_VALUE_BITS || v[i] < -(1 << FEDGE_FIXED_VALUE_BITS))
                abort();
        }
        read_in_slices(&codec, &schema, bounds, data + HEAD, size - HEAD, v);
    }
    if (abs(bounds[0]) <= FEDGE_FIXED_MAX_BOUND_LOG2 &&
        abs(bounds[1]) <= FEDGE_FIXED_MAX_BOUND_LOG2)
        encode_anything(&codec, &schema, bounds, data + HEAD, size - HEAD, v);
    return 0;
}
