#include "client/training_backend.h"
#ifdef FEDGE_WITH_CUDA
#include "client/training_backend_cuda.h"
#endif

const fedge_client_engine_ops *const fedge_client_engines[] = {
#ifdef FEDGE_WITH_CUDA
    &fedge_client_engine_cuda,
#endif
    NULL,
};
