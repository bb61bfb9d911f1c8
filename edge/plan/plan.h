/* Plans and jobs.
 *
 * A job is the JSON file that a user writes for the aggregator. From it the aggregator compiles the
 * plan, the part that clients see: model, data schema, training, update format.
 * docs/reference/job.md describes every key; docs/job.schema.json is the JSON Schema.
 *
 * Jobs are read strictly (unknown key, wrong type, duplicate: refused with the key, the line and
 * the nearest valid key). Plans are read leniently: a client skips keys it does not know unless
 * "must" names them.
 */
#ifndef FEDGE_EDGE_PLAN_PLAN_H
#define FEDGE_EDGE_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/plan/personal.h"
#include "edge/plan/sections.h"
#include "edge/train/augment.h"
#include "edge/train/model.h"
#include "edge/train/schedule.h"
#include "edge/train/trainer.h"
#include "edge/wire/protocol.h"

#define FEDGE_JOB_MAX_SIZE ((size_t)1 << 20) /* bytes of a job file */
#define FEDGE_MAX_JOB_NAME 64
#define FEDGE_MAX_DATA_NAME 64
#define FEDGE_MAX_STRATEGY_NAME 32
#define FEDGE_MAX_NORMALISED 8192 /* values of mean, and of std */
#define FEDGE_MAX_PATH 512
#define FEDGE_MAX_PATHS 4096 /* bytes of a list of paths, one a line, with the NUL */

#define FEDGE_MAX_TARGETS ((uint32_t)1 << 20)   /* targets of one example */
#define FEDGE_MAX_TARGET_COLUMNS ((size_t)2048) /* bytes of the columns' names, with the NUL */
#define FEDGE_MAX_TARGET_NAME 63                /* bytes of one */

typedef enum fedge_targets_kind {
    FEDGE_TARGETS_CLASSES, /* labels */
    FEDGE_TARGETS_NUMBERS,
    FEDGE_TARGETS_INPUT /* the example itself, for autoencoders */
} fedge_targets_kind;

/* What a model learns. A target t enters the loss as (t − mean) / std. */
typedef struct fedge_targets_spec {
    fedge_targets_kind kind;
    /* NUMBERS: */
    uint32_t rank, shape[3];                /* shape of one example's targets */
    fedge_dtype dtype;                      /* FEDGE_F32 */
    char columns[FEDGE_MAX_TARGET_COLUMNS]; /* names of csv columns, one a line; "": the last */
    uint32_t num_scales; /* length of mean and std: 0 (none), 1 (for all) or one for each target */
    float *mean, *std;   /* (num_scales), owned by the plan */
    bool is_fraction;    /* targets are 0 to 1, as the loss needs. Derived, not a key */
} fedge_targets_spec;

/* The examples a job names; each client's file maps the name to paths. A value v of channel c
 * enters the model as (v / divide_by − mean[c]) / std[c]. */
typedef struct fedge_data_spec {
    char name[FEDGE_MAX_DATA_NAME];
    uint32_t rank;       /* dimensions of one example: 1 to 3 */
    uint32_t shape[3];   /* [channels, height, width], [channels, length] or [features] */
    fedge_dtype dtype;   /* type of the stored values: FEDGE_U8 or FEDGE_F32 */
    uint32_t num_labels; /* 0 where [targets] are not classes */
    fedge_targets_spec targets;
    float divide_by;       /* 1 by default */
    uint32_t num_channels; /* length of mean and std: 0 (none), 1 (for all channels) or shape[0] */
    float *mean, *std; /* (num_channels), owned by the plan; copies of this struct borrow them */
    bool has_augmentation; /* augmentation of training examples (edge/train/augment.h) */
    float horizontal_flip; /* probability */
    bool has_crop;         /* random crop */
    uint32_t crop_padding; /* padding with stored zeros, which are normalised like other values */
    uint64_t max_bytes;    /* limit of a loaded data set (FEDGE_NO_MEMORY beyond it); 0:
                              FEDGE_DATASET_MAX_BYTES. Set by the program, not by a job */
    const char *aside; /* a column of csv files that is no value, unless natural:COLUMN names it;
                          NULL: none. Set by the program, not by a job */
} fedge_data_spec;

