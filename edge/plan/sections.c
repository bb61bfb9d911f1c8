#include "edge/plan/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/text.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"

/* Adds rows [begin, end) of a model's tensor, or the one value of a scalar. */
static fedge_status add_rows(fedge_sent *sent, const fedge_tensor_spec *tensor, uint32_t begin,
                             uint32_t end, fedge_error *err)
{
    uint32_t shape[FEDGE_MAX_RANK];
    memcpy(shape, tensor->shape, sizeof(shape));
    if (tensor->rank > 0)
        shape[0] = end - begin;
    FEDGE_TRY(fedge_schema_add(&sent->schema, tensor->name, FEDGE_F32, tensor->rank, shape, err));
    size_t row = tensor->rank > 0 ? tensor->count / tensor->shape[0] : 0;
    sent->model_offsets[sent->schema.num_tensors - 1] = tensor->offset + begin * row;
    return FEDGE_OK;
}

/* Parameters and statistics may be separate blocks (personal.c), so no part spans both. */
static void add_personal(fedge_personal *personal, size_t num_parameters, size_t offset,
                         size_t count)
{
    fedge_personal_part *last = &personal->parts[personal->num_parts];
    personal->num_values += count;
    if (personal->num_parts > 0 && offset != num_parameters &&
        last[-1].offset + last[-1].count == offset)
        last[-1].count += count;
    else
        *last = (fedge_personal_part){offset, count}, personal->num_parts++;
}

/* Adds rows of a layer's tensor: to the sent ones, unless personal values replace them. */
static fedge_status add(fedge_plan *plan, uint32_t layer, const fedge_tensor_spec *tensor,
                        uint32_t begin, uint32_t end, fedge_error *err)
{
    const bool is_personal = fedge_plan_is_personal(plan) && plan->hooks->personal(plan, layer);
    const size_t row = tensor->rank > 0 ? tensor->count / tensor->shape[0] : 0;
    if (is_personal) {
        add_personal(&plan->personal, plan->num_parameters, tensor->offset + begin * row,
                     tensor->rank > 0 ? (end - begin) * row : tensor->count);
    }
    return is_personal && fedge_plan_replaces(plan)
               ? FEDGE_OK
               : add_rows(&plan->sent, tensor, begin, end, err);
}

static fedge_status add_trained(fedge_plan *plan, fedge_error *err)
{
    const fedge_tensor_spec *tensor = plan->schema.tensors;
    for (uint32_t i = 0; i < plan->model.num_layers; i++) {
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&plan->model.layers[i], list);
        for (uint32_t t = 0; t < n; t++) {
            uint32_t begin, end;
            if (list[t].buffer)
                continue;
            fedge_layer_trained_rows(&plan->model.layers[i], &list[t], &begin, &end);
            if (end > begin)
                FEDGE_TRY(add(plan, i, tensor, begin, end, err));
            tensor++;
        }
    }
    return FEDGE_OK;
}

static fedge_status add_buffers(fedge_plan *plan, fedge_error *err)
{
    const fedge_tensor_spec *tensor = plan->schema.tensors;
    /* Buffers follow all parameters in the schema, also in the layers' order. */
    while (tensor < plan->schema.tensors + plan->schema.num_tensors &&
           tensor->offset < plan->num_parameters)
        tensor++;
    for (uint32_t i = 0; i < plan->model.num_layers; i++) {
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&plan->model.layers[i], list);
        for (uint32_t t = 0; t < n; t++) {
            if (!list[t].buffer)
                continue;
            if (!list[t].frozen)
                FEDGE_TRY(add(plan, i, tensor, 0, tensor->shape[0], err));
            tensor++;
        }
    }
    return FEDGE_OK;
}

/* Adds the strategy's section: one value for each of the delta, which is the first section. */
static fedge_status add_hooks(fedge_sent *sent, const char *section, fedge_error *err)
{
    for (uint32_t i = 0; i < sent->sections[0].schema.num_tensors; i++) {
        const fedge_tensor_spec *of = &sent->tensors[i];
        char name[FEDGE_MAX_TENSOR_NAME + 32];
        (void)snprintf(name, sizeof(name), "%.24s:%s", section, of->name);
        FEDGE_TRY(fedge_schema_add(&sent->schema, name, of->dtype, of->rank, of->shape, err));
        sent->model_offsets[sent->schema.num_tensors - 1] = sent->model_offsets[i];
    }
    return FEDGE_OK;
}

static fedge_status add_all(fedge_plan *plan, fedge_error *err)
{
    for (uint32_t i = 0; i < plan->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &plan->schema.tensors[i];
        if (tensor->frozen)
            continue;
        const bool is_personal =
            fedge_plan_is_personal(plan) && fedge_personal_is_tensor(plan, tensor->name);
        if (is_personal)
            add_personal(&plan->personal, plan->num_parameters, tensor->offset, tensor->count);
        if (is_personal && fedge_plan_replaces(plan))
            continue;
        FEDGE_TRY(add_rows(&plan->sent, tensor, 0, tensor->rank > 0 ? tensor->shape[0] : 1, err));
    }
    return FEDGE_OK;
}

