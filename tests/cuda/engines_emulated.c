/* The training backends of the programs that run on emulated GPUs, in place of
 * training_backend_kinds.c's. */
#include "aggregator/simulate/cohort/training_backend.h"

const fedge_sim_backend_ops *const fedge_sim_backends[] = {
    &fedge_sim_backend_cuda,
    &fedge_sim_backend_cpu,
    NULL,
};
