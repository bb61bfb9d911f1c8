#include "edge/plan/update.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"
#include "edge/plan/client_hooks.h"
#include "edge/wire/deflate.h"

#define READ_BYTES 16384 /* chunk size of sections that are not deflated */
#define MAX_HALVINGS 256 /* after which a float is 0 */

static size_t largest_of(const fedge_section *section)
{
    return fedge_codec_size(&section->codec, &section->schema);
}

size_t fedge_update_max_size(const fedge_plan *plan)
{
    size_t size = 0;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++)
        size += largest_of(&plan->sent.sections[i]);
    return size;
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* The section being encoded. */
typedef struct section_ends {
    const fedge_update *update;
    const fedge_section *section;
} section_ends;

/* The trained values of a tensor of the section from [at] on, and in *start the initial ones. */
static float *find_trained(const section_ends *ends, uint32_t index, size_t at, const float **start)
{
    const fedge_update *update = ends->update;
    const fedge_plan *plan = update->plan;
    const size_t offset = plan->sent.model_offsets[ends->section->first + index] + at;
    *start = update->start + offset;
    return offset < plan->num_parameters ? update->parameters + offset
                                         : update->buffers + (offset - plan->num_parameters);
}

static const float *take_changes(void *user, uint32_t index, size_t at, size_t n, float *buffer)
{
    const section_ends *ends = user;
    (void)n;
    (void)buffer;
    return ends->update->changes + ends->section->schema.tensors[index].offset + at;
}

static const float *take_trained(void *user, uint32_t index, size_t at, size_t n, float *buffer)
{
    const float *start;
    float *trained = find_trained(user, index, at, &start);
    for (size_t i = 0; i < n; i++)
        buffer[i] = trained[i] - start[i];
    /* Reset in the same pass, while the chunk is in the L1 cache. */
    memcpy(trained, start, n * sizeof(*trained));
    return buffer;
}

static void take_trained_fixed(void *user, uint32_t index, size_t at, size_t n, int bound_log2,
                               int32_t *v, fedge_codec_stats *stats)
{
    const float *start;
    float *trained = find_trained(user, index, at, &start);
    fedge_fixed_quantise_change(trained, start, n, bound_log2, v, &stats->clamped,
                                &stats->not_finite);
}

static fedge_status give(void *user, uint32_t index, size_t at, const uint32_t *indices, size_t n,
                         const int32_t *v, fedge_error *err)
{
    const section_ends *ends = user;
    const size_t first = ends->section->schema.tensors[index].offset + at;
    return ends->update->give(ends->update->user, first, indices, n, v, err);
}

/* Deflates the bytes in place if the plan wants it and it makes them shorter. Returns the new size.
 */
static size_t pack(const fedge_update *update, uint8_t *raw, size_t raw_size)
{
    size_t size = 0;
    /* One byte less than the input: deflating fails if it does not shorten. */
    if (!update->plan->update.deflate || raw_size <= 1 ||
        !fedge_deflater_run(update->deflater, raw, raw_size, update->packed, raw_size - 1, &size))
        return raw_size;
    memcpy(raw, update->packed, size);
    return size;
}

static fedge_status run_section(const fedge_update *update, const fedge_section *section,
                                fedge_update_made *made, fedge_error *err)
{
    section_ends user = {update, section};
    const fedge_codec_ends ends = {
        .user = &user,
        .take = update->changes ? take_changes : take_trained,
        .take_fixed = update->changes ? NULL : take_trained_fixed,
        .give = update->give ? give : NULL,
        .residual = section->kind == FEDGE_SECTION_DELTA ? update->residual : NULL,
        .seed = update->plan->seed,
        .round = update->round};
    uint8_t *raw = update->bytes ? update->bytes + made->size : NULL;
    fedge_section_info *info = &made->sections[made->num_sections++];
    fedge_codec_stats stats;
    size_t raw_size = 0;
    FEDGE_TRY(fedge_codec_encode_chunks(&section->codec, &section->schema,
                                        update->bounds_log2 + section->first, &ends, raw, &raw_size,
                                        &stats, err));
    const size_t size = raw ? pack(update, raw, raw_size) : raw_size;
    *info = (fedge_section_info){
        .codec = section->codec, .deflate = size < raw_size, .size = size, .raw_size = raw_size};
    (void)snprintf(info->name, sizeof(info->name), "%s", section->name);
    made->size += size;
    made->clamped += stats.clamped;
    return FEDGE_OK;
}

