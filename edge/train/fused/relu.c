#include <string.h>

#include "edge/train/fused/stages.h"

void fedge_relu_forward(const fedge_layer_context *context, const fedge_stage *stage, size_t first,
                        size_t batch)
{
    if (stage->relu) {
        context->kernels->relu_forward(stage->activation + first * stage->out.size,
                                       batch * stage->out.size);
    }
}

void fedge_relu_backward(const fedge_layer_context *context, const fedge_stage *stage, float *dy,
                         size_t first, size_t batch)
{
    if (stage->relu && dy != stage->activation) {
        context->kernels->relu_backward(stage->activation + first * stage->out.size,
                                        dy + first * stage->out.size, batch * stage->out.size);
    }
}

float *fedge_gradient_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                            size_t b)
{
    return stage->in_place ? context->scratch.input : dx + b * stage->in.size;
}

void fedge_put_in_place(const fedge_layer_context *context, const fedge_stage *stage, float *dx,
                        size_t b)
{
    if (stage->in_place) {
        float *x = dx + b * stage->in.size, *gradient = context->scratch.input;
        if (stage->from_relu)
            context->kernels->relu_backward(x, gradient, stage->in.size);
        memcpy(x, gradient, stage->in.size * sizeof(*x));
    }
}
