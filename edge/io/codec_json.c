#include "edge/io/codec_json.h"

#include <string.h>

#define DEFLATE "+deflate"

static bool is_known(const char *name)
{
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
        if (strcmp(fedge_codec_name(i), name) == 0)
            return true;
    return false;
}

static fedge_status read_text(const fedge_json *json, const cJSON *node, const char *text,
                              fedge_codec *codec, fedge_error *err)
{
    const char *names[FEDGE_CODEC_COUNT];
    fedge_error cause = {0};
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
        names[i] = fedge_codec_name(i);
    if (!is_known(text))
        return fedge_json_fail_name(json, node, text, names, FEDGE_CODEC_COUNT, err);
    if (fedge_codec_parse(text, codec, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, NULL, err, "%s", cause.message);
    return FEDGE_OK;
}

fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node, fedge_codec *codec,
                                   fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    const fedge_status status = fedge_json_text(json, node, 1, text, sizeof text, err);
    return status == FEDGE_OK ? read_text(json, node, text, codec, err) : status;
}

fedge_status fedge_codec_read_pipeline(const fedge_json *json, const cJSON *node,
                                       fedge_codec *codec, bool *deflate, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT + sizeof DEFLATE];
    const fedge_status status = fedge_json_text(json, node, 1, text, sizeof text, err);
    if (status != FEDGE_OK)
        return status;
    const size_t length = strlen(text), behind = sizeof DEFLATE - 1;
    *deflate = length > behind && strcmp(text + length - behind, DEFLATE) == 0;
    if (*deflate)
        text[length - behind] = '\0';
    return read_text(json, node, text, codec, err);
}

fedge_status fedge_codec_write_json(const fedge_codec *codec, const char *key, cJSON *object,
                                    fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    if (cJSON_AddStringToObject(object, key, fedge_codec_text(codec, text)) == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return FEDGE_OK;
}
