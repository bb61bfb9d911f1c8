/* RFA (Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE Transactions
 * on Signal Processing 2022): the geometric median by the smoothed Weiszfeld algorithm,
 *
 *     z ← mean(Δ_i);   R times: β_i = 1 / max(ν, ‖z − Δ_i‖), z ← Σ β_i Δ_i / Σ β_i;   x ← x + η_s z
 *
 * R = 3 and ν = 1e-6 by default. z is always Σ α_i Δ_i, so the Gram matrix gives all distances: ‖z
 * − Δ_i‖² = Σ_jk α_j α_k G_jk − 2 Σ_j α_j G_ij + G_ii. The last β_i are integers in the sum, of at
 * most 30 bits.
 */
#include <math.h>
#include <stdlib.h>

#include "aggregator/rounds/robust/robust.h"

static const fedge_json_field ARGUMENTS[] = {
    {"num-iterations", "num_iterations", FEDGE_JSON_U32,
     FEDGE_JSON_AT(fedge_robust_settings, iterations), .min = 1, .max = 1000, .fallback = 3},
    {"smoothing", NULL, FEDGE_JSON_F64, FEDGE_JSON_AT(fedge_robust_settings, smoothing),
     .min = 1e-12, .max = 1000, .fallback = 1e-6},
    FEDGE_ROBUST_MALICIOUS(0),
    FEDGE_ROBUST_MIXING,
    FEDGE_JSON_END,
};

/* One iteration: alpha (num) becomes β_i / Σ β. along: (num) scratch. */
static void iterate(const fedge_gram *gram, double smoothing, double *alpha, double *along)
{
    double all = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < gram->num; i++) {
        along[i] = 0.0;
        for (uint32_t j = 0; j < gram->num; j++)
            along[i] += alpha[j] * gram->dots[(size_t)i * gram->num + j];
        all += alpha[i] * along[i];
    }
    for (uint32_t i = 0; i < gram->num; i++) {
        const double square = all - 2.0 * along[i] + gram->dots[(size_t)i * gram->num + i];
        const double distance = square > 0.0 ? sqrt(square) * gram->unit : 0.0;
        alpha[i] = 1.0 / (distance > smoothing ? distance : smoothing);
        sum += alpha[i];
    }
    for (uint32_t i = 0; i < gram->num; i++)
        alpha[i] /= sum;
}

static fedge_status select_updates(const fedge_robust_settings *settings, const fedge_gram *gram,
                                   fedge_robust_choice *choice, fedge_error *err)
{
    double *alpha = malloc(2 * (size_t)gram->num * sizeof(*alpha));
    if (!alpha)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u weights", (unsigned)gram->num);
    for (uint32_t i = 0; i < gram->num; i++)
        alpha[i] = 1.0 / gram->num;
    for (uint32_t r = 0; r < settings->iterations; r++)
        iterate(gram, settings->smoothing, alpha, alpha + gram->num);
    (void)fedge_robust_weigh(choice, alpha);
    free(alpha);
    return FEDGE_OK;
}

static const fedge_robust_rule RULE = {.name = "RFA",
                                       .reduction = FEDGE_ROW_MEAN,
                                       .select = select_updates,
                                       .extent = FEDGE_GRAM_DOTS};

FEDGE_ROBUST_STRATEGY(rfa, "RFA");
