/* The sampler decides how many clients a phase asks, and which. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_SAMPLER_H
#define FEDGE_AGGREGATOR_ROUNDS_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/client_history.h"
#include "edge/core/rng.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* The reports that a phase wants, and the tasks that it sends to get them. */
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
 * At most max-cohort clients are asked, because all of them may report and the sums cannot overflow
 * for max_cohort · max_weight. An evaluation is not over-selected. With a buffer-size, [wanted] is
 * that size and [asked] the number of clients at work at a time. */
fedge_cohort_size fedge_cohort_size_of(const fedge_rounds_spec *spec, fedge_task_kind kind,
                                       uint32_t available);

/* Reports without which a phase fails at its deadline: max(1, ⌈min-report-fraction · wanted⌉). */
uint32_t fedge_cohort_min_reports(const fedge_rounds_spec *spec, uint32_t wanted);

/* Draws [k] of the [n] [items] without replacement, each subset equally likely, into
 * items[0, k) (a partial Fisher–Yates shuffle in place); k ≤ n. */
void fedge_sample(fedge_rng *rng, uint32_t *items, uint32_t n, uint32_t k);

/* ---- samplers by kind ------------------------------------------------------------------------ */

/* Each sampler is one file under samplers/, found by its kind (FEDGE_SAMPLER_MAP in
 * edge/plan/plan.h). A sampler gives each client an integer score s_i from the client's history
 * (client_history.h). Clients are drawn without replacement by systematic sampling (Madow, "On
 * the theory of systematic sampling, II", Annals of Mathematical Statistics 1949) in a random
 * order, so that client i is in the cohort with probability
 *
 *     π_i = min(1, k s_i / T)          exactly
 *
 * T: the sum of the scores of clients with π_i < 1; k: the size of the cohort without the others.
 * Integer arithmetic gives the same cohort for the same history on every machine. fedge_sample
 * draws uniformly.
 *
 * A new sampler is a line in FEDGE_SAMPLER_MAP, a file with fedge_sampler_NAME, its tests, and a
 * row in docs/reference/job.md.
 */
#define FEDGE_SAMPLER_MAX_SCORE 1048576u /* 2^20: scores of 2^24 clients sum to at most 2^44 */

typedef struct fedge_sampler_ops {
    /* The score for a phase of [round], 1 to FEDGE_SAMPLER_MAX_SCORE; 0: unknown. NULL: all clients
     * are equally likely. */
    uint32_t (*score)(const fedge_client_record *record, uint32_t round);
    bool optimistic;      /* an unknown score counts as the greatest known one, not as their mean */
    bool weighs_examples; /* the score counts examples, so updates are not weighted by them again */
} fedge_sampler_ops;

#define FEDGE_SAMPLER_DECLARE(name, text) extern const fedge_sampler_ops fedge_sampler_##name;
FEDGE_SAMPLER_MAP(FEDGE_SAMPLER_DECLARE)
#undef FEDGE_SAMPLER_DECLARE

const fedge_sampler_ops *fedge_sampler_of(fedge_sampler_kind kind);

/* Whether the job's sampler reads the clients' history. */
bool fedge_sampler_uses_history(const fedge_sampler_spec *spec);

/* How a cohort was drawn; stored in the journal. All 0: uniformly. */
typedef struct fedge_draw {
    uint64_t total;   /* T; 0: all were asked */
    uint32_t count;   /* k */
    uint32_t unknown; /* the score of a client without a known one */
    uint32_t floor;   /* the lowest score */
    uint32_t asked, available;
} fedge_draw;

/* The score of a client in a draw of [round]. */
uint32_t fedge_draw_score(const fedge_draw *draw, const fedge_sampler_spec *spec,
                          const fedge_client_history *history, uint32_t round, uint32_t client);

/* Draws [k] of the [n] different clients in [items] into items[0, k); k ≤ n, n ≤ 2^24. */
fedge_draw fedge_draw_cohort(const fedge_sampler_spec *spec, const fedge_client_history *history,
                             uint32_t round, fedge_rng *rng, uint32_t *items, uint32_t n,
                             uint32_t k);

/* (asked / available) / π_i: the inverse of a client's probability relative to the average. 1 for a
 * draw that is all 0. */
double fedge_draw_ratio(const fedge_draw *draw, const fedge_sampler_spec *spec,
                        const fedge_client_history *history, uint32_t round, uint32_t client);

#endif
