/* Every subset of the available clients is as likely as any other (sampler.h). */
#include "aggregator/rounds/sampler.h"

const fedge_sampler_ops fedge_sampler_uniform = {0};
