#include "aggregator/simulate/cohort/training_backend.h"

const fedge_sim_backend_ops *const fedge_sim_backends[] = {
#ifdef FEDGE_WITH_CUDA
    &fedge_sim_backend_cuda,
#endif
    &fedge_sim_backend_cpu,
    NULL,
};
