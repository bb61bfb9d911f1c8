#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/plot.h"
#include "aggregator/report/svg.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"

#define LOG "test_plot.jsonl"
#define PICTURE "test_plot.svg"
#define PANELS 5 /* of one run: accuracy and loss twice, bytes once */

static fedge_error err;

/* Writes a log of [rounds] phases as [make] has them. */
static void write_log(const char *path, uint32_t rounds,
                      fedge_round_summary (*make)(uint32_t round))
{
    fedge_round_log log;
    (void)remove(path);
    assert_int_equal(fedge_round_log_open(&log, path, 0, &err), FEDGE_OK);
    log.lazy = true;
    for (uint32_t round = 1; round <= rounds; round++) {
        const fedge_round_summary summary = make(round);
        fedge_buffer line;
        fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
        assert_int_equal(fedge_round_summary_write(&summary, &line, &err), FEDGE_OK);
        assert_int_equal(fedge_round_log_append(&log, summary.round, summary.kind,
                                                (const char *)line.data, &err),
                         FEDGE_OK);
        fedge_buffer_fini(&line);
    }
    fedge_round_log_close(&log);
}

static fedge_round_summary plain(uint32_t round)
{
    return (fedge_round_summary){.round = round,
                                 .kind = FEDGE_TASK_TRAIN,
                                 .reported = 3,
                                 .examples = 70,
                                 .loss = 1.0 / round,
                                 .accuracy = 1.0 - 0.5 / round,
                                 .train_loss = NAN,
                                 .train_accuracy = NAN,
                                 .bytes_up = 100000,
                                 .bytes_down = 300000,
                                 .seconds = 0.5,
                                 .model = "ab12"};
}

/* Every third round is evaluated. */
static fedge_round_summary seldom(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    if (round % 3 != 0)
        summary.loss = summary.accuracy = NAN;
    return summary;
}

/* Rounds 4 to 6 have diverged. */
static fedge_round_summary diverged(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    if (round >= 4 && round <= 6) {
        summary.loss = NAN;
        summary.accuracy = 0.0;
    }
    return summary;
}

static fedge_round_summary rich(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.train_loss = 0.7;
    summary.train_accuracy = 0.8;
    summary.validation = (fedge_validation){.present = true, .loss = 0.6, .accuracy = 0.7};
    summary.virtual_phase =
        (fedge_virtual_phase){true, 100.0, 100.0 * round, {1, 2, 3, 4}, {1, 1, 2, 2}};
    return summary;
}

static fedge_round_summary wild(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.loss = round == 5 ? 1e9 : 1.0;
    return summary;
}

/* The clients learn their data by heart, and the test loss rises. */
static fedge_round_summary overfitted(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.loss = 1.9 + 0.05 * round;
    summary.train_loss = 2.0 * pow(10.0, -0.5 * round);
    return summary;
}

/* All of it is right. */
static fedge_round_summary learnt(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.loss = pow(10.0, -0.3 * round);
    summary.train_loss = round == 10 ? 0.0 : pow(10.0, -1.0 * round);
    return summary;
}

/* A loss of real numbers. */
static fedge_round_summary regression(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.accuracy = NAN;
    summary.train_loss = 0.5;
    return summary;
}

/* Each round is evaluated on clients, and nothing else tells how good its model is. */
static fedge_round_summary on_clients(uint32_t phase)
{
    const uint32_t round = (phase + 1) / 2;
    fedge_round_summary summary = plain(round);
    if (phase % 2 == 0) {
        summary.kind = FEDGE_TASK_EVALUATE;
        summary.model[0] = '\0';
        return summary;
    }
    summary.train_loss = 0.7;
    summary.train_accuracy = 0.8;
    summary.loss = summary.accuracy = NAN;
    return summary;
}

/* On a test set as well. */
static fedge_round_summary on_both(uint32_t phase)
{
    fedge_round_summary summary = on_clients(phase);
    summary.loss = 1.0 / summary.round;
    summary.accuracy = 0.5;
    return summary;
}

