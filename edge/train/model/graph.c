/* Running a model layer by layer. */
#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/kernels/half.h"
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"

/* One layer with every address it uses. */
typedef struct node {
    const fedge_layer_ops *ops;
    fedge_layer_spec spec;
    fedge_layer_run run; /* as for backward; forward's scratch lies at forward_scratch */
    const float *x[FEDGE_MAX_LAYER_INPUTS]; /* NULL: the caller's */
    float *dy;
    float *sum[FEDGE_MAX_LAYER_INPUTS]; /* where a gradient made apart is added; NULL: none */
    void *forward_scratch;
    float *own_gradients; /* the layer's, until it has stepped; NULL with model->gradients */
    size_t own_bytes;
    size_t first_value; /* of the layer's parameters in the model's values */
    bool backward, fuses_sgd;
    bool joined;             /* the layer before does its work */
    uint16_t recompute_time; /* when it is run again; 0: never */
    uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
    float *recompute;  /* its second output */
    fedge_rng *stream; /* as its first run found it */
    float *wide[3];    /* its parameters widened: forward, when it is run again, backward */
    uint16_t *kept;    /* the output in 16 bits from time to_half to from_half; NULL: never */
    uint16_t to_half, from_half;
    void *recompute_scratch;
} node;

enum { WIDE_FORWARD, WIDE_RECOMPUTE, WIDE_BACKWARD };

struct fedge_graph {
    node *nodes;
    uint32_t num_nodes;
    float *gemm_pack;
    const float *outputs;
    float *gradient; /* of the outputs */
    fedge_rng rng;
    bool makes_again; /* some layers are run a second time */
    fedge_storage kept_as;
    uint8_t *arena;
    fedge_graph_watcher watch; /* NULL but in tests */
    void *watch_user;
};

uint8_t *fedge_graph_watch(fedge_model *model, fedge_graph_watcher watch, void *user)
{
    model->graph->watch = watch;
    model->graph->watch_user = user;
    return model->graph->arena;
}

static void tell(const fedge_graph *self, uint32_t time)
{
    if (self->watch)
        self->watch(self->watch_user, time);
}

fedge_status fedge_graph_survey(fedge_model_layout *layout, fedge_error *err)
{
    fedge_graph_plan plan;
    FEDGE_TRY(fedge_graph_plan_make(&plan, layout->spec, layout->options, layout->kernels, err));
    layout->model->num_values = plan.num_values;
    layout->model->num_floats = plan.num_floats;
    layout->model->num_buffers = plan.num_buffers;
    layout->model->outputs = plan.layers[layout->spec->num_layers - 1].out.dims[0];
    layout->model->example_size = fedge_shape_count(&plan.input);
    return FEDGE_OK;
}

/* Where a part lies; NULL when it is not there. */
static void *part(const fedge_graph_plan *plan, uint8_t *arena, uint32_t index, fedge_part which)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    const bool output = which == FEDGE_PART_OUTPUT || which == FEDGE_PART_RECOMPUTE;
    const uint32_t root = output                         ? layer->output_of
                          : which == FEDGE_PART_GRADIENT ? layer->gradient_of
                                                         : index;
    const fedge_interval *at = &plan->layers[root].parts[which];
    return at->size == 0 ? NULL : arena + (size_t)at->offset * FEDGE_BLOCK_ALIGNMENT;
}

/* The layer's parameters, buffers and gradients; *value and *buffer move on behind them. */
static void place_tensors(const fedge_model *model, node *self, size_t *value, size_t *buffer)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(&self->spec, list);
    uint8_t *own = (uint8_t *)self->own_gradients;
    self->first_value = *value;
    for (uint32_t i = 0; i < n; i++) {
        const size_t count = fedge_layer_tensor_count(&list[i]);
        if (list[i].buffer) {
            self->run.buffers[i] = model->buffers + *buffer;
            *buffer += count;
            continue;
        }
        if (fedge_layer_in_int8(&model->options, &list[i]))
            continue;
        self->run.values[i] = !model->values ? NULL : model->values + *value;
        if (self->fuses_sgd && i == 0) {
            self->run.weight = model->values + *value;
            self->run.velocity = !model->states[0] ? NULL : model->states[0] + *value;
        } else if (self->backward && fedge_layer_trains(&self->spec, &list[i])) {
            if (model->gradients) {
                self->run.gradients[i] = model->gradients + *value;
            } else {
                self->run.gradients[i] = (float *)(void *)own;
                own += fedge_graph_aligned(count * sizeof(float));
            }
        }
        *value += count;
    }
}

