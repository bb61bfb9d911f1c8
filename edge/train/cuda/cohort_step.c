/* A task's steps: examples and their order, the optimizer's arguments, passes and graphs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/train/cuda/cohort_internal.h"
#include "edge/train/layers/layer.h"

fedge_status fedge_cohort_fit_order(fedge_cohort_slot *slot, uint32_t count, fedge_error *err)
{
    if (count <= slot->capacity)
        return FEDGE_OK;
    uint32_t *order = realloc(slot->order, count * sizeof(*order));
    if (!order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the order of %u examples", count);
    slot->order = order;
    slot->capacity = count;
    return FEDGE_OK;
}

/* Checks a batch size as the CPU's layers do. */
static fedge_status check_size(const fedge_cohort_plan *plan, uint32_t size, fedge_error *err)
{
    for (uint32_t i = 0; i < plan->num_layers; i++) {
        const fedge_cohort_layer *layer = &plan->layers[i];
        const fedge_layer_ops *ops = fedge_layer_ops_of(layer->spec.type);
        const fedge_layer_run run = {.spec = &layer->spec,
                                     .batch = size,
                                     .training = true,
                                     .num_inputs = layer->num_inputs,
                                     .in = {layer->in},
                                     .out = layer->out};
        const fedge_status status = ops->check ? ops->check(&run, err) : FEDGE_OK;
        if (status != FEDGE_OK)
            return fedge_layer_prefix(&layer->spec, i, status, err);
    }
    return FEDGE_OK;
}

fedge_status fedge_cohort_count_steps(const fedge_cohort_plan *plan,
                                      const fedge_trainer_config *training, uint32_t num_examples,
                                      uint64_t *steps, fedge_error *err)
{
    const uint32_t size = training->batch_size, whole = num_examples < size ? num_examples : size;
    FEDGE_TRY(fedge_trainer_count_steps(training, num_examples, steps, err));
    const uint32_t left = num_examples % size;
    fedge_status status = check_size(plan, whole, err);
    if (status == FEDGE_OK && left > 0 && *steps > num_examples / size)
        status = check_size(plan, left, err);
    return status == FEDGE_OK
               ? FEDGE_OK
               : fedge_error_prefix(err, status,
                                    "%u examples in batches of %u, choose another size",
                                    (unsigned)num_examples, (unsigned)size);
}

static void begin_epoch(const fedge_trainer_config *training, fedge_cohort_slot *slot)
{
    const fedge_cohort_task *task = slot->task;
    for (uint32_t i = 0; i < task->num_examples; i++)
        slot->order[i] = i;
    if (training) {
        fedge_rng rng = fedge_rng_stream(training->seed, FEDGE_PURPOSE_SHUFFLE, training->round,
                                         task->client_index, (uint16_t)slot->epoch);
        fedge_rng_shuffle(&rng, slot->order, task->num_examples);
        slot->moves = fedge_rng_stream(training->seed, FEDGE_PURPOSE_AUGMENT, training->round,
                                       task->client_index, (uint16_t)slot->epoch);
    }
    slot->epoch++;
}

/* The next example's augmentation, with draws in the order of edge/train/augment.c. */
static fedge_cohort_move next_move(const fedge_augmentation *how, fedge_rng *rng)
{
    const uint32_t padding = how->crop_padding, shifts = 2 * padding + 1;
    fedge_cohort_move move = {0};
    if (padding > 0) {
        const uint32_t top = how->height > 1 ? fedge_rng_below(rng, shifts) : padding;
        move.shift_h = (int16_t)((int32_t)top - (int32_t)padding);
        move.shift_w = (int16_t)((int32_t)fedge_rng_below(rng, shifts) - (int32_t)padding);
    }
    move.flip = how->horizontal_flip > 0.0f && fedge_rng_float(rng) < how->horizontal_flip;
    return move;
}

