#include "aggregator/simulate/time/availability.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/edge/core/cmocka_all.h"

#define ROWS "simulate-online.csv"
#define SECOND UINT64_C(1000000)

static void write_rows(const char *text)
{
    FILE *file = fopen(ROWS, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static fedge_availability *make(const char *text, uint32_t clients)
{
    fedge_availability *made = NULL;
    fedge_error err;
    if (fedge_availability_new(text, 7, clients, &made, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return made;
}

/* Each client's periods are followed for 100 cycles of 1,000 s, by 400 clients: 40,000 periods, the
 * spread of a mean of exponential ones is 1/200, five times that 2.5 %. A stretch's end cuts one
 * period in 64 cycles and may join two: another 2 %. */
static void shares_and_periods_are_those_asked_for(void **state)
{
    (void)state;
    fedge_availability *made = make("0.3,300", 400);
    const uint64_t end = 100000 * SECOND;
    double online_us = 0.0, total_us = 0.0, periods = 0.0;
    for (uint32_t c = 0; c < 400; c++) {
        uint64_t at = 0, until = 0;
        while (at < end) {
            const bool online = fedge_availability_at(made, c, at, &until);
            uint64_t again = 0;
            assert_true(until > at);
            /* The same from anywhere within, and another at its end. */
            assert_int_equal(fedge_availability_at(made, c, at + (until - at) / 2, &again), online);
            assert_int_equal(again, until);
            assert_int_not_equal(fedge_availability_at(made, c, until, &again), online);
            online_us += online ? (double)(until - at) : 0.0;
            periods += online;
            total_us += (double)(until - at);
            at = until;
        }
    }
    assert_true(fabs(online_us / total_us / 0.3 - 1.0) < 0.045);
    assert_true(fabs(online_us / periods / 300e6 - 1.0) < 0.045);
    fedge_availability_free(made);
}

static void rows_are_followed_and_repeat(void **state)
{
    (void)state;
    write_rows("to, client ,from\n10,1,5\n2,0,0\n20,0,10\n4,0,2\n20,2,0\n");
    fedge_availability *made = make("file:" ROWS, 3);
    static const struct {
        uint32_t client;
        uint64_t at, until; /* seconds */
        bool online;
    } cases[] = {
        {0, 0, 4, true},                                            /* two rows that meet */
        {0, 3, 4, true},   {0, 4, 10, false},    {0, 10, 24, true}, /* and the next tie-break */
        {0, 23, 24, true}, {0, 204, 210, false}, {1, 0, 5, false},
        {1, 5, 10, true},  {1, 10, 25, false},   {1, 29, 30, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t until = 0;
        assert_int_equal(fedge_availability_at(made, cases[i].client, cases[i].at * SECOND, &until),
                         cases[i].online);
        assert_int_equal(until, cases[i].until * SECOND);
    }
    uint64_t until = 0;
    assert_true(fedge_availability_at(made, 2, 77 * SECOND, &until));
    assert_true(until == FEDGE_AVAILABILITY_NEVER);
    fedge_availability_free(made);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rows, *message;
    } cases[] = {
        {"0.3", "", "such as 0.3,3600, not '0.3'"},
        {"0,60", "", "--availability must be"},
        {"1,60", "", "--availability must be"},
        {"0.5,0", "", "--availability must be"},
        {"nan,60", "", "--availability must be"},
        {"0.5,60,", "", "--availability must be"},
        {"file:nowhere.csv", "", "nowhere.csv"},
        {"file:" ROWS, "client,from,to\n0,0,5\n", "client 1 has no row"},
        {"file:" ROWS, "client,from,to\n0,0,5\n2,0,5\n", ROWS ":3: client 2 is none of 0 to 1"},
        {"file:" ROWS, "client,from,to\n-1,0,5\n", ROWS ":2: client -1 is none of"},
        {"file:" ROWS, "client,from,to\n0,-3,5\n", ROWS ":2: from -3 to 5"},
        {"file:" ROWS, "client,from,to\n0,5,5\n", ROWS ":2: from 5 to 5"},
        {"file:" ROWS, "client,from,to\n0,0,99999999999\n", "times are from 0 to"},
        {"file:" ROWS, "client,from,to\n0,8,9\n0,0,5\n1,0,1\n0,4,6\n",
         ROWS ":5: client 0 is online from 4 on, as line 3 says already"},
        {"file:" ROWS, "client,from,to\n0,0,5.5\n", ROWS ":2"},
        {"file:" ROWS, "client,from,to\n0,0\n", ROWS ":2: 2 comma-separated fields"},
        {"file:" ROWS, "client,from\n0,0\n", ROWS ":1: the columns must be client, from and to"},
        {"file:" ROWS, "client,from,to,why\n0,0,1,1\n", ROWS ":1: the columns must be"},
        {"file:" ROWS, "client,from,from\n0,0,1\n", ROWS ":1: the columns must be"},
        {"file:" ROWS, "0,0,5\n1,0,5\n", "a header must name the columns"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_availability *made = NULL;
        fedge_error err;
        write_rows(cases[i].rows);
        assert_int_not_equal(fedge_availability_new(cases[i].text, 1, 2, &made, &err), FEDGE_OK);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: \"%s\" has no \"%s\"", cases[i].rows, err.message, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_and_periods_are_those_asked_for),
        cmocka_unit_test(rows_are_followed_and_repeat),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
