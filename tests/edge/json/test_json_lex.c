/* The lexer of JSON: texts in memory and the same texts in pieces give the same tokens and
 * problems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "edge/json/json_lex.h"

/* A text that is given out in pieces of [step] bytes. */
typedef struct source {
    const char *text;
    size_t size, given, step;
    bool breaks; /* instead of ending */
} source;

static bool next_piece(fedge_json_lexer *lexer, void *user)
{
    source *from = user;
    const size_t left = from->size - from->given;
    lexer->text = (const unsigned char *)from->text + from->given;
    lexer->size = left < from->step ? left : from->step;
    from->given += lexer->size;
    return left > 0 || !from->breaks;
}

/* [step] 0: the text lies in memory. */
static fedge_json_lexer lexer_of(source *from, const char *text, size_t step)
{
    *from = (source){.text = text, .size = strlen(text), .step = step};
    if (step == 0) {
        return (fedge_json_lexer){
            .text = (const unsigned char *)text, .size = from->size, .line = 1};
    }
    return (fedge_json_lexer){.line = 1, .more = next_piece, .user = from};
}

static size_t place(const fedge_json_lexer *lexer)
{
    return (size_t)lexer->before + lexer->at;
}

#define MAX_STEP 9

static void test_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t codes[5]; /* up to the END or BAD */
        const char *problem;
        size_t at; /* of the problem, in memory */
    } CASES[] = {
        {"\"\" ", {FEDGE_LEX_END}, NULL, 0},
        {"\"a\\n/\"", {'a', '\n', '/', FEDGE_LEX_END}, NULL, 0},
        {"\"\\\"\\\\\\/\\b\"", {'"', '\\', '/', '\b', FEDGE_LEX_END}, NULL, 0},
        {"\"\\f\\r\\t\"", {'\f', '\r', '\t', FEDGE_LEX_END}, NULL, 0},
        {"\"\\u0041\\u00e9\\u20AC\"", {'A', 0xe9, 0x20ac, FEDGE_LEX_END}, NULL, 0},
        {"\"\303\251\342\202\254\360\237\230\200\"",
         {0xe9, 0x20ac, 0x1f600, FEDGE_LEX_END},
         NULL,
         0},
        {"\"\\ud83d\\ude00\"", {0x1f600, FEDGE_LEX_END}, NULL, 0},
        {"\"\\uDBFF\\uDFFF\"", {0x10ffff, FEDGE_LEX_END}, NULL, 0},
        {"\"\\ud800\\udc00\"", {0x10000, FEDGE_LEX_END}, NULL, 0},
        {"\"a", {'a', FEDGE_LEX_BAD}, "a string that does not end", 2},
        {"\"a\n\"", {'a', FEDGE_LEX_BAD}, "a control character in a string", 2},
        {"\"\\x\"", {FEDGE_LEX_BAD}, "an escape that JSON does not have", 2},
        {"\"\\", {FEDGE_LEX_BAD}, "an escape that JSON does not have", 2},
        {"\"\\u12g4\"", {FEDGE_LEX_BAD}, "\\u without four hex digits", 5},
        {"\"\\u12", {FEDGE_LEX_BAD}, "\\u without four hex digits", 5},
        {"\"\\u0000\"", {FEDGE_LEX_BAD}, "the character U+0000, which is not allowed", 7},
        {"\"\\ud83d\"", {FEDGE_LEX_BAD}, "half of a surrogate pair", 7},
        {"\"\\ud83d\\n\"", {FEDGE_LEX_BAD}, "half of a surrogate pair", 8},
        {"\"\\ud83d\\u0041\"", {FEDGE_LEX_BAD}, "half of a surrogate pair", 13},
        {"\"\\ud83d\\ue000\"", {FEDGE_LEX_BAD}, "half of a surrogate pair", 13},
        {"\"\\ude00\\ude00\"", {FEDGE_LEX_BAD}, "half of a surrogate pair", 7},
        {"\"a\200\"", {'a', FEDGE_LEX_BAD}, "bytes that are not UTF-8", 2},
        {"\"\303\"", {FEDGE_LEX_BAD}, "bytes that are not UTF-8", 1},
        {"\"\300\200\"", {FEDGE_LEX_BAD}, "bytes that are not UTF-8", 1},
        {"\"\355\240\200\"", {FEDGE_LEX_BAD}, "bytes that are not UTF-8", 1},
        {"\"\342\202", {FEDGE_LEX_BAD}, "bytes that are not UTF-8", 1},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (size_t step = 0; step <= MAX_STEP; step++) {
            source from;
            fedge_json_lexer lexer = lexer_of(&from, CASES[i].text, step);
            assert_true(fedge_json_lex_take(&lexer, '"'));
            int32_t c = 0;
            for (int k = 0; c >= 0; k++) {
                c = fedge_json_lex_character(&lexer);
                assert_int_equal(c, CASES[i].codes[k]);
            }
            if (CASES[i].problem)
                assert_string_equal(lexer.problem, CASES[i].problem);
            if (CASES[i].problem && step == 0)
                assert_int_equal(place(&lexer), CASES[i].at);
            assert_false(lexer.limit || lexer.broken);
        }
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *number, *problem;
        size_t at; /* behind the number, or of the problem */
    } CASES[] = {
        {"0]", "0", NULL, 1},
        {"-0.5e+10,", "-0.5e+10", NULL, 8},
        {"12E-3", "12E-3", NULL, 5},
        {"120", "120", NULL, 3},
        {"0x3", "0", NULL, 1},
        {"01", NULL, "a number that begins with 0", 2},
        {"-", NULL, "a number lacks digits", 1},
        {"1.", NULL, "a number lacks digits", 2},
        {"1.e5", NULL, "a number lacks digits", 2},
        {"1e", NULL, "a number lacks digits", 2},
        {"1e+x", NULL, "a number lacks digits", 3},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (size_t step = 0; step <= MAX_STEP; step++) {
            char text[FEDGE_JSON_MAX_NUMBER + 1];
            source from;
            fedge_json_lexer lexer = lexer_of(&from, CASES[i].text, step);
            assert_int_equal(fedge_json_lex_number(&lexer, text), CASES[i].number != NULL);
            if (CASES[i].number)
                assert_string_equal(text, CASES[i].number);
            else
                assert_string_equal(lexer.problem, CASES[i].problem);
            assert_int_equal(place(&lexer), CASES[i].at);
            assert_false(lexer.limit);
        }
    }
}

