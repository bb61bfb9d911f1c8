/* BatchNorm2d normalises each channel by its mean and variance over the batch, height and width, or
 * in evaluation and when frozen by the running statistics. x: (B, C, H, W). running ←
 * (1 − momentum) · running + momentum · batch's, the variance times n / (n − 1).
 * num_batches_tracked, which only a momentum of None needs, is not stored. */
#include <math.h>

#include "edge/train/layers/norm.h"

enum { WEIGHT, BIAS };

static fedge_status infer(const fedge_layer_spec *layer, const fedge_shape *in, uint32_t num_inputs,
                          fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    FEDGE_TRY(fedge_shape_need(in, 3, "[channels, height, width]", err));
    if (in->dims[0] != layer->u.batchnorm2d.num_features) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_features is %u but the layer before gives %u channels",
                          (unsigned)layer->u.batchnorm2d.num_features, (unsigned)in->dims[0]);
    }
    if (layer->u.batchnorm2d.frozen && !layer->u.batchnorm2d.track_running_stats) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "it is frozen but has no running statistics: set track_running_stats");
    }
    *out = *in;
    return FEDGE_OK;
}

/* Index of the first buffer among the tensors. */
static uint32_t first_buffer(const fedge_layer_spec *layer)
{
    return layer->u.batchnorm2d.affine ? 2 : 0;
}

static uint32_t tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
{
    const uint32_t features = layer->u.batchnorm2d.num_features;
    uint32_t n = first_buffer(layer);
    fedge_norm_tensors(1, &features, list);
    if (layer->u.batchnorm2d.track_running_stats) {
        list[n++] = (fedge_layer_tensor){.name = "running_mean",
                                         .buffer = true,
                                         .frozen = layer->u.batchnorm2d.frozen,
                                         .rank = 1,
                                         .shape = {features},
                                         .init = FEDGE_INIT_ZERO};
        list[n++] = (fedge_layer_tensor){.name = "running_var",
                                         .buffer = true,
                                         .frozen = layer->u.batchnorm2d.frozen,
                                         .rank = 1,
                                         .shape = {features},
                                         .init = FEDGE_INIT_ONE};
    }
    return n;
}

/* True if this pass normalises by the batch's statistics. */
static bool uses_batch(const fedge_layer_run *run)
{
    return !run->spec->u.batchnorm2d.track_running_stats ||
           (run->training && !run->spec->u.batchnorm2d.frozen);
}

static void sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    need->saved = (uint64_t)run->in[0].dims[0] * 2 * sizeof(float); /* mean and 1/sqrt of each */
    need->fuses_relu = true;
    need->batch_coupled = !run->spec->u.batchnorm2d.frozen;
}

static fedge_status check(const fedge_layer_run *run, fedge_error *err)
{
    const uint32_t *dims = run->in[0].dims;
    if (run->training && uses_batch(run) && (uint64_t)run->batch * dims[1] * dims[2] == 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%u example of %u × %u has one value for each of the %u channels, and no "
                          "variance: no batch, and no last part of a batch, may have so few",
                          (unsigned)run->batch, (unsigned)dims[1], (unsigned)dims[2],
                          (unsigned)dims[0]);
    }
    return FEDGE_OK;
}

/* Means of (x − center) and of its square in channel [c] over the batch. */
static void average(const fedge_layer_run *run, size_t c, float center, double averages[2])
{
    const size_t channels = run->in[0].dims[0];
    const size_t spatial = (size_t)run->in[0].dims[1] * run->in[0].dims[2];
    averages[0] = averages[1] = 0.0;
    for (size_t b = 0; b < run->batch; b++) {
        double sums[2];
        run->kernels->moments(run->x[0] + (b * channels + c) * spatial, spatial, center, sums);
        averages[0] += sums[0] / (double)(spatial * run->batch);
        averages[1] += sums[1] / (double)(spatial * run->batch);
    }
}

static void measure(const fedge_layer_run *run, size_t c, double *mean, double *variance)
{
    double averages[2];
    average(run, c, 0.0f, averages);
    const float center = (float)averages[0];
    average(run, c, center, averages);
    *mean = (double)center + averages[0];
    *variance = averages[1] - averages[0] * averages[0];
    *variance = *variance < 0.0 ? 0.0 : *variance;
}

static void track(const fedge_layer_run *run, size_t c, double mean, double variance)
{
    const uint32_t first = first_buffer(run->spec);
    const double momentum = (double)run->spec->u.batchnorm2d.momentum;
    const double count = (double)run->in[0].dims[1] * run->in[0].dims[2] * run->batch;
    float *running = run->buffers[first] + c, *running_var = run->buffers[first + 1] + c;
    *running = (float)((1.0 - momentum) * (double)*running + momentum * mean);
    *running_var = (float)((1.0 - momentum) * (double)*running_var +
                           momentum * variance * count / (count - 1.0));
}

