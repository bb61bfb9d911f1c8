/* The metadata of messages. One table of fields per message serves reading and writing, so that
 * they cannot diverge.
 *
 * A key of the first release is REQUIRED. A later one is SPARSE or has a default: older peers omit
 * it, and messages for them keep their bytes, which recorded transcripts in tests check. For the
 * same reason keys keep their names when a term changes ("last-counted").
 */
#include "edge/wire/protocol.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"
#include "edge/train/model.h"

#define MAX_VALUES 4096 /* JSON values in a message's metadata */

#define REQUIRED FEDGE_JSON_REQUIRED
#define LIST FEDGE_JSON_LIST
#define AT FEDGE_JSON_AT

/* --- the fields of each message (see docs/reference/protocol.md) ----------------------------- */

static const char *task_kind_name(unsigned value)
{
    static const char *const NAMES[] = {"train", "evaluate"};
    return value < 2 ? NAMES[value] : NULL;
}

static const char *reason_name(unsigned value)
{
    return value < FEDGE_REASON_COUNT ? fedge_reason_name((fedge_reason)value) : NULL;
}

static fedge_status read_metrics(const fedge_json *json, const cJSON *node, void *record,
                                 fedge_error *err);
static fedge_status write_metrics(const void *record, const char *key, cJSON *object,
                                  fedge_error *err);

static_assert(sizeof(fedge_task_kind) == sizeof(unsigned) &&
                  sizeof(fedge_reason) == sizeof(unsigned),
              "the tables store enums as unsigned");

static const fedge_json_field HELLO[] = {
    {.key = "protocol-min",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_hello, protocol_min),
     .min = 1,
     .max = UINT32_MAX},
    {.key = "protocol-max",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_hello, protocol_max),
     .min = 1,
     .max = UINT32_MAX},
    {.key = "release",
     .kind = FEDGE_JSON_TEXT,
     .flags = REQUIRED,
     AT(fedge_hello, release),
     .min = 1},
    {.key = "arch", .kind = FEDGE_JSON_TEXT, .flags = REQUIRED, AT(fedge_hello, arch)},
    {.key = "ram", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_hello, ram_bytes)},
    {.key = "features",
     .kind = FEDGE_JSON_TEXT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_hello, features, num_features),
     .min = 1},
    {.key = "data",
     .kind = FEDGE_JSON_TEXT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_hello, data, num_data),
     .min = 1},
    {.key = "errors",
     .kind = FEDGE_JSON_TEXT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_hello, errors, num_errors)},
    {.key = "hangs-up",
     .kind = FEDGE_JSON_BOOL,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_hello, hangs_up)},
    {.key = "more-features",
     .kind = FEDGE_JSON_TEXT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_hello, more_features, num_more_features),
     .min = 1},
    FEDGE_JSON_END,
};

static const fedge_json_field WELCOME[] = {
    {.key = "protocol",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_welcome, protocol),
     .min = 1,
     .max = UINT32_MAX},
    {.key = "client-index",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_welcome, client_index)},
    {.key = "server-time-ms",
     .kind = FEDGE_JSON_U64,
     .flags = REQUIRED,
     AT(fedge_welcome, server_time_ms)},
    {.key = "run-id", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_welcome, run_id)},
    {.key = "incarnation",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_welcome, incarnation)},
    {.key = "plan", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_welcome, plan)},
    {.key = "plan-size",
     .kind = FEDGE_JSON_U64,
     .flags = REQUIRED,
     AT(fedge_welcome, plan_size),
     .min = 1,
     .max = (double)FEDGE_PLAN_MAX_SIZE},
    {.key = "heartbeat-s",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_welcome, heartbeat_s),
     .min = 1,
     .max = 86400},
    {.key = "return-within-ms",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_welcome, return_within_ms),
     .max = FEDGE_MAX_RETURN_WITHIN_MS},
    {.key = "initial-model", .kind = FEDGE_JSON_HEX, AT(fedge_welcome, initial_model)},
    FEDGE_JSON_END,
};

