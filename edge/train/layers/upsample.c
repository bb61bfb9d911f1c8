/* Upsample of (batch, channels, length) or (batch, channels, height, width) to a size, or by a
 * whole factor: to the nearest value, or linear between two, and four of an image. Rounding is
 * PyTorch's. */
#include <string.h>

#include "edge/train/layers/layer.h"

enum { NEAREST, LINEAR, BILINEAR };

#define AT(member) offsetof(fedge_layer_spec, u.upsample.member)

static fedge_status check_mode(const fedge_layer_spec *layer, const fedge_shape *in,
                               fedge_error *err)
{
    const uint32_t mode = layer->u.upsample.mode;
    if (in->rank < 2) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "the input is [%u] but must be [channels, length] or [channels, height, "
                          "width]",
                          (unsigned)in->dims[0]);
    }
    if ((mode == LINEAR && in->rank != 2) || (mode == BILINEAR && in->rank != 3)) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "mode %s is for [channels, %s]: take nearest or %s",
            mode == LINEAR ? "linear" : "bilinear", mode == LINEAR ? "length" : "height, width",
            mode == LINEAR ? "bilinear" : "linear");
    }
    if (mode == NEAREST && layer->u.upsample.align_corners) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "align_corners is for linear and bilinear: remove it");
    }
    return FEDGE_OK;
}

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    FEDGE_TRY(check_mode(layer, in, err));
    const uint32_t *size = layer->u.upsample.size, *factor = layer->u.upsample.scale_factor;
    const bool sized = size[0] != 0 || size[1] != 0, scaled = factor[0] != 0 || factor[1] != 0;
    if (sized == scaled) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "it has %s: give one",
                          sized ? "size and scale_factor" : "neither size nor scale_factor");
    }
    *out = *in;
    for (uint32_t i = 1; i < in->rank; i++) {
        const uint32_t which = in->rank == 2 ? 1 : i - 1;
        const uint64_t side = sized ? size[which] : (uint64_t)in->dims[i] * factor[which];
        if (side == 0 || side > FEDGE_MAX_SPATIAL) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "the %s would be %llu: it must be 1 to %u",
                              fedge_shape_side_name(in->rank, (int)which), (unsigned long long)side,
                              (unsigned)FEDGE_MAX_SPATIAL);
        }
        out->dims[i] = (uint32_t)side;
    }
    return FEDGE_OK;
}

/* Where the places of an output's side come from: low + part of the way to high. */
typedef struct source {
    uint32_t low, high;
    float part;
} source;

static source source_of(const fedge_layer_run *run, int side, uint32_t in, uint32_t out,
                        uint32_t place)
{
    const uint32_t factor = run->spec->u.upsample.scale_factor[side];
    const uint32_t mode = run->spec->u.upsample.mode;
    float scale = factor != 0 ? 1.0f / (float)factor : (float)in / (float)out;
    float at = (float)place * scale;
    if (mode != NEAREST && run->spec->u.upsample.align_corners) {
        scale = out > 1 ? (float)(in - 1) / (float)(out - 1) : 0.0f;
        at = (float)place * scale;
    } else if (mode != NEAREST) {
        at = ((float)place + 0.5f) * scale - 0.5f;
        at = at < 0.0f ? 0.0f : at;
    }
    const uint32_t low = at < (float)(in - 1) ? (uint32_t)at : in - 1;
    if (mode == NEAREST)
        return (source){.low = low, .high = low};
    return (source){.low = low, .high = low + (low + 1 < in), .part = at - (float)low};
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    uint32_t out[2];
    fedge_shape_sides(&run->out, out);
    need->forward = need->backward = ((uint64_t)out[0] + out[1]) * sizeof(source);
}

/* The tables of both sides, in scratch. */
static const source *fill_tables(const fedge_layer_run *run, uint32_t in[2], uint32_t out[2])
{
    source *table = run->scratch;
    fedge_shape_sides(&run->in[0], in);
    fedge_shape_sides(&run->out, out);
    for (uint32_t i = 0; i < out[0]; i++)
        table[i] = in[0] == 1 ? (source){.low = 0} : source_of(run, 0, in[0], out[0], i);
    for (uint32_t i = 0; i < out[1]; i++)
        table[out[0] + i] = source_of(run, 1, in[1], out[1], i);
    return table;
}

static void forward(const fedge_layer_run *run)
{
    uint32_t in[2], out[2];
    const source *rows = fill_tables(run, in, out), *columns = rows + out[0];
    const size_t planes = (size_t)run->batch * run->out.dims[0];
    for (size_t r = 0; r < planes * out[0]; r++) {
        const source *row = &rows[r % out[0]];
        const float *plane = run->x[0] + r / out[0] * in[0] * in[1];
        const float *low = plane + (size_t)row->low * in[1];
        const float *high = plane + (size_t)row->high * in[1];
        float *y = run->y + r * out[1];
        if (run->spec->u.upsample.mode == NEAREST) {
            for (uint32_t i = 0; i < out[1]; i++)
                y[i] = low[columns[i].low];
            continue;
        }
        for (uint32_t i = 0; i < out[1]; i++) {
            const source at = columns[i];
            const float above = (1.0f - at.part) * low[at.low] + at.part * low[at.high];
            const float below = (1.0f - at.part) * high[at.low] + at.part * high[at.high];
            y[i] = (1.0f - row->part) * above + row->part * below;
        }
    }
}

static void backward(const fedge_layer_run *run)
{
    uint32_t in[2], out[2];
    const source *rows = fill_tables(run, in, out), *columns = rows + out[0];
    const size_t planes = (size_t)run->batch * run->out.dims[0];
    memset(run->dx[0], 0, planes * in[0] * in[1] * sizeof(*run->dx[0]));
    for (size_t r = 0; r < planes * out[0]; r++) {
        const source *row = &rows[r % out[0]];
        float *plane = run->dx[0] + r / out[0] * in[0] * in[1];
        float *low = plane + (size_t)row->low * in[1], *high = plane + (size_t)row->high * in[1];
        const float *dy = run->dy + r * out[1];
        if (run->spec->u.upsample.mode == NEAREST) {
            for (uint32_t i = 0; i < out[1]; i++)
                low[columns[i].low] += dy[i];
            continue;
        }
        for (uint32_t i = 0; i < out[1]; i++) {
            const source at = columns[i];
            const float above = (1.0f - row->part) * dy[i], below = row->part * dy[i];
            low[at.low] += (1.0f - at.part) * above;
            low[at.high] += at.part * above;
            high[at.low] += (1.0f - at.part) * below;
            high[at.high] += at.part * below;
        }
    }
}

static const char *mode_name(unsigned choice)
{
    return choice == NEAREST    ? "nearest"
           : choice == LINEAR   ? "linear"
           : choice == BILINEAR ? "bilinear"
                                : NULL;
}

static const fedge_argument ARGUMENTS[] = {
    FEDGE_PAIR_ARGUMENT("size", AT(size), false, 1, 0),
    FEDGE_PAIR_ARGUMENT("scale_factor", AT(scale_factor), false, 1, 0),
    {.name = "mode",
     .kind = FEDGE_ARGUMENT_CHOICE,
     .offset = AT(mode),
     .num_choices = 3,
     .choice_name = mode_name},
    FEDGE_BOOL_ARGUMENT("align_corners", AT(align_corners), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_upsample = {.arguments = ARGUMENTS,
                                              .infer = infer,
                                              .sizes = sizes,
                                              .forward = forward,
                                              .backward = backward};
