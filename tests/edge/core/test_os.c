#define _GNU_SOURCE
#include "tests/edge/core/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edge/core/os.h"

/* Each test has an empty directory of its own. */
static char dir[] = "test_os.XXXXXX";
static char path_text[256];

static const char *in_dir(const char *name)
{
    snprintf(path_text, sizeof(path_text), "%s/%s", dir, name);
    return path_text;
}

static int setup(void **state)
{
    (void)state;
    memcpy(dir, "test_os.XXXXXX", sizeof(dir));
    return !mkdtemp(dir) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    return fedge_os_remove_tree(dir, NULL) == FEDGE_OK ? 0 : -1;
}

static void assert_says(const fedge_error *err, const char *said)
{
    if (!strstr(err->message, said))
        fail_msg("\"%s\" does not say \"%s\"", err->message, said);
}

static fedge_status count_entry(void *user, const char *name, fedge_error *err)
{
    (void)name;
    (void)err;
    ++*(int *)user;
    return FEDGE_OK;
}

static int count_entries(const char *path)
{
    int count = 0;
    assert_int_equal(fedge_os_list_dir(path, count_entry, &count, NULL), FEDGE_OK);
    return count;
}

static void assert_file_is(const char *path, const char *text)
{
    uint8_t *data;
    size_t size;
    assert_int_equal(fedge_os_read_file(path, 100, &data, &size, NULL), FEDGE_OK);
    assert_int_equal(size, strlen(text));
    assert_string_equal((char *)data, text); /* a NUL stands behind the bytes */
    free(data);
}

static void missing_differs_from_unknown(void **state)
{
    (void)state;
    bool exists = true;
    assert_int_equal(fedge_os_find(in_dir("b.txt"), &exists, NULL), FEDGE_OK);
    assert_false(exists);
    assert_int_equal(fedge_os_write_file(in_dir("b.txt"), "", 0, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_find(in_dir("b.txt"), &exists, NULL), FEDGE_OK);
    assert_true(exists);
    assert_int_equal(fedge_os_find(in_dir("b.txt/c"), &exists, NULL), FEDGE_OK);
    assert_false(exists);
    assert_int_equal(symlink("itself", in_dir("itself")), 0);
    assert_int_not_equal(fedge_os_find(in_dir("itself"), &exists, NULL), FEDGE_OK);
}

static void files_are_written_whole_and_read_back(void **state)
{
    (void)state;
    const char *path = in_dir("a.txt");
    assert_false(fedge_os_exists(path));
    assert_int_equal(fedge_os_write_file(path, "first", 5, 0600, NULL), FEDGE_OK);
    assert_true(fedge_os_exists(path));
    assert_file_is(path, "first");
    umask(077); /* the mode is what was asked for, whatever the umask */
    assert_int_equal(fedge_os_write_file(path, "2nd", 3, 0644, NULL), FEDGE_OK);
    assert_file_is(path, "2nd");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0644);
    assert_int_equal(fedge_os_write_file(path, NULL, 0, 0600, NULL), FEDGE_OK);
    assert_file_is(path, "");
    assert_int_equal(count_entries(dir), 1);
}

