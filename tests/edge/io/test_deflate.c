/* Deflate: there and back, and every way in which a stream can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <zlib.h>

#include "edge/core/rng.h"
#include "edge/io/inflater.h"
#include "tests/edge/io/deflate_once.h"

#define SIZE 100000

static uint8_t plain[SIZE], packed[2 * SIZE], back[SIZE + 1];

/* Runs of equal bytes: they deflate to far less. */
static size_t pack(void)
{
    size_t size = 0;
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)(i / 100);
    assert_true(deflate_once(plain, SIZE, packed, sizeof(packed), &size));
    assert_in_range(size, 10, SIZE / 10);
    return size;
}

static size_t read_so_far;

static fedge_status read_packed(void *user, uint8_t *bytes, size_t size, fedge_error *err)
{
    (void)user, (void)err;
    memcpy(bytes, packed + read_so_far, size);
    read_so_far += size;
    return FEDGE_OK;
}

/* The same in one go and piece by piece. */
static void expect(size_t in_size, size_t out_size, fedge_status status, const char *part)
{
    fedge_error err = {0};
    for (const fedge_inflater *const *by = fedge_inflaters(); *by; by++) {
        memset(back, 0, out_size);
        back[out_size] = 0x5a;
        read_so_far = 0;
        err.message[0] = '\0';
        const fedge_status got =
            fedge_inflate_read_by(*by, read_packed, NULL, in_size, back, out_size, &err);
        if (got != status || !strstr(err.message, part)) {
            fail_msg("%s: %s (\"%s\"), not %s (\"%s\")", (*by)->name, fedge_status_text(got),
                     err.message, fedge_status_text(status), part);
        }
        assert_int_equal(read_so_far, in_size); /* whatever is wrong with it */
        assert_int_equal(back[out_size], 0x5a);
        if (status == FEDGE_OK)
            assert_memory_equal(back, plain, out_size);
    }
    memset(back, 0, out_size);
    back[out_size] = 0x5a;
    assert_int_equal(fedge_inflate(packed, in_size, back, out_size, &err), status);
    assert_int_equal(back[out_size], 0x5a); /* never a byte beyond */
    if (!strstr(err.message, part))
        fail_msg("\"%s\" has no \"%s\"", err.message, part);
}

static void what_is_deflated_inflates(void **state)
{
    (void)state;
    size_t size = pack();
    expect(size, SIZE, FEDGE_OK, "");
    assert_memory_equal(back, plain, SIZE);
    assert_true(deflate_once(plain, 0, packed, sizeof(packed), &size));
    expect(size, 0, FEDGE_OK, "");
}

/* Larger than a piece, and cut everywhere around the ends of pieces. */
static void pieces_make_a_whole(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, 0, 0, 0);
    size_t size = 0;
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)fedge_rng_below(&rng, 40);
    assert_true(deflate_once(plain, SIZE, packed, sizeof(packed), &size));
    assert_in_range(size, 40000, SIZE - 1);
    expect(size, SIZE, FEDGE_OK, "");
    assert_memory_equal(back, plain, SIZE);
    for (size_t end = 16380; end < 16390; end++)
        expect(end, SIZE, FEDGE_TRUNCATED, "ends early");
    for (size_t room = SIZE - 5; room < SIZE; room++)
        expect(size, room, FEDGE_TOO_BIG, "more than");
    expect(size - 1, SIZE, FEDGE_TRUNCATED, "ends early");
    expect(size + 20000, SIZE, FEDGE_CORRUPT, "behind the end");
    packed[30000] ^= 0x55;
    fedge_error err;
    read_so_far = 0;
    assert_int_not_equal(fedge_inflate_read(read_packed, NULL, size, back, SIZE, &err), FEDGE_OK);
    assert_int_equal(read_so_far, size);
}

static void what_does_not_shrink_is_too_big(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < SIZE; i++)
        plain[i] = (uint8_t)fedge_rng_u32(&rng);
    size_t size = 0;
    assert_false(deflate_once(plain, SIZE, packed, SIZE - 1, &size));
    assert_false(deflate_once(plain, SIZE, packed, 0, &size));
    assert_int_equal(size, 0);
}

/* Each time as if it were the first, also after what did not fit. */
static void a_deflater_is_used_again(void **state)
{
    (void)state;
    static uint8_t again[2 * SIZE];
    fedge_deflater *deflater = NULL;
    fedge_error err;
    assert_int_equal(fedge_deflater_new(&deflater, &err), FEDGE_OK);
    for (uint32_t trial = 0; trial < 20; trial++) {
        fedge_rng rng = fedge_rng_stream(2, FEDGE_PURPOSE_TEST, trial, 0, 0);
        const size_t n = fedge_rng_below(&rng, SIZE);
        size_t size = 0, same = 0;
        for (size_t i = 0; i < n; i++)
            plain[i] = (uint8_t)(fedge_rng_below(&rng, 8) * fedge_rng_below(&rng, 8));
        assert_true(deflate_once(plain, n, packed, sizeof(packed), &size));
        assert_false(fedge_deflater_run(deflater, plain, n, again, size - 1, &same));
        assert_true(fedge_deflater_run(deflater, plain, n, again, size, &same));
        assert_int_equal(same, size);
        assert_memory_equal(again, packed, size);
    }
    fedge_deflater_free(deflater);
}

