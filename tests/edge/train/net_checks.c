/* What must hold for any net: refusals have a message and change nothing; a valid net needs the
 * planned bytes and no others, reads nothing outside the planned life of an array, and gives the
 * same bits whatever lay in its block before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/train/model/graph_plan.h"
#include "edge/train/model/internals.h"
#include "tests/edge/train/random_net.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define CANARY_BYTES 64 /* before and behind a block */
#define CANARY 0xa5
#define DEAD 0xff     /* four of them are a NaN */
#define DEAD_TOO 0x7f /* four of them are close to the largest float */
#define PADDED_ROW 64 /* bytes of zeros behind the outputs of the last layer, at most */
#define MAX_SPOILT_BYTES ((size_t)1 << 20)
#define MAX_SPOILT_INPUTS 100000u
#define MAX_SPOILT_ARGUMENT 300u

static char problem[768];
static const char end_unused[] = "the end of the planned bytes was never written";

static const char *report(const char *what, const fedge_error *err)
{
    (void)snprintf(problem, sizeof(problem), "%s: %s", what, !err ? "" : err->message);
    return problem;
}

static void *allocate(size_t bytes)
{
    void *made = malloc(bytes);
    if (!made)
        abort();
    return made;
}

/* ---- blocks ---- */

typedef struct guarded {
    uint8_t *whole;
    size_t size;
} guarded;

static uint8_t *open_block(guarded *self, size_t size, int fill)
{
    self->size = size;
    self->whole = aligned_alloc(64, size + 2 * CANARY_BYTES);
    if (!self->whole)
        abort();
    memset(self->whole, CANARY, size + 2 * CANARY_BYTES);
    memset(self->whole + CANARY_BYTES, fill, size);
    ASAN_POISON_MEMORY_REGION(self->whole, CANARY_BYTES);
    ASAN_POISON_MEMORY_REGION(self->whole + CANARY_BYTES + size, CANARY_BYTES);
    return self->whole + CANARY_BYTES;
}

/* False when a canary changed. */
static bool close_block(guarded *self)
{
    bool whole = true;
    ASAN_UNPOISON_MEMORY_REGION(self->whole, self->size + 2 * CANARY_BYTES);
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        whole = whole && self->whole[i] == CANARY &&
                self->whole[CANARY_BYTES + self->size + i] == CANARY;
    }
    free(self->whole);
    return whole;
}

/* ---- the plan's word ---- */

typedef struct watch {
    fedge_graph_plan plan;
    uint8_t *arena; /* NULL: not watched */
    uint8_t dead;   /* what fills memory that nothing has */
    bool written_outside;
    size_t highest; /* of the arena's bytes that were ever written, and one */
} watch;

static void mark_alive(const fedge_graph_plan *plan, uint32_t from, uint32_t to, uint8_t *alive)
{
    memset(alive, 0, plan->arena / FEDGE_BLOCK_ALIGNMENT);
    for (uint32_t i = 0; i < plan->spec->num_layers * FEDGE_PARTS; i++) {
        const fedge_interval *part = &plan->layers[i / FEDGE_PARTS].parts[i % FEDGE_PARTS];
        if (part->size > 0 && part->begin <= from && part->end >= to)
            memset(alive + part->offset, 1, part->size);
    }
}

/* After [time]: what no array had then must still be dead, and what none keeps dies. */
static void look(void *user, uint32_t time)
{
    watch *self = user;
    uint8_t *arena = self->arena;
    if (time == FEDGE_TIME_BEGIN) {
        memset(arena, self->dead, self->plan.arena);
        return;
    }
    const size_t n = self->plan.arena / FEDGE_BLOCK_ALIGNMENT;
    uint8_t *alive = allocate(n + 1);
    mark_alive(&self->plan, time, time, alive);
    for (size_t i = 0; i < n * FEDGE_BLOCK_ALIGNMENT; i++) {
        if (!alive[i / FEDGE_BLOCK_ALIGNMENT] && arena[i] != self->dead)
            self->written_outside = true;
    }
    size_t end = self->plan.arena;
    while (end > self->highest && arena[end - 1] == self->dead)
        end--;
    self->highest = end;
    mark_alive(&self->plan, time, time + 1, alive);
    for (size_t i = 0; i < n; i++) {
        if (!alive[i])
            memset(arena + i * FEDGE_BLOCK_ALIGNMENT, self->dead, FEDGE_BLOCK_ALIGNMENT);
    }
    free(alive);
}

/* ---- running ---- */

typedef struct batch_data {
    float *x, *targets; /* of exactly the batch's size */
    int32_t *labels;
} batch_data;

typedef struct outcome {
    fedge_status status[2]; /* of the step, of the evaluation */
    double loss[2];
    float *values; /* (num_values), malloc'ed */
    size_t num_values;
} outcome;

