/* Deflate: there and back, and every way in which a stream can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "edge/core/rng.h"
#include "edge/wire/deflate.h"
#include "tests/edge/wire/deflate_once.h"

#define SIZE 300000

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

static fedge_inflater_state count_step(void *stream, fedge_inflater_range *span)
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
        const fedge_inflater counting = {(*one)->name, (*one)->chunk_bytes, (*one)->max_size,
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

/* Writes bits, the lowest first. */
typedef struct bit_writer {
    uint8_t *bytes;
    size_t num_bits;
} bit_writer;

static void put_bits(bit_writer *w, uint32_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, w->num_bits++) {
        if (w->num_bits % 8 == 0)
            w->bytes[w->num_bits / 8] = 0;
        w->bytes[w->num_bits / 8] |= (uint8_t)((value >> i & 1) << w->num_bits % 8);
    }
}

static void put_code(bit_writer *w, uint32_t word, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;)
        put_bits(w, word >> i & 1, 1);
}

/* A block with a code of its own: the byte 0 and the end of the block have words of
 * [literal_bits] and [end_bits] bits, [num_distances] distances one of [distance_bits] each. */
static void put_block(bit_writer *w, bool last, uint32_t num_zeros, uint32_t literal_bits,
                      uint32_t end_bits, uint32_t num_distances, uint32_t distance_bits)
{
    static const uint8_t ORDER[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    put_bits(w, last, 1);
    put_bits(w, 2, 2);
    put_bits(w, 0, 5);
    put_bits(w, num_distances > 0 ? num_distances - 1 : 0, 5);
    put_bits(w, 15, 4);
    /* Lengths 0 to 2 and 18 have words of 2 bits: 00, 01, 10 and 11. */
    for (size_t i = 0; i < 19; i++)
        put_bits(w, ORDER[i] <= 2 || ORDER[i] == 18 ? 2 : 0, 3);
    put_code(w, literal_bits, 2);
    for (uint32_t left = 255; left > 0;) {
        const uint32_t run = left > 138 ? 138 : left;
        put_code(w, 3, 2);
        put_bits(w, run - 11, 7);
        left -= run;
    }
    put_code(w, end_bits, 2);
    for (uint32_t i = 0; i < (num_distances > 0 ? num_distances : 1); i++)
        put_code(w, num_distances > 0 ? distance_bits : 0, 2);
    for (uint32_t i = 0; i < num_zeros; i++)
        put_code(w, 0, literal_bits);
    put_code(w, end_bits > 0 ? 1u << (end_bits - 1) : 0, end_bits);
}

static size_t end_stream(bit_writer *w, size_t num_zeros)
{
    memset(plain, 0, num_zeros);
    const uLong adler = adler32(adler32(0, NULL, 0), plain, (uInt)num_zeros);
    put_bits(w, 0, (uint32_t)(-w->num_bits % 8));
    for (int i = 3; i >= 0; i--)
        put_bits(w, (uint32_t)(adler >> 8 * i), 8);
    return w->num_bits / 8;
}

/* Codes that leave bits without a meaning, though the block has none of them: zlib refuses such a
 * stream, and so must whatever inflates, wherever its block lies. */
static void incomplete_codes_are_corrupt(void **state)
{
    (void)state;
    static const struct {
        uint32_t literal_bits, end_bits, num_distances, distance_bits;
        fedge_status status;
    } BLOCKS[] = {
        {1, 1, 0, 0, FEDGE_OK},      /* no distances at all */
        {1, 1, 1, 1, FEDGE_OK},      /* a single one, of one bit */
        {1, 1, 2, 1, FEDGE_OK},      /* two: nothing is left */
        {1, 1, 4, 2, FEDGE_OK},      /* likewise four */
        {1, 1, 1, 2, FEDGE_CORRUPT}, /* a single one, of two bits */
        {1, 1, 2, 2, FEDGE_CORRUPT}, {1, 1, 3, 2, FEDGE_CORRUPT},
        {1, 1, 3, 1, FEDGE_CORRUPT}, /* three words of one bit */
        {1, 2, 1, 1, FEDGE_CORRUPT}, /* bytes: 0 and 10; 11 means nothing */
        {1, 0, 1, 1, FEDGE_CORRUPT}, /* no end */
    };
    for (size_t i = 0; i < sizeof(BLOCKS) / sizeof(BLOCKS[0]); i++) {
        for (uint32_t before = 0; before < 3; before++) {
            bit_writer w = {packed, 0};
            put_bits(&w, 0x78, 8);
            put_bits(&w, 0x9c, 8);
            for (uint32_t block = 0; block < before; block++)
                put_block(&w, false, 7, 1, 1, 1, 1);
            put_block(&w, before != 1, 5, BLOCKS[i].literal_bits, BLOCKS[i].end_bits,
                      BLOCKS[i].num_distances, BLOCKS[i].distance_bits);
            if (before == 1)
                put_block(&w, true, 0, 1, 1, 1, 1);
            const size_t zeros = 7 * before + 5, size = end_stream(&w, zeros);
            expect(size, zeros, BLOCKS[i].status, "");
        }
    }
}

/* Deflates plain[0, n) into [out], by whatever zlib can do; the bytes that it takes. */
static size_t draw_stream(fedge_rng *rng, uint32_t stream, size_t n, uint8_t *out, size_t room)
{
    static const int STRATEGIES[] = {Z_DEFAULT_STRATEGY, Z_RLE, Z_HUFFMAN_ONLY, Z_FIXED};
    const uint32_t range = 2 + fedge_rng_below(rng, 200), runs = fedge_rng_below(rng, 300);
    for (size_t i = 0; i < n; i++)
        plain[i] = (uint8_t)fedge_rng_below(rng, range);
    for (uint32_t i = 0; i < runs && n > 400; i++) {
        const size_t to = fedge_rng_below(rng, (uint32_t)n - 300);
        const size_t from = fedge_rng_below(rng, (uint32_t)n - 300);
        memmove(plain + to, plain + from, fedge_rng_below(rng, 300));
    }
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, (int)(stream % 10), Z_DEFLATED, 15,
                                  5 + (int)fedge_rng_below(rng, 5), STRATEGIES[stream % 4]),
                     Z_OK);
    z.next_in = plain;
    z.next_out = out;
    z.avail_out = (uInt)room;
    for (size_t left = n; left > 0;) { /* in blocks, some of them empty */
        z.avail_in = (uInt)(left < 900 ? left : 900);
        left -= z.avail_in;
        assert_int_equal(deflate(&z, stream % 3 == 0 && n < 3000 ? Z_PARTIAL_FLUSH : Z_NO_FLUSH),
                         Z_OK);
    }
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t size = room - z.avail_out;
    (void)deflateEnd(&z);
    return size;
}

