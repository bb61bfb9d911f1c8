/* The engines of the programs that run on emulated GPUs, in place of trainer_engine_kinds.c's. */
#include "aggregator/simulate/cohort/training_backend.h"

const fedge_trainer_engine_ops *const fedge_trainer_engines[] = {
    &fedge_trainer_engine_cuda,
    &fedge_trainer_engine_cpu,
    NULL,
};
