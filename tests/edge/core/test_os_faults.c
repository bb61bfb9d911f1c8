/* What the file functions do when the system fails: the linker puts the functions below in place of
 * the system's (CMakeLists.txt has the list). */
#define _GNU_SOURCE
#include "tests/edge/core/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge/core/os.h"

/* What the next calls do. */
static struct {
    int write_errno;   /* fail with it when the countdown reaches 0; 0: never */
    int write_good;    /* calls that work before */
    size_t write_most; /* bytes a call takes at most; 0: all */
    int fsync_errno;
    int reserve_errno;
    int num_fsyncs;
    bool mkdir_is_late; /* another process makes the directory just before */
} faults;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
ssize_t __real_pwrite64(int fd, const void *data, size_t size, off64_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off64_t offset);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __real_mkdir(const char *name, mode_t mode);
int __wrap_mkdir(const char *name, mode_t mode);
int __wrap_posix_fallocate64(int fd, off64_t offset, off64_t size);
/* NOLINTEND(bugprone-reserved-identifier) */

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    if (faults.write_errno != 0 && faults.write_good-- <= 0) {
        errno = faults.write_errno;
        if (errno == EINTR)
            faults.write_errno = 0; /* once */
        return -1;
    }
    if (faults.write_most > 0 && size > faults.write_most)
        size = faults.write_most;
    return __real_pwrite64(fd, data, size, offset);
}

int __wrap_fsync(int fd)
{
    faults.num_fsyncs++;
    errno = faults.fsync_errno;
    return faults.fsync_errno != 0 ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    return __wrap_fsync(fd);
}

int __wrap_mkdir(const char *name, mode_t mode)
{
    const int made = __real_mkdir(name, mode);
    if (made != 0 || !faults.mkdir_is_late)
        return made;
    errno = EEXIST;
    return -1;
}

int __wrap_posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    (void)fd;
    (void)offset;
    (void)size;
    int error = faults.reserve_errno;
    if (error == EINTR)
        faults.reserve_errno = 0; /* once */
    return error;
}

static char dir[] = "test_os_faults.XXXXXX";
static char path[64];

static int setup(void **state)
{
    (void)state;
    memset(&faults, 0, sizeof(faults));
    memcpy(dir, "test_os_faults.XXXXXX", sizeof(dir));
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/file", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memset(&faults, 0, sizeof(faults));
    return fedge_os_remove_tree(dir, NULL) == FEDGE_OK ? 0 : -1;
}

static fedge_status count_entry(void *user, const char *name, fedge_error *err)
{
    (void)name;
    (void)err;
    ++*(int *)user;
    return FEDGE_OK;
}

/* The file has [text], and nothing lies beside it. */
static void assert_only(const char *text)
{
    uint8_t *data;
    size_t size;
    int count = 0;
    assert_int_equal(fedge_os_read_file(path, 1000, &data, &size, NULL), FEDGE_OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(data, text, size);
    free(data);
    assert_int_equal(fedge_os_list_dir(dir, count_entry, &count, NULL), FEDGE_OK);
    assert_int_equal(count, 1);
}

static void a_failed_write_leaves_the_old_file(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        fedge_status status;
    } cases[] = {{ENOSPC, FEDGE_NO_SPACE}, {EDQUOT, FEDGE_NO_SPACE}, {EIO, FEDGE_IO}};
    fedge_error err;
    assert_int_equal(fedge_os_write_file(path, "old", 3, 0600, NULL), FEDGE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int good = 0; good < 3; good++) {
            faults.write_errno = cases[i].errnum;
            faults.write_good = good;
            faults.write_most = 2;
            assert_int_equal(fedge_os_write_file(path, "newer text", 10, 0600, &err),
                             cases[i].status);
            assert_non_null(strstr(err.message, strerror(cases[i].errnum)));
            assert_only("old");
        }
    }
}

static void short_and_interrupted_writes_go_on(void **state)
{
    (void)state;
    for (size_t most = 1; most < 12; most++) {
        faults.write_most = most;
        faults.write_errno = EINTR;
        faults.write_good = (int)most % 3;
        assert_int_equal(fedge_os_write_file(path, "newer text", 10, 0600, NULL), FEDGE_OK);
        assert_only("newer text");
    }
    fedge_os_file file;
    faults.write_most = 3;
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, 6, "words and more", 14, NULL), FEDGE_OK);
    fedge_os_close(&file);
    assert_only("newer words and more");
}

