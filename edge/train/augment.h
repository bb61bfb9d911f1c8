/* Augmentation: random changes of examples as they are read for training.
 *
 * In terms of torchvision: RandomCrop(size = the example's, padding), then RandomHorizontalFlip(p).
 * The changes depend on (seed, round, client index, epoch, position in the epoch) alone, so a
 * repeated round (after a crash, or in the simulator) gives the same bits.
 */
#ifndef FEDGE_EDGE_TRAIN_AUGMENT_H
#define FEDGE_EDGE_TRAIN_AUGMENT_H

#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/core/status.h"
#include "edge/train/trainer.h"

#define FEDGE_AUGMENT_MAX_FILL 16 /* most channels with a separate fill */

typedef struct fedge_augmentation {
    uint32_t channels, height, width; /* shape of an example; height is 1 for (channels, length) */
    float horizontal_flip;            /* probability, in [0, 1] */
    /* > 0: this many rows and columns are added on each side, then the example is cropped at a
     * uniformly random offset. Less than width, and less than height; a height of 1 is not padded.
     */
    uint32_t crop_padding;
    /* The padding of channel c is fill[c], or fill[0] if num_fill is 1. */
    uint32_t num_fill;
    float fill[FEDGE_AUGMENT_MAX_FILL];
} fedge_augmentation;

/* Replaces an example x (channels, height, width) by the crop of the padded one whose origin is row
 * [top] and column [left], each in [0, 2 · crop_padding]; top is crop_padding if height is 1.
 *
 *     x'[c][i][j] = x[c][i + top − crop_padding][j + left − crop_padding], or the fill outside */
void fedge_augment_crop(const fedge_augmentation *augmentation, uint32_t top, uint32_t left,
                        float *x);

/* Mirrors an example: x'[c][i][j] = x[c][i][width − 1 − j] */
void fedge_augment_flip(const fedge_augmentation *augmentation, float *x);

/* The state of augmentation during one task. */
typedef struct fedge_augmented {
    fedge_augmentation augmentation;
    fedge_examples source;
    uint64_t seed;
    uint32_t round, client_index;
    uint32_t epoch, position; /* epoch and position of the next example */
    fedge_rng rng; /* random stream of the epoch; the first draw is the first example's */
} fedge_augmented;

/* Augmented examples of [source] for one fedge_trainer_run with [config]; epochs are recognised by
 * counting examples. [self] must outlive the result. */
fedge_examples fedge_augment(fedge_augmented *self, const fedge_augmentation *augmentation,
                             const fedge_examples *source, const fedge_trainer_config *config);

#endif