/* What all say of packed[0, size), in pieces of so many bytes. */
static void agree(size_t size, size_t n, size_t chunk_bytes)
{
    static uint8_t other[SIZE + 1];
    fedge_error err;
    const fedge_status want = fedge_inflate(packed, size, other, n, &err);
    for (const fedge_inflater *const *by = fedge_inflaters(); *by; by++) {
        fedge_inflater cut = **by;
        cut.chunk_bytes = chunk_bytes;
        read_so_far = 0;
        const fedge_status got =
            fedge_inflate_read_by(&cut, read_packed, NULL, size, back, n, &err);
        if ((got == FEDGE_OK) != (want == FEDGE_OK)) {
            fail_msg("%s says %s, zlib %s", cut.name, fedge_status_text(got),
                     fedge_status_text(want));
        }
        if (want == FEDGE_OK)
            assert_memory_equal(back, other, n);
    }
}

/* Whatever is changed in a stream, all inflaters say the same of it. */
static void all_give_the_same_verdict(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
    static const size_t PIECES[] = {1, 2, 7, 61, 131072};
    static uint8_t whole[2 * SIZE];
    for (uint32_t stream = 0; stream < 60; stream++) {
        const size_t n = 1 + fedge_rng_below(&rng, stream % 10 == 0 ? SIZE - 1 : 3000);
        const size_t size = draw_stream(&rng, stream, n, whole, sizeof(whole));
        memcpy(packed, whole, size);
        expect(size, n, FEDGE_OK, "");
        agree(size, n, 1 + stream * 13);
        for (uint32_t change = 0; change < 100 && n < 3000; change++) {
            /* Half of the changes are where headers are. */
            const size_t within = change % 2 == 0 && size > 60 ? 60 : size;
            memcpy(packed, whole, size);
            for (uint32_t i = 0; i <= change % 3; i++) {
                const uint32_t at = fedge_rng_below(&rng, (uint32_t)within);
                packed[at] = (uint8_t)(packed[at] ^ 1u << fedge_rng_below(&rng, 8));
            }
            agree(size, n, PIECES[change % 5]);
        }
    }
}