static fedge_normal normal_of(const fedge_layer_run *run, size_t c, float mean, float inverse)
{
    const bool affine = run->spec->u.batchnorm2d.affine;
    return (fedge_normal){.center = mean,
                          .scale = inverse * (affine ? run->values[WEIGHT][c] : 1.0f),
                          .shift = affine ? run->values[BIAS][c] : 0.0f,
                          .ceiling = run->ceiling};
}

static void forward(const fedge_layer_run *run)
{
    const size_t channels = run->in[0].dims[0];
    const size_t spatial = (size_t)run->in[0].dims[1] * run->in[0].dims[2];
    const uint32_t first = first_buffer(run->spec);
    float *saved = run->saved;
    for (size_t c = 0; c < channels; c++) {
        double mean, variance;
        if (uses_batch(run)) {
            measure(run, c, &mean, &variance);
            if (run->training && !run->recompute && run->spec->u.batchnorm2d.track_running_stats)
                track(run, c, mean, variance);
        } else {
            mean = (double)run->buffers[first][c];
            variance = (double)run->buffers[first + 1][c];
        }
        const float inverse = (float)(1.0 / sqrt(variance + (double)run->spec->u.batchnorm2d.eps));
        const fedge_normal normal = normal_of(run, c, (float)mean, inverse);
        for (size_t b = 0; b < run->batch; b++) {
            const size_t at = (b * channels + c) * spatial;
            run->kernels->normalize(run->x[0] + at, spatial, &normal, run->y + at);
        }
        if (saved) {
            saved[2 * c] = (float)mean;
            saved[2 * c + 1] = inverse;
        }
    }
}

/* As in norm.c, over the batch. Running statistics do not depend on x: dx is then dy times the
 * scale. */
static void backward(const fedge_layer_run *run)
{
    const size_t channels = run->in[0].dims[0];
    const size_t spatial = (size_t)run->in[0].dims[1] * run->in[0].dims[2];
    const bool affine = run->spec->u.batchnorm2d.affine, by_batch = uses_batch(run);
    const float *x = run->x[0], *dy = run->dy, *saved = run->saved;
    const double count = (double)(spatial * run->batch);
    for (size_t c = 0; c < channels; c++) {
        const float inverse = saved[2 * c + 1];
        const fedge_normal normal = normal_of(run, c, saved[2 * c], inverse);
        double sum = 0.0, product = 0.0;
        for (size_t b = 0; b < run->batch; b++) {
            const size_t at = (b * channels + c) * spatial;
            double sums[2];
            run->kernels->products(x + at, dy + at, spatial, &normal, sums);
            sum += sums[0];
            product += sums[1] * (double)inverse;
        }
        if (affine && run->gradients[WEIGHT])
            run->gradients[WEIGHT][c] += (float)product;
        if (affine && run->gradients[BIAS])
            run->gradients[BIAS][c] += (float)sum;
        const double batch_scale = by_batch ? -(double)normal.scale / count : 0.0;
        const fedge_norm_gradient slope = {.dz = normal.scale,
                                           .x = (float)(product * batch_scale * (double)inverse),
                                           .one = (float)(sum * batch_scale)};
        for (size_t b = 0; run->dx[0] && b < run->batch; b++) {
            const size_t at = (b * channels + c) * spatial;
            run->kernels->normalize_backward(x + at, dy + at, spatial, &normal, &slope,
                                             run->dx[0] + at);
        }
    }
}

#define AT(member) offsetof(fedge_layer_spec, u.batchnorm2d.member)

static const fedge_argument ARGUMENTS[] = {
    FEDGE_COUNT_ARGUMENT("num_features", AT(num_features)),
    FEDGE_EPS_ARGUMENT("eps", AT(eps)),
    FEDGE_F32_ARGUMENT("momentum", AT(momentum), 0, 1, 0.1),
    FEDGE_BOOL_ARGUMENT("affine", AT(affine), 1),
    FEDGE_BOOL_ARGUMENT("track_running_stats", AT(track_running_stats), 1),
    FEDGE_BOOL_ARGUMENT("frozen", AT(frozen), 0),
    FEDGE_NO_ARGUMENT,
};

const fedge_layer_ops fedge_layer_batchnorm2d = {.arguments = ARGUMENTS,
                                                 .flags = FEDGE_USES_X | FEDGE_DX_ON_DY |
                                                          FEDGE_BATCH_NORM,
                                                 .infer = infer,
                                                 .tensors = tensors,
                                                 .sizes = sizes,
                                                 .check = check,
                                                 .forward = forward,
                                                 .backward = backward};
