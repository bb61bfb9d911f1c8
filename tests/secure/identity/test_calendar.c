#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "secure/identity/certificate.h"

static void test_known_dates(void **state)
{
    (void)state;
    static const struct {
        uint64_t seconds;
        const char *text;
    } known[] = {
        {0, "1970-01-01T00:00:00Z"},          {951782399, "2000-02-28T23:59:59Z"},
        {951782400, "2000-02-29T00:00:00Z"},  {951868800, "2000-03-01T00:00:00Z"},
        {1709164800, "2024-02-29T00:00:00Z"}, {1735689599, "2024-12-31T23:59:59Z"},
        {4107542400, "2100-03-01T00:00:00Z"}, {253402300799, "9999-12-31T23:59:59Z"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        char text[FEDGE_CALENDAR_TEXT];
        fedge_calendar_text(known[i].seconds * 1000, text);
        assert_string_equal(text, known[i].text);
        fedge_calendar at = fedge_calendar_from_ms(known[i].seconds * 1000);
        assert_int_equal(fedge_calendar_to_ms(&at), known[i].seconds * 1000);
    }
}

/* Every day of two centuries follows the one before it. */
static void test_every_day(void **state)
{
    (void)state;
    fedge_calendar before = fedge_calendar_from_ms(0);
    for (uint64_t day = 1; day < 73000; day++) {
        fedge_calendar at = fedge_calendar_from_ms(day * FEDGE_DAY_MS);
        assert_int_equal(fedge_calendar_to_ms(&at), day * FEDGE_DAY_MS);
        if (at.month == before.month)
            assert_int_equal(at.day, before.day + 1);
        else
            assert_int_equal(at.day, 1);
        before = at;
    }
}

static void test_before_1970(void **state)
{
    (void)state;
    fedge_calendar at = {.year = 1969, .month = 12, .day = 31};
    assert_int_equal(fedge_calendar_to_ms(&at), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_dates),
        cmocka_unit_test(test_every_day),
        cmocka_unit_test(test_before_1970),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
