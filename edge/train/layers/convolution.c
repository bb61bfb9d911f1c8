#include "edge/train/layers/convolution.h"

#include <string.h>

#define DIRECT_PIXELS 128u /* fewer pixels make the sums over one image too short */

enum { WEIGHT, BIAS };

static fedge_status windows(fedge_convolution *conv, uint32_t has_channels, fedge_error *err)
{
    if (conv->channels == 0 || conv->out_channels == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels %u and out_channels %u must be at least 1",
                          (unsigned)conv->channels, (unsigned)conv->out_channels);
    }
    if (conv->channels != has_channels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "in_channels is %u but the layer before gives %u channels",
                          (unsigned)conv->channels, (unsigned)has_channels);
    }
    if (conv->channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT, "groups %u must divide in_channels %u and out_channels %u",
            (unsigned)conv->groups, (unsigned)conv->channels, (unsigned)conv->out_channels);
    }
    uint32_t padded[2];
    for (int i = 0; i < 2; i++) {
        const char *axis = fedge_shape_side_name(conv->rank, i);
        FEDGE_TRY(fedge_shape_window(axis, conv->kernel[i], conv->stride[i], conv->padding[i],
                                     conv->dilation[i], conv->in[i], &conv->out[i], err));
        padded[i] = conv->in[i] + 2 * conv->padding[i];
        if (padded[i] > FEDGE_MAX_SPATIAL) {
            return fedge_fail(err, FEDGE_TOO_BIG, "padded input: %s %u is over the limit of %u",
                              axis, (unsigned)padded[i], (unsigned)FEDGE_MAX_SPATIAL);
        }
    }
    const fedge_shape shape = fedge_shape_of_sides(conv->rank, conv->channels, padded);
    const fedge_status status = fedge_shape_check(&shape, err);
    return status == FEDGE_OK ? FEDGE_OK : fedge_error_prefix(err, status, "padded input");
}

fedge_status fedge_convolution_pad_same(fedge_convolution conv, uint32_t first, uint32_t *padding,
                                        fedge_error *err)
{
    for (uint32_t i = first; i < 2; i++) {
        const uint32_t all =
            conv.dilation[i] * (conv.kernel[i] - 1); /* at most 2^16 · 2^16 − 2^16 */
        if (conv.stride[i] != 1) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "\"same\" is for stride 1, which is %u; give numbers",
                              (unsigned)conv.stride[i]);
        }
        if (all % 2 != 0) {
            return fedge_fail(
                err, FEDGE_INVALID_ARGUMENT,
                "\"same\" would be %u in all with kernel_size %u and dilation %u, not "
                "as much on both sides; use an odd kernel_size",
                (unsigned)all, (unsigned)conv.kernel[i], (unsigned)conv.dilation[i]);
        }
        padding[i - first] = all / 2;
    }
    return FEDGE_OK;
}

fedge_status fedge_convolution_infer(fedge_convolution conv, const fedge_shape *in,
                                     fedge_shape *out, fedge_error *err)
{
    FEDGE_TRY(fedge_shape_need_sides(in, conv.rank, err));
    fedge_shape_sides(in, conv.in);
    FEDGE_TRY(windows(&conv, in->dims[0], err));
    *out = fedge_shape_of_sides(conv.rank, conv.out_channels, conv.out);
    return FEDGE_OK;
}

/* Adds the sizes of this run to the arguments. */
static fedge_convolution in_run(const fedge_layer_run *run, fedge_convolution conv)
{
    fedge_shape_sides(&run->in[0], conv.in);
    fedge_shape_sides(&run->out, conv.out);
    return conv;
}

/* Weights of one output channel. */
static size_t patch_size(const fedge_convolution *conv)
{
    return (size_t)(conv->channels / conv->groups) * conv->kernel[0] * conv->kernel[1];
}

