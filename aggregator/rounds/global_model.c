#include "aggregator/rounds/global_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/tiles.h"
#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "edge/plan/client_hooks.h"
#include "edge/train/model.h"

#define INFINITE 0x7f800000 /* exponent bits of a float that is infinite or NaN */

uint32_t fedge_report_weight(const fedge_job *job, uint64_t num_examples)
{
    uint64_t weight = num_examples ? num_examples : 1;
    return weight < job->rounds.max_weight ? (uint32_t)weight : job->rounds.max_weight;
}

double fedge_update_ratio(const fedge_global_model *model, uint32_t round, uint32_t client)
{
    const fedge_sampler_spec *spec = &model->job->rounds.sampler;
    return spec->inverse_probability && fedge_sampler_uses_history(spec)
               ? fedge_draw_ratio(&model->draw, spec, &model->clients, round, client)
               : 0.0;
}

uint32_t fedge_update_weight(const fedge_global_model *model, const fedge_update_facts *facts)
{
    const bool has_custom_weight = model->strategy->weight != NULL;
    const uint32_t most = model->job->rounds.max_weight;
    const uint32_t weight =
        has_custom_weight ? model->strategy->weight(model->strategy_state, model->job, facts)
        : facts->ratio == 0.0 && fedge_sampler_of(model->job->rounds.sampler.type)->weighs_examples
            ? 1
            : fedge_report_weight(model->job, facts->num_examples);
    if (facts->ratio == 0.0)
        return weight;
    /* Weights are integers, so the ratio is multiplied before rounding. The factor is small when
     * weights are examples, since a larger one would clamp more of them at max-weight. Only ratios
     * of weights matter. */
    const double more = weight * facts->ratio * (has_custom_weight ? 1024.0 : 16.0) + 0.5;
    return more < 1.0 ? 1 : more < (double)most ? (uint32_t)more : most;
}

/* ---- life ------------------------------------------------------------------------------------ */

fedge_update_layout fedge_plan_update_layout(const fedge_plan *plan)
{
    const fedge_sent *sent = &plan->sent;
    fedge_update_layout layout = {.num_sections = sent->num_sections,
                                  .num_elements = sent->schema.num_elements};
    for (uint32_t i = 0; i < sent->num_sections; i++) {
        const fedge_section *section = &sent->sections[i];
        layout.sections[i] =
            (fedge_update_layout_section){.codec = section->codec, .schema = &section->schema};
        layout.size += fedge_codec_size(&section->codec, &section->schema);
    }
    return layout;
}

fedge_status fedge_global_model_reopen(fedge_global_model *model, const char *accumulator,
                                       const fedge_accumulator_config *config, fedge_error *err)
{
    const fedge_update_layout layout = fedge_plan_update_layout(model->plan);
    fedge_accumulator_config with_layout = *config;
    with_layout.layout = &layout;
    with_layout.num_moments = config->distributed ? 0 : model->strategy->num_moments;
    /* Close first: the old accumulator may hold the memory that the new one needs. */
    fedge_accumulator_close(&model->accumulator);
    model->unchanged = false;
    const fedge_status status =
        fedge_accumulator_open(accumulator, &with_layout, &model->accumulator, err);
    /* A strategy that collects reads the single updates and needs no sums. */
    model->accumulator.counts_only = status == FEDGE_OK && model->strategy->collects;
    return status;
}

static fedge_status take_memory(fedge_global_model *model, const char *accumulator,
                                const fedge_accumulator_config *config, fedge_error *err)
{
    const fedge_plan *plan = model->plan;
    const fedge_section *delta = &plan->sent.sections[0];
    bool whole = fedge_section_is_whole(plan, delta);
    model->values = calloc(plan->schema.num_elements, sizeof(*model->values));
    /* Strategies see the trained values as one vector. When that is the whole model they work in
     * place; else on a copy (step_trained). */
    model->trained = whole ? NULL : calloc(delta->schema.num_elements, sizeof(*model->trained));
    if (!model->values || (!whole && !model->trained)) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "no memory for a model of %zu parameters, %zu of them trained",
                          plan->schema.num_elements, delta->schema.num_elements);
    }
    fedge_os_large_pages(model->values, plan->schema.num_elements * sizeof(*model->values));
    return fedge_global_model_reopen(model, accumulator, config, err);
}

