/* Replacements of the system calls that read, change and sync open files. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/world/disk_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/world/scheduler.h"

#define MAX_SIZE ((uint64_t)1 << 40)

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

static size_t shortened(disk *of, size_t size)
{
    if (size > 1 && disk_happens(of, of->faults.short_writes))
        size = 1 + fedge_rng_below(&of->rng, (uint32_t)(size < UINT32_MAX ? size : UINT32_MAX) - 1);
    return size;
}

/* Returns how many of [size] bytes fit on the disk. */
static size_t fitting(const disk *of, const disk_inode *file, uint64_t at, size_t size)
{
    const uint64_t room = of->faults.capacity > of->used ? of->faults.capacity - of->used : 0;
    const uint64_t end = file->size + room;
    if (at + size <= end)
        return size;
    return at < end ? (size_t)(end - at) : 0;
}

/* [at] NULL: the descriptor's position. */
static ssize_t write_some(disk *of, int fd, const void *data, size_t size, const off_t *at)
{
    const int error = disk_begin(of, DISK_INTERRUPTIBLE | DISK_FALLIBLE);
    disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor || (descriptor->flags & O_ACCMODE) == O_RDONLY)
        return disk_fail(EBADF);
    if (error != 0)
        return disk_fail(error);
    if (at && *at < 0)
        return disk_fail(EINVAL);
    if (size == 0)
        return 0;
    disk_inode *file = descriptor->inode;
    uint64_t offset = at ? (uint64_t)*at : descriptor->position;
    if (descriptor->flags & O_APPEND)
        offset = file->size;
    disk_must(offset < MAX_SIZE && size < MAX_SIZE, "a write that is too large");
    size = fitting(of, file, offset, shortened(of, size));
    if (size == 0)
        return disk_fail(ENOSPC);
    disk_write(of, file, offset, data, size);
    world_trace("write %s: %zu at %llu", file->name ? file->name : "?", size,
                (unsigned long long)offset);
    descriptor->position = at ? descriptor->position : offset + size;
    return (ssize_t)size;
}

static ssize_t read_some(disk *of, int fd, void *out, size_t size, const off_t *at)
{
    const int error = disk_begin(of, DISK_INTERRUPTIBLE | DISK_FALLIBLE);
    disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor || (descriptor->flags & O_ACCMODE) == O_WRONLY)
        return disk_fail(EBADF);
    if (error != 0)
        return disk_fail(error);
    const disk_inode *file = descriptor->inode;
    if (file->is_dir)
        return disk_fail(EISDIR);
    if (at && *at < 0)
        return disk_fail(EINVAL);
    const uint64_t offset = at ? (uint64_t)*at : descriptor->position;
    const uint64_t left = offset < file->size ? file->size - offset : 0;
    size = shortened(of, size < left ? size : (size_t)left);
    const uint64_t stored = offset < file->filled ? file->filled - offset : 0;
    const size_t copied = size < stored ? size : (size_t)stored;
    if (copied > 0)
        memcpy(out, file->data + offset, copied);
    memset((uint8_t *)out + copied, 0, size - copied);
    descriptor->position += at ? 0 : size;
    return (ssize_t)size;
}

WRAPPED(ssize_t, pwrite64, int fd, const void *data, size_t size, off64_t offset)
{
    disk *of = disk_with(fd);
    return of ? write_some(of, fd, data, size, &offset) : __real_pwrite64(fd, data, size, offset);
}

WRAPPED(ssize_t, write, int fd, const void *data, size_t size)
{
    disk *of = disk_with(fd);
    return of ? write_some(of, fd, data, size, NULL) : __real_write(fd, data, size);
}

WRAPPED(ssize_t, pread64, int fd, void *out, size_t size, off64_t offset)
{
    disk *of = disk_with(fd);
    return of ? read_some(of, fd, out, size, &offset) : __real_pread64(fd, out, size, offset);
}

WRAPPED(ssize_t, read, int fd, void *out, size_t size)
{
    disk *of = disk_with(fd);
    return of ? read_some(of, fd, out, size, NULL) : __real_read(fd, out, size);
}

/* The compiler calls these where it knows the size of the buffer. */
WRAPPED(ssize_t, __pread64_chk, int fd, void *out, size_t size, off64_t offset, size_t room)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real___pread64_chk(fd, out, size, offset, room);
    disk_must(size <= room, "a read beyond its place");
    return read_some(of, fd, out, size, &offset);
}

WRAPPED(ssize_t, __read_chk, int fd, void *out, size_t size, size_t room)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real___read_chk(fd, out, size, room);
    disk_must(size <= room, "a read beyond its place");
    return read_some(of, fd, out, size, NULL);
}

