#include "edge/train/kernels/half.h"

#include <stdbool.h>

#include "edge/core/os.h"

void fedge_half_from_floats(fedge_storage storage, const float *from, size_t n, uint16_t *to)
{
    if (storage == FEDGE_STORAGE_BF16) {
        for (size_t i = 0; i < n; i++)
            to[i] = fedge_bf16_from_float(from[i]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float x = from[i];
        const bool large = (x > 65504.0f || x < -65504.0f) && x - x == 0.0f;
        to[i] = fedge_f16_from_float(!large ? x : x > 0.0f ? 65504.0f : -65504.0f);
    }
}

void fedge_half_to_floats(fedge_storage storage, const uint16_t *from, size_t n, float *to)
{
    if (storage == FEDGE_STORAGE_BF16) {
        for (size_t i = 0; i < n; i++)
            to[i] = fedge_bf16_to_float(from[i]);
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = fedge_f16_to_float(from[i]);
}

typedef struct panel {
    const fedge_gemm *args;
    size_t k, depth, j, columns; /* the panel's first row of b, rows, first column and columns */
    const float *b; /* (depth, FEDGE_BF16_COLUMNS), rounded, zeros after the last column */
    bool add;       /* c += instead of c = */
} panel;

static void pack_panel(const panel *at, float *pack)
{
    const fedge_gemm *args = at->args;
    for (size_t j = 0; j < FEDGE_BF16_COLUMNS; j++) {
        const size_t column = j < at->columns ? fedge_gemm_b_column(args, at->j + j) : 0;
        for (size_t k = 0; k < at->depth; k++) {
            pack[k * FEDGE_BF16_COLUMNS + j] =
                j < at->columns
                    ? fedge_bf16_operand(args->b[column + fedge_gemm_b_row(args, at->k + k)])
                    : 0.0f;
        }
    }
}

static void add_products(float acc[FEDGE_BF16_COLUMNS], float a, const float *b)
{
    const float rounded = fedge_bf16_operand(a);
    for (size_t j = 0; j < FEDGE_BF16_COLUMNS; j++)
        acc[j] += rounded * b[j];
}

static void row_of_products(const panel *at, size_t row)
{
    const fedge_gemm *args = at->args;
    const float *a = args->a + row * args->a_row;
    float *c = args->c + row * args->c_row;
    float acc[FEDGE_BF16_COLUMNS] = {0};
    for (size_t k = 0; k < at->depth; k += 2) {
        const float *b = at->b + k * FEDGE_BF16_COLUMNS;
        if (k + 1 < at->depth)
            add_products(acc, a[fedge_gemm_a_column(args, at->k + k + 1)], b + FEDGE_BF16_COLUMNS);
        add_products(acc, a[fedge_gemm_a_column(args, at->k + k)], b);
    }
    for (size_t j = 0; j < at->columns; j++) {
        float *to = c + fedge_gemm_c_column(args, at->j + j);
        *to = at->add ? *to + acc[j] : acc[j];
    }
}

void fedge_bf16_gemm_portable(const fedge_gemm *args, float *pack)
{
    const bool begins = args->k == 0 || args->start;
    for (size_t i = 0; begins && !args->accumulate && i < args->m; i++) {
        for (size_t j = 0; j < args->n; j++) {
            args->c[i * args->c_row + fedge_gemm_c_column(args, j)] =
                !args->start ? 0.0f : args->start[j];
        }
    }
    for (size_t k = 0; k < args->k; k += FEDGE_BF16_DEPTH) {
        const size_t depth = args->k - k < FEDGE_BF16_DEPTH ? args->k - k : FEDGE_BF16_DEPTH;
        for (size_t j = 0; j < args->n; j += FEDGE_BF16_COLUMNS) {
            const size_t left = args->n - j;
            const panel at = {.args = args,
                              .k = k,
                              .depth = depth,
                              .j = j,
                              .columns = left < FEDGE_BF16_COLUMNS ? left : FEDGE_BF16_COLUMNS,
                              .b = pack,
                              .add = args->accumulate || begins || k > 0};
            pack_panel(&at, pack);
            for (size_t i = 0; i < args->m; i++)
                row_of_products(&at, i);
        }
    }
}

fedge_kernels fedge_kernels_in_bf16(const fedge_kernels *table, unsigned features)
{
    fedge_kernels in_bf16 = *table;
    in_bf16.gemm = fedge_bf16_gemm_portable;
    in_bf16.gemm_pack = FEDGE_BF16_PORTABLE_PACK;
    in_bf16.in_bf16 = "bf16 without dot products";
#if defined(FEDGE_HAVE_AVX512BF16)
    const unsigned needs = FEDGE_CPU_AVX512 | FEDGE_CPU_AVX512BF16;
    if ((features & needs) == needs) {
        in_bf16.gemm = fedge_bf16_gemm_avx512;
        in_bf16.gemm_pack = FEDGE_BF16_AVX512_PACK;
        in_bf16.in_bf16 = "bf16";
    }
#else
    (void)features;
#endif
    return in_bf16;
}