/* Checks that the memory suffices for the largest cohort. */
static fedge_status check_robust_memory(const fedge_global_model *model, fedge_error *err)
{
    const uint32_t cohort = model->job->rounds.max_cohort;
    /* The other half stores the updates (begin); one of them may be the server's. */
    const uint64_t least = 2 * fedge_tiles_least_bytes(cohort + 1);
    return model->robust_memory >= least
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s goes through the updates of up to %" PRIu32 " clients (max-cohort) "
                            "at once, which takes %" PRIu64 " MiB: lower rounds.max-cohort, or "
                            "raise --robust-memory from %" PRIu64 " MiB",
                            model->job->strategy, cohort, (least >> 20) + 1,
                            model->robust_memory >> 20);
}

/* Checks that the strategy's state fits in a checkpoint. */
static fedge_status check_state(const fedge_strategy_ops *strategy, const fedge_job *job,
                                fedge_error *err)
{
    const uint64_t num_values = job->plan.sent.sections[0].schema.num_elements;
    const uint64_t size = fedge_strategy_state_per_value(strategy, job) * num_values;
    return size <= FEDGE_STRATEGY_MAX_STATE
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "%s keeps %" PRIu64 " bytes with this model and these arguments, and a "
                            "checkpoint has room for %" PRIu64 " of them: have it keep fewer "
                            "vectors (max-staleness, num-clusters), or take a smaller model",
                            job->strategy, size, (uint64_t)FEDGE_STRATEGY_MAX_STATE);
}

/* Initializes everything but the values and the accumulator. */
static fedge_status begin(fedge_global_model *model, const fedge_job *job,
                          const fedge_accumulator_config *config, fedge_error *err)
{
    *model = (fedge_global_model){.job = job,
                                  .plan = &job->plan,
                                  .robust_memory = config->robust_memory > 0 ? config->robust_memory
                                                                             : FEDGE_ROBUST_MEMORY,
                                  .num_threads = config->num_lanes};
    fedge_stored_updates_init(&model->stored, &job->plan.sent.sections[0].schema,
                              model->robust_memory / 2);
    fedge_strategy_config strategy = {
        .schema = &job->plan.sent.sections[0].schema,
        .job = job,
    };
    if (!job->strategy_settings)
        return fedge_fail(err, FEDGE_INTERNAL, "the job was read without strategies");
    FEDGE_TRY(fedge_strategy_of(job, &model->strategy, err));
    FEDGE_TRY(check_state(model->strategy, job, err));
    if (model->strategy->collects)
        FEDGE_TRY(check_robust_memory(model, err));
    return model->strategy->init(&strategy, &model->strategy_state, err);
}

fedge_status fedge_global_model_check(const fedge_job *job, const fedge_accumulator_config *config,
                                      fedge_error *err)
{
    fedge_global_model model;
    const fedge_status status = begin(&model, job, config, err);
    fedge_global_model_fini(&model);
    return status;
}

fedge_status fedge_global_model_init(fedge_global_model *model, const fedge_job *job,
                                     const char *accumulator,
                                     const fedge_accumulator_config *config, fedge_error *err)
{
    FEDGE_TRY(begin(model, job, config, err));
    FEDGE_TRY(fedge_downlink_init(&model->downlink, model->plan, err));
    return take_memory(model, accumulator, config, err);
}

void fedge_global_model_fini(fedge_global_model *model)
{
    fedge_accumulator_close(&model->accumulator);
    if (model->strategy)
        model->strategy->free(model->strategy_state);
    fedge_stored_updates_fini(&model->stored);
    free(model->values);
    free(model->trained);
    fedge_downlink_fini(&model->downlink);
    fedge_client_history_fini(&model->clients);
    *model = (fedge_global_model){0};
}

/* ---- values ---------------------------------------------------------------------------------- */

fedge_status fedge_read_model(const char *path, const fedge_schema *schema, float *values,
                              fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_SAFETENSORS_MAX_SIZE, &bytes, &size, err));
    const fedge_status status = fedge_safetensors_read(bytes, size, schema, values, err);
    free(bytes);
    return status;
}

fedge_status fedge_initial_values(const fedge_job *job, float *values, fedge_error *err)
{
    const fedge_plan *plan = &job->plan;
    if (!job->initial_model[0]) {
        fedge_plan_initial_values(plan, values);
        return FEDGE_OK;
    }
    const fedge_status status = fedge_read_model(job->initial_model, &plan->schema, values, err);
    return status == FEDGE_OK
               ? status
               : fedge_error_prefix(err, status, "initial-model %s", job->initial_model);
}

fedge_status fedge_global_model_begin(fedge_global_model *model, fedge_error *err)
{
    model->unchanged = false;
    return fedge_initial_values(model->job, model->values, err);
}

