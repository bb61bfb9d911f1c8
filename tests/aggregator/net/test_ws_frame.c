#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "aggregator/net/ws_frame.h"

/* Feeds [size] bytes as libwebsockets does; the status that one of them fails with, at *at. */
static int feed(fedge_ws_frames *frames, const void *bytes, size_t size, size_t *at)
{
    const uint8_t *byte = bytes;
    for (*at = 0; *at < size; (*at)++) {
        const char *why = NULL;
        int status = fedge_ws_frames_take(frames, byte[*at], &why);
        if (status) {
            assert_non_null(why);
            assert_true(frames->failed);
            return status;
        }
        assert_null(why);
    }
    return 0;
}

/* The header of a frame with a mask of zeros. */
static size_t header(uint8_t *out, uint8_t first, uint64_t length)
{
    size_t size = 0;
    out[size++] = first;
    int bytes = length < 126 ? 0 : length < 65536 ? 2 : 8;
    out[size++] = (uint8_t)(0x80 | (bytes == 0 ? length : bytes == 2 ? 126 : 127));
    while (bytes-- > 0)
        out[size++] = (uint8_t)(length >> (8 * bytes));
    memset(out + size, 0, 4);
    return size + 4;
}

static void good_frames(void **state)
{
    (void)state;
    const uint64_t lengths[] = {0, 1, 125, 126, 127, 65535, 65536, UINT64_C(1) << 62};
    fedge_ws_frames frames = {0};
    uint8_t bytes[16];
    size_t at = 0;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        assert_int_equal(feed(&frames, bytes, header(bytes, 0x82, lengths[i]), &at), 0);
        assert_int_equal(frames.length, lengths[i]);
    }
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x02, 5), &at), 0); /* in fragments, */
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x89, 3), &at),
                     0); /* a ping between them */
    assert_int_equal(feed(&frames, "abc", 3, &at), 0);
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x00, 300), &at), 0);
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x8A, 0), &at), 0);
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x80, 7), &at), 0);
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x81, 7), &at), 0);
    assert_false(frames.closed);
}

static void bad_headers(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t size, at; /* the byte that is refused */
    } cases[] = {
        {"\x82\x05", 2, 1}, /* not masked */
        {"\x82\x00", 2, 1},
        {"\x88\x00", 2, 1},
        {"\x89\x00", 2, 1},
        {"\xC2\x85", 2, 0}, /* reserved bits */
        {"\xA2\x85", 2, 0},
        {"\x92\x85", 2, 0},
        {"\xD8\x80", 2, 0},
        {"\x83\x85", 2, 0}, /* reserved opcodes */
        {"\x87\x85", 2, 0},
        {"\x8B\x85", 2, 0},
        {"\x8F\x85", 2, 0},
        {"\x80\x85", 2, 0}, /* continues nothing */
        {"\x00\x85", 2, 0},
        {"\x09\x80", 2, 0}, /* control frames in fragments, or over 125 bytes */
        {"\x08\x80", 2, 0},
        {"\x89\xFE\x00\x7E", 4, 1},
        {"\x8A\xFF\x00\x00\x00\x00\x00\x01\x00\x00", 10, 1},
        {"\x82\xFE\x00\x7D", 4, 3}, /* lengths that fit in fewer bytes */
        {"\x82\xFE\x00\x00", 4, 3},
        {"\x82\xFF\x00\x00\x00\x00\x00\x00\xFF\xFF", 10, 9},
        {"\x82\xFF\x80\x00\x00\x00\x00\x01\x00\x00", 10, 2}, /* and one with the highest bit */
        {"\x88\x81", 2, 1},                                  /* half a status */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_ws_frames frames = {0};
        size_t at = 0;
        assert_int_equal(feed(&frames, cases[i].bytes, cases[i].size, &at),
                         FEDGE_WS_PROTOCOL_ERROR);
        assert_int_equal(at, cases[i].at);
    }
    fedge_ws_frames frames = {0};
    uint8_t bytes[16];
    size_t at = 0;
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x02, 5), &at), 0);
    assert_int_equal(feed(&frames, bytes, header(bytes, 0x82, 5), &at), FEDGE_WS_PROTOCOL_ERROR);
    assert_int_equal(at, 0);
}

/* A close frame of this payload, masked. */
static int close_with(const void *payload, size_t size, fedge_ws_frames *frames)
{
    static const uint8_t MASK[4] = {0x12, 0xFF, 0x00, 0x80};
    uint8_t bytes[16 + 125];
    size_t at = 0;
    *frames = (fedge_ws_frames){0};
    size_t head = header(bytes, 0x88, size);
    memcpy(bytes + head - 4, MASK, 4);
    for (size_t i = 0; i < size; i++)
        bytes[head + i] = ((const uint8_t *)payload)[i] ^ MASK[i % 4];
    return feed(frames, bytes, head + size, &at);
}