static void reading_has_a_limit(void **state)
{
    (void)state;
    uint8_t *data = NULL;
    size_t size;
    fedge_error err;
    const char *path = in_dir("a");
    assert_int_equal(fedge_os_write_file(path, "0123456789", 10, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_read_file(path, 9, &data, &size, &err), FEDGE_TOO_BIG);
    assert_says(&err, "has 10 bytes; the limit is 9");
    assert_int_equal(fedge_os_read_file(path, 10, &data, &size, NULL), FEDGE_OK);
    free(data);
    assert_int_equal(fedge_os_read_file(in_dir("missing"), 9, &data, &size, &err), FEDGE_NOT_FOUND);
    assert_says(&err, "missing: No such file");
    assert_int_equal(fedge_os_read_file(dir, 9, &data, &size, &err), FEDGE_IO);
    assert_says(&err, "is a directory");
    path = in_dir("pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fedge_os_read_file(path, 9, &data, &size, &err), FEDGE_IO);
    assert_says(&err, "device or pipe");
}

static void writing_where_it_cannot_be_fails(void **state)
{
    (void)state;
    fedge_error err;
    assert_int_equal(fedge_os_write_file(in_dir("no/such/dir"), "x", 1, 0600, &err),
                     FEDGE_NOT_FOUND);
    assert_says(&err, "no/such/dir");
    assert_int_equal(fedge_os_make_dirs(in_dir("taken"), NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_file(in_dir("taken"), "x", 1, 0600, &err), FEDGE_IO);
    assert_says(&err, "cannot rename");
    assert_int_equal(count_entries(dir), 1); /* no temporary file stays */
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    assert_int_equal(fedge_os_write_file(in_dir("pipe"), "x", 1, 0600, &err), FEDGE_IO);
    assert_says(&err, "pipe is not a regular file");
    struct stat info;
    assert_int_equal(lstat(in_dir("pipe"), &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    char path[700];
    memset(path, 'p', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(fedge_os_write_file(path, "x", 1, 0600, &err), FEDGE_TOO_BIG);
    assert_says(&err, "699 bytes");
    assert_int_equal(fedge_os_write_file("", "x", 1, 0600, &err), FEDGE_INVALID_ARGUMENT);
}

static void directories_are_made_and_removed(void **state)
{
    (void)state;
    fedge_error err;
    char path[64];
    snprintf(path, sizeof(path), "%s/a//b/c/", dir);
    assert_int_equal(fedge_os_make_dirs(path, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(path, NULL), FEDGE_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(fedge_os_write_file(in_dir("a/b/file"), "x", 1, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_make_dirs(in_dir("a/b/file"), &err), FEDGE_EXISTS);
    assert_says(&err, "is not a directory");
    assert_int_equal(fedge_os_make_dirs(in_dir("a/b/file/x"), &err), FEDGE_IO);

    /* A link to a place outside is removed, the place stays. */
    assert_int_equal(fedge_os_make_dirs(in_dir("outside"), NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_file(in_dir("outside/kept"), "x", 1, 0600, NULL), FEDGE_OK);
    assert_int_equal(symlink("../outside", in_dir("a/link")), 0);
    assert_int_equal(fedge_os_remove_tree(in_dir("a"), NULL), FEDGE_OK);
    assert_false(fedge_os_exists(in_dir("a")));
    assert_true(fedge_os_exists(in_dir("outside/kept")));
    assert_int_equal(fedge_os_remove_tree(in_dir("a"), NULL), FEDGE_OK);
}

static void remove_and_rename(void **state)
{
    (void)state;
    fedge_error err;
    char to[64];
    assert_int_equal(fedge_os_remove(in_dir("missing"), &err), FEDGE_NOT_FOUND);
    assert_int_equal(fedge_os_write_file(in_dir("from"), "x", 1, 0600, NULL), FEDGE_OK);
    snprintf(to, sizeof(to), "%s/to", dir);
    assert_int_equal(fedge_os_rename(in_dir("from"), to, NULL), FEDGE_OK);
    assert_file_is(to, "x");
    assert_int_equal(fedge_os_rename(in_dir("from"), to, &err), FEDGE_NOT_FOUND);
    assert_says(&err, "/from to ");
    assert_int_equal(fedge_os_remove(to, NULL), FEDGE_OK);
    assert_false(fedge_os_exists(to));
    assert_int_equal(fedge_os_sync_dir(dir, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_sync_dir(in_dir("missing"), NULL), FEDGE_NOT_FOUND);
}

#define LISTING_SIZE 64

static fedge_status join_names(void *user, const char *name, fedge_error *err)
{
    char *text = user;
    size_t used = strlen(text);
    snprintf(text + used, LISTING_SIZE - used, "%s ", name);
    return strcmp(name, "c") == 0 ? fedge_fail(err, FEDGE_CANCELLED, "seen enough") : FEDGE_OK;
}

static void listings_are_sorted_and_can_be_stopped(void **state)
{
    (void)state;
    static const char *const names[] = {"b", "10", "2", "B", ".x", "a"};
    char text[LISTING_SIZE] = "";
    fedge_error err;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(fedge_os_write_file(in_dir(names[i]), "", 0, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_list_dir(dir, join_names, text, NULL), FEDGE_OK);
    assert_string_equal(text, ".x 10 2 B a b ");
    assert_int_equal(fedge_os_write_file(in_dir("c"), "", 0, 0600, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_file(in_dir("d"), "", 0, 0600, NULL), FEDGE_OK);
    text[0] = '\0';
    assert_int_equal(fedge_os_list_dir(dir, join_names, text, &err), FEDGE_CANCELLED);
    assert_string_equal(text, ".x 10 2 B a b c ");
    assert_int_equal(fedge_os_list_dir(in_dir("missing"), join_names, text, &err), FEDGE_NOT_FOUND);
}

static void locks_exclude_and_name_the_holder(void **state)
{
    (void)state;
    const char *path = in_dir("lock");
    int lock, second;
    fedge_error err;
    char pid[32];
    assert_int_equal(fedge_os_lock(path, &lock, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_lock(path, &second, &err), FEDGE_BUSY);
    snprintf(pid, sizeof(pid), "(pid %ld)", (long)getpid());
    assert_says(&err, pid);
    fedge_os_unlock(lock);
    assert_int_equal(fedge_os_lock(path, &lock, NULL), FEDGE_OK);
    fedge_os_unlock(lock);
    assert_int_equal(fedge_os_lock(in_dir("no/lock"), &lock, NULL), FEDGE_NOT_FOUND);
}

/* A process that is killed holds nothing any more. */
static void locks_end_with_their_process(void **state)
{
    (void)state;
    const char *path = in_dir("lock");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int lock;
        bool locked = fedge_os_lock(path, &lock, NULL) == FEDGE_OK;
        if (write(ready[1], locked ? "y" : "n", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char answer = 0;
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    int lock;
    fedge_error err;
    assert_int_equal(fedge_os_lock(path, &lock, &err), FEDGE_BUSY);
    char pid[32];
    snprintf(pid, sizeof(pid), "(pid %ld)", (long)child);
    assert_says(&err, pid);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(fedge_os_lock(path, &lock, NULL), FEDGE_OK);
    fedge_os_unlock(lock);
    close(ready[0]);
    close(ready[1]);
}

static void files_are_read_and_written_at_offsets(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    char text[8] = "";
    uint64_t size;
    const char *path = in_dir("data");
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ, &err), FEDGE_NOT_FOUND);
    assert_int_equal(file.fd, -1);
    fedge_os_close(&file);
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL), FEDGE_NOT_FOUND);
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_CREATE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, 4, "5678", 4, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, 0, "1234", 4, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_sync(&file, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_file_size(&file, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 8);
    fedge_os_close(&file);
    assert_int_equal(file.fd, -1);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);

    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_CREATE, NULL), FEDGE_OK); /* kept */
    assert_int_equal(fedge_os_read_at(&file, 2, text, 5, NULL), FEDGE_OK);
    assert_string_equal(text, "34567");
    assert_int_equal(fedge_os_read_at(&file, 6, text, 3, &err), FEDGE_TRUNCATED);
    assert_says(&err, "ends at byte 8");
    assert_int_equal(fedge_os_read_at(&file, 8, text, 0, NULL), FEDGE_OK);
    fedge_os_close(&file);
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, 0, "x", 1, &err), FEDGE_IO);
    assert_says(&err, path);
    fedge_os_close(&file);
}

static void a_full_device_is_no_space(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    assert_int_equal(fedge_os_open(&file, "/dev/full", FEDGE_OS_READ_WRITE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, 0, "x", 1, &err), FEDGE_NO_SPACE);
    assert_says(&err, "/dev/full");
    fedge_os_close(&file);
}

static void room_is_reserved(void **state)
{
    (void)state;
    fedge_os_file file;
    uint64_t size, room;
    fedge_error err;
    assert_int_equal(fedge_os_open(&file, in_dir("data"), FEDGE_OS_CREATE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_reserve(&file, 0, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_reserve(&file, 100000, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_reserve(&file, 10, NULL), FEDGE_OK); /* never shrinks */
    assert_int_equal(fedge_os_file_size(&file, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 100000);
    assert_int_equal(fedge_os_free_bytes(dir, &room, NULL), FEDGE_OK);
    assert_true(room > 0);
    assert_int_equal(fedge_os_cut(&file, 7, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_file_size(&file, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 7);
    assert_int_equal(fedge_os_reserve(&file, UINT64_MAX, &err), FEDGE_TOO_BIG);
    assert_int_equal(fedge_os_free_bytes(in_dir("missing"), &room, NULL), FEDGE_NOT_FOUND);
    fedge_os_close(&file);
}

static void the_machine_is_described(void **state)
{
    (void)state;
    uint64_t start = fedge_os_monotonic_ns();
    assert_true(fedge_os_monotonic_ns() >= start);
    assert_true(fedge_os_monotonic_ms() >= start / 1000000u);
    assert_true(fedge_os_unix_ms() > 1600000000000u);
    assert_true(fedge_os_ram_bytes() > 1u << 20);
    assert_in_range(fedge_os_resident_bytes(), 1, fedge_os_ram_bytes());
    assert_true(fedge_os_cpu_seconds() >= 0.0);
    assert_true(fedge_os_num_cpus() >= 1);
    assert_true(strlen(fedge_os_arch()) > 2);
    unsigned features = fedge_os_cpu_features();
    assert_int_equal(features & ~(FEDGE_CPU_AVX2 | FEDGE_CPU_AVX512 | FEDGE_CPU_NEON |
                                  FEDGE_CPU_AVX512BF16 | FEDGE_CPU_AVX512VNNI | FEDGE_CPU_AES),
                     0);
    assert_int_equal(features, fedge_os_cpu_features());
    uint8_t a[64] = {0}, b[64] = {0};
    assert_int_equal(fedge_os_random(a, sizeof(a), NULL), FEDGE_OK);
    assert_int_equal(fedge_os_random(b, sizeof(b), NULL), FEDGE_OK);
    assert_memory_not_equal(a, b, sizeof(a));
}

/* Not those that the machine has beside them. */
static void cpus_are_those_that_may_be_used(void **state)
{
    (void)state;
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof(before), &before) != 0)
        skip();
    assert_int_equal(fedge_os_num_cpus(), CPU_COUNT(&before));
    unsigned first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(fedge_os_num_cpus(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* Is the page at [at] one that the kernel was asked to make large ("hg" in its mapping's flags)? */
static bool is_advised(const void *at)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    char line[512];
    bool inside = false, advised = false;
    while (fgets(line, sizeof(line), file)) {
        unsigned long long from = 0, to = 0;
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            inside = from <= (uintptr_t)at && (uintptr_t)at < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            advised = strstr(line, " hg") != NULL;
    }
    fclose(file);
    return advised;
}

/* Not without large pages in the kernel, and not in an emulator, where /proc has the host's
 * addresses. */
static bool advice_is_seen(void *block, size_t size)
{
#ifdef MADV_HUGEPAGE
    return madvise(block, size, MADV_HUGEPAGE) == 0 && is_advised(block);
#else
    (void)block, (void)size;
    return false;
#endif
}

static void large_pages_stay_inside_of_their_block(void **state)
{
    (void)state;
    const size_t page = (size_t)2 << 20, size = 4 * page;
    void *other = aligned_alloc(page, page);
    assert_non_null(other);
    const bool seen = advice_is_seen(other, page);
    char *block = aligned_alloc(page, size);
    assert_non_null(block);
    fedge_os_large_pages(NULL, size);
    fedge_os_large_pages(block + 64, page); /* no whole one inside */
    fedge_os_large_pages(block, page - 1);
    assert_false(is_advised(block));
    assert_false(is_advised(block + page));
    fedge_os_large_pages(block + 64, size - 128);
    if (seen) {
        assert_false(is_advised(block));
        assert_true(is_advised(block + page));
        assert_true(is_advised(block + 3 * page - 1));
        assert_false(is_advised(block + 3 * page));
    }
    free(block);
    free(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(missing_differs_from_unknown),
        TEST(files_are_written_whole_and_read_back),
        TEST(reading_has_a_limit),
        TEST(writing_where_it_cannot_be_fails),
        TEST(directories_are_made_and_removed),
        TEST(remove_and_rename),
        TEST(listings_are_sorted_and_can_be_stopped),
        TEST(locks_exclude_and_name_the_holder),
        TEST(locks_end_with_their_process),
        TEST(files_are_read_and_written_at_offsets),
        TEST(a_full_device_is_no_space),
        TEST(room_is_reserved),
        TEST(the_machine_is_described),
        TEST(cpus_are_those_that_may_be_used),
        TEST(large_pages_stay_inside_of_their_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
