#include "aggregator/rounds/strategy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "edge/core/fixed.h"
#include "edge/json/json.h"

#define ENTRY(name) &fedge_strategy_##name,
static const fedge_strategy_ops *const strategies[] = {FEDGE_STRATEGY_MAP(ENTRY)};
#define READER(name) &fedge_strategy_##name.reader,
const fedge_strategy_reader *const fedge_strategy_readers[] = {FEDGE_STRATEGY_MAP(READER) NULL};
#define PARTS 64        /* tensors moved in one call */
#define CHUNK 1024      /* sums read in one call; they fit the first-level cache */
#define GPU_CHUNK 65536 /* sums read in one call when each waits for a copy from a GPU */
#define NUM_STRATEGIES (sizeof(strategies) / sizeof(strategies[0]))

static fedge_status move(const fedge_strategy_sum *sum, const fedge_strategy_section *section,
                         double rate, const fedge_optimizer_step *optimizer,
                         float *const moments[2], float *values, fedge_error *err)
{
    const fedge_schema *schema = section->schema;
    fedge_step_part parts[PARTS];
    fedge_status status = FEDGE_OK;
    uint32_t num_parts = 0;
    for (uint32_t i = 0; i < schema->num_tensors && status == FEDGE_OK; i++) {
        const fedge_tensor_spec *tensor = &schema->tensors[i];
        const size_t at = tensor->offset - schema->tensors[0].offset;
        fedge_step_part *part = &parts[num_parts++];
        *part = (fedge_step_part){.first = tensor->offset,
                                  .count = tensor->count,
                                  .bound_log2 = section->bounds_log2[i],
                                  .rate = rate,
                                  .values = values + at,
                                  .unchanged = sum->unchanged,
                                  .optimizer = optimizer};
        for (unsigned k = 0; optimizer && k < optimizer->num_moments; k++)
            part->moments[k] = moments[k] + at;
        if (num_parts == PARTS || i + 1 == schema->num_tensors) {
            status = fedge_accumulator_step(sum->accumulator, parts, num_parts, err);
            num_parts = 0;
        }
    }
    return status;
}

fedge_status fedge_strategy_move(const fedge_strategy_sum *sum,
                                 const fedge_strategy_section *section, double rate, float *values,
                                 fedge_error *err)
{
    return move(sum, section, rate, NULL, NULL, values, err);
}

/* A range of a tensor's sums. */
typedef struct sums_chunk {
    uint32_t tensor;     /* index in the section */
    size_t first, count; /* range of a vector of the section's values */
    const int64_t *sums;
} sums_chunk;

/* Visits all sums of a section in order, chunk by chunk. */
static fedge_status each_chunk(const fedge_strategy_sum *sum, const fedge_strategy_section *section,
                               void (*visit)(void *user, const sums_chunk *chunk), void *user,
                               fedge_error *err)
{
    const fedge_schema *schema = section->schema;
    const bool near = sum->accumulator->ops == &fedge_accumulator_cpu;
    int64_t local[CHUNK], *far = near ? NULL : malloc(GPU_CHUNK * sizeof(*far));
    int64_t *sums = far ? far : local;
    const size_t most = far ? GPU_CHUNK : CHUNK;
    fedge_status status = FEDGE_OK;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        for (size_t at = 0; at < tensor->count && status == FEDGE_OK; at += most) {
            const size_t left = tensor->count - at;
            const sums_chunk chunk = {.tensor = t,
                                      .first = tensor->offset + at - schema->tensors[0].offset,
                                      .count = left < most ? left : most,
                                      .sums = sums};
            status = fedge_accumulator_read(sum->accumulator, tensor->offset + at, chunk.count,
                                            sums, err);
            if (status == FEDGE_OK)
                visit(user, &chunk);
        }
    }
    free(far);
    return status;
}

typedef struct host_step {
    const fedge_strategy_sum *sum;
    const fedge_strategy_section *section;
    double rate;
    const fedge_optimizer_step *optimizer;
    float *const *moments;
    float *values;
} host_step;

static void optimize_chunk(void *user, const sums_chunk *chunk)
{
    const host_step *step = user;
    const fedge_optimizer_sums by = {.sums = chunk->sums,
                                     .count = chunk->count,
                                     .total_weight = step->sum->total_weight,
                                     .bound_log2 = step->section->bounds_log2[chunk->tensor]};
    float *moved[2] = {step->moments[0] + chunk->first,
                       step->optimizer->num_moments > 1 ? step->moments[1] + chunk->first : NULL};
    fedge_optimizer_move(step->optimizer, step->rate, &by, step->values + chunk->first, moved);
}

fedge_status fedge_strategy_optimize(const fedge_strategy_sum *sum,
                                     const fedge_strategy_section *section, double rate,
                                     const fedge_optimizer_step *optimizer, float *const moments[2],
                                     float *values, fedge_error *err)
{
    host_step step = {sum, section, rate, optimizer, moments, values};
    fedge_status status = FEDGE_UNSUPPORTED;
    if (fedge_accumulator_optimizes(sum->accumulator))
        status = move(sum, section, rate, optimizer, moments, values, err);
    return status == FEDGE_UNSUPPORTED /* only the first part can fail so */
               ? each_chunk(sum, section, optimize_chunk, &step, err)
               : status;
}

