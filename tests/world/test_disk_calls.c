/* Tests the simulated disks as a program sees them: each call behaves as the system's, a power
 * failure loses only unsynced changes, and equal seeds give equal disks. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/world/disk_stub.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- random work ----------------------------------------------------------------------------- */

static char last_call[700];

/* One call on an open file; -1 with an errno. */
static long call_on_file(uint32_t kind, int fd, off_t at, size_t size, int value)
{
    uint8_t block[1500];
    struct stat info;
    long result = -1;
    memset(block, value, sizeof(block));
    switch (kind) {
    case 0:
    case 1:
        return pwrite(fd, block, size, at);
    case 2:
        return ftruncate(fd, at);
    case 3:
        errno = (result = posix_fallocate(fd, 0, at + (off_t)size)) > 0 ? (int)result : errno;
        return result > 0 ? -1 : result;
    case 4:
    case 5:
        result = kind == 4 ? pread(fd, block, size, at) : read(fd, block, size);
        return result > 0 ? result * 1000 + block[result - 1] + block[0] : result;
    case 6:
        return write(fd, block, size);
    default: /* the file system defines the positions in a directory */
        return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? lseek(fd, at, (int)(size % 3)) : -1;
    }
}

/* One call on names. */
static long call_on_path(uint32_t kind, const char *path, const char *other)
{
    struct stat info;
    switch (kind) {
    case 0:
        return mkdir(path, 0700);
    case 1:
        return unlink(path);
    case 2:
        return rmdir(path);
    case 3:
        return stat(path, &info) != 0  ? -1
               : S_ISREG(info.st_mode) ? (long)info.st_size
                                       : (long)(info.st_mode & S_IFMT);
    default:
        return rename(path, other);
    }
}

/* A random call on a random name below [root]. Returns its result; negative: the errno. */
static long random_call(fedge_rng *rng, const char *root, int files[3])
{
    static const char *const names[] = {"a", "b", "d", "d/a", "d/b", "e", "e/a", "d/", "d/a/x"};
    static const int flags[] = {
        O_RDWR,   O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_TRUNC,
        O_RDONLY, O_DIRECTORY,      O_WRONLY | O_APPEND};
    char path[300], other[300];
    const uint32_t kind = fedge_rng_below(rng, 17), slot = fedge_rng_below(rng, 3),
                   number = fedge_rng_below(rng, 9), second = fedge_rng_below(rng, 9),
                   flag = fedge_rng_below(rng, 7);
    const off_t at = fedge_rng_below(rng, 3000);
    const size_t size = 1 + fedge_rng_below(rng, 1400);
    (void)snprintf(path, sizeof(path), "%s/%s", root, names[number]);
    (void)snprintf(other, sizeof(other), "%s/%s", root, names[second]);
    (void)snprintf(last_call, sizeof(last_call), "kind %u, %s, %s, file %u, flags %u", kind, path,
                   other, slot, flag);
    int *fd = &files[slot];
    long result;
    errno = 0;
    if (kind < 6) {
        result = call_on_path(kind, path, other);
    } else if (*fd < 0) {
        *fd = open(path, flags[flag], 0600);
        result = *fd < 0 ? -1 : 0;
    } else if (kind < 7) {
        result = close(*fd);
        *fd = -1;
    } else {
        result = call_on_file(kind - 7, *fd, at, size, (int)(number * 16 + slot + 1));
    }
    return result < 0 ? -errno : result;
}

static void close_files(int files[3])
{
    for (int i = 0; i < 3; i++) {
        if (files[i] >= 0)
            close(files[i]);
        files[i] = -1;
    }
}

/* Every call behaves as the system's own. */
static void calls_are_as_the_real_ones(void **state)
{
    (void)state;
    const char *real = "disk-real";
    for (uint32_t draw = 0; draw < 40; draw++) {
        begin(draw);
        fedge_rng rng = fedge_rng_stream(5, FEDGE_PURPOSE_TEST, draw, 0, 0);
        int files[3] = {-1, -1, -1}, real_files[3] = {-1, -1, -1};
        stub.node = WORLD_ITSELF;
        OK(fedge_os_remove_tree(real, NULL));
        OK(fedge_os_make_dirs(real, NULL));
        for (int i = 0; i < 300; i++) {
            fedge_rng same = rng;
            stub.node = WORLD_ITSELF;
            const long expected = random_call(&same, real, real_files);
            stub.node = NODE;
            const long result = random_call(&rng, "/disk", files);
            if (result != expected) {
                fail_msg("draw %u, call %d: %ld, and the system's %ld. %s", draw, i, result,
                         expected, last_call);
            }
        }
        close_files(files);
        stub.node = WORLD_ITSELF;
        close_files(real_files);
        OK(fedge_os_remove_tree(real, NULL));
    }
}

static void sync_all(const char *dir);

static fedge_status sync_entry(void *user, const char *name, fedge_error *err)
{
    char path[300];
    (void)err;
    (void)snprintf(path, sizeof(path), "%s/%s", (const char *)user, name);
    if (fedge_os_is_dir(path)) {
        sync_all(path);
    } else {
        fedge_os_file file;
        OK(fedge_os_open(&file, path, FEDGE_OS_READ, NULL));
        OK(fedge_os_sync(&file, NULL));
        fedge_os_close(&file);
    }
    return FEDGE_OK;
}

static void sync_all(const char *dir)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s", dir);
    OK(fedge_os_list_dir(path, sync_entry, path, NULL));
    OK(fedge_os_sync_dir(path, NULL));
}

/* Among the random disks are the synced one and the complete one. The number of used bytes is
 * right. */
