/* Tests the simulated disks: the state of files after kills and power failures, the faults of
 * system calls, and the world's own functions. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include "tests/world/disk_stub.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* The text of a file, "" when there is none. */
static const char *text_of(const char *path)
{
    static char text[100];
    size_t size = 0;
    const uint8_t *data = world_disk_read(NODE, path, &size);
    assert_true(size < sizeof(text));
    memcpy(text, data ? (const char *)data : "", size);
    text[size] = '\0';
    return text;
}

/* ---- power failures and kills ---------------------------------------------------------------- */

static void write_second(void)
{
    OK(fedge_os_write_file("/disk/file", "the second text", 15, 0600, NULL));
}

static void a_file_is_the_old_or_the_new_one(void **state)
{
    (void)state;
    bool killed = true, seen_first = false, seen_second = false;
    uint64_t call = 1;
    for (; killed; call++) {
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            begin(draw);
            OK(fedge_os_write_file("/disk/file", "first", 5, 0600, NULL));
            killed = killed_at(call, write_second);
            power_off();
            const bool is_first = strcmp(text_of("/disk/file"), "first") == 0;
            const bool is_second = strcmp(text_of("/disk/file"), "the second text") == 0;
            assert_true(killed ? is_first || is_second : is_second);
            seen_first |= is_first;
            seen_second |= is_second && killed;
        }
    }
    assert_true(call > 8 && seen_first && seen_second);
}

static void make_directories(void)
{
    OK(fedge_os_make_dirs("/disk/a/b/c", NULL));
}

/* Also directories that a killed process was making: the next process finds them and makes no more.
 */
static void new_directories_stay(void **state)
{
    (void)state;
    bool killed = true;
    uint64_t call = 1;
    for (; killed; call++) {
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            begin(draw);
            killed = killed_at(call, make_directories);
            make_directories();
            power_off();
            assert_true(fedge_os_is_dir("/disk/a/b/c"));
        }
    }
    assert_true(call > 8);
}

static void what_is_synced_stays(void **state)
{
    (void)state;
    bool lost = false, survived = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_os_file file;
        begin(draw);
        world_disk_write(NODE, "/disk/file", "0000", 4);
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        OK(fedge_os_write_at(&file, 2, "22", 2, NULL));
        OK(fedge_os_reserve(&file, 8, NULL));
        OK(fedge_os_cut(&file, 6, NULL));
        OK(fedge_os_sync(&file, NULL));
        OK(fedge_os_write_at(&file, 0, "1", 1, NULL));
        fedge_os_close(&file);
        power_off();
        size_t size;
        const uint8_t *data = world_disk_read(NODE, "/disk/file", &size);
        assert_int_equal(size, 6);
        assert_memory_equal(data + 1, "022\0\0", 5);
        lost |= data[0] == '0';
        survived |= data[0] == '1';
    }
    assert_true(lost && survived); /* this disk loses what was not synced */
}

/* A rename without a sync of the directory may be lost, but only as a whole. */
static void a_rename_is_whole(void **state)
{
    (void)state;
    bool lost = false, survived = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        world_disk_write(NODE, "/disk/from", "x", 1);
        world_disk_write(NODE, "/disk/to", "old", 3);
        OK(fedge_os_rename("/disk/from", "/disk/to", NULL));
        power_off();
        const bool is_old = strcmp(text_of("/disk/to"), "old") == 0;
        assert_string_equal(text_of("/disk/from"), is_old ? "x" : "");
        assert_string_equal(text_of("/disk/to"), is_old ? "old" : "x");
        lost |= is_old;
        survived |= !is_old;
    }
    assert_true(lost && survived);
}

static void what_is_published_stays(void **state)
{
    (void)state;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        world_disk_write(NODE, "/disk/from", "x", 1);
        OK(fedge_os_publish("/disk/from", "/disk/to", NULL));
        power_off();
        assert_string_equal(text_of("/disk/to"), "x");
        assert_false(fedge_os_exists("/disk/from"));
    }
}

