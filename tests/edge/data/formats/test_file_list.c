/* Lists of files from paths, folders and patterns, and their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/data/formats/file_list.h"
#include "tests/edge/data/data_files.h"

#define DIR "test_file_list.d/"

static void touch(const char *name)
{
    char path[128];
    fedge_error err;
    (void)snprintf(path, sizeof(path), DIR "%s", name);
    assert_int_equal(fedge_os_write_file(path, "x", 1, 0600, &err), FEDGE_OK);
}

static int set_up(void **state)
{
    (void)state;
    fedge_error err;
    static const char *const NAMES[] = {"part-10.bin", "part-2.bin",  "part-02.bin", "part-1.bin",
                                        "test.bin",    ".hidden.bin", "part-2.txt",  "a*b"};
    assert_int_equal(fedge_os_remove_tree(DIR, &err), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(DIR "part-3.bin", &err), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(DIR "empty", &err), FEDGE_OK);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        touch(NAMES[i]);
    return 0;
}

/* [expected]: the paths, each with a space behind it. */
static void expect(const char *lines, const char *expected)
{
    fedge_file_list list;
    fedge_error err = {0};
    char text[1024] = "";
    if (fedge_file_list_open(&list, lines, &err))
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < list.count; i++) {
        (void)strcat(text, list.paths[i]);
        (void)strcat(text, " ");
    }
    assert_string_equal(text, expected);
    fedge_file_list_close(&list);
    assert_int_equal(list.count, 0);
}

static void expect_refusal(const char *lines, fedge_status status, const char *part)
{
    fedge_file_list list;
    fedge_error err = {0};
    const fedge_status got = fedge_file_list_open(&list, lines, &err);
    expect_failure(got, &err, status, part);
    assert_int_equal(list.count, 0);
}

static void lines_are_in_their_order(void **state)
{
    (void)state;
    expect("", "");
    expect(DIR "test.bin", DIR "test.bin ");
    expect(DIR "test.bin\n" DIR "part-1.bin\n" DIR "test.bin",
           DIR "test.bin " DIR "part-1.bin " DIR "test.bin ");
}

static void folders_and_patterns_are_in_the_order_of_numbers(void **state)
{
    (void)state;
    expect(DIR "part-*.bin",
           DIR "part-1.bin " DIR "part-02.bin " DIR "part-2.bin " DIR "part-10.bin ");
    expect(DIR "*2*", DIR "part-02.bin " DIR "part-2.bin " DIR "part-2.txt ");
    expect(DIR "*.t*t\n" DIR "t*", DIR "part-2.txt " DIR "test.bin ");
    expect(DIR ".*", DIR ".hidden.bin ");
    const char *all = DIR "a*b " DIR "part-1.bin " DIR "part-02.bin " DIR "part-2.bin " DIR
                          "part-2.txt " DIR "part-10.bin " DIR "test.bin ";
    expect(DIR, all);
    expect("test_file_list.d", all);
    expect(DIR "*", all);
    expect(DIR "a*b", DIR "a*b "); /* it exists as it is written */
}

static void a_pattern_matches_any_characters(void **state)
{
    (void)state;
    expect(DIR "p*t*-*1*0*.*n", DIR "part-10.bin ");
    expect(DIR "***part-10.bin**", DIR "part-10.bin ");
    expect_refusal(DIR "part-1*0", FEDGE_NOT_FOUND,
                   DIR "part-1*0: there is no file whose name fits");
    expect_refusal(DIR "*art-10.bi", FEDGE_NOT_FOUND,
                   "*art-10.bi: there is no file whose name fits");
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    expect_refusal(DIR "nowhere", FEDGE_NOT_FOUND, DIR "nowhere: there is no such file");
    expect_refusal(DIR "test.bin\n" DIR "nowhere", FEDGE_NOT_FOUND, DIR "nowhere");
    expect_refusal(DIR "empty", FEDGE_NOT_FOUND, DIR "empty/*: there is no file whose name fits");
    expect_refusal("test_file_*/test.bin", FEDGE_NOT_FOUND, "'*' is allowed in its last part only");
    expect_refusal(DIR "nowhere/*", FEDGE_NOT_FOUND, DIR "nowhere/");
    char line[2 * FEDGE_OS_MAX_PATH];
    (void)snprintf(line, sizeof(line), "%0600d", 7);
    expect_refusal(line, FEDGE_TOO_BIG, "a path of over 511 bytes");
}

static void one_is_kept(void **state)
{
    (void)state;
    fedge_file_list list;
    fedge_error err;
    for (uint32_t kept = 0; kept < 4; kept++) {
        static const char *const NAMES[] = {"1", "02", "2", "10"};
        char path[64];
        (void)snprintf(path, sizeof(path), DIR "part-%s.bin", NAMES[kept]);
        assert_int_equal(fedge_file_list_open(&list, DIR "part-*.bin", &err), FEDGE_OK);
        fedge_file_list_keep(&list, kept);
        assert_int_equal(list.count, 1);
        assert_string_equal(list.paths[0], path);
        fedge_file_list_close(&list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_in_their_order),
        cmocka_unit_test(folders_and_patterns_are_in_the_order_of_numbers),
        cmocka_unit_test(a_pattern_matches_any_characters),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(one_is_kept),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
