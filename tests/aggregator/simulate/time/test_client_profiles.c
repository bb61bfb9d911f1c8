#include "aggregator/simulate/time/client_profiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/edge/core/cmocka_all.h"

static fedge_distribution parse(const char *text)
{
    fedge_distribution distribution;
    fedge_error err;
    if (fedge_distribution_parse(text, strlen(text), &distribution, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return distribution;
}

/* Means of [draws] values and of their squares, after [map]. */
static void moments(const char *text, double (*map)(double), uint32_t draws, double *mean,
                    double *variance)
{
    const fedge_distribution distribution = parse(text);
    fedge_rng rng = fedge_rng_stream(11, FEDGE_PURPOSE_TEST, 0, 0, 0);
    double sum = 0.0, squares = 0.0;
    for (uint32_t i = 0; i < draws; i++) {
        const double value = map(fedge_distribution_draw(&distribution, &rng));
        sum += value;
        squares += value * value;
    }
    *mean = sum / draws;
    *variance = squares / draws - *mean * *mean;
}

static double as_it_is(double value)
{
    return value;
}

/* Bounds: five standard deviations of the estimate over n = 40,000 draws, sigma / sqrt(n) of the
 * mean and variance · sqrt((kurtosis − 1) / n) of the variance. */
static void moments_are_those_of_the_distribution(void **state)
{
    (void)state;
    double mean, variance;
    const uint32_t n = 40000;
    moments("fixed:7", as_it_is, n, &mean, &variance);
    assert_true(mean == 7.0 && variance == 0.0);
    moments("uniform:50,200", as_it_is, n, &mean, &variance);
    const double flat = 150.0 * 150.0 / 12.0;
    assert_true(fabs(mean - 125.0) < 5.0 * sqrt(flat / n));
    assert_true(fabs(variance - flat) < 5.0 * flat * sqrt(0.8 / n));
    moments("lognormal:100,0.5", log, n, &mean, &variance);
    assert_true(fabs(mean - log(100.0)) < 5.0 * 0.5 / sqrt(n));
    assert_true(fabs(variance - 0.25) < 5.0 * 0.25 * sqrt(2.0 / n));
    moments("lognormal:100,0", as_it_is, 10, &mean, &variance);
    assert_true(mean == 100.0);
}

static void draws_stay_in_range(void **state)
{
    (void)state;
    const fedge_distribution wild = parse("lognormal:1e15,10");
    const fedge_distribution none = {0};
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int i = 0; i < 1000; i++) {
        const double value = fedge_distribution_draw(&wild, &rng);
        assert_true(value >= FEDGE_DISTRIBUTION_MIN && value <= FEDGE_DISTRIBUTION_MAX);
    }
    assert_true(isinf(fedge_distribution_draw(&none, &rng)));
}

static void what_is_no_distribution_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {{"", "is not fixed:A, uniform:A,B or lognormal:MEDIAN,SIGMA"},
                 {"fixed", "'fixed' is not"},
                 {"fixed:", "'fixed:' is not"},
                 {"fixed:1,2", "'fixed:1,2' is not"},
                 {"fixed:0", "numbers must be from 1e-09 to 1e+15"},
                 {"fixed:-1", "numbers must be from"},
                 {"fixed:nan", "numbers must be from"},
                 {"fixed:inf", "numbers must be from"},
                 {"uniform:5", "is not"},
                 {"uniform:5,1", "the smaller number comes first"},
                 {"uniform:5,inf", "numbers must be from"},
                 {"lognormal:1,-1", "the spread of the logarithm, from 0 to 10"},
                 {"lognormal:1,11", "the spread of the logarithm"},
                 {"normal:1,1", "'normal:1,1' is not"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_distribution distribution;
        fedge_error err;
        assert_int_equal(
            fedge_distribution_parse(cases[i].text, strlen(cases[i].text), &distribution, &err),
            FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("'%s': \"%s\" has no \"%s\"", cases[i].text, err.message, cases[i].message);
    }
}

static fedge_client_profiles *make(const fedge_client_profiles_settings *settings, uint64_t seed,
                                   uint32_t clients)
{
    fedge_client_profiles *profiles = NULL;
    fedge_error err;
    if (fedge_client_profiles_new(settings, seed, clients, &profiles, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return profiles;
}

static void a_task_takes_down_work_and_up(void **state)
{
    (void)state;
    fedge_client_profiles *profiles =
        make(&(fedge_client_profiles_settings){.compute = "fixed:100",
                                               .bandwidth = "fixed:2000/fixed:500"},
             1, 2);
    const fedge_client_profiles_work work = {
        .bytes_down = 4000, .bytes_up = 250, .examples = 1000.0};
    assert_int_equal(fedge_client_profiles_task_us(profiles, 1, &work),
                     2000000 + 10000000 + 500000);
    fedge_client_profiles_free(profiles);
    profiles = make(&(fedge_client_profiles_settings){.bandwidth = "fixed:1000"}, 1, 2);
    assert_int_equal(fedge_client_profiles_task_us(profiles, 0, &work),
                     4250000); /* computes in no time */
    fedge_client_profiles_free(profiles);
    profiles = make(&(fedge_client_profiles_settings){.compute = "fixed:1e-9"}, 1, 2);
    assert_int_equal(fedge_client_profiles_task_us(profiles, 0, &work),
                     FEDGE_CLIENT_PROFILES_MAX_TASK_US);
    fedge_client_profiles_free(profiles);
}

static void examples_are_those_that_the_trainer_sees(void **state)
{
    (void)state;
    fedge_training_spec training = {.local_epochs = 3, .batch_size = 8};
    assert_true(fedge_client_profiles_examples(&training, FEDGE_TASK_TRAIN, 20) == 60.0);
    assert_true(fabs(fedge_client_profiles_examples(&training, FEDGE_TASK_EVALUATE, 30) - 10.0) <
                1e-12);
    /* Batches of 8, 8 and 4 an epoch: five steps are 20 and 16. */
    training.local_steps = 5;
    assert_true(fedge_client_profiles_examples(&training, FEDGE_TASK_TRAIN, 20) == 36.0);
    training.local_steps = 6;
    assert_true(fedge_client_profiles_examples(&training, FEDGE_TASK_TRAIN, 20) == 40.0);
    assert_true(fedge_client_profiles_examples(&training, FEDGE_TASK_TRAIN, 3) == 18.0);
    assert_true(fedge_client_profiles_examples(&training, FEDGE_TASK_TRAIN, 0) == 0.0);
}

/* A client's numbers depend on seed and index alone; down and up are drawn apart when both are
 * given, and are the same when one is. */
static void clients_are_functions_of_the_seed(void **state)
{
    (void)state;
    const fedge_client_profiles_settings both = {.compute = "lognormal:100,1",
                                                 .bandwidth = "uniform:1,9"};
    const fedge_client_profiles_settings apart = {.compute = "lognormal:100,1",
                                                  .bandwidth = "uniform:1,9/uniform:1,9"};
    fedge_client_profiles *few = make(&both, 3, 10), *many = make(&both, 3, 1000);
    fedge_client_profiles *other = make(&both, 4, 10), *split = make(&apart, 3, 10);
    assert_memory_equal(few->clients, many->clients, 10 * sizeof(few->clients[0]));
    for (uint32_t c = 0; c < 10; c++) {
        assert_true(few->clients[c].compute != other->clients[c].compute);
        assert_true(few->clients[c].up == few->clients[c].down);
        assert_true(split->clients[c].down == few->clients[c].down);
        assert_true(split->clients[c].up != split->clients[c].down);
    }
    /* Each quarter has a quarter of the clients, and none is faster than one of the next. */
    uint32_t counts[FEDGE_SPEED_QUANTILES] = {0};
    for (uint32_t c = 0; c < 1000; c++) {
        counts[many->quantile[c]]++;
        for (uint32_t d = 0; d < c; d++) {
            assert_false(many->quantile[c] < many->quantile[d] &&
                         many->clients[c].compute > many->clients[d].compute);
        }
    }
    for (uint32_t q = 0; q < FEDGE_SPEED_QUANTILES; q++)
        assert_int_equal(counts[q], 250);
    fedge_client_profiles_free(few);
    fedge_client_profiles_free(many);
    fedge_client_profiles_free(other);
    fedge_client_profiles_free(split);
}

/* 20,000 draws at 0.2: five standard deviations are 0.0142. */
static void tasks_fail_as_often_as_said(void **state)
{
    (void)state;
    fedge_client_profiles *profiles =
        make(&(fedge_client_profiles_settings){.failure = 0.2}, 5, 200);
    uint32_t failures = 0, differ = 0;
    double shares = 0.0;
    for (uint32_t round = 1; round <= 100; round++) {
        for (uint32_t c = 0; c < 200; c++) {
            double share = 0.0, again = 0.0;
            const bool fails =
                fedge_client_profiles_fails(profiles, c, round, 0, FEDGE_TASK_TRAIN, &share);
            assert_int_equal(fails, fedge_client_profiles_fails(profiles, c, round, 0,
                                                                FEDGE_TASK_TRAIN, &again));
            assert_true(!fails || (share == again && share >= 0.0 && share < 1.0));
            differ += fails !=
                      fedge_client_profiles_fails(profiles, c, round, 1, FEDGE_TASK_TRAIN, &again);
            failures += fails;
            shares += fails ? share : 0.0;
        }
    }
    assert_true(fabs(failures / 20000.0 - 0.2) < 0.0142);
    assert_true(fabs(shares / failures - 0.5) < 0.025); /* five times 0.289 / sqrt(4,000) */
    assert_true(differ > 5000);                         /* another attempt, another draw: 6,400 */
    fedge_client_profiles_free(profiles);
}

static void bad_settings_name_the_option(void **state)
{
    (void)state;
    static const struct {
        fedge_client_profiles_settings settings;
        const char *message;
    } cases[] = {{{.compute = "fast"}, "--compute: 'fast' is not"},
                 {{.bandwidth = "fixed:1/"}, "--bandwidth: '' is not"},
                 {{.bandwidth = "fixed:1/fixed:0"}, "--bandwidth: 'fixed:0': numbers"},
                 {{.failure = 1.0}, "--failure is 1"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_client_profiles *profiles = NULL;
        fedge_error err;
        assert_int_equal(fedge_client_profiles_new(&cases[i].settings, 1, 4, &profiles, &err),
                         FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("\"%s\" has no \"%s\"", err.message, cases[i].message);
    }
    assert_false(fedge_client_profiles_is_wanted(&(fedge_client_profiles_settings){0}));
}

/* ---- traces ---------------------------------------------------------------------------------- */

#define TRACE "simulate-trace.csv"

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Columns in any order, rows too; what has no column is drawn. */
static void a_trace_says_it_of_each_client(void **state)
{
    (void)state;
    write_text(TRACE, "up,client, failure\n5e5,1,0.5\n\n250,0,0\n");
    fedge_client_profiles *profiles =
        make(&(fedge_client_profiles_settings){.trace = TRACE, .compute = "fixed:9"}, 1, 2);
    assert_true(fedge_client_profiles_is_wanted(&(fedge_client_profiles_settings){.trace = TRACE}));
    assert_true(profiles->clients[0].up == 250.0f && profiles->clients[1].up == 5e5f);
    assert_true(profiles->clients[0].failure == 0.0f && profiles->clients[1].failure == 0.5f);
    assert_true(isinf(profiles->clients[0].down) && profiles->clients[1].compute == 9.0f);
    assert_int_equal(profiles->quantile[0], 0); /* of equal speeds the slower connection */
    assert_int_equal(profiles->quantile[1], 2);
    fedge_client_profiles_free(profiles);
}

static void bad_traces_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {{"client,compute\n0,1\n1,1\n", "--compute, which " TRACE " has a column for"},
                 {"client,up\n0,1\n", TRACE ": client 1 has no row: each of 0 to 1 needs one"},
                 {"client,up\n0,1\n1,1\n0,2\n", TRACE ":4: client 0 has a row in line 2 already"},
                 {"client,up\n0,1\n2,1\n", TRACE ":3: client 2 is none of 0 to 1"},
                 {"client,up\n-1,1\n", TRACE ":2: client -1 is none of"},
                 {"client,up\n0.5,1\n", TRACE ":2: client 0.5 is none of"},
                 {"client,up\n0,-4\n", TRACE ":2: up is -4: a number from"},
                 {"client,down\n0,0\n", TRACE ":2: down is 0: a number from"},
                 {"client,up\n0,nan\n", TRACE ":2: column 2"},
                 {"client,up\n0,fast\n", TRACE ":2: column 2"},
                 {"client,up\n0\n", TRACE ":2: 1 comma-separated fields"},
                 {"client,failure\n0,1\n", TRACE ":2: failure is 1, but must be"},
                 {"client,speed\n0,1\n", TRACE ":1: no column is called \"speed\""},
                 {"client,dwon\n0,1\n", "did you mean \"down\"?"},
                 {"client,up,up\n0,1,1\n", TRACE ":1: column \"up\" is there twice"},
                 {"up,down\n1,1\n", TRACE ":1: there is no column \"client\""},
                 {"0,1\n1,1\n", "a header must name the columns"},
                 {"", TRACE}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_client_profiles *profiles = NULL;
        fedge_error err;
        write_text(TRACE, cases[i].text);
        assert_int_not_equal(
            fedge_client_profiles_new(
                &(fedge_client_profiles_settings){.trace = TRACE, .compute = "fixed:1"}, 1, 2,
                &profiles, &err),
            FEDGE_OK);
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s: \"%s\" has no \"%s\"", cases[i].text, err.message, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_those_of_the_distribution),
        cmocka_unit_test(draws_stay_in_range),
        cmocka_unit_test(what_is_no_distribution_is_refused),
        cmocka_unit_test(a_task_takes_down_work_and_up),
        cmocka_unit_test(examples_are_those_that_the_trainer_sees),
        cmocka_unit_test(clients_are_functions_of_the_seed),
        cmocka_unit_test(tasks_fail_as_often_as_said),
        cmocka_unit_test(bad_settings_name_the_option),
        cmocka_unit_test(a_trace_says_it_of_each_client),
        cmocka_unit_test(bad_traces_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
