/* Kernels as plain loops that the compiler vectorises for each instruction set; included by
 * scalar.c and simd.h. All tables share this code and nothing is summed, so every table gives the
 * same bits.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Outputs may be the inputs themselves, element upon element. */
#if defined(__clang__)
#define IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE _Pragma("GCC ivdep")
#endif

static void normalize(const float *x, size_t n, const fedge_normal *normal, float *y)
{
    const float center = normal->center, scale = normal->scale, shift = normal->shift;
    const float ceiling = normal->ceiling;
    if (ceiling > 0.0f) {
        IN_PLACE
        for (size_t i = 0; i < n; i++) {
            const float z = (x[i] - center) * scale + shift;
            const float positive = z < 0.0f ? 0.0f : z; /* NaN stays */
            y[i] = positive > ceiling ? ceiling : positive;
        }
        return;
    }
    IN_PLACE
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - center) * scale + shift;
}

static void normalize_backward(const float *x, const float *dy, size_t n,
                               const fedge_normal *normal, const fedge_norm_gradient *gradient,
                               float *dx)
{
    const float center = normal->center, scale = normal->scale, shift = normal->shift;
    const float ceiling = normal->ceiling, a = gradient->dz, b = gradient->x, c = gradient->one;
    if (ceiling > 0.0f) {
        IN_PLACE
        for (size_t i = 0; i < n; i++) {
            const float d = x[i] - center, z = d * scale + shift;
            const float above = z > 0.0f ? dy[i] : 0.0f, dz = z < ceiling ? above : 0.0f;
            dx[i] = dz * a + d * b + c;
        }
        return;
    }
    IN_PLACE
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * a + (x[i] - center) * b + c;
}

static void add_to(const float *x, size_t n, float *y)
{
    IN_PLACE
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void split_rows(size_t rows, size_t width, const float *restrict x, size_t x_stride,
                       float *restrict even, float *restrict odd, size_t y_stride)
{
    for (size_t r = 0; r < rows; r++, x += x_stride, even += y_stride, odd += y_stride) {
        for (size_t i = 0; i < width; i++) {
            even[i] = x[2 * i];
            odd[i] = x[2 * i + 1];
        }
    }
}

static void spread_rows(size_t rows, size_t width, const float *restrict x, size_t x_stride,
                        float *restrict y, size_t y_stride)
{
    for (size_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        for (size_t i = 0; i < width; i++) {
            y[2 * i] = x[i];
            y[2 * i + 1] = 0.0f;
        }
    }
}

static void pick_rows(size_t rows, size_t width, const float *restrict x, size_t x_stride,
                      float *restrict y, size_t y_stride)
{
    for (size_t r = 0; r < rows; r++, x += x_stride, y += y_stride) {
        for (size_t i = 0; i < width; i++)
            y[i] = x[2 * i];
    }
}

static void weave_rows(size_t rows, size_t width, const float *restrict even,
                       const float *restrict odd, size_t x_stride, float *restrict y,
                       size_t y_stride)
{
    for (size_t r = 0; r < rows; r++, even += x_stride, odd += x_stride, y += y_stride) {
        for (size_t i = 0; i < width / 2; i++) {
            y[2 * i] = even[i];
            y[2 * i + 1] = odd[i];
        }
        if (width % 2 == 1)
            y[width - 1] = even[width / 2];
    }
}

static void relu6_forward(const float *x, size_t n, float *y)
{
    IN_PLACE
    for (size_t i = 0; i < n; i++) {
        const float positive = x[i] < 0.0f ? 0.0f : x[i];
        y[i] = positive > 6.0f ? 6.0f : positive;
    }
}

static void relu6_backward(const float *y, const float *dy, size_t n, float *dx)
{
    IN_PLACE
    for (size_t i = 0; i < n; i++) {
        const float below = y[i] > 0.0f ? dy[i] : 0.0f;
        dx[i] = y[i] < 6.0f ? below : 0.0f;
    }
}

static void adam(const fedge_adam_step *step, size_t n, const float *g, float *restrict w,
                 float *restrict m, float *restrict v)
{
    const float b1 = step->beta1, b2 = step->beta2, step_size = step->step_size, root = step->root;
    const float decay_factor = step->decay_factor, coupled_decay = step->coupled_decay,
                epsilon = step->epsilon;
    IN_PLACE
    for (size_t i = 0; i < n; i++) {
        const float gradient = g[i] + coupled_decay * w[i];
        m[i] = b1 * m[i] + (1.0f - b1) * gradient;
        v[i] = b2 * v[i] + (1.0f - b2) * gradient * gradient;
        w[i] = decay_factor * w[i] - step_size * m[i] / (sqrtf(v[i]) / root + epsilon);
    }
}

/* The exponent of a number that is not finite has all bits set, so adding one to it carries into
 * the sign bit. No other number does. */
static bool all_finite(const float *x, size_t n)
{
    uint32_t carries = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        carries |= (bits & 0x7fffffffu) + 0x00800000u;
    }
    return carries >> 31 == 0;
}

#define LOOP_KERNELS                                                                               \
    .normalize = normalize, .normalize_backward = normalize_backward, .add = add_to,               \
    .split_rows = split_rows, .spread_rows = spread_rows, .pick_rows = pick_rows,                  \
    .weave_rows = weave_rows, .relu6_forward = relu6_forward, .relu6_backward = relu6_backward,    \
    .adam = adam, .all_finite = all_finite
