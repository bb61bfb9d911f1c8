#include "edge/train/layers/recurrent.h"

#include <string.h>

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH };

#define DEPTH ((size_t)256) /* rows of inputs or states that are copied at a time */
#define LINE ((size_t)16)   /* floats: parts of working memory begin at multiples */

/* One of the layers over one another, and its arrays. */
typedef struct level {
    const fedge_layer_run *run;
    const fedge_cell *cell;
    size_t batch, steps, in, hidden;
    size_t columns; /* of the gates: 4 · hidden */
    size_t tensors; /* the place of weight_ih among the layer's tensors */
    const float *x; /* (batch, steps, in) */
    float *h;       /* (batch, steps, hidden) */
    float *gates;   /* (batch, steps, columns); in an evaluation (batch, columns) */
    float *c;       /* (batch, steps, hidden); in an evaluation (batch, hidden); or NULL */
    float *zeros;   /* (hidden): the state before the first step */
    bool all_steps; /* gates and c hold all steps */
} level;

/* ---- description ---- */

fedge_status fedge_recurrent_infer(const fedge_layer_spec *layer, const fedge_shape *in,
                                   uint32_t num_inputs, fedge_shape *out, fedge_error *err)
{
    (void)num_inputs;
    const uint32_t wants = layer->u.recurrent.input_size, hidden = layer->u.recurrent.hidden_size;
    if (wants == 0 || hidden == 0 || hidden > FEDGE_ARGUMENT_MAX_COUNT) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "input_size %u must be at least 1 and hidden_size %u 1 to %d",
                          (unsigned)wants, (unsigned)hidden, (int)FEDGE_ARGUMENT_MAX_COUNT);
    }
    if (layer->u.recurrent.num_layers == 0 ||
        layer->u.recurrent.num_layers > FEDGE_MAX_RECURRENT_LAYERS) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "num_layers %u must be 1 to %d (a layer of a job has at most %d tensors, "
                          "each of these %d): put several of this type after one another",
                          (unsigned)layer->u.recurrent.num_layers, FEDGE_MAX_RECURRENT_LAYERS,
                          FEDGE_MAX_LAYER_TENSORS, FEDGE_RECURRENT_TENSORS);
    }
    if (!layer->u.recurrent.batch_first) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "batch_first must be true: examples are (steps, features), so a batch of "
                          "them is (batch, steps, features)");
    }
    fedge_status status = fedge_shape_need(in, 2, "[steps, features]", err);
    if (status == FEDGE_OK && in->dims[1] != wants) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "input_size is %u but the layer before gives steps of %u features",
                          (unsigned)wants, (unsigned)in->dims[1]);
    }
    *out = (fedge_shape){2, {in->dims[0], hidden}};
    return status;
}

uint32_t fedge_recurrent_tensors(const fedge_cell *cell, const fedge_layer_spec *layer,
                                 fedge_layer_tensor *list)
{
    static const char *const NAMES[FEDGE_MAX_RECURRENT_LAYERS][FEDGE_RECURRENT_TENSORS] = {
        {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"},
        {"weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"},
        {"weight_ih_l2", "weight_hh_l2", "bias_ih_l2", "bias_hh_l2"}};
    const uint32_t hidden = layer->u.recurrent.hidden_size;
    const uint32_t each = layer->u.recurrent.bias ? FEDGE_RECURRENT_TENSORS : BIAS_IH;
    uint32_t n = 0;
    for (uint32_t l = 0; l < layer->u.recurrent.num_layers; l++) {
        for (uint32_t i = 0; i < each; i++) {
            const uint32_t in = i == WEIGHT_HH || l > 0 ? hidden : layer->u.recurrent.input_size;
            list[n++] = (fedge_layer_tensor){.name = NAMES[l][i],
                                             .rank = i < BIAS_IH ? 2 : 1,
                                             .shape = {cell->blocks * hidden, in},
                                             .init = FEDGE_INIT_UNIFORM,
                                             .scale = fedge_init_bound(hidden)};
        }
    }
    return n;
}

/* Floats that each level keeps of a step. */
static uint64_t kept_per_step(const fedge_cell *cell, const fedge_layer_run *run)
{
    return (uint64_t)run->spec->u.recurrent.hidden_size *
           (FEDGE_RECURRENT_GATES + (cell->second_state ? 1u : 0u));
}

/* Blocks of W_ih from [k] on whose gates follow one another: how many. */
static uint32_t blocks_together(const fedge_cell *cell, uint32_t k)
{
    uint32_t n = 1;
    while (k + n < cell->blocks && cell->order[k + n] == cell->order[k] + n) {
        n++;
    }
    return n;
}

/* Are matrices copied to panels? Not where memory is dear, nor for products in bf16. */
static bool packs(const fedge_layer_run *run)
{
    return run->kernels->lanes > 1 && run->kernels->in_bf16 == NULL;
}

/* Floats of a copy of [k] rows of [n] columns. */
static uint64_t copy_size(const fedge_layer_run *run, uint64_t k, uint64_t n)
{
    const uint64_t wide = run->kernels->packed_columns;
    return packs(run) ? (n + wide - 1) / wide * wide * k : 0;
}

static uint64_t in_lines(uint64_t floats)
{
    return (floats + LINE - 1) / LINE * LINE;
}

/* Floats of a copy of W_ih by blocks whose gates follow one another. */
static uint64_t copied_inputs(const fedge_cell *cell, const fedge_layer_run *run, uint64_t in)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < cell->blocks; k += blocks_together(cell, k)) {
        sum += copy_size(run, in, blocks_together(cell, k) * (uint64_t)run->out.dims[1]);
    }
    return sum;
}

