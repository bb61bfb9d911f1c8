/* What control groups leave a process, by made-up facts about it. */
#define _GNU_SOURCE
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

static char dir[] = "test_os_memory.XXXXXX";

static int setup(void **state)
{
    (void)state;
    memcpy(dir, "test_os_memory.XXXXXX", sizeof(dir));
    return !mkdtemp(dir) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    return fedge_os_remove_tree(dir, NULL) == FEDGE_OK ? 0 : -1;
}

/* Writes [dir]/[folder]/[name]; in [text] a % stands for [dir]. */
static void save(const char *folder, const char *name, const char *text)
{
    char path[256], parent[256];
    snprintf(parent, sizeof(parent), "%s/%s", dir, folder);
    assert_int_equal(fedge_os_make_dirs(parent, NULL), FEDGE_OK);
    snprintf(path, sizeof(path), "%s/%s", parent, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (; *text != '\0'; text++) {
        if (*text == '%')
            fputs(dir, file);
        else
            fputc(*text, file);
    }
    fclose(file);
}

static uint64_t usable(void)
{
    char proc[64];
    snprintf(proc, sizeof(proc), "%s/proc", dir);
    return fedge_os_usable_bytes(proc);
}

#define MIB (1u << 20)
#define OTHERS "22 1 254:1 / / rw - ext4 /dev/vda rw\nno line of a mount\n"

static void without_groups_it_is_the_machine(void **state)
{
    (void)state;
    assert_int_equal(usable(), fedge_os_ram_bytes()); /* no facts */
    save("proc", "mountinfo", OTHERS "30 22 0:9 / % rw - cgroup2 cgroup2 rw\n");
    assert_int_equal(usable(), fedge_os_ram_bytes()); /* no group */
    save("proc", "cgroup", "0::/\n");
    save(".", "memory.max", "max\n");
    assert_int_equal(usable(), fedge_os_ram_bytes());
    assert_in_range(fedge_os_usable_bytes(NULL), 1, fedge_os_ram_bytes());
}

/* The least of the group and of what it is in. */
static void groups_of_version_2(void **state)
{
    (void)state;
    save("proc", "mountinfo", OTHERS "30 22 0:9 / %/v2 rw shared:4 - cgroup2 cgroup2 rw\n");
    save("proc", "cgroup", "1:cpu,memory:/other\n0::/user/job\n");
    save("v2/other", "memory.max", "1\n");
    save("v2/user/job", "memory.max", "max\n");
    assert_int_equal(usable(), fedge_os_ram_bytes());
    save("v2/user/job", "memory.max", "3145728\n");
    assert_int_equal(usable(), 3 * MIB);
    save("v2/user", "memory.max", "2097152\n");
    assert_int_equal(usable(), 2 * MIB);
    save("v2", "memory.max", "5242880\n");
    assert_int_equal(usable(), 2 * MIB);
}

/* The memory controller's own hierarchy, of which others are no business. */
static void groups_of_version_1(void **state)
{
    (void)state;
    save("proc", "mountinfo",
         OTHERS "35 31 0:31 / %/cpu rw - cgroup cgroup rw,cpu\n"
                "36 31 0:32 / %/v1 rw - cgroup cgroup rw,hugetlb,memory\n"
                "37 31 0:33 / %/v2 rw - cgroup2 cgroup2 rw\n");
    save("proc", "cgroup", "9:cpu:/job\n4:hugetlb,memory:/a/job\n0::/\n");
    save("cpu/job", "memory.limit_in_bytes", "1\n");
    save("v1", "memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(usable(), fedge_os_ram_bytes());
    save("v1/a/job", "memory.limit_in_bytes", "4194304\n");
    assert_int_equal(usable(), 4 * MIB);
    save("v1/a", "memory.limit_in_bytes", "1048576\n");
    assert_int_equal(usable(), MIB);
}

/* In a container the mount shows its group alone, whose path may be that outside. */
static void groups_of_a_container(void **state)
{
    (void)state;
    save("proc", "mountinfo", "36 31 0:32 /docker/ab % ro - cgroup cgroup rw,memory\n");
    save("proc", "cgroup", "4:memory:/docker/ab\n");
    save(".", "memory.limit_in_bytes", "6291456\n");
    assert_int_equal(usable(), 6 * MIB);
    save("proc", "cgroup", "4:memory:/docker/ab/inner\n");
    save("inner", "memory.limit_in_bytes", "5242880\n");
    assert_int_equal(usable(), 5 * MIB);
    save("proc", "cgroup", "4:memory:/docker/abc\n"); /* not below the mount's */
    assert_int_equal(usable(), 6 * MIB);
    save("proc", "cgroup", "4:memory:/../inner\n");
    assert_int_equal(usable(), 6 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_it_is_the_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_a_container, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
