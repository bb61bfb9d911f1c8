#include "tests/edge/train/random_net.h"

#include <string.h>

#include "edge/train/layers/layer.h"

#define MAX_VALUES 3000u /* of one example between two layers */
#define MAX_NET_LAYERS 12u
#define TRIES 12u

net_bytes net_bytes_of(const uint8_t *data, size_t size)
{
    net_bytes from = {.data = data, .size = size, .state = 0x9e3779b97f4a7c15u + size};
    for (size_t i = 0; i < size; i++)
        from.state = (from.state ^ data[i]) * 0x100000001b3u;
    return from;
}

uint32_t net_choose(net_bytes *from, uint32_t n)
{
    if (from->at < from->size)
        return from->data[from->at++] % n;
    from->state = from->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(from->state >> 33) % n;
}

/* What a number must be for the layer to fit the shape it reads. All others are small. */
typedef enum fit {
    FIT_FIRST, /* the first dimension */
    FIT_LAST,  /* the last dimension */
    FIT_DIVIDES_FIRST,
    FIT_DIVIDES_LAST
} fit;

static const struct {
    const char *argument;
    fit fit;
} FITS[] = {
    {"in_features", FIT_LAST},   {"in_channels", FIT_FIRST},        {"num_features", FIT_FIRST},
    {"num_channels", FIT_FIRST}, {"num_groups", FIT_DIVIDES_FIRST}, {"groups", FIT_DIVIDES_FIRST},
    {"input_size", FIT_LAST},    {"embed_dim", FIT_LAST},           {"embedding_dim", FIT_LAST},
    {"d_model", FIT_LAST},       {"num_heads", FIT_DIVIDES_LAST},   {"nhead", FIT_DIVIDES_LAST},
    {"steps", FIT_FIRST},        {"num_parameters", FIT_FIRST},
};

static uint32_t divisor(net_bytes *from, uint32_t of)
{
    uint32_t d = 1 + net_choose(from, of > 64 ? 64 : of);
    while (of % d != 0)
        d--;
    return d;
}

static uint32_t fitting(net_bytes *from, const char *name, const fedge_shape *in)
{
    const uint32_t first = in->dims[0], last = in->dims[in->rank - 1];
    for (size_t i = 0; i < sizeof(FITS) / sizeof(FITS[0]); i++) {
        if (strcmp(name, FITS[i].argument) == 0) {
            switch (FITS[i].fit) {
            case FIT_FIRST:
                return first;
            case FIT_LAST:
                return last;
            case FIT_DIVIDES_FIRST:
                return divisor(from, first);
            case FIT_DIVIDES_LAST:
            default:
                return divisor(from, last);
            }
        }
    }
    return 0;
}

/* One argument, within its range. */
static void fill_argument(net_bytes *from, const fedge_argument *argument, const fedge_shape *in,
                          uint8_t *layer)
{
    uint32_t *numbers = (uint32_t *)(void *)(layer + argument->offset);
    const uint32_t least = argument->min > 0 ? (uint32_t)argument->min : 0;
    const bool absent = !argument->required && argument->fallback < argument->min;
    if (absent && net_choose(from, 3) == 0)
        return; /* 0 stands for it */
    switch (argument->kind) {
    case FEDGE_ARGUMENT_U32: {
        const uint32_t must = fitting(from, argument->name, in);
        const double range = argument->max - argument->min + 1;
        const uint32_t few = least == 0 ? 3 : 9, choices = range < few ? (uint32_t)range : few;
        *numbers = must > 0 ? must : least + net_choose(from, choices);
        break;
    }
    case FEDGE_ARGUMENT_I32:
        *(int32_t *)(void *)numbers = (int32_t)net_choose(from, 6) - 3;
        break;
    case FEDGE_ARGUMENT_PAIR:
        numbers[0] = least + net_choose(from, 3);
        numbers[1] = least + net_choose(from, 3);
        break;
    case FEDGE_ARGUMENT_BOOL:
        *(bool *)(layer + argument->offset) = net_choose(from, 3) != 0;
        break;
    case FEDGE_ARGUMENT_F32:
        *(float *)(void *)(layer + argument->offset) = (float)argument->fallback;
        break;
    case FEDGE_ARGUMENT_U32S: { /* normalized_shape: the last dimensions */
        const uint32_t n = 1 + net_choose(from, in->rank);
        memcpy(numbers, in->dims + in->rank - n, n * sizeof(*numbers));
        *(uint32_t *)(void *)(layer + argument->extra) = n;
        break;
    }
    case FEDGE_ARGUMENT_CHOICE:
        *numbers = net_choose(from, argument->num_choices);
        break;
    case FEDGE_ARGUMENT_F32S:
    default:
        break;
    }
}

