/* LSTM and GRU: one product for the inputs of all steps, then the steps one after another. */
#include "edge/train/cuda/layer.h"

/* One level of a stack or one direction, with its arrays. They are (slots, batch, steps, …) except
 * dh and dcell. */
typedef struct level {
    fedge_cohort_linear inputs, states; /* W_ih with x, W_hh with the states before */
    fedge_cohort_recurrent cells;
    float *dh; /* gradient of h, which the level above fills */
} level;

static uint32_t directions_of(const fedge_cohort_layer *layer)
{
    return layer->spec.u.recurrent.bidirectional ? 2 : 1;
}

/* The number of levels or directions; the model's shapes refuse a layer with several of both. */
static uint32_t levels_of(const fedge_cohort_layer *layer)
{
    return layer->spec.u.recurrent.num_layers * directions_of(layer);
}

static uint32_t gates_of(const fedge_cohort_layer *layer)
{
    return layer->spec.type == FEDGE_LAYER_GRU ? 3 : 4;
}

/* Floats of an example in a level: gates, for a GRU also dstate; cell, before; h and its gradient
 * if another level follows; dh, dcell. */
static size_t floats_of(const fedge_cohort_layer *layer)
{
    const size_t hidden = layer->spec.u.recurrent.hidden_size, steps = layer->in.dims[0];
    const size_t gates = gates_of(layer) == 3 ? 6 : 4;
    return (steps * (gates + 4) + 2) * hidden;
}

static size_t saved(const fedge_cohort_layer *layer)
{
    return floats_of(layer) * levels_of(layer) * sizeof(float);
}

/* The next array, of [floats] for each example. */
static float *take(const fedge_cohort_layer *layer, float **next, size_t floats)
{
    float *at = *next;
    *next += floats * layer->examples;
    return at;
}

/* Lays out level [l] in the saved memory. */
static void lay_out(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass, uint32_t l,
                    level *made)
{
    const uint32_t hidden = layer->spec.u.recurrent.hidden_size, steps = layer->in.dims[0];
    const uint32_t gates = gates_of(layer);
    const size_t wide = (size_t)steps * hidden;
    float *next = (float *)layer->saved + l * floats_of(layer) * layer->examples;
    fedge_cohort_recurrent *cells = &made->cells;
    const uint32_t directions = directions_of(layer);
    *cells = (fedge_cohort_recurrent){.is_gru = gates == 3,
                                      .steps = steps,
                                      .hidden = hidden,
                                      .reverse = directions == 2 && l == 1,
                                      .h_row = hidden * directions};
    cells->gates = take(layer, &next, gates * wide);
    cells->dstate = gates == 3 ? take(layer, &next, 3 * wide) : cells->gates;
    cells->cell = take(layer, &next, wide);
    cells->before = take(layer, &next, wide);
    cells->h = take(layer, &next, wide);
    float *dh = take(layer, &next, wide);
    cells->dh = take(layer, &next, hidden);
    cells->dcell = take(layer, &next, hidden);
    made->dh = dh;
    cells->dy = dh;
    if (directions == 2 || l + 1 == levels_of(layer)) {
        cells->h = layer->y + cells->reverse * hidden;
        cells->dy = layer->dy + cells->reverse * hidden;
    }
    made->inputs =
        (fedge_cohort_linear){.in = directions == 2 || l == 0 ? layer->in.dims[1] : hidden,
                              .out = gates * hidden,
                              .steps = steps,
                              .x = layer->x[0],
                              .y = cells->gates,
                              .dy = cells->gates,
                              .dx = pass->dx,
                              .dx_adds = directions == 2 && l == 0,
                              .gradient_stride = pass->gradient_stride};
    made->states = (fedge_cohort_linear){.in = hidden,
                                         .out = gates * hidden,
                                         .steps = steps,
                                         .x = cells->before,
                                         .dy = cells->dstate,
                                         .gradient_stride = pass->gradient_stride};
}

/* Sets the level's tensors W_ih, W_hh, b_ih, b_hh, which begin at value [first] of the model.
 * Returns the index after them. */
static size_t give_weights(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass,
                           level *made, size_t first)
{
    fedge_cohort_linear *const linears[] = {&made->inputs, &made->states};
    for (int k = 0; k < 2; k++) {
        linears[k]->weight =
            (fedge_cohort_weights){pass->values.values + first, pass->values.stride};
        linears[k]->dweight = pass->gradients ? pass->gradients + first : NULL;
        first += (size_t)linears[k]->in * linears[k]->out;
    }
    for (int k = 0; k < 2 && layer->spec.u.recurrent.bias; k++) {
        linears[k]->bias = (fedge_cohort_weights){pass->values.values + first, pass->values.stride};
        linears[k]->dbias = pass->gradients ? pass->gradients + first : NULL;
        first += linears[k]->out;
    }
    made->cells.weight = made->states.weight;
    made->cells.bias = made->states.bias;
    return first;
}

/* Makes all levels. A level above another reads its h and writes its gradient. Two directions both
 * read the layer's input; going back, the first direction is the last to add to its gradient. */
static void make_levels(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass,
                        level levels[FEDGE_COHORT_MAX_LEVELS])
{
    size_t first = layer->first_value;
    for (uint32_t l = 0; l < levels_of(layer); l++) {
        lay_out(layer, pass, l, &levels[l]);
        first = give_weights(layer, pass, &levels[l], first);
        if (l > 0 && directions_of(layer) == 1) {
            levels[l].inputs.x = levels[l - 1].cells.h;
            levels[l].inputs.dx = levels[l - 1].dh;
        }
    }
}

static cudaError_t forward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    level levels[FEDGE_COHORT_MAX_LEVELS];
    cudaError_t error = cudaSuccess;
    make_levels(layer, pass, levels);
    for (uint32_t l = 0; l < levels_of(layer) && error == cudaSuccess; l++) {
        error = fedge_cohort_launch_linear(&pass->shape, &levels[l].inputs);
        if (error == cudaSuccess)
            error = fedge_cohort_launch_recurrent(&pass->shape, &levels[l].cells);
    }
    return error;
}

static cudaError_t backward(const fedge_cohort_layer *layer, const fedge_cohort_pass *pass)
{
    level levels[FEDGE_COHORT_MAX_LEVELS];
    cudaError_t error = cudaSuccess;
    make_levels(layer, pass, levels);
    for (uint32_t l = levels_of(layer); l-- > 0 && error == cudaSuccess;) {
        error = fedge_cohort_launch_recurrent_backward(&pass->shape, &levels[l].cells);
        if (error == cudaSuccess)
            error = fedge_cohort_launch_linear_backward(&pass->shape, &levels[l].states);
        if (error == cudaSuccess)
            error = fedge_cohort_launch_linear_backward(&pass->shape, &levels[l].inputs);
    }
    return error;
}

const fedge_cohort_layer_ops fedge_cohort_layer_recurrent = {
    .keeps_y = true, .saved = saved, .forward = forward, .backward = backward};
