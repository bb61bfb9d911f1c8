/* NormClipping (Sun et al., "Can you really backdoor federated learning?", 2019): updates are
 * clipped to the norm C,
 *
 *     x ← x + η_s · mean(Δ_i · min(1, C / ‖Δ_i‖))
 *
 * C is an argument, by default the median of the round's ‖Δ_i‖. The factors are integers in the
 * sum, of at most 30 bits.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/robust/robust.h"

static const fedge_json_field ARGUMENTS[] = {
    {"norm", NULL, FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_robust_settings, norm), .min = 0,
     .max = 1e9},
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    const uint32_t num = gram->num;
    double *norms = malloc(2 * (size_t)num * sizeof(*norms));
    if (!norms)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u norms", (unsigned)num);
    double *sorted = norms + num;
    for (uint32_t i = 0; i < num; i++)
        sorted[i] = norms[i] = sqrt(gram->dots[(size_t)i * num + i]) * gram->unit;
    qsort(sorted, num, sizeof(*sorted), by_value);
    const double median = 0.5 * (sorted[(num - 1) / 2] + sorted[num / 2]);
    const double most = settings->norm > 0.0 ? settings->norm : median;
    for (uint32_t i = 0; i < num; i++)
        norms[i] = norms[i] > most ? most / norms[i] : 1.0;
    choice->divisor = fedge_robust_weigh(choice, norms) * num;
    free(norms);
    return FEDGE_OK;
}

static const fedge_robust_rule RULE = {.name = "NormClipping",
                                       .reduction = FEDGE_ROW_MEAN,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_NORMS};

FEDGE_ROBUST_STRATEGY(normclipping, "NormClipping");
