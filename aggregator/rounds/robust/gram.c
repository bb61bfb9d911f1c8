#include "aggregator/rounds/robust/gram.h"

#include <math.h>
#include <stdlib.h>

#include "edge/core/fixed.h"

#define BITS 24 /* of |u|: what fedge_tile_ops.dots has room for */

static double get(fedge_tile_sum value)
{
    /* After a subtraction low may be negative: the shift rounds down and the mask has the rest, so
     * what is added is always in [0, 2^32). */
    value.high += value.low >> 32;
    value.low &= 0xffffffff;
    return (double)value.high * 0x1p32 + (double)value.low;
}

typedef struct pass {
    const fedge_tiles *tiles;
    const fedge_strategy_section *delta;
    int8_t most_bound_log2;
    fedge_tile_products products;
} pass;

/* Of values rounded to BITS bits of the largest bound. */
static fedge_status add_tile(void *user, const fedge_tile *tile, fedge_error *err)
{
    const pass *self = user;
    const fedge_tiles *tiles = self->tiles;
    const int less = self->most_bound_log2 - self->delta->bounds_log2[tile->tensor];
    const int bits = FEDGE_FIXED_VALUE_BITS - BITS + less;
    /* No further, or adding a half would overflow; what a tensor of a far smaller bound still adds
     * is a unit at most. */
    const int shift = bits < FEDGE_FIXED_VALUE_BITS ? bits : FEDGE_FIXED_VALUE_BITS;
    return tiles->ops->dots(tiles->state, tile->thread, tile->num, tile->count, shift,
                            self->products, err);
}

static void fill(fedge_gram *gram, const fedge_tile_sum *sums)
{
    for (uint32_t i = 0; i < gram->num; i++) {
        for (uint32_t j = 0; j < gram->num; j++) {
            const size_t at = (size_t)i * gram->num + j;
            const fedge_tile_sum *a = &sums[fedge_tile_pair(i, i)];
            const fedge_tile_sum *b = &sums[fedge_tile_pair(j, j)];
            const fedge_tile_sum *ab = &sums[fedge_tile_pair(i, j)];
            const fedge_tile_sum square = {a->high + b->high - 2 * ab->high,
                                           a->low + b->low - 2 * ab->low};
            if (gram->squares)
                gram->squares[at] = get(square);
            else
                gram->dots[at] = get(*ab);
        }
    }
}

static fedge_tile_products products_of(fedge_gram_extent extent)
{
    return extent == FEDGE_GRAM_NORMS  ? FEDGE_PRODUCTS_NORMS
           : extent == FEDGE_GRAM_LAST ? FEDGE_PRODUCTS_LAST
                                       : FEDGE_PRODUCTS_ALL;
}

fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles, fedge_gram_extent extent,
                             fedge_error *err)
{
    const uint32_t num = tiles->num;
    *gram = (fedge_gram){.num = num};
    if (extent == FEDGE_GRAM_NOTHING)
        return FEDGE_OK;
    const fedge_strategy_section *delta = &tiles->sum->delta;
    pass of = {.tiles = tiles,
               .delta = delta,
               .most_bound_log2 = delta->bounds_log2[0],
               .products = products_of(extent)};
    for (uint32_t t = 1; t < delta->schema->num_tensors; t++) {
        if (delta->bounds_log2[t] > of.most_bound_log2)
            of.most_bound_log2 = delta->bounds_log2[t];
    }
    /* Both are counted in what tiles take (tiles.c). */
    fedge_tile_sum *sums = malloc(fedge_tile_pairs(num) * sizeof(*sums));
    double *values = malloc((size_t)num * num * sizeof(*values));
    gram->unit = ldexp(1.0, of.most_bound_log2 - BITS);
    if (extent == FEDGE_GRAM_SQUARES)
        gram->squares = values;
    else
        gram->dots = values;
    fedge_status status =
        sums && values ? fedge_tiles_each(tiles, add_tile, &of, err)
                       : fedge_fail(err, FEDGE_NO_MEMORY,
                                    "no memory for the distances of %u updates", (unsigned)num);
    if (status == FEDGE_OK)
        status = tiles->ops->take_dots(tiles->state, num, sums, err);
    if (status == FEDGE_OK)
        fill(gram, sums);
    free(sums);
    return status;
}

void fedge_gram_fini(fedge_gram *gram)
{
    free(gram->dots);
    free(gram->squares);
    *gram = (fedge_gram){0};
}
