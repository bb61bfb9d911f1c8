#define _GNU_SOURCE /* pipe2, POSIX_SPAWN_SETSIGDEF */

#include "aggregator/rounds/python_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge/core/bytes.h"

#define MODULE "fedge.strategy_worker"
#define MAX_ANSWER ((size_t)1 << 20) /* bytes of an answer */
#define START_S 120u                 /* least time limit of a start, which imports packages */
#define LOOK_MS 200                  /* between two looks at a silent child */
#define LINE 256
#define DESCRIBE "{\"do\":\"describe\"}"

struct fedge_python {
    char script[FEDGE_OS_MAX_PATH];
    char *interpreter;
    uint32_t timeout_s, limit_s; /* the given limit, and that of the last exchange */
    pthread_mutex_t mutex;       /* guards all below */
    pid_t pid;                   /* 0: no child */
    int socket, log;             /* −1: none */
    uint64_t num_starts;         /* number of the present child, from 1 */
    uint64_t num_memories;
    char ending[64];  /* how the last child ended */
    char line[LINE];  /* what the child prints, up to the line's end */
    size_t line_size; /* bytes of [line] */
    char said[LINE];  /* its last line */
    fedge_buffer answer;
    char *described; /* text of the description; NULL before the first start */
    cJSON *description;
};

/* ---- what the child prints ------------------------------------------------------------------- */

static void take_printed(fedge_python *python, const char *bytes, size_t size)
{
    /* To standard error as it is: scripts print for those who run the program. */
    (void)fwrite(bytes, 1, size, stderr);
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '\n' && python->line_size + 1 < LINE) {
            python->line[python->line_size++] = bytes[i];
        } else if (bytes[i] == '\n' && python->line_size > 0) {
            python->line[python->line_size] = '\0';
            memcpy(python->said, python->line, LINE);
            python->line_size = 0;
        }
    }
}