fedge_status fedge_global_model_load(fedge_global_model *model, const uint8_t *file, size_t size,
                                     const uint8_t *state, size_t state_size, fedge_error *err)
{
    /* A checkpoint's state is the strategy's, then the samplers' history, then the downlink's
     * residual. The plan gives the size of the residual; the history is self-delimiting from its
     * end, and the remainder is the strategy's. */
    const size_t residual_size = fedge_downlink_state_size(model->plan);
    model->unchanged = false;
    FEDGE_TRY(fedge_safetensors_read(file, size, &model->plan->schema, model->values, err));
    if (state_size < residual_size) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "the strategy's state has %zu bytes; the residual of \"down\" alone has "
                          "%zu",
                          state_size, residual_size);
    }
    size_t strategy_size = state_size - residual_size;
    if (fedge_sampler_uses_history(&model->job->rounds.sampler))
        FEDGE_TRY(fedge_client_history_load(&model->clients, state, &strategy_size, err));
    FEDGE_TRY(model->strategy->load(model->strategy_state, state, strategy_size, err));
    if (residual_size > 0)
        fedge_downlink_load(&model->downlink, state + (state_size - residual_size));
    return FEDGE_OK;
}

fedge_status fedge_global_model_save(const fedge_global_model *model, fedge_buffer *state,
                                     fedge_error *err)
{
    FEDGE_TRY(model->strategy->save(model->strategy_state, state, err));
    if (fedge_sampler_uses_history(&model->job->rounds.sampler))
        FEDGE_TRY(fedge_client_history_save(&model->clients, state, err));
    return fedge_downlink_save(&model->downlink, state, err);
}

void fedge_global_model_forget(fedge_global_model *model)
{
    model->unchanged = false;
    model->strategy->forget(model->strategy_state);
}

fedge_status fedge_global_model_write(const fedge_global_model *model, uint8_t **file, size_t *size,
                                      size_t *broadcast_size, fedge_error *err)
{
    const uint32_t num_broadcast =
        model->strategy->broadcast ? fedge_plan_num_broadcast(model->plan) : 0;
    size_t each = 0;
    const fedge_schema *trained = &model->plan->sent.sections[0].schema;
    *file = NULL;
    *broadcast_size = 0;
    FEDGE_TRY(fedge_safetensors_size(&model->plan->schema, size, err));
    if (model->strategy->broadcast)
        FEDGE_TRY(fedge_safetensors_size(trained, &each, err));
    *broadcast_size = num_broadcast * each;
    /* One block, since clients fetch both as one blob. */
    uint8_t *bytes = malloc(*size + *broadcast_size);
    if (!bytes) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model file of %zu bytes",
                          *size + *broadcast_size);
    }
    fedge_status status =
        fedge_safetensors_write(&model->plan->schema, model->values, bytes, *size, err);
    for (uint32_t i = 0; i < num_broadcast && status == FEDGE_OK; i++) {
        const float *vectors =
            model->strategy->broadcast(model->strategy_state) + i * trained->num_elements;
        status = fedge_safetensors_write(trained, vectors, bytes + *size + i * each, each, err);
    }
    if (status != FEDGE_OK) {
        free(bytes);
        return status;
    }
    *file = bytes;
    return FEDGE_OK;
}

/* ---- a round's end --------------------------------------------------------------------------- */

/* Ends a run whose model is no longer finite: no later round can repair it. */
static fedge_status check_finite(const fedge_global_model *model, const float *trained,
                                 fedge_error *err)
{
    const size_t count = model->plan->sent.sections[0].schema.num_elements;
    int32_t most = 0; /* bits without the sign; a maximum vectorizes */
    for (size_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &trained[i], sizeof(bits));
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    if (most < INFINITE)
        return FEDGE_OK;
    size_t first = 0;
    while (isfinite(trained[first]))
        first++;
    return fedge_fail(err, FEDGE_NOT_FINITE, "%s made value %zu of the model infinite or no number",
                      model->strategy->reader.name, first);
}

/* Takes the strategy's step on the trained values; the other values stay. */
static fedge_status step_trained(fedge_global_model *model, const fedge_strategy_sum *sum,
                                 fedge_error *err)
{
    const fedge_sent *sent = &model->plan->sent;
    const fedge_section *delta = &sent->sections[0];
    float *trained = model->trained ? model->trained : model->values;
    if (model->trained)
        fedge_section_gather(sent, delta, model->values, trained);
    FEDGE_TRY(model->strategy->step(model->strategy_state, sum, trained, err));
    FEDGE_TRY(check_finite(model, trained, err));
    if (model->trained)
        fedge_section_scatter(sent, delta, trained, model->values);
    /* With deltas the rounding's loss is in their residual instead. */
    if (!model->downlink.plan)
        fedge_sections_round(model->plan, model->values, NULL);
    return FEDGE_OK;
}