/* How clients evaluate. */
typedef enum fedge_evaluation {
    FEDGE_EVALUATION_AS_TRAINED, /* clients evaluate the trained model */
    FEDGE_EVALUATION_INT8,       /* clients evaluate an int8 copy of it */
    FEDGE_EVALUATION_COUNT
} fedge_evaluation;

typedef struct fedge_training_spec {
    uint32_t local_epochs; /* used when local_steps is 0 */
    uint32_t local_steps;
    uint32_t batch_size;
    uint32_t micro_batch_size;   /* examples per pass through the layers; 0: chosen by
                                    fedge_model_micro_batch */
    uint32_t accumulation_steps; /* a job only: batches that make one step; a plan has their product
                                    as batch_size */
    float learning_rate;         /* rate of the first round; each task has its round's rate */
    fedge_optimizer optimizer;   /* except the learning rate */
    fedge_schedule schedule;     /* learning rate over the rounds */
    fedge_precision precision;   /* precision of matrix products */
    fedge_evaluation evaluation;
    fedge_storage activations; /* storage type for the backward pass */
    fedge_storage weights;     /* storage type between steps */
} fedge_training_spec;

/* Whether clients store the values they did not send as a residual for the next round. */
typedef enum fedge_error_feedback {
    FEDGE_ERROR_FEEDBACK_AUTO, /* ON if the codec sparsifies */
    FEDGE_ERROR_FEEDBACK_ON,
    FEDGE_ERROR_FEEDBACK_OFF,
    FEDGE_ERROR_FEEDBACK_COUNT
} fedge_error_feedback;

#define FEDGE_MAX_LAYER_CODECS 16
#define FEDGE_CODEC_OF_VECTORS "vectors" /* tensors of less than two dimensions */

/* The codec of some tensors. */
typedef struct fedge_layer_codec {
    char tensors[FEDGE_MAX_TENSOR_NAME]; /* names of the tensors, with '*' for any characters, or
                                            FEDGE_CODEC_OF_VECTORS */
    fedge_codec codec;
    fedge_codec down; /* codec of model changes; values NULL: as fedge_update_spec.down */
} fedge_layer_codec;

typedef struct fedge_update_spec {
    fedge_codec codec; /* codec of trained values; default fedge_codec_default */
    uint32_t num_layers;
    fedge_layer_codec layers[FEDGE_MAX_LAYER_CODECS]; /* the first match applies */
    bool deflate;
    fedge_error_feedback error_feedback;
    fedge_codec down; /* codec of model deltas to clients; values NULL: models are sent whole */
    bool down_deflate;
    uint32_t residual_half_life; /* rounds after which half of a residual remains; 0: it does not
                                    decay */
    int bound_log2;              /* initial b of every parameter; the server may tighten it */
    int buffer_bound_log2;       /* minimum b of statistics */
    int control_bound_log2;      /* b of the strategy's section */
    fedge_codec
        control; /* codec of the strategy's section; values NULL: [codec] without its sparsifier */
    fedge_codec buffers; /* codec of statistics; values NULL: as floats */
} fedge_update_spec;

#define FEDGE_MAX_CLUSTERS 16
#define FEDGE_MAX_PERSONAL_TENSORS 2048 /* bytes of their patterns, with the NUL */

/* Arguments of the strategy that client hooks use; each strategy's table lists those it has. */
typedef struct fedge_hooks_arguments {
    uint32_t personal_layers; /* the last layers with parameters, which stay on the client */
    /* Of an external model: patterns of the tensors that stay on the client, one a line. */
    char personal_tensors[FEDGE_MAX_PERSONAL_TENSORS];
    uint32_t head_epochs;  /* epochs that train these layers before the others */
    uint32_t num_clusters; /* models to choose from */
    float lambda;          /* weight of the term that keeps the personal model near the server's */
} fedge_hooks_arguments;

#define FEDGE_MAX_CONFIG 4096 /* bytes of a job's "config" as compact JSON */

