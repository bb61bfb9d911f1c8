#include "edge/train/layers/elementwise.h"

#include <math.h>

const fedge_argument fedge_inplace_argument[] = {
    FEDGE_BOOL_ARGUMENT("inplace", offsetof(fedge_layer_spec, u.activation.inplace), 0),
    FEDGE_NO_ARGUMENT,
};

fedge_status fedge_elementwise_infer(const fedge_layer_spec *layer, const fedge_shape *in,
                                     uint32_t num_inputs, fedge_shape *out, fedge_error *err)
{
    (void)layer;
    (void)num_inputs;
    (void)err;
    *out = in[0];
    return FEDGE_OK;
}

size_t fedge_elementwise_count(const fedge_layer_run *run)
{
    return fedge_shape_count(&run->out) * run->batch;
}

void fedge_elementwise_mask_sizes(const fedge_layer_run *run, fedge_layer_sizes *sizes)
{
    sizes->mask = ((uint64_t)fedge_shape_count(&run->out) * run->batch + 7) / 8;
}

void fedge_mask_between(const float *x, size_t n, float low, float high, uint8_t *bits)
{
    for (size_t i = 0; i < n; i += 8, x += 8) {
        const size_t count = n - i < 8 ? n - i : 8;
        unsigned byte = 0;
        for (size_t k = 0; k < count; k++)
            byte |= (unsigned)(x[k] > low && (x[k] < high || high == INFINITY)) << k;
        bits[i / 8] = (uint8_t)byte;
    }
}

void fedge_mask_scale(const uint8_t *bits, size_t n, float slope, const float *dy, float *dx)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = dy[i] * (bits[i / 8] >> i % 8 & 1 ? 1.0f : slope);
}