static uint8_t *behind(uint8_t *at, uint64_t bytes)
{
    return !at ? NULL : at + (size_t)bytes;
}

/* Where the gradients of the layer's inputs go. [apart]: room for those that are added. */
static void place_input_gradients(const fedge_graph_plan *plan, uint8_t *arena, uint32_t index,
                                  node *self, uint8_t *apart)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    for (uint32_t k = 0; k < layer->num_sources; k++) {
        const uint16_t source = layer->sources[k];
        /* Nothing below a frozen beginning is trained, so its gradient is not made: run.dx stays
         * NULL, and the layer saves that product. */
        if (source == FEDGE_INPUT_MODEL || !plan->layers[source].backward)
            continue;
        const uint64_t bytes = fedge_graph_apart(plan, index, k);
        float *gradient = part(plan, arena, source, FEDGE_PART_GRADIENT);
        self->run.dx[k] = bytes == 0 ? gradient : (float *)(void *)apart;
        self->sum[k] = bytes == 0 ? NULL : gradient;
        apart = behind(apart, bytes);
    }
}

static void place_node(const fedge_graph_plan *plan, uint8_t *arena, uint32_t index,
                       const fedge_model *model, node *self, size_t *value, size_t *buffer)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    fedge_layer_sizes sizes = {0};
    self->spec = plan->spec->layers[index];
    self->ops = fedge_layer_ops_of(self->spec.type);
    self->backward = layer->backward;
    self->fuses_sgd = layer->fuses_sgd;
    self->joined = layer->joined;
    fedge_graph_plan_run(plan, index, &self->run);
    if (self->ops->sizes)
        self->ops->sizes(&self->run, &sizes);
    self->run.spec = &self->spec;
    self->run.gemm_pack = model->graph->gemm_pack;
    self->run.y = part(plan, arena, index, FEDGE_PART_OUTPUT);
    self->run.saved = part(plan, arena, index, FEDGE_PART_SAVED);
    self->forward_scratch = part(plan, arena, index, FEDGE_PART_FORWARD);
    self->recompute_time = layer->recompute;
    if (layer->recompute != 0) {
        const uint32_t when = 2 * plan->spec->num_layers - layer->recompute;
        self->recompute = part(plan, arena, index, FEDGE_PART_RECOMPUTE);
        self->recompute_scratch = part(plan, arena, when, FEDGE_PART_BACKWARD);
    }
    if (model->half) {
        const uint64_t forward = fedge_graph_aligned(sizes.forward);
        self->wide[WIDE_FORWARD] = (float *)(void *)behind(self->forward_scratch, forward);
        self->wide[WIDE_RECOMPUTE] = (float *)(void *)behind(self->recompute_scratch, forward);
    }
    if (plan->layers[layer->output_of].from_half != 0) {
        self->recompute = part(plan, arena, index, FEDGE_PART_RECOMPUTE);
        self->kept = part(plan, arena, index, FEDGE_PART_KEPT);
        self->to_half = layer->to_half;
        self->from_half = layer->from_half;
    }
    for (uint32_t k = 0; k < layer->num_sources; k++) {
        const uint16_t source = layer->sources[k];
        self->sources[k] = source;
        self->x[k] =
            source == FEDGE_INPUT_MODEL ? NULL : part(plan, arena, source, FEDGE_PART_OUTPUT);
    }
    uint8_t *back = part(plan, arena, index, FEDGE_PART_BACKWARD);
    if (layer->backward) {
        self->dy = part(plan, arena, index, FEDGE_PART_GRADIENT);
        self->run.dy = self->dy;
        self->run.scratch = back;
        back = behind(back, fedge_graph_aligned(sizes.backward));
        if (!model->gradients) {
            self->own_gradients = (float *)(void *)back;
            self->own_bytes = (size_t)fedge_graph_gradient_bytes(plan, index);
            back = behind(back, self->own_bytes);
        }
        place_input_gradients(plan, arena, index, self, back);
        if (model->half) {
            self->wide[WIDE_BACKWARD] =
                (float *)(void *)behind(back, fedge_graph_all_apart(plan, index));
        }
    }
    place_tensors(model, self, value, buffer);
}

