/* The simulated clients' data: one data set in memory, divided among them. Where ranks have local
 * files, it is this rank's part.
 *
 * A client's examples are those that a deployed client with the same part of the same division
 * would load, in the same order, so that both train alike.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_DATA_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_CLIENT_DATA_H

#include <stdint.h>

#include "aggregator/simulate/cohort/placement.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/data/partitions/partition.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"

/* Read by any number of threads once it is made. */
typedef struct fedge_client_data {
    fedge_dataset *dataset; /* all examples; where ranks have local files, those of this rank's
                               clients, then the others' examples for validation */
    const fedge_placement *placement; /* the ranks that have the data; NULL: all ranks have all */
    uint32_t num_clients;
    uint32_t num_examples; /* examples of all clients on all ranks, and those without an owner */
    int32_t *labels;       /* (num_examples), set with local files; NULL: the data set has them */
    uint32_t crc32;        /* fedge_dataset_crc32 of all examples, set with local files */
    uint32_t *owner;       /* (num_examples); FEDGE_PARTITION_UNUSED or _VALIDATION: none */
    uint32_t *examples;    /* indices into [dataset], client by client, each client's held-out ones
                              last; then those for validation. UINT32_MAX: only other ranks have it */
    uint32_t *first;       /* (num_clients + 1): client c has examples[first[c], first[c + 1]) */
    uint32_t *held_out_first; /* (num_clients): start of the held-out ones, up to first[c + 1] */
    uint32_t max_examples;    /* size of the largest training or held-out part */
    uint32_t num_validation;
} fedge_client_data;

/* Loads the files of [data], sets the fraction [validation_split] of all examples apart, and
 * divides the others into [num_clients] parts. Each client holds out data->validation_fraction of
 * its own examples. Errors as fedge_dataset_load_divided. */
FEDGE_MUST_USE fedge_status fedge_client_data_new(const fedge_plan *plan,
                                                  const fedge_site_data *data,
                                                  double validation_split, uint32_t num_clients,
                                                  fedge_client_data **client_data,
                                                  fedge_error *err);
/* The same where ranks have local files; all ranks call it. The division of [data] is per-file;
 * [placement] has holders and must outlive the result. Fails on all ranks alike. FEDGE_MISMATCH
 * also names two ranks where a client's file differs. */
FEDGE_MUST_USE fedge_status fedge_client_data_new_placed(
    const fedge_plan *plan, const fedge_site_data *data, double validation_split,
    const fedge_placement *placement, const fedge_collective *collective,
    fedge_client_data **client_data, fedge_error *err);
/* Of clients whose trainers have data of their own: no examples, and dataset is NULL. */
FEDGE_MUST_USE fedge_status fedge_client_data_new_unknown(uint32_t num_clients,
                                                          fedge_client_data **client_data,
                                                          fedge_error *err);
void fedge_client_data_free(fedge_client_data *client_data); /* NULL is fine */

/* (num_examples) */
const int32_t *fedge_client_data_labels(const fedge_client_data *client_data);
/* fedge_dataset_crc32 of all examples, with those that only other ranks have. */
uint32_t fedge_client_data_crc32(const fedge_client_data *client_data);
/* The owner of examples[at]; FEDGE_PLACEMENT_ANYONE: it is for validation. */
uint32_t fedge_client_data_client_at(const fedge_client_data *client_data, uint32_t at);

/* Views into the client data; the caller must not free them. */
fedge_view fedge_client_data_train(const fedge_client_data *client_data, uint32_t client);
fedge_view fedge_client_data_held_out(const fedge_client_data *client_data, uint32_t client);
fedge_view fedge_client_data_validation(const fedge_client_data *client_data);

/* For client_data_placed.c: divides the examples of [fresh] by [owner] and takes ownership of it.
 * Errors as above; the caller frees [fresh]. */
FEDGE_MUST_USE fedge_status fedge_client_data_divide(fedge_client_data *fresh, uint32_t *owner,
                                                     uint32_t num_examples, double held_out,
                                                     uint64_t seed, fedge_error *err);

#endif
