#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "edge/core/text.h"

static const char canonical[] = "01234567-89ab-cdef-0123-456789abcdef";

static void ids_round_trip(void **state)
{
    (void)state;
    const uint8_t bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                               0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    fedge_device_id id;
    char text[FEDGE_DEVICE_ID_TEXT_SIZE];
    assert_int_equal(fedge_device_id_parse(canonical, &id, NULL), FEDGE_OK);
    assert_memory_equal(id.bytes, bytes, sizeof(bytes));
    assert_string_equal(fedge_device_id_format(&id, text), canonical);
}

static void only_the_canonical_spelling_is_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "0",
        "01234567-89ab-cdef-0123-456789abcde",
        "01234567-89ab-cdef-0123-456789abcdef0",
        "01234567-89ab-cdef-0123-456789abcdeF",
        "01234567-89ab-cdef-0123-456789abcdeg",
        "0123456789abcdef0123456789abcdef",
        "{01234567-89ab-cdef-0123-456789abcdef}",
        "01234567-89ab-cdef-0123+456789abcdef",
        "0123456-789ab-cdef-0123-456789abcdef",
        " 1234567-89ab-cdef-0123-456789abcdef",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        fedge_device_id id = {{9}};
        fedge_error err;
        assert_int_equal(fedge_device_id_parse(wrong[i], &id, &err), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "device id"));
        assert_int_equal(id.bytes[0], 9);
    }
    for (size_t length = 0; length < strlen(canonical); length++) {
        char *cut = test_malloc(length + 1); /* of its own, so that a read too far is seen */
        memcpy(cut, canonical, length);
        cut[length] = '\0';
        fedge_device_id id;
        assert_int_equal(fedge_device_id_parse(cut, &id, NULL), FEDGE_INVALID_ARGUMENT);
        test_free(cut);
    }
}

static void random_ids_differ(void **state)
{
    (void)state;
    fedge_device_id a, b;
    char text[FEDGE_DEVICE_ID_TEXT_SIZE];
    assert_int_equal(fedge_device_id_random(&a, NULL), FEDGE_OK);
    assert_int_equal(fedge_device_id_random(&b, NULL), FEDGE_OK);
    assert_memory_not_equal(a.bytes, b.bytes, sizeof(a.bytes));
    fedge_device_id_format(&a, text);
    assert_int_equal(text[14], '4');
    assert_non_null(strchr("89ab", text[19]));
    assert_int_equal(fedge_device_id_parse(text, &b, NULL), FEDGE_OK);
    assert_memory_equal(a.bytes, b.bytes, sizeof(a.bytes));
}

static void hexadecimal_round_trips(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x00, 0x7f, 0x80, 0xff, 0xa5};
    char text[11];
    uint8_t back[5];
    assert_string_equal(fedge_hex_encode(bytes, sizeof(bytes), text), "007f80ffa5");
    assert_int_equal(fedge_hex_decode(text, back, sizeof(back), NULL), FEDGE_OK);
    assert_memory_equal(back, bytes, sizeof(bytes));
    assert_string_equal(fedge_hex_encode(NULL, 0, text), "");
    assert_int_equal(fedge_hex_decode("", NULL, 0, NULL), FEDGE_OK);
    static const char *const wrong[] = {"",           "007f80ffa",  "007f80ffa5a",
                                        "007F80ffa5", "007f80ff a", "0x7f80ffa5"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        fedge_error err;
        assert_int_equal(fedge_hex_decode(wrong[i], back, sizeof(back), &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "10 lower-case"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_round_trip),
        cmocka_unit_test(only_the_canonical_spelling_is_read),
        cmocka_unit_test(random_ids_differ),
        cmocka_unit_test(hexadecimal_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
