/* What Krum, MultiKrum and Bulyan share. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_KRUM_H
#define FEDGE_AGGREGATOR_ROUNDS_STRATEGIES_KRUM_H

#include "aggregator/rounds/robust/robust.h"

/* As fedge_robust_rule.least: 2 f + 3. */
uint32_t fedge_krum_least(const fedge_robust_settings *settings);

/* Leaves the [count] updates with the lowest scores, of equal ones those of the first slots, and
 * weight 1 of each. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_krum_keep(const fedge_robust_settings *settings,
                                            const fedge_gram *gram, uint32_t count,
                                            fedge_robust_choice *choice, fedge_error *err);

#endif
