/* Malicious clients of a simulation: what they send in place of their updates, or learn from.
 *
 * Clients 0 to num − 1 lie. Some spoil their data and train on it as honest ones do, whatever the
 * strategy. The others lie about their updates: they know what all others of their round send, and
 * send together what does the most harm: of each coordinate, in the units of fixed point, rounded
 * and cut at the bound as an honest update is. So they are for strategies that take updates one by
 * one (robust/robust.h); FedTrimmedAvg with beta 0 is the plain mean.
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

#define FEDGE_BACKDOOR_LABEL 0 /* what marked examples are to be taken for */

typedef struct fedge_attack_kind fedge_attack_kind;

/* One that is all 0: nobody lies. */
typedef struct fedge_attack {
    const fedge_attack_kind *kind;
    uint32_t num;    /* malicious clients */
    double strength; /* as the kind says */
} fedge_attack;

/* "KIND:N" or "KIND:N:STRENGTH". FEDGE_INVALID_ARGUMENT has the kinds there are. */
FEDGE_MUST_USE fedge_status fedge_attack_parse(const char *text, fedge_attack *attack,
                                               fedge_error *err);

/* Does it lie about updates? It takes a strategy that collects. */
bool fedge_attack_lies(const fedge_attack *attack);
bool fedge_attack_is_backdoor(const fedge_attack *attack);

/* An attack on data: spoils the strength's share of the examples that malicious clients train on,
 * spread evenly; what they hold out stays. Nothing for other attacks. FEDGE_UNSUPPORTED: labels
 * that are no classes. */
FEDGE_MUST_USE fedge_status fedge_attack_spoil(const fedge_attack *attack, const fedge_plan *plan,
                                               fedge_client_data *client_data, fedge_error *err);

/* A round's updates with lies in place of those of malicious clients. */
typedef struct fedge_attacked {
    fedge_attack attack;
    fedge_updates honest; /* as they were made */
    const bool *lies;     /* (honest.num): is the update a malicious client's? */
} fedge_attacked;

/* What a server has of them; [attacked] outlives it. */
fedge_updates fedge_attack_updates(fedge_attacked *attacked);

#endif
