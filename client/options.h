/* The command line of fedge-client. */
#ifndef FEDGE_CLIENT_OPTIONS_H
#define FEDGE_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/training_backend.h"
#include "edge/core/log.h"

#define FEDGE_CLIENT_MAX_SERVERS 4096 /* maximum bytes; links have fewer and report it */

typedef struct fedge_client_options {
    char servers[FEDGE_CLIENT_MAX_SERVERS]; /* values of all --server options, joined by commas */
    const char *server;                     /* servers, or NULL without --server */
    const char *identity, *trust, *config, *state, *seed_blob, *proxy; /* string of argv, or NULL */
    uint32_t partition_id, num_partitions;                             /* 0, 0 if not given */
    bool has_partition_id;
    fedge_log_level log_level;
    bool log_json, check_config;
    const char *plan; /* job file whose needs are printed, or NULL */
    bool json;
    const char *backend;             /* "cpu", or one of client/training_backend.h */
    fedge_backend_settings settings; /* backend settings */
} fedge_client_options;

/* Reads argv. If the program should end at once (--help, --version, a printed error), returns false
 * and its exit code in *exit_code. */
bool fedge_client_options_read(int argc, char **argv, fedge_client_options *options,
                               int *exit_code);

/* --plan (plan_report.c): prints the memory that a device needs for the job file asked->plan,
 * before any is allocated, as a table on stdout, or as one JSON object with asked->json; GPUs train
 * with asked->settings. All figures are exact and computed by the functions that the trainer
 * allocates with. */
FEDGE_MUST_USE fedge_status fedge_plan_report(const fedge_client_options *asked, fedge_error *err);

#endif