static void write_at_says_where_it_failed(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_CREATE, NULL), FEDGE_OK);
    faults.write_most = 4;
    faults.write_good = 2;
    faults.write_errno = ENOSPC;
    assert_int_equal(fedge_os_write_at(&file, 1000, "0123456789ab", 12, &err), FEDGE_NO_SPACE);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "byte 1008"));
    fedge_os_close(&file);
}

static void sync_errors_are_reported_and_not_retried(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    assert_int_equal(fedge_os_write_file(path, "old", 3, 0600, NULL), FEDGE_OK);
    assert_int_equal(faults.num_fsyncs, 2); /* the file and its directory */
    faults.num_fsyncs = 0;
    faults.fsync_errno = EIO;
    assert_int_equal(fedge_os_write_file(path, "new", 3, 0600, &err), FEDGE_IO);
    assert_int_equal(faults.num_fsyncs, 1);
    assert_only("old");
    assert_int_equal(fedge_os_sync_dir(dir, &err), FEDGE_IO);
    assert_non_null(strstr(err.message, dir));
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL), FEDGE_OK);
    faults.num_fsyncs = 0;
    assert_int_equal(fedge_os_sync(&file, &err), FEDGE_IO);
    assert_int_equal(faults.num_fsyncs, 1);
    faults.fsync_errno = ENOSPC; /* delayed allocation */
    assert_int_equal(fedge_os_sync(&file, &err), FEDGE_NO_SPACE);
    fedge_os_close(&file);
}

/* A directory that is there may lie in one that cannot be synced, and a failing disk is told. */
static void the_folder_of_a_directory_may_be_anothers(void **state)
{
    (void)state;
    static const int others[] = {EACCES, EINVAL, EROFS};
    char place[64];
    fedge_error err;
    snprintf(place, sizeof(place), "%s/there", dir);
    assert_int_equal(fedge_os_make_dirs(place, NULL), FEDGE_OK);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        faults.fsync_errno = others[i];
        assert_int_equal(fedge_os_make_dirs(place, NULL), FEDGE_OK);
    }
    faults.fsync_errno = EIO;
    assert_int_equal(fedge_os_make_dirs(place, &err), FEDGE_IO);
    assert_non_null(strstr(err.message, dir));
    faults.fsync_errno = 0;
}

/* The other process may be killed before it has synced the names. */
static void directories_that_another_process_makes_are_synced(void **state)
{
    (void)state;
    char place[64];
    snprintf(place, sizeof(place), "%s/a/b/c", dir);
    faults.mkdir_is_late = true;
    assert_int_equal(fedge_os_make_dirs(place, NULL), FEDGE_OK);
    assert_int_equal(faults.num_fsyncs, 4); /* of [dir] itself, and of three names */
}

static void reservation_fails_and_falls_back(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    uint64_t size, room;
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_CREATE, NULL), FEDGE_OK);
    faults.reserve_errno = ENOSPC;
    assert_int_equal(fedge_os_reserve(&file, 4096, &err), FEDGE_NO_SPACE);
    assert_non_null(strstr(err.message, "4096"));
    faults.reserve_errno = EINTR;
    assert_int_equal(fedge_os_reserve(&file, 4096, NULL), FEDGE_OK);
    faults.reserve_errno = EOPNOTSUPP;
    assert_int_equal(fedge_os_reserve(&file, 5000, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_file_size(&file, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 5000);
    assert_int_equal(fedge_os_reserve(&file, 10, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_file_size(&file, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 5000);
    assert_int_equal(fedge_os_free_bytes(path, &room, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_reserve(&file, 2 * room + (1u << 30), &err), FEDGE_NO_SPACE);
    assert_non_null(strstr(err.message, "free"));
    fedge_os_close(&file);
}

static void a_lock_that_cannot_be_written_is_not_held(void **state)
{
    (void)state;
    int lock;
    fedge_error err;
    faults.write_errno = ENOSPC;
    assert_int_equal(fedge_os_lock(path, &lock, &err), FEDGE_NO_SPACE);
    faults.write_errno = 0;
    assert_int_equal(fedge_os_lock(path, &lock, NULL), FEDGE_OK);
    fedge_os_unlock(lock);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failed_write_leaves_the_old_file),
        TEST(short_and_interrupted_writes_go_on),
        TEST(write_at_says_where_it_failed),
        TEST(sync_errors_are_reported_and_not_retried),
        TEST(the_folder_of_a_directory_may_be_anothers),
        TEST(directories_that_another_process_makes_are_synced),
        TEST(reservation_fails_and_falls_back),
        TEST(a_lock_that_cannot_be_written_is_not_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
