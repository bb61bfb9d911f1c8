/* Replacements of the system calls that open and close files, and the functions that all
 * replacements share. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/world/disk_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/world/scheduler.h"

disk *disk_own(void)
{
    const uint32_t node = world_node();
    return node == WORLD_ITSELF ? NULL : disk_of(node);
}

disk *disk_with(int fd)
{
    return fd < DISK_FIRST_FD ? NULL : disk_own();
}

int disk_fail(int error)
{
    errno = error;
    return -1;
}

int disk_finish(int error)
{
    return error == 0 ? 0 : disk_fail(error);
}

/* Other fibers share errno, and a call that succeeds leaves it alone. */
void disk_pass_time(uint64_t ns)
{
    const int kept = errno;
    if (ns > 0)
        world_sleep(ns);
    else
        world_yield();
    errno = kept;
}

bool disk_happens(disk *of, uint32_t per_million)
{
    return per_million > 0 && fedge_rng_below(&of->rng, 1000000) < per_million;
}

int disk_begin(disk *of, unsigned faults)
{
    of->num_calls++;
    if (of->faults.die_at > 0 && --of->faults.die_at == 0) {
        world_trace("killed at a call of the disk");
        world_die();
    }
    const bool ordered = of->faults.fail_at > 0 && --of->faults.fail_at == 0;
    disk_pass_time(0);
    int error = 0;
    if (ordered)
        error = of->faults.fail_errno;
    else if ((faults & DISK_INTERRUPTIBLE) && disk_happens(of, of->faults.interrupted))
        error = EINTR;
    else if ((faults & DISK_FALLIBLE) && disk_happens(of, of->faults.io_errors))
        error = EIO;
    if (error != 0)
        world_trace("a call of the disk fails: errno %d", error);
    return error;
}

int disk_begin_path(disk *of, const char *path, unsigned faults, disk_place *place)
{
    *place = (disk_place){0};
    if (!disk_has_path(path))
        return path[0] == '/' && path[strspn(path, "/")] == '\0' ? EACCES : ENOENT;
    const int error = disk_begin(of, faults);
    return error != 0 ? error : disk_look_up(of, path, place);
}

disk_descriptor *disk_descriptor_of(disk *of, int fd)
{
    const int first = DISK_FIRST_FD + (int)(of->node * DISK_MAX_OPEN);
    if (fd < first || fd >= first + DISK_MAX_OPEN)
        world_fail("a call with descriptor %d of another node's disk", fd);
    else if (!of->open[fd - first].inode)
        world_fail("a call with descriptor %d, which is not open", fd);
    else
        return &of->open[fd - first];
    return NULL;
}

static disk_descriptor *free_descriptor(disk *of)
{
    for (disk_descriptor *i = of->open; i < of->open + DISK_MAX_OPEN; i++) {
        if (!i->inode)
            return i;
    }
    return NULL;
}

int disk_number_of(const disk *of, const disk_descriptor *descriptor)
{
    return DISK_FIRST_FD + (int)(of->node * DISK_MAX_OPEN) + (int)(descriptor - of->open);
}

/* ---- opening --------------------------------------------------------------------------------- */

disk_inode *disk_make(disk *of, const disk_place *place, bool is_dir, mode_t mode)
{
    disk_inode *made = disk_new_inode(of, is_dir, mode & 07777);
    disk_name(of, place->dir, place->name, made);
    world_trace("make %s", place->name);
    return made;
}

static int check_open(const disk_place *place, int flags)
{
    if ((flags & O_CREAT) && place->slash)
        return EISDIR;
    if (!place->inode)
        return flags & O_CREAT ? 0 : ENOENT;
    if ((flags & O_CREAT) && (flags & O_EXCL))
        return EEXIST;
    if (place->inode->is_dir)
        return (flags & O_CREAT) || (flags & O_ACCMODE) != O_RDONLY ? EISDIR : 0;
    return (flags & O_DIRECTORY) || place->slash ? ENOTDIR : 0;
}

/* Returns an errno or 0. */
static int disk_open_at(disk *of, disk_place *place, int flags, mode_t mode,
                        disk_descriptor **opened)
{
    const int error = check_open(place, flags);
    if (error != 0)
        return error;
    disk_descriptor *descriptor = free_descriptor(of);
    if (!descriptor)
        return EMFILE;
    if (!place->inode)
        place->inode = disk_make(of, place, false, mode);
    else if ((flags & O_TRUNC) && place->inode->size > 0)
        disk_resize(of, place->inode, 0);
    *descriptor = (disk_descriptor){.inode = place->inode, .flags = flags};
    place->inode->num_open++;
    of->num_open++;
    disk_account(of, place->inode);
    *opened = descriptor;
    return 0;
}