/* Selects the step's stream as the CPU does (edge/train/model/graph.c). The first [step] is 0. */
static void name_stream(const fedge_trainer_config *training, uint32_t client, uint64_t step,
                        fedge_cohort_slot_step *slot_step)
{
    const fedge_rng rng =
        fedge_rng_stream(training->seed ^ (step >> 16) << 32, FEDGE_PURPOSE_DROPOUT,
                         training->round, client, (uint16_t)step);
    memcpy(slot_step->key, rng.key, sizeof(slot_step->key));
    memcpy(slot_step->stream, rng.counter + 1, sizeof(slot_step->stream));
}

fedge_cohort_slot_step fedge_cohort_next_step(const fedge_cohort *cohort,
                                              const fedge_trainer_config *training,
                                              fedge_cohort_slot *slot, uint32_t *indices,
                                              fedge_cohort_move *moves)
{
    const fedge_cohort_task *task = slot->task;
    const uint32_t batch = training ? training->batch_size : cohort->plan.batch;
    if (slot->next == 0)
        begin_epoch(training, slot);
    const uint32_t left = task->num_examples - slot->next, count = left < batch ? left : batch;
    for (uint32_t i = 0; i < count; i++)
        indices[i] = task->examples[slot->order[slot->next + i]];
    for (uint32_t i = 0; training && moves && i < count; i++)
        moves[i] = next_move(cohort->config.augmentation, &slot->moves);
    slot->next = count == left ? 0 : slot->next + count;
    slot->seen += count;
    slot->done++;
    fedge_cohort_slot_step slot_step = {
        .count = count, .step = (uint32_t)slot->done, .data = task->set, .member = task->member};
    if (training) {
        const fedge_optimizer *o = &training->optimizer;
        name_stream(training, task->client_index, slot->done - 1, &slot_step);
        slot_step.whole = count;
        slot_step.part = cohort->plan.options->micro_batch;
        slot_step.rate = o->learning_rate;
        slot_step.keep =
            o->type == FEDGE_OPTIMIZER_ADAMW ? 1.0f - o->learning_rate * o->weight_decay : 1.0f;
    }
    if (training && training->optimizer.type != FEDGE_OPTIMIZER_SGD) {
        const fedge_cohort_step step = fedge_cohort_step_of(cohort, training);
        const double t = (double)slot->done;
        slot_step.size =
            (float)((double)training->optimizer.learning_rate / (1.0 - pow((double)step.beta1, t)));
        slot_step.root = (float)sqrt(1.0 - pow((double)step.beta2, t));
    }
    return slot_step;
}

fedge_cohort_step fedge_cohort_step_of(const fedge_cohort *cohort,
                                       const fedge_trainer_config *training)
{
    const fedge_cohort_arrays *arrays = &cohort->arrays;
    fedge_cohort_step step = {.num_values = (uint32_t)cohort->plan.num_state,
                              .stride = cohort->plan.stride,
                              .start = arrays->start};
    if (!training)
        return step;
    const fedge_optimizer *o = &training->optimizer;
    step.optimizer = (uint32_t)o->type;
    step.nesterov = o->nesterov;
    step.momentum = o->momentum;
    step.weight_decay = o->weight_decay;
    step.beta1 = o->num_betas == 0 ? 0.9f : o->betas[0];
    step.beta2 = o->num_betas == 0 ? 0.999f : o->betas[1];
    step.epsilon = o->epsilon == 0.0f ? 1e-8f : o->epsilon;
    step.proximal_mu = o->proximal_mu;
    step.clip_norm = o->clip_norm;
    step.corrections = arrays->corrections;
    step.values = arrays->values;
    step.gradients = arrays->gradients;
    step.states[0] = arrays->states[0];
    step.states[1] = arrays->states[1];
    step.states_bf16 = cohort->plan.split.states_bf16;
    step.rounding = (uint32_t)FEDGE_PURPOSE_ROUNDING << 16;
    step.states_stride = fedge_cohort_num_state_values(&cohort->plan);
    step.squares = arrays->squares;
    return step;
}