/* The fraction of a residual that is left after [age] rounds: half per half-life, and linear
 * between. One float multiplication, so all machines agree. */
static float fraction_left(uint32_t age, uint32_t half_life)
{
    const float part = (float)(age % half_life) / (float)half_life;
    const uint32_t halvings = age / half_life;
    return ldexpf(1.0f - 0.5f * part, -(int)(halvings < MAX_HALVINGS ? halvings : MAX_HALVINGS));
}

/* A residual of the previous round is used in full, an older one decays; without error feedback it
 * is 0. */
static void begin_residual(const fedge_update *update)
{
    const fedge_plan *plan = update->plan;
    const size_t n = plan->sent.sections[0].schema.num_elements;
    const uint32_t half_life = plan->update.residual_half_life;
    float *residual = update->residual;
    /* The last value is the residual's round. */
    const uint32_t last = (uint32_t)residual[n];
    if (!fedge_plan_retains_residual(plan)) {
        memset(residual, 0, n * sizeof(*residual));
    } else if (half_life > 0 && last > 0 && update->round > last + 1) {
        const float left = fraction_left(update->round - last - 1, half_life);
        for (size_t i = 0; i < n; i++)
            residual[i] *= left;
    }
    residual[n] = (float)update->round;
}

fedge_status fedge_update_run(const fedge_update *update, fedge_update_made *made, fedge_error *err)
{
    const fedge_sent *sent = &update->plan->sent;
    assert(fedge_plan_makes_residual(update->plan) == (update->residual != NULL));
    if (update->residual)
        begin_residual(update);
    assert(!update->plan->update.deflate || (update->bytes && update->packed && update->deflater));
    made->size = made->clamped = 0;
    made->num_sections = 0;
    for (uint32_t i = 0; i < sent->num_sections; i++)
        FEDGE_TRY(run_section(update, &sent->sections[i], made, err));
    return FEDGE_OK;
}

/* Reports clipping as a metric; omitted if the list is full. */
static void add_clamped(fedge_upload *upload, uint64_t clamped)
{
    if (clamped == 0 || upload->num_metrics >= FEDGE_MAX_METRICS)
        return;
    fedge_metric *metric = &upload->metrics[upload->num_metrics++];
    *metric = (fedge_metric){.name = "clamped", .value = (double)clamped};
}

/* Space for the largest section after deflating. */
static size_t packed_of(const fedge_plan *plan)
{
    size_t largest = 2;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const size_t size = largest_of(&plan->sent.sections[i]);
        largest = size > largest ? size : largest;
    }
    return largest - 1;
}

static fedge_status run_and_describe(const fedge_update *update, fedge_upload *upload,
                                     fedge_error *err)
{
    fedge_update_made made;
    FEDGE_TRY(fedge_update_run(update, &made, err));
    upload->size = made.size;
    upload->num_sections = made.num_sections;
    memcpy(upload->sections, made.sections, made.num_sections * sizeof(made.sections[0]));
    upload->crc32 = fedge_crc32(0, update->bytes, (size_t)made.size);
    add_clamped(upload, made.clamped);
    return FEDGE_OK;
}

fedge_status fedge_update_encode(const fedge_update *wanted, fedge_upload *upload, uint8_t **bytes,
                                 fedge_error *err)
{
    *bytes = NULL;
    const fedge_plan *plan = wanted->plan;
    const size_t most = fedge_update_max_size(plan);
    const bool deflate = plan->update.deflate;
    fedge_update update = *wanted;
    update.bytes = malloc(most > 0 ? most : 1);
    update.packed = deflate ? malloc(packed_of(plan)) : NULL;
    update.deflater = NULL;
    fedge_status status = FEDGE_OK;
    if (!update.bytes || (deflate && !update.packed)) {
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an update of %zu bytes", most),
                     done);
    }
    if (deflate)
        FEDGE_TRY_OR(fedge_deflater_new(&update.deflater, err), done);
    status = run_and_describe(&update, upload, err);