static const fedge_json_field DELTA[] = {
    {.key = "base", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_delta_ref, base)},
    {.key = "hash", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_delta_ref, hash)},
    {.key = "size",
     .kind = FEDGE_JSON_U64,
     .flags = REQUIRED,
     AT(fedge_delta_ref, size),
     .min = 1,
     .max = (double)FEDGE_JSON_MAX_INTEGER},
    FEDGE_JSON_END,
};

static const fedge_json_field TASK[] = {
    {.key = "task-id", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_task, task_id)},
    {.key = "kind",
     .kind = FEDGE_JSON_ENUM,
     .flags = REQUIRED,
     AT(fedge_task, kind),
     .name_of = task_kind_name,
     .num_names = 2},
    {.key = "round", .kind = FEDGE_JSON_U32, .flags = REQUIRED, AT(fedge_task, round)},
    {.key = "model", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_task, model)},
    {.key = "model-size",
     .kind = FEDGE_JSON_U64,
     .flags = REQUIRED,
     AT(fedge_task, model_size),
     .min = 1,
     .max = (double)FEDGE_JSON_MAX_INTEGER},
    {.key = "deadline-ms", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_task, deadline_ms)},
    {.key = "learning-rate",
     .kind = FEDGE_JSON_F64,
     AT(fedge_task, learning_rate),
     .min = 0,
     .max = FEDGE_MAX_LEARNING_RATE},
    {.key = "bounds",
     .kind = FEDGE_JSON_I8,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_task, bounds_log2, num_bounds),
     .min = FEDGE_FIXED_MIN_BOUND_LOG2,
     .max = FEDGE_FIXED_MAX_BOUND_LOG2},
    {.key = "control-size",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_task, control_size)},
    {.key = "last-counted",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_PRESENCE,
     AT(fedge_task, last_accepted),
     .extra = offsetof(fedge_task, has_last_accepted)},
    {.key = "deltas",
     .kind = FEDGE_JSON_OBJECT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_task, deltas, num_deltas),
     .fields = DELTA},
    {.key = "parts", .kind = FEDGE_JSON_HEX, AT(fedge_task, parts)},
    {.key = "parts-size",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_SPARSE,
     AT(fedge_task, parts_size),
     .max = (double)FEDGE_PART_LIST_MAX_SIZE},
    FEDGE_JSON_END,
};

static const fedge_json_field FETCH[] = {
    {.key = "hash", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_blob_ref, hash)},
    {.key = "offset", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_blob_ref, offset)},
    {.key = "size", .kind = FEDGE_JSON_U64, .flags = FEDGE_JSON_SPARSE, AT(fedge_blob_ref, size)},
    FEDGE_JSON_END,
};

static const fedge_json_field CHUNK[] = {
    {.key = "hash", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_blob_ref, hash)},
    {.key = "offset", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_blob_ref, offset)},
    {.key = "size", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_blob_ref, size)},
    FEDGE_JSON_END,
};

static const fedge_json_field SECTION[] = {
    {.key = "name",
     .kind = FEDGE_JSON_TEXT,
     .flags = REQUIRED,
     AT(fedge_section_info, name),
     .min = 1},
    {.key = "codec", .flags = REQUIRED, FEDGE_JSON_CODEC(fedge_section_info, codec)},
    {.key = "deflate", .kind = FEDGE_JSON_BOOL, .flags = REQUIRED, AT(fedge_section_info, deflate)},
    {.key = "size", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_section_info, size)},
    {.key = "raw-size",
     .kind = FEDGE_JSON_U64,
     .flags = REQUIRED,
     AT(fedge_section_info, raw_size)},
    FEDGE_JSON_END,
};

