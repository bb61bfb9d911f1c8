/* Disks in memory, one for each node, behind the system calls of edge/core/os_posix.c.
 *
 * What a program has written is there for itself at once. Of a file is certain what was written
 * before its last fsync or fdatasync, of a directory the entries that were made before its own last
 * fsync. Of everything since, a power failure keeps any part: whole writes or single sectors of
 * them, in any order; a rename always as a whole. A kill keeps all of it.
 *
 * The linker replaces the calls: fedge_world_disk(TARGET) in tests/world/CMakeLists.txt. On the
 * world's own stack, and for descriptors that are not of a disk, the real calls are made. A node
 * sees nothing outside WORLD_DISK_ROOT: ENOENT, without a scheduling point. Temporary files
 * need TMPDIR=WORLD_DISK_ROOT.
 *
 * A descriptor that is another node's, or not open, is a world_fail. After a sync that failed no
 * later one makes certain what it was to sync.
 */
#ifndef FEDGE_TESTS_WORLD_DISK_H
#define FEDGE_TESTS_WORLD_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each node sees its own disk below this path. */
#define WORLD_DISK_ROOT "/disk"

/* Chances in 1,000,000 of each system call, and sizes; all 0: a disk without faults. */
typedef struct world_disk_faults {
    uint32_t interrupted;  /* EINTR, of calls that may get it */
    uint32_t short_writes; /* writes and reads that move a part of the bytes */
    uint32_t io_errors;    /* EIO, of writes, reads, syncs, opens and renames */
    uint32_t slow_syncs;   /* a sync that takes up to slow_ns */
    uint64_t slow_ns;
    uint64_t sync_ns;  /* a sync takes up to this */
    uint64_t capacity; /* bytes of the disk; more get ENOSPC. 0: 64 MiB */
    uint64_t fail_at;  /* ≠ 0: the n-th call from now on gets fail_errno, once */
    int fail_errno;
    uint64_t die_at; /* ≠ 0: the node is killed at the n-th call from now on, before it */
} world_disk_faults;

void world_disk_begin(uint64_t seed); /* forgets all disks; each node has an empty one */
void world_disk_end(void);
/* From now on the node uses the disk of [with], as processes of one machine do. */
void world_disk_share(uint32_t node, uint32_t with);
void world_disk_set_faults(uint32_t node, const world_disk_faults *faults);

/* The node was killed: its descriptors and locks are gone. */
void world_disk_drop(uint32_t node);
/* The power of the node failed, after world_disk_drop: its disk becomes what a real one might hold.
 * The seed and world_draw's position decide. */
void world_disk_power_off(uint32_t node);

/* A copy of the node's disk, as of a backup, and back. The node must have no descriptor. A copy is
 * freed by world_disk_free_copy, or by the next world_disk_begin. */
typedef struct world_disk_copy world_disk_copy;
world_disk_copy *world_disk_copy_of(uint32_t node);
void world_disk_restore(uint32_t node, const world_disk_copy *copy);
void world_disk_free_copy(world_disk_copy *copy);

/* Flips a drawn bit in a drawn file (not empty) whose path contains [part]; also of one that is
 * open. False: there is none. *path: whose bit, valid until the next call. */
bool world_disk_flip(uint32_t node, const char *part, const char **path);

/* For oracles: the present content of a file, NULL if there is none. Valid until the next change of
 * the disk. Path as the node sees it. */
const uint8_t *world_disk_read(uint32_t node, const char *path, size_t *size);
/* Whether the file's name and its bytes [begin, end) were synced since they are as they are now. If
 * that sync has failed, a power failure may take them all the same. */
bool world_disk_is_synced(uint32_t node, const char *path, uint64_t begin, uint64_t end);
/* Writes a whole file, synced, and makes the directories above it, synced, too. */
void world_disk_write(uint32_t node, const char *path, const void *data, size_t size);
/* Calls [visit] with each file's path; each directory is sorted by name. */
void world_disk_each(uint32_t node, void (*visit)(void *user, const char *path), void *user);

uint32_t world_disk_num_open(uint32_t node);  /* descriptors */
uint64_t world_disk_used(uint32_t node);      /* bytes of files */
uint64_t world_disk_num_calls(uint32_t node); /* system calls since the beginning */

#endif