done:
    fedge_deflater_free(update.deflater);
    free(update.packed);
    if (status != FEDGE_OK) {
        free(update.bytes);
        return status;
    }
    /* Shrinks the result to its size. */
    uint8_t *shorter = upload->size > 0 && upload->size < most
                           ? realloc(update.bytes, (size_t)upload->size)
                           : NULL;
    *bytes = shorter ? shorter : update.bytes;
    return FEDGE_OK;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Whether the announced section is the plan's. */
static fedge_status check_section(const fedge_plan *plan, const fedge_section *wanted,
                                  const fedge_section_info *section, fedge_error *err)
{
    const uint64_t largest = largest_of(wanted), raw_size = section->raw_size;
    char is[FEDGE_CODEC_TEXT], wants[FEDGE_CODEC_TEXT];
    if (strcmp(section->name, wanted->name) != 0) {
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\"; the plan wants \"%s\"",
                          section->name, wanted->name);
    }
    if (!fedge_codec_equal(&section->codec, &wanted->codec)) {
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\" has codec %s; the plan wants %s",
                          section->name, fedge_codec_text(&section->codec, is),
                          fedge_codec_text(&wanted->codec, wants));
    }
    if (section->deflate && !plan->update.deflate) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" is deflated; the plan does not allow it", section->name);
    }
    if (section->size > largest) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "section \"%s\" has %" PRIu64 " bytes; the plan's limit is %" PRIu64,
                          section->name, section->size, largest);
    }
    if (raw_size != largest && (fedge_codec_is_plain(&wanted->codec) || raw_size > largest)) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" has %" PRIu64 " bytes before deflate; the plan's schema "
                          "makes %s%" PRIu64,
                          section->name, raw_size,
                          fedge_codec_is_plain(&wanted->codec) ? "" : "at most ", largest);
    }
    /* An encoder uses deflated bytes only if they are fewer; equal sizes mean that they are not
     * deflated. Otherwise one update could have two forms. */
    if (section->deflate == (section->size == raw_size) || section->size == 0 ||
        section->size > raw_size) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" has %" PRIu64 " bytes %s deflate, %" PRIu64 " without",
                          section->name, section->size,
                          section->deflate ? "with" : "although without", raw_size);
    }
    return FEDGE_OK;
}

/* Whether it reports a whole number that its strategy needs. */
static fedge_status check_number(const fedge_plan *plan, const fedge_upload *upload,
                                 const char *name, uint32_t least, uint32_t most, fedge_error *err)
{
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        const double value = upload->metrics[i].value;
        if (strcmp(upload->metrics[i].name, name) == 0 && value >= (double)least &&
            value <= (double)most && value == (double)(uint32_t)value)
            return FEDGE_OK;
    }
    return fedge_fail(err, FEDGE_MISMATCH,
                      "an update of %s has the metric \"%s\", a whole number from %" PRIu32
                      " to %" PRIu32,
                      plan->hooks->name, name, least, most);
}

fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                fedge_error *err)
{
    const fedge_sent *sent = &plan->sent;
    uint64_t size = 0;
    if (upload->num_sections != sent->num_sections) {
        return fedge_fail(err, FEDGE_MISMATCH, "%u sections; the plan wants %u, first \"%s\"",
                          upload->num_sections, sent->num_sections, sent->sections[0].name);
    }
    for (uint32_t i = 0; i < sent->num_sections; i++) {
        FEDGE_TRY(check_section(plan, &sent->sections[i], &upload->sections[i], err));
        size += upload->sections[i].size;
    }
    if (upload->size != size) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "upload of %" PRIu64 " bytes, its sections have %" PRIu64, upload->size,
                          size);
    }
    if (fedge_plan_counts_steps(plan))
        return check_number(plan, upload, FEDGE_NUM_STEPS, 1, UINT32_MAX, err);
    return fedge_plan_is_clustered(plan)
               ? check_number(plan, upload, FEDGE_CLUSTER, 0, fedge_plan_num_broadcast(plan), err)
               : FEDGE_OK;
}

