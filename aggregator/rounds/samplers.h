/* Samplers: which of the connected clients a training phase asks.
 *
 * A table: one file per sampler under samplers/, found by its kind (FEDGE_SAMPLER_MAP in
 * edge/plan/plan.h). A sampler gives each client a score s_i, an integer, by what has been seen of
 * it (client_history.h). Clients are drawn without replacement by systematic sampling (Madow, "On
 * the theory of systematic sampling, II", Annals of Mathematical Statistics 1949) in a random
 * order, so that client i is in the cohort with probability
 *
 *     π_i = min(1, k s_i / T)          exactly
 *
 * T: the sum of the scores of those with π_i < 1; k: the cohort without the others. All is in
 * integers, so the same history gives the same cohort everywhere. An uniform draw is sampler.h's.
 *
 * A new sampler is a line in FEDGE_SAMPLER_MAP, a file with fedge_sampler_NAME, its tests, and a
 * row in docs/jobs.md.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_SAMPLERS_H
#define FEDGE_AGGREGATOR_ROUNDS_SAMPLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/client_history.h"
#include "edge/core/rng.h"
#include "edge/plan/plan.h"

#define FEDGE_SAMPLER_MAX_SCORE 1048576u /* 2^20: of 2^24 clients they sum to at most 2^44 */

typedef struct fedge_sampler_ops {
    /* Of a client that has been seen, at least 1 and at most FEDGE_SAMPLER_MAX_SCORE, for a phase
     * of [round]; 0: not known. NULL: all alike. */
    uint32_t (*score)(const fedge_client_record *record, uint32_t round);
    bool hopes;  /* a score that is not known counts as the greatest; else as the mean */
    bool weighs; /* by examples: updates are not weighted by them again */
} fedge_sampler_ops;

#define FEDGE_SAMPLER_DECLARE(name, text) extern const fedge_sampler_ops fedge_sampler_##name;
FEDGE_SAMPLER_MAP(FEDGE_SAMPLER_DECLARE)
#undef FEDGE_SAMPLER_DECLARE

const fedge_sampler_ops *fedge_sampler_of(fedge_sampler_kind kind);

/* Does the job's sampler look at what has been seen of clients? */
bool fedge_sampler_looks_back(const fedge_sampler_spec *spec);

/* How a cohort was drawn; the journal keeps it. All 0: each was as likely as any other. */
typedef struct fedge_draw {
    uint64_t total;   /* T; 0: all were asked */
    uint32_t count;   /* k */
    uint32_t unknown; /* the score of a client whose score is not known */
    uint32_t floor;   /* the least score */
    uint32_t asked, available;
} fedge_draw;

/* The score of a client in a draw of [round]. */
uint32_t fedge_draw_score(const fedge_draw *draw, const fedge_sampler_spec *spec,
                          const fedge_client_history *history, uint32_t round, uint32_t client);

/* Draws [k] of the [n] different clients in [items] into items[0, k); k ≤ n, n ≤ 2^24. */
fedge_draw fedge_draw_cohort(const fedge_sampler_spec *spec, const fedge_client_history *history,
                             uint32_t round, fedge_rng *rng, uint32_t *items, uint32_t n,
                             uint32_t k);

/* (asked / available) / π_i: how much less likely than an average client it was to be drawn. 1 for
 * a draw that is all 0. */
double fedge_draw_ratio(const fedge_draw *draw, const fedge_sampler_spec *spec,
                        const fedge_client_history *history, uint32_t round, uint32_t client);

#endif