static void make_data(net_bytes *from, const random_net *net, batch_data *data)
{
    const uint32_t outputs = fedge_model_num_classes(&net->spec);
    const size_t inputs = fedge_model_input_count(&net->spec) * net->batch;
    const size_t targets = (size_t)outputs * net->batch;
    data->x = allocate(inputs * sizeof(*data->x));
    data->targets = allocate(targets * sizeof(*data->targets));
    data->labels = allocate(net->batch * sizeof(*data->labels));
    for (size_t i = 0; i < inputs; i++) {
        data->x[i] = net->indices > 0 ? (float)net_choose(from, net->indices)
                                      : ((float)net_choose(from, 256) - 127.5f) / 64.0f;
    }
    for (size_t i = 0; i < targets; i++)
        data->targets[i] = (float)net_choose(from, 256) / 255.0f;
    for (size_t i = 0; i < net->batch; i++)
        data->labels[i] = (int32_t)net_choose(from, outputs);
}

static void free_data(batch_data *data)
{
    free(data->x);
    free(data->targets);
    free(data->labels);
}

static const char *use(const random_net *net, fedge_model *model, const batch_data *data,
                       outcome *out)
{
    const fedge_batch batch = {.x = data->x,
                               .labels = net->has_targets ? NULL : data->labels,
                               .targets = net->has_targets ? data->targets : NULL,
                               .size = net->batch};
    fedge_error err = {0};
    uint32_t correct = 0;
    const size_t bytes = out->num_values * sizeof(float);
    float *before = allocate(bytes + 1);
    fedge_model_store(model, before);
    out->status[0] =
        fedge_model_train(model, &batch, &net->optimizer, &out->loss[0], &correct, &err);
    fedge_model_store(model, out->values);
    const bool same = memcmp(before, out->values, bytes) == 0;
    free(before);
    if (out->status[0] != FEDGE_OK && (err.message[0] == '\0' || !same))
        return report("a refused step has no message or changed parameters", &err);
    err.message[0] = '\0';
    out->status[1] = fedge_model_test(model, &batch, &out->loss[1], &correct, &err);
    if (out->status[1] != FEDGE_OK && err.message[0] == '\0')
        return "a refused evaluation has no message";
    fedge_model_store(model, out->values);
    return NULL;
}

/* What is made again may need less scratch than at first: a result that is kept has another place.
 */
static bool recomputes(const fedge_model_spec *spec)
{
    bool any = false;
    for (uint32_t i = 0; i < spec->num_layers; i++)
        any = any || spec->layers[i].recompute;
    return any;
}

/* One life of a model in a block filled with [fill]; watched unless [dead] is 0. */
static const char *live(const random_net *net, const fedge_model_options *options,
                        const fedge_model_memory *memory, const batch_data *data, int fill,
                        uint8_t dead, outcome *out)
{
    static watch self; /* large */
    static fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    fedge_error err = {0};
    fedge_model *model = NULL;
    fedge_schema schema;
    guarded block;
    const char *wrong = NULL;
    fedge_schema_init(&schema, tensors, FEDGE_MAX_TENSORS);
    uint8_t *at = open_block(&block, memory->total, fill);
    float *values = allocate(2 * memory->total); /* more than fp32 takes */
    if (fedge_model_new(&model, &net->spec, options, at, memory->total - 1, &err) == FEDGE_OK) {
        wrong = "a block that is too small was taken";
    } else if (fedge_model_new(&model, &net->spec, options, at, memory->total, &err) != FEDGE_OK ||
               fedge_model_schema(&net->spec, &schema, &err) != FEDGE_OK) {
        wrong = report("the planned block was refused", &err);
    } else {
        fedge_model_init_values(&net->spec, 5, values);
        fedge_model_load(model, values);
        out->num_values = fedge_model_num_values(model);
        out->values = allocate(out->num_values * sizeof(float) + 1);
        fedge_model_reset_optimizer(model);
        self.written_outside = false;
        self.highest = 0;
        self.arena = NULL;
        if (dead != 0 && model->graph) {
            if (fedge_graph_plan_make(&self.plan, &net->spec, options, model->kernels, &err) !=
                FEDGE_OK)
                abort();
            self.dead = dead;
            self.arena = fedge_graph_watch(model, look, &self);
        }
        wrong = use(net, model, data, out);
        if (!wrong && self.written_outside)
            wrong = "a layer wrote where the plan gives it nothing";
        if (!wrong && self.arena && net->batch == options->max_batch &&
            out->status[0] == FEDGE_OK && !recomputes(&net->spec) &&
            self.highest + FEDGE_BLOCK_ALIGNMENT <= self.plan.arena)
            wrong = end_unused;
    }
    if (!wrong && model->fused && net->batch == options->max_batch && out->status[0] == FEDGE_OK) {
        size_t end = memory->total;
        while (end > 0 && at[end - 1] == 0)
            end--;
        if (end + PADDED_ROW <= memory->total)
            wrong = "the end of the planned block was never written";
    }
    free(values);
    return close_block(&block) || wrong ? wrong : "the block's end was passed";
}

