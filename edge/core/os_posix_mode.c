/* File permissions on POSIX systems. */
#define _GNU_SOURCE

#include "edge/core/os.h"

#include <errno.h>
#include <sys/stat.h>

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