void fedge_recurrent_sizes(const fedge_cell *cell, const fedge_layer_run *run,
                           fedge_layer_sizes *need)
{
    const uint64_t hidden = run->out.dims[1], batch = run->batch;
    const uint64_t levels = run->spec->u.recurrent.num_layers, in = run->in[0].dims[1];
    const uint64_t rows = batch * run->in[0].dims[0], weights = cell->blocks * hidden;
    const uint64_t widest = levels > 1 && in < hidden ? hidden : in;
    need->saved =
        (rows * kept_per_step(cell, run) * levels + rows * hidden * (levels - 1)) * sizeof(float);
    need->forward = (in_lines(hidden) + in_lines(batch * kept_per_step(cell, run)) +
                     copy_size(run, hidden, weights) + copied_inputs(cell, run, widest)) *
                    sizeof(float);
    need->backward =
        (2 * in_lines(hidden) + 2 * in_lines(batch * hidden) +
         (levels > 1 ? in_lines(rows * hidden) : 0) +
         copy_size(run, weights < DEPTH ? DEPTH : weights, in < hidden ? hidden : in)) *
        sizeof(float);
}

/* ---- matrix products ---- */

/* A matrix b (k, n) for several products: where it lies, or copied to panels. */
typedef struct matrix {
    const float *b;
    size_t k, n, b_row, b_column;
    bool panels;
} matrix;

/* [w] transposed: (n, k) in memory; else (k, n). [room]: copy_size floats. */
static matrix prepare(const fedge_layer_run *run, const float *w, bool transposed, size_t k,
                      size_t n, float *room)
{
    const size_t wide = run->kernels->packed_columns;
    matrix made = {.b = w,
                   .k = k,
                   .n = n,
                   .b_row = transposed ? 1 : n,
                   .b_column = transposed ? k : 1,
                   .panels = packs(run)};
    for (size_t j = 0; made.panels && j < n; j += wide) {
        const size_t columns = n - j < wide ? n - j : wide;
        float *panel = room + j * k;
        if (columns < wide) {
            memset(panel, 0, k * wide * sizeof *panel);
        }
        for (size_t c = 0; transposed && c < columns; c++) {
            const float *from = w + (j + c) * k;
            for (size_t i = 0; i < k; i++) {
                panel[i * wide + c] = from[i];
            }
        }
        for (size_t i = 0; !transposed && i < k; i++) {
            memcpy(panel + i * wide, w + i * n + j, columns * sizeof *w);
        }
    }
    made.b = made.panels ? room : w;
    return made;
}