/* ---- passes and the optimizer's step --------------------------------------------------------- */

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

/* Copies or adds [from] to the gradient of the layer's output, unless it is that array. */
static cudaError_t add_gradient(const fedge_cohort_pass *pass, const fedge_cohort_layer *layer,
                                const float *from, bool adds)
{
    const fedge_cohort_add args = {.from = from,
                                   .to = layer->dy,
                                   .values = (uint32_t)fedge_shape_count(&layer->out),
                                   .adds = adds};
    return from == layer->dy ? cudaSuccess : fedge_cohort_launch_add(&pass->shape, &args);
}

/* Computes the gradients of the layer's inputs, or adds to them. made[i]: layer i's output has a
 * gradient already. */
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

/* The last recomputed layer before layer [index]; FEDGE_MAX_LAYERS: there is none. */
static uint32_t group_below(const fedge_cohort_plan *plan, uint32_t index)
{
    while (index > 0 && !plan->layers[index - 1].recompute)
        index--;
    return index > 0 ? index - 1 : FEDGE_MAX_LAYERS;
}

/* Recomputes the group of layers before layer [index], whose outputs a later group has overwritten.
 * Statistics of batches are not updated a second time. */
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
    const uint32_t there = group_below(plan, plan->num_layers); /* its outputs still exist */
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
        args.count = fedge_cohort_clip_range(plan, range, from, &args.first);
        error = args.count > 0 ? fedge_cohort_launch_step(shape, &args) : cudaSuccess;
    }
    return error;
}

/* ---- graphs: a step's launches are recorded once, and launched again as one. This saves only the
 * driver's work: kernels, their order and their bits are the same. ---- */

/* Graphs are optional, so training goes on without them when the driver, a profiler or a lack of
 * memory refuses them. */
static bool does_without(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported ||
           (error >= cudaErrorStreamCaptureUnsupported &&
            error <= cudaErrorStreamCaptureWrongThread);
}

static cudaError_t record(const fedge_cohort *cohort, fedge_cohort_queue_fn queue, const void *user,
                          cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    /* Other threads may allocate memory for their cohorts meanwhile. */
    cudaError_t error = cudaStreamBeginCapture(cohort->stream, cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return error;
    const cudaError_t queued = queue(user);
    error = cudaStreamEndCapture(cohort->stream, &graph); /* also after a failed launch */
    error = queued == cudaSuccess ? error : queued;
    if (error == cudaSuccess)
        error = cudaGraphInstantiateWithFlags(exec, graph, 0);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return error;
}

cudaError_t fedge_cohort_repeat(fedge_cohort *cohort, uint32_t which, fedge_cohort_queue_fn queue,
                                const void *user)
{
    fedge_cohort_graph *graph = &cohort->graphs[which];
    cudaError_t error = cudaSuccess;
    /* The first call loads the kernels, which is not allowed in a capture. */
    if (cohort->no_graphs || !graph->seen) {
        graph->seen = true;
        return queue(user);
    }
    if (!graph->exec)
        error = record(cohort, queue, user, &graph->exec);
    if (error == cudaSuccess)
        error = cudaGraphLaunch(graph->exec, cohort->stream);
    if (!does_without(error))
        return error;
    fedge_cohort_forget_graphs(cohort);
    cohort->no_graphs = true;
    (void)cudaGetLastError();
    return queue(user);
}

void fedge_cohort_forget_graphs(fedge_cohort *cohort)
{
    for (uint32_t i = 0; i < FEDGE_COHORT_MAX_GRAPHS; i++) {
        if (cohort->graphs[i].exec)
            (void)cudaGraphExecDestroy(cohort->graphs[i].exec);
        cohort->graphs[i] = (fedge_cohort_graph){0};
    }
}
