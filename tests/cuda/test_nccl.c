/* NCCL with a communicator of one member: what a machine with a single GPU can show of the library
 * that is loaded, where sums never call it. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>

#include "edge/train/cuda/gpu.h"
#include "edge/train/cuda/nccl_api.h"
#include "tests/cuda/emulator/emulator.h"

enum { N = 1000, SIZE = N * sizeof(int64_t) };

typedef struct member {
    fedge_nccl nccl;
    ncclComm_t comm;
    cudaStream_t stream;
    int64_t *pinned;    /* (2, N): what is given, what came back */
    int64_t *from, *to; /* (N) on the GPU */
} member;

static void begin(member *self)
{
    fedge_error err;
    *self = (member){.comm = NULL};
    assert_true(emulator_start(&(emulator_config){.num_gpus = 1}));
    assert_int_equal(fedge_gpu_choose(0), cudaSuccess);
    if (fedge_nccl_load(&self->nccl, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaHostAlloc((void **)&self->pinned, 2 * SIZE, cudaHostAllocPortable),
                     cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&self->from, SIZE), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&self->to, SIZE), cudaSuccess);
    for (int64_t i = 0; i < N; i++)
        self->pinned[i] = i * i - ((int64_t)1 << 61);
}

/* The sum over one member, and the parts of one member, are what it has given. */
static void expect_own_sums(member *self)
{
    const fedge_nccl *nccl = &self->nccl;
    fedge_nccl_result found = FEDGE_NCCL_SUCCESS;
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(
            cudaMemcpyAsync(self->from, self->pinned, SIZE, cudaMemcpyHostToDevice, self->stream),
            cudaSuccess);
        assert_int_equal(cudaMemsetAsync(self->to, 0, SIZE, self->stream), cudaSuccess);
        assert_int_equal(nccl->group_start(), FEDGE_NCCL_SUCCESS);
        assert_int_equal(pass == 0 ? nccl->reduce_scatter(self->from, self->to, N, FEDGE_NCCL_INT64,
                                                          FEDGE_NCCL_SUM, self->comm, self->stream)
                                   : nccl->all_gather(self->from, self->to, N, FEDGE_NCCL_INT64,
                                                      self->comm, self->stream),
                         FEDGE_NCCL_SUCCESS);
        assert_int_equal(nccl->group_end(), FEDGE_NCCL_SUCCESS);
        assert_int_equal(
            cudaMemcpyAsync(self->pinned + N, self->to, SIZE, cudaMemcpyDeviceToHost, self->stream),
            cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(self->stream), cudaSuccess);
        assert_memory_equal(self->pinned + N, self->pinned, SIZE);
    }
    assert_int_equal(nccl->comm_get_async_error(self->comm, &found), FEDGE_NCCL_SUCCESS);
    assert_int_equal(found, FEDGE_NCCL_SUCCESS);
}

static void end(member *self)
{
    assert_int_equal(cudaStreamDestroy(self->stream), cudaSuccess);
    assert_int_equal(cudaFree(self->from), cudaSuccess);
    assert_int_equal(cudaFree(self->to), cudaSuccess);
    assert_int_equal(cudaFreeHost(self->pinned), cudaSuccess);
    fedge_nccl_unload(&self->nccl);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

static void one_gpu_of_one_process_joins(void **state)
{
    (void)state;
    member self;
    begin(&self);
    assert_int_equal(self.nccl.comm_init_all(&self.comm, 1, (const int[]){0}), FEDGE_NCCL_SUCCESS);
    expect_own_sums(&self);
    assert_int_equal(self.nccl.comm_destroy(self.comm), FEDGE_NCCL_SUCCESS);
    end(&self);
}

static void one_rank_joins(void **state)
{
    (void)state;
    member self;
    fedge_nccl_id id;
    begin(&self);
    assert_int_equal(self.nccl.get_unique_id(&id), FEDGE_NCCL_SUCCESS);
    assert_int_equal(self.nccl.group_start(), FEDGE_NCCL_SUCCESS);
    assert_int_equal(self.nccl.comm_init_rank(&self.comm, 1, id, 0), FEDGE_NCCL_SUCCESS);
    assert_int_equal(self.nccl.group_end(), FEDGE_NCCL_SUCCESS);
    expect_own_sums(&self);
    assert_int_equal(self.nccl.comm_abort(self.comm), FEDGE_NCCL_SUCCESS);
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_gpu_of_one_process_joins),
        cmocka_unit_test(one_rank_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
