/* The kernels of cohort training that choose, average, look up or add, on small whole numbers
 * beside plain loops: exactly, and where a mean divides by no power of two within 2^-19 of what is
 * added up. As test_cohort_kernels.c, which has the products. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/kernel_arrays.h"

/* Of terms that are rounded: up to 16 windows, each with a share that is rounded and a product. */
#define ROUNDING (1.0 / (1 << 19))

static kernel_array x, y, dy, dx, values, gradients, start;
static uint16_t *places;
static float expected[MOST], expected_dx[MOST];

static void fill_all(size_t in, size_t out)
{
    x = kernel_fill(kernel_shape.batch * in);
    dx = kernel_fill(kernel_shape.batch * in);
    y = kernel_fill(kernel_shape.batch * out);
    dy = kernel_fill(kernel_shape.batch * out);
}

static void drop_all(void)
{
    kernel_drop(&x);
    kernel_drop(&y);
    kernel_drop(&dx);
    kernel_drop(&dy);
}

/* ---- the largest of a window ----------------------------------------------------------------- */

static void plain_pool(const fedge_cohort_maxpool2d *p, uint32_t s)
{
    const uint32_t in_plane = p->in_size[0] * p->in_size[1];
    const uint32_t plane = p->out_size[0] * p->out_size[1];
    const float *image = x.pinned + s * x.values, *slope = dy.pinned + s * dy.values;
    memset(expected_dx, 0, sizeof(expected_dx));
    for (uint32_t i = 0; i < kernel_counts[s] * p->channels * plane; i++) {
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

static void maximum_pools_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_maxpool2d p = {.channels = 1 + kernel_below(3)};
        for (int axis = 0; axis < 2; axis++) {
            p.in_size[axis] = 4 + kernel_below(6);
            p.kernel[axis] = 1 + kernel_below(3);
            p.stride[axis] = 1 + kernel_below(3);
            p.padding[axis] = kernel_below(p.kernel[axis] / 2 + 1);
            p.dilation[axis] = 1;
            p.out_size[axis] =
                (p.in_size[axis] + 2 * p.padding[axis] - p.kernel[axis]) / p.stride[axis] + 1;
        }
        const size_t in = (size_t)p.channels * p.in_size[0] * p.in_size[1];
        const size_t out = (size_t)p.channels * p.out_size[0] * p.out_size[1];
        fill_all(in, out);
        places = kernel_allocate(SLOTS * kernel_shape.batch * out * sizeof(*places));
        p.x = x.gpu;
        p.y = y.gpu;
        p.dy = dy.gpu;
        p.dx = dx.gpu;
        p.argmax = places;
        kernel_must(fedge_cohort_launch_maxpool2d(&kernel_shape, &p));
        kernel_must(fedge_cohort_launch_maxpool2d_backward(&kernel_shape, &p));
        kernel_fetch(&y);
        kernel_fetch(&dx);
        for (uint32_t s = 0; s < SLOTS; s++) {
            plain_pool(&p, s);
            kernel_same(&y, s, expected, kernel_counts[s] * out, "y");
            kernel_same(&dx, s, expected_dx, kernel_counts[s] * in, "dx");
        }
        drop_all();
        kernel_must(cudaFree(places));
        kernel_end();
    }
}

/* ---- averages -------------------------------------------------------------------------------- */

static double sums[MOST], allowed[MOST], sums_dx[MOST], allowed_dx[MOST], sizes_dx[MOST];

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* Rows or columns of a window that lie in the image, and how many it counts. */
typedef struct span {
    int64_t first, last;
    uint32_t counted;
} span;

static span fixed_span(const fedge_cohort_avgpool2d *p, int axis, uint32_t i)
{
    const int64_t first = (int64_t)i * p->stride[axis] - p->padding[axis], size = p->in_size[axis];
    const int64_t end = first + p->kernel[axis];
    const int64_t padded_end = end < size + p->padding[axis] ? end : size + p->padding[axis];
    span found = {.first = first > 0 ? first : 0, .last = end < size ? end : size};
    found.counted = (uint32_t)(p->count_pad ? padded_end - first : found.last - found.first);
    return found;
}

