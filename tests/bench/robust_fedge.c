/* Seconds that a robust rule takes for a round: bench_robust_fedge UPDATES PARAMETERS RUNS THREADS
 * STRATEGY..., a JSON object as in a job each. Prints the least of RUNS for each strategy, of CPU
 * time for one thread and by the clock for more, and at last by how many bytes the process has
 * grown for the updates and the steps up to the last strategy without a root set, on which a server
 * trains: a model of one wide layer here, whose activations say nothing of other models. Updates
 * are kept decoded, as far as half of FEDGE_ROBUST_MEMORY goes in memory and else in a file without
 * a name, and a tile of them is copied from there. */
#define _GNU_SOURCE /* getrusage */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"

static void end(const fedge_error *err)
{
    (void)fprintf(stderr, "%s\n", err->message);
    exit(1);
}

/* With a root set, whose examples are of one value, the model has as many parameters as the
 * updates, or up to three more, since the server trains it. */
static fedge_job *make_job(const char *strategy, uint32_t updates, size_t parameters)
{
    const size_t hidden = strstr(strategy, "root-set") ? (parameters + 1) / 4 : 1;
    char text[2048];
    fedge_job *job = NULL;
    fedge_error err;
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"b\", \"model\": {\"input-shape\": [1], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 1, \"out_features\": %zu},"
        "{\"type\": \"Linear\", \"in_features\": %zu, \"out_features\": 2}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [1], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {\"learning-rate\": 0.1, \"local-epochs\": 1},"
        "\"rounds\": {\"num-server-rounds\": 1, \"min-available-nodes\": %u},"
        "\"strategy\": %s}",
        hidden, hidden, (unsigned)updates, strategy);
    if (fedge_strategy_job_parse(text, strlen(text), "job", &job, &err) != FEDGE_OK)
        end(&err);
    return job;
}

static void fill(fedge_stored_updates *kept, uint32_t count, size_t size, fedge_updates *updates)
{
    int32_t *v = malloc(size * sizeof(*v));
    uint32_t *order = malloc(count * sizeof(*order)), first = 0;
    fedge_error err = {.message = "no memory"};
    if (!v || !order || fedge_stored_updates_reserve(kept, count, &first, &err) != FEDGE_OK)
        end(&err);
    for (uint32_t i = 0; i < count; i++) {
        fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TIE_BREAK, i, 0, 0);
        for (size_t k = 0; k < size; k++) { /* about 0.01 of a bound of 4 */
            v[k] = (int32_t)(fedge_rng_u32(&rng) >> 9) - (1 << 22);
        }
        order[i] = i;
        if (fedge_stored_updates_put(kept, i, v, &err) != FEDGE_OK)
            end(&err);
    }
    if (fedge_stored_updates_list(kept, order, count, updates, &err) != FEDGE_OK)
        end(&err);
    free(v);
    free(order);
}

static double now(uint32_t num_threads)
{
    return num_threads == 1 ? fedge_os_cpu_seconds() : (double)fedge_os_monotonic_ns() * 1e-9;
}

static long most_kib(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : 0;
}

static double seconds_of(const char *strategy, const fedge_schema *schema,
                         const fedge_updates *updates, long runs, uint32_t num_threads,
                         float *model)
{
    const int8_t bounds[] = {2, 2, 2, 2}; /* of the tensors of a model that the server trains */
    const fedge_strategy_ops *ops = NULL;
    void *state = NULL;
    fedge_error err;
    double least = 1e9;
    fedge_job *job = make_job(strategy, updates->num, schema->num_elements);
    const fedge_strategy_config config = {&job->plan.sent.sections[0].schema, job};
    if (fedge_strategy_find(job->strategy, &ops, &err) != FEDGE_OK ||
        ops->init(&config, &state, &err) != FEDGE_OK)
        end(&err);
    const fedge_strategy_sum sum = {.job = job,
                                    .round = 1,
                                    .num_updates = updates->num,
                                    .total_weight = updates->num,
                                    .delta = {schema, bounds},
                                    .updates = updates,
                                    .memory = FEDGE_ROBUST_MEMORY / 2,
                                    .num_threads = num_threads};
    for (long run = 0; run < runs; run++) {
        const double start = now(num_threads);
        if (ops->step(state, &sum, model, &err) != FEDGE_OK)
            end(&err);
        const double taken = now(num_threads) - start;
        least = taken < least ? taken : least;
    }
    ops->free(state);
    fedge_job_free(job);
    return least;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    const uint32_t count = (uint32_t)strtoul(argv[1], NULL, 10);
    const size_t size = strtoul(argv[2], NULL, 10);
    fedge_tensor_spec tensor = {.name = "all", .offset = 0, .count = size};
    const fedge_schema schema = {.num_tensors = 1, .tensors = &tensor, .num_elements = size};
    fedge_stored_updates kept;
    fedge_updates updates;
    float *model = calloc(size + 3, sizeof(*model));
    if (!model)
        return 1;
    for (size_t i = 0; i < size + 3; i++)
        model[i] = 0.01f;
    const long before = most_kib();
    long most = before;
    fedge_stored_updates_init(&kept, &schema, FEDGE_ROBUST_MEMORY / 2);
    fill(&kept, count, size, &updates);
    for (int i = 5; i < argc; i++) {
        (void)printf("%.4f\n", seconds_of(argv[i], &schema, &updates, strtol(argv[3], NULL, 10),
                                          (uint32_t)strtoul(argv[4], NULL, 10), model));
        (void)fflush(stdout);
        most = strstr(argv[i], "root-set") ? most : most_kib();
    }
    (void)printf("%ld\n", (most - before) * 1024);
    fedge_stored_updates_fini(&kept);
    free(model);
    return 0;
}
