/* tests/cuda/emulator/emulator.h on this machine's GPUs, for the tests of tests/cuda. */
#include <cuda_runtime_api.h>

#include "edge/train/cuda/nccl_api.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/cmocka_all.h"

jmp_buf test_end;
unsigned machines_asked, machines_given;

uint32_t emulator_real_gpus(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? (uint32_t)count : 0;
}

/* Said once, for nvcc and a compiler are enough for all that needs no NCCL. */
static bool has_nccl(void)
{
    static enum { UNKNOWN, HERE, MISSING } nccl = UNKNOWN;
    if (nccl == UNKNOWN) {
        fedge_nccl loaded = {0};
        fedge_error err;
        nccl = fedge_nccl_load(&loaded, &err) == FEDGE_OK ? HERE : MISSING;
        fedge_nccl_unload(&loaded);
        if (nccl == MISSING)
            fprintf(stderr, "joined sums are left out: %s\n", err.message);
    }
    return nccl == HERE;
}

bool emulator_start(const emulator_config *config)
{
    const bool here = config->num_gpus > 0 && config->num_gpus <= emulator_real_gpus() &&
                      (!config->joins || has_nccl()) && config->memory_bytes == 0 &&
                      !config->no_driver && !config->old_chip && !config->no_code &&
                      !config->no_nccl && config->nccl_version == 0 && config->fail_call == 0 &&
                      !config->fail_at && config->hang_collective == 0 && !config->watched;
    machines_asked++;
    machines_given += here;
    return here;
}

uint64_t emulator_calls(void)
{
    return 0;
}

uint64_t emulator_counted(void)
{
    return 0;
}

bool emulator_failed(void)
{
    return false;
}

uint32_t emulator_pending(void)
{
    return 0;
}

uint64_t emulator_collectives(void)
{
    return 0;
}

uint32_t emulator_leaks(void)
{
    return 0; /* compute-sanitizer's leak check tells */
}

const char *emulator_fault(void)
{
    const cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? NULL : cudaGetErrorName(error);
}

uint64_t emulator_races_seen(void)
{
    return 0;
}