static const fedge_json_field UPLOAD[] = {
    {.key = "task-id", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_upload, task_id)},
    {.key = "run-id", .kind = FEDGE_JSON_HEX, .flags = REQUIRED, AT(fedge_upload, run_id)},
    {.key = "incarnation",
     .kind = FEDGE_JSON_U32,
     .flags = REQUIRED,
     AT(fedge_upload, incarnation)},
    {.key = "size", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_upload, size)},
    {.key = "crc32", .kind = FEDGE_JSON_U32, .flags = REQUIRED, AT(fedge_upload, crc32)},
    {.key = "examples", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_upload, num_examples)},
    {.key = "sections",
     .kind = FEDGE_JSON_OBJECT,
     .flags = LIST,
     FEDGE_JSON_ARRAY(fedge_upload, sections, num_sections),
     .fields = SECTION},
    {.key = "metrics", .kind = FEDGE_JSON_CUSTOM, .read = read_metrics, .write = write_metrics},
    FEDGE_JSON_END,
};

static const fedge_json_field POSITION[] = {
    {.key = "task-id", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_position, task_id)},
    {.key = "offset", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_position, offset)},
    FEDGE_JSON_END,
};

static const fedge_json_field ACK[] = {
    {.key = "task-id", .kind = FEDGE_JSON_U64, .flags = REQUIRED, AT(fedge_ack, task_id)},
    {.key = "duplicate", .kind = FEDGE_JSON_BOOL, AT(fedge_ack, duplicate)},
    FEDGE_JSON_END,
};

/* A notice has a class, which a reader needs for unknown reasons: a newer peer may have others, and
 * the client must know whether to return. */
typedef struct wire_notice {
    fedge_notice notice;
    char class[8];
} wire_notice;

static const char *const CLASSES[] = {"later", "retry", "never", NULL};

static const fedge_json_field NOTICE[] = {
    {.key = "task-id",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_PRESENCE,
     AT(wire_notice, notice.task_id),
     .extra = offsetof(wire_notice, notice.has_task)},
    {.key = "reason",
     .kind = FEDGE_JSON_ENUM,
     .flags = REQUIRED | FEDGE_JSON_LENIENT,
     AT(wire_notice, notice.reason),
     .name_of = reason_name,
     .num_names = FEDGE_REASON_COUNT,
     .fallback = FEDGE_REASON_COUNT},
    {.key = "class", .kind = FEDGE_JSON_NAME, AT(wire_notice, class), .choices = CLASSES},
    {.key = "after-ms", .kind = FEDGE_JSON_U64, AT(wire_notice, notice.after_ms)},
    {.key = "text", .kind = FEDGE_JSON_TEXT, AT(wire_notice, notice.text)},
    {.key = "server", .kind = FEDGE_JSON_TEXT, AT(wire_notice, notice.server)},
    FEDGE_JSON_END,
};

/* --- metrics: an object of names and numbers -------------------------------------------------- */

/* Control characters in names could forge lines of logs and tables. */
static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    }
    return true;
}

static fedge_status read_metrics(const fedge_json *json, const cJSON *node, void *record,
                                 fedge_error *err)
{
    fedge_upload *upload = record;
    upload->num_metrics = 0;
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object, {…}");
    if (cJSON_GetArraySize(node) > FEDGE_MAX_METRICS) {
        return fedge_json_fail(json, node, NULL, err, "must have at most %d entries, not %d",
                               FEDGE_MAX_METRICS, cJSON_GetArraySize(node));
    }
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        fedge_metric *metric = &upload->metrics[upload->num_metrics];
        size_t length = strlen(child->string);
        if (length == 0 || length >= sizeof(metric->name) || !is_plain(child->string)) {
            return fedge_json_fail(json, node, NULL, err,
                                   "a name must have 1 to %zu bytes, none a control character",
                                   sizeof(metric->name) - 1);
        }
        const fedge_json_field value[] = {
            {.key = child->string, .kind = FEDGE_JSON_F64, AT(fedge_metric, value)},
            FEDGE_JSON_END};
        FEDGE_TRY(fedge_json_read(json, node, value, metric, err));
        memcpy(metric->name, child->string, length + 1);
        upload->num_metrics++;
    }
    return FEDGE_OK;
}

