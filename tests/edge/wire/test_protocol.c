/* Messages: the test vectors of docs/reference/protocol.md in both directions, and what readers
 * refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/json/json.h"
#include "edge/wire/protocol.h"

#define RUN "00112233445566778899aabbccddeeff"
#define PLAN "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define MODEL "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0efeeedecebeae9e8e7e6e5e4e3e2e1e0"

/* Any message as a struct; static, so that padding is zero and structs compare as bytes. */
typedef union any {
    fedge_hello hello;
    fedge_welcome welcome;
    fedge_task task;
    fedge_blob_ref blob;
    fedge_upload upload;
    fedge_position position;
    fedge_ack ack;
    fedge_notice notice;
} any;

static struct {
    const char *name;
    any fields;
} VECTORS[] = {
    {"hello",
     {.hello = {1,
                1,
                "0.1.0",
                "aarch64",
                1073741824,
                3,
                1,
                1,
                {"codec:none", "codec:int8", "deflate"},
                {"fashion-mnist"},
                {"link: timed out after 30 s"}}}},
    {"hello-least", {.hello = {1, 3, "1.0.0", "armv7l", 0, 0, 0, 0, {""}, {""}, {""}}}},
    {"welcome", {.welcome = {1, 7, 1767225600000, RUN, 1, PLAN, 1234, 30, 0}}},
    {"decline",
     {.notice = {false, 0, FEDGE_REASON_POLICY, 0, "local-epochs 100, this site allows 50"}}},
    {"refuse-later", {.notice = {true, 42, FEDGE_REASON_NO_SPACE, 60000, "no room for the round"}}},
    {"task",
     {.task = {42, FEDGE_TASK_TRAIN, 3, MODEL, 6653628, 600000, 0.05, 2, {2, -3}, 0, false, 0}}},
    {"task-evaluate",
     {.task = {9007199254740991, FEDGE_TASK_EVALUATE, 3, MODEL, 104, 1, 0, 0, {0}, 0, false, 0}}},
    {"task-control",
     {.task = {45, FEDGE_TASK_TRAIN, 1, MODEL, 208, 1, 1, 2, {2, 2}, 104, true, 0}}},
    {"task-control-later",
     {.task = {52, FEDGE_TASK_TRAIN, 3, MODEL, 208, 1, 1, 2, {2, 2}, 104, true, 45}}},
    {"fetch", {.blob = {PLAN, 0, 0}}},
    {"chunk", {.blob = {PLAN, 65536, 65541}}},
    {"upload",
     {.upload = {42,
                 RUN,
                 1,
                 300,
                 0xdeadbeef,
                 6000,
                 1,
                 3,
                 {{"delta", {.values = &fedge_codec_int8}, true, 300, 1000}},
                 {{"loss", 0.5}, {"accuracy", 0.8125}, {"seconds", 1.25}}}}},
    {"upload-evaluate",
     {.upload =
          {43, RUN, 1, 0, 0, 600, 0, 1, {{"", {0}, 0, 0, 0}}, {{"loss", 2.3025850929940455}}}}},
    {"upload-sections",
     {.upload = {44,
                 RUN,
                 1,
                 1260,
                 1,
                 1,
                 3,
                 0,
                 {{"delta", {.values = &fedge_codec_int8}, true, 300, 1000},
                  {"buffers", {.values = &fedge_codec_none}, false, 64, 64},
                  {"control", {.values = &fedge_codec_int8}, true, 896, 1000}},
                 {{"", 0}}}}},
    {"resume", {.position = {42, 131072}}},
    {"part", {.position = {42, 295}}},
    {"ack", {.ack = {42, false}}},
    {"ack-duplicate", {.ack = {42, true}}},
    {"cancel", {.notice = {true, 42, FEDGE_REASON_STALE_TASK, 0, ""}}},
    {"bye", {.notice = {false, 0, FEDGE_REASON_SHUTTING_DOWN, 5000, "restart"}}},
    {"welcome-return", {.welcome = {1, 7, 1767225600000, RUN, 1, PLAN, 1234, 30, 50000}}},
    {"welcome-initial-model", {.welcome = {1, 7, 1767225600000, RUN, 1, PLAN, 1234, 30, 0, MODEL}}},
    {"task-parts",
     {.task = {.task_id = 53,
               .round = 4,
               .model = MODEL,
               .model_size = 6653628,
               .deadline_ms = 600000,
               .learning_rate = 0.05,
               .parts = PLAN,
               .parts_size = 480}}},
    {"fetch-part", {.blob = {MODEL, 1048576, 65536}}},
    {"hello-more-features",
     {.hello = {.protocol_min = 1,
                .protocol_max = 1,
                .release = "0.2.0",
                .arch = "x86_64",
                .ram_bytes = 1,
                .num_features = 1,
                .features = {"codec:none"},
                .hangs_up = true,
                .num_more_features = 2,
                .more_features = {"down-by-layer", "codec-by-section"}}}},
};
#define NUM_VECTORS (sizeof(VECTORS) / sizeof(VECTORS[0]))

