/* The command line of fedge-simulate. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_OPTIONS_H
#define FEDGE_AGGREGATOR_SIMULATE_EXPERIMENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"
#include "aggregator/simulate/cohort/attacks.h"
#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/simulate/time/client_profiles.h"
#include "edge/core/command_line.h"
#include "edge/core/status.h"

#define FEDGE_SIMULATE_MAX_AXES 8
#define FEDGE_SIMULATE_MAX_CHANNELS 256
#define FEDGE_SIMULATE_MAX_ROUNDS 1000000u

typedef enum fedge_simulate_action {
    FEDGE_SIMULATE_RUN,
    FEDGE_SIMULATE_COMPARE, /* dirs, out, each, json */
    FEDGE_SIMULATE_COMPARE_HELP,
    FEDGE_SIMULATE_HELP,
    FEDGE_SIMULATE_HELP_ALL,
    FEDGE_SIMULATE_VERSION
} fedge_simulate_action;

/* Texts are argv's; NULL and 0 when not given. */
typedef struct fedge_simulate_options {
    fedge_simulate_action action;
    const char *job, *data, *out, *partition;
    fedge_attack attack;         /* all 0: none */
    const char *attack_text;     /* text of [attack]; NULL: none */
    const char *replay;          /* rounds.jsonl of an asynchronous run; NULL: none */
    const char *strategy_plugin; /* FILE; NULL: none */
    uint32_t strategy_timeout_s;
    const struct fedge_plugin *plugin; /* loaded by the caller; or NULL */
    const char *owner;                 /* the csv files' column of owners; NULL: none */
    bool has_seed, has_partition_seed;
    uint64_t seed, partition_seed;
    uint32_t seed_offset; /* added to both seeds in a run of a sweep */
    uint32_t num_clients, num_threads, num_rounds;
    const char *trainer; /* command that starts a trainer of one's own; NULL: fedge's */
    int trainer_channels[FEDGE_SIMULATE_MAX_CHANNELS]; /* or trainers that were started already */
    uint32_t num_trainer_channels;
    const char *backend;           /* name of the training backend, or "auto"; default "cpu" */
    const char *accumulator;       /* name of a kind, or "auto"; NULL: that of the backend */
    fedge_accumulator_config sums; /* the given options; the caller sets the others */
    uint64_t client_state_memory;  /* bytes; 0: what the machine allows */
    uint32_t evaluate_every;       /* default 1 */
    uint32_t client_accuracy;      /* clients on which the last model is evaluated */
    double validation_split;
    double targets[FEDGE_RUN_SUMMARY_MAX_TARGETS];
    uint32_t num_targets;
    bool stop_at_target;                       /* then num_targets ≥ 1 */
    const char *axes[FEDGE_SIMULATE_MAX_AXES]; /* KEY=VALUE,… of a sweep (sweep.h) */
    uint32_t num_axes;                         /* 0: no sweep */
    fedge_client_profiles_settings profiles;
    bool plan; /* print fedge_simulation_plan and exit */
    bool resume, quiet, json;
    bool each;   /* compare: do not group runs */
    char **dirs; /* (num_dirs): folders to compare */
    uint32_t num_dirs;
} fedge_simulate_options;

/* Reads argv. FEDGE_INVALID_ARGUMENT. */
FEDGE_MUST_USE fedge_status fedge_simulate_options_parse(int argc, char **argv,
                                                         fedge_simulate_options *options,
                                                         fedge_error *err);

/* For --help, or with [all] for --help-all, and for compare --help. --help and compare --help fit a
 * screen. Return [text]. */
const char *fedge_simulate_options_help(bool all, char text[FEDGE_HELP_SIZE]);
const char *fedge_simulate_compare_help(char text[FEDGE_HELP_SIZE]);

#endif
