/* Augmentation: examples changed at random as they are read for training.
 *
 * With torchvision's words: RandomCrop(size = the example's, padding), then
 * RandomHorizontalFlip(p). What an example becomes is a function of (seed, round, client index,
 * epoch, position in the epoch) alone, so a round that is trained again (after a crash, or in the
 * simulator) gives the same bits.
 */
#ifndef FEDGE_EDGE_TRAIN_AUGMENT_H
#define FEDGE_EDGE_TRAIN_AUGMENT_H

#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/core/status.h"
#include "edge/train/trainer.h"

#define FEDGE_AUGMENT_MAX_FILL 16 /* channels with a fill of their own */

typedef struct fedge_augmentation {
    uint32_t channels, height, width; /* of an example, row-major; of (channels, length) height 1 */
    float horizontal_flip;            /* its probability, in [0, 1] */
    /* 0: no crop. Else the example, with so many places added on each side, is cut at a place drawn
     * uniformly. Below width, and below height unless that is 1, which stays as it is. */
    uint32_t crop_padding;
    /* What is added: channel c gets fill[c], or fill[0] where num_fill is 1. */
    uint32_t num_fill;
    float fill[FEDGE_AUGMENT_MAX_FILL];
} fedge_augmentation;

/* Moves an example x (channels, height, width), in place, to what is cut out [top] and [left] from
 * the corner of the padded one, each in [0, 2 · crop_padding]; top is crop_padding when height
 * is 1.
 *
 *     x'[c][i][j] = x[c][i + top − crop_padding][j + left − crop_padding], or the fill outside */
void fedge_augment_crop(const fedge_augmentation *augmentation, uint32_t top, uint32_t left,
                        float *x);

/* Mirrors it: x'[c][i][j] = x[c][i][width − 1 − j] */
void fedge_augment_flip(const fedge_augmentation *augmentation, float *x);

/* Examples that are augmented as they are read. Belongs to the caller, for one task. */
typedef struct fedge_augmented {
    fedge_augmentation augmentation;
    fedge_examples from;
    uint64_t seed;
    uint32_t round, client_index;
    uint32_t epoch, position; /* of the next example */
    fedge_rng rng;            /* of the epoch; the first draw is the first example's */
} fedge_augmented;

/* [from] as fedge_trainer_run with [config] is to read it, once: epochs are told apart by counting.
 * [self] must outlive the result. */
fedge_examples fedge_augment(fedge_augmented *self, const fedge_augmentation *augmentation,
                             const fedge_examples *from, const fedge_trainer_config *config);

#endif