fedge_status fedge_update_fail_crc32(uint64_t size, uint32_t crc, uint32_t announced,
                                     fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT,
                      "upload of %" PRIu64 " bytes has CRC-32 %08x, announced was %08x", size, crc,
                      announced);
}

fedge_status fedge_update_unpack(const fedge_plan *plan, const fedge_upload *upload,
                                 const uint8_t *bytes, uint8_t *raw, size_t raw_size,
                                 fedge_error *err)
{
    assert(raw_size >= fedge_update_max_size(plan));
    (void)raw_size;
    FEDGE_TRY(fedge_update_check(plan, upload, err));
    /* The check limits it to fedge_update_max_size, so it fits a size_t. */
    uint32_t crc = fedge_crc32(0, bytes, (size_t)upload->size);
    if (crc != upload->crc32)
        return fedge_update_fail_crc32(upload->size, crc, upload->crc32, err);
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section_info *info = &upload->sections[i];
        const size_t size =
            (size_t)info->raw_size; /* checked: at most its section's largest size */
        fedge_status status = FEDGE_OK;
        if (!info->deflate)
            memcpy(raw, bytes, size);
        else if ((status = fedge_inflate(bytes, (size_t)info->size, raw, size, err)) != FEDGE_OK)
            return fedge_error_prefix(err, status, "section \"%s\"", info->name);
        bytes += info->size;
        raw += size;
    }
    return FEDGE_OK;
}

/* A reader that updates the checksum as it reads. */
typedef struct checked_reader {
    fedge_read_fn read;
    void *user;
    uint32_t crc;
    fedge_error failed; /* failure of [read] */
} checked_reader;

static fedge_status read_checked(void *user, uint8_t *bytes, size_t size, fedge_error *err)
{
    checked_reader *self = user;
    fedge_status status = self->read(self->user, bytes, size, &self->failed);
    if (status != FEDGE_OK)
        return fedge_fail(err, status, "%s", self->failed.message);
    self->crc = fedge_crc32(self->crc, bytes, size);
    return FEDGE_OK;
}

/* Reads a section to its destination. */
static fedge_status unpack_section(checked_reader *from, const fedge_section_info *info,
                                   uint8_t *raw, fedge_error *err)
{
    const size_t size = (size_t)info->raw_size; /* checked: at most its section's largest size */
    if (info->deflate) {
        fedge_status status = fedge_inflate_read(read_checked, from, info->size, raw, size, err);
        return status == FEDGE_OK ? status
                                  : fedge_error_prefix(err, status, "section \"%s\"", info->name);
    }
    for (size_t at = 0; at < size;) {
        const size_t part = size - at < READ_BYTES ? size - at : READ_BYTES;
        FEDGE_TRY(read_checked(from, raw + at, part, err));
        at += part;
    }
    return FEDGE_OK;
}

fedge_status fedge_update_unpack_read(const fedge_plan *plan, const fedge_upload *upload,
                                      fedge_read_fn read, void *user, uint8_t *raw, size_t raw_size,
                                      fedge_error *err)
{
    checked_reader from = {.read = read, .user = user, .failed.status = FEDGE_OK};
    fedge_error of_data = {.status = FEDGE_OK}, failure;
    assert(raw_size >= fedge_update_max_size(plan));
    (void)raw_size;
    FEDGE_TRY(fedge_update_check(plan, upload, err));
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        /* An error in the data is reported after the checksum's, which needs all bytes. */
        const fedge_status status = unpack_section(&from, &upload->sections[i], raw, &failure);
        if (from.failed.status != FEDGE_OK || status == FEDGE_NO_MEMORY)
            return fedge_fail(err, status, "%s", failure.message);
        if (status != FEDGE_OK && of_data.status == FEDGE_OK)
            of_data = failure;
        raw += upload->sections[i].raw_size;
    }
    /* The checksum comes first: bytes damaged on the way may be sent again. */
    if (from.crc != upload->crc32)
        return fedge_update_fail_crc32(upload->size, from.crc, upload->crc32, err);
    return of_data.status == FEDGE_OK ? FEDGE_OK
                                      : fedge_fail(err, of_data.status, "%s", of_data.message);
}

