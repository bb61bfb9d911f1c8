/* The reference: plain loops, one lane. Also what runs where there is no SIMD table. */
#include <math.h>

#include "edge/train/kernels.h"
#include "edge/train/optimizers/sgd.h"

static void conv_forward_row(const fedge_conv_shape *shape, const float *x, const float *w,
                             const float *bias, float *y)
{
    const size_t length = shape->segment_length;
    for (size_t p = 0; p < shape->out_w; p++) {
        for (size_t o = 0; o < shape->out_channels; o++) {
            const float *weights = w + o * shape->num_segments * length;
            float sum = bias[o];
            for (size_t s = 0; s < shape->num_segments; s++) {
                const float *run = x + p * shape->pixel_stride + shape->segment_offsets[s];
                for (size_t k = 0; k < length; k++) {
                    sum += run[k] * weights[s * length + k];
                }
            }
            y[p * shape->out_channels + o] = sum;
        }
    }
}

static void conv_weight_grad(const fedge_conv_shape *shape, const float *x,
                             const fedge_grad_entry *list, uint32_t n, float *dw)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t s = 0; s < shape->num_segments; s++) {
            const float *run = x + list[i].offset + shape->segment_offsets[s];
            for (size_t k = 0; k < shape->segment_length; k++) {
                dw[s * shape->segment_stride + k] += list[i].value * run[k];
            }
        }
    }
}

static void conv_input_grad(const fedge_conv_shape *shape, const float *w,
                            const fedge_grad_entry *list, uint32_t n, float *dx)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t s = 0; s < shape->num_segments; s++) {
            float *run = dx + list[i].offset + shape->segment_offsets[s];
            for (size_t k = 0; k < shape->segment_length; k++) {
                run[k] += list[i].value * w[s * shape->segment_stride + k];
            }
        }
    }
}

static void maxpool_row(const fedge_pool_shape *shape, const float *x, float *y, uint8_t *argmax)
{
    const size_t channels = shape->channels;
    for (size_t p = 0; p < shape->out_w; p++) {
        for (size_t c = 0; c < channels; c++) {
            float best = -INFINITY;
            size_t place = SIZE_MAX;
            for (size_t r = shape->row_begin; r < shape->row_end; r++) {
                for (size_t q = 0; q < shape->kernel_w; q++) {
                    const size_t column = p * shape->stride_w + q; /* counted from −pad_w */
                    if (column < shape->pad_w || column >= shape->in_w + shape->pad_w) {
                        continue;
                    }
                    const size_t row = r - shape->row_begin;
                    const float value =
                        x[(row * shape->in_w + column - shape->pad_w) * channels + c];
                    if (place == SIZE_MAX || value > best || isnan(value)) {
                        best = value;
                        place = r * shape->kernel_w + q;
                    }
                }
            }
            y[p * channels + c] = best;
            argmax[p * channels + c] = (uint8_t)place;
        }
    }
}

static void linear_forward(const fedge_linear_shape *shape, const float *x, const float *w,
                           const float *bias, float *y)
{
    for (size_t b = 0; b < shape->batch; b++) {
        for (size_t o = 0; o < shape->out; o++) {
            float sum = bias == NULL ? 0.0f : bias[o];
            for (size_t k = 0; k < shape->in; k++) {
                sum += x[b * shape->in + k] * w[o * shape->in + k];
            }
            y[b * shape->out + o] = sum;
        }
    }
}

static void linear_backward(const fedge_linear_shape *shape, const float *x, const float *dy,
                            float *w, float *v, const fedge_sgd *sgd, float *dx)
{
    const size_t in = shape->in, out = shape->out;
    for (size_t b = 0; dx != NULL && b < shape->batch; b++) {
        for (size_t k = 0; k < in; k++) {
            dx[b * in + k] = 0.0f;
        }
        for (size_t o = 0; o < out; o++) {
            for (size_t k = 0; k < in; k++) {
                dx[b * in + k] += dy[b * out + o] * w[o * in + k];
            }
        }
    }
    for (size_t o = 0; o < out; o++) {
        for (size_t k = 0; k < in; k++) {
            float g = 0.0f;
            for (size_t b = 0; b < shape->batch; b++) {
                g += dy[b * out + o] * x[b * in + k];
            }
            fedge_sgd_apply(sgd, g, &w[o * in + k], v == NULL ? NULL : &v[o * in + k]);
        }
    }
}

static void gemm(const fedge_gemm *args, float *pack)
{
    (void)pack;
    const size_t n = args->n, b_row = args->b_row, b_column = args->b_column;
    for (size_t i = 0; i < args->m; i++) {
        float *c = args->c + i * args->c_row;
        for (size_t j = 0; !args->accumulate && j < n; j++) {
            c[j] = 0.0f;
        }
        for (size_t k = 0; k < args->k; k++) {
            const float a = args->a[i * args->a_row + k * args->a_column];
            const float *b = args->b + k * b_row;
            for (size_t j = 0; j < n; j++) {
                c[j] += a * b[j * b_column];
            }
        }
    }
}

static void relu_forward(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] < 0.0f ? 0.0f : x[i];
    }
}

static void relu_backward(const float *y, float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dy[i] = y[i] > 0.0f ? dy[i] : 0.0f;
    }
}

const fedge_kernels fedge_kernels_scalar = {
    .name = "scalar",
    .lanes = 1,
    .packed_columns = 1,
    .conv_forward_row = conv_forward_row,
    .conv_weight_grad = conv_weight_grad,
    .conv_input_grad = conv_input_grad,
    .maxpool_row = maxpool_row,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .gemm = gemm,
    .gemm_pack = 0,
    .relu_forward = relu_forward,
    .relu_backward = relu_backward,
};
