#include "edge/io/codec_json.h"

#include <string.h>

static bool is_known(const char *name)
{
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
        if (strcmp(fedge_codec_name(i), name) == 0)
            return true;
    return false;
}

fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node, fedge_codec *codec,
                                   fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    const char *names[FEDGE_CODEC_COUNT];
    fedge_error cause = {0};
    fedge_status status = fedge_json_text(json, node, 1, text, sizeof text, err);
    if (status != FEDGE_OK)
        return status;
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
        names[i] = fedge_codec_name(i);
    if (!is_known(text))
        return fedge_json_fail_name(json, node, text, names, FEDGE_CODEC_COUNT, err);
    if (fedge_codec_parse(text, codec, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, NULL, err, "%s", cause.message);
    return FEDGE_OK;
}

fedge_status fedge_codec_write_json(const fedge_codec *codec, const char *key, cJSON *object,
                                    fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    if (cJSON_AddStringToObject(object, key, fedge_codec_text(codec, text)) == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return FEDGE_OK;
}
