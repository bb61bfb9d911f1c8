#include "edge/train/layers/affine.h"

/* With sums up to COPY_IN long and at least COPY_ROWS rows, packing W is faster than dot products,
 * if the kernels pack at all. */
#define COPY_IN 512
#define COPY_ROWS 48

static void forward_by_gemm(const fedge_affine *self, const float *x, float *y)
{
    self->kernels->gemm(&(fedge_gemm){.m = self->rows,
                                      .n = self->out,
                                      .k = self->in,
                                      .a = x,
                                      .a_row = self->in,
                                      .a_column = 1,
                                      .b = self->weight,
                                      .b_row = 1,
                                      .b_column = self->in,
                                      .c = y,
                                      .c_row = self->out,
                                      .start = self->bias},
                        self->gemm_pack);
}

/* With operands in bf16 all products go through gemm. */
static bool by_gemm(const fedge_affine *self)
{
    return self->kernels->in_bf16 ||
           (self->kernels->gemm_pack > 0 && self->in <= COPY_IN && self->rows >= COPY_ROWS);
}

void fedge_affine_forward(const fedge_affine *self, const float *x, float *y)
{
    if (by_gemm(self)) {
        forward_by_gemm(self, x, y);
        return;
    }
    const fedge_linear_shape shape = {
        .batch = (uint32_t)self->rows, .in = (uint32_t)self->in, .out = (uint32_t)self->out};
    self->kernels->linear_forward(&shape, x, self->weight, self->bias, y);
}

void fedge_affine_gradients(const fedge_affine *self, const float *x, const float *dy)
{
    const size_t rows = self->rows, in = self->in, out = self->out;
    if (self->weight_gradient) {
        self->kernels->gemm(&(fedge_gemm){.m = out,
                                          .n = in,
                                          .k = rows,
                                          .a = dy,
                                          .a_row = 1,
                                          .a_column = out,
                                          .b = x,
                                          .b_row = in,
                                          .b_column = 1,
                                          .c = self->weight_gradient,
                                          .c_row = in,
                                          .accumulate = true},
                            self->gemm_pack);
    }
    for (size_t r = 0; self->bias_gradient && r < rows; r++)
        self->kernels->add(dy + r * out, out, self->bias_gradient);
}

void fedge_affine_backward(const fedge_affine *self, const float *dy, float *dx)
{
    self->kernels->gemm(&(fedge_gemm){.m = self->rows,
                                      .n = self->in,
                                      .k = self->out,
                                      .a = dy,
                                      .a_row = self->out,
                                      .a_column = 1,
                                      .b = self->weight,
                                      .b_row = self->in,
                                      .b_column = 1,
                                      .c = dx,
                                      .c_row = self->in},
                        self->gemm_pack);
}
