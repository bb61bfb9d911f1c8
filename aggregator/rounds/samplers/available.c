/* By how often a client brought what it was asked for: π_i ∝ (r_i + 1) / (r_i + m_i + 2), with r_i
 * rounds that have its update and m_i that it missed. One that has not been asked stands at 1/2, so
 * that nobody is shut out, and one that declines for good costs the rounds less and less.
 */
#include "aggregator/rounds/sampler.h"

static uint32_t score(const fedge_client_record *record, uint32_t round)
{
    (void)round;
    const uint64_t asked = (uint64_t)record->reported + record->missed + 2;
    const uint64_t share = FEDGE_SAMPLER_MAX_SCORE * ((uint64_t)record->reported + 1) / asked;
    return share > 0 ? (uint32_t)share : 1;
}

const fedge_sampler_ops fedge_sampler_available = {.score = score};
