#include "aggregator/simulate/experiment/experiment.h"

#include <stdlib.h>

#define POINTS_FILE "experiment-points.csv"
#include "edge/core/os.h"
#include "tests/aggregator/command_line.h"
#include "tests/aggregator/simulate/run/fixture.h"

#define OUT "simulate-experiment"
#define JOB CLASSIFIER(3)

static int set_up_files(void **state)
{
    write_text("experiment-client.json",
               "{\"data\":{\"points\":{\"values\":\"" POINTS_FILE "\"}}}");
    return set_up(state);
}

static char *read_text(const char *path)
{
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_os_read_file(path, 1 << 20, &text, &size, &err), FEDGE_OK);
    return (char *)text;
}

/* Ctrl-C once all rounds have ended: in what comes after them. */
static bool is_behind_the_rounds(void *user)
{
    const uint32_t *rounds = user;
    uint8_t *text = NULL;
    size_t size = 0;
    uint32_t lines = 0;
    if (fedge_os_read_file(OUT "/rounds.jsonl", 1 << 20, &text, &size, NULL) == FEDGE_OK) {
        for (size_t i = 0; i < size; i++)
            lines += text[i] == '\n';
    }
    free(text);
    return lines >= *rounds;
}

static fedge_status run(const char *words, bool resume, uint32_t interrupt_at, const char *ending)
{
    int argc = 0;
    char **argv = command_line("fedge-simulate", words, &argc);
    fedge_simulate_options options;
    fedge_experiment self;
    fedge_error err;
    assert_int_equal(fedge_simulate_options_parse(argc, argv, &options, &err), FEDGE_OK);
    const fedge_experiment_config config = {.options = &options,
                                            .job_text = JOB,
                                            .job_size = strlen(JOB),
                                            .out = OUT,
                                            .summary = true,
                                            .resume = resume,
                                            .cancel = is_behind_the_rounds,
                                            .cancel_user = &interrupt_at};
    fedge_status status = fedge_experiment_init(&self, &config, &err);
    if (status == FEDGE_OK) {
        status = fedge_experiment_run(&self, &err);
        assert_string_equal(self.ending, ending);
    }
    fedge_experiment_fini(&self);
    return status;
}

#define OPTIONS "--job job.json --data experiment-client.json --clients 6 --partition iid"

/* With clients to look at and without: what is interrupted says so, and --resume does the rest. */
static void the_last_evaluation_is_interrupted(void **state)
{
    (void)state;
    static const char *const words[] = {OPTIONS, OPTIONS " --client-accuracy 0",
                                        OPTIONS " --target 0.01 --stop-at-target"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const uint32_t rounds = i == 2 ? 1 : 3;
        assert_int_equal(fedge_os_remove_tree(OUT, NULL), FEDGE_OK);
        assert_int_equal(run(words[i], false, rounds, "interrupted"), FEDGE_CANCELLED);
        char *summary = read_text(OUT "/summary.json");
        assert_non_null(strstr(summary, "\"ending\":\"interrupted\""));
        assert_non_null(strstr(summary, "\"per_client_accuracy\":null"));
        free(summary);
        assert_int_equal(run(words[i], true, UINT32_MAX, i == 2 ? "target" : "complete"), FEDGE_OK);
        summary = read_text(OUT "/summary.json");
        assert_null(strstr(summary, "interrupted"));
        assert_true((i == 1) == (strstr(summary, "\"per_client_accuracy\":null") != NULL));
        free(summary);
    }
    assert_int_equal(fedge_os_remove_tree(OUT, NULL), FEDGE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_evaluation_is_interrupted),
    };
    return cmocka_run_group_tests(tests, set_up_files, NULL);
}
