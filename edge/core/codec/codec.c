#include "edge/core/codec/codec.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"

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

#define ALIAS "f32" /* another name of none */

static bool is_named(const fedge_codec_ops *codec, const char *name, size_t length)
{
    return (strlen(codec->name) == length && memcmp(codec->name, name, length) == 0) ||
           (codec == &fedge_codec_none && length == sizeof(ALIAS) - 1 &&
            memcmp(ALIAS, name, length) == 0);
}

static fedge_status fail_unknown(const char *name, size_t length, fedge_error *err)
{
    char known[200] = "";
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        const size_t used = strlen(known);
        (void)fedge_os_format(known + used, sizeof(known) - used, "%s%s", used > 0 ? ", " : "",
                              codecs[i]->name);
    }
    return fedge_fail(err, FEDGE_UNSUPPORTED, "codec \"%.*s\" is not known; there are %s",
                      (int)(length < 40 ? length : 40), name, known);
}

/* Parses a fraction, a decimal number of at most six places, in millionths; 0 if it is invalid or
 * not in (0, 1]. */
static uint64_t read_fraction(const char *text, size_t length)
{
    uint64_t fraction = 0;
    size_t decimals = 0;
    bool point = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.' && !point && i > 0) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9' || decimals == 6 || fraction > FEDGE_CODEC_WHOLE)
            return 0;
        fraction = fraction * 10 + (uint64_t)(text[i] - '0');
        decimals += point;
    }
    for (; decimals < 6; decimals++)
        fraction *= 10;
    return length > 0 && text[length - 1] != '.' && fraction <= FEDGE_CODEC_WHOLE ? fraction : 0;
}

/* Parses one stage, text[0, length). */
static fedge_status read_stage(const char *text, size_t length, fedge_codec *codec,
                               fedge_error *err)
{
    const char *colon = memchr(text, ':', length);
    const size_t named = colon ? (size_t)(colon - text) : length;
    const int shown = (int)(length < 40 ? length : 40);
    unsigned i = 0;
    while (i < FEDGE_CODEC_COUNT && !is_named(codecs[i], text, named))
        i++;
    if (i == FEDGE_CODEC_COUNT)
        return fail_unknown(text, named, err);
    if (codec->values || (codecs[i]->sparsifies && codec->sparsifier)) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "\"%.*s\" cannot follow what comes before it: a codec chooses "
                          "values, and one behind it writes them, as in topk:0.01+int8",
                          shown, text);
    }
    if (!codecs[i]->sparsifies && colon)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "codec \"%s\" takes no share", codecs[i]->name);
    if (!codecs[i]->sparsifies) {
        codec->values = codecs[i];
        return FEDGE_OK;
    }
    codec->sparsifier = codecs[i];
    codec->fraction = colon ? read_fraction(colon + 1, length - named - 1) : 0;
    if (codec->fraction == 0) {
        return fedge_fail(
            err, FEDGE_UNSUPPORTED,
            "\"%.*s\": codec \"%s\" takes the share of values that travel, over 0 and "
            "at most 1 in steps of 0.000001, as in %s:0.01",
            shown, text, codecs[i]->name, codecs[i]->name);
    }
    return FEDGE_OK;
}

fedge_status fedge_codec_parse(const char *text, fedge_codec *codec, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    memset(codec, 0, sizeof(*codec));
    for (const char *at = text; status == FEDGE_OK; at++) {
        const size_t length = strcspn(at, "+");
        status = read_stage(at, length, codec, err);
        at += length;
        if (*at == '\0')
            break;
    }
    if (status == FEDGE_OK && !codec->values)
        codec->values = &fedge_codec_none;
    return status;
}

const char *fedge_codec_text(const fedge_codec *codec, char text[FEDGE_CODEC_TEXT])
{
    if (!codec->sparsifier) {
        (void)fedge_os_format(text, FEDGE_CODEC_TEXT, "%s", codec->values->name);
        return text;
    }
    char digits[8] = "000000";
    uint32_t digits_left = (uint32_t)(codec->fraction % FEDGE_CODEC_WHOLE);
    for (int i = 5; i >= 0; i--, digits_left /= 10)
        digits[i] = (char)('0' + digits_left % 10);
    for (int i = 5; i >= 0 && digits[i] == '0'; i--)
        digits[i] = '\0';
    const bool plain = codec->values == &fedge_codec_none;
    (void)fedge_os_format(text, FEDGE_CODEC_TEXT, "%s:%u%s%s%s%s", codec->sparsifier->name,
                          (unsigned)(codec->fraction / FEDGE_CODEC_WHOLE), digits[0] ? "." : "",
                          digits, plain ? "" : "+", plain ? "" : codec->values->name);
    return text;
}

