/* Samples that a GPU trains with in a second, many clients side by side.
 *
 *     bench_cohort [--tiny]
 *
 * A row of JSON for each model, batch size and number of clients at once, beside one core of the
 * CPU; copies of examples, the clients' starts and what they have become are in the time. ratio > 1
 * is better than the peer. --tiny: sizes for emulated GPUs, to see that it runs. Exit code 3: there
 * is no GPU. */
#define _GNU_SOURCE /* clock_gettime */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/cohort.h"
#include "edge/train/model.h"

enum { MAX_REPEATS = 5, CLASSES = 10, MAX_CLIENTS = 256, SIDE = 28 };

static uint32_t examples_each = 600, most_clients = MAX_CLIENTS;
static int repeats = MAX_REPEATS;
static uint8_t *images;
static int32_t *labels;
static uint32_t *places;
static float *start;
static fedge_cohort_task tasks[MAX_CLIENTS];
static uint32_t num_clients, next_task;

static _Noreturn void fail(const char *doing, const char *why)
{
    fprintf(stderr, "bench_cohort: %s: %s\n", doing, why);
    exit(1);
}

static void must(fedge_status status, const char *doing, const fedge_error *err)
{
    if (status != FEDGE_OK)
        fail(doing, err->message);
}

static void *take(size_t size)
{
    void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!memory)
        fail("taking memory", "there is none");
    return memory;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fedge_layer_spec linear(uint32_t in, uint32_t out)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_LINEAR,
                              .u.linear = {.in_features = in, .out_features = out, .bias = true}};
}

static uint32_t add(fedge_model_spec *spec, fedge_layer_spec layer)
{
    spec->layers[spec->num_layers] = layer;
    return spec->num_layers++;
}

/* McMahan et al. 2017: 2NN with 200 hidden units, and the CNN of 1,663,370 parameters. */
static void make_2nn(fedge_model_spec *spec, uint32_t hidden)
{
    *spec = (fedge_model_spec){.input_rank = 1, .input_shape = {SIDE * SIDE}};
    (void)add(spec, linear(SIDE * SIDE, hidden));
    (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_RELU});
    (void)add(spec, linear(hidden, hidden));
    (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_RELU});
    (void)add(spec, linear(hidden, CLASSES));
}

static void make_cnn(fedge_model_spec *spec, uint32_t channels, uint32_t hidden)
{
    *spec = (fedge_model_spec){.input_rank = 3, .input_shape = {1, SIDE, SIDE}};
    for (uint32_t i = 0; i < 2; i++) {
        (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                                           .u.conv2d = {.in_channels = i == 0 ? 1 : channels,
                                                        .out_channels = channels << i,
                                                        .kernel_size = {5, 5},
                                                        .stride = {1, 1},
                                                        .padding = {2, 2},
                                                        .bias = true}});
        (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_RELU});
        (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D,
                                           .u.maxpool2d = {.kernel_size = {2, 2}}});
    }
    (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_FLATTEN});
    (void)add(spec, linear(2 * channels * (SIDE / 4) * (SIDE / 4), hidden));
    (void)add(spec, (fedge_layer_spec){.type = FEDGE_LAYER_RELU});
    (void)add(spec, linear(hidden, CLASSES));
}

/* ---- the CPU ----------------------------------------------------------------------------------
 */

static fedge_status read_images(void *user, const uint32_t *indices, uint32_t n, uint32_t num_next,
                                float *x, int32_t *to, fedge_error *err)
{
    (void)user;
    (void)num_next;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        to[i] = labels[indices[i]];
        for (uint32_t p = 0; p < SIDE * SIDE; p++)
            x[i * SIDE * SIDE + p] = (float)images[indices[i] * SIDE * SIDE + p] / 255.0f;
    }
    return FEDGE_OK;
}

/* Samples a second of one core. */
static double train_on_cpu(const fedge_model_spec *spec, const fedge_model_options *options,
                           const fedge_trainer_config *training)
{
    fedge_model_memory memory;
    fedge_model *model = NULL;
    fedge_trainer_result result;
    fedge_error err;
    const fedge_examples examples = {
        .num_examples = examples_each, .read = read_images, .finite = true};
    must(fedge_model_size(spec, options, &memory, &err), "planning", &err);
    const size_t room = fedge_trainer_scratch_size(spec, examples_each, training->batch_size);
    void *block = take(memory.total), *scratch = take(room);
    const fedge_trainer_workspace workspace = {.scratch = scratch, .scratch_size = room};
    must(fedge_model_new(&model, spec, options, block, memory.total, &err), "planning", &err);
    fedge_model_load(model, start);
    const double begin = now();
    must(fedge_trainer_run(model, &examples, training, &workspace, &result, &err), "training",
         &err);
    const double seconds = now() - begin;
    free(block);
    free(scratch);
    return (double)result.num_seen / seconds;
}