uint32_t fedge_convolution_tensors(fedge_convolution conv, fedge_layer_tensor *list)
{
    const float bound = fedge_init_bound(patch_size(&conv));
    list[WEIGHT] = (fedge_layer_tensor){
        .name = "weight",
        .factor = conv.groups == 1 || conv.groups != conv.channels,
        .rank = conv.rank + 1,
        .shape = {conv.out_channels, conv.channels / conv.groups, conv.kernel[0], conv.kernel[1]},
        .init = FEDGE_INIT_UNIFORM,
        .scale = bound};
    if (conv.rank == 2) {
        list[WEIGHT].shape[2] = conv.kernel[1];
        list[WEIGHT].shape[3] = 0;
    }
    list[BIAS] = (fedge_layer_tensor){.name = "bias",
                                      .rank = 1,
                                      .shape = {conv.out_channels},
                                      .init = FEDGE_INIT_UNIFORM,
                                      .scale = bound};
    return conv.bias ? 2 : 1;
}

/* True if patches are single pixels, and images large enough for products without a layout. */
static bool is_direct(const fedge_convolution *conv)
{
    return conv->kernel[0] == 1 && conv->kernel[1] == 1 && conv->stride[0] == 1 &&
           conv->stride[1] == 1 && conv->padding[0] == 0 && conv->padding[1] == 0 &&
           (size_t)conv->in[0] * conv->in[1] >= DIRECT_PIXELS;
}

/* Working memory: the layouts of the input (backward: then of its gradient) and of the outputs or
 * their gradient, and tables. */
typedef struct workspace {
    float *input, *output;
    uint32_t *offsets;                    /* offsets of a patch */
    uint32_t *gradient_offsets, *weights; /* those of all phases, one phase after another */
    uint32_t *starts, *to;
    size_t bytes; /* total size */
} workspace;

/* with_weights: backward needs the layout of the input for the weights' gradient too. */
static workspace lay_out(const fedge_patches *patches, bool backward, bool with_weights,
                         void *scratch)
{
    const size_t input_size = backward && !with_weights ? 0 : fedge_patches_input_size(patches);
    const size_t gradient = !backward || fedge_patches_gradients_whole(patches)
                                ? 0
                                : (fedge_patches_weaves(patches) ? 2 : 1) * patches->groups *
                                      patches->channels * patches->pitch;
    const size_t input = gradient > input_size ? gradient : input_size;
    const size_t output =
        backward || !fedge_patches_outputs_whole(patches) ? fedge_patches_output_size(patches) : 0;
    const size_t offsets = backward && !with_weights ? 0 : patches->patch;
    const size_t taps = backward ? patches->outputs * patches->taps : 0;
    const size_t starts = fedge_patches_max_starts(patches);
    workspace at = {.bytes = (input + output) * sizeof(float) +
                             (offsets + 2 * taps + 2 * starts) * sizeof(uint32_t)};
    if (scratch) {
        at.input = scratch;
        at.output = at.input + input;
        at.offsets = (uint32_t *)(void *)(at.output + output);
        at.gradient_offsets = at.offsets + offsets;
        at.weights = at.gradient_offsets + taps;
        at.starts = at.weights + taps;
        at.to = at.starts + starts;
    }
    return at;
}

#define UNPLANNABLE ((uint64_t)1 << 62) /* bytes that no machine has */

/* Tables have offsets of 32 bits. A larger layout cannot be planned. */
static uint64_t within_tables(uint64_t bytes)
{
    return bytes <= (uint64_t)UINT32_MAX * sizeof(float) ? bytes : UNPLANNABLE;
}

/* An upper bound of the layouts' bytes: an image has its padding, the reads of its last tap, a row
 * and a column for each phase, and as much after it; gradients of two phases are computed at a
 * time. */
static double bound(const fedge_convolution *conv)
{
    double floats = 4.0 * ((double)conv->channels + conv->out_channels);
    for (int i = 0; i < 2; i++) {
        floats *= (double)conv->in[i] + 2.0 * conv->padding[i] + 2.0 * conv->stride[i] +
                  (double)conv->kernel[i] * conv->dilation[i];
    }
    const double tables = 4.0 * (double)patch_size(conv) * conv->out_channels;
    return (floats + tables) * sizeof(float);
}

/* True if size_t can hold all sizes. 64 bits always can: shapes and arguments are below 2^30. */
static bool is_countable(const fedge_convolution *conv)
{
    return sizeof(size_t) > sizeof(uint32_t) || bound(conv) < (double)UINT32_MAX;
}

