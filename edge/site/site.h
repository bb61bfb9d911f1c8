/* The client file: its servers, the paths of its data, and what the device allows (site policy).
 *
 *   {"data": {"cifar-10": {"values": ["data_batch_1.bin", "data_batch_2.bin"]},
 *             "fashion-mnist": {"values": "train-images.gz", "labels": "train-labels.gz",
 *                               "validation-fraction": 0.1,
 *                               "partition": "dirichlet:0.5", "partition-seed": 1,
 *                               "partition-id": 3, "num-partitions": 8}},
 *    "policy": {"max-ram": 268435456, "codecs": ["none", "int8"], "max-local-epochs": 50,
 *               "jobs": ["…"], "conditions": {…}}}
 *
 * Relative paths are relative to the file. It is read strictly, like a job.
 */
#ifndef FEDGE_EDGE_SITE_SITE_H
#define FEDGE_EDGE_SITE_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/data/partitions/partition.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"
#include "edge/site/conditions.h"
#include "edge/wire/protocol.h"

#define FEDGE_SITE_MAX_SIZE ((size_t)1 << 16)
#define FEDGE_SITE_MAX_DATA 16
#define FEDGE_SITE_MAX_SERVERS 2048 /* bytes of all addresses, NUL included */

typedef struct fedge_site_data {
    char name[FEDGE_MAX_DATA_NAME];
    char values[FEDGE_MAX_PATHS],
        labels[FEDGE_MAX_PATHS]; /* same format as for fedge_dataset_load */
    double validation_fraction;  /* fraction for federated evaluation, in [0, 0.9] */
    bool has_partition, has_partition_seed;
    bool has_partition_id;
    fedge_partition_spec partition;        /* its seed also selects validation examples */
    uint32_t partition_id, num_partitions; /* num_partitions 0: the data set is not divided */
} fedge_site_data;

#define FEDGE_SITE_MAX_PARTITIONS 1000000u

typedef struct fedge_site {
    uint32_t num_data;
    fedge_site_data data[FEDGE_SITE_MAX_DATA];
    /* The policy; 0 or empty: no limit except the build's. */
    uint64_t max_ram_bytes; /* limit of fedge_client_memory's total (edge/site/client_memory.h) */
    uint32_t max_local_epochs;
    unsigned allowed_codecs; /* bit i: fedge_codec_name(i); 0: all are allowed */
    uint32_t num_jobs;
    char jobs[FEDGE_SITE_MAX_DATA][FEDGE_MAX_JOB_NAME]; /* names of allowed jobs */
    bool hangs_up;               /* the server may ask the device to disconnect between tasks */
    bool shows_errors;           /* the server may see the texts of a trainer's exceptions */
    fedge_conditions conditions; /* conditions, checked for each task */
    char
        servers[FEDGE_SITE_MAX_SERVERS]; /* addresses, one per line, not validated here; "": none */
} fedge_site;

FEDGE_MUST_USE fedge_status fedge_site_load(const char *path, fedge_site **site, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_site_parse(const char *text, size_t size, const char *name,
                                             fedge_site **site, fedge_error *err);
void fedge_site_free(fedge_site *site); /* NULL is allowed */

/* The entry named [name], or NULL. */
const fedge_site_data *fedge_site_find(const fedge_site *site, const char *name);

/* FEDGE_DENIED, with the limit and the plan's value, if the policy forbids the plan. */
FEDGE_MUST_USE fedge_status fedge_site_check(const fedge_site *site, const fedge_plan *plan,
                                             fedge_error *err);

/* The entry of the plan's data set. FEDGE_NOT_FOUND if this device lacks it, which matters to
 * fedge's own trainer only: others may bring their data. */
FEDGE_MUST_USE fedge_status fedge_site_find_data(const fedge_site *site, const fedge_plan *plan,
                                                 const fedge_site_data **data, fedge_error *err);

/* ---- fields ---------------------------------------------------------------------------------- */

/* The keys of a client file, for site.c and its tests. */

extern const fedge_json_field fedge_site_fields[];      /* struct: fedge_site */
extern const fedge_json_field fedge_site_data_fields[]; /* struct: fedge_site_data */
extern const fedge_json_field fedge_policy_fields[];    /* struct: fedge_site */

#endif
