/* Blobs in memory and in files, and readers while one moves. */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/exchange/blob.h"
#include "edge/core/os.h"

#define SIZE 200000
#define PATH "test_blob.tmp"

static fedge_error err;

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8));
}

static fedge_blob *make(void)
{
    fedge_blob *blob = NULL;
    uint8_t *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(fedge_os_write_file(PATH, bytes, SIZE, 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_blob_new(bytes, SIZE, &blob, &err), FEDGE_OK);
    return blob;
}

/* Whether all pieces of [blob] are right. */
static bool reads(fedge_blob *blob)
{
    uint8_t piece[4096];
    for (size_t at = 0; at < SIZE; at += sizeof(piece)) {
        const size_t size = SIZE - at < sizeof(piece) ? SIZE - at : sizeof(piece);
        if (fedge_blob_read(blob, at, piece, size, NULL) != FEDGE_OK)
            return false;
        for (size_t i = 0; i < size; i++) {
            if (piece[i] != byte_at(at + i))
                return false;
        }
    }
    return true;
}

static void a_file_takes_the_place_of_memory(void **unused)
{
    (void)unused;
    fedge_blob *blob = make();
    assert_true(reads(blob));
    assert_int_equal(fedge_blob_move_to_file(blob, PATH, &err), FEDGE_OK);
    assert_null(blob->bytes);
    assert_null(blob->retired);
    assert_int_equal(fedge_os_remove(PATH, &err), FEDGE_OK); /* as retention does */
    assert_true(reads(blob));
    assert_int_equal(fedge_blob_move_to_file(blob, PATH, &err), FEDGE_NOT_FOUND);
    assert_true(reads(blob));
    fedge_blob_release(blob);
}

static void a_file_that_cannot_be_it_leaves_the_memory(void **unused)
{
    (void)unused;
    fedge_blob *blob = make();
    assert_int_equal(fedge_os_write_file(PATH, "short", 5, 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_blob_move_to_file(blob, PATH, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "5 bytes"));
    assert_non_null(blob->bytes);
    assert_int_equal(fedge_blob_move_to_file(blob, "no-such-file", &err), FEDGE_NOT_FOUND);
    assert_true(reads(blob));
    fedge_blob_release(blob);
    assert_int_equal(fedge_os_remove(PATH, &err), FEDGE_OK);
}

static fedge_status read_at(fedge_blob *blob, size_t offset, size_t size)
{
    static uint8_t out[SIZE];
    const fedge_status status = fedge_blob_read(blob, offset, out, size, &err);
    for (size_t i = 0; status == FEDGE_OK && i < size; i++)
        assert_int_equal(out[i], byte_at(offset + i));
    return status;
}

/* Whatever is read besides, and from wherever on, the damaged byte never comes out. */
static void damage_in_the_file_is_found_and_mended(void **unused)
{
    (void)unused;
    const size_t at = 2 * FEDGE_BLOB_CHUNK + 5, last = SIZE - SIZE % FEDGE_BLOB_CHUNK;
    fedge_blob *blob = make();
    fedge_os_file file;
    assert_int_equal(fedge_blob_move_to_file(blob, PATH, &err), FEDGE_OK);
    assert_int_equal(read_at(blob, 100, SIZE - 100), FEDGE_OK);
    const uint8_t other = byte_at(at) ^ 0x40;
    assert_int_equal(fedge_os_open(&file, PATH, FEDGE_OS_READ_WRITE, &err), FEDGE_OK);
    assert_int_equal(fedge_os_write_at(&file, at, &other, 1, &err), FEDGE_OK);
    fedge_os_close(&file);
    assert_int_equal(read_at(blob, 1, 2 * FEDGE_BLOB_CHUNK - 1), FEDGE_OK);
    assert_int_equal(read_at(blob, last + 3, SIZE - last - 3), FEDGE_OK);
    assert_false(fedge_blob_is_damaged(blob));
    assert_int_equal(read_at(blob, at + 1, 1), FEDGE_CORRUPT); /* of the same piece */
    assert_non_null(strstr(err.message, PATH));
    assert_int_equal(read_at(blob, 0, SIZE), FEDGE_CORRUPT);
    assert_true(fedge_blob_is_damaged(blob));
    uint8_t *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    assert_int_equal(fedge_blob_mend(blob, bytes, &err), FEDGE_MISMATCH);
    assert_true(fedge_blob_is_damaged(blob));
    bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = byte_at(i);
    assert_int_equal(fedge_blob_mend(blob, bytes, &err), FEDGE_OK);
    assert_false(fedge_blob_is_damaged(blob));
    assert_int_equal(read_at(blob, 0, SIZE), FEDGE_OK);
    fedge_blob_release(blob);
    assert_int_equal(fedge_os_remove(PATH, &err), FEDGE_OK);
}

static atomic_bool moved;

static void *read_on(void *user)
{
    bool right = true;
    do
        right = reads(user) && right;
    while (!atomic_load(&moved));
    return right && reads(user) ? user : NULL;
}

static void readers_do_not_notice(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[4];
        fedge_blob *blob = make();
        atomic_store(&moved, false);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, read_on, blob), 0);
        assert_int_equal(fedge_blob_move_to_file(blob, PATH, &err), FEDGE_OK);
        atomic_store(&moved, true);
        for (int i = 0; i < 4; i++) {
            void *right = NULL;
            assert_int_equal(pthread_join(threads[i], &right), 0);
            assert_ptr_equal(right, blob);
        }
        assert_null(blob->retired);
        fedge_blob_release(blob);
    }
    assert_int_equal(fedge_os_remove(PATH, &err), FEDGE_OK);
}

static void an_end_outlives_its_whole(void **state)
{
    (void)state;
    uint8_t piece[10];
    fedge_blob *whole = make(), *end = NULL, *alike = NULL;
    assert_int_equal(fedge_blob_new_end(whole, sizeof(piece), &end, &err), FEDGE_OK);
    fedge_blob_release(whole);
    assert_int_equal(end->size, sizeof(piece));
    assert_int_equal(fedge_blob_read(end, 0, piece, sizeof(piece), &err), FEDGE_OK);
    for (size_t i = 0; i < sizeof(piece); i++)
        assert_int_equal(piece[i], byte_at(SIZE - sizeof(piece) + i));
    uint8_t *copy = malloc(sizeof(piece));
    assert_non_null(copy);
    memcpy(copy, piece, sizeof(piece));
    assert_int_equal(fedge_blob_new(copy, sizeof(piece), &alike, &err), FEDGE_OK);
    assert_string_equal(alike->hash, end->hash);
    fedge_blob_release(alike);
    fedge_blob_release(end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_outlives_its_whole),
        cmocka_unit_test(a_file_takes_the_place_of_memory),
        cmocka_unit_test(a_file_that_cannot_be_it_leaves_the_memory),
        cmocka_unit_test(damage_in_the_file_is_found_and_mended),
        cmocka_unit_test(readers_do_not_notice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
