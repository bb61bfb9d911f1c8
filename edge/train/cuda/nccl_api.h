/* The part of NCCL that fedge uses, loaded at run time.
 *
 * A build needs neither NCCL's header nor its library; without the library only sums over several
 * GPUs are unavailable. Values and types are those of <nccl.h>, whose ABI NCCL preserves since 2.7;
 * tests/cuda/test_nccl_api.c compares them with that header where it exists.
 */
#ifndef FEDGE_EDGE_TRAIN_CUDA_NCCL_API_H
#define FEDGE_EDGE_TRAIN_CUDA_NCCL_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "edge/core/status.h"

#define FEDGE_NCCL_OLDEST 21400 /* 2.14.0: the first whose abort ends every hanging call */

typedef struct ncclComm *ncclComm_t;

/* ncclUniqueId, by which processes join one communicator. Passed by value. */
typedef struct fedge_nccl_id {
    char bytes[128];
} fedge_nccl_id;

typedef enum fedge_nccl_result {
    FEDGE_NCCL_SUCCESS = 0,
    FEDGE_NCCL_UNHANDLED_CUDA_ERROR = 1,
    FEDGE_NCCL_INVALID_USAGE = 5,
    FEDGE_NCCL_REMOTE_ERROR = 6,
    FEDGE_NCCL_IN_PROGRESS = 7
} fedge_nccl_result;

typedef enum fedge_nccl_type {
    FEDGE_NCCL_INT8 = 0,
    FEDGE_NCCL_INT32 = 2,
    FEDGE_NCCL_INT64 = 4,
    FEDGE_NCCL_FLOAT32 = 7
} fedge_nccl_type;

enum { FEDGE_NCCL_SUM = 0 };

/* NCCL's functions, named as there without "nccl". */
typedef struct fedge_nccl {
    void *library;
    int version; /* 22809: 2.28.9 */
    const char *(*get_error_string)(fedge_nccl_result result);
    fedge_nccl_result (*comm_init_all)(ncclComm_t *comms, int count, const int *gpus);
    fedge_nccl_result (*get_unique_id)(fedge_nccl_id *id);
    fedge_nccl_result (*comm_init_rank)(ncclComm_t *comm, int count, fedge_nccl_id id, int rank);
    fedge_nccl_result (*comm_destroy)(ncclComm_t comm);
    fedge_nccl_result (*comm_abort)(ncclComm_t comm);
    fedge_nccl_result (*comm_get_async_error)(ncclComm_t comm, fedge_nccl_result *error);
    fedge_nccl_result (*group_start)(void);
    fedge_nccl_result (*group_end)(void);
    fedge_nccl_result (*reduce_scatter)(const void *from, void *to, size_t count,
                                        fedge_nccl_type type, int op, ncclComm_t comm,
                                        cudaStream_t stream);
    fedge_nccl_result (*all_gather)(const void *from, void *to, size_t count, fedge_nccl_type type,
                                    ncclComm_t comm, cudaStream_t stream);
} fedge_nccl;

/* Loads libnccl.so.2, which stays in memory until the process ends. Sets NCCL_RAS_ENABLE=0 in the
 * environment unless the variable has a value. FEDGE_NOT_FOUND: there is no such library.
 * FEDGE_UNSUPPORTED: it is older than FEDGE_NCCL_OLDEST or lacks a function. Messages give advice.
 */
FEDGE_MUST_USE fedge_status fedge_nccl_load(fedge_nccl *nccl, fedge_error *err);
/* "2.28.9" */
void fedge_nccl_version_text(int version, char *text, size_t size);
void fedge_nccl_unload(fedge_nccl *nccl); /* all zero is fine */

#endif
