/* JSON: what is refused and how the message names the place; tables there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

static const fedge_json_options OPTIONS = {.name = "t.json",
                                           .lines = true,
                                           .strict = true,
                                           .status = FEDGE_INVALID_ARGUMENT,
                                           .max_size = 4096,
                                           .max_depth = 4,
                                           .max_values = 64};

typedef struct point {
    uint32_t x;
    char label[8];
} point;

typedef struct record {
    bool flag, has_id;
    uint32_t u32, num_list, num_points, pair[2];
    uint64_t u64, id, wait_ms;
    int i32;
    float f32, list[3], same[3];
    double f64;
    char text[8], hex[5], name[8];
    unsigned color, colors;
    point points[2];
} record;

static const char *color_name(unsigned value)
{
    static const char *const NAMES[] = {"red", NULL, "blue"};
    return value < 3 ? NAMES[value] : NULL;
}

static const char *const CHOICES[] = {"FedAvg", "FedAdam", NULL};

static const fedge_json_field POINT[] = {
    {.key = "x", .kind = FEDGE_JSON_U32, FEDGE_JSON_AT(point, x), .flags = FEDGE_JSON_REQUIRED},
    {.key = "label", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(point, label)},
    FEDGE_JSON_END,
};

static const fedge_json_field FIELDS[] = {
    {.key = "flag", .kind = FEDGE_JSON_BOOL, FEDGE_JSON_AT(record, flag), .fallback = 1},
    {"u32", "u_32 you", FEDGE_JSON_U32, FEDGE_JSON_REQUIRED, FEDGE_JSON_AT(record, u32), .min = 1,
     .max = 100},
    {.key = "u64", .kind = FEDGE_JSON_U64, FEDGE_JSON_AT(record, u64)},
    {.key = "id",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_PRESENCE,
     FEDGE_JSON_AT(record, id),
     .extra = offsetof(record, has_id)},
    {.key = "wait-s",
     .kind = FEDGE_JSON_SECONDS,
     FEDGE_JSON_AT(record, wait_ms),
     .min = 0.001,
     .max = 1e6,
     .fallback = 600},
    {.key = "i32", .kind = FEDGE_JSON_I32, FEDGE_JSON_AT(record, i32), .fallback = -3},
    {.key = "f32", .kind = FEDGE_JSON_F32, FEDGE_JSON_AT(record, f32)},
    {.key = "f64", .kind = FEDGE_JSON_F64, FEDGE_JSON_AT(record, f64)},
    {.key = "pair",
     .kind = FEDGE_JSON_PAIR,
     FEDGE_JSON_AT(record, pair),
     .min = 1,
     .max = 9,
     .fallback = 1},
    {.key = "text", .kind = FEDGE_JSON_TEXT, FEDGE_JSON_AT(record, text), .min = 2},
    {.key = "hex", .kind = FEDGE_JSON_HEX, FEDGE_JSON_AT(record, hex)},
    {.key = "name", .kind = FEDGE_JSON_NAME, FEDGE_JSON_AT(record, name), .choices = CHOICES},
    {.key = "color",
     .kind = FEDGE_JSON_ENUM,
     FEDGE_JSON_AT(record, color),
     .name_of = color_name,
     .num_names = 3,
     .fallback = 2},
    {.key = "colors",
     .kind = FEDGE_JSON_ENUMS,
     FEDGE_JSON_AT(record, colors),
     .name_of = color_name,
     .num_names = 3},
    {.key = "list",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(record, list, num_list),
     .min_count = 1},
    {.key = "same",
     .kind = FEDGE_JSON_F32,
     .flags = FEDGE_JSON_LIST | FEDGE_JSON_SAME_COUNT,
     FEDGE_JSON_ARRAY(record, same, num_list)},
    {.key = "points",
     .kind = FEDGE_JSON_OBJECT,
     .flags = FEDGE_JSON_LIST,
     FEDGE_JSON_ARRAY(record, points, num_points),
     .fields = POINT},
    {.key = "$schema", .kind = FEDGE_JSON_IGNORED},
    FEDGE_JSON_END,
};

static fedge_status parse(const char *text, size_t size, record *r, fedge_error *err)
{
    fedge_json json;
    fedge_status st = fedge_json_open(&json, text, size, &OPTIONS, err);
    if (st != FEDGE_OK)
        return st;
    memset(r, 0xa5, sizeof(*r)); /* reading has to set every field */
    st = fedge_json_read(&json, json.root, FIELDS, r, err);
    fedge_json_close(&json);
    return st;
}

