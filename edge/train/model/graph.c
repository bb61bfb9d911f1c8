/* Running a model layer by layer. */
#include <math.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/kernels/half.h"
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"

/* One layer and the addresses of its arrays. */
typedef struct node {
    const fedge_layer_ops *ops;
    fedge_layer_spec spec;
    fedge_layer_run run; /* run of the backward pass; forward uses forward_scratch */
    const float *x[FEDGE_MAX_LAYER_INPUTS]; /* NULL: the model's input */
    float *dy;
    float *sum[FEDGE_MAX_LAYER_INPUTS]; /* target of a separate gradient; NULL: none */
    void *forward_scratch;
    float *layer_gradients; /* the layer's, until it has stepped; NULL with model->gradients */
    size_t layer_gradient_bytes;
    size_t first_value; /* index of the layer's first parameter in the model's values */
    bool backward, fuses_sgd;
    bool absorbed;           /* the layer before does its work */
    uint16_t recompute_time; /* 0: never */
    uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
    float *recompute;  /* its recomputed or restored output */
    fedge_rng *stream; /* the random stream before its first run */
    float *wide[3];    /* its parameters in fp32; see below */
    uint16_t *half;    /* the output in 16 bits from time to_half to from_half; NULL: never */
    uint16_t to_half, from_half;
    void *recompute_scratch;
} node;

enum { WIDE_FORWARD, WIDE_RECOMPUTE, WIDE_BACKWARD };

struct fedge_graph {
    node *nodes;
    uint32_t num_nodes;
    float *gemm_pack;
    const float *outputs;
    float *gradient; /* gradient of the outputs */
    fedge_rng rng;
    bool recomputes; /* some layers run twice */
    fedge_storage half_storage;
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

static void notify(const fedge_graph *self, uint32_t time)
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

/* The address of a part; NULL if it is unused. */
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

/* Sets the layer's parameters, buffers and gradients, and advances *value and *buffer past them. */
static void place_tensors(const fedge_model *model, node *self, size_t *value, size_t *buffer)
{
    fedge_layer_tensor list[FEDGE_MAX_LAYER_TENSORS];
    const uint32_t n = fedge_layer_tensors(&self->spec, list);
    uint8_t *gradient = (uint8_t *)self->layer_gradients;
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
                self->run.gradients[i] = (float *)(void *)gradient;
                gradient += fedge_graph_aligned(count * sizeof(float));
            }
        }
        *value += count;
    }
}

static uint8_t *advance(uint8_t *at, uint64_t bytes)
{
    return !at ? NULL : at + (size_t)bytes;
}

/* Sets the targets of the inputs' gradients. separate: memory for those that are added. */
static void place_input_gradients(const fedge_graph_plan *plan, uint8_t *arena, uint32_t index,
                                  node *self, uint8_t *separate)
{
    const fedge_layer_plan *layer = &plan->layers[index];
    for (uint32_t k = 0; k < layer->num_sources; k++) {
        const uint16_t source = layer->sources[k];
        /* No trained layer needs this gradient: run.dx stays NULL, the layer skips the product. */
        if (source == FEDGE_INPUT_MODEL || !plan->layers[source].backward)
            continue;
        const uint64_t bytes = fedge_graph_separate_bytes(plan, index, k);
        float *gradient = part(plan, arena, source, FEDGE_PART_GRADIENT);
        self->run.dx[k] = bytes == 0 ? gradient : (float *)(void *)separate;
        self->sum[k] = bytes == 0 ? NULL : gradient;
        separate = advance(separate, bytes);
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
    self->absorbed = layer->absorbed;
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
        self->wide[WIDE_FORWARD] = (float *)(void *)advance(self->forward_scratch, forward);
        self->wide[WIDE_RECOMPUTE] = (float *)(void *)advance(self->recompute_scratch, forward);
    }
    if (plan->layers[layer->output_of].from_half != 0) {
        self->recompute = part(plan, arena, index, FEDGE_PART_RECOMPUTE);
        self->half = part(plan, arena, index, FEDGE_PART_HALF);
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
        back = advance(back, fedge_graph_aligned(sizes.backward));
        if (!model->gradients) {
            self->layer_gradients = (float *)(void *)back;
            self->layer_gradient_bytes = (size_t)fedge_graph_gradient_bytes(plan, index);
            back = advance(back, self->layer_gradient_bytes);
        }
        place_input_gradients(plan, arena, index, self, back);
        if (model->half) {
            self->wide[WIDE_BACKWARD] =
                (float *)(void *)advance(back, fedge_graph_all_separate_bytes(plan, index));
        }
    }
    place_tensors(model, self, value, buffer);
}

/* Allocates the layer's weight in int8, if it has one. */
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

