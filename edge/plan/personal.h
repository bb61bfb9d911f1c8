/* What of a model a client has for itself (personalization): its place in the model, and the passes
 * of training that a task takes for it.
 *
 *     FedPer, FedBN   some layers stay with the client: they are kept, and replace the server's in
 *                     every model that comes
 *     FedRep          likewise; these layers are trained first, and then the others
 *     Ditto           a whole model beside the server's, which is trained as by FedAvg
 *
 * Which layers, the strategy's client hooks say (edge/plan/client_hooks.h). What is kept are the
 * values, in the order of the model, and behind them whether there are any: 1, or 0 before a
 * client has first trained, whose values are then those of the first model.
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

/* Values of the model that lie side by side. */
typedef struct fedge_personal_part {
    size_t offset, count; /* place: of the first among the model's */
} fedge_personal_part;

/* All of a plan. Plain data. */
typedef struct fedge_personal {
    uint32_t num_parts; /* 0: nothing is a client's own */
    size_t num_values;
    fedge_personal_part parts[FEDGE_MAX_TENSORS];
} fedge_personal;

/* Is something of the model a client's own? Does it replace the server's (and so is not sent)? */
bool fedge_plan_is_personal(const struct fedge_plan *plan);
bool fedge_plan_replaces(const struct fedge_plan *plan);

/* Copies what is a client's own from [personal] into [model], or out of it:
 * (plan->schema.num_elements). own: (plan->personal.num_values + 1). Nothing is copied in while
 * there is nothing. */
void fedge_personal_put(const struct fedge_plan *plan, const float *personal, float *model);
void fedge_personal_take(const struct fedge_plan *plan, const float *model, float *personal);

/* For the hooks of strategies: is the layer among the last hooks_arguments.personal_layers that
 * have parameters? */
bool fedge_personal_is_last(const struct fedge_plan *plan, uint32_t layer);
/* Can this plan's model be a client's own in part? Fails with the key that does not go with it. */
FEDGE_MUST_USE fedge_status fedge_personal_check(const struct fedge_json *json,
                                                 const struct fedge_plan *plan, fedge_error *err);
/* The same where it is the last layers, one or more of which are the server's. */
FEDGE_MUST_USE fedge_status fedge_personal_check_last(const struct fedge_json *json,
                                                      const struct fedge_plan *plan,
                                                      fedge_error *err);

/* What a task's training works with. */
typedef struct fedge_local_training {
    const struct fedge_plan *plan;
    fedge_model *model; /* made with fedge_plan_model_options */
    const fedge_examples *examples;
    const fedge_trainer_config *config; /* of fedge_plan_trainer_config */
    const fedge_trainer_workspace *workspace;
} fedge_local_training;

/* All passes of a task of a plan that is personal. values: (plan->schema.num_elements) the task's
 * model, in which the client's own has replaced the server's; then as trained. own: moves where
 * training beside the server's model changes it; where it replaces that, it is left to
 * fedge_personal_take. result: of the pass whose outcome is sent. Errors as fedge_trainer_run. */
FEDGE_MUST_USE fedge_status fedge_personal_train(const fedge_local_training *with, float *values,
                                                 float *personal, fedge_trainer_result *result,
                                                 fedge_error *err);

#endif
