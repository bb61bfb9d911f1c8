/* edge/train/cuda/nccl_api.h against NVIDIA's <nccl.h>: what differs does not compile. */
#include "tests/edge/core/cmocka_all.h"

#include <assert.h>
#include <nccl.h>

#include "edge/train/cuda/nccl_api.h"

/* ---- values ------------------------------------------------------------------------------------
 */

#define SAME_VALUE(ours, theirs)                                                                   \
    static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)

SAME_VALUE(FEDGE_NCCL_SUCCESS, ncclSuccess);
SAME_VALUE(FEDGE_NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME_VALUE(FEDGE_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME_VALUE(FEDGE_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME_VALUE(FEDGE_NCCL_IN_PROGRESS, ncclInProgress);
SAME_VALUE(FEDGE_NCCL_INT8, ncclInt8);
SAME_VALUE(FEDGE_NCCL_INT32, ncclInt32);
SAME_VALUE(FEDGE_NCCL_INT64, ncclInt64);
SAME_VALUE(FEDGE_NCCL_FLOAT32, ncclFloat32);
SAME_VALUE(FEDGE_NCCL_SUM, ncclSum);
SAME_VALUE(sizeof(fedge_nccl_result), sizeof(ncclResult_t));
SAME_VALUE(sizeof(fedge_nccl_type), sizeof(ncclDataType_t));
SAME_VALUE(sizeof(int), sizeof(ncclRedOp_t));
SAME_VALUE(sizeof(fedge_nccl_id), sizeof(ncclUniqueId));
SAME_VALUE(_Alignof(fedge_nccl_id), _Alignof(ncclUniqueId));
SAME_VALUE(FEDGE_NCCL_OLDEST, NCCL_VERSION(2, 14, 0));
static_assert(FEDGE_NCCL_OLDEST <= NCCL_VERSION_CODE, "the header is of an NCCL that is taken");

/* ---- functions ---------------------------------------------------------------------------------
 * Each is written once, for enums of either side: R a result, T a type, O an operation. */

#define GET_ERROR_STRING(R, T, O) const char *(*)(R)
#define COMM_INIT_ALL(R, T, O) R (*)(ncclComm_t *, int, const int *)
#define OF_COMM(R, T, O) R (*)(ncclComm_t)
#define COMM_GET_ASYNC_ERROR(R, T, O) R (*)(ncclComm_t, R *)
#define OF_GROUP(R, T, O) R (*)(void)
#define REDUCE_SCATTER(R, T, O) R (*)(const void *, void *, size_t, T, O, ncclComm_t, cudaStream_t)
#define ALL_GATHER(R, T, O) R (*)(const void *, void *, size_t, T, ncclComm_t, cudaStream_t)

#define SAME_FUNCTION(member, theirs, SHAPE)                                                       \
    static_assert(                                                                                 \
        __builtin_types_compatible_p(__typeof__(((fedge_nccl *)NULL)->member),                     \
                                     SHAPE(fedge_nccl_result, fedge_nccl_type, int)) &&            \
            __builtin_types_compatible_p(__typeof__(&(theirs)),                                    \
                                         SHAPE(ncclResult_t, ncclDataType_t, ncclRedOp_t)),        \
        #member " does not have the type of " #theirs)

SAME_FUNCTION(get_error_string, ncclGetErrorString, GET_ERROR_STRING);
SAME_FUNCTION(comm_init_all, ncclCommInitAll, COMM_INIT_ALL);
SAME_FUNCTION(comm_destroy, ncclCommDestroy, OF_COMM);
SAME_FUNCTION(comm_abort, ncclCommAbort, OF_COMM);
SAME_FUNCTION(comm_get_async_error, ncclCommGetAsyncError, COMM_GET_ASYNC_ERROR);
SAME_FUNCTION(group_start, ncclGroupStart, OF_GROUP);
SAME_FUNCTION(group_end, ncclGroupEnd, OF_GROUP);
SAME_FUNCTION(reduce_scatter, ncclReduceScatter, REDUCE_SCATTER);
SAME_FUNCTION(all_gather, ncclAllGather, ALL_GATHER);
/* The id is a struct of either side, of the same bytes. */
#define SAME_WITH_ID(member, theirs, OURS, THEIRS)                                                 \
    static_assert(__builtin_types_compatible_p(__typeof__(((fedge_nccl *)NULL)->member), OURS) &&  \
                      __builtin_types_compatible_p(__typeof__(&(theirs)), THEIRS),                 \
                  #member " does not have the type of " #theirs)
SAME_WITH_ID(get_unique_id, ncclGetUniqueId, fedge_nccl_result (*)(fedge_nccl_id *),
             ncclResult_t (*)(ncclUniqueId *));
SAME_WITH_ID(comm_init_rank, ncclCommInitRank,
             fedge_nccl_result (*)(ncclComm_t *, int, fedge_nccl_id, int),
             ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int));
static_assert(__builtin_types_compatible_p(__typeof__(&ncclGetVersion), ncclResult_t (*)(int *)),
              "nccl_api.c asks for the version otherwise");

/* A function without a line above would go unseen: each is one pointer of the struct. */
static_assert(sizeof(fedge_nccl) == sizeof(void *) + sizeof(void (*)(void)) * 12,
              "a function of fedge_nccl is not compared");

static void it_compiles(void **state)
{
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_compiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
