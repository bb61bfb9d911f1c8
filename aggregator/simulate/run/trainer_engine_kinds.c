#include "aggregator/simulate/run/trainer_engine.h"
#include "aggregator/simulate/run/trainer_pool.h"

const fedge_trainer_engine_ops *const fedge_trainer_engines[] = {
    &fedge_trainer_engine_cpu,
    NULL,
};
