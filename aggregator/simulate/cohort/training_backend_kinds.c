#include "aggregator/simulate/cohort/training_backend.h"
#ifdef FEDGE_WITH_CUDA
#endif

const fedge_trainer_engine_ops *const fedge_trainer_engines[] = {
#ifdef FEDGE_WITH_CUDA
    &fedge_trainer_engine_cuda,
#endif
    &fedge_trainer_engine_cpu,
    NULL,
};
