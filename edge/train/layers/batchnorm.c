#include "edge/train/layers/batchnorm.h"

#include <math.h>

enum { WEIGHT, BIAS };

fedge_status fedge_batch_norm_infer(const fedge_layer_spec *layer, const fedge_shape *in,
                                    fedge_shape *out, fedge_error *err)
{
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

uint32_t fedge_batch_norm_tensors(const fedge_layer_spec *layer, fedge_layer_tensor *list)
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

/* The batch as (images, channels, spatial). Features alone are turned in scratch to (channels,
 * batch), one image, so that the values of a channel lie side by side. */
typedef struct batch_view {
    bool turned;
    size_t images, channels, spatial;
} batch_view;

static batch_view view_of(const fedge_layer_run *run)
{
    const size_t channels = run->in[0].dims[0];
    if (run->in[0].rank == 1)
        return (batch_view){true, 1, channels, run->batch};
    return (batch_view){false, run->batch, channels, fedge_shape_count(&run->in[0]) / channels};
}

static size_t values_of(const batch_view *view)
{
    return view->turned ? view->channels * view->spatial : 0;
}

void fedge_batch_norm_sizes(const fedge_layer_run *run, fedge_layer_sizes *need)
{
    const batch_view view = view_of(run);
    need->saved = (uint64_t)view.channels * 2 * sizeof(float); /* mean and 1/sqrt of each */
    need->forward = (uint64_t)values_of(&view) * sizeof(float);
    need->backward = 2 * need->forward;
    need->fuses_relu = true;
    need->batch_coupled = !run->spec->u.batchnorm2d.frozen;
}

fedge_status fedge_batch_norm_check(const fedge_layer_run *run, fedge_error *err)
{
    const uint32_t *dims = run->in[0].dims;
    const batch_view view = view_of(run);
    if (!run->training || !uses_batch(run) || view.images * view.spatial != 1)
        return FEDGE_OK;
    if (run->in[0].rank == 3) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%u example of %u × %u has one value for each of the %u channels, and no "
                          "variance: no batch, and no last part of a batch, may have so few",
                          (unsigned)run->batch, (unsigned)dims[1], (unsigned)dims[2],
                          (unsigned)dims[0]);
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "%u example has one value for each of the %u features, and no variance: no "
                      "batch, and no last part of a batch, may have so few",
                      (unsigned)run->batch, (unsigned)dims[0]);
}

/* Means of (x − center) and of its square in channel [c] over the batch. */
static void average(const fedge_kernels *kernels, const batch_view *view, const float *x, size_t c,
                    float center, double averages[2])
{
    averages[0] = averages[1] = 0.0;
    for (size_t b = 0; b < view->images; b++) {
        double sums[2];
        kernels->moments(x + (b * view->channels + c) * view->spatial, view->spatial, center, sums);
        averages[0] += sums[0] / (double)(view->spatial * view->images);
        averages[1] += sums[1] / (double)(view->spatial * view->images);
    }
}

static void measure(const fedge_kernels *kernels, const batch_view *view, const float *x, size_t c,
                    double *mean, double *variance)
{
    double averages[2];
    average(kernels, view, x, c, 0.0f, averages);
    const float center = (float)averages[0];
    average(kernels, view, x, c, center, averages);
    *mean = (double)center + averages[0];
    *variance = averages[1] - averages[0] * averages[0];
    *variance = *variance < 0.0 ? 0.0 : *variance;
}