/* Ends a section of all tensors added since the last one. */
static void end_section(fedge_sent *sent, fedge_section_kind kind, const char *name,
                        const fedge_codec *codec)
{
    const fedge_section *last =
        sent->num_sections > 0 ? &sent->sections[sent->num_sections - 1] : NULL;
    const uint32_t first = last ? last->first + last->schema.num_tensors : 0;
    const uint32_t count = sent->schema.num_tensors - first;
    if (count == 0)
        return;
    fedge_section *section = &sent->sections[sent->num_sections++];
    *section = (fedge_section){.kind = kind, .name = name, .codec = *codec, .first = first};
    section->schema =
        (fedge_schema){.tensors = &sent->tensors[first],
                       .num_tensors = count,
                       .capacity = count,
                       .num_elements = sent->schema.num_elements - sent->tensors[first].offset};
}

static bool is_of(const fedge_layer_codec *rule, const fedge_tensor_spec *tensor)
{
    return strcmp(rule->tensors, FEDGE_CODEC_OF_VECTORS) == 0
               ? tensor->rank < 2
               : fedge_glob_matches(rule->tensors, tensor->name);
}

/* Gives each tensor of the delta the codecs of the first matching rule, or the job's. */
static fedge_status choose_codecs(fedge_plan *plan, fedge_error *err)
{
    fedge_section *delta = &plan->sent.sections[0];
    fedge_update_spec *update = &plan->update;
    bool used[FEDGE_MAX_LAYER_CODECS] = {false}, down = false;
    for (uint32_t i = 0, r; i < delta->schema.num_tensors; i++) {
        for (r = 0; r < update->num_layers && !is_of(&update->layers[r], &plan->sent.tensors[i]);)
            r++;
        const fedge_layer_codec *rule = r < update->num_layers ? &update->layers[r] : NULL;
        used[rule ? r : 0] |= rule != NULL;
        plan->sent.codecs[i] = rule ? &rule->codec : &update->codec;
        plan->sent.down_codecs[i] = rule && rule->down.values ? &rule->down : &update->down;
    }
    for (uint32_t r = 0; r < update->num_layers; r++) {
        const fedge_layer_codec *rule = &update->layers[r];
        if (!used[r]) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "no tensor that is trained is left for \"%s\"; give a "
                              "tensor's name, as \"%s\", one with '*', or \"vectors\"",
                              rule->tensors, plan->sent.tensors[0].name);
        }
        if (rule->down.values && !update->down.values) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "\"%s\" has a \"down\", but models travel whole: give "
                              "\"update\" a \"down\", too",
                              rule->tensors);
        }
        down = down || rule->down.values;
    }
    delta->codec.tensors = update->num_layers > 0 ? plan->sent.codecs : NULL;
    update->down.tensors = down ? plan->sent.down_codecs : NULL;
    return FEDGE_OK;
}

/* Ends a section with [codec], or [fallback] if it is unset. The codec must not sparsify, since no
 * residual is stored here. */
static fedge_status end_whole(fedge_plan *plan, fedge_section_kind kind, const char *name,
                              const fedge_codec *codec, const fedge_codec *fallback,
                              fedge_error *err)
{
    const uint32_t before = plan->sent.num_sections;
    if (codec->sparsifier) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "chooses what travels, and nothing may stay behind here: take one that "
                          "writes all values, such as int8");
    }
    end_section(&plan->sent, kind, name, codec->values ? codec : fallback);
    return !codec->values || plan->sent.num_sections > before
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "is for what this job's clients do not send: remove it");
}

fedge_status fedge_sections_make(fedge_plan *plan, const char **key, fedge_error *err)
{
    fedge_sent *sent = &plan->sent;
    const fedge_codec lossless = fedge_codec_lossless();
    const fedge_codec whole = {.values = plan->update.codec.values};
    *key = plan->external ? "model.tensors" : "model.layers";
    sent->num_sections = 0;
    plan->personal.num_parts = 0;
    plan->personal.num_values = 0;
    fedge_schema_init(&sent->schema, sent->tensors, FEDGE_MAX_TENSORS);
    FEDGE_TRY(plan->external ? add_all(plan, err) : add_trained(plan, err));
    if (sent->schema.num_tensors == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "every %s is frozen, so there is nothing to train: freeze less",
                          plan->external ? "tensor" : "layer");
    }
    end_section(sent, FEDGE_SECTION_DELTA, "delta", &plan->update.codec);
    fedge_status status = choose_codecs(plan, err);
    if (status != FEDGE_OK) {
        *key = "update.layers";
        return status;
    }
    if (!plan->external)
        FEDGE_TRY(add_buffers(plan, err));
    *key = "update.buffers";
    FEDGE_TRY(
        end_whole(plan, FEDGE_SECTION_BUFFERS, "buffers", &plan->update.buffers, &lossless, err));
    const char *hooks_section = plan->hooks ? plan->hooks->section : NULL;
    *key = "model.layers";
    if (hooks_section)
        FEDGE_TRY(add_hooks(sent, hooks_section, err));
    *key = "update.control";
    return end_whole(plan, FEDGE_SECTION_HOOKS, hooks_section, &plan->update.control, &whole, err);
}

