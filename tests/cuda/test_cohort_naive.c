/* The fast kernels of cohort training beside their naive versions (kernels/naive.h): products of
 * small whole numbers and integers exactly, the others as near as other orders of adding allow. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "edge/train/cuda/kernels/naive.h"
#include "tests/cuda/kernel_arrays.h"

#define ROUNDING 1e-4     /* of values of up to about 10, and sums of up to 24 terms */
#define SUM_ROUNDING 1e-3 /* of sums of up to 700 terms */

/* An array that both kernels write. */
typedef struct output {
    kernel_array *array;
    size_t example_values; /* 0: the array is written whole, in slots that have examples */
    double allowed;        /* 0: exactly */
    const char *name;
} output;
enum { MAX_OUTPUTS = 6 };
#define COUNT(table) (sizeof(table) / sizeof(*(table)))

/* After the fast kernel: saves what it wrote, and restores what was there. After the naive one:
 * compares. */
static void take(bool naive, const output *outputs, size_t n)
{
    static float fast[MAX_OUTPUTS][SLOTS * MOST], before[SLOTS * MOST];
    static double expected[MOST], allowed[MOST];
    assert_true(n <= MAX_OUTPUTS);
    for (size_t o = 0; o < n; o++) {
        kernel_array *array = outputs[o].array;
        const size_t size = SLOTS * array->values * sizeof(float);
        assert_true(array->values <= MOST);
        memcpy(before, array->pinned, size);
        kernel_fetch(array);
        if (!naive) {
            memcpy(fast[o], array->pinned, size);
            memcpy(array->pinned, before, size);
            kernel_send_again(array);
        }
        for (uint32_t s = 0; naive && s < SLOTS; s++) {
            const size_t values = outputs[o].example_values > 0
                                      ? kernel_counts[s] * outputs[o].example_values
                                      : (kernel_counts[s] > 0 ? array->values : 0);
            for (size_t i = 0; i < values; i++) {
                expected[i] = (double)fast[o][s * array->values + i];
                allowed[i] = outputs[o].allowed;
            }
            kernel_near(array, s, expected, allowed, values, outputs[o].name);
        }
    }
}

static void drop_arrays(kernel_array *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        kernel_drop(all[i]);
}
#define DROP(...)                                                                                  \
    drop_arrays((kernel_array *const[]){__VA_ARGS__},                                              \
                sizeof((kernel_array *const[]){__VA_ARGS__}) / sizeof(kernel_array *))

/* ---- products -------------------------------------------------------------------------------- */