/* The part of a job that clients receive. It is large, so allocate it on the heap; free it with
 * fedge_plan_free. */
typedef struct fedge_plan {
    char name[FEDGE_MAX_JOB_NAME];
    uint64_t seed;                          /* < 2^53 */
    const struct fedge_client_hooks *hooks; /* client side of the strategy, or NULL */
    fedge_hooks_arguments hooks_arguments;
    bool external;          /* the client's trainer has the model; only the schema is known */
    fedge_model_spec model; /* unused when external */
    uint32_t train_last;    /* "train-last" of a job's model, used only while the job is read */
    fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_schema schema;     /* schema of [tensors]: parameters, then statistics */
    size_t num_parameters;   /* number of parameter values; statistics follow them */
    fedge_sent sent;         /* the update layout */
    fedge_personal personal; /* values that stay on the client */
    fedge_data_spec data;    /* unused when external, unless the job names data */
    bool has_data;
    char *config; /* a JSON object for the clients' trainers, as text; NULL: none */
    fedge_training_spec training;
    fedge_update_spec update;
} fedge_plan;

/* How the clients of a training phase are sampled (aggregator/rounds/sampler.h): C name, name in a
 * job. The first is the default. */
#define FEDGE_SAMPLER_MAP(X)                                                                       \
    X(uniform, "uniform")                                                                          \
    X(examples, "examples")                                                                        \
    X(available, "available")                                                                      \
    X(utility, "utility")

typedef enum fedge_sampler_kind {
#define FEDGE_SAMPLER_ENUM(name, text) FEDGE_SAMPLER_##name,
    FEDGE_SAMPLER_MAP(FEDGE_SAMPLER_ENUM)
#undef FEDGE_SAMPLER_ENUM
        FEDGE_SAMPLER_COUNT
} fedge_sampler_kind;

const char *fedge_sampler_name(unsigned kind); /* "uniform"; NULL if out of range */

typedef struct fedge_sampler_spec {
    fedge_sampler_kind type;
    double minimum_share;     /* minimum score of a client as a fraction of the mean, in [0, 1] */
    bool inverse_probability; /* weight updates by the inverse probability that their client was
                                 sampled */
} fedge_sampler_spec;

/* The server's part of a job. */
typedef struct fedge_rounds_spec {
    uint32_t num_server_rounds;
    double fraction_train;    /* fraction of available nodes, in (0, 1] */
    double fraction_evaluate; /* range [0, 1]; 0: clients do not evaluate */
    uint32_t min_train_nodes, min_evaluate_nodes, min_available_nodes;
    double over_selection; /* ≥ 1; cohort asked = ceil(cohort · over_selection) */
    uint32_t max_cohort;   /* max_cohort · max_weight ≤ 2^32 */
    uint32_t max_weight;
    uint64_t round_deadline_ms;
    double min_report_fraction; /* fraction of the cohort that must report by the deadline, in (0,
                                   1] */
    fedge_sampler_spec sampler;
    /* Set by asynchronous strategies; 0: rounds wait for their cohort. */
    uint32_t buffer_size;   /* updates that close a round, of any base model */
    uint32_t max_staleness; /* rounds since the update's base model */
} fedge_rounds_spec;

typedef struct fedge_test_set {
    bool present;
    char images[FEDGE_MAX_PATHS], labels[FEDGE_MAX_PATHS]; /* same format as fedge_site_data */
} fedge_test_set;

struct fedge_job;
struct fedge_json;
struct fedge_json_field;

/* The first member of every strategy's settings. */
typedef struct fedge_strategy_common {
    double server_learning_rate; /* rate of the first round; 1 for plain FedAvg */
    fedge_schedule schedule;     /* server learning rate over the rounds */
} fedge_strategy_common;

