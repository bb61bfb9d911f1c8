/* Levels: the values of a u8, normalised.
 *
 *     x = (v / divide_by − mean) / std, each operation rounded to float, for v = 0 … 255
 *
 * A table has them all. Where vectors of numbers are faster than a table they are computed, without
 * a division, with the same bits: that all 256 are right is tried when the levels are made.
 */
#ifndef FEDGE_EDGE_DATA_LEVELS_H
#define FEDGE_EDGE_DATA_LEVELS_H

#include <stddef.h>
#include <stdint.h>

#define FEDGE_LEVELS 256

/* A division x / d as x · high + x · low, fused: high + low is 1 / d to some 48 bits. */
typedef struct fedge_reciprocal {
    float high, low;
} fedge_reciprocal;

/* Plain data. */
typedef struct fedge_levels {
    float table[FEDGE_LEVELS];
    /* x[0, n) from v, exactly as the table has it; NULL: from the table. [next], of n bytes too, is
     * read soon: it is fetched meanwhile. */
    void (*read)(const struct fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                 float *x);
    fedge_reciprocal divide_by, std;
    float mean;
} fedge_levels;

/* mean 0 and std 1: v / divide_by alone. [cpu_features]: FEDGE_CPU_… that may be used. */
void fedge_levels_make(fedge_levels *levels, float divide_by, float mean, float std,
                       unsigned cpu_features);

/* x[i] = table[v[i]], i < n. [next]: n bytes that are wanted soon, or v again. */
void fedge_levels_read(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                       float *x);

/* Fetches [size] bytes that are read soon into the second-level cache, where the machine is known
 * to take such hints. */
void fedge_levels_fetch(const uint8_t *bytes, size_t size);

#endif