typedef struct builder {
    net_bytes *from;
    fedge_model_spec *spec;
    fedge_shape input, shapes[FEDGE_MAX_LAYERS];
} builder;

static const fedge_shape *shape_at(const builder *self, uint16_t index)
{
    return index == FEDGE_INPUT_MODEL ? &self->input : &self->shapes[index];
}

static bool equal(const fedge_shape *a, const fedge_shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

/* The output of the last layer, or the model's input. */
static uint16_t present(const builder *self)
{
    return (uint16_t)(self->spec->num_layers == 0 ? FEDGE_INPUT_MODEL : self->spec->num_layers - 1);
}

/* An earlier array of the same shape, or the present one. */
static uint16_t twin(builder *self, uint16_t of)
{
    const uint32_t n = self->spec->num_layers;
    for (uint32_t i = 0; n > 0 && i < 4; i++) {
        const uint32_t at = net_choose(self->from, n + 1);
        const uint16_t index = (uint16_t)(at == n ? FEDGE_INPUT_MODEL : at);
        if (equal(shape_at(self, index), shape_at(self, of)))
            return index;
    }
    return of;
}

/* A layer of [type] behind [source]; false when it does not fit, nothing is added then. */
static bool add_layer(builder *self, fedge_layer_type type, uint16_t source)
{
    fedge_model_spec *spec = self->spec;
    const uint32_t index = spec->num_layers;
    const fedge_layer_ops *ops = fedge_layer_ops_of(type);
    fedge_layer_spec *layer = &spec->layers[index];
    fedge_shape in[FEDGE_MAX_LAYER_INPUTS];
    memset(layer, 0, sizeof(*layer));
    layer->type = type;
    in[0] = *shape_at(self, source);
    const fedge_argument *argument = ops->arguments;
    for (; argument && argument->name; argument++)
        fill_argument(self->from, argument, &in[0], (uint8_t *)layer);
    if (ops->max_inputs > 1 || source != present(self)) {
        const uint32_t least = ops->min_inputs == 0 ? 1 : ops->min_inputs;
        const uint32_t most = ops->max_inputs == 0 ? 1 : ops->max_inputs;
        layer->num_inputs = least + net_choose(self->from, most - least + 1);
        layer->inputs[0] = source;
        for (uint32_t k = 1; k < layer->num_inputs; k++) {
            layer->inputs[k] = twin(self, source);
            in[k] = in[0];
        }
    }
    uint16_t sources[FEDGE_MAX_LAYER_INPUTS];
    uint32_t inputs;
    if (fedge_layer_sources(spec, index, sources, &inputs, NULL) != FEDGE_OK ||
        fedge_shape_infer(spec, index, in, inputs, &self->shapes[index], NULL) != FEDGE_OK ||
        fedge_shape_count(&self->shapes[index]) > MAX_VALUES)
        return false;
    static const fedge_train_mode MODES[] = {FEDGE_TRAIN_NONE, FEDGE_TRAIN_BIAS};
    const uint32_t mode = net_choose(self->from, 8);
    layer->train = mode < 2 ? MODES[mode] : FEDGE_TRAIN_ALL;
    layer->recompute = net_choose(self->from, 3) == 0;
    spec->num_layers++;
    return true;
}

static bool add_any(builder *self, uint16_t source)
{
    for (uint32_t i = 0; i < TRIES; i++) {
        if (add_layer(self, (fedge_layer_type)net_choose(self->from, FEDGE_LAYER_COUNT), source))
            return true;
    }
    return false;
}

/* A second layer on an earlier array, joined to the first by an Add when their shapes allow. */
static void add_branch(builder *self)
{
    const uint16_t before = present(self), source = twin(self, before);
    const uint32_t index = self->spec->num_layers;
    if (before == FEDGE_INPUT_MODEL || !add_any(self, source))
        return;
    if (!equal(&self->shapes[index], shape_at(self, before))) {
        self->spec->num_layers--;
        return;
    }
    const bool swapped = net_choose(self->from, 2) != 0;
    fedge_layer_spec *join = &self->spec->layers[self->spec->num_layers++];
    *join = (fedge_layer_spec){.type = FEDGE_LAYER_ADD, .num_inputs = 2};
    join->inputs[swapped] = before;
    join->inputs[!swapped] = (uint16_t)index;
    self->shapes[index + 1] = self->shapes[index];
}

static void make_input(builder *self, random_net *net)
{
    static const uint32_t MOST[3][3] = {{40, 0, 0}, {9, 12, 0}, {6, 12, 12}};
    fedge_model_spec *spec = self->spec;
    spec->input_rank = 1 + net_choose(self->from, 3);
    for (uint32_t i = 0; i < spec->input_rank; i++)
        spec->input_shape[i] = 1 + net_choose(self->from, MOST[spec->input_rank - 1][i]);
    (void)!fedge_shape_input(
        &(fedge_model_spec){
            .num_layers = 1,
            .input_rank = spec->input_rank,
            .input_shape = {spec->input_shape[0], spec->input_shape[1], spec->input_shape[2]}},
        &self->input, NULL);
    if (spec->input_rank == 1 && net_choose(self->from, 2) != 0 &&
        add_layer(self, FEDGE_LAYER_EMBEDDING, FEDGE_INPUT_MODEL))
        net->indices = spec->layers[0].u.embedding.num_embeddings;
}

/* Replaces a number somewhere by any other. */
static void spoil(net_bytes *from, random_net *net)
{
    static const uint32_t NUMBERS[] = {0,   1,     2,     3,        7,        17,        255,
                                       257, 65536, 65537, 1u << 24, 1u << 31, UINT32_MAX};
    const uint32_t number = NUMBERS[net_choose(from, sizeof(NUMBERS) / sizeof(NUMBERS[0]))];
    fedge_layer_spec *layer = &net->spec.layers[net_choose(from, net->spec.num_layers)];
    const fedge_argument *arguments = fedge_layer_ops_of(layer->type)->arguments;
    uint32_t count = 0;
    net->spoilt = true;
    while (arguments && arguments[count].name)
        count++;
    const uint32_t what = net_choose(from, count + 5);
    if (what < count && arguments[what].kind != FEDGE_ARGUMENT_BOOL) {
        const bool list = arguments[what].kind == FEDGE_ARGUMENT_U32S && net_choose(from, 2) != 0;
        memcpy((uint8_t *)layer + (list ? arguments[what].extra : arguments[what].offset), &number,
               sizeof(number));
    } else if (what == count) {
        memset(&layer->u, 0, sizeof(layer->u));
        layer->type = (fedge_layer_type)(int)(number > INT32_MAX ? INT32_MAX : number);
    } else if (what == count + 1) {
        layer->num_inputs = 1;
        layer->inputs[0] = (uint16_t)number;
    } else if (what == count + 2) {
        net->spec.input_shape[net_choose(from, 3)] = number;
    } else if (what == count + 3) {
        net->options.max_batch = number;
    } else if (what == count + 4) {
        net->spec.input_rank = number;
    }
}

static void make_options(net_bytes *from, random_net *net)
{
    fedge_model_options *options = &net->options;
    fedge_optimizer *optimizer = &net->optimizer;
    const uint32_t bits = net_choose(from, 256);
    net->spec.loss = (fedge_loss_type)net_choose(from, FEDGE_LOSS_COUNT);
    net->has_targets = net->spec.loss != FEDGE_LOSS_CROSS_ENTROPY && (bits & 1) != 0;
    options->max_batch = 1 + net_choose(from, 6);
    net->batch = 1 + net_choose(from, options->max_batch);
    options->precision = net_choose(from, 5) == 0 ? FEDGE_PRECISION_BF16 : FEDGE_PRECISION_FP32;
    options->micro_batch = net_choose(from, 4) == 0 ? 1 + net_choose(from, 4) : 0;
    options->training = true;
    options->general = (bits & 2) != 0;
    options->clip = (bits & 12) == 4;
    options->proximal = (bits & 48) == 16;
    options->correction = (bits & 192) == 64;
    options->optimizer = (fedge_optimizer_type)net_choose(from, FEDGE_OPTIMIZER_COUNT);
    optimizer->type = options->optimizer;
    optimizer->learning_rate = 0.01f;
    optimizer->weight_decay = net_choose(from, 3) == 0 ? 0.01f : 0.0f;
    optimizer->clip_norm = options->clip ? 0.5f : 0.0f;
    optimizer->proximal_mu = options->proximal ? 0.1f : 0.0f;
    if (optimizer->type == FEDGE_OPTIMIZER_SGD && net_choose(from, 2) != 0) {
        options->momentum = optimizer->momentum = 0.9f;
        options->nesterov = optimizer->nesterov = net_choose(from, 2) != 0;
    }
    if (optimizer->type == FEDGE_OPTIMIZER_RMSPROP) {
        options->centered = optimizer->centered = net_choose(from, 2) != 0;
        options->momentum = optimizer->momentum = net_choose(from, 2) != 0 ? 0.9f : 0.0f;
    }
    options->weights =
        net_choose(from, 4) == 0 ? (fedge_storage)(1 + net_choose(from, 2)) : FEDGE_STORAGE_FP32;
    options->activations =
        net_choose(from, 3) == 0 ? (fedge_storage)(1 + net_choose(from, 2)) : FEDGE_STORAGE_FP32;
}

/* Does a BatchNorm see parts of a batch with one value for each channel? It refuses those, which
 * have no variance. */
static bool sees_single_values(const builder *self, const fedge_model_options *options)
{
    const uint32_t most = options->max_batch, micro = options->micro_batch;
    const uint32_t part = micro > 0 && micro < most ? micro : most;
    bool single = false;
    for (uint32_t i = 0; i < self->spec->num_layers; i++) {
        const fedge_layer_type type = self->spec->layers[i].type;
        single = single || ((type == FEDGE_LAYER_BATCHNORM1D || type == FEDGE_LAYER_BATCHNORM2D) &&
                            fedge_shape_count(&self->shapes[i]) == self->shapes[i].dims[0] &&
                            (part == 1 || most % part == 1));
    }
    return single;
}

void random_net_make(net_bytes *from, random_net *net)
{
    memset(net, 0, sizeof(*net));
    builder self = {.from = from, .spec = &net->spec};
    make_input(&self, net);
    const uint32_t wanted = net_choose(from, MAX_NET_LAYERS);
    while (net->spec.num_layers < wanted) {
        if (net_choose(from, 4) == 0)
            add_branch(&self);
        if (!add_any(&self, present(&self)))
            break;
    }
    if (shape_at(&self, present(&self))->rank > 1)
        (void)add_layer(&self, FEDGE_LAYER_FLATTEN, present(&self));
    (void)add_layer(&self, FEDGE_LAYER_LINEAR, present(&self));
    net->spec.layers[net->spec.num_layers - 1].train = FEDGE_TRAIN_ALL;
    make_options(from, net);
    if (sees_single_values(&self, &net->options)) {
        net->options.max_batch = net->batch = 2;
        net->options.micro_batch = 0;
    }
    if (net_choose(from, 4) == 0)
        spoil(from, net);
}
