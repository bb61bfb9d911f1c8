#include "edge/wire/codec_json.h"

#include <string.h>

#define DEFLATE "+deflate"

static bool is_known(const char *name)
{
    if (strcmp(name, "f32") == 0) { /* another word for none */
        return true;
    }
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        if (strcmp(fedge_codec_name(i), name) == 0)
            return true;
    }
    return false;
}

/* Each stage is of a codec that is known, or the nearest one is told. */
static fedge_status check_names(const fedge_json *json, const cJSON *node, const char *text,
                                fedge_error *err)
{
    const char *names[FEDGE_CODEC_COUNT];
    char name[FEDGE_CODEC_TEXT];
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
        names[i] = fedge_codec_name(i);
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ":+");
        memcpy(name, at, length);
        name[length] = '\0';
        if (strcmp(name, DEFLATE + 1) == 0) {
            return fedge_json_fail(
                json, node, NULL, err,
                "\"deflate\" goes last in \"up\" or \"down\", behind a codec, as in "
                "int8+deflate; it may have a level, 1 to 9, as in deflate:6");
        }
        if (!is_known(name))
            return fedge_json_fail_name(json, node, name, names, FEDGE_CODEC_COUNT, err);
        at += strcspn(at, "+");
        if (*at == '\0')
            return FEDGE_OK;
    }
}

/* text: below FEDGE_CODEC_TEXT bytes. */
static fedge_status read_text(const fedge_json *json, const cJSON *node, const char *text,
                              fedge_codec *codec, fedge_error *err)
{
    fedge_error cause = {0};
    const fedge_status status = check_names(json, node, text, err);
    if (status == FEDGE_OK && fedge_codec_parse(text, codec, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, NULL, err, "%s", cause.message);
    return status;
}

fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node, fedge_codec *codec,
                                   fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    FEDGE_TRY(fedge_json_text(json, node, 1, text, sizeof(text), err));
    return read_text(json, node, text, codec, err);
}

/* As in "deflate:6": all do the same (deflate.c). */
static bool is_level(const char *text)
{
    return text[0] == ':' && text[1] >= '1' && text[1] <= '9' && text[2] == '\0';
}

fedge_status fedge_codec_read_pipeline(const fedge_json *json, const cJSON *node,
                                       fedge_codec *codec, bool *deflate, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    FEDGE_TRY(fedge_json_text(json, node, 1, text, sizeof(text), err));
    char *last = strrchr(text, '+');
    const size_t behind = sizeof(DEFLATE) - 1;
    *deflate = last && strncmp(last, DEFLATE, behind) == 0 &&
               (last[behind] == '\0' || is_level(last + behind));
    if (*deflate)
        *last = '\0';
    return read_text(json, node, text, codec, err);
}

fedge_status fedge_codec_write_json(const fedge_codec *codec, const char *key, cJSON *object,
                                    fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    if (!cJSON_AddStringToObject(object, key, fedge_codec_text(codec, text)))
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return FEDGE_OK;
}

fedge_status fedge_codec_write_pipeline(const fedge_codec *codec, bool deflate, const char *key,
                                        cJSON *object, fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT + sizeof(DEFLATE)];
    fedge_codec_text(codec, text);
    if (deflate)
        memcpy(text + strlen(text), DEFLATE, sizeof(DEFLATE));
    if (!cJSON_AddStringToObject(object, key, text))
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    return FEDGE_OK;
}
