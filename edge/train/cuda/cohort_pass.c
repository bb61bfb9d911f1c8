/* One pass of a batch through a cohort's model, and the step behind it. */
#include <string.h>

#include "edge/train/cuda/cohort_internal.h"

static cudaError_t gather(const fedge_cohort *cohort, const fedge_cohort_shape *shape,
                          const fedge_cohort_batch *batch)
{
    const fedge_cohort_config *config = &cohort->config;
    fedge_cohort_gather args = {.is_float = config->dtype != FEDGE_U8,
                                .example_values = (uint32_t)cohort->plan.input,
                                .num_channels = config->num_channels,
                                .divide_by = config->divide_by,
                                .mean = cohort->arrays.mean,
                                .std = cohort->arrays.std,
                                .moves = batch->moves,
                                .indices = batch->indices,
                                .x = cohort->arrays.input};
    args.plane = args.example_values / (config->num_channels > 1 ? config->num_channels : 1);
    if (batch->moves) {
        args.height = config->augmentation->height;
        args.width = config->augmentation->width;
    }
    memcpy(args.sets, cohort->arrays.sets, sizeof(args.sets));
    return fedge_cohort_launch_gather(shape, &args);
}

cudaError_t fedge_cohort_forward(const fedge_cohort *cohort, const fedge_cohort_pass *pass,
                                 const fedge_cohort_batch *batch)
{
    const fedge_cohort_plan *plan = &cohort->plan;
    cudaError_t error = gather(cohort, &pass->shape, batch);
    for (uint32_t i = 0; i < plan->num_layers && error == cudaSuccess; i++)
        error = plan->layers[i].ops->forward(&plan->layers[i], pass);
    fedge_cohort_loss loss = {.indices = batch->indices,
                              .y = plan->layers[plan->num_layers - 1].y,
                              .dy = pass->training ? plan->layers[plan->num_layers - 1].dy : NULL,
                              .predicted = batch->predicted,
                              .tallies = batch->tallies,
                              .function = plan->loss,
                              .classes = plan->classes,
                              .argument = plan->argument};
    memcpy(loss.sets, cohort->arrays.sets, sizeof(loss.sets));
    return error == cudaSuccess ? fedge_cohort_launch_loss(&pass->shape, &loss) : error;
}

/* The gradient of layer [at] has got what [layer] has of it: another's is added to that. */
static cudaError_t add_gradient(const fedge_cohort_pass *pass, const fedge_cohort_layer *layer,
                                const float *from, bool adds)
{
    const fedge_cohort_add args = {.from = from,
                                   .to = layer->dy,
                                   .values = (uint32_t)fedge_shape_count(&layer->out),
                                   .adds = adds};
    return from == layer->dy ? cudaSuccess : fedge_cohort_launch_add(&pass->shape, &args);
}

/* One layer: what it reads gets its gradient, or a share of it. [made]: of each layer, whether it
 * has one. */
static cudaError_t backward_layer(const fedge_cohort *cohort, fedge_cohort_pass *pass,
                                  uint32_t index, bool made[FEDGE_MAX_LAYERS])
{
    const fedge_cohort_plan *plan = &cohort->plan;
    const fedge_cohort_layer *layer = &plan->layers[index];
    cudaError_t error = cudaSuccess;
    float *const gradients = pass->gradients;
    pass->gradients = layer->trains ? gradients : NULL;
    for (uint32_t k = 0; k < layer->num_inputs && error == cudaSuccess; k++) {
        const uint16_t input = layer->inputs[k];
        const fedge_cohort_layer *source = input == FEDGE_INPUT_MODEL ? NULL : &plan->layers[input];
        const bool wanted = source && source->wants;
        const bool adds = wanted && made[input];
        pass->dx = !wanted ? NULL : adds ? cohort->arrays.between[0] : source->dy;
        if (layer->ops->backward && k == 0)
            error = layer->ops->backward(layer, pass);
        if (error == cudaSuccess && wanted && (adds || !layer->ops->backward))
            error = add_gradient(pass, source, layer->ops->backward ? pass->dx : layer->dy, adds);
        if (wanted)
            made[input] = true;
    }
    pass->gradients = gradients;
    return error;
}

/* The last of the last group of layers whose outputs are made again, below layer [index];
 * FEDGE_MAX_LAYERS: there is none. */
static uint32_t group_below(const fedge_cohort_plan *plan, uint32_t index)
{
    while (index > 0 && !plan->layers[index - 1].recompute)
        index--;
    return index > 0 ? index - 1 : FEDGE_MAX_LAYERS;
}

/* Layer [index] reads a group's last output: what forward left of the group lies under the one that
 * was made after it. Statistics of batches do not move again. */
static cudaError_t recompute(const fedge_cohort_plan *plan, fedge_cohort_pass pass, uint32_t index)
{
    uint32_t first = index;
    cudaError_t error = cudaSuccess;
    pass.tracked = NULL;
    while (first > 0 && plan->layers[first - 1].recompute)
        first--;
    for (uint32_t i = first; i < index && error == cudaSuccess; i++)
        error = plan->layers[i].ops->forward(&plan->layers[i], &pass);
    return error;
}

cudaError_t fedge_cohort_backward(const fedge_cohort *cohort, fedge_cohort_pass pass)
{
    const fedge_cohort_plan *plan = &cohort->plan;
    const uint32_t there = group_below(plan, plan->num_layers); /* forward came there last */
    bool made[FEDGE_MAX_LAYERS] = {false};
    cudaError_t error = cudaSuccess;
    made[plan->num_layers - 1] = true;
    for (uint32_t i = plan->num_layers; i-- > 0 && error == cudaSuccess;) {
        const bool wanted = plan->layers[i].wants && made[i];
        const bool reads_group =
            i > 0 && plan->layers[i - 1].recompute && !plan->layers[i].recompute;
        if (wanted && reads_group && i - 1 != there)
            error = recompute(plan, pass, i);
        if (wanted && error == cudaSuccess)
            error = backward_layer(cohort, &pass, i, made);
    }
    return error;
}

cudaError_t fedge_cohort_take_step(const fedge_cohort *cohort, const fedge_cohort_step *wanted,
                                   size_t from, const fedge_cohort_shape *shape)
{
    const fedge_cohort_plan *plan = &cohort->plan;
    const uint32_t passes = wanted->clip_norm > 0.0f ? 2 : 1;
    fedge_cohort_step args = *wanted;
    cudaError_t error = cudaSuccess;
    args.states_first = args.count = 0;
    for (uint32_t i = 0; i < passes * plan->num_ranges && error == cudaSuccess; i++) {
        const uint32_t *range = plan->ranges[i % plan->num_ranges];
        if (passes == 2 && i < plan->num_ranges) {
            fedge_cohort_step norm = *wanted;
            norm.first = range[0];
            norm.count = range[1];
            norm.adds = i > 0;
            error = fedge_cohort_launch_squares(shape, &norm);
            continue;
        }
        args.states_first += args.count;
        args.count = fedge_cohort_cut(plan, range, from, &args.first);
        error = args.count > 0 ? fedge_cohort_launch_step(shape, &args) : cudaSuccess;
    }
    return error;
}