/* A new name belongs to the directory; the file's own sync does not sync it. */
static void a_name_needs_its_directory(void **state)
{
    (void)state;
    bool lost = false, survived = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_os_file file;
        begin(draw);
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_CREATE, NULL));
        OK(fedge_os_write_at(&file, 0, "text", 4, NULL));
        OK(fedge_os_sync(&file, NULL));
        power_off();
        const bool is_there = fedge_os_exists("/disk/file");
        assert_string_equal(text_of("/disk/file"), is_there ? "text" : "");
        lost |= !is_there;
        survived |= is_there;
    }
    assert_true(lost && survived);
}

/* A durable change of a name replaces earlier unsynced changes of it. */
static void a_name_made_again_stays(void **state)
{
    (void)state;
    bool moved = false, lost = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        world_disk_write(NODE, "/disk/a/x", "old", 3);
        world_disk_write(NODE, "/disk/b/other", "text", 4);
        OK(fedge_os_rename("/disk/a/x", "/disk/b/x", NULL)); /* needs a sync of b */
        OK(fedge_os_write_file("/disk/a/x", "new", 3, 0600, NULL));
        power_off();
        assert_string_equal(text_of("/disk/a/x"), "new");
        moved |= strcmp(text_of("/disk/b/x"), "old") == 0;
        lost |= !fedge_os_exists("/disk/b/x");
    }
    assert_true(moved && lost);
}

/* Lost bytes do not reappear when the file grows again. */
static void what_is_lost_is_gone(void **state)
{
    (void)state;
    bool lost = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_os_file file;
        char text[4] = "";
        begin(draw);
        world_disk_write(NODE, "/disk/file", "", 0);
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        OK(fedge_os_write_at(&file, 0, "text", 4, NULL));
        power_off();
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        OK(fedge_os_reserve(&file, 4, NULL));
        OK(fedge_os_read_at(&file, 0, text, 4, NULL));
        fedge_os_close(&file);
        const bool is_lost = memcmp(text, "\0\0\0", 4) == 0;
        assert_true(is_lost || memcmp(text, "text", 4) == 0);
        lost |= is_lost;
    }
    assert_true(lost);
}

static void writes_are_torn_by_sectors(void **state)
{
    (void)state;
    enum { SECTOR = 512, SECTORS = 6, SIZE = SECTOR * SECTORS };
    bool torn = false;
    uint8_t old[SIZE], new[SIZE];
    memset(old, 'o', SIZE);
    memset(new, 'n', SIZE);
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_os_file file;
        begin(draw);
        world_disk_write(NODE, "/disk/file", old, SIZE);
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        OK(fedge_os_write_at(&file, 100, new, SIZE - 100, NULL));
        power_off();
        size_t size;
        const uint8_t *data = world_disk_read(NODE, "/disk/file", &size);
        assert_int_equal(size, SIZE);
        assert_memory_equal(data, old, 100);
        unsigned num_new = 0;
        for (unsigned i = 0; i < SECTORS; i++) {
            const unsigned skipped = i == 0 ? 100 : 0;
            const uint8_t *sector = data + i * SECTOR + skipped;
            const bool is_new = sector[0] == 'n';
            assert_memory_equal(sector, is_new ? new : old, SECTOR - skipped);
            num_new += is_new ? 1 : 0;
        }
        torn |= num_new > 0 && num_new < SECTORS;
    }
    assert_true(torn);
}

static int lock;

static void hold_and_write(void)
{
    fedge_os_file file;
    OK(fedge_os_lock("/disk/lock", &lock, NULL));
    OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_CREATE, NULL));
    OK(fedge_os_write_at(&file, 0, "text", 4, NULL));
    assert_int_equal(world_disk_num_open(NODE), 2);
    OK(fedge_os_write_at(&file, 4, "more", 4, NULL));
}