fedge_status fedge_update_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                                 const fedge_upload *upload, const uint8_t *bytes, uint8_t *scratch,
                                 size_t scratch_size, int32_t *v, fedge_error *err)
{
    FEDGE_TRY(fedge_update_unpack(plan, upload, bytes, scratch, scratch_size, err));
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section *section = &plan->sent.sections[i];
        const size_t size = (size_t)upload->sections[i].raw_size;
        FEDGE_TRY(fedge_codec_decode(&section->codec, &section->schema,
                                     bounds_log2 + section->first, scratch, size, v, err));
        scratch += size;
    }
    return FEDGE_OK;
}

/* ---- model deltas ------------------------------------------------------------------------------
 */

#define STEP_HEAD 16 /* bytes before a step's section */

/* The model's tensor that the decoded values are added to. */
typedef struct delta_target {
    const fedge_plan *plan;
    float *model;
    uint32_t index;
} delta_target;

/* Adds the decoded values to the tensor. */
static fedge_status move(void *user, size_t at, const uint32_t *indices, size_t n, const int32_t *v,
                         fedge_error *err)
{
    const delta_target *to = user;
    const float unit = ldexpf(1.0f, to->plan->update.bound_log2 - FEDGE_FIXED_VALUE_BITS);
    float *values = to->model + to->plan->sent.model_offsets[to->index];
    (void)err;
    for (size_t i = 0; i < n; i++)
        values[indices ? indices[i] : at + i] += (float)v[i] * unit;
    return FEDGE_OK;
}

static size_t num_statistics(const fedge_plan *plan)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    return buffers ? buffers->schema.num_elements : 0;
}

/* Copies the sent statistics from the model to bytes, or back. */
static void put_statistics(const fedge_plan *plan, const float *model, uint8_t *out)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; buffers && i < buffers->schema.num_tensors; i++) {
        const size_t n = buffers->schema.tensors[i].count;
        fedge_put_f32s(out, model + plan->sent.model_offsets[buffers->first + i], n);
        out += n * sizeof(float);
    }
}

