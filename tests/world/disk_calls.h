/* What the stand-ins of the system calls about files share. On a fiber of a node they are about the
 * node's simulated disk; on the world's own stack, and for real descriptors, the real calls are
 * made.
 */
#ifndef FEDGE_TESTS_WORLD_DISK_CALLS_H
#define FEDGE_TESTS_WORLD_DISK_CALLS_H

#include <sys/types.h>

#include "tests/world/disk_state.h"

/* Declares the real function and its stand-in, whose body follows. */
#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* Faults that a call may get besides those that are ordered for it. */
enum { DISK_SURE = 0, DISK_INTERRUPTIBLE = 1, DISK_FALLIBLE = 2 };

/* The disk of the running fiber; NULL on the world's own stack. */
disk *disk_own(void);
/* The same, NULL also for a real descriptor. */
disk *disk_with(int fd);

/* Begins a call: kills the node, lets others run, and returns the errno of a fault or 0. */
int disk_begin(disk *of, unsigned faults);
/* The same for a call about a path, which is followed then. A node sees nothing outside its disk:
 * ENOENT, and EACCES for the root of all paths, which so is nothing to sync. */
int disk_begin_path(disk *of, const char *path, unsigned faults, disk_place *place);
/* Lets others run, for [ns] of virtual time. errno stays: other fibers share it, and a call that
 * succeeds leaves it alone. */
void disk_pass_time(uint64_t ns);
bool disk_happens(disk *of, uint32_t per_million);

/* -1 with errno; the same, or 0 for 0. */
int disk_fail(int error);
int disk_finish(int error);

/* The open file of a descriptor. A wrong one is a bug of the program: NULL. */
disk_descriptor *disk_descriptor_of(disk *of, int fd);
int disk_number_of(const disk *of, const disk_descriptor *descriptor);

/* A new file or directory where there is none. */
disk_inode *disk_make(disk *of, const disk_place *place, bool is_dir, mode_t mode);
/* Opens a file or directory. Returns an errno or 0. */
int disk_open_path(disk *of, const char *path, int flags, mode_t mode, disk_descriptor **opened);

#endif