/* The memory of the layer's factor, when it is kept in int8. */
static void take_int8(fedge_model_layout *layout, const fedge_layer_spec *spec,
                      fedge_layer_run *run)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(spec, list);
    size_t *account = &layout->memory->parameters;
    for (uint32_t i = 0; i < n; i++) {
        if (fedge_layer_in_int8(layout->options, &list[i])) {
            fedge_int8_weight *to = &run->int8;
            to->num_rows = list[i].shape[0];
            to->length = fedge_layer_tensor_count(&list[i]) / to->num_rows;
            to->stride = fedge_int8_stride(to->length);
            to->rows = fedge_arena_take(&layout->arena, to->num_rows + FEDGE_INT8_COLUMNS - 1,
                                        to->stride, account);
            to->scales =
                fedge_arena_take(&layout->arena, to->num_rows, sizeof(*to->scales), account);
            to->sums = fedge_arena_take(&layout->arena, to->num_rows, sizeof(*to->sums), account);
            run->int8_multiply = fedge_int8_choose(fedge_os_cpu_features() &
                                                   ~layout->options->disabled_cpu_features);
        }
    }
}

static uint32_t count_again(const fedge_graph_plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->spec->num_layers; i++)
        count += plan->layers[i].recompute != 0;
    return count;
}

fedge_status fedge_graph_lay_out(fedge_model_layout *layout, fedge_error *err)
{
    fedge_model_memory *memory = layout->memory;
    fedge_arena *block = &layout->arena;
    fedge_graph_plan plan;
    FEDGE_TRY(fedge_graph_plan_make(&plan, layout->spec, layout->options, layout->kernels, err));
    const uint32_t num_nodes = layout->spec->num_layers;
    fedge_graph *self = fedge_arena_take(block, 1, sizeof(*self), &memory->scratch);
    node *nodes = fedge_arena_take(block, num_nodes, sizeof(*nodes), &memory->scratch);
    float *pack =
        fedge_arena_take(block, layout->kernels->gemm_pack, sizeof(*pack), &memory->scratch);
    fedge_rng *streams =
        fedge_arena_take(block, count_again(&plan), sizeof(*streams), &memory->scratch);
    uint8_t *arena = fedge_arena_take(block, plan.arena, 1, &memory->activations);
    /* Only counted: the same walk without a block, so that the count cannot differ from what is
     * taken. */
    if (!self) {
        fedge_layer_run counted;
        for (uint32_t i = 0; i < num_nodes; i++)
            take_int8(layout, &layout->spec->layers[i], &counted);
        return FEDGE_OK;
    }
    layout->model->graph = self;
    self->nodes = nodes;
    self->num_nodes = num_nodes;
    self->gemm_pack = pack;
    self->arena = arena;
    self->makes_again = count_again(&plan) > 0;
    self->kept_as = layout->options->activations;
    self->outputs = part(&plan, arena, num_nodes - 1, FEDGE_PART_OUTPUT);
    self->gradient = part(&plan, arena, num_nodes - 1, FEDGE_PART_GRADIENT);
    size_t value = 0, buffer = 0;
    for (uint32_t i = 0; i < num_nodes; i++) {
        place_node(&plan, arena, i, layout->model, &nodes[i], &value, &buffer);
        take_int8(layout, &nodes[i].spec, &nodes[i].run);
        nodes[i].stream = nodes[i].recompute_time == 0 ? NULL : streams++;
    }
    return FEDGE_OK;
}

