/* Preloaded into a program, makes a chosen call of the system fail, or ends the program at one:
 *
 *   FEDGE_FAULT=CALL:N:WHAT   the N-th call (from 1) of CALL, by this process; N+: all from there
 *     CALL  pwrite, fsync, fdatasync, rename, posix_fallocate, write, mkostemps, or io (any of
 *           these); open, pread or pthread_create; MPI_Reduce, or MPI_Send of more than 4 KiB
 *     WHAT  EIO, ENOSPC, EAGAIN, EMFILE: it fails so; kill-before, kill-after: SIGKILL there;
 *           stop: SIGSTOP before it
 *     half  (pwrite) half of the bytes are written, then SIGKILL
 *   FEDGE_FAULT_ONCE=PATH   only in the first process that comes so far: PATH is made then
 *   FEDGE_FAULT_FILE=TEXT   only calls on files with TEXT in their path count; the temporary name
 *                           of a file has its own in it, and MPI's calls are on "rank-N"
 *   FEDGE_CLOCK=PATH        once there is a symbolic link at PATH, the time of day is ahead by as
 *                           many seconds as it points to
 *
 * The count includes every thread. Only for tests. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS                                                                          \
    64 /* as edge/core/os_posix.c: the symbols are pwrite64, posix_fallocate64 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_EIO,
    FAULT_ENOSPC,
    FAULT_EAGAIN,
    FAULT_EMFILE,
    FAULT_KILL_BEFORE,
    FAULT_KILL_AFTER,
    FAULT_STOP,
    FAULT_HALF
} fault_kind;

static _Atomic long calls;

static fault_kind kind_of(const char *what)
{
    static const struct {
        const char *name;
        fault_kind kind;
    } known[] = {{"EIO", FAULT_EIO},
                 {"ENOSPC", FAULT_ENOSPC},
                 {"EAGAIN", FAULT_EAGAIN},
                 {"EMFILE", FAULT_EMFILE},
                 {"kill-before", FAULT_KILL_BEFORE},
                 {"kill-after", FAULT_KILL_AFTER},
                 {"stop", FAULT_STOP},
                 {"half", FAULT_HALF}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(what, known[i].name) == 0)
            return known[i].kind;
    }
    return FAULT_NONE;
}

/* Is the file, at [path] or open as [fd], one of those whose calls count? */
static int counts(int fd, const char *path)
{
    char own[64], found[4096];
    const char *wanted = getenv("FEDGE_FAULT_FILE");
    if (!wanted)
        return 1;
    if (!path) {
        (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
        ssize_t size = readlink(own, found, sizeof(found) - 1);
        if (size < 0)
            return 0;
        found[size] = '\0';
        path = found;
    }
    return strstr(path, wanted) != NULL;
}

/* Is this call, if its name and file are those wanted, the one of [number]: "N", or "N+" and later?
 */
static int is_due(const char *number)
{
    char *end;
    const long from = strtol(number, &end, 10), call = atomic_fetch_add(&calls, 1) + 1;
    return call == from || (*end == '+' && call > from);
}

/* What is to happen at this call of [name] on the file at [path], or open as [fd] where that is
 * NULL; ends the process itself for kill-before. */
static fault_kind next(const char *name, int fd, const char *path)
{
    char text[64], *at = text;
    const char *given = getenv("FEDGE_FAULT");
    if (!given || strlen(given) >= sizeof(text))
        return FAULT_NONE;
    (void)snprintf(text, sizeof(text), "%s", given);
    const char *call = strsep(&at, ":");
    const char *number = strsep(&at, ":");
    const int writes = strcmp(name, "open") != 0 && strcmp(name, "pread") != 0 &&
                       strcmp(name, "pthread_create") != 0 && strncmp(name, "MPI_", 4) != 0;
    if (!at || (strcmp(call, name) != 0 && (!writes || strcmp(call, "io") != 0)) ||
        !counts(fd, path) || !is_due(number))
        return FAULT_NONE;
    const char *once = getenv("FEDGE_FAULT_ONCE");
    if (once && symlink("done", once) != 0)
        return FAULT_NONE;
    fault_kind kind = kind_of(at);
    if (kind == FAULT_KILL_BEFORE || (kind == FAULT_HALF && strcmp(name, "pwrite") != 0))
        (void)kill(getpid(), SIGKILL);
    if (kind == FAULT_STOP)
        (void)kill(getpid(), SIGSTOP);
    return kind;
}

static int error_of(fault_kind kind)
{
    static const int errors[] = {[FAULT_EIO] = EIO,
                                 [FAULT_ENOSPC] = ENOSPC,
                                 [FAULT_EAGAIN] = EAGAIN,
                                 [FAULT_EMFILE] = EMFILE,
                                 [FAULT_HALF] = 0};
    return errors[kind];
}

static void after(fault_kind kind)
{
    if (kind == FAULT_KILL_AFTER || kind == FAULT_HALF)
        (void)kill(getpid(), SIGKILL);
}

#ifdef FAULTS_OF_MPI
/* The linker's own, which this file has one of its own for. */
static void *find(void *handle, const char *name)
{
    static const char *const VERSIONS[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *(*real)(void *, const char *) = NULL;
    for (size_t i = 0; !real && i < sizeof(VERSIONS) / sizeof(VERSIONS[0]); i++) {
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", VERSIONS[i]);
        memcpy(&real, &symbol, sizeof(real));
    }
    return real ? real(handle, name) : NULL;
}
#else
#define find dlsym
#endif

/* The function that would be called without this file; copied, since ISO C has no conversion from
 * void * to a function. */
#define FIND(real, name)                                                                           \
    void *symbol = find(RTLD_NEXT, name);                                                          \
    memcpy(&(real), &symbol, sizeof(real))

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the headers' are reserved */

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    FIND(real, "pwrite64");
    fault_kind kind = next("pwrite", fd, NULL);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    ssize_t done = real(fd, data, kind == FAULT_HALF ? size / 2 : size, offset);
    after(kind);
    return done;
}

static int sync_file(const char *name, int fd)
{
    int (*real)(int);
    FIND(real, name);
    fault_kind kind = next(name, fd, NULL);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    int done = real(fd);
    after(kind);
    return done;
}

int fsync(int fd)
{
    return sync_file("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_file("fdatasync", fd);
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    FIND(real, "rename");
    fault_kind kind = next("rename", -1, from);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    int done = real(from, to);
    after(kind);
    return done;
}

int posix_fallocate(int fd, off_t offset, off_t size)
{
    int (*real)(int, off_t, off_t);
    FIND(real, "posix_fallocate64");
    fault_kind kind = next("posix_fallocate", fd, NULL);
    if (error_of(kind))
        return error_of(kind);
    int done = real(fd, offset, size);
    after(kind);
    return done;
}

ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t (*real)(int, const void *, size_t);
    FIND(real, "write");
    fault_kind kind = next("write", fd, NULL);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    ssize_t done = real(fd, data, size);
    after(kind);
    return done;
}

int mkostemps(char *name, int suffix_size, int flags)
{
    int (*real)(char *, int, int);
    FIND(real, "mkostemps64");
    fault_kind kind = next("mkostemps", -1, name);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    int fd = real(name, suffix_size, flags);
    after(kind);
    return fd;
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...);
    mode_t mode = 0;
    FIND(real, "open64");
    if (flags & O_CREAT) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    fault_kind kind = next("open", -1, path);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    int fd = real(path, flags, mode);
    after(kind);
    return fd;
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    ssize_t (*real)(int, void *, size_t, off_t);
    FIND(real, "pread64");
    fault_kind kind = next("pread", fd, NULL);
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    ssize_t done = real(fd, data, size, offset);
    after(kind);
    return done;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *user)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    FIND(real, "pthread_create");
    fault_kind kind = next("pthread_create", -1, "");
    if (error_of(kind))
        return error_of(kind);
    int done = real(thread, attributes, run, user);
    after(kind);
    return done;
}

