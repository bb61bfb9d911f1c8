/* What the replacements of the file system calls share. On a fiber they use the simulated disk of
 * its node. On the world's own stack, and for real descriptors, they make the real calls. */
#ifndef FEDGE_TESTS_WORLD_DISK_CALLS_H
#define FEDGE_TESTS_WORLD_DISK_CALLS_H

#include <sys/types.h>

#include "tests/world/disk_state.h"

/* Declares the real function and its replacement, whose body follows. */
#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* Faults that a call may get besides those that were requested for it. */
enum { DISK_SURE = 0, DISK_INTERRUPTIBLE = 1, DISK_FALLIBLE = 2 };

/* The disk of the running fiber's node; NULL on the world's own stack. */
disk *disk_own(void);
/* The same; NULL also for a real descriptor. */
disk *disk_with(int fd);

/* Begins a call: kills the node if that is due, lets other fibers run, and returns the errno of a
 * fault or 0. */
int disk_begin(disk *of, unsigned faults);
/* The same for a call about a path, which is followed then. Paths outside the node's disk give
 * ENOENT, and EACCES for "/", so that nothing syncs it. */
int disk_begin_path(disk *of, const char *path, unsigned faults, disk_place *place);
/* Lets other fibers run for [ns] of virtual time. Restores errno: other fibers share it, and a
 * successful call leaves it unchanged. */
void disk_pass_time(uint64_t ns);
bool disk_happens(disk *of, uint32_t per_million);

/* disk_fail sets errno and returns -1; disk_finish does so unless [error] is 0, and then returns 0.
 */
int disk_fail(int error);
int disk_finish(int error);

/* The open file of a descriptor. NULL: the descriptor is wrong, which is a bug of the program. */
disk_descriptor *disk_descriptor_of(disk *of, int fd);
int disk_number_of(const disk *of, const disk_descriptor *descriptor);

/* Creates a file or directory at a path that has none. */
disk_inode *disk_make(disk *of, const disk_place *place, bool is_dir, mode_t mode);
/* Opens a file or directory. Returns an errno or 0. */
int disk_open_path(disk *of, const char *path, int flags, mode_t mode, disk_descriptor **opened);

#endif