fedge_value_owner fedge_graph_owner(const fedge_model *model, bool buffer, size_t index)
{
    fedge_value_owner owner = {.tensor = "?", .index = index};
    for (uint32_t i = 0; i < model->graph->num_nodes; i++) {
        const fedge_layer_spec *layer = &model->graph->nodes[i].spec;
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(layer, list);
        for (uint32_t t = 0; t < n; t++) {
            const size_t count = fedge_layer_tensor_count(&list[t]);
            if (list[t].buffer == buffer && owner.index < count) {
                owner.layer = i;
                owner.type = layer->type;
                owner.tensor = list[t].name;
                return owner;
            }
            owner.index -= list[t].buffer == buffer ? count : 0;
        }
    }
    return owner;
}

void fedge_graph_begin(fedge_model *model)
{
    /* 16 bits of the step are in the stream's name, the others change the seed. */
    const uint64_t step = model->num_steps;
    model->graph->rng = fedge_rng_stream(model->seed ^ (step >> 16) << 32, FEDGE_PURPOSE_DROPOUT,
                                         model->round, model->client_index, (uint16_t)step);
    /* Layers add to gradients, since a batch may pass in parts. */
    if (model->gradients)
        memset(model->gradients, 0, model->num_values * sizeof(*model->gradients));
}

void fedge_graph_load(fedge_model *model, const float *values)
{
    float *to = model->values;
    for (uint32_t i = 0; i < model->graph->num_nodes; i++) {
        const node *at = &model->graph->nodes[i];
        fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
        const uint32_t n = fedge_layer_tensors(&at->spec, list);
        for (uint32_t t = 0; t < n; t++) {
            const size_t count = list[t].buffer ? 0 : fedge_layer_tensor_count(&list[t]);
            if (fedge_layer_in_int8(&model->options, &list[t])) {
                fedge_int8_quantise_weight(&at->run.int8, values);
            } else if (count > 0) {
                memcpy(to, values, count * sizeof(*to));
                to += count;
            }
            values += count;
        }
    }
}

/* The layer's parameters from 16 bits to [to], for one pass. */
static void widen_values(const fedge_model *model, const node *at, float *to, fedge_layer_run *run)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = !model->half ? 0 : fedge_layer_tensors(&at->spec, list);
    size_t value = at->first_value;
    for (uint32_t i = 0; i < n; i++) {
        const size_t count = list[i].buffer ? 0 : fedge_layer_tensor_count(&list[i]);
        if (count > 0) {
            fedge_half_to_floats(model->options.weights, model->half + value, count, to);
            run->values[i] = to;
            to += fedge_graph_aligned(count * sizeof(*to)) / sizeof(*to);
            value += count;
        }
    }
}

/* Arrays whose last use forward was at [time] go to 16 bits. */
static void keep_in_half(const fedge_graph *self, uint32_t time)
{
    for (uint32_t i = 0; self->kept_as != FEDGE_STORAGE_FP32 && i <= time; i++) {
        const node *at = &self->nodes[i];
        if (at->kept && at->to_half == time) {
            fedge_half_from_floats(self->kept_as, at->run.y,
                                   fedge_shape_count(&at->run.out) * at->run.batch, at->kept);
        }
    }
}

/* And come back for their first use backward. */
static void restore_from_half(const fedge_graph *self, uint32_t time)
{
    for (uint32_t i = 0; self->kept_as != FEDGE_STORAGE_FP32 && i < self->num_nodes; i++) {
        const node *at = &self->nodes[i];
        if (at->kept && at->from_half == time) {
            fedge_half_to_floats(self->kept_as, at->kept,
                                 fedge_shape_count(&at->run.out) * at->run.batch, at->recompute);
        }
    }
}

fedge_status fedge_graph_check(const fedge_graph *self, uint32_t batch, bool train,
                               fedge_error *err)
{
    for (uint32_t i = 0; i < self->num_nodes; i++) {
        const node *at = &self->nodes[i];
        fedge_layer_run run = at->run;
        run.batch = batch;
        run.training = train;
        run.x[0] = NULL; /* asks for the size alone */
        const fedge_status status = !at->ops->check ? FEDGE_OK : at->ops->check(&run, err);
        if (status != FEDGE_OK)
            return fedge_layer_prefix(&at->spec, i, status, err);
    }
    return FEDGE_OK;
}

