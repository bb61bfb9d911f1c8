/* safetensors files as data: which tensor is which, types, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "edge/core/bytes.h"
#include "tests/edge/data/data_files.h"

#define DATA "test_tensor_data.safetensors"
#define OTHER "test_tensor_data.other"

static bytes file;

/* A file of this header and these bytes. */
static void save(const char *path, const char *json, const void *data, size_t size)
{
    uint8_t prefix[8];
    fedge_put_u64(prefix, strlen(json));
    file.size = 0;
    add_bytes(&file, prefix, sizeof(prefix));
    add_text(&file, json);
    add_bytes(&file, data, size);
    save_file(path, &file, 0);
}

/* Two examples, of 1 2 and 3 4, with labels 5 and 6. */
static void expect_examples(fedge_dtype dtype, const char *labels)
{
    const fedge_data_spec spec = toy_spec(dtype, 1, 2, 0, 0);
    float x[2];
    assert_int_equal(load_and_read(&spec, DATA, labels, 2, 0, x), 5);
    assert_true(x[0] == 1 && x[1] == 2);
    assert_int_equal(load_and_read(&spec, DATA, labels, 2, 1, x), 6);
    assert_true(x[0] == 3 && x[1] == 4);
}

#define VALUES(dtype, end)                                                                         \
    "\"values\":{\"dtype\":\"" dtype "\",\"shape\":[2,2],\"data_offsets\":[0," end "]}"
#define LABELS(dtype, from, to)                                                                    \
    "\"labels\":{\"dtype\":\"" dtype "\",\"shape\":[2],\"data_offsets\":[" from "," to "]}"

static void test_reads_every_type(void **state)
{
    (void)state;
    save(DATA, "{" VALUES("U8", "4") "," LABELS("U8", "4", "6") "}", "\1\2\3\4\5\6", 6);
    expect_examples(FEDGE_U8, "");
    save_gz(DATA, &file, 0);
    expect_examples(FEDGE_U8, "");
    static const struct {
        const char *json;
        uint8_t data[64];
        size_t size;
    } CASES[] = {
        {"{" VALUES("F16", "8") "," LABELS("I32", "8", "16") "}",
         {0, 0x3C, 0, 0x40, 0, 0x42, 0, 0x44, 5, 0, 0, 0, 6},
         16},
        {"{" VALUES("BF16", "8") "," LABELS("U8", "8", "10") "}",
         {0x80, 0x3F, 0, 0x40, 0x40, 0x40, 0x80, 0x40, 5, 6},
         10},
        {"{" VALUES("F32", "16") "," LABELS("I64", "16", "32") "}",
         {0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40, 5, [24] = 6},
         32},
        {"{" VALUES("F64", "32") "," LABELS("U8", "32", "34") "}",
         {[6] = 0xF0, 0x3F, [15] = 0x40, [22] = 0x08, 0x40, [30] = 0x10, 0x40, 5, 6},
         34},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        save(DATA, CASES[i].json, CASES[i].data, CASES[i].size);
        expect_examples(FEDGE_F32, "");
    }
}

static void test_finds_the_tensors(void **state)
{
    (void)state;
    /* labels first, others between, names that say nothing */
    save(DATA,
         "{\"__metadata__\":{\"a\":\"b\"}," LABELS(
             "U8", "0",
             "2") ",\"ids\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
                  "\"values\":{\"dtype\":\"U8\",\"shape\":[2,1,2],\"data_offsets\":[3,7]}}",
         "\5\6\377\1\2\3\4", 7);
    expect_examples(FEDGE_U8, "");
    save(DATA,
         "{\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"x\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[2,6]}}",
         "\5\6\1\2\3\4", 6);
    expect_examples(FEDGE_U8, "");
    save(DATA, "{\"x\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", "\1\2\3\4", 4);
    save(OTHER, "{\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "\5\6", 2);
    expect_examples(FEDGE_U8, OTHER);
}

static void test_refusals(void **state)
{
    (void)state;
    const fedge_data_spec spec = toy_spec(FEDGE_U8, 1, 2, 0, 0);
    save(DATA, "{" VALUES("U8", "4") "}", "\1\2\3\4", 4);
    expect_refused(&spec, DATA, "", FEDGE_MISMATCH,
                   DATA ": which of its 1 tensors has the labels? Name it \"labels\"");
    save(DATA,
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
         "\1\2\3\4", 4);
    expect_refused(&spec, DATA, "", FEDGE_MISMATCH, "which of its 2 tensors has the labels?");
    save(DATA, "{" VALUES("U8", "4") "," LABELS("U8", "4", "6") "}", "\1\2\3\4\5", 5);
    expect_refused(&spec, DATA, "", FEDGE_TRUNCATED, DATA ": safetensors: tensor \"labels\" ends");
    save(DATA, "{" VALUES("U8", "4") "," LABELS("U8", "4", "6") "}", "\1\2\3\4\5\12", 6);
    expect_refused(&spec, DATA, "", FEDGE_OUT_OF_RANGE, "the label of example 1 is 10");
    save(DATA, "{" VALUES("I8", "4") "," LABELS("U8", "4", "6") "}", "\1\2\3\4\5\6", 6);
    expect_refused(&spec, DATA, "", FEDGE_MISMATCH,
                   "values of type I8, but the job has data of U8");
    save(DATA, "{" VALUES("U8", "4") "," LABELS("I8", "4", "6") "}", "\1\2\3\4\5\6", 6);
    expect_refused(&spec, DATA, "", FEDGE_MISMATCH, "labels of type I8; integers are needed");
    const fedge_data_spec floats = toy_spec(FEDGE_F32, 1, 2, 0, 0);
    save(DATA, "{" VALUES("F16", "8") "," LABELS("U8", "8", "10") "}", "\0\1\0\1\0\174\0\1\5\6",
         10);
    expect_refused(&floats, DATA, "", FEDGE_NOT_FINITE, "value 0 of example 1 is not a finite");
    save(DATA, "{" VALUES("U8", "4") "," LABELS("U8", "4", "6") "}", "\1\2\3\4\5\6", 6);
    save_file(DATA, &file, 20);
    expect_refused(&spec, DATA, "", FEDGE_TRUNCATED, DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_type),
        cmocka_unit_test(test_finds_the_tensors),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
