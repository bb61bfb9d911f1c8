/* Which examples a task's steps take, in which order, and what the optimizer is told. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/train/cuda/cohort_internal.h"
#include "edge/train/layers/layer.h"

fedge_status fedge_cohort_fit_order(fedge_cohort_slot *slot, uint32_t count, fedge_error *err)
{
    if (count <= slot->room)
        return FEDGE_OK;
    uint32_t *order = realloc(slot->order, count * sizeof(*order));
    if (!order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the order of %u examples", count);
    slot->order = order;
    slot->room = count;
    return FEDGE_OK;
}

/* As the CPU's layers check it, by its size alone. */
static fedge_status check_size(const fedge_cohort_plan *plan, uint32_t size, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < plan->num_layers && status == FEDGE_OK; i++) {
        const fedge_cohort_layer *layer = &plan->layers[i];
        const fedge_layer_ops *ops = fedge_layer_ops_of(layer->spec.type);
        const fedge_layer_run run = {.spec = &layer->spec,
                                     .batch = size,
                                     .training = true,
                                     .num_inputs = layer->num_inputs,
                                     .in = {layer->in},
                                     .out = layer->out};
        status = ops->check ? ops->check(&run, err) : FEDGE_OK;
        if (status != FEDGE_OK)
            status = fedge_layer_prefix(&layer->spec, i, status, err);
    }
    return status;
}

fedge_status fedge_cohort_count_steps(const fedge_cohort_plan *plan,
                                      const fedge_trainer_config *training, uint32_t num_examples,
                                      uint64_t *steps, fedge_error *err)
{
    const uint32_t size = training->batch_size, whole = num_examples < size ? num_examples : size;
    fedge_status status = fedge_trainer_count_steps(training, num_examples, steps, err);
    if (status != FEDGE_OK)
        return status;
    const uint32_t left = num_examples % size;
    status = check_size(plan, whole, err);
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

/* The next example's, with the draws of edge/train/augment.c in their order. */
static fedge_cohort_move next_move(const fedge_augmentation *how, fedge_rng *rng)
{
    const uint32_t padding = how->crop_padding, places = 2 * padding + 1;
    fedge_cohort_move move = {0};
    if (padding > 0) {
        const uint32_t top = how->height > 1 ? fedge_rng_below(rng, places) : padding;
        move.down = (int16_t)((int32_t)top - (int32_t)padding);
        move.right = (int16_t)((int32_t)fedge_rng_below(rng, places) - (int32_t)padding);
    }
    move.flip = how->horizontal_flip > 0.0f && fedge_rng_float(rng) < how->horizontal_flip;
    return move;
}

/* As the CPU's model names it (edge/train/model/graph.c). [step]: from 0. */
static void name_stream(const fedge_trainer_config *training, uint32_t client, uint64_t step,
                        fedge_cohort_turn *turn)
{
    const fedge_rng rng =
        fedge_rng_stream(training->seed ^ (step >> 16) << 32, FEDGE_PURPOSE_DROPOUT,
                         training->round, client, (uint16_t)step);
    memcpy(turn->key, rng.key, sizeof(turn->key));
    memcpy(turn->stream, rng.counter + 1, sizeof(turn->stream));
}

fedge_cohort_turn fedge_cohort_next_turn(const fedge_cohort *cohort,
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
    fedge_cohort_turn turn = {
        .count = count, .step = (uint32_t)slot->done, .data = task->set, .member = task->member};
    if (training) {
        const fedge_optimizer *o = &training->optimizer;
        name_stream(training, task->client_index, slot->done - 1, &turn);
        turn.whole = count;
        turn.part = cohort->plan.options->micro_batch;
        turn.rate = o->learning_rate;
        turn.keep =
            o->type == FEDGE_OPTIMIZER_ADAMW ? 1.0f - o->learning_rate * o->weight_decay : 1.0f;
    }
    if (training && training->optimizer.type != FEDGE_OPTIMIZER_SGD) {
        const fedge_cohort_step step = fedge_cohort_step_of(cohort, training);
        const double t = (double)slot->done;
        turn.size =
            (float)((double)training->optimizer.learning_rate / (1.0 - pow((double)step.beta1, t)));
        turn.root = (float)sqrt(1.0 - pow((double)step.beta2, t));
    }
    return turn;
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
    step.states_bf16 = cohort->plan.share.states_bf16;
    step.rounding = (uint32_t)FEDGE_PURPOSE_ROUNDING << 16;
    step.states_stride = fedge_cohort_kept(&cohort->plan);
    step.squares = arrays->squares;
    return step;
}
