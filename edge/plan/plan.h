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
#define FEDGE_MAX_PATHS 4096 /* bytes of several paths, one in each line, with the NUL */

/* Examples as the job names them; each client's own file maps the name to paths.
 * A value v of channel c enters the model as (v / divide_by − mean[c]) / std[c]. */
typedef struct fedge_data_spec {
    char name[FEDGE_MAX_DATA_NAME];
    uint32_t rank;     /* of one example: 1 to 3 */
    uint32_t shape[3]; /* channels, height, width; or channels, length; or features */
    fedge_dtype dtype; /* of the stored values: FEDGE_U8 or FEDGE_F32 */
    uint32_t num_labels;
    float divide_by;       /* 1 when absent */
    uint32_t num_channels; /* of mean and std: 0 (none), 1 (for all) or shape[0] */
    float *mean, *std;     /* (num_channels): the plan's, and so of those that copy this */
    bool has_augmentation; /* in training (edge/train/augment.h): */
    float horizontal_flip; /* its probability */
    bool has_crop;         /* with */
    uint32_t crop_padding; /* of stored zeros, which are normalised like others */
    uint64_t max_bytes;    /* of a loaded data set, beyond which FEDGE_NO_MEMORY; 0: no limit but
                              FEDGE_DATASET_MAX_BYTES. Not in a job: the program's own */
    const char *aside;     /* a column of csv files of values that is none, unless natural:COLUMN
                              names it; NULL: none. Not in a job either */
} fedge_data_spec;

/* How clients evaluate. */
typedef enum fedge_evaluation {
    FEDGE_EVALUATION_AS_TRAINED, /* by the model that they train */
    FEDGE_EVALUATION_INT8,       /* by one of its own in int8 */
    FEDGE_EVALUATION_COUNT
} fedge_evaluation;

typedef struct fedge_training_spec {
    uint32_t local_epochs; /* used when local_steps is 0 */
    uint32_t local_steps;
    uint32_t batch_size;
    uint32_t micro_batch_size; /* examples that pass through the layers at a time; 0: as many as
                                  fedge_model_micro_batch says */
    float learning_rate;       /* of the first round; each task has the present one */
    fedge_optimizer optimizer; /* all but its learning rate */
    fedge_schedule schedule;   /* of the learning rate, over the rounds */
    fedge_precision precision; /* of the matrix products */
    fedge_evaluation evaluation;
    fedge_storage activations; /* as they are kept for the backward pass */
    fedge_storage weights;     /* as they are kept between steps */
} fedge_training_spec;

/* Do clients keep the values they did not send as a residual for the next round? */
typedef enum fedge_error_feedback {
    FEDGE_ERROR_FEEDBACK_AUTO, /* where the codec chooses which values travel */
    FEDGE_ERROR_FEEDBACK_ON,
    FEDGE_ERROR_FEEDBACK_OFF,
    FEDGE_ERROR_FEEDBACK_COUNT
} fedge_error_feedback;

#define FEDGE_MAX_LAYER_CODECS 16
#define FEDGE_CODEC_OF_VECTORS "vectors" /* tensors of less than two dimensions */

/* A codec of some tensors' own. */
typedef struct fedge_layer_codec {
    char tensors[FEDGE_MAX_TENSOR_NAME]; /* whose names match, with '*' for any characters; or
                                            FEDGE_CODEC_OF_VECTORS */
    fedge_codec codec;
    fedge_codec down; /* of what models changed by; values NULL: fedge_update_spec.down */
} fedge_layer_codec;

typedef struct fedge_update_spec {
    fedge_codec codec; /* of what is trained; without the key, fedge_codec_default */
    uint32_t num_layers;
    fedge_layer_codec layers[FEDGE_MAX_LAYER_CODECS]; /* the first that matches counts */
    bool deflate;
    fedge_error_feedback error_feedback;
    fedge_codec down; /* of the models that clients get; values NULL: these travel whole */
    bool down_deflate;
    uint32_t residual_half_life; /* rounds in which half of a residual is left; 0: all stays */
    int bound_log2;              /* b of every parameter, until the server tightens it */
    int buffer_bound_log2;       /* the least b of statistics */
    int control_bound_log2;      /* b of what the strategy has clients send besides */
    fedge_codec control;         /* of the same; values NULL: that of what is trained, without what
                                    chooses */
    fedge_codec buffers;         /* of statistics; values NULL: they travel as floats */
} fedge_update_spec;

#define FEDGE_MAX_CLUSTERS 16

/* What client hooks know of the strategy's arguments; each has those in its table. */
typedef struct fedge_hooks_arguments {
    uint32_t personal_layers; /* the last with parameters, that stay with the client */
    uint32_t head_epochs;     /* that these are trained before the others */
    uint32_t num_clusters;    /* models that a client chooses of */
    float lambda;             /* holds a model of the client's own near the server's */
} fedge_hooks_arguments;