/* From i · in / out, and as far as ⌈(i + 1) · in / out⌉. */
static span adaptive_span(const fedge_cohort_avgpool2d *p, int axis, uint32_t i)
{
    const uint32_t in = p->in_size[axis], out = p->out_size[axis];
    span found = {.first = i * in / out, .last = ((i + 1) * in + out - 1) / out};
    found.counted = (uint32_t)(found.last - found.first);
    return found;
}

typedef span (*span_fn)(const fedge_cohort_avgpool2d *p, int axis, uint32_t i);

/* Output [i] of slot s, and its share of the inputs' gradients. */
static void plain_average(const fedge_cohort_avgpool2d *p, span_fn of, uint32_t s, uint32_t i)
{
    const uint32_t plane = p->out_size[0] * p->out_size[1];
    const span rows = of(p, 0, i % plane / p->out_size[1]);
    const span columns = of(p, 1, i % plane % p->out_size[1]);
    const uint32_t count = p->divisor > 0 ? p->divisor : rows.counted * columns.counted;
    const double slope = (double)dy.pinned[s * dy.values + i] / count;
    const size_t image = (size_t)(i / plane) * p->in_size[0] * p->in_size[1];
    double sum = 0.0;
    for (int64_t r = rows.first; r < rows.last; r++) {
        for (int64_t c = columns.first; c < columns.last; c++) {
            const size_t at = image + (size_t)(r * p->in_size[1] + c);
            sum += (double)x.pinned[s * x.values + at];
            sums_dx[at] += slope;
            sizes_dx[at] += fabs(slope);
            allowed_dx[at] = is_power_of_two(count) ? allowed_dx[at] : ROUNDING;
        }
    }
    sums[i] = sum / count;
    allowed[i] = is_power_of_two(count) ? 0.0 : ROUNDING * fabs(sums[i]);
}

static void check_averages(const fedge_cohort_avgpool2d *p, span_fn of)
{
    const size_t in = (size_t)p->channels * p->in_size[0] * p->in_size[1];
    const size_t out = (size_t)p->channels * p->out_size[0] * p->out_size[1];
    kernel_fetch(&y);
    kernel_fetch(&dx);
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (size_t i = 0; i < kernel_counts[s] * in; i++)
            sums_dx[i] = sizes_dx[i] = allowed_dx[i] = 0.0;
        for (uint32_t i = 0; i < kernel_counts[s] * out; i++)
            plain_average(p, of, s, i);
        for (size_t i = 0; i < kernel_counts[s] * in; i++)
            allowed_dx[i] *= sizes_dx[i];
        kernel_near(&y, s, sums, allowed, kernel_counts[s] * out, "y");
        kernel_near(&dx, s, sums_dx, allowed_dx, kernel_counts[s] * in, "dx");
    }
    drop_all();
}

/* With ceil_mode a last window may reach over the padding, but begins before it. */
static uint32_t windows_of(const fedge_cohort_avgpool2d *p, int axis, bool ceils)
{
    const uint32_t room = p->in_size[axis] + 2 * p->padding[axis] - p->kernel[axis];
    const uint32_t floored = room / p->stride[axis] + 1;
    const bool more = ceils && room % p->stride[axis] > 0 &&
                      floored * p->stride[axis] < p->in_size[axis] + p->padding[axis];
    return floored + more;
}

static void average_pools_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_avgpool2d p = {.channels = 1 + kernel_below(3),
                                    .count_pad = kernel_below(2),
                                    .divisor = seed % 3 ? 0 : 1 + kernel_below(4)};
        for (int axis = 0; axis < 2; axis++) {
            p.in_size[axis] = 4 + kernel_below(6);
            p.kernel[axis] = 1 + kernel_below(4);
            p.stride[axis] = 1 + kernel_below(3);
            p.padding[axis] = kernel_below(p.kernel[axis] / 2 + 1);
            p.out_size[axis] = windows_of(&p, axis, seed % 2 == 0);
        }
        fill_all((size_t)p.channels * p.in_size[0] * p.in_size[1],
                 (size_t)p.channels * p.out_size[0] * p.out_size[1]);
        p.x = x.gpu;
        p.y = y.gpu;
        p.dy = dy.gpu;
        p.dx = dx.gpu;
        kernel_must(fedge_cohort_launch_avgpool2d(&kernel_shape, &p));
        kernel_must(fedge_cohort_launch_avgpool2d_backward(&kernel_shape, &p));
        check_averages(&p, fixed_span);
        kernel_end();
    }
}

