#define _GNU_SOURCE /* processes and signals are POSIX, not C11 */

#include "aggregator/program/supervisor.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/run/exit_codes.h"
#include "edge/core/os.h"

#define KILLED_BY 128 /* exit code of shells for a signal is this plus its number */

bool fedge_supervisor_restarts(int exit_code, int signal, bool may_pass)
{
    if (signal)
        return true;
    /* A driver may free a process's GPU memory only some time after its end. */
    if (exit_code == FEDGE_EXIT_GPU_MEMORY)
        return may_pass;
    /* mpirun's exit code includes a rank's signal. */
    return exit_code > KILLED_BY || exit_code == FEDGE_EXIT_FAILURE || exit_code == FEDGE_EXIT_GPU;
}

int64_t fedge_supervisor_pause_ms(uint32_t num_quick)
{
    if (num_quick >= FEDGE_SUPERVISOR_MAX_QUICK)
        return -1;
    const int64_t pause = (int64_t)1000 << num_quick;
    return pause < FEDGE_SUPERVISOR_MAX_PAUSE_MS ? pause : FEDGE_SUPERVISOR_MAX_PAUSE_MS;
}

/* Waits for a signal: SIGCHLD, one to forward, or the end of [timeout_ms] (−1: none). */
static int await_signal(const sigset_t *signals, int64_t timeout_ms)
{
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                                     .tv_nsec = timeout_ms % 1000 * 1000000};
    int got;
    do {
        got = timeout_ms < 0 ? sigwaitinfo(signals, NULL) : sigtimedwait(signals, NULL, &timeout);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Requests by signals. */
typedef struct wishes {
    bool stop, drain;
    bool change; /* after draining, this child is followed by another */
} wishes;

static void note(wishes *wanted, int signal)
{
    wanted->stop = wanted->stop || signal == SIGTERM || signal == SIGINT;
    wanted->drain = wanted->drain || signal == SIGUSR1;
}

/* For the launcher of ranks, the first HUP is a drain. */
static int translate(int signal, const fedge_launcher *launcher, wishes *wanted)
{
    if (signal != SIGHUP || !launcher)
        return signal;
    if (wanted->change || !launcher->may_change(launcher->user))
        return 0;
    wanted->change = true;
    return SIGUSR1;
}

/* Waits for the child's end and forwards signals. */
static int await_child(pid_t child, const fedge_launcher *launcher, const sigset_t *signals,
                       wishes *wanted)
{
    int ended = 0;
    for (;;) {
        /* SIGCHLD is blocked and stays pending, so an end between this check and the wait is not
         * missed. */
        const pid_t got = waitpid(child, &ended, WNOHANG);
        if (got == child || (got < 0 && errno != EINTR))
            return ended;
        const int signal = await_signal(signals, -1);
        if (signal > 0 && signal != SIGCHLD) {
            note(wanted, signal);
            const int passed_on = translate(signal, launcher, wanted);
            if (passed_on > 0)
                (void)kill(child, passed_on);
        }
    }
}

/* Sleeps until the time is over or a signal requests the end. */
static void pause_for(int64_t pause_ms, const sigset_t *signals, wishes *wanted)
{
    const uint64_t end_ms = fedge_os_monotonic_ms() + (uint64_t)pause_ms;
    for (uint64_t now = fedge_os_monotonic_ms(); now < end_ms && !wanted->stop;
         now = fedge_os_monotonic_ms())
        note(wanted, await_signal(signals, (int64_t)(end_ms - now)));
}

static void say_ended(int code, int signal, int64_t pause_ms)
{
    char how[64];
    if (signal)
        snprintf(how, sizeof(how), "was killed by signal %d", signal);
    else
        snprintf(how, sizeof(how), "ended with code %d", code);
    if (pause_ms < 0) {
        fprintf(stderr,
                "fedge-aggregator: the supervised process %s, %d times in a row within %d s of its "
                "start; giving up\n",
                how, FEDGE_SUPERVISOR_MAX_QUICK, FEDGE_SUPERVISOR_QUICK_MS / 1000);
    } else {
        fprintf(stderr,
                "fedge-aggregator: the supervised process %s; starting it again in %lld s\n", how,
                (long long)(pause_ms / 1000));
    }
}

static void collect_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGCHLD);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
    sigaddset(signals, SIGUSR1);
}

