/* The engine "cuda": this client's model trained by all its GPUs together (edge/train/cuda/silo.h).
 */
#ifndef FEDGE_CLIENT_TRAINING_BACKEND_CUDA_H
#define FEDGE_CLIENT_TRAINING_BACKEND_CUDA_H

#include "client/training_backend.h"

extern const fedge_client_engine_ops fedge_client_engine_cuda;

#endif
