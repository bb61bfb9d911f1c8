/* The update layout: which values of a model an update has, and their offsets in the model.
 *
 * An update has only trained values, in one block, section by section and tensor by tensor, in the
 * model's order. Sums, bounds and the journal use this layout:
 *
 *     delta    w_end − w_start of the trained rows of every trained parameter, and of each tensor
 * of an external model that is not frozen buffers  changes of BatchNorm's statistics that are not
 * frozen; as floats, if the plan has no codec for them
 *     ...      the strategy's section, if it has one (client_hooks.h): one value for each of delta
 */
#ifndef FEDGE_EDGE_PLAN_SECTIONS_H
#define FEDGE_EDGE_PLAN_SECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"

struct fedge_plan;

typedef enum fedge_section_kind {
    FEDGE_SECTION_DELTA,
    FEDGE_SECTION_BUFFERS,
    FEDGE_SECTION_HOOKS, /* strategy's section */
    FEDGE_SECTION_KINDS
} fedge_section_kind;

/* A consecutive group of the tensors that are sent. Plain data. */
typedef struct fedge_section {
    fedge_section_kind kind;
    const char *name; /* "delta", "buffers" or the name in the strategy's hooks */
    fedge_codec codec;
    fedge_schema schema; /* schema of its tensors; offsets are in the block of all sections */
    uint32_t first;      /* index of its first tensor */
} fedge_section;

/* The update layout. It points into itself, so it must not be copied. */
typedef struct fedge_sent {
    fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_schema schema;                     /* schema of [tensors] with the sent shapes */
    size_t model_offsets[FEDGE_MAX_TENSORS]; /* offset of each tensor's first value in the model */
    const fedge_codec
        *codecs[FEDGE_MAX_TENSORS]; /* (delta's tensors), used if the plan has "layers"; down_codecs
                                       for the model's changes */
    const fedge_codec *down_codecs[FEDGE_MAX_TENSORS];
    uint32_t num_sections; /* ≥ 1; the first is the delta */
    fedge_section sections[FEDGE_SECTION_KINDS];
} fedge_sent;

/* Fills plan->sent from the plan's model, schema and update. FEDGE_INVALID_ARGUMENT: nothing is
 * trained, or a codec matches no tensor; FEDGE_TOO_BIG: more than FEDGE_MAX_TENSORS. *key is then
 * the job's key to change, static text. */
FEDGE_MUST_USE fedge_status fedge_sections_make(struct fedge_plan *plan, const char **key,
                                                fedge_error *err);

/* The section of a kind, or NULL. */
const fedge_section *fedge_sections_find(const fedge_sent *sent, fedge_section_kind kind);

/* Whether the section covers all parameters of the model at their offsets. */
bool fedge_section_is_whole(const struct fedge_plan *plan, const fedge_section *section);

/* Copies the section's values from a model (plan->schema.num_elements), or back to it. values:
 * (section->schema.num_elements) */
void fedge_section_gather(const fedge_sent *sent, const fedge_section *section, const float *model,
                          float *values);
void fedge_section_scatter(const fedge_sent *sent, const fedge_section *section,
                           const float *values, float *model);

/* Rounds the trained values of an external model's F16 and BF16 tensors to what a file of the model
 * has of them. lost: (sections[0].schema.num_elements), to which the differences are added; NULL:
 * they are dropped. */
void fedge_sections_round(const struct fedge_plan *plan, float *model, float *lost);

/* Replaces model (plan->schema.num_elements) in place: its first values become model − start in the
 * layout of delta and buffers. The strategy's section is not filled. */
void fedge_sections_changes(const fedge_sent *sent, const float *start, float *model);
/* Does the same for [changes], which holds the differences of all values. */
void fedge_sections_take(const fedge_sent *sent, float *changes);

/* Bounds of the sent tensors (plan->sent.schema.num_tensors) for a round that starts from [model].
 * The bound of statistics is the smallest 2^b ≥ 4 · the tensor's largest value, and at least the
 * plan's, so that growing statistics are not clipped for long. */
void fedge_sections_bounds(const struct fedge_plan *plan, const float *model, int8_t *bounds_log2);

#endif