static bool same_bits(const outcome *a, const outcome *b)
{
    return a->status[0] == b->status[0] && a->status[1] == b->status[1] &&
           (a->status[0] != FEDGE_OK || memcmp(&a->loss[0], &b->loss[0], sizeof(double)) == 0) &&
           (a->status[1] != FEDGE_OK || memcmp(&a->loss[1], &b->loss[1], sizeof(double)) == 0) &&
           a->num_values == b->num_values &&
           memcmp(a->values, b->values, a->num_values * sizeof(float)) == 0;
}

static const char *check_level(const random_net *net, const fedge_model_options *options,
                               const batch_data *data)
{
    fedge_error err = {0};
    fedge_model_memory memory, forward;
    fedge_model_options evaluation = *options, apart = *options;
    outcome a = {0}, b = {0};
    evaluation.training = false;
    if (fedge_model_size(&net->spec, options, &memory, &err) != FEDGE_OK ||
        fedge_model_size(&net->spec, &evaluation, &forward, &err) != FEDGE_OK)
        return report("a valid net was refused", &err);
    if (memory.total != memory.parameters + memory.gradients + memory.velocity +
                            memory.activations + memory.scratch)
        return "the parts do not make the total";
    if (forward.total > memory.total)
        return "evaluation needs more bytes than training";
    const char *wrong = live(net, options, &memory, data, 0, 0, &a);
    wrong = wrong ? wrong : live(net, options, &memory, data, 0x5a, DEAD, &b);
    if (wrong == end_unused) { /* unless what was written there looks like it */
        free(b.values);
        wrong = live(net, options, &memory, data, 0x5a, DEAD_TOO, &b);
    }
    if (!wrong && !same_bits(&a, &b))
        wrong = "the bits depend on what lay in the block, or on memory that had died";
    free(b.values);
    b.values = NULL;
    apart.unshared = apart.general = true;
    if (!wrong && (options->general || !fedge_fused_fits(&net->spec, options))) {
        if (fedge_model_size(&net->spec, &apart, &forward, &err) != FEDGE_OK ||
            (!recomputes(&net->spec) && forward.total < memory.total))
            wrong = "sharing memory does not save any";
        wrong = wrong ? wrong : live(net, &apart, &forward, data, 0, 0, &b);
        /* What is made again from rounded inputs is not what was kept, rounded. */
        const bool rounds = options->activations != FEDGE_STORAGE_FP32 && recomputes(&net->spec);
        if (!wrong && !rounds && !same_bits(&a, &b))
            wrong = "the bits differ from those without shared memory";
    }
    free(a.values);
    free(b.values);
    return wrong;
}

/* Would a spoilt net that is still valid take too long? */
static bool too_large(const random_net *net, size_t total)
{
    bool large = total > MAX_SPOILT_BYTES || net->options.max_batch > 6 ||
                 fedge_model_input_count(&net->spec) > MAX_SPOILT_INPUTS;
    for (uint32_t i = 0; i < net->spec.num_layers; i++) {
        const fedge_layer_spec *layer = &net->spec.layers[i];
        const fedge_argument *argument = fedge_layer_ops_of(layer->type)->arguments;
        for (; argument && argument->name; argument++) {
            uint32_t number = 0;
            if (argument->kind == FEDGE_ARGUMENT_U32 || argument->kind == FEDGE_ARGUMENT_PAIR)
                memcpy(&number, (const uint8_t *)layer + argument->offset, sizeof(number));
            large = large || number > MAX_SPOILT_ARGUMENT;
        }
    }
    return large;
}

const char *random_net_check(net_bytes *from, const random_net *net)
{
    batch_data data;
    static fedge_tensor_spec tensors[FEDGE_MAX_TENSORS];
    const unsigned features = fedge_os_cpu_features();
    fedge_error err = {0}, other = {0};
    fedge_model_memory memory;
    fedge_schema schema;
    fedge_schema_init(&schema, tensors, FEDGE_MAX_TENSORS);
    const fedge_status status = fedge_model_size(&net->spec, &net->options, &memory, &err);
    if (status != FEDGE_OK) {
        if (err.message[0] == '\0' ||
            (fedge_model_schema(&net->spec, &schema, &other) != FEDGE_OK &&
             other.message[0] == '\0'))
            return "refused without a message";
        return net->spoilt ? NULL : report("a valid net was refused", &err);
    }
    if (net->spoilt && too_large(net, memory.total))
        return NULL;
    if (fedge_model_schema(&net->spec, &schema, &err) != FEDGE_OK)
        return report("it has a size but no schema", &err);
    make_data(from, net, &data);
    const unsigned disabled[] = {~0u, FEDGE_CPU_AVX512, 0};
    const unsigned needs[] = {0, FEDGE_CPU_AVX2, FEDGE_CPU_AVX512 | FEDGE_CPU_NEON};
    const char *wrong = NULL;
    for (int i = 0; !wrong && i < 3; i++) {
        fedge_model_options options = net->options;
        options.disabled_cpu_features = disabled[i];
        if (needs[i] == 0 || (features & needs[i]) != 0)
            wrong = check_level(net, &options, &data);
    }
    free_data(&data);
    return wrong;
}
