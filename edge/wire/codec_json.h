/* Codecs in JSON: a text as a job writes it. Internal to edge/wire. */
#ifndef FEDGE_EDGE_WIRE_CODEC_JSON_H
#define FEDGE_EDGE_WIRE_CODEC_JSON_H

#include "edge/core/codec/codec.h"
#include "edge/json/json.h"

/* Fails as reading a name does: a codec that is not known gets the nearest that is. */
FEDGE_MUST_USE fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node,
                                                  fedge_codec *codec, fedge_error *err);
/* The same with "+deflate" behind it or not, or "+deflate:1" to ":9", as a
 * job's "up" has it. */
FEDGE_MUST_USE fedge_status fedge_codec_read_pipeline(const fedge_json *json, const cJSON *node,
                                                      fedge_codec *codec, bool *deflate,
                                                      fedge_error *err);
/* Adds it to [object] under [key]. */
FEDGE_MUST_USE fedge_status fedge_codec_write_json(const fedge_codec *codec, const char *key,
                                                   cJSON *object, fedge_error *err);

/* As fedge_codec_read_pipeline reads it. */
FEDGE_MUST_USE fedge_status fedge_codec_write_pipeline(const fedge_codec *codec, bool deflate,
                                                       const char *key, cJSON *object,
                                                       fedge_error *err);

#endif
