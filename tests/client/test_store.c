/* The store, in a directory and in memory: the same promises for both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/store.h"
#include "client/store_backend.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define DIR "store-test"
#define RUN "00112233445566778899aabbccddeeff"
#define MAX_BYTES 100000

typedef struct rig {
    bool on_disk;
    fedge_store *store;
} rig;

static int set_up(rig *r)
{
    assert_int_equal(fedge_os_remove_tree(DIR, NULL), FEDGE_OK);
    fedge_status status = fedge_store_open(r->on_disk ? DIR : NULL, MAX_BYTES, &r->store, NULL);
    assert_int_equal(status, FEDGE_OK);
    return 0;
}

static int set_up_dir(void **state)
{
    static rig r = {.on_disk = true};
    *state = &r;
    return set_up(&r);
}

static int set_up_memory(void **state)
{
    static rig r = {.on_disk = false};
    *state = &r;
    return set_up(&r);
}

static int tear_down(void **state)
{
    rig *r = *state;
    fedge_store_close(r->store);
    return fedge_os_remove_tree(DIR, NULL) ? -1 : 0;
}

static void test_state(void **state)
{
    rig *r = *state;
    fedge_store_state s, again;
    assert_int_equal(fedge_store_read_state(r->store, &s, NULL), FEDGE_OK);
    assert_string_equal(s.run_id, "");
    strcpy(s.run_id, RUN);
    s.incarnation = 3;
    s.server_time_ms = 1700000000123;
    s.num_errors = 1;
    strcpy(s.errors[0], "training diverged");
    assert_int_equal(fedge_store_write_state(r->store, &s, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_read_state(r->store, &again, NULL), FEDGE_OK);
    assert_string_equal(again.run_id, RUN);
    assert_int_equal(again.incarnation, 3);
    assert_int_equal(again.server_time_ms, 1700000000123);
    assert_int_equal(again.num_errors, 1);
    assert_string_equal(again.errors[0], "training diverged");
}

static void test_blobs(void **state)
{
    rig *r = *state;
    uint8_t data[1000], *loaded;
    char hash[65], other[65];
    uint64_t held;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    fedge_sha256_text(data, sizeof(data), hash);
    fedge_sha256_text(data, 10, other);
    assert_int_equal(fedge_store_blob_held(r->store, hash, 1000, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 0);
    assert_int_equal(fedge_store_blob_load(r->store, hash, 1000, &loaded, NULL), FEDGE_NOT_FOUND);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 0, data, 600, 1000, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 599, data, 1, 1000, NULL),
                     FEDGE_MISMATCH);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 600, data, 401, 1000, NULL),
                     FEDGE_MISMATCH);
    assert_int_equal(fedge_store_blob_load(r->store, hash, 1000, &loaded, NULL), FEDGE_TRUNCATED);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 600, data + 600, 400, 1000, NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_store_blob_held(r->store, hash, 1000, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 1000);
    assert_int_equal(fedge_store_blob_load(r->store, hash, 1000, &loaded, NULL), FEDGE_OK);
    assert_memory_equal(loaded, data, 1000);
    free(loaded);
    assert_int_equal(fedge_store_blob_append(r->store, other, 0, data, 9, 9, NULL), FEDGE_OK);
    fedge_error err;
    assert_int_equal(fedge_store_blob_load(r->store, other, 9, &loaded, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, other));
    assert_int_equal(fedge_store_blob_held(r->store, other, 9, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 0);
    assert_int_equal(
        fedge_store_blob_append(r->store, other, 0, data, 9, (uint64_t)MAX_BYTES + 1, NULL),
        FEDGE_TOO_BIG);
    assert_int_equal(fedge_store_blob_append(r->store, other, 0, data, 10, 10, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_blobs_keep(r->store, (const char *[]){other}, 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_blob_held(r->store, hash, 1000, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 0);
    assert_int_equal(fedge_store_blob_held(r->store, other, 10, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 10);
    /* A file that is longer than the blob is checked like one that is whole. */
    assert_int_equal(fedge_store_blob_held(r->store, other, 8, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 8);
    assert_int_equal(fedge_store_blob_load(r->store, other, 8, &loaded, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "removed"));
    assert_int_equal(fedge_store_blob_held(r->store, other, 8, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 0);
}

static void a_seed_is_held_and_stays(void **state)
{
    rig *r = *state;
    static const char path[] = "test_store.seed";
    uint8_t data[5000], *loaded = NULL;
    char hash[FEDGE_HASH_TEXT], other[FEDGE_HASH_TEXT];
    uint64_t held = 0;
    fedge_error err;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 11);
    fedge_sha256_text(data, sizeof(data), hash);
    fedge_sha256_text(data, 10, other);
    assert_int_equal(fedge_store_seed(r->store, "no-such-seed", &err), FEDGE_NOT_FOUND);
    assert_int_equal(fedge_os_write_file(path, data, sizeof(data), 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_store_seed(r->store, path, &err), FEDGE_OK);
    assert_int_equal(fedge_store_blob_held(r->store, other, sizeof(data), &held, &err), FEDGE_OK);
    assert_int_equal(held, 0);
    assert_int_equal(fedge_store_discard_run(r->store, &err), FEDGE_OK);
    assert_int_equal(fedge_store_blobs_keep(r->store, (const char *[]){other}, 1, &err), FEDGE_OK);
    assert_int_equal(fedge_store_blob_held(r->store, hash, sizeof(data), &held, &err), FEDGE_OK);
    assert_int_equal(held, sizeof(data));
    assert_int_equal(fedge_store_blob_load(r->store, hash, sizeof(data), &loaded, &err), FEDGE_OK);
    assert_memory_equal(loaded, data, sizeof(data));
    free(loaded);
    /* Somebody writes to it: then it is fetched like any other. */
    data[7] ^= 1;
    assert_int_equal(fedge_os_write_file(path, data, sizeof(data), 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_store_blob_load(r->store, hash, sizeof(data), &loaded, &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(fedge_store_blob_held(r->store, hash, sizeof(data), &held, &err), FEDGE_OK);
    assert_int_equal(held, 0);
    assert_int_equal(fedge_os_remove(path, &err), FEDGE_OK);
}

static fedge_upload an_upload(const uint8_t *bytes, size_t size)
{
    fedge_upload upload = {.task_id = 42, .incarnation = 1, .size = size, .num_examples = 5};
    strcpy(upload.run_id, RUN);
    upload.crc32 = fedge_crc32(0, bytes, size);
    upload.num_sections = 1;
    strcpy(upload.sections[0].name, "delta");
    upload.sections[0].codec = fedge_codec_lossless();
    upload.sections[0].size = upload.sections[0].raw_size = size;
    upload.num_metrics = 1;
    strcpy(upload.metrics[0].name, "loss");
    upload.metrics[0].value = 0.25;
    return upload;
}

static void test_result(void **state)
{
    rig *r = *state;
    static uint8_t bytes[50000], part[100];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 13);
    fedge_upload upload = an_upload(bytes, sizeof(bytes)), found;
    assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_NOT_FOUND);
    assert_int_equal(fedge_store_result_put(r->store, &upload, bytes, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_result_read(r->store, 5, part, sizeof(part), NULL), FEDGE_OK);
    assert_memory_equal(part, bytes + 5, sizeof(part));
    assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_OK);
    assert_int_equal(found.task_id, 42);
    assert_int_equal(found.size, sizeof(bytes));
    assert_true(found.metrics[0].value == 0.25);
    assert_int_equal(fedge_store_result_read(r->store, 777, part, sizeof(part), NULL), FEDGE_OK);
    assert_memory_equal(part, bytes + 777, sizeof(part));
    assert_int_equal(fedge_store_result_read(r->store, 49901, part, 100, NULL), FEDGE_TRUNCATED);
    upload = an_upload(bytes, 0); /* an evaluation: metrics only */
    upload.num_sections = 0;
    assert_int_equal(fedge_store_result_put(r->store, &upload, NULL, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_OK);
    assert_int_equal(found.size, 0);
    assert_int_equal(fedge_store_result_discard(r->store, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_NOT_FOUND);
}

static void test_values(void **state)
{
    rig *r = *state;
    uint8_t *data;
    size_t size;
    char key[FEDGE_STORE_MAX_KEY + 2];
    assert_int_equal(fedge_store_get(r->store, RUN, "residual", &data, &size, NULL),
                     FEDGE_NOT_FOUND);
    assert_int_equal(fedge_store_put(r->store, RUN, "residual", "abc", 3, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_put(r->store, RUN, "residual", "defg", 4, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_get(r->store, RUN, "residual", &data, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 4);
    assert_memory_equal(data, "defg", 4);
    free(data);
    static const char *const bad[] = {"", ".x", "a/b", "../x", "a b", "ä"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(fedge_store_put(r->store, RUN, bad[i], "", 0, NULL),
                         FEDGE_INVALID_ARGUMENT);
    }
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    assert_int_equal(fedge_store_put(r->store, RUN, key, "", 0, NULL), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_store_put(r->store, "../..", "key", "", 0, NULL),
                     FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_store_put(r->store, RUN, "big", key, MAX_BYTES + 1, NULL),
                     FEDGE_TOO_BIG);
    for (int i = 1; i < FEDGE_STORE_MAX_KEYS; i++) {
        snprintf(key, sizeof(key), "key%d", i);
        assert_int_equal(fedge_store_put(r->store, RUN, key, "", 0, NULL), FEDGE_OK);
    }
    assert_int_equal(fedge_store_put(r->store, RUN, "more", "", 0, NULL), FEDGE_TOO_BIG);
    assert_int_equal(fedge_store_put(r->store, RUN, "key1", "x", 1, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_discard_run(r->store, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_get(r->store, RUN, "key1", &data, &size, NULL), FEDGE_NOT_FOUND);
}

/* Neither under its own name nor under another. */
static void test_a_name_that_is_too_long(void **state)
{
    (void)state;
    static const uint8_t value[] = "value";
    const fedge_bytes_view first = {value, 2}, second = {value + 2, sizeof(value) - 2};
    fedge_store_backend backend;
    char name[193];
    uint64_t size = 0;
    fedge_error err;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(fedge_store_backend_memory(&backend, &err), FEDGE_OK);
    assert_int_equal(backend.replace(backend.user, name, first, second, &err), FEDGE_TOO_BIG);
    assert_int_equal(backend.write_at(backend.user, name, 0, first, &err), FEDGE_TOO_BIG);
    assert_int_equal(backend.size(backend.user, name, &size, &err), FEDGE_NOT_FOUND);
    assert_int_equal(backend.size(backend.user, "new", &size, &err), FEDGE_NOT_FOUND);
    name[sizeof(name) - 2] = '\0';
    assert_int_equal(backend.replace(backend.user, name, first, second, &err), FEDGE_OK);
    assert_int_equal(backend.size(backend.user, name, &size, &err), FEDGE_OK);
    assert_int_equal(size, sizeof(value));
    backend.close(backend.user);
}

static void reopen(rig *r)
{
    fedge_store_close(r->store);
    assert_int_equal(fedge_store_open(DIR, MAX_BYTES, &r->store, NULL), FEDGE_OK);
}

static void test_survives_the_process(void **state)
{
    rig *r = *state;
    static uint8_t bytes[3000], part[10];
    uint64_t held;
    char hash[65];
    fedge_upload upload = an_upload(bytes, sizeof(bytes)), found;
    fedge_sha256_text(bytes, sizeof(bytes), hash);
    assert_int_equal(fedge_store_result_put(r->store, &upload, bytes, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_blob_append(r->store, hash, 0, bytes, 1000, 3000, NULL), FEDGE_OK);
    reopen(r);
    assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_OK);
    assert_int_equal(fedge_store_result_read(r->store, 0, part, sizeof(part), NULL), FEDGE_OK);
    assert_int_equal(fedge_store_blob_held(r->store, hash, 3000, &held, NULL), FEDGE_OK);
    assert_int_equal(held, 1000);
}

static void test_a_damaged_result_is_never_offered(void **state)
{
    rig *r = *state;
    static uint8_t bytes[3000];
    fedge_upload upload = an_upload(bytes, sizeof(bytes)), found;
    for (size_t at = 0; at < 3400; at += 97) {
        uint8_t *file;
        size_t size;
        assert_int_equal(fedge_store_result_put(r->store, &upload, bytes, NULL), FEDGE_OK);
        assert_int_equal(fedge_os_read_file(DIR "/result", 10000, &file, &size, NULL), FEDGE_OK);
        if (at < size)
            file[at] ^= 0x10;
        else
            size = size - 1 - at % 50;
        assert_int_equal(fedge_os_write_file(DIR "/result", file, size, 0600, NULL), FEDGE_OK);
        free(file);
        reopen(r);
        assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_CORRUPT);
        assert_int_equal(fedge_store_result_find(r->store, &found, NULL), FEDGE_NOT_FOUND);
    }
}

static void test_one_client_per_directory(void **state)
{
    (void)state;
    fedge_store *second;
    fedge_error err;
    assert_int_equal(fedge_store_open(DIR, MAX_BYTES, &second, &err), FEDGE_BUSY);
    assert_non_null(strstr(err.message, DIR));
}

static void write_state(const char *text)
{
    assert_int_equal(fedge_os_write_file(DIR "/state.json", text, strlen(text), 0600, NULL),
                     FEDGE_OK);
}

static void test_bad_state_files(void **state)
{
    rig *r = *state;
    static const char *const texts[] = {"", "{", "{\"format\":1,\"run-id\":7}",
                                        "{\"run-id\":\"\"}"};
    fedge_error err;
    for (size_t i = 0; i < 4; i++) {
        fedge_store_state s;
        write_state(texts[i]);
        assert_int_equal(fedge_store_read_state(r->store, &s, &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "state.json"));
    }
    fedge_store_close(r->store);
    for (size_t i = 0; i < 4; i++) { /* what failed leaves nothing, not even its lock */
        write_state(texts[i]);
        r->store = (fedge_store *)r;
        assert_int_equal(fedge_store_open(DIR, MAX_BYTES, &r->store, &err), FEDGE_CORRUPT);
        assert_null(r->store);
        assert_non_null(strstr(err.message, DIR));
    }
    write_state("{\"format\":2,\"new-key\":true}");
    r->store = (fedge_store *)r;
    assert_int_equal(fedge_store_open(DIR, MAX_BYTES, &r->store, &err), FEDGE_UNSUPPORTED);
    assert_null(r->store);
}

static const char *const VALUE = "kv/" RUN "/residual+crc32";

static void read_store_file(const char *name, uint8_t **data, size_t *size)
{
    char path[256];
    snprintf(path, sizeof(path), DIR "/%s", name);
    assert_int_equal(fedge_os_read_file(path, 100000, data, size, NULL), FEDGE_OK);
}

static void write_store_file(const char *name, const void *data, size_t size)
{
    char path[256];
    snprintf(path, sizeof(path), DIR "/%s", name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void test_each_damaged_bit_of_the_state_is_noticed(void **state)
{
    rig *r = *state;
    fedge_store_state s = {.incarnation = 3, .server_time_ms = 1700000000123}, again;
    strcpy(s.run_id, RUN);
    assert_int_equal(fedge_store_write_state(r->store, &s, NULL), FEDGE_OK);
    fedge_store_close(r->store);
    r->store = NULL;
    uint8_t *data;
    size_t size;
    fedge_error err;
    read_store_file("state.json", &data, &size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_store_file("state.json", data, size);
        fedge_status status = fedge_store_open(DIR, MAX_BYTES, &r->store, &err);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (status) { /* else white space behind it has become another */
            assert_int_equal(status, FEDGE_CORRUPT);
            assert_non_null(strstr(err.message, "state.json"));
            assert_non_null(strstr(err.message, "remove state.json to start again"));
            continue;
        }
        assert_int_equal(fedge_store_read_state(r->store, &again, NULL), FEDGE_OK);
        assert_string_equal(again.run_id, RUN);
        assert_int_equal(again.incarnation, 3);
        assert_int_equal(again.server_time_ms, 1700000000123);
        fedge_store_close(r->store);
        assert_int_equal(bit / 8, size - 1);
    }
    free(data);
    r->store = NULL;
}

static void test_a_damaged_value_is_lost(void **state)
{
    rig *r = *state;
    uint8_t *data, *value;
    size_t size, value_size;
    fedge_error err;
    assert_int_equal(fedge_store_put(r->store, RUN, "residual", "abcdefgh", 8, NULL), FEDGE_OK);
    read_store_file(VALUE, &data, &size);
    assert_int_equal(size, 12);
    for (size_t bit = 0; bit < size * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_store_file(VALUE, data, size);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(fedge_store_get(r->store, RUN, "residual", &value, &value_size, &err),
                         FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "residual"));
        assert_null(value);
        assert_int_equal(fedge_store_get(r->store, RUN, "residual", &value, &value_size, NULL),
                         FEDGE_NOT_FOUND);
    }
    for (size_t cut = 0; cut < size; cut++) {
        write_store_file(VALUE, data, cut);
        assert_int_equal(fedge_store_get(r->store, RUN, "residual", &value, &value_size, NULL),
                         FEDGE_CORRUPT);
    }
    free(data);
}

/* What an older release left is taken, and has a CRC from then on. */
static void test_a_value_of_an_older_release(void **state)
{
    rig *r = *state;
    uint8_t *value;
    size_t size;
    assert_int_equal(fedge_os_make_dirs(DIR "/kv/" RUN, NULL), FEDGE_OK);
    write_store_file("kv/" RUN "/residual", "abc", 3);
    write_state("{\"format\":1,\"run-id\":\"" RUN "\"}\n");
    reopen(r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fedge_store_get(r->store, RUN, "residual", &value, &size, NULL), FEDGE_OK);
        assert_int_equal(size, 3);
        assert_memory_equal(value, "abc", 3);
        free(value);
        assert_false(fedge_os_exists(DIR "/kv/" RUN "/residual"));
        assert_true(fedge_os_exists(DIR "/kv/" RUN "/residual+crc32"));
    }
    write_store_file("kv/" RUN "/other", "old", 3);
    assert_int_equal(fedge_store_put(r->store, RUN, "other", "new", 3, NULL), FEDGE_OK);
    assert_false(fedge_os_exists(DIR "/kv/" RUN "/other"));
}

#define BOTH(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, set_up_dir, tear_down),                              \
        cmocka_unit_test_setup_teardown(function, set_up_memory, tear_down)
#define DISK(function) cmocka_unit_test_setup_teardown(function, set_up_dir, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_state),
        BOTH(test_blobs),
        BOTH(a_seed_is_held_and_stays),
        BOTH(test_result),
        BOTH(test_values),
        cmocka_unit_test(test_a_name_that_is_too_long),
        DISK(test_survives_the_process),
        DISK(test_a_damaged_result_is_never_offered),
        DISK(test_one_client_per_directory),
        DISK(test_bad_state_files),
        DISK(test_each_damaged_bit_of_the_state_is_noticed),
        DISK(test_a_damaged_value_is_lost),
        DISK(test_a_value_of_an_older_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
