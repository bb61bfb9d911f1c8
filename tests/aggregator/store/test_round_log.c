#include "tests/aggregator/store/store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "aggregator/store/round_log.h"
#include "edge/json/json.h"

static char path[FEDGE_MAX_PATH];

static void set_path(void **state)
{
    snprintf(path, sizeof(path), "%s/rounds.jsonl", (const char *)*state);
}

/* The lines with their seals. */
static char *seal_lines(const char *lines)
{
    char *sealed = calloc(1, 4096), *at = sealed;
    assert_non_null(sealed);
    while (*lines != '\0') {
        const size_t length = strcspn(lines, "\n");
        memcpy(at, lines, length);
        fedge_seal_make(lines, length, at + length - 1);
        at += length - 1 + FEDGE_SEAL_SIZE;
        *at++ = '\n';
        lines += length + 1;
    }
    return sealed;
}

static void assert_text(const char *expected)
{
    uint8_t *text;
    size_t size;
    OK(fedge_os_read_file(path, 1 << 20, &text, &size, NULL));
    assert_string_equal((const char *)text, expected);
    free(text);
}

/* The file has these lines, each with its seal. */
static void assert_file(const char *expected)
{
    char *sealed = seal_lines(expected);
    assert_text(sealed);
    free(sealed);
}

static void write_log(const char *text)
{
    OK(fedge_os_write_file(path, text, strlen(text), 0600, NULL));
}

#define LINE(round, phase) "{\"round\":" #round ",\"phase\":\"" phase "\",\"clients\":8}\n"