static fedge_patches make_patches(const fedge_layer_run *run, const fedge_convolution *conv,
                                  fedge_patch_pass pass)
{
    return fedge_patches_make(conv, run->batch, run->kernels->lanes, pass);
}

/* with_weights: the same layout serves the weights' gradient. */
static fedge_patch_pass backward_pass(bool with_weights)
{
    return with_weights ? FEDGE_PATCH_BOTH : FEDGE_PATCH_GRADIENT;
}

void fedge_convolution_sizes(const fedge_layer_run *run, fedge_convolution arguments,
                             fedge_layer_sizes *sizes)
{
    const fedge_convolution sized = in_run(run, arguments), *conv = &sized;
    const bool separate_weights = fedge_convolution_weights_fit(conv, run->kernels);
    if (!is_countable(conv)) {
        sizes->forward = UNPLANNABLE;
        return;
    }
    if (fedge_depthwise_fits(conv)) {
        fedge_depthwise_sizes(run, conv, sizes);
    } else if (!is_direct(conv)) {
        const fedge_patches forward = make_patches(run, conv, FEDGE_PATCH_FORWARD);
        const fedge_patches backward = make_patches(run, conv, backward_pass(!separate_weights));
        sizes->forward = within_tables(lay_out(&forward, false, false, NULL).bytes);
        sizes->backward = within_tables(lay_out(&backward, true, !separate_weights, NULL).bytes);
    }
    if (separate_weights) {
        const uint64_t weights =
            within_tables(fedge_convolution_weights_scratch(conv, run->batch, run->kernels));
        sizes->backward = sizes->backward > weights ? sizes->backward : weights;
    }
    if (run->in_int8)
        sizes->forward = fedge_int8_convolution_scratch(conv);
}

/* ---- pointwise convolutions, in place ---- */

typedef struct direct {
    size_t channels, outputs; /* channels and outputs of a group */
    size_t pixels;
} direct;

static direct measure(const fedge_convolution *conv)
{
    return (direct){.channels = conv->channels / conv->groups,
                    .outputs = conv->out_channels / conv->groups,
                    .pixels = (size_t)conv->in[0] * conv->in[1]};
}

static void fill(float *y, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        y[i] = value;
}

static void forward_direct(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const direct s = measure(conv);
    for (size_t i = 0; i < (size_t)run->batch * conv->groups; i++) {
        const size_t group = i % conv->groups;
        float *y = run->y + i * s.outputs * s.pixels;
        for (size_t o = 0; conv->bias && o < s.outputs; o++)
            fill(y + o * s.pixels, s.pixels, run->values[BIAS][group * s.outputs + o]);
        run->kernels->gemm(&(fedge_gemm){.m = s.outputs, /* y (outputs, pixels) += w x */
                                         .n = s.pixels,
                                         .k = s.channels,
                                         .a = run->values[WEIGHT] + group * s.outputs * s.channels,
                                         .a_row = s.channels,
                                         .a_column = 1,
                                         .b = run->x[0] + i * s.channels * s.pixels,
                                         .b_row = s.pixels,
                                         .b_column = 1,
                                         .c = y,
                                         .c_row = s.pixels,
                                         .accumulate = conv->bias},
                           run->gemm_pack);
    }
}

static void backward_direct(const fedge_layer_run *run, const fedge_convolution *conv,
                            float *gradient)
{
    const direct s = measure(conv);
    for (size_t i = 0; i < (size_t)run->batch * conv->groups; i++) {
        const size_t weights = i % conv->groups * s.outputs * s.channels;
        const float *dy = run->dy + i * s.outputs * s.pixels;
        fedge_gemm product = {.m = s.outputs, /* dw (outputs, channels) += dy xᵀ */
                              .n = s.channels,
                              .k = s.pixels,
                              .a = dy,
                              .a_row = s.pixels,
                              .a_column = 1,
                              .b = run->x[0] + i * s.channels * s.pixels,
                              .b_row = 1,
                              .b_column = s.pixels,
                              .c_row = s.channels,
                              .accumulate = true};
        if (gradient) {
            product.c = gradient + weights;
            run->kernels->gemm(&product, run->gemm_pack);
        }
        if (run->dx[0]) {
            product = (fedge_gemm){.m = s.channels, /* dx (channels, pixels) = wᵀ dy */
                                   .n = s.pixels,
                                   .k = s.outputs,
                                   .a = run->values[WEIGHT] + weights,
                                   .a_row = 1,
                                   .a_column = s.channels,
                                   .b = dy,
                                   .b_row = s.pixels,
                                   .b_column = 1,
                                   .c = run->dx[0] + i * s.channels * s.pixels,
                                   .c_row = s.pixels};
            run->kernels->gemm(&product, run->gemm_pack);
        }
    }
}

