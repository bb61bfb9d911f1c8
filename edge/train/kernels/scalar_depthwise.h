/* Plain depthwise convolutions, the part of kernels_scalar.c that kernels_simd_depthwise.h has the
 * fast versions of. */

static void depthwise(const fedge_depthwise *shape, const float *x, const float *w, float bias,
                      bool add, float *y)
{
    for (size_t r = 0; r < shape->rows; r++, x += shape->step) {
        for (size_t q = 0; q < shape->width; q++, y++) {
            float sum = add ? *y : bias;
            for (size_t i = 0; i < shape->kernel[0]; i++) {
                for (size_t j = 0; j < shape->kernel[1]; j++) {
                    sum +=
                        w[i * shape->kernel[1] + j] * x[i * shape->pitch + shape->columns[j] + q];
                }
            }
            *y = sum;
        }
    }
}

static void depthwise_slopes(const fedge_depthwise *shape, const float *x, const float *dy,
                             float *dw)
{
    for (size_t i = 0; i < shape->kernel[0]; i++) {
        for (size_t j = 0; j < shape->kernel[1]; j++) {
            float sum = 0.0f;
            for (size_t r = 0; r < shape->rows; r++) {
                const float *from = x + r * shape->step + i * shape->pitch + shape->columns[j];
                for (size_t q = 0; q < shape->width; q++)
                    sum += dy[r * shape->width + q] * from[q];
            }
            dw[i * shape->kernel[1] + j] += sum;
        }
    }
}
