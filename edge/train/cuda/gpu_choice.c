#include "edge/train/cuda/gpu_choice.h"

cudaError_t fedge_gpu_choose(int gpu)
{
    const cudaError_t error = cudaSetDevice(gpu);
    return error == cudaSuccess ? cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) : error;
}

fedge_status fedge_gpu_refused(int gpu, cudaError_t error, const char *advice, fedge_error *err)
{
    const char *why = cudaGetErrorString(error);
    int major = 0, minor = 0;
    switch (error) {
    case cudaErrorMemoryAllocation:
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "GPU %d has no memory left for another process (%s): see with nvidia-smi "
                          "who has it, %s",
                          gpu, why, advice);
    case cudaErrorDevicesUnavailable:
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "GPU %d is closed to this process (%s): see its compute mode with "
                          "nvidia-smi -q, %s",
                          gpu, why, advice);
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorUnsupportedPtxVersion:
        (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
        (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "GPU %d has compute capability %d.%d, and this build has no code for it "
                          "(%s), only for sm " FEDGE_CUDA_BUILT_FOR
                          ": build with -DFEDGE_CUDA_ARCHITECTURES=%d%d, %s",
                          gpu, major, minor, why, major, minor, advice);
    default:
        return FEDGE_OK;
    }
}
