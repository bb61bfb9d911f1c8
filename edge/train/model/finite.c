/* Numbers that are not finite, and whose they are. */
#include <math.h>

#include "edge/train/kernels/half.h"
#include "edge/train/model/internals.h"

#define WIDE 256u /* values of 16 bits that are widened at a time */

size_t fedge_find_not_finite(const fedge_kernels *kernels, const float *values, size_t n)
{
    size_t first = kernels->all_finite(values, n) ? n : 0;
    while (first < n && isfinite(values[first]))
        first++;
    return first;
}

/* As above, in the model's parameters, of any storage. *value: the one that was found. */
static size_t find_parameter(const fedge_model *model, float *value)
{
    const size_t n = model->num_values;
    if (!model->narrow) {
        const size_t first = fedge_find_not_finite(model->kernels, model->values, n);
        *value = first < n ? model->values[first] : 0.0f;
        return first;
    }
    for (size_t i = 0; i < n; i += WIDE) {
        float wide[WIDE];
        const size_t part = n - i < WIDE ? n - i : WIDE;
        fedge_half_widen(model->options.weights, model->narrow + i, part, wide);
        const size_t first = fedge_find_not_finite(model->kernels, wide, part);
        if (first < part) {
            *value = wide[first];
            return i + first;
        }
    }
    return n;
}

static fedge_status fail_at(const fedge_place *place, float value, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NOT_FINITE,
                      "layer %u (%s): after training, value %zu of its \"%s\" is %g: lower the "
                      "learning rate, or clip the gradients' norm",
                      (unsigned)place->layer, fedge_layer_type_name(place->type), place->at,
                      place->tensor, fedge_printable((double)value));
}

fedge_status fedge_model_check(const fedge_model *model, fedge_error *err)
{
    if (model->options.precision == FEDGE_PRECISION_INT8)
        return FEDGE_OK;
    float value = 0.0f;
    size_t first = find_parameter(model, &value);
    if (first < model->num_values) {
        const fedge_place place =
            model->fused ? fedge_fused_place(model, first) : fedge_graph_place(model, false, first);
        return fail_at(&place, value, err);
    }
    first = fedge_find_not_finite(model->kernels, model->buffers, model->num_buffers);
    if (first < model->num_buffers) {
        const fedge_place place = fedge_graph_place(model, true, first);
        return fail_at(&place, model->buffers[first], err);
    }
    return FEDGE_OK;
}
