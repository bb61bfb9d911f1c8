#include "edge/train/layers/recurrent.h"

#include <string.h>

/* Rows of a and b, and columns of a, that outer products process at a time: both and that part of
 * the sums stay in the second-level cache. */
#define OUTER_ROWS ((size_t)128)
#define OUTER_COLUMNS ((size_t)512)

bool fedge_factor_copies(const fedge_kernels *kernels)
{
    /* The scalar kernels gain nothing from panels, and bf16 products pack their operands anyway. */
    return kernels->lanes > 1 && !kernels->in_bf16;
}

uint64_t fedge_factor_size(const fedge_kernels *kernels, uint64_t k, uint64_t n)
{
    const uint64_t wide = kernels->packed_columns;
    return fedge_factor_copies(kernels) ? (n + wide - 1) / wide * wide * k : 0;
}

/* Copies columns from j on of w to their panel. */
static void copy_panel(const fedge_kernels *kernels, const float *w, bool transposed, size_t j,
                       size_t k, size_t n, float *panel)
{
    const size_t wide = kernels->packed_columns, columns = n - j < wide ? n - j : wide;
    if (transposed)
        kernels->transpose(columns, k, w + j * k, k, panel, wide);
    else
        kernels->copy_rows(k, columns, w + j, n, 0.0f, panel, wide);
    for (size_t i = 0; columns < wide && i < k; i++)
        memset(panel + i * wide + columns, 0, (wide - columns) * sizeof(*panel));
}

/* True if a panel would be at least half empty: dot products then read a transposed copy. */
static bool prefers_dots(const fedge_kernels *kernels, size_t k, size_t n)
{
    return 2 * n <= kernels->packed_columns && k >= 8 * kernels->lanes;
}

fedge_factor fedge_factor_make(const fedge_kernels *kernels, const float *w, bool transposed,
                               size_t k, size_t n, float *buffer)
{
    const fedge_factor in_place = {
        .b = w, .k = k, .n = n, .b_row = transposed ? 1 : n, .b_column = transposed ? k : 1};
    if (!fedge_factor_copies(kernels))
        return in_place;
    if (prefers_dots(kernels, k, n)) {
        for (size_t i = 0; !transposed && i < k * n; i++)
            buffer[i % n * k + i / n] = w[i];
        return (fedge_factor){
            .b = transposed ? w : buffer, .k = k, .n = n, .b_row = 1, .b_column = k};
    }
    for (size_t j = 0; j < n; j += kernels->packed_columns)
        copy_panel(kernels, w, transposed, j, k, n, buffer + j * k);
    return (fedge_factor){.b = buffer, .k = k, .n = n, .panels = true};
}

/* c (m, n) = start + a (m, k) · b, with strides of rows a_row and c_row. */
static void multiply(const fedge_layer_run *run, size_t m, const float *a, size_t a_row,
                     const fedge_factor *b, const float *start, float *c, size_t c_row)
{
    if (b->panels) {
        run->kernels->panels(&(fedge_panels){.m = m,
                                             .n = b->n,
                                             .k = b->k,
                                             .a = a,
                                             .a_row = a_row,
                                             .b = b->b,
                                             .start = start,
                                             .c = c,
                                             .c_row = c_row});
        return;
    }
    for (size_t i = 0; start && i < m; i++)
        memcpy(c + i * c_row, start, b->n * sizeof(*c));
    run->kernels->gemm(&(fedge_gemm){.m = m,
                                     .n = b->n,
                                     .k = b->k,
                                     .a = a,
                                     .a_row = a_row,
                                     .a_column = 1,
                                     .b = b->b,
                                     .b_row = b->b_row,
                                     .b_column = b->b_column,
                                     .c = c,
                                     .c_row = c_row,
                                     .accumulate = true},
                       run->gemm_pack);
}

/* True if all rows of the range have one stride. */
static bool is_contiguous(const fedge_step_range *range, fedge_strides at)
{
    return range->steps == 1 || at.step == range->batch * at.example;
}

void fedge_sequence_multiply(const fedge_layer_run *run, const fedge_step_range *range,
                             const float *a, fedge_strides a_at, const fedge_factor *b,
                             const float *start, float *c, fedge_strides c_at)
{
    a += range->first * a_at.step;
    c += range->first * c_at.step;
    if (is_contiguous(range, a_at) && is_contiguous(range, c_at)) {
        multiply(run, range->steps * range->batch, a, a_at.example, b, start, c, c_at.example);
        /* One product per step or per example, whichever makes fewer: each reads the factor. */
    } else if (range->batch >= range->steps) {
        for (size_t t = 0; t < range->steps; t++) {
            multiply(run, range->batch, a + t * a_at.step, a_at.example, b, start,
                     c + t * c_at.step, c_at.example);
        }
    } else {
        for (size_t e = 0; e < range->batch; e++) {
            multiply(run, range->steps, a + e * a_at.example, a_at.step, b, start,
                     c + e * c_at.example, c_at.step);
        }
    }
}

