/* Replacements of the system calls that change names, and of those that only query. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/world/disk_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/world/scheduler.h"

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */

/* ---- looking --------------------------------------------------------------------------------- */

/* Other fields are 0: the disks have no owners and no times. */
static void describe(const disk *of, const disk_inode *inode, struct stat *out)
{
    *out = (struct stat){0};
    out->st_dev = of->node;
    out->st_ino = inode->number;
    out->st_mode = (inode->is_dir ? S_IFDIR : S_IFREG) | inode->mode;
    out->st_nlink = inode->parent || inode == of->root ? 1 : 0;
    out->st_size = (off_t)inode->size;
    out->st_blksize = 4096;
    out->st_blocks = (blkcnt_t)((inode->size + DISK_SECTOR - 1) / DISK_SECTOR);
}

/* Begins a call about a path that must lead to something; returns an errno or 0. */
static int begin_existing(disk *of, const char *path, disk_place *place)
{
    const int error = disk_begin_path(of, path, DISK_SURE, place);
    return error == 0 && !place->inode ? ENOENT : error;
}

static int look_at_path(disk *of, const char *path, struct stat *out)
{
    disk_place place;
    const int error = begin_existing(of, path, &place);
    if (error == 0)
        describe(of, place.inode, out);
    return disk_finish(error);
}

static int look_at_file(disk *of, int fd, struct stat *out)
{
    const int error = disk_begin(of, DISK_SURE);
    const disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor)
        return disk_fail(EBADF);
    describe(of, descriptor->inode, out);
    return disk_finish(error);
}

/* A struct stat64 is a struct stat here, as off_t has 64 bits. */
#define DEFINE_STAT(name)                                                                          \
    WRAPPED(int, name, const char *path, struct stat *out)                                         \
    {                                                                                              \
        disk *of = disk_own();                                                                     \
        return of ? look_at_path(of, path, out) : __real_##name(path, out);                        \
    }
DEFINE_STAT(stat64)
DEFINE_STAT(lstat64)

WRAPPED(int, fstat64, int fd, struct stat *out)
{
    disk *of = disk_with(fd);
    return of ? look_at_file(of, fd, out) : __real_fstat64(fd, out);
}

/* Code compiled without 64-bit offsets calls these. */
int __wrap_stat(const char *path, struct stat *out);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_lstat(const char *path, struct stat *out);

int __wrap_stat(const char *path, struct stat *out)
{
    return __wrap_stat64(path, out);
}

int __wrap_fstat(int fd, struct stat *out)
{
    return __wrap_fstat64(fd, out);
}

int __wrap_lstat(const char *path, struct stat *out)
{
    return __wrap_lstat64(path, out);
}

WRAPPED(int, access, const char *path, int mode)
{
    disk *of = disk_own();
    disk_place place;
    return of ? disk_finish(begin_existing(of, path, &place)) : __real_access(path, mode);
}

WRAPPED(int, statvfs64, const char *path, struct statvfs *out)
{
    disk *of = disk_own();
    if (!of)
        return __real_statvfs64(path, out);
    disk_place place;
    const int error = begin_existing(of, path, &place);
    if (error == 0) {
        const uint64_t capacity = of->faults.capacity;
        *out = (struct statvfs){.f_bsize = 1, .f_frsize = 1, .f_blocks = capacity};
        out->f_bfree = out->f_bavail = capacity > of->used ? capacity - of->used : 0;
        out->f_namemax = DISK_MAX_NAME;
    }
    return disk_finish(error);
}

WRAPPED(int, fchmod, int fd, mode_t mode)
{
    disk *of = disk_with(fd);
    if (!of)
        return __real_fchmod(fd, mode);
    const int error = disk_begin(of, DISK_SURE);
    const disk_descriptor *descriptor = disk_descriptor_of(of, fd);
    if (!descriptor)
        return disk_fail(EBADF);
    if (error == 0)
        descriptor->inode->mode = mode & 07777;
    return disk_finish(error);
}

/* ---- names ----------------------------------------------------------------------------------- */

WRAPPED(int, mkdir, const char *path, mode_t mode)
{
    disk *of = disk_own();
    if (!of)
        return __real_mkdir(path, mode);
    disk_place place;
    int error = disk_begin_path(of, path, DISK_SURE, &place);
    /* A slash after the name of a file changes no other error. */
    if (place.inode)
        error = EEXIST;
    if (error == 0)
        (void)disk_make(of, &place, true, mode);
    return disk_finish(error);
}

static int remove_name(disk *of, const disk_place *place)
{
    world_trace("remove %s", place->name);
    disk_name(of, place->dir, place->name, NULL);
    return 0;
}

WRAPPED(int, unlink, const char *path)
{
    disk *of = disk_own();
    if (!of)
        return __real_unlink(path);
    disk_place place;
    int error = begin_existing(of, path, &place);
    if (error == 0)
        error = place.inode->is_dir ? EISDIR : remove_name(of, &place);
    return disk_finish(error);
}

