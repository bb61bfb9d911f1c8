/* A call of CUDA or NCCL that never returns ends the process, with the GPUs and what was being
 * done; so does a step without progress. */
#define _DEFAULT_SOURCE /* fork, nanosleep, MAP_ANONYMOUS */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "edge/train/cuda/gpu.h"
#include "edge/train/cuda/nccl_api.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/rounds.h"
#include "tests/edge/core/codec/codecs.h"

enum { TOLD = 9, NOT_TOLD = 1, OTHERWISE = 2 };
static int to_parent;
enum { MAX_CASES = 16 };
static fedge_lost_gpus *lost; /* (MAX_CASES), shared with the processes that hang */

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

static fedge_nccl_result end_at_once(const fedge_nccl *nccl, ncclComm_t *comms)
{
    const fedge_nccl_result result = init(nccl, comms);
    return result == FEDGE_NCCL_SUCCESS ? nccl->comm_abort(comms[0]) : result;
}

static fedge_nccl_result init_rank(const fedge_nccl *nccl, ncclComm_t *comms)
{
    fedge_nccl_id id;
    const fedge_nccl_result result = nccl->get_unique_id(&id);
    return result == FEDGE_NCCL_SUCCESS ? nccl->comm_init_rank(&comms[0], 1, id, 0) : result;
}

/* Never returns. */
static void hang_in(const char *name,
                    fedge_nccl_result (*call)(const fedge_nccl *nccl, ncclComm_t *comms))
{
    fedge_nccl nccl;
    fedge_gpu_watch watch;
    fedge_gpu_call joining = {FEDGE_GPU_NCCL, "one of GPUs 0,1", "joining sums", 0, NULL, 0};
    fedge_error err;
    ncclComm_t comms[2];
    const emulator_config config = {
        .num_gpus = 2, .fail_call = 1, .fail_at = name, .fail_error = EMULATOR_HANGS};
    if (!emulator_start(&config) || fedge_nccl_load(&nccl, &err) != FEDGE_OK ||
        fedge_gpu_watch_init(&watch, on_stuck, NULL, &err) != FEDGE_OK)
        _exit(OTHERWISE);
    fedge_gpu_watch_begin(&watch, &joining);
    (void)call(&nccl, comms);
    _exit(NOT_TOLD);
}

/* A process of its own, which is to tell of [words]. */
typedef struct hanging {
    pid_t pid;
    int from;
    const char *words;
} hanging;

static hanging fork_hanging(const char *words)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    const hanging made = {fork(), ends[0], words};
    if (made.pid == 0)
        to_parent = ends[1];
    else
        (void)close(ends[1]);
    return made;
}

static void expect_told(const hanging *self)
{
    int status = 0;
    char message[FEDGE_ERROR_MESSAGE_SIZE] = "";
    assert_int_equal(waitpid(self->pid, &status, 0), self->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TOLD);
    assert_true(read(self->from, message, sizeof(message) - 1) > 0);
    if (!strstr(message, self->words))
        fail_msg("\"%s\" does not say \"%s\"", message, self->words);
    (void)close(self->from);
}

static void a_call_that_hangs_ends_the_process(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        fedge_nccl_result (*call)(const fedge_nccl *nccl, ncclComm_t *comms);
    } CALLS[] = {{"ncclCommInitAll", init},      {"ncclGroupStart", group},
                 {"ncclGroupEnd", group},        {"ncclCommDestroy", destroy},
                 {"ncclCommAbort", end_at_once}, {"ncclCommInitRank", init_rank}};
    for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
        const hanging process = fork_hanging("one of GPUs 0,1 is lost while joining sums");
        if (process.pid == 0)
            hang_in(CALLS[i].name, CALLS[i].call);
        expect_told(&process);
    }
}

/* A round on the accumulator, which never ends. */
static void hang_in_round(emulator_config machine)
{
    const fedge_accumulator_config config = {.layout = &layout, .lost = lost, .stuck = on_stuck};
    void *opened = NULL;
    fedge_error err;
    seed_all(3, &INT8, 2000);
    if (!emulator_start(&machine) || ops->open(&config, &opened, &err) != FEDGE_OK)
        _exit(OTHERWISE);
    (void)run_round(opened, &err);
    _exit(NOT_TOLD);
}

