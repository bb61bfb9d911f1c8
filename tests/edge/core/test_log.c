#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/log.h"

/* The last line that was written, and how many there were. */
typedef struct sink {
    char line[FEDGE_LOG_MAX_LINE + 1];
    size_t size;
    int count;
} sink;

static void take(void *user, const char *line, size_t size)
{
    sink *to = user;
    assert_true(size <= FEDGE_LOG_MAX_LINE);
    memcpy(to->line, line, size);
    to->line[size] = '\0';
    to->size = size;
    to->count++;
}

static fedge_log to_sink(sink *to, bool json)
{
    return (fedge_log){.level = FEDGE_LOG_INFO, .json = json, .write = take, .user = to};
}

static void test_text(void **state)
{
    (void)state;
    sink out = {.count = 0};
    fedge_log log = to_sink(&out, false);
    FEDGE_LOG(&log, FEDGE_LOG_WARN, "round-closed", fedge_log_int("round", -3),
              fedge_log_str("plain", "a-b"), fedge_log_str("text", "two words \"x\"\n"),
              fedge_log_str("none", NULL), fedge_log_num("loss", 0.25));
    assert_non_null(strstr(out.line, "Z warn round-closed round=-3 plain=a-b "
                                     "text=\"two words \\\"x\\\"\\u000a\" none=\"\" loss=0.25\n"));
    assert_ptr_equal(strchr(out.line, '\n'), out.line + out.size - 1);
}

static void test_json(void **state)
{
    (void)state;
    sink out = {.count = 0};
    fedge_log log = to_sink(&out, true);
    FEDGE_LOG(&log, FEDGE_LOG_INFO, "x", fedge_log_str("s", "a\\b\x7f"), fedge_log_num("n", NAN),
              fedge_log_int("i", INT64_MAX));
    assert_memory_equal(out.line, "{\"time\":\"", 9);
    assert_non_null(strstr(out.line,
                           "Z\",\"level\":\"info\",\"event\":\"x\",\"s\":\"a\\\\b\\u007f\","
                           "\"n\":null,\"i\":9223372036854775807}\n"));
}

static void test_what_steers_the_reader(void **state)
{
    (void)state;
    sink out = {.count = 0};
    fedge_log log = to_sink(&out, true);
    /* Directions, separators of lines, controls: a space each, so that what is left and right of
     * one makes no other. Their neighbours: kept. */
    FEDGE_LOG(&log, FEDGE_LOG_INFO, "x",
              fedge_log_str("s", "a\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\u061c\u202a"),
              fedge_log_str("c1", "\xc2\x80\xc2\x85"
                                  "b\xc2\x9f"),
              fedge_log_str("near", "\u200d\u2010\u2027\u202f\u2065\u206a\u061b\u061d\u00a0\u00e4"),
              fedge_log_str("split", "\xe2\u202e\x80\xae"), fedge_log_str("cut", "\xe2\x80"));
    assert_non_null(strstr(out.line, "\"s\":\"a          \",\"c1\":\"  b \","
                                     "\"near\":\"\u200d\u2010\u2027\u202f\u2065\u206a\u061b\u061d"
                                     "\u00a0\u00e4\",\"split\":\"\xe2 \x80\xae\","
                                     "\"cut\":\"\xe2\x80\"}"));
    log.json = false;
    FEDGE_LOG(&log, FEDGE_LOG_INFO, "x", fedge_log_str("s", "a\u202e"), fedge_log_str("t", "b"));
    assert_non_null(strstr(out.line, " s=\"a \" t=b\n"));
}

static void test_plain_text(void **state)
{
    (void)state;
    char text[] = "a\u202eb\xc2\x9b"
                  "2J\x1b[31m\nc\x7f\u200d\u00e4\u2069"
                  "\xe2\u202e\x80\xae\xe2\x80";
    const char *plain = "a b 2J [31m c \u200d\u00e4 \xe2 \x80\xae\xe2\x80";
    fedge_text_plain(text);
    assert_string_equal(text, plain);
    fedge_text_plain(text);
    assert_string_equal(text, plain);
}

static void test_levels(void **state)
{
    (void)state;
    sink out = {.count = 0};
    fedge_log log = to_sink(&out, false);
    fedge_log_level level = FEDGE_LOG_ERROR;
    fedge_error err;
    FEDGE_LOG(&log, FEDGE_LOG_DEBUG, "quiet", fedge_log_int("i", 1));
    FEDGE_LOG(NULL, FEDGE_LOG_ERROR, "nowhere", fedge_log_int("i", 1));
    assert_int_equal(out.count, 0);
    assert_int_equal(fedge_log_level_from_name("debug", &level, &err), FEDGE_OK);
    assert_int_equal(level, FEDGE_LOG_DEBUG);
    assert_int_equal(fedge_log_level_from_name("loud", &level, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "loud"));
}

/* A value that is too long is cut in text and left out whole in JSON, which stays an object. */
static void test_bound(void **state)
{
    (void)state;
    char big[2 * FEDGE_LOG_MAX_LINE];
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    for (int json = 0; json < 2; json++) {
        for (size_t skip = sizeof(big) - FEDGE_LOG_MAX_LINE; skip < sizeof(big); skip += 7) {
            sink out = {.count = 0};
            fedge_log log = to_sink(&out, json);
            FEDGE_LOG(&log, FEDGE_LOG_INFO, "big", fedge_log_int("before", 1),
                      fedge_log_str("big", big + skip));
            assert_int_equal(out.line[out.size - 1], '\n');
            assert_non_null(strstr(out.line, "before"));
            if (json) {
                assert_memory_equal(out.line + out.size - 2, "}\n", 2);
                assert_true(out.line[out.size - 3] == '"' || out.line[out.size - 3] == '1');
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_what_steers_the_reader),
        cmocka_unit_test(test_plain_text),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