static char *drawn(const char *title)
{
    uint8_t *text = NULL;
    size_t size = 0;
    if (fedge_plot_rounds(LOG, PICTURE, title, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(fedge_os_read_file(PICTURE, (size_t)4 << 20, &text, &size, &err), FEDGE_OK);
    assert_true(size > 7 && strcmp((char *)text + size - 7, "</svg>\n") == 0);
    assert_null(strstr((char *)text, "nan"));
    assert_null(strstr((char *)text, "inf"));
    return (char *)text;
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        count++;
    return count;
}

/* Moves of the pen in the [index]th path. */
static uint32_t moves_of(const char *text, uint32_t index)
{
    const char *at = text;
    uint32_t moves = 0;
    for (uint32_t i = 0; i <= index; i++) {
        at = strstr(at + 1, " d=\"");
        assert_non_null(at);
    }
    for (at += 4; *at != '"'; at++)
        moves += *at == 'M';
    return moves;
}

/* Counts have more digits than means. */
static fedge_round_summary huge(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.bytes_up = 12345678901;
    summary.bytes_down = 9007199254740991;
    summary.clamped = 1234567890123;
    summary.accuracy = 49.0 / 60.0; /* as it was, or a resumed run's means would be others */
    return summary;
}

/* Numbers are forecast: there is no accuracy, but errors on both sets. */
static fedge_round_summary forecast(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    const double errors[FEDGE_ERROR_METRICS] = {10.0 / (round + 2), 5.0, NAN, 0.1};
    summary.accuracy = NAN;
    summary.validation = (fedge_validation){.present = true, .loss = 0.6, .accuracy = NAN};
    fedge_metrics_set_errors(&summary.metrics, errors);
    fedge_metrics_set_errors(&summary.validation.metrics, errors);
    return summary;
}

static fedge_status keep(void *user, const fedge_round_summary *summary, fedge_error *error)
{
    fedge_round_summary **to = user;
    (void)error;
    *(*to)++ = *summary;
    return FEDGE_OK;
}

static void lines_are_read_back(void **state)
{
    (void)state;
    fedge_round_summary read[3], *to = read;
    write_log(LOG, 3, rich);
    assert_int_equal(fedge_round_lines_read(LOG, keep, &to, &err), FEDGE_OK);
    assert_ptr_equal(to, read + 3);
    assert_true(read[1].round == 2 && read[1].kind == FEDGE_TASK_TRAIN && read[1].reported == 3);
    assert_true(read[1].examples == 70 && read[1].bytes_up == 100000 && read[1].seconds == 0.5);
    assert_true(read[1].loss == 0.5 && read[1].accuracy == 0.75 && read[1].train_loss == 0.7);
    assert_true(read[1].validation.present && read[1].validation.accuracy == 0.7);
    assert_true(read[1].virtual_phase.present && read[1].virtual_phase.time == 200.0);
    assert_true(read[1].virtual_phase.asked[3] == 4 && read[1].virtual_phase.reported[2] == 2);
    assert_string_equal(read[1].model, "ab12");
    write_log(LOG, 1, huge);
    to = read;
    assert_int_equal(fedge_round_lines_read(LOG, keep, &to, &err), FEDGE_OK);
    assert_true(read[0].bytes_up == 12345678901 && read[0].bytes_down == 9007199254740991);
    assert_true(read[0].clamped == 1234567890123 && read[0].accuracy == 49.0 / 60.0);
    write_log(LOG, 1, seldom);
    to = read;
    assert_int_equal(fedge_round_lines_read(LOG, keep, &to, &err), FEDGE_OK);
    assert_true(isnan(read[0].loss) && isnan(read[0].accuracy));
    assert_false(read[0].validation.present || read[0].virtual_phase.present);
    write_log(LOG, 1, forecast);
    to = read;
    assert_int_equal(fedge_round_lines_read(LOG, keep, &to, &err), FEDGE_OK);
    assert_true(fedge_metrics_error(&read[0].metrics, FEDGE_ERROR_MAE) == 10.0 / 3.0);
    assert_true(isnan(fedge_metrics_error(&read[0].metrics, FEDGE_ERROR_R2)));
    assert_true(fedge_metrics_error(&read[0].validation.metrics, FEDGE_ERROR_MAPE) == 0.1);
    assert_int_equal(fedge_os_write_file(LOG, "{\"round\":1}\n[]\n", 15, 0600, &err), FEDGE_OK);
    to = read;
    assert_int_equal(fedge_round_lines_read(LOG, keep, &to, &err), FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "test_plot.jsonl:2: "));
}

static void a_run_has_its_panels(void **state)
{
    (void)state;
    write_log(LOG, 20, plain);
    char *text = drawn("a < b & c");
    assert_non_null(strstr(text, "a &lt; b &amp; c"));
    assert_int_equal(count_of(text, "<path"), PANELS + 1); /* up and down */
    assert_int_equal(count_of(text, ">bytes sent, up and down (MB)<"), 2);
    assert_int_equal(count_of(text, ">bytes sent (MB)<"), 1);
    assert_int_equal(count_of(text, ">accuracy (%)<"), 2);
    assert_int_equal(count_of(text, ">test set<"), 1);
    assert_int_equal(count_of(text, ">validation<") + count_of(text, ">while training<"), 0);
    /* 20 points in each, with dots. */
    assert_int_equal(count_of(text, "<circle"), 20 * (PANELS + 1));
    free(text);
}

static void forecasts_have_a_panel_of_errors(void **state)
{
    (void)state;
    write_log(LOG, 20, forecast);
    char *text = drawn("title");
    assert_int_equal(count_of(text, ">mean absolute error<"), 2);
    assert_int_equal(count_of(text, ">loss<"), 2);
    assert_int_equal(count_of(text, ">accuracy (%)<"), 0);
    free(text);
    write_log(LOG, 20, plain);
    text = drawn("title");
    assert_int_equal(count_of(text, ">mean absolute error<"), 0);
    free(text);
}

/* As many bytes up as down: the line above has gaps through which the other is seen. */
static void bytes_of_both_directions_are_seen(void **state)
{
    (void)state;
    write_log(LOG, 20, rich);
    char *text = drawn("title");
    static const char up[] = "stroke=\"#000000\" stroke-width=\"2.0\" stroke-dasharray=";
    static const char down[] = "stroke=\"#56b4e9\" stroke-width=\"2.0\" stroke-linejoin=";
    assert_int_equal(count_of(text, up), 2);
    assert_int_equal(count_of(text, down), 2);
    assert_int_equal(count_of(text, "stroke-dasharray"), 2 + 1); /* and in the legend */
    assert_int_equal(count_of(text, "r=\"1.5\" fill=\"#000000\""), 2 * 20);
    assert_int_equal(count_of(text, "r=\"2.5\" fill=\"#56b4e9\""), 2 * 20);
    assert_true(strstr(text, down) < strstr(text, up)); /* what comes later is above */
    free(text);
}

/* A round and its evaluation are one point of its bytes, and clients' own data are seen where
 * nothing else is evaluated. */
static void evaluations_on_clients_are_drawn_as_what_there_is(void **state)
{
    (void)state;
    static const char seen[] = "stroke=\"#0072b2\" stroke-width=\"2.0\" stroke-linejoin=";
    write_log(LOG, 40, on_clients);
    char *text = drawn("title");
    assert_int_equal(count_of(text, ">clients' own data<") + count_of(text, ">test set<"), 1);
    assert_int_equal(count_of(text, seen), 4);
    assert_int_equal(count_of(text, "stroke-opacity"), 0);
    assert_int_equal(count_of(text, "r=\"1.5\" fill=\"#000000\""), 20);
    assert_int_equal(count_of(text, "r=\"2.5\" fill=\"#56b4e9\""), 20);
    free(text);
    write_log(LOG, 40, on_both);
    text = drawn("title");
    assert_int_equal(count_of(text, seen), 4); /* the test set */
    assert_int_equal(count_of(text, "stroke-opacity"), 4);
    assert_int_equal(count_of(text, "r=\"1.5\" fill=\"#000000\""), 20);
    free(text);
}

static void simulated_time_has_a_column(void **state)
{
    (void)state;
    write_log(LOG, 20, rich);
    char *text = drawn("title");
    assert_int_equal(count_of(text, "<path"), 2 * (3 + 3 + 2));
    assert_int_equal(count_of(text, ">simulated time (min)<"), 3); /* 2,000 s */
    assert_int_equal(count_of(text, "up and down"), 0);
    assert_int_equal(count_of(text, ">validation<") + count_of(text, ">while training<"), 2);
    free(text);
}

/* Rounds without an evaluation do not interrupt a line; what is not finite does. */
static void only_divergence_leaves_a_gap(void **state)
{
    (void)state;
    write_log(LOG, 30, seldom);
    char *text = drawn("title");
    assert_int_equal(moves_of(text, 0), 1);
    assert_int_equal(count_of(text, "<circle"), 10 * 4 + 2 * 30);
    free(text);
    write_log(LOG, 10, diverged);
    text = drawn("title");
    assert_int_equal(moves_of(text, 0), 1); /* accuracy is 0 there */
    assert_int_equal(moves_of(text, 2), 2); /* loss is not known */
    free(text);
}

static void one_round_or_none_can_be_drawn(void **state)
{
    (void)state;
    write_log(LOG, 1, plain);
    char *text = drawn("title");
    assert_int_equal(count_of(text, "<circle"), PANELS + 1);
    free(text);
    write_log(LOG, 0, plain);
    free(drawn("title"));
}

/* A page of a long run is about as large as one of a run as long as a panel is wide. */
static void long_runs_are_thinned(void **state)
{
    (void)state;
    write_log(LOG, 20000, rich);
    char *text = drawn("title");
    assert_int_equal(count_of(text, "<path"), 2 * (3 + 3 + 2));
    assert_true(strlen(text) < (size_t)2 * 8 * 410 * 4 * 14);
    free(text);
}

/* Where the dots of [colour] stand on the page. */
static uint32_t heights_of(const char *text, const char *colour, double *heights, uint32_t room)
{
    char fill[32];
    uint32_t count = 0;
    (void)snprintf(fill, sizeof(fill), " fill=\"%s\"", colour);
    for (const char *at = text; (at = strstr(at, "<circle ")) != NULL; at++) {
        const char *end = strchr(at, '>'), *here = strstr(at, fill);
        if (here && here < end && count < room)
            heights[count++] = strtod(strstr(at, "cy=\"") + 4, NULL);
    }
    return count;
}

/* However far values are apart, each is in its panel, the first of which begins below y = 60. */
static void all_is_within_the_axes(const char *text, uint32_t points)
{
    double least = INFINITY, most = 0.0;
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, "<circle ")) != NULL; at++, count++) {
        const double y = strtod(strstr(at, "cy=\"") + 4, NULL);
        least = fmin(least, y);
        most = fmax(most, y);
    }
    assert_int_equal(count, points);
    assert_true(least > 60.0 && most < 900.0);
}

