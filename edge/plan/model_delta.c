#include "edge/plan/model_delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/wire/deflate.h"

#define HEAD 16

/* Where the values of a tensor of the first section lie in the model. */
typedef struct place {
    const fedge_plan *plan;
    float *model;
    uint32_t index;
} place;

/* Moves them by what was decoded. */
static fedge_status move(void *user, size_t at, const uint32_t *places, size_t n, const int32_t *v,
                         fedge_error *err)
{
    const place *to = user;
    const float unit = ldexpf(1.0f, to->plan->update.bound_log2 - FEDGE_FIXED_VALUE_BITS);
    float *values = to->model + to->plan->sent.places[to->index];
    (void)err;
    for (size_t i = 0; i < n; i++)
        values[places ? places[i] : at + i] += (float)v[i] * unit;
    return FEDGE_OK;
}

static size_t num_statistics(const fedge_plan *plan)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    return buffers ? buffers->schema.num_elements : 0;
}

/* Copies the statistics that travel out of the model as bytes, or back. */
static void put_statistics(const fedge_plan *plan, const float *model, uint8_t *out)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; buffers && i < buffers->schema.num_tensors; i++) {
        const size_t n = buffers->schema.tensors[i].count;
        fedge_put_f32s(out, model + plan->sent.places[buffers->first + i], n);
        out += n * sizeof(float);
    }
}

static fedge_status get_statistics(const fedge_plan *plan, const uint8_t *in, float *model,
                                   fedge_error *err)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; buffers && i < buffers->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &buffers->schema.tensors[i];
        float *values = model + plan->sent.places[buffers->first + i];
        fedge_get_f32s(in, values, tensor->count);
        in += tensor->count * sizeof(float);
        for (size_t k = 0; k < tensor->count; k++) {
            if (!isfinite(values[k])) {
                return fedge_fail(err, FEDGE_NOT_FINITE, "value %zu of tensor \"%s\" is %g", k,
                                  tensor->name, (double)values[k]);
            }
        }
    }
    return FEDGE_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* The changes of the first section, and where they go. */
typedef struct maker {
    const fedge_plan *plan;
    uint32_t round;
    float *wanted; /* in the order of the section: the changes with what has not travelled before */
    float *after;
} maker;

static const float *take_change(void *user, uint32_t index, size_t at, size_t n, float *room)
{
    const maker *self = user;
    (void)n;
    (void)room;
    return self->wanted + self->plan->sent.sections[0].schema.tensors[index].offset + at;
}

static fedge_status give_change(void *user, uint32_t index, size_t at, const uint32_t *places,
                                size_t n, const int32_t *v, fedge_error *err)
{
    const maker *self = user;
    place to = {self->plan, self->after, index};
    return move(&to, at, places, n, v, err);
}

/* The changes come out of [after], where what was before them comes back, and what had not
 * travelled comes out of the residual. */
static fedge_status take_wanted(maker *self, const float *before, float *residual, fedge_error *err)
{
    const fedge_section *delta = &self->plan->sent.sections[0];
    for (uint32_t i = 0; i < delta->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &delta->schema.tensors[i];
        float *after = self->after + self->plan->sent.places[i];
        const float *from = before + self->plan->sent.places[i];
        float *rest = residual + tensor->offset;
        for (size_t k = 0; k < tensor->count; k++) {
            const float wanted = rest[k] + (after[k] - from[k]);
            if (!isfinite(wanted)) {
                return fedge_fail(err, FEDGE_NOT_FINITE,
                                  "the change of value %zu of tensor \"%s\" is %g", k, tensor->name,
                                  (double)wanted);
            }
            self->wanted[tensor->offset + k] = wanted;
            rest[k] = 0.0f;
            after[k] = from[k];
        }
    }
    return FEDGE_OK;
}

/* The codec cuts what is over the bound. Clients lose that on their way up, which keeps one that
 * diverges from being heard for many rounds; a server's own step goes on in the next delta. */
static void keep_excess(const maker *self, float *residual)
{
    const size_t n = self->plan->sent.sections[0].schema.num_elements;
    const float bound = ldexpf(1.0f, self->plan->update.bound_log2);
    for (size_t i = 0; i < n; i++) {
        const float wanted = self->wanted[i];
        if (fabsf(wanted) > bound)
            residual[i] += wanted - copysignf(bound, wanted);
    }
}

static fedge_status encode(maker *self, float *residual, uint8_t *out, size_t *size,
                           fedge_error *err)
{
    const fedge_plan *plan = self->plan;
    const fedge_section *delta = &plan->sent.sections[0];
    int8_t bounds[FEDGE_MAX_TENSORS];
    fedge_codec_stats unused; /* what was cut is kept */
    const fedge_codec_ends ends = {.user = self,
                                   .take = take_change,
                                   .give = give_change,
                                   .residual = residual,
                                   .seed = plan->seed,
                                   .round = self->round};
    memset(bounds, plan->update.bound_log2, delta->schema.num_tensors);
    FEDGE_TRY(fedge_codec_encode_chunks(&plan->update.down, &delta->schema, bounds, &ends, out,
                                        size, &unused, err));
    keep_excess(self, residual);
    return FEDGE_OK;
}

