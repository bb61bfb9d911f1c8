/* The kernels of cohort training on small whole numbers, whose sums are exact: each value is that
 * of a plain loop, whatever the shapes, the examples of each slot and the order of threads. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/kernels.h"
#include "tests/cuda/emulator/emulator.h"

enum { SLOTS = 3, SEEDS = 24, MOST = 1 << 15 };

static fedge_rng rng;
static fedge_cohort_shape shape;
static fedge_cohort_turn *turns; /* pinned, as what follows */
static uint32_t counts[SLOTS];

/* An array of all slots on both sides. */
typedef struct array {
    float *pinned, *gpu;
    size_t values; /* of a slot */
} array;
static array x, y, dy, dx, values, gradients;
static uint16_t *places;

static void must(cudaError_t error)
{
    assert_int_equal(error, cudaSuccess);
}

static void *pin(size_t size)
{
    void *memory = NULL;
    must(cudaHostAlloc(&memory, size, cudaHostAllocPortable));
    return memory;
}

static void *allocate(size_t size)
{
    void *memory = NULL;
    must(cudaMalloc(&memory, size));
    return memory;
}

static float whole(void)
{
    return (float)fedge_rng_below(&rng, 9) - 4.0f;
}

static void send(void *to, const void *from, size_t size)
{
    must(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, shape.stream));
}

/* Whole numbers on the GPU, the same here. */
static array fill(size_t of_slot)
{
    array made = {NULL, NULL, of_slot};
    const size_t n = of_slot * SLOTS;
    made.pinned = pin(n * sizeof(float));
    made.gpu = allocate(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        made.pinned[i] = whole();
    send(made.gpu, made.pinned, n * sizeof(float));
    return made;
}

static void fetch(array *at)
{
    must(cudaMemcpyAsync(at->pinned, at->gpu, at->values * SLOTS * sizeof(float),
                         cudaMemcpyDeviceToHost, shape.stream));
    must(cudaStreamSynchronize(shape.stream));
}

static void drop(array *at)
{
    must(cudaFree(at->gpu));
    must(cudaFreeHost(at->pinned));
}

static void begin(uint64_t seed)
{
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 8, 0, 0);
    emulator_start(
        &(emulator_config){.num_gpus = 1, .seed = seed, .order = (emulator_order)(seed % 3)});
    must(cudaSetDevice(0));
    must(cudaStreamCreateWithFlags(&shape.stream, cudaStreamNonBlocking));
    shape.slots = SLOTS;
    shape.batch = 1 + fedge_rng_below(&rng, seed % 2 ? 6 : 20);
    turns = pin(SLOTS * sizeof(*turns));
    for (uint32_t s = 0; s < SLOTS; s++) { /* one is idle, now and then */
        counts[s] = fedge_rng_below(&rng, shape.batch + 1);
        turns[s] = (fedge_cohort_turn){.count = counts[s], .step = 1};
    }
    void *there = allocate(SLOTS * sizeof(*turns));
    send(there, turns, SLOTS * sizeof(*turns));
    shape.turns = there;
}

