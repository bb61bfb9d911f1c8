/* Bulyan (El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of distributed learning in
 * Byzantium", ICML 2018): selects n − 2 f updates one after another by Krum among the remaining
 * ones, then takes in each coordinate the mean of the n − 4 f values nearest to their median,
 *
 *     x ← x + η_s · mean(nearest(Δ_k)),   n ≥ 4 f + 3
 *
 * Krum's n − f − 2 shrinks with the remaining updates, to at least 1. f has no default; η_s is 1.
 */
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(FEDGE_JSON_REQUIRED),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static uint32_t min_updates(const fedge_robust_settings *settings)
{
    return 4 * settings->num_malicious + 3;
}

/* The index of the alive update with the lowest score. */
static uint32_t krum(const fedge_gram *gram, const bool *alive, uint32_t near, double *distances)
{
    uint32_t best = gram->num;
    double lowest = 0.0;
    for (uint32_t i = 0; i < gram->num; i++) {
        const double score = alive[i] ? fedge_robust_score(gram, alive, i, near, distances) : 0.0;
        if (alive[i] && (best == gram->num || score < lowest)) {
            best = i;
            lowest = score;
        }
    }
    return best;
}

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    const uint32_t num = gram->num, f = settings->num_malicious;
    double *distances = malloc(num * sizeof(*distances));
    bool *alive = malloc(num * sizeof(*alive));
    const bool has_memory = distances && alive;
    if (has_memory) {
        memset(choice->weights, 0, num * sizeof(*choice->weights));
        for (uint32_t i = 0; i < num; i++)
            alive[i] = true;
        for (uint32_t left = num; left > 2 * f; left--) {
            const uint32_t best = krum(gram, alive, left > f + 3 ? left - f - 2 : 1, distances);
            alive[best] = false;
            choice->weights[best] = 1;
        }
    }
    choice->cut = f;
    free(distances);
    free(alive);
    return has_memory ? FEDGE_OK
                      : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u scores", (unsigned)num);
}

static const fedge_robust_rule RULE = {.name = "Bulyan",
                                       .reduction = FEDGE_ROW_NEAREST,
                                       .min_updates = min_updates,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_SQUARES};

FEDGE_ROBUST_STRATEGY(bulyan, "Bulyan");