/* Also to more outputs than there are inputs. */
static void adaptive_pools_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_adaptiveavgpool2d p = {.channels = 1 + kernel_below(3)};
        fedge_cohort_avgpool2d plain = {.channels = p.channels};
        for (int axis = 0; axis < 2; axis++) {
            p.in_size[axis] = plain.in_size[axis] = 1 + kernel_below(9);
            p.out_size[axis] = plain.out_size[axis] = 1 + kernel_below(6);
        }
        fill_all((size_t)p.channels * p.in_size[0] * p.in_size[1],
                 (size_t)p.channels * p.out_size[0] * p.out_size[1]);
        p.x = x.gpu;
        p.y = y.gpu;
        p.dy = dy.gpu;
        p.dx = dx.gpu;
        kernel_must(fedge_cohort_launch_adaptiveavgpool2d(&kernel_shape, &p));
        kernel_must(fedge_cohort_launch_adaptiveavgpool2d_backward(&kernel_shape, &p));
        check_averages(&plain, adaptive_span);
        kernel_end();
    }
}

/* An axis is the height of images that are one window wide: Select's window is one place. */
static span axis_span(const fedge_cohort_avgpool2d *p, int axis, uint32_t i)
{
    const span whole = {
        .first = p->stride[0], .last = p->stride[0] + p->kernel[0], .counted = p->kernel[0]};
    return axis == 0 ? whole : (span){.first = i, .last = i + 1, .counted = 1};
}

static void one_place_and_means_of_an_axis_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        fedge_cohort_axis a = {.outer = 1 + kernel_below(4),
                               .length = 1 + kernel_below(9),
                               .inner = 1 + kernel_below(7)};
        a.first = seed % 2 ? kernel_below(a.length) : 0;
        a.count = seed % 2 ? 1 : a.length;
        const fedge_cohort_avgpool2d plain = {.channels = a.outer,
                                              .in_size = {a.length, a.inner},
                                              .out_size = {1, a.inner},
                                              .stride = {a.first, 1},
                                              .kernel = {a.count, 1}};
        fill_all((size_t)a.outer * a.length * a.inner, (size_t)a.outer * a.inner);
        a.x = x.gpu;
        a.y = y.gpu;
        a.dy = dy.gpu;
        a.dx = dx.gpu;
        kernel_must(fedge_cohort_launch_axis(&kernel_shape, &a));
        kernel_must(fedge_cohort_launch_axis_backward(&kernel_shape, &a));
        check_averages(&plain, axis_span);
        kernel_end();
    }
}

/* ---- rows of a table ------------------------------------------------------------------------- */

static fedge_cohort_embedding draw_embedding(bool positions)
{
    fedge_cohort_embedding e = {.dim = 1 + kernel_below(9), .steps = 1 + kernel_below(7)};
    e.rows = positions ? e.steps + kernel_below(3) : 1 + kernel_below(20);
    fill_all((size_t)e.steps * (positions ? e.dim : 1), (size_t)e.steps * e.dim);
    values = kernel_fill((size_t)e.rows * e.dim);
    gradients = kernel_fill((size_t)e.rows * e.dim + 3);
    for (size_t i = 0; i < SLOTS * x.values && !positions; i++)
        x.pinned[i] = (float)kernel_below(e.rows);
    kernel_send_again(&x);
    e.weight = (fedge_cohort_weights){values.gpu, values.values};
    e.x = x.gpu;
    e.y = y.gpu;
    e.dy = dy.gpu;
    e.dweight = gradients.gpu;
    e.gradient_stride = gradients.values;
    return e;
}

static void check_embedding(const fedge_cohort_embedding *e, bool positions)
{
    kernel_fetch(&y);
    kernel_fetch(&gradients);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const float *table = values.pinned + s * values.values;
        const float *in = x.pinned + s * x.values, *slope = dy.pinned + s * dy.values;
        memset(expected_dx, 0, values.values * sizeof(float));
        for (uint32_t i = 0; i < kernel_counts[s] * e->steps * e->dim; i++) {
            const uint32_t place = i / e->dim;
            const uint32_t row = positions ? place % e->steps : (uint32_t)in[place];
            expected[i] = table[row * e->dim + i % e->dim] + (positions ? in[i] : 0.0f);
            expected_dx[row * e->dim + i % e->dim] += slope[i];
        }
        kernel_same(&y, s, expected, (size_t)kernel_counts[s] * e->steps * e->dim, "y");
        kernel_same(&gradients, s, expected_dx, kernel_counts[s] > 0 ? values.values : 0,
                    "gradients");
    }
    drop_all();
    kernel_drop(&values);
    kernel_drop(&gradients);
}

