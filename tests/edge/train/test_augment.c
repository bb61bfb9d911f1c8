/* Augmentation: crops and flips against their definition, who gets which, and training by them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "edge/train/augment.h"

enum { MAX_SIDE = 9, MAX_VALUES = 3 * MAX_SIDE * MAX_SIDE, EXAMPLES = 11 };

static fedge_augmentation shape(uint32_t channels, uint32_t height, uint32_t width)
{
    return (fedge_augmentation){.channels = channels,
                                .height = height,
                                .width = width,
                                .num_fill = 3,
                                .fill = {-1.0f, -2.0f, -3.0f}};
}

/* --- against the definition ------------------------------------------------------------------- */

/* torchvision's order: pad, cut, mirror. Nothing in place. */
static void reference(const fedge_augmentation *how, uint32_t top, uint32_t left, bool flip,
                      const float *x, float *out)
{
    enum { PADDED = 3 * MAX_SIDE };
    static float padded[PADDED][PADDED];
    const uint32_t pad = how->crop_padding, rows = how->height > 1 ? pad : 0;
    for (uint32_t c = 0; c < how->channels; c++) {
        for (uint32_t i = 0; i < PADDED; i++) {
            for (uint32_t j = 0; j < PADDED; j++)
                padded[i][j] = how->fill[c % how->num_fill];
        }
        for (uint32_t i = 0; i < how->height; i++) {
            for (uint32_t j = 0; j < how->width; j++)
                padded[i + rows][j + pad] = x[(c * how->height + i) * how->width + j];
        }
        for (uint32_t i = 0; i < how->height; i++) {
            for (uint32_t j = 0; j < how->width; j++) {
                const uint32_t from = flip ? how->width - 1 - j : j;
                out[(c * how->height + i) * how->width + j] =
                    padded[i + (rows > 0 ? top : 0)][from + left];
            }
        }
    }
}

static void check_all_places(fedge_augmentation how)
{
    const uint32_t count = how.channels * how.height * how.width, pad = how.crop_padding;
    float x[MAX_VALUES], out[MAX_VALUES], wanted[MAX_VALUES];
    assert_true(count <= MAX_VALUES);
    for (uint32_t i = 0; i < count; i++)
        x[i] = (float)(i + 1);
    for (uint32_t top = how.height > 1 ? 0 : pad; top <= (how.height > 1 ? 2 * pad : pad); top++) {
        for (uint32_t left = 0; left <= 2 * pad; left++) {
            for (int flip = 0; flip < 2; flip++) {
                reference(&how, top, left, flip == 1, x, wanted);
                memcpy(out, x, sizeof(x));
                fedge_augment_crop(&how, top, left, out);
                if (flip == 1)
                    fedge_augment_flip(&how, out);
                assert_memory_equal(out, wanted, count * sizeof(float));
            }
        }
    }
}

static void every_place(void **state)
{
    (void)state;
    static const uint32_t SHAPES[][3] = {{1, 1, 2}, {1, 1, 7}, {3, 1, 8}, {1, 2, 2}, {3, 5, 4},
                                         {2, 3, 9}, {1, 9, 3}, {3, 9, 9}, {2, 8, 8}};
    for (size_t s = 0; s < sizeof(SHAPES) / sizeof(SHAPES[0]); s++) {
        fedge_augmentation how = shape(SHAPES[s][0], SHAPES[s][1], SHAPES[s][2]);
        const uint32_t least = how.height > 1 && how.height < how.width ? how.height : how.width;
        for (how.crop_padding = 1; how.crop_padding < least; how.crop_padding++)
            check_all_places(how);
    }
    fedge_augmentation same = shape(3, 4, 4);
    same.crop_padding = 2;
    same.num_fill = 1; /* for all channels */
    float x[48], wanted[48];
    for (int i = 0; i < 48; i++) {
        x[i] = 5.0f;
        wanted[i] = i % 16 < 8 ? same.fill[0] : 5.0f;
    }
    fedge_augment_crop(&same, 0, 2, x); /* two rows down */
    assert_memory_equal(x, wanted, sizeof(x));
}

/* --- as examples are read --------------------------------------------------------------------- */

/* Example i has i + 1 in its first place, and the numbers 100, 101, … behind it. */
typedef struct source {
    const fedge_augmentation *how;
    uint32_t fail; /* > 0: this read, from 1, fails */
    uint32_t reads;
} source;