/* A strategy as a reader of jobs sees it. aggregator/rounds/strategy.h has its computation. */
typedef struct fedge_strategy_reader {
    const char *name; /* name in a job: "FedAvg" */
    const struct fedge_json_field
        *arguments; /* fields of its settings besides those of fedge_strategy_common; NULL: none */
    size_t settings_size; /* bytes of a struct that starts with fedge_strategy_common */
    double default_rate;  /* default server learning rate; 0: 1 */
    /* Checks the settings against the job and may change the plan's training. Rounds are derived by
     * then, the plan is not. The error names the key. May be NULL. */
    fedge_status (*derive)(const struct fedge_json *json, struct fedge_job *job, void *settings,
                           fedge_error *err);
    /* Checks the job once its plan and update layout are derived. May be NULL. */
    fedge_status (*check)(const struct fedge_json *json, const struct fedge_job *job,
                          fedge_error *err);
    bool divides_by_rate; /* it divides by the clients' learning rate, which must not be 0 in any
                             round */
} fedge_strategy_reader;

/* The metric by which models are compared. */
typedef enum fedge_criterion {
    FEDGE_CRITERION_AUTO, /* validation examples if there are any, else the test set */
    FEDGE_CRITERION_VALIDATION_ACCURACY,
    FEDGE_CRITERION_VALIDATION_LOSS,
    FEDGE_CRITERION_TEST_ACCURACY,
    FEDGE_CRITERION_TEST_LOSS,
#define FEDGE_CRITERION_ERROR(upper, name)                                                         \
    FEDGE_CRITERION_VALIDATION_##upper, FEDGE_CRITERION_TEST_##upper,
    FEDGE_ERROR_METRIC_MAP(FEDGE_CRITERION_ERROR)
#undef FEDGE_CRITERION_ERROR
        FEDGE_CRITERION_COUNT
} fedge_criterion;

const char *fedge_criterion_name(unsigned metric); /* "test-loss"; NULL if out of range */

/* For keep-best and early-stopping. */
typedef struct fedge_watch_spec {
    bool present;
    fedge_criterion metric;
    uint32_t patience; /* early-stopping: evaluations without improvement that end the run */
    double min_delta;  /* early-stopping: smallest improvement that counts */
} fedge_watch_spec;

struct fedge_root_ops; /* aggregator/rounds/root_trainer.h */

typedef struct fedge_job {
    fedge_plan plan;
    fedge_rounds_spec rounds;
    char strategy[FEDGE_MAX_STRATEGY_NAME];         /* "FedAvg" */
    const fedge_strategy_reader *const *strategies; /* passed to the reader; NULL: none */
    void *strategy_settings; /* the settings struct of the strategy, owned by the job; NULL without
                                [strategies] */
    fedge_test_set test_set; /* evaluated by the server after each round */
    bool server_evaluates;   /* set after reading the job: the server's plugin evaluates models */
    const struct fedge_root_ops *root; /* set then: a trainer of the plugin's; NULL: none */
    fedge_watch_spec keep_best;        /* store the best model beside the last */
    fedge_watch_spec early_stopping;
    char initial_model[FEDGE_MAX_PATH]; /* a safetensors file; "": use the initialisers */
    uint32_t keep_checkpoints;          /* ≥ 1 */
    uint64_t min_free_disk;             /* bytes; rounds wait while less is free */
} fedge_job;

/* Parses and validates a job. Messages name [name] ("job.json:12: …"), and relative paths are
 * relative to its directory. */
