/* The formatter for machines without an operating system, against the C library's. */
#include "tests/edge/core/cmocka_all.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

/* Beside the functions of this system's os_posix_machine.c. */
#define fedge_os_format none_format
#define fedge_os_vformat none_vformat
#define fedge_os_cpu_features none_cpu_features
#include "edge/core/os_none.c"

#define SAME(...)                                                                                  \
    do {                                                                                           \
        char expected[128], text[128];                                                             \
        const int length = snprintf(expected, sizeof(expected), __VA_ARGS__);                      \
        assert_int_equal(none_format(text, sizeof(text), __VA_ARGS__), length);                    \
        assert_string_equal(text, expected);                                                       \
    } while (0)

static void test_integers(void **state)
{
    (void)state;
    SAME("nothing to convert, 100%%");
    SAME("%d %d %d %d", 0, -1, INT_MAX, INT_MIN);
    SAME("%u %x %04x %08lx", UINT_MAX, 0xbeefu, 10u, 0x1234ul);
    SAME("%lu %llu %zu %ld", ULONG_MAX, ULLONG_MAX, SIZE_MAX, LONG_MIN);
    SAME("%5u|%05d|%2u", 42u, 42, 12345u);
}

static void test_texts(void **state)
{
    (void)state;
    SAME("%s|%s|%c", "layer", "", 'x');
    SAME("%.3s|%.40s|%8s", "abcdef", "short", "right");
    const char unterminated[3] = {'a', 'b', 'c'};
    SAME("%.3s", unterminated);
}

static void check_real(double value, const char *expected)
{
    char text[32];
    assert_int_equal(none_format(text, sizeof(text), "%g", value), strlen(expected));
    assert_string_equal(text, expected);
}

static void test_reals(void **state)
{
    (void)state;
    check_real(0.0, "0.00000e+00");
    check_real(1.0, "1.00000e+00");
    check_real(-0.00125, "-1.25000e-03");
    check_real(123456.0, "1.23456e+05");
    check_real(9.999999, "1.00000e+01");
    check_real((double)NAN, "nan");
    check_real((double)INFINITY, "inf");
    check_real(-(double)INFINITY, "-inf");
    char text[32];
    assert_int_equal(none_format(text, sizeof(text), "%g", DBL_MAX), strlen("1.79769e+308"));
    assert_int_equal(none_format(text, sizeof(text), "%g", DBL_TRUE_MIN), strlen("4.94066e-324"));
}

static void test_cuts(void **state)
{
    (void)state;
    char text[8] = "untouch";
    assert_int_equal(none_format(text, 4, "%s", "abcdef"), 6);
    assert_string_equal(text, "abc");
    assert_string_equal(text + 4, "uch");
    assert_int_equal(none_format(text, 1, "%d", 12), 2);
    assert_string_equal(text, "");
    assert_int_equal(none_format(NULL, 0, "%u", 123u), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
