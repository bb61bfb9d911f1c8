/* A scheduler of one fiber with its disk, for the tests of the simulated disks.
 *
 * Each call at which another fiber may run changes errno, as another fiber may. */
#ifndef FEDGE_TESTS_WORLD_DISK_STUB_H
#define FEDGE_TESTS_WORLD_DISK_STUB_H

#include "tests/edge/core/cmocka_all.h"

#include "edge/core/os.h"
#include "tests/world/disk.h"
#include "tests/world/scheduler.h"

#define OK(call) assert_int_equal(call, FEDGE_OK)
#define FAILS_WITH(error, call)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal(call, -1);                                                                \
        assert_int_equal(errno, error);                                                            \
    } while (0)

/* The running fiber's node, and another node. */
enum { DRAWS = 60, NODE = WORLD_SERVER, OTHER = WORLD_FIRST_CLIENT };

typedef struct disk_stub {
    uint32_t node;
    uint64_t now_ns, yields;
    fedge_rng rng;
    jmp_buf killed;
    char failure[200];
    void (*while_asleep)(void); /* what another fiber does at the next wait, once */
    const void *woken;          /* the last world_fail */
} disk_stub;
extern disk_stub stub;

/* Begins a new world on a fiber of NODE; the second is a test's setup, with seed 1. */
void begin(uint64_t seed);
int setup(void **state);
int teardown(void **state); /* fails the test after a world_fail */

void set_faults(world_disk_faults faults);
/* Kills the node's process; then its power fails. */
void power_off(void);

/* Runs [work] on a disk with these faults until it is killed or calls world_die; then all its
 * memory is freed. False: it ended by itself. For tests built with fedge_world_disk_kills
 * (world.cmake). */
bool ended_by(world_disk_faults faults, void (*work)(void));
/* The same, with a kill at the call of this number. */
bool killed_at(uint64_t call, void (*work)(void));

/* A text of all files with their sizes and a hash of their content; the caller frees it. */
char *tree(void);
uint64_t bytes_of_files(void);

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