/* dw += aᵀ · b over all steps of example [e], without copying. */
static void outer_in_place(const fedge_layer_run *run, size_t steps, size_t e,
                           const fedge_outer_rows *rows, const fedge_outer *product)
{
    const size_t of_a = product->shift == -1, of_b = product->shift == 1;
    const size_t count = steps - of_a - of_b;
    if (count == 0)
        return;
    run->kernels->gemm(
        &(fedge_gemm){.m = rows->n,
                      .n = product->k,
                      .k = count,
                      .a = rows->a + of_a * rows->at.step + e * rows->at.example,
                      .a_row = 1,
                      .a_column = rows->at.step,
                      .b = product->b + of_b * product->b_at.step + e * product->b_at.example,
                      .b_row = product->b_at.step,
                      .b_column = 1,
                      .c = product->dw,
                      .c_row = product->k,
                      .accumulate = true},
        run->gemm_pack);
}

/* Steps that outer products process at a time. */
static size_t outer_steps(size_t batch)
{
    return batch < OUTER_ROWS ? OUTER_ROWS / batch : 1;
}

uint64_t fedge_outer_size(const fedge_kernels *kernels, uint64_t batch, uint64_t n, uint64_t k,
                          uint64_t k2)
{
    /* Not outer_steps(batch) * batch: ranges of a smaller batch may have more rows. */
    const uint64_t rows = batch < OUTER_ROWS ? OUTER_ROWS : batch, lanes = kernels->lanes;
    const uint64_t columns = n < OUTER_COLUMNS ? (n + lanes - 1) / lanes * lanes : OUTER_COLUMNS;
    return fedge_factor_copies(kernels) ? rows * columns + fedge_factor_size(kernels, rows, k) +
                                              fedge_factor_size(kernels, rows, k2)
                                        : 0;
}

/* Copies rows of a range to strips of [wide] columns, each (rows, wide), the last padded with
 * zeros. Only b, b_at, k and shift of [rows] are used. */
static void copy_to_strips(const fedge_layer_run *run, const fedge_step_range *range,
                           const fedge_outer *rows, size_t wide, float *strips)
{
    const size_t steps = run->in[0].dims[0];
    const size_t count = range->steps * range->batch;
    for (size_t j = 0; j < rows->k; j += wide, strips += count * wide) {
        const size_t columns = rows->k - j < wide ? rows->k - j : wide;
        if (columns < wide)
            memset(strips, 0, count * wide * sizeof(*strips));
        for (size_t t = 0; t < range->steps; t++) {
            const size_t step =
                range->first + t + (size_t)rows->shift; /* step −1 wraps to the largest number */
            float *to = strips + t * range->batch * wide;
            if (step >= steps) {
                memset(to, 0, range->batch * wide * sizeof(*to));
                continue;
            }
            const float *from = rows->b + step * rows->b_at.step + j;
            run->kernels->copy_rows(range->batch, columns, from, rows->b_at.example, 0.0f, to,
                                    wide);
        }
    }
}

/* All products with columns [at, at + n) of a, over a range of at most OUTER_ROWS rows or of one
 * step. */
static void outer_part(const fedge_layer_run *run, const fedge_step_range *range,
                       const fedge_outer_rows *from, size_t at, size_t n,
                       const fedge_outer *products, size_t count, float *buffer)
{
    const size_t rows = range->steps * range->batch, lanes = run->kernels->lanes;
    const float *blocks = buffer;
    fedge_panels parts[FEDGE_OUTER_PRODUCTS];
    const fedge_outer columns = {.b = from->a + at, .b_at = from->at, .k = n};
    copy_to_strips(run, range, &columns, lanes, buffer);
    buffer += (n + lanes - 1) / lanes * lanes * rows;
    for (size_t i = 0; i < count; i++) {
        copy_to_strips(run, range, &products[i], run->kernels->packed_columns, buffer);
        parts[i] = (fedge_panels){.m = n,
                                  .n = products[i].k,
                                  .k = rows,
                                  .a = blocks,
                                  .a_block = rows * lanes,
                                  .b = buffer,
                                  .c = products[i].dw + at * products[i].k,
                                  .c_row = products[i].k,
                                  .next = i + 1 < count ? &parts[i + 1] : NULL};
        buffer += fedge_factor_size(run->kernels, rows, products[i].k);
    }
    run->kernels->panels(parts);
}

void fedge_sequence_outer(const fedge_layer_run *run, size_t steps, size_t batch,
                          const fedge_outer_rows *rows, const fedge_outer *products, size_t count,
                          float *buffer)
{
    const size_t each = outer_steps(batch);
    if (!fedge_factor_copies(run->kernels)) {
        for (size_t i = 0; i < count; i++) {
            for (size_t e = 0; e < batch; e++)
                outer_in_place(run, steps, e, rows, &products[i]);
        }
        return;
    }
    for (size_t at = 0; count > 0 && at < rows->n; at += OUTER_COLUMNS) {
        for (size_t t = 0; t < steps; t += each) {
            const size_t left = steps - t;
            const fedge_step_range some = {t, left < each ? left : each, batch};
            const size_t columns = rows->n - at < OUTER_COLUMNS ? rows->n - at : OUTER_COLUMNS;
            outer_part(run, &some, rows, at, columns, products, count, buffer);
        }
    }
}
