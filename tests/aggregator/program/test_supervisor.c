#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "aggregator/program/supervisor.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/run/exit_codes.h"
#include "tests/edge/core/cmocka_all.h"

uint64_t __wrap_fedge_os_monotonic_ms(void);
pid_t __real_waitpid(pid_t child, int *ended, int options);
pid_t __wrap_waitpid(pid_t child, int *ended, int options);
int __real_sigtimedwait(const sigset_t *signals, siginfo_t *info, const struct timespec *limit);
int __wrap_sigtimedwait(const sigset_t *signals, siginfo_t *info, const struct timespec *limit);

/* A clock that only waits move: pauses are over at once, and a child lives as long as is said here.
 */
static uint64_t clock_ms, life_ms;

uint64_t __wrap_fedge_os_monotonic_ms(void)
{
    return clock_ms;
}

/* Once for each child, whether or not it was waited for. */
pid_t __wrap_waitpid(pid_t child, int *ended, int options)
{
    const pid_t got = __real_waitpid(child, ended, options);
    if (got > 0)
        clock_ms += life_ms;
    return got;
}

int __wrap_sigtimedwait(const sigset_t *signals, siginfo_t *info, const struct timespec *limit)
{
    const struct timespec none = {0};
    const int got = __real_sigtimedwait(signals, info, &none);
    if (got < 0)
        clock_ms += (uint64_t)(limit->tv_sec * 1000 + limit->tv_nsec / 1000000);
    return got;
}

/* What passes, or a new start goes round: a crash, a want of memory, a lost GPU. */
static void only_what_a_new_start_mends_is_started_again(void **state)
{
    (void)state;
    const int others[] = {FEDGE_EXIT_OK,    FEDGE_EXIT_USAGE, FEDGE_EXIT_CONFIG,
                          FEDGE_EXIT_STATE, FEDGE_EXIT_PORT,  FEDGE_EXIT_DISK};
    for (int may_pass = 0; may_pass < 2; may_pass++) {
        assert_true(fedge_supervisor_restarts(0, SIGKILL, may_pass));
        assert_true(fedge_supervisor_restarts(0, SIGSEGV, may_pass));
        assert_true(fedge_supervisor_restarts(FEDGE_EXIT_FAILURE, 0, may_pass));
        assert_true(fedge_supervisor_restarts(FEDGE_EXIT_GPU, 0, may_pass));
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            assert_false(fedge_supervisor_restarts(others[i], 0, may_pass));
        /* What a process that fell had of a GPU may be free a little later. */
        assert_int_equal(fedge_supervisor_restarts(FEDGE_EXIT_GPU_MEMORY, 0, may_pass), may_pass);
    }
}

static void pauses_grow_until_it_is_given_up(void **state)
{
    (void)state;
    int64_t last = 0;
    for (uint32_t i = 0; i < FEDGE_SUPERVISOR_MAX_QUICK; i++) {
        const int64_t pause = fedge_supervisor_pause_ms(i);
        assert_true(pause > last && pause <= FEDGE_SUPERVISOR_MAX_PAUSE_MS);
        last = pause;
    }
    assert_int_equal(fedge_supervisor_pause_ms(0), 1000);
    assert_true(fedge_supervisor_pause_ms(FEDGE_SUPERVISOR_MAX_QUICK) < 0);
    assert_true(fedge_supervisor_pause_ms(UINT32_MAX) < 0);
}

/* The process that follows one that was killed knows which run that one had opened. */
static void the_next_process_knows_the_run(void **state)
{
    (void)state;
    static const char RUN_ID[FEDGE_RUN_ID_TEXT] = "0123456789abcdef0123456789abcdef";
    fedge_supervised self;
    int code = -1;
    if (fedge_supervise(NULL, &self, &code)) {
        if (self.restarts == 0) {
            const struct timespec later = {.tv_nsec =
                                               50000000}; /* the other process waits by then */
            (void)nanosleep(&later, NULL);
            fedge_supervised_opened(&self, RUN_ID);
            (void)raise(SIGKILL);
        }
        const bool known = strcmp(self.run_id, RUN_ID) == 0 && !self.draining;
        _exit(known ? FEDGE_EXIT_OK : FEDGE_EXIT_STATE);
    }
    assert_int_equal(code, FEDGE_EXIT_OK);
    assert_int_equal(self.restarts, 1);
}

/* And which GPUs have been lost before, in each of those before it. */
static void the_next_process_knows_the_lost_gpus(void **state)
{
    (void)state;
    fedge_supervised self;
    int code = -1;
    if (fedge_supervise(NULL, &self, &code)) {
        const uint64_t known = atomic_load(&self.lost_gpus->numbers);
        if (self.restarts == 0) {
            (void)atomic_fetch_or(&self.lost_gpus->numbers, 1ULL << 63 | 1);
            _exit(known == 0 ? FEDGE_EXIT_GPU : FEDGE_EXIT_STATE);
        }
        _exit(known == (1ULL << 63 | 1) ? FEDGE_EXIT_OK : FEDGE_EXIT_STATE);
    }
    assert_int_equal(code, FEDGE_EXIT_OK);
    assert_int_equal(self.restarts, 1);
}