/* c (m, n) += a (m, k) · b; a: transposed (k, m) in memory, on demand. */
static void multiply_add(const fedge_layer_run *run, size_t m, const float *a, size_t a_row,
                         bool transposed, const matrix *b, float *c, size_t c_row)
{
    if (b->panels) {
        run->kernels->panels(&(fedge_panels){.m = m,
                                             .n = b->n,
                                             .k = b->k,
                                             .a = a,
                                             .a_row = transposed ? 1 : a_row,
                                             .a_column = transposed ? a_row : 1,
                                             .b = b->b,
                                             .c = c,
                                             .c_row = c_row});
        return;
    }
    run->kernels->gemm(&(fedge_gemm){.m = m,
                                     .n = b->n,
                                     .k = b->k,
                                     .a = a,
                                     .a_row = transposed ? 1 : a_row,
                                     .a_column = transposed ? a_row : 1,
                                     .b = b->b,
                                     .b_row = b->b_row,
                                     .b_column = b->b_column,
                                     .c = c,
                                     .c_row = c_row,
                                     .accumulate = true},
                       run->gemm_pack);
}

/* dw (n, k) += aᵀ b over [rows]; a: n columns of rows of [a_row], b: (rows, k). [room]: for
 * DEPTH rows of b. */
static void add_outer(const fedge_layer_run *run, size_t rows, size_t n, size_t k, const float *a,
                      size_t a_row, const float *b, float *dw, float *room)
{
    const size_t most = packs(run) ? DEPTH : rows;
    for (size_t r = 0; r < rows; r += most) {
        const matrix part =
            prepare(run, b + r * k, false, rows - r < most ? rows - r : most, k, room);
        multiply_add(run, n, a + r * a_row, a_row, true, &part, dw, k);
    }
}

/* ---- forward ---- */

/* The biases in each of [rows] rows of gates; 0 without. */
static void start_sums(const level *self, float *gates, size_t rows)
{
    const size_t n = self->hidden;
    const float *ih = NULL, *hh = NULL;
    if (self->run->spec->u.recurrent.bias) {
        ih = self->run->values[self->tensors + BIAS_IH];
        hh = self->run->values[self->tensors + BIAS_HH];
    }
    memset(gates, 0, self->columns * sizeof *gates);
    for (uint32_t k = 0; ih != NULL && k < self->cell->blocks; k++) {
        float *of_input = gates + self->cell->order[k] * n;
        float *of_state = gates + (self->cell->first + k) * n;
        for (size_t i = 0; i < n; i++) {
            of_input[i] += ih[k * n + i];
            of_state[i] += hh[k * n + i];
        }
    }
    for (size_t r = 1; r < rows; r++) {
        memcpy(gates + r * self->columns, gates, self->columns * sizeof *gates);
    }
}

/* gates (rows, columns) += x W_ihᵀ; x: rows of [x_row]. */
static void add_inputs(const level *self, const matrix *w_ih, size_t rows, const float *x,
                       size_t x_row, float *gates)
{
    for (uint32_t k = 0, i = 0; k < self->cell->blocks; k += blocks_together(self->cell, k), i++) {
        multiply_add(self->run, rows, x, x_row, false, &w_ih[i],
                     gates + self->cell->order[k] * self->hidden, self->columns);
    }
}

/* W_ih by blocks whose gates follow one another. */
static void prepare_inputs(const level *self, float *room, matrix w_ih[FEDGE_RECURRENT_GATES])
{
    for (uint32_t k = 0, i = 0; k < self->cell->blocks; k += blocks_together(self->cell, k), i++) {
        const size_t columns = blocks_together(self->cell, k) * self->hidden;
        w_ih[i] = prepare(
            self->run, self->run->values[self->tensors + WEIGHT_IH] + k * self->hidden * self->in,
            true, self->in, columns, room);
        room += copy_size(self->run, self->in, columns);
    }
}

/* Of example [b] at step [t], what cells see forward and backward. */
static fedge_cell_step step_of(const level *self, size_t b, size_t t)
{
    const size_t place = b * self->steps + t, kept = self->all_steps ? place : b;
    const size_t n = self->hidden;
    fedge_cell_step step = {.kernels = self->run->kernels,
                            .hidden = n,
                            .gates = self->gates + kept * self->columns,
                            .h_before = t == 0 ? self->zeros : self->h + (place - 1) * n,
                            .h = self->h + place * n};
    if (self->c != NULL) {
        step.c = self->c + kept * n;
        step.c_before = t == 0 ? self->zeros : step.c - (self->all_steps ? n : 0);
    }
    return step;
}

