/* Attention of the steps of an example to each other, head by head. */
#include "edge/train/cuda/kernels/device.cuh"
#include "edge/train/cuda/kernels/tile.cuh"

typedef fedge_cohort_attention attention;

enum { WARPS = TILE_THREADS / 32 };

/* The work of a warp: one query, or one key, of one head of one example. */
struct query {
    uint32_t lane, step, width,
        num_keys;      /* width: channels of a head; num_keys: keys of the query */
    uint32_t b, index; /* example of the slot, and head */
    float scale;
    const float *head;   /* q of step 0; k and v follow, dim apart */
    size_t row;          /* floats from one step to the next */
    size_t att, context; /* indices of step 0 */
};

static __device__ __forceinline__ bool find_query(const attention &a, uint32_t count,
                                                  uint32_t batch, query *mine)
{
    const uint32_t index = blockIdx.x * WARPS + threadIdx.x / 32, s = blockIdx.z;
    if (index >= count * a.heads * a.steps)
        return false;
    const size_t example = (size_t)s * batch + index / (a.heads * a.steps);
    const uint32_t head = index / a.steps % a.heads;
    mine->b = index / (a.heads * a.steps);
    mine->index = head;
    mine->lane = threadIdx.x % 32;
    mine->step = index % a.steps;
    mine->width = a.dim / a.heads;
    mine->num_keys = a.causal ? mine->step + 1 : a.steps;
    mine->scale = 1.0f / sqrtf((float)mine->width);
    mine->row = (size_t)3 * a.dim;
    mine->context = example * a.steps * a.dim + head * mine->width;
    mine->head = a.qkv + example * a.steps * 3 * a.dim + head * mine->width;
    mine->att = (example * a.heads + head) * a.steps * a.steps;
    return true;
}

static __device__ __forceinline__ float dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0.0f;
    for (uint32_t d = 0; d < n; d++)
        sum = fmaf(a[d], b[d], sum);
    return sum;
}

static __device__ __forceinline__ float largest_of_warp(float most)
{
    for (int half = 16; half > 0; half /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, half);
        most = other > most ? other : most;
    }
    return most;
}

/* [value] after dropout of the weight [p]. */
static __device__ __forceinline__ float after_dropout(const attention &a, float p, float value)
{
    if (a.drop.p == 0.0f)
        return value;
    return signbit(p) ? 0.0f : value * drop_factor(a.drop);
}

static __device__ __forceinline__ float attended(const attention &a, float p)
{
    return after_dropout(a, p, p);
}

static __device__ __forceinline__ void
mark_dropped(const attention &a, const query &at, const fedge_cohort_slot_step &slot_step, float *p)
{
    const uint64_t steps = a.steps, step = at.step;
    const uint64_t row = a.causal ? step * (step + 1) / 2 : step * steps;
    const uint64_t head = a.causal ? steps * (steps + 1) / 2 : steps * steps;
    const uint64_t first = first_word(a.drop, slot_step, at.b) + at.index * head + row;
    for (uint32_t k = at.lane; k < at.num_keys; k += 32)
        p[k] = is_kept(a.drop, slot_step, first + k) ? p[k] : -p[k];
}

/* One warp for each query. A lane computes every 32nd weight, then every 32nd context value. */
static __global__ void __launch_bounds__(TILE_THREADS)
    attend(attention a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    query at;
    if (!find_query(a, slot_steps[blockIdx.z].count, batch, &at))
        return;
    const float *query = at.head + at.step * at.row, *keys = at.head + a.dim, *v = keys + a.dim;
    float *p = a.att + at.att + (size_t)at.step * a.steps;
    float peak = -INFINITY, sum = 0.0f;
    for (uint32_t k = at.lane; k < at.num_keys; k += 32) {
        p[k] = dot(query, keys + k * at.row, at.width) * at.scale;
        peak = p[k] > peak ? p[k] : peak;
    }
    peak = largest_of_warp(peak);
    for (uint32_t k = at.lane; k < at.num_keys; k += 32) {
        p[k] = expf(p[k] - peak);
        sum += p[k];
    }
    sum = sum_of_warp(sum);
    for (uint32_t k = at.lane; k < at.num_keys; k += 32)
        p[k] /= sum;
    if (a.drop.p > 0.0f)
        mark_dropped(a, at, slot_steps[blockIdx.z], p);
    __syncwarp();
    for (uint32_t d = at.lane; d < at.width; d += 32) {
        float context = 0.0f;
        for (uint32_t k = 0; k < at.num_keys; k++)
            context = fmaf(attended(a, p[k]), v[k * at.row + d], context);
        a.context[at.context + (size_t)at.step * a.dim + d] = context;
    }
}