typedef struct mean_visit {
    const fedge_strategy_sum *sum;
    const fedge_strategy_section *section;
    void (*visit)(void *user, size_t first, size_t count, const double *mean);
    void *user;
} mean_visit;

static void chunk_means(void *user, const sums_chunk *chunk)
{
    const mean_visit *to = user;
    const double unit =
        ldexp(1.0, to->section->bounds_log2[chunk->tensor] - FEDGE_FIXED_VALUE_BITS);
    double mean[CHUNK];
    for (size_t from = 0; from < chunk->count; from += CHUNK) {
        const size_t left = chunk->count - from, num = left < CHUNK ? left : CHUNK;
        for (size_t i = 0; i < num; i++)
            mean[i] = (double)chunk->sums[from + i] / (double)to->sum->total_weight * unit;
        to->visit(to->user, chunk->first + from, num, mean);
    }
}

fedge_status
fedge_strategy_each_mean(const fedge_strategy_sum *sum, const fedge_strategy_section *section,
                         void (*visit)(void *user, size_t first, size_t count, const double *mean),
                         void *user, fedge_error *err)
{
    mean_visit to = {sum, section, visit, user};
    return each_chunk(sum, section, chunk_means, &to, err);
}

fedge_status fedge_strategy_find(const char *name, const fedge_strategy_ops **ops, fedge_error *err)
{
    for (size_t i = 0; i < NUM_STRATEGIES; i++) {
        if (strcmp(strategies[i]->reader.name, name) == 0) {
            *ops = strategies[i];
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_NOT_FOUND, "unknown strategy \"%.64s\"", name);
}

fedge_status fedge_strategy_of(const fedge_job *job, const fedge_strategy_ops **ops,
                               fedge_error *err)
{
    for (size_t i = 0; job->strategies && job->strategies[i]; i++) {
        if (strcmp(job->strategies[i]->name, job->strategy) == 0) {
            *ops = (const fedge_strategy_ops *)job->strategies[i]; /* reader is its first member */
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_NOT_FOUND, "unknown strategy \"%.64s\"", job->strategy);
}

size_t fedge_strategy_state_per_value(const fedge_strategy_ops *ops, const fedge_job *job)
{
    return ops->state_per_value * (ops->num_vectors ? ops->num_vectors(job->strategy_settings) : 1);
}

static_assert(offsetof(fedge_strategy_ops, reader) == 0, "a reader is found as its strategy");

/* Refuses combinations without meaning: rules that read single updates have no weights, some
 * strategies' weights must not be scaled, and examples must not count twice. */
static fedge_status check_sampler(const fedge_job *job, const char *name, fedge_error *err)
{
    const fedge_strategy_ops *ops = NULL;
    const fedge_sampler_spec *sampler = &job->rounds.sampler;
    FEDGE_TRY(fedge_strategy_of(job, &ops, err));
    if (ops->uses_examples && fedge_sampler_of(sampler->type)->weighs_examples) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s: rounds.sampler.type: %s draws clients by their examples, and %s "
                          "weighs updates by them once more: take uniform, or FedAvg",
                          name, fedge_sampler_name(sampler->type), job->strategy);
    }
    const bool fits =
        !ops->collects && (!ops->weight || ops->weight == fedge_strategy_weigh_equally);
    if (sampler->inverse_probability && !fits) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s: rounds.sampler.inverse-probability: %s weighs updates in its own "
                          "way: leave it out, or use FedAvg",
                          name, job->strategy);
    }
    if (sampler->inverse_probability && !fedge_sampler_uses_history(sampler)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s: rounds.sampler.inverse-probability: uniform draws all clients "
                          "with one probability: leave it out, or use another type",
                          name);
    }
    return FEDGE_OK;
}

fedge_status fedge_strategy_job_parse(const char *text, size_t size, const char *name,
                                      fedge_job **job, fedge_error *err)
{
    *job = NULL;
    return fedge_strategy_job_parse_with(fedge_strategy_readers, text, size, name, job, err);
}

fedge_status fedge_strategy_job_parse_with(const fedge_strategy_reader *const *readers,
                                           const char *text, size_t size, const char *name,
                                           fedge_job **job, fedge_error *err)
{
    *job = NULL;
    FEDGE_TRY(fedge_job_parse_with(text, size, name, readers, job, err));
    const fedge_status status = check_sampler(*job, name, err);
    if (status != FEDGE_OK) {
        fedge_job_free(*job);
        *job = NULL;
    }
    return status;
}

/* ---- for strategies -------------------------------------------------------------------------- */

uint32_t fedge_strategy_weigh_equally(const void *state, const fedge_job *job,
                                      const fedge_update_facts *facts)
{
    (void)state;
    (void)job;
    (void)facts;
    return 1;
}

