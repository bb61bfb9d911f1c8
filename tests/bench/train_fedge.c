/* fedge's half of train.sh: for each line "SECONDS" on stdin, trains on random examples for that
 * long and prints "SAMPLES_PER_S RESIDENT_BYTES MODEL_BYTES". Usage: train_fedge CASE BATCH
 * [KERNELS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/train/model.h"

#define SEED 1

static void add_conv(fedge_model_spec *spec, uint32_t in, uint32_t out, uint32_t kernel,
                     uint32_t padding)
{
    spec->layers[spec->num_layers++] =
        (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                           .u.conv2d = {.in_channels = in,
                                        .out_channels = out,
                                        .kernel_size = {kernel, kernel},
                                        .stride = {1, 1},
                                        .padding = {padding, padding},
                                        .bias = true}};
    spec->layers[spec->num_layers++] = (fedge_layer_spec){.type = FEDGE_LAYER_RELU};
    spec->layers[spec->num_layers++] =
        (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {.kernel_size = {2, 2}}};
}

static void add_linear(fedge_model_spec *spec, uint32_t in, uint32_t out, bool relu)
{
    spec->layers[spec->num_layers++] =
        (fedge_layer_spec){.type = FEDGE_LAYER_LINEAR,
                           .u.linear = {.in_features = in, .out_features = out, .bias = true}};
    if (relu) {
        spec->layers[spec->num_layers++] = (fedge_layer_spec){.type = FEDGE_LAYER_RELU};
    }
}

/* The same three as in train_pytorch.py. */
static int make_spec(const char *name, fedge_model_spec *spec)
{
    *spec = (fedge_model_spec){.input_rank = 3, .input_shape = {1, 28, 28}};
    const bool mcmahan = strcmp(name, "mcmahan-cnn") == 0;
    if (strcmp(name, "2nn") == 0) {
        spec->layers[spec->num_layers++] = (fedge_layer_spec){.type = FEDGE_LAYER_FLATTEN};
        add_linear(spec, 784, 200, true);
        add_linear(spec, 200, 200, true);
        add_linear(spec, 200, 10, false);
    } else if (mcmahan || strcmp(name, "quickstart-cnn") == 0) {
        add_conv(spec, 1, mcmahan ? 32 : 16, mcmahan ? 5 : 3, mcmahan ? 2 : 1);
        add_conv(spec, mcmahan ? 32 : 16, mcmahan ? 64 : 32, mcmahan ? 5 : 3, mcmahan ? 2 : 1);
        spec->layers[spec->num_layers++] = (fedge_layer_spec){.type = FEDGE_LAYER_FLATTEN};
        add_linear(spec, mcmahan ? 3136 : 1568, mcmahan ? 512 : 64, true);
        add_linear(spec, mcmahan ? 512 : 64, 10, false);
    } else {
        return -1;
    }
    return 0;
}

static unsigned disabled_features(const char *kernels)
{
    return strcmp(kernels, "scalar") == 0 ? ~0u
           : strcmp(kernels, "avx2") == 0 ? FEDGE_CPU_AVX512
                                          : 0;
}

/* Sixteen batches, used in turn, as a real data set would not stay in the first-level cache. */
#define NUM_BATCHES 16

static void measure(fedge_model *model, const float *x, const int32_t *labels, uint32_t batch,
                    double seconds, size_t model_bytes)
{
    fedge_error err = {0};
    const fedge_sgd sgd = {.learning_rate = 0.01f};
    const uint64_t start = fedge_os_monotonic_ns();
    uint64_t steps = 0, now = start;
    while ((double)(now - start) < seconds * 1e9) {
        double loss_sum;
        uint32_t correct;
        const size_t at = steps % NUM_BATCHES * batch;
        if (fedge_model_step(model, x + at * 784, labels + at, batch, &sgd, &loss_sum, &correct,
                             &err) != FEDGE_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        steps++;
        now = fedge_os_monotonic_ns();
    }
    printf("%.1f %llu %zu\n", (double)(steps * batch) / ((double)(now - start) * 1e-9),
           (unsigned long long)fedge_os_resident_bytes(), model_bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    fedge_error err = {0};
    fedge_model_memory memory;
    fedge_model *model;
    static fedge_model_spec spec;
    static fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_schema schema;
    const uint32_t batch = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (batch == 0 || make_spec(argv[1], &spec) != 0) {
        fprintf(stderr, "usage: train_fedge quickstart-cnn|2nn|mcmahan-cnn BATCH [KERNELS]\n");
        return 2;
    }
    const fedge_model_options options = {.max_batch = batch,
                                         .training = true,
                                         .disabled_cpu_features =
                                             disabled_features(argc > 3 ? argv[3] : "best")};
    fedge_schema_init(&schema, tensors, FEDGE_MAX_TENSORS);
    if (fedge_model_schema(&spec, &schema, &err) != FEDGE_OK ||
        fedge_model_size(&spec, &options, &memory, &err) != FEDGE_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const size_t count = (size_t)NUM_BATCHES * batch;
    void *block = aligned_alloc(64, memory.total);
    float *x = malloc(count * 784 * sizeof *x);
    int32_t *labels = malloc(count * sizeof *labels);
    if (block == NULL || x == NULL || labels == NULL ||
        fedge_model_new(&model, &spec, &options, block, memory.total, &err) != FEDGE_OK ||
        fedge_model_init_values(&spec, &schema, SEED, fedge_model_values(model), &err) !=
            FEDGE_OK) {
        fprintf(stderr, "cannot set up: %s\n", err.message);
        return 1;
    }
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < count * 784; i++) {
        x[i] = fedge_rng_float(&rng);
    }
    for (size_t i = 0; i < count; i++) {
        labels[i] = (int32_t)fedge_rng_below(&rng, 10);
    }
    fprintf(stderr, "kernels: %s\n", fedge_model_kernels(model));
    double seconds;
    while (scanf("%lf", &seconds) == 1) {
        measure(model, x, labels, batch, seconds, memory.total);
    }
    free(labels);
    free(x);
    free(block);
    return 0;
}