static fedge_status write_metrics(const void *record, const char *key, cJSON *object,
                                  fedge_error *err)
{
    const fedge_upload *upload = record;
    assert(upload->num_metrics <= FEDGE_MAX_METRICS);
    if (upload->num_metrics == 0)
        return FEDGE_OK;
    cJSON *metrics = cJSON_AddObjectToObject(object, key);
    if (!metrics)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        const fedge_json_field value[] = {
            {.key = upload->metrics[i].name, .kind = FEDGE_JSON_F64, AT(fedge_metric, value)},
            FEDGE_JSON_END};
        FEDGE_TRY(fedge_json_write(value, &upload->metrics[i], metrics, err));
    }
    return FEDGE_OK;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* By message type. */
static const struct {
    const fedge_json_field *fields;
    bool of_clients; /* clients send it */
} MESSAGES[] = {
    [FEDGE_MESSAGE_HELLO] = {HELLO, true},      [FEDGE_MESSAGE_WELCOME] = {WELCOME, false},
    [FEDGE_MESSAGE_DECLINE] = {NOTICE, true},   [FEDGE_MESSAGE_REFUSE] = {NOTICE, false},
    [FEDGE_MESSAGE_TASK] = {TASK, false},       [FEDGE_MESSAGE_FETCH] = {FETCH, true},
    [FEDGE_MESSAGE_CHUNK] = {CHUNK, false},     [FEDGE_MESSAGE_UPLOAD] = {UPLOAD, true},
    [FEDGE_MESSAGE_RESUME] = {POSITION, false}, [FEDGE_MESSAGE_PART] = {POSITION, true},
    [FEDGE_MESSAGE_ACK] = {ACK, false},         [FEDGE_MESSAGE_CANCEL] = {NOTICE, false},
    [FEDGE_MESSAGE_BYE] = {NOTICE, true}};
#define ONE(name, number, text) +1
static_assert(sizeof(MESSAGES) / sizeof(*MESSAGES) == 1 FEDGE_MESSAGE_TYPE_MAP(ONE),
              "every message type has a row");

static fedge_status pack(fedge_message_type type, const void *record, const uint8_t *payload,
                         uint32_t payload_size, uint8_t *out, size_t out_size, size_t *size,
                         fedge_error *err)
{
    char *text = NULL;
    size_t text_size = 0;
    fedge_status status = fedge_json_print(MESSAGES[type].fields, record, &text, &text_size, err);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", fedge_message_type_name(type));
    /* A size that does not fit the header must not be truncated to one that does;
     * fedge_message_pack refuses the largest number. */
    const fedge_message message = {
        .type = type,
        .meta = text,
        .meta_size = text_size > FEDGE_MESSAGE_MAX_META ? UINT32_MAX : (uint32_t)text_size,
        .payload = payload,
        .payload_size = payload_size};
    FEDGE_TRY_OR(fedge_message_pack(&message, out, out_size, err), done);
    *size = fedge_message_size(&message);
done:
    free(text);
    return status;
}

/* Reads [record], of [size] bytes. */
static fedge_status read(const fedge_message *message, void *record, size_t size, fedge_error *err)
{
    memset(record, 0, size);
    const char *name = fedge_message_type_name(message->type);
    bool carries = message->type == FEDGE_MESSAGE_CHUNK || message->type == FEDGE_MESSAGE_PART;
    /* A payload is refused where no reader uses it. */
    if (carries != (message->payload_size > 0)) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: %u bytes of payload, %s", name,
                          message->payload_size,
                          carries ? "at least 1 is needed" : "none belongs here");
    }
    const fedge_json_options options = {.name = name,
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_MESSAGE_MAX_META,
                                        .max_depth = FEDGE_JSON_WIRE_DEPTH,
                                        .max_values = MAX_VALUES};
    fedge_json json;
    FEDGE_TRY(fedge_json_open(&json, message->meta, message->meta_size, &options, err));
    fedge_status status =
        fedge_json_read(&json, json.root, MESSAGES[message->type].fields, record, err);
    fedge_json_close(&json);
    return status;
}

/* --- client to server ------------------------------------------------------------------------- */