static void a_gpu_that_hangs_ends_the_process(void **state)
{
    (void)state;
    enum { ERROR = EMULATOR_HANGS };
    static const struct {
        emulator_config machine;
        const char *words;
    } CASES[] = {
        /* While it is opened: */
        {{.num_gpus = 1, .fail_at = "counting", .fail_call = 1, .fail_error = ERROR},
         "a GPU is lost while counting them: CUDA's call has not returned in 5 s"},
        {{.num_gpus = 1, .fail_at = "choosing", .fail_call = 1, .fail_error = ERROR},
         "GPU 0 is lost while asking what it has: CUDA's call has not returned in 5 s"},
        {{.num_gpus = 1, .fail_at = "memory", .fail_call = 1, .fail_error = ERROR},
         "GPU 0 is lost while asking what it has"},
        {{.num_gpus = 1, .fail_at = "choosing", .fail_call = 2, .fail_error = ERROR},
         "GPU 0 is lost while opening it: CUDA's call has not returned in 5 s"},
        {{.num_gpus = 1, .fail_at = "allocation", .fail_call = 1, .fail_error = ERROR},
         "CUDA's call has not returned in 5 s"},
        {{.num_gpus = 1, .fail_at = "allocation", .fail_call = 9, .fail_error = ERROR},
         "CUDA's call has not returned in 5 s"},
        /* At work: */
        {{.num_gpus = 1, .fail_at = "copy", .fail_call = 3, .fail_error = ERROR}, "GPU 0 is lost"},
        {{.num_gpus = 1, .fail_at = "read", .fail_call = 2, .fail_error = ERROR}, "GPU 0 is lost"},
        {{.num_gpus = 1, .fail_at = "stage", .fail_call = 2, .fail_error = ERROR},
         "GPU 0 is lost while checking an update: CUDA's call has not returned in 4 s"},
        {{.num_gpus = 1, .fail_at = "accumulate", .fail_call = 1, .fail_error = ERROR},
         "GPU 0 is lost while summing updates"},
        {{.num_gpus = 1, .fail_at = "step", .fail_call = 1, .fail_error = ERROR},
         "GPU 0 is lost while taking the step"},
        {{.num_gpus = 3, .hang_collective = 2}, "is lost while taking the step: no progress"},
    };
    enum { NUM_CASES = sizeof(CASES) / sizeof(CASES[0]) };
    hanging processes[NUM_CASES];
    assert_in_range(NUM_CASES, 1, MAX_CASES);
    for (size_t i = 0; i < NUM_CASES; i++) { /* all wait at once */
        processes[i] = fork_hanging(CASES[i].words);
        if (processes[i].pid == 0) {
            lost = &lost[i];
            hang_in_round(CASES[i].machine);
        }
    }
    for (size_t i = 0; i < NUM_CASES; i++) {
        expect_told(&processes[i]);
        /* The process that comes after this one would know, where it can be known. */
        const bool known = CASES[i].machine.num_gpus == 1 && i > 0;
        assert_int_equal(atomic_load(&lost[i].numbers), known ? 1 : 0);
    }
}

static void what_returns_is_not_told(void **state)
{
    (void)state;
    const struct timespec longer = {.tv_nsec = 2L * FEDGE_NCCL_CALL_MS * 1000000};
    fedge_gpu_watch watch;
    fedge_gpu_call joining = {FEDGE_GPU_NCCL, "one of GPUs 0,1", "joining sums", 0, NULL, 0};
    fedge_error err;
    assert_int_equal(fedge_gpu_watch_init(&watch, never, NULL, &err), FEDGE_OK);
    fedge_gpu_watch_begin(&watch, &joining);
    fedge_gpu_watch_end(&watch, &joining);
    (void)nanosleep(&longer, NULL);
    fedge_gpu_watch_fini(&watch);
}

static void without_a_listener_nobody_watches(void **state)
{
    (void)state;
    fedge_gpu_watch watch;
    fedge_gpu_call joining = {FEDGE_GPU_NCCL, "one of GPUs 0,1", "joining sums", 0, NULL, 0};
    fedge_error err;
    assert_int_equal(fedge_gpu_watch_init(&watch, NULL, NULL, &err), FEDGE_OK);
    fedge_gpu_watch_begin(&watch, &joining);
    assert_null(watch.calls);
    fedge_gpu_watch_end(&watch, &joining);
    fedge_gpu_watch_fini(&watch);
    fedge_gpu_watch none = {0};
    fedge_gpu_watch_fini(&none);
}

int main(void)
{
    lost = mmap(NULL, MAX_CASES * sizeof(*lost), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (lost == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_that_hangs_ends_the_process),
        cmocka_unit_test(a_gpu_that_hangs_ends_the_process),
        cmocka_unit_test(what_returns_is_not_told),
        cmocka_unit_test(without_a_listener_nobody_watches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