const fedge_section *fedge_sections_find(const fedge_sent *sent, fedge_section_kind kind)
{
    for (uint32_t i = 0; i < sent->num_sections; i++) {
        if (sent->sections[i].kind == kind)
            return &sent->sections[i];
    }
    return NULL;
}

bool fedge_section_is_whole(const fedge_plan *plan, const fedge_section *section)
{
    return section->first == 0 && section->schema.num_elements == plan->num_parameters;
}

void fedge_section_gather(const fedge_sent *sent, const fedge_section *section, const float *model,
                          float *values)
{
    for (uint32_t i = 0; i < section->schema.num_tensors; i++) {
        const size_t count = section->schema.tensors[i].count;
        memcpy(values, model + sent->model_offsets[section->first + i], count * sizeof(*values));
        values += count;
    }
}

void fedge_section_scatter(const fedge_sent *sent, const fedge_section *section,
                           const float *values, float *model)
{
    for (uint32_t i = 0; i < section->schema.num_tensors; i++) {
        const size_t count = section->schema.tensors[i].count;
        memcpy(model + sent->model_offsets[section->first + i], values, count * sizeof(*values));
        values += count;
    }
}

void fedge_sections_round(const fedge_plan *plan, float *model, float *lost)
{
    const fedge_schema *sent = &plan->sent.sections[0].schema;
    for (uint32_t i = 0, t = 0; FEDGE_HAS_TYPES && plan->external && i < sent->num_tensors; i++) {
        while (plan->schema.tensors[t].offset != plan->sent.model_offsets[i])
            t++;
        const fedge_dtype dtype = plan->schema.tensors[t].dtype;
        float *values = model + plan->sent.model_offsets[i];
        for (size_t k = 0; fedge_dtype_is_half(dtype) && k < sent->tensors[i].count; k++) {
            const float rounded = fedge_half_value(dtype, fedge_half_of(dtype, values[k]));
            if (lost)
                lost[sent->tensors[i].offset + k] += values[k] - rounded;
            values[k] = rounded;
        }
    }
}

void fedge_sections_changes(const fedge_sent *sent, const float *start, float *model)
{
    /* Model offsets grow at least as fast as the layout's, so nothing is overwritten before it is
     * read. */
    const fedge_section *hooks = fedge_sections_find(sent, FEDGE_SECTION_HOOKS);
    const uint32_t end = hooks ? hooks->first : sent->schema.num_tensors;
    for (uint32_t i = 0; i < end; i++) {
        const fedge_tensor_spec *tensor = &sent->schema.tensors[i];
        const size_t offset = sent->model_offsets[i];
        for (size_t k = 0; k < tensor->count; k++)
            model[tensor->offset + k] = model[offset + k] - start[offset + k];
    }
}

void fedge_sections_take(const fedge_sent *sent, float *changes)
{
    const fedge_section *hooks = fedge_sections_find(sent, FEDGE_SECTION_HOOKS);
    const uint32_t end = hooks ? hooks->first : sent->schema.num_tensors;
    for (uint32_t i = 0; i < end; i++) {
        const fedge_tensor_spec *tensor = &sent->schema.tensors[i];
        memmove(changes + tensor->offset, changes + sent->model_offsets[i],
                tensor->count * sizeof(*changes));
    }
}

static int8_t statistics_bound(const fedge_plan *plan, const float *values, size_t count)
{
    float largest = 0;
    int bound = plan->update.buffer_bound_log2;
    /* Statistics may grow fourfold in a round before a value is clipped. */
    for (size_t i = 0; i < count; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    while (bound < FEDGE_FIXED_MAX_BOUND_LOG2 && ldexpf(1.0f, bound) < 4 * largest)
        bound++;
    return (int8_t)bound;
}

void fedge_sections_bounds(const fedge_plan *plan, const float *model, int8_t *bounds_log2)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    const fedge_section *hooks = fedge_sections_find(&plan->sent, FEDGE_SECTION_HOOKS);
    memset(bounds_log2, plan->update.bound_log2, plan->sent.schema.num_tensors);
    if (hooks) {
        memset(bounds_log2 + hooks->first, plan->update.control_bound_log2,
               hooks->schema.num_tensors);
    }
    for (uint32_t i = 0; buffers && i < buffers->schema.num_tensors; i++) {
        const uint32_t at = buffers->first + i;
        bounds_log2[at] = statistics_bound(plan, model + plan->sent.model_offsets[at],
                                           buffers->schema.tensors[i].count);
    }
}
