/* Data that comes in pieces has the hash that it has in one, by mbedTLS and by libgcrypt (from
 * 64 KiB on). */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "secure/crypto/sha256.h"

static uint8_t data[100000];

/* Pieces of [piece] bytes; [told]: the size that is announced. */
static void expect_pieces(size_t size, size_t piece, uint64_t told)
{
    char whole[65], pieces[65];
    fedge_sha256_stream *stream = NULL;
    fedge_sha256_text(data, size, whole);
    assert_int_equal(fedge_sha256_stream_new(told, &stream, NULL), FEDGE_OK);
    for (size_t at = 0; at < size; at += piece)
        fedge_sha256_stream_add(stream, data + at, size - at < piece ? size - at : piece);
    fedge_sha256_stream_text(stream, pieces);
    fedge_sha256_stream_free(stream);
    assert_string_equal(pieces, whole);
}

static void pieces_are_the_whole(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * i >> 3);
    expect_pieces(0, 1, 0);
    for (size_t piece = 1; piece < 200; piece += 7)
        expect_pieces(1000, piece, 1000);
    expect_pieces(sizeof(data), 65536, sizeof(data));
    expect_pieces(sizeof(data), 9999, sizeof(data));
    expect_pieces(sizeof(data), 9999, 1); /* more than was said, and less */
    expect_pieces(100, 64, sizeof(data));
    /* Once libgcrypt has been initialised it gets small data, too. */
    expect_pieces(0, 1, 0);
    expect_pieces(1000, 7, 1000);
    fedge_sha256_stream_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
