/* The JSON keys that jobs and plans share. Private to edge/plan. */
#ifndef FEDGE_EDGE_PLAN_PLAN_FIELDS_H
#define FEDGE_EDGE_PLAN_PLAN_FIELDS_H

#include "edge/core/status.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"
#include "edge/train/layers/layer.h"

/* Small builds are for devices, which only read plans. */
#ifdef FEDGE_SMALL
#define FEDGE_PLAN_WRITER(function) (false ? (function) : NULL)
#else
#define FEDGE_PLAN_WRITER(function) (function)
#endif

#define FEDGE_PLAN_MAX_VALUES 65536 /* JSON values in one job or plan */

extern const fedge_json_field fedge_data_fields[];     /* struct: fedge_data_spec */
extern const fedge_json_field fedge_training_fields[]; /* struct: fedge_training_spec */
extern const fedge_json_field fedge_update_fields[];   /* struct: fedge_update_spec */
extern const fedge_json_field
    fedge_job_fields[]; /* struct: fedge_job; also used by tests and by code that changes a job's
                           keys before it is read */

/* Keys of a trained model, of an external model and of its tensors; for tests. */
extern const fedge_json_field fedge_model_fields[];
extern const fedge_json_field fedge_external_fields[];
extern const fedge_json_field fedge_tensor_fields[];

extern const fedge_json_field fedge_normalisation_fields[]; /* struct: fedge_data_spec */
extern const fedge_json_field fedge_targets_fields[];       /* struct: fedge_targets_spec */
extern const fedge_json_field fedge_augmentation_fields[];  /* struct: fedge_data_spec */

extern const fedge_json_field fedge_schedule_fields[];        /* struct: fedge_schedule */
extern const fedge_json_field fedge_strategy_common_fields[]; /* struct: fedge_strategy_common */

#define FEDGE_MAX_STRATEGY_FIELDS 24

/* The keys of one strategy's settings, "type" first. It points into itself, so it must not be
 * copied. */
typedef struct fedge_strategy_fields {
    const char *type[2]; /* the only allowed "type", then NULL */
    fedge_json_field fields[FEDGE_MAX_STRATEGY_FIELDS];
} fedge_strategy_fields;
/* [is_default]: "type" is optional. */
void fedge_strategy_fields_of(const fedge_strategy_reader *reader, bool is_default,
                              fedge_strategy_fields *out);

/* Parses a job's text and checks its version. Close [json] after success. */
FEDGE_MUST_USE fedge_status fedge_job_open(fedge_json *json, const char *text, size_t size,
                                           const char *name, fedge_error *err);
extern const fedge_json_field fedge_job_plan_fields[]; /* struct: fedge_plan; used by tests */
/* Writes "" if the job names no type. */
FEDGE_MUST_USE fedge_status fedge_job_strategy_type(const fedge_json *json,
                                                    char type[FEDGE_MAX_STRATEGY_NAME],
                                                    fedge_error *err);
/* Plans the memory of the models that clients make; a model that cannot be planned is an error of
 * the job. */
FEDGE_MUST_USE fedge_status fedge_job_check_models(const fedge_json *json, const fedge_plan *plan,
                                                   fedge_error *err);

/* Reads the strategy of a job with [strategies], and sets the plan's hooks. */
FEDGE_MUST_USE fedge_status fedge_strategy_read(const fedge_json *json, fedge_job *job,
                                                fedge_error *err);
/* NULL if the job is read without strategies. */
const fedge_strategy_reader *fedge_strategy_reader_of(const fedge_job *job);
/* Call after the rounds are derived and before the plan is. */
FEDGE_MUST_USE fedge_status fedge_strategy_derive(const fedge_json *json, fedge_job *job,
                                                  fedge_error *err);
/* Call after the plan is derived. */
FEDGE_MUST_USE fedge_status fedge_strategy_check(const fedge_json *json, const fedge_job *job,
                                                 fedge_error *err);

/* Checks that the schedule at [path] has only arguments of its type. */
FEDGE_MUST_USE fedge_status fedge_schedule_check(const fedge_json *json, const char *path,
                                                 const fedge_schedule *schedule, fedge_error *err);

/* Checks that the augmentation fits the data. */
FEDGE_MUST_USE fedge_status fedge_augmentation_check(const fedge_json *json, const fedge_plan *plan,
                                                     fedge_error *err);

