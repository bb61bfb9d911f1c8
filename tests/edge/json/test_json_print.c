/* Trees are printed as cJSON prints them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/json/json.h"

static void expect_as_cjson(const cJSON *root)
{
    char *text = fedge_json_print_tree(root), *expected = cJSON_PrintUnformatted(root);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    cJSON_free(expected);
}

static void test_kinds(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"{}",
                                        "[]",
                                        "null",
                                        "true",
                                        "false",
                                        "\"\"",
                                        "17",
                                        "-3.25",
                                        "[[],{},[1,[2,{\"a\":[]}]]]",
                                        "{\"a\":1,\"b\":[true,false,null],\"\":{\"\":\"\"}}"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(*TEXTS); i++) {
        cJSON *root = cJSON_Parse(TEXTS[i]);
        expect_as_cjson(root);
        char *text = fedge_json_print_tree(root);
        assert_string_equal(text, TEXTS[i]);
        free(text);
        cJSON_Delete(root);
    }
    cJSON *raw = cJSON_CreateRaw("[1, 2.50]");
    expect_as_cjson(raw);
    cJSON_Delete(raw);
}

static void test_strings(void **state)
{
    (void)state;
    char all[256];
    for (int c = 1; c < 256; c++)
        all[c - 1] = (char)c;
    all[255] = '\0';
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, all, all);
    cJSON_AddStringToObject(object, "U+20AC", "\342\202\254");
    expect_as_cjson(object);
    cJSON_Delete(object);
}

static void expect_number(double number)
{
    cJSON *item = cJSON_CreateNumber(number);
    expect_as_cjson(item);
    cJSON_Delete(item);
}

static void test_numbers(void **state)
{
    (void)state;
    static const double NUMBERS[] = {0,
                                     1,
                                     -1,
                                     0.1,
                                     1.0 / 3,
                                     2147483647,
                                     2147483648,
                                     -2147483648.0,
                                     -2147483649.0,
                                     9007199254740991,
                                     9007199254740994,
                                     1e15,
                                     1e16,
                                     1e17,
                                     123456789012345680,
                                     1e300,
                                     5e-324,
                                     DBL_MAX,
                                     DBL_MIN,
                                     DBL_EPSILON,
                                     1 + DBL_EPSILON,
                                     1 + 2 * DBL_EPSILON,
                                     0.30000000000000004,
                                     NAN,
                                     INFINITY,
                                     -INFINITY};
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(*NUMBERS); i++)
        expect_number(NUMBERS[i]);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = fedge_rng_u64(&rng);
        double number;
        memcpy(&number, &bits, sizeof(number));
        expect_number(number);
        expect_number(ldexp((double)(bits >> 20), -22));
    }
}

typedef struct pair {
    double wide;
    float narrow;
} pair;

static const fedge_json_field PAIR[] = {
    {.key = "wide",
     .kind = FEDGE_JSON_F64,
     FEDGE_JSON_AT(pair, wide),
     .flags = FEDGE_JSON_REQUIRED},
    {.key = "narrow",
     .kind = FEDGE_JSON_F32,
     FEDGE_JSON_AT(pair, narrow),
     .flags = FEDGE_JSON_REQUIRED},
    FEDGE_JSON_END,
};

/* The first of "%.1g", "%.2g", … that reads back. */
static void shortest(double value, bool single, char text[40])
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, 40, "%.*g", digits, value);
        const double back = strtod(text, NULL);
        if (single ? (float)back == (float)value : back == value)
            return;
    }
}

static void expect_fields(double wide, float narrow)
{
    const pair record = {wide, narrow};
    char texts[2][40], expected[128], *text = NULL;
    size_t size = 0;
    fedge_error err;
    if (!isfinite(wide) || !isfinite(narrow))
        return;
    shortest(wide, false, texts[0]);
    shortest((double)narrow, true, texts[1]);
    (void)snprintf(expected, sizeof(expected), "{\"wide\":%s,\"narrow\":%s}", texts[0], texts[1]);
    assert_int_equal(fedge_json_print(PAIR, &record, &text, &size, &err), FEDGE_OK);
    assert_string_equal(text, expected);
    free(text);
}

/* Numbers of structs have as few digits as read back. */
static void test_fields(void **state)
{
    (void)state;
    static const double NUMBERS[] = {
        0,       -0.0,   1,         1e5,     123456789, 0.1,
        5e-324,  1e-310, DBL_MIN,   DBL_MAX, 1e22,      9007199254740994,
        FLT_MIN, 1e-40,  1.0 / 3.0, 2.5e-7,  100,       16777216};
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(*NUMBERS); i++)
        expect_fields(NUMBERS[i], fabs(NUMBERS[i]) < FLT_MAX ? (float)NUMBERS[i] : FLT_MAX);
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = fedge_rng_u64(&rng);
        const uint32_t half = fedge_rng_u32(&rng);
        const double decimal = (double)(half % 100000) / 1000;
        double wide;
        float narrow;
        memcpy(&wide, &bits, sizeof(wide));
        memcpy(&narrow, &half, sizeof(narrow));
        expect_fields(wide, narrow);
        expect_fields(decimal, (float)decimal);
    }
    for (int exponent = -1074; exponent < 1024; exponent++)
        expect_fields(ldexp(1, exponent), ldexpf(1, exponent / 8));
}

/* Longer than the first room. */
static void test_long_trees(void **state)
{
    (void)state;
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; i < 3000; i++) {
        cJSON_AddItemToArray(array,
                             i % 3 ? cJSON_CreateNumber(i * 0.7) : cJSON_CreateString("x\n"));
    }
    expect_as_cjson(array);
    cJSON_Delete(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_fields),
        cmocka_unit_test(test_long_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
