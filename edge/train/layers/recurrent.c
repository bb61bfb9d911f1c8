#include "edge/train/layers/recurrent.h"

#include <assert.h>
#include <string.h>

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH };
enum { REVERSE_NAMES = FEDGE_MAX_RECURRENT_LAYERS }; /* index after those of the layers */

/* Most steps · batch per product: they and the weights stay in the second-level cache. */
#define ROWS ((size_t)128)
#define MIN_EFFICIENT_BATCH 8 /* rows of a step's products; fewer were 3 to 8 % slower */
#define SET ((size_t)1024)    /* floats between addresses that share a cache set */
#define LINE ((size_t)16)     /* floats; parts of working memory begin at multiples */

/* One of the stacked layers, or one direction, and its arrays. Gates and c, and between levels also
 * h and x, are (steps, batch, …). */
typedef struct level {
    const fedge_layer_run *run;
    const fedge_cell *cell;
    size_t batch, steps, in, hidden;
    size_t columns; /* columns of the gates: 4 · hidden */
    size_t row;     /* floats from one row of gates to the next */
    size_t tensors; /* index of weight_ih among the layer's tensors */
    size_t chunk;   /* steps at a time */
    bool all_steps; /* gates and c have all steps; else one */
    bool reverse;   /* runs from the last step to the first */
    const float *x; /* rows of [in] floats */
    float *h;       /* rows of [hidden] floats */
    fedge_strides x_at, h_at, gates_at;
    float *gates, *c; /* c: NULL in cells without one */
    float *zeros;     /* (hidden): the state before the first step */
} level;

static size_t hidden_of(const fedge_layer_run *run)
{
    return run->spec->u.recurrent.hidden_size;
}

static uint32_t directions_of(const fedge_layer_spec *layer)
{
    return layer->u.recurrent.bidirectional ? 2 : 1;
}

/* The number of levels: stacked layers or two directions. fedge_recurrent_infer refuses both. */
static uint32_t levels_of(const fedge_layer_spec *layer)
{
    return layer->u.recurrent.num_layers * directions_of(layer);
}

static bool is_reverse(const fedge_layer_spec *layer, uint32_t l)
{
    return layer->u.recurrent.bidirectional && l > 0;
}

/* True if level [l] reads the one before. */
static bool is_above(const fedge_layer_spec *layer, uint32_t l)
{
    return l > 0 && !is_reverse(layer, l);
}

/* ---- description ---- */

const char *fedge_recurrent_feature(const fedge_layer_spec *layer)
{
    return layer->u.recurrent.bidirectional ? "bidirectional" : NULL;
}

fedge_status fedge_recurrent_infer(const fedge_layer_spec *layer, const fedge_shape *in,
                                   uint32_t num_inputs, fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t input_size = layer->u.recurrent.input_size,
                   hidden = layer->u.recurrent.hidden_size;
    if (input_size == 0 || hidden == 0 || hidden > FEDGE_ARGUMENT_MAX_COUNT) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "input_size %u must be at least 1 and hidden_size %u 1 to %d",
                          (unsigned)input_size, (unsigned)hidden, (int)FEDGE_ARGUMENT_MAX_COUNT);
    }
    if (layer->u.recurrent.num_layers == 0 ||
        layer->u.recurrent.num_layers > FEDGE_MAX_RECURRENT_LAYERS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_layers %u must be 1 to %d (a layer of a job has at most %d tensors, "
                          "each of these %d): put several of this type after one another",
                          (unsigned)layer->u.recurrent.num_layers, FEDGE_MAX_RECURRENT_LAYERS,
                          FEDGE_MAX_LAYER_TENSORS, FEDGE_RECURRENT_TENSORS);
    }
    if (layer->u.recurrent.bidirectional && layer->u.recurrent.num_layers > 1) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "with bidirectional num_layers must be 1 but is %u: put several of this "
                          "type after one another, the second with input_size %u",
                          (unsigned)layer->u.recurrent.num_layers, 2 * (unsigned)hidden);
    }
    if (!layer->u.recurrent.batch_first) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "batch_first must be true: examples are (steps, features), so a batch of "
                          "them is (batch, steps, features)");
    }
    FEDGE_TRY(fedge_shape_need(in, 2, "[steps, features]", err));
    if (in->dims[1] != input_size) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "input_size is %u but the layer before gives steps of %u features",
                          (unsigned)input_size, (unsigned)in->dims[1]);
    }
    *out = (fedge_shape){2, {in->dims[0], hidden * directions_of(layer)}};
    return FEDGE_OK;
}