bool fedge_codec_equal(const fedge_codec *a, const fedge_codec *b)
{
    return a->values == b->values && a->sparsifier == b->sparsifier && a->fraction == b->fraction;
}

bool fedge_codec_has(const fedge_codec *codec, const char *name)
{
    return (codec->values && strcmp(codec->values->name, name) == 0) ||
           (codec->sparsifier && strcmp(codec->sparsifier->name, name) == 0);
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

const fedge_codec *fedge_codec_of(const fedge_codec *codec, uint32_t index)
{
    return codec->tensors ? codec->tensors[index] : codec;
}

bool fedge_codec_is_plain(const fedge_codec *codec)
{
    return !codec->sparsifier && !codec->tensors;
}

bool fedge_codec_sparsifies(const fedge_codec *codec, const fedge_tensor_spec *spec)
{
    return codec->sparsifier && spec->rank >= 2;
}

size_t fedge_codec_chosen(const fedge_codec *codec, size_t count)
{
    const uint64_t whole = FEDGE_CODEC_WHOLE;
    return (size_t)(((uint64_t)count * codec->fraction + whole - 1) / whole);
}

size_t fedge_codec_run_size(const fedge_codec *codec, size_t count)
{
    return codec->values->size(count);
}

size_t fedge_codec_size(const fedge_codec *codec, const fedge_schema *schema)
{
    size_t size = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        const fedge_codec *tensor_codec = fedge_codec_of(codec, i);
        size += fedge_codec_sparsifies(tensor_codec, spec)
                    ? tensor_codec->sparsifier->largest(tensor_codec, spec->count)
                    : fedge_codec_run_size(tensor_codec, spec->count);
    }
    return size;
}

fedge_status fedge_codec_check_bounds(const fedge_schema *schema, const int8_t *bounds_log2,
                                      fedge_error *err)
{
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        if (bounds_log2[i] < FEDGE_FIXED_MIN_BOUND_LOG2 ||
            bounds_log2[i] > FEDGE_FIXED_MAX_BOUND_LOG2) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "bound 2^%d of tensor \"%s\" is outside 2^%d to 2^%d", bounds_log2[i],
                              schema->tensors[i].name, FEDGE_FIXED_MIN_BOUND_LOG2,
                              FEDGE_FIXED_MAX_BOUND_LOG2);
        }
    }
    return FEDGE_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* x: the values from [first] on, one of which is NaN; NULL: they are no longer available. */
static fedge_status fail_nan(const fedge_tensor_spec *spec, size_t first, const float *x,
                             fedge_error *err)
{
    size_t i = 0;
    while (x && !isnan(x[i]))
        i++;
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "value %zu of tensor \"%s\" is NaN; training has diverged", first + i,
                      spec->name);
}

/* A section being encoded. */
typedef struct encoder {
    const fedge_codec *codec; /* the tensor's codec */
    const fedge_codec_ends *ends;
    uint8_t *out; /* next output byte; NULL: only count */
    size_t size;  /* bytes written or counted */
    fedge_codec_stats *stats;
} encoder;

/* Encodes x (n), whole blocks or a tensor's last values, and decodes them to v. */
static void encode_blocks(encoder *self, int bound_log2, const float *x, size_t n, int32_t *v)
{
    const fedge_codec_ops *values = self->codec->values;
    for (size_t i = 0; i < n; i += FEDGE_CODEC_BLOCK) {
        const size_t block = n - i < FEDGE_CODEC_BLOCK ? n - i : FEDGE_CODEC_BLOCK;
        const size_t size = values->size(block);
        values->encode(bound_log2, x + i, block, v + i, self->out, self->stats);
        self->out = self->out ? self->out + size : NULL;
        self->size += size;
    }
}

/* Adds a chunk to the residual. Sums over the bound are clipped; the excess would stay forever.
 * Returns the sums, or NULL with the error of a NaN. */
static float *add_residual(encoder *self, const fedge_tensor_spec *spec, int bound_log2, size_t at,
                           const float *x, size_t n)
{
    const float bound = ldexpf(1.0f, bound_log2);
    float *residual = self->ends->residual + spec->offset + at;
    uint32_t not_finite = 0, clamped = 0; /* types as wide as the values, for vectorisation */
    for (size_t i = 0; i < n; i++) {
        const float sum = residual[i] + x[i];
        not_finite += isnan(sum) ? 1 : 0;
        clamped += fabsf(sum) > bound ? 1 : 0;
        residual[i] = sum > bound ? bound : sum < -bound ? -bound : sum;
    }
    self->stats->not_finite += not_finite;
    self->stats->clamped += clamped;
    return residual;
}