static fedge_status get_statistics(const fedge_plan *plan, const uint8_t *in, float *model,
                                   fedge_error *err)
{
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; buffers && i < buffers->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &buffers->schema.tensors[i];
        float *values = model + plan->sent.model_offsets[buffers->first + i];
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

/* The changes of the first section, and where their decoded values go. */
typedef struct maker {
    const fedge_plan *plan;
    uint32_t round;
    float *wanted; /* changes plus residual in the section's order */
    float *after;
} maker;

static const float *take_change(void *user, uint32_t index, size_t at, size_t n, float *buffer)
{
    const maker *self = user;
    (void)n;
    (void)buffer;
    return self->wanted + self->plan->sent.sections[0].schema.tensors[index].offset + at;
}

static fedge_status give_change(void *user, uint32_t index, size_t at, const uint32_t *indices,
                                size_t n, const int32_t *v, fedge_error *err)
{
    const maker *self = user;
    delta_target to = {self->plan, self->after, index};
    return move(&to, at, indices, n, v, err);
}

/* Takes the changes from [after], which is reset to [before], and adds the residual, which is
 * cleared. */
static fedge_status take_wanted(maker *self, const float *before, float *residual, fedge_error *err)
{
    const fedge_section *delta = &self->plan->sent.sections[0];
    for (uint32_t i = 0; i < delta->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &delta->schema.tensors[i];
        float *after = self->after + self->plan->sent.model_offsets[i];
        const float *from = before + self->plan->sent.model_offsets[i];
        float *unsent = residual + tensor->offset;
        for (size_t k = 0; k < tensor->count; k++) {
            const float wanted = unsent[k] + (after[k] - from[k]);
            if (!isfinite(wanted)) {
                return fedge_fail(err, FEDGE_NOT_FINITE,
                                  "the change of value %zu of tensor \"%s\" is %g", k, tensor->name,
                                  (double)wanted);
            }
            self->wanted[tensor->offset + k] = wanted;
            unsent[k] = 0.0f;
            after[k] = from[k];
        }
    }
    return FEDGE_OK;
}

/* The codec clips at the bound. Clients discard the excess of their updates, so that a diverging
 * one has no lasting effect; the server's excess goes into the next delta. */
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

static fedge_status encode_step(maker *self, float *residual, uint8_t *out, size_t *size,
                                fedge_error *err)
{
    const fedge_plan *plan = self->plan;
    const fedge_section *delta = &plan->sent.sections[0];
    int8_t bounds[FEDGE_MAX_TENSORS];
    fedge_codec_stats unused; /* the excess is in the residual */
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
    fedge_sections_round(plan, self->after, residual);
    return FEDGE_OK;
}

/* Deflates the section after the head in place if that helps. Returns its size. */
static size_t pack_step(uint8_t *section, size_t raw)
{
    fedge_deflater *deflater = NULL;
    size_t packed = raw;
    uint8_t *buffer = raw > 1 ? malloc(raw - 1) : NULL;
    if (buffer && fedge_deflater_new(&deflater, NULL) == FEDGE_OK &&
        fedge_deflater_run(deflater, section, raw, buffer, raw - 1, &packed))
        memcpy(section, buffer, packed);
    else
        packed = raw;
    fedge_deflater_free(deflater);
    free(buffer);
    return packed;
}

fedge_status fedge_model_delta_make(const fedge_plan *plan, uint32_t round, const float *before,
                                    float *residual, float *after, uint8_t **bytes, size_t *size,
                                    fedge_error *err)
{
    *bytes = NULL;
    const fedge_section *delta = &plan->sent.sections[0];
    const size_t statistics = num_statistics(plan) * sizeof(float);
    const size_t most =
        STEP_HEAD + fedge_codec_size(&plan->update.down, &delta->schema) + statistics;
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
    FEDGE_TRY_OR(encode_step(&self, residual, out + STEP_HEAD, &raw, err), done);
    const size_t packed = plan->update.down_deflate ? pack_step(out + STEP_HEAD, raw) : raw;
    fedge_put_u64(out, raw);
    fedge_put_u64(out + 8, packed);
    put_statistics(plan, after, out + STEP_HEAD + packed);
    *bytes = out;
    *size = STEP_HEAD + packed + statistics;
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
        delta_target to = {plan, values, i};
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

/* A deflated section. */
static fedge_status inflate_section(const fedge_plan *plan, const uint8_t *in, size_t packed,
                                    size_t raw, float *values, fedge_error *err)
{
    uint8_t *buffer = malloc(raw);
    if (!buffer)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model's delta of %zu bytes", raw);
    fedge_status status;
    FEDGE_TRY_OR(fedge_inflate(in, packed, buffer, raw, err), done);
    status = apply_section(plan, buffer, raw, values, err);
done:
    free(buffer);
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
        const uint64_t raw = size >= STEP_HEAD ? fedge_get_u64(bytes) : 0;
        const uint64_t packed = size >= STEP_HEAD ? fedge_get_u64(bytes + 8) : 0;
        if (size < STEP_HEAD || packed > size - STEP_HEAD || statistics > size - STEP_HEAD - packed)
            return fedge_fail(err, FEDGE_TRUNCATED, "a model's delta ends within a step");
        if (raw > most || packed > raw) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "a model's delta has a section of %llu bytes; the plan's has at most "
                              "%zu",
                              (unsigned long long)(raw > most ? raw : packed), most);
        }
        bytes += STEP_HEAD;
        if (packed < raw)
            FEDGE_TRY(inflate_section(plan, bytes, (size_t)packed, (size_t)raw, values, err));
        else
            FEDGE_TRY(apply_section(plan, bytes, (size_t)raw, values, err));
        fedge_sections_round(plan, values, NULL);
        bytes += packed;
        FEDGE_TRY(get_statistics(plan, bytes, values, err));
        bytes += statistics;
        size -= STEP_HEAD + (size_t)packed + statistics;
    }
    return FEDGE_OK;
}
