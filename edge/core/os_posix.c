/* Files on POSIX systems. os_posix_machine.c has the clock, randomness and facts about the machine.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "edge/core/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_MODE 0600
#define DIR_MODE 0700
#define MAX_DIR_ENTRIES 1000000 /* entries of a listed directory */
#define MAX_TREE_DEPTH 32       /* depth of a directory to remove */

/* Linux's maximum for one call, rounded down to pages. */
#define MAX_TRANSFER ((size_t)0x7ffff000)

static fedge_status copy_path(char out[FEDGE_OS_MAX_PATH], const char *path, fedge_error *err)
{
    size_t length = strlen(path);
    if (length == 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "the path is empty");
    if (length >= FEDGE_OS_MAX_PATH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path %.60s... has %zu bytes; at most %d are allowed",
                          path, length, FEDGE_OS_MAX_PATH - 1);
    }
    memcpy(out, path, length + 1);
    return FEDGE_OK;
}

/* The directory of [path]: "a/b" gives "a", "b" gives ".", "/b" gives "/". */
static fedge_status parent_of(char out[FEDGE_OS_MAX_PATH], const char *path, fedge_error *err)
{
    FEDGE_TRY(copy_path(out, path, err));
    char *slash = strrchr(out, '/');
    if (!slash)
        memcpy(out, ".", 2);
    else if (slash == out)
        out[1] = '\0';
    else
        *slash = '\0';
    return FEDGE_OK;
}

/* O_NONBLOCK has no effect on files, and prevents blocking on a pipe in their place. */
static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Reads up to [size] bytes at [offset]; *done is less only at the end of the file. */
static fedge_status read_up_to(int fd, const char *path, uint64_t offset, uint8_t *out, size_t size,
                               size_t *done, fedge_error *err)
{
    *done = 0;
    while (*done < size) {
        size_t left = size - *done;
        ssize_t got = pread(fd, out + *done, left < MAX_TRANSFER ? left : MAX_TRANSFER,
                            (off_t)(offset + *done));
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return fedge_fail_errno(err, errno, "cannot read %s", path);
        *done += got > 0 ? (size_t)got : 0;
    }
    return FEDGE_OK;
}

static fedge_status write_all(int fd, const char *path, uint64_t offset, const uint8_t *data,
                              size_t size, fedge_error *err)
{
    size_t done = 0;
    while (done < size) {
        size_t left = size - done;
        ssize_t put = pwrite(fd, data + done, left < MAX_TRANSFER ? left : MAX_TRANSFER,
                             (off_t)(offset + done));
        if (put < 0 && errno != EINTR) {
            return fedge_fail_errno(err, errno, "cannot write %s at byte %llu", path,
                                    (unsigned long long)(offset + done));
        }
        /* Zero bytes without an error would loop forever. */
        if (put == 0) {
            return fedge_fail(err, FEDGE_IO, "cannot write %s at byte %llu: nothing was taken",
                              path, (unsigned long long)(offset + done));
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return FEDGE_OK;
}

static fedge_status size_of(int fd, const char *path, uint64_t *size, fedge_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fedge_fail_errno(err, errno, "cannot look at %s", path);
    if (!S_ISREG(info.st_mode)) {
        return fedge_fail(err, FEDGE_IO, "%s is %s, not a regular file", path,
                          S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    }
    *size = (uint64_t)info.st_size;
    return FEDGE_OK;
}

/* Reads an open file; one that grows meanwhile up to its first size, one that shrinks up to its
 * end. */
static fedge_status read_open_file(int fd, const char *path, size_t limit, uint8_t **data,
                                   size_t *size, fedge_error *err)
{
    uint64_t file_size;
    FEDGE_TRY(size_of(fd, path, &file_size, err));
    if (file_size > limit) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s has %llu bytes; the limit is %zu", path,
                          (unsigned long long)file_size, limit);
    }
    uint8_t *block = malloc((size_t)file_size + 1);
    if (!block) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the %llu bytes of %s",
                          (unsigned long long)file_size, path);
    }
    fedge_status status = read_up_to(fd, path, 0, block, (size_t)file_size, size, err);
    if (status != FEDGE_OK) {
        free(block);
        return status;
    }
    block[*size] = '\0';
    *data = block;
    return FEDGE_OK;
}