int disk_open_path(disk *of, const char *path, int flags, mode_t mode, disk_descriptor **opened)
{
    disk_place place;
    const int error = disk_begin_path(of, path, DISK_INTERRUPTIBLE | DISK_FALLIBLE, &place);
    return error != 0 && !place.inode ? error : disk_open_at(of, &place, flags, mode, opened);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

static int open_file(const char *path, int flags, mode_t mode)
{
    disk *of = disk_own();
    if (!of)
        return __real_open64(path, flags, mode);
    disk_descriptor *opened;
    const int error = disk_open_path(of, path, flags, mode, &opened);
    return error == 0 ? disk_number_of(of, opened) : disk_fail(error);
}

#define DEFINE_OPEN(name)                                                                          \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                  \
        va_end(rest);                                                                              \
        return open_file(path, flags, mode);                                                       \
    }
DEFINE_OPEN(__wrap_open64)
DEFINE_OPEN(__wrap_open)

/* The compiler calls these where it does not know the flags. */
int __wrap___open64_2(const char *path, int flags);
int __wrap___open_2(const char *path, int flags);

int __wrap___open64_2(const char *path, int flags)
{
    return open_file(path, flags, 0);
}

int __wrap___open_2(const char *path, int flags)
{
    return open_file(path, flags, 0);
}

/* Draws the six letters of a temporary name at [at]. */
static void draw_letters(disk *of, char *at)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for (int i = 0; i < 6; i++)
        at[i] = letters[fedge_rng_below(&of->rng, sizeof(letters) - 1)];
}

WRAPPED(int, mkostemps64, char *template, int suffix, int flags)
{
    disk *of = disk_own();
    if (!of)
        return __real_mkostemps64(template, suffix, flags);
    disk_place place;
    disk_descriptor *opened;
    char *letters = template + strlen(template) - suffix - 6;
    int error = disk_begin_path(of, template, DISK_FALLIBLE, &place);
    do {
        if (error != 0)
            return disk_fail(error);
        draw_letters(of, letters);
        error = disk_look_up(of, template, &place);
    } while (error == 0 && place.inode);
    if (error == 0)
        error = disk_open_at(of, &place, flags | O_RDWR | O_CREAT | O_EXCL, 0600, &opened);
    return error == 0 ? disk_number_of(of, opened) : disk_fail(error);
}

/* The end of a lock wakes those that wait for it. */
static void unlock(disk_inode *inode, int fd)
{
    if (inode->lock_fd == fd) {
        inode->lock_fd = -1;
        world_wake_all(inode);
    }
}

WRAPPED(int, close, int fd)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_close(fd);
    const int error = disk_begin(of, DISK_SURE);
    disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor)
        return disk_fail(EBADF);
    unlock(descriptor->inode, fd);
    disk_close(of, descriptor);
    return disk_finish(error);
}

WRAPPED(int, flock, int fd, int operation)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_flock(fd, operation);
    const int error = disk_begin(of, DISK_SURE);
    for (;;) {
        const disk_descriptor *descriptor = disk_descriptor_of(of, fd);
        if (!descriptor || error != 0)
            return disk_fail(descriptor ? error : EBADF);
        disk_inode *inode = descriptor->inode;
        if (operation & LOCK_UN) {
            unlock(inode, fd);
            return 0;
        }
        /* The product uses only exclusive locks. */
        if (!(operation & LOCK_EX))
            return disk_fail(EINVAL);
        if (inode->lock_fd < 0 || inode->lock_fd == fd) {
            inode->lock_fd = fd;
            return 0;
        }
        if (operation & LOCK_NB)
            return disk_fail(EWOULDBLOCK);
        (void)world_wait(inode, WORLD_NEVER);
    }
}
/* The product opens streams only on files outside the disk. */
static FILE *open_stream(const char *path)
{
    if (strncmp(path, WORLD_DISK_ROOT "/", sizeof(WORLD_DISK_ROOT)) == 0)
        world_fail("%s is opened as a stream, which the simulated disk has not", path);
    errno = ENOENT;
    return NULL;
}

WRAPPED(FILE *, fopen, const char *path, const char *mode)
{
    return disk_own() ? open_stream(path) : __real_fopen(path, mode);
}

WRAPPED(FILE *, fopen64, const char *path, const char *mode)
{
    return disk_own() ? open_stream(path) : __real_fopen64(path, mode);
}
/* NOLINTEND(bugprone-reserved-identifier) */
