#include <math.h>

#include "aggregator/simulate/generate/synthetic_kind.h"

/* Whole numbers only, so that the bytes are the same everywhere. */
enum {
    NODES = 4,          /* a picture is drawn between this many grey values each way */
    ONE = 256,          /* 1.0 as a fixed-point weight */
    GREY = 128,         /* the middle of a byte */
    CONTRAST = ONE / 4, /* the least; the most is twice as much */
    MOVES = 8,          /* a side moves by up to this part of it */
    NOISE = 96,         /* standard deviation of the noise */
    BYTES_MEAN = 510,   /* mean of the sum of four random bytes, which makes it */
    BYTES_SPREAD = 148  /* standard deviation of that sum */
};

static fedge_status parse(const char *arguments, fedge_synthetic_spec *spec, fedge_error *err)
{
    uint32_t n[4] = {3, 32, 32, 10};
    if (arguments && !fedge_synthetic_numbers(arguments, 4, n)) {
        n[3] = 10;
        if (!fedge_synthetic_numbers(arguments, 3, n))
            return fedge_synthetic_usage(&fedge_synthetic_images, arguments, err);
    }
    const bool sides = n[1] >= FEDGE_SYNTHETIC_MIN_SIDE && n[1] <= FEDGE_SYNTHETIC_MAX_SIDE &&
                       n[2] >= FEDGE_SYNTHETIC_MIN_SIDE && n[2] <= FEDGE_SYNTHETIC_MAX_SIDE;
    if (!sides || n[0] < 1 || n[0] > FEDGE_SYNTHETIC_MAX_CHANNELS || n[3] < 2 ||
        n[3] > FEDGE_SYNTHETIC_MAX_LABELS ||
        (uint64_t)n[0] * n[1] * n[2] * n[3] > FEDGE_SYNTHETIC_MAX_LAW) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                          "images:%u,%u,%u,%u: 1 to %u channels, sides of %u to %u, 2 to %u "
                          "labels, and at most %u for the product of all",
                          n[0], n[1], n[2], n[3], FEDGE_SYNTHETIC_MAX_CHANNELS,
                          FEDGE_SYNTHETIC_MIN_SIDE, FEDGE_SYNTHETIC_MAX_SIDE,
                          FEDGE_SYNTHETIC_MAX_LABELS, (unsigned)FEDGE_SYNTHETIC_MAX_LAW);
    }
    spec->rank = 3;
    for (int i = 0; i < 3; i++)
        spec->shape[i] = n[i];
    spec->num_labels = n[3];
    spec->dtype = FEDGE_U8;
    return FEDGE_OK;
}

/* A picture for each label: bytes, (labels, channels, height, width). */
static size_t law_size(const fedge_synthetic_spec *spec)
{
    return fedge_synthetic_example_values(spec) * spec->num_labels;
}

/* The node before position [at] of [side]; *weight: the distance from it, in parts of ONE. */
static uint32_t node_of(uint32_t at, uint32_t side, uint32_t *weight)
{
    const uint32_t position = at * (NODES - 1) * ONE / side; /* below (NODES - 1) · ONE */
    *weight = position % ONE;
    return position / ONE;
}

/* Fills one channel of a picture by bilinear interpolation between random nodes. */
static void draw_plane(uint32_t height, uint32_t width, fedge_rng *rng, uint8_t *plane)
{
    uint32_t nodes[NODES][NODES];
    for (int i = 0; i < NODES * NODES; i++)
        nodes[i / NODES][i % NODES] = fedge_rng_below(rng, ONE);
    for (uint32_t y = 0; y < height; y++) {
        uint32_t weight_y, weight_x;
        const uint32_t row = node_of(y, height, &weight_y);
        for (uint32_t x = 0; x < width; x++) {
            const uint32_t column = node_of(x, width, &weight_x);
            const uint32_t *top = &nodes[row][column], *bottom = &nodes[row + 1][column];
            const uint32_t above = top[0] * (ONE - weight_x) + top[1] * weight_x;
            const uint32_t below = bottom[0] * (ONE - weight_x) + bottom[1] * weight_x;
            *plane++ = (uint8_t)((above * (ONE - weight_y) + below * weight_y) / (ONE * ONE));
        }
    }
}

static void draw_law(const fedge_synthetic_spec *spec, uint64_t seed, uint32_t client, void *law)
{
    const uint32_t height = spec->shape[1], width = spec->shape[2];
    uint8_t *plane = law;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SYNTHETIC, client, 0, FEDGE_DRAW_LAW);
    for (uint32_t i = 0; i < spec->num_labels * spec->shape[0]; i++) {
        draw_plane(height, width, &rng, plane);
        plane += (size_t)height * width;
    }
}

/* Noise of mean 0. */
static int32_t draw_noise(fedge_rng *rng)
{
    const uint32_t bits = fedge_rng_u32(rng);
    const uint32_t sum = (bits & 0xFF) + (bits >> 8 & 0xFF) + (bits >> 16 & 0xFF) + (bits >> 24);
    return ((int32_t)sum - BYTES_MEAN) * NOISE / BYTES_SPREAD;
}

/* A move by up to a part of [side], either way. */
static int32_t draw_move(uint32_t side, fedge_rng *rng)
{
    const uint32_t max_move = side / MOVES;
    return (int32_t)fedge_rng_below(rng, 2 * max_move + 1) - (int32_t)max_move;
}

/* The position that moves to [at]; the border is repeated outside. */
static uint32_t source_of(uint32_t at, int32_t move, uint32_t side)
{
    const int32_t from = (int32_t)at - move;
    return from < 0 ? 0 : from >= (int32_t)side ? side - 1 : (uint32_t)from;
}

static double example(const fedge_synthetic_spec *spec, void *law, fedge_rng *rng, void *values,
                      int32_t *label)
{
    const uint32_t channels = spec->shape[0], height = spec->shape[1], width = spec->shape[2];
    const uint32_t drawn = fedge_rng_below(rng, spec->num_labels);
    const uint8_t *plane = (const uint8_t *)law + drawn * fedge_synthetic_example_values(spec);
    const int32_t move_y = draw_move(height, rng), move_x = draw_move(width, rng);
    const int32_t contrast = (int32_t)(CONTRAST + fedge_rng_below(rng, CONTRAST + 1));
    uint8_t *out = values;
    for (uint32_t c = 0; c < channels; c++, plane += (size_t)height * width) {
        for (uint32_t y = 0; y < height; y++) {
            const uint8_t *row = plane + (size_t)source_of(y, move_y, height) * width;
            for (uint32_t x = 0; x < width; x++) {
                const int32_t grey = row[source_of(x, move_x, width)] - GREY;
                const int32_t value = GREY + grey * contrast / ONE + draw_noise(rng);
                *out++ = (uint8_t)(value < 0 ? 0 : value > UINT8_MAX ? UINT8_MAX : value);
            }
        }
    }
    *label = (int32_t)drawn;
    return NAN;
}

const fedge_synthetic_ops fedge_synthetic_images = {.name = "images",
                                                    .usage = "images[:C,H,W[,LABELS]]",
                                                    .parse = parse,
                                                    .law_size = law_size,
                                                    .draw_law = draw_law,
                                                    .example = example};