/* ---- other convolutions, through layouts ---- */

/* Initialises the outputs of a block to [bias], in y or in the layout: either way the sums are
 * added in the same order. */
static void begin_outputs(const fedge_patches *patches, const fedge_patch_block *block,
                          const float *bias, bool whole, float *to)
{
    const size_t outputs = patches->groups * patches->outputs, width = patches->w.out;
    const size_t images = whole ? block->examples * outputs : outputs;
    for (size_t i = 0; i < images; i++) {
        fill(to + i * (whole ? patches->h.out * width : patches->pitch),
             whole ? block->rows * width : patches->pitch, bias[i % outputs]);
    }
}

static void forward_by_patches(const fedge_layer_run *run, const fedge_convolution *conv)
{
    const fedge_patches patches = make_patches(run, conv, FEDGE_PATCH_FORWARD);
    const workspace at = lay_out(&patches, false, false, run->scratch);
    const size_t planes = patches.h.planes * patches.w.planes;
    const size_t plane = patches.h.out * patches.w.out;
    const bool whole = fedge_patches_outputs_whole(&patches);
    const float *bias = conv->bias ? run->values[BIAS] : NULL;
    fedge_patch_block block = {0};
    fedge_patches_offsets(&patches, at.offsets);
    while (fedge_patches_next(&patches, run->batch, &block)) {
        const bool first = block.example == 0 && block.row == 0;
        const size_t vectors =
            fedge_patches_output_starts(&patches, &block, at.starts, whole ? at.to : NULL);
        float *y = run->y + block.example * conv->out_channels * plane + block.row * patches.w.out;
        fedge_patches_copy_input(&patches, run->kernels, &block, first, run->x[0], at.input);
        if (bias)
            begin_outputs(&patches, &block, bias, whole, whole ? y : at.output);
        for (size_t g = 0; g < patches.groups; g++) {
            run->kernels->gemm(
                &(fedge_gemm){.m = patches.outputs,
                              .n = vectors * patches.lanes,
                              .k = patches.patch,
                              .a = run->values[WEIGHT] + g * patches.outputs * patches.patch,
                              .a_row = patches.patch,
                              .a_column = 1,
                              .b = at.input + g * patches.channels * planes * patches.pitch,
                              .b_column = 1,
                              .b_offsets = at.offsets,
                              .starts = at.starts,
                              .c_starts = whole ? at.to : NULL,
                              .group = run->kernels->lanes,
                              .c = whole ? y + g * patches.outputs * plane
                                         : at.output + g * patches.outputs * patches.pitch,
                              .c_row = whole ? plane : patches.pitch,
                              .accumulate = bias != NULL},
                run->gemm_pack);
        }
        if (!whole)
            fedge_patches_store_outputs(&patches, run->kernels, &block, at.output, run->y);
    }
}

static void add_weight_gradient(const fedge_layer_run *run, const fedge_patches *patches,
                                const fedge_patch_block *block, const workspace *at,
                                float *gradient)
{
    const size_t planes = patches->h.planes * patches->w.planes;
    const size_t lead = patches->h.lead * patches->w.size + patches->w.lead;
    fedge_patches_copy_input(patches, run->kernels, block, true, run->x[0], at->input);
    for (size_t g = 0; g < patches->groups; g++) {
        run->kernels->gemm(
            &(fedge_gemm){.m = patches->outputs,
                          .n = patches->patch,
                          .k = fedge_patches_outputs(patches, block),
                          .a = at->output + g * patches->outputs * patches->pitch + lead,
                          .a_row = patches->pitch,
                          .a_column = 1,
                          .b = at->input + g * patches->channels * planes * patches->pitch,
                          .b_row = 1,
                          .b_offsets = at->offsets,
                          .c = gradient + g * patches->outputs * patches->patch,
                          .c_row = patches->patch,
                          .accumulate = true},
            run->gemm_pack);
    }
}