static void lines_are_appended_once(void **state)
{
    fedge_round_log log;
    fedge_error err;
    set_path(state);
    OK(fedge_round_log_open(&log, path, 0, NULL));
    OK(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
    assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "", &err), FEDGE_DUPLICATE);
    OK(fedge_round_log_append(&log, 1, FEDGE_TASK_EVALUATE, "\"clients\":8", NULL));
    assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "", &err), FEDGE_DUPLICATE);
    OK(fedge_round_log_append(&log, 2, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
    fedge_round_log_close(&log);
    assert_file(LINE(1, "train") LINE(1, "evaluate") LINE(2, "train"));
    OK(fedge_round_log_open(&log, path, 2, NULL));
    assert_int_equal(fedge_round_log_append(&log, 2, FEDGE_TASK_TRAIN, "", &err), FEDGE_DUPLICATE);
    OK(fedge_round_log_append(&log, 3, FEDGE_TASK_TRAIN, "", NULL));
    fedge_round_log_close(&log);
    assert_file(LINE(1, "train") LINE(1, "evaluate")
                    LINE(2, "train") "{\"round\":3,\"phase\":\"train\"}\n");
}

/* Whatever the crash left of the last line, and lines of rounds whose checkpoint is not there. */
static void recovery_cuts_what_is_not_closed(void **state)
{
    char *whole = seal_lines(LINE(1, "train") LINE(2, "train") LINE(3, "train"));
    const size_t line = strlen(whole) / 3;
    set_path(state);
    for (size_t size = 2 * line; size <= 3 * line; size++) {
        fedge_round_log log;
        char text[512];
        memcpy(text, whole, size);
        text[size] = '\0';
        write_log(text);
        OK(fedge_round_log_open(&log, path, 2, NULL));
        assert_int_equal(log.last_round, 2);
        assert_file(LINE(1, "train") LINE(2, "train"));
        OK(fedge_round_log_append(&log, 3, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
        fedge_round_log_close(&log);
        assert_text(whole);
    }
    free(whole);
}

/* Whatever bit of a line changes: it is told, and the other lines can be kept. */
static void a_damaged_line_is_told(void **state)
{
    char *whole = seal_lines(LINE(1, "train") LINE(2, "train") LINE(3, "train"));
    char *others = seal_lines(LINE(1, "train") LINE(3, "train"));
    const size_t line = strlen(whole) / 3;
    char aside[FEDGE_MAX_PATH + 16];
    set_path(state);
    snprintf(aside, sizeof(aside), "%s.damaged", path);
    for (size_t bit = 8 * line; bit < 8 * (2 * line - 1); bit += 3) {
        fedge_round_log log;
        fedge_error err;
        char text[512];
        snprintf(text, sizeof(text), "%s", whole);
        text[bit / 8] ^= (char)(1 << bit % 8);
        write_log(text);
        assert_int_equal(fedge_round_log_open(&log, path, 9, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "rounds.jsonl:2"));
        assert_text(text);
        OK(fedge_round_log_mend(path, NULL));
        OK(fedge_round_log_open(&log, path, 9, NULL));
        assert_int_equal(log.last_round, 3);
        fedge_round_log_close(&log);
        assert_text(others);
        assert_true(fedge_os_exists(aside));
    }
    free(whole);
    free(others);
}

static void lines_of_an_older_release_are_taken(void **state)
{
    fedge_round_log log;
    set_path(state);
    write_log(LINE(1, "train") LINE(2, "train"));
    OK(fedge_round_log_open(&log, path, 2, NULL));
    OK(fedge_round_log_append(&log, 3, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
    fedge_round_log_close(&log);
    char *last = seal_lines(LINE(3, "train")), text[512];
    snprintf(text, sizeof(text), "%s%s", LINE(1, "train") LINE(2, "train"), last);
    assert_text(text);
    OK(fedge_round_log_open(&log, path, 3, NULL));
    fedge_round_log_close(&log);
    free(last);
}

/* Room for half a line: it does not stay, and a shorter one fits. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    fedge_round_log log;
    fedge_error err;
    struct rlimit before;
    set_path(state);
    OK(fedge_round_log_open(&log, path, 0, NULL));
    OK(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit full = {.rlim_cur = log.size + 30, .rlim_max = before.rlim_max};
    void (*action)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    const fedge_status status =
        fedge_round_log_append(&log, 2, FEDGE_TASK_TRAIN, "\"clients\":8", &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(signal(SIGXFSZ, action) != SIG_ERR);
    assert_int_not_equal(status, FEDGE_OK);
    assert_non_null(strstr(err.message, "cannot write "));
    assert_file(LINE(1, "train"));
    OK(fedge_round_log_append(&log, 2, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
    fedge_round_log_close(&log);
    assert_file(LINE(1, "train") LINE(2, "train"));
}

static void bad_lines_are_told(void **state)
{
    const char *bad[] = {"\n",
                         "{}\n",
                         "nonsense\n",
                         "{\"round\":1,\"phase\":\"lunch\"}\n",
                         "{\"round\":0,\"phase\":\"train\"}\n",
                         "{\"round\":\"1\"}\n",
                         LINE(1, "train")};
    set_path(state);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fedge_round_log log;
        fedge_error err;
        char text[256];
        snprintf(text, sizeof(text), "%s%s", LINE(1, "train"), bad[i]);
        write_log(text);
        assert_int_equal(fedge_round_log_open(&log, path, 9, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "rounds.jsonl:2"));
        assert_text(text);
    }
}

static void bad_fields_are_refused(void **state)
{
    fedge_round_log log;
    fedge_error err;
    set_path(state);
    OK(fedge_round_log_open(&log, path, 0, NULL));
    const char *bad[] = {"accuracy:1", "\"a\":nan", "\"a\":1}\n{\"b\":2", "\"a\":\n1", ","};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, bad[i], &err),
                         FEDGE_CORRUPT);
    }
    char *huge = malloc(FEDGE_ROUND_LOG_MAX_LINE + 1);
    assert_non_null(huge);
    memset(huge, ' ', FEDGE_ROUND_LOG_MAX_LINE);
    huge[FEDGE_ROUND_LOG_MAX_LINE] = '\0';
    assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, huge, &err), FEDGE_TOO_BIG);
    free(huge);
    fedge_round_log_close(&log);
    assert_file("");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_are_appended_once),        TEST(recovery_cuts_what_is_not_closed),
        TEST(a_damaged_line_is_told),         TEST(lines_of_an_older_release_are_taken),
        TEST(a_full_disk_leaves_whole_lines), TEST(bad_lines_are_told),
        TEST(bad_fields_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
