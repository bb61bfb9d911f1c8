#include "edge/core/codec.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/os.h"

static const fedge_codec_ops *const codecs[] = {
#define ENTRY(name) &fedge_codec_##name,
    FEDGE_CODEC_MAP(ENTRY)
#undef ENTRY
};

/* ---- names ----------------------------------------------------------------------------------- */

const char *fedge_codec_name(unsigned index)
{
    return index < FEDGE_CODEC_COUNT ? codecs[index]->name : NULL;
}

static fedge_status fail_unknown(const char *text, fedge_error *err)
{
    char known[200] = "";
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        const size_t used = strlen(known);
        (void)fedge_os_format(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "",
                              codecs[i]->name);
    }
    return fedge_fail(err, FEDGE_UNSUPPORTED, "codec \"%.40s\" is not known; there are %s", text,
                      known);
}

fedge_status fedge_codec_parse(const char *text, fedge_codec *codec, fedge_error *err)
{
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        if (strcmp(codecs[i]->name, text) == 0) {
            *codec = (fedge_codec){.values = codecs[i]};
            return FEDGE_OK;
        }
    }
    return fail_unknown(text, err);
}

const char *fedge_codec_text(const fedge_codec *codec, char text[FEDGE_CODEC_TEXT])
{
    (void)fedge_os_format(text, FEDGE_CODEC_TEXT, "%s", codec->values->name);
    return text;
}

bool fedge_codec_equal(const fedge_codec *a, const fedge_codec *b)
{
    return a->values == b->values;
}

bool fedge_codec_has(const fedge_codec *codec, const char *name)
{
    return strcmp(codec->values->name, name) == 0;
}

fedge_codec fedge_codec_default(void)
{
    return (fedge_codec){.values = &fedge_codec_int8};
}

fedge_codec fedge_codec_lossless(void)
{
    return (fedge_codec){.values = &fedge_codec_none};
}

/* ---- sizes ----------------------------------------------------------------------------------- */

size_t fedge_codec_run_size(const fedge_codec *codec, size_t count)
{
    return codec->values->size(count);
}

size_t fedge_codec_size(const fedge_codec *codec, const fedge_schema *schema)
{
    size_t size = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++)
        size += fedge_codec_run_size(codec, schema->tensors[i].count);
    return size;
}

bool fedge_codec_is_exact(const fedge_codec *codec)
{
    (void)codec;
    return true;
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

/* ---- encoding -------------------------------------------------------------------------------- */

/* x: the values from [first] on, with a NaN among them; NULL: they are not there any more. */
static fedge_status fail_nan(const fedge_tensor_spec *spec, size_t first, const float *x,
                             fedge_error *err)
{
    size_t i = 0;
    while (x != NULL && !isnan(x[i]))
        i++;
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is NaN; training has diverged", first + i,
                      spec->name);
}

/* A section under way. */
typedef struct encoder {
    const fedge_codec *codec;
    const fedge_codec_ends *ends;
    uint8_t *out; /* where the next bytes go; NULL: nowhere */
    size_t size;  /* of all that has been written, or would have been */
    fedge_codec_stats *stats;
} encoder;

/* Encodes x (n), which are whole blocks or a tensor's last values, and decodes them to v. */
static void encode_blocks(encoder *self, int bound_log2, const float *x, size_t n, int32_t *v)
{
    const fedge_codec_ops *values = self->codec->values;
    for (size_t i = 0; i < n; i += FEDGE_CODEC_BLOCK) {
        const size_t block = n - i < FEDGE_CODEC_BLOCK ? n - i : FEDGE_CODEC_BLOCK;
        const size_t size = values->size(block);
        values->encode(bound_log2, x + i, block, v + i, self->out, self->stats);
        self->out = self->out != NULL ? self->out + size : NULL;
        self->size += size;
    }
}

