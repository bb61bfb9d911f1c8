#include "edge/train/augment.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static void fill(float *x, uint32_t count, float value)
{
    for (uint32_t i = 0; i < count; i++)
        x[i] = value;
}

/* out[j] = in[j + by], or [value] outside; out may be in. */
static void move_row(float *out, const float *in, uint32_t width, int32_t by, float value)
{
    const uint32_t lost = (uint32_t)(by < 0 ? -by : by), count = width - lost;
    memmove(out + (by < 0 ? lost : 0), in + (by < 0 ? 0 : lost), count * sizeof(float));
    fill(out + (by < 0 ? 0 : count), lost, value);
}

/* Writes rows in the order in which none is overwritten before it is read. */
static void move_plane(float *x, uint32_t height, uint32_t width, int32_t row_offset,
                       int32_t column_offset, float value)
{
    for (uint32_t n = 0; n < height; n++) {
        const uint32_t i = row_offset < 0 ? height - 1 - n : n;
        const int64_t from = (int64_t)i + row_offset;
        if (from >= 0 && from < height)
            move_row(x + (size_t)i * width, x + (size_t)from * width, width, column_offset, value);
        else
            fill(x + (size_t)i * width, width, value);
    }
}

void fedge_augment_crop(const fedge_augmentation *augmentation, uint32_t top, uint32_t left,
                        float *x)
{
    const uint32_t height = augmentation->height, width = augmentation->width;
    const int32_t row_offset = (int32_t)(top - augmentation->crop_padding);
    const int32_t column_offset = (int32_t)(left - augmentation->crop_padding);
    assert(augmentation->crop_padding < width);
    for (uint32_t c = 0; c < augmentation->channels; c++, x += (size_t)height * width) {
        move_plane(x, height, width, row_offset, column_offset,
                   augmentation->fill[c < augmentation->num_fill ? c : 0]);
    }
}

void fedge_augment_flip(const fedge_augmentation *augmentation, float *x)
{
    const uint32_t width = augmentation->width;
    const size_t rows = (size_t)augmentation->channels * augmentation->height;
    for (size_t i = 0; i < rows; i++, x += width) {
        for (uint32_t j = 0; j < width / 2; j++) {
            const float value = x[j];
            x[j] = x[width - 1 - j];
            x[width - 1 - j] = value;
        }
    }
}

/* Changes the next example of the epoch. */
static void augment(fedge_augmented *self, float *x)
{
    const fedge_augmentation *augmentation = &self->augmentation;
    if (augmentation->crop_padding > 0) {
        const uint32_t offsets = 2 * augmentation->crop_padding + 1;
        const uint32_t top = augmentation->height > 1 ? fedge_rng_below(&self->rng, offsets)
                                                      : augmentation->crop_padding;
        fedge_augment_crop(augmentation, top, fedge_rng_below(&self->rng, offsets), x);
    }
    if (augmentation->horizontal_flip > 0.0f &&
        fedge_rng_float(&self->rng) < augmentation->horizontal_flip)
        fedge_augment_flip(augmentation, x);
}

static fedge_status read_augmented(void *user, const uint32_t *indices, uint32_t n,
                                   uint32_t num_next, float *x, int32_t *labels, fedge_error *err)
{
    fedge_augmented *self = user;
    const fedge_augmentation *augmentation = &self->augmentation;
    const size_t size = (size_t)augmentation->channels * augmentation->height * augmentation->width;
    FEDGE_TRY(self->source.read(self->source.user, indices, n, num_next, x, labels, err));
    for (uint32_t i = 0; i < n; i++, x += size) {
        if (self->position == 0) {
            self->rng = fedge_rng_stream(self->seed, FEDGE_PURPOSE_AUGMENT, self->round,
                                         self->client_index, (uint16_t)self->epoch);
        }
        augment(self, x);
        self->position++;
        if (self->position == self->source.num_examples) {
            self->position = 0;
            self->epoch++;
        }
    }
    return FEDGE_OK;
}

fedge_examples fedge_augment(fedge_augmented *self, const fedge_augmentation *augmentation,
                             const fedge_examples *source, const fedge_trainer_config *config)
{
    *self = (fedge_augmented){.augmentation = *augmentation,
                              .source = *source,
                              .seed = config->seed,
                              .round = config->round,
                              .client_index = config->client_index};
    bool finite = source->finite;
    for (uint32_t c = 0; c < augmentation->num_fill; c++)
        finite = finite && isfinite(augmentation->fill[c]);
    fedge_examples augmented = *source;
    augmented.user = self;
    augmented.read = read_augmented;
    augmented.finite = finite;
    return augmented;
}