static void track(const fedge_layer_run *run, const batch_view *view, size_t c, double mean,
                  double variance)
{
    const uint32_t first = first_buffer(run->spec);
    const double momentum = (double)run->spec->u.batchnorm2d.momentum;
    const double count = (double)view->spatial * (double)view->images;
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

/* Mean and variance that channel [c] is normalised by. */
static void choose_moments(const fedge_layer_run *run, const batch_view *view, const float *x,
                           size_t c, double *mean, double *variance)
{
    const uint32_t first = first_buffer(run->spec);
    if (!uses_batch(run)) {
        *mean = (double)run->buffers[first][c];
        *variance = (double)run->buffers[first + 1][c];
        return;
    }
    measure(run->kernels, view, x, c, mean, variance);
    if (run->training && !run->recompute && run->spec->u.batchnorm2d.track_running_stats)
        track(run, view, c, *mean, *variance);
}

void fedge_batch_norm_forward(const fedge_layer_run *run)
{
    const batch_view view = view_of(run);
    const size_t channels = view.channels, spatial = view.spatial;
    const float *x = view.turned ? run->scratch : run->x[0];
    float *y = view.turned ? run->scratch : run->y, *saved = run->saved;
    if (view.turned)
        run->kernels->transpose(run->batch, channels, run->x[0], channels, run->scratch, spatial);
    for (size_t c = 0; c < channels; c++) {
        double mean, variance;
        choose_moments(run, &view, x, c, &mean, &variance);
        const float inverse = (float)(1.0 / sqrt(variance + (double)run->spec->u.batchnorm2d.eps));
        const fedge_normal normal = normal_of(run, c, (float)mean, inverse);
        for (size_t b = 0; b < view.images; b++) {
            const size_t at = (b * channels + c) * spatial;
            run->kernels->normalize(x + at, spatial, &normal, y + at);
        }
        if (saved) {
            saved[2 * c] = (float)mean;
            saved[2 * c + 1] = inverse;
        }
    }
    if (view.turned)
        run->kernels->transpose(channels, run->batch, y, spatial, run->y, channels);
}

/* As in norm.c, over the batch. Running statistics do not depend on x: dx is then dy times the
 * scale. */
static void backward_channel(const fedge_layer_run *run, const batch_view *view, size_t c,
                             const float *x, const float *dy, float *dx)
{
    const size_t channels = view->channels, spatial = view->spatial;
    const bool affine = run->spec->u.batchnorm2d.affine, by_batch = uses_batch(run);
    const float *saved = run->saved, inverse = saved[2 * c + 1];
    const double count = (double)(spatial * view->images);
    const fedge_normal normal = normal_of(run, c, saved[2 * c], inverse);
    double sum = 0.0, product = 0.0;
    for (size_t b = 0; b < view->images; b++) {
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
    for (size_t b = 0; dx && b < view->images; b++) {
        const size_t at = (b * channels + c) * spatial;
        run->kernels->normalize_backward(x + at, dy + at, spatial, &normal, &slope, dx + at);
    }
}

void fedge_batch_norm_backward(const fedge_layer_run *run)
{
    const batch_view view = view_of(run);
    const float *x = run->x[0], *dy = run->dy;
    float *dx = run->dx[0];
    if (view.turned) {
        float *turned = run->scratch, *gradient = turned + values_of(&view);
        run->kernels->transpose(run->batch, view.channels, x, view.channels, turned, run->batch);
        run->kernels->transpose(run->batch, view.channels, dy, view.channels, gradient, run->batch);
        x = turned;
        dy = dx = gradient;
    }
    for (size_t c = 0; c < view.channels; c++)
        backward_channel(run, &view, c, x, dy, dx);
    if (view.turned && run->dx[0]) {
        run->kernels->transpose(view.channels, run->batch, dx, run->batch, run->dx[0],
                                view.channels);
    }
}

#define AT(member) offsetof(fedge_layer_spec, u.batchnorm2d.member)

const fedge_argument fedge_batch_norm_arguments[] = {
    FEDGE_COUNT_ARGUMENT("num_features", AT(num_features)),
    FEDGE_EPS_ARGUMENT("eps", AT(eps)),
    FEDGE_F32_ARGUMENT("momentum", AT(momentum), 0, 1, 0.1),
    FEDGE_BOOL_ARGUMENT("affine", AT(affine), 1),
    FEDGE_BOOL_ARGUMENT("track_running_stats", AT(track_running_stats), 1),
    FEDGE_BOOL_ARGUMENT("frozen", AT(frozen), 0),
    FEDGE_NO_ARGUMENT,
};