static void embeddings_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const bool positions = seed % 3 == 0;
        kernel_begin(seed);
        const fedge_cohort_embedding e = draw_embedding(positions);
        kernel_must(positions ? fedge_cohort_launch_positions(&kernel_shape, &e)
                              : fedge_cohort_launch_embedding(&kernel_shape, &e));
        kernel_must(positions ? fedge_cohort_launch_positions_backward(&kernel_shape, &e)
                              : fedge_cohort_launch_embedding_backward(&kernel_shape, &e));
        check_embedding(&e, positions);
        kernel_end();
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* What a slot has no examples for stays as it is. */
static void additions_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        const uint32_t n = 1 + kernel_below(200);
        x = kernel_fill((size_t)kernel_shape.batch * n);
        y = kernel_fill((size_t)kernel_shape.batch * n);
        float *before = malloc(SLOTS * y.values * sizeof(float));
        memcpy(before, y.pinned, SLOTS * y.values * sizeof(float));
        const fedge_cohort_add a = {
            .from = x.gpu, .to = y.gpu, .values = n, .adds = (uint32_t)seed % 2};
        kernel_must(fedge_cohort_launch_add(&kernel_shape, &a));
        kernel_fetch(&y);
        for (uint32_t s = 0; s < SLOTS; s++) {
            for (size_t i = 0; i < y.values; i++) {
                const float old = before[s * y.values + i], new = x.pinned[s * x.values + i];
                expected[i] = i >= (size_t)kernel_counts[s] * n ? old : a.adds ? old + new : new;
            }
            kernel_same(&y, s, expected, y.values, "to");
        }
        free(before);
        kernel_drop(&x);
        kernel_drop(&y);
        kernel_end();
    }
}

enum { FRACTION = 20, TOO_LARGE = 70000 };

/* Of all slots' gradients, of which value [bad] is too large everywhere. */
typedef struct shared {
    fedge_cohort_gradient_sums on_gpu;
    fedge_cohort_tally *tallies; /* pinned, as sums */
    int64_t *sums, expected[MOST];
    uint32_t bad; /* UINT32_MAX: none */
} shared;
static shared share;

static void draw_share(uint64_t seed)
{
    const uint32_t n = 20 + kernel_below(300), first = kernel_below(10);
    share.bad = seed % 3 ? UINT32_MAX : first + kernel_below(n - first);
    gradients = kernel_fill(n);
    for (size_t i = 0; i < SLOTS * gradients.values; i++)
        gradients.pinned[i] = i % n == share.bad ? TOO_LARGE : gradients.pinned[i] / 7.0f;
    kernel_send_again(&gradients);
    share.tallies = kernel_pin(SLOTS * sizeof(*share.tallies));
    memset(share.tallies, 0, SLOTS * sizeof(*share.tallies));
    share.sums = kernel_pin(n * sizeof(*share.sums));
    for (uint32_t i = 0; i < n; i++)
        share.expected[i] = share.sums[i] = (int64_t)kernel_below(1000) << 30;
    share.on_gpu =
        (fedge_cohort_gradient_sums){.gradients = gradients.gpu,
                                     .gradient_stride = gradients.values,
                                     .sums = kernel_allocate(n * sizeof(*share.sums)),
                                     .first = first,
                                     .count = n - first,
                                     .fraction = FRACTION,
                                     .examples = 1 + kernel_below(20),
                                     .tallies = kernel_allocate(SLOTS * sizeof(*share.tallies))};
    kernel_send(share.on_gpu.tallies, share.tallies, SLOTS * sizeof(*share.tallies));
    kernel_send(share.on_gpu.sums, share.sums, n * sizeof(*share.sums));
    for (uint32_t i = 0; i < SLOTS * n; i++) {
        const double g = (double)gradients.pinned[i] * kernel_counts[i / n];
        if (i % n >= first && i % n != share.bad)
            share.expected[i % n] += (int64_t)rint(ldexp(g, FRACTION));
    }
}

