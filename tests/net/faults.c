/* Preloaded into a program, makes a chosen call of the system fail, or ends the program at one:
 *
 *   FEDGE_FAULT=CALL:N:WHAT   the N-th call (from 1) of CALL, by this process
 *     CALL  pwrite, fsync, fdatasync, rename, posix_fallocate, write, or io (any of these)
 *     WHAT  EIO, ENOSPC: it fails so, once; kill-before, kill-after: SIGKILL there
 *     half  (pwrite) half of the bytes are written, then SIGKILL
 *
 * The count includes every thread. Only for tests. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS                                                                          \
    64 /* as edge/core/os_posix.c: the symbols are pwrite64, posix_fallocate64 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_EIO,
    FAULT_ENOSPC,
    FAULT_KILL_BEFORE,
    FAULT_KILL_AFTER,
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
                 {"kill-before", FAULT_KILL_BEFORE},
                 {"kill-after", FAULT_KILL_AFTER},
                 {"half", FAULT_HALF}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(what, known[i].name) == 0)
            return known[i].kind;
    return FAULT_NONE;
}

/* What is to happen at this call of [name]; ends the process itself for kill-before. */
static fault_kind next(const char *name)
{
    char text[64], *at = text;
    const char *given = getenv("FEDGE_FAULT");
    if (!given || strlen(given) >= sizeof text)
        return FAULT_NONE;
    (void)snprintf(text, sizeof text, "%s", given);
    const char *call = strsep(&at, ":");
    const char *number = strsep(&at, ":");
    if (!at || (strcmp(call, name) != 0 && strcmp(call, "io") != 0) ||
        atomic_fetch_add(&calls, 1) + 1 != strtol(number, NULL, 10))
        return FAULT_NONE;
    fault_kind kind = kind_of(at);
    if (kind == FAULT_KILL_BEFORE || (kind == FAULT_HALF && strcmp(name, "pwrite") != 0))
        (void)kill(getpid(), SIGKILL);
    return kind;
}

static int error_of(fault_kind kind)
{
    return kind == FAULT_EIO ? EIO : kind == FAULT_ENOSPC ? ENOSPC : 0;
}

static void after(fault_kind kind)
{
    if (kind == FAULT_KILL_AFTER || kind == FAULT_HALF)
        (void)kill(getpid(), SIGKILL);
}

/* The function that would be called without this file; copied, since ISO C has no conversion from
 * void * to a function. */
#define FIND(real, name)                                                                           \
    void *symbol = dlsym(RTLD_NEXT, name);                                                         \
    memcpy(&(real), &symbol, sizeof(real))

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the headers' are reserved */

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    FIND(real, "pwrite64");
    fault_kind kind = next("pwrite");
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
    fault_kind kind = next(name);
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
    fault_kind kind = next("rename");
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
    fault_kind kind = next("posix_fallocate");
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
    fault_kind kind = next("write");
    if (error_of(kind)) {
        errno = error_of(kind);
        return -1;
    }
    ssize_t done = real(fd, data, size);
    after(kind);
    return done;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
