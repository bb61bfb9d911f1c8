/* Gram matrices of a round's updates, from integers: what a rule chooses by is the same on every
 * machine, whatever the order, the threads or the instructions.
 *
 *     dots_ij = Σ_k u_ik u_jk,    squares_ij = ‖u_i − u_j‖² = dots_ii + dots_jj − 2 dots_ij
 *
 * u is an update rounded to 2^−24 of its bound; both sums are exact, then rounded to doubles, and
 * in units of 2^(2b − 48), b being the largest of the delta's.
 */
#ifndef FEDGE_AGGREGATOR_ROUNDS_ROBUST_GRAM_H
#define FEDGE_AGGREGATOR_ROUNDS_ROBUST_GRAM_H

#include <stdint.h>

#include "aggregator/rounds/tiles.h"

typedef struct fedge_gram {
    uint32_t num;
    double unit;     /* what a length of 1 is worth: 2^(b − 24) */
    double *dots;    /* (num, num); NULL where squares are asked for */
    double *squares; /* (num, num); NULL where dots are */
} fedge_gram;

typedef enum fedge_gram_extent {
    FEDGE_GRAM_NOTHING,
    FEDGE_GRAM_NORMS,  /* the diagonal of dots */
    FEDGE_GRAM_LAST,   /* the same, and those of the last update with all */
    FEDGE_GRAM_DOTS,   /* all of them */
    FEDGE_GRAM_SQUARES /* all of these: one of the two matrices is all that a rule needs */
} fedge_gram_extent;

/* One pass over the tiles, mixed if they are; none for NOTHING. What of dots is beyond [extent] is
 * 0. */
FEDGE_MUST_USE fedge_status fedge_gram_init(fedge_gram *gram, fedge_tiles *tiles,
                                            fedge_gram_extent extent, fedge_error *err);
void fedge_gram_fini(fedge_gram *gram); /* one that is all 0 is fine */

#endif