WRAPPED(int, rmdir, const char *path)
{
    disk *of = disk_own();
    if (!of)
        return __real_rmdir(path);
    disk_place place;
    int error = begin_existing(of, path, &place);
    if (error == 0 && !place.inode->is_dir)
        error = ENOTDIR;
    else if (error == 0 && !place.dir)
        error = EBUSY;
    else if (error == 0)
        error = place.inode->num_entries > 0 ? ENOTEMPTY : remove_name(of, &place);
    return disk_finish(error);
}

static bool is_in(const disk_inode *inode, const disk_inode *dir)
{
    while (inode && inode != dir)
        inode = inode->parent;
    return inode != NULL;
}

static int check_rename(const disk_place *from, const disk_place *to)
{
    const disk_inode *moved = from->inode, *replaced = to->inode;
    if (!from->dir || !to->dir)
        return EBUSY;
    if (!moved)
        return ENOENT;
    if (!moved->is_dir && (from->slash || to->slash))
        return ENOTDIR;
    if (is_in(to->dir, moved))
        return EINVAL;
    if (replaced && replaced != moved && is_in(from->dir, replaced))
        return ENOTEMPTY;
    if (replaced && replaced->is_dir != moved->is_dir)
        return moved->is_dir ? ENOTDIR : EISDIR;
    return replaced && replaced != moved && replaced->num_entries > 0 ? ENOTEMPTY : 0;
}

WRAPPED(int, rename, const char *from, const char *to)
{
    disk *of = disk_own();
    if (!of)
        return __real_rename(from, to);
    disk_place old_place, new_place;
    int error = disk_begin_path(of, from, DISK_FALLIBLE, &old_place);
    if (error != 0 && !old_place.inode)
        return disk_fail(error);
    if (!disk_has_path(to))
        return disk_fail(EXDEV);
    error = disk_look_up(of, to, &new_place);
    if (error == 0 || new_place.inode)
        error = check_rename(&old_place, &new_place);
    if (error == 0 && old_place.inode != new_place.inode) {
        world_trace("rename %s to %s", old_place.name, new_place.name);
        disk_rename(of, old_place.inode, new_place.dir, new_place.name);
    }
    return disk_finish(error);
}

/* ---- listing --------------------------------------------------------------------------------- */

/* The descriptor of a simulated stream, whose address is the stream's. NULL: it is real. */
static disk_descriptor *stream_of(const disk *of, DIR *stream)
{
    disk_descriptor *descriptor = (disk_descriptor *)stream;
    if (!of || descriptor < of->open || descriptor >= of->open + DISK_MAX_OPEN)
        return NULL;
    return descriptor;
}

static void add_to_listing(struct dirent *entry, const char *name, const disk_inode *inode)
{
    entry->d_ino = inode->number;
    entry->d_off = 0;
    entry->d_reclen = sizeof(*entry);
    entry->d_type = inode->is_dir ? DT_DIR : DT_REG;
    memcpy(entry->d_name, name, strlen(name) + 1);
}

/* Lists the names that exist at the first read, in an order that the seed draws. */
static void list(disk *of, disk_descriptor *descriptor)
{
    const disk_inode *dir = descriptor->inode;
    const size_t count = (size_t)dir->num_entries + 2;
    struct dirent *entries = disk_take(count * sizeof(*entries));
    for (uint32_t i = 0; i < count; i++) {
        /* Inserting each entry at a random position keeps a random order. */
        const uint32_t at = fedge_rng_below(&of->rng, i + 1);
        entries[i] = entries[at];
        if (i < 2)
            add_to_listing(&entries[at], i == 0 ? "." : "..", dir);
        else
            add_to_listing(&entries[at], dir->entries[i - 2]->name, dir->entries[i - 2]);
    }
    descriptor->listing = entries;
    descriptor->listing_size = count * sizeof(*entries);
}

WRAPPED(DIR *, opendir, const char *path)
{
    disk *of = disk_own();
    if (!of)
        return __real_opendir(path);
    disk_descriptor *opened;
    const int error = disk_open_path(of, path, O_RDONLY | O_DIRECTORY, 0, &opened);
    if (error == 0)
        return (DIR *)opened;
    errno = error;
    return NULL;
}

WRAPPED(struct dirent *, readdir64, DIR *stream)
{
    disk *of = disk_own();
    disk_descriptor *descriptor = stream_of(of, stream);
    if (!descriptor)
        return __real_readdir64(stream);
    const int error = descriptor->listing ? 0 : disk_begin(of, DISK_FALLIBLE);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    if (!descriptor->listing)
        list(of, descriptor);
    struct dirent *entries = descriptor->listing;
    const uint64_t count = descriptor->listing_size / sizeof(*entries);
    return descriptor->position < count ? &entries[descriptor->position++] : NULL;
}

struct dirent *__wrap_readdir(DIR *stream);
struct dirent *__wrap_readdir(DIR *stream)
{
    return __wrap_readdir64(stream);
}

WRAPPED(int, closedir, DIR *stream)
{
    disk *of = disk_own();
    disk_descriptor *descriptor = stream_of(of, stream);
    if (!descriptor)
        return __real_closedir(stream);
    const int error = disk_begin(of, DISK_SURE);
    disk_close(of, descriptor);
    return disk_finish(error);
}
/* NOLINTEND(bugprone-reserved-identifier) */
