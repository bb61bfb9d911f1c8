/* The power of a device fails at every moment of its store's life: what a call of the store had
 * promised is there, and of what was under way the old or the new. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/store.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"
#include "tests/edge/core/lossy_disk.h"

#define OK(call) assert_int_equal(call, FEDGE_OK)
#define RUN "00112233445566778899aabbccddeeff"

enum { MAX_BYTES = 100000, STEPS = 6, DRAWS = 12, BLOB = 3000, KILLS = 40 };

/* Step s of the life writes: the state with incarnation s, the value "s", the result of task s. The
 * moments are those when the calls had returned. */
typedef struct promises {
    uint32_t state[STEPS + 1], value[STEPS + 1], result[STEPS + 1];
} promises;

static char dir[LOSSY_DISK_PLACE], image[LOSSY_DISK_PLACE + 8], blob_hash[FEDGE_HASH_TEXT];
static uint8_t bytes[BLOB];

static int setup(void **state)
{
    (void)state;
    lossy_disk_place("client-power", dir);
    snprintf(image, sizeof(image), "%s.image", dir);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 13 + i / 256);
    fedge_sha256_text(bytes, sizeof(bytes), blob_hash);
    return fedge_os_remove_tree(dir, NULL) != FEDGE_OK || fedge_os_make_dirs(dir, NULL) != FEDGE_OK;
}

static int teardown(void **state)
{
    (void)state;
    lossy_disk_end();
    return fedge_os_remove_tree(image, NULL) != FEDGE_OK ||
           fedge_os_remove_tree(dir, NULL) != FEDGE_OK;
}

static fedge_store *open_store(const char *place)
{
    char path[LOSSY_DISK_PLACE + 32];
    fedge_store *store;
    snprintf(path, sizeof(path), "%s/boards/state", place);
    OK(fedge_store_open(path, MAX_BYTES, &store, NULL));
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

static void live(promises *made, bool loads)
{
    fedge_store *store = open_store(dir);
    for (uint32_t step = 1; step <= STEPS; step++) {
        fedge_store_state state = {.run_id = RUN, .incarnation = step};
        OK(fedge_store_write_state(store, &state, NULL));
        made->state[step] = lossy_disk_now();
        const uint8_t *part = bytes + (step - 1) * 500;
        if (loads)
            OK(fedge_store_blob_append(store, blob_hash, (step - 1) * 500, part, 500, BLOB, NULL));
        char text[2] = {(char)('0' + step), '\0'};
        OK(fedge_store_put(store, RUN, "value", text, 1, NULL));
        made->value[step] = lossy_disk_now();
        put_result(store, step);
        made->result[step] = lossy_disk_now();
    }
    fedge_store_close(store);
}

/* The last step whose call had returned at [moment], 0 when none had. */
static uint32_t promised(const uint32_t returned[STEPS + 1], uint32_t moment)
{
    uint32_t step = 0;
    while (step < STEPS && returned[step + 1] <= moment)
        step++;
    return step;
}

static void assert_step(uint32_t found, const uint32_t returned[STEPS + 1], uint32_t moment)
{
    uint32_t step = promised(returned, moment);
    assert_in_range(found, step, step + 1);
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

static void check(const promises *made, uint32_t moment, uint64_t draw)
{
    fedge_store_state state;
    lossy_disk_image(moment, draw, image);
    fedge_store *store = open_store(image);
    OK(fedge_store_read_state(store, &state, NULL));
    assert_step(state.incarnation, made->state, moment);
    assert_step(find_value(store), made->value, moment);
    assert_step(find_result(store), made->result, moment);
    check_blob(store);
    fedge_store_close(store);
}

static void what_was_promised_is_there(void **state)
{
    (void)state;
    promises made = {0};
    lossy_disk_begin(dir);
    live(&made, true);
    for (uint32_t moment = 0; moment <= lossy_disk_now(); moment++) {
        for (uint64_t draw = 0; draw < DRAWS; draw++)
            check(&made, moment, draw);
    }
}

/* A value alone, beside which nothing is written. */
static void live_for_a_value(void)
{
    fedge_store *store = open_store(dir);
    OK(fedge_store_put(store, RUN, "value", "1", 1, NULL));
    fedge_store_close(store);
    for (uint64_t draw = 0; draw < DRAWS / 2; draw++) {
        lossy_disk_image(lossy_disk_now(), draw, image);
        store = open_store(image);
        assert_int_equal(find_value(store), 1);
        fedge_store_close(store);
    }
}

/* What one was making who was killed is found by the next, which promises more in it. */
static void what_was_promised_after_a_kill_is_there(void **state)
{
    (void)state;
    uint32_t end = UINT32_MAX;
    for (uint32_t moment = 0; moment <= end && moment < KILLS; moment++) {
        promises made = {0};
        OK(fedge_os_remove_tree(dir, NULL));
        OK(fedge_os_make_dirs(dir, NULL));
        lossy_disk_begin(dir);
        live(&made, true);
        end = lossy_disk_now();
        lossy_disk_kill(moment);
        live_for_a_value();
        live(&made, false);
        for (uint64_t draw = 0; draw < DRAWS / 2; draw++)
            check(&made, lossy_disk_now(), draw);
    }
    assert_true(end > KILLS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_promised_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_promised_after_a_kill_is_there, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
