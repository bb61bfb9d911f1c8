/* What the library does around a trainer that is not fedge's own, on a device and in a simulation,
 * so that a strategy needs little of it: it selects the model (IFCA), measures the loss before
 * training (QFedAvg), calls the trainer once for each model or part (Ditto, FedRep), and refuses
 * what a trainer has left undone.
 */
#ifndef FEDGE_CLIENT_OWN_TRAINER_H
#define FEDGE_CLIENT_OWN_TRAINER_H

#include "client/fedge_client.h"
#include "client/typed.h"
#include "edge/plan/plan.h"

/* Memory for the tasks of one plan. A struct of zeros is fine where it needs none. */
typedef struct fedge_own_trainer {
    float *anchor;     /* (plan->schema.num_elements), if fedge_plan_keeps_anchor */
    bool *trained;     /* (plan->schema.num_tensors), likewise */
    fedge_typed typed; /* if the callbacks have typed_tensors */
} fedge_own_trainer;

/* Takes the memory, and checks that the callbacks have what the plan needs. values: those that all
 * calls will have. FEDGE_UNSUPPORTED; FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_own_trainer_init(fedge_own_trainer *self, const fedge_plan *plan,
                                                   const fedge_client_callbacks *call,
                                                   float *values, fedge_error *err);
void fedge_own_trainer_fini(fedge_own_trainer *self);

/* Trains or evaluates [values], the task's model with personal values in it; with further models
 * that which has the least loss, which is in [values] afterwards. task: as fedge's trainer gets it,
 * which is called without further ado. Fails as the callbacks do; FEDGE_UNSUPPORTED: the trainer
 * does not evaluate; FEDGE_INVALID_ARGUMENT: it has not done what it must. */
FEDGE_MUST_USE fedge_status fedge_own_trainer_call(const fedge_own_trainer *self,
                                                   const fedge_client_callbacks *call,
                                                   fedge_client *client,
                                                   const fedge_client_task *task, bool trains,
                                                   float *values, fedge_client_report *report,
                                                   fedge_error *err);

#endif