/* Memory shared by the supervisor and all its children. */
typedef struct shared_page {
    char opened_run_id[FEDGE_RUN_ID_TEXT];
    fedge_lost_gpus lost_gpus;
} shared_page;

/* All 0; nothing is shared without memory. */
static void make_shared(fedge_supervised *self)
{
    shared_page *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return;
    self->opened_run_id = shared->opened_run_id;
    self->lost_gpus = &shared->lost_gpus;
}

void fedge_supervised_opened(fedge_supervised *self, const char run_id[FEDGE_RUN_ID_TEXT])
{
    if (self->opened_run_id)
        memcpy(self->opened_run_id, run_id, FEDGE_RUN_ID_TEXT);
}

/* Runs one child. Returns true in the child. */
static bool run_child(fedge_supervised *self, const fedge_launcher *launcher,
                      const sigset_t *signals, const sigset_t *before, wishes *wanted, int *ended)
{
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        /* If the supervisor is killed, no child may survive and hold the state's lock. */
        fedge_os_end_with_parent((int64_t)parent);
        /* Unblocks signals, which the supervisor has blocked. */
        (void)sigprocmask(SIG_SETMASK, before, NULL);
        if (self->opened_run_id)
            memcpy(self->run_id, self->opened_run_id, sizeof(self->run_id));
        self->draining = wanted->drain;
        return true;
    }
    if (child < 0) {
        fprintf(stderr, "fedge-aggregator: cannot start a process: %s\n", strerror(errno));
        wanted->stop = true;
        *ended = FEDGE_EXIT_FAILURE << 8; /* status from wait */
        return false;
    }
    *ended = await_child(child, launcher, signals, wanted);
    return false;
}

static void draw_number(char number[FEDGE_SUPERVISOR_NUMBER_TEXT])
{
    uint64_t drawn;
    fedge_error err;
    if (fedge_os_random(&drawn, sizeof(drawn), &err) != FEDGE_OK)
        drawn = fedge_os_monotonic_ms() ^ (uint64_t)getpid() << 40; /* it is no secret */
    snprintf(number, FEDGE_SUPERVISOR_NUMBER_TEXT, "%016" PRIx64, drawn);
}

bool fedge_supervise(const fedge_launcher *launcher, fedge_supervised *self, int *exit_code)
{
    sigset_t signals, before;
    wishes wanted = {0};
    *self = (fedge_supervised){0};
    make_shared(self);
    draw_number(self->number);
    collect_signals(&signals);
    /* Before the first child, so that no signal is lost between two of them. */
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    uint32_t num_quick = 0;
    for (;; self->restarts++) {
        const uint64_t started_ms = fedge_os_monotonic_ms();
        int ended = 0;
        if (run_child(self, launcher, &signals, &before, &wanted, &ended))
            return true;
        const int signal = WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
        *exit_code = signal ? KILLED_BY + signal : WEXITSTATUS(ended);
        const bool quick = fedge_os_monotonic_ms() - started_ms < FEDGE_SUPERVISOR_QUICK_MS;
        const bool fell =
            fedge_supervisor_restarts(*exit_code, signal, self->restarts > 0 || !quick);
        /* A requested stop has succeeded, whatever mpirun's exit code is. */
        if (launcher && wanted.stop && fell)
            *exit_code = FEDGE_EXIT_OK;
        const bool changes = wanted.change && !wanted.stop && !wanted.drain;
        wanted.change = false;
        if (changes && *exit_code == FEDGE_EXIT_OK) {
            fprintf(stderr, "fedge-aggregator: the ranks have drained; starting them again\n");
            continue;
        }
        if (wanted.stop || !fell)
            break;
        num_quick = quick ? num_quick + 1 : 0;
        const int64_t pause_ms = fedge_supervisor_pause_ms(num_quick);
        say_ended(*exit_code, signal, pause_ms);
        if (pause_ms < 0)
            break;
        pause_for(pause_ms, &signals, &wanted);
        if (wanted.stop) {
            *exit_code = FEDGE_EXIT_OK;
            break;
        }
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return false;
}