/* The next process reads what a killed process has written, though it is not on the disk yet. */
static void a_kill_syncs_nothing(void **state)
{
    (void)state;
    bool lost = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        assert_true(killed_at(7, hold_and_write));
        assert_int_equal(world_disk_num_open(NODE), 0);
        assert_string_equal(text_of("/disk/file"), "text");
        fedge_os_file other;
        OK(fedge_os_open(&other, "/disk/other", FEDGE_OS_CREATE, NULL));
        OK(fedge_os_lock("/disk/lock", &lock, NULL));
        power_off();
        lost |= !fedge_os_exists("/disk/file");
    }
    assert_true(lost);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void one_lock_at_a_time(void **state)
{
    (void)state;
    fedge_error err;
    int second;
    OK(fedge_os_lock("/disk/lock", &lock, NULL));
    assert_int_equal(fedge_os_lock("/disk/lock", &second, &err), FEDGE_BUSY);
    stub.node = OTHER;
    OK(fedge_os_lock("/disk/lock", &second, NULL)); /* a descriptor of another machine */
    fedge_os_unlock(second);
    stub.node = NODE;
    fedge_os_unlock(lock);
    OK(fedge_os_lock("/disk/lock", &lock, NULL));
    fedge_os_unlock(lock);
}

static void unlock_meanwhile(void)
{
    fedge_os_unlock(lock);
}

static void a_lock_is_waited_for(void **state)
{
    (void)state;
    OK(fedge_os_lock("/disk/lock", &lock, NULL));
    const int second = open("/disk/lock", O_RDWR);
    FAILS_WITH(EWOULDBLOCK, flock(second, LOCK_EX | LOCK_NB));
    stub.while_asleep = unlock_meanwhile;
    assert_int_equal(flock(second, LOCK_EX), 0);
    assert_true(stub.now_ns > 0);
    assert_int_equal(close(second), 0);
}

static void a_full_disk(void **state)
{
    (void)state;
    fedge_os_file file;
    fedge_error err;
    uint64_t bytes;
    char block[1000] = {0};
    set_faults((world_disk_faults){.capacity = 2500});
    OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_CREATE, NULL));
    assert_int_equal(fedge_os_reserve(&file, 2501, &err), FEDGE_NO_SPACE);
    OK(fedge_os_reserve(&file, 2000, NULL));
    OK(fedge_os_free_bytes("/disk", &bytes, NULL));
    assert_int_equal(bytes, 500);
    for (unsigned i = 0; i < 2; i++)
        OK(fedge_os_write_at(&file, i * sizeof(block), block, sizeof(block), NULL));
    assert_int_equal(pwrite(file.fd, block, 1000, 2000), 500); /* the part that fits */
    assert_int_equal(fedge_os_write_at(&file, 2500, block, 1, &err), FEDGE_NO_SPACE);
    assert_int_equal(fedge_os_write_file("/disk/other", "text", 4, 0600, &err), FEDGE_NO_SPACE);
    OK(fedge_os_remove("/disk/file", NULL));
    assert_int_equal(world_disk_used(NODE), 2500); /* it is open still */
    OK(fedge_os_read_at(&file, 1500, block, 1000, NULL));
    fedge_os_close(&file);
    assert_int_equal(world_disk_used(NODE), 0);
    OK(fedge_os_write_file("/disk/other", "text", 4, 0600, NULL));
}

static void the_program_goes_on_where_it_must(void **state)
{
    (void)state;
    uint8_t written[50000], *data;
    size_t size;
    for (unsigned i = 0; i < sizeof(written); i++)
        written[i] = (uint8_t)(i * 7 + i / 256);
    const world_disk_faults faults = {.interrupted = 300000, .short_writes = 900000};
    set_faults(faults);
    const uint64_t before = world_disk_num_calls(NODE);
    OK(fedge_os_write_file("/disk/file", written, sizeof(written), 0600, NULL));
    assert_true(world_disk_num_calls(NODE) > before + 20); /* without faults it has 10 calls */
    OK(fedge_os_read_file("/disk/file", 100000, &data, &size, NULL));
    assert_int_equal(size, sizeof(written));
    assert_memory_equal(data, written, size);
    free(data);
}