static void test_length_of_numbers(void **state)
{
    (void)state;
    for (size_t length = FEDGE_JSON_MAX_NUMBER - 1; length < FEDGE_JSON_MAX_NUMBER + 3; length++) {
        for (size_t step = 0; step <= MAX_STEP; step++) {
            char number[FEDGE_JSON_MAX_NUMBER + 8], text[FEDGE_JSON_MAX_NUMBER + 1];
            memset(number, '7', length);
            number[length] = '\0';
            source from;
            fedge_json_lexer lexer = lexer_of(&from, number, step);
            const bool fits = length <= FEDGE_JSON_MAX_NUMBER;
            assert_int_equal(fedge_json_lex_number(&lexer, text), fits);
            assert_int_equal(lexer.limit, !fits);
            if (fits)
                assert_string_equal(text, number);
            else
                assert_string_equal(lexer.problem, "a number of too many digits");
        }
    }
}

/* Whole values, as _skip goes over them. */
static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
        size_t at;
        uint32_t line;
    } CASES[] = {
        {" {\"a\": [1, true, \"x\", {}],\n \"b\": null} ,", NULL, 38, 2},
        {"[[], [false]]x", NULL, 13, 1},
        {"[1,\n\n 2,]", "a comma too many", 8, 3},
        {"[1, ,2]", "a comma too many", 4, 1},
        {"{\"a\": 1,}", "a comma too many", 8, 1},
        {"[1 # one\n]", "JSON has no comments", 3, 1},
        {"// one\n[1]", "JSON has no comments", 0, 1},
        {"[\"a\",nul]", "not a JSON value", 5, 1},
        {"[truE]", "not a JSON value", 1, 1},
        {"[,1]", "not a JSON value", 1, 1},
        {"{\"a\" 1}", "a key without a colon behind it", 5, 1},
        {"{1: 1}", "no string in quotes", 1, 1},
        {"[1}", "no ',' or ']' after a value", 2, 1},
        {"{\"a\": 1]", "no ',' or '}' after a value", 7, 1},
        {"[[[[1]]]]", "arrays and objects nested too deep", 4, 1},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (size_t step = 0; step <= MAX_STEP; step++) {
            source from;
            fedge_json_lexer lexer = lexer_of(&from, CASES[i].text, step);
            assert_int_equal(fedge_json_skip(&lexer, 3), !CASES[i].problem);
            if (CASES[i].problem)
                assert_string_equal(lexer.problem, CASES[i].problem);
            if (step == 0 || !CASES[i].problem)
                assert_int_equal(place(&lexer), CASES[i].at);
            assert_int_equal(lexer.line, CASES[i].line);
            assert_int_equal(lexer.limit, strcmp(CASES[i].text, "[[[[1]]]]") == 0);
        }
    }
}

/* A piece that cannot be read is told apart from the end, and asked for once. */
static void test_broken_pieces(void **state)
{
    (void)state;
    source from;
    fedge_json_lexer lexer = lexer_of(&from, "[1, 2", 2);
    from.breaks = true;
    assert_false(fedge_json_skip(&lexer, 3));
    assert_true(lexer.broken);
    from.step = from.size;
    from.given = 0;
    assert_int_equal(fedge_json_lex_peek(&lexer), FEDGE_LEX_END);
    assert_int_equal(from.given, 0);

    lexer = lexer_of(&from, "[1, 2", 2);
    assert_false(fedge_json_skip(&lexer, 3));
    assert_false(lexer.broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_length_of_numbers), cmocka_unit_test(test_values),
        cmocka_unit_test(test_broken_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
