#include "aggregator/reduce/accumulator.h"

const fedge_accumulator_ops *const fedge_accumulator_kinds[] = {
#ifdef FEDGE_WITH_CUDA
    &fedge_accumulator_cuda,
#endif
    &fedge_accumulator_cpu,
    NULL,
};
