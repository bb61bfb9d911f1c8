/* What the files of the simulated disk share: the state of the disks, and what can be done to it
 * that a power failure may undo. disk.c has the world's side, disk_calls.c the processes'.
 *
 * A file's content is the present one, with a log of the changes that are not synced: each keeps
 * the bytes that it wrote and those that it replaced. A power failure takes all of them back, the
 * last one first, and then makes again those that survive. Names in directories have one such log
 * for the whole disk. A sync drops what it makes certain.
 *
 * Everything is for one OS thread. What goes wrong in here ends the process.
 */
#ifndef FEDGE_TESTS_WORLD_DISK_STATE_H
#define FEDGE_TESTS_WORLD_DISK_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "tests/world/disk.h"

enum {
    DISK_FIRST_FD = 1 << 20, /* no real descriptor is this large */
    DISK_MAX_OPEN = 128,     /* descriptors of a node */
    DISK_MAX_NAME = 255,
    DISK_MAX_PATH = 4096,
    DISK_SECTOR = 512
};

typedef enum disk_change_kind { DISK_WRITE, DISK_CUT, DISK_EXTEND } disk_change_kind;

typedef enum disk_certainty {
    DISK_PENDING,
    DISK_CERTAIN,
    DISK_DOUBTFUL /* its sync failed: no later one makes it certain */
} disk_certainty;

/* An unsynced change of a file's content. */
typedef struct disk_change {
    struct disk_change *previous, *next;
    uint64_t number; /* in the order of all changes of the disk */
    disk_change_kind kind;
    disk_certainty certainty;
    uint64_t at;                   /* DISK_WRITE: offset; otherwise the size from then on */
    uint64_t old_size, old_filled; /* of the file */
    size_t num_new, num_old;
    uint8_t bytes[]; /* those written, then those replaced or cut off, which began at [at], too */
} disk_change;

/* A file or a directory, named or not any more. It has one name at most. */
typedef struct disk_inode {
    struct disk_inode *previous, *next; /* all of the disk */
    uint64_t number;
    bool is_dir;
    uint32_t mode;
    uint32_t num_open;     /* descriptors */
    uint32_t num_mentions; /* in the log of names */
    struct disk_inode *parent;
    char *name;       /* NULL: without a name, or the root */
    uint64_t counted; /* its part of the disk's used bytes */
    bool reached;     /* for a walk over all */

    uint8_t *data;         /* a file's: room ≥ filled bytes */
    size_t room;           /* of data */
    uint64_t size, filled; /* bytes from [filled] on are 0 */
    disk_change *first, *last;
    int lock_fd; /* −1: nobody's */

    struct disk_inode **entries; /* a directory's, sorted by name */
    uint32_t num_entries, max_entries;
} disk_inode;

/* One name in one directory, and what it stood for and stands for; NULL: nothing. */
typedef struct disk_binding {
    disk_inode *dir, *before, *after;
    char *name;
} disk_binding;

/* An unsynced change of names: one, or the two of a rename. */
typedef struct disk_naming {
    struct disk_naming *previous, *next;
    uint64_t number;
    disk_certainty certainty;
    disk_inode *synced_by; /* the directory whose sync makes it certain */
    unsigned num_bindings;
    disk_binding bindings[2];
} disk_naming;

typedef struct disk_descriptor {
    disk_inode *inode; /* NULL: closed */
    int flags;
    uint64_t position; /* of read and write; of a listing: entries that were read */
    void *listing;     /* NULL: none was read */
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
    fedge_rng rng; /* for the faults, the names of temporary files and the order of listings */
} disk;

/* Where a path leads. */
typedef struct disk_place {
    disk_inode *dir;              /* NULL: the path ends with the root, "." or ".." */
    disk_inode *inode;            /* NULL: there is none */
    char name[DISK_MAX_NAME + 1]; /* in [dir] */
    bool slash;                   /* the path ends with one */
} disk_place;

/* The node's disk. */
disk *disk_of(uint32_t node);

/* ---- memory: of the world, and not of the running fiber's node --------------------------------
 */

void *disk_take(size_t size); /* not zeroed */
void disk_give(void *block, size_t size);
char *disk_take_text(const char *text);
void disk_give_text(char *text);
void disk_forget_memory(void); /* all blocks */
void disk_must(bool holds, const char *what);

/* ---- files and directories --------------------------------------------------------------------
 */

disk_inode *disk_new_inode(disk *of, bool is_dir, uint32_t mode);
/* Frees the inode, if nothing refers to it any more. */
void disk_release(disk *of, disk_inode *inode);
void disk_free_inode(disk *of, disk_inode *inode);
void disk_account(disk *of, disk_inode *inode);
disk_inode *disk_find(const disk_inode *dir, const char *name);

bool disk_has_path(const char *path); /* below WORLD_DISK_ROOT, or that itself */
/* Follows such a path. Returns 0, also if nothing has the last name, or an errno:
 * ENOTDIR with an inode if only a slash after its name is wrong. */
int disk_look_up(disk *of, const char *path, disk_place *place);

/* Changes without a log. disk_set_name: [inode] NULL: nothing. */
void disk_put(disk_inode *file, uint64_t at, const uint8_t *data, size_t size);
void disk_set_size(disk_inode *file, uint64_t size);
void disk_set_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode);
/* The content with all its zeros, [size] bytes. */
uint8_t *disk_fill(disk_inode *file);

/* The same, logged. */
void disk_write(disk *of, disk_inode *file, uint64_t at, const uint8_t *data, size_t size);
void disk_resize(disk *of, disk_inode *file, uint64_t size);
void disk_name(disk *of, disk_inode *dir, const char *name, disk_inode *inode);
void disk_rename(disk *of, disk_inode *moved, disk_inode *dir, const char *name);

/* The changes of [inode] before the one numbered [end] become certain; or doubtful, since their
 * sync failed. */
void disk_sync(disk *of, disk_inode *inode, uint64_t end);
void disk_fail_sync(disk *of, disk_inode *inode, uint64_t end);

void disk_forget_changes(disk_inode *file);
void disk_forget_naming(disk *of, disk_naming *made);

/* Closes without a call. */
void disk_close(disk *of, disk_descriptor *descriptor);

#endif