/* One warp for each query computes the gradients of its scores and of q. */
static __global__ void __launch_bounds__(TILE_THREADS)
    attend_queries(attention a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    query at;
    if (!find_query(a, slot_steps[blockIdx.z].count, batch, &at))
        return;
    const float *keys = at.head + a.dim, *v = keys + a.dim;
    const float *dcontext = a.dcontext + at.context + (size_t)at.step * a.dim;
    const float *p = a.att + at.att + (size_t)at.step * a.steps;
    float *ds = a.dscores + at.att + (size_t)at.step * a.steps;
    float total = 0.0f;
    for (uint32_t k = at.lane; k < at.num_keys; k += 32) {
        ds[k] = after_dropout(a, p[k], dot(dcontext, v + k * at.row, at.width));
        total = fmaf(fabsf(p[k]), ds[k], total);
    }
    total = sum_of_warp(total);
    for (uint32_t k = at.lane; k < at.num_keys; k += 32)
        ds[k] = fabsf(p[k]) * (ds[k] - total) * at.scale;
    __syncwarp();
    for (uint32_t d = at.lane; d < at.width; d += 32) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < at.num_keys; k++)
            sum = fmaf(ds[k], keys[k * at.row + d], sum);
        a.dqkv[(at.head - a.qkv) + at.step * at.row + d] = sum;
    }
}

/* One warp for each key computes the gradients of k and v from the queries that attend to it. */
static __global__ void __launch_bounds__(TILE_THREADS)
    attend_keys(attention a, const fedge_cohort_slot_step *slot_steps, uint32_t batch)
{
    query at;
    if (!find_query(a, slot_steps[blockIdx.z].count, batch, &at))
        return;
    const float *dcontext = a.dcontext + at.context;
    const float *p = a.att + at.att + at.step, *ds = a.dscores + at.att + at.step;
    for (uint32_t d = at.lane; d < at.width; d += 32) {
        float dk = 0.0f, dv = 0.0f;
        for (uint32_t q = a.causal ? at.step : 0; q < a.steps; q++) {
            dk = fmaf(ds[(size_t)q * a.steps], at.head[q * at.row + d], dk);
            dv = fmaf(attended(a, p[(size_t)q * a.steps]), dcontext[(size_t)q * a.dim + d], dv);
        }
        float *to = a.dqkv + (at.head - a.qkv) + at.step * at.row + d;
        to[a.dim] = dk;
        to[2 * a.dim] = dv;
    }
}

static cudaLaunchConfig_t warps_of(const fedge_cohort_shape *shape, const attention *args)
{
    return value_grid(shape, (size_t)32 * shape->batch * args->heads * args->steps);
}

cudaError_t fedge_cohort_launch_attention(const fedge_cohort_shape *shape,
                                          const fedge_cohort_attention *args)
{
    const cudaLaunchConfig_t config = warps_of(shape, args);
    return cudaLaunchKernelEx(&config, attend, *args, shape->slot_steps, shape->batch);
}

cudaError_t fedge_cohort_launch_attention_backward(const fedge_cohort_shape *shape,
                                                   const fedge_cohort_attention *args)
{
    const cudaLaunchConfig_t config = warps_of(shape, args);
    const cudaError_t error =
        cudaLaunchKernelEx(&config, attend_queries, *args, shape->slot_steps, shape->batch);
    return error == cudaSuccess
               ? cudaLaunchKernelEx(&config, attend_keys, *args, shape->slot_steps, shape->batch)
               : error;
}