static void add_shares(void)
{
    const fedge_cohort_gradient_sums *p = &share.on_gpu;
    kernel_must(fedge_cohort_launch_sum_gradients(&kernel_shape, p));
    kernel_must(cudaMemcpyAsync(share.sums, p->sums, gradients.values * sizeof(*share.sums),
                                cudaMemcpyDeviceToHost, kernel_shape.stream));
    kernel_must(cudaMemcpyAsync(share.tallies, p->tallies, SLOTS * sizeof(*share.tallies),
                                cudaMemcpyDeviceToHost, kernel_shape.stream));
    kernel_must(cudaStreamSynchronize(kernel_shape.stream));
    assert_memory_equal(share.sums, share.expected, gradients.values * sizeof(*share.sums));
    for (uint32_t s = 0; s < SLOTS; s++) {
        const bool told = share.bad != UINT32_MAX && kernel_counts[s] > 0;
        assert_int_equal(share.tallies[s].bad_value, told ? ~share.bad : 0);
    }
}

/* The sums' mean in their place of the first slot's gradients, which are of [first] and behind. */
static void take_shares(void)
{
    const fedge_cohort_gradient_sums *p = &share.on_gpu;
    memcpy(expected, gradients.pinned, gradients.values * sizeof(float));
    for (uint32_t i = 0; i < p->count; i++)
        expected[p->first + i] = (float)(ldexp((double)share.expected[i], -FRACTION) / p->examples);
    kernel_must(fedge_cohort_launch_mean_gradients(p, kernel_shape.stream));
    kernel_fetch(&gradients);
    kernel_same(&gradients, 0, expected, gradients.values, "gradients");
}

/* Gradients with fractions, each rounded once; one that is too large is told and not added. */
static void shares_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        draw_share(seed);
        add_shares();
        take_shares();
        kernel_must(cudaFreeHost(share.tallies));
        kernel_must(cudaFreeHost(share.sums));
        kernel_must(cudaFree(share.on_gpu.sums));
        kernel_must(cudaFree(share.on_gpu.tallies));
        kernel_drop(&gradients);
        kernel_end();
    }
}

/* ---- states ---------------------------------------------------------------------------------- */

enum { STATED = 4096, FIRST_STATED = 5 };

/* Half [k] of the word that value [i] of a slot has in the step's stream. */
static uint32_t chance_of(const fedge_cohort_slot_step *turn, uint32_t i, int k)
{
    const uint32_t named = (uint32_t)FEDGE_PURPOSE_ROUNDING << 16 | (turn->stream[0] & 0xffff);
    const uint32_t counter[4] = {i / 4, named, turn->stream[1], turn->stream[2]};
    uint32_t block[4];
    fedge_philox4x32(counter, turn->key, block);
    return k == 0 ? block[i % 4] & 0xffff : block[i % 4] >> 16;
}

static uint16_t bf16_of(float value, uint32_t chance)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((isfinite(value) ? bits + chance
                       : isnan(value)  ? bits | 0x400000
                                       : bits) >>
                      16);
}

/* Adam's first step from moments of 0, of a range that does not begin with the first value: each
 * moment is rounded by its value's chance, to the one above as often as it is near to it. */
static void check_states(const uint16_t *states[2])
{
    uint32_t up = 0, all = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (uint32_t i = 0; i < STATED && kernel_counts[s] > 0; i++) {
            const float g = gradients.pinned[s * gradients.values + FIRST_STATED + i];
            const float moments[2] = {(1.0f - 0.5f) * g, (1.0f - 0.75f) * g * g};
            for (int k = 0; k < 2; k++) {
                const uint32_t chance = chance_of(&kernel_slot_steps[s], FIRST_STATED + i, k);
                assert_int_equal(states[k][s * STATED + i], bf16_of(moments[k], chance));
                up += i > 2 && states[k][s * STATED + i] != bf16_of(moments[k], 0);
                all += i > 2;
            }
        }
    }
    /* They lie an eighth and a quarter of the way from one number of bf16 to the next. */
    assert_true(fabs(up - all * 3 / 16.0) <= 5 * sqrt(all * 0.25 * 0.75));
}

