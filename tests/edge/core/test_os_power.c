/* What the file functions leave when the power fails, at every moment and with many draws of what
 * had reached the disk. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/lossy_disk.h"

#define OK(call) assert_int_equal(call, FEDGE_OK)

enum { DRAWS = 24 };

static char dir[LOSSY_DISK_PLACE], image[LOSSY_DISK_PLACE + 8];

static int setup(void **state)
{
    (void)state;
    lossy_disk_place("os-power", dir);
    snprintf(image, sizeof(image), "%s.image", dir);
    return fedge_os_remove_tree(dir, NULL) != FEDGE_OK || fedge_os_make_dirs(dir, NULL) != FEDGE_OK;
}

static int teardown(void **state)
{
    (void)state;
    lossy_disk_end();
    return fedge_os_remove_tree(image, NULL) != FEDGE_OK ||
           fedge_os_remove_tree(dir, NULL) != FEDGE_OK;
}

static const char *in(const char *place, const char *name)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/%s", place, name);
    return path;
}

/* The text of a file, "" when there is none. */
static void read_text(const char *path, char text[100])
{
    uint8_t *data;
    size_t size;
    text[0] = '\0';
    if (fedge_os_exists(path)) {
        OK(fedge_os_read_file(path, 99, &data, &size, NULL));
        memcpy(text, data, size + 1);
        free(data);
    }
}

static void a_file_is_the_old_or_the_new_one(void **state)
{
    (void)state;
    char text[100];
    lossy_disk_begin(dir);
    OK(fedge_os_write_file(in(dir, "file"), "first", 5, 0600, NULL));
    uint32_t first = lossy_disk_now();
    OK(fedge_os_write_file(in(dir, "file"), "the second text", 15, 0600, NULL));
    uint32_t second = lossy_disk_now();
    for (uint32_t moment = 0; moment <= second; moment++) {
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            lossy_disk_image(moment, draw, image);
            read_text(in(image, "file"), text);
            bool is_first = strcmp(text, "first") == 0;
            bool is_second = strcmp(text, "the second text") == 0;
            assert_true(is_first || is_second || text[0] == '\0');
            assert_true(moment < first || is_first || is_second);
            assert_true(moment < second || is_second);
        }
    }
}

static void new_directories_stay(void **state)
{
    (void)state;
    lossy_disk_begin(dir);
    OK(fedge_os_make_dirs(in(dir, "a/b/c"), NULL));
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        assert_true(fedge_os_is_dir(in(image, "a/b/c")));
    }
}

/* Also those that one was making who was killed, for the next finds them and makes no more. */
static void new_directories_stay_after_a_kill(void **state)
{
    (void)state;
    uint32_t end = UINT32_MAX;
    for (uint32_t moment = 0; moment <= end; moment++) {
        OK(fedge_os_remove_tree(dir, NULL));
        OK(fedge_os_make_dirs(dir, NULL));
        lossy_disk_begin(dir);
        OK(fedge_os_make_dirs(in(dir, "a/b/c"), NULL));
        end = lossy_disk_now();
        lossy_disk_kill(moment);
        OK(fedge_os_make_dirs(in(dir, "a/b/c"), NULL));
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            lossy_disk_image(lossy_disk_now(), draw, image);
            assert_true(fedge_os_is_dir(in(image, "a/b/c")));
        }
    }
    assert_true(end > 4);
}

static void what_is_synced_stays(void **state)
{
    (void)state;
    fedge_os_file file;
    char text[100];
    OK(fedge_os_write_file(in(dir, "file"), "0000", 4, 0600, NULL));
    lossy_disk_begin(dir);
    OK(fedge_os_open(&file, in(dir, "file"), FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_write_at(&file, 2, "22", 2, NULL));
    OK(fedge_os_reserve(&file, 8, NULL));
    OK(fedge_os_cut(&file, 6, NULL));
    OK(fedge_os_sync(&file, NULL));
    OK(fedge_os_write_at(&file, 0, "1", 1, NULL));
    fedge_os_close(&file);
    bool lost = false, survived = false;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        read_text(in(image, "file"), text);
        assert_string_equal(text + 1, "022");
        lost |= text[0] == '0';
        survived |= text[0] == '1';
    }
    assert_true(lost && survived); /* it is a disk that loses what was not synced */
}

static void a_rename_is_whole(void **state)
{
    (void)state;
    OK(fedge_os_write_file(in(dir, "from"), "x", 1, 0600, NULL));
    lossy_disk_begin(dir);
    char from[100];
    snprintf(from, sizeof(from), "%s", in(dir, "from"));
    OK(fedge_os_rename(from, in(dir, "to"), NULL));
    uint32_t renamed = lossy_disk_now();
    OK(fedge_os_sync_dir(dir, NULL));
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(renamed, draw, image);
        bool old = fedge_os_exists(in(image, "from")), new = fedge_os_exists(in(image, "to"));
        assert_true(old != new);
        lossy_disk_image(lossy_disk_now(), draw, image);
        assert_true(fedge_os_exists(in(image, "to")) && !fedge_os_exists(in(image, "from")));
    }
}

static void what_is_published_stays(void **state)
{
    (void)state;
    OK(fedge_os_write_file(in(dir, "from"), "x", 1, 0600, NULL));
    lossy_disk_begin(dir);
    char from[100];
    snprintf(from, sizeof(from), "%s", in(dir, "from"));
    OK(fedge_os_publish(from, in(dir, "to"), NULL));
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        assert_true(fedge_os_exists(in(image, "to")) && !fedge_os_exists(in(image, "from")));
    }
}

/* What a killed process had written is read by the next one and still not on the disk. */
static void a_kill_syncs_nothing(void **state)
{
    (void)state;
    char text[100];
    fedge_os_file file;
    lossy_disk_begin(dir);
    OK(fedge_os_open(&file, in(dir, "file"), FEDGE_OS_CREATE, NULL));
    OK(fedge_os_write_at(&file, 0, "text", 4, NULL));
    uint32_t written = lossy_disk_now();
    OK(fedge_os_write_at(&file, 4, "more", 4, NULL));
    fedge_os_close(&file);
    lossy_disk_kill(written);
    read_text(in(dir, "file"), text);
    assert_string_equal(text, "text");
    lossy_disk_image(lossy_disk_now(), 0, image);
    assert_false(fedge_os_exists(in(image, "file")));
    OK(fedge_os_open(&file, in(dir, "file"), FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_sync(&file, NULL));
    fedge_os_close(&file);
    OK(fedge_os_sync_dir(dir, NULL));
    lossy_disk_image(lossy_disk_now(), 0, image);
    read_text(in(image, "file"), text);
    assert_string_equal(text, "text");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_the_old_or_the_new_one),
        TEST(new_directories_stay),
        TEST(new_directories_stay_after_a_kill),
        TEST(what_is_synced_stays),
        TEST(a_rename_is_whole),
        TEST(what_is_published_stays),
        TEST(a_kill_syncs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