/* ---- the GPU ----------------------------------------------------------------------------------
 */

static fedge_cohort_task *next(void *user)
{
    (void)user;
    return next_task < num_clients ? &tasks[next_task++] : NULL;
}

static void done(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    if (!values)
        fail("training", task->error.message);
}

static void measure(const char *name, const fedge_model_spec *spec, uint32_t batch)
{
    const fedge_model_options options = {.max_batch = batch, .training = true};
    const fedge_trainer_config training = {.seed = 1,
                                           .round = 1,
                                           .local_epochs = 1,
                                           .batch_size = batch,
                                           .optimizer = {.learning_rate = 0.01f}};
    fedge_error err;
    const double cpu = train_on_cpu(spec, &options, &training);
    for (num_clients = most_clients > 16 ? most_clients / 16 : 1; num_clients <= most_clients;
         num_clients *= 4) {
        const fedge_cohort_config config = {
            .model = spec,
            .options = &options,
            .sets = {{images, labels, most_clients * examples_each}},
            .dtype = FEDGE_U8,
            .divide_by = 255.0f,
            .most_slots = num_clients};
        const fedge_cohort_member member = {.start = start, .training = &training};
        const fedge_cohort_work work = {
            .members = &member, .num_members = 1, .next = next, .done = done};
        fedge_cohort *cohort = NULL;
        double rates[MAX_REPEATS];
        must(fedge_cohort_new(&config, &cohort, &err), "opening", &err);
        for (int r = -1; r < repeats; r++) {
            next_task = 0;
            const double begin = now();
            must(fedge_cohort_run(cohort, &work, &err), "training", &err);
            if (r >= 0)
                rates[r] = (double)num_clients * examples_each / (now() - begin);
        }
        qsort(rates, (size_t)repeats, sizeof(*rates), by_value);
        printf("{\"bench\":\"gpu\",\"case\":\"train %s, B=%u, %u clients at once\",\"value\":%.6g,"
               "\"unit\":\"samples/s\",\"peer\":\"fedge, one core\",\"peer_value\":%.6g,"
               "\"ratio\":%.4g}\n",
               name, batch, fedge_cohort_slots(cohort), rates[repeats / 2], cpu,
               rates[repeats / 2] / cpu);
        fflush(stdout);
        fedge_cohort_free(cohort);
    }
}

int main(int argc, char **argv)
{
    static fedge_model_spec nn, cnn;
    const bool tiny = argc == 2 && strcmp(argv[1], "--tiny") == 0;
    uint32_t there = 0;
    fedge_error err;
    if (argc > 1 && !tiny) {
        fprintf(stderr, "bench_cohort: '%s' is not --tiny\n", argv[1]);
        return 2;
    }
    if (fedge_cohort_count_gpus(&there, &err) != FEDGE_OK) {
        fprintf(stderr, "bench_cohort: %s\n", err.message);
        return 3;
    }
    examples_each = tiny ? 3 : examples_each;
    most_clients = tiny ? 4 : most_clients;
    repeats = tiny ? 1 : repeats;
    make_2nn(&nn, tiny ? 3 : 200);
    make_cnn(&cnn, tiny ? 1 : 32, tiny ? 3 : 512);
    const size_t count = (size_t)most_clients * examples_each;
    images = take(count * SIDE * SIDE);
    labels = take(count * sizeof(*labels));
    places = take(count * sizeof(*places));
    start = take((size_t)2000000 * sizeof(*start));
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < count * SIDE * SIDE; i++)
        images[i] = (uint8_t)fedge_rng_u32(&rng);
    for (uint32_t i = 0; i < count; i++) {
        labels[i] = (int32_t)fedge_rng_below(&rng, CLASSES);
        places[i] = i;
    }
    for (uint32_t c = 0; c < most_clients; c++) {
        tasks[c] = (fedge_cohort_task){.examples = places + (size_t)c * examples_each,
                                       .num_examples = examples_each,
                                       .client_index = c};
    }
    const uint32_t batches[] = {tiny ? 2 : 10, 32};
    for (int i = 0; i < (tiny ? 1 : 2); i++) {
        fedge_model_init_values(&nn, 1, start);
        measure("2NN", &nn, batches[i]);
        fedge_model_init_values(&cnn, 1, start);
        measure("CNN", &cnn, batches[i]);
    }
    free(images);
    free(labels);
    free(places);
    free(start);
    return 0;
}
