#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/experiment/options.h"
#include "tests/aggregator/command_line.h"

static fedge_status parse(const char *line, fedge_simulate_options *options, fedge_error *err)
{
    int argc = 0;
    char **argv = command_line("fedge-simulate", line, &argc);
    return fedge_simulate_options_parse(argc, argv, options, err);
}

static void defaults(void **state)
{
    (void)state;
    fedge_simulate_options options;
    fedge_error err;
    assert_int_equal(parse("--job j", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_RUN);
    assert_string_equal(options.job, "j");
    assert_null(options.data);
    assert_null(options.out);
    assert_null(options.partition);
    assert_false(fedge_client_profiles_is_wanted(&options.profiles));
    assert_int_equal(options.evaluate_every, 1);
    assert_int_equal(options.client_accuracy, 10000);
    assert_null(options.accumulator);
    assert_string_equal(options.backend, "cpu");
    assert_true(options.validation_split == 0.0);
    assert_int_equal(options.num_clients + options.num_threads + options.num_rounds, 0);
    assert_false(options.has_seed || options.has_partition_seed || options.resume ||
                 options.quiet || options.json);
}

static void everything(void **state)
{
    (void)state;
    fedge_simulate_options options;
    fedge_error err;
    assert_int_equal(
        parse("--job j --data d --clients 1000 --partition shards:2 --partition-seed 9 "
              "--seed 0 --rounds 7 --threads 3 --evaluate-every 5 "
              "--target 0.5,0.75,1 --stop-at-target --owner who --compute fixed:9 --bandwidth "
              "fixed:8/fixed:7 "
              "--failure 0.25 --validation-split 0.1 --client-accuracy 0 "
              "--trace t --availability 0.5,9 --engine auto --accumulator auto --gpus 1 --shard "
              "clients "
              "--out o --resume --quiet --json",
              &options, &err),
        FEDGE_OK);
    assert_string_equal(options.data, "d");
    assert_string_equal(options.partition, "shards:2");
    assert_string_equal(options.owner, "who");
    assert_string_equal(options.out, "o");
    assert_int_equal(options.num_clients, 1000);
    assert_int_equal(options.num_rounds, 7);
    assert_int_equal(options.num_threads, 3);
    assert_string_equal(options.accumulator, "auto");
    assert_string_equal(options.backend, "auto");
    assert_int_equal(options.sums.num_gpus, 1);
    assert_int_equal(options.sums.gpus[0], 1);
    assert_int_equal(options.sums.shard, FEDGE_SHARD_CLIENTS);
    assert_int_equal(options.evaluate_every, 5);
    assert_true(options.has_seed && options.seed == 0);
    assert_true(options.has_partition_seed && options.partition_seed == 9);
    assert_string_equal(options.profiles.compute, "fixed:9");
    assert_string_equal(options.profiles.bandwidth, "fixed:8/fixed:7");
    assert_true(options.profiles.failure == 0.25);
    assert_string_equal(options.profiles.trace, "t");
    assert_string_equal(options.profiles.availability, "0.5,9");
    assert_int_equal(options.num_targets, 3);
    assert_true(options.targets[0] == 0.5 && options.targets[1] == 0.75 &&
                options.targets[2] == 1.0);
    assert_true(options.stop_at_target);
    assert_true(options.validation_split == 0.1 && options.client_accuracy == 0);
    assert_true(options.resume && options.quiet && options.json);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } cases[] = {{"", "--job is missing"},
                 {"--nonsense", "unknown option '--nonsense'"},
                 {"--job", "a value is missing for '--job'"},
                 {"--job j extra", "'extra' is not an option"},
                 {"--job j --clients 0", "--clients must be a number from 1 to 16777216, not '0'"},
                 {"--job j --clients 1e3", "not '1e3'"},
                 {"--job j --threads 257", "--threads must be a number from 1 to 256"},
                 {"--job j --seed 9007199254740992", "--seed must be a number from 0 to"},
                 {"--job j --seed -1", "not '-1'"},
                 {"--job j --stop-at-target", "needs --target"},
                 {"--job j --target 75", "over 0 and up to 1"},
                 {"--job j --target 0.5,", "not '0.5,'"},
                 {"--job j --target nan", "not 'nan'"},
                 {"--job j --target 0.5,0.75,0.50", "0.5 is given twice"},
                 {"--job j --failure 1", "--failure must be from 0 to below 1"},
                 {"--job j --failure 5%", "not '5%'"},
                 {"--job j --validation-split 1", "--validation-split must be from 0 to below 1"},
                 {"--job j --client-accuracy -1", "--client-accuracy must be a number from 0"},
                 {"--job j --evaluate-every 0", "--evaluate-every must be a number from 1"},
                 {"--job j --resume", "--resume needs --out DIR"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_simulate_options options;
        fedge_error err;
        assert_int_equal(parse(cases[i].line, &options, &err), FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("'%s': \"%s\" has no \"%s\"", cases[i].line, err.message, cases[i].message);
    }
}

static void trainers_of_ones_own_have_their_data(void **state)
{
    (void)state;
    static const char *const REFUSED[] = {"--data d", "--partition iid", "--engine auto",
                                          "--attack label-flip:1"};
    fedge_simulate_options options;
    fedge_error err;
    char line[128];
    assert_int_equal(parse("--job j --clients 9 --trainer t", &options, &err), FEDGE_OK);
    assert_string_equal(options.trainer, "t");
    assert_int_equal(parse("--job j --clients 9 --trainer-channels 5,17", &options, &err),
                     FEDGE_OK);
    assert_int_equal(options.num_trainer_channels, 2);
    assert_int_equal(options.trainer_channels[1], 17);
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        (void)snprintf(line, sizeof(line), "--job j --clients 9 --trainer t %s", REFUSED[i]);
        assert_int_equal(parse(line, &options, &err), FEDGE_INVALID_ARGUMENT);
    }
    assert_int_equal(parse("--job j --clients 9 --trainer t --sweep seeds=2 --resume --out o "
                           "--compute fixed:9",
                           &options, &err),
                     FEDGE_OK);
    assert_int_equal(
        parse("--job j --clients 9 --trainer-channels 5 --sweep seeds=2", &options, &err),
        FEDGE_INVALID_ARGUMENT);
    assert_int_equal(parse("--job j --trainer t", &options, &err), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(parse("--job j --trainer-channels 5,x", &options, &err),
                     FEDGE_INVALID_ARGUMENT);
}

static void folders_are_compared(void **state)
{
    (void)state;
    fedge_simulate_options options;
    fedge_error err;
    assert_int_equal(parse("compare a --out p.csv b --json", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_COMPARE);
    assert_int_equal(options.num_dirs, 2);
    assert_string_equal(options.dirs[0], "a");
    assert_string_equal(options.dirs[1], "b");
    assert_string_equal(options.out, "p.csv");
    assert_true(options.json && !options.each);
    assert_int_equal(parse("compare a --each", &options, &err), FEDGE_OK);
    assert_true(options.each);
    assert_int_equal(parse("compare", &options, &err), FEDGE_INVALID_ARGUMENT);
    /* What is no table may be something else of somebody's. */
    static const char *const others[] = {"a/summary.json", "csv", ".csv", "p.csv/", "p.csv.png"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char line[64];
        (void)snprintf(line, sizeof(line), "compare a --out %s", others[i]);
        assert_int_equal(parse(line, &options, &err), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "--out must be a name that ends in .csv, not '"));
        assert_non_null(strstr(err.message, others[i]));
    }
    assert_int_equal(parse("compare a --job j", &options, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(
        strstr(err.message, "unknown option '--job' (see fedge-simulate compare --help)"));
    assert_int_equal(parse("compare --help", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_COMPARE_HELP);
}

static void help_fits_a_screen(void **state)
{
    (void)state;
    int lines = 0, column = 0;
    char help[FEDGE_HELP_SIZE];
    for (const char *at = fedge_simulate_options_help(false, help); *at; at++) {
        column = *at == '\n' ? 0 : column + 1;
        lines += *at == '\n';
        assert_true(column <= 80);
    }
    assert_true(lines <= 24);
    fedge_simulate_options options;
    fedge_error err;
    assert_int_equal(parse("--help --nonsense", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_HELP);
    assert_int_equal(parse("--help-all", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_HELP_ALL);
    assert_non_null(strstr(fedge_simulate_options_help(true, help), "--bandwidth D[/D]"));
    assert_int_equal(parse("--version", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_SIMULATE_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(everything),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(trainers_of_ones_own_have_their_data),
        cmocka_unit_test(folders_are_compared),
        cmocka_unit_test(help_fits_a_screen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
