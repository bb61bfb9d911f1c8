/* Sorting networks: the values of each coordinate in order, many coordinates side by side. */
#ifndef FEDGE_AGGREGATOR_REDUCE_SORT_H
#define FEDGE_AGGREGATOR_REDUCE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* rows (num) of (count): afterwards rows[0][k] ≤ rows[1][k] ≤ … for every k. Batcher's merge
 * exchange (Knuth, The art of computer programming, 5.2.2 M), so it takes as long whatever is in
 * them. */
void fedge_sort_rows(int32_t *const *rows, uint32_t num, size_t count);

#endif