fedge_status fedge_global_model_miss(fedge_global_model *model, uint32_t client, fedge_error *err)
{
    return fedge_sampler_uses_history(&model->job->rounds.sampler)
               ? fedge_client_history_miss(&model->clients, client, err)
               : FEDGE_OK;
}

/* Adds the round's updates to the client history. */
static fedge_status note_clients(fedge_global_model *model, uint32_t round, uint32_t num,
                                 const fedge_update_facts *facts, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    const bool wanted = fedge_sampler_uses_history(&model->job->rounds.sampler);
    for (uint32_t i = 0; wanted && i < num && status == FEDGE_OK; i++) {
        status = fedge_client_history_report(&model->clients, facts[i].client, round,
                                             facts[i].num_examples, facts[i].loss, err);
    }
    return status;
}

static bool is_variance(const fedge_tensor_spec *tensor)
{
    static const char END[] = ".running_var";
    const size_t length = strlen(tensor->name), end = sizeof(END) - 1;
    return length >= end && strcmp(tensor->name + length - end, END) == 0;
}

/* Moves the statistics of BatchNorm among [model] to the clients' weighted mean: no strategy,
 * server learning rate or clipping affects them. Updates carry the change of each, so that x ← x +
 * S / W · 2^−F is the mean of the clients' final values. Rounding leaves no variance below 0.
 * [bounds_log2]: of all sections. After a failure the values are undefined. */
static fedge_status step_statistics(const fedge_plan *plan, fedge_accumulator *accumulator,
                                    const int8_t *bounds_log2, float *model, fedge_error *err)
{
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; section && i < section->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[i];
        float *values = model + plan->sent.model_offsets[section->first + i];
        const fedge_step_part part = {.first = tensor->offset,
                                      .count = tensor->count,
                                      .bound_log2 = bounds_log2[section->first + i],
                                      .rate = 1.0,
                                      .values = values};
        FEDGE_TRY(fedge_accumulator_step(accumulator, &part, 1, err));
        for (size_t k = 0; is_variance(tensor) && k < tensor->count; k++)
            values[k] = values[k] > 0.0f ? values[k] : 0.0f;
    }
    return FEDGE_OK;
}

/* Whether values were rounded after the accumulator's step. */
static bool has_halves(const fedge_plan *plan)
{
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        if (fedge_dtype_is_half(plan->schema.tensors[i].dtype))
            return true;
    }
    return false;
}

fedge_status fedge_global_model_step(fedge_global_model *model, uint32_t round,
                                     const int8_t *bounds_log2, const fedge_update_facts *facts,
                                     const fedge_updates *updates, fedge_error *err)
{
    const fedge_sent *sent = &model->plan->sent;
    const fedge_accumulator_totals totals = fedge_accumulator_get_totals(&model->accumulator);
    fedge_strategy_sum sum = {
        .job = model->job,
        .round = round,
        .num_updates = totals.num_updates,
        .total_weight = totals.total_weight,
        .accumulator = &model->accumulator,
        .unchanged = model->unchanged,
        .facts = facts,
        .updates = updates,
        .memory = model->robust_memory - model->robust_memory / 2,
        .num_threads = model->num_threads,
        .delta = {.schema = &sent->sections[0].schema, .bounds_log2 = bounds_log2}};
    const fedge_section *hooks = fedge_sections_find(sent, FEDGE_SECTION_HOOKS);
    if (hooks) {
        /* Bounds are counted over all sections. */
        sum.hooks = (fedge_strategy_section){.schema = &hooks->schema,
                                             .bounds_log2 = bounds_log2 + hooks->first};
    }
    /* Until the step is complete, an accumulator's copy of the model on a GPU may differ from this
     * one and must not be stepped from. */
    model->unchanged = false;
    fedge_downlink_begin(&model->downlink, model->values);
    FEDGE_TRY(step_trained(model, &sum, err));
    FEDGE_TRY(step_statistics(model->plan, &model->accumulator, bounds_log2, model->values, err));
    FEDGE_TRY(fedge_downlink_end(&model->downlink, round, model->values, err));
    /* With deltas the model moves once more, to the values that clients will decode. */
    model->unchanged = !model->downlink.plan && !has_halves(model->plan);
    return note_clients(model, round, totals.num_updates, facts, err);
}

fedge_status fedge_global_model_reset(fedge_global_model *model, fedge_error *err)
{
    fedge_stored_updates_clear(&model->stored);
    return fedge_accumulator_reset(&model->accumulator, err);
}
