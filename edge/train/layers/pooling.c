#include "edge/train/layers/pooling.h"

#include <math.h>
#include <string.h>

#define ONE_BYTE_WINDOW 256u /* largest window whose indices fit a byte */

fedge_pooling fedge_pooling_2d(const uint32_t kernel[2], const uint32_t stride[2],
                               const uint32_t padding[2], bool ceil_mode)
{
    fedge_pooling pool = {.rank = 3, .ceil_mode = ceil_mode};
    for (int i = 0; i < 2; i++) {
        pool.kernel[i] = kernel[i];
        pool.stride[i] = stride[i] == 0 ? kernel[i] : stride[i];
        pool.padding[i] = padding[i];
        pool.dilation[i] = 1;
    }
    return pool;
}

fedge_pooling fedge_pooling_1d(uint32_t kernel, uint32_t stride, uint32_t padding, bool ceil_mode)
{
    fedge_pooling pool =
        fedge_pooling_2d((const uint32_t[2]){1, kernel}, (const uint32_t[2]){1, stride},
                         (const uint32_t[2]){0, padding}, ceil_mode);
    pool.rank = 2;
    return pool;
}

/* Elements from the first to the last of a window, including those skipped by dilation. */
static uint64_t window_size(const fedge_pooling *pool, int axis)
{
    return (uint64_t)pool->dilation[axis] * (pool->kernel[axis] - 1) + 1;
}

/* The part of a window inside the image, along one axis: [count] elements from [first] on, dilation
 * apart, after [skip] elements outside. */
typedef struct window_range {
    size_t first, count, skip;
} window_range;

static window_range clip_window(const fedge_pooling *pool, int axis, size_t at)
{
    const size_t begin = at * pool->stride[axis],
                 pad = pool->padding[axis]; /* counted from −padding */
    const size_t step = pool->dilation[axis], end = pool->in[axis] + pad;
    const size_t skip = begin < pad ? (pad - begin + step - 1) / step : 0;
    const size_t first = begin + skip * step, max_count = pool->kernel[axis] - skip;
    const size_t fit = first < end ? (end - first + step - 1) / step : 0;
    return (window_range){first - pad, fit < max_count ? fit : max_count, skip};
}

/* ceil_mode adds a window after those inside the padded image, if it begins in the image or in the
 * padding before it. */
static void add_last(fedge_pooling *pool, int axis)
{
    const uint64_t padded = (uint64_t)pool->in[axis] + 2 * (uint64_t)pool->padding[axis];
    const uint64_t next = (uint64_t)pool->out[axis] * pool->stride[axis];
    const bool ends = next - pool->stride[axis] + window_size(pool, axis) == padded;
    pool->out[axis] += !ends && next < (uint64_t)pool->in[axis] + pool->padding[axis];
}

static fedge_status set_window(fedge_pooling *pool, int axis, fedge_error *err)
{
    const char *name = fedge_shape_side_name(pool->rank, axis);
    const uint64_t padded = (uint64_t)pool->in[axis] + 2 * (uint64_t)pool->padding[axis];
    const uint64_t window = window_size(pool, axis);
    /* In ceil_mode the only window may be larger than the image. */
    const bool is_larger =
        pool->ceil_mode && window > padded && window - padded < pool->stride[axis];
    FEDGE_TRY(fedge_shape_window(
        name, pool->kernel[axis], pool->stride[axis], pool->padding[axis], pool->dilation[axis],
        pool->in[axis] + (is_larger ? (uint32_t)(window - padded) : 0), &pool->out[axis], err));
    if (pool->padding[axis] > pool->kernel[axis] / 2) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "padding %u is over half of kernel_size %u",
                          (unsigned)pool->padding[axis], (unsigned)pool->kernel[axis]);
    }
    if (pool->ceil_mode && !is_larger)
        add_last(pool, axis);
    /* Windows that begin inside the input have an element there. */
    for (uint32_t i = 0; pool->dilation[axis] > 1 && i < pool->out[axis] &&
                         (uint64_t)i * pool->stride[axis] < pool->padding[axis];
         i++) {
        if (clip_window(pool, axis, i).count == 0) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "dilation %u leaves window %u along the %s without a place in the "
                              "input's %u",
                              (unsigned)pool->dilation[axis], (unsigned)i, name,
                              (unsigned)pool->in[axis]);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_pooling_infer(fedge_pooling pool, const fedge_shape *in, fedge_shape *out,
                                 fedge_error *err)
{
    FEDGE_TRY(fedge_shape_need_sides(in, pool.rank, err));
    fedge_shape_sides(in, pool.in);
    FEDGE_TRY(set_window(&pool, 0, err));
    FEDGE_TRY(set_window(&pool, 1, err));
    *out = fedge_shape_of_sides(pool.rank, in->dims[0], pool.out);
    return FEDGE_OK;
}