static fedge_status encode_tensor(encoder *self, const fedge_tensor_spec *spec, uint32_t index,
                                  int bound_log2, fedge_error *err)
{
    const fedge_codec_ends *ends = self->ends;
    const bool fixed =
        self->codec->values->keeps_quantised && self->out == NULL && ends->take_fixed != NULL;
    float room[FEDGE_CODEC_PIECE];
    int32_t v[FEDGE_CODEC_PIECE];
    fedge_status status = FEDGE_OK;
    for (size_t at = 0; at < spec->count && status == FEDGE_OK; at += FEDGE_CODEC_PIECE) {
        const size_t left = spec->count - at,
                     n = left < FEDGE_CODEC_PIECE ? left : FEDGE_CODEC_PIECE;
        const float *x = NULL;
        if (fixed) {
            ends->take_fixed(ends->user, index, at, n, bound_log2, v, self->stats);
            self->size += self->codec->values->size(n);
        } else {
            x = ends->take(ends->user, index, at, n, room);
            encode_blocks(self, bound_log2, x, n, v);
        }
        if (self->stats->not_finite > 0)
            return fail_nan(spec, at, x, err);
        if (ends->give != NULL)
            status = ends->give(ends->user, index, at, n, v, err);
    }
    return status;
}

fedge_status fedge_codec_encode_pieces(const fedge_codec *codec, const fedge_schema *schema,
                                       const int8_t *bounds_log2, const fedge_codec_ends *ends,
                                       uint8_t *out, size_t *size, fedge_codec_stats *stats,
                                       fedge_error *err)
{
    encoder self = {.codec = codec, .ends = ends, .out = out, .stats = stats};
    *stats = (fedge_codec_stats){0};
    fedge_status status = check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++)
        status = encode_tensor(&self, &schema->tensors[i], i, bounds_log2[i], err);
    *size = self.size;
    return status;
}

/* Values that lie in one block. */
typedef struct array_end {
    const fedge_schema *schema;
    const float *values;
} array_end;

static const float *take_from_array(void *user, uint32_t index, size_t at, size_t n, float *room)
{
    const array_end *from = user;
    (void)n;
    (void)room;
    return from->values + from->schema->tensors[index].offset + at;
}

fedge_status fedge_codec_encode(const fedge_codec *codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const float *values, uint8_t *out,
                                size_t out_size, size_t *size, fedge_codec_stats *stats,
                                fedge_error *err)
{
    fedge_codec_stats unused;
    array_end from = {schema, values};
    const fedge_codec_ends ends = {.user = &from, .take = take_from_array};
    const size_t most = fedge_codec_size(codec, schema);
    char text[FEDGE_CODEC_TEXT];
    if (stats != NULL)
        *stats = (fedge_codec_stats){0};
    if (out_size < most)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the section takes up to %zu bytes as %s, and there is room for %zu",
                          most, fedge_codec_text(codec, text), out_size);
    return fedge_codec_encode_pieces(codec, schema, bounds_log2, &ends, out, size,
                                     stats != NULL ? stats : &unused, err);
}

/* ---- decoding -------------------------------------------------------------------------------- */

fedge_status fedge_codec_decode_run(const fedge_codec *codec, const fedge_tensor_spec *spec,
                                    int bound_log2, size_t first, size_t count, const uint8_t *in,
                                    int32_t *v, fedge_error *err)
{
    const fedge_codec_ops *values = codec->values;
    assert(first % FEDGE_CODEC_BLOCK == 0 && first <= spec->count && count <= spec->count - first);
    return v != NULL ? values->decode(spec, bound_log2, first, count, in, v, err)
                     : values->validate(spec, bound_log2, first, count, in, err);
}

static fedge_status fail_size(const fedge_codec *codec, size_t size, size_t wanted,
                              fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    return fedge_fail(err, size < wanted ? FEDGE_TRUNCATED : FEDGE_TOO_BIG,
                      "section of %zu bytes; its schema takes exactly %zu as %s", size, wanted,
                      fedge_codec_text(codec, text));
}

fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const uint8_t *in, size_t in_size,
                                int32_t *v, fedge_error *err)
{
    const size_t size = fedge_codec_size(codec, schema);
    if (in_size != size)
        return fail_size(codec, in_size, size, err);
    fedge_status status = check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        status = fedge_codec_decode_run(codec, spec, bounds_log2[i], 0, spec->count, in,
                                        v + spec->offset, err);
        in += fedge_codec_run_size(codec, spec->count);
    }
    return status;
}