#ifdef FAULTS_OF_MPI
/* ---- MPI, which the program looks up in its library ------------------------------------------ */

/* Open MPI's handles are pointers. */
static int (*real_reduce)(const void *, void *, int, void *, void *, int, void *);
static int (*real_send)(const void *, int, void *, int, int, void *);

static fault_kind next_of_rank(const char *name)
{
    char rank[32];
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    (void)snprintf(rank, sizeof(rank), "rank-%s", number ? number : "");
    return next(name, -1, rank);
}

static int reduce(const void *from, void *to, int count, void *type, void *op, int root, void *comm)
{
    const fault_kind kind = next_of_rank("MPI_Reduce");
    const int done = real_reduce(from, to, count, type, op, root, comm);
    after(kind);
    return done;
}

static int send_bytes(const void *from, int count, void *type, int to, int tag, void *comm)
{
    const fault_kind kind = count > 4096 ? next_of_rank("MPI_Send") : FAULT_NONE;
    const int done = real_send(from, count, type, to, tag, comm);
    after(kind);
    return done;
}

void *dlsym(void *handle, const char *name)
{
    void *found = find(handle, name);
    int (*const own_reduce)(const void *, void *, int, void *, void *, int, void *) = reduce;
    int (*const own_send)(const void *, int, void *, int, int, void *) = send_bytes;
    if (found && strcmp(name, "MPI_Reduce") == 0) {
        memcpy(&real_reduce, &found, sizeof(found));
        memcpy(&found, &own_reduce, sizeof(found));
    } else if (found && strcmp(name, "MPI_Send") == 0) {
        memcpy(&real_send, &found, sizeof(found));
        memcpy(&found, &own_send, sizeof(found));
    }
    return found;
}
#endif

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *);
    FIND(real, "clock_gettime");
    char ahead[32];
    const char *link = getenv("FEDGE_CLOCK");
    const int done = real(clock, now);
    const ssize_t size =
        clock == CLOCK_REALTIME && link ? readlink(link, ahead, sizeof(ahead) - 1) : -1;
    if (size > 0) {
        ahead[size] = '\0';
        now->tv_sec += strtol(ahead, NULL, 10);
    }
    return done;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