static uint8_t out[FEDGE_MESSAGE_MAX_SIZE], golden[FEDGE_MESSAGE_MAX_SIZE];
static any fields; /* what a reader made */

static fedge_status pack(unsigned type, const any *f, const fedge_message *payload, size_t *size,
                         fedge_error *err)
{
    const uint8_t *bytes = payload->payload;
    uint32_t n = payload->payload_size;
    switch (type) {
    case FEDGE_MESSAGE_HELLO:
        return fedge_hello_pack(&f->hello, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_WELCOME:
        return fedge_welcome_pack(&f->welcome, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_TASK:
        return fedge_task_pack(&f->task, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_FETCH:
        return fedge_fetch_pack(&f->blob, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_CHUNK:
        return fedge_chunk_pack(&f->blob, bytes, n, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_UPLOAD:
        return fedge_upload_pack(&f->upload, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_RESUME:
        return fedge_resume_pack(&f->position, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_PART:
        return fedge_part_pack(&f->position, bytes, n, out, sizeof(out), size, err);
    case FEDGE_MESSAGE_ACK:
        return fedge_ack_pack(&f->ack, out, sizeof(out), size, err);
    default:
        return fedge_notice_pack((fedge_message_type)type, &f->notice, out, sizeof(out), size, err);
    }
}

static fedge_status read(const fedge_message *message, any *f, fedge_error *err)
{
    switch (message->type) {
    case FEDGE_MESSAGE_HELLO:
        return fedge_hello_read(message, &f->hello, err);
    case FEDGE_MESSAGE_WELCOME:
        return fedge_welcome_read(message, &f->welcome, err);
    case FEDGE_MESSAGE_TASK:
        return fedge_task_read(message, &f->task, err);
    case FEDGE_MESSAGE_FETCH:
        return fedge_fetch_read(message, &f->blob, err);
    case FEDGE_MESSAGE_CHUNK:
        return fedge_chunk_read(message, &f->blob, err);
    case FEDGE_MESSAGE_UPLOAD:
        return fedge_upload_read(message, &f->upload, err);
    case FEDGE_MESSAGE_RESUME:
    case FEDGE_MESSAGE_PART:
        return fedge_position_read(message, &f->position, err);
    case FEDGE_MESSAGE_ACK:
        return fedge_ack_read(message, &f->ack, err);
    default:
        return fedge_notice_read(message, &f->notice, err);
    }
}

static size_t from_hex(const char *hex, uint8_t *bytes, size_t room)
{
    size_t size = strlen(hex) / 2;
    assert_in_range(size, 0, room);
    for (size_t i = 0; i < size; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return size;
}

static const char *text_of(const cJSON *vector, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(vector, key);
    assert_non_null(item);
    return item->valuestring;
}

static void check_vector(const cJSON *vector, const any *expected, size_t index)
{
    const char *name = text_of(vector, "name");
    size_t golden_size = from_hex(text_of(vector, "frame"), golden, sizeof(golden)), size = 0;
    fedge_message message;
    fedge_error err = {0};
    assert_string_equal(name, VECTORS[index].name);
    assert_int_equal(fedge_message_unpack(golden, golden_size, &message, &err), FEDGE_OK);
    assert_string_equal(fedge_message_type_name(message.type), text_of(vector, "type"));

    memset(&fields, 0, sizeof(fields));
    if (read(&message, &fields, &err) != FEDGE_OK)
        fail_msg("%s: %s", name, err.message);
    if (memcmp(&fields, expected, sizeof(fields)) != 0)
        fail_msg("%s: read other fields than expected", name);

    if (pack(message.type, expected, &message, &size, &err) != FEDGE_OK)
        fail_msg("%s: %s", name, err.message);
    if (size != golden_size || memcmp(out, golden, size) != 0) {
        fail_msg("%s: packed %.*s\n  expected %.*s", name, (int)(size - FEDGE_MESSAGE_HEADER_SIZE),
                 (const char *)out + FEDGE_MESSAGE_HEADER_SIZE, (int)message.meta_size,
                 message.meta);
    }
}

static void vectors_match_in_both_directions(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0, i = 0;
    fedge_error err;
    assert_int_equal(fedge_os_read_file(FEDGE_SOURCE_DIR "/tests/golden/protocol/vectors.json",
                                        (size_t)1 << 20, &text, &size, &err),
                     FEDGE_OK);
    cJSON *list = cJSON_ParseWithLength((const char *)text, size);
    assert_int_equal(cJSON_GetArraySize(list), NUM_VECTORS);
    const cJSON *vector = NULL;
    cJSON_ArrayForEach(vector, list)
    {
        check_vector(vector, &VECTORS[i].fields, i);
        i++;
    }
    cJSON_Delete(list);
    free(text);
}

static void expect_corrupt(unsigned type, const char *meta, uint32_t payload_size, const char *part)
{
    const fedge_message message = {.type = type,
                                   .meta = meta,
                                   .meta_size = (uint32_t)strlen(meta),
                                   .payload = golden,
                                   .payload_size = payload_size};
    fedge_error err = {0};
    fedge_status st = read(&message, &fields, &err);
    if (st != FEDGE_CORRUPT || !strstr(err.message, part)) {
        fail_msg("%s\n  gave %s: %s\n  expected: %s", meta, fedge_status_text(st), err.message,
                 part);
    }
}

static void bad_metadata_is_corrupt(void **state)
{
    (void)state;
    static const struct {
        unsigned type;
        const char *meta, *part;
    } CASES[] = {
        {FEDGE_MESSAGE_ACK, "", "ack:1: not valid JSON"},
        {FEDGE_MESSAGE_ACK, "{", "not valid JSON"},
        {FEDGE_MESSAGE_ACK, "[]", "must be a JSON object"},
        {FEDGE_MESSAGE_ACK, "{}", "ack: task-id: is missing"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":-1}", "task-id: -1 is not in [0, 9007199254740991]"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":9007199254740992}", "task-id: 9007199254740992 is not"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":1.5}", "not an integer"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":\"1\"}", "must be an integer"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":1,\"task-id\":1}", "is given twice"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":1,\"duplicate\":1}", "must be true or false"},
        {FEDGE_MESSAGE_ACK, "{\"task-id\":1,\"x\":[[[[[[[[1]]]]]]]]}", "nested too deep"},
        {FEDGE_MESSAGE_HELLO,
         "{\"protocol-min\":2,\"protocol-max\":1,\"release\":\"1\",\"arch\":\"\",\"ram\":0}",
         "protocol-min 2 is over protocol-max 1"},
        {FEDGE_MESSAGE_HELLO,
         "{\"protocol-min\":1,\"protocol-max\":1,\"release\":\"1\",\"arch\":\"a\\u0007\",\"ram\":"
         "0}",
         "arch: has a control character"},
        {FEDGE_MESSAGE_HELLO,
         "{\"protocol-min\":1,\"protocol-max\":1,\"release\":\"1\",\"arch\":\"\",\"ram\":0,"
         "\"data\":[\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
         "\"1\",\"1\",\"1\",\"1\",\"1\"]}",
         "data: must have 0 to 16 elements, not 17"},
        {FEDGE_MESSAGE_FETCH, "{\"hash\":\"00\",\"offset\":0}", "64 lower-case hex digits"},
        {FEDGE_MESSAGE_FETCH, "{\"hash\":\"" MODEL "\"}", "offset: is missing"},
        {FEDGE_MESSAGE_TASK,
         "{\"task-id\":1,\"kind\":\"trian\",\"round\":1,\"model\":\"" MODEL
         "\",\"model-size\":1,\"deadline-ms\":1}",
         "kind: \"trian\" is not known here; did you mean \"train\"?"},
        {FEDGE_MESSAGE_TASK,
         "{\"task-id\":1,\"kind\":\"train\",\"round\":1,\"model\":\"" MODEL
         "\",\"model-size\":1,\"deadline-ms\":1,\"learning-rate\":1e999}",
         "learning-rate: inf"},
        {FEDGE_MESSAGE_TASK,
         "{\"task-id\":1,\"kind\":\"train\",\"round\":1,\"model\":\"" MODEL
         "\",\"model-size\":1,\"deadline-ms\":1,\"bounds\":[2,21]}",
         "bounds[1]: 21 is not in [-20, 20]"},
        {FEDGE_MESSAGE_UPLOAD,
         "{\"task-id\":1,\"run-id\":\"" RUN "\",\"incarnation\":1,\"size\":0,\"crc32\":0,"
         "\"examples\":1,\"metrics\":{\"loss\":1e999}}",
         "metrics.loss: inf"},
        {FEDGE_MESSAGE_UPLOAD,
         "{\"task-id\":1,\"run-id\":\"" RUN "\",\"incarnation\":1,\"size\":0,\"crc32\":0,"
         "\"examples\":1,\"metrics\":{\"\":1}}",
         "metrics: a name must have 1 to 63 bytes"},
        {FEDGE_MESSAGE_UPLOAD,
         "{\"task-id\":1,\"run-id\":\"" RUN "\",\"incarnation\":1,\"size\":0,\"crc32\":4294967296,"
         "\"examples\":1}",
         "crc32: 4294967296 is not in"},
        {FEDGE_MESSAGE_UPLOAD,
         "{\"task-id\":1,\"run-id\":\"" RUN "\",\"incarnation\":1,\"size\":0,\"crc32\":0,"
         "\"examples\":1,\"sections\":[{\"name\":\"delta\",\"codec\":\"int9\",\"deflate\":true,"
         "\"size\":1,\"raw-size\":1}]}",
         "sections[0].codec: \"int9\" is not known"},
        {FEDGE_MESSAGE_REFUSE, "{\"class\":\"later\"}", "refuse: reason: is missing"},
        {FEDGE_MESSAGE_REFUSE, "{\"reason\":7}", "reason: must be a text"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_corrupt(CASES[i].type, CASES[i].meta, 0, CASES[i].part);
}

static void payloads_belong_to_chunk_and_part(void **state)
{
    (void)state;
    expect_corrupt(FEDGE_MESSAGE_ACK, "{\"task-id\":1}", 1,
                   "1 bytes of payload, none belongs here");
    expect_corrupt(FEDGE_MESSAGE_PART, "{\"task-id\":1,\"offset\":0}", 0, "at least 1 is needed");
    expect_corrupt(FEDGE_MESSAGE_CHUNK, "{\"hash\":\"" PLAN "\",\"offset\":5,\"size\":9}", 5,
                   "5 bytes at 5 end behind the blob's 9");
    size_t size = 0;
    fedge_error err;
    const fedge_position position = {1, 0};
    assert_int_equal(fedge_part_pack(&position, golden, FEDGE_MESSAGE_MAX_PAYLOAD + 1, out,
                                     sizeof(out), &size, &err),
                     FEDGE_TOO_BIG);
}

static void unknown_keys_and_reasons_are_skipped(void **state)
{
    (void)state;
    static const struct {
        const char *meta;
        fedge_reason reason;
    } CASES[] = {
        {"{\"reason\":\"busy\",\"new\":{\"a\":[1]}}", FEDGE_REASON_BUSY},
        {"{\"reason\":\"moon-phase\",\"class\":\"never\"}", FEDGE_REASON_UNSUPPORTED},
        {"{\"reason\":\"moon-phase\",\"class\":\"retry\"}", FEDGE_REASON_TIMEOUT},
        {"{\"reason\":\"moon-phase\"}", FEDGE_REASON_INTERNAL},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const fedge_message message = {.type = FEDGE_MESSAGE_REFUSE,
                                       .meta = CASES[i].meta,
                                       .meta_size = (uint32_t)strlen(CASES[i].meta)};
        fedge_notice notice;
        fedge_error err;
        assert_int_equal(fedge_notice_read(&message, &notice, &err), FEDGE_OK);
        assert_int_equal(notice.reason, CASES[i].reason);
        assert_false(notice.has_task);
    }
}

/* As many words as there may be, of as many bytes as they may have, and the longest of all else. */
static void make_largest_hello(fedge_hello *hello)
{
    *hello = (fedge_hello){.protocol_min = UINT32_MAX, .protocol_max = UINT32_MAX};
    hello->ram_bytes = FEDGE_JSON_MAX_INTEGER;
    hello->hangs_up = true;
    hello->num_features = FEDGE_MAX_FIRST_FEATURES;
    hello->num_more_features = FEDGE_MAX_MORE_FEATURES;
    hello->num_data = hello->num_errors = FEDGE_MAX_NAMES;
    size_t left = FEDGE_MAX_FEATURES_SIZE;
    for (size_t i = 0; i < FEDGE_MAX_FEATURES; i++) {
        char *word = i < FEDGE_MAX_FIRST_FEATURES
                         ? hello->features[i]
                         : hello->more_features[i - FEDGE_MAX_FIRST_FEATURES];
        const size_t share = left / (FEDGE_MAX_FEATURES - i); /* with quotes and comma */
        snprintf(word, FEDGE_MAX_FEATURE, "%0*zu", (int)share - 3, i);
        left -= share;
    }
    memset(hello->release, '"', FEDGE_MAX_NAME - 1);
    memset(hello->arch, '"', FEDGE_MAX_NAME - 1);
    for (int i = 0; i < FEDGE_MAX_NAMES; i++) {
        memset(hello->data[i], '\\', FEDGE_MAX_NAME - 1);
        memset(hello->errors[i], i == 1 ? '\n' : '"', FEDGE_MAX_TEXT - 1);
    }
}

static void the_largest_hello_fits(void **state)
{
    (void)state;
    static fedge_hello hello, back;
    make_largest_hello(&hello);
    size_t size = 0;
    fedge_error err = {0};
    if (fedge_hello_pack(&hello, out, sizeof(out), &size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_message message;
    assert_int_equal(fedge_message_unpack(out, size, &message, &err), FEDGE_OK);
    assert_int_equal(fedge_hello_read(&message, &back, &err), FEDGE_OK);
    assert_int_equal(back.num_features, FEDGE_MAX_FIRST_FEATURES);
    assert_memory_equal(back.features, hello.features, sizeof(hello.features));
    assert_int_equal(back.num_more_features, FEDGE_MAX_MORE_FEATURES);
    assert_memory_equal(back.more_features, hello.more_features, sizeof(hello.more_features));
    assert_int_equal(back.errors[1][0], '?');
}

/* What the first servers and those of 0.1.0 know of a HELLO's words: lists of 64 and of 96. */
typedef struct old_hello {
    uint32_t num_features;
    char features[96][FEDGE_MAX_FEATURE];
} old_hello;

static void older_servers_read_what_is_written(void **state)
{
    (void)state;
    static fedge_hello hello;
    make_largest_hello(&hello);
    size_t size = 0;
    fedge_error err = {0};
    fedge_message message;
    assert_int_equal(fedge_hello_pack(&hello, out, sizeof(out), &size, &err), FEDGE_OK);
    assert_int_equal(fedge_message_unpack(out, size, &message, &err), FEDGE_OK);
    static const uint16_t LIMITS[] = {64, 96};
    for (size_t i = 0; i < sizeof(LIMITS) / sizeof(LIMITS[0]); i++) {
        const fedge_json_field known[] = {{.key = "features",
                                           .kind = FEDGE_JSON_TEXT,
                                           .flags = FEDGE_JSON_LIST,
                                           FEDGE_JSON_AT(old_hello, features[0]),
                                           .extra = offsetof(old_hello, num_features),
                                           .max_count = LIMITS[i],
                                           .min = 1},
                                          FEDGE_JSON_END};
        const fedge_json_options options = {.name = "hello",
                                            .status = FEDGE_CORRUPT,
                                            .max_size = FEDGE_MESSAGE_MAX_META,
                                            .max_depth = FEDGE_JSON_WIRE_DEPTH,
                                            .max_values = 4096};
        static old_hello old;
        fedge_json json;
        assert_int_equal(fedge_json_open(&json, message.meta, message.meta_size, &options, &err),
                         FEDGE_OK);
        if (fedge_json_read(&json, json.root, known, &old, &err) != FEDGE_OK)
            fail_msg("a server that reads %u words: %s", LIMITS[i], err.message);
        fedge_json_close(&json);
        assert_int_equal(old.num_features, FEDGE_MAX_FIRST_FEATURES);
        assert_memory_equal(old.features, hello.features, sizeof(hello.features[0]) * 64);
    }
}

static void the_largest_task_fits(void **state)
{
    (void)state;
    size_t size = 0;
    fedge_error err = {0};
    fedge_message message;
    static fedge_task task = {.model = MODEL, .model_size = 1, .num_bounds = FEDGE_MAX_TASK_BOUNDS};
    memset(task.bounds_log2, -20, sizeof(task.bounds_log2));
    assert_int_equal(fedge_task_pack(&task, out, sizeof(out), &size, &err), FEDGE_OK);
    static fedge_task task_back;
    assert_int_equal(fedge_message_unpack(out, size, &message, &err), FEDGE_OK);
    assert_int_equal(fedge_task_read(&message, &task_back, &err), FEDGE_OK);
    assert_memory_equal(&task, &task_back, sizeof(task));
}

static void what_cannot_be_packed_is_refused(void **state)
{
    (void)state;
    size_t size = 0;
    fedge_error err;
    const fedge_blob_ref no_hash = {.hash = ""};
    assert_int_equal(fedge_fetch_pack(&no_hash, out, sizeof(out), &size, &err),
                     FEDGE_INVALID_ARGUMENT);
    const fedge_ack too_big = {.task_id = (uint64_t)1 << 53};
    assert_int_equal(fedge_ack_pack(&too_big, out, sizeof(out), &size, &err), FEDGE_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "ack: task-id"));
    const fedge_ack fine = {.task_id = 1};
    assert_int_equal(fedge_ack_pack(&fine, out, 30, &size, &err), FEDGE_TOO_BIG);
}

/* Every type and reason stands in the page's tables, and the example is the vector's bytes. */
static void the_page_knows_every_type_and_reason(void **state)
{
    (void)state;
    uint8_t *page = NULL;
    size_t size = 0;
    fedge_error err;
    char row[128];
    assert_int_equal(fedge_os_read_file(FEDGE_SOURCE_DIR "/docs/reference/protocol.md",
                                        (size_t)1 << 20, &page, &size, &err),
                     FEDGE_OK);
#define TYPE_ROW(code, value, name)                                                                \
    (void)snprintf(row, sizeof(row), "\n| %d | " #code " | ", value);                              \
    if (!strstr((char *)page, row))                                                                \
        fail_msg("docs/reference/protocol.md has no row:%s", row);
    FEDGE_MESSAGE_TYPE_MAP(TYPE_ROW)
#undef TYPE_ROW
    for (int i = 0; i < FEDGE_REASON_COUNT; i++) {
        (void)snprintf(row, sizeof(row), "\n| `%s` | %s |", fedge_reason_name((fedge_reason)i),
                       fedge_reason_class((fedge_reason)i));
        if (!strstr((char *)page, row))
            fail_msg("docs/reference/protocol.md has no row:%s", row);
    }
    assert_non_null(strstr((char *)page, "0010  a8 ec c3 d1 00 00 00 00 7b 22 74 61 73 6b 2d 69"));
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_match_in_both_directions),
        cmocka_unit_test(bad_metadata_is_corrupt),
        cmocka_unit_test(payloads_belong_to_chunk_and_part),
        cmocka_unit_test(unknown_keys_and_reasons_are_skipped),
        cmocka_unit_test(the_largest_hello_fits),
        cmocka_unit_test(older_servers_read_what_is_written),
        cmocka_unit_test(the_largest_task_fits),
        cmocka_unit_test(what_cannot_be_packed_is_refused),
        cmocka_unit_test(the_page_knows_every_type_and_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