/* Only what is the first to ask a GPU for memory, and ends at once, has too small a GPU: another
 * one may ask for what the process before it has not given back yet. */
static void a_gpu_may_have_memory_later(void **state)
{
    (void)state;
    const struct {
        int codes[3];
        uint64_t life_ms;
        uint64_t restarts;
    } cases[] = {
        {{FEDGE_EXIT_GPU_MEMORY, FEDGE_EXIT_STATE}, FEDGE_SUPERVISOR_QUICK_MS - 1, 0},
        {{FEDGE_EXIT_GPU_MEMORY, FEDGE_EXIT_OK}, FEDGE_SUPERVISOR_QUICK_MS, 1},
        {{FEDGE_EXIT_GPU, FEDGE_EXIT_GPU_MEMORY, FEDGE_EXIT_OK}, 0, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_supervised self;
        int code = -1;
        life_ms = cases[i].life_ms;
        if (fedge_supervise(NULL, &self, &code))
            _exit(self.restarts < 3 ? cases[i].codes[self.restarts] : FEDGE_EXIT_STATE);
        assert_int_equal(self.restarts, cases[i].restarts);
        assert_int_equal(code, cases[i].codes[cases[i].restarts]);
    }
    life_ms = 0;
}

/* And the pauses between its starts grow. */
static void what_always_ends_at_once_is_given_up(void **state)
{
    (void)state;
    fedge_supervised self;
    int code = -1;
    const uint64_t began_ms = clock_ms;
    if (fedge_supervise(NULL, &self, &code))
        _exit(FEDGE_EXIT_FAILURE);
    assert_int_equal(code, FEDGE_EXIT_FAILURE);
    assert_int_equal(self.restarts, FEDGE_SUPERVISOR_MAX_QUICK - 1);
    uint64_t pauses_ms = 0;
    for (uint32_t i = 1; i < FEDGE_SUPERVISOR_MAX_QUICK; i++)
        pauses_ms += (uint64_t)fedge_supervisor_pause_ms(i);
    assert_int_equal(clock_ms - began_ms, pauses_ms);
}

static bool may_change(void *user)
{
    return --*(int *)user == 0;
}

/* mpirun ends with a failure's code when it is told to stop; the supervisor does not, and passes
 * the codes on that tell what must be mended. */
static void a_stop_of_a_launcher_is_no_failure(void **state)
{
    (void)state;
    const int codes[][2] = {{FEDGE_EXIT_FAILURE, FEDGE_EXIT_OK},
                            {FEDGE_EXIT_DISK, FEDGE_EXIT_DISK}};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        fedge_supervised self;
        int code = -1;
        const pid_t supervisor = getpid();
        const fedge_launcher launcher = {may_change, NULL};
        if (fedge_supervise(&launcher, &self, &code)) {
            const struct timespec later = {.tv_nsec = 50000000};
            (void)signal(SIGTERM, SIG_IGN);
            (void)kill(supervisor, SIGTERM); /* which passes it on */
            (void)nanosleep(&later, NULL);
            _exit(codes[i][0]);
        }
        assert_int_equal(code, codes[i][1]);
    }
}
/* The first HUP finds the hosts' file wrong. The second one drains, and the third is one too many.
 */
static void a_hang_up_drains_a_launcher_and_starts_it_again(void **state)
{
    (void)state;
    int hang_ups = 2;
    const fedge_launcher launcher = {may_change, &hang_ups};
    const pid_t supervisor = getpid();
    fedge_supervised self;
    int code = -1;
    if (fedge_supervise(&launcher, &self, &code)) {
        sigset_t drain;
        sigemptyset(&drain);
        sigaddset(&drain, SIGUSR1);
        (void)sigprocmask(SIG_BLOCK, &drain, NULL);
        const struct timespec soon = {.tv_nsec = 50000000}, late = {.tv_sec = 30};
        for (int i = 0; i < 3 && self.restarts == 0; i++) {
            (void)kill(supervisor, SIGHUP);
            const bool drained =
                __real_sigtimedwait(&drain, NULL, i == 1 ? &late : &soon) == SIGUSR1;
            if (drained != (i == 1))
                _exit(FEDGE_EXIT_STATE);
        }
        _exit(self.draining ? FEDGE_EXIT_STATE : FEDGE_EXIT_OK);
    }
    assert_int_equal(code, FEDGE_EXIT_OK);
    assert_int_equal(self.restarts, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_a_new_start_mends_is_started_again),
        cmocka_unit_test(pauses_grow_until_it_is_given_up),
        cmocka_unit_test(the_next_process_knows_the_run),
        cmocka_unit_test(the_next_process_knows_the_lost_gpus),
        cmocka_unit_test(a_gpu_may_have_memory_later),
        cmocka_unit_test(what_always_ends_at_once_is_given_up),
        cmocka_unit_test(a_stop_of_a_launcher_is_no_failure),
        cmocka_unit_test(a_hang_up_drains_a_launcher_and_starts_it_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
