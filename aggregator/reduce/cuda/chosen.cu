#include "aggregator/reduce/cuda/kernels.h"

#include "aggregator/reduce/cuda/values.cuh"

#define DRAW_PURPOSE (14u << 16) /* FEDGE_PURPOSE_CHOICE in the upper half */

/* ---- where things lie ------------------------------------------------------------------------ */

static __device__ __forceinline__ const fedge_cuda_tensor_entry *tensor_entry(const uint8_t *update,
                                                                              uint32_t tensor)
{
    return (const fedge_cuda_tensor_entry *)update + tensor;
}

static __device__ __forceinline__ const fedge_cuda_group_entry *
group_entry(const fedge_cuda_chosen &section, const uint8_t *update, uint32_t group)
{
    return (const fedge_cuda_group_entry *)tensor_entry(update, section.num_tensors) + group;
}

static __device__ __forceinline__ const uint8_t *bytes_of(const fedge_cuda_chosen &section,
                                                          const uint8_t *update)
{
    return (const uint8_t *)group_entry(section, update, section.num_groups);
}

/* The block of sent value [i]. */
static __device__ __forceinline__ const uint8_t *block_of(const fedge_cuda_chosen &section,
                                                          const fedge_cuda_chosen_tensor &tensor,
                                                          const uint8_t *bytes, uint32_t i)
{
    return bytes + tensor.head + (uint64_t)(i / FEDGE_CUDA_BLOCK) * bytes_of_block(section.codec);
}

/* Reads a group's gaps bit by bit, the lowest of each byte first. */
struct bits {
    const uint8_t *at, *end;
    uint64_t buffer;
    uint32_t count;
};

/* Takes [count] ≤ 32 bits. False: there are fewer. */
static __device__ __forceinline__ bool take_bits(bits *from, uint32_t count, uint32_t *taken)
{
    while (from->count < count && from->at < from->end) {
        from->buffer |= (uint64_t)*from->at++ << from->count;
        from->count += 8;
    }
    if (from->count < count)
        return false;
    *taken = (uint32_t)(from->buffer & ((1ull << count) - 1));
    from->buffer >>= count;
    from->count -= count;
    return true;
}

/* Takes a gap of at most [most]. False: the bits end, or the gap is larger. */
static __device__ __forceinline__ bool take_gap(bits *from, uint32_t rice, uint32_t most,
                                                uint32_t *gap)
{
    uint32_t ones = 0, bit = 1, low = 0;
    for (; bit; ones += bit) {
        if (ones > most >> rice || !take_bits(from, 1, &bit))
            return false;
    }
    if (!take_bits(from, rice, &low))
        return false;
    *gap = (ones << rice) + low;
    return *gap <= most;
}

/* ---- check_chosen ---------------------------------------------------------------------------- */

/* Each block of threads checks a block of values. */
static __global__ void __launch_bounds__(THREADS)
    check_values(fedge_cuda_chosen section, const uint8_t *update, unsigned long long code,
                 unsigned long long *bad)
{
    const uint8_t *bytes = bytes_of(section, update);
    for (uint32_t b = blockIdx.x; b < section.num_blocks; b += gridDim.x) {
        const fedge_cuda_part part = section.blocks[b];
        const fedge_cuda_chosen_tensor tensor = section.tensors[part.tensor];
        const fedge_cuda_tensor_entry entry = *tensor_entry(update, part.tensor);
        const uint32_t left = tensor.chosen - part.first;
        const uint8_t *from = block_of(section, tensor, bytes + entry.offset, part.first);
        uint32_t unused;
        if (!take_value(section.codec, from, entry.bound_log2, threadIdx.x,
                        left < FEDGE_CUDA_BLOCK ? left : FEDGE_CUDA_BLOCK, &unused))
            atomicMin(bad, code);
    }
}

