#include "edge/train/layers/pooling.h"

#include <math.h>
#include <string.h>

fedge_pooling fedge_pooling_2d(const uint32_t kernel[2], const uint32_t stride[2],
                               const uint32_t padding[2])
{
    fedge_pooling pool = {.rank = 3};
    for (int i = 0; i < 2; i++) {
        pool.kernel[i] = kernel[i];
        pool.stride[i] = stride[i] == 0 ? kernel[i] : stride[i];
        pool.padding[i] = padding[i];
    }
    return pool;
}

fedge_pooling fedge_pooling_1d(uint32_t kernel, uint32_t stride, uint32_t padding)
{
    fedge_pooling pool =
        fedge_pooling_2d((const uint32_t[2]){1, kernel}, (const uint32_t[2]){1, stride},
                         (const uint32_t[2]){0, padding});
    pool.rank = 2;
    return pool;
}

static fedge_status slide(fedge_pooling *pool, fedge_error *err)
{
    static const char *const AXES[2] = {"height", "width"};
    fedge_status status = FEDGE_OK;
    for (int i = 0; status == FEDGE_OK && i < 2; i++) {
        if (pool->padding[i] > pool->kernel[i] / 2) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "padding %u is over half of kernel_size %u",
                              (unsigned)pool->padding[i], (unsigned)pool->kernel[i]);
        }
        status = fedge_shape_slide(AXES[i], pool->kernel[i], pool->stride[i], pool->padding[i], 1,
                                   pool->in[i], &pool->out[i], err);
    }
    return status;
}

fedge_status fedge_pooling_infer(fedge_pooling pool, const fedge_shape *in, fedge_shape *out,
                                 fedge_error *err)
{
    fedge_status status = fedge_shape_need_sides(in, pool.rank, err);
    if (status == FEDGE_OK) {
        fedge_shape_sides(in, pool.in);
        status = slide(&pool, err);
    }
    *out = fedge_shape_of_sides(pool.rank, in->dims[0], pool.out);
    return status;
}

fedge_status fedge_max_pooling_infer(fedge_pooling pool, const fedge_shape *in, fedge_shape *out,
                                     fedge_error *err)
{
    const uint64_t window = (uint64_t)pool.kernel[0] * pool.kernel[1];
    if (window > FEDGE_MAX_POOL_WINDOW) {
        return fedge_fail(err, FEDGE_TOO_BIG, "a window of %u × %u is over the limit of %d places",
                          (unsigned)pool.kernel[0], (unsigned)pool.kernel[1],
                          FEDGE_MAX_POOL_WINDOW);
    }
    return fedge_pooling_infer(pool, in, out, err);
}

/* The arguments with the sizes of this run. */
static fedge_pooling in_run(const fedge_layer_run *run, fedge_pooling pool)
{
    fedge_shape_sides(&run->in[0], pool.in);
    fedge_shape_sides(&run->out, pool.out);
    return pool;
}

/* The part of the window of one output that lies inside the image: rows [top, bottom), columns
 * [left, right) of the image, and how many places of the window come before it. */
typedef struct pooling_window {
    size_t top, bottom, left, right;
    size_t skip_rows, skip_columns;
} pooling_window;

static void place(const fedge_pooling *pool, int axis, size_t at, size_t *first, size_t *last,
                  size_t *skip)
{
    const size_t begin = at * pool->stride[axis], pad = pool->padding[axis]; /* from −padding */
    const size_t end = begin + pool->kernel[axis];
    *skip = begin < pad ? pad - begin : 0;
    *first = begin < pad ? 0 : begin - pad;
    *last = end - pad < pool->in[axis] ? end - pad : pool->in[axis];
}

static pooling_window place_window(const fedge_pooling *pool, size_t row, size_t column)
{
    pooling_window at;
    place(pool, 0, row, &at.top, &at.bottom, &at.skip_rows);
    place(pool, 1, column, &at.left, &at.right, &at.skip_columns);
    return at;
}

void fedge_max_pooling_sizes(const fedge_layer_run *run, fedge_layer_sizes *sizes)
{
    sizes->saved = (uint64_t)fedge_shape_count(&run->out) * run->batch;
}

