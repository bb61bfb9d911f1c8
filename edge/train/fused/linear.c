#include "edge/train/fused/stages.h"
#include "edge/train/kernels/sgd.h"

static fedge_linear_shape shape_of(const fedge_layer_context *context, const fedge_stage *stage)
{
    return (fedge_linear_shape){context->batch, stage->in.channels, stage->out.channels};
}

void fedge_linear_forward(const fedge_layer_context *context, const fedge_stage *stage,
                          const float *x)
{
    const fedge_linear_shape shape = shape_of(context, stage);
    context->kernels->linear_forward(&shape, x, stage->weight, stage->bias_values,
                                     stage->activation);
    fedge_relu_forward(context, stage, 0, context->batch);
}

void fedge_linear_backward(const fedge_layer_context *context, const fedge_stage *stage,
                           const float *x, float *dy, const fedge_optimizer *sgd, float *dx)
{
    const fedge_linear_shape shape = shape_of(context, stage);
    fedge_relu_backward(context, stage, dy, 0, context->batch);
    context->kernels->linear_backward(&shape, x, dy, stage->weight, stage->weight_velocity, sgd,
                                      dx);
    for (size_t o = 0; stage->bias && o < shape.out; o++) {
        float g = 0.0f;
        for (size_t b = 0; b < shape.batch; b++)
            g += dy[b * shape.out + o];
        fedge_sgd_apply(sgd, g, &stage->bias_values[o],
                        !stage->bias_velocity ? NULL : &stage->bias_velocity[o]);
    }
}
