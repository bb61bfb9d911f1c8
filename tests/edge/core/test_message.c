#include "tests/edge/core/cmocka_all.h"

#include <assert.h>
#include <string.h>
#include <zlib.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/core/rng.h"

static_assert(FEDGE_MESSAGE_MAX_SIZE == 24 + 16384 + 65536, "the limits are part of the protocol");

static void crc32_equals_zlib(void **state)
{
    (void)state;
    assert_int_equal(fedge_crc32(0, "123456789", 9), 0xCBF43926); /* the usual check value */
    assert_int_equal(fedge_crc32(0, NULL, 0), 0);
    static uint8_t data[5000];
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)fedge_rng_u32(&rng);
    for (int trial = 0; trial < 2000; trial++) {
        size_t at = fedge_rng_below(&rng, 100);
        size_t n = fedge_rng_below(&rng, trial % 2 == 0 ? 40 : 4900);
        uint32_t whole = (uint32_t)crc32(0, data + at, (uInt)n);
        assert_int_equal(fedge_crc32(0, data + at, n), whole);
        size_t cut = n > 0 ? fedge_rng_below(&rng, (uint32_t)n) : 0;
        uint32_t part = fedge_crc32(0, data + at, cut);
        assert_int_equal(fedge_crc32(part, data + at + cut, n - cut), whole);
    }
}

static void names_of_types_and_reasons(void **state)
{
    (void)state;
    assert_string_equal(fedge_message_type_name(FEDGE_MESSAGE_HELLO), "hello");
    assert_string_equal(fedge_message_type_name(13), "bye");
    assert_null(fedge_message_type_name(0));
    assert_null(fedge_message_type_name(14));
    for (unsigned i = 0; i < FEDGE_REASON_COUNT; i++) {
        const char *class = fedge_reason_class((fedge_reason)i);
        assert_non_null(fedge_reason_name((fedge_reason)i));
        assert_true(strcmp(class, "retry") == 0 || strcmp(class, "later") == 0 ||
                    strcmp(class, "never") == 0);
    }
    assert_string_equal(fedge_reason_name(FEDGE_REASON_NO_SPACE), "no-space");
    assert_string_equal(fedge_reason_class(FEDGE_REASON_NO_SPACE), "later");
    assert_null(fedge_reason_name(FEDGE_REASON_COUNT));
    assert_null(fedge_reason_class(FEDGE_REASON_COUNT));
}

/* {"a":1} and the payload 01 02 03, written down byte by byte. */
static const uint8_t example[] = {
    'F', 'E', 'D', 'G', 1, 10, 1, 0,   7,   0,   0,   0,   3,   0,   0, 0, 0,
    0,   0,   0,   0,   0, 0,  0, '{', '"', 'a', '"', ':', '1', '}', 1, 2, 3,
};

static size_t make_example(uint8_t *out, size_t out_size)
{
    const uint8_t payload[] = {1, 2, 3};
    fedge_message message = {
        .type = FEDGE_MESSAGE_PART,
        .flags = FEDGE_MESSAGE_FLAG_MUST,
        .meta = "{\"a\":1}",
        .meta_size = 7,
        .payload = payload,
        .payload_size = 3,
    };
    assert_int_equal(fedge_message_size(&message), sizeof(example));
    assert_int_equal(fedge_message_pack(&message, out, out_size, NULL), FEDGE_OK);
    return fedge_message_size(&message);
}

static void frames_have_the_documented_bytes(void **state)
{
    (void)state;
    uint8_t frame[64];
    size_t size = make_example(frame, sizeof(frame));
    uint8_t expected[sizeof(example)];
    memcpy(expected, example, sizeof(example));
    uLong crc = crc32(crc32(0, example, 16), example + 24, sizeof(example) - 24);
    for (int i = 0; i < 4; i++)
        expected[16 + i] = (uint8_t)(crc >> 8 * i);
    assert_int_equal(size, sizeof(expected));
    assert_memory_equal(frame, expected, size);
}

static void frames_round_trip(void **state)
{
    (void)state;
    uint8_t frame[64];
    size_t size = make_example(frame, sizeof(example));
    size_t announced = 0;
    assert_int_equal(fedge_message_peek(frame, FEDGE_MESSAGE_HEADER_SIZE, &announced, NULL),
                     FEDGE_OK);
    assert_int_equal(announced, size);
    fedge_message message;
    assert_int_equal(fedge_message_unpack(frame, size, &message, NULL), FEDGE_OK);
    assert_int_equal(message.type, FEDGE_MESSAGE_PART);
    assert_int_equal(message.flags, FEDGE_MESSAGE_FLAG_MUST);
    assert_int_equal(message.meta_size, 7);
    assert_memory_equal(message.meta, "{\"a\":1}", 7);
    assert_int_equal(message.payload_size, 3);
    assert_ptr_equal(message.payload, frame + 31);
}

static void empty_full_and_unknown_frames(void **state)
{
    (void)state;
    static uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    fedge_message message = {.type = 200};
    fedge_message back;
    assert_int_equal(fedge_message_pack(&message, frame, FEDGE_MESSAGE_HEADER_SIZE, NULL),
                     FEDGE_OK);
    assert_int_equal(fedge_message_unpack(frame, FEDGE_MESSAGE_HEADER_SIZE, &back, NULL), FEDGE_OK);
    assert_int_equal(back.type, 200); /* unknown types are the caller's to skip or refuse */
    assert_int_equal(back.meta_size + back.payload_size, 0);

    /* A payload (and metadata) that already lies in place is not moved. */
    uint8_t *meta = frame + FEDGE_MESSAGE_HEADER_SIZE;
    message = (fedge_message){
        .type = FEDGE_MESSAGE_CHUNK,
        .meta = (const char *)meta,
        .meta_size = FEDGE_MESSAGE_MAX_META,
        .payload = meta + FEDGE_MESSAGE_MAX_META,
        .payload_size = FEDGE_MESSAGE_MAX_PAYLOAD,
    };
    memset(meta, ' ', FEDGE_MESSAGE_MAX_META);
    memset(meta + FEDGE_MESSAGE_MAX_META, 0xA5, FEDGE_MESSAGE_MAX_PAYLOAD);
    assert_int_equal(fedge_message_pack(&message, frame, sizeof(frame), NULL), FEDGE_OK);
    assert_int_equal(fedge_message_unpack(frame, sizeof(frame), &back, NULL), FEDGE_OK);
    assert_int_equal(back.payload[FEDGE_MESSAGE_MAX_PAYLOAD - 1], 0xA5);
}