/* A page that could not be written counts as clean afterwards. */
static void a_failed_sync_is_final(void **state)
{
    (void)state;
    bool lost = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_os_file file;
        fedge_error err;
        begin(draw);
        world_disk_write(NODE, "/disk/file", "0000", 4);
        OK(fedge_os_open(&file, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        OK(fedge_os_write_at(&file, 0, "1", 1, NULL));
        set_faults((world_disk_faults){.fail_at = 1, .fail_errno = EIO});
        assert_int_equal(fedge_os_sync(&file, &err), FEDGE_IO);
        OK(fedge_os_write_at(&file, 1, "2", 1, NULL));
        OK(fedge_os_sync(&file, NULL));
        assert_string_equal(text_of("/disk/file"), "1200");
        power_off();
        assert_string_equal(text_of("/disk/file") + 1, "200");
        lost |= text_of("/disk/file")[0] == '0';
    }
    assert_true(lost);
}

static void faults_come_when_they_are_due(void **state)
{
    (void)state;
    fedge_error err;
    set_faults((world_disk_faults){.fail_at = 2, .fail_errno = EIO});
    assert_true(fedge_os_is_dir("/disk"));
    assert_false(fedge_os_is_dir("/disk"));
    assert_true(fedge_os_is_dir("/disk"));
    set_faults((world_disk_faults){.io_errors = 1000000});
    assert_int_equal(fedge_os_write_file("/disk/file", "text", 4, 0600, &err), FEDGE_IO);
    assert_true(fedge_os_is_dir("/disk"));
    assert_int_equal(world_disk_used(NODE), 0);
    assert_int_equal(stub.yields, world_disk_num_calls(NODE));
}

static fedge_os_file asleep;

static void write_meanwhile(void)
{
    OK(fedge_os_write_at(&asleep, 0, "1", 1, NULL));
}

/* A sync takes time. It does not cover bytes that are written meanwhile. */
static void syncs_take_time(void **state)
{
    (void)state;
    bool lost = false, slow = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        world_disk_write(NODE, "/disk/file", "0000", 4);
        set_faults((world_disk_faults){.slow_syncs = 500000, .slow_ns = 1000000, .sync_ns = 1000});
        OK(fedge_os_open(&asleep, "/disk/file", FEDGE_OS_READ_WRITE, NULL));
        stub.while_asleep = write_meanwhile;
        OK(fedge_os_sync(&asleep, NULL));
        assert_true(stub.now_ns > 0 && stub.now_ns <= 1000000);
        slow |= stub.now_ns > 1000;
        power_off();
        lost |= text_of("/disk/file")[0] == '0';
    }
    assert_true(lost && slow);
}

static void a_bit_flips(void **state)
{
    (void)state;
    const char *path = NULL, *before = "the text";
    assert_false(world_disk_flip(NODE, "", &path));
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        world_disk_write(NODE, "/disk/empty-x", NULL, 0);
        world_disk_write(NODE, "/disk/a/x", before, 8);
        world_disk_write(NODE, "/disk/a/y", before, 8);
        assert_false(world_disk_flip(NODE, "none", &path));
        assert_true(world_disk_flip(NODE, "x", &path));
        assert_string_equal(path, "/disk/a/x");
        assert_string_equal(text_of("/disk/a/y"), before);
        power_off();
        unsigned flipped = 0;
        const char *after = text_of("/disk/a/x");
        for (unsigned i = 0; i < 8; i++)
            flipped += (unsigned)__builtin_popcount((unsigned)(uint8_t)(before[i] ^ after[i]));
        assert_int_equal(flipped, 1);
    }
}

/* ---- the world's side ------------------------------------------------------------------------ */

static void a_backup_comes_back(void **state)
{
    (void)state;
    world_disk_write(NODE, "/disk/a/b", "old", 3);
    world_disk_write(NODE, "/disk/gone", "text", 4);
    OK(fedge_os_make_dir("/disk/empty", NULL));
    world_disk_copy *copy = world_disk_copy_of(NODE);
    char *before = tree();
    OK(fedge_os_write_file("/disk/a/b", "newer", 5, 0600, NULL));
    OK(fedge_os_remove("/disk/gone", NULL));
    OK(fedge_os_remove_tree("/disk/empty", NULL));
    OK(fedge_os_write_file("/disk/c", "c", 1, 0600, NULL));
    world_disk_restore(NODE, copy);
    world_disk_free_copy(copy);
    power_off();
    char *after = tree();
    assert_string_equal(after, before);
    assert_true(fedge_os_is_dir("/disk/empty"));
    assert_int_equal(world_disk_used(NODE), 7);
    free(before), free(after);
}

