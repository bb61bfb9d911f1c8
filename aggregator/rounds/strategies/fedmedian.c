/* FedMedian (Yin et al., "Byzantine-robust distributed learning: towards optimal statistical
 * rates", ICML 2018): the median of each coordinate, of an even number the mean of the two,
 *
 *     x ← x + η_s · median(Δ_i),   η_s = 1 by default
 */
#include "aggregator/rounds/robust/robust.h"

static const fedge_json_field ARGUMENTS[] = {
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static const fedge_robust_rule RULE = {.name = "FedMedian", .reduction = FEDGE_ROW_MEDIAN};

FEDGE_ROBUST_STRATEGY(fedmedian, "FedMedian");