/* Forwards all that is there. */
static void read_printed(fedge_python *python)
{
    char bytes[4096];
    ssize_t got = 0;
    while (python->log >= 0 && (got = read(python->log, bytes, sizeof(bytes))) > 0)
        take_printed(python, bytes, (size_t)got);
    if (python->log >= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        (void)close(python->log);
        python->log = -1;
    }
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Kills the child and its children, and notes how it ended. */
static void stop(fedge_python *python)
{
    int how = 0;
    if (python->pid > 0) {
        /* Without a wait before, the number is still this child's. A child that has ended keeps
         * its own status. */
        (void)kill(-python->pid, SIGKILL);
        (void)kill(python->pid, SIGKILL);
        while (waitpid(python->pid, &how, 0) < 0 && errno == EINTR) {
        }
        python->pid = 0;
        (void)snprintf(python->ending, sizeof(python->ending),
                       WIFSIGNALED(how) ? "killed by signal %d" : "exit code %d",
                       WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    }
    read_printed(python);
    if (python->socket >= 0)
        (void)close(python->socket);
    if (python->log >= 0)
        (void)close(python->log);
    python->socket = python->log = -1;
}

/* The child has its own process group, so that Ctrl-C reaches this program alone, which ends it. */
static int spawn(fedge_python *python, int input, int output)
{
    char *const arguments[] = {python->interpreter, "-m", MODULE, python->script, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    (void)sigemptyset(&none);
    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGPIPE);
    (void)sigaddset(&defaults, SIGINT);
    (void)sigaddset(&defaults, SIGTERM);
    (void)sigaddset(&defaults, SIGHUP);
    if (posix_spawn_file_actions_init(&files) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    int failed = posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && failed == 0; fd++)
        failed = posix_spawn_file_actions_adddup2(&files, output, fd);
    if (failed == 0) {
        failed = posix_spawnp(&python->pid, python->interpreter, &files, &attributes, arguments,
                              environ);
    }
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return failed;
}

static fedge_status start_child(fedge_python *python, fedge_error *err)
{
    int sockets[2], log[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return fedge_fail_errno(err, errno, "--strategy-plugin %s: no socket", python->script);
    if (pipe2(log, O_CLOEXEC) != 0) {
        const int failed = errno;
        (void)close(sockets[0]);
        (void)close(sockets[1]);
        return fedge_fail_errno(err, failed, "--strategy-plugin %s: no pipe", python->script);
    }
    const int failed = spawn(python, sockets[1], log[1]);
    (void)close(sockets[1]);
    (void)close(log[1]);
    python->socket = sockets[0];
    python->log = log[0];
    (void)fcntl(python->socket, F_SETFL, O_NONBLOCK);
    (void)fcntl(python->log, F_SETFL, O_NONBLOCK);
    python->num_starts++;
    python->line_size = 0;
    python->said[0] = '\0';
    if (failed == 0)
        return FEDGE_OK;
    python->pid = 0;
    stop(python);
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "--strategy-plugin %s: cannot run %s (%s): install Python 3, or set "
                      "FEDGE_PYTHON to its interpreter",
                      python->script, python->interpreter, strerror(failed));
}

/* ---- one exchange ---------------------------------------------------------------------------- */

typedef enum exchange { ANSWERED, DIED, TOO_LATE } exchange;

/* Sends up to [size] bytes; with the descriptor [file], unless it is −1, one of them. Returns what
 * send does. */
static ssize_t send_some(int socket, const char *bytes, size_t size, int file)
{
    if (file < 0)
        return send(socket, bytes, size, MSG_NOSIGNAL);
    char control[CMSG_SPACE(sizeof(int))] = {0}, first = bytes[0];
    struct iovec part = {.iov_base = &first, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &file, sizeof(file));
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* Waits for the socket, and forwards what the child prints meanwhile. */
static void wait_for(fedge_python *python, short events)
{
    struct pollfd both[2] = {{.fd = python->socket, .events = events},
                             {.fd = python->log, .events = POLLIN}};
    if (poll(both, python->log >= 0 ? 2 : 1, LOOK_MS) > 0 && both[1].revents != 0)
        read_printed(python);
}

static bool would_block(ssize_t result)
{
    return result < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Has it ended while others, such as its own children, hold its end of the socket? */
static bool has_ended(const fedge_python *python)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)python->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

static exchange send_line(fedge_python *python, const char *text, int file, uint64_t end_ms)
{
    const size_t size = strlen(text) + 1;
    for (size_t at = 0; at < size;) {
        const bool last = at + 1 == size;
        const ssize_t sent = send_some(python->socket, last ? "\n" : text + at,
                                       last ? 1 : size - 1 - at, at == 0 ? file : -1);
        if (sent < 0 && !would_block(sent))
            return DIED;
        if (sent < 0 && fedge_os_monotonic_ms() >= end_ms)
            return TOO_LATE;
        if (sent < 0)
            wait_for(python, POLLOUT);
        else
            at += (size_t)sent;
    }
    return ANSWERED;
}

/* Reads a line into python->answer, without its end. */
static exchange read_line(fedge_python *python, uint64_t end_ms)
{
    fedge_buffer *answer = &python->answer;
    answer->size = 0;
    for (;;) {
        uint8_t *space = NULL;
        if (fedge_buffer_reserve(answer, 4096, &space, NULL) != FEDGE_OK)
            return DIED;
        const ssize_t got = recv(python->socket, space, 4096, 0);
        if (got == 0 || (got < 0 && !would_block(got)))
            return DIED;
        if (got > 0) {
            answer->size += (size_t)got;
            if (answer->data[answer->size - 1] == '\n') {
                answer->size--;
                return ANSWERED;
            }
        } else if (has_ended(python)) {
            return DIED;
        } else if (fedge_os_monotonic_ms() >= end_ms) {
            return TOO_LATE;
        } else {
            wait_for(python, POLLIN);
        }
    }
}

static exchange ask_once(fedge_python *python, const char *text, int file)
{
    const bool starts = strcmp(text, DESCRIBE) == 0;
    python->limit_s = starts && python->timeout_s < START_S ? START_S : python->timeout_s;
    const uint64_t end_ms = fedge_os_monotonic_ms() + (uint64_t)python->limit_s * 1000;
    const exchange sent = send_line(python, text, file, end_ms);
    const exchange ended = sent == ANSWERED ? read_line(python, end_ms) : sent;
    if (ended != ANSWERED)
        stop(python);
    else
        read_printed(python);
    return ended;
}

/* Describes the end of a child that [stop] has ended, as the end of a sentence. */
static fedge_status fail_ended(const fedge_python *python, exchange ended, fedge_status status,
                               const char *name, fedge_error *err)
{
    char why[128];
    if (ended == TOO_LATE) {
        (void)snprintf(why, sizeof(why), "did not end within %u s (--strategy-timeout)",
                       (unsigned)python->limit_s);
    } else {
        (void)snprintf(why, sizeof(why), "ended Python (%s)", python->ending);
    }
    return fedge_fail(err, status, "--strategy-plugin %s: %s %s%s%s", python->script, name, why,
                      python->said[0] != '\0' ? ": " : "", python->said);
}

/* Reads the answer in python->answer. The caller deletes *answer. */
static fedge_status read_answer(const fedge_python *python, const char *name, fedge_status status,
                                cJSON **answer, fedge_error *err)
{
    *answer = cJSON_ParseWithLength((const char *)python->answer.data, python->answer.size);
    const cJSON *failed = fedge_json_get(*answer, "error");
    if (cJSON_IsObject(*answer) && !failed)
        return FEDGE_OK;
    (void)fedge_fail(err, status, "--strategy-plugin %s: %s failed: %s", python->script, name,
                     cJSON_IsString(failed) ? failed->valuestring : "its answer is not JSON");
    cJSON_Delete(*answer);
    *answer = NULL;
    return status;
}

/* Starts a child if there is none. A later child has to describe the same script. */
static fedge_status ensure_child(fedge_python *python, exchange *ended, fedge_error *err)
{
    static const char NAME[] = "the start";
    *ended = ANSWERED;
    if (python->pid > 0)
        return FEDGE_OK;
    FEDGE_TRY(start_child(python, err));
    *ended = ask_once(python, DESCRIBE, -1);
    if (*ended != ANSWERED)
        return fail_ended(python, *ended, FEDGE_NOT_FOUND, NAME, err);
    cJSON *description = NULL;
    FEDGE_TRY(read_answer(python, NAME, FEDGE_INVALID_ARGUMENT, &description, err));
    char *text = cJSON_PrintUnformatted(description);
    if (!text) {
        cJSON_Delete(description);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a description");
    }
    if (!python->described) {
        python->described = text;
        python->description = description;
        return FEDGE_OK;
    }
    const bool same = strcmp(text, python->described) == 0;
    free(text);
    cJSON_Delete(description);
    return same ? FEDGE_OK
                : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                             "--strategy-plugin %s has changed since this program began: put the "
                             "file back, or start the program again",
                             python->script);
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_status fedge_python_new(const char *script, uint32_t timeout_s, fedge_python **python,
                              fedge_error *err)
{
    *python = NULL;
    fedge_python *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plugin");
    char *named = getenv("FEDGE_PYTHON");
    made->interpreter = named && named[0] != '\0' ? named : "python3";
    made->timeout_s = timeout_s;
    made->socket = made->log = -1;
    fedge_buffer_init(&made->answer, MAX_ANSWER);
    (void)pthread_mutex_init(&made->mutex, NULL);
    exchange ended = ANSWERED;
    fedge_status status =
        snprintf(made->script, sizeof(made->script), "%s", script) < (int)sizeof(made->script)
            ? ensure_child(made, &ended, err)
            : fedge_fail(err, FEDGE_TOO_BIG, "--strategy-plugin: the path is too long");
    if (ended == DIED && strstr(made->said, "No module named")) {
        status = fedge_fail(err, FEDGE_NOT_FOUND,
                            "--strategy-plugin %s: %s lacks the package fedge (%s): pip install "
                            "it there, or set FEDGE_PYTHON to an interpreter that has it",
                            script, made->interpreter, made->said);
    }
    if (status != FEDGE_OK) {
        fedge_python_free(made);
        return status;
    }
    *python = made;
    return FEDGE_OK;
}

void fedge_python_free(fedge_python *python)
{
    if (!python)
        return;
    stop(python);
    fedge_buffer_fini(&python->answer);
    (void)pthread_mutex_destroy(&python->mutex);
    cJSON_Delete(python->description);
    cJSON_free(python->described);
    free(python);
}

const cJSON *fedge_python_description(const fedge_python *python)
{
    return python->description;
}

/* ---- memory of both processes ---------------------------------------------------------------- */

fedge_status fedge_python_memory_init(fedge_python_memory *memory, fedge_python *python,
                                      size_t size, char *layout, fedge_error *err)
{
    *memory = (fedge_python_memory){.file.fd = -1, .size = size, .layout = layout};
    if (!layout)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a layout");
    FEDGE_TRY(fedge_os_open_shared(&memory->file, size, err));
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file.fd, 0);
    if (mapped == MAP_FAILED) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "--strategy-plugin %s: no %zu bytes of memory to share: %s",
                          python->script, size, strerror(errno));
    }
    memory->data = mapped;
    memory->owner = python;
    (void)pthread_mutex_lock(&python->mutex);
    memory->number = ++python->num_memories;
    (void)pthread_mutex_unlock(&python->mutex);
    return FEDGE_OK;
}