fedge_status fedge_graph_forward(fedge_model *model, const float *x, uint32_t batch, bool train,
                                 const float **outputs, float **gradient, fedge_error *err)
{
    fedge_graph *self = model->graph;
    tell(self, FEDGE_TIME_BEGIN);
    for (uint32_t i = 0; i < self->num_nodes; i++) {
        node *at = &self->nodes[i];
        at->run.batch = batch;
        at->run.training = train;
        for (uint32_t k = 0; k < at->run.num_inputs; k++)
            at->run.x[k] = !at->x[k] ? x : at->x[k];
        fedge_layer_run run = at->run;
        run.scratch = at->forward_scratch;
        run.rng = &self->rng;
        run.saved = train && !at->stream ? run.saved : NULL;
        if (at->stream)
            *at->stream = self->rng;
        widen_values(model, at, at->wide[WIDE_FORWARD], &run);
        fedge_status status = !at->ops->check ? FEDGE_OK : at->ops->check(&run, err);
        if (status != FEDGE_OK)
            return fedge_layer_prefix(&at->spec, i, status, err);
        if (!at->joined)
            at->ops->forward(&run);
        if (train)
            keep_in_half(self, i);
        tell(self, i);
    }
    *outputs = self->outputs;
    *gradient = self->gradient;
    return FEDGE_OK;
}

/* g ← g + mu (w − w0), over one tensor. */
static void add_proximal(const fedge_model *model, float mu, size_t at, size_t n, float *g)
{
    const float *w0 = model->anchor + at;
    for (size_t i = 0; i < n; i++) {
        float w;
        if (model->half)
            fedge_half_to_floats(model->options.weights, model->half + at + i, 1, &w);
        else
            w = model->values[at + i];
        g[i] += mu * (w - w0[i]);
    }
}

#define UPDATE_VALUES ((size_t)64) /* of 16 bits that are widened at a time, on the stack */

/* The optimizer's step along g (n), the parameters from [at]. */
static void update(fedge_model *model, const fedge_optimizer *optimizer, size_t at, size_t n,
                   float *g)
{
    const fedge_storage weights = model->options.weights;
    const size_t most = !model->half ? n : UPDATE_VALUES;
    for (size_t i = 0; model->correction && i < n; i++)
        g[i] += model->correction[at + i];
    for (size_t first = 0; first < n; first += most) {
        const size_t count = n - first < most ? n - first : most, value = at + first;
        float wide[UPDATE_VALUES], *w = wide, *states[FEDGE_MAX_OPTIMIZER_STATES];
        for (int i = 0; i < FEDGE_MAX_OPTIMIZER_STATES; i++)
            states[i] = !model->states[i] ? NULL : model->states[i] + value;
        if (!model->half)
            w = model->values + value;
        else
            fedge_half_to_floats(weights, model->half + value, count, wide);
        fedge_optimizer_ops_of(optimizer->type)
            ->update(optimizer, model->kernels, model->num_steps, count, g + first, w, states);
        if (model->half)
            fedge_half_from_floats(weights, wide, count, model->half + value);
    }
}

/* Sums of every eighth that do not wait for one another; the same on every table. */
static double sum_of_squares(const float *g, size_t n)
{
    double sums[8] = {0.0};
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        for (size_t j = 0; j < 8; j++)
            sums[j] += (double)g[i + j] * (double)g[i + j];
    }
    for (size_t j = 0; i < n; i++, j++)
        sums[j] += (double)g[i] * (double)g[i];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/* What a pass over a layer's trained tensors does with the trained rows of each. */
typedef enum visit { VISIT_PREPARE, VISIT_SQUARES, VISIT_SCALE, VISIT_UPDATE } visit;

/* Returns the sum of squares for VISIT_SQUARES. */
static double visit_tensors(fedge_model *model, node *at, const fedge_optimizer *optimizer,
                            visit what, float scale)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t num_tensors = fedge_layer_tensors(&at->spec, list);
    size_t value = at->first_value;
    double squares = 0.0;
    for (uint32_t t = 0; t < num_tensors; t++) {
        const size_t n = list[t].buffer ? 0 : fedge_layer_tensor_count(&list[t]);
        float *g = at->run.gradients[t];
        if (!g) {
            value += n;
            continue;
        }
        uint32_t begin = 0, end = 0;
        fedge_layer_trained_rows(&at->spec, &list[t], &begin, &end);
        const size_t row = list[t].rank == 0 ? n : n / list[t].shape[0];
        const size_t first = value + begin * row, count = (end - begin) * row;
        g += begin * row;
        if (what == VISIT_PREPARE && optimizer->proximal_mu != 0.0f)
            add_proximal(model, optimizer->proximal_mu, first, count, g);
        squares += what == VISIT_SQUARES ? sum_of_squares(g, count) : 0.0;
        for (size_t i = 0; what == VISIT_SCALE && i < count; i++)
            g[i] *= scale;
        if (what == VISIT_UPDATE)
            update(model, optimizer, first, count, g);
        value += n;
    }
    return squares;
}