/* The target of the products for the input's gradient. */
typedef struct gradient_target {
    float *c;
    size_t c_row, group; /* floats between channels, and between groups */
    const uint32_t *starts;
} gradient_target;

static void multiply_gradient(const fedge_layer_run *run, const fedge_patches *patches,
                              const workspace *at, size_t vectors, const uint32_t *taps,
                              size_t num_taps, const gradient_target *to)
{
    for (size_t g = 0; g < patches->groups; g++) {
        run->kernels->gemm(
            &(fedge_gemm){.m = patches->channels,
                          .n = vectors * patches->lanes,
                          .k = num_taps,
                          .a = run->values[WEIGHT] + g * patches->outputs * patches->patch,
                          .a_row = patches->taps,
                          .a_offsets = taps + (at->weights - at->gradient_offsets),
                          .b = at->output +
                               g * patches->outputs * patches->w.shifts * patches->pitch,
                          .b_column = 1,
                          .b_offsets = taps,
                          .starts = at->starts,
                          .c_starts = to->starts,
                          .group = run->kernels->lanes,
                          .c = to->c + g * to->group,
                          .c_row = to->c_row},
            run->gemm_pack);
    }
}

/* Writes to dx directly, if its rows are whole vectors. */
static void make_whole_gradient(const fedge_layer_run *run, const fedge_patches *patches,
                                const fedge_patch_block *block, const workspace *at)
{
    const size_t plane = patches->h.in * patches->w.in;
    const size_t channels = patches->groups * patches->channels;
    const gradient_target to = {.c = run->dx[0] + block->example * channels * plane +
                                     block->row * patches->w.in,
                                .c_row = plane,
                                .group = patches->channels * plane,
                                .starts = at->to};
    const size_t vectors = fedge_patches_gradient_starts(patches, block, 0, at->starts, at->to);
    multiply_gradient(run, patches, at, vectors, at->gradient_offsets,
                      patches->outputs * patches->taps, &to);
}

/* Computes dx phase by phase, through a layout. */
static void make_input_gradient(const fedge_layer_run *run, const fedge_patches *patches,
                                const fedge_patch_block *block, const workspace *at)
{
    if (fedge_patches_gradients_whole(patches)) {
        make_whole_gradient(run, patches, block, at);
        return;
    }
    const size_t size = patches->groups * patches->channels * patches->pitch;
    const size_t phases_w = patches->w.stride;
    const bool weaves = fedge_patches_weaves(patches);
    const uint32_t *taps = at->gradient_offsets;
    size_t vectors = 0;
    for (size_t phase = 0; phase < patches->h.stride * phases_w; phase++) {
        const size_t phase_h = phase / phases_w, phase_w = phase % phases_w;
        if (phase_w == 0) { /* the rows are those of all horizontal phases */
            vectors = fedge_patches_gradient_starts(patches, block, phase_h, at->starts, NULL);
        }
        const size_t sum = fedge_patches_gradient_taps(patches, phase_h, phase_w);
        if (sum == 0)
            continue;
        const gradient_target to = {.c = at->input + (weaves ? phase_w * size : 0),
                                    .c_row = patches->pitch,
                                    .group = patches->channels * patches->pitch};
        multiply_gradient(run, patches, at, vectors, taps, sum, &to);
        taps += sum;
        if (!weaves) {
            fedge_patches_store_gradient(patches, run->kernels, block, phase_h, phase_w, to.c,
                                         run->dx[0]);
        } else if (phase_w == 1) {
            const float *const both[2] = {at->input, at->input + size};
            fedge_patches_store_woven(patches, run->kernels, block, phase_h, both, run->dx[0]);
        }
    }
}

