/* Samples by examples, π_i ∝ n_i. The mean of the updates is plain: in expectation FedAvg's step
 * (Li et al., "On the convergence of FedAvg on non-IID data", ICLR 2020, scheme I), with equal
 * weights for all rounds. n_i comes from the client's last update. */
#include "aggregator/rounds/sampler.h"

static uint32_t score(const fedge_client_record *record, uint32_t round)
{
    (void)round;
    return record->examples < FEDGE_SAMPLER_MAX_SCORE ? (uint32_t)record->examples
                                                      : FEDGE_SAMPLER_MAX_SCORE;
}

const fedge_sampler_ops fedge_sampler_examples = {.score = score, .weighs_examples = true};