FEDGE_MUST_USE fedge_status fedge_job_parse(const char *text, size_t size, const char *name,
                                            fedge_job **job, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_job_load(const char *path, fedge_job **job, fedge_error *err);

/* Also reads and checks the strategy's arguments by [strategies] (NULL-terminated, the first is the
 * default). Without them any strategy is accepted, and only its client side is known. */
FEDGE_MUST_USE fedge_status fedge_job_parse_with(const char *text, size_t size, const char *name,
                                                 const fedge_strategy_reader *const *strategies,
                                                 fedge_job **job, fedge_error *err);

/* Reads and checks only the part of a job file that clients receive. It ignores keys of the server
 * ("rounds", the strategy's arguments, …). Free the result with fedge_plan_free. */
FEDGE_MUST_USE fedge_status fedge_job_load_plan(const char *path, fedge_plan **plan,
                                                fedge_error *err);

/* Checks the learning rate of every round, also against the strategy. FEDGE_OUT_OF_RANGE names the
 * first bad round; *key is the job's key to change. Jobs that were read have passed; use it after
 * changing the rounds. */
FEDGE_MUST_USE fedge_status fedge_job_check_rates(const fedge_job *job, const char **key,
                                                  fedge_error *err);
/* Checks the server's learning rate of every round; passes without strategies. */
FEDGE_MUST_USE fedge_status fedge_job_check_server_rates(const fedge_job *job, fedge_error *err);
void fedge_job_free(fedge_job *job); /* NULL is allowed */

/* Writes the plan as JSON, deterministically. *text is malloc'ed and NUL-terminated. */
FEDGE_MUST_USE fedge_status fedge_plan_write(const fedge_plan *plan, char **text, size_t *size,
                                             fedge_error *err);
/* FEDGE_UNSUPPORTED if "must" names a feature that this release lacks. */
FEDGE_MUST_USE fedge_status fedge_plan_parse(const char *text, size_t size, fedge_plan **plan,
                                             fedge_error *err);
void fedge_plan_free(fedge_plan *plan); /* NULL is allowed */

/* Initial values of the model, unless a file has them: from the initialisers and the plan's seed,
 * or 0 for an external model. values: (schema.num_elements) */
void fedge_plan_initial_values(const fedge_plan *plan, float *values);

/* Numbers that a model learns for each example; 0: it learns classes, or there are too many. */
uint32_t fedge_data_num_targets(const fedge_data_spec *data);

/* Whether evaluations give the metrics of edge/train/errors.h: the targets are numbers of any size.
 */
bool fedge_plan_has_errors(const fedge_plan *plan);

/* Bytes of the trainer's scratch, with targets. */
size_t fedge_plan_scratch_size(const fedge_plan *plan, uint32_t num_examples, uint32_t batch_size);

/* Options of the model that clients train; not for external models. micro_batch is the plan's, or
 * fedge_model_micro_batch's, which is equal on all machines. */
fedge_model_options fedge_plan_model_options(const fedge_plan *plan);

/* Options of a separate model for evaluation; false if the trained one evaluates. */
bool fedge_plan_evaluation_options(const fedge_plan *plan, fedge_model_options *options);

/* The trainer's configuration for a task; not for external models. */
fedge_trainer_config fedge_plan_trainer_config(const fedge_plan *plan, uint32_t round,
                                               uint32_t client_index, double learning_rate);

/* The examples of a task after augmentation: [examples], or a view by [augmented], which must
 * outlive it. */
fedge_examples fedge_plan_augment(const fedge_plan *plan, const fedge_trainer_config *config,
                                  const fedge_examples *examples, fedge_augmented *augmented);

double fedge_plan_learning_rate(const fedge_plan *plan, uint32_t round);

/* The features that a plan's "must" may name and this release has ("codec:int8", "layer:Conv2d",
 * …), from index 0; NULL after the last. A client's HELLO lists those that its build has. */
const char *fedge_plan_feature(unsigned index);

/* True if [name] is the feature of a layer that this build leaves out (FEDGE_LAYERS in CMake). */
bool fedge_plan_lacks_feature(const char *name);

/* Whether the plan needs each feature, by index; these are its "must". */
void fedge_plan_needs(const fedge_plan *plan, bool needed[FEDGE_MAX_FEATURES]);

/* The normalised value: (v / divide_by − mean[channel]) / std[channel], without mean and std if the
 * job has none. */
float fedge_data_normalise(const fedge_data_spec *spec, uint32_t channel, float v);

/* ---- paths ----------------------------------------------------------------------------------- */

/* Paths in a job or client file are relative to that file. */

/* Prepends the folder of [file] to [path], unless that is empty or absolute. False if the result is
 * too long; [path] is unchanged then. */
FEDGE_MUST_USE bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH]);

/* Does the same for each line. False also if the list becomes too long. */
FEDGE_MUST_USE bool fedge_paths_resolve(const char *file, char paths[FEDGE_MAX_PATHS]);

#endif
