#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "edge/core/text.h"

static void what_is_in_range_is_read(void **state)
{
    (void)state;
    uint64_t number = 7;
    uint32_t count = 7;
    assert_int_equal(fedge_option_number("seed", "0", 0, 9, &number, NULL), FEDGE_OK);
    assert_int_equal(number, 0);
    assert_int_equal(
        fedge_option_number("seed", "9007199254740991", 0, (UINT64_C(1) << 53) - 1, &number, NULL),
        FEDGE_OK);
    assert_true(number == (UINT64_C(1) << 53) - 1);
    assert_int_equal(fedge_option_count("clients", "4294967295", UINT32_MAX, &count, NULL),
                     FEDGE_OK);
    assert_int_equal(count, UINT32_MAX);
}

static void what_is_not_a_number_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",    "-1",   "+1", " 1",         "1 ",
                                        "1e3", "0x10", "0",  "4294967296", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint32_t count = 7;
        fedge_error err;
        assert_int_equal(fedge_option_count("clients", texts[i], UINT32_MAX, &count, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "--clients must be a number from 1 to 4294967295"));
        assert_int_equal(count, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_range_is_read),
        cmocka_unit_test(what_is_not_a_number_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
