/* Krum (Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
 * NeurIPS 2017): the update closest to its n − f − 2 nearest others,
 *
 *     x ← x + η_s Δ_k,   k = argmin_i Σ ‖Δ_i − Δ_j‖² over the n − f − 2 nearest j
 *
 * n ≥ 2 f + 3. Of equal scores the first slot's wins. f has no default; η_s is 1.
 */
#include <stdlib.h>

#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(FEDGE_JSON_REQUIRED),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

uint32_t fedge_krum_min_updates(const fedge_robust_settings *settings)
{
    return 2 * settings->num_malicious + 3;
}

typedef struct candidate {
    double score;
    uint32_t index;
} candidate;

static int by_score(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

fedge_status fedge_krum_select(const fedge_robust_settings *settings, const fedge_gram *gram,
                               uint32_t count, fedge_robust_choice *choice, fedge_error *err)
{
    const uint32_t num = gram->num, near = num - settings->num_malicious - 2;
    candidate *order = malloc(num * sizeof(*order));
    double *distances = malloc(num * sizeof(*distances));
    bool *alive = malloc(num * sizeof(*alive));
    const bool has_memory = order && distances && alive;
    for (uint32_t i = 0; has_memory && i < num; i++)
        alive[i] = true;
    for (uint32_t i = 0; has_memory && i < num; i++)
        order[i] = (candidate){fedge_robust_score(gram, alive, i, near, distances), i};
    if (has_memory)
        qsort(order, num, sizeof(*order), by_score);
    for (uint32_t i = 0; has_memory && i < num; i++)
        choice->weights[order[i].index] = i < count ? 1 : 0;
    free(order);
    free(distances);
    free(alive);
    return has_memory ? FEDGE_OK
                      : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u scores", (unsigned)num);
}

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    return fedge_krum_select(settings, gram, 1, choice, err);
}

static const fedge_robust_rule RULE = {.name = "Krum",
                                       .reduction = FEDGE_ROW_MEAN,
                                       .min_updates = fedge_krum_min_updates,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_SQUARES};

FEDGE_ROBUST_STRATEGY(krum, "Krum");