/* Read and write a fedge_targets_spec. */
FEDGE_MUST_USE fedge_status fedge_targets_read(const fedge_json *json, const cJSON *node,
                                               void *record, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_targets_write(const void *value, const char *key, cJSON *object,
                                                fedge_error *err);
/* Checks targets that are not classes against the model and its loss. */
FEDGE_MUST_USE fedge_status fedge_targets_check(const fedge_json *json, const fedge_plan *plan,
                                                fedge_error *err);

/* Read and write the model of a fedge_plan, with its schema. */
FEDGE_MUST_USE fedge_status fedge_model_read(const fedge_json *json, const cJSON *node,
                                             void *record, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_model_write(const void *record, const char *key, cJSON *object,
                                              fedge_error *err);

/* Read and write the "config" of a fedge_plan. */
FEDGE_MUST_USE fedge_status fedge_config_read(const fedge_json *json, const cJSON *node,
                                              void *record, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_config_write(const void *record, const char *key, cJSON *object,
                                               fedge_error *err);

/* Checks the parts of a plan from [json] against each other, and derives the update layout. */
FEDGE_MUST_USE fedge_status fedge_plan_derive(const fedge_json *json, fedge_plan *plan,
                                              fedge_error *err);

/* Frees the members of a plan. */
void fedge_plan_fini(fedge_plan *plan);

/* The fields of a fedge_plan, and of a fedge_job, which starts with its plan. */
#define FEDGE_PLAN_FIELDS                                                                          \
    {.key = "name",                                                                                \
     .kind = FEDGE_JSON_TEXT,                                                                      \
     .flags = FEDGE_JSON_REQUIRED,                                                                 \
     FEDGE_JSON_AT(fedge_plan, name),                                                              \
     .min = 1},                                                                                    \
        {.key = "seed", .kind = FEDGE_JSON_U64, FEDGE_JSON_AT(fedge_plan, seed)},                  \
        {.key = "model",                                                                           \
         .kind = FEDGE_JSON_CUSTOM,                                                                \
         .flags = FEDGE_JSON_REQUIRED,                                                             \
         .read = fedge_model_read,                                                                 \
         .write = FEDGE_PLAN_WRITER(fedge_model_write)},                                           \
        {.key = "data",                                                                            \
         .kind = FEDGE_JSON_OBJECT,                                                                \
         .flags = FEDGE_JSON_PRESENCE,                                                             \
         FEDGE_JSON_AT(fedge_plan, data),                                                          \
         .extra = offsetof(fedge_plan, has_data),                                                  \
         .fields = fedge_data_fields},                                                             \
        {.key = "config",                                                                          \
         .kind = FEDGE_JSON_CUSTOM,                                                                \
         .read = fedge_config_read,                                                                \
         .write = FEDGE_PLAN_WRITER(fedge_config_write)},                                          \
        {.key = "training",                                                                        \
         .kind = FEDGE_JSON_OBJECT,                                                                \
         FEDGE_JSON_AT(fedge_plan, training),                                                      \
         .fields = fedge_training_fields},                                                         \
    {                                                                                              \
        .key = "update", .kind = FEDGE_JSON_OBJECT, FEDGE_JSON_AT(fedge_plan, update),             \
        .fields = fedge_update_fields                                                              \
    }

/* ---- arguments of layers, losses and optimizers ---------------------------------------------- */

/* Convert tables of arguments in edge/train to tables of JSON fields. */

#define FEDGE_MAX_ARGUMENT_FIELDS 24

/* It points into itself, so it must not be copied. */
typedef struct fedge_argument_fields {
    const char *type[2]; /* the only allowed "type", then NULL */
    fedge_json_field fields[FEDGE_MAX_ARGUMENT_FIELDS];
} fedge_argument_fields;

/* Keys of a layer (fedge_layer_spec), of a loss (fedge_plan) and of an optimizer (fedge_optimizer),
 * "type" first. A layer's "inputs" is IGNORED, since its names refer to the whole model. */
void fedge_layer_fields(fedge_layer_type type, fedge_argument_fields *out);
void fedge_loss_fields(fedge_loss_type type, fedge_argument_fields *out);
void fedge_optimizer_fields(fedge_optimizer_type type, fedge_argument_fields *out);

/* Reads the "type" of [node], one of [count] names by name_of. [what] names the kind in messages:
 * "a layer". */
FEDGE_MUST_USE fedge_status fedge_argument_type(const fedge_json *json, const cJSON *node,
                                                const char *what, unsigned count,
                                                const char *(*name_of)(unsigned), unsigned *type,
                                                fedge_error *err);

#endif
