/* Simulated disks in memory, one for each node, behind the system calls of edge/core/os_posix.c.
 *
 * A program sees at once what it has written. A file's bytes are durable if they were written
 * before its last fsync or fdatasync; a directory's entries are durable if they were made before
 * the directory's last fsync. A power failure keeps any part of all later changes: whole writes or
 * single sectors of them, in any order; a rename is kept or lost as a whole. A kill keeps all
 * changes.
 *
 * The linker replaces the calls: fedge_world_disk(TARGET) in tests/world/world.cmake. The real
 * calls are made on the world's own stack, and for descriptors that are not of a simulated disk. A
 * node sees nothing outside WORLD_DISK_ROOT: the calls return ENOENT, without a scheduling point.
 * Temporary files need TMPDIR=WORLD_DISK_ROOT.
 *
 * The use of another node's descriptor, or of one that is not open, is a world_fail. After a failed
 * sync no later sync makes the same changes durable. */
#ifndef FEDGE_TESTS_WORLD_DISK_H
#define FEDGE_TESTS_WORLD_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each node sees its own disk below this path. */
#define WORLD_DISK_ROOT "/disk"

/* Chances of each system call, in 1,000,000, and sizes. All 0: a disk without faults. */
typedef struct world_disk_faults {
    uint32_t interrupted;  /* EINTR, where a call may return it */
    uint32_t short_writes; /* writes and reads that transfer only a part */
    uint32_t io_errors;    /* EIO from writes, reads, syncs, opens and renames */
    uint32_t slow_syncs;   /* a sync that takes up to slow_ns */
    uint64_t slow_ns;
    uint64_t sync_ns;  /* a sync takes up to this */
    uint64_t capacity; /* size of the disk in bytes, 0: 64 MiB; more gets ENOSPC */
    uint64_t fail_at;  /* ≠ 0: the n-th call from now on fails once, with fail_errno */
    int fail_errno;
    uint64_t die_at; /* ≠ 0: the node is killed before the n-th call from now on */
} world_disk_faults;

void world_disk_begin(uint64_t seed); /* forgets all disks; each node has an empty one */
void world_disk_end(void);
/* The node uses the disk of node [with] from now on, as processes of one machine do. */
void world_disk_share(uint32_t node, uint32_t with);
void world_disk_set_faults(uint32_t node, const world_disk_faults *faults);

/* The node was killed: its descriptors are closed and its locks released. */
void world_disk_drop(uint32_t node);
/* The node's power has failed, after world_disk_drop: its disk changes to what a real one might
 * hold then. The seed and the position of world_draw determine the outcome. */
void world_disk_power_off(uint32_t node);

/* Copies the node's disk, as a backup does, and restores the copy. The node must have no open
 * descriptor. world_disk_free_copy or the next world_disk_begin frees a copy. */
typedef struct world_disk_copy world_disk_copy;
world_disk_copy *world_disk_copy_of(uint32_t node);
void world_disk_restore(uint32_t node, const world_disk_copy *copy);
void world_disk_free_copy(world_disk_copy *copy);

/* Flips a random bit in a random file that is not empty and whose path contains [part]; the file
 * may be open. *path: the file's path, valid until the next call. False: there is no such file. */
bool world_disk_flip(uint32_t node, const char *part, const char **path);

/* For oracles: the present content of a file, valid until the next change of the disk; NULL: there
 * is no such file. [path] is the path as the node sees it. */
const uint8_t *world_disk_read(uint32_t node, const char *path, size_t *size);
/* Whether the present name of the file and its present bytes [begin, end) survive a power failure:
 * they were synced, and no sync of them has failed since they were written. */
bool world_disk_is_synced(uint32_t node, const char *path, uint64_t begin, uint64_t end);
/* Writes a whole file and makes the directories above it. All are synced. */
void world_disk_write(uint32_t node, const char *path, const void *data, size_t size);
/* Calls [visit] with each file's path. Each directory is sorted by name. */
void world_disk_each(uint32_t node, void (*visit)(void *user, const char *path), void *user);

uint32_t world_disk_num_open(uint32_t node);  /* open descriptors */
uint64_t world_disk_used(uint32_t node);      /* bytes in files */
uint64_t world_disk_num_calls(uint32_t node); /* system calls since the beginning */

#endif
