/* Tests that files that fedge writes as a whole are on the disk when the call returns. */
#include "tests/world/disk_stub.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/client_states.h"
#include "aggregator/simulate/generate/npy_writer.h"
#include "edge/data/partitions/partition.h"

enum { ROWS = 500 };

static void a_partition(void **state)
{
    (void)state;
    uint32_t owner[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        owner[i] = i % 7;
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        begin(draw);
        OK(fedge_partition_write_csv("/disk/x.csv", owner, ROWS, NULL));
        char *written = tree();
        power_off();
        char *found = tree();
        assert_string_equal(found, written);
        assert_non_null(strstr(found, "x.csv"));
        free(written);
        free(found);
    }
}

static void an_array(void **state)
{
    (void)state;
    static const uint8_t values[ROWS] = {[ROWS - 1] = 77};
    const uint32_t shape[] = {ROWS};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_npy_writer writer;
        size_t size = 0;
        begin(draw);
        OK(fedge_npy_writer_init(&writer, "/disk/x.npy", FEDGE_U8, 1, shape, NULL));
        OK(fedge_os_sync_dir("/disk", NULL)); /* as its writer's caller does */
        OK(fedge_npy_writer_append(&writer, values, ROWS, NULL));
        OK(fedge_npy_writer_finish(&writer, NULL));
        fedge_npy_writer_fini(&writer);
        power_off();
        const uint8_t *found = world_disk_read(NODE, "/disk/x.npy", &size);
        assert_true(found && size > ROWS);
        assert_memory_equal(found + size - ROWS, values, ROWS);
    }
}

static void states_of_clients(void **state)
{
    (void)state;
    static const float values[] = {-1.5f, 0.5f};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fedge_client_states states, other;
        float found[2];
        begin(draw);
        OK(fedge_client_states_init(&states, 4, 2, NULL, NULL));
        OK(fedge_client_states_put(&states, 3, values, NULL));
        fedge_client_states_commit(&states, 1);
        OK(fedge_client_states_save(&states, "/disk/variates.bin", NULL));
        fedge_client_states_fini(&states);
        power_off();
        OK(fedge_client_states_init(&other, 4, 2, NULL, NULL));
        OK(fedge_client_states_load(&other, "/disk/variates.bin", NULL));
        OK(fedge_client_states_get(&other, 3, found, NULL));
        assert_memory_equal(found, values, sizeof(values));
        fedge_client_states_fini(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_partition), TEST(an_array), TEST(states_of_clients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
