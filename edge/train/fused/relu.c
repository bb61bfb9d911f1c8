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
    if (stage->relu) {
        context->kernels->relu_backward(stage->activation + first * stage->out.size,
                                        dy + first * stage->out.size, batch * stage->out.size);
    }
}
