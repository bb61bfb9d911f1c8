#define _POSIX_C_SOURCE 200809L /* fork, kill, waitpid */
#include "aggregator/simulate/cohort/trainer_process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "edge/core/os.h"
#include "edge/core/version.h"
#include "edge/plan/client_hooks.h"
#include "edge/wire/protocol.h"

#define WAIT_MS 100   /* between two looks at an interruption */
#define GRACE_MS 1000 /* time of a process to end by itself, and then by SIGTERM */

extern char **environ;

/* ---- starting -------------------------------------------------------------------------------- */

/* The environment with the number of the channel; free the array alone. */
static char **make_environment(char *entry)
{
    const size_t name = strlen(FEDGE_SIMULATED_CHANNEL "=");
    size_t count = 0, num = 0;
    while (environ[count])
        count++;
    char **fresh = calloc(count + 2, sizeof(*fresh));
    for (size_t i = 0; fresh && i < count; i++) {
        if (strncmp(environ[i], FEDGE_SIMULATED_CHANNEL "=", name) != 0)
            fresh[num++] = environ[i];
    }
    if (fresh)
        fresh[num] = entry;
    return fresh;
}

/* In the child, between fork and exec. Its own process group, so that Ctrl-C reaches the simulator
 * alone, which then ends its trainers. */
static void become(const char *command, char **environment, int64_t parent, int channel)
{
    char shell[] = "sh", option[] = "-c";
    char *arguments[] = {shell, option, (char *)(uintptr_t)command, NULL};
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t none;
    (void)sigemptyset(&none);
    /* The thread that started it may block signals (threads/thread.h). */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0);
    fedge_os_end_with_parent(parent);
    (void)sigaction(SIGPIPE, &by_default, NULL);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
    fedge_os_channel_inherit(channel);
    /* Results are on the simulator's standard output. */
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    (void)execve("/bin/sh", arguments, environment);
    _exit(127);
}

static fedge_status spawn(fedge_trainer_process *process, const char *command, fedge_error *err)
{
    int ends[2];
    char entry[64];
    FEDGE_TRY(fedge_os_channel_new(ends, err));
    (void)snprintf(entry, sizeof(entry), FEDGE_SIMULATED_CHANNEL "=%d", ends[1]);
    char **environment = make_environment(entry);
    const pid_t parent = getpid();
    const pid_t pid = environment ? fork() : -1;
    const int error = errno;
    if (pid == 0)
        become(command, environment, (int64_t)parent, ends[1]);
    free(environment);
    fedge_os_channel_close(ends[1]);
    process->channel = ends[0];
    if (pid < 0)
        return fedge_fail_errno(err, error, "cannot start the trainer '%.100s'", command);
    (void)setpgid(pid, pid); /* in case the child has not done it yet */
    process->pid = pid;
    return FEDGE_OK;
}