static void expect_failure(const char *text, size_t size, fedge_status status, const char *part)
{
    record r;
    fedge_error err = {0};
    fedge_status st = parse(text, size, &r, &err);
    if (st != status || !strstr(err.message, part)) {
        fail_msg("%s\n  gave %s: %s\n  expected %s with: %s", text, fedge_status_text(st),
                 err.message, fedge_status_text(status), part);
    }
}

static void broken_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } CASES[] = {
        {"", "not a JSON value (at the end"},
        {"  ", "end of the text"},
        {"[]", "must be a JSON object"},
        {"1", "must be a JSON object"},
        {"\xef\xbb\xbf{}", "byte order mark"},
        {"{\"u32\":1", "no ',' or '}'"},
        {"{\"u32\":1}}", "behind the end"},
        {"{\"u32\":1}\n x", "t.json:2: not valid JSON: something behind the end"},
        {"{\"u32\":1,}", "a comma too many (at '}'"},
        {"{\"u32\":1,\n ,\"a\":1}", "t.json:2: not valid JSON: a comma too many (at ','"},
        {"{\"u32\":[1,,2]}", "a comma too many (at ','"},
        {"{,\"u32\":1}", "no string in quotes (at ','"},
        {"{u32:1}", "no string in quotes (at 'u'"},
        {"{\n// one\n\"u32\":1}", "t.json:2: not valid JSON: JSON has no comments (at '/'"},
        {"{\"u32\":1 /* one */}", "JSON has no comments"},
        {"{\"u32\"/* one */:1}", "JSON has no comments"},
        {"{\"u32\":\n\n# one\n1}", "t.json:3: not valid JSON: JSON has no comments (at '#'"},
        {"{\"u32\":1} // one", "JSON has no comments"},
        {"{\"u32\":1,\"s\":\"\\#\"}", "an escape"},
        {"{\"u32\":,}", "not a JSON value"},
        {"{\"u32\" 1}", "without a colon"},
        {"{\"u32\":}", "not a JSON value"},
        {"{\"u32\":tru}", "not a JSON value"},
        {"{\"u32\":nul", "not a JSON value"},
        {"{\"u32\":[1,]}", "a comma too many (at ']'"},
        {"{\"u32\":[1 2]}", "no ',' or ']'"},
        {"{\"u32\":[1}}", "no ',' or ']'"},
        {"{\"u32\":{\"a\":1]}", "no ',' or '}'"},
        {"{\"u32\":01}", "begins with 0"},
        {"{\"u32\":-}", "lacks digits"},
        {"{\"u32\":+1}", "not a JSON value"},
        {"{\"u32\":.5}", "not a JSON value"},
        {"{\"u32\":1.}", "lacks digits"},
        {"{\"u32\":1e}", "lacks digits"},
        {"{\"u32\":NaN}", "not a JSON value"},
        {"{\"u32\":Infinity}", "not a JSON value"},
        {"{\"u32\":0x10}", "no ',' or '}'"},
        {"{\"u32\":1111111111111111111111111111111111111111111111111111111111111111}",
         "many digits"},
        {"{\"text\":\"abc", "does not end"},
        {"{\"text\":\"a\nb\"}", "control character in a string"},
        {"{\"text\":\"\\x41\"}", "an escape"},
        {"{\"text\":\"\\u12g4\"}", "four hex digits"},
        {"{\"text\":\"\\u0000\"}", "U+0000"},
        {"{\"text\":\"\\ud800\"}", "surrogate"},
        {"{\"text\":\"\\ud800\\u0041\"}", "surrogate"},
        {"{\"text\":\"\\udc00\"}", "surrogate"},
        {"{\"text\":\"\xff\"}", "not UTF-8"},
        {"{\"text\":\"\xc0\x80\"}", "not UTF-8"},
        {"{\"text\":\"\xed\xa0\x80\"}", "not UTF-8"},
        {"{\"text\":\"\xf4\x90\x80\x80\"}", "not UTF-8"},
        {"{\"text\":\"\xe2\x82\"}", "not UTF-8"},
        {"{\"a\":[[[[1]]]]}", "too deep"},
        {"{\"a\":{\"b\":{\"c\":{\"d\":{}}}}}", "too deep"},
        {"/* no */ {}", "JSON has no comments"},
        {"{\"u32\":1\f}", "no ',' or '}'"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_failure(CASES[i].text, strlen(CASES[i].text), FEDGE_CORRUPT, CASES[i].part);
    expect_failure("{\"u32\":1}\0", 10, FEDGE_CORRUPT, "behind the end");
    expect_failure("{\"u32\":1,\"text\":\"ab\0c\"}", 24, FEDGE_CORRUPT, "control character");
}

static void limits_hold(void **state)
{
    (void)state;
    char big[5000];
    memset(big, ' ', sizeof(big));
    expect_failure(big, sizeof(big), FEDGE_TOO_BIG, "5000 bytes, the limit is 4096");
    size_t n = (size_t)snprintf(big, sizeof(big), "{\"a\":[0");
    for (int i = 0; i < 62; i++)
        n += (size_t)snprintf(big + n, sizeof(big) - n, ",0");
    (void)snprintf(big + n, sizeof(big) - n, "]}");
    expect_failure(big, strlen(big), FEDGE_CORRUPT, "too many values");
    memset(big, '[', sizeof(big)); /* a bomb for recursive parsers */
    expect_failure(big, 4096, FEDGE_CORRUPT, "too deep");
}

static void duplicates_are_refused_at_every_level(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } CASES[] = {
        {"{\"u32\":1,\n\"u32\":2}", "t.json:1: u32: is given twice"},
        {"{\"u32\":1,\"points\":[{\"x\":1},\n{\"x\":1,\"x\":1}]}",
         "t.json:2: points[1].x: is given"},
        {"{\"z\":{\"a\":1,\"b\":2,\"\\u0061\":3}}", "z.a: is given twice"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_failure(CASES[i].text, strlen(CASES[i].text), FEDGE_CORRUPT, CASES[i].part);
    expect_failure("{\"u32\":1,\"you\":2}", 17, FEDGE_INVALID_ARGUMENT,
                   "you: \"u32\" says the same; keep one");
}

static void wrong_values_name_key_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } CASES[] = {
        {"{}", "t.json:1: u32: is missing"},
        {"{\n\"u32\":\n0}", "t.json:3: u32: 0 is not in [1, 100]"},
        {"{\"u32\":101}", "101 is not in [1, 100]"},
        {"{\"u32\":-1}", "-1 is not in [1, 100]"},
        {"{\"u32\":1.5}", "1.5 is not an integer"},
        {"{\"u32\":1e999}", "is not in [1, 100]"},
        {"{\"u32\":\"1\"}", "must be an integer in [1, 100]"},
        {"{\"u32\":true}", "must be an integer"},
        {"{\"u32\":null}", "must be an integer"},
        {"{\"u32\":1,\"u64\":9007199254740992}", "u64: 9007199254740992 is not in [0, "},
        {"{\"u32\":1,\"f32\":1e39}", "is not in [-3.4028"},
        {"{\"u32\":1,\"f64\":1e999}", "f64: inf"},
        {"{\"u32\":1,\"f64\":-1e999}", "f64: -inf"},
        {"{\"u32\":1,\"flag\":1}", "flag: must be true or false"},
        {"{\"u32\":1,\"text\":\"a\"}", "must have 2 to 7 bytes, not 1"},
        {"{\"u32\":1,\"text\":\"12345678\"}", "must have 2 to 7 bytes, not 8"},
        {"{\"u32\":1,\"text\":\"ab\\n\"}", "control character (0x0a) at byte 2"},
        {"{\"u32\":1,\"text\":7}", "must be a text in quotes"},
        {"{\"u32\":1,\"hex\":\"12G4\"}", "4 lower-case hex digits"},
        {"{\"u32\":1,\"hex\":\"123\"}", "4 lower-case hex digits"},
        {"{\"u32\":1,\"color\":\"bleu\"}", "\"bleu\" is not known here; did you mean \"blue\"?"},
        {"{\"u32\":1,\"color\":\"purple\"}", "valid: red, blue"},
        {"{\"u32\":1,\"color\":2}", "must be a text"},
        {"{\"u32\":1,\"colors\":\"red\"}", "must be a list"},
        {"{\"u32\":1,\"colors\":[\"red\",\"rde\"]}", "colors[1]: \"rde\""},
        {"{\"u32\":1,\"name\":\"fedavg\"}", "did you mean \"FedAvg\"?"},
        {"{\"u32\":1,\"name\":[]}", "must be a text"},
        {"{\"u32\":1,\"pair\":[1]}", "a list of two, not of 1"},
        {"{\"u32\":1,\"pair\":[1,0]}", "pair[1]: 0 is not in [1, 9]"},
        {"{\"u32\":1,\"pair\":\"3\"}", "pair: must be an integer"},
        {"{\"u32\":1,\"list\":3}", "list: must be a list"},
        {"{\"u32\":1,\"list\":[]}", "must have 1 to 3 elements, not 0"},
        {"{\"u32\":1,\"list\":[1,2,3,4]}", "must have 1 to 3 elements, not 4"},
        {"{\"u32\":1,\"list\":[1,\"a\"]}", "list[1]: must be a number"},
        {"{\"u32\":1,\"list\":[1,2],\"same\":[1]}", "has 1 elements, but the list that goes"},
        {"{\"u32\":1,\"list\":[1,2]}", "same: is missing"},
        {"{\"u32\":1,\"same\":[1]}", "same: needs \"list\" too"},
        {"{\"u32\":1,\"points\":[{\"x\":1},{}]}", "points[1].x: is missing"},
        {"{\"u32\":1,\"points\":[1]}", "points[0]: must be an object"},
        {"{\"u32\":1,\"points\":[{\"x\":1,\"lable\":\"a\"}]}",
         "points[0].lable: \"lable\" is not known here; did you mean \"label\"?"},
        {"{\"u32\":1,\n\n\"colour\":1}",
         "t.json:3: colour: \"colour\" is not known here; did you mean "},
        {"{\"u32\":1,\"quite-else\":1}", "valid: flag, u32, u64, id, wait-s"},
        {"{\"u32\":1,\"points\":[{\"x\":1,\"quite-else\":1}]}", "valid: x, label"},
        {"{\"u32\":1,\"wait-s\":0}", "wait-s: 0 is not in [0.001, 1000000]"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect_failure(CASES[i].text, strlen(CASES[i].text), FEDGE_INVALID_ARGUMENT, CASES[i].part);
}

static void defaults_fill_what_is_absent(void **state)
{
    (void)state;
    record r;
    fedge_error err;
    const char *text = "{\"$schema\":{\"any\":[1]},\"you\":7}";
    assert_int_equal(parse(text, strlen(text), &r, &err), FEDGE_OK);
    assert_int_equal(r.u32, 7);
    assert_true(r.flag);
    assert_false(r.has_id);
    assert_int_equal(r.wait_ms, 600000);
    assert_int_equal(r.i32, -3);
    assert_int_equal(r.pair[0], 1);
    assert_int_equal(r.pair[1], 1);
    assert_string_equal(r.text, "");
    assert_string_equal(r.name, "FedAvg");
    assert_int_equal(r.color, 2);
    assert_int_equal(r.colors, 0);
    assert_int_equal(r.num_list, 0);
    assert_int_equal(r.num_points, 0);
}

static void lenient_reading_skips_unknown_keys(void **state)
{
    (void)state;
    fedge_json_options options = OPTIONS;
    options.strict = false;
    const char *text = "{\"u32\":1,\"new\":{\"a\":[1]},\"points\":[{\"x\":3,\"y\":2}]}";
    fedge_json json;
    fedge_error err;
    record r;
    assert_int_equal(fedge_json_open(&json, text, strlen(text), &options, &err), FEDGE_OK);
    assert_int_equal(fedge_json_read(&json, json.root, FIELDS, &r, &err), FEDGE_OK);
    assert_int_equal(r.points[0].x, 3);
    fedge_json_close(&json);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    record r = {.flag = false,
                .has_id = true,
                .u32 = 100,
                .u64 = FEDGE_JSON_MAX_INTEGER,
                .id = 1000000000000000,
                .wait_ms = 1500,
                .i32 = INT32_MIN,
                .f32 = 0.1f,
                .f64 = 0.1 + 0.2,
                .pair = {3, 3},
                .text = "\xc3\xa9\"\\\n",
                .hex = "00af",
                .name = "FedAdam",
                .color = 0,
                .colors = 5,
                .num_list = 3,
                .list = {1.17549435e-38f, 3.40282347e+38f, -0.333333343f},
                .same = {0.05f, 16777216.0f, 1e-45f},
                .num_points = 1,
                .points = {{42, "a\xff"}}};
    static const char EXPECTED[] =
        "{\"flag\":false,\"u32\":100,\"u64\":9007199254740991,\"id\":1000000000000000,"
        "\"wait-s\":1.5,\"i32\":-2147483648,\"f32\":0.1,\"f64\":0.30000000000000004,"
        "\"pair\":[3,3],\"text\":\"\xc3\xa9\\\"\\\\?\",\"hex\":\"00af\",\"name\":\"FedAdam\","
        "\"color\":\"red\",\"colors\":[\"red\",\"blue\"],"
        "\"list\":[1.1754944e-38,3.4028235e+38,-0.33333334],\"same\":[0.05,16777216,1e-45],"
        "\"points\":[{\"x\":42,\"label\":\"a?\"}]}";
    char *text = NULL;
    size_t size = 0;
    fedge_error err = {0};
    assert_int_equal(fedge_json_print(FIELDS, &r, &text, &size, &err), FEDGE_OK);
    assert_string_equal(text, EXPECTED);
    assert_int_equal(size, strlen(EXPECTED));
    record back;
    assert_int_equal(parse(text, size, &back, &err), FEDGE_OK);
    assert_int_equal(back.u64, r.u64);
    assert_int_equal(back.wait_ms, r.wait_ms);
    assert_memory_equal(&back.f32, &r.f32, sizeof(r.f32));
    assert_memory_equal(&back.f64, &r.f64, sizeof(r.f64));
    assert_memory_equal(back.list, r.list, sizeof(r.list));
    assert_memory_equal(back.same, r.same, sizeof(r.same));
    assert_int_equal(back.colors, 5);
    assert_int_equal(back.points[0].x, 42);
    free(text);
}

static void what_json_cannot_say_is_refused(void **state)
{
    (void)state;
    record r = {.u32 = 1, .name = "FedAvg", .pair = {1, 1}};
    char *text = NULL;
    size_t size = 0;
    fedge_error err;
    volatile float zero = 0;
    r.f32 = 1 / zero;
    assert_int_equal(fedge_json_print(FIELDS, &r, &text, &size, &err), FEDGE_NOT_FINITE);
    r.f32 = 0;
    r.u64 = FEDGE_JSON_MAX_INTEGER + 1;
    assert_int_equal(fedge_json_print(FIELDS, &r, &text, &size, &err), FEDGE_OUT_OF_RANGE);
    r.u64 = 0;
    r.color = 1;
    assert_int_equal(fedge_json_print(FIELDS, &r, &text, &size, &err), FEDGE_INVALID_ARGUMENT);
    r.color = 0;
    memcpy(r.hex, "12X4", 5);
    assert_int_equal(fedge_json_print(FIELDS, &r, &text, &size, &err), FEDGE_INVALID_ARGUMENT);
    assert_null(text);
}

static void failures_by_path_find_the_innermost_line(void **state)
{
    (void)state;
    static const char TEXT[] = "{\n\"a\": {\n\"b\": 1}\n}";
    fedge_json json;
    fedge_error err;
    assert_int_equal(fedge_json_open(&json, TEXT, strlen(TEXT), &OPTIONS, &err), FEDGE_OK);
    assert_int_equal(fedge_json_fail_at(&json, "a.b", &err, "no %d", 1), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message, "t.json:3: a.b: no 1");
    (void)fedge_json_fail_at(&json, "a.c", &err, "no");
    assert_string_equal(err.message, "t.json:2: a.c: no");
    (void)fedge_json_fail_at(&json, "x", &err, "no");
    assert_string_equal(err.message, "t.json:1: x: no");
    fedge_json_close(&json);
}

static void the_nearest_name_is_found(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"batch-size", NULL, "local-epochs", "local-steps", "bias"};
    assert_string_equal(fedge_json_nearest("batchsize", NAMES, 5), "batch-size");
    assert_string_equal(fedge_json_nearest("local-step", NAMES, 5), "local-steps");
    assert_string_equal(fedge_json_nearest("bais", NAMES, 5), "bias");
    assert_string_equal(fedge_json_nearest("BIAS", NAMES, 5), "bias");
    assert_null(fedge_json_nearest("optimizer", NAMES, 5));
    assert_null(fedge_json_nearest("", NAMES, 5));
    char big[200];
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_null(fedge_json_nearest(big, NAMES, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_texts_are_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(duplicates_are_refused_at_every_level),
        cmocka_unit_test(wrong_values_name_key_and_line),
        cmocka_unit_test(defaults_fill_what_is_absent),
        cmocka_unit_test(lenient_reading_skips_unknown_keys),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(what_json_cannot_say_is_refused),
        cmocka_unit_test(failures_by_path_find_the_innermost_line),
        cmocka_unit_test(the_nearest_name_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
