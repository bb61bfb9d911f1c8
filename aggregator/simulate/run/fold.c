#include "aggregator/simulate/run/fold.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/codec_block.h"
#include "edge/core/fixed.h"
#include "edge/core/vec.h"

#define PIECE (8 * FEDGE_CODEC_BLOCK) /* values that are added at a time: 8 KiB of them */

/* Differences of finite numbers are no NaN. */
static fedge_status check_changes(const fedge_fold *update, fedge_error *err)
{
    const fedge_schema *schema = &update->plan->sent.schema;
    for (uint32_t t = 0; update->changes && t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        for (size_t i = 0; i < tensor->count; i++) {
            if (isnan(update->changes[tensor->offset + i])) {
                return fedge_fail(err, FEDGE_NOT_FINITE,
                                  "value %zu of tensor \"%s\" is NaN; training has diverged", i,
                                  tensor->name);
            }
        }
    }
    return FEDGE_OK;
}

/* Values [at, at + n) of the tensor through the codec: v (n), and the bytes at [out] unless that is
 * NULL. Returns how many bytes. */
static size_t code(const fedge_fold *update, fedge_codec codec, uint32_t t, size_t at, size_t n,
                   int32_t *v, uint8_t *out, fedge_codec_stats *stats)
{
    const fedge_plan *plan = update->plan;
    const int8_t bound_log2 = update->bounds_log2[t];
    float room[PIECE];
    const float *x = room;
    if (update->changes) {
        x = update->changes + plan->sent.schema.tensors[t].offset + at;
    } else {
        const size_t place = plan->sent.places[t] + at;
        const float *start = update->start + place;
        float *trained = place < plan->num_parameters
                             ? update->parameters + place
                             : update->buffers + (place - plan->num_parameters);
        if (codec == FEDGE_CODEC_NONE && !out) { /* nobody needs the floats */
            fedge_fixed_quantise_change(trained, start, n, bound_log2, v, &stats->clamped,
                                        &stats->not_finite);
            return n * sizeof(float);
        }
        fedge_vec_sub(trained, start, room, n);
        memcpy(trained, start, n * sizeof(*trained));
    }
    size_t size = 0;
    for (size_t i = 0; i < n; i += FEDGE_CODEC_BLOCK) {
        const size_t block = n - i < FEDGE_CODEC_BLOCK ? n - i : FEDGE_CODEC_BLOCK;
        size += fedge_codec_block(codec, bound_log2, x + i, block, v + i, out ? out + size : NULL,
                                  stats);
    }
    return size;
}

/* Where a folded update goes, and what is learnt on the way. */
typedef struct destination {
    fedge_accumulator *accumulator;
    uint32_t lane, weight;
    fedge_codec_stats stats;
} destination;

/* Folds a tensor; *size are its bytes, which are left at [out] unless that is NULL. */
static fedge_status fold_tensor(const fedge_fold *update, fedge_codec codec, uint32_t t,
                                destination *to, uint8_t *out, size_t *size, fedge_error *err)
{
    const fedge_tensor_spec *tensor = &update->plan->sent.schema.tensors[t];
    fedge_status status = FEDGE_OK;
    int32_t own[PIECE];
    *size = 0;
    for (size_t at = 0; at < tensor->count && status == FEDGE_OK; at += PIECE) {
        const size_t n = tensor->count - at < PIECE ? tensor->count - at : PIECE;
        int32_t *v = update->v ? update->v + tensor->offset + at : own;
        *size += code(update, codec, t, at, n, v, out ? out + *size : NULL, &to->stats);
        status = fedge_accumulator_add_values(to->accumulator, to->lane, v, tensor->offset + at, n,
                                              to->weight, err);
    }
    return status;
}

/* Folds a section; adds its bytes as they would travel, deflated when that helps, to *size. */
static fedge_status fold_section(const fedge_fold *update, const fedge_section *section,
                                 destination *to, uint64_t *size, fedge_error *err)
{
    uint8_t *out = update->deflater ? update->bytes : NULL;
    fedge_status status = FEDGE_OK;
    size_t raw = 0, packed = 0;
    for (uint32_t i = 0; i < section->schema.num_tensors && status == FEDGE_OK; i++) {
        size_t bytes = 0;
        status = fold_tensor(update, section->codec, section->first + i, to, out ? out + raw : NULL,
                             &bytes, err);
        raw += bytes;
    }
    const bool shorter =
        status == FEDGE_OK && out && raw > 1 &&
        fedge_deflater_run(update->deflater, out, raw, update->packed, raw - 1, &packed);
    *size += shorter ? packed : raw;
    return status;
}

fedge_status fedge_fold_update(const fedge_fold *update, fedge_accumulator *accumulator,
                               uint32_t lane, uint32_t weight, fedge_folded *folded,
                               fedge_error *err)
{
    const fedge_sent *sent = &update->plan->sent;
    destination to = {.accumulator = accumulator, .lane = lane, .weight = weight};
    fedge_status status = check_changes(update, err);
    if (status == FEDGE_OK) {
        status = fedge_accumulator_begin(accumulator, weight, err);
    }
    *folded = (fedge_folded){0};
    for (uint32_t i = 0; i < sent->num_sections && status == FEDGE_OK; i++) {
        status = fold_section(update, &sent->sections[i], &to, &folded->size, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    assert(to.stats.not_finite == 0); /* else there are sums that cannot be taken back */
    folded->clamped = to.stats.clamped;
    return FEDGE_OK;
}