static void a_bomb_stops_at_the_expected_size(void **state)
{
    (void)state;
    memset(plain, 0, SIZE);
    size_t size = 0;
    assert_true(deflate_once(plain, SIZE, packed, sizeof(packed), &size));
    expect(size, 1000, FEDGE_TOO_BIG, "more than the 1000 bytes");
    expect(size, SIZE - 1, FEDGE_TOO_BIG, "more than");
    expect(size, 0, FEDGE_TOO_BIG, "more than the 0 bytes");
}

/* A stream without end: zlib's header, then the same block again and again. */
typedef struct bomb {
    uint8_t block[8192];
    size_t size, at;
} bomb;

static fedge_status read_bomb(void *user, uint8_t *bytes, size_t size, fedge_error *err)
{
    bomb *b = user;
    (void)err;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = b->block[b->at];
        b->at = b->at + 1 < b->size ? b->at + 1 : 2;
    }
    return FEDGE_OK;
}

/* An inflater that counts what another one decodes. */
static const fedge_inflater *counted;
static uint64_t decoded;

static void *count_begin(void)
{
    return counted->begin();
}

static fedge_inflater_state count_step(void *stream, fedge_inflater_span *span)
{
    const size_t room = span->out_size;
    const fedge_inflater_state state = counted->step(stream, span);
    decoded += room - span->out_size;
    return state;
}

static const char *count_why(const void *stream)
{
    return counted->why(stream);
}

static void count_end(void *stream)
{
    counted->end(stream);
}

/* 10 MB that say that they are some 10 GB cost no more than what was expected, and a byte. */
static void a_large_bomb_costs_what_was_expected(void **state)
{
    (void)state;
    static uint8_t zeros[1 << 20], room[1000000];
    static bomb b;
    z_stream z = {0};
    fedge_error err;
    assert_int_equal(deflateInit(&z, 9), Z_OK);
    z.next_in = zeros;
    z.avail_in = sizeof(zeros);
    z.next_out = b.block;
    z.avail_out = sizeof(b.block);
    assert_int_equal(deflate(&z, Z_FULL_FLUSH), Z_OK);
    b.size = sizeof(b.block) - z.avail_out;
    (void)deflateEnd(&z);
    assert_true(b.size < 2000); /* so 10 MB are at least 5 GB */
    for (const fedge_inflater *const *one = fedge_inflaters(); *one; one++) {
        const fedge_inflater counting = {(*one)->name, (*one)->piece_bytes, (*one)->max_size,
                                         count_begin,  count_step,          count_why,
                                         count_end};
        counted = *one;
        decoded = b.at = 0;
        assert_int_equal(
            fedge_inflate_read_by(&counting, read_bomb, &b, 10000000, room, sizeof(room), &err),
            FEDGE_TOO_BIG);
        assert_int_equal(decoded, sizeof(room) + 1);
    }
}

static void short_streams_are_truncated(void **state)
{
    (void)state;
    size_t size = pack();
    for (size_t cut = 0; cut < size; cut += cut < 8 || cut + 8 > size ? 1 : 97)
        expect(cut, SIZE, FEDGE_TRUNCATED, "ends early");
    pack();
    size_t whole = 0;
    assert_true(deflate_once(plain, 500, packed, sizeof(packed), &whole));
    expect(whole, 501, FEDGE_TRUNCATED, "has 500 bytes, 501 are expected");
}

static void broken_streams_are_corrupt(void **state)
{
    (void)state;
    size_t size = pack();
    packed[size] = 0;
    expect(size + 1, SIZE, FEDGE_CORRUPT, "1 bytes behind the end");
    packed[size - 1] ^= 1; /* Adler-32 */
    expect(size, SIZE, FEDGE_CORRUPT, "incorrect data check");
    packed[size - 1] ^= 1;
    packed[0] = 0x1f; /* gzip, not zlib */
    expect(size, SIZE, FEDGE_CORRUPT, "broken at byte");
    memcpy(packed, "\x78\xbb", 2); /* a preset dictionary */
    expect(size, SIZE, FEDGE_CORRUPT, "not a zlib stream");
    memset(packed, 0xff, 64);
    expect(64, SIZE, FEDGE_CORRUPT, "broken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_deflated_inflates),
        cmocka_unit_test(pieces_make_a_whole),
        cmocka_unit_test(what_does_not_shrink_is_too_big),
        cmocka_unit_test(a_deflater_is_used_again),
        cmocka_unit_test(a_bomb_stops_at_the_expected_size),
        cmocka_unit_test(a_large_bomb_costs_what_was_expected),
        cmocka_unit_test(short_streams_are_truncated),
        cmocka_unit_test(broken_streams_are_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
