/* The kinds of the programs that run on emulated GPUs, in place of accumulator_kinds.c's. */
#include "aggregator/reduce/accumulator.h"
#include "aggregator/reduce/cuda/accumulator_cuda.h"

const fedge_accumulator_ops *const fedge_accumulator_kinds[] = {
    &fedge_accumulator_cuda,
    &fedge_accumulator_cpu,
    NULL,
};