static void forward_level(const level *self, float *room)
{
    const size_t columns = self->columns, weights = self->cell->blocks * self->hidden;
    const size_t row = self->all_steps ? self->steps * columns : columns;
    matrix w_ih[FEDGE_RECURRENT_GATES];
    const matrix w_hh = prepare(self->run, self->run->values[self->tensors + WEIGHT_HH], true,
                                self->hidden, weights, room);
    prepare_inputs(self, room + copy_size(self->run, self->hidden, weights), w_ih);
    if (self->all_steps) {
        start_sums(self, self->gates, self->batch * self->steps);
        add_inputs(self, w_ih, self->batch * self->steps, self->x, self->in, self->gates);
    }
    for (size_t t = 0; t < self->steps; t++) {
        float *gates = self->gates + (self->all_steps ? t * columns : 0);
        if (!self->all_steps) {
            start_sums(self, gates, self->batch);
            add_inputs(self, w_ih, self->batch, self->x + t * self->in, self->steps * self->in,
                       gates);
        }
        if (t > 0) {
            multiply_add(self->run, self->batch, self->h + (t - 1) * self->hidden,
                         self->steps * self->hidden, false, &w_hh,
                         gates + self->cell->first * self->hidden, row);
        }
        for (size_t b = 0; b < self->batch; b++) {
            const fedge_cell_step step = step_of(self, b, t);
            self->cell->forward(&step);
        }
    }
}

/* Level [l], its arrays in what was saved; x of the first and h of the last are the run's. */
static level level_of(const fedge_cell *cell, const fedge_layer_run *run, uint32_t l)
{
    const uint32_t levels = run->spec->u.recurrent.num_layers;
    const size_t hidden = run->out.dims[1], rows = (size_t)run->batch * run->in[0].dims[0];
    const size_t kept = (size_t)kept_per_step(cell, run) * rows;
    float *saved = run->saved, *states = saved == NULL ? run->y : saved + kept * levels;
    level made = {.run = run,
                  .cell = cell,
                  .batch = run->batch,
                  .steps = run->in[0].dims[0],
                  .in = l == 0 ? run->in[0].dims[1] : hidden,
                  .hidden = hidden,
                  .columns = FEDGE_RECURRENT_GATES * hidden,
                  .tensors =
                      (size_t)l * (run->spec->u.recurrent.bias ? FEDGE_RECURRENT_TENSORS : BIAS_IH),
                  .x = run->x[0],
                  .h = run->y,
                  .all_steps = saved != NULL};
    if (saved == NULL) { /* every level over the one before, step by step */
        made.x = l == 0 ? run->x[0] : run->y;
        return made;
    }
    made.gates = saved + kept * l;
    made.c = cell->second_state ? made.gates + rows * made.columns : NULL;
    made.x = l == 0 ? run->x[0] : states + rows * hidden * (l - 1);
    made.h = l + 1 == levels ? run->y : states + rows * hidden * l;
    return made;
}

void fedge_recurrent_forward(const fedge_cell *cell, const fedge_layer_run *run)
{
    for (uint32_t l = 0; l < run->spec->u.recurrent.num_layers; l++) {
        level self = level_of(cell, run, l);
        float *room = run->scratch;
        self.zeros = room;
        room += in_lines(self.hidden);
        memset(self.zeros, 0, self.hidden * sizeof *self.zeros);
        if (!self.all_steps) {
            self.gates = room;
            self.c = cell->second_state ? room + self.batch * self.columns : NULL;
        }
        room += in_lines(self.batch * kept_per_step(cell, run));
        forward_level(&self, room);
    }
}

/* ---- backward ---- */

/* Through time: gates become the gradients of their sums. dh, dc: (batch, hidden). */
static void backward_steps(const level *self, const matrix *w_hh, const float *dy, float *dh,
                           float *dc, float *spare)
{
    const size_t n = self->hidden;
    memset(dh, 0, self->batch * n * sizeof *dh);
    memset(dc, 0, self->batch * n * sizeof *dc);
    for (size_t t = self->steps; t-- > 0;) {
        for (size_t b = 0; b < self->batch; b++) {
            fedge_cell_step step = step_of(self, b, t);
            step.dy = dy + (b * self->steps + t) * n;
            step.dh = dh + b * n;
            step.dc = dc + b * n;
            step.spare = spare;
            self->cell->backward(&step);
        }
        if (t > 0) {
            multiply_add(self->run, self->batch,
                         self->gates + t * self->columns + self->cell->first * n,
                         self->steps * self->columns, false, w_hh, dh, n);
        }
    }
}

