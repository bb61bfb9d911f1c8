#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/rows.h"
#include "aggregator/reduce/tile.h"
#include "edge/core/fixed.h"

#define ALIGNMENT 64
#define MIX 512 /* coordinates whose sums are computed at a time */
/* Padding between rows, which would otherwise compete for the same cache sets. */
#define APART FEDGE_TILE_APART

/* The memory of a thread. */
typedef struct tile_lane {
    int32_t **rows;       /* (num): rows as they are read */
    int32_t **mixed;      /* (num): mixed rows */
    int32_t **chosen;     /* (num): scratch for selected rows */
    int32_t *const *seen; /* [rows] or [mixed]: the rows that load has left */
    int64_t *sums;        /* (size) */
    fedge_tile_sum *dots; /* sums of pairs of num rows; NULL until the first dots */
} tile_lane;

typedef struct cpu_tiles {
    fedge_tile_config config;
    int32_t *values; /* rows of each thread, then with mixing its mixed rows */
    int32_t **lists; /* memory of the pointers in each thread's tile_lane */
    int64_t *sums;
    tile_lane *lanes;    /* (num_threads) */
    const uint32_t *far; /* NULL: rows are not mixed */
    uint32_t num_far, num_mixed;
} cpu_tiles;

/* ---- life ------------------------------------------------------------------------------------ */

static void cpu_close(void *state)
{
    cpu_tiles *self = state;
    if (!self)
        return;
    for (uint32_t t = 0; self->lanes && t < self->config.num_threads; t++)
        free(self->lanes[t].dots);
    free(self->lanes);
    free(self->values);
    free(self->lists);
    free(self->sums);
    free(self);
}

static void lay_out(cpu_tiles *self)
{
    const fedge_tile_config *config = &self->config;
    const size_t num = config->num, kinds = config->mixes ? 2 : 1, row = config->size + APART;
    for (uint32_t t = 0; t < config->num_threads; t++) {
        int32_t *values = self->values + t * kinds * num * row;
        int32_t **lists = self->lists + t * 3 * num;
        for (size_t i = 0; i < num; i++) {
            lists[i] = values + i * row;
            lists[num + i] = config->mixes ? values + (num + i) * row : NULL;
        }
        self->lanes[t] = (tile_lane){.rows = lists,
                                     .mixed = lists + num,
                                     .chosen = lists + 2 * num,
                                     .seen = lists,
                                     .sums = self->sums + t * config->size};
    }
}

static fedge_status cpu_open(void *hardware, const fedge_tile_config *config, void **state,
                             fedge_error *err)
{
    (void)hardware;
    const size_t threads = config->num_threads, num = config->num;
    const size_t rows = threads * num * (config->mixes ? 2 : 1);
    cpu_tiles *self = calloc(1, sizeof(*self));
    *state = NULL;
    if (self) {
        self->config = *config;
        self->values =
            aligned_alloc(ALIGNMENT, rows * (config->size + APART) * sizeof(*self->values));
        self->lists = malloc(threads * 3 * num * sizeof(*self->lists));
        self->sums = malloc(threads * config->size * sizeof(*self->sums));
        self->lanes = calloc(threads, sizeof(*self->lanes));
    }
    if (!self || !self->values || !self->lists || !self->sums || !self->lanes) {
        cpu_close(self);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u updates side by side",
                          (unsigned)config->num);
    }
    lay_out(self);
    *state = self;
    return FEDGE_OK;
}

static int32_t **cpu_rows(void *state, uint32_t thread, uint32_t num, size_t count)
{
    (void)num;
    (void)count;
    return ((cpu_tiles *)state)->lanes[thread].rows;
}

/* ---- mixing ---------------------------------------------------------------------------------- */

static fedge_status cpu_mix(void *state, const uint32_t *far, uint32_t num_far, uint32_t num_mixed,
                            fedge_error *err)
{
    cpu_tiles *self = state;
    (void)err;
    self->far = far;
    self->num_far = num_far;
    self->num_mixed = num_mixed;
    return FEDGE_OK;
}

