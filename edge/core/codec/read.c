/* The way back from bytes, apart from codec.c: clients link nothing of it. */
#include <assert.h>
#include <string.h>

#include "edge/core/codec/codec.h"

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

/* Run by run. */
static fedge_status read_whole(const fedge_codec_tensor *tensor, const uint8_t *in,
                               fedge_error *err)
{
    const fedge_tensor_spec *spec = tensor->spec;
    const fedge_codec_reader *values = fedge_codec_reader_of(tensor->codec->values);
    int32_t v[FEDGE_CODEC_PIECE];
    fedge_status status = FEDGE_OK;
    if (!tensor->give)
        return values->validate(spec, tensor->bound_log2, 0, spec->count, in, err);
    for (size_t at = 0; at < spec->count && status == FEDGE_OK; at += FEDGE_CODEC_PIECE) {
        const size_t left = spec->count - at;
        const size_t n = left < FEDGE_CODEC_PIECE ? left : FEDGE_CODEC_PIECE;
        status = values->decode(spec, tensor->bound_log2, at, n,
                                in + fedge_codec_run_size(tensor->codec, at), v, err);
        if (status == FEDGE_OK)
            status = tensor->give(tensor->user, at, NULL, n, v, err);
    }
    return status;
}

fedge_status fedge_codec_read_tensor(const fedge_codec_tensor *tensor, const uint8_t *in,
                                     size_t size, size_t *used, fedge_error *err)
{
    if (fedge_codec_chooses_of(tensor->codec, tensor->spec))
        return fedge_codec_reader_of(tensor->codec->chooses)->read(tensor, in, size, used, err);
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

/* Where a tensor is decoded to. */
static fedge_status give_to_array(void *user, size_t at, const uint32_t *places, size_t n,
                                  const int32_t *v, fedge_error *err)
{
    int32_t *to = user;
    (void)err;
    for (size_t i = 0; i < n; i++)
        to[places ? places[i] : at + i] = v[i];
    return FEDGE_OK;
}

fedge_status fedge_codec_decode(const fedge_codec *codec, const fedge_schema *schema,
                                const int8_t *bounds_log2, const uint8_t *in, size_t in_size,
                                int32_t *v, fedge_error *err)
{
    const size_t most = fedge_codec_size(codec, schema);
    if (in_size > most || (in_size < most && fedge_codec_is_plain(codec)))
        return fail_size(codec, in_size, most, err);
    fedge_status status = fedge_codec_check_bounds(schema, bounds_log2, err);
    for (uint32_t i = 0; status == FEDGE_OK && i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        const fedge_codec *own = fedge_codec_of(codec, i);
        const fedge_codec_tensor tensor = {.codec = own,
                                           .spec = spec,
                                           .bound_log2 = bounds_log2[i],
                                           .give = give_to_array,
                                           .user = v + spec->offset};
        size_t used = 0;
        if (fedge_codec_chooses_of(own, spec))
            memset(v + spec->offset, 0, spec->count * sizeof(*v));
        status = fedge_codec_read_tensor(&tensor, in, in_size, &used, err);
        in += used;
        in_size -= status == FEDGE_OK ? used : 0;
    }
    return status == FEDGE_OK ? fedge_codec_check_end(in_size, err) : status;
}

fedge_status fedge_codec_check_end(size_t left, fedge_error *err)
{
    return left == 0 ? FEDGE_OK
                     : fedge_fail(err, FEDGE_TOO_BIG,
                                  "the section has %zu bytes behind its last tensor", left);
}