static uint64_t window_of(const fedge_pooling *pool)
{
    return (uint64_t)pool->kernel[0] * pool->kernel[1];
}

fedge_status fedge_max_pooling_infer(fedge_pooling pool, const fedge_shape *in, fedge_shape *out,
                                     fedge_error *err)
{
    if (window_of(&pool) > FEDGE_MAX_POOL_WINDOW) {
        return fedge_fail(err, FEDGE_TOO_BIG, "a window of %u × %u is over the limit of %d places",
                          (unsigned)pool.kernel[0], (unsigned)pool.kernel[1],
                          FEDGE_MAX_POOL_WINDOW);
    }
    return fedge_pooling_infer(pool, in, out, err);
}

const char *fedge_max_pooling_feature(fedge_pooling pool)
{
    const bool later = pool.ceil_mode || pool.dilation[0] > 1 || pool.dilation[1] > 1 ||
                       window_of(&pool) > ONE_BYTE_WINDOW;
    return later ? FEDGE_POOLING_FEATURE : NULL;
}

/* Adds the sizes of this run to the arguments. */
static fedge_pooling in_run(const fedge_layer_run *run, fedge_pooling pool)
{
    fedge_shape_sides(&run->in[0], pool.in);
    fedge_shape_sides(&run->out, pool.out);
    return pool;
}

void fedge_max_pooling_sizes(const fedge_layer_run *run, const fedge_pooling *pool,
                             fedge_layer_sizes *sizes)
{
    const size_t size = window_of(pool) > ONE_BYTE_WINDOW ? sizeof(uint16_t) : 1;
    sizes->saved = (uint64_t)fedge_shape_count(&run->out) * run->batch * size;
}

static float largest(const fedge_pooling *pool, const float *x, const window_range *rows,
                     const window_range *columns, size_t *index)
{
    float best = -INFINITY;
    *index = SIZE_MAX;
    for (size_t r = 0; r < rows->count; r++) {
        const float *row = x + (rows->first + r * pool->dilation[0]) * pool->in[1] + columns->first;
        for (size_t q = 0; q < columns->count; q++) {
            const float value = row[q * pool->dilation[1]];
            if (*index == SIZE_MAX || value > best || isnan(value)) {
                best = value;
                *index = (r + rows->skip) * pool->kernel[1] + q + columns->skip;
            }
        }
    }
    return best;
}

void fedge_max_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments)
{
    const fedge_pooling sized = in_run(run, arguments), *pool = &sized;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    const bool one_byte = window_of(pool) <= ONE_BYTE_WINDOW;
    uint8_t *indices = one_byte ? run->saved : NULL;
    uint16_t *wide_indices = one_byte ? NULL : run->saved;
    for (size_t p = 0; p < out; p++) {
        const window_range rows = clip_window(pool, 0, p / pool->out[1]);
        const window_range columns = clip_window(pool, 1, p % pool->out[1]);
        for (size_t i = 0; i < planes; i++) {
            size_t index;
            run->y[i * out + p] = largest(pool, run->x[0] + i * in, &rows, &columns, &index);
            if (indices)
                indices[i * out + p] = (uint8_t)index;
            else if (wide_indices)
                wide_indices[i * out + p] = (uint16_t)index;
        }
    }
}

