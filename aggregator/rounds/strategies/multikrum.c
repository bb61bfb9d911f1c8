/* MultiKrum (Blanchard et al., NeurIPS 2017, as Krum): the mean of the m updates with the lowest
 * scores,
 *
 *     x ← x + η_s · mean(Δ_k of the m lowest scores),   m = n − f by default
 */
#include "aggregator/rounds/strategies/common.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(FEDGE_JSON_REQUIRED),
    {"num-nodes-to-keep", "num_nodes_to_keep", FEDGE_JSON_U32,
     FEDGE_JSON_AT(fedge_robust_settings, num_selected), .min = 0, .max = 65536},
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    const uint32_t selected = settings->num_selected;
    return fedge_krum_select(
        settings, gram, selected > 0 ? selected : gram->num - settings->num_malicious, choice, err);
}

static const fedge_robust_rule RULE = {.name = "MultiKrum",
                                       .reduction = FEDGE_ROW_MEAN,
                                       .min_updates = fedge_krum_min_updates,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_SQUARES};

static fedge_status derive(const fedge_json *json, fedge_job *job, void *of, fedge_error *err)
{
    const fedge_robust_settings *settings = of;
    const fedge_status status = fedge_robust_derive(&RULE, json, job, settings, err);
    const uint32_t min_updates = fedge_robust_min_updates(job);
    if (status == FEDGE_OK && settings->num_selected + settings->num_malicious > min_updates) {
        return fedge_json_fail_at(json, "strategy.num-nodes-to-keep", err,
                                  "a round may close with %u updates, %u of them malicious: keep "
                                  "at most %u",
                                  (unsigned)min_updates, (unsigned)settings->num_malicious,
                                  (unsigned)(min_updates - settings->num_malicious));
    }
    return status;
}

FEDGE_ROBUST_STRATEGY_WITH(multikrum, "MultiKrum", derive);