/* The clients' part of a job. Allocate it on the heap, since it is large; fedge_plan_free. */
typedef struct fedge_plan {
    char name[FEDGE_MAX_JOB_NAME];
    uint64_t seed;                          /* < 2^53 */
    const struct fedge_client_hooks *hooks; /* what the strategy asks of clients; NULL: nothing */
    fedge_hooks_arguments hooks_arguments;
    bool external;          /* the model is the client's own; only the schema is known */
    fedge_model_spec model; /* when not external */
    uint32_t train_last;    /* a model's "train-last", only while it is read */
    fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_schema schema;     /* over [tensors]: the parameters, then the statistics */
    size_t num_parameters;   /* values of the parameters: the statistics begin behind them */
    fedge_sent sent;         /* the layout of an update */
    fedge_personal personal; /* the values that stay on the client */
    fedge_data_spec data;    /* when not external, or when the job names data */
    bool has_data;
    fedge_training_spec training;
    fedge_update_spec update;
} fedge_plan;

/* How the clients of a training phase are drawn (aggregator/rounds/sampler.h): name in C, name in
 * a job. The first is a job's default. */
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

const char *fedge_sampler_name(unsigned kind); /* "uniform"; NULL for others */

typedef struct fedge_sampler_spec {
    fedge_sampler_kind type;
    double minimum_share;     /* the least score of a client, as a share of the mean, in [0, 1] */
    bool inverse_probability; /* an update weighs as much more as its client was less likely */
} fedge_sampler_spec;

/* The server's part of a job. */
typedef struct fedge_rounds_spec {
    uint32_t num_server_rounds;
    double fraction_train;    /* of the available nodes, in (0, 1] */
    double fraction_evaluate; /* in [0, 1]; 0: no evaluation on clients */
    uint32_t min_train_nodes, min_evaluate_nodes, min_available_nodes;
    double over_selection; /* ≥ 1: cohort asked = ceil(cohort · over_selection) */
    uint32_t max_cohort;   /* cohort_max; max_cohort · max_weight ≤ 2^32 is demanded */
    uint32_t max_weight;   /* w_max */
    uint64_t round_deadline_ms;
    double
        min_report_fraction; /* share of the cohort that must report by the deadline, in (0, 1] */
    fedge_sampler_spec sampler;
    /* Set by asynchronous strategies; 0: rounds wait for their cohort. */
    uint32_t buffer_size;   /* updates that close a round, whichever model they began with */
    uint32_t max_staleness; /* rounds that may have closed since then */
} fedge_rounds_spec;

typedef struct fedge_test_set {
    bool present;
    char images[FEDGE_MAX_PATHS], labels[FEDGE_MAX_PATHS]; /* as fedge_site_data has them */
} fedge_test_set;

struct fedge_job;
struct fedge_json;
struct fedge_json_field;

/* What the settings of every strategy begin with. */
typedef struct fedge_strategy_common {
    double server_learning_rate; /* of the first round; 1 for plain FedAvg */
    fedge_schedule schedule;     /* of it, over the rounds */
} fedge_strategy_common;

/* What a reader of jobs knows of a strategy: its arguments. What it does with them is the
 * aggregator's (aggregator/rounds/strategy.h). */
typedef struct fedge_strategy_reader {
    const char *name; /* as in a job: "FedAvg" */
    const struct fedge_json_field
        *arguments;       /* of its settings, but for those in fedge_strategy_common; NULL: none */
    size_t settings_size; /* of its struct, whose first member is a fedge_strategy_common */
    double default_rate;  /* of the server; 0: 1 */
    /* What has to hold between the settings and the rest of the job, whose rounds are derived and
     * whose plan is not: it may change the plan's training. Fails with the key. NULL: nothing. */
    fedge_status (*derive)(const struct fedge_json *json, struct fedge_job *job, void *settings,
                           fedge_error *err);
    /* What has to hold of the job when its plan, with what travels, is derived too. NULL: nothing.
     */
    fedge_status (*check)(const struct fedge_json *json, const struct fedge_job *job,
                          fedge_error *err);
    bool divides_by_rate; /* by the clients' learning rate, which is 0 in no round then */
} fedge_strategy_reader;

/* The measure by which models are compared. */
typedef enum fedge_criterion {
    FEDGE_CRITERION_AUTO, /* on the examples for validation if there are any, else on the test set
                           */
    FEDGE_CRITERION_VALIDATION_ACCURACY,
    FEDGE_CRITERION_VALIDATION_LOSS,
    FEDGE_CRITERION_TEST_ACCURACY,
    FEDGE_CRITERION_TEST_LOSS,
    FEDGE_CRITERION_COUNT
} fedge_criterion;

const char *fedge_criterion_name(unsigned metric); /* "test-loss"; NULL for others */

/* keep-best, early-stopping. */
typedef struct fedge_watch_spec {
    bool present;
    fedge_criterion metric;
    uint32_t patience; /* early-stopping: evaluations without a better one that end the run */
    double min_delta;  /* early-stopping: what is better is so by more than this */
} fedge_watch_spec;

