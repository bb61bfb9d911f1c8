#define _POSIX_C_SOURCE 200809L
/* A sweep on GPUs: its runs are trained together, and each gets the model that it gets alone. */
#include "aggregator/simulate/sweep/sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POINTS_FILE "sweep-cuda-points.csv"
#include "tests/aggregator/command_line.h"
#include "tests/aggregator/simulate/run/fixture.h"
#include "tests/cuda/emulator/emulator.h"

#define ALONE "sweep-cuda-alone"
#define BESIDE "sweep-cuda-beside"
#define JOB CLASSIFIER(2)
#define OPTIONS                                                                                    \
    "--job job.json --data sweep-cuda-client.json --partition dirichlet:0.5 --clients 6 --quiet "  \
    "--threads 2 "

static const char *engine = "cuda";

static int set_up_files(void **state)
{
    write_text("sweep-cuda-client.json",
               "{\"data\":{\"points\":{\"values\":\"" POINTS_FILE "\"}}}");
    return set_up(state);
}

/* On a machine of its own; returns how many runs had rounds. */
static uint32_t sweep_it(const char *words, const emulator_config *machine)
{
    int argc = 0;
    char all[512];
    (void)snprintf(all, sizeof(all), "%s --engine %s", words, engine);
    char **argv = command_line("fedge-simulate", all, &argc);
    fedge_simulate_options options;
    fedge_sweep *sweep = NULL;
    fedge_error err;
    emulator_start(machine);
    assert_int_equal(fedge_simulate_options_parse(argc, argv, &options, &err), FEDGE_OK);
    if (fedge_sweep_new(&options, NULL, JOB, strlen(JOB), &sweep, &err) != FEDGE_OK ||
        fedge_sweep_run(sweep, NULL, NULL, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const uint32_t done = fedge_sweep_num_done(sweep) - fedge_sweep_num_unable(sweep);
    fedge_sweep_free(sweep);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return done;
}

/* The hash in the summary of [within]/[name]. */
static void read_model(const char *within, const char *name, char hash[80])
{
    char path[FEDGE_OS_MAX_PATH], *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/summary.json", within, name);
    assert_int_equal(fedge_os_read_file(path, 1 << 20, (uint8_t **)&text, &size, NULL), FEDGE_OK);
    assert_non_null(strstr(text, "\"ending\":\"complete\""));
    const char *at = strstr(text, "\"model_sha256\":\"");
    assert_non_null(at);
    memcpy(hash, at, 79);
    hash[79] = '\0';
    free(text);
}

/* [memory] of the GPU. */
static void compare(size_t memory)
{
    static const char *const RATES[] = {"0.05", "0.1", "0.2"};
    const emulator_config machine = {.num_gpus = 1, .memory_bytes = memory};
    char first[80], second[80];
    assert_int_equal(fedge_os_remove_tree(ALONE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(BESIDE, NULL), FEDGE_OK);
    assert_int_equal(sweep_it(OPTIONS "--out " BESIDE " --sweep lr=0.05,0.1,0.2 seeds=2", &machine),
                     6);
    for (uint32_t i = 0; i < 3; i++) {
        char words[300], name[64];
        (void)snprintf(words, sizeof(words), OPTIONS "--out " ALONE " --sweep lr=%s seeds=1",
                       RATES[i]);
        assert_int_equal(sweep_it(words, &(emulator_config){.num_gpus = 1}), 1);
        (void)snprintf(name, sizeof(name), "lr=%s,seed=1", RATES[i]);
        read_model(ALONE, name, first);
        read_model(BESIDE, name, second);
        assert_string_equal(first, second);
        (void)snprintf(name, sizeof(name), "lr=%s,seed=2", RATES[i]);
        read_model(BESIDE, name, second);
        assert_string_not_equal(first, second);
    }
    assert_int_equal(fedge_os_remove_tree(ALONE, NULL), FEDGE_OK);
    assert_int_equal(fedge_os_remove_tree(BESIDE, NULL), FEDGE_OK);
}

static void runs_beside_others_are_the_same(void **state)
{
    (void)state;
    compare(0);
}

/* Where one run fits and the models of six do not, they take turns. */
static void too_little_memory_for_all_does_not_show(void **state)
{
    (void)state;
    emulator_config machine = {.num_gpus = 1, .memory_bytes = 4 << 10};
    while (sweep_it(OPTIONS "--sweep lr=0.1 seeds=1", &machine) == 0)
        machine.memory_bytes += 256;
    compare(machine.memory_bytes);
}

/* Standard error of what is done, in place of the test's. */
static char told[4096];

static uint32_t sweep_and_listen(const char *words, const emulator_config *machine)
{
    FILE *to = tmpfile();
    const int kept = dup(STDERR_FILENO);
    assert_true(to && kept >= 0 && dup2(fileno(to), STDERR_FILENO) >= 0);
    const uint32_t done = sweep_it(words, machine);
    (void)fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0 && close(kept) == 0);
    rewind(to);
    told[fread(told, 1, sizeof(told) - 1, to)] = '\0';
    assert_int_equal(fclose(to), 0);
    return done;
}

/* With "auto" the runs of a sweep are joined as with "cuda", where all can be. */
static void auto_trains_together_where_it_can(void **state)
{
    (void)state;
    static const char *const SWEPT = OPTIONS "--sweep lr=0.05,0.1 seeds=2";
    const emulator_config machine = {.num_gpus = 1, .fail_at = "step_all"};
    engine = "auto";
    assert_int_equal(sweep_and_listen(SWEPT, &machine), 4);
    assert_true(emulator_counted() > 0);
    assert_string_equal(told, "fedge-simulate: --engine auto is cuda: the runs are trained "
                              "together\n");
    assert_int_equal(sweep_and_listen(SWEPT, &(emulator_config){.num_gpus = 0}), 4);
    assert_non_null(strstr(told, "fedge-simulate: --engine auto is cpu: no GPU is found"));
    const emulator_config small = {.num_gpus = 1, .memory_bytes = 4 << 10};
    assert_int_equal(sweep_and_listen(SWEPT, &small), 4);
    assert_non_null(strstr(told, "fedge-simulate: --engine auto is cpu: GPU 0 has 0 MiB free, "));
    assert_int_equal(sweep_and_listen(OPTIONS "--sweep strategy=FedAvg,QFedAvg seeds=1", &machine),
                     2);
    assert_non_null(strstr(told, "--engine auto is another for some runs, which take turns: "));
    engine = "cuda";
}

/* Which engine fits is known with the data, when runs begin: in each size of memory all end. */
static void auto_takes_the_cpu_where_data_do_not_fit(void **state)
{
    (void)state;
    emulator_config machine = {.num_gpus = 1, .memory_bytes = 3 << 10};
    uint32_t found_late = 0;
    engine = "auto";
    do {
        machine.memory_bytes += 512;
        assert_int_equal(sweep_and_listen(OPTIONS "--sweep lr=0.05,0.1", &machine), 2);
        if (strstr(told, "--engine auto is cuda: ") && strstr(told, ": --engine auto is cpu: ")) {
            if (!strstr(
                    told,
                    "fedge-simulate: lr=0.05,seed=1: --engine auto is cpu: GPU 0 has 0 MiB free, "))
                fail_msg("%s", told);
            assert_non_null(strstr(told, "fedge-simulate: lr=0.1,seed=1: --engine auto is cpu: "));
            found_late++;
        }
    } while (strstr(told, "is cpu: "));
    assert_true(found_late > 0);
    engine = "cuda";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_beside_others_are_the_same),
        cmocka_unit_test(auto_trains_together_where_it_can),
        cmocka_unit_test(auto_takes_the_cpu_where_data_do_not_fit),
        cmocka_unit_test(too_little_memory_for_all_does_not_show),
    };
    return cmocka_run_group_tests(tests, set_up_files, NULL);
}
