/* What CUDA C++ adds to C++, as plain C++17: enough for fedge's .cu files to be compiled by g++. */
#ifndef FEDGE_EMULATOR_CUDA_RUNTIME_H
#define FEDGE_EMULATOR_CUDA_RUNTIME_H

#include <math.h>
#include <string.h>

#include <cuda_runtime_api.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __constant__ static
/* Blocks run one after another, so a static is one block's. It is filled with rubbish before each.
 */
#define __shared__ static __attribute__((section("emulated_shared")))
#define FEDGE_DYNAMIC_SHARED(type, name) type *name = (type *)emulated_dynamic_shared()

extern "C" {
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
void *emulated_dynamic_shared(void);
cudaError_t emulated_launch(const char *name, const cudaLaunchConfig_t *config,
                            void (*body)(const void *closure), const void *closure, size_t size);
/* Waits until the block or the warp's lanes of [mask] are all here; see scheduler.c. */
enum emulated_wait { EMULATED_BARRIER, EMULATED_SYNCWARP, EMULATED_SHUFFLE, EMULATED_BALLOT };
unsigned long long emulated_meet(enum emulated_wait kind, unsigned line, unsigned mask,
                                 unsigned long long value, unsigned source);
unsigned emulated_lane(void);
/* Words of a warp's lanes, given to each: what a tensor core reads. They stay until the calling
 * lane exchanges others. As on a GPU it orders no memory. */
typedef unsigned emulated_words[6];
const emulated_words *emulated_exchange(unsigned line, const emulated_words mine);
void emulated_atomic(const void *address, size_t size); /* tells the race detector */
}
enum { warpSize = 32 };

/* ---- vectors, of which CUDA wants the alignment -----------------------------------------------
 */

#define EMULATED_VECTOR(name, bytes, members)                                                      \
    struct __attribute__((aligned(bytes))) name {                                                  \
        members                                                                                    \
    }
EMULATED_VECTOR(char4, 4, signed char x; signed char y; signed char z; signed char w;);
EMULATED_VECTOR(int2, 8, int x; int y;);
EMULATED_VECTOR(int4, 16, int x; int y; int z; int w;);
EMULATED_VECTOR(uint4, 16, unsigned x; unsigned y; unsigned z; unsigned w;);
EMULATED_VECTOR(float4, 16, float x; float y; float z; float w;);
EMULATED_VECTOR(longlong2, 16, long long x; long long y;);

/* ---- threads of a block and a warp ------------------------------------------------------------
 */

#define __syncthreads() ((void)emulated_meet(EMULATED_BARRIER, __LINE__, ~0u, 0, 0))
#define __syncthreads_count(p) ((int)emulated_meet(EMULATED_BARRIER, __LINE__, ~0u, (p) != 0, 0))
#define __syncthreads_or(p) (__syncthreads_count(p) != 0)
#define __syncwarp(...) emulated_syncwarp<__LINE__>(__VA_ARGS__)
#define __ballot_sync(mask, p)                                                                     \
    ((unsigned)emulated_meet(EMULATED_BALLOT, __LINE__, mask, (p) != 0, 0))
#define __any_sync(mask, p) (__ballot_sync(mask, p) != 0)
#define __all_sync(mask, p) (__ballot_sync(mask, !(p)) == 0)
#define __shfl_sync(mask, v, from) emulated_shuffle(__LINE__, mask, v, (unsigned)(from) % 32)
#define __shfl_xor_sync(mask, v, x) emulated_shuffle(__LINE__, mask, v, emulated_lane() ^ (x))
#define __shfl_down_sync(mask, v, by)                                                              \
    emulated_shuffle(__LINE__, mask, v,                                                            \
                     emulated_lane() + (by) < 32 ? emulated_lane() + (by) : emulated_lane())

template <unsigned line> static inline void emulated_syncwarp(unsigned mask = ~0u)
{
    (void)emulated_meet(EMULATED_SYNCWARP, line, mask, 0, 0);
}

template <typename T>
static inline T emulated_shuffle(unsigned line, unsigned mask, T value, unsigned source)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof(value));
    bits = emulated_meet(EMULATED_SHUFFLE, line, mask, bits, source);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- memory and arithmetic --------------------------------------------------------------------
 */

/* One thread runs at a time, so plain code is atomic; it is kept from the race detector's eyes. */
#define EMULATED_ATOMIC(name, next)                                                                \
    template <typename T, typename V>                                                              \
    __attribute__((no_sanitize("thread"), noinline)) T name(T *at, V given)                        \
    {                                                                                              \
        const T old = *at, value = (T)given;                                                       \
        emulated_atomic(at, sizeof(T));                                                            \
        *at = next;                                                                                \
        return old;                                                                                \
    }
EMULATED_ATOMIC(atomicAdd, (T)(old + value))
EMULATED_ATOMIC(atomicMin, value < old ? value : old)
EMULATED_ATOMIC(atomicMax, value > old ? value : old)
EMULATED_ATOMIC(atomicExch, value)
#undef EMULATED_ATOMIC

template <typename T> static inline T __ldg(const T *at)
{
    return *at;
}
template <typename T> static inline T __ldcs(const T *at)
{
    return *at;
}
template <typename T> static inline void __stcs(T *at, T value)
{
    *at = value;
}
static inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}
static inline float __int_as_float(int bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
static inline int __float_as_int(float x)
{
    int bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* ---- launching --------------------------------------------------------------------------------
 */

template <typename... Params>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, void (*)(Params...))
{
    return emulated_attributes(attributes);
}

/* A macro, to know the kernel's name. */
#define cudaLaunchKernelEx(config, kernel, ...)                                                    \
    emulated_launch_kernel(#kernel, config, kernel, __VA_ARGS__)

template <typename... Params, typename... Args>
static inline cudaError_t emulated_launch_kernel(const char *name, const cudaLaunchConfig_t *config,
                                                 void (*kernel)(Params...), Args &&...args)
{
    auto body = [kernel, args...]() { kernel(static_cast<Params>(args)...); };
    static_assert(__is_trivially_copyable(decltype(body)), "kernels take plain data");
    return emulated_launch(
        name, config,
        [](const void *closure) { (*static_cast<const decltype(body) *>(closure))(); }, &body,
        sizeof(body));
}

#endif
