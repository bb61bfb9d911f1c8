/* Where the built-in trainer trains besides the CPU: a table of functions for each engine, so that
 * a build may have none. */
#ifndef FEDGE_CLIENT_TRAINING_BACKEND_H
#define FEDGE_CLIENT_TRAINING_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"
#include "edge/train/trainer.h"

/* As this device's owner wants it. */
typedef struct fedge_client_engine_settings {
    const char *gpus;           /* such as "0,1"; NULL: all */
    bool bf16_optimizer_states; /* else fp32 */
} fedge_client_engine_settings;

typedef struct fedge_client_engine_ops {
    const char *name; /* "cuda" */
    /* Does it know the settings, and are the GPUs there? FEDGE_INVALID_ARGUMENT,
     * FEDGE_NOT_FOUND. */
    fedge_status (*find)(const fedge_client_engine_settings *settings, fedge_error *err);
    /* FEDGE_UNSUPPORTED with what it cannot train. */
    fedge_status (*check)(const fedge_plan *plan, fedge_error *err);
    /* Can the GPUs of the settings train it, as far as is known without examples?
     * FEDGE_UNSUPPORTED, FEDGE_NO_MEMORY with the numbers; FEDGE_GPU_LOST. */
    fedge_status (*check_gpus)(const fedge_plan *plan, const fedge_client_engine_settings *settings,
                               fedge_error *err);
    /* Memory of one GPU: for the whole batch at once, and at least. */
    fedge_status (*bytes)(const fedge_plan *plan, const fedge_client_engine_settings *settings,
                          uint64_t *all, uint64_t *least, fedge_error *err);
    /* [plan] and [log] must outlive the state, [dataset] need not. [lost]: told, on another thread,
     * that a call to a GPU does not return; it ends the process. NULL: such a call is waited
     * for. Errors as check_gpus, which data may be too large for. */
    fedge_status (*open)(const fedge_plan *plan, const fedge_dataset *dataset,
                         const fedge_client_engine_settings *settings, const fedge_log *log,
                         void (*lost)(const fedge_error *err), void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */
    /* As fedge_trainer_run and fedge_trainer_evaluate on a view of [dataset]; correction: NULL:
     * none. FEDGE_GPU_LOST: the process should begin anew. */
    fedge_status (*train)(void *state, const fedge_view *view, const fedge_trainer_config *config,
                          const float *correction, float *values, fedge_cancel_fn cancel,
                          void *cancel_user, fedge_trainer_result *result, fedge_error *err);
    fedge_status (*evaluate)(void *state, const fedge_view *view, const float *values,
                             fedge_cancel_fn cancel, void *cancel_user,
                             fedge_trainer_result *result, fedge_error *err);
} fedge_client_engine_ops;

/* Of this build; the last is NULL. */
extern const fedge_client_engine_ops *const fedge_client_engines[];

/* The engine "cuda": this client's model trained by all its GPUs together (edge/train/cuda/silo.h).
 */

extern const fedge_client_engine_ops fedge_client_engine_cuda;

#endif