static void a_rising_test_loss_is_seen_above_a_small_training_loss(void **state)
{
    (void)state;
    double test[4 * 20], training[4 * 20];
    write_log(LOG, 20, overfitted);
    char *text = drawn("title");
    assert_int_equal(count_of(text, ">loss<"), 2);
    all_is_within_the_axes(text, 20 * (2 * 2 + 2 + 2)); /* of training no accuracy */
    assert_int_equal(heights_of(text, "#0072b2", test, 80), 80);
    assert_int_equal(heights_of(text, "#d55e00", training, 80), 40);
    /* Of the 170 pixels the rise takes a good part: panels are drawn one after another. */
    assert_true(test[2 * 20] - test[2 * 20 + 19] > 40.0);
    assert_true(training[19] - test[2 * 20 + 19] > 150.0);
    free(text);
}

static void wild_values_stay_in_their_panels(void **state)
{
    (void)state;
    write_log(LOG, 10, wild);
    char *text = drawn("title");
    assert_int_equal(count_of(text, ">loss<"), 2);
    assert_int_equal(count_of(text, ">1e+09<"), 2);
    all_is_within_the_axes(text, 10 * (PANELS + 1));
    free(text);
    write_log(LOG, 10, learnt);
    text = drawn("title");
    assert_int_equal(count_of(text, ">loss<"), 2);
    all_is_within_the_axes(text, 10 * (PANELS + 1 + 2));
    free(text);
}

