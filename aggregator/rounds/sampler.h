/* The sampler: how many clients a phase asks, and which.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_SAMPLER_H
#define FEDGE_AGGREGATOR_ROUNDS_SAMPLER_H

#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* How many results a phase is after, and how many tasks it sends to get them. */
typedef struct fedge_cohort_size {
    uint32_t wanted; /* the phase closes when this many have reported */
    uint32_t asked;  /* tasks sent, wanted ≤ asked ≤ min(available, max_cohort) */
} fedge_cohort_size;

/* Connected clients that a phase of [kind] needs before it may open:
 * max(min-available-nodes, min-train-nodes or min-evaluate-nodes, 1). */
uint32_t fedge_cohort_needed(const fedge_rounds_spec *spec, fedge_task_kind kind);

/* The sizes for [available] connected clients, available ≥ fedge_cohort_needed:
 *     wanted = clamp(⌊fraction · available⌋, min-nodes, min(available, max-cohort))
 *     asked  = min(⌈wanted · over-selection⌉, available, max-cohort)
 * Never more than max-cohort are asked, because every one of them may report and the sums are
 * proved for max_cohort · max_weight. An evaluation is not over-selected. With a buffer-size that
 * is what is wanted, and [asked] is how many are at work at a time. */
fedge_cohort_size fedge_cohort_size_of(const fedge_rounds_spec *spec, fedge_task_kind kind,
                                       uint32_t available);

/* Reports without which a phase fails at its deadline: max(1, ⌈min-report-fraction · wanted⌉). */
uint32_t fedge_cohort_min_reports(const fedge_rounds_spec *spec, uint32_t wanted);

/* Draws [k] of the [n] [items] without replacement, each subset equally likely, into
 * items[0, k) (a partial Fisher–Yates shuffle in place); k ≤ n. */
void fedge_sample(fedge_rng *rng, uint32_t *items, uint32_t n, uint32_t k);

#endif
