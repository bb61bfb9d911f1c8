/* The command line of fedge-client. */
#ifndef FEDGE_CLIENT_OPTIONS_H
#define FEDGE_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/training_backend.h"
#include "edge/core/log.h"

#define FEDGE_CLIENT_MAX_SERVERS 4096 /* bytes; of links fewer, and they say so */

typedef struct fedge_client_options {
    char servers[FEDGE_CLIENT_MAX_SERVERS]; /* values of all --server options, joined by commas */
    const char *server;                     /* the same; NULL when not given */
    const char *identity, *trust, *config, *state, *seed_blob,
        *proxy;                            /* string of argv; NULL when not given */
    uint32_t partition_id, num_partitions; /* 0, 0 when not given */
    bool has_partition_id;
    fedge_log_level log_level;
    bool log_json, check_config;
    const char *plan; /* a job file: print what it needs, nothing else; else NULL */
    bool json;
    const char *backend;             /* "cpu", or one of client/training_backend.h */
    fedge_backend_settings settings; /* backend settings */
} fedge_client_options;

/* Reads argv. When the program is to end at once (--help, --version, an error, which has been
 * printed), returns false and its exit code in *exit_code. */
bool fedge_client_options_read(int argc, char **argv, fedge_client_options *options,
                               int *exit_code);

/* --plan (plan_report.c): prints what the job file asked->plan needs of a device's memory, before
 * any of it is taken, as a table to standard output, or as one JSON object with asked->json; GPUs
 * train with asked->settings. Every figure is exact and comes from the functions that the trainer
 * allocates by. */
FEDGE_MUST_USE fedge_status fedge_plan_report(const fedge_client_options *asked, fedge_error *err);

#endif