/* Deflates the section behind the head in its place where it helps. Returns its bytes. */
static size_t pack(uint8_t *section, size_t raw)
{
    fedge_deflater *deflater = NULL;
    size_t packed = raw;
    uint8_t *room = raw > 1 ? malloc(raw - 1) : NULL;
    if (room && fedge_deflater_new(&deflater, NULL) == FEDGE_OK &&
        fedge_deflater_run(deflater, section, raw, room, raw - 1, &packed))
        memcpy(section, room, packed);
    else
        packed = raw;
    fedge_deflater_free(deflater);
    free(room);
    return packed;
}

fedge_status fedge_model_delta_make(const fedge_plan *plan, uint32_t round, const float *before,
                                    float *residual, float *after, uint8_t **bytes, size_t *size,
                                    fedge_error *err)
{
    *bytes = NULL;
    const fedge_section *delta = &plan->sent.sections[0];
    const size_t statistics = num_statistics(plan) * sizeof(float);
    const size_t most = HEAD + fedge_codec_size(&plan->update.down, &delta->schema) + statistics;
    maker self = {plan, round, malloc(delta->schema.num_elements * sizeof(float)), after};
    uint8_t *out = malloc(most);
    size_t raw = 0;
    fedge_status status = FEDGE_OK;
    if (!self.wanted || !out) {
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model's delta of %zu bytes",
                                most + delta->schema.num_elements * sizeof(float)),
                     done);
    }
    FEDGE_TRY_OR(take_wanted(&self, before, residual, err), done);
    FEDGE_TRY_OR(encode(&self, residual, out + HEAD, &raw, err), done);
    const size_t packed = plan->update.down_deflate ? pack(out + HEAD, raw) : raw;
    fedge_put_u64(out, raw);
    fedge_put_u64(out + 8, packed);
    put_statistics(plan, after, out + HEAD + packed);
    *bytes = out;
    *size = HEAD + packed + statistics;
    out = NULL;
done:
    free(self.wanted);
    free(out);
    return status;
}

/* ---- applying -------------------------------------------------------------------------------- */

static fedge_status apply_section(const fedge_plan *plan, const uint8_t *in, size_t size,
                                  float *values, fedge_error *err)
{
    const fedge_section *delta = &plan->sent.sections[0];
    for (uint32_t i = 0; i < delta->schema.num_tensors; i++) {
        place to = {plan, values, i};
        const fedge_codec_tensor tensor = {.codec = fedge_codec_of(&plan->update.down, i),
                                           .spec = &delta->schema.tensors[i],
                                           .bound_log2 = plan->update.bound_log2,
                                           .give = move,
                                           .user = &to};
        size_t used = 0;
        FEDGE_TRY(fedge_codec_read_tensor(&tensor, in, size, &used, err));
        in += used;
        size -= used;
    }
    return fedge_codec_check_end(size, err);
}

/* A section that is deflated. */
static fedge_status inflate_section(const fedge_plan *plan, const uint8_t *in, size_t packed,
                                    size_t raw, float *values, fedge_error *err)
{
    uint8_t *room = malloc(raw);
    if (!room)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model's delta of %zu bytes", raw);
    fedge_status status;
    FEDGE_TRY_OR(fedge_inflate(in, packed, room, raw, err), done);
    status = apply_section(plan, room, raw, values, err);
done:
    free(room);
    return status;
}

fedge_status fedge_model_delta_apply(const fedge_plan *plan, const uint8_t *bytes, size_t size,
                                     float *values, fedge_error *err)
{
    const size_t statistics = num_statistics(plan) * sizeof(float);
    const size_t most = fedge_codec_size(&plan->update.down, &plan->sent.sections[0].schema);
    for (uint32_t step = 0; size > 0; step++) {
        if (step == FEDGE_MODEL_DELTA_MAX_STEPS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "a model's delta has over %u steps",
                              (unsigned)step);
        }
        const uint64_t raw = size >= HEAD ? fedge_get_u64(bytes) : 0;
        const uint64_t packed = size >= HEAD ? fedge_get_u64(bytes + 8) : 0;
        if (size < HEAD || packed > size - HEAD || statistics > size - HEAD - packed)
            return fedge_fail(err, FEDGE_TRUNCATED, "a model's delta ends within a step");
        if (raw > most || packed > raw) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "a model's delta has a section of %llu bytes; the plan's has at most "
                              "%zu",
                              (unsigned long long)(raw > most ? raw : packed), most);
        }
        bytes += HEAD;
        if (packed < raw)
            FEDGE_TRY(inflate_section(plan, bytes, (size_t)packed, (size_t)raw, values, err));
        else
            FEDGE_TRY(apply_section(plan, bytes, (size_t)raw, values, err));
        bytes += packed;
        FEDGE_TRY(get_statistics(plan, bytes, values, err));
        bytes += statistics;
        size -= HEAD + (size_t)packed + statistics;
    }
    return FEDGE_OK;
}