/* bias (n) += the sums over rows of gates. */
static void add_rows(const level *self, const float *gates, size_t n, float *restrict bias)
{
    for (size_t r = 0; r < self->batch * self->steps; r++) {
        const float *row = gates + r * self->columns;
        for (size_t i = 0; i < n; i++) {
            bias[i] += row[i];
        }
    }
}

/* The input's gradient, (rows, in), where dx is not NULL, and the gradients of W_ih and b_ih.
 * [room]: for a copy of W_ih or of some inputs. */
static void backward_inputs(const level *self, float *dx, float *room)
{
    const size_t rows = self->batch * self->steps, n = self->hidden;
    const float *w = self->run->values[self->tensors + WEIGHT_IH];
    float *dw = self->run->gradients[self->tensors + WEIGHT_IH];
    float *db =
        self->run->spec->u.recurrent.bias ? self->run->gradients[self->tensors + BIAS_IH] : NULL;
    if (dx != NULL) {
        memset(dx, 0, rows * self->in * sizeof *dx);
    }
    for (uint32_t k = 0; k < self->cell->blocks; k += blocks_together(self->cell, k)) {
        const size_t blocks = blocks_together(self->cell, k), at = k * n * self->in;
        const float *gates = self->gates + self->cell->order[k] * n;
        if (dw != NULL) {
            add_outer(self->run, rows, blocks * n, self->in, gates, self->columns, self->x, dw + at,
                      room);
        }
        if (db != NULL) {
            add_rows(self, gates, blocks * n, db + k * n);
        }
        if (dx != NULL) {
            const matrix part = prepare(self->run, w + at, false, blocks * n, self->in, room);
            multiply_add(self->run, rows, gates, self->columns, false, &part, dx, self->in);
        }
    }
}

/* The gradients of W_hh and b_hh. Row r of the gates meets row r − 1 of the states; where that is
 * another example's last step, the gradient is made 0, which nobody reads any more. */
static void backward_states(const level *self, float *room)
{
    const size_t rows = self->batch * self->steps, n = self->hidden;
    float *dw = self->run->gradients[self->tensors + WEIGHT_HH];
    float *db =
        self->run->spec->u.recurrent.bias ? self->run->gradients[self->tensors + BIAS_HH] : NULL;
    float *gates = self->gates + self->cell->first * n;
    if (db != NULL) {
        add_rows(self, gates, self->cell->blocks * n, db);
    }
    for (size_t b = 0; b < self->batch; b++) {
        memset(gates + b * self->steps * self->columns, 0, self->cell->blocks * n * sizeof *gates);
    }
    if (dw != NULL) {
        add_outer(self->run, rows - 1, self->cell->blocks * n, n, gates + self->columns,
                  self->columns, self->h, dw, room);
    }
}

void fedge_recurrent_backward(const fedge_cell *cell, const fedge_layer_run *run)
{
    const float *dy = run->dy;
    for (uint32_t l = run->spec->u.recurrent.num_layers; l-- > 0;) {
        level self = level_of(cell, run, l);
        const size_t n = self.hidden, each = in_lines(self.batch * n);
        float *spare = run->scratch, *dh = spare + 2 * in_lines(n), *dc = dh + each;
        float *below = dc + each, *room = below;
        if (run->spec->u.recurrent.num_layers > 1) {
            room += in_lines(self.batch * self.steps * n);
        }
        const matrix w_hh =
            prepare(run, run->values[self.tensors + WEIGHT_HH], false, cell->blocks * n, n, room);
        self.zeros = spare + in_lines(n);
        memset(self.zeros, 0, n * sizeof *self.zeros);
        backward_steps(&self, &w_hh, dy, dh, dc, spare);
        backward_inputs(&self, l == 0 ? run->dx[0] : below, room);
        backward_states(&self, room);
        dy = below;
    }
}

#define AT(member) offsetof(fedge_layer_spec, u.recurrent.member)

const fedge_argument fedge_recurrent_arguments[] = {
    FEDGE_COUNT_ARGUMENT("input_size", AT(input_size)),
    FEDGE_COUNT_ARGUMENT("hidden_size", AT(hidden_size)),
    FEDGE_U32_ARGUMENT("num_layers", AT(num_layers), false, 1, FEDGE_MAX_RECURRENT_LAYERS, 1),
    FEDGE_BOOL_ARGUMENT("bias", AT(bias), 1),
    FEDGE_BOOL_ARGUMENT("batch_first", AT(batch_first), 1),
    FEDGE_NO_ARGUMENT,
};
