#define _GNU_SOURCE /* setenv is POSIX, not C11 */

#include "aggregator/program/rank_launcher.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"

#define DIR "restart-state-test"
#define FILE_NAME DIR "/supervised"

static const char RUN_ID[FEDGE_RUN_ID_TEXT] = "0123456789abcdef0123456789abcdef";
static unsigned num_lines;

static void count_lines(void *user, const char *line, size_t size)
{
    (void)user, (void)size;
    num_lines += strstr(line, "supervised-discarded") != NULL;
}

static const fedge_log LOG = {.level = FEDGE_LOG_WARN, .write = count_lines};

static int set_up(void **state)
{
    (void)state;
    num_lines = 0;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK && fedge_os_make_dir(DIR, NULL) == FEDGE_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return unsetenv(FEDGE_RESTART_STATE_VARIABLE) == 0 &&
                   fedge_os_remove_tree(DIR, NULL) == FEDGE_OK
               ? 0
               : -1;
}

static fedge_supervised supervised(uint32_t restarts, const char *number)
{
    fedge_supervised self = {.restarts = restarts};
    memcpy(self.number, number, strlen(number) + 1);
    return self;
}

/* What a rank of this supervisor is told. */
static fedge_supervised taken(const char *number)
{
    const fedge_supervised giver = supervised(3, number);
    fedge_supervised self = {0};
    assert_int_equal(fedge_restart_state_export(&giver, NULL), FEDGE_OK);
    fedge_restart_state_import(&self, DIR, &LOG);
    assert_int_equal(self.restarts, 3);
    assert_string_equal(self.number, number);
    return self;
}

static void open_run(const char *number)
{
    const fedge_supervised self = supervised(0, number);
    assert_int_equal(fedge_restart_state_run_opened(&self, DIR, RUN_ID, NULL), FEDGE_OK);
}

static void a_rank_knows_the_run_of_its_supervisor(void **state)
{
    (void)state;
    assert_string_equal(taken("0011223344556677").run_id, "");
    open_run("0011223344556677");
    assert_string_equal(taken("0011223344556677").run_id, RUN_ID);
    assert_string_equal(taken("0011223344556678").run_id, "");
    assert_int_equal(num_lines, 0);
}

/* Whichever byte is damaged, no other run takes its place, and the log says so. */
static void a_damaged_file_is_discarded(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    open_run("0011223344556677");
    assert_int_equal(fedge_os_read_file(FILE_NAME, 1000, &text, &size, NULL), FEDGE_OK);
    /* A line's end may be another. */
    for (size_t i = 0; i + 1 < size; i++) {
        text[i] ^= 1;
        assert_int_equal(fedge_os_write_file(FILE_NAME, text, size, 0600, NULL), FEDGE_OK);
        text[i] ^= 1;
        num_lines = 0;
        assert_string_equal(taken("0011223344556677").run_id, "");
        assert_int_equal(num_lines, 1);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_rank_knows_the_run_of_its_supervisor, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_file_is_discarded, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
