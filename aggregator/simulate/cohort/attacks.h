/* Malicious clients of a simulation, which manipulate their updates or their data.
 *
 * Clients 0 to num − 1 are malicious. An attack on data changes their examples, on which they train
 * like any client. An attack on updates replaces what they send by values computed from the round's
 * honest updates, in fixed point, rounded and clamped to the bound like these. It needs a strategy
 * that takes updates one by one (robust/robust.h); FedTrimmedAvg with beta 0 is the plain mean.
 *
 * A new attack is an entry of the table in attacks.c, a test, and a row in docs/guides/sweeps.md.
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

#define FEDGE_BACKDOOR_LABEL 0 /* the class that a backdoor gives to marked examples */

typedef struct fedge_attack_kind fedge_attack_kind;

/* All 0: no attack. */
typedef struct fedge_attack {
    const fedge_attack_kind *kind;
    uint32_t num;    /* malicious clients */
    double strength; /* 0 to 1e6 for an attack on updates, 0 to 1 for one on data */
} fedge_attack;

/* "KIND:N" or "KIND:N:STRENGTH". FEDGE_INVALID_ARGUMENT lists the kinds. */
FEDGE_MUST_USE fedge_status fedge_attack_parse(const char *text, fedge_attack *attack,
                                               fedge_error *err);

/* Does it replace updates? Such an attack needs a strategy that collects. */
bool fedge_attack_forges_updates(const fedge_attack *attack);
bool fedge_attack_is_backdoor(const fedge_attack *attack);

/* Changes the fraction [strength] of the examples that malicious clients train on, spread evenly;
 * held-out examples stay. Does nothing unless the attack is on data. FEDGE_UNSUPPORTED: labels are
 * not classes. */
FEDGE_MUST_USE fedge_status fedge_attack_poison_data(const fedge_attack *attack,
                                                     const fedge_plan *plan,
                                                     fedge_client_data *client_data,
                                                     fedge_error *err);

/* A round's updates, in which those of malicious clients are replaced. */
typedef struct fedge_attacked {
    fedge_attack attack;
    fedge_updates honest;  /* the updates before the attack */
    const bool *malicious; /* (honest.num): is the update a malicious client's? */
} fedge_attacked;

/* The updates as the server sees them; [attacked] must outlive the result. */
fedge_updates fedge_attack_updates(fedge_attacked *attacked);

#endif
