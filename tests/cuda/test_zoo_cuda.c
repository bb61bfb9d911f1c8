/* Five rounds of each job of examples/zoo on an emulated GPU and on the CPU: the same model but for
 * rounding. The models are whole, the clients few, with an example or two each. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/simulate/run/simulation.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/long.h"

#define ZOO FEDGE_SOURCE_DIR "/examples/zoo/"
#define EXAMPLES_FILE "zoo-cuda-examples.csv"

/* Of parameters, beside the largest. */
#define BOUND 2e-5

enum { CLIENTS = 2, ROUNDS = 5 };

static void write_examples(const fedge_data_spec *data, uint32_t count)
{
    FILE *file = fopen(EXAMPLES_FILE, "w");
    fedge_rng rng = fedge_rng_stream(6, FEDGE_PURPOSE_TEST, 11, 0, 0);
    size_t values = 1;
    assert_non_null(file);
    for (uint32_t i = 0; i < data->rank; i++)
        values *= data->shape[i];
    for (uint32_t i = 0; i < count; i++) {
        for (size_t v = 0; v < values; v++) { /* words of texts are below 80 */
            if (data->dtype == FEDGE_U8)
                fprintf(file, "%u,", fedge_rng_below(&rng, data->rank == 1 ? 80 : 256));
            else
                fprintf(file, "%.4g,", fedge_rng_normal(&rng));
        }
        fprintf(file, "%u\n", i % data->num_labels);
    }
    fclose(file);
}

/* As it is, but for the number of rounds and clients, and an update that rounds nothing. */
static fedge_job *read_job(const char *name)
{
    char path[FEDGE_OS_MAX_PATH], *text = NULL;
    size_t size = 0;
    fedge_job *job = NULL;
    fedge_error err;
    (void)snprintf(path, sizeof(path), ZOO "%s.json", name);
    assert_int_equal(fedge_os_read_file(path, 1 << 16, (uint8_t **)&text, &size, &err), FEDGE_OK);
    char *codec = strstr(text, "\"int8\"");
    assert_non_null(codec);
    memcpy(codec, "\"none\"", 6);
    if (fedge_strategy_job_parse(text, size, path, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    job->rounds.num_server_rounds = ROUNDS;
    job->rounds.min_train_nodes = job->rounds.min_available_nodes = CLIENTS;
    job->rounds.fraction_evaluate = 0.0;
    job->test_set.present = false;
    free(text);
    return job;
}

/* *values: malloc'ed; returns how many. */
static size_t train(const char *name, uint32_t each, const char *backend, float **values)
{
    fedge_client_data *client_data = NULL;
    fedge_simulation *simulation = NULL;
    fedge_error err;
    fedge_job *job = read_job(name);
    fedge_site_data data = {.name = "zoo", .values = EXAMPLES_FILE, .has_partition = true};
    write_examples(&job->plan.data, CLIENTS * each);
    (void)snprintf(data.name, sizeof(data.name), "%s", job->plan.data.name);
    assert_int_equal(fedge_partition_parse("iid", &data.partition, &err), FEDGE_OK);
    if (fedge_client_data_new(&job->plan, &data, 0.0, CLIENTS, &client_data, &err) != FEDGE_OK)
        fail_msg("%s: %s", name, err.message);
    emulator_start(
        &(emulator_config){.num_gpus = 1, .order = EMULATOR_RANDOM, .unprotected = true});
    const fedge_simulation_config config = {.job = job,
                                            .client_data = client_data,
                                            .backend = backend,
                                            .num_threads = 1,
                                            .rounds_only = true,
                                            .no_hashes = true,
                                            .evaluate_every = ROUNDS};
    if (fedge_simulation_new(&config, &simulation, &err) != FEDGE_OK ||
        fedge_simulation_run(simulation, &err) != FEDGE_OK)
        fail_msg("%s: %s", name, err.message);
    const size_t count = job->plan.schema.num_elements;
    *values = malloc(count * sizeof(**values));
    assert_non_null(*values);
    memcpy(*values, fedge_simulation_model(simulation)->values, count * sizeof(**values));
    fedge_simulation_free(simulation);
    fedge_client_data_free(client_data);
    fedge_job_free(job);
    if (emulator_fault())
        fail_msg("%s: %s", name, emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return count;
}

static void compare(const char *name, uint32_t each)
{
    float *cpu = NULL, *gpu = NULL;
    double largest = 0.0, most = 0.0;
    const clock_t start = clock();
    const size_t count = train(name, each, "cpu", &cpu);
    assert_int_equal(train(name, each, "cuda", &gpu), count);
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)cpu[i]));
        most = fmax(most, fabs((double)cpu[i] - (double)gpu[i]));
    }
    free(cpu);
    free(gpu);
    if (!(most <= BOUND * largest && most > 0.0))
        fail_msg("%s: a value is %g from the CPU's, of at most %g", name, most, largest);
    print_message("%s: %.1f s of CPU\n", name, (double)(clock() - start) / CLOCKS_PER_SEC);
}

/* In every run those that take no more than 3 s. The seconds are of CPU, as they are printed, on
 * one of two cores with other work on both; with one client transformer-small would take half, but
 * what AdamW makes of one example's rounding is over the bound. */
static void five_rounds_are_near_the_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t each;
        bool is_long;
    } ZOO_JOBS[] = {{"2nn", 2, false},                /* 1.2 s */
                    {"lenet-5", 2, false},            /* 1.6 s */
                    {"gru-sensors", 1, false},        /* 1.0 s */
                    {"mcmahan-cnn", 1, true},         /* 12.1 s */
                    {"char-lstm", 1, true},           /* 13.4 s */
                    {"transformer-small", 1, true},   /* 4.2 s */
                    {"mobilenet-small", 1, true},     /* 7.3 s */
                    {"resnet-8-groupnorm", 1, true}}; /* 8.6 s */
    for (uint32_t i = 0; i < sizeof(ZOO_JOBS) / sizeof(*ZOO_JOBS); i++) {
        if (!ZOO_JOBS[i].is_long || fedge_test_is_long())
            compare(ZOO_JOBS[i].name, ZOO_JOBS[i].each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_rounds_are_near_the_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
