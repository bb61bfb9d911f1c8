#define _GNU_SOURCE /* processes, readlink, setenv */

#include "aggregator/program/rank_launcher.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"

#define SCRIPT "start-ranks"
#define PROGRAM "/proc/self/exe"
#define NUM_WORDS 6 /* before the program's arguments */
#define PATH_SIZE 4096
#define STATE_NAME "supervised"
#define MAX_STATE_SIZE 256u /* bytes of the variable and the file */

static fedge_status find_script(char script[PATH_SIZE], char program[PATH_SIZE], fedge_error *err)
{
    const char *folder = getenv(FEDGE_LIBEXEC_VARIABLE);
    const ssize_t length = readlink(PROGRAM, program, PATH_SIZE - 1);
    if (length < 0)
        return fedge_fail_errno(err, errno, "cannot read %s", PROGRAM);
    program[length] = '\0';
    const char *slash = strrchr(program, '/');
    const int bin_length = slash ? (int)(slash - program) : 0;
    const int size = folder ? snprintf(script, PATH_SIZE, "%s/" SCRIPT, folder)
                            : snprintf(script, PATH_SIZE, "%.*s/" FEDGE_LIBEXEC_FROM_BIN "/" SCRIPT,
                                       bin_length, program);
    if (size >= PATH_SIZE)
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of " SCRIPT " is too long");
    if (access(script, X_OK) != 0) {
        return fedge_fail_errno(err, errno,
                                "--hosts needs the script %s, which cmake --install installs; "
                                "the variable " FEDGE_LIBEXEC_VARIABLE " names another folder",
                                script);
    }
    return FEDGE_OK;
}

bool fedge_rank_launcher_check(const char *hosts, const char *remark)
{
    char script[PATH_SIZE], program[PATH_SIZE];
    fedge_error err;
    if (find_script(script, program, &err) != FEDGE_OK) {
        fprintf(stderr, "fedge-aggregator: %s%s\n", err.message, remark);
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        /* The supervisor blocks signals that a shell needs. */
        sigset_t none;
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)execl(script, SCRIPT, "check", hosts, remark, (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    int ended = -1;
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR)
        continue;
    return ended == 0;
}

fedge_status fedge_rank_launcher_run(const fedge_supervised *self, const char *hosts, int argc,
                                     char **argv, fedge_error *err)
{
    char script[PATH_SIZE], program[PATH_SIZE], path[PATH_SIZE], restarts[16];
    FEDGE_TRY(find_script(script, program, err));
    snprintf(path, sizeof(path), "%s", hosts);
    snprintf(restarts, sizeof(restarts), "%" PRIu32, self->restarts);
    char drain[] = "--drain", script_name[] = SCRIPT, run[] = "run";
    char *words[NUM_WORDS] = {script_name, run, path, restarts, drain, program};
    if (!self->draining)
        drain[0] = '\0';
    char **all = calloc((size_t)argc + NUM_WORDS, sizeof(*all));
    if (!all)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the command line of " SCRIPT);
    memcpy(all, words, sizeof(words));
    memcpy(all + NUM_WORDS, argv + 1, (size_t)(argc - 1) * sizeof(*all));
    (void)execv(script, all);
    const int failed = errno;
    free(all);
    return fedge_fail_errno(err, failed, "cannot run %s", script);
}

/* ---- restart state --------------------------------------------------------------------------- */

fedge_status fedge_restart_state_export(const fedge_supervised *self, fedge_error *err)
{
    char text[MAX_STATE_SIZE];
    snprintf(text, sizeof(text), "%" PRIu32 ":%s", self->restarts, self->number);
    if (setenv(FEDGE_RESTART_STATE_VARIABLE, text, true) != 0)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the environment of mpirun");
    return FEDGE_OK;
}

/* Reads what a rank 0 of the same supervisor has left; [run_id] stays "" without one. */
static fedge_status read_run(const fedge_supervised *self, const char *state_dir,
                             char run_id[FEDGE_RUN_ID_TEXT], fedge_error *err)
{
    char path[FEDGE_MAX_PATH], number[FEDGE_SUPERVISOR_NUMBER_TEXT], found[FEDGE_RUN_ID_TEXT];
    cJSON *json = NULL;
    fedge_status status;
    FEDGE_TRY(fedge_path_join(state_dir, STATE_NAME, path, err));
    FEDGE_TRY_OR(fedge_json_file_read(path, MAX_STATE_SIZE, &json, err), done);
    FEDGE_TRY_OR(fedge_json_get_text(json, "supervisor", path, number, sizeof(number), err), done);
    FEDGE_TRY_OR(fedge_json_get_text(json, "run-id", path, found, sizeof(found), err), done);
    if (strcmp(number, self->number) == 0)
        memcpy(run_id, found, sizeof(found));
done:
    cJSON_Delete(json);
    return status;
}

void fedge_restart_state_import(fedge_supervised *self, const char *state_dir, const fedge_log *log)
{
    fedge_error err;
    const char *text = getenv(FEDGE_RESTART_STATE_VARIABLE);
    if (!text || sscanf(text, "%" SCNu32 ":%16s", &self->restarts, self->number) != 2)
        return;
    const fedge_status status = read_run(self, state_dir, self->run_id, &err);
    /* The first rank 0 finds none. */
    if (status != FEDGE_OK && status != FEDGE_NOT_FOUND)
        fedge_log_failure(log, FEDGE_LOG_WARN, "supervised-discarded", &err);
}

fedge_status fedge_restart_state_run_opened(const fedge_supervised *self, const char *state_dir,
                                            const char run_id[FEDGE_RUN_ID_TEXT], fedge_error *err)
{
    char path[FEDGE_MAX_PATH], text[MAX_STATE_SIZE];
    if (!self->number[0])
        return FEDGE_OK;
    const int size = snprintf(text, sizeof(text), "{\"supervisor\":\"%s\",\"run-id\":\"%s\"}",
                              self->number, run_id);
    FEDGE_TRY(fedge_path_join(state_dir, STATE_NAME, path, err));
    return fedge_json_file_write(path, text, (size_t)size, err);
}