static fedge_status read_source(void *user, const uint32_t *indices, uint32_t n, uint32_t num_next,
                                float *x, int32_t *labels, fedge_error *err)
{
    source *from = user;
    (void)num_next;
    const uint32_t size = from->how->channels * from->how->height * from->how->width;
    if (++from->reads == from->fail)
        return fedge_fail(err, FEDGE_IO, "the card is gone");
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < size; j++)
            x[i * size + j] = j == 0 ? (float)(indices[i] + 1) : (float)(99 + j);
        labels[i] = (int32_t)indices[i];
    }
    return FEDGE_OK;
}

/* Reads [count] examples in batches, example p % EXAMPLES at place p, as epochs do. */
static void read_all(fedge_examples examples, uint32_t size, uint32_t batch, uint32_t count,
                     float *x)
{
    uint32_t indices[EXAMPLES];
    int32_t labels[EXAMPLES];
    fedge_error err;
    for (uint32_t at = 0; at < count;) {
        const uint32_t left = EXAMPLES - at % EXAMPLES, n = left < batch ? left : batch;
        for (uint32_t i = 0; i < n; i++)
            indices[i] = (at + i) % EXAMPLES;
        assert_int_equal(examples.read(examples.user, indices, n, 0, x + at * size, labels, &err),
                         FEDGE_OK);
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(labels[i], indices[i]);
        at += n;
    }
}

static void by_round_client_epoch_and_position(void **state)
{
    (void)state;
    enum { COUNT = 3 * EXAMPLES, SIZE = 3 * 8 * 8 };
    static float wanted[COUNT * SIZE], x[COUNT * SIZE];
    fedge_augmentation how = shape(3, 8, 8);
    how.crop_padding = 3;
    how.horizontal_flip = 0.5f;
    source from = {.how = &how};
    const fedge_examples stored = {.user = &from, .num_examples = EXAMPLES, .read = read_source};
    fedge_trainer_config config = {.seed = 9, .round = 2, .client_index = 5};
    fedge_augmented self;
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, 4, COUNT, wanted);
    /* whatever the batches */
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, EXAMPLES, COUNT, x);
    assert_memory_equal(x, wanted, sizeof(x));
    /* as the definition says, drawn from the stream's name */
    fedge_rng rng = {0};
    for (uint32_t p = 0; p < COUNT; p++) {
        if (p % EXAMPLES == 0)
            rng = fedge_rng_stream(9, FEDGE_PURPOSE_AUGMENT, 2, 5, (uint16_t)(p / EXAMPLES));
        float plain[SIZE], expected[SIZE];
        int32_t label;
        const uint32_t index = p % EXAMPLES;
        assert_int_equal(read_source(&from, &index, 1, 0, plain, &label, NULL), FEDGE_OK);
        const uint32_t top = fedge_rng_below(&rng, 7), left = fedge_rng_below(&rng, 7);
        reference(&how, top, left, fedge_rng_float(&rng) < 0.5f, plain, expected);
        assert_memory_equal(wanted + p * SIZE, expected, sizeof(expected));
    }
    assert_memory_not_equal(wanted, wanted + EXAMPLES * SIZE, EXAMPLES * SIZE * sizeof(float));
    for (int other = 0; other < 3; other++) {
        fedge_trainer_config changed = config;
        changed.seed += other == 0;
        changed.round += other == 1;
        changed.client_index += other == 2;
        read_all(fedge_augment(&self, &how, &stored, &changed), SIZE, 4, EXAMPLES, x);
        assert_memory_not_equal(x, wanted, EXAMPLES * SIZE * sizeof(float));
    }
}

/* Every place equally often, and as many flips as asked for; bounds of five standard deviations. */
static void shares(void **state)
{
    (void)state;
    enum { COUNT = 20000, SIZE = 16, PLACES = 3 };
    static float x[COUNT * SIZE];
    fedge_augmentation how = shape(1, 4, 4);
    how.crop_padding = 1;
    how.horizontal_flip = 0.3f;
    source from = {.how = &how};
    const fedge_examples stored = {.user = &from, .num_examples = EXAMPLES, .read = read_source};
    const fedge_trainer_config config = {.seed = 1, .round = 1};
    fedge_augmented self;
    uint32_t at[PLACES][PLACES] = {{0}}, flips = 0;
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, 8, COUNT - COUNT % EXAMPLES, x);
    const uint32_t count = COUNT - COUNT % EXAMPLES;
    for (uint32_t p = 0; p < count; p++) {
        const float *image = x + (size_t)p * SIZE;
        const bool flip = image[5] > image[6]; /* 105 and 106, less what was moved */
        const int middle = (int)image[flip ? 6 : 5];
        const int moved = middle < 99 ? 0 : middle - 99; /* the place that it came from */
        flips += flip;
        at[moved / 4][moved % 4]++;
    }
    assert_true(fabs((double)flips / count - 0.3) < 5.0 * sqrt(0.3 * 0.7 / count));
    for (int i = 0; i < PLACES * PLACES; i++) {
        const double share = (double)at[i / PLACES][i % PLACES] * PLACES * PLACES / count;
        assert_true(fabs(share - 1.0) < 5.0 * sqrt((PLACES * PLACES - 1.0) / count));
    }
}

