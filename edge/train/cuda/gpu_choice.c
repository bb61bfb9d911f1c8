#include "edge/train/cuda/gpu_choice.h"

cudaError_t fedge_gpu_choose(int gpu)
{
    const cudaError_t error = cudaSetDevice(gpu);
    return error == cudaSuccess ? cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) : error;
}

fedge_status fedge_gpu_none(cudaError_t error, const char *advice, fedge_error *err)
{
    int driver = 0;
    if (error != cudaErrorInsufficientDriver) {
        const cudaError_t why = error == cudaSuccess ? cudaErrorNoDevice : error;
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "no GPU is found (%s): see what nvidia-smi says, %s",
                          cudaGetErrorString(why), advice);
    }
    /* The runtime says so of a machine without a driver, too. */
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "this machine has no NVIDIA driver: install one, %s", advice);
    }
    return fedge_fail(err, FEDGE_NOT_FOUND,
                      "the NVIDIA driver is for CUDA up to %d.%d, and this build is of %d.%d: "
                      "install a newer driver, %s",
                      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                      CUDART_VERSION % 1000 / 10, advice);
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
