/* The update layout: which values of a model travel in an update, and where they belong in the
 * model.
 *
 * Untrained values are not sent. All values of an update lie in one block, section by section and
 * tensor by tensor, in the order of the model; sums, bounds and the journal follow this layout:
 *
 *     delta    w_end − w_start of the trained rows of every trained parameter
 *     buffers  how far BatchNorm's statistics moved, unless they are frozen; as floats, if the plan
 *              names no codec for them
 *     and what a strategy has clients send besides, under a name of its own (client_hooks.h): a
 * value for each of the delta
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
    FEDGE_SECTION_HOOKS, /* the strategy's */
    FEDGE_SECTION_KINDS
} fedge_section_kind;

/* A run of the tensors that travel. Plain data. */
typedef struct fedge_section {
    fedge_section_kind kind;
    const char *name; /* "delta", "buffers"; the strategy's as its hooks have it */
    fedge_codec codec;
    fedge_schema schema; /* its tensors; their offsets are those in the block of all sections */
    uint32_t first;      /* of its tensors among all */
} fedge_section;

/* The layout of an update. It points into itself, so it must not be copied. */
typedef struct fedge_sent {
    fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_schema schema;                     /* over [tensors]: shapes of what is sent */
    size_t model_offsets[FEDGE_MAX_TENSORS]; /* of each tensor's first value among the model's */
    const fedge_codec *codecs[FEDGE_MAX_TENSORS]; /* of each tensor of the delta, where a plan has
                                                     "layers"; and of its change that goes down */
    const fedge_codec *down_codecs[FEDGE_MAX_TENSORS];
    uint32_t num_sections; /* ≥ 1; the first is the delta */
    fedge_section sections[FEDGE_SECTION_KINDS];
} fedge_sent;

/* Fills plan->sent from the plan's model, schema and update. FEDGE_INVALID_ARGUMENT when nothing is
 * trained, or a codec is for tensors of which there are none; FEDGE_TOO_BIG when more than
 * FEDGE_MAX_TENSORS would travel; *key is the job's key that is to be changed then, static text. */
FEDGE_MUST_USE fedge_status fedge_sections_make(struct fedge_plan *plan, const char **key,
                                                fedge_error *err);

/* The section of this kind, or NULL. */
const fedge_section *fedge_sections_find(const fedge_sent *sent, fedge_section_kind kind);

/* Does the section have every parameter of the model, at the model's offsets? */
bool fedge_section_is_whole(const struct fedge_plan *plan, const fedge_section *section);

/* Copies the section's values out of a model's (plan->schema.num_elements), or back into them; the
 * others stay. values: section->schema.num_elements. */
void fedge_section_gather(const fedge_sent *sent, const fedge_section *section, const float *model,
                          float *values);
void fedge_section_scatter(const fedge_sent *sent, const fedge_section *section,
                           const float *values, float *model);

/* In place: model[] (the trained model, plan->schema.num_elements) becomes what travels of
 * model − start, delta and buffers, at its front; the strategy's section is not filled. */
void fedge_sections_changes(const fedge_sent *sent, const float *start, float *model);
/* The same for changes[] that are the differences of all values already. */
void fedge_sections_take(const fedge_sent *sent, float *changes);

/* The bound of each tensor that travels (plan->sent.schema.num_tensors) in a round that starts from
 * [model]. Statistics have the smallest 2^b, at least the plan's, that is 4 times the largest of
 * the tensor's, so that growing ones are not held back for long. */
void fedge_sections_bounds(const struct fedge_plan *plan, const float *model, int8_t *bounds_log2);

#endif
