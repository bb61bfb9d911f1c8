#include "edge/train/flops.h"

#include "edge/train/layers/layer.h"

/* Of the sequence [in], (steps, width), with itself: four projections, and each step's products
 * with the steps it sees, once for the scores and once for the values. */
static double attention_flops(const fedge_shape *in, bool causal)
{
    const double steps = in->dims[0], width = in->dims[1];
    const double pairs = causal ? steps * (steps + 1) / 2 : steps * steps;
    return 2 * steps * 4 * width * width + 2 * 2 * pairs * width;
}

/* Gates of all layers of a recurrence: the first reads the input, in both directions if there are
 * two, the others the one before. */
static double recurrent_flops(const fedge_layer_spec *layer, uint32_t steps)
{
    const double gates = layer->type == FEDGE_LAYER_LSTM ? 4 : 3;
    const double hidden = layer->u.recurrent.hidden_size, first = layer->u.recurrent.input_size;
    const double later = layer->u.recurrent.num_layers - 1;
    const double directions = layer->u.recurrent.bidirectional ? 2 : 1;
    return 2 * steps * gates * hidden * (directions * (first + hidden) + later * 2 * hidden);
}

/* The two small products of LoRA. */
static double lora_flops(const fedge_layer_spec *linear, const fedge_shape *in,
                         const fedge_shape *out)
{
    return 2 * (double)(fedge_shape_count(in) + fedge_shape_count(out)) * linear->u.linear.r;
}

static double forward_flops(const fedge_layer_spec *layer, const fedge_shape *in,
                            const fedge_shape *out)
{
    const double inputs = (double)fedge_shape_count(in), outputs = (double)fedge_shape_count(out);
    double kernel;
    switch (layer->type) {
    case FEDGE_LAYER_LINEAR:
        return 2 * inputs * layer->u.linear.out_features + lora_flops(layer, in, out);
    case FEDGE_LAYER_CONV2D:
        kernel = (double)layer->u.conv2d.kernel_size[0] * layer->u.conv2d.kernel_size[1];
        return 2 * outputs * kernel * layer->u.conv2d.in_channels /
               (layer->u.conv2d.groups > 0 ? layer->u.conv2d.groups : 1);
    case FEDGE_LAYER_CONV1D:
        return 2 * outputs * layer->u.conv1d.kernel_size * layer->u.conv1d.in_channels /
               (layer->u.conv1d.groups > 0 ? layer->u.conv1d.groups : 1);
    case FEDGE_LAYER_CONVTRANSPOSE2D:
        kernel = (double)layer->u.convtranspose2d.kernel_size[0] *
                 layer->u.convtranspose2d.kernel_size[1];
        return 2 * inputs * kernel * layer->u.convtranspose2d.out_channels /
               (layer->u.convtranspose2d.groups > 0 ? layer->u.convtranspose2d.groups : 1);
    case FEDGE_LAYER_CONVTRANSPOSE1D:
        return 2 * inputs * layer->u.convtranspose1d.kernel_size *
               layer->u.convtranspose1d.out_channels /
               (layer->u.convtranspose1d.groups > 0 ? layer->u.convtranspose1d.groups : 1);
    case FEDGE_LAYER_LSTM:
    case FEDGE_LAYER_GRU:
        return recurrent_flops(layer, in->dims[0]);
    case FEDGE_LAYER_MULTIHEADATTENTION:
        return attention_flops(in, layer->u.multiheadattention.is_causal);
    case FEDGE_LAYER_TRANSFORMERENCODERLAYER:
        return attention_flops(in, layer->u.transformerencoderlayer.is_causal) +
               2 * 2 * inputs * layer->u.transformerencoderlayer.dim_feedforward;
    default:
        return 0;
    }
}

static bool trains(const fedge_layer_spec *layer)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(layer, list);
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any = any || fedge_layer_trains(layer, &list[i]);
    return any;
}

/* Those of the forward products whose weights are trained. A bias's gradient is a sum. */
static double trained_flops(const fedge_layer_spec *layer, const fedge_shape *in,
                            const fedge_shape *out, double forward)
{
    if (layer->train == FEDGE_TRAIN_BIAS || !trains(layer))
        return 0;
    return layer->type == FEDGE_LAYER_LINEAR && layer->u.linear.r > 0 ? lora_flops(layer, in, out)
                                                                      : forward;
}

fedge_status fedge_model_flops(const fedge_model_spec *spec, fedge_layer_flops *flops,
                               fedge_error *err)
{
    fedge_shape input, shapes[FEDGE_MAX_LAYERS];
    bool needs_gradient[FEDGE_MAX_LAYERS]; /* true behind the first trained layer */
    FEDGE_TRY(fedge_shape_input(spec, &input, err));
    for (uint32_t i = 0; i < spec->num_layers; i++) {
        const fedge_layer_spec *layer = &spec->layers[i];
        uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
        uint32_t num_sources;
        fedge_shape in[FEDGE_MAX_LAYER_INPUTS] = {{0}};
        bool inner = false;
        FEDGE_TRY(fedge_layer_sources(spec, i, sources, &num_sources, err));
        for (uint32_t k = 0; k < num_sources; k++) {
            const bool outside = sources[k] == FEDGE_INPUT_MODEL;
            in[k] = outside ? input : shapes[sources[k]];
            inner = inner || (!outside && needs_gradient[sources[k]]);
        }
        FEDGE_TRY(fedge_shape_infer(spec, i, in, num_sources, &shapes[i], err));
        flops[i].forward = forward_flops(layer, &in[0], &shapes[i]);
        flops[i].backward = (inner ? flops[i].forward : 0) +
                            trained_flops(layer, &in[0], &shapes[i], flops[i].forward);
        needs_gradient[i] = inner || trains(layer);
    }
    return FEDGE_OK;
}
