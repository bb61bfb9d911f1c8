#include "aggregator/reduce/accumulator.h"

const fedge_accumulator_ops *const fedge_accumulator_kinds[] = {
    &fedge_accumulator_cpu,
    NULL,
};
