/* The checksum at the end of a JSON object: each changed bit of it and of what it covers is found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "edge/json/json.h"

static const char OBJECT[] = "{\"round\":12,\"accuracy\":0.91,\"ended\":true}";

/* The object with its seal and a line's end. */
static size_t seal(char text[128])
{
    char made[FEDGE_SEAL_SIZE + 1];
    fedge_seal_make(OBJECT, sizeof(OBJECT) - 1, made);
    assert_int_equal(strlen(made), FEDGE_SEAL_SIZE);
    return (size_t)snprintf(text, 128, "%.*s%s\n", (int)sizeof(OBJECT) - 2, OBJECT, made);
}

static void it_is_the_last_member(void **state)
{
    (void)state;
    char text[128];
    const size_t size = seal(text);
    assert_string_equal(text, "{\"round\":12,\"accuracy\":0.91,\"ended\":true,"
                              "\"crc32\":\"68e9819e\"}\n");
    assert_int_equal(fedge_seal_check(text, size, "a", NULL), FEDGE_OK);
    assert_int_equal(fedge_seal_check(text, size - 1, "a", NULL), FEDGE_OK);
}

static void each_changed_bit_is_found(void **state)
{
    (void)state;
    char text[128];
    fedge_error err;
    const size_t size = seal(text) - 1;
    for (size_t bit = 0; bit < size * 8; bit++) {
        text[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(fedge_seal_check(text, size, "a.json", &err), FEDGE_CORRUPT);
        assert_non_null(strstr(err.message, "a.json"));
        text[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t i = 0; i + 1 < size; i++) { /* two bytes, side by side */
        const char kept[2] = {text[i], text[i + 1]};
        memset(text + i, ' ', 2);
        assert_int_equal(fedge_seal_check(text, size, "a.json", &err), FEDGE_CORRUPT);
        memcpy(text + i, kept, 2);
    }
}

static void what_has_none_is_taken(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "\n",
                                        "{}",
                                        "{}\n",
                                        "nonsense",
                                        OBJECT,
                                        "{\"crc32\":\"12345678\",\"incarnation\":12345678}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(fedge_seal_check(texts[i], strlen(texts[i]), "a", NULL), FEDGE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_last_member),
        cmocka_unit_test(each_changed_bit_is_found),
        cmocka_unit_test(what_has_none_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
