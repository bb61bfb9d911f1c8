/* Samples clients by how often they returned an update: π_i ∝ (r_i + 1) / (r_i + m_i + 2), where
 * client i returned r_i updates and missed m_i tasks. A client that has not been asked counts 1/2.
 * No client is excluded, and one that always declines is asked less and less.
 */
#include "aggregator/rounds/sampler.h"

static uint32_t score(const fedge_client_record *record, uint32_t round)
{
    (void)round;
    const uint64_t asked = (uint64_t)record->reported + record->missed + 2;
    const uint64_t fraction = FEDGE_SAMPLER_MAX_SCORE * ((uint64_t)record->reported + 1) / asked;
    return fraction > 0 ? (uint32_t)fraction : 1;
}

const fedge_sampler_ops fedge_sampler_available = {.score = score};
