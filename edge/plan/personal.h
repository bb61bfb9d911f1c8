/* Personalization: the values of a model that belong to one client, and how a task trains them.
 *
 * FedPer, FedBN: some layers stay on the client and replace the server's in every model it
 * receives.
 *
 * FedRep: likewise; these layers are trained before the others.
 *
 * Ditto: a whole model beside the server's, which is trained as in FedAvg.
 *
 * The strategy's client hooks select the layers (edge/plan/client_hooks.h). The client state is
 * these values, in the model's order, then a flag: 1, or 0 before the client has first trained,
 * when the server's values are used.
 */
#ifndef FEDGE_EDGE_PLAN_PERSONAL_H
#define FEDGE_EDGE_PLAN_PERSONAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/train/trainer.h"

struct fedge_plan;
struct fedge_json;

/* A range of the model's values. */
typedef struct fedge_personal_part {
    size_t offset, count; /* offset: in the model */
} fedge_personal_part;

/* All ranges of a plan. Plain data. */
typedef struct fedge_personal {
    uint32_t num_parts; /* 0: the plan has no personal values */
    size_t num_values;
    fedge_personal_part parts[FEDGE_MAX_TENSORS];
} fedge_personal;

/* Whether the plan has personal values; whether they replace the server's, which are then not sent.
 */
bool fedge_plan_is_personal(const struct fedge_plan *plan);
bool fedge_plan_replaces(const struct fedge_plan *plan);

/* Copies personal values to or from [model] (plan->schema.num_elements). personal:
 * (plan->personal.num_values + 1). put does nothing while the flag is 0. */
void fedge_personal_put(const struct fedge_plan *plan, const float *personal, float *model);
void fedge_personal_take(const struct fedge_plan *plan, const float *model, float *personal);

/* For hooks: whether the layer is one of the last hooks_arguments.personal_layers with parameters.
 */
bool fedge_personal_is_last(const struct fedge_plan *plan, uint32_t layer);
/* For plans of external models: whether the tensor stays on the client, by the patterns in
 * hooks_arguments.personal_tensors ('*' stands for any characters), or as the hooks say of all. */
bool fedge_personal_is_tensor(const struct fedge_plan *plan, const char *name);
/* Checks that the plan supports personal values. The error names the key. */
FEDGE_MUST_USE fedge_status fedge_personal_check(const struct fedge_json *json,
                                                 const struct fedge_plan *plan, fedge_error *err);
/* Also checks that a plan has patterns of tensors just if its model is external, that each matches
 * one, and that at least one tensor is the server's. */
FEDGE_MUST_USE fedge_status fedge_personal_check_tensors(const struct fedge_json *json,
                                                         const struct fedge_plan *plan,
                                                         fedge_error *err);
/* Also checks that the last layers of a built-in model are personal and at least one is the
 * server's. */
FEDGE_MUST_USE fedge_status fedge_personal_check_last(const struct fedge_json *json,
                                                      const struct fedge_plan *plan,
                                                      fedge_error *err);

/* Input of a task's training. */
typedef struct fedge_local_training {
    const struct fedge_plan *plan;
    fedge_model *model; /* made with fedge_plan_model_options */
    const fedge_examples *examples;
    const fedge_trainer_config *config; /* the result of fedge_plan_trainer_config */
    const fedge_trainer_workspace *workspace;
} fedge_local_training;

/* Trains a task of a personal plan. values: (plan->schema.num_elements) the task's model with the
 * personal values in it; then the trained one. personal: updated if it is trained beside the
 * server's model; if it replaces part of it, call fedge_personal_take. result: of the pass whose
 * update is sent. Errors as fedge_trainer_run. */
FEDGE_MUST_USE fedge_status fedge_personal_train(const fedge_local_training *with, float *values,
                                                 float *personal, fedge_trainer_result *result,
                                                 fedge_error *err);

#endif
