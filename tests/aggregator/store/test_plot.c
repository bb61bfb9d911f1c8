#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/chart.h"
#include "aggregator/store/plot.h"
#include "aggregator/store/round_lines.h"
#include "aggregator/store/round_log.h"
#include "aggregator/store/svg.h"
#include "edge/core/os.h"

#define LOG "test_plot.jsonl"
#define OTHER "test_plot_other.jsonl"
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
    if (round % 3 != 0) {
        summary.loss = summary.accuracy = NAN;
    }
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
    summary.validation = (fedge_validation){true, 0.6, 0.7};
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

/* A loss of real numbers. */
static fedge_round_summary regression(uint32_t round)
{
    fedge_round_summary summary = plain(round);
    summary.accuracy = NAN;
    summary.train_loss = 0.5;
    return summary;
}

static char *drawn(const char *title)
{
    uint8_t *text = NULL;
    size_t size = 0;
    if (fedge_plot_rounds(LOG, PICTURE, title, &err) != FEDGE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(fedge_os_read_file(PICTURE, (size_t)4 << 20, &text, &size, &err), FEDGE_OK);
    assert_true(size > 7 && strcmp((char *)text + size - 7, "</svg>\n") == 0);
    assert_null(strstr((char *)text, "nan"));
    assert_null(strstr((char *)text, "inf"));
    return (char *)text;
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++) {
        count++;
    }
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
    for (at += 4; *at != '"'; at++) {
        moves += *at == 'M';
    }
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

/* As many bytes up as down: the line above has gaps through which the other is seen. */
static void bytes_of_both_directions_are_seen(void **state)
{
    (void)state;
    write_log(LOG, 20, rich);
    char *text = drawn("title");
    static const char up[] = "stroke=\"#862e9c\" stroke-width=\"2.0\" stroke-dasharray=";
    static const char down[] = "stroke=\"#0b7285\" stroke-width=\"2.0\" stroke-linejoin=";
    assert_int_equal(count_of(text, up), 2);
    assert_int_equal(count_of(text, down), 2);
    assert_int_equal(count_of(text, "stroke-dasharray"), 2 + 1); /* and in the legend */
    assert_int_equal(count_of(text, "r=\"1.5\" fill=\"#862e9c\""), 2 * 20);
    assert_int_equal(count_of(text, "r=\"2.5\" fill=\"#0b7285\""), 2 * 20);
    assert_true(strstr(text, down) < strstr(text, up)); /* what comes later is above */
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

static void wild_values_are_cut_off(void **state)
{
    (void)state;
    write_log(LOG, 10, wild);
    char *text = drawn("title");
    assert_int_equal(count_of(text, ">loss, cut off above<"), 2);
    assert_int_equal(count_of(text, "<circle"), 10 * (PANELS + 1) - 2);
    free(text);
}

static void runs_stand_side_by_side(void **state)
{
    (void)state;
    static const char *const logs[] = {LOG, OTHER, LOG, LOG, LOG, LOG, LOG, LOG, LOG, LOG, LOG};
    static const char *const names[] = {"one",   "two",   "three", "four", "five",  "six",
                                        "seven", "eight", "nine",  "ten",  "eleven"};
    uint8_t *text = NULL;
    size_t size = 0;
    write_log(LOG, 20, rich);
    for (int timed = 0; timed < 2; timed++) {
        write_log(OTHER, 10, timed ? rich : plain);
        assert_int_equal(fedge_plot_runs(logs, names, 2, PICTURE, "both", &err), FEDGE_OK);
        assert_int_equal(fedge_os_read_file(PICTURE, (size_t)4 << 20, &text, &size, &err),
                         FEDGE_OK);
        assert_int_equal(count_of((char *)text, "<path"), timed ? 12 : 8);
        assert_int_equal(count_of((char *)text, ">simulated time (min)<"), timed ? 2 : 0);
        assert_int_equal(count_of((char *)text, ">two<"), 1);
        free(text);
    }
    assert_int_equal(fedge_plot_runs(logs, names, 11, PICTURE, "all", &err), FEDGE_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "1 to 10"));
}

/* No panel for an accuracy that no run has; one that has it keeps the row for all. */
static void losses_of_real_numbers_stand_alone(void **state)
{
    (void)state;
    static const char *const logs[] = {LOG, OTHER}, *const names[] = {"one", "two"};
    uint8_t *text = NULL;
    size_t size = 0;
    write_log(LOG, 5, regression);
    char *page = drawn("title");
    assert_int_equal(count_of(page, ">accuracy (%)<"), 0);
    assert_int_equal(count_of(page, ">loss<"), 2);
    assert_int_equal(count_of(page, ">bytes sent (MB)<"), 1);
    assert_int_equal(count_of(page, "<path"), 2 * 2 + 2);
    free(page);
    for (int mixed = 0; mixed < 2; mixed++) {
        write_log(OTHER, 5, mixed ? plain : regression);
        assert_int_equal(fedge_plot_runs(logs, names, 2, PICTURE, "both", &err), FEDGE_OK);
        assert_int_equal(fedge_os_read_file(PICTURE, (size_t)4 << 20, &text, &size, &err),
                         FEDGE_OK);
        assert_int_equal(count_of((char *)text, ">accuracy (%)<"), mixed ? 2 : 0);
        assert_int_equal(count_of((char *)text, ">loss<"), 2);
        free(text);
    }
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
        const fedge_chart_line line = {points, 2, "#000", 1.0, false, false};
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
        if (!strstr((char *)out.data, CASES[i].label)) {
            fail_msg("%g: no %s", CASES[i].x, CASES[i].label);
        }
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
        if (!strstr((char *)out.data, CASES[i].written)) {
            fail_msg("case %zu: %s", i, (char *)out.data);
        }
        fedge_buffer_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read_back),
        cmocka_unit_test(a_run_has_its_panels),
        cmocka_unit_test(bytes_of_both_directions_are_seen),
        cmocka_unit_test(simulated_time_has_a_column),
        cmocka_unit_test(only_divergence_leaves_a_gap),
        cmocka_unit_test(one_round_or_none_can_be_drawn),
        cmocka_unit_test(long_runs_are_thinned),
        cmocka_unit_test(wild_values_are_cut_off),
        cmocka_unit_test(runs_stand_side_by_side),
        cmocka_unit_test(losses_of_real_numbers_stand_alone),
        cmocka_unit_test(axes_have_units),
        cmocka_unit_test(texts_are_xml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
