#include "tests/aggregator/store/store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "aggregator/store/round_log.h"

static char path[FEDGE_MAX_PATH];

static void set_path(void **state)
{
    snprintf(path, sizeof path, "%s/rounds.jsonl", (const char *)*state);
}

static void assert_file(const char *expected)
{
    uint8_t *text;
    size_t size;
    OK(fedge_os_read_file(path, 1 << 20, &text, &size, NULL));
    assert_string_equal((const char *)text, expected);
    free(text);
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
    static const char whole[] = LINE(1, "train") LINE(2, "train") LINE(3, "train");
    size_t line = strlen(LINE(1, "train"));
    set_path(state);
    for (size_t size = 2 * line; size <= 3 * line; size++) {
        fedge_round_log log;
        char text[sizeof whole];
        memcpy(text, whole, size);
        text[size] = '\0';
        write_log(text);
        OK(fedge_round_log_open(&log, path, 2, NULL));
        assert_int_equal(log.last_round, 2);
        assert_file(LINE(1, "train") LINE(2, "train"));
        OK(fedge_round_log_append(&log, 3, FEDGE_TASK_TRAIN, "\"clients\":8", NULL));
        fedge_round_log_close(&log);
        assert_file(whole);
    }
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
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fedge_round_log log;
        fedge_error err;
        char text[256];
        snprintf(text, sizeof text, "%s%s", LINE(1, "train"), bad[i]);
        write_log(text);
        assert_int_equal(fedge_round_log_open(&log, path, 9, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "rounds.jsonl:2"));
        assert_file(text);
    }
}

static void bad_fields_are_refused(void **state)
{
    fedge_round_log log;
    fedge_error err;
    set_path(state);
    OK(fedge_round_log_open(&log, path, 0, NULL));
    const char *bad[] = {"accuracy:1", "\"a\":nan", "\"a\":1}\n{\"b\":2", "\"a\":\n1", ","};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fedge_round_log_append(&log, 1, FEDGE_TASK_TRAIN, bad[i], &err),
                         FEDGE_CORRUPT);
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
        TEST(a_full_disk_leaves_whole_lines), TEST(bad_lines_are_told),
        TEST(bad_fields_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