static void end(void)
{
    const void *there = shape.turns;
    void *pointer;
    memcpy(&pointer, &there, sizeof(pointer));
    must(cudaFree(pointer));
    must(cudaFreeHost(turns));
    must(cudaStreamDestroy(shape.stream));
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

/* The first [n] values of a slot. */
static void same(const array *at, uint32_t slot, const float *expected, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (at->pinned[slot * at->values + i] != expected[i]) {
            fail_msg("%s: slot %u, value %zu: %g, not %g", what, slot, i,
                     (double)at->pinned[slot * at->values + i], (double)expected[i]);
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------
 */

static float expected[MOST], expected_dx[MOST], expected_dw[MOST];

static uint32_t out_of(const fedge_cohort_conv2d *c, int axis)
{
    const uint32_t reach = c->dilation[axis] * (c->kernel[axis] - 1) + 1;
    const uint32_t padded = c->in_size[axis] + 2 * c->padding[axis];
    return padded < reach ? 0 : (padded - reach) / c->stride[axis] + 1;
}

/* Small whole numbers lose nothing when they are rounded: what each precision multiplies is exact.
 */
static uint32_t dropped_of(uint64_t seed)
{
    static const uint32_t DROPPED[] = {0, FEDGE_COHORT_TF32, FEDGE_COHORT_BF16};
    return DROPPED[seed / 2 % 3];
}

static fedge_cohort_conv2d draw_conv(uint64_t seed)
{
    fedge_cohort_conv2d c = {.tensors = {.dropped = dropped_of(seed),
                                         .in = 1 + fedge_rng_below(&rng, seed % 3 ? 4 : 18),
                                         .out = 1 + fedge_rng_below(&rng, seed % 4 ? 5 : 19)}};
    for (int axis = 0; axis < 2; axis++) {
        do {
            c.in_size[axis] = 1 + fedge_rng_below(&rng, 7);
            c.kernel[axis] = 1 + fedge_rng_below(&rng, 3);
            c.stride[axis] = 1 + fedge_rng_below(&rng, 3);
            c.padding[axis] = fedge_rng_below(&rng, 3);
            c.dilation[axis] = 1 + fedge_rng_below(&rng, 2);
            c.out_size[axis] = out_of(&c, axis);
        } while (c.out_size[axis] == 0);
    }
    return c;
}

/* Of slot s: y, dx and the parameters' gradients, all at once. */
static void plain_conv(const fedge_cohort_conv2d *c, uint32_t s)
{
    const uint32_t in = c->tensors.in, out = c->tensors.out;
    const uint32_t window = c->kernel[0] * c->kernel[1];
    const uint32_t in_plane = c->in_size[0] * c->in_size[1];
    const uint32_t plane = c->out_size[0] * c->out_size[1];
    const size_t bias = (size_t)out * in * window;
    const float *w = values.pinned + s * values.values, *image = x.pinned + s * x.values;
    const float *slope = dy.pinned + s * dy.values;
    memset(expected_dx, 0, sizeof(expected_dx));
    memset(expected_dw, 0, sizeof(expected_dw));
    for (uint32_t i = 0; i < counts[s] * out * plane; i++) {
        const uint32_t b = i / (out * plane), o = i / plane % out, p = i % plane;
        expected[i] = w[bias + o];
        expected_dw[bias + o] += slope[i];
        for (uint32_t k = 0; k < in * window; k++) {
            const int64_t row = (int64_t)(p / c->out_size[1]) * c->stride[0] +
                                k % window / c->kernel[1] * c->dilation[0] - c->padding[0];
            const int64_t column = (int64_t)(p % c->out_size[1]) * c->stride[1] +
                                   k % window % c->kernel[1] * c->dilation[1] - c->padding[1];
            if (row < 0 || column < 0 || row >= c->in_size[0] || column >= c->in_size[1])
                continue;
            const size_t at = (size_t)(b * in + k / window) * in_plane +
                              (size_t)row * c->in_size[1] + (size_t)column;
            expected[i] += w[(size_t)o * in * window + k] * image[at];
            expected_dx[at] += w[(size_t)o * in * window + k] * slope[i];
            expected_dw[(size_t)o * in * window + k] += slope[i] * image[at];
        }
    }
}

static void make_arrays(fedge_cohort_linear *t, size_t in, size_t out, size_t weights)
{
    x = fill(shape.batch * in);
    dx = fill(shape.batch * in);
    y = fill(shape.batch * out);
    dy = fill(shape.batch * out);
    values = fill(weights + t->out);
    gradients = fill(weights + t->out);
    t->weight = (fedge_cohort_weights){values.gpu, values.values};
    t->bias = (fedge_cohort_weights){values.gpu + weights, values.values};
    t->x = x.gpu;
    t->y = y.gpu;
    t->dy = dy.gpu;
    t->dx = dx.gpu;
    t->dweight = gradients.gpu;
    t->dbias = gradients.gpu + weights;
    t->gradient_stride = gradients.values;
}

static void check_products(const fedge_cohort_conv2d *c)
{
    const size_t in = (size_t)c->tensors.in * c->in_size[0] * c->in_size[1];
    const size_t out = (size_t)c->tensors.out * c->out_size[0] * c->out_size[1];
    fetch(&y);
    fetch(&dx);
    fetch(&gradients);
    for (uint32_t s = 0; s < SLOTS; s++) {
        plain_conv(c, s);
        same(&y, s, expected, counts[s] * out, "y");
        same(&dx, s, expected_dx, counts[s] * in, "dx");
        same(&gradients, s, expected_dw, counts[s] > 0 ? gradients.values : 0, "gradients");
    }
    drop(&x);
    drop(&y);
    drop(&dx);
    drop(&dy);
    drop(&values);
    drop(&gradients);
}

static void convolutions_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        fedge_cohort_conv2d c = draw_conv(seed);
        make_arrays(&c.tensors, (size_t)c.tensors.in * c.in_size[0] * c.in_size[1],
                    (size_t)c.tensors.out * c.out_size[0] * c.out_size[1],
                    (size_t)c.tensors.out * c.tensors.in * c.kernel[0] * c.kernel[1]);
        must(fedge_cohort_launch_conv2d(&shape, &c));
        must(fedge_cohort_launch_conv2d_backward(&shape, &c));
        check_products(&c);
        end();
    }
}

/* A Linear is a convolution of images of one pixel. */
static void linears_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        fedge_cohort_conv2d c = {.in_size = {1, 1},
                                 .out_size = {1, 1},
                                 .kernel = {1, 1},
                                 .stride = {1, 1},
                                 .dilation = {1, 1}};
        c.tensors.in = 1 + fedge_rng_below(&rng, 80);
        c.tensors.out = 1 + fedge_rng_below(&rng, 80);
        c.tensors.steps = 1;
        c.tensors.dropped = dropped_of(seed);
        make_arrays(&c.tensors, c.tensors.in, c.tensors.out, (size_t)c.tensors.in * c.tensors.out);
        must(fedge_cohort_launch_linear(&shape, &c.tensors));
        must(fedge_cohort_launch_linear_backward(&shape, &c.tensors));
        check_products(&c);
        end();
    }
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