fedge_status fedge_hello_pack(const fedge_hello *hello, uint8_t *out, size_t out_size, size_t *size,
                              fedge_error *err)
{
    return pack(FEDGE_MESSAGE_HELLO, hello, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_hello_read(const fedge_message *message, fedge_hello *hello, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_HELLO);
    FEDGE_TRY(read(message, hello, sizeof(*hello), err));
    if (hello->protocol_min > hello->protocol_max) {
        return fedge_fail(err, FEDGE_CORRUPT, "hello: protocol-min %u is over protocol-max %u",
                          hello->protocol_min, hello->protocol_max);
    }
    return FEDGE_OK;
}

fedge_status fedge_fetch_pack(const fedge_blob_ref *ref, uint8_t *out, size_t out_size,
                              size_t *size, fedge_error *err)
{
    return pack(FEDGE_MESSAGE_FETCH, ref, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_fetch_read(const fedge_message *message, fedge_blob_ref *ref, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_FETCH);
    return read(message, ref, sizeof(*ref), err);
}

fedge_status fedge_upload_pack(const fedge_upload *upload, uint8_t *out, size_t out_size,
                               size_t *size, fedge_error *err)
{
    return pack(FEDGE_MESSAGE_UPLOAD, upload, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_upload_read(const fedge_message *message, fedge_upload *upload, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_UPLOAD);
    return read(message, upload, sizeof(*upload), err);
}

fedge_status fedge_part_pack(const fedge_position *position, const uint8_t *payload,
                             uint32_t payload_size, uint8_t *out, size_t out_size, size_t *size,
                             fedge_error *err)
{
    return pack(FEDGE_MESSAGE_PART, position, payload, payload_size, out, out_size, size, err);
}

/* --- server to client ------------------------------------------------------------------------- */

fedge_status fedge_welcome_pack(const fedge_welcome *welcome, uint8_t *out, size_t out_size,
                                size_t *size, fedge_error *err)
{
    return pack(FEDGE_MESSAGE_WELCOME, welcome, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_welcome_read(const fedge_message *message, fedge_welcome *welcome,
                                fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_WELCOME);
    return read(message, welcome, sizeof(*welcome), err);
}

fedge_status fedge_task_pack(const fedge_task *task, uint8_t *out, size_t out_size, size_t *size,
                             fedge_error *err)
{
    return pack(FEDGE_MESSAGE_TASK, task, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_task_read(const fedge_message *message, fedge_task *task, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_TASK);
    return read(message, task, sizeof(*task), err);
}

fedge_status fedge_chunk_pack(const fedge_blob_ref *ref, const uint8_t *payload,
                              uint32_t payload_size, uint8_t *out, size_t out_size, size_t *size,
                              fedge_error *err)
{
    return pack(FEDGE_MESSAGE_CHUNK, ref, payload, payload_size, out, out_size, size, err);
}

fedge_status fedge_chunk_read(const fedge_message *message, fedge_blob_ref *ref, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_CHUNK);
    FEDGE_TRY(read(message, ref, sizeof(*ref), err));
    /* No overflow: integers in JSON are below 2^53. */
    if (ref->offset + message->payload_size > ref->size) {
        return fedge_fail(err, FEDGE_CORRUPT, "chunk: %u bytes at %llu end behind the blob's %llu",
                          message->payload_size, (unsigned long long)ref->offset,
                          (unsigned long long)ref->size);
    }
    return FEDGE_OK;
}

fedge_status fedge_resume_pack(const fedge_position *position, uint8_t *out, size_t out_size,
                               size_t *size, fedge_error *err)
{
    return pack(FEDGE_MESSAGE_RESUME, position, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_position_read(const fedge_message *message, fedge_position *position,
                                 fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_RESUME || message->type == FEDGE_MESSAGE_PART);
    return read(message, position, sizeof(*position), err);
}

fedge_status fedge_ack_pack(const fedge_ack *ack, uint8_t *out, size_t out_size, size_t *size,
                            fedge_error *err)
{
    return pack(FEDGE_MESSAGE_ACK, ack, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_ack_read(const fedge_message *message, fedge_ack *ack, fedge_error *err)
{
    assert(message->type == FEDGE_MESSAGE_ACK);
    return read(message, ack, sizeof(*ack), err);
}

/* --- notices ---------------------------------------------------------------------------------- */

static bool is_notice(unsigned type)
{
    return type == FEDGE_MESSAGE_DECLINE || type == FEDGE_MESSAGE_REFUSE ||
           type == FEDGE_MESSAGE_CANCEL || type == FEDGE_MESSAGE_BYE;
}

fedge_status fedge_notice_pack(fedge_message_type type, const fedge_notice *notice, uint8_t *out,
                               size_t out_size, size_t *size, fedge_error *err)
{
    assert(is_notice(type) && notice->reason < FEDGE_REASON_COUNT);
    wire_notice wire = {.notice = *notice};
    (void)snprintf(wire.class, sizeof(wire.class), "%s", fedge_reason_class(notice->reason));
    return pack(type, &wire, NULL, 0, out, out_size, size, err);
}

fedge_status fedge_notice_read(const fedge_message *message, fedge_notice *notice, fedge_error *err)
{
    assert(is_notice(message->type));
    wire_notice wire;
    memset(notice, 0, sizeof(*notice));
    FEDGE_TRY(read(message, &wire, sizeof(wire), err));
    *notice = wire.notice;
    /* An unknown reason is replaced by one of its class; without a class, by "later", the mildest.
     */
    if (notice->reason == FEDGE_REASON_COUNT) {
        notice->reason = strcmp(wire.class, "never") == 0   ? FEDGE_REASON_UNSUPPORTED
                         : strcmp(wire.class, "retry") == 0 ? FEDGE_REASON_TIMEOUT
                                                            : FEDGE_REASON_INTERNAL;
    }
    return FEDGE_OK;
}

bool fedge_is_of_clients(unsigned type)
{
    return type < sizeof(MESSAGES) / sizeof(*MESSAGES) && MESSAGES[type].of_clients;
}

fedge_status fedge_client_message_read(const fedge_message *message, fedge_client_message *out,
                                       fedge_error *err)
{
    out->type = (fedge_message_type)message->type;
    out->upload = NULL;
    switch (out->type) {
    case FEDGE_MESSAGE_FETCH:
        return fedge_fetch_read(message, &out->blob, err);
    case FEDGE_MESSAGE_UPLOAD:
        out->upload = malloc(sizeof(*out->upload));
        return out->upload ? fedge_upload_read(message, out->upload, err)
                           : fedge_fail(err, FEDGE_NO_MEMORY, "out of memory");
    case FEDGE_MESSAGE_PART:
        return fedge_position_read(message, &out->position, err);
    case FEDGE_MESSAGE_DECLINE:
    case FEDGE_MESSAGE_BYE:
        return fedge_notice_read(message, &out->notice, err);
    default:
        return fedge_fail(err, FEDGE_INTERNAL, "message type %u has no reader", message->type);
    }
}

/* ---- codecs in JSON -------------------------------------------------------------------------- */

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

/* Every stage must be a known codec; otherwise the error names the nearest. */
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
    FEDGE_TRY(check_names(json, node, text, err));
    if (fedge_codec_parse(text, codec, &cause) != FEDGE_OK)
        return fedge_json_fail(json, node, NULL, err, "%s", cause.message);
    return FEDGE_OK;
}

fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node, void *codec,
                                   fedge_error *err)
{
    char text[FEDGE_CODEC_TEXT];
    FEDGE_TRY(fedge_json_text(json, node, 1, text, sizeof(text), err));
    return read_text(json, node, text, codec, err);
}

/* As in "deflate:6": all levels are equal (deflate.c). */
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
    const size_t after = sizeof(DEFLATE) - 1;
    *deflate = last && strncmp(last, DEFLATE, after) == 0 &&
               (last[after] == '\0' || is_level(last + after));
    if (*deflate)
        *last = '\0';
    return read_text(json, node, text, codec, err);
}

fedge_status fedge_codec_write_json(const void *codec, const char *key, cJSON *object,
                                    fedge_error *err)
{
    if (!((const fedge_codec *)codec)->values)
        return FEDGE_OK;
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