static void what_is_lost_lies_between(void **state)
{
    (void)state;
    for (uint32_t work = 0; work < 30; work++) {
        unsigned num_synced = 0, num_all = 0;
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            begin(draw);
            fedge_rng rng = fedge_rng_stream(6, FEDGE_PURPOSE_TEST, work, 0, 0);
            int files[3] = {-1, -1, -1};
            for (int i = 0; i < 150; i++)
                (void)random_call(&rng, "/disk", files);
            sync_all("/disk");
            char *synced = tree();
            for (int i = 0; i < 60; i++)
                (void)random_call(&rng, "/disk", files);
            close_files(files);
            char *all = tree();
            power_off();
            char *left = tree();
            assert_int_equal(world_disk_used(NODE), bytes_of_files());
            num_synced += strcmp(left, synced) == 0 ? 1 : 0;
            num_all += strcmp(left, all) == 0 ? 1 : 0;
            sync_all("/disk");
            power_off();
            char *again = tree();
            assert_string_equal(again, left);
            free(synced), free(all), free(left), free(again);
        }
        assert_true(num_synced > 0 && num_all > 0);
    }
}

static void each_node_has_its_own(void **state)
{
    (void)state;
    OK(fedge_os_write_file("/disk/file", "text", 4, 0600, NULL));
    stub.node = OTHER;
    assert_false(fedge_os_exists("/disk/file"));
    assert_int_equal(world_disk_num_calls(OTHER), 1);
    /* and nothing of the machine that it runs on */
    assert_false(fedge_os_exists("/proc"));
    assert_false(fedge_os_exists("/disks"));
    assert_int_equal(fedge_os_resident_bytes(), 0);
    FAILS_WITH(EACCES, open("/", O_RDONLY));
    assert_int_equal(world_disk_num_calls(OTHER), 1);
    stub.node = WORLD_ITSELF;
    assert_false(fedge_os_exists("/disk/file"));
    assert_true(fedge_os_exists("/proc"));
    assert_true(fedge_os_resident_bytes() > 0);
}

static void wrong_descriptors_are_found(void **state)
{
    (void)state;
    const int fd = open("/disk/file", O_RDWR | O_CREAT | O_EXCL, 0640);
    assert_true(fd >= 1 << 20);
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(info.st_mode & 07777, 0640);
    stub.node = OTHER;
    FAILS_WITH(EBADF, close(fd));
    assert_non_null(strstr(stub.failure, "another node"));
    stub.node = NODE;
    assert_int_equal(close(fd), 0);
    FAILS_WITH(EBADF, close(fd));
    assert_non_null(strstr(stub.failure, "not open"));
    stub.failure[0] = '\0';
}

/* ---- the seed -------------------------------------------------------------------------------- */

/* Appends the names of a directory in the order of their listing. */
static void list_names(char *text)
{
    DIR *dir = opendir("/disk");
    assert_non_null(dir);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        strcat(strcat(text, entry->d_name), " ");
    assert_int_equal(errno, 0);
    assert_int_equal(closedir(dir), 0);
}

/* A text of all that the seed draws: failing calls, a temporary name, lost changes, and times. */
static void draw_all(uint64_t seed, char text[20000])
{
    begin(seed);
    set_faults((world_disk_faults){.io_errors = 50000, .short_writes = 200000, .sync_ns = 1000});
    text[0] = '\0';
    for (char i = 'a'; i <= 'z'; i++) {
        const char path[] = {'/', 'd', 'i', 's', 'k', '/', i, '\0'};
        const fedge_status status = fedge_os_write_file(path, path, 7, 0600, NULL);
        strcat(text, status == FEDGE_OK ? "+" : "-");
    }
    set_faults((world_disk_faults){0});
    for (char i = 'A'; i <= 'Z'; i++) {
        const char path[] = {'/', 'd', 'i', 's', 'k', '/', i, '\0'};
        fedge_os_file file;
        OK(fedge_os_open(&file, path, FEDGE_OS_CREATE, NULL));
        OK(fedge_os_write_at(&file, (uint64_t)i * 10, path, 7, NULL));
        fedge_os_close(&file);
    }
    char name[] = "/disk/file.XXXXXX.tmp";
    assert_true(mkostemps(name, 4, O_CLOEXEC) >= 0);
    list_names(text);
    power_off();
    char *left = tree();
    (void)snprintf(text + strlen(text), 18000, "%s%llu %llu", left, (unsigned long long)stub.now_ns,
                   (unsigned long long)world_disk_num_calls(NODE));
    free(left);
}

static void listings_have_a_drawn_order(void **state)
{
    (void)state;
    char first[100] = "", text[100];
    bool differs = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        text[0] = '\0';
        for (const char *name = "/disk/a\0/disk/b\0/disk/c\0"; *name; name += 8)
            world_disk_write(NODE, name, "x", 1);
        list_names(text);
        assert_int_equal(strlen(text), strlen(". .. a b c "));
        differs |= first[0] != '\0' && strcmp(first, text) != 0;
        memcpy(first, text, sizeof(first));
    }
    assert_true(differs);
}

static void one_seed_is_one_disk(void **state)
{
    (void)state;
    static char first[20000], second[20000], other[20000];
    draw_all(3, first);
    draw_all(4, other);
    draw_all(3, second);
    assert_string_equal(first, second);
    assert_string_not_equal(first, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_are_as_the_real_ones),  TEST(what_is_lost_lies_between),
        TEST(each_node_has_its_own),       TEST(wrong_descriptors_are_found),
        TEST(listings_have_a_drawn_order), TEST(one_seed_is_one_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