static void close_codes(void **state)
{
    (void)state;
    fedge_ws_frames frames;
    assert_int_equal(close_with("", 0, &frames), 0);
    assert_true(frames.closed);
    for (unsigned code = 0; code < 65536; code++) {
        bool good = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1011) ||
                    (code >= 3000 && code <= 4999);
        uint8_t payload[] = {(uint8_t)(code >> 8), (uint8_t)code, 'b', 'y', 'e'};
        for (size_t size = 2; size <= sizeof(payload); size += 3) {
            assert_int_equal(close_with(payload, size, &frames),
                             good ? 0 : FEDGE_WS_PROTOCOL_ERROR);
            assert_int_equal(frames.closed, good || size == 2);
        }
    }
}

static void close_reasons(void **state)
{
    (void)state;
    const char *const good[] = {"",
                                "ok",
                                "\xC2\x80",
                                "\xDF\xBF",
                                "\xE0\xA0\x80",
                                "\xED\x9F\xBF",
                                "\xEF\xBF\xBF",
                                "\xF0\x90\x80\x80",
                                "\xF4\x8F\xBF\xBF",
                                "a\xC3\xA4z"};
    const char *const bad[] = {"\x80",
                               "\xBF",
                               "\xC0\x80",
                               "\xC1\xBF",
                               "\xC2",
                               "\xC2z",
                               "\xE0\x9F\xBF",
                               "\xE0\xA0",
                               "\xED\xA0\x80",
                               "\xF0\x8F\xBF\xBF",
                               "\xF4\x90\x80\x80",
                               "\xF5\x80\x80\x80",
                               "\xFF",
                               "ok\xE2\x82",
                               "\xE2\x28\xA1",
                               "\xE2\x82\xC0"};
    char payload[32] = "\x03\xE8";
    fedge_ws_frames frames;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        memcpy(payload + 2, good[i], strlen(good[i]));
        assert_int_equal(close_with(payload, 2 + strlen(good[i]), &frames), 0);
        assert_true(frames.closed);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memcpy(payload + 2, bad[i], strlen(bad[i]));
        assert_int_equal(close_with(payload, 2 + strlen(bad[i]), &frames), FEDGE_WS_BAD_PAYLOAD);
    }
    /* Nothing of what comes behind a close frame or an error is looked at. */
    size_t at = 0;
    assert_int_equal(feed(&frames, "\xFF\xFF", 2, &at), 0);
    assert_int_equal(close_with("", 0, &frames), 0);
    assert_int_equal(feed(&frames, "\xFF\xFF", 2, &at), 0);
    /* A ping may have any content. */
    fedge_ws_frames ping = {0};
    assert_int_equal(feed(&ping, "\x89\x81\0\0\0\0\xFF\x82", 8, &at), 0);
}

static void keys_and_tokens(void **state)
{
    (void)state;
    assert_true(fedge_ws_key_valid("dGhlIHNhbXBsZSBub25jZQ=="));
    const char *const keys[] = {"",
                                "dGhlIHNhbXBsZSBub25jZQ=",
                                "dGhlIHNhbXBsZSBub25jZQ",
                                "dGhlIHNhbXBsZSBub25jZWE=",
                                "dGhlIHNhbXBsZSBub25jZQ==x",
                                "dGhlIHNhbXBsZSBub25j-Q==",
                                "dGhlIHNhbXBsZSBub25jZQ==dGhlIHNhbXBsZSBub25jZQ==",
                                "========================"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        assert_false(fedge_ws_key_valid(keys[i]));
    assert_true(fedge_ws_has_token("Upgrade", "upgrade"));
    assert_true(fedge_ws_has_token("keep-alive, Upgrade", "upgrade"));
    assert_true(fedge_ws_has_token(" ,upgrade ,x", "upgrade"));
    assert_false(fedge_ws_has_token("up", "upgrade"));
    assert_false(fedge_ws_has_token("upgraded", "upgrade"));
    assert_false(fedge_ws_has_token("", "upgrade"));
    assert_false(fedge_ws_has_token("keep-alive,", "upgrade"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_frames),     cmocka_unit_test(bad_headers),
        cmocka_unit_test(close_codes),     cmocka_unit_test(close_reasons),
        cmocka_unit_test(keys_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
