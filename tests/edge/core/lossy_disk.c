#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/edge/core/lossy_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"

enum {
    MAX_NODES = 20000,
    MAX_CHANGES = 400000,
    SECTOR = 512,
    ROOT = 0,
    GONE = -1,
    ALL_SURVIVES = 1
};

typedef enum change_kind {
    CHANGE_WRITE,
    CHANGE_CUT,    /* to a size */
    CHANGE_EXTEND, /* to at least a size */
    CHANGE_ENTRY,  /* of a directory: made, replaced or removed */
    CHANGE_SYNC
} change_kind;

/* One name in one directory, and what it stands for from then on. */
typedef struct entry {
    int dir, node; /* node: or GONE */
    char *name;
} entry;

typedef struct change {
    change_kind kind;
    int node;         /* of the file, or the directory that must be synced for it */
    uint64_t at;      /* CHANGE_WRITE: offset; CHANGE_CUT, CHANGE_EXTEND: size */
    uint8_t *data;    /* CHANGE_WRITE */
    size_t size;      /* of data */
    entry entries[2]; /* CHANGE_ENTRY: a rename has two */
    unsigned num_entries;
    uint32_t covers; /* CHANGE_SYNC: changes before this one are on the disk now */
} change;

/* A file or directory, named or not any more. */
typedef struct disk_node {
    ino_t inode; /* 0: its number belongs to another one now */
    bool is_dir;
} disk_node;

static struct {
    bool on;
    char root[FEDGE_OS_MAX_PATH];
    disk_node nodes[MAX_NODES];
    int num_nodes;
    change changes[MAX_CHANGES];
    uint32_t num_changes, num_old; /* num_old: these were there at the beginning */
} disk;

/* Recursive, since what is in here calls what it stands in for. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void must(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "lossy disk: %s: %s\n", what, strerror(errno));
        abort();
    }
}

/* ---- what is recorded ------------------------------------------------------------------------ */

static int find_node(ino_t inode)
{
    for (int i = 0; i < disk.num_nodes; i++) {
        if (disk.nodes[i].inode == inode)
            return i;
    }
    return GONE;
}

/* The node of a path or descriptor, GONE when it is none of the recording's. */
static int node_at(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 ? find_node(info.st_ino) : GONE;
}

static int node_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? find_node(info.st_ino) : GONE;
}

/* Whatever has the number of the node [gone] next is another file. */
static void drop_node(int gone)
{
    if (gone != GONE)
        disk.nodes[gone].inode = 0;
}

static int add_node(const char *path)
{
    struct stat info;
    must(lstat(path, &info) == 0, path);
    drop_node(find_node(info.st_ino));
    must(disk.num_nodes < MAX_NODES, "too many files");
    disk.nodes[disk.num_nodes] = (disk_node){.inode = info.st_ino, .is_dir = S_ISDIR(info.st_mode)};
    return disk.num_nodes++;
}

/* The directory of [path], and where its last part begins. */
static int dir_of(const char *path, const char **name)
{
    char parent[2 * FEDGE_OS_MAX_PATH];
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return node_at(parent);
}

static change *add_change(change_kind kind, int of)
{
    must(disk.num_changes < MAX_CHANGES, "too many changes");
    change *made = &disk.changes[disk.num_changes++];
    *made = (change){.kind = kind, .node = of};
    return made;
}

static void add_entry(change *of, int dir, const char *name, int node)
{
    char *copy = strdup(name);
    must(copy != NULL, "no memory");
    of->entries[of->num_entries++] = (entry){.dir = dir, .node = node, .name = copy};
}

static void add_write(int node, uint64_t offset, const void *data, size_t size)
{
    change *made = add_change(CHANGE_WRITE, node);
    made->at = offset;
    made->size = size;
    made->data = malloc(size + 1);
    must(made->data != NULL, "no memory");
    memcpy(made->data, data, size);
}

/* A new file or directory at [path]. */
static void record_new(const char *path)
{
    const char *name;
    int dir = dir_of(path, &name);
    if (dir != GONE) {
        int made = add_node(path);
        add_entry(add_change(CHANGE_ENTRY, dir), dir, name, made);
    }
}

static void record_size(int fd, change_kind kind, uint64_t size)
{
    int file = node_of(fd);
    if (file != GONE)
        add_change(kind, file)->at = size;
}

/* ---- the calls that it stands in for --------------------------------------------------------- */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* Locks; true when the call is to be recorded. */
static bool enter(void)
{
    pthread_mutex_lock(&lock);
    return disk.on;
}