/* Each row of [to] becomes the mean of all rows but the far ones: the sum of all minus theirs. */
static void mix(const cpu_tiles *self, uint32_t num, int32_t *const *from, int32_t *const *to,
                size_t count)
{
    int64_t all[MIX], sum[MIX];
    const uint32_t num_mixed = self->num_mixed, num_near = num_mixed - self->num_far;
    for (size_t at = 0; at < count; at += MIX) {
        const size_t n = count - at < MIX ? count - at : MIX;
        memset(all, 0, sizeof(all));
        for (uint32_t i = 0; i < num_mixed; i++) {
            for (size_t k = 0; k < n; k++)
                all[k] += from[i][at + k];
        }
        for (uint32_t i = 0; i < num_mixed; i++) {
            memcpy(sum, all, sizeof(sum));
            for (uint32_t j = 0; j < self->num_far; j++) {
                const int32_t *less = from[self->far[(size_t)i * self->num_far + j]] + at;
                for (size_t k = 0; k < n; k++)
                    sum[k] -= less[k];
            }
            for (size_t k = 0; k < n; k++)
                to[i][at + k] = (int32_t)rint((double)sum[k] / num_near);
        }
    }
    for (uint32_t i = num_mixed; i < num; i++)
        memcpy(to[i], from[i], count * sizeof(**to));
}

static fedge_status cpu_load(void *state, uint32_t thread, uint32_t num, size_t count,
                             fedge_error *err)
{
    const cpu_tiles *self = state;
    tile_lane *lane = &self->lanes[thread];
    (void)err;
    if (self->far)
        mix(self, num, lane->rows, lane->mixed, count);
    lane->seen = self->far ? lane->mixed : lane->rows;
    return FEDGE_OK;
}

/* ---- products -------------------------------------------------------------------------------- */

static void shorten(int32_t *v, size_t count, int shift)
{
    const int32_t half = (int32_t)1 << (shift - 1);
    for (size_t k = 0; k < count; k++)
        v[k] = (v[k] + half) >> shift;
}

static void add(fedge_tile_sum *to, int64_t value)
{
    to->high += value >> 32;
    to->low += value & 0xffffffff;
}

/* Multiplies row i by the rows up to i, for as many coordinates as fedge_dots takes at a time. */
static void add_dots(const tile_lane *lane, uint32_t i, size_t at, size_t count)
{
    /* Four rows at a time, so row i is loaded once for four products. When fewer are left, row i
     * stands in for them and its extra products are not used. */
    for (uint32_t j = 0; j <= i; j += 4) {
        const int32_t *four[4];
        int64_t dots[4];
        for (uint32_t k = 0; k < 4; k++)
            four[k] = lane->seen[j + k <= i ? j + k : i] + at;
        fedge_dots(lane->seen[i] + at, four, count, dots);
        for (uint32_t k = 0; k < 4 && j + k <= i; k++)
            add(&lane->dots[fedge_tile_pair(i, j + k)], dots[k]);
    }
}

/* Multiplies each of the first [num] rows by itself. The first row stands in for missing ones of
 * the last four. */
static void add_norms(const tile_lane *lane, uint32_t num, size_t at, size_t count)
{
    for (uint32_t i = 0; i < num; i += 4) {
        const int32_t *four[4];
        int64_t squares[4];
        for (uint32_t k = 0; k < 4; k++)
            four[k] = lane->seen[i + k < num ? i + k : 0] + at;
        fedge_squares(four, count, squares);
        for (uint32_t k = 0; k < 4 && i + k < num; k++)
            add(&lane->dots[fedge_tile_pair(i + k, i + k)], squares[k]);
    }
}

static void add_products(const tile_lane *lane, uint32_t num, fedge_tile_products products,
                         size_t at, size_t count)
{
    const uint32_t last = num - 1;
    switch (products) {
    case FEDGE_PRODUCTS_NORMS:
        add_norms(lane, num, at, count);
        break;
    case FEDGE_PRODUCTS_LAST:
        add_norms(lane, last, at, count);
        add_dots(lane, last, at, count);
        break;
    case FEDGE_PRODUCTS_ALL:
        for (uint32_t i = 0; i < num; i++)
            add_dots(lane, i, at, count);
        break;
    }
}

