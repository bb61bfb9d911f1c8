/* Krum (Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent",
 * NeurIPS 2017): the update that is nearest to its n − f − 2 nearest others,
 *
 *     x ← x + η_s Δ_k,   k = argmin_i Σ ‖Δ_i − Δ_j‖² over the n − f − 2 nearest j
 *
 * n ≥ 2 f + 3. Of equal scores the first slot's wins. f has no default; η_s is 1.
 */
#include "aggregator/rounds/strategies/krum.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(FEDGE_JSON_REQUIRED),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static fedge_status choose(const fedge_robust_settings *settings, const fedge_gram *gram,
                           fedge_robust_choice *choice, fedge_error *err)
{
    return fedge_krum_keep(settings, gram, 1, choice, err);
}

static const fedge_robust_rule RULE = {.name = "Krum",
                                       .middle = FEDGE_MIDDLE_MEAN,
                                       .least = fedge_krum_least,
                                       .choose = choose,
                                       .looks_at = FEDGE_GRAM_SQUARES};

FEDGE_ROBUST_STRATEGY(krum, "Krum");