fedge_status fedge_trainer_process_start(fedge_trainer_process *process,
                                         const fedge_trainers *trainers, uint32_t index,
                                         fedge_error *err)
{
    *process = (fedge_trainer_process){.index = index, .channel = -1, .memory = -1};
    if (trainers->command)
        return spawn(process, trainers->command, err);
    process->channel = trainers->channels[index];
    return FEDGE_OK;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void sleep_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

/* Waits at most GRACE_MS for the end; false: it goes on. */
static bool ends(fedge_trainer_process *process, int *how)
{
    for (int waited = 0; waited < GRACE_MS; waited += 10) {
        const pid_t pid = waitpid((pid_t)process->pid, how, WNOHANG);
        if (pid != 0) {
            process->pid = 0;
            return pid > 0;
        }
        sleep_ms(10);
    }
    return false;
}

void fedge_trainer_process_end(fedge_trainer_process *process)
{
    const pid_t group = (pid_t)process->pid;
    int how = 0;
    fedge_os_shared_unmap(process->values, process->layout.bytes);
    fedge_os_channel_close(process->memory);
    /* The program may have its end more than once, so closing ours would not be enough. */
    if (process->channel >= 0)
        fedge_os_channel_end(process->channel, true);
    fedge_os_channel_close(process->channel);
    if (group > 0 && !ends(process, &how)) {
        (void)kill(-group, SIGTERM);
        if (!ends(process, &how)) {
            (void)kill(-group, SIGKILL);
            (void)waitpid(group, &how, 0);
        }
    }
    *process = (fedge_trainer_process){.channel = -1, .memory = -1};
}

/* Says how a process ended whose channel is closed. */
static fedge_status fail_ended(fedge_trainer_process *process, fedge_error *err)
{
    int how = 0;
    const unsigned number = process->index + 1;
    if (process->pid <= 0 || !ends(process, &how)) {
        return fedge_fail(err, FEDGE_IO,
                          "trainer %u has closed its channel: see what it has written above",
                          number);
    }
    if (WIFSIGNALED(how)) {
        return fedge_fail(err, FEDGE_IO, "trainer %u was ended by signal %d%s", number,
                          WTERMSIG(how),
                          WTERMSIG(how) == SIGKILL ? ", perhaps for lack of memory: use fewer "
                                                     "--threads"
                                                   : "");
    }
    if (WEXITSTATUS(how) == 0) {
        return fedge_fail(err, FEDGE_IO,
                          "trainer %u has ended without an error before the simulation: its "
                          "program has to run a client, in Python by app.run()",
                          number);
    }
    return fedge_fail(err, FEDGE_IO,
                      "trainer %u has ended with exit code %d: see what it has written above",
                      number, WEXITSTATUS(how));
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool is_asked(const fedge_trainer_calls *calls)
{
    return calls->cancel && calls->cancel(calls->user);
}

/* Waits until something arrives. FEDGE_CANCELLED, a second after the trainer was told. */
static fedge_status await(fedge_trainer_process *process, const fedge_trainer_calls *calls,
                          fedge_error *err)
{
    while (!fedge_os_channel_wait(process->channel, WAIT_MS)) {
        if (!is_asked(calls))
            continue;
        fedge_os_channel_end(process->channel, false);
        (void)fedge_os_channel_wait(process->channel, GRACE_MS);
        return fedge_fail(err, FEDGE_CANCELLED, "interrupted");
    }
    return FEDGE_OK;
}

/* A failure of the channel, in words. */
static fedge_status explain(fedge_trainer_process *process, fedge_status status,
                            const fedge_trainer_calls *calls, fedge_error *err)
{
    if (status == FEDGE_OK || status == FEDGE_CANCELLED || status == FEDGE_NO_MEMORY)
        return status;
    if (is_asked(calls))
        return fedge_fail(err, FEDGE_CANCELLED, "interrupted");
    return status == FEDGE_CLOSED
               ? fail_ended(process, err)
               : fedge_error_prefix(err, FEDGE_IO, "trainer %u", (unsigned)process->index + 1);
}

/* Answers a put or get of the trainer. */
static fedge_status serve_values(fedge_trainer_process *process,
                                 const fedge_simulated_message *asked, const void *data,
                                 uint32_t client, fedge_trainer_values *values, fedge_error *err)
{
    fedge_error why = {.message = ""};
    void *value = NULL;
    size_t size = 0;
    fedge_status status =
        asked->kind == FEDGE_SIMULATED_PUT
            ? fedge_trainer_values_put(values, client, asked->key, data, (size_t)asked->size, &why)
            : fedge_trainer_values_get(values, client, asked->key, &value, &size, &why);
    const fedge_simulated_message answer = {.kind = FEDGE_SIMULATED_VALUE,
                                            .status = (int32_t)status,
                                            .size =
                                                status == FEDGE_OK ? size : strlen(why.message)};
    status = fedge_simulated_send(process->channel, &answer,
                                  status == FEDGE_OK ? value : (const void *)why.message, -1, err);
    free(value);
    return status;
}

static double metric_of(const fedge_simulated_metric *metrics, uint64_t num, const char *name)
{
    for (uint64_t i = 0; i < num; i++) {
        if (strncmp(metrics[i].name, name, sizeof(metrics[i].name)) == 0)
            return metrics[i].value;
    }
    return NAN;
}

static void take_report(const fedge_simulated_message *result, const void *data,
                        fedge_trainer_report *report)
{
    const fedge_simulated_metric *metrics = data;
    const uint64_t num = result->size / sizeof(*metrics);
    *report = (fedge_trainer_report){.num_examples = result->num_examples,
                                     .num_steps = result->num_steps,
                                     .chosen = result->chosen,
                                     .loss = metric_of(metrics, num, "loss"),
                                     .accuracy = metric_of(metrics, num, "accuracy"),
                                     .start_loss = metric_of(metrics, num, FEDGE_START_LOSS)};
}

/* A trainer's status, which is no failure of this machine's, the run or the channel. */
static fedge_status decline(const fedge_simulated_message *result, const void *data,
                            fedge_error *err)
{
    const bool known = result->status > FEDGE_OK && result->status < FEDGE_STATUS_COUNT;
    const fedge_status status = known ? (fedge_status)result->status : FEDGE_INTERNAL;
    const bool own = status == FEDGE_UNSUPPORTED || status == FEDGE_INVALID_ARGUMENT ||
                     status == FEDGE_NOT_FINITE || status == FEDGE_DENIED ||
                     status == FEDGE_NOT_FOUND;
    return fedge_fail(err, own ? status : FEDGE_INTERNAL, "%.*s", FEDGE_ERROR_MESSAGE_SIZE - 1,
                      data ? (const char *)data : "the trainer has failed");
}

/* Sends a message and serves the trainer until its result. */
static fedge_status exchange(fedge_trainer_process *process, const fedge_simulated_message *message,
                             const void *plan, const fedge_trainer_calls *calls,
                             fedge_trainer_report *report, bool *declined, fedge_error *err)
{
    fedge_simulated_message answer;
    fedge_status status;
    void *data = NULL;
    *declined = false;
    FEDGE_TRY(
        fedge_simulated_send(process->channel, message, plan, plan ? process->memory : -1, err));
    for (;;) {
        FEDGE_TRY(await(process, calls, err));
        FEDGE_TRY(fedge_simulated_receive(process->channel, &answer, FEDGE_SIMULATED_MAX_VALUE,
                                          &data, NULL, err));
        if (answer.kind == FEDGE_SIMULATED_RESULT) {
            *declined = answer.status != FEDGE_OK;
            status = *declined ? decline(&answer, data, err) : FEDGE_OK;
            if (!*declined)
                take_report(&answer, data, report);
            free(data);
            return status;
        }
        status =
            !calls->stored ||
                    (answer.kind != FEDGE_SIMULATED_PUT && answer.kind != FEDGE_SIMULATED_GET)
                ? fedge_fail(err, FEDGE_CORRUPT, "a message of kind %u", answer.kind)
                : serve_values(process, &answer, data, message->client_index, calls->stored, err);
        free(data);
        FEDGE_TRY(status);
    }
}

fedge_status fedge_trainer_process_call(fedge_trainer_process *process,
                                        const fedge_simulated_message *message,
                                        const fedge_trainer_calls *calls,
                                        fedge_trainer_report *report, bool *declined,
                                        fedge_error *err)
{
    const fedge_status status = exchange(process, message, NULL, calls, report, declined, err);
    return *declined ? status : explain(process, status, calls, err);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static fedge_status greet(fedge_trainer_process *process, const fedge_trainer_calls *calls,
                          fedge_error *err)
{
    fedge_simulated_hello hello;
    FEDGE_TRY(await(process, calls, err));
    FEDGE_TRY(fedge_os_channel_receive(process->channel, &hello, sizeof(hello), NULL, err));
    hello.release[sizeof(hello.release) - 1] = '\0';
    if (memcmp(hello.magic, FEDGE_SIMULATED_MAGIC, sizeof(hello.magic)) != 0)
        return fedge_fail(err, FEDGE_CORRUPT, "what it says is not libfedge_client's");
    if (strcmp(hello.release, FEDGE_VERSION) != 0) {
        return fedge_fail(
            err, FEDGE_MISMATCH,
            "its libfedge_client is %.32s, and fedge-simulate is %s: take one release",
            hello.release, FEDGE_VERSION);
    }
    return FEDGE_OK;
}

static fedge_status share_memory(fedge_trainer_process *process, const fedge_plan *plan,
                                 fedge_error *err)
{
    void *mapped = NULL;
    process->layout = fedge_simulated_layout_of(plan);
    FEDGE_TRY(fedge_os_shared_new(process->layout.bytes, &process->memory, err));
    FEDGE_TRY(fedge_os_shared_map(process->memory, process->layout.bytes, &mapped, err));
    process->values = mapped;
    return FEDGE_OK;
}

fedge_status fedge_trainer_process_plan(fedge_trainer_process *process, const fedge_plan *plan,
                                        const fedge_trainer_calls *calls, fedge_error *err)
{
    fedge_trainer_report unused;
    bool declined = false;
    char *text = NULL;
    size_t size = 0;
    FEDGE_TRY(share_memory(process, plan, err));
    FEDGE_TRY(explain(process, greet(process, calls, err), calls, err));
    FEDGE_TRY(fedge_plan_write(plan, &text, &size, err));
    const fedge_simulated_message message = {.kind = FEDGE_SIMULATED_PLAN, .size = size};
    const fedge_status status = exchange(process, &message, text, calls, &unused, &declined, err);
    free(text);
    return declined ? fedge_error_prefix(err, status, "the trainer declines the job")
                    : explain(process, status, calls, err);
}
