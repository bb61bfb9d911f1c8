/* The command line of fedge-aggregator, and checks of what it names, so that a mistake is reported
 * at the start and not when the run is over. */
#ifndef FEDGE_AGGREGATOR_PROGRAM_OPTIONS_H
#define FEDGE_AGGREGATOR_PROGRAM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/net/listener.h"
#include "aggregator/reduce/accumulator.h"
#include "edge/core/command_line.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/plan/plan.h"

#define FEDGE_DEFAULT_LISTEN "0.0.0.0:9092"
#define FEDGE_DEFAULT_HTTP "127.0.0.1:9093"
#define FEDGE_DEFAULT_CONNECTIONS 20000
#define FEDGE_MAX_CONNECTIONS 1000000u
#define FEDGE_DEFAULT_UNAUTHENTICATED 1024
#define FEDGE_DEFAULT_PER_ADDRESS 512
#define FEDGE_MAX_UNAUTHENTICATED 65536u

typedef enum fedge_options_action {
    FEDGE_OPTIONS_RUN,
    FEDGE_OPTIONS_CHECK, /* --check-config */
    FEDGE_OPTIONS_HELP,
    FEDGE_OPTIONS_HELP_ALL,
    FEDGE_OPTIONS_VERSION
} fedge_options_action;

/* Texts point into argv. */
typedef struct fedge_options {
    fedge_options_action action;
    const char *job, *state, *identity, *trust, *registry;
    fedge_address listen, http;
    bool http_on;
    uint32_t num_workers;         /* 0: one per CPU, at most eight */
    uint32_t num_network_threads; /* 0: one per two CPUs */
    uint32_t max_connections, max_unauthenticated, max_per_address;
    uint32_t heartbeat_s;
    const char *accumulator;       /* name of a kind, or "auto" */
    fedge_accumulator_config sums; /* gpus and shard; the caller sets the others */
    bool new_run, restored, drain, supervise, quiet, json, log_json;
    fedge_log_level log_level;
    const char *http_host, *redirect, *port_file, *result; /* NULL: none */
    const char *hosts; /* hosts of ranks that the supervisor starts by mpirun; NULL: none */
    const char *strategy_plugin; /* FILE; NULL: none */
    uint32_t strategy_timeout_s;
    const char *gpus_file; /* file with sums.gpus, which the caller reads; NULL: none */
} fedge_options;

/* FEDGE_INVALID_ARGUMENT with a message for the user. --help and --version have precedence over
 * missing options. */
FEDGE_MUST_USE fedge_status fedge_options_parse(int argc, char **argv, fedge_options *options,
                                                fedge_error *err);

/* The text of --help, which fits a screen, or with [all] of --help-all; returns [text]. */
const char *fedge_options_help(bool all, char text[FEDGE_HELP_SIZE]);

/* ---- --gpus-file ----------------------------------------------------------------------------- */

/* A file with one line: the GPUs that sum, as in --gpus. It is read at the start and at each
 * SIGHUP. */
#define FEDGE_GPUS_FILE_MAX_SIZE 1024

/* Sets config->gpus. FEDGE_NOT_FOUND, FEDGE_IO: it cannot be read; FEDGE_TOO_BIG,
 * FEDGE_INVALID_ARGUMENT: its content is wrong. Messages name the file; *config is unchanged on
 * failure. */
FEDGE_MUST_USE fedge_status fedge_gpus_file_read(const char *path, fedge_accumulator_config *config,
                                                 fedge_error *err);

/* ---- checks ---------------------------------------------------------------------------------- */

/* Reads the initial model once, to report a bad one. */
FEDGE_MUST_USE fedge_status fedge_check_initial_model(const fedge_job *job, fedge_error *err);
/* Checks keep-best and early-stopping. Warns if the test set selects the model, whose accuracy on
 * it then exceeds that on unseen examples. [name]: the job's file. */
FEDGE_MUST_USE fedge_status fedge_check_selection(const fedge_job *job, const char *name,
                                                  const fedge_log *log, fedge_error *err);
/* Checks that [path] is writable. The summary is written when the run is over, maybe days later. */
FEDGE_MUST_USE fedge_status fedge_check_result_path(const char *path, fedge_error *err);
/* Checks that every path leads to a file or a directory as expected. */
bool fedge_check_paths(const fedge_options *options);

#endif
