/* Training backends of the built-in trainer besides the CPU, each a table of functions. */
#ifndef FEDGE_CLIENT_TRAINING_BACKEND_H
#define FEDGE_CLIENT_TRAINING_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"
#include "edge/train/trainer.h"

/* Settings by this device's owner. */
typedef struct fedge_backend_settings {
    const char *gpus;           /* such as "0,1"; NULL: all */
    bool bf16_optimizer_states; /* otherwise fp32 */
} fedge_backend_settings;

/* One training or evaluation. */
typedef struct fedge_backend_call {
    const fedge_view *view;             /* examples of the data set given to open */
    const fedge_trainer_config *config; /* NULL in an evaluation */
    const float *correction;            /* added to the gradients; NULL: none */
    fedge_cancel_fn cancel;
    void *cancel_user;
} fedge_backend_call;

typedef struct fedge_training_backend {
    const char *name; /* "cuda" */
    /* Checks the settings and that their GPUs exist. FEDGE_INVALID_ARGUMENT, FEDGE_NOT_FOUND. */
    fedge_status (*find)(const fedge_backend_settings *settings, fedge_error *err);
    /* FEDGE_UNSUPPORTED: [err] names what it cannot train. */
    fedge_status (*check)(const fedge_plan *plan, fedge_error *err);
    /* Checks, without examples, that the settings' GPUs can train it. FEDGE_UNSUPPORTED,
     * FEDGE_NO_MEMORY with the numbers; FEDGE_GPU_LOST. */
    fedge_status (*check_gpus)(const fedge_plan *plan, const fedge_backend_settings *settings,
                               fedge_error *err);
    /* Bytes on one GPU: [all] for the whole batch at once, [least] for its smallest part. */
    fedge_status (*bytes)(const fedge_plan *plan, const fedge_backend_settings *settings,
                          uint64_t *all, uint64_t *least, fedge_error *err);
    /* [plan] and [log] must outlive the state, [dataset] need not. [lost] is called on another
     * thread when a call to a GPU does not return, and ends the process; if NULL, such a call
     * blocks. Fails as check_gpus; the data may be too large, too. */
    fedge_status (*open)(const fedge_plan *plan, const fedge_dataset *dataset,
                         const fedge_backend_settings *settings, const fedge_log *log,
                         void (*lost)(const fedge_error *err), void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is allowed */
    /* As fedge_trainer_run and fedge_trainer_evaluate. FEDGE_GPU_LOST: restart the process. */
    fedge_status (*train)(void *state, const fedge_backend_call *call, float *values,
                          fedge_trainer_result *result, fedge_error *err);
    fedge_status (*evaluate)(void *state, const fedge_backend_call *call, const float *values,
                             fedge_trainer_result *result, fedge_error *err);
} fedge_training_backend;

/* The backends of this build, NULL-terminated. */
extern const fedge_training_backend *const fedge_training_backends[];
/* "cuda": all GPUs of this client train one model together (edge/train/cuda/silo.h). */
extern const fedge_training_backend fedge_training_backend_cuda;

#endif