typedef struct fedge_job {
    fedge_plan plan;
    fedge_rounds_spec rounds;
    char strategy[FEDGE_MAX_STRATEGY_NAME];         /* "FedAvg" */
    const fedge_strategy_reader *const *strategies; /* as the job was read with; NULL: without */
    void *strategy_settings;    /* of its reader's struct; the job's own. NULL: read without */
    fedge_test_set test_set;    /* evaluated by the server after each round */
    fedge_watch_spec keep_best; /* the best model is left beside the last */
    fedge_watch_spec early_stopping;
    char initial_model[FEDGE_MAX_PATH]; /* safetensors; "" for the initialisers */
    uint32_t keep_checkpoints;          /* ≥ 1 */
    uint64_t min_free_disk;             /* bytes; rounds wait below it */
} fedge_job;

/* Parses and validates a job. [name] is used in messages ("job.json:12: …"). Relative paths are
 * taken as relative to the directory of [name]. */
FEDGE_MUST_USE fedge_status fedge_job_parse(const char *text, size_t size, const char *name,
                                            fedge_job **job, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_job_load(const char *path, fedge_job **job, fedge_error *err);

/* The same with the strategies that the program has (ends with NULL), the first being the default:
 * their arguments are read and checked. Without them any strategy will do, and only what it asks of
 * clients is known. */
FEDGE_MUST_USE fedge_status fedge_job_parse_with(const char *text, size_t size, const char *name,
                                                 const fedge_strategy_reader *const *strategies,
                                                 fedge_job **job, fedge_error *err);

/* Reads of a job's file only what clients see of it, and checks that; nothing of what the server
 * alone reads ("rounds", the strategy's arguments, …). To be freed with fedge_plan_free. */
FEDGE_MUST_USE fedge_status fedge_job_load_plan(const char *path, fedge_plan **plan,
                                                fedge_error *err);

/* Is every round's learning rate one that a task may ask for, and that the strategy takes?
 * FEDGE_OUT_OF_RANGE with the first round that has none, and *key, of the job, to change. A job
 * that has been read has passed; for one whose rounds are changed afterwards. */
FEDGE_MUST_USE fedge_status fedge_job_check_rates(const fedge_job *job, const char **key,
                                                  fedge_error *err);
/* The same of the server's learning rate; fine for a job that was read without strategies. */
FEDGE_MUST_USE fedge_status fedge_job_check_server_rates(const fedge_job *job, fedge_error *err);
void fedge_job_free(fedge_job *job); /* NULL is fine */

/* The plan as JSON, the same bytes for the same plan; *text is malloc'ed, NUL-terminated. */
FEDGE_MUST_USE fedge_status fedge_plan_write(const fedge_plan *plan, char **text, size_t *size,
                                             fedge_error *err);
/* FEDGE_UNSUPPORTED when "must" names a feature this release does not have. */
FEDGE_MUST_USE fedge_status fedge_plan_parse(const char *text, size_t size, fedge_plan **plan,
                                             fedge_error *err);
void fedge_plan_free(fedge_plan *plan); /* NULL is fine */

/* The model before any training where no file is given for it: every value by its initialiser from
 * the plan's seed; of an external model zeros. values: (schema.num_elements) */
void fedge_plan_initial_values(const fedge_plan *plan, float *values);

/* How a client makes the plan's model to train it (not for external models). micro_batch is the
 * plan's or fedge_model_micro_batch's, the same on every machine. */
fedge_model_options fedge_plan_model_options(const fedge_plan *plan);

/* The model that evaluates, when it is not the one that trains; false otherwise. */
bool fedge_plan_evaluation_options(const fedge_plan *plan, fedge_model_options *options);

/* The trainer's settings for a task of this plan (not for external models). */
fedge_trainer_config fedge_plan_trainer_config(const fedge_plan *plan, uint32_t round,
                                               uint32_t client_index, double learning_rate);

/* The examples of that task as the plan says that they are trained on: [examples], or augmented by
 * [augmented], which must outlive them then. */
fedge_examples fedge_plan_augment(const fedge_plan *plan, const fedge_trainer_config *config,
                                  const fedge_examples *examples, fedge_augmented *augmented);

/* The learning rate of a round. */
double fedge_plan_learning_rate(const fedge_plan *plan, uint32_t round);

/* What plans may ask for in "must" and this release can do ("codec:int8", "layer:Conv2d", …), one
 * by one from index 0; NULL behind the last. A client's HELLO lists them. */
const char *fedge_plan_feature(unsigned index);

/* Which of these features the plan needs, by index: what its "must" names. */
void fedge_plan_needs(const fedge_plan *plan, bool needed[FEDGE_MAX_FEATURES]);

/* What a stored value becomes on reading: (v / divide_by − mean[channel]) / std[channel], without
 * mean and std when the job has none. */
float fedge_data_normalise(const fedge_data_spec *spec, uint32_t channel, float v);

/* ---- paths ----------------------------------------------------------------------------------- */

/* Paths in files are relative to the file; of job.c, site.c, and strategies that read files. */

/* Puts the folder of [file] before [path] unless that is empty or begins with '/'. False when the
 * result is too long; [path] is unchanged then. */
FEDGE_MUST_USE bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH]);

/* The same for each line. False also when all are too long together. */
FEDGE_MUST_USE bool fedge_paths_resolve(const char *file, char paths[FEDGE_MAX_PATHS]);

#endif
