/* What a GPU says of its kind, and the words of errors. */
#include <cuda_runtime_api.h>

#include "tests/cuda/emulator/internal.h"

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const cudaError_t error = emulated_enter();
    (void)device;
    *value = attribute == cudaDevAttrMultiProcessorCount ? 2
             : attribute == cudaDevAttrComputeCapabilityMajor
                 ? (emulated_config()->old_chip ? 7 : 9)
             : emulated_config()->old_chip ? 5
                                           : 0;
    return emulated_leave(error);
}

cudaError_t emulated_attributes(cudaFuncAttributes *attributes)
{
    const cudaError_t error = emulated_enter();
    *attributes = (cudaFuncAttributes){emulated_config()->old_chip ? 75 : 90};
    return emulated_leave(!error && emulated_config()->no_code ? cudaErrorNoKernelImageForDevice
                                                               : error);
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable ? "cudaErrorECCUncorrectable" : "cudaErrorEmulated";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable:
        return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorECCUncorrectable:
        return "uncorrectable ECC error encountered";
    default:
        return "an emulated error";
    }
}