#define LEAVE(result)                                                                              \
    do {                                                                                           \
        ssize_t left_result = (result);                                                            \
        int left_errno = errno;                                                                    \
        pthread_mutex_unlock(&lock);                                                               \
        errno = left_errno;                                                                        \
        return (__typeof__(result))left_result;                                                    \
    } while (0)

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

static int open_file(const char *path, int flags, mode_t mode)
{
    struct stat info;
    bool fresh = enter() && (flags & O_CREAT) && lstat(path, &info) != 0;
    int fd = __real_open64(path, flags, mode);
    if (fd >= 0 && fresh)
        record_new(path);
    LEAVE(fd);
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

WRAPPED(int, mkostemps64, char *template, int suffix, int flags)
{
    bool on = enter();
    int fd = __real_mkostemps64(template, suffix, flags);
    if (fd >= 0 && on)
        record_new(template);
    LEAVE(fd);
}

WRAPPED(int, mkdir, const char *path, mode_t mode)
{
    bool on = enter();
    int result = __real_mkdir(path, mode);
    if (result == 0 && on)
        record_new(path);
    LEAVE(result);
}

WRAPPED(ssize_t, pwrite64, int fd, const void *data, size_t size, off64_t offset)
{
    bool on = enter();
    ssize_t done = __real_pwrite64(fd, data, size, offset);
    int file = on && done > 0 ? node_of(fd) : GONE;
    if (file != GONE)
        add_write(file, (uint64_t)offset, data, (size_t)done);
    LEAVE(done);
}

WRAPPED(int, ftruncate64, int fd, off64_t size)
{
    bool on = enter();
    int result = __real_ftruncate64(fd, size);
    if (result == 0 && on)
        record_size(fd, CHANGE_CUT, (uint64_t)size);
    LEAVE(result);
}

WRAPPED(int, posix_fallocate64, int fd, off64_t offset, off64_t size)
{
    bool on = enter();
    int result = __real_posix_fallocate64(fd, offset, size);
    if (result == 0 && on)
        record_size(fd, CHANGE_EXTEND, (uint64_t)(offset + size));
    LEAVE(result);
}

static void remove_name(const char *path, int removed)
{
    const char *name;
    int dir = dir_of(path, &name);
    if (dir != GONE) {
        add_entry(add_change(CHANGE_ENTRY, dir), dir, name, GONE);
        drop_node(removed);
    }
}

WRAPPED(int, unlink, const char *path)
{
    int removed = enter() ? node_at(path) : GONE;
    int result = __real_unlink(path);
    if (result == 0 && removed != GONE)
        remove_name(path, removed);
    LEAVE(result);
}

WRAPPED(int, rmdir, const char *path)
{
    int removed = enter() ? node_at(path) : GONE;
    int result = __real_rmdir(path);
    if (result == 0 && removed != GONE)
        remove_name(path, removed);
    LEAVE(result);
}

WRAPPED(int, rename, const char *from, const char *to)
{
    bool on = enter();
    int moved = on ? node_at(from) : GONE, replaced = on ? node_at(to) : GONE;
    int result = __real_rename(from, to);
    if (result == 0 && moved != GONE) {
        const char *old_name, *new_name;
        int old_dir = dir_of(from, &old_name), new_dir = dir_of(to, &new_name);
        must(old_dir != GONE && new_dir != GONE, "renamed into or out of the root");
        drop_node(replaced);
        change *made = add_change(CHANGE_ENTRY, new_dir);
        add_entry(made, old_dir, old_name, GONE);
        add_entry(made, new_dir, new_name, moved);
    }
    LEAVE(result);
}

static void record_sync(int fd)
{
    int synced = node_of(fd);
    uint32_t covers = disk.num_changes;
    if (synced != GONE)
        add_change(CHANGE_SYNC, synced)->covers = covers;
}

#define DEFINE_SYNC(name)                                                                          \
    WRAPPED(int, name, int fd)                                                                     \
    {                                                                                              \
        if (!enter()) {                                                                            \
            LEAVE(__real_##name(fd));                                                              \
        }                                                                                          \
        record_sync(fd);                                                                           \
        LEAVE(0);                                                                                  \
    }
DEFINE_SYNC(fsync)
DEFINE_SYNC(fdatasync)
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- the beginning --------------------------------------------------------------------------- */

static void forget_change(change *of)
{
    free(of->data);
    for (unsigned i = 0; i < of->num_entries; i++)
        free(of->entries[i].name);
}

static void forget(void)
{
    for (uint32_t i = 0; i < disk.num_changes; i++)
        forget_change(&disk.changes[i]);
    disk.num_changes = disk.num_old = 0;
    disk.num_nodes = 0;
    disk.on = false;
}

static fedge_status add_old(void *user, const char *name, fedge_error *err)
{
    char path[2 * FEDGE_OS_MAX_PATH];
    uint8_t *data;
    size_t size;
    snprintf(path, sizeof(path), "%s/%s", (const char *)user, name);
    record_new(path);
    int made = disk.num_nodes - 1;
    if (disk.nodes[made].is_dir)
        return fedge_os_list_dir(path, add_old, path, err);
    must(fedge_os_read_file(path, (size_t)1 << 30, &data, &size, err) == FEDGE_OK, path);
    add_write(made, 0, data, size);
    free(data);
    return FEDGE_OK;
}

void lossy_disk_place(const char *name, char path[LOSSY_DISK_PLACE])
{
    const char *memory = "/dev/shm";
    bool there = access(memory, R_OK | W_OK | X_OK) == 0;
    int size = snprintf(path, LOSSY_DISK_PLACE, "%s/fedge-%s-%ld", there ? memory : ".", name,
                        (long)getpid());
    must(size > 0 && size < LOSSY_DISK_PLACE, "the name is too long");
}

void lossy_disk_begin(const char *root)
{
    pthread_mutex_lock(&lock);
    forget();
    must(strlen(root) < sizeof(disk.root), "the root's path is too long");
    memcpy(disk.root, root, strlen(root) + 1);
    must(add_node(root) == ROOT && disk.nodes[ROOT].is_dir, "the root is not a directory");
    must(fedge_os_list_dir(root, add_old, disk.root, NULL) == FEDGE_OK, root);
    disk.num_old = disk.num_changes;
    disk.on = true;
    pthread_mutex_unlock(&lock);
}

void lossy_disk_end(void)
{
    pthread_mutex_lock(&lock);
    forget();
    pthread_mutex_unlock(&lock);
}

uint32_t lossy_disk_now(void)
{
    pthread_mutex_lock(&lock);
    uint32_t now = disk.num_changes;
    pthread_mutex_unlock(&lock);
    return now;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Which changes are on the disk, and of the writes, which sectors. */
typedef struct survival {
    uint32_t moment;
    bool rebind;                 /* the image is to take the place of what is recorded */
    uint32_t covered[MAX_NODES]; /* changes of the node before this one are synced */
    bool whole[MAX_CHANGES];     /* all of it */
    bool torn[MAX_CHANGES];      /* some sectors, as [seed] draws them */
    uint64_t seed;
} survival;

static survival kept;

/* How many of eight changes survive that were not synced; ALL_SURVIVES: all. */
static uint32_t eighths(uint64_t seed)
{
    static const uint32_t of[] = {0, 8, 4, 1, 7, 4};
    return of[seed % (sizeof(of) / sizeof(of[0]))];
}

static void draw(uint32_t moment, uint64_t seed)
{
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, moment, 0, 0);
    memset(&kept, 0, sizeof(kept));
    kept.moment = moment < disk.num_old ? disk.num_old : moment;
    moment = kept.moment;
    kept.seed = seed;
    for (uint32_t i = 0; i < moment; i++) {
        const change *at = &disk.changes[i];
        if (at->kind == CHANGE_SYNC && at->covers > kept.covered[at->node])
            kept.covered[at->node] = at->covers;
    }
    for (uint32_t i = 0; i < moment; i++) {
        const change *at = &disk.changes[i];
        bool certain = i < disk.num_old || i < kept.covered[at->node];
        kept.whole[i] = certain || fedge_rng_below(&rng, 8) < eighths(seed);
        kept.torn[i] = !certain && at->kind == CHANGE_WRITE && eighths(seed) % 8 != 0 &&
                       fedge_rng_below(&rng, 4) == 0;
    }
}

static void write_sectors(int fd, const change *from, uint32_t number)
{
    fedge_rng rng = fedge_rng_stream(kept.seed, FEDGE_PURPOSE_TEST, number, 1, 0);
    for (size_t done = 0; done < from->size;) {
        size_t room = SECTOR - (size_t)((from->at + done) % SECTOR);
        size_t size = from->size - done < room ? from->size - done : room;
        if (fedge_rng_below(&rng, 2) == 0) {
            must(__real_pwrite64(fd, from->data + done, size, (off64_t)(from->at + done)) >= 0,
                 "write");
        }
        done += size;
    }
}

static void extend(int fd, uint64_t size)
{
    struct stat info;
    must(fstat(fd, &info) == 0, "fstat");
    if ((uint64_t)info.st_size < size)
        must(__real_ftruncate64(fd, (off64_t)size) == 0, "ftruncate");
}

static void rebind(int node, const char *path)
{
    struct stat info;
    if (kept.rebind) {
        must(lstat(path, &info) == 0, path);
        disk.nodes[node].inode = info.st_ino;
    }
}

static void make_file(int node, const char *path)
{
    int fd = __real_open64(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    must(fd >= 0, path);
    for (uint32_t i = 0; i < kept.moment; i++) {
        const change *at = &disk.changes[i];
        if (at->node != node)
            continue;
        if (kept.torn[i])
            write_sectors(fd, at, i);
        else if (kept.whole[i] && at->kind == CHANGE_WRITE)
            must(__real_pwrite64(fd, at->data, at->size, (off64_t)at->at) >= 0, path);
        else if (kept.whole[i] && at->kind == CHANGE_CUT)
            must(__real_ftruncate64(fd, (off64_t)at->at) == 0, path);
        else if (kept.whole[i] && at->kind == CHANGE_EXTEND)
            extend(fd, at->at);
    }
    close(fd);
    rebind(node, path);
}

/* What [name] of [dir] stands for after the change [last]: the last entry that survived says it. */
static int look_up(int dir, const char *name, uint32_t *last)
{
    int node = GONE;
    for (uint32_t i = 0; i < kept.moment; i++) {
        const change *at = &disk.changes[i];
        for (unsigned j = 0; j < at->num_entries && kept.whole[i]; j++) {
            if (at->entries[j].dir == dir && strcmp(at->entries[j].name, name) == 0) {
                node = at->entries[j].node;
                *last = i;
            }
        }
    }
    return node;
}

static void make_dir(int dir, const char *path)
{
    must(__real_mkdir(path, 0700) == 0, path);
    rebind(dir, path);
    for (uint32_t i = 0; i < kept.moment; i++) {
        for (unsigned j = 0; j < disk.changes[i].num_entries; j++) {
            const entry *at = &disk.changes[i].entries[j];
            char child[2 * FEDGE_OS_MAX_PATH];
            uint32_t last = 0;
            if (at->dir != dir || at->node == GONE || look_up(dir, at->name, &last) != at->node ||
                last != i)
                continue;
            snprintf(child, sizeof(child), "%s/%s", path, at->name);
            if (disk.nodes[at->node].is_dir)
                make_dir(at->node, child);
            else
                make_file(at->node, child);
        }
    }
}

void lossy_disk_image(uint32_t moment, uint64_t seed, const char *path)
{
    pthread_mutex_lock(&lock);
    bool on = disk.on;
    disk.on = false;
    must(moment <= disk.num_changes, "a moment that has not come");
    must(fedge_os_remove_tree(path, NULL) == FEDGE_OK, path);
    draw(moment, seed);
    make_dir(ROOT, path);
    disk.on = on;
    pthread_mutex_unlock(&lock);
}

void lossy_disk_kill(uint32_t moment)
{
    pthread_mutex_lock(&lock);
    disk.on = false;
    must(moment <= disk.num_changes, "a moment that has not come");
    must(fedge_os_remove_tree(disk.root, NULL) == FEDGE_OK, disk.root);
    draw(moment, ALL_SURVIVES);
    kept.rebind = true;
    for (int i = 0; i < disk.num_nodes; i++)
        disk.nodes[i].inode = 0;
    make_dir(ROOT, disk.root);
    while (disk.num_changes > kept.moment)
        forget_change(&disk.changes[--disk.num_changes]);
    disk.on = true;
    pthread_mutex_unlock(&lock);
}

void lossy_disk_power_off(uint64_t seed)
{
    char made[FEDGE_OS_MAX_PATH + 8];
    pthread_mutex_lock(&lock); /* for good */
    snprintf(made, sizeof(made), "%s.cut", disk.root);
    lossy_disk_image(disk.num_changes, seed, made);
    disk.on = false;
    must(fedge_os_remove_tree(disk.root, NULL) == FEDGE_OK, disk.root);
    must(__real_rename(made, disk.root) == 0, disk.root);
}