/* Lets the child unmap it. If that fails the next request finds out. */
static void unmap(fedge_python *python, const fedge_python_memory *memory)
{
    char text[64];
    (void)pthread_mutex_lock(&python->mutex);
    if (python->pid > 0 && memory->mapped_by == python->num_starts) {
        (void)snprintf(text, sizeof(text), "{\"do\":\"unmap\",\"memory\":%" PRIu64 "}",
                       memory->number);
        (void)ask_once(python, text, -1);
    }
    (void)pthread_mutex_unlock(&python->mutex);
}

void fedge_python_memory_fini(fedge_python_memory *memory)
{
    if (memory->owner)
        unmap(memory->owner, memory);
    if (memory->data)
        (void)munmap(memory->data, memory->size);
    if (memory->layout && memory->file.fd >= 0)
        fedge_os_close(&memory->file);
    free(memory->layout);
    *memory = (fedge_python_memory){.file.fd = -1};
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Has the present child map the memory. */
static exchange map(fedge_python *python, fedge_python_memory *memory)
{
    fedge_buffer text;
    if (memory->mapped_by == python->num_starts)
        return ANSWERED;
    fedge_buffer_init(&text, SIZE_MAX / 2);
    exchange ended = DIED;
    if (fedge_buffer_printf(&text, NULL, "{\"do\":\"map\",\"memory\":%" PRIu64 ",\"layout\":",
                            memory->number) == FEDGE_OK &&
        fedge_buffer_append(&text, memory->layout, strlen(memory->layout), NULL) == FEDGE_OK &&
        fedge_buffer_printf(&text, NULL, "}") == FEDGE_OK)
        ended = ask_once(python, (const char *)text.data, memory->file.fd);
    fedge_buffer_fini(&text);
    memory->mapped_by = ended == ANSWERED ? python->num_starts : 0;
    return ended;
}

static fedge_status attempt(fedge_python *python, const fedge_python_request *request,
                            exchange *ended, fedge_error *err)
{
    FEDGE_TRY(ensure_child(python, ended, err));
    *ended = map(python, request->memory);
    if (*ended == ANSWERED) {
        request->give(request->user);
        *ended = ask_once(python, request->text, -1);
    }
    if (*ended != ANSWERED)
        return fail_ended(python, *ended, FEDGE_INTERNAL, request->name, err);
    cJSON *answer = NULL;
    FEDGE_TRY(read_answer(python, request->name, FEDGE_INTERNAL, &answer, err));
    const fedge_status status = request->take(request->user, answer, err);
    cJSON_Delete(answer);
    return status;
}

fedge_status fedge_python_ask(fedge_python *python, const fedge_python_request *request,
                              fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    exchange ended = DIED;
    (void)pthread_mutex_lock(&python->mutex);
    for (int i = 0; i < FEDGE_PYTHON_ATTEMPTS && ended != ANSWERED; i++) {
        status = attempt(python, request, &ended, err);
        if (ended != ANSWERED && err && i + 1 < FEDGE_PYTHON_ATTEMPTS)
            (void)fprintf(stderr, "%s: it is started again\n", err->message);
    }
    (void)pthread_mutex_unlock(&python->mutex);
    return status;
}