static void add_apart(node *at)
{
    for (uint32_t k = 0; k < at->run.num_inputs; k++) {
        const size_t n = fedge_shape_count(&at->run.in[k]) * at->run.batch;
        if (at->sum[k])
            at->run.kernels->add(at->run.dx[k], n, at->sum[k]);
    }
}

/* Points [run] at the second outputs, where they have been made. */
static void use_again(const fedge_graph *self, const node *at, fedge_layer_run *run)
{
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        const uint16_t source = at->sources[k];
        if (source != FEDGE_INPUT_MODEL && self->nodes[source].recompute)
            run->x[k] = self->nodes[source].recompute;
    }
    run->y = at->recompute ? at->recompute : run->y;
}

/* Runs the layers forward whose second time this is, in their order. */
static void run_again(const fedge_model *model, uint32_t time)
{
    const fedge_graph *self = model->graph;
    for (uint32_t i = 0; self->makes_again && i < self->num_nodes; i++) {
        const node *at = &self->nodes[i];
        if (at->recompute_time == time && !at->joined) {
            fedge_layer_run run = at->run;
            fedge_rng rng = *at->stream;
            use_again(self, at, &run);
            run.scratch = at->recompute_scratch;
            run.rng = &rng;
            run.recompute = true;
            widen_values(model, at, at->wide[WIDE_RECOMPUTE], &run);
            at->ops->forward(&run);
        }
    }
}

void fedge_graph_backward(fedge_model *model, const fedge_optimizer *optimizer)
{
    fedge_graph *self = model->graph;
    tell(self, self->num_nodes);
    for (uint32_t i = self->num_nodes; i-- > 0;) {
        node *at = &self->nodes[i];
        if (!at->backward)
            continue;
        restore_from_half(self, 2 * self->num_nodes - i);
        run_again(model, 2 * self->num_nodes - i);
        if (at->own_bytes > 0)
            memset(at->own_gradients, 0, at->own_bytes);
        fedge_layer_run run = at->run;
        run.sgd = at->fuses_sgd ? optimizer : NULL;
        use_again(self, at, &run);
        widen_values(model, at, at->wide[WIDE_BACKWARD], &run);
        if (!at->joined)
            at->ops->backward(&run);
        add_apart(at);
        if (!model->gradients) {
            (void)visit_tensors(model, at, optimizer, VISIT_PREPARE, 0.0f);
            (void)visit_tensors(model, at, optimizer, VISIT_UPDATE, 0.0f);
        }
        tell(self, 2 * self->num_nodes - i);
    }
}

void fedge_graph_finish(fedge_model *model, const fedge_optimizer *optimizer)
{
    fedge_graph *self = model->graph;
    double squares = 0.0;
    if (!model->gradients)
        return;
    for (uint32_t i = 0; i < self->num_nodes; i++) {
        (void)visit_tensors(model, &self->nodes[i], optimizer, VISIT_PREPARE, 0.0f);
        squares += visit_tensors(model, &self->nodes[i], optimizer, VISIT_SQUARES, 0.0f);
    }
    const float scale = (float)((double)optimizer->clip_norm / (sqrt(squares) + 1e-6));
    for (uint32_t i = 0; i < self->num_nodes; i++) {
        if (optimizer->clip_norm > 0.0f && scale < 1.0f)
            (void)visit_tensors(model, &self->nodes[i], optimizer, VISIT_SCALE, scale);
        (void)visit_tensors(model, &self->nodes[i], optimizer, VISIT_UPDATE, 0.0f);
    }
}
