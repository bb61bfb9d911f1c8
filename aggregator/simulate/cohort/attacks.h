/* Malicious clients of a simulation: the updates they send, or the data they spoil.
 *
 * Clients 0 to num − 1 lie. Some spoil their data and train on it as honest ones do, whatever the
 * strategy. The others lie about their updates: they know what all others of their round send, and
 * together send the most harmful values, in fixed point, rounded and clamped to the bound as an
 * honest update is. They need a strategy that takes updates one by one (robust/robust.h);
 * FedTrimmedAvg with beta 0 is the plain mean.
 *
 * A table: a new attack is a line in it, its test, and a row in docs/guides/sweeps.md.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_ATTACKS_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_ATTACKS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/updates.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/plan/plan.h"

#define FEDGE_BACKDOOR_LABEL 0 /* the class that marked examples shall be classified as */

typedef struct fedge_attack_kind fedge_attack_kind;

/* All 0: no attack. */
typedef struct fedge_attack {
    const fedge_attack_kind *kind;
    uint32_t num;    /* malicious clients */
    double strength; /* as the kind says */
} fedge_attack;

/* "KIND:N" or "KIND:N:STRENGTH". FEDGE_INVALID_ARGUMENT lists the kinds. */
FEDGE_MUST_USE fedge_status fedge_attack_parse(const char *text, fedge_attack *attack,
                                               fedge_error *err);

/* Does it lie about updates? Then it needs a strategy that collects. */
bool fedge_attack_forges_updates(const fedge_attack *attack);
bool fedge_attack_is_backdoor(const fedge_attack *attack);

/* An attack on data: spoils the fraction [strength] of the examples that malicious clients train
 * on, spread evenly; held-out examples stay. Does nothing for other attacks. FEDGE_UNSUPPORTED:
 * labels are not classes. */
FEDGE_MUST_USE fedge_status fedge_attack_poison_data(const fedge_attack *attack,
                                                     const fedge_plan *plan,
                                                     fedge_client_data *client_data,
                                                     fedge_error *err);

/* A round's updates with lies in place of those of malicious clients. */
typedef struct fedge_attacked {
    fedge_attack attack;
    fedge_updates honest;  /* before the attack */
    const bool *malicious; /* (honest.num): is the update a malicious client's? */
} fedge_attacked;

/* The updates as the server sees them; [attacked] must outlive the result. */
fedge_updates fedge_attack_updates(fedge_attacked *attacked);

#endif
