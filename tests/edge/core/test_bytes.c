#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "edge/core/bytes.h"

static void fields_are_little_endian(void **state)
{
    (void)state;
    uint8_t at[16];
    const uint8_t counting[] = {1, 2, 3, 4, 5, 6, 7, 8};
    memset(at, 0xEE, sizeof(at));
    fedge_put_u16(at + 1, 0x0201);
    assert_memory_equal(at + 1, counting, 2);
    fedge_put_u32(at + 1, 0x04030201);
    assert_memory_equal(at + 1, counting, 4);
    fedge_put_u64(at + 1, 0x0807060504030201);
    assert_memory_equal(at + 1, counting, 8);
    assert_int_equal(at[0], 0xEE);
    assert_int_equal(at[9], 0xEE);
    assert_int_equal(fedge_get_u16(counting), 0x0201);
    assert_int_equal(fedge_get_u32(counting), 0x04030201);
    assert_true(fedge_get_u64(counting) == 0x0807060504030201);
    const uint8_t high[] = {0xFF, 0xFE, 0xFD, 0xFC, 0xFB, 0xFA, 0xF9, 0xF8};
    assert_int_equal(fedge_get_u16(high), 0xFEFF);
    assert_true(fedge_get_u32(high) == 0xFCFDFEFFu);
    assert_true(fedge_get_u64(high) == 0xF8F9FAFBFCFDFEFFu);
}

static void floats_are_ieee_754(void **state)
{
    (void)state;
    uint8_t at[13];
    const uint8_t minus_two[] = {0x00, 0x00, 0x00, 0xC0};
    fedge_put_f32(at + 1, -2.0f);
    assert_memory_equal(at + 1, minus_two, 4);
    assert_true(fedge_get_f32(minus_two) == -2.0f);
    const float values[] = {-2.0f, INFINITY, 1e-42f};
    float back[3];
    fedge_put_f32s(at + 1, values, 3);
    assert_memory_equal(at + 1, minus_two, 4);
    for (size_t i = 0; i < 3; i++)
        assert_true(fedge_get_f32(at + 1 + 4 * i) == values[i]);
    fedge_get_f32s(at + 1, back, 3);
    assert_memory_equal(back, values, sizeof(values));
    fedge_put_f32s(NULL, NULL, 0);
    fedge_get_f32s(NULL, NULL, 0);
}

static void a_buffer_never_passes_its_limit(void **state)
{
    (void)state;
    fedge_buffer buffer;
    fedge_error err;
    fedge_buffer_init(&buffer, 1000);
    assert_int_equal(fedge_buffer_append(&buffer, "abc", 3, NULL), FEDGE_OK);
    assert_string_equal((char *)buffer.data, "abc");
    for (int i = 0; i < 99; i++)
        assert_int_equal(fedge_buffer_append(&buffer, "0123456789", 10, NULL), FEDGE_OK);
    assert_int_equal(buffer.size, 993);
    assert_true(buffer.capacity <= 1001);
    assert_int_equal(fedge_buffer_append(&buffer, "01234567", 8, &err), FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "993"));
    assert_non_null(strstr(err.message, "1000"));
    assert_int_equal(buffer.size, 993);
    assert_int_equal(fedge_buffer_append(&buffer, "0123456", 7, NULL), FEDGE_OK);
    assert_int_equal(fedge_buffer_append(&buffer, "x", 1, NULL), FEDGE_TOO_BIG);
    assert_int_equal(fedge_buffer_append(&buffer, NULL, 0, NULL), FEDGE_OK);
    uint8_t *room;
    assert_int_equal(fedge_buffer_reserve(&buffer, SIZE_MAX, &room, NULL), FEDGE_TOO_BIG);
    assert_int_equal(strlen((char *)buffer.data), 1000);
    fedge_buffer_fini(&buffer);
    assert_int_equal(buffer.limit, 1000);
    assert_int_equal(fedge_buffer_append(&buffer, "again", 5, NULL), FEDGE_OK);
    fedge_buffer_fini(&buffer);
}

static void text_is_appended_whole_or_not_at_all(void **state)
{
    (void)state;
    fedge_buffer buffer;
    fedge_buffer_init(&buffer, 12);
    assert_int_equal(fedge_buffer_printf(&buffer, NULL, "%d-%s", 42, "x"), FEDGE_OK);
    assert_int_equal(fedge_buffer_printf(&buffer, NULL, "%s", "12345678"), FEDGE_OK);
    assert_string_equal((char *)buffer.data, "42-x12345678");
    assert_int_equal(fedge_buffer_printf(&buffer, NULL, "9"), FEDGE_TOO_BIG);
    assert_string_equal((char *)buffer.data, "42-x12345678");
    fedge_buffer_fini(&buffer);
}

static void consuming_moves_the_rest(void **state)
{
    (void)state;
    fedge_buffer buffer;
    fedge_buffer_init(&buffer, 8);
    assert_int_equal(fedge_buffer_append(&buffer, "abcdefgh", 8, NULL), FEDGE_OK);
    fedge_buffer_consume(&buffer, 3);
    assert_int_equal(buffer.size, 5);
    assert_memory_equal(buffer.data, "defgh", 5);
    assert_int_equal(fedge_buffer_append(&buffer, "xyz", 3, NULL), FEDGE_OK);
    fedge_buffer_consume(&buffer, 8);
    fedge_buffer_consume(&buffer, 0);
    assert_int_equal(buffer.size, 0);
    fedge_buffer_fini(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_little_endian),
        cmocka_unit_test(floats_are_ieee_754),
        cmocka_unit_test(a_buffer_never_passes_its_limit),
        cmocka_unit_test(text_is_appended_whole_or_not_at_all),
        cmocka_unit_test(consuming_moves_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
