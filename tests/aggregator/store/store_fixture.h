/* What the store's tests share: a directory of their own and a small phase. */
#ifndef FEDGE_TESTS_AGGREGATOR_STORE_STORE_FIXTURE_H
#define FEDGE_TESTS_AGGREGATOR_STORE_STORE_FIXTURE_H

#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/store/journal.h"
#include "edge/core/message.h"
#include "edge/core/os.h"

#define OK(call) assert_int_equal(call, FEDGE_OK)

enum { TEST_SLOTS = 4, TEST_SLOT_SIZE = 5000 };
#define TEST_RUN_ID "0123456789abcdef0123456789abcdef"
#define TEST_MODEL "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* An empty directory, named for the process so that tests may run side by side. */
static inline int test_dir_setup(void **state)
{
    char *path = malloc(64);
    *state = path;
    if (!path)
        return 1;
    snprintf(path, 64, "store-test-%ld", (long)getpid());
    return fedge_os_remove_tree(path, NULL) != FEDGE_OK ||
           fedge_os_make_dirs(path, NULL) != FEDGE_OK;
}

static inline int test_dir_teardown(void **state)
{
    fedge_status status = fedge_os_remove_tree(*state, NULL);
    free(*state);
    return status != FEDGE_OK;
}

static inline fedge_journal_phase test_phase(uint32_t round, uint32_t attempt)
{
    return (fedge_journal_phase){
        .run_id = TEST_RUN_ID,
        .incarnation = 1,
        .round = round,
        .attempt = attempt,
        .wanted = 3,
        .model = TEST_MODEL,
        .slot_size = TEST_SLOT_SIZE,
        .num_tasks = TEST_SLOTS,
        .num_bounds = 2,
        .bounds_log2 = {2, -3},
    };
}

static inline fedge_journal_task test_task(uint64_t task_id)
{
    fedge_journal_task task = {.task_id = task_id, .client_index = (uint32_t)task_id + 100};
    snprintf(task.device_id, sizeof(task.device_id), "00000000-0000-4000-8000-%012u",
             (unsigned)task_id);
    return task;
}

/* Tasks 1 … TEST_SLOTS. */
static inline fedge_status test_create(const char *dir, const fedge_journal_phase *phase,
                                       fedge_journal **journal, fedge_error *err)
{
    fedge_journal_task tasks[TEST_SLOTS];
    for (uint32_t i = 0; i < TEST_SLOTS; i++)
        tasks[i] = test_task(i + 1);
    return fedge_journal_create(dir, phase, tasks, 0, journal, err);
}

/* Bytes that depend on the task. */
static inline void test_update(uint64_t task_id, uint8_t bytes[TEST_SLOT_SIZE])
{
    for (uint32_t i = 0; i < TEST_SLOT_SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + task_id * 31);
}

/* Writes the whole update of a task and accepts it, without a sync. */
static inline fedge_status test_accept(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                       fedge_error *err)
{
    uint8_t bytes[TEST_SLOT_SIZE];
    char metadata[32];
    test_update(task_id, bytes);
    int length = snprintf(metadata, sizeof(metadata), "{\"task\":%u}", (unsigned)task_id);
    fedge_status status = fedge_journal_write(journal, slot, task_id, 0, bytes, sizeof(bytes), err);
    if (status != FEDGE_OK)
        return status;
    return fedge_journal_accept(journal, slot, task_id, sizeof(bytes),
                                fedge_crc32(0, bytes, sizeof(bytes)), metadata, (uint32_t)length,
                                err);
}

#endif