fedge_status fedge_os_read_file(const char *path, size_t limit, uint8_t **data, size_t *size,
                                fedge_error *err)
{
    *data = NULL;
    int fd = open_retry(path, O_RDONLY, 0);
    if (fd < 0)
        return fedge_fail_errno(err, errno, "cannot open %s", path);
    fedge_status status = read_open_file(fd, path, limit, data, size, err);
    close(fd);
    return status;
}

bool fedge_os_read_fact(const char *path, char *out, size_t size)
{
    ssize_t got = -1;
    const int fd = open_retry(path, O_RDONLY, 0);
    if (fd >= 0) {
        do
            got = read(fd, out, size - 1);
        while (got < 0 && errno == EINTR);
        (void)close(fd);
    }
    out[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

/* Fills the new file [temporary] and renames it. */
static fedge_status fill_and_rename(int fd, const char *temporary, const char *path,
                                    const fedge_os_part *parts, size_t num_parts, unsigned mode,
                                    fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    uint64_t at = 0;
    for (size_t i = 0; i < num_parts && status == FEDGE_OK; at += parts[i++].size)
        status = write_all(fd, temporary, at, parts[i].data, parts[i].size, err);
    /* Before the rename, so that a secret never has its name with the wrong mode. */
    if (status == FEDGE_OK && fchmod(fd, (mode_t)mode) != 0)
        status = fedge_fail_errno(err, errno, "cannot set the mode of %s", temporary);
    /* Sync data before the rename: after a crash the file is the old or the new one. */
    if (status == FEDGE_OK && fsync(fd) != 0)
        status = fedge_fail_errno(err, errno, "cannot sync %s to the disk", temporary);
    /* Some file systems report a failed write only here. */
    if (close(fd) != 0 && status == FEDGE_OK)
        status = fedge_fail_errno(err, errno, "cannot close %s", temporary);
    FEDGE_TRY(status);
    return fedge_os_rename(temporary, path, err);
}

/* Syncs the directory entry of [path]. */
static fedge_status sync_parent(const char *path, fedge_error *err)
{
    char parent[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(parent_of(parent, path, err));
    return fedge_os_sync_dir(parent, err);
}

fedge_status fedge_os_write_file(const char *path, const void *data, size_t size, unsigned mode,
                                 fedge_error *err)
{
    return fedge_os_write_parts(path, &(fedge_os_part){data, size}, 1, mode, err);
}

fedge_status fedge_os_write_parts(const char *path, const fedge_os_part *parts, size_t num_parts,
                                  unsigned mode, fedge_error *err)
{
    char temporary[FEDGE_OS_MAX_PATH + 16];
    FEDGE_TRY(copy_path(temporary, path, err));
    struct stat info; /* a rename would replace a device such as /dev/null by a file */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return fedge_fail(err, FEDGE_IO, "%s is not a regular file: name another", path);
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX" FEDGE_OS_TEMPORARY_SUFFIX, path);
    int fd = mkostemps(temporary, sizeof(FEDGE_OS_TEMPORARY_SUFFIX) - 1, O_CLOEXEC);
    if (fd < 0)
        return fedge_fail_errno(err, errno, "cannot create a file beside %s", path);
    fedge_status status = fill_and_rename(fd, temporary, path, parts, num_parts, mode, err);
    if (status != FEDGE_OK) {
        unlink(temporary);
        return status;
    }
    return sync_parent(path, err);
}

/* The process that created [path] may have been killed before its name was synced. A parent that
 * cannot be read or synced was not created by fedge. */
static fedge_status make_durable(const char *path, fedge_error *err)
{
    char parent[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(parent_of(parent, path, err));
    const int fd = open_retry(parent, O_RDONLY | O_DIRECTORY, 0);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    /* close may change errno */
    const int errnum = errno;
    if (fd >= 0)
        close(fd);
    return synced || errnum == EACCES || errnum == EINVAL || errnum == EROFS
               ? FEDGE_OK
               : fedge_fail_errno(err, errnum, "cannot sync directory %s to the disk", parent);
}

/* Truncates [path] to its existing part, without a trailing slash; "" if nothing exists, or only
 * the root. */
static void cut_to_existing(char *path)
{
    char *end = path + strlen(path);
    for (;;) {
        while (end > path && end[-1] == '/')
            *--end = '\0';
        if (end == path || fedge_os_exists(path))
            return;
        while (end > path && end[-1] != '/')
            *--end = '\0';
    }
}

fedge_status fedge_os_make_dir(const char *path, fedge_error *err)
{
    return mkdir(path, DIR_MODE) == 0
               ? FEDGE_OK
               : fedge_fail_errno(err, errno, "cannot create directory %s", path);
}

fedge_status fedge_os_make_dirs(const char *path, fedge_error *err)
{
    char part[FEDGE_OS_MAX_PATH];
    FEDGE_TRY(copy_path(part, path, err));
    cut_to_existing(part);
    size_t at = strlen(part);
    if (at > 0)
        FEDGE_TRY(make_durable(part, err));
    while (path[at] != '\0') {
        do
            part[at] = path[at];
        while (path[++at] != '/' && path[at] != '\0');
        part[at] = '\0';
        if (mkdir(part, DIR_MODE) == 0) {
            FEDGE_TRY(sync_parent(part, err));
        } else if (errno == EEXIST) {
            /* Another process has made it meanwhile, and may be killed before it syncs it. */
            FEDGE_TRY(make_durable(part, err));
        } else {
            return fedge_fail_errno(err, errno, "cannot create directory %s", part);
        }
    }
    struct stat info;
    if (stat(path, &info) != 0)
        return fedge_fail_errno(err, errno, "cannot look at %s", path);
    if (!S_ISDIR(info.st_mode))
        return fedge_fail(err, FEDGE_EXISTS, "%s exists and is not a directory", path);
    return FEDGE_OK;
}

fedge_status fedge_os_sync_dir(const char *path, fedge_error *err)
{
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fedge_fail_errno(err, errno, "cannot open directory %s", path);
    fedge_status status = FEDGE_OK;
    if (fsync(fd) != 0)
        status = fedge_fail_errno(err, errno, "cannot sync directory %s to the disk", path);
    close(fd);
    return status;
}

bool fedge_os_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

fedge_status fedge_os_find(const char *path, bool *exists, fedge_error *err)
{
    struct stat info;
    *exists = stat(path, &info) == 0;
    return *exists || errno == ENOENT || errno == ENOTDIR
               ? FEDGE_OK
               : fedge_fail_errno(err, errno, "cannot look for %s", path);
}

bool fedge_os_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

fedge_status fedge_os_remove(const char *path, fedge_error *err)
{
    if (unlink(path) != 0)
        return fedge_fail_errno(err, errno, "cannot remove %s", path);
    return FEDGE_OK;
}

static fedge_status remove_entry(const char *path, unsigned depth, fedge_error *err);

typedef struct remove_visit {
    const char *path;
    unsigned depth;
} remove_visit;

static fedge_status remove_child(void *user, const char *name, fedge_error *err)
{
    const remove_visit *visit = user;
    char child[FEDGE_OS_MAX_PATH];
    int length = snprintf(child, sizeof(child), "%s/%s", visit->path, name);
    /* A link's target is not replaced. */
    if (length < 0 || (size_t)length >= sizeof(child)) {
        return fedge_fail(err, FEDGE_TOO_BIG, "path of %.60s in %.200s is over %d bytes", name,
                          visit->path, FEDGE_OS_MAX_PATH - 1);
    }
    return remove_entry(child, visit->depth + 1, err);
}

/* Symbolic links are removed, not followed. */
static fedge_status remove_entry(const char *path, unsigned depth, fedge_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? FEDGE_OK : fedge_fail_errno(err, errno, "cannot look at %s", path);
    if (!S_ISDIR(info.st_mode))
        return fedge_os_remove(path, err);
    if (depth > MAX_TREE_DEPTH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s is more than %d directories deep", path,
                          MAX_TREE_DEPTH);
    }
    /* Contents are removed first; the depth bounds the recursion. */
    remove_visit visit = {path, depth};
    FEDGE_TRY(fedge_os_list_dir(path, remove_child, &visit, err));
    if (rmdir(path) != 0)
        return fedge_fail_errno(err, errno, "cannot remove directory %s", path);
    return FEDGE_OK;
}

fedge_status fedge_os_remove_tree(const char *path, fedge_error *err)
{
    return remove_entry(path, 0, err);
}

fedge_status fedge_os_rename(const char *from, const char *to, fedge_error *err)
{
    if (rename(from, to) != 0)
        return fedge_fail_errno(err, errno, "cannot rename %s to %s", from, to);
    return FEDGE_OK;
}

fedge_status fedge_os_publish(const char *temporary, const char *path, fedge_error *err)
{
    FEDGE_TRY(fedge_os_rename(temporary, path, err));
    return sync_parent(path, err);
}

/* An owned list of names. */
typedef struct name_list {
    char **names;
    size_t count;
    size_t capacity;
} name_list;

static fedge_status add_name(name_list *list, const char *name, const char *path, fedge_error *err)
{
    if (list->count >= MAX_DIR_ENTRIES) {
        return fedge_fail(err, FEDGE_TOO_BIG, "directory %s has more than %d entries", path,
                          MAX_DIR_ENTRIES);
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? list->capacity * 2 : 64;
        char **names = realloc(list->names, capacity * sizeof(names[0]));
        if (!names)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list directory %s", path);
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count] = strdup(name);
    if (!list->names[list->count])
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list directory %s", path);
    list->count++;
    return FEDGE_OK;
}

static fedge_status read_names(DIR *dir, const char *path, name_list *list, fedge_error *err)
{
    for (;;) {
        /* only errno distinguishes readdir's errors from the end */
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            return errno == 0 ? FEDGE_OK
                              : fedge_fail_errno(err, errno, "cannot list directory %s", path);
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        FEDGE_TRY(add_name(list, entry->d_name, path, err));
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

fedge_status fedge_os_list_dir(const char *path, fedge_os_visit visit, void *user, fedge_error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return fedge_fail_errno(err, errno, "cannot open directory %s", path);
    /* Collect all names first: the visitor may change the directory. */
    name_list list = {0};
    fedge_status status = read_names(dir, path, &list, err);
    closedir(dir);
    /* Sorted, so that results do not depend on the file system. */
    if (list.count > 0)
        qsort(list.names, list.count, sizeof(list.names[0]), compare_names);
    for (size_t i = 0; i < list.count && status == FEDGE_OK; i++)
        status = visit(user, list.names[i], err);
    while (list.count > 0)
        free(list.names[--list.count]);
    free(list.names);
    return status;
}

/* Reports the lock's holder. */
static fedge_status fail_locked(int fd, const char *path, fedge_error *err)
{
    char text[16] = {0};
    /* It may be another program's file, or incomplete. */
    size_t length = 0;
    if (read_up_to(fd, path, 0, (uint8_t *)text, sizeof(text) - 1, &length, NULL) != FEDGE_OK)
        length = 0;
    text[length] = '\0';
    text[strspn(text, "0123456789")] = '\0';
    return fedge_fail(err, FEDGE_BUSY, "%s is locked by another program (pid %s); stop that first",
                      path, text[0] != '\0' ? text : "unknown");
}

fedge_status fedge_os_lock(const char *path, int *lock, fedge_error *err)
{
    int fd = open_retry(path, O_RDWR | O_CREAT, FILE_MODE);
    if (fd < 0)
        return fedge_fail_errno(err, errno, "cannot open lock file %s", path);
    /* flock, not fcntl, whose lock is lost when any descriptor of the file is closed. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        fedge_status status = errno == EWOULDBLOCK
                                  ? fail_locked(fd, path, err)
                                  : fedge_fail_errno(err, errno, "cannot lock %s", path);
        close(fd);
        return status;
    }
    char pid[24];
    int length = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    /* The file may still have the previous holder's pid. */
    fedge_status status = ftruncate(fd, 0) != 0
                              ? fedge_fail_errno(err, errno, "cannot write lock file %s", path)
                              : write_all(fd, path, 0, (const uint8_t *)pid, (size_t)length, err);
    if (status != FEDGE_OK) {
        close(fd);
        return status;
    }
    *lock = fd;
    return FEDGE_OK;
}

void fedge_os_unlock(int lock)
{
    /* The kernel releases the lock with the descriptor, also if the program is killed. */
    close(lock);
}

fedge_status fedge_os_open(fedge_os_file *file, const char *path, fedge_os_mode mode,
                           fedge_error *err)
{
    static const int flags[] = {
        [FEDGE_OS_READ] = O_RDONLY,
        [FEDGE_OS_READ_WRITE] = O_RDWR,
        [FEDGE_OS_CREATE] = O_RDWR | O_CREAT,
    };
    file->fd = -1;
    FEDGE_TRY(copy_path(file->path, path, err));
    file->fd = open_retry(path, flags[mode], FILE_MODE);
    if (file->fd < 0)
        return fedge_fail_errno(err, errno, "cannot open %s", path);
    return FEDGE_OK;
}

fedge_status fedge_os_open_temporary(fedge_os_file *file, const char *folder,
                                     char chosen[FEDGE_OS_MAX_PATH], fedge_error *err)
{
    char name[FEDGE_OS_MAX_PATH];
    uint64_t number = 0;
    const char *named = folder ? folder : getenv("TMPDIR");
    named = named && named[0] != '\0' ? named : "/var/tmp";
    FEDGE_TRY(copy_path(chosen, named, err));
    FEDGE_TRY(fedge_os_random(&number, sizeof(number), err));
    if (fedge_os_format(name, sizeof(name), "%s/fedge-%016llx", named,
                        (unsigned long long)number) >= (int)sizeof(name))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s… is too long", named);
    FEDGE_TRY(fedge_os_open(file, name, FEDGE_OS_CREATE, err));
    /* An unlinked file disappears when the program ends for any reason. */
    return fedge_os_remove(name, err);
}

fedge_status fedge_os_open_shared(fedge_os_file *file, uint64_t size, fedge_error *err)
{
    char chosen[FEDGE_OS_MAX_PATH];
    *file = (fedge_os_file){.fd = -1, .path = "shared memory"};
#ifdef MFD_CLOEXEC
    file->fd = memfd_create("fedge", MFD_CLOEXEC);
#endif
    if (file->fd < 0)
        FEDGE_TRY(fedge_os_open_temporary(file, NULL, chosen, err));
    const fedge_status status = fedge_os_cut(file, size, err);
    if (status != FEDGE_OK)
        fedge_os_close(file);
    return status;
}

fedge_status fedge_os_read_at(const fedge_os_file *file, uint64_t offset, void *out, size_t size,
                              fedge_error *err)
{
    size_t done;
    FEDGE_TRY(read_up_to(file->fd, file->path, offset, out, size, &done, err));
    if (done < size) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "%s ends at byte %llu; %zu bytes at %llu were asked", file->path,
                          (unsigned long long)(offset + done), size, (unsigned long long)offset);
    }
    return FEDGE_OK;
}

fedge_status fedge_os_write_at(const fedge_os_file *file, uint64_t offset, const void *data,
                               size_t size, fedge_error *err)
{
    return write_all(file->fd, file->path, offset, data, size, err);
}

fedge_status fedge_os_sync(const fedge_os_file *file, fedge_error *err)
{
    /* Syncs data and length without times, which saves a journal entry per commit. */
    if (fdatasync(file->fd) != 0)
        return fedge_fail_errno(err, errno, "cannot sync %s to the disk", file->path);
    return FEDGE_OK;
}

/* For file systems without fallocate. */
static fedge_status reserve_by_length(const fedge_os_file *file, uint64_t size, fedge_error *err)
{
    uint64_t present;
    FEDGE_TRY(fedge_os_file_size(file, &present, err));
    if (present >= size)
        return FEDGE_OK;
    uint64_t free_bytes = 0;
    FEDGE_TRY(fedge_os_free_bytes(file->path, &free_bytes, err));
    /* Other writes may use up the space, but without fallocate this is all that can be checked. */
    if (free_bytes < size - present) {
        return fedge_fail(err, FEDGE_NO_SPACE, "%s needs %llu more bytes; the disk has %llu free",
                          file->path, (unsigned long long)(size - present),
                          (unsigned long long)free_bytes);
    }
    if (ftruncate(file->fd, (off_t)size) != 0) {
        return fedge_fail_errno(err, errno, "cannot reserve %llu bytes for %s",
                                (unsigned long long)size, file->path);
    }
    return FEDGE_OK;
}

fedge_status fedge_os_reserve(const fedge_os_file *file, uint64_t size, fedge_error *err)
{
    if (size == 0)
        return FEDGE_OK; /* posix_fallocate's EINVAL */
    if (size > INT64_MAX) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%llu bytes cannot be reserved for %s",
                          (unsigned long long)size, file->path);
    }
    int error;
    do
        error = posix_fallocate(file->fd, 0, (off_t)size);
    while (error == EINTR);
    /* glibc writes zeros itself if the kernel cannot; musl returns this. */
    if (error == EOPNOTSUPP || error == ENOSYS)
        return reserve_by_length(file, size, err);
    if (error != 0) {
        return fedge_fail_errno(err, error, "cannot reserve %llu bytes for %s",
                                (unsigned long long)size, file->path);
    }
    return FEDGE_OK;
}

fedge_status fedge_os_cut(const fedge_os_file *file, uint64_t size, fedge_error *err)
{
    if (ftruncate(file->fd, (off_t)size) != 0) {
        return fedge_fail_errno(err, errno, "cannot cut %s to %llu bytes", file->path,
                                (unsigned long long)size);
    }
    return FEDGE_OK;
}

fedge_status fedge_os_file_size(const fedge_os_file *file, uint64_t *size, fedge_error *err)
{
    return size_of(file->fd, file->path, size, err);
}

void fedge_os_close(fedge_os_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

fedge_status fedge_os_free_bytes(const char *path, uint64_t *bytes, fedge_error *err)
{
    struct statvfs info;
    if (statvfs(path, &info) != 0)
        return fedge_fail_errno(err, errno, "cannot look at the file system of %s", path);
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return FEDGE_OK;
}

/* ---- permissions ----------------------------------------------------------------------------- */

fedge_status fedge_os_check_not_writable(const char *path, fedge_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fedge_fail_errno(err, errno, "cannot look at %s", path);
    if ((info.st_mode & S_IWOTH) != 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "%s is writable by everyone (mode %04o): check that it holds only what "
                          "you put there, then run 'chmod o-w %s'",
                          path, (unsigned)(info.st_mode & 07777), path);
    }
    return FEDGE_OK;
}

fedge_status fedge_os_check_private(const char *path, fedge_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fedge_fail_errno(err, errno, "cannot look at %s", path);
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return fedge_fail(err, FEDGE_DENIED,
                          "%s is open to others (mode %04o): run 'chmod go= %s', and replace the "
                          "key if someone may have read it",
                          path, (unsigned)(info.st_mode & 07777), path);
    }
    return FEDGE_OK;
}
