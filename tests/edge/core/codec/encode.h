/* Encoding from arrays, for tests and benchmarks: products encode from where their values lie. */
#ifndef FEDGE_TESTS_EDGE_CORE_CODEC_ENCODE_H
#define FEDGE_TESTS_EDGE_CORE_CODEC_ENCODE_H

#include "edge/core/codec/codec.h"

/* Values that lie in one block. */
typedef struct array_end {
    const fedge_schema *schema;
    const float *values;
} array_end;

static inline const float *take_from_array(void *user, uint32_t index, size_t at, size_t n,
                                           float *room)
{
    const array_end *from = user;
    (void)n;
    (void)room;
    return from->values + from->schema->tensors[index].offset + at;
}

/* Encodes [values] (schema->num_elements) that lie in one block, as fedge_codec_encode_chunks does.
 * FEDGE_INVALID_ARGUMENT when out_size is less than fedge_codec_size. residual: NULL for a codec
 * that does not choose. stats: may be NULL. */
static inline fedge_status codec_encode(const fedge_codec *codec, const fedge_schema *schema,
                                        const int8_t *bounds_log2, const float *values,
                                        float *residual, uint8_t *out, size_t out_size,
                                        size_t *size, fedge_codec_stats *stats, fedge_error *err)
{
    fedge_codec_stats unused;
    array_end from = {schema, values};
    const fedge_codec_ends ends = {.user = &from, .take = take_from_array, .residual = residual};
    const size_t most = fedge_codec_size(codec, schema);
    char text[FEDGE_CODEC_TEXT];
    if (stats)
        *stats = (fedge_codec_stats){0};
    if (out_size < most) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the section takes up to %zu bytes as %s, and there is room for %zu",
                          most, fedge_codec_text(codec, text), out_size);
    }
    return fedge_codec_encode_chunks(codec, schema, bounds_log2, &ends, out, size,
                                     stats ? stats : &unused, err);
}

#endif
