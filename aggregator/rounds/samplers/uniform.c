/* Samples uniformly: every subset of the available clients is equally likely (sampler.h). */
#include "aggregator/rounds/sampler.h"

const fedge_sampler_ops fedge_sampler_uniform = {0};