/* Light as an eye without the green receptors sees it (Viénot, Brettel and Mollon 1999), or, with
 * [normal], as others do. */
static void seen(const char *colour, bool normal, double to[3])
{
    double rgb[3];
    const unsigned long value = strtoul(colour + 1, NULL, 16);
    for (int i = 0; i < 3; i++)
        rgb[i] = pow((double)(value >> (16 - 8 * i) & 0xff) / 255.0, 2.2);
    const double yellow = 0.29275 * rgb[0] + 0.70725 * rgb[1];
    to[0] = pow(normal ? rgb[0] : yellow, 1 / 2.2);
    to[1] = pow(normal ? rgb[1] : yellow, 1 / 2.2);
    to[2] =
        pow(normal ? rgb[2] : fmax(0.0, -0.02234 * rgb[0] + 0.02234 * rgb[1] + rgb[2]), 1 / 2.2);
}

static double colour_distance(const char *a, const char *b, bool normal)
{
    double x[3], y[3], sum = 0.0;
    seen(a, normal, x);
    seen(b, normal, y);
    for (int i = 0; i < 3; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

/* Lines of one dash differ in colour for everybody, others in their dash. */
static void curves_can_be_told_apart(void **state)
{
    (void)state;
    enum { LINES = 5 };
    char colours[LINES][8], dashes[LINES][32];
    write_log(LOG, 2, rich);
    char *text = drawn("title");
    const char *at = text; /* the legend has a sample of each */
    for (uint32_t i = 0; i < LINES; i++) {
        at = strstr(at, " stroke=\"#");
        assert_non_null(at);
        (void)snprintf(colours[i], sizeof(colours[i]), "%s", at + 9);
        at = strstr(at, "stroke-width=\"3\"");
        assert_non_null(at);
        (void)snprintf(dashes[i], sizeof(dashes[i]), "%.31s", at + 16);
        *strchr(dashes[i], '>') = '\0';
    }
    for (uint32_t i = 0; i < LINES; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const bool same = strcmp(dashes[i], dashes[k]) == 0;
            const double least = fmin(colour_distance(colours[i], colours[k], true),
                                      colour_distance(colours[i], colours[k], false));
            if (same && least < 0.2)
                fail_msg("%s and %s are as good as one: %.2f", colours[i], colours[k], least);
        }
    }
    free(text);
}

static void losses_of_real_numbers_stand_alone(void **state)
{
    (void)state;
    write_log(LOG, 5, regression);
    char *page = drawn("title");
    assert_int_equal(count_of(page, ">accuracy (%)<"), 0);
    assert_int_equal(count_of(page, ">loss<"), 2);
    assert_int_equal(count_of(page, ">bytes sent (MB)<"), 1);
    assert_int_equal(count_of(page, "<path"), 2 * 2 + 2);
    free(page);
}

/* Units: the largest that leaves a number of them. */
static void axes_have_units(void **state)
{
    (void)state;
    static const struct {
        fedge_chart_unit unit;
        double x;
        const char *label;
    } CASES[] = {{FEDGE_CHART_SECONDS, 179, ">t (s)<"},   {FEDGE_CHART_SECONDS, 181, ">t (min)<"},
                 {FEDGE_CHART_SECONDS, 20000, ">t (h)<"}, {FEDGE_CHART_SECONDS, 3e5, ">t (d)<"},
                 {FEDGE_CHART_BYTES, 999, ">t (B)<"},     {FEDGE_CHART_BYTES, 1001, ">t (kB)<"},
                 {FEDGE_CHART_BYTES, 3e9, ">t (GB)<"},    {FEDGE_CHART_COUNT, 1e9, ">t<"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const fedge_chart_point points[] = {{0.0, 1.0}, {CASES[i].x, 2.0}};
        const fedge_chart_line line = {
            .points = points, .count = 2, .colour = "#000", .thickness = 1.0};
        const fedge_chart chart = {.width = 400,
                                   .height = 100,
                                   .x_label = "t",
                                   .y_label = "y",
                                   .x_unit = CASES[i].unit,
                                   .lines = &line,
                                   .num_lines = 1};
        fedge_buffer out;
        fedge_buffer_init(&out, 65536);
        assert_int_equal(fedge_chart_draw(&out, &chart, &err), FEDGE_OK);
        if (!strstr((char *)out.data, CASES[i].label))
            fail_msg("%g: no %s", CASES[i].x, CASES[i].label);
        fedge_buffer_fini(&out);
    }
}

/* Names may have any bytes; XML may not. */
static void texts_are_xml(void **state)
{
    (void)state;
    static const struct {
        const char *text, *written;
    } CASES[] = {
        {"a]]>b & <c>", ">a]]&gt;b &amp; &lt;c&gt;<"},
        {"\x01\t\x7f", ">?\?\x7f<"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", ">\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80<"},
        {"\xff \xc3 \xc0\x80", ">? ? ?\?<"},
        {"\xed\xa0\x80 \xef\xbf\xbf", ">?\?\? ?\?\?<"},
        {"\xf4\x90\x80\x80", ">?\?\?\?<"},
        {"\xe2\x82", ">?\?<"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        fedge_buffer out;
        fedge_buffer_init(&out, 4096);
        assert_int_equal(fedge_svg_text(&out, 0, 0, "label", "start", CASES[i].text, &err),
                         FEDGE_OK);
        assert_int_equal(fedge_buffer_append(&out, "", 1, &err), FEDGE_OK);
        if (!strstr((char *)out.data, CASES[i].written))
            fail_msg("case %zu: %s", i, (char *)out.data);
        fedge_buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read_back),
        cmocka_unit_test(a_run_has_its_panels),
        cmocka_unit_test(forecasts_have_a_panel_of_errors),
        cmocka_unit_test(bytes_of_both_directions_are_seen),
        cmocka_unit_test(evaluations_on_clients_are_drawn_as_what_there_is),
        cmocka_unit_test(simulated_time_has_a_column),
        cmocka_unit_test(only_divergence_leaves_a_gap),
        cmocka_unit_test(one_round_or_none_can_be_drawn),
        cmocka_unit_test(long_runs_are_thinned),
        cmocka_unit_test(a_rising_test_loss_is_seen_above_a_small_training_loss),
        cmocka_unit_test(wild_values_stay_in_their_panels),
        cmocka_unit_test(curves_can_be_told_apart),
        cmocka_unit_test(losses_of_real_numbers_stand_alone),
        cmocka_unit_test(axes_have_units),
        cmocka_unit_test(texts_are_xml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
