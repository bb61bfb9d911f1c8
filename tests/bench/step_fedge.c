/* fedge's half of step.sh: how often a second a strategy takes its step on the host, from sums that
 * no cache holds: bench_step_fedge STRATEGY PARAMETERS SECONDS, an object as in a job. Prints the
 * median of steps a second of one core's CPU time, and the bytes that a step reads and writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/os.h"

#define MOST 1000

static void end(const fedge_error *err)
{
    (void)fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static fedge_job *make_job(const char *strategy, unsigned long parameters)
{
    char text[2048];
    fedge_job *job = NULL;
    fedge_error err;
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"b\", \"model\": {\"type\": \"external\", \"tensors\": "
        "[{\"name\": \"w\", \"shape\": [%lu]}]}, "
        "\"rounds\": {\"num-server-rounds\": 1, \"min-available-nodes\": 2}, \"strategy\": %s}",
        parameters, strategy);
    if (fedge_strategy_job_parse(text, strlen(text), "job", &job, &err) != FEDGE_OK)
        end(&err);
    return job;
}

static void add_update(fedge_global_model *model)
{
    enum { CHUNK = 4096 };
    int32_t v[CHUNK];
    fedge_error err;
    const size_t count = model->plan->sent.schema.num_elements;
    for (size_t k = 0; k < CHUNK; k++)
        v[k] = (int32_t)(k * 2654435761u >> 9) - (1 << 22);
    if (fedge_accumulator_begin(&model->accumulator, 3, &err) != FEDGE_OK)
        end(&err);
    for (size_t at = 0; at < count; at += CHUNK) {
        const size_t n = count - at < CHUNK ? count - at : CHUNK;
        if (fedge_accumulator_add_values(&model->accumulator, 0, v, at, n, 3, &err) != FEDGE_OK)
            end(&err);
    }
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double measure(fedge_global_model *model, double seconds)
{
    double taken[MOST], all = 0.0;
    fedge_error err;
    const int8_t bound = 2;
    const fedge_update_facts facts = {.round = 1, .num_examples = 3};
    size_t count = 0;
    for (; count < MOST && (count < 3 || all < seconds); count++) {
        const double start = fedge_os_cpu_seconds();
        if (fedge_global_model_step(model, 1, &bound, &facts, NULL, &err) != FEDGE_OK)
            end(&err);
        taken[count] = fedge_os_cpu_seconds() - start;
        all += taken[count];
    }
    qsort(taken, count, sizeof(*taken), by_value);
    return 1.0 / taken[count / 2];
}

int main(int argc, char **argv)
{
    const fedge_accumulator_config config = {.num_lanes = 1};
    fedge_global_model model;
    fedge_error err;
    if (argc != 4)
        return 2;
    fedge_job *job = make_job(argv[1], strtoul(argv[2], NULL, 10));
    if (fedge_global_model_init(&model, job, "cpu", &config, &err) != FEDGE_OK ||
        fedge_global_model_begin(&model, &err) != FEDGE_OK)
        end(&err);
    add_update(&model);
    const size_t kept = fedge_strategy_state_per_value(model.strategy, job);
    const size_t each = sizeof(int64_t) + 2 * (sizeof(float) + kept);
    (void)printf("%.3f %zu\n", measure(&model, strtod(argv[3], NULL)),
                 each * model.plan->sent.schema.num_elements);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
    return 0;
}
