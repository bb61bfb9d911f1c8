#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "aggregator/program/options.h"
#include "tests/aggregator/command_line.h"

static fedge_status parse(const char *line, fedge_options *options, fedge_error *err)
{
    int argc = 0;
    char **argv = command_line("fedge-aggregator", line, &argc);
    return fedge_options_parse(argc, argv, options, err);
}

#define NEEDED "--job j --state s --identity i --trust t --registry r "

static void defaults(void **state)
{
    (void)state;
    fedge_options options;
    fedge_error err;
    assert_int_equal(parse(NEEDED, &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_OPTIONS_RUN);
    assert_string_equal(options.job, "j");
    assert_string_equal(options.state, "s");
    assert_string_equal(options.identity, "i");
    assert_string_equal(options.trust, "t");
    assert_string_equal(options.registry, "r");
    assert_string_equal(options.listen.host, "0.0.0.0");
    assert_int_equal(options.listen.port, 9092);
    assert_true(options.http_on);
    assert_string_equal(options.http.host, "127.0.0.1");
    assert_int_equal(options.http.port, 9093);
    assert_int_equal(options.num_workers, 0);
    assert_int_equal(options.num_network_threads, 0);
    assert_int_equal(options.max_connections, FEDGE_DEFAULT_CONNECTIONS);
    assert_int_equal(options.max_unauthenticated, FEDGE_DEFAULT_UNAUTHENTICATED);
    assert_int_equal(options.max_per_address, FEDGE_DEFAULT_PER_ADDRESS);
    assert_int_equal(options.log_level, FEDGE_LOG_INFO);
    assert_false(options.new_run || options.restored || options.drain || options.quiet ||
                 options.json || options.log_json);
    assert_null(options.port_file);
}

static void everything(void **state)
{
    (void)state;
    fedge_options options;
    fedge_error err;
    assert_int_equal(
        parse(NEEDED "--listen [::1]:0 --http=off --workers 3 --max-connections 10 "
                     "--network-threads 5 "
                     "--new-run --restored --drain --port-file p --log-level debug --log-json "
                     "--json --http-host box.example --max-unauthenticated 7 "
                     "--max-per-address 5 --accumulator auto --gpus 3,0 --shard coordinates "
                     "--join mpi "
                     "--supervise",
              &options, &err),
        FEDGE_OK);
    assert_string_equal(options.listen.host, "::1");
    assert_int_equal(options.listen.port, 0);
    assert_false(options.http_on);
    assert_int_equal(options.num_workers, 3);
    assert_int_equal(options.num_network_threads, 5);
    assert_int_equal(options.max_connections, 10);
    assert_int_equal(options.max_unauthenticated, 7);
    assert_int_equal(options.max_per_address, 5);
    assert_true(options.new_run && options.restored && options.drain);
    assert_true(options.json && options.log_json);
    assert_string_equal(options.port_file, "p");
    assert_string_equal(options.http_host, "box.example");
    assert_int_equal(options.log_level, FEDGE_LOG_DEBUG);
    assert_string_equal(options.accumulator, "auto");
    assert_int_equal(options.sums.num_gpus, 2);
    assert_int_equal(options.sums.gpus[0], 3);
    assert_int_equal(options.sums.gpus[1], 0);
    assert_int_equal(options.sums.shard, FEDGE_SHARD_COORDINATES);
    assert_string_equal(options.sums.join, "mpi");
    assert_null(options.gpus_file);
    assert_true(options.supervise);
}

static void gpus_come_from_a_file(void **state)
{
    (void)state;
    fedge_options options;
    fedge_error err;
    assert_int_equal(parse(NEEDED "--gpus all --gpus-file f", &options, &err), FEDGE_OK);
    assert_int_equal(options.sums.num_gpus, 0);
    assert_string_equal(options.gpus_file, "f");
}

static void quiet_lowers_the_level(void **state)
{
    (void)state;
    fedge_options options;
    fedge_error err;
    assert_int_equal(parse(NEEDED "--quiet", &options, &err), FEDGE_OK);
    assert_true(options.quiet);
    assert_int_equal(options.log_level, FEDGE_LOG_WARN);
    assert_int_equal(parse(NEEDED "--quiet --log-level error", &options, &err), FEDGE_OK);
    assert_int_equal(options.log_level, FEDGE_LOG_ERROR);
}

static void actions(void **state)
{
    (void)state;
    fedge_options options;
    fedge_error err;
    assert_int_equal(parse("--help", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_OPTIONS_HELP);
    assert_int_equal(parse("--version --nonsense", &options, &err), FEDGE_OK);
    assert_int_equal(options.action, FEDGE_OPTIONS_VERSION);
    assert_int_equal(
        parse("--check-config --job j --identity i --trust t --registry r", &options, &err),
        FEDGE_OK); /* needs no state directory */
    assert_int_equal(options.action, FEDGE_OPTIONS_CHECK);
}

static void mistakes(void **state)
{
    (void)state;
    const struct {
        const char *line, *said;
    } cases[] = {
        {"", "--job is missing"},
        {"--job j", "--state is missing"},
        {"--job j --state s --identity i --trust t", "--registry is missing"},
        {NEEDED "--listen", "a value is missing for '--listen'"},
        {NEEDED "--nonsense", "unknown option '--nonsense'"},
        {NEEDED "word", "'word' is not an option"},
        {NEEDED "--accumulator abacus",
         "there is no accumulator \"abacus\"; this build has auto, "},
        {NEEDED "--accumulator cpu --gpus 0", "need --accumulator cuda or auto"},
        {NEEDED "--accumulator cpu --shard clients", "need --accumulator cuda or auto"},
        {NEEDED "--accumulator cpu --gpus-file f", "need --accumulator cuda or auto"},
        {NEEDED "--gpus 0 --gpus-file f", "give one of them"},
        {NEEDED "--gpus 0,", "with commas between them"},
        {NEEDED "--gpus ,0", "with commas between them"},
        {NEEDED "--gpus 1x", "with commas between them"},
        {NEEDED "--gpus -1", "with commas between them"},
        {NEEDED "--gpus 256", "with commas between them"},
        {NEEDED "--gpus 2,1,2", "GPU 2 is named twice"},
        {NEEDED "--shard both", "not by \"both\""},
        {NEEDED "--join pipes", "nothing joins sums by \"pipes\"; this build has auto, mpi"},
        {NEEDED "--listen 9092", "--listen: '9092' is not ADDRESS:PORT"},
        {NEEDED "--listen :9092", "--listen: ':9092' is not ADDRESS:PORT"},
        {NEEDED "--listen 0.0.0.0:", "the port must be a number"},
        {NEEDED "--listen 0.0.0.0:65536", "the port must be a number"},
        {NEEDED "--listen 0.0.0.0:-1", "the port must be a number"},
        {NEEDED "--listen 0.0.0.0:9092x", "the port must be a number"},
        {NEEDED "--listen ::1:9092", "IPv6 address goes in brackets"},
        {NEEDED "--http of", "--http: 'of' is not ADDRESS:PORT"},
        {NEEDED "--http 0.0.0.0:9092", "the same address"},
        {NEEDED "--workers 0", "--workers must be a number from 1 to 64"},
        {NEEDED "--workers 65", "--workers must be"},
        {NEEDED "--network-threads 0", "--network-threads must be a number from 1 to 64"},
        {NEEDED "--network-threads 65", "--network-threads must be"},
        {NEEDED "--workers many", "--workers must be"},
        {NEEDED "--workers 99999999999999999999", "--workers must be"},
        {NEEDED "--max-connections 1000001", "--max-connections must be"},
        {NEEDED "--log-level loud", "loud"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_options options;
        fedge_error err = {0};
        assert_int_equal(parse(cases[i].line, &options, &err), FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, cases[i].said))
            fail_msg("'%s' says '%s', not '%s'", cases[i].line, err.message, cases[i].said);
    }
}

static void help_fits_a_screen(void **state)
{
    (void)state;
    size_t lines = 0;
    char help[FEDGE_HELP_SIZE];
    for (const char *at = fedge_options_help(false, help); *at; lines++) {
        size_t width = strcspn(at, "\n");
        assert_true(width <= 80);
        assert_true(at[width] == '\n');
        at += width + 1;
    }
    assert_true(lines <= 24);
    assert_null(strstr(help, "--gpus-file"));
    assert_non_null(strstr(fedge_options_help(true, help), "--gpus-file FILE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(everything),
        cmocka_unit_test(gpus_come_from_a_file),
        cmocka_unit_test(quiet_lowers_the_level),
        cmocka_unit_test(actions),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(help_fits_a_screen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