static uint32_t count_recomputed(const fedge_graph_plan *plan)
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
        fedge_arena_take(block, count_recomputed(&plan), sizeof(*streams), &memory->scratch);
    uint8_t *arena = fedge_arena_take(block, plan.arena, 1, &memory->activations);
    /* Counting only: the same calls without a block, so that the count cannot differ. */
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
    self->recomputes = count_recomputed(&plan) > 0;
    self->half_storage = layout->options->activations;
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
    /* The stream's name has 16 bits of the step; the other bits change the seed. */
    const uint64_t step = model->num_steps;
    model->graph->rng = fedge_rng_stream(model->seed ^ (step >> 16) << 32, FEDGE_PURPOSE_DROPOUT,
                                         model->round, model->client_index, (uint16_t)step);
    /* Layers add to gradients, since a batch may pass in several parts. */
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

/* Converts the layer's parameters from 16 bits to [to], for one pass. */
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

/* Stores arrays whose last use forward is at [time] in 16 bits. */
static void store_in_half(const fedge_graph *self, uint32_t time)
{
    for (uint32_t i = 0; self->half_storage != FEDGE_STORAGE_FP32 && i <= time; i++) {
        const node *at = &self->nodes[i];
        if (at->half && at->to_half == time) {
            fedge_half_from_floats(self->half_storage, at->run.y,
                                   fedge_shape_count(&at->run.out) * at->run.batch, at->half);
        }
    }
}

/* Restores arrays whose first use backward is at [time]. */
static void restore_from_half(const fedge_graph *self, uint32_t time)
{
    for (uint32_t i = 0; self->half_storage != FEDGE_STORAGE_FP32 && i < self->num_nodes; i++) {
        const node *at = &self->nodes[i];
        if (at->half && at->from_half == time) {
            fedge_half_to_floats(self->half_storage, at->half,
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
        run.x[0] = NULL; /* checks the size alone */
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
    notify(self, FEDGE_TIME_BEGIN);
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
        if (!at->absorbed)
            at->ops->forward(&run);
        if (train)
            store_in_half(self, i);
        notify(self, i);
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

#define UPDATE_VALUES ((size_t)64) /* values converted from 16 bits at a time, on the stack */

/* The optimizer's step for the parameters from [at], with the gradient g (n). */
static void update(fedge_model *model, const fedge_optimizer *optimizer, size_t at, size_t n,
                   float *g)
{
    const fedge_storage weights = model->options.weights;
    const size_t max_count = !model->half ? n : UPDATE_VALUES;
    for (size_t i = 0; model->correction && i < n; i++)
        g[i] += model->correction[at + i];
    for (size_t first = 0; first < n; first += max_count) {
        const size_t count = n - first < max_count ? n - first : max_count, value = at + first;
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

/* Eight independent sums, of every eighth value; the same order on every table. */
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

/* What visit_tensors does with the trained rows of a tensor. */
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

static void add_separate_gradients(node *at)
{
    for (uint32_t k = 0; k < at->run.num_inputs; k++) {
        const size_t n = fedge_shape_count(&at->run.in[k]) * at->run.batch;
        if (at->sum[k])
            at->run.kernels->add(at->run.dx[k], n, at->sum[k]);
    }
}

/* Points [run] to recomputed or restored arrays, where there are any. */
static void use_recomputed(const fedge_graph *self, const node *at, fedge_layer_run *run)
{
    for (uint32_t k = 0; k < run->num_inputs; k++) {
        const uint16_t source = at->sources[k];
        if (source != FEDGE_INPUT_MODEL && self->nodes[source].recompute)
            run->x[k] = self->nodes[source].recompute;
    }
    run->y = at->recompute ? at->recompute : run->y;
}

/* Recomputes the layers due at [time], in order. */
static void recompute_layers(const fedge_model *model, uint32_t time)
{
    const fedge_graph *self = model->graph;
    for (uint32_t i = 0; self->recomputes && i < self->num_nodes; i++) {
        const node *at = &self->nodes[i];
        if (at->recompute_time == time && !at->absorbed) {
            fedge_layer_run run = at->run;
            fedge_rng rng = *at->stream;
            use_recomputed(self, at, &run);
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
    notify(self, self->num_nodes);
    for (uint32_t i = self->num_nodes; i-- > 0;) {
        node *at = &self->nodes[i];
        if (!at->backward)
            continue;
        restore_from_half(self, 2 * self->num_nodes - i);
        recompute_layers(model, 2 * self->num_nodes - i);
        if (at->layer_gradient_bytes > 0)
            memset(at->layer_gradients, 0, at->layer_gradient_bytes);
        fedge_layer_run run = at->run;
        run.sgd = at->fuses_sgd ? optimizer : NULL;
        use_recomputed(self, at, &run);
        widen_values(model, at, at->wide[WIDE_BACKWARD], &run);
        if (!at->absorbed)
            at->ops->backward(&run);
        add_separate_gradients(at);
        if (!model->gradients) {
            (void)visit_tensors(model, at, optimizer, VISIT_PREPARE, 0.0f);
            (void)visit_tensors(model, at, optimizer, VISIT_UPDATE, 0.0f);
        }
        notify(self, 2 * self->num_nodes - i);
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