double fedge_strategy_rate(const fedge_strategy_common *common, uint32_t round)
{
    return fedge_schedule_rate(&common->schedule, common->server_learning_rate, round);
}

fedge_status fedge_strategy_check_sum(const fedge_strategy_sum *sum, const char *name,
                                      fedge_error *err)
{
    return sum->total_weight > 0
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s: round %u has a total weight of 0: no update to average", name,
                            (unsigned)sum->round);
}

fedge_status fedge_strategy_check_updates(const fedge_strategy_sum *sum, const char *name,
                                          fedge_error *err)
{
    FEDGE_TRY(fedge_strategy_check_sum(sum, name, err));
    if (!sum->updates || sum->updates->num != sum->num_updates) {
        return fedge_fail(err, FEDGE_INTERNAL, "%s: round %u lacks its updates", name,
                          (unsigned)sum->round);
    }
    return FEDGE_OK;
}

fedge_status fedge_strategy_save_floats(const float *values, size_t count, fedge_buffer *out,
                                        fedge_error *err)
{
    uint8_t *bytes = NULL;
    FEDGE_TRY(fedge_buffer_reserve(out, count * sizeof(float), &bytes, err));
    fedge_put_f32s(bytes, values, count);
    out->size += count * sizeof(float);
    return FEDGE_OK;
}

fedge_status fedge_strategy_load_floats(float *values, size_t count, const uint8_t *bytes,
                                        size_t size, const char *name, fedge_error *err)
{
    if (size != count * sizeof(float)) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s keeps %zu values, but the checkpoint has %zu bytes of them", name,
                          count, size);
    }
    fedge_get_f32s(bytes, values, count);
    return FEDGE_OK;
}

fedge_status fedge_strategy_save_nothing(const void *state, fedge_buffer *out, fedge_error *err)
{
    (void)state;
    (void)out;
    (void)err;
    return FEDGE_OK;
}

fedge_status fedge_strategy_load_nothing(void *state, const uint8_t *bytes, size_t size,
                                         fedge_error *err)
{
    (void)state;
    (void)bytes;
    return size == 0 ? FEDGE_OK
                     : fedge_fail(err, FEDGE_CORRUPT,
                                  "the strategy keeps no state, but the checkpoint has %zu bytes "
                                  "of it",
                                  size);
}

fedge_status fedge_refuse_test_set(const fedge_json *json, fedge_job *job, void *settings,
                                   fedge_error *err)
{
    (void)settings;
    return job->test_set.present
               ? fedge_json_fail_at(json, "test-set", err,
                                    "does not go with %s: the layers that stay with clients are "
                                    "not trained in the server's model; remove it, and set "
                                    "rounds.fraction-evaluate to evaluate clients' own models",
                                    job->strategy)
               : FEDGE_OK;
}

fedge_status fedge_strategy_init_settings(const fedge_strategy_config *config, void **state,
                                          fedge_error *err)
{
    (void)err;
    *state = config->job->strategy_settings; /* the settings, which the job owns, are the state */
    return FEDGE_OK;
}

void fedge_strategy_free_nothing(void *state)
{
    (void)state;
}

/* ---- states of vectors ----------------------------------------------------------------------- */

fedge_status fedge_strategy_vectors_new(const fedge_strategy_config *config, uint32_t count,
                                        fedge_strategy_vectors **state, fedge_error *err)
{
    *state = NULL;
    const size_t values = config->schema->num_elements;
    const char *name = config->job->strategy;
    fedge_strategy_vectors *made = calloc(1, sizeof(*made) + count * values * sizeof(float));
    *state = made;
    if (!made) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %u times %zu values", name,
                          (unsigned)count, values);
    }
    made->name = name;
    made->settings = config->job->strategy_settings;
    made->num_values = values;
    made->num_vectors = count;
    return FEDGE_OK;
}

fedge_status fedge_strategy_vectors_init_one(const fedge_strategy_config *config, void **state,
                                             fedge_error *err)
{
    fedge_strategy_vectors *made = NULL;
    const fedge_status status = fedge_strategy_vectors_new(config, 1, &made, err);
    *state = made;
    return status;
}

fedge_status fedge_strategy_vectors_save(const void *state, fedge_buffer *out, fedge_error *err)
{
    const fedge_strategy_vectors *self = state;
    return fedge_strategy_save_floats(self->values, self->num_vectors * self->num_values, out, err);
}

fedge_status fedge_strategy_vectors_load(void *state, const uint8_t *bytes, size_t size,
                                         fedge_error *err)
{
    fedge_strategy_vectors *self = state;
    return fedge_strategy_load_floats(self->values, self->num_vectors * self->num_values, bytes,
                                      size, self->name, err);
}

void fedge_strategy_vectors_forget(void *state)
{
    fedge_strategy_vectors *self = state;
    memset(self->values, 0, self->num_vectors * self->num_values * sizeof(self->values[0]));
}

const float *fedge_strategy_broadcast_vectors(const void *state)
{
    return ((const fedge_strategy_vectors *)state)->values;
}