void fedge_max_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments)
{
    const fedge_pooling sized = in_run(run, arguments), *pool = &sized;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    const bool one_byte = window_of(pool) <= ONE_BYTE_WINDOW;
    const uint8_t *indices = run->saved;
    const uint16_t *wide_indices = run->saved;
    float *dx = run->dx[0];
    memset(dx, 0, planes * in * sizeof(*dx));
    for (size_t i = 0; i < planes; i++, dx += in) {
        for (size_t p = 0; p < out; p++) {
            const size_t index = one_byte ? indices[i * out + p] : wide_indices[i * out + p];
            const size_t row =
                p / pool->out[1] * pool->stride[0] + index / pool->kernel[1] * pool->dilation[0];
            const size_t column =
                p % pool->out[1] * pool->stride[1] + index % pool->kernel[1] * pool->dilation[1];
            dx[(row - pool->padding[0]) * pool->in[1] + column - pool->padding[1]] +=
                run->dy[i * out + p];
        }
    }
}

/* Elements of a window inside the image or its padding, along one axis. */
static size_t in_padded(const fedge_pooling *pool, int axis, size_t at)
{
    const size_t begin = at * pool->stride[axis];
    const size_t left = (size_t)pool->in[axis] + 2 * (size_t)pool->padding[axis] - begin;
    return left < pool->kernel[axis] ? left : pool->kernel[axis];
}

/* The factor of the sum of the window at [row], [column]. */
static float window_weight(const fedge_pooling *pool, size_t row, size_t column, fedge_averaging by)
{
    size_t count = by.divisor;
    if (count == 0 && by.count_pad)
        count = in_padded(pool, 0, row) * in_padded(pool, 1, column);
    else if (count == 0)
        count = clip_window(pool, 0, row).count * clip_window(pool, 1, column).count;
    return 1.0f / (float)count;
}

void fedge_average_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments,
                                   fedge_averaging by)
{
    const fedge_pooling sized = in_run(run, arguments), *pool = &sized;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    for (size_t p = 0; p < out; p++) {
        const window_range rows = clip_window(pool, 0, p / pool->out[1]);
        const window_range columns = clip_window(pool, 1, p % pool->out[1]);
        const float scale = window_weight(pool, p / pool->out[1], p % pool->out[1], by);
        for (size_t i = 0; i < planes; i++) {
            const float *x = run->x[0] + i * in + rows.first * pool->in[1] + columns.first;
            float sum = 0.0f;
            for (size_t r = 0; r < rows.count; r++, x += pool->in[1]) {
                for (size_t q = 0; q < columns.count; q++)
                    sum += x[q];
            }
            run->y[i * out + p] = sum * scale;
        }
    }
}

void fedge_average_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments,
                                    fedge_averaging by)
{
    const fedge_pooling sized = in_run(run, arguments), *pool = &sized;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    memset(run->dx[0], 0, planes * in * sizeof(*run->dx[0]));
    for (size_t p = 0; p < out; p++) {
        const window_range rows = clip_window(pool, 0, p / pool->out[1]);
        const window_range columns = clip_window(pool, 1, p % pool->out[1]);
        const float scale = window_weight(pool, p / pool->out[1], p % pool->out[1], by);
        for (size_t i = 0; i < planes; i++) {
            float *dx = run->dx[0] + i * in + rows.first * pool->in[1] + columns.first;
            const float g = run->dy[i * out + p] * scale;
            for (size_t r = 0; r < rows.count; r++, dx += pool->in[1]) {
                for (size_t q = 0; q < columns.count; q++)
                    dx[q] += g;
            }
        }
    }
}
