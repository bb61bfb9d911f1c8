#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/progress.h"

static char *text;
static size_t size;

static fedge_progress start(bool terminal)
{
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    return (fedge_progress){.out = out, .terminal = terminal, .num_rounds = 10};
}

static void end(fedge_progress *progress)
{
    fclose(progress->out);
    free(text);
}

static const fedge_round_summary round_3 = {.kind = FEDGE_TASK_TRAIN,
                                            .round = 3,
                                            .asked = 9,
                                            .reported = 8,
                                            .accuracy = 0.86125,
                                            .loss = 0.25,
                                            .bytes_up = 397400,
                                            .bytes_down = 1830000,
                                            .seconds = 1.5};

static void rounds_are_lines(void **state)
{
    (void)state;
    fedge_progress progress = start(false);
    fedge_progress_round(&progress, &round_3);
    assert_string_equal(text,
                        "       round  accuracy     loss   clients        up      down  seconds\n"
                        "        3/10    86.12%   0.2500       8/9    397 kB   1.83 MB     1.50\n");
    size_t before = size;
    fedge_round_summary validated = round_3;
    validated.accuracy = validated.loss = NAN;
    validated.validation = (fedge_validation){.present = true, .loss = 0.5, .accuracy = 0.75};
    fedge_progress_round(&progress, &validated);
    assert_string_equal(text + before,
                        "        3/10    75.00%   0.5000       8/9    397 kB   1.83 MB     1.50\n");
    before = size;
    validated = round_3; /* a loss of real numbers: no accuracy, and no need for the validation's */
    validated.accuracy = NAN;
    validated.validation = (fedge_validation){.present = true, .loss = 0.5, .accuracy = NAN};
    fedge_progress_round(&progress, &validated);
    assert_string_equal(text + before,
                        "        3/10         -   0.2500       8/9    397 kB   1.83 MB     1.50\n");
    before = size;
    fedge_round_summary evaluation = {
        .kind = FEDGE_TASK_EVALUATE, .round = 3, .accuracy = NAN, .loss = NAN};
    fedge_progress_round(&progress, &evaluation);
    assert_string_equal(text + before,
                        "   eval 3/10         -        -       0/0       0 B       0 B     0.00\n");
    end(&progress);
}

static void bar_only_on_a_terminal(void **state)
{
    (void)state;
    fedge_progress progress = start(false);
    fedge_progress_draw(&progress, 5, "round 6, training");
    fflush(progress.out);
    assert_int_equal(size, 0);
    end(&progress);

    progress = start(true);
    fedge_progress_draw(&progress, 5, "round 6, training");
    assert_non_null(strstr(text, "[##########..........] 5/10  round 6, training"));
    size_t drawn = size;
    fedge_progress_draw(&progress, 5, "round 6, training"); /* nothing new */
    assert_int_equal(size, drawn);
    fedge_progress_round(&progress, &round_3); /* in place of the bar */
    assert_memory_equal(text + drawn, "\r\033[K", 4);
    drawn = size;
    fedge_progress_draw(&progress, 5, "round 6, training");
    assert_true(size > drawn);
    drawn = size;
    fedge_progress_clear(&progress);
    assert_string_equal(text + drawn, "\r\033[K");
    drawn = size;
    fedge_progress_clear(&progress);
    assert_int_equal(size, drawn);
    end(&progress);
}

static void bytes_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},           {999, "999 B"},          {1000, "1.00 kB"},
                 {9994, "9.99 kB"},    {9996, "10.0 kB"},       {99940, "99.9 kB"},
                 {99960, "100 kB"},    {999400, "999 kB"},      {999600, "1.00 MB"},
                 {1830000, "1.83 MB"}, {UINT64_MAX, "18447 PB"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[FEDGE_BYTES_TEXT];
        assert_string_equal(fedge_bytes_text(cases[i].bytes, out), cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_are_lines),
        cmocka_unit_test(bar_only_on_a_terminal),
        cmocka_unit_test(bytes_have_three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
