/* From the tables of arguments in edge/train to tables of JSON fields; private to edge/plan. */
#ifndef FEDGE_EDGE_PLAN_ARGUMENTS_H
#define FEDGE_EDGE_PLAN_ARGUMENTS_H

#include "edge/json/json.h"
#include "edge/train/layers/layer.h"

#define FEDGE_MAX_ARGUMENT_FIELDS 24

/* A table that a caller holds. Its fields point into it: it must not be copied. */
typedef struct fedge_argument_fields {
    const char *type[2]; /* the one choice of "type", and NULL */
    fedge_json_field fields[FEDGE_MAX_ARGUMENT_FIELDS];
} fedge_argument_fields;

/* Keys of a layer (of a fedge_layer_spec), of a loss (of a fedge_plan) and of an optimizer (of a
 * fedge_optimizer), with "type" first. A layer's "inputs" is IGNORED: the names in it mean
 * something in the whole model only. */
void fedge_layer_fields(fedge_layer_type type, fedge_argument_fields *out);
void fedge_loss_fields(fedge_loss_type type, fedge_argument_fields *out);
void fedge_optimizer_fields(fedge_optimizer_type type, fedge_argument_fields *out);

/* The type named at "type" of [node], of [count] whose names are name_of's. [what]: "a layer". */
FEDGE_MUST_USE fedge_status fedge_argument_type(const fedge_json *json, const cJSON *node,
                                                const char *what, unsigned count,
                                                const char *(*name_of)(unsigned), unsigned *type,
                                                fedge_error *err);

#endif
