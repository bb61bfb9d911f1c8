/* Codecs by their names, for tests. Include cmocka.h first. */
#ifndef FEDGE_TESTS_EDGE_CORE_CODEC_CODECS_H
#define FEDGE_TESTS_EDGE_CORE_CODEC_CODECS_H

#include <stdio.h>

#include "tests/edge/core/codec/encode.h"

static const fedge_codec NONE = {.values = &fedge_codec_none};
static const fedge_codec INT8 = {.values = &fedge_codec_int8};
static const fedge_codec F16 = {.values = &fedge_codec_f16};
static const fedge_codec BF16 = {.values = &fedge_codec_bf16};
static const fedge_codec INT4 = {.values = &fedge_codec_int4};

/* A name alone of one that chooses: it takes a quarter. */
static inline fedge_codec codec_named(const char *text)
{
    fedge_codec codec = {0};
    fedge_error err;
    char quarter[FEDGE_CODEC_TEXT];
    (void)snprintf(quarter, sizeof(quarter), "%s:0.25", text);
    if (fedge_codec_parse(text, &codec, &err) != FEDGE_OK &&
        fedge_codec_parse(quarter, &codec, NULL) != FEDGE_OK)
        fail_msg("%s", err.message);
    return codec;
}

/* codec_encode of a codec that does not choose: a success fills [out] to its end. */
static inline fedge_status encode_all(const fedge_codec *codec, const fedge_schema *schema,
                                      const int8_t *bounds_log2, const float *values, uint8_t *out,
                                      size_t out_size, fedge_codec_stats *stats, fedge_error *err)
{
    size_t size = 0;
    const fedge_status status =
        codec_encode(codec, schema, bounds_log2, values, NULL, out, out_size, &size, stats, err);
    if (status == FEDGE_OK)
        assert_int_equal(size, out_size);
    return status;
}

#endif