/* A signal moves along its length alone, whatever was drawn. */
static void signals(void **state)
{
    (void)state;
    enum { SIZE = 2 * 6, COUNT = 4 * EXAMPLES };
    static float x[COUNT * SIZE];
    fedge_augmentation how = shape(2, 1, 6);
    how.crop_padding = 2;
    source from = {.how = &how};
    const fedge_examples stored = {.user = &from, .num_examples = EXAMPLES, .read = read_source};
    const fedge_trainer_config config = {.seed = 1, .round = 1};
    fedge_augmented self;
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, 4, COUNT, x);
    fedge_rng rng = {0};
    for (uint32_t p = 0; p < COUNT; p++) {
        float plain[SIZE], expected[SIZE];
        int32_t label;
        const uint32_t index = p % EXAMPLES;
        if (index == 0)
            rng = fedge_rng_stream(1, FEDGE_PURPOSE_AUGMENT, 1, 0, (uint16_t)(p / EXAMPLES));
        assert_int_equal(read_source(&from, &index, 1, 0, plain, &label, NULL), FEDGE_OK);
        reference(&how, how.crop_padding, fedge_rng_below(&rng, 5), false, plain, expected);
        assert_memory_equal(x + p * SIZE, expected, sizeof(expected));
    }
}

static void never_and_always(void **state)
{
    (void)state;
    enum { SIZE = 2 * 6 };
    float x[EXAMPLES * SIZE], plain[EXAMPLES * SIZE];
    fedge_augmentation how = shape(2, 1, 6);
    source from = {.how = &how};
    const fedge_examples stored = {.user = &from, .num_examples = EXAMPLES, .read = read_source};
    const fedge_trainer_config config = {.seed = 1, .round = 1};
    fedge_augmented self;
    read_all(stored, SIZE, 4, EXAMPLES, plain);
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, 4, EXAMPLES, x);
    assert_memory_equal(x, plain, sizeof(x));
    how.horizontal_flip = 1.0f;
    read_all(fedge_augment(&self, &how, &stored, &config), SIZE, 4, EXAMPLES, x);
    for (int i = 0; i < EXAMPLES * SIZE; i++)
        assert_true(x[i] == plain[i / 6 * 6 + 5 - i % 6]);
}

static void failures_pass_through(void **state)
{
    (void)state;
    fedge_augmentation how = shape(1, 1, 4);
    source from = {.how = &how, .fail = 1};
    const fedge_examples stored = {.user = &from, .num_examples = EXAMPLES, .read = read_source};
    const fedge_trainer_config config = {.seed = 1, .round = 1};
    fedge_augmented self;
    fedge_error err;
    const uint32_t index = 0;
    int32_t label = 0;
    float x[4];
    const fedge_examples examples = fedge_augment(&self, &how, &stored, &config);
    assert_int_equal(examples.num_examples, EXAMPLES);
    assert_int_equal(examples.read(examples.user, &index, 1, 0, x, &label, &err), FEDGE_IO);
    assert_string_equal(err.message, "the card is gone");
}

static void finite_stays_finite(void **state)
{
    (void)state;
    fedge_augmentation how = shape(3, 4, 4);
    fedge_examples stored = {.num_examples = EXAMPLES, .read = read_source};
    const fedge_trainer_config config = {.seed = 1, .round = 1};
    fedge_augmented self;
    assert_false(fedge_augment(&self, &how, &stored, &config).finite);
    stored.finite = true;
    assert_true(fedge_augment(&self, &how, &stored, &config).finite);
    how.fill[2] = INFINITY;
    assert_false(fedge_augment(&self, &how, &stored, &config).finite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place),
        cmocka_unit_test(by_round_client_epoch_and_position),
        cmocka_unit_test(shares),
        cmocka_unit_test(signals),
        cmocka_unit_test(never_and_always),
        cmocka_unit_test(failures_pass_through),
        cmocka_unit_test(finite_stays_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
