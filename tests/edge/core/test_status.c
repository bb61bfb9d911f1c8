#include "tests/edge/core/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "edge/core/status.h"

static void every_status_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < FEDGE_STATUS_COUNT; i++)
        assert_true(strlen(fedge_status_text((fedge_status)i)) > 1);
    assert_string_equal(fedge_status_text(FEDGE_OK), "ok");
    assert_string_equal(fedge_status_text(FEDGE_NO_SPACE), "no space left");
    assert_string_equal(fedge_status_text(FEDGE_STATUS_COUNT), "unknown status");
    assert_string_equal(fedge_status_text((fedge_status)-1), "unknown status");
}

static void fail_formats_and_returns(void **state)
{
    (void)state;
    fedge_error err;
    assert_int_equal(fedge_fail(&err, FEDGE_CORRUPT, "byte %d of %s", 7, "x.bin"), FEDGE_CORRUPT);
    assert_int_equal(err.status, FEDGE_CORRUPT);
    assert_string_equal(err.message, "byte 7 of x.bin");
    assert_int_equal(fedge_fail(NULL, FEDGE_BUSY, "%s", "unseen"), FEDGE_BUSY);
}

static void long_messages_are_cut_between_characters(void **state)
{
    (void)state;
    fedge_error err;
    char text[2 * FEDGE_ERROR_MESSAGE_SIZE];
    for (size_t start = 0; start < 4; start++) { /* every place of the cut in a 3-byte character */
        memset(text, 'a', start);
        for (size_t i = start; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 4);
        assert_int_equal(fedge_fail(&err, FEDGE_IO, "%s", text), FEDGE_IO);
        size_t length = strlen(err.message);
        assert_in_range(length, FEDGE_ERROR_MESSAGE_SIZE - 3, FEDGE_ERROR_MESSAGE_SIZE - 1);
        assert_int_equal((length - start) % 3, 0);
        assert_memory_equal(err.message, text, length);
    }
}

/* What is quoted may come from anywhere. */
static void control_characters_are_not_passed_on(void **state)
{
    (void)state;
    fedge_error err;
    assert_int_equal(fedge_fail(&err, FEDGE_IO, "\"%s\" of %s", "\033[31m\n\x7F", "\xC2\x9B 31m é"),
                     FEDGE_IO);
    assert_string_equal(err.message, "\"?[31m??\" of ?? 31m é");
    assert_int_equal(fedge_error_prefix(&err, FEDGE_IO, "a\tb\xC2"), FEDGE_IO);
    assert_string_equal(err.message, "a?b\xC2: \"?[31m??\" of ?? 31m é");
    /* Directions and separators of lines; what is beside them in Unicode stays. */
    assert_int_equal(fedge_fail(&err, FEDGE_IO, "%s|%s",
                                "a\u200e\u200f\u2028\u202e\u2066\u2069\u061cb\xE2\x80",
                                "\u200d\u2027\u202f\u2065\u206a\u061b\u061d\u00a0"),
                     FEDGE_IO);
    assert_string_equal(err.message, "a????????????????????b\xE2\x80|"
                                     "\u200d\u2027\u202f\u2065\u206a\u061b\u061d\u00a0");
}

static void errno_values_are_mapped(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        fedge_status status;
    } cases[] = {
        {ENOSPC, FEDGE_NO_SPACE},  {EDQUOT, FEDGE_NO_SPACE},  {ENOENT, FEDGE_NOT_FOUND},
        {EACCES, FEDGE_DENIED},    {EPERM, FEDGE_DENIED},     {EEXIST, FEDGE_EXISTS},
        {EAGAIN, FEDGE_NO_MEMORY}, {ENOMEM, FEDGE_NO_MEMORY}, {ENFILE, FEDGE_NO_MEMORY},
        {EIO, FEDGE_IO},           {EBADF, FEDGE_IO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_error err;
        assert_int_equal(fedge_fail_errno(&err, cases[i].errnum, "file %s", "f"), cases[i].status);
        assert_int_equal(err.status, cases[i].status);
        assert_int_equal(strncmp(err.message, "file f: ", 8), 0);
        assert_string_equal(err.message + 8, strerror(cases[i].errnum));
        assert_int_equal(fedge_fail_errno(NULL, cases[i].errnum, "x"), cases[i].status);
    }
    fedge_error err;
    assert_int_equal(fedge_fail_errno(&err, EMFILE, "cannot open f"), FEDGE_NO_MEMORY);
    assert_non_null(strstr(err.message, strerror(EMFILE)));
    assert_non_null(strstr(err.message, "LimitNOFILE="));
}

static void prefix_puts_context_before(void **state)
{
    (void)state;
    fedge_error err;
    assert_int_equal(fedge_fail(&err, FEDGE_TRUNCATED, "ends at byte 3"), FEDGE_TRUNCATED);
    assert_int_equal(fedge_error_prefix(&err, FEDGE_TRUNCATED, "line %d", 9), FEDGE_TRUNCATED);
    assert_string_equal(err.message, "line 9: ends at byte 3");
    assert_int_equal(fedge_error_prefix(&err, FEDGE_TRUNCATED, "<%s>", err.message),
                     FEDGE_TRUNCATED);
    assert_string_equal(err.message, "<line 9: ends at byte 3>: line 9: ends at byte 3");
    for (int i = 0; i < 100; i++)
        assert_int_equal(fedge_error_prefix(&err, FEDGE_IO, "again and again"), FEDGE_IO);
    assert_int_equal(strlen(err.message), FEDGE_ERROR_MESSAGE_SIZE - 1);
    assert_int_equal(fedge_error_prefix(NULL, FEDGE_IO, "x"), FEDGE_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text),
        cmocka_unit_test(fail_formats_and_returns),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(control_characters_are_not_passed_on),
        cmocka_unit_test(errno_values_are_mapped),
        cmocka_unit_test(prefix_puts_context_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