/* Begins a call that changes the open file's size. Returns an errno or 0; [unwritable] if it is
 * open only for reading. */
static int begin_resize(disk *of, int fd, off_t size, unsigned faults, int unwritable,
                        disk_inode **file)
{
    const int error = disk_begin(of, faults);
    const disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor || (descriptor->flags & O_ACCMODE) == O_RDONLY)
        return descriptor ? unwritable : EBADF;
    *file = descriptor->inode;
    if (error == 0 && size < 0)
        return EINVAL;
    return error == 0 && (uint64_t)size > MAX_SIZE ? EFBIG : error;
}

WRAPPED(off64_t, lseek64, int fd, off64_t offset, int whence)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_lseek64(fd, offset, whence);
    disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor)
        return disk_fail(EBADF);
    const off64_t from = whence == SEEK_SET   ? 0
                         : whence == SEEK_CUR ? (off64_t)descriptor->position
                                              : (off64_t)descriptor->inode->size;
    if (from + offset < 0)
        return disk_fail(EINVAL);
    descriptor->position = (uint64_t)(from + offset);
    return from + offset;
}

WRAPPED(int, ftruncate64, int fd, off64_t size)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_ftruncate64(fd, size);
    disk_inode *file;
    const int error = begin_resize(of, fd, size, DISK_FALLIBLE, EINVAL, &file);
    if (error == 0 && (uint64_t)size != file->size) {
        disk_resize(of, file, (uint64_t)size);
        world_trace("cut %s to %lld", file->name ? file->name : "?", (long long)size);
    }
    return disk_finish(error);
}

/* Returns an errno or 0. */
WRAPPED(int, posix_fallocate64, int fd, off64_t offset, off64_t size)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_posix_fallocate64(fd, offset, size);
    disk_inode *file;
    const int error =
        begin_resize(of, fd, offset + size, DISK_INTERRUPTIBLE | DISK_FALLIBLE, EBADF, &file);
    if (error != 0)
        return error;
    if (offset < 0 || size <= 0)
        return EINVAL;
    const uint64_t end = (uint64_t)(offset + size);
    if (end <= file->size)
        return 0;
    const size_t more = (size_t)(end - file->size);
    if (fitting(of, file, file->size, more) < more)
        return ENOSPC;
    disk_resize(of, file, end);
    world_trace("reserve %s: %llu", file->name ? file->name : "?", (unsigned long long)end);
    return 0;
}

static uint64_t draw_sync_ns(disk *of)
{
    const bool slow = disk_happens(of, of->faults.slow_syncs);
    const uint64_t most = slow ? of->faults.slow_ns : of->faults.sync_ns;
    const uint64_t ns = most > 0 ? fedge_rng_u64(&of->rng) % (most + 1) : 0;
    if (slow)
        world_trace("a slow sync: %llu ns", (unsigned long long)ns);
    return ns;
}

/* The inode, unless another thread has closed its last descriptor meanwhile. */
static disk_inode *find_inode(const disk *of, uint64_t number)
{
    disk_inode *found = of->inodes;
    while (found && found->number != number)
        found = found->next;
    return found;
}

static int sync_file(disk *of, int fd)
{
    const uint64_t end = of->next_change; /* what is written during the sync is not synced */
    const int error = disk_begin(of, DISK_FALLIBLE);
    const disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor)
        return disk_fail(EBADF);
    const uint64_t number = descriptor->inode->number, ns = draw_sync_ns(of);
    if (ns > 0)
        disk_pass_time(ns);
    disk_inode *inode = find_inode(of, number);
    /* After a failed sync the system treats a file's pages as written. Entries of directories are
     * in the file system's journal, so a later successful sync has written them. */
    if (inode && error != 0 && !inode->is_dir)
        disk_fail_sync(of, inode, end);
    else if (inode && error == 0)
        disk_sync(of, inode, end);
    if (inode)
        world_trace("sync %s: %d", inode->name ? inode->name : "?", error);
    return disk_finish(error);
}

/* Real files of a test need no sync, and slow disks would delay it. */
static int skip_sync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

WRAPPED(int, fsync, int fd)
{
    disk *of = disk_with(fd);
    return of ? sync_file(of, fd) : skip_sync(fd);
}

WRAPPED(int, fdatasync, int fd)
{
    disk *of = disk_with(fd);
    return of ? sync_file(of, fd) : skip_sync(fd);
}
/* NOLINTEND(bugprone-reserved-identifier) */
