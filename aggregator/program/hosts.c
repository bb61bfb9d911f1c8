#define _GNU_SOURCE /* exec, geteuid, setenv, sigprocmask */

#include "aggregator/program/hosts.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "aggregator/program/restart_state.h"
#include "edge/core/os.h"

#define WORDS_OF_MPIRUN 6 /* before the program's own options */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

bool fedge_hosts_name(const char *line, size_t size, char name[FEDGE_HOSTS_MAX_NAME])
{
    const char *end = memchr(line, '#', size);
    char text[FEDGE_HOSTS_MAX_NAME];
    snprintf(text, sizeof(text), "%.*s", (int)(end ? end - line : (ptrdiff_t)size), line);
    return sscanf(text, " %255[^ \t\r:]", name) == 1;
}

static fedge_status check_text(const char *text, const char *path, fedge_error *err)
{
    char name[FEDGE_HOSTS_MAX_NAME], other[FEDGE_HOSTS_MAX_NAME];
    bool any = false;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (!fedge_hosts_name(line, strcspn(line, "\n"), name))
            continue;
        any = true;
        for (const char *before = text; before < line;
             before += strcspn(before, "\n"), before += *before == '\n') {
            if (fedge_hosts_name(before, strcspn(before, "\n"), other) &&
                strcasecmp(name, other) == 0) {
                return fedge_fail(err, FEDGE_DUPLICATE,
                                  "%s names %s twice: give it one line, with slots=2", path, name);
            }
        }
    }
    return any ? FEDGE_OK : fedge_fail(err, FEDGE_NOT_FOUND, "%s names no machine", path);
}

fedge_status fedge_hosts_check(const char *path, fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_status status = fedge_os_read_file(path, FEDGE_HOSTS_MAX_SIZE, &bytes, &size, err);
    char *text = status == FEDGE_OK ? malloc(size + 1) : NULL;
    if (status == FEDGE_OK && !text)
        status = fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %s", path);
    if (status == FEDGE_OK) {
        memcpy(text, bytes, size);
        text[size] = '\0';
        status = check_text(text, path, err);
    }
    free(text);
    free(bytes);
    return status;
}

fedge_status fedge_hosts_check_user(fedge_error *err)
{
    if (geteuid() != 0 ||
        (getenv("OMPI_ALLOW_RUN_AS_ROOT") && getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")))
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_DENIED,
                      "--hosts: mpirun does not run as root: start fedge-aggregator as another "
                      "user, or set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
}

/* The environment is what Open MPI reads parameters from that its command line does not name. */
static void set_parameters(void)
{
    /* Open MPI binds each rank of a small job to one core, where all its threads would stay. */
    (void)setenv("OMPI_MCA_hwloc_base_binding_policy", "none", false);
    (void)setenv("OMPI_MCA_oob_tcp_keepalive_time", TEXT(FEDGE_HOSTS_IDLE_S), false);
    (void)setenv("OMPI_MCA_oob_tcp_keepalive_intvl", TEXT(FEDGE_HOSTS_PROBE_S), false);
    (void)setenv("OMPI_MCA_oob_tcp_keepalive_probes", TEXT(FEDGE_HOSTS_PROBES), false);
}

fedge_status fedge_hosts_run(const char *path, int argc, char **argv, bool drain, fedge_error *err)
{
    char program[4096];
    char *words[WORDS_OF_MPIRUN] = {"mpirun",     "-x",         FEDGE_HANDOVER_VARIABLE,
                                    "--hostfile", strdup(path), program};
    const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    /* Behind the program's own: --drain and NULL. */
    char **all = calloc((size_t)argc + WORDS_OF_MPIRUN + 1, sizeof(*all));
    if (!all || !words[4] || length < 0) {
        free(words[4]);
        free(all);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the command line of mpirun");
    }
    program[length] = '\0';
    memcpy(all, words, sizeof(words));
    memcpy(all + WORDS_OF_MPIRUN, argv + 1, (size_t)(argc - 1) * sizeof(*all));
    all[argc + WORDS_OF_MPIRUN - 1] = drain ? "--drain" : NULL;
    set_parameters();
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    (void)execvp("mpirun", all);
    const int failed = errno;
    free(words[4]);
    free(all);
    return fedge_fail(err, FEDGE_UNSUPPORTED, "cannot start mpirun (%s): install openmpi-bin",
                      strerror(failed));
}
