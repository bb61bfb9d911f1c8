/* fedge's half of train.sh: train_fedge JOB BATCH [WAY [KERNELS]]
 *
 * Makes the job's model and prints "KERNELS FLOP_PER_EXAMPLE MODEL_BYTES". Then, for each line
 * "SECONDS" on stdin, trains as the job says on random examples for that long and prints
 * "EXAMPLES_PER_S PEAK_BYTES"; seconds are of CPU time, which other programs on the core do not
 * stretch. WAY: "fp32" (the default), "dense" (layer by layer, where no gradient is skipped because
 * it is 0) or "bf16". KERNELS: "scalar", "avx2" or "best" (the default).
 *
 * train_fedge peak SECONDS prints "FLOP_PER_S READ_BYTES_PER_S", the core's own limits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/plan/plan.h"
#include "edge/train/flops.h"
#include "tests/bench/train_peak.h"

#define SEED 1

/* Sixteen batches, used in turn, as a real data set would not stay in the first-level cache. */
#define NUM_BATCHES 16

typedef struct bench {
    fedge_job *job;
    fedge_model *model;
    fedge_model_memory memory;
    void *block;
    float *x;
    int32_t *labels;
    uint32_t batch;
    size_t steps;
} bench;

static unsigned disabled_features(const char *kernels)
{
    return strcmp(kernels, "scalar") == 0 ? ~0u
           : strcmp(kernels, "avx2") == 0 ? FEDGE_CPU_AVX512
                                          : 0;
}

/* Most memory that the process has had (VmHWM); 0 when it cannot be told. */
static unsigned long long peak_bytes(void)
{
    unsigned long long kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "VmHWM: %llu", &kilobytes) == 1)
            break;
    }
    if (file)
        (void)fclose(file);
    return kilobytes * 1024;
}

static fedge_status make_model(bench *self, const char *kernels, const char *way, fedge_error *err)
{
    fedge_plan *plan = &self->job->plan;
    plan->training.batch_size = self->batch;
    fedge_model_options options = fedge_plan_model_options(plan);
    options.disabled_cpu_features = disabled_features(kernels);
    options.general = strcmp(way, "dense") == 0;
    options.precision = strcmp(way, "bf16") == 0 ? FEDGE_PRECISION_BF16 : FEDGE_PRECISION_FP32;
    fedge_status status = fedge_model_size(&plan->model, &options, &self->memory, err);
    if (status != FEDGE_OK)
        return status;
    self->block = aligned_alloc(64, self->memory.total);
    if (!self->block)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu bytes", self->memory.total);
    fedge_os_large_pages(self->block, self->memory.total); /* as clients and the simulator do */
    status =
        fedge_model_new(&self->model, &plan->model, &options, self->block, self->memory.total, err);
    if (status != FEDGE_OK)
        return status;
    fedge_model_init_values(&plan->model, SEED, fedge_model_values(self->model));
    fedge_model_reset_optimizer(self->model);
    return status;
}

/* Uniform examples: in [0, 1), or whole numbers where the first layer is an Embedding. */
static fedge_status make_examples(bench *self, fedge_error *err)
{
    const fedge_model_spec *spec = &self->job->plan.model;
    const size_t count = (size_t)NUM_BATCHES * self->batch;
    const size_t values = count * fedge_model_input_count(spec);
    self->x = malloc(values * sizeof(*self->x));
    self->labels = malloc(count * sizeof(*self->labels));
    if (!self->x || !self->labels)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu examples", count);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < values; i++) {
        const fedge_layer_spec *first = &spec->layers[0];
        self->x[i] = first->type == FEDGE_LAYER_EMBEDDING
                         ? (float)fedge_rng_below(&rng, first->u.embedding.num_embeddings)
                         : fedge_rng_float(&rng);
    }
    for (size_t i = 0; i < count; i++)
        self->labels[i] = (int32_t)fedge_rng_below(&rng, fedge_model_num_classes(spec));
    return FEDGE_OK;
}

static fedge_status measure(bench *self, double seconds, fedge_error *err)
{
    fedge_optimizer optimizer = self->job->plan.training.optimizer;
    const size_t example_size = fedge_model_input_count(&self->job->plan.model);
    const clock_t start = clock();
    uint64_t steps = 0;
    double spent = 0;
    optimizer.learning_rate = self->job->plan.training.learning_rate;
    while (spent < seconds) {
        double loss_sum;
        uint32_t correct;
        const size_t at = self->steps++ % NUM_BATCHES * self->batch;
        const fedge_status status =
            fedge_model_step(self->model, self->x + at * example_size, self->labels + at,
                             self->batch, &optimizer, &loss_sum, &correct, err);
        if (status != FEDGE_OK)
            return status;
        steps++;
        spent = (double)(clock() - start) / CLOCKS_PER_SEC;
    }
    printf("%.1f %llu\n", (double)(steps * self->batch) / spent, peak_bytes());
    fflush(stdout);
    return FEDGE_OK;
}

/* Operations of one example, forward and backward; 0 for a wrong model. */
static double flops_of(const fedge_model_spec *model)
{
    static fedge_layer_flops layers[FEDGE_MAX_LAYERS];
    fedge_error unwanted;
    double flops = 0;
    if (fedge_model_flops(model, layers, &unwanted) != FEDGE_OK)
        return 0;
    for (uint32_t i = 0; i < model->num_layers; i++)
        flops += layers[i].forward + layers[i].backward;
    return flops;
}

static int run(const char *path, uint32_t batch, const char *way, const char *kernels)
{
    bench self = {.batch = batch};
    fedge_error err = {0};
    double seconds;
    fedge_status status = fedge_job_load(path, &self.job, &err);
    if (status == FEDGE_OK)
        status = make_model(&self, kernels, way, &err);
    if (status == FEDGE_OK)
        status = make_examples(&self, &err);
    if (status == FEDGE_OK) {
        printf("%s %.0f %zu\n", fedge_model_kernels(self.model), flops_of(&self.job->plan.model),
               self.memory.total);
        fflush(stdout);
    }
    while (status == FEDGE_OK && scanf("%lf", &seconds) == 1)
        status = measure(&self, seconds, &err);
    if (status != FEDGE_OK)
        fprintf(stderr, "train_fedge: %s\n", err.message);
    free(self.labels);
    free(self.x);
    free(self.block);
    fedge_job_free(self.job);
    return status == FEDGE_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    const double number = argc > 2 ? strtod(argv[2], NULL) : 0;
    if (number <= 0 || number > FEDGE_MAX_BATCH) {
        fprintf(stderr, "usage: train_fedge JOB BATCH [fp32|dense|bf16 [scalar|avx2|best]]\n"
                        "       train_fedge peak SECONDS\n");
        return 2;
    }
    if (strcmp(argv[1], "peak") == 0) {
        const double flops = train_peak_flops(number);
        printf("%.0f %.0f\n", flops, train_peak_read(number));
        return 0;
    }
    return run(argv[1], (uint32_t)number, argc > 3 ? argv[3] : "fp32", argc > 4 ? argv[4] : "best");
}