/* Fills the tables of all phases of the input's gradient. */
static void fill_gradient_tables(const fedge_patches *patches, const workspace *at)
{
    uint32_t *offsets = at->gradient_offsets, *weights = at->weights;
    for (size_t phase_h = 0; phase_h < patches->h.stride; phase_h++) {
        for (size_t phase_w = 0; phase_w < patches->w.stride; phase_w++) {
            const size_t taps = fedge_patches_gradient_taps(patches, phase_h, phase_w);
            if (taps > 0)
                fedge_patches_gradient_offsets(patches, phase_h, phase_w, offsets, weights);
            offsets += taps;
            weights += taps;
        }
    }
}

/* True if no tap reads some elements of the input, so that their gradient is 0. */
static bool leaves_gaps(const fedge_convolution *conv)
{
    bool gaps = false;
    for (int i = 0; i < 2; i++) {
        for (size_t phase = 0; phase < conv->stride[i]; phase++) {
            bool covered = false;
            for (size_t tap = 0; tap < conv->kernel[i]; tap++)
                covered = covered || tap * conv->dilation[i] % conv->stride[i] == phase;
            gaps = gaps || !covered;
        }
    }
    return gaps;
}

/* gradient: of the weights, or NULL. */
static void backward_by_patches(const fedge_layer_run *run, const fedge_convolution *conv,
                                float *gradient)
{
    const bool with_weights = !fedge_convolution_weights_fit(conv, run->kernels);
    const fedge_patches patches = make_patches(run, conv, backward_pass(with_weights));
    const workspace at = lay_out(&patches, true, with_weights, run->scratch);
    fedge_patch_block block = {0};
    if (run->dx[0] && leaves_gaps(conv))
        memset(run->dx[0], 0, run->batch * fedge_shape_count(&run->in[0]) * sizeof(*run->dx[0]));
    if (run->dx[0])
        fill_gradient_tables(&patches, &at);
    if (gradient)
        fedge_patches_offsets(&patches, at.offsets);
    while (fedge_patches_next(&patches, run->batch, &block)) {
        const bool first = block.example == 0 && block.row == 0;
        fedge_patches_copy_gradient(&patches, run->kernels, &block, first, run->dy, at.output);
        if (gradient && block.rows > 0)
            add_weight_gradient(run, &patches, &block, &at, gradient);
        if (run->dx[0] && block.gradient_rows > 0)
            make_input_gradient(run, &patches, &block, &at);
    }
}

/* ---- both passes ---- */

void fedge_convolution_forward(const fedge_layer_run *run, fedge_convolution arguments)
{
    const fedge_convolution sized = in_run(run, arguments), *conv = &sized;
    if (run->in_int8)
        fedge_int8_convolution(run, conv, conv->bias ? run->values[BIAS] : NULL);
    else if (fedge_depthwise_fits(conv))
        fedge_depthwise_forward(run, conv);
    else if (is_direct(conv))
        forward_direct(run, conv);
    else
        forward_by_patches(run, conv);
}

void fedge_convolution_backward(const fedge_layer_run *run, fedge_convolution arguments)
{
    const fedge_convolution sized = in_run(run, arguments), *conv = &sized;
    const size_t out = (size_t)conv->out[0] * conv->out[1];
    const size_t images = (size_t)run->batch * conv->out_channels;
    for (size_t i = 0; run->gradients[BIAS] && i < images; i++) {
        double sums[2];
        run->kernels->moments(run->dy + i * out, out, 0.0f, sums);
        run->gradients[BIAS][i % conv->out_channels] += (float)sums[0];
    }
    if (fedge_depthwise_fits(conv)) {
        fedge_depthwise_backward(run, conv);
        return;
    }
    float *gradient = run->gradients[WEIGHT];
    if (gradient && fedge_convolution_weights_fit(conv, run->kernels)) {
        fedge_convolution_weights_add(run, conv, gradient);
        gradient = NULL;
    }
    if (!gradient && !run->dx[0])
        return;
    if (is_direct(conv))
        backward_direct(run, conv, gradient);
    else
        backward_by_patches(run, conv, gradient);
}