static void packing_refuses_what_cannot_be_sent(void **state)
{
    (void)state;
    static uint8_t frame[FEDGE_MESSAGE_MAX_SIZE + 1];
    fedge_error err;
    fedge_message message = {.type = 256};
    assert_int_equal(fedge_message_pack(&message, frame, sizeof(frame), &err),
                     FEDGE_INVALID_ARGUMENT);
    message = (fedge_message){.type = 1, .flags = 2};
    assert_int_equal(fedge_message_pack(&message, frame, sizeof(frame), &err),
                     FEDGE_INVALID_ARGUMENT);
    message = (fedge_message){
        .type = 1, .meta = (const char *)frame, .meta_size = FEDGE_MESSAGE_MAX_META + 1};
    assert_int_equal(fedge_message_pack(&message, frame, sizeof(frame), &err), FEDGE_TOO_BIG);
    message =
        (fedge_message){.type = 1, .payload = frame, .payload_size = FEDGE_MESSAGE_MAX_PAYLOAD + 1};
    assert_int_equal(fedge_message_pack(&message, frame, sizeof(frame), &err), FEDGE_TOO_BIG);
    message = (fedge_message){.type = 1, .payload = example, .payload_size = 3};
    frame[26] = 0x77;
    assert_int_equal(fedge_message_pack(&message, frame, 26, &err), FEDGE_TOO_BIG);
    assert_int_equal(frame[26], 0x77);
}

static void every_bad_header_field_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        size_t width;
        uint32_t value;
        fedge_status status;
        const char *said;
    } bad[] = {
        {0, 1, 'f', FEDGE_CORRUPT, "66 45 44 47"},
        {3, 1, 'H', FEDGE_CORRUPT, "FEDG"},
        {4, 1, 0, FEDGE_UNSUPPORTED, "version 0"},
        {4, 1, 2, FEDGE_UNSUPPORTED, "version 2"},
        {6, 2, 0x0003, FEDGE_UNSUPPORTED, "0x0003"},
        {6, 2, 0x8001, FEDGE_UNSUPPORTED, "0x8001"},
        {8, 4, 16 * 1024 + 1, FEDGE_TOO_BIG, "16385"},
        {8, 4, UINT32_MAX, FEDGE_TOO_BIG, "4294967295"},
        {12, 4, 64 * 1024 + 1, FEDGE_TOO_BIG, "65537"},
        {12, 4, UINT32_MAX, FEDGE_TOO_BIG, "4294967295"},
        {20, 1, 1, FEDGE_CORRUPT, "reserved"},
        {23, 1, 0x80, FEDGE_CORRUPT, "reserved"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t frame[64];
        size_t size = make_example(frame, sizeof(frame));
        for (size_t k = 0; k < bad[i].width; k++)
            frame[bad[i].offset + k] = (uint8_t)(bad[i].value >> 8 * k);
        fedge_error err;
        size_t announced = 99;
        fedge_message message;
        assert_int_equal(fedge_message_peek(frame, size, &announced, &err), bad[i].status);
        if (!strstr(err.message, bad[i].said))
            fail_msg("\"%s\" does not say \"%s\"", err.message, bad[i].said);
        assert_int_equal(announced, 99);
        assert_int_equal(fedge_message_unpack(frame, size, &message, NULL), bad[i].status);
    }
}

static void every_flipped_bit_is_seen(void **state)
{
    (void)state;
    uint8_t frame[64];
    size_t size = make_example(frame, sizeof(frame));
    for (size_t bit = 0; bit < size * 8; bit++) {
        fedge_message message;
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(fedge_message_unpack(frame, size, &message, NULL), FEDGE_OK);
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    fedge_error err;
    fedge_message message;
    frame[size - 1] ^= 0x10;
    assert_int_equal(fedge_message_unpack(frame, size, &message, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "CRC-32"));
}

static void frames_of_another_length_are_refused(void **state)
{
    (void)state;
    uint8_t frame[64];
    size_t size = make_example(frame, sizeof(frame));
    fedge_message message;
    fedge_error err;
    size_t announced;
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(fedge_message_unpack(frame, cut, &message, &err), FEDGE_TRUNCATED);
    for (size_t cut = 0; cut < FEDGE_MESSAGE_HEADER_SIZE; cut++)
        assert_int_equal(fedge_message_peek(frame, cut, &announced, &err), FEDGE_TRUNCATED);
    assert_int_equal(fedge_message_unpack(frame, size + 1, &message, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "announces 34"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32_equals_zlib),
        cmocka_unit_test(names_of_types_and_reasons),
        cmocka_unit_test(frames_have_the_documented_bytes),
        cmocka_unit_test(frames_round_trip),
        cmocka_unit_test(empty_full_and_unknown_frames),
        cmocka_unit_test(packing_refuses_what_cannot_be_sent),
        cmocka_unit_test(every_bad_header_field_is_refused),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(frames_of_another_length_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
