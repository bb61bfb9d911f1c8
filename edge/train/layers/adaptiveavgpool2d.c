/* AdaptiveAvgPool2d: (batch, c, h, w) → (batch, c, output_size). Output i of n averages the inputs
 * from floor(i · size / n) to ceil((i + 1) · size / n). */
#include <string.h>

#include "edge/train/layers/layer.h"

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t *size = layer->u.adaptiveavgpool2d.output_size;
    FEDGE_TRY(fedge_shape_need(in, 3, "[channels, height, width]", err));
    if (size[0] == 0 || size[1] == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "output_size %u × %u must be at least 1 × 1",
                          (unsigned)size[0], (unsigned)size[1]);
    }
    *out = (fedge_shape){3, {in->dims[0], size[0], size[1]}};
    return FEDGE_OK;
}

typedef struct window_range {
    size_t begin, end;
} window_range;

static window_range window(size_t i, size_t out, size_t in)
{
    const uint64_t size = in; /* products of 65,536 and more exceed 32 bits */
    return (window_range){(size_t)(i * size / out), (size_t)(((i + 1) * size + out - 1) / out)};
}

static void forward(const fedge_layer_run *run)
{
    const size_t height = run->in[0].dims[1], width = run->in[0].dims[2];
    const size_t rows = run->out.dims[1], columns = run->out.dims[2];
    const size_t planes = (size_t)run->out.dims[0] * run->batch;
    for (size_t i = 0; i < planes * rows * columns; i++) {
        const float *x = run->x[0] + i / (rows * columns) * height * width;
        const window_range h = window(i / columns % rows, rows, height);
        const window_range w = window(i % columns, columns, width);
        float sum = 0.0f;
        for (size_t r = h.begin; r < h.end; r++) {
            for (size_t q = w.begin; q < w.end; q++)
                sum += x[r * width + q];
        }
        run->y[i] = sum / (float)((h.end - h.begin) * (w.end - w.begin));
    }
}

static void backward(const fedge_layer_run *run)
{
    const size_t height = run->in[0].dims[1], width = run->in[0].dims[2];
    const size_t rows = run->out.dims[1], columns = run->out.dims[2];
    const size_t planes = (size_t)run->out.dims[0] * run->batch;
    memset(run->dx[0], 0, planes * height * width * sizeof(*run->dx[0]));
    for (size_t i = 0; i < planes * rows * columns; i++) {
        float *dx = run->dx[0] + i / (rows * columns) * height * width;
        const window_range h = window(i / columns % rows, rows, height);
        const window_range w = window(i % columns, columns, width);
        const size_t count = (h.end - h.begin) * (w.end - w.begin);
        const float g = run->dy[i] / (float)count;
        for (size_t r = h.begin; r < h.end; r++) {
            for (size_t q = w.begin; q < w.end; q++)
                dx[r * width + q] += g;
        }
    }
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_PAIR_ARGUMENT("output_size", offsetof(fedge_layer_spec, u.adaptiveavgpool2d.output_size),
                        true, 1, 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_adaptiveavgpool2d = {
    .arguments = ARGUMENTS, .infer = infer, .forward = forward, .backward = backward};