static __device__ bool is_good_group(const fedge_cuda_chosen_tensor &tensor, uint32_t begin,
                                     const fedge_cuda_group_entry &group, const uint8_t *bytes)
{
    const uint32_t left = tensor.count - begin;
    const uint32_t end = left < FEDGE_CUDA_GROUP ? left : FEDGE_CUDA_GROUP;
    const bool signs = tensor.coding == FEDGE_CUDA_SIGNS;
    bits gaps = {bytes + group.gaps, bytes + group.gaps + group.size, 0, 0};
    uint32_t next = 0;
    for (uint32_t i = 0; i < group.count; i++) {
        uint32_t gap, sign;
        if (next >= end || !take_gap(&gaps, tensor.rice, end - next - 1, &gap) ||
            (signs && !take_bits(&gaps, 1, &sign)))
            return false;
        next += gap + 1;
    }
    return gaps.at == gaps.end && gaps.buffer == 0; /* fewer than 8 bits are left, all 0 */
}

/* Each thread checks a group. */
static __global__ void __launch_bounds__(THREADS)
    check_groups(fedge_cuda_chosen section, const uint8_t *update, unsigned long long code,
                 unsigned long long *bad)
{
    const uint8_t *bytes = bytes_of(section, update);
    for (uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < section.num_groups;
         g += gridDim.x * blockDim.x) {
        const fedge_cuda_part part = section.groups[g];
        if (!is_good_group(section.tensors[part.tensor], part.first,
                           *group_entry(section, update, g), bytes))
            atomicMin(bad, code);
    }
}

cudaError_t fedge_cuda_check_chosen(const fedge_cuda_chosen *section, const uint8_t *update,
                                    unsigned long long code, unsigned long long *bad,
                                    cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (section->num_blocks > 0) {
        const cudaLaunchConfig_t config = shape(section->num_blocks, MAX_GRID, stream);
        error = cudaLaunchKernelEx(&config, check_values, *section, update, code, bad);
    }
    if (section->num_groups > 0 && error == cudaSuccess) {
        const cudaLaunchConfig_t config =
            shape(((uint64_t)section->num_groups + THREADS - 1) / THREADS, MAX_GRID, stream);
        error = cudaLaunchKernelEx(&config, check_groups, *section, update, code, bad);
    }
    return error;
}

/* ---- add_chosen ------------------------------------------------------------------------------ */

/* Other GPUs add their coordinates. */
static __device__ __forceinline__ void add_at(int64_t *sums, uint64_t num_sums, int64_t at,
                                              uint32_t weight, int v)
{
    if ((uint64_t)at < num_sums)
        atomicAdd((unsigned long long *)&sums[at], (unsigned long long)((long long)weight * v));
}

/* Each thread adds a group of an update. */
static __global__ void __launch_bounds__(THREADS)
    add_groups(fedge_cuda_chosen section, fedge_cuda_chosen_batch batch, int64_t *sums)
{
    const uint64_t all = (uint64_t)batch.count * section.num_groups;
    for (uint64_t t = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; t < all;
         t += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t u = (uint32_t)(t / section.num_groups);
        const uint32_t g = (uint32_t)(t % section.num_groups);
        const fedge_cuda_part part = section.groups[g];
        const fedge_cuda_chosen_tensor tensor = section.tensors[part.tensor];
        const fedge_cuda_tensor_entry entry = *tensor_entry(batch.updates[u], part.tensor);
        const fedge_cuda_group_entry group = *group_entry(section, batch.updates[u], g);
        const uint8_t *bytes = bytes_of(section, batch.updates[u]);
        const uint8_t *values = bytes + entry.offset;
        bits gaps = {bytes + group.gaps, bytes + group.gaps + group.size, 0, 0};
        int64_t at = tensor.base + part.first;
        if (at >= (int64_t)section.num_sums || at + FEDGE_CUDA_GROUP <= 0)
            continue;
        for (uint32_t i = 0; i < group.count; i++, at++) {
            uint32_t gap = 0, sign = 0;
            int v = entry.magnitude;
            (void)take_gap(&gaps, tensor.rice, FEDGE_CUDA_GROUP, &gap);
            at += gap;
            if (tensor.coding == FEDGE_CUDA_SIGNS) {
                (void)take_bits(&gaps, 1, &sign);
                v = sign ? -v : v;
            } else {
                const uint32_t value = group.first + i;
                v = fixed_value(section.codec, block_of(section, tensor, values, value),
                                entry.bound_log2, value % FEDGE_CUDA_BLOCK);
            }
            add_at(sums, section.num_sums, at, batch.weights[u], v);
        }
    }
}

