/* The power of a device fails at every call of its store's life: what the store had promised is
 * there, and of what was under way the old or the new. */
#include "tests/world/disk_stub.h"

#include <stdlib.h>
#include <string.h>

#include "client/store.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define RUN "00112233445566778899aabbccddeeff"

enum { MAX_BYTES = 100000, STEPS = 6, POWERS = 3, BLOB = 3000, KILLS = 60 };

/* Step s of the life writes: the state with incarnation s, the value "s", the result of task s.
 * Those of the last call that has returned: */
static struct {
    uint32_t state, value, result;
} promised;

static bool loads; /* a model, too */
static char blob_hash[FEDGE_HASH_TEXT];
static uint8_t bytes[BLOB];

static int fill_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 13 + i / 256);
    fedge_sha256_text(bytes, sizeof(bytes), blob_hash);
    return 0;
}

static void begin_life(uint64_t seed)
{
    begin(seed);
    memset(&promised, 0, sizeof(promised));
    loads = true;
}

static fedge_store *open_store(void)
{
    fedge_store *store;
    OK(fedge_store_open("/disk/boards/state", MAX_BYTES, &store, NULL));
    return store;
}

static size_t result_size(uint32_t step)
{
    return 900 + 300 * step;
}

static void put_result(fedge_store *store, uint32_t step)
{
    fedge_upload upload = {
        .task_id = step, .incarnation = 1, .size = result_size(step), .num_examples = 5};
    strcpy(upload.run_id, RUN);
    upload.crc32 = fedge_crc32(0, bytes, result_size(step));
    upload.num_sections = 1;
    strcpy(upload.sections[0].name, "delta");
    upload.sections[0].codec = fedge_codec_lossless();
    upload.sections[0].size = upload.sections[0].raw_size = result_size(step);
    OK(fedge_store_result_put(store, &upload, bytes, NULL));
}

static void live(void)
{
    fedge_store *store = open_store();
    for (uint32_t step = 1; step <= STEPS; step++) {
        fedge_store_state state = {.run_id = RUN, .incarnation = step};
        OK(fedge_store_write_state(store, &state, NULL));
        promised.state = step;
        const uint8_t *part = bytes + (step - 1) * 500;
        if (loads)
            OK(fedge_store_blob_append(store, blob_hash, (step - 1) * 500, part, 500, BLOB, NULL));
        char text[2] = {(char)('0' + step), '\0'};
        OK(fedge_store_put(store, RUN, "value", text, 1, NULL));
        promised.value = step;
        put_result(store, step);
        promised.result = step;
    }
    fedge_store_close(store);
}

static uint32_t find_value(fedge_store *store)
{
    uint8_t *data;
    size_t size;
    fedge_status status = fedge_store_get(store, RUN, "value", &data, &size, NULL);
    if (status == FEDGE_NOT_FOUND)
        return 0;
    OK(status);
    assert_int_equal(size, 1);
    uint32_t step = (uint32_t)(data[0] - '0');
    free(data);
    return step;
}

static uint32_t find_result(fedge_store *store)
{
    fedge_upload found;
    uint8_t part[500];
    fedge_status status = fedge_store_result_find(store, &found, NULL);
    if (status == FEDGE_NOT_FOUND)
        return 0;
    OK(status);
    assert_int_equal(found.size, result_size((uint32_t)found.task_id));
    OK(fedge_store_result_read(store, 300, part, sizeof(part), NULL));
    assert_memory_equal(part, bytes + 300, sizeof(part));
    return (uint32_t)found.task_id;
}

/* What is there of a blob is told by its hash; it may be loaded again. */
static void check_blob(fedge_store *store)
{
    uint8_t *data;
    fedge_status status = fedge_store_blob_load(store, blob_hash, BLOB, &data, NULL);
    if (status == FEDGE_OK) {
        assert_memory_equal(data, bytes, BLOB);
        free(data);
    } else {
        assert_true(status == FEDGE_NOT_FOUND || status == FEDGE_TRUNCATED ||
                    status == FEDGE_CORRUPT);
    }
}

static void check(void)
{
    fedge_store_state state;
    power_off();
    fedge_store *store = open_store();
    OK(fedge_store_read_state(store, &state, NULL));
    assert_in_range(state.incarnation, promised.state, promised.state + 1);
    assert_in_range(find_value(store), promised.value, promised.value + 1);
    assert_in_range(find_result(store), promised.result, promised.result + 1);
    check_blob(store);
    fedge_store_close(store);
}

static void what_was_promised_is_there(void **state)
{
    (void)state;
    bool killed = true;
    for (uint64_t call = 1; killed; call++) {
        for (uint64_t draw = 0; draw < 2 * POWERS; draw++) {
            begin_life(call * 100 + draw);
            killed = killed_at(call, live);
            check();
        }
    }
    assert_int_equal(promised.result, STEPS);
}

/* A value alone, beside which nothing is written. */
static void live_for_a_value(void)
{
    fedge_store *store = open_store();
    OK(fedge_store_put(store, RUN, "value", "1", 1, NULL));
    fedge_store_close(store);
}

/* What one was making who was killed is found by the next, which promises more in it. */
static void what_was_promised_after_a_kill_is_there(void **state)
{
    (void)state;
    for (uint64_t call = 1; call <= KILLS; call++) {
        for (uint64_t draw = 0; draw < 2 * POWERS; draw++) {
            begin_life(call * 100 + draw);
            assert_true(killed_at(call, live));
            live_for_a_value();
            if (draw < POWERS) {
                power_off();
                fedge_store *store = open_store();
                assert_int_equal(find_value(store), 1);
                fedge_store_close(store);
            } else {
                loads = false;
                live();
                check();
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_promised_is_there),
        TEST(what_was_promised_after_a_kill_is_there),
    };
    return cmocka_run_group_tests(tests, fill_bytes, NULL);
}