static void linear_equals_the_naive_one(uint64_t seed)
{
    fedge_cohort_linear t = {.in = 1 + kernel_below(80),
                             .out = 1 + kernel_below(80),
                             .steps = 1 + kernel_below(3),
                             .relu = seed % 2};
    const size_t in = (size_t)t.in * t.steps, out = (size_t)t.out * t.steps;
    kernel_product product = kernel_fill_product(&t, in, out, (size_t)t.in * t.out, kernel_fill);
    const output outputs[] = {{&product.y, out, 0.0, "y"},
                              {&product.dx, in, 0.0, "dx"},
                              {&product.gradients, 0, 0.0, "gradients"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must(
            (naive ? fedge_naive_launch_linear : fedge_cohort_launch_linear)(&kernel_shape, &t));
        kernel_must((naive ? fedge_naive_launch_linear_backward
                           : fedge_cohort_launch_linear_backward)(&kernel_shape, &t));
        take(naive, outputs, COUNT(outputs));
    }
    kernel_drop_product(&product);
}

/* One group is conv2d.cu's, several are grouped.cu's. */
static void conv2d_equals_the_naive_one(uint64_t seed)
{
    const bool grouped = seed % 2;
    fedge_cohort_conv2d c = {.groups = grouped ? 1 + kernel_below(4) : 1,
                             .tensors = {.relu = seed / 2 % 2}};
    fedge_cohort_linear *t = &c.tensors;
    t->in = c.groups * (1 + kernel_below(3));
    t->out = c.groups * (1 + kernel_below(4));
    for (int axis = 0; axis < 2; axis++) {
        c.kernel[axis] = 1 + kernel_below(3);
        c.stride[axis] = 1 + kernel_below(2);
        c.padding[axis] = kernel_below(2);
        c.dilation[axis] = 1 + kernel_below(2);
        c.in_size[axis] = 5 + kernel_below(4);
        c.out_size[axis] =
            (c.in_size[axis] + 2 * c.padding[axis] - c.dilation[axis] * (c.kernel[axis] - 1) - 1) /
                c.stride[axis] +
            1;
    }
    const size_t in = (size_t)t->in * c.in_size[0] * c.in_size[1];
    const size_t out = (size_t)t->out * c.out_size[0] * c.out_size[1];
    kernel_product product = kernel_fill_product(
        t, in, out, (size_t)t->out * (t->in / c.groups) * c.kernel[0] * c.kernel[1], kernel_fill);
    const output outputs[] = {{&product.y, out, 0.0, "y"},
                              {&product.dx, in, 0.0, "dx"},
                              {&product.gradients, 0, 0.0, "gradients"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must((naive     ? fedge_naive_launch_conv2d
                     : grouped ? fedge_cohort_launch_grouped
                               : fedge_cohort_launch_conv2d)(&kernel_shape, &c));
        kernel_must((naive     ? fedge_naive_launch_conv2d_backward
                     : grouped ? fedge_cohort_launch_grouped_backward
                               : fedge_cohort_launch_conv2d_backward)(&kernel_shape, &c));
        take(naive, outputs, COUNT(outputs));
    }
    kernel_drop_product(&product);
}

/* ---- norms, attention and recurrences -------------------------------------------------------- */

static void norm_is_near_the_naive_one(uint64_t seed)
{
    (void)seed;
    const uint32_t groups = 1 + kernel_below(3);
    fedge_cohort_norm p = {.rows = groups * (1 + kernel_below(2)),
                           .groups = groups,
                           .channels = 2 + kernel_below(8),
                           .spatial = 1 + kernel_below(3),
                           .eps = 0.5f};
    const size_t values = (size_t)p.rows * p.channels * p.spatial;
    kernel_array x = kernel_fill(kernel_shape.batch * values), y = kernel_fill(x.values);
    kernel_array dy = kernel_fill(x.values), dx = kernel_fill(x.values);
    const size_t weights = (size_t)p.groups * p.channels;
    kernel_array weight = kernel_fill(2 * weights), gradients = kernel_fill(2 * weights);
    kernel_array moments = kernel_fill(2 * (size_t)kernel_shape.batch * p.rows);
    p.weight = (fedge_cohort_weights){weight.gpu, weight.values};
    p.bias = (fedge_cohort_weights){weight.gpu + weights, weight.values};
    p.dweight = gradients.gpu;
    p.dbias = gradients.gpu + weights;
    p.gradient_stride = gradients.values;
    p.x = x.gpu;
    p.y = y.gpu;
    p.moments = moments.gpu;
    p.dy = dy.gpu;
    p.dx = dx.gpu;
    const output outputs[] = {{&y, values, ROUNDING, "y"},
                              {&dx, values, ROUNDING, "dx"},
                              {&moments, (size_t)2 * p.rows, ROUNDING, "moments"},
                              {&gradients, 0, SUM_ROUNDING, "gradients"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must(
            (naive ? fedge_naive_launch_norm : fedge_cohort_launch_norm)(&kernel_shape, &p));
        kernel_must((naive ? fedge_naive_launch_norm_backward
                           : fedge_cohort_launch_norm_backward)(&kernel_shape, &p));
        take(naive, outputs, COUNT(outputs));
    }
    DROP(&x, &y, &dy, &dx, &weight, &gradients, &moments);
}

/* By the batch's statistics, which then move the running ones, or by the running ones. */
static void batchnorm_is_near_the_naive_one(uint64_t seed)
{
    fedge_cohort_batchnorm p = {.channels = 1 + kernel_below(6),
                                .spatial = 2 + kernel_below(30),
                                .by_batch = seed % 3 > 0,
                                .momentum = 0.25f,
                                .eps = 0.5f};
    const size_t values = (size_t)p.channels * p.spatial;
    kernel_array x = kernel_fill(kernel_shape.batch * values), y = kernel_fill(x.values);
    kernel_array dy = kernel_fill(x.values), dx = kernel_fill(x.values);
    kernel_array weight = kernel_fill(2 * p.channels), gradients = kernel_fill(2 * p.channels);
    kernel_array running = kernel_fill(2 * p.channels), moments = kernel_fill(2 * p.channels);
    /* Variances are not negative. */
    for (size_t i = 0; i < SLOTS * running.values; i++)
        running.pinned[i] = fabsf(running.pinned[i]);
    kernel_send_again(&running);
    p.weight = (fedge_cohort_weights){weight.gpu, weight.values};
    p.bias = (fedge_cohort_weights){weight.gpu + p.channels, weight.values};
    p.running = (fedge_cohort_weights){running.gpu, running.values};
    p.tracked = p.by_batch ? running.gpu : NULL;
    p.x = x.gpu;
    p.y = y.gpu;
    p.moments = moments.gpu;
    p.dy = dy.gpu;
    p.dx = dx.gpu;
    p.dweight = gradients.gpu;
    p.dbias = gradients.gpu + p.channels;
    p.gradient_stride = gradients.values;
    const output outputs[] = {{&y, values, ROUNDING, "y"},
                              {&dx, values, ROUNDING, "dx"},
                              {&moments, 0, ROUNDING, "moments"},
                              {&running, 0, ROUNDING, "running"},
                              {&gradients, 0, SUM_ROUNDING, "gradients"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must((naive ? fedge_naive_launch_batchnorm
                           : fedge_cohort_launch_batchnorm)(&kernel_shape, &p));
        kernel_must((naive ? fedge_naive_launch_batchnorm_backward
                           : fedge_cohort_launch_batchnorm_backward)(&kernel_shape, &p));
        take(naive, outputs, COUNT(outputs));
    }
    DROP(&x, &y, &dy, &dx, &weight, &gradients, &running, &moments);
}

static void attention_is_near_the_naive_one(uint64_t seed)
{
    fedge_cohort_attention a = {
        .steps = 1 + kernel_below(5), .heads = 1 + kernel_below(3), .causal = seed % 2};
    a.dim = a.heads * (1 + kernel_below(3));
    const size_t dims = (size_t)a.steps * a.dim, shares = (size_t)a.heads * a.steps * a.steps;
    kernel_array qkv = kernel_fill(3 * kernel_shape.batch * dims), dqkv = kernel_fill(qkv.values);
    kernel_array p = kernel_fill(kernel_shape.batch * shares), ds = kernel_fill(p.values);
    kernel_array context = kernel_fill(kernel_shape.batch * dims);
    kernel_array dcontext = kernel_fill(context.values);
    a.qkv = qkv.gpu;
    a.att = p.gpu;
    a.context = context.gpu;
    a.dcontext = dcontext.gpu;
    a.dscores = ds.gpu;
    a.dqkv = dqkv.gpu;
    const output outputs[] = {{&context, dims, ROUNDING, "context"},
                              {&dqkv, 3 * dims, ROUNDING, "dqkv"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must((naive ? fedge_naive_launch_attention
                           : fedge_cohort_launch_attention)(&kernel_shape, &a));
        kernel_must((naive ? fedge_naive_launch_attention_backward
                           : fedge_cohort_launch_attention_backward)(&kernel_shape, &a));
        take(naive, outputs, COUNT(outputs));
    }
    DROP(&qkv, &dqkv, &p, &ds, &context, &dcontext);
}

/* LSTM and GRU, in both directions. */
static void recurrent_is_near_the_naive_one(uint64_t seed)
{
    fedge_cohort_recurrent c = {.is_gru = seed % 2,
                                .reverse = seed / 2 % 2,
                                .steps = 1 + kernel_below(4),
                                .hidden = 1 + kernel_below(40)};
    const uint32_t units = (c.is_gru ? 3 : 4) * c.hidden;
    const size_t row = c.hidden, examples = kernel_shape.batch, rows = examples * c.steps;
    kernel_array gates = kernel_fill_fractions(rows * units);
    kernel_array dstate = kernel_fill_fractions(rows * units);
    kernel_array weight = kernel_fill_fractions((size_t)units * (c.hidden + 1));
    kernel_array cell = kernel_fill(rows * row), before = kernel_fill(rows * row);
    kernel_array h = kernel_fill(rows * (row + 1)), dy = kernel_fill_fractions(h.values);
    kernel_array dh = kernel_fill(examples * row), dcell = kernel_fill(examples * row);
    c.weight = (fedge_cohort_weights){weight.gpu, weight.values};
    c.bias = (fedge_cohort_weights){weight.gpu + (size_t)units * row, weight.values};
    c.h_row = c.hidden + 1;
    c.gates = gates.gpu;
    c.cell = cell.gpu;
    c.before = before.gpu;
    c.h = h.gpu;
    c.dy = dy.gpu;
    c.dstate = c.is_gru ? dstate.gpu : gates.gpu;
    c.dh = dh.gpu;
    c.dcell = dcell.gpu;
    const output outputs[] = {{&h, (row + 1) * c.steps, ROUNDING, "h"},
                              {&cell, row * c.steps, ROUNDING, "cell"},
                              {&gates, (size_t)units * c.steps, ROUNDING, "gates"},
                              {&dstate, (size_t)units * c.steps, ROUNDING, "dstate"}};
    for (int naive = 0; naive < 2; naive++) {
        kernel_must((naive ? fedge_naive_launch_recurrent
                           : fedge_cohort_launch_recurrent)(&kernel_shape, &c));
        kernel_must((naive ? fedge_naive_launch_recurrent_backward
                           : fedge_cohort_launch_recurrent_backward)(&kernel_shape, &c));
        take(naive, outputs, COUNT(outputs));
    }
    DROP(&gates, &dstate, &weight, &cell, &before, &h, &dy, &dh, &dcell);
}

/* ---- losses, norms of gradients and sums of changes ------------------------------------------ */

/* Copies [size] bytes from the GPU to pinned memory. */
static void fetch_bytes(void *to, const void *from, size_t size)
{
    kernel_must(cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToHost, kernel_shape.stream));
    kernel_must(cudaStreamSynchronize(kernel_shape.stream));
}

static void *send_copy(const void *from, size_t size)
{
    void *to = kernel_allocate(size);
    kernel_send(to, from, size);
    return to;
}

static void loss_is_near_the_naive_one(uint64_t seed)
{
    fedge_cohort_loss l = {.function = (uint32_t)(seed % (FEDGE_COHORT_SMOOTH_L1 + 1)),
                           .argument = seed % 4 ? 0.25f : 0.0f};
    l.classes = (l.function == FEDGE_COHORT_CROSS_ENTROPY ? 2 : 1) + kernel_below(5);
    const size_t examples = (size_t)SLOTS * kernel_shape.batch, size = examples * sizeof(int32_t);
    kernel_array y = kernel_fill(kernel_shape.batch * l.classes), dy = kernel_fill(y.values);
    const output outputs[] = {{&dy, l.classes, 1e-6, "dy"}};
    int32_t *labels = kernel_pin(size), *predicted[] = {kernel_pin(size), kernel_pin(size)};
    uint32_t *indices = kernel_pin(size);
    fedge_cohort_tally *tallies[] = {kernel_pin(SLOTS * sizeof(*tallies[0])),
                                     kernel_pin(SLOTS * sizeof(*tallies[0]))};
    for (size_t i = 0; i < examples; i++) {
        labels[i] = (int32_t)kernel_below(l.classes + (l.classes == 1));
        indices[i] = kernel_below((uint32_t)examples);
    }
    void *const gpu[] = {send_copy(labels, size), send_copy(indices, size), kernel_allocate(size),
                         kernel_allocate(SLOTS * sizeof(*tallies[0]))};
    l.sets[0].labels = gpu[0];
    l.indices = gpu[1];
    l.predicted = gpu[2];
    l.tallies = gpu[3];
    l.y = y.gpu;
    l.dy = dy.gpu;
    for (int naive = 0; naive < 2; naive++) {
        kernel_must(cudaMemsetAsync(gpu[3], 0, SLOTS * sizeof(*tallies[0]), kernel_shape.stream));
        kernel_must(cudaMemsetAsync(gpu[2], 0, size, kernel_shape.stream));
        kernel_must(
            (naive ? fedge_naive_launch_loss : fedge_cohort_launch_loss)(&kernel_shape, &l));
        fetch_bytes(tallies[naive], gpu[3], SLOTS * sizeof(*tallies[0]));
        fetch_bytes(predicted[naive], gpu[2], size);
        take(naive, outputs, COUNT(outputs));
    }
    assert_memory_equal(predicted[0], predicted[1], size);
    for (uint32_t s = 0; s < SLOTS; s++) {
        const double loss = tallies[0][s].loss_sum;
        assert_true(fabs(loss - tallies[1][s].loss_sum) <= 1e-5 * (1.0 + fabs(loss)));
        assert_int_equal(tallies[0][s].correct, tallies[1][s].correct);
        assert_int_equal(tallies[0][s].bad_step, 0);
    }
    for (size_t i = 0; i < COUNT(gpu); i++)
        kernel_must(cudaFree(gpu[i]));
    void *const pinned[] = {labels, indices, predicted[0], predicted[1], tallies[0], tallies[1]};
    for (size_t i = 0; i < COUNT(pinned); i++)
        kernel_must(cudaFreeHost(pinned[i]));
    DROP(&y, &dy);
}

/* Two ranges of the values, the second added to the first. */
static void squares_are_near_the_naive_ones(uint64_t seed)
{
    const uint32_t n = 2 + kernel_below(seed % 4 ? 600 : MOST - 2), split = kernel_below(n);
    const size_t size = sizeof(double[SLOTS][FEDGE_COHORT_NORM_PARTS]);
    double *squares[] = {kernel_pin(size), kernel_pin(size)};
    kernel_array start = kernel_fill_fractions(n), values = kernel_fill_fractions(n);
    kernel_array gradients = kernel_fill_fractions(n);
    fedge_cohort_step p = {.proximal_mu = seed % 2 ? 0.5f : 0.0f, .stride = n, .num_values = n};
    p.start = start.gpu;
    p.values = values.gpu;
    p.gradients = gradients.gpu;
    p.squares = kernel_allocate(size);
    for (int naive = 0; naive < 2; naive++) {
        kernel_must(cudaMemsetAsync(p.squares, 0, size, kernel_shape.stream));
        for (p.adds = 0; p.adds < 2; p.adds++) {
            p.first = p.adds ? split : 0;
            p.count = p.adds ? n - split : split;
            kernel_must((naive ? fedge_naive_launch_squares
                               : fedge_cohort_launch_squares)(&kernel_shape, &p));
        }
        fetch_bytes(squares[naive], p.squares, size);
    }
    for (uint32_t s = 0; s < SLOTS; s++) {
        double sums[2] = {0.0, 0.0};
        for (uint32_t i = 0; i < 2 * FEDGE_COHORT_NORM_PARTS; i++)
            sums[i % 2] += squares[i % 2][s * FEDGE_COHORT_NORM_PARTS + i / 2];
        assert_true(fabs(sums[0] - sums[1]) <= 1e-12 * sums[1]);
        assert_true(kernel_counts[s] > 0 ? sums[1] > 0.0 : sums[1] == 0.0);
    }
    kernel_must(cudaFree(p.squares));
    kernel_must(cudaFreeHost(squares[0]));
    kernel_must(cudaFreeHost(squares[1]));
    DROP(&start, &values, &gradients);
}

/* Chunks of both codecs, with bounds that cut some changes; now and then a value is not finite. */
static void sums_of_changes_equal_naive_ones(uint64_t seed)
{
    enum { MAX_CHUNKS = 4 };
    const uint32_t n = 1 + kernel_below(MAX_CHUNKS * FEDGE_COHORT_CHUNK);
    kernel_array start = kernel_fill_fractions(n), values = kernel_fill_fractions(n);
    const size_t size = n * sizeof(int64_t), chunk_size = sizeof(fedge_cohort_chunk[MAX_CHUNKS]);
    int64_t *sums[] = {kernel_pin(size), kernel_pin(size)};
    fedge_cohort_tally *tallies[] = {kernel_pin(sizeof(*tallies[0])),
                                     kernel_pin(sizeof(*tallies[0]))};
    fedge_cohort_chunk *chunks = kernel_pin(chunk_size);
    int64_t *gpu_sums = kernel_allocate(size);
    fedge_cohort_accumulate p = {.weight = 1 + kernel_below(1000), .num_values = n};
    for (; p.num_chunks * FEDGE_COHORT_CHUNK < n; p.num_chunks++) {
        const uint32_t first = p.num_chunks * FEDGE_COHORT_CHUNK;
        chunks[p.num_chunks] = (fedge_cohort_chunk){
            .sums = gpu_sums + first,
            .first = first,
            .count = (uint16_t)(n - first < FEDGE_COHORT_CHUNK ? n - first : FEDGE_COHORT_CHUNK),
            .bound_log2 = (int8_t)((int)kernel_below(24) - 12),
            .codec = kernel_below(2) ? FEDGE_COHORT_CODEC_INT8 : FEDGE_COHORT_CODEC_NONE};
    }
    if (seed % 4 == 0)
        values.pinned[kernel_below(n)] = kernel_below(2) ? INFINITY : NAN;
    kernel_send_again(&values);
    void *gpu_chunks = send_copy(chunks, chunk_size);
    p.chunks = gpu_chunks;
    p.tally = kernel_allocate(sizeof(*p.tally));
    p.values = values.gpu;
    p.start = start.gpu;
    for (int naive = 0; naive < 2; naive++) {
        kernel_must(cudaMemsetAsync(gpu_sums, 1, size, kernel_shape.stream));
        kernel_must(cudaMemsetAsync(p.tally, 0, sizeof(*p.tally), kernel_shape.stream));
        kernel_must((naive ? fedge_naive_launch_accumulate
                           : fedge_cohort_launch_accumulate)(&p, kernel_shape.stream));
        fetch_bytes(sums[naive], gpu_sums, size);
        fetch_bytes(tallies[naive], p.tally, sizeof(*p.tally));
    }
    assert_memory_equal(sums[0], sums[1], size);
    assert_int_equal(tallies[0]->clamped, tallies[1]->clamped);
    assert_int_equal(tallies[0]->bad_value, tallies[1]->bad_value);
    void *const gpu[] = {gpu_sums, gpu_chunks, p.tally};
    for (size_t i = 0; i < COUNT(gpu); i++)
        kernel_must(cudaFree(gpu[i]));
    void *const pinned[] = {chunks, sums[0], sums[1], tallies[0], tallies[1]};
    for (size_t i = 0; i < COUNT(pinned); i++)
        kernel_must(cudaFreeHost(pinned[i]));
    DROP(&start, &values);
}

typedef void (*check)(uint64_t seed);

static void run_seeds(void **state)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kernel_begin(seed);
        (*(check *)*state)(seed);
        kernel_end();
    }
}
#define CHECK(function)                                                                            \
    {                                                                                              \
#function, run_seeds, NULL, NULL, &(check)                                                 \
        {                                                                                          \
            function                                                                               \
        }                                                                                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECK(linear_equals_the_naive_one),     CHECK(conv2d_equals_the_naive_one),
        CHECK(norm_is_near_the_naive_one),      CHECK(batchnorm_is_near_the_naive_one),
        CHECK(attention_is_near_the_naive_one), CHECK(recurrent_is_near_the_naive_one),
        CHECK(loss_is_near_the_naive_one),      CHECK(squares_are_near_the_naive_ones),
        CHECK(sums_of_changes_equal_naive_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