static float largest(const fedge_pooling *pool, const float *x, const pooling_window *at,
                     size_t *where)
{
    float best = -INFINITY;
    *where = SIZE_MAX;
    for (size_t r = at->top; r < at->bottom; r++) {
        for (size_t q = at->left; q < at->right; q++) {
            const float value = x[r * pool->in[1] + q];
            if (*where == SIZE_MAX || value > best || isnan(value)) {
                best = value;
                *where = (r - at->top + at->skip_rows) * pool->kernel[1] + q - at->left +
                         at->skip_columns;
            }
        }
    }
    return best;
}

void fedge_max_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments)
{
    const fedge_pooling placed = in_run(run, arguments), *pool = &placed;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    uint8_t *places = run->saved;
    for (size_t p = 0; p < out; p++) {
        const pooling_window at = place_window(pool, p / pool->out[1], p % pool->out[1]);
        for (size_t i = 0; i < planes; i++) {
            size_t where;
            run->y[i * out + p] = largest(pool, run->x[0] + i * in, &at, &where);
            if (places != NULL) {
                places[i * out + p] = (uint8_t)where;
            }
        }
    }
}

void fedge_max_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments)
{
    const fedge_pooling placed = in_run(run, arguments), *pool = &placed;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    const uint8_t *places = run->saved;
    float *dx = run->dx[0];
    memset(dx, 0, planes * in * sizeof *dx);
    for (size_t i = 0; i < planes; i++, dx += in) {
        for (size_t p = 0; p < out; p++) {
            const size_t where = places[i * out + p];
            const size_t row = p / pool->out[1] * pool->stride[0] + where / pool->kernel[1];
            const size_t column = p % pool->out[1] * pool->stride[1] + where % pool->kernel[1];
            dx[(row - pool->padding[0]) * pool->in[1] + column - pool->padding[1]] +=
                run->dy[i * out + p];
        }
    }
}

/* One over the number of places in a window. Without ceil_mode no window reaches behind the
 * padding. */
static float share(const fedge_pooling *pool, const pooling_window *at, bool count_pad)
{
    const size_t rows = at->bottom - at->top, columns = at->right - at->left;
    const size_t window = (size_t)pool->kernel[0] * pool->kernel[1];
    return 1.0f / (float)(count_pad ? window : rows * columns);
}

void fedge_average_pooling_forward(const fedge_layer_run *run, fedge_pooling arguments,
                                   bool count_pad)
{
    const fedge_pooling placed = in_run(run, arguments), *pool = &placed;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    for (size_t p = 0; p < out; p++) {
        const pooling_window at = place_window(pool, p / pool->out[1], p % pool->out[1]);
        const float scale = share(pool, &at, count_pad);
        for (size_t i = 0; i < planes; i++) {
            const float *x = run->x[0] + i * in;
            float sum = 0.0f;
            for (size_t r = at.top; r < at.bottom; r++) {
                for (size_t q = at.left; q < at.right; q++) {
                    sum += x[r * pool->in[1] + q];
                }
            }
            run->y[i * out + p] = sum * scale;
        }
    }
}

void fedge_average_pooling_backward(const fedge_layer_run *run, fedge_pooling arguments,
                                    bool count_pad)
{
    const fedge_pooling placed = in_run(run, arguments), *pool = &placed;
    const size_t in = (size_t)pool->in[0] * pool->in[1], out = (size_t)pool->out[0] * pool->out[1];
    const size_t planes = fedge_shape_count(&run->out) / out * run->batch;
    memset(run->dx[0], 0, planes * in * sizeof *run->dx[0]);
    for (size_t p = 0; p < out; p++) {
        const pooling_window at = place_window(pool, p / pool->out[1], p % pool->out[1]);
        const float scale = share(pool, &at, count_pad);
        for (size_t i = 0; i < planes; i++) {
            float *dx = run->dx[0] + i * in;
            const float g = run->dy[i * out + p] * scale;
            for (size_t r = at.top; r < at.bottom; r++) {
                for (size_t q = at.left; q < at.right; q++) {
                    dx[r * pool->in[1] + q] += g;
                }
            }
        }
    }
}
