/* The numbers of a phase that has ended. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROUND_SUMMARY_H
#define FEDGE_AGGREGATOR_ROUNDS_ROUND_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/rounds/metric_plugin_api.h"
#include "edge/core/bytes.h"
#include "edge/core/status.h"
#include "edge/train/errors.h"
#include "edge/wire/protocol.h"

/* ---- metrics of a plugin --------------------------------------------------------------------- */

/* Values of a plugin's metrics (metric_plugin_api.h) in one evaluation. */

/* Plain data; all 0: no metrics. */
typedef struct fedge_metric_values {
    uint32_t num;
    const char *const *names; /* names in the plugin's table */
    double values[FEDGE_METRIC_PLUGIN_MAX_METRICS];
} fedge_metric_values;

/* Appends the metrics of errors (edge/train/errors.h). values: (FEDGE_ERROR_METRICS). Does nothing
 * where a plugin's metrics are, or leave no room. */
void fedge_metrics_set_errors(fedge_metric_values *metrics, const double *values);
/* The value of a metric of errors; NaN: there is none. */
double fedge_metrics_error(const fedge_metric_values *metrics, fedge_error_metric metric);

/* Lower case, digits and "_", 1 to FEDGE_METRIC_PLUGIN_MAX_NAME − 1 bytes; NULL is none. */
bool fedge_metric_is_name(const char *name);
/* Describes an error in a plugin's table as the end of a sentence; NULL: the table is valid. */
const char *fedge_metrics_wrong(const fedge_metric_plugin *table);

/* Appends ,"metrics":{…} to a line of JSON; nothing when there are none. */
FEDGE_MUST_USE fedge_status fedge_metrics_write(const fedge_metric_values *metrics,
                                                fedge_buffer *line, fedge_error *err);

/* ---- quantiles of clients' accuracies -------------------------------------------------------- */

/* How evenly models serve clients: quantiles of their accuracies, each client counting once. */

#define FEDGE_ACCURACY_QUANTILES 7

/* Quantiles 0, 0.1, 0.25, 0.5, 0.75, 0.9 and 1, interpolated linearly like numpy.quantile. Plain
 * data; all 0: unknown. */
typedef struct fedge_accuracy_quantiles {
    bool present;
    double values[FEDGE_ACCURACY_QUANTILES];
} fedge_accuracy_quantiles;

/* The name in files: "0", "0.1", …; index below FEDGE_ACCURACY_QUANTILES. */
const char *fedge_accuracy_quantile_key(unsigned index);

/* accuracies: (count), sorted in place. With count 0 the quantiles are unknown. */
void fedge_accuracy_quantiles_measure(fedge_accuracy_quantiles *to, double *accuracies,
                                      uint32_t count);

#define FEDGE_SPEED_QUANTILES 4u
#define FEDGE_ROUND_SUMMARY_MAX_BUFFERED 2048u /* updates that a line names */
#define FEDGE_ROUND_SUMMARY_MAX_DEVICES 512u   /* devices that a line names */

/* An update of a round with a buffer. */
typedef struct fedge_buffered_update {
    uint32_t client, staleness;
} fedge_buffered_update;

/* What a device has trained in a round. */
typedef struct fedge_device_part {
    uint32_t client;
    uint64_t examples;
    double loss; /* mean training loss; not finite: not reported */
} fedge_device_part;

/* A phase of a simulation with virtual time (aggregator/simulate/time/client_profiles.h). */
typedef struct fedge_virtual_phase {
    bool present;   /* false: time is not virtual */
    double seconds; /* length of the phase */
    double time;    /* end of the phase, since the start of the run */
    /* Clients by how fast they compute, the slowest quarter first. */
    uint32_t asked[FEDGE_SPEED_QUANTILES], reported[FEDGE_SPEED_QUANTILES];
} fedge_virtual_phase;

/* The global model's results on examples of the training data that no client trained on. */
typedef struct fedge_validation {
    bool present;                /* false: the run has no such examples */
    double loss, accuracy;       /* NaN: not evaluated in this round */
    fedge_metric_values metrics; /* errors, of a plan with targets */
} fedge_validation;

/* A phase that has ended, as rounds.jsonl, /metrics and the progress line show it. Plain data;
 * unknown values are NaN. */
typedef struct fedge_round_summary {
    uint32_t round, attempt;
    fedge_task_kind kind;
    uint32_t asked, reported; /* clients */
    uint64_t examples;        /* sum over the clients that reported */
    double loss, accuracy;    /* TRAIN: results on the test set; EVALUATE: results on the clients */
    fedge_accuracy_quantiles quantiles; /* EVALUATE: quantiles of the clients' accuracies */
    double train_loss, train_accuracy;  /* TRAIN: means over examples, while training */
    uint64_t bytes_up, bytes_down;      /* bytes of all websocket messages during the phase */
    uint64_t clamped;                   /* values cut to the bound by clients */
    double seconds;                     /* length of the phase, from its opening */
    double seconds_train, seconds_encode, seconds_upload;  /* means over clients */
    double seconds_validate, seconds_journal, seconds_sum; /* sums over all workers */
    double seconds_step, seconds_evaluate;
    char model[FEDGE_HASH_TEXT]; /* TRAIN: SHA-256 of the new model */
    fedge_virtual_phase virtual_phase;
    fedge_validation validation;     /* TRAIN, only in a simulation */
    fedge_metric_values metrics;     /* TRAIN: a plugin's metrics on the test set */
    fedge_buffered_update *buffered; /* (num_buffered): updates of a phase with a buffer, in the
                                        order of the sum; valid while the line is written */
    uint32_t num_buffered;
    fedge_device_part *devices; /* (num_devices): TRAIN, all that reported, in slot order; none when
                                   there are more than a line names */
    uint32_t num_devices;
    const fedge_gpu_stats
        *gpus; /* (num_gpus): stats of the phase; valid while the line is written */
    uint32_t num_gpus;
} fedge_round_summary;

/* Adds a device to those that the line names, unless [reported] are too many for it. The summary
 * owns the list. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_round_summary_add_device(fedge_round_summary *summary,
                                                           const fedge_device_part *device,
                                                           fedge_error *err);
/* Frees what the summary owns: the lists of updates and devices. */
void fedge_round_summary_fini(fedge_round_summary *summary);

/* Appends the members of a line of rounds.jsonl after "round" and "phase". Unknown values are null.
 */
FEDGE_MUST_USE fedge_status fedge_round_summary_write(const fedge_round_summary *summary,
                                                      fedge_buffer *line, fedge_error *err);

#endif