static void states_in_bf16_are_rounded_by_chance(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        kernel_begin(seed);
        values = kernel_fill(STATED + FIRST_STATED + 3);
        gradients = kernel_fill(STATED + FIRST_STATED + 3);
        start = kernel_fill(STATED + FIRST_STATED + 3);
        for (size_t i = 0; i < SLOTS * gradients.values; i++)
            gradients.pinned[i] = sqrtf(1.0f + 1.0f / 512);
        for (uint32_t s = 0; s < SLOTS; s++) {
            gradients.pinned[s * gradients.values + FIRST_STATED] = NAN;
            gradients.pinned[s * gradients.values + FIRST_STATED + 1] = INFINITY;
            gradients.pinned[s * gradients.values + FIRST_STATED + 2] = 0.0f;
        }
        kernel_send_again(&gradients);
        const size_t size = SLOTS * STATED * sizeof(uint16_t);
        fedge_cohort_step p = {.optimizer = FEDGE_COHORT_ADAM,
                               .beta1 = 0.5f,
                               .beta2 = 0.75f,
                               .epsilon = 1e-8f,
                               .values = values.gpu,
                               .start = start.gpu,
                               .gradients = gradients.gpu,
                               .states = {kernel_allocate(size), kernel_allocate(size)},
                               .states_stride = STATED,
                               .stride = values.values,
                               .num_values = (uint32_t)values.values,
                               .first = FIRST_STATED,
                               .count = STATED,
                               .states_bf16 = 1,
                               .rounding = (uint32_t)FEDGE_PURPOSE_ROUNDING << 16};
        fedge_cohort_tally *tallies = kernel_allocate(SLOTS * sizeof(*tallies));
        uint16_t *pinned[2] = {kernel_pin(size), kernel_pin(size)};
        kernel_must(fedge_cohort_launch_begin(&kernel_shape, &p, tallies));
        kernel_must(fedge_cohort_launch_step(&kernel_shape, &p));
        for (int k = 0; k < 2; k++) {
            kernel_must(cudaMemcpyAsync(pinned[k], p.states[k], size, cudaMemcpyDeviceToHost,
                                        kernel_shape.stream));
        }
        kernel_fetch(&values);
        check_states((const uint16_t *[]){pinned[0], pinned[1]});
        for (int k = 0; k < 2; k++) {
            kernel_must(cudaFree(p.states[k]));
            kernel_must(cudaFreeHost(pinned[k]));
        }
        kernel_must(cudaFree(tallies));
        kernel_drop(&values);
        kernel_drop(&gradients);
        kernel_drop(&start);
        kernel_end();
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

static void rectifiers_keep_what_is_not_a_number(void **state)
{
    (void)state;
    kernel_begin(1);
    const uint32_t n = 300;
    y = kernel_fill(kernel_shape.batch * n);
    dy = kernel_fill(kernel_shape.batch * n);
    y.pinned[0] = NAN;
    kernel_send(y.gpu, y.pinned, sizeof(float));
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
    kernel_must(fedge_cohort_launch_activation(&kernel_shape, &relu));
    kernel_must(fedge_cohort_launch_activation_backward(&kernel_shape, &relu));
    kernel_fetch(&y);
    kernel_fetch(&dy);
    assert_true(kernel_counts[0] == 0 || isnan(y.pinned[0]));
    for (uint32_t s = 0; s < SLOTS; s++) {
        for (size_t i = s == 0; i < kernel_counts[s] * n; i++) {
            const size_t at = s * y.values + i;
            assert_true(y.pinned[at] == (before[at] < 0.0f ? 0.0f : before[at]));
            assert_true(dy.pinned[at] == (before[at] > 0.0f ? slope[at] : 0.0f));
        }
    }
    free(before);
    free(slope);
    kernel_drop(&y);
    kernel_drop(&dy);
    kernel_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maximum_pools_are_exact),
        cmocka_unit_test(average_pools_are_exact),
        cmocka_unit_test(adaptive_pools_are_exact),
        cmocka_unit_test(one_place_and_means_of_an_axis_are_exact),
        cmocka_unit_test(embeddings_are_exact),
        cmocka_unit_test(additions_are_exact),
        cmocka_unit_test(shares_are_exact),
        cmocka_unit_test(states_in_bf16_are_rounded_by_chance),
        cmocka_unit_test(rectifiers_keep_what_is_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
