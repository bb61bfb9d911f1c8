/* A call of NCCL that never returns ends the process, with the GPUs and what was being done. */
#define _POSIX_C_SOURCE 200809L /* fork, nanosleep */
#include "edge/train/cuda/nccl_watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "edge/train/cuda/nccl_api.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/cmocka_all.h"

enum { TOLD = 9, NOT_TOLD = 1, OTHERWISE = 2 };
static int to_parent;

static void on_stuck(const fedge_error *err)
{
    if (err->status != FEDGE_GPU_LOST ||
        write(to_parent, err->message, strlen(err->message)) != (ssize_t)strlen(err->message))
        _exit(OTHERWISE);
    _exit(TOLD);
}

static void never(const fedge_error *err)
{
    (void)fprintf(stderr, "%s\n", err->message);
    _exit(OTHERWISE);
}

static fedge_nccl_result init(const fedge_nccl *nccl, ncclComm_t *comms)
{
    return nccl->comm_init_all(comms, 2, (const int[]){0, 1});
}

static fedge_nccl_result group(const fedge_nccl *nccl, ncclComm_t *comms)
{
    (void)comms;
    const fedge_nccl_result result = nccl->group_start();
    return result == FEDGE_NCCL_SUCCESS ? nccl->group_end() : result;
}

static fedge_nccl_result destroy(const fedge_nccl *nccl, ncclComm_t *comms)
{
    const fedge_nccl_result result = init(nccl, comms);
    return result == FEDGE_NCCL_SUCCESS ? nccl->comm_destroy(comms[0]) : result;
}

/* Never returns. */
static void hang_in(const char *name,
                    fedge_nccl_result (*call)(const fedge_nccl *nccl, ncclComm_t *comms))
{
    fedge_nccl nccl;
    fedge_nccl_watch watch;
    fedge_error err;
    ncclComm_t comms[2];
    const emulator_config config = {
        .num_gpus = 2, .fail_call = 1, .fail_at = name, .fail_error = EMULATOR_HANGS};
    if (!emulator_start(&config) || fedge_nccl_load(&nccl, &err) != FEDGE_OK ||
        fedge_nccl_watch_init(&watch, on_stuck, "one of GPUs 0,1", &err) != FEDGE_OK)
        _exit(OTHERWISE);
    fedge_nccl_watch_begin(&watch, "joining sums");
    (void)call(&nccl, comms);
    _exit(NOT_TOLD);
}

static void a_call_that_hangs_ends_the_process(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        fedge_nccl_result (*call)(const fedge_nccl *nccl, ncclComm_t *comms);
    } CALLS[] = {{"ncclCommInitAll", init},
                 {"ncclGroupStart", group},
                 {"ncclGroupEnd", group},
                 {"ncclCommDestroy", destroy}};
    for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
        int ends[2], status = 0;
        char message[FEDGE_ERROR_MESSAGE_SIZE] = "";
        assert_int_equal(pipe(ends), 0);
        (void)fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            to_parent = ends[1];
            hang_in(CALLS[i].name, CALLS[i].call);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), TOLD);
        assert_true(read(ends[0], message, sizeof(message) - 1) > 0);
        assert_non_null(strstr(message, "one of GPUs 0,1 is lost while joining sums"));
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
}

static void what_returns_is_not_told(void **state)
{
    (void)state;
    const struct timespec longer = {.tv_nsec = 2L * FEDGE_NCCL_CALL_MS * 1000000};
    fedge_nccl_watch watch;
    fedge_error err;
    assert_int_equal(fedge_nccl_watch_init(&watch, never, "one of GPUs 0,1", &err), FEDGE_OK);
    fedge_nccl_watch_begin(&watch, "joining sums");
    fedge_nccl_watch_end(&watch);
    (void)nanosleep(&longer, NULL);
    fedge_nccl_watch_fini(&watch);
}

static void without_a_listener_nobody_watches(void **state)
{
    (void)state;
    fedge_nccl_watch watch;
    fedge_error err;
    assert_int_equal(fedge_nccl_watch_init(&watch, NULL, "one of GPUs 0,1", &err), FEDGE_OK);
    fedge_nccl_watch_begin(&watch, "joining sums");
    assert_int_equal(atomic_load(&watch.since), 0);
    fedge_nccl_watch_end(&watch);
    fedge_nccl_watch_fini(&watch);
    fedge_nccl_watch none = {0};
    fedge_nccl_watch_fini(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_hangs_ends_the_process),
        cmocka_unit_test(what_returns_is_not_told),
        cmocka_unit_test(without_a_listener_nobody_watches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
