/* FedTrimmedAvg (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical
 * rates", ICML 2018): the mean of each coordinate without its ⌊β n⌋ lowest and highest values,
 *
 *     x ← x + η_s · trimmed(Δ_i),   β = 0.2 by default
 */
#include "aggregator/rounds/robust/robust.h"

static const fedge_json_field ARGUMENTS[] = {
    {"beta", NULL, FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_robust_settings, beta), .min = 0,
     .max = 0.499, .fallback = 0.2},
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    (void)gram;
    (void)err;
    choice->cut = (uint32_t)(settings->beta * choice->num);
    return FEDGE_OK;
}

static const fedge_robust_rule RULE = {
    .name = "FedTrimmedAvg", .reduction = FEDGE_ROW_TRIMMED, .select = select_updates};

FEDGE_ROBUST_STRATEGY(fedtrimmedavg, "FedTrimmedAvg");