/* Word [i] of a key's stream: Philox4x32-10, as edge/core/rng.h. */
static __device__ uint32_t draw(uint32_t key0, uint32_t key1, uint32_t i)
{
    uint32_t x[4] = {i / 4, DRAW_PURPOSE, 0, 0};
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * x[0], p1 = (uint64_t)0xCD9E8D57u * x[2];
        const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x[1] ^ key0,
                       y2 = (uint32_t)(p0 >> 32) ^ x[3] ^ key1;
        x[0] = y0;
        x[1] = (uint32_t)p1;
        x[2] = y2;
        x[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return x[i % 4];
}

/* The coordinate of sent value [i]; key: of drawn ones. */
static __device__ __forceinline__ uint32_t coordinate_of(const fedge_cuda_chosen_tensor &tensor,
                                                         const uint8_t *key, uint32_t i)
{
    if (tensor.coding == FEDGE_CUDA_ALL)
        return i;
    const uint64_t begin = (uint64_t)i * tensor.count / tensor.chosen;
    const uint64_t end = ((uint64_t)i + 1) * tensor.count / tensor.chosen;
    const uint64_t word = draw(load_u32(key), load_u32(key + 4), i);
    return (uint32_t)(begin + (word * (end - begin) >> 32));
}

/* Each block of threads adds a block of values of an update, except those with gaps. */
static __global__ void __launch_bounds__(THREADS)
    add_values(fedge_cuda_chosen section, fedge_cuda_chosen_batch batch, int64_t *sums)
{
    const uint64_t all = (uint64_t)batch.count * section.num_blocks;
    for (uint64_t t = blockIdx.x; t < all; t += gridDim.x) {
        const uint32_t u = (uint32_t)(t / section.num_blocks);
        const fedge_cuda_part part = section.blocks[t % section.num_blocks];
        const fedge_cuda_chosen_tensor tensor = section.tensors[part.tensor];
        const uint32_t i = part.first + threadIdx.x;
        if (tensor.coding == FEDGE_CUDA_GAPS || i >= tensor.chosen)
            continue;
        const fedge_cuda_tensor_entry entry = *tensor_entry(batch.updates[u], part.tensor);
        const uint8_t *bytes = bytes_of(section, batch.updates[u]) + entry.offset;
        const int v = fixed_value(section.codec, block_of(section, tensor, bytes, part.first),
                                  entry.bound_log2, threadIdx.x);
        add_at(sums, section.num_sums, tensor.base + coordinate_of(tensor, bytes, i),
               batch.weights[u], v);
    }
}

cudaError_t fedge_cuda_add_chosen(const fedge_cuda_chosen *section,
                                  const fedge_cuda_chosen_batch *batch, int64_t *sums,
                                  cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (section->num_blocks > 0) {
        const cudaLaunchConfig_t config =
            shape((uint64_t)batch->count * section->num_blocks, MAX_GRID, stream);
        error = cudaLaunchKernelEx(&config, add_values, *section, *batch, sums);
    }
    if (section->num_groups > 0 && error == cudaSuccess) {
        const uint64_t threads = (uint64_t)batch->count * section->num_groups;
        const cudaLaunchConfig_t config =
            shape((threads + THREADS - 1) / THREADS, MAX_GRID, stream);
        error = cudaLaunchKernelEx(&config, add_groups, *section, *batch, sums);
    }
    return error;
}