static void add_path(void *user, const char *path)
{
    strcat(user, path);
}

static void the_world_looks(void **state)
{
    (void)state;
    char paths[200] = "";
    size_t size;
    world_disk_write(NODE, "/disk/b/c", "text", 4);
    world_disk_write(NODE, "/disk/b/a", "text", 4);
    world_disk_write(NODE, "/disk/a", "old text", 8);
    world_disk_write(NODE, "/disk/a", "new", 3);
    world_disk_each(NODE, add_path, paths);
    assert_string_equal(paths, "/disk/a/disk/b/a/disk/b/c");
    assert_string_equal(text_of("/disk/a"), "new");
    assert_null(world_disk_read(NODE, "/disk/b", &size));
    assert_null(world_disk_read(NODE, "/disk/x/y", &size));
    assert_int_equal(world_disk_used(NODE), 11);
    assert_int_equal(world_disk_num_calls(NODE), 0);
}

static void what_is_synced_is_known(void **state)
{
    (void)state;
    const int fd = open("/disk/file", O_RDWR | O_CREAT, 0600);
    assert_int_equal(pwrite(fd, "first", 5, 0), 5);
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_int_equal(fdatasync(fd), 0);
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 5)); /* its name is not */
    OK(fedge_os_sync_dir("/disk", NULL));
    assert_true(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 6));
    assert_int_equal(pwrite(fd, "b", 1, 3), 1);
    assert_true(world_disk_is_synced(NODE, "/disk/file", 0, 3));
    assert_false(world_disk_is_synced(NODE, "/disk/file", 3, 4));
    assert_true(world_disk_is_synced(NODE, "/disk/file", 4, 5));
    assert_int_equal(fdatasync(fd), 0);
    assert_true(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_int_equal(ftruncate(fd, 9), 0);
    assert_true(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 9));
    /* After a failed sync the bytes have to be written again. */
    assert_int_equal(pwrite(fd, "again", 5, 0), 5);
    set_faults((world_disk_faults){.fail_at = 1, .fail_errno = EIO});
    FAILS_WITH(EIO, fdatasync(fd));
    assert_int_equal(fdatasync(fd), 0);
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_int_equal(pwrite(fd, "in", 2, 3), 2);
    assert_int_equal(fdatasync(fd), 0);
    assert_true(world_disk_is_synced(NODE, "/disk/file", 3, 5));
    assert_false(world_disk_is_synced(NODE, "/disk/file", 2, 5));
    assert_int_equal(pwrite(fd, "aga", 3, 0), 3);
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_int_equal(fdatasync(fd), 0);
    assert_true(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    OK(fedge_os_rename("/disk/file", "/disk/other", NULL));
    assert_int_equal(fdatasync(fd), 0);
    assert_false(world_disk_is_synced(NODE, "/disk/file", 0, 5));
    assert_false(world_disk_is_synced(NODE, "/disk/other", 0, 5));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_synced_is_known),
        TEST(a_file_is_the_old_or_the_new_one),
        TEST(new_directories_stay),
        TEST(what_is_synced_stays),
        TEST(a_rename_is_whole),
        TEST(what_is_published_stays),
        TEST(a_name_needs_its_directory),
        TEST(a_name_made_again_stays),
        TEST(what_is_lost_is_gone),
        TEST(writes_are_torn_by_sectors),
        TEST(a_kill_syncs_nothing),
        TEST(one_lock_at_a_time),
        TEST(a_lock_is_waited_for),
        TEST(a_full_disk),
        TEST(the_program_goes_on_where_it_must),
        TEST(a_failed_sync_is_final),
        TEST(faults_come_when_they_are_due),
        TEST(syncs_take_time),
        TEST(a_bit_flips),
        TEST(a_backup_comes_back),
        TEST(the_world_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
