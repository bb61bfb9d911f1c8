/* The GPUs of a world's server, and its supervisor's memory of those that were lost.
 *
 * The kind of accumulator "gpu" of this program sums as the CPU does. A GPU of it may fail or hang
 * at any call, or lack memory: then its sums and values are wrong, and every call returns
 * FEDGE_GPU_LOST until the accumulator is opened again.
 */
#ifndef FEDGE_TESTS_WORLD_GPUS_H
#define FEDGE_TESTS_WORLD_GPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/reduce/accumulator.h"

typedef enum world_gpu_failure {
    WORLD_GPU_FAILS,
    WORLD_GPU_HANGS,  /* the call that meets it does not return, which is noticed */
    WORLD_GPU_IS_FULL /* has no memory for an accumulator that is opened from now on */
} world_gpu_failure;

/* A new world, whose server has so many GPUs. */
void world_gpus_begin(uint32_t num);
/* The GPU that would do the n-th call from now on fails at it. */
void world_gpus_fail(uint64_t call, world_gpu_failure how);
/* All GPUs work again, and a list without any that is there becomes "all". */
void world_gpus_mend(void);

/* What --gpus-file has from now on: a bit for each GPU, some of which may not be there; 0: "all".
 */
void world_gpus_set_list(uint64_t list);

/* For the start of the server's process: the list, what the supervisor remembers, and whether this
 * is a restart. */
void world_gpus_configure(fedge_accumulator_config *sums);
/* The server's process has ended, with an exit code or [killed]. The supervisor starts another one,
 * or ends; then it is started anew and remembers nothing. */
void world_gpus_ended(int exit_code, bool killed, uint64_t lived_ns);
void world_gpus_forget(void); /* the machine was off */
/* False: the present process has lost a GPU, and this exit code does not say so. */
bool world_gpus_allow(int exit_code);

#endif
