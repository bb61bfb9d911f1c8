/* Samples clients by their utility for training (Lai et al., "Oort: Efficient federated learning
 * via guided participant selection", OSDI 2021), without Oort's term for device speed, since fedge
 * has over-selection and deadlines:
 *
 *     π_i ∝ n_i L_i (1 + √(0.1 ln R / R_i))
 *
 * n_i examples and L_i mean loss of the client's last update, in round R_i; R is the present round;
 * its logarithm is taken of the power of two below it, which is equal on every machine. Oort uses
 * the root mean square in place of L_i. A client that has not trained counts as the best of the
 * others.
 */
#include <math.h>

#include "aggregator/rounds/sampler.h"

#define SCALE 8.0 /* scores are integers */

static uint32_t score(const fedge_client_record *record, uint32_t round)
{
    if (record->last_round == 0)
        return 0;
    double log_of_round = 0.0;
    for (uint32_t r = round; r > 1; r /= 2)
        log_of_round += 0.6931471805599453;
    const double age = 1.0 + sqrt(0.1 * log_of_round / record->last_round);
    const double all = SCALE * (double)record->examples * record->loss * age;
    return all < 1.0                               ? 1
           : all < (double)FEDGE_SAMPLER_MAX_SCORE ? (uint32_t)all
                                                   : FEDGE_SAMPLER_MAX_SCORE;
}

const fedge_sampler_ops fedge_sampler_utility = {.score = score, .optimistic = true};
