#define _GNU_SOURCE /* mkdtemp, setenv */
#include "aggregator/program/reach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"

#define LIMIT_MS 8000u /* far more than a script needs that does nothing */

/* In place of the real one: who is "gone" never answers, and to "shut" it has no way. */
static const char MPIRUN[] = "#!/bin/sh\n"
                             "case \"$2\" in\n"
                             "gone:1) exec sleep 60 ;;\n"
                             "shut:1) exit 1 ;;\n"
                             "esac\n";

typedef struct fixture {
    char dir[64], hosts[96], mpirun[96], silent[256];
} fixture;

static void write_text(const char *path, const char *text)
{
    fedge_error err;
    assert_int_equal(fedge_os_write_file(path, text, strlen(text), 0700, &err), FEDGE_OK);
}

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof(*self));
    assert_non_null(self);
    snprintf(self->dir, sizeof(self->dir), "/tmp/fedge-reach-XXXXXX");
    assert_non_null(mkdtemp(self->dir));
    snprintf(self->hosts, sizeof(self->hosts), "%s/hosts", self->dir);
    snprintf(self->mpirun, sizeof(self->mpirun), "%s/mpirun", self->dir);
    write_text(self->mpirun, MPIRUN);
    char path[4096];
    snprintf(path, sizeof(path), "%s:%s", self->dir, getenv("PATH"));
    assert_int_equal(setenv("PATH", path, 1), 0);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    (void)unlink(self->hosts);
    (void)unlink(self->mpirun);
    (void)rmdir(self->dir);
    free(self);
    return 0;
}

static void on_silent(void *user, const char *name)
{
    fixture *self = user;
    const size_t at = strlen(self->silent);
    snprintf(self->silent + at, sizeof(self->silent) - at, "%s ", name);
}

static fedge_status reach(fixture *self, const char *text, char out[FEDGE_MAX_PATH])
{
    fedge_error err;
    const fedge_reach_listener listener = {.silent = on_silent, .user = self};
    write_text(self->hosts, text);
    self->silent[0] = '\0';
    return fedge_reach(self->hosts, LIMIT_MS, &listener, out, &err);
}

static void who_does_not_answer_is_left_out(void **state)
{
    fixture *self = *state;
    char out[FEDGE_MAX_PATH];
    uint8_t *text = NULL;
    size_t size;
    fedge_error err;
    assert_int_equal(reach(self, "# mine\none slots=2\n\ngone\nshut slots=3\n  two # last", out),
                     FEDGE_OK);
    assert_string_equal(self->silent, "gone shut ");
    assert_int_equal(fedge_os_read_file(out, 1000, &text, &size, &err), FEDGE_OK);
    assert_string_equal((const char *)text, "one slots=2\n  two # last\n");
    free(text);
}

static void the_file_itself_where_all_answer(void **state)
{
    fixture *self = *state;
    char out[FEDGE_MAX_PATH], text[1024];
    size_t size = 0;
    for (uint32_t i = 0; i < 2 * FEDGE_REACH_MAX_AT_ONCE + 1; i++)
        size += (size_t)snprintf(text + size, sizeof(text) - size, "m%u\n", (unsigned)i);
    assert_int_equal(reach(self, text, out), FEDGE_OK);
    assert_string_equal(self->silent, "");
    assert_string_equal(out, self->hosts);
}

static void the_first_machine_has_the_run(void **state)
{
    fixture *self = *state;
    char out[FEDGE_MAX_PATH];
    assert_int_equal(reach(self, "shut\none\n", out), FEDGE_NOT_FOUND);
    assert_string_equal(self->silent, "shut ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_does_not_answer_is_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_itself_where_all_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_first_machine_has_the_run, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
