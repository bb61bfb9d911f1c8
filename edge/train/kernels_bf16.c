/* The portable product, and how a table takes bf16 on. */
#include "edge/train/kernels_bf16.h"

#include <string.h>

#include "edge/core/os.h"
#include "edge/train/half.h"

typedef struct panel {
    const float *a;
    size_t a_row, a_column;
    size_t depth, columns;
    const float *b; /* (depth, FEDGE_BF16_COLUMNS), rounded, zeros behind the last column */
    float *c;
    bool add; /* to what c holds */
} panel;

static void pack_panel(const fedge_gemm *args, size_t k0, size_t depth, size_t j0, size_t columns,
                       float *pack)
{
    const float *b = args->b + k0 * args->b_row + j0 * args->b_column;
    for (size_t k = 0; k < depth; k++) {
        for (size_t j = 0; j < FEDGE_BF16_COLUMNS; j++) {
            pack[k * FEDGE_BF16_COLUMNS + j] =
                j < columns ? fedge_bf16_operand(b[k * args->b_row + j * args->b_column]) : 0.0f;
        }
    }
}

static void add_products(float acc[FEDGE_BF16_COLUMNS], float a, const float *b)
{
    const float rounded = fedge_bf16_operand(a);
    for (size_t j = 0; j < FEDGE_BF16_COLUMNS; j++) {
        acc[j] += rounded * b[j];
    }
}

static void row_of_products(const panel *at)
{
    float acc[FEDGE_BF16_COLUMNS] = {0};
    for (size_t k = 0; k < at->depth; k += 2) {
        const float *b = at->b + k * FEDGE_BF16_COLUMNS;
        if (k + 1 < at->depth) {
            add_products(acc, at->a[(k + 1) * at->a_column], b + FEDGE_BF16_COLUMNS);
        }
        add_products(acc, at->a[k * at->a_column], b);
    }
    for (size_t j = 0; j < at->columns; j++) {
        at->c[j] = at->add ? at->c[j] + acc[j] : acc[j];
    }
}

void fedge_bf16_gemm_portable(const fedge_gemm *args, float *pack)
{
    for (size_t i = 0; args->k == 0 && !args->accumulate && i < args->m; i++) {
        memset(args->c + i * args->c_row, 0, args->n * sizeof *args->c);
    }
    for (size_t k = 0; k < args->k; k += FEDGE_BF16_DEPTH) {
        const size_t depth = args->k - k < FEDGE_BF16_DEPTH ? args->k - k : FEDGE_BF16_DEPTH;
        for (size_t j = 0; j < args->n; j += FEDGE_BF16_COLUMNS) {
            const size_t left = args->n - j;
            panel at = {.a = args->a + k * args->a_column,
                        .a_row = args->a_row,
                        .a_column = args->a_column,
                        .depth = depth,
                        .columns = left < FEDGE_BF16_COLUMNS ? left : FEDGE_BF16_COLUMNS,
                        .b = pack,
                        .c = args->c + j,
                        .add = args->accumulate || k > 0};
            pack_panel(args, k, depth, j, at.columns, pack);
            for (size_t i = 0; i < args->m; i++) {
                row_of_products(&at);
                at.a += at.a_row;
                at.c += args->c_row;
            }
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