/* Subtracts the sent values from the residual. */
static void subtract_sent(float *residual, const int32_t *v, size_t n, int bound_log2)
{
    const float unit = ldexpf(1.0f, bound_log2 - FEDGE_FIXED_VALUE_BITS);
    for (size_t i = 0; i < n; i++)
        residual[i] -= (float)v[i] * unit;
}

/* Sends all values. */
static fedge_status encode_whole(encoder *self, const fedge_tensor_spec *spec, uint32_t index,
                                 int bound_log2, fedge_error *err)
{
    const fedge_codec_ends *ends = self->ends;
    const bool keeps = ends->residual != NULL;
    const bool fixed =
        self->codec->values->keeps_quantised && !self->out && ends->take_fixed && !keeps;
    float buffer[FEDGE_CODEC_CHUNK];
    int32_t v[FEDGE_CODEC_CHUNK];
    for (size_t at = 0; at < spec->count; at += FEDGE_CODEC_CHUNK) {
        const size_t left = spec->count - at;
        const size_t n = left < FEDGE_CODEC_CHUNK ? left : FEDGE_CODEC_CHUNK;
        const float *x = NULL;
        if (fixed) {
            ends->take_fixed(ends->user, index, at, n, bound_log2, v, self->stats);
            self->size += self->codec->values->size(n);
        } else {
            x = ends->take(ends->user, index, at, n, buffer);
            float *residual = keeps ? add_residual(self, spec, bound_log2, at, x, n) : NULL;
            encode_blocks(self, bound_log2, keeps ? residual : x, n, v);
            subtract_sent(residual, v, keeps ? n : 0, bound_log2);
        }
        if (self->stats->not_finite > 0)
            return fail_nan(spec, at, x, err);
        if (ends->give)
            FEDGE_TRY(ends->give(ends->user, index, at, NULL, n, v, err));
    }
    return FEDGE_OK;
}

/* One tensor of the section, for a callback that takes one tensor. */
typedef struct tensor_end {
    const fedge_codec_ends *ends;
    uint32_t index;
} tensor_end;

static fedge_status give_of_tensor(void *user, size_t at, const uint32_t *indices, size_t n,
                                   const int32_t *v, fedge_error *err)
{
    const tensor_end *end = user;
    return end->ends->give(end->ends->user, end->index, at, indices, n, v, err);
}

/* Sends some values. */
static fedge_status encode_chosen(encoder *self, const fedge_tensor_spec *spec, uint32_t index,
                                  int bound_log2, fedge_error *err)
{
    const fedge_codec_ends *ends = self->ends;
    tensor_end end = {ends, index};
    float buffer[FEDGE_CODEC_CHUNK];
    assert(ends->residual);
    for (size_t at = 0; at < spec->count; at += FEDGE_CODEC_CHUNK) {
        const size_t left = spec->count - at;
        const size_t n = left < FEDGE_CODEC_CHUNK ? left : FEDGE_CODEC_CHUNK;
        const float *x = ends->take(ends->user, index, at, n, buffer);
        (void)add_residual(self, spec, bound_log2, at, x, n);
        if (self->stats->not_finite > 0)
            return fail_nan(spec, at, x, err);
    }
    fedge_rng rng = fedge_rng_stream(ends->seed, FEDGE_PURPOSE_CHOICE, ends->round, index, 0);
    const fedge_codec_tensor tensor = {.codec = self->codec,
                                       .spec = spec,
                                       .bound_log2 = bound_log2,
                                       .key = fedge_rng_u64(&rng),
                                       .give = ends->give ? give_of_tensor : NULL,
                                       .user = &end};
    size_t size = 0;
    const fedge_status status = self->codec->sparsifier->sparsify(
        &tensor, ends->residual + spec->offset, self->out, &size, err);
    self->out = self->out ? self->out + size : NULL;
    self->size += size;
    return status;
}

fedge_status fedge_codec_encode_chunks(const fedge_codec *codec, const fedge_schema *schema,
                                       const int8_t *bounds_log2, const fedge_codec_ends *ends,
                                       uint8_t *out, size_t *size, fedge_codec_stats *stats,
                                       fedge_error *err)
{
    encoder self = {.ends = ends, .out = out, .stats = stats};
    *stats = (fedge_codec_stats){0};
    fedge_status status = fedge_codec_check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        self.codec = fedge_codec_of(codec, i);
        status = fedge_codec_sparsifies(self.codec, spec)
                     ? encode_chosen(&self, spec, i, bounds_log2[i], err)
                     : encode_whole(&self, spec, i, bounds_log2[i], err);
    }
    *size = self.size;
    return status;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Decoding has a separate table, so that clients link none of it. */

static const struct {
    const fedge_codec_ops *codec;
    const fedge_codec_reader *reader;
} readers[] = {
#define ENTRY(name) {&fedge_codec_##name, &fedge_codec_##name##_reader},
    FEDGE_CODEC_MAP(ENTRY)
#undef ENTRY
};

