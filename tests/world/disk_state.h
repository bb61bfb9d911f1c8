/* The state of the simulated disks and its changes, which a power failure may undo. disk.c has the
 * world's functions, disk_calls.c the processes' calls.
 *
 * A file has its present content and a log of the changes that are not synced. Each log entry has
 * the bytes that were written and those that they replaced. A power failure undoes all entries, the
 * last one first, and then repeats those that survive. The names in all directories of a disk have
 * one such log. A sync removes what it makes durable.
 *
 * All is used by one OS thread. Internal errors end the process. */
#ifndef FEDGE_TESTS_WORLD_DISK_STATE_H
#define FEDGE_TESTS_WORLD_DISK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "tests/world/disk.h"

enum {
    DISK_FIRST_FD = 1 << 20, /* greater than any real descriptor */
    DISK_MAX_OPEN = 128,     /* open descriptors of one node */
    DISK_MAX_NAME = 255,
    DISK_MAX_PATH = 4096,
    DISK_SECTOR = 512
};

typedef enum disk_change_kind { DISK_WRITE, DISK_CUT, DISK_EXTEND } disk_change_kind;

typedef enum disk_certainty {
    DISK_PENDING,
    DISK_CERTAIN,
    DISK_DOUBTFUL /* its sync failed, and no later one makes it durable */
} disk_certainty;

/* An unsynced change of a file's content. */
typedef struct disk_change {
    struct disk_change *previous, *next;
    uint64_t number; /* position among all changes of the disk */
    disk_change_kind kind;
    disk_certainty certainty;
    uint64_t at;                   /* DISK_WRITE: the offset; otherwise the new size */
    uint64_t old_size, old_filled; /* sizes of the file before the change */
    size_t num_new, num_old;
    uint8_t bytes[]; /* the bytes written, then those replaced or cut off; both begin at [at] */
} disk_change;

/* A file or a directory. It has one name, or none any more. */
typedef struct disk_inode {
    struct disk_inode *previous, *next; /* list of all inodes of the disk */
    uint64_t number;
    bool is_dir;
    uint32_t mode;
    uint32_t num_open;     /* open descriptors */
    uint32_t num_mentions; /* entries of the log of names that refer to it */
    struct disk_inode *parent;
    char *name;       /* NULL: it has no name, or is the root */
    uint64_t counted; /* its contribution to the disk's used bytes */
    bool reached;     /* mark of a walk over all inodes */

    uint8_t *data;         /* content of a file: [room] bytes, of which [filled] are set */
    size_t room;           /* capacity of [data] */
    uint64_t size, filled; /* bytes from [filled] on are zeros that are not stored */
    disk_change *first, *last;
    int lock_fd; /* descriptor that holds the lock; −1: none */

    struct disk_inode **entries; /* entries of a directory, sorted by name */
    uint32_t num_entries, max_entries;
} disk_inode;

/* A name in a directory, and the inodes that it named before and after a change; NULL: none. */
typedef struct disk_binding {
    disk_inode *dir, *before, *after;
    char *name;
} disk_binding;

/* An unsynced change of one name, or of the two of a rename. */
typedef struct disk_naming {
    struct disk_naming *previous, *next;
    uint64_t number;
    disk_certainty certainty;
    disk_inode *synced_by; /* the directory whose sync makes it durable */
    unsigned num_bindings;
    disk_binding bindings[2];
} disk_naming;

typedef struct disk_descriptor {
    disk_inode *inode; /* NULL: closed */
    int flags;
    uint64_t position; /* file offset; in a listing, the number of entries read */
    void *listing;     /* NULL: not read yet */
    size_t listing_size;
} disk_descriptor;

typedef struct disk {
    bool exists;
    uint32_t node;
    disk_inode *root, *inodes;
    disk_naming *first, *last;
    uint64_t next_inode, next_change;
    uint64_t used, num_calls;
    uint32_t num_open;
    disk_descriptor open[DISK_MAX_OPEN];
    world_disk_faults faults;
    fedge_rng rng; /* draws faults, names of temporary files and the order of listings */
} disk;

/* The result of following a path. */
typedef struct disk_place {
    disk_inode *dir;              /* NULL: the path ends with the root directory, "." or ".." */
    disk_inode *inode;            /* NULL: nothing has this name */
    char name[DISK_MAX_NAME + 1]; /* the last name, in [dir] */
    bool slash;                   /* the path ends with a slash */
} disk_place;

/* The node's disk. */
disk *disk_of(uint32_t node);

/* ---- memory: of the world, and not of the running fiber's node --------------------------------
 */

void *disk_take(size_t size); /* not zeroed */
void disk_give(void *block, size_t size);
char *disk_take_text(const char *text);
void disk_give_text(char *text);
void disk_forget_memory(void); /* frees all blocks */
void disk_must(bool holds, const char *what);

/* ---- files and directories --------------------------------------------------------------------
 */

disk_inode *disk_new_inode(disk *of, bool is_dir, uint32_t mode);
/* Frees the inode unless something still refers to it. */
void disk_release(disk *of, disk_inode *inode);
void disk_free_inode(disk *of, disk_inode *inode);
void disk_account(disk *of, disk_inode *inode);
disk_inode *disk_find(const disk_inode *dir, const char *name);

bool disk_has_path(const char *path); /* it is WORLD_DISK_ROOT or below it */
/* Follows such a path. Returns 0 or an errno; 0 also if nothing has the last name. ENOTDIR with an
 * inode: the only error is a slash after the name of a file. */
int disk_look_up(disk *of, const char *path, disk_place *place);

/* Changes that are not logged. disk_set_name with [inode] NULL removes the name. */
void disk_put(disk_inode *file, uint64_t at, const uint8_t *data, size_t size);
void disk_set_size(disk_inode *file, uint64_t size);
void disk_set_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode);
/* The whole content: [size] bytes, zeros included. */
uint8_t *disk_fill(disk_inode *file);

/* The same changes, logged. */
void disk_write(disk *of, disk_inode *file, uint64_t at, const uint8_t *data, size_t size);
void disk_resize(disk *of, disk_inode *file, uint64_t size);
void disk_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode);
void disk_rename(disk *of, disk_inode *moved, disk_inode *dir, const char *name);

/* Makes the changes of [inode] with numbers below [end] durable, or doubtful if their sync failed.
 */
void disk_sync(disk *of, disk_inode *inode, uint64_t end);
void disk_fail_sync(disk *of, disk_inode *inode, uint64_t end);

void disk_forget_changes(disk_inode *file);
void disk_forget_naming(disk *of, disk_naming *made);

/* Closes a descriptor without a system call. */
void disk_close(disk *of, disk_descriptor *descriptor);

#endif
