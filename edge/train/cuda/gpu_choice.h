/* Choosing a GPU, and one that cannot be taken. What the runtime answers before a GPU has work is
 * no loss of it: its memory is others', it is closed to this process, or the build has no code for
 * its kind. Whoever takes any machinery that can is given another. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_GPU_CHOICE_H
#define FEDGE_EDGE_TRAIN_CUDA_GPU_CHOICE_H

#include <cuda_runtime_api.h>

#include "edge/core/status.h"

/* Chooses a GPU for the first time in this process: makes its context, in which a thread that waits
 * for a stream blocks, where by default it spins and keeps a core busy. Afterwards cudaSetDevice
 * will do. Events that a thread waits for need cudaEventBlockingSync besides. */
cudaError_t fedge_gpu_choose(int gpu);

/* FEDGE_NOT_FOUND, with why there is no GPU and [advice] in the message: the machine has no driver,
 * it has one that is older than this build, or there is no GPU. [error]: what cudaGetDeviceCount
 * said, cudaSuccess with a count of 0. */
fedge_status fedge_gpu_none(cudaError_t error, const char *advice, fedge_error *err);

/* FEDGE_NO_MEMORY, FEDGE_NOT_FOUND: [error] is one of these, with [advice] in the message.
 * FEDGE_OK: it is none, or another error. */
FEDGE_MUST_USE fedge_status fedge_gpu_refused(int gpu, cudaError_t error, const char *advice,
                                              fedge_error *err);

#endif