uint32_t fedge_recurrent_tensors(const fedge_cell *cell, const fedge_layer_spec *layer,
                                 fedge_layer_tensor *list)
{
    static const char *const NAMES[][FEDGE_RECURRENT_TENSORS] = {
        {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"},
        {"weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"},
        {"weight_ih_l2", "weight_hh_l2", "bias_ih_l2", "bias_hh_l2"},
        {"weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
         "bias_hh_l0_reverse"}};
    const uint32_t hidden = layer->u.recurrent.hidden_size;
    const uint32_t each = layer->u.recurrent.bias ? FEDGE_RECURRENT_TENSORS : BIAS_IH;
    uint32_t n = 0;
    for (uint32_t l = 0; l < levels_of(layer); l++) {
        const char *const *names = NAMES[is_reverse(layer, l) ? REVERSE_NAMES : l];
        const uint32_t first = is_above(layer, l) ? hidden : layer->u.recurrent.input_size;
        for (uint32_t i = 0; i < each; i++) {
            const uint32_t in = i == WEIGHT_HH ? hidden : first;
            list[n++] = (fedge_layer_tensor){.name = names[i],
                                             .rank = i < BIAS_IH ? 2 : 1,
                                             .shape = {cell->blocks * hidden, in},
                                             .init = FEDGE_INIT_UNIFORM,
                                             .scale = fedge_init_bound(hidden)};
        }
    }
    return n;
}

/* Floats from one row of gates to the next. Rows a multiple of 4 KiB apart would share a few cache
 * sets. */
static uint64_t gate_row(const fedge_layer_run *run)
{
    const uint64_t columns = FEDGE_RECURRENT_GATES * (uint64_t)hidden_of(run);
    return columns + (columns % SET == 0 ? LINE : 0);
}

/* Floats that each level saves per step and example. */
static uint64_t saved_per_step(const fedge_cell *cell, const fedge_layer_run *run)
{
    return gate_row(run) + (cell->second_state ? hidden_of(run) : 0);
}

/* The number of blocks of W_ih from [k] on whose gates are contiguous. */
static uint32_t blocks_together(const fedge_cell *cell, uint32_t k)
{
    uint32_t n = 1;
    while (k + n < cell->blocks && cell->order[k + n] == cell->order[k] + n)
        n++;
    return n;
}

static uint64_t in_lines(uint64_t floats)
{
    return (floats + LINE - 1) / LINE * LINE;
}

/* Steps that are multiplied together; all, if factors are not copied. */
static size_t steps_at_a_time(const fedge_layer_run *run)
{
    const size_t steps = run->in[0].dims[0], fit = ROWS / run->batch;
    return !fedge_factor_copies(run->kernels) || fit > steps ? steps : fit == 0 ? 1 : fit;
}

/* Floats of the copies of W_ih, one for each group of contiguous gates: the larger of forward and
 * backward. */
static uint64_t copied_inputs(const fedge_cell *cell, const fedge_layer_run *run, uint64_t in)
{
    uint64_t forward = 0, backward = 0;
    for (uint32_t k = 0; k < cell->blocks; k += blocks_together(cell, k)) {
        const uint64_t rows = blocks_together(cell, k) * (uint64_t)hidden_of(run);
        forward += fedge_factor_size(run->kernels, in, rows);
        backward += fedge_factor_size(run->kernels, rows, in);
    }
    return forward > backward ? forward : backward;
}

void fedge_recurrent_sizes(const fedge_cell *cell, const fedge_layer_run *run,
                           fedge_layer_sizes *need)
{
    const uint64_t hidden = hidden_of(run), batch = run->batch, in = run->in[0].dims[1];
    const uint64_t layers = run->spec->u.recurrent.num_layers, levels = levels_of(run->spec);
    const uint64_t rows = batch * run->in[0].dims[0], weights = cell->blocks * hidden;
    const uint64_t widest = in < hidden ? hidden : in, read = layers > 1 ? widest : in;
    need->saved =
        (rows * saved_per_step(cell, run) * levels + rows * hidden * (layers - 1)) * sizeof(float);
    need->forward =
        (in_lines(hidden) + in_lines(FEDGE_RECURRENT_GATES * hidden) +
         in_lines(batch * saved_per_step(cell, run)) +
         fedge_factor_size(run->kernels, hidden, weights) + copied_inputs(cell, run, read)) *
        sizeof(float);
    need->backward =
        (in_lines(widest) + 2 * in_lines(batch * hidden) +
         (layers > 1 && !cell->second_state ? in_lines(rows * hidden) : 0) +
         in_lines(FEDGE_RECURRENT_GATES * hidden) +
         fedge_factor_size(run->kernels, weights, hidden) + copied_inputs(cell, run, read) +
         fedge_outer_size(run->kernels, batch, weights, read, hidden)) *
        sizeof(float);
    need->min_efficient_batch = MIN_EFFICIENT_BATCH;
}

/* ---- forward ---- */

/* Makes factors of W_ih, one for each group of contiguous gates. */
static void factor_inputs(const level *self, bool transposed, float *buffer,
                          fedge_factor w_ih[FEDGE_RECURRENT_GATES])
{
    for (uint32_t k = 0, i = 0; k < self->cell->blocks; k += blocks_together(self->cell, k), i++) {
        const float *w = self->run->values[self->tensors + WEIGHT_IH] + k * self->hidden * self->in;
        const size_t rows = blocks_together(self->cell, k) * self->hidden;
        const size_t depth = transposed ? self->in : rows, n = transposed ? rows : self->in;
        w_ih[i] = fedge_factor_make(self->run->kernels, w, transposed, depth, n, buffer);
        buffer += fedge_factor_size(self->run->kernels, depth, n);
    }
}

/* Initial values of the sums, (columns): both biases. */
static void add_biases(const level *self, float *sums)
{
    const size_t n = self->hidden;
    memset(sums, 0, self->columns * sizeof(*sums));
    if (!self->run->spec->u.recurrent.bias)
        return;
    const float *ih = self->run->values[self->tensors + BIAS_IH];
    const float *hh = self->run->values[self->tensors + BIAS_HH];
    for (uint32_t k = 0; k < self->cell->blocks; k++) {
        for (size_t i = 0; i < n; i++) {
            sums[self->cell->order[k] * n + i] += ih[k * n + i];
            sums[(self->cell->first + k) * n + i] += hh[k * n + i];
        }
    }
}

/* The sums of [range] without W_hh h. Its gates begin at [gates]. */
static void start_sums(const level *self, const fedge_step_range *range, const float *biases,
                       const fedge_factor *w_ih, float *gates)
{
    const fedge_step_range here = {.steps = range->steps, .batch = range->batch};
    const float *x = self->x + range->first * self->x_at.step;
    for (uint32_t k = 0, i = 0; k < self->cell->blocks; k += blocks_together(self->cell, k), i++) {
        const size_t at = self->cell->order[k] * self->hidden;
        fedge_sequence_multiply(self->run, &here, x, self->x_at, &w_ih[i], biases + at, gates + at,
                                self->gates_at);
    }
    const size_t tail = self->cell->blocks * self->hidden; /* gates without inputs */
    for (size_t r = 0; tail < self->columns && r < range->steps * range->batch; r++) {
        memcpy(gates + r * self->row + tail, biases + tail,
               (self->columns - tail) * sizeof(*gates));
    }
}

/* The k-th step to be computed. */
static size_t step_number(const level *self, size_t k)
{
    return self->reverse ? self->steps - 1 - k : k;
}

/* The steps computed as numbers [k, k + count). */
static fedge_step_range range_at(const level *self, size_t k, size_t count)
{
    return (fedge_step_range){step_number(self, self->reverse ? k + count - 1 : k), count,
                              self->batch};
}

/* The same element of the step computed before; steps are [step] floats apart. */
static float *previous(const level *self, float *at, size_t step)
{
    return self->reverse ? at + step : at - step;
}

/* The arrays of example [b] at step [t] for the cell. */
static fedge_cell_step step_of(const level *self, size_t b, size_t t)
{
    const size_t row = (self->all_steps ? t : 0) * self->batch + b, n = self->hidden;
    const bool first = t == step_number(self, 0);
    float *h = self->h + t * self->h_at.step + b * self->h_at.example;
    fedge_cell_step step = {.hidden = n,
                            .gates = self->gates + row * self->row,
                            .h_prev = first ? self->zeros : previous(self, h, self->h_at.step),
                            .h = h};
    if (self->c) {
        step.c = self->c + row * n;
        step.c_prev =
            first ? self->zeros : previous(self, step.c, self->all_steps ? self->batch * n : 0);
    }
    return step;
}

static float *step_gates(const level *self, size_t t)
{
    return self->gates + (self->all_steps ? t * self->gates_at.step : 0);
}

static void forward_level(const level *self, float *buffer)
{
    const fedge_kernels *kernels = self->run->kernels;
    const size_t first = self->cell->first * self->hidden;
    const size_t weights = self->cell->blocks * self->hidden;
    float *biases = buffer;
    fedge_factor w_ih[FEDGE_RECURRENT_GATES];
    buffer += in_lines(self->columns);
    const fedge_factor w_hh = fedge_factor_make(
        kernels, self->run->values[self->tensors + WEIGHT_HH], true, self->hidden, weights, buffer);
    factor_inputs(self, true, buffer + fedge_factor_size(kernels, self->hidden, weights), w_ih);
    add_biases(self, biases);
    for (size_t k = 0; k < self->steps; k++) {
        const size_t t = step_number(self, k);
        if (k % self->chunk == 0) {
            const size_t left = self->steps - k;
            const fedge_step_range range =
                range_at(self, k, left < self->chunk ? left : self->chunk);
            start_sums(self, &range, biases, w_ih, step_gates(self, range.first));
        }
        if (k > 0) {
            const fedge_step_range one = {.steps = 1, .batch = self->batch};
            float *before = previous(self, self->h + t * self->h_at.step, self->h_at.step);
            fedge_sequence_multiply(self->run, &one, before, self->h_at, &w_hh, NULL,
                                    step_gates(self, t) + first, self->gates_at);
        }
        for (size_t b = 0; b < self->batch; b++) {
            const fedge_cell_step step = step_of(self, b, t);
            self->cell->forward(kernels, &step);
        }
    }
}

/* Level [l] with its saved arrays. The run has x of the first level and h of the last; a direction
 * has x and its half of y's features. */
static level level_of(const fedge_cell *cell, const fedge_layer_run *run, uint32_t l)
{
    const uint32_t layers = run->spec->u.recurrent.num_layers;
    const bool reverse = is_reverse(run->spec, l), above = is_above(run->spec, l);
    const size_t hidden = hidden_of(run), batch = run->batch, steps = run->in[0].dims[0];
    const size_t in = above ? hidden : run->in[0].dims[1], rows = batch * steps;
    const size_t saved_size = (size_t)saved_per_step(cell, run) * rows, wide = run->out.dims[1];
    const fedge_strides internal = {batch * hidden, hidden};
    float *saved = run->saved, *between = !saved ? NULL : saved + saved_size * levels_of(run->spec);
    level made = {
        .run = run,
        .cell = cell,
        .batch = batch,
        .steps = steps,
        .in = in,
        .hidden = hidden,
        .columns = FEDGE_RECURRENT_GATES * hidden,
        .row = (size_t)gate_row(run),
        .tensors = (size_t)l * (run->spec->u.recurrent.bias ? FEDGE_RECURRENT_TENSORS : BIAS_IH),
        .chunk = saved ? steps_at_a_time(run) : 1,
        .all_steps = saved != NULL,
        .reverse = reverse,
        .x = above ? run->y : run->x[0], /* if nothing is saved, h overwrites x step by step */
        .h = run->y + (reverse ? hidden : 0),
        .x_at = {in, steps * in},
        .h_at = {wide, steps * wide},
        .gates_at = {batch * (size_t)gate_row(run), (size_t)gate_row(run)}};
    if (!saved)
        return made;
    made.gates = saved + saved_size * l;
    made.c = cell->second_state ? made.gates + rows * made.row : NULL;
    if (above) {
        made.x = between + rows * hidden * (l - 1);
        made.x_at = internal;
    }
    if (l + 1 < layers) {
        made.h = between + rows * hidden * l;
        made.h_at = internal;
    }
    return made;
}

void fedge_recurrent_forward(const fedge_cell *cell, const fedge_layer_run *run)
{
    for (uint32_t l = 0; l < levels_of(run->spec); l++) {
        level self = level_of(cell, run, l);
        float *buffer = run->scratch;
        self.zeros = buffer;
        buffer += in_lines(self.hidden);
        memset(self.zeros, 0, self.hidden * sizeof(*self.zeros));
        if (!self.all_steps) {
            self.gates = buffer;
            self.c = cell->second_state ? buffer + self.batch * self.row : NULL;
        }
        buffer += in_lines(self.batch * saved_per_step(cell, run));
        forward_level(&self, buffer);
    }
}

/* ---- backward ---- */

/* Arrays of the backward pass of a level. */
typedef struct backward_pass {
    const float *dy; /* gradient of the level's h */
    fedge_strides dy_at;
    float *dx; /* gradient of its x; may be NULL */
    fedge_strides dx_at;
    bool adds;      /* dx has the other direction's gradient already */
    float *dh, *dc; /* (batch, hidden): from the next step */
    float *sums;    /* (columns): of all gates' gradients; NULL without biases */
    fedge_factor w_hh, w_ih[FEDGE_RECURRENT_GATES];
    float *buffer; /* copies of gates, inputs and states */
} backward_pass;

/* One step: replaces the gates by the gradients of their sums. */
static void backward_step(const level *self, const backward_pass *back, size_t t)
{
    const size_t n = self->hidden;
    for (size_t b = 0; b < self->batch; b++) {
        fedge_cell_step step = step_of(self, b, t);
        step.dy = back->dy + t * back->dy_at.step + b * back->dy_at.example;
        step.dh = back->dh + b * n;
        step.dc = back->dc + b * n;
        self->cell->backward(self->run->kernels, &step);
        if (back->sums)
            self->run->kernels->add(step.gates, self->columns, back->sums);
    }
    if (t != step_number(self, 0)) {
        const fedge_step_range one = {.steps = 1, .batch = self->batch};
        const float *gates = self->gates + t * self->gates_at.step + self->cell->first * n;
        fedge_sequence_multiply(self->run, &one, gates, self->gates_at, &back->w_hh, NULL, back->dh,
                                (fedge_strides){self->batch * n, n});
    }
}

/* The gradient of W_ih and, in [states] unless NULL, that of W_hh from the same gates. */
static void outer_inputs(const level *self, const backward_pass *back, const fedge_outer *states)
{
    float *dw = self->run->gradients[self->tensors + WEIGHT_IH];
    for (uint32_t k = 0; k < self->cell->blocks; k += blocks_together(self->cell, k)) {
        const size_t rows = blocks_together(self->cell, k) * self->hidden;
        fedge_outer products[FEDGE_OUTER_PRODUCTS];
        size_t count = 0;
        if (dw) {
            products[count++] = (fedge_outer){.b = self->x,
                                              .b_at = self->x_at,
                                              .k = self->in,
                                              .dw = dw + k * self->hidden * self->in};
        }
        if (states)
            products[count++] = *states;
        fedge_sequence_outer(self->run, self->steps, self->batch,
                             &(fedge_outer_rows){self->gates + self->cell->order[k] * self->hidden,
                                                 self->gates_at, rows},
                             products, count, back->buffer);
    }
}

/* The gradients of both weights. In an LSTM both have the same gates, which are then read once. */
static void backward_weights(const level *self, const backward_pass *back)
{
    float *dw = self->run->gradients[self->tensors + WEIGHT_HH];
    const fedge_outer state_product = {.b = self->h,
                                       .b_at = self->h_at,
                                       .k = self->hidden,
                                       .shift = self->reverse ? 1 : -1,
                                       .dw = dw};
    const bool same = blocks_together(self->cell, 0) == self->cell->blocks &&
                      self->cell->order[0] == self->cell->first;
    outer_inputs(self, back, same && dw ? &state_product : NULL);
    if (!same && dw) {
        fedge_sequence_outer(self->run, self->steps, self->batch,
                             &(fedge_outer_rows){self->gates + self->cell->first * self->hidden,
                                                 self->gates_at, self->cell->blocks * self->hidden},
                             &state_product, 1, back->buffer);
    }
}

/* The gradient of x. */
static void backward_inputs(const level *self, const backward_pass *back,
                            const fedge_step_range *range)
{
    for (uint32_t k = 0, i = 0; k < self->cell->blocks; k += blocks_together(self->cell, k), i++) {
        fedge_sequence_multiply(self->run, range, self->gates + self->cell->order[k] * self->hidden,
                                self->gates_at, &back->w_ih[i],
                                k == 0 && !back->adds ? self->zeros : NULL, back->dx, back->dx_at);
    }
}

static void backward_biases(const level *self, const backward_pass *back)
{
    const size_t n = self->hidden;
    float *const *gradients = self->run->gradients + self->tensors;
    for (uint32_t k = 0; k < self->cell->blocks; k++) {
        const size_t from[] = {self->cell->order[k] * n, (self->cell->first + k) * n};
        for (size_t i = 0; i < 2; i++) {
            if (gradients[BIAS_IH + i])
                self->run->kernels->add(back->sums + from[i], n, gradients[BIAS_IH + i] + k * n);
        }
    }
}

static void backward_level(const level *self, const backward_pass *back)
{
    memset(back->dh, 0, self->batch * self->hidden * sizeof(*back->dh));
    memset(back->dc, 0, self->batch * self->hidden * sizeof(*back->dc));
    for (size_t k = self->steps; k-- > 0;)
        backward_step(self, back, step_number(self, k));
    for (size_t t = 0; back->dx && t < self->steps; t += self->chunk) {
        const size_t left = self->steps - t;
        const fedge_step_range range = {t, left < self->chunk ? left : self->chunk, self->batch};
        backward_inputs(self, back, &range);
    }
    backward_weights(self, back);
    if (back->sums)
        backward_biases(self, back);
}

void fedge_recurrent_backward(const fedge_cell *cell, const fedge_layer_run *run)
{
    const uint32_t layers = run->spec->u.recurrent.num_layers, levels = levels_of(run->spec);
    const float *dy = run->dy;
    assert(run->saved); /* a forward pass in training came before */
    for (uint32_t l = levels; l-- > 0;) {
        level self = level_of(cell, run, l);
        const size_t n = self.hidden, each = (size_t)in_lines(self.batch * n);
        const size_t widest = n < run->in[0].dims[1] ? run->in[0].dims[1] : n;
        const fedge_strides internal = {self.batch * n, n};
        float *buffer = run->scratch;
        self.zeros = buffer;
        memset(self.zeros, 0, widest * sizeof(*self.zeros));
        backward_pass back = {.dh = buffer + in_lines(widest)};
        back.dc = back.dh + each;
        buffer = back.dc + each;
        back.dy = self.reverse ? run->dy + n : dy;
        back.dy_at = l + 1 >= layers ? self.h_at : internal;
        float *lower_dx = self.c; /* not read any more when dx is computed */
        if (!lower_dx && layers > 1) {
            lower_dx = buffer;
            buffer += in_lines(self.batch * self.steps * n);
        }
        back.dx = is_above(run->spec, l) ? lower_dx : run->dx[0];
        back.dx_at = self.x_at;
        back.adds = run->spec->u.recurrent.bidirectional &&
                    !self.reverse; /* the reverse direction is computed first */
        dy = layers > 1 ? back.dx : dy;
        if (run->spec->u.recurrent.bias) {
            back.sums = buffer;
            memset(back.sums, 0, self.columns * sizeof(*back.sums));
        }
        buffer += in_lines(self.columns);
        back.w_hh = fedge_factor_make(run->kernels, run->values[self.tensors + WEIGHT_HH], false,
                                      cell->blocks * n, n, buffer);
        buffer += fedge_factor_size(run->kernels, cell->blocks * n, n);
        factor_inputs(&self, false, buffer, back.w_ih);
        back.buffer = buffer + copied_inputs(cell, run, self.in);
        backward_level(&self, &back);
    }
}

#define AT(member) offsetof(fedge_layer_spec, u.recurrent.member)

const fedge_argument fedge_recurrent_arguments[] = {
    FEDGE_COUNT_ARGUMENT("input_size", AT(input_size)),
    FEDGE_COUNT_ARGUMENT("hidden_size", AT(hidden_size)),
    FEDGE_U32_ARGUMENT("num_layers", AT(num_layers), false, 1, FEDGE_MAX_RECURRENT_LAYERS, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_BOOL_ARGUMENT("batch_first", AT(batch_first), 1),
    FEDGE_BOOL_ARGUMENT("bidirectional", AT(bidirectional), 0),
    FEDGE_NO_ARGUMENT,
};
