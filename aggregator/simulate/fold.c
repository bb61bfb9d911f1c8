#include "aggregator/simulate/fold.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/core/codec_block.h"
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

/* Values [at, at + n) of the tensor, for this once; room: (n). */
static const float *changes_of(const fedge_fold *update, uint32_t t, size_t at, size_t n,
                               float *room)
{
    const fedge_plan *plan = update->plan;
    if (update->changes) {
        return update->changes + plan->sent.schema.tensors[t].offset + at;
    }
    const size_t place = plan->sent.places[t] + at;
    float *trained = place < plan->num_parameters
                         ? update->parameters + place
                         : update->buffers + (place - plan->num_parameters);
    fedge_vec_sub(trained, update->start + place, room, n);
    memcpy(trained, update->start + place, n * sizeof(*trained));
    return room;
}

/* Folds a tensor; returns its bytes, which are left at [out] unless that is NULL. */
static size_t fold_tensor(const fedge_fold *update, fedge_codec codec, uint32_t t,
                          fedge_device *device, uint32_t weight, uint8_t *out,
                          fedge_codec_stats *stats)
{
    const fedge_tensor_spec *tensor = &update->plan->sent.schema.tensors[t];
    float room[PIECE];
    int32_t own[PIECE];
    size_t size = 0;
    for (size_t at = 0; at < tensor->count; at += PIECE) {
        const size_t n = tensor->count - at < PIECE ? tensor->count - at : PIECE;
        const float *x = changes_of(update, t, at, n, room);
        int32_t *v = update->v ? update->v + tensor->offset + at : own;
        for (size_t i = 0; i < n; i += FEDGE_CODEC_BLOCK) {
            const size_t block = n - i < FEDGE_CODEC_BLOCK ? n - i : FEDGE_CODEC_BLOCK;
            size += fedge_codec_block(codec, update->bounds_log2[t], x + i, block, v + i,
                                      out ? out + size : NULL, stats);
        }
        fedge_device_add(device, v, tensor->offset + at, n, weight);
    }
    return size;
}

/* Folds a section; returns its bytes as they would travel: deflated when that helps. */
static uint64_t fold_section(const fedge_fold *update, const fedge_section *section,
                             fedge_device *device, uint32_t weight, fedge_codec_stats *stats)
{
    uint8_t *out = update->deflater ? update->bytes : NULL;
    size_t raw = 0, size = 0;
    for (uint32_t i = 0; i < section->schema.num_tensors; i++) {
        raw += fold_tensor(update, section->codec, section->first + i, device, weight,
                           out ? out + raw : NULL, stats);
    }
    const bool shorter =
        out && raw > 1 &&
        fedge_deflater_run(update->deflater, out, raw, update->packed, raw - 1, &size);
    return shorter ? size : raw;
}

fedge_status fedge_fold_update(const fedge_fold *update, fedge_device *device, uint32_t weight,
                               fedge_folded *folded, fedge_error *err)
{
    const fedge_sent *sent = &update->plan->sent;
    fedge_codec_stats stats = {0};
    fedge_status status = check_changes(update, err);
    if (status == FEDGE_OK) {
        status = fedge_device_begin(device, weight, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    *folded = (fedge_folded){0};
    for (uint32_t i = 0; i < sent->num_sections; i++) {
        folded->size += fold_section(update, &sent->sections[i], device, weight, &stats);
    }
    assert(stats.not_finite == 0); /* else there are sums that cannot be taken back */
    folded->clamped = stats.clamped;
    return FEDGE_OK;
}
