#include "edge/train/kernels/kernels.h"

#include "edge/core/os.h"

const fedge_kernels *fedge_kernels_choose(unsigned cpu_features)
{
#if defined(__x86_64__)
#if !defined(FEDGE_NO_AVX512)
    if (cpu_features & FEDGE_CPU_AVX512)
        return &fedge_kernels_avx512;
#endif
    if (cpu_features & FEDGE_CPU_AVX2)
        return &fedge_kernels_avx2;
#elif defined(__aarch64__)
    if (cpu_features & FEDGE_CPU_NEON)
        return &fedge_kernels_neon;
#else
    (void)cpu_features;
#endif
    return &fedge_kernels_scalar;
}