static fedge_status cpu_dots(void *state, uint32_t thread, uint32_t num, size_t count, int shift,
                             fedge_tile_products products, fedge_error *err)
{
    const cpu_tiles *self = state;
    tile_lane *lane = &self->lanes[thread];
    if (!lane->dots)
        lane->dots = calloc(fedge_tile_pairs(self->config.num), sizeof(*lane->dots));
    if (!lane->dots) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the distances of %u updates",
                          (unsigned)num);
    }
    for (uint32_t i = 0; i < num; i++)
        shorten(lane->seen[i], count, shift);
    for (size_t at = 0; at < count; at += FEDGE_DOTS_COUNT) {
        const size_t left = count - at, n = left < FEDGE_DOTS_COUNT ? left : FEDGE_DOTS_COUNT;
        add_products(lane, num, products, at, n);
    }
    return FEDGE_OK;
}

static fedge_status cpu_take_dots(void *state, uint32_t num, fedge_tile_sum *sums, fedge_error *err)
{
    const cpu_tiles *self = state;
    const size_t pairs = fedge_tile_pairs(num);
    (void)err;
    memset(sums, 0, pairs * sizeof(*sums));
    for (uint32_t t = 0; t < self->config.num_threads; t++) {
        fedge_tile_sum *from = self->lanes[t].dots;
        for (size_t k = 0; from && k < pairs; k++) {
            sums[k].high += from[k].high;
            sums[k].low += from[k].low;
        }
        if (from)
            memset(from, 0, pairs * sizeof(*from));
    }
    return FEDGE_OK;
}

/* ---- one value of a coordinate's ------------------------------------------------------------- */

/* Sums rows from..to of the sorted ones. */
static void add_between(int32_t *const *rows, uint32_t from, uint32_t to, size_t count,
                        int64_t *sums)
{
    for (uint32_t i = from; i < to; i++) {
        for (size_t k = 0; k < count; k++)
            sums[k] += rows[i][k];
    }
}

/* Sums all but the [cut] farthest from the median, which are at the ends. Twice the median is an
 * integer. */
static void add_nearest(int32_t *const *rows, uint32_t num, uint32_t cut, size_t count,
                        int64_t *sums)
{
    for (size_t k = 0; k < count; k++) {
        const int64_t median = (int64_t)rows[(num - 1) / 2][k] + rows[num / 2][k];
        uint32_t from = 0, to = num;
        for (uint32_t left = cut; left > 0; left--) {
            const int64_t below = median - 2 * (int64_t)rows[from][k];
            const int64_t above = 2 * (int64_t)rows[to - 1][k] - median;
            if (below > above)
                from++;
            else
                to--;
        }
        for (uint32_t i = from; i < to; i++)
            sums[k] += rows[i][k];
    }
}

static fedge_status cpu_reduce(void *state, uint32_t thread, size_t count,
                               const fedge_tile_choice *choice, const int64_t **sums,
                               fedge_error *err)
{
    const cpu_tiles *self = state;
    const tile_lane *lane = &self->lanes[thread];
    const uint32_t num = choice->num, cut = choice->cut;
    (void)err;
    for (uint32_t i = 0; i < num; i++)
        lane->chosen[i] = lane->seen[choice->rows ? choice->rows[i] : i];
    memset(lane->sums, 0, count * sizeof(*lane->sums));
    if (choice->reduction != FEDGE_ROW_MEAN)
        fedge_sort_rows(lane->chosen, num, count);
    switch (choice->reduction) {
    case FEDGE_ROW_MEAN:
        for (uint32_t i = 0; i < num; i++)
            fedge_fixed_accumulate(lane->sums, lane->chosen[i], count, choice->weights[i]);
        break;
    case FEDGE_ROW_MEDIAN:
        add_between(lane->chosen, (num - 1) / 2, num / 2 + 1, count, lane->sums);
        break;
    case FEDGE_ROW_TRIMMED:
        add_between(lane->chosen, cut, num - cut, count, lane->sums);
        break;
    case FEDGE_ROW_NEAREST:
        add_nearest(lane->chosen, num, 2 * cut, count, lane->sums);
        break;
    }
    *sums = lane->sums;
    return FEDGE_OK;
}

const fedge_tile_ops fedge_tile_cpu = {
    .name = "cpu",
    .size = FEDGE_DOTS_COUNT,
    .open = cpu_open,
    .close = cpu_close,
    .mix = cpu_mix,
    .rows = cpu_rows,
    .load = cpu_load,
    .dots = cpu_dots,
    .take_dots = cpu_take_dots,
    .reduce = cpu_reduce,
};
