#define _GNU_SOURCE /* processes, memfd_create */

#include "aggregator/program/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/program/hosts.h"
#include "edge/core/os.h"

#define POLL_NS 20000000 /* between two looks at probes that run */
#define GRACE_MS 2000u   /* for mpirun to end what it has started, before it is killed */

typedef struct probe {
    const char *line; /* in the file's text */
    size_t size;
    char name[FEDGE_HOSTS_MAX_NAME];
    pid_t pid; /* 0: it does not run */
    bool answered;
} probe;

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    (void)nanosleep(&pause, NULL);
}

static void become_probe(const char *name, pid_t parent)
{
    char host[FEDGE_HOSTS_MAX_NAME + 2];
    const int nowhere = open("/dev/null", O_RDWR);
    fedge_os_end_with_parent((int64_t)parent);
    (void)setpgid(0, 0); /* with what mpirun starts, to be ended together */
    for (int i = 0; i <= STDERR_FILENO; i++)
        (void)dup2(nowhere, i);
    snprintf(host, sizeof(host), "%s:1", name);
    (void)execlp("mpirun", "mpirun", "--host", host, "-n", "1", "true", (char *)NULL);
    _exit(127);
}

/* Collects those that have ended; returns how many still run. */
static uint32_t collect(probe *probes, uint32_t num)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < num; i++) {
        int ended = 0;
        if (probes[i].pid <= 0)
            continue;
        if (waitpid(probes[i].pid, &ended, WNOHANG) == 0) {
            running++;
            continue;
        }
        probes[i].answered = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
        probes[i].pid = 0;
    }
    return running;
}

static void end_all(probe *probes, uint32_t num, int signal)
{
    for (uint32_t i = 0; i < num; i++) {
        if (probes[i].pid > 0)
            (void)kill(-probes[i].pid, signal);
    }
}

static void probe_some(probe *probes, uint32_t num, uint64_t limit_ms)
{
    const pid_t self = getpid();
    for (uint32_t i = 0; i < num; i++) {
        probes[i].pid = fork();
        if (probes[i].pid == 0)
            become_probe(probes[i].name, self);
        if (probes[i].pid > 0)
            (void)setpgid(probes[i].pid, probes[i].pid); /* whoever comes first */
    }
    uint64_t end_ms = fedge_os_monotonic_ms() + limit_ms;
    const int signals[] = {SIGTERM, SIGKILL, 0};
    for (int next = 0; collect(probes, num) > 0; nap()) {
        if (fedge_os_monotonic_ms() < end_ms || !signals[next])
            continue;
        end_all(probes, num, signals[next++]);
        end_ms = fedge_os_monotonic_ms() + GRACE_MS;
    }
}

/* The lines that name a machine; *num of them. */
static fedge_status list(const char *text, probe **out, uint32_t *num, fedge_error *err)
{
    uint32_t most = 1;
    for (const char *at = text; *at; at++)
        most += *at == '\n';
    *out = calloc(most, sizeof(**out));
    if (!*out)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the list of machines");
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        probe *next = *out + *num;
        next->line = at;
        next->size = strcspn(at, "\n");
        *num += fedge_hosts_name(at, next->size, next->name);
    }
    return FEDGE_OK;
}

/* mpirun reads it by this name, since the descriptor survives exec. */
static fedge_status write_answered(const probe *probes, uint32_t num, char out[FEDGE_MAX_PATH],
                                   fedge_error *err)
{
    const int file = memfd_create("fedge-hosts", 0);
    if (file < 0) {
        return fedge_fail(err, FEDGE_INTERNAL, "no file for the machines that answer: %s",
                          strerror(errno));
    }
    for (uint32_t i = 0; i < num; i++) {
        if (probes[i].answered)
            dprintf(file, "%.*s\n", (int)probes[i].size, probes[i].line);
    }
    snprintf(out, FEDGE_MAX_PATH, "/proc/self/fd/%d", file);
    return FEDGE_OK;
}

fedge_status fedge_reach(const char *path, uint64_t limit_ms, const fedge_reach_listener *listener,
                         char out[FEDGE_MAX_PATH], fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0;
    probe *probes = NULL;
    uint32_t num = 0, silent = 0;
    fedge_status status = fedge_os_read_file(path, FEDGE_HOSTS_MAX_SIZE, &text, &size, err);
    if (status == FEDGE_OK)
        status = list((const char *)text, &probes, &num, err);
    for (uint32_t done = 0; done < num; done += FEDGE_REACH_MAX_AT_ONCE) {
        const uint32_t left = num - done;
        probe_some(probes + done, left < FEDGE_REACH_MAX_AT_ONCE ? left : FEDGE_REACH_MAX_AT_ONCE,
                   limit_ms);
    }
    for (uint32_t i = 0; i < num; i++) {
        silent += !probes[i].answered;
        if (!probes[i].answered)
            listener->silent(listener->user, probes[i].name);
    }
    if (status == FEDGE_OK && num > 0 && !probes[0].answered) {
        status = fedge_fail(err, FEDGE_NOT_FOUND, "%s, the first machine of %s, has the run",
                            probes[0].name, path);
    } else if (status == FEDGE_OK && silent > 0) {
        status = write_answered(probes, num, out, err);
    } else if (status == FEDGE_OK && snprintf(out, FEDGE_MAX_PATH, "%s", path) >= FEDGE_MAX_PATH) {
        status = fedge_fail(err, FEDGE_TOO_BIG, "the path %.60s… is too long", path);
    }
    free(probes);
    free(text);
    return status;
}