static void plain_pool(const fedge_cohort_maxpool2d *p, uint32_t s)
{
    const uint32_t in_plane = p->in_size[0] * p->in_size[1];
    const uint32_t plane = p->out_size[0] * p->out_size[1];
    const float *image = x.pinned + s * x.values, *slope = dy.pinned + s * dy.values;
    memset(expected_dx, 0, sizeof(expected_dx));
    for (uint32_t i = 0; i < counts[s] * p->channels * plane; i++) {
        size_t best = SIZE_MAX;
        for (uint32_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
            const int64_t row = (int64_t)(i % plane / p->out_size[1]) * p->stride[0] +
                                k / p->kernel[1] * p->dilation[0] - p->padding[0];
            const int64_t column = (int64_t)(i % plane % p->out_size[1]) * p->stride[1] +
                                   k % p->kernel[1] * p->dilation[1] - p->padding[1];
            if (row < 0 || column < 0 || row >= p->in_size[0] || column >= p->in_size[1])
                continue;
            const size_t at =
                (size_t)(i / plane) * in_plane + (size_t)row * p->in_size[1] + (size_t)column;
            best = best == SIZE_MAX || image[at] > image[best] ? at : best;
        }
        expected[i] = image[best];
        expected_dx[best] += slope[i];
    }
}

static void pools_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        begin(seed);
        fedge_cohort_maxpool2d p = {.channels = 1 + fedge_rng_below(&rng, 3)};
        for (int axis = 0; axis < 2; axis++) {
            p.in_size[axis] = 4 + fedge_rng_below(&rng, 6);
            p.kernel[axis] = 1 + fedge_rng_below(&rng, 3);
            p.stride[axis] = 1 + fedge_rng_below(&rng, 3);
            p.padding[axis] = fedge_rng_below(&rng, p.kernel[axis] / 2 + 1);
            p.dilation[axis] = 1;
            p.out_size[axis] =
                (p.in_size[axis] + 2 * p.padding[axis] - p.kernel[axis]) / p.stride[axis] + 1;
        }
        const size_t in = (size_t)p.channels * p.in_size[0] * p.in_size[1];
        const size_t out = (size_t)p.channels * p.out_size[0] * p.out_size[1];
        x = fill(shape.batch * in);
        dx = fill(shape.batch * in);
        y = fill(shape.batch * out);
        dy = fill(shape.batch * out);
        places = allocate(SLOTS * shape.batch * out * sizeof(*places));
        p.x = x.gpu;
        p.y = y.gpu;
        p.dy = dy.gpu;
        p.dx = dx.gpu;
        p.places = places;
        must(fedge_cohort_launch_maxpool2d(&shape, &p));
        must(fedge_cohort_launch_maxpool2d_backward(&shape, &p));
        fetch(&y);
        fetch(&dx);
        for (uint32_t s = 0; s < SLOTS; s++) {
            plain_pool(&p, s);
            same(&y, s, expected, counts[s] * out, "y");
            same(&dx, s, expected_dx, counts[s] * in, "dx");
        }
        drop(&x);
        drop(&y);
        drop(&dx);
        drop(&dy);
        must(cudaFree(places));
        end();
    }
}

static void rectifiers_keep_what_is_not_a_number(void **state)
{
    (void)state;
    begin(1);
    const uint32_t n = 300;
    y = fill(shape.batch * n);
    dy = fill(shape.batch * n);
    y.pinned[0] = NAN;
    send(y.gpu, y.pinned, sizeof(float));
    float *before = malloc(y.values * SLOTS * sizeof(float));
    float *slope = malloc(y.values * SLOTS * sizeof(float));
    memcpy(before, y.pinned, y.values * SLOTS * sizeof(float));
    memcpy(slope, dy.pinned, y.values * SLOTS * sizeof(float));
    const fedge_cohort_activation relu = {.function = FEDGE_COHORT_RELU,
                                          .values = n,
                                          .x = y.gpu,
                                          .y = y.gpu,
                                          .dy = dy.gpu,
                                          .dx = dy.gpu};
    must(fedge_cohort_launch_activation(&shape, &relu));
    must(fedge_cohort_launch_activation_backward(&shape, &relu));
    fetch(&y);
    fetch(&dy);
    assert_true(counts[0] == 0 || isnan(y.pinned[0]));
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (size_t i = s == 0; i < counts[s] * n; i++) {
            const size_t at = s * y.values + i;
            assert_true(y.pinned[at] == (before[at] < 0.0f ? 0.0f : before[at]));
            assert_true(dy.pinned[at] == (before[at] > 0.0f ? slope[at] : 0.0f));
        }
    }
    free(before);
    free(slope);
    drop(&y);
    drop(&dy);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_are_exact),
        cmocka_unit_test(convolutions_are_exact),
        cmocka_unit_test(pools_are_exact),
        cmocka_unit_test(rectifiers_keep_what_is_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