/* Strings that come again within a window, so that all blocks copy what was before them, and input
 * that ends within one. */
static void blocks_copy_what_was_before_them(void **state)
{
    (void)state;
    fedge_rng rng = fedge_rng_stream(4, FEDGE_PURPOSE_TEST, 0, 0, 0);
    static const int STRATEGIES[] = {Z_DEFAULT_STRATEGY, Z_RLE};
    for (uint32_t stream = 0; stream < 12; stream++) {
        const size_t n = SIZE - fedge_rng_below(&rng, SIZE / 2);
        for (size_t i = 0; i < n; i++)
            plain[i] = (uint8_t)(fedge_rng_below(&rng, 300) < 256 ? fedge_rng_u32(&rng) : 0);
        for (size_t at = 300; at + 300 < n; at += fedge_rng_below(&rng, 1000)) {
            const size_t window = at < 32768 ? at : 32768;
            memmove(plain + at, plain + at - 1 - fedge_rng_below(&rng, (uint32_t)window),
                    3 + fedge_rng_below(&rng, 40));
        }
        z_stream z = {.next_in = plain, .avail_in = (uInt)n, .next_out = packed};
        z.avail_out = sizeof(packed);
        assert_int_equal(
            deflateInit2(&z, 1 + (int)(stream % 9), Z_DEFLATED, 15, 8, STRATEGIES[stream % 2]),
            Z_OK);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        const size_t size = sizeof(packed) - z.avail_out;
        (void)deflateEnd(&z);
        expect(size, n, FEDGE_OK, "");
        agree(size, n, 1000 + fedge_rng_below(&rng, 100000));
    }
}

/* Blocks of which nothing comes: each would take time, in a few bits. */
static void blocks_are_counted(void **state)
{
    (void)state;
    for (uint32_t many = 0; many < 2; many++) {
        bit_writer w = {packed, 0};
        put_bits(&w, 0x78, 8);
        put_bits(&w, 0x9c, 8);
        for (uint64_t i = 1; i < FEDGE_INFLATE_MAX_BLOCKS(3000) + many; i++) {
            put_bits(&w, 1 << 1, 3); /* the fixed code, not the last */
            put_code(&w, 0, 7);      /* its end */
        }
        put_block(&w, true, 3000, 1, 1, 1, 1);
        expect(end_stream(&w, 3000), 3000, many ? FEDGE_TOO_BIG : FEDGE_OK,
               many ? "over 18 blocks for 3000 bytes" : "");
    }
}

/* It lies elsewhere, and a block that follows may copy from what lies before it. The sanitizer sees
 * who reads behind what is expected. */
static void a_byte_too_many_is_no_history(void **state)
{
    (void)state;
    enum { EXPECTED = 40000 };
    bit_writer w = {packed, 0};
    put_bits(&w, 0x78, 8);
    put_bits(&w, 0x9c, 8);
    put_block(&w, false, EXPECTED + 1, 1, 1, 1, 1);
    put_block(&w, true, 0, 1, 1, 1, 1);
    const size_t size = end_stream(&w, EXPECTED + 1);
    uint8_t *exact = malloc(EXPECTED);
    assert_non_null(exact);
    for (const fedge_inflater *const *by = fedge_inflaters(); *by; by++) {
        read_so_far = 0;
        assert_int_equal(fedge_inflate_read_by(*by, read_packed, NULL, size, exact, EXPECTED, NULL),
                         FEDGE_TOO_BIG);
    }
    free(exact);
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
        cmocka_unit_test(incomplete_codes_are_corrupt),
        cmocka_unit_test(all_give_the_same_verdict),
        cmocka_unit_test(blocks_copy_what_was_before_them),
        cmocka_unit_test(blocks_are_counted),
        cmocka_unit_test(pieces_make_a_whole),
        cmocka_unit_test(what_does_not_shrink_is_too_big),
        cmocka_unit_test(a_deflater_is_used_again),
        cmocka_unit_test(a_bomb_stops_at_the_expected_size),
        cmocka_unit_test(a_large_bomb_costs_what_was_expected),
        cmocka_unit_test(a_byte_too_many_is_no_history),
        cmocka_unit_test(short_streams_are_truncated),
        cmocka_unit_test(broken_streams_are_corrupt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
