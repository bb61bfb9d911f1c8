/* The simulated GPUs of the server, and what its supervisor remembers of lost ones.
 *
 * In this program the accumulator kind "gpu" sums on the CPU. One of its GPUs may fail or hang at
 * any call, or lack memory: then its sums and values are wrong, and every call returns
 * FEDGE_GPU_LOST until the accumulator is opened again. */
#ifndef FEDGE_TESTS_WORLD_GPUS_H
#define FEDGE_TESTS_WORLD_GPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"

typedef enum world_gpu_failure {
    WORLD_GPU_FAILS,
    WORLD_GPU_HANGS,  /* the call does not return, which the watch notices */
    WORLD_GPU_IS_FULL /* it has no memory for accumulators that are opened from now on */
} world_gpu_failure;

/* Begins a new world, whose server has [num] GPUs. */
void world_gpus_begin(uint32_t num);
/* The n-th call to a GPU from now on fails as [how] says, and with it the GPU. */
void world_gpus_fail(uint64_t call, world_gpu_failure how);
/* All GPUs work again. A list that names no present GPU becomes "all". */
void world_gpus_mend(void);

/* Sets the content of --gpus-file: a bit for each GPU, some of which may not exist; 0: "all". */
void world_gpus_set_list(uint64_t list);

/* Configures the start of the server's process: the list, what the supervisor remembers, and
 * whether this is a restart. */
void world_gpus_configure(fedge_accumulator_config *sums);
/* The server's process has ended with an exit code, or was [killed]. The supervisor starts another
 * one; if it ends instead, its successor remembers nothing. */
void world_gpus_ended(int exit_code, bool killed, uint64_t lived_ns);
void world_gpus_forget(void); /* the machine was switched off */
/* False: the present process has lost a GPU, and this exit code does not report it. */
bool world_gpus_allow(int exit_code);

#endif
