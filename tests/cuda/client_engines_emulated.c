/* The engines of the client that runs on emulated GPUs, in place of
 * client/training_backend_kinds.c's. */
#include "client/training_backend_cuda.h"

const fedge_client_engine_ops *const fedge_client_engines[] = {
    &fedge_client_engine_cuda,
    NULL,
};
