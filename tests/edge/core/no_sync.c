/* Syncs that do nothing, for tests whose files need not outlive the machine: on a slow disk these
 * would mostly wait. fedge_no_sync(TEST...) in tests/edge/core/CMakeLists.txt. */
#include <fcntl.h>

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fsync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

int __wrap_fdatasync(int fd)
{
    return __wrap_fsync(fd);
}
/* NOLINTEND(bugprone-reserved-identifier) */