const fedge_codec_reader *fedge_codec_reader_of(const fedge_codec_ops *codec)
{
    size_t i = 0;
    while (readers[i].codec != codec)
        i++;
    return readers[i].reader;
}

fedge_status fedge_codec_decode_run(const fedge_codec *codec, const fedge_tensor_spec *spec,
                                    int bound_log2, size_t first, size_t count, const uint8_t *in,
                                    int32_t *v, fedge_error *err)
{
    const fedge_codec_reader *values = fedge_codec_reader_of(codec->values);
    assert(first % FEDGE_CODEC_BLOCK == 0 && first <= spec->count && count <= spec->count - first);
    return v ? values->decode(spec, bound_log2, first, count, in, v, err)
             : values->validate(spec, bound_log2, first, count, in, err);
}

/* Decodes block by block. */
static fedge_status read_whole(const fedge_codec_tensor *tensor, const uint8_t *in,
                               fedge_error *err)
{
    const fedge_tensor_spec *spec = tensor->spec;
    const fedge_codec_reader *values = fedge_codec_reader_of(tensor->codec->values);
    int32_t v[FEDGE_CODEC_CHUNK];
    if (!tensor->give)
        return values->validate(spec, tensor->bound_log2, 0, spec->count, in, err);
    for (size_t at = 0; at < spec->count; at += FEDGE_CODEC_CHUNK) {
        const size_t left = spec->count - at;
        const size_t n = left < FEDGE_CODEC_CHUNK ? left : FEDGE_CODEC_CHUNK;
        FEDGE_TRY(values->decode(spec, tensor->bound_log2, at, n,
                                 in + fedge_codec_run_size(tensor->codec, at), v, err));
        FEDGE_TRY(tensor->give(tensor->user, at, NULL, n, v, err));
    }
    return FEDGE_OK;
}

fedge_status fedge_codec_read_tensor(const fedge_codec_tensor *tensor, const uint8_t *in,
                                     size_t size, size_t *used, fedge_error *err)
{
    if (fedge_codec_sparsifies(tensor->codec, tensor->spec))
        return fedge_codec_reader_of(tensor->codec->sparsifier)->read(tensor, in, size, used, err);
    *used = fedge_codec_run_size(tensor->codec, tensor->spec->count);
    if (size < *used) {
        return fedge_fail(err, FEDGE_TRUNCATED, "the section ends within tensor \"%s\"",
                          tensor->spec->name);
    }
    return read_whole(tensor, in, err);
}

static fedge_status fail_size(const fedge_codec *codec, size_t size, size_t wanted,
                              fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    return fedge_fail(err, size < wanted ? FEDGE_TRUNCATED : FEDGE_TOO_BIG,
                      "section of %zu bytes; its schema takes %s %zu as %s", size,
                      fedge_codec_is_plain(codec) ? "exactly" : "at most", wanted,
                      fedge_codec_text(codec, text));
}

/* Destination of a tensor's values. */
static fedge_status give_to_array(void *user, size_t at, const uint32_t *indices, size_t n,
                                  const int32_t *v, fedge_error *err)
{
    int32_t *to = user;
    (void)err;
    for (size_t i = 0; i < n; i++)
        to[indices ? indices[i] : at + i] = v[i];
    return FEDGE_OK;
}

fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const uint8_t *in, size_t in_size,
                                int32_t *v, fedge_error *err)
{
    const size_t most = fedge_codec_size(codec, schema);
    if (in_size > most || (in_size < most && fedge_codec_is_plain(codec)))
        return fail_size(codec, in_size, most, err);
    FEDGE_TRY(fedge_codec_check_bounds(schema, bounds_log2, err));
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        const fedge_codec *tensor_codec = fedge_codec_of(codec, i);
        const fedge_codec_tensor tensor = {.codec = tensor_codec,
                                           .spec = spec,
                                           .bound_log2 = bounds_log2[i],
                                           .give = give_to_array,
                                           .user = v + spec->offset};
        size_t used = 0;
        if (fedge_codec_sparsifies(tensor_codec, spec))
            memset(v + spec->offset, 0, spec->count * sizeof(*v));
        FEDGE_TRY(fedge_codec_read_tensor(&tensor, in, in_size, &used, err));
        in += used;
        in_size -= used;
    }
    return fedge_codec_check_end(in_size, err);
}

fedge_status fedge_codec_check_end(size_t left, fedge_error *err)
{
    return left == 0 ? FEDGE_OK
                     : fedge_fail(err, FEDGE_TOO_BIG,
                                  "the section has %zu bytes behind its last tensor", left);
}
