#include "client/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/training_backend.h"
#include "edge/json/json.h"
#include "edge/plan/plan.h"
#include "edge/plan/update.h"
#include "edge/site/client_memory.h"
#include "edge/train/flops.h"
#include "edge/train/layers/layer.h"
#include "edge/train/model.h"

/* Columns of a layer's row, with their names in JSON. */
enum {
    PARAMETERS,
    VALUES,
    OPTIMIZER,
    DELTA,
    ACTIVATIONS,
    SAVED,
    GRADIENT,
    SCRATCH,
    LAYER_TOTAL,
    NUM_COLUMNS
};

static const char *const COLUMNS[NUM_COLUMNS] = {"parameters", "values",      "optimizer",
                                                 "delta",      "activations", "saved",
                                                 "gradient",   "scratch",     "total"};

typedef struct figure {
    char name[32], note[80];
    uint64_t number; /* bytes, unless the note says otherwise */
} figure;

/* Floating-point operations of an example, after those columns. Small builds leave them out. */
enum { FORWARD, BACKWARD, NUM_FLOPS };
static const char *const FLOPS[NUM_FLOPS] = {"flop-forward", "flop-backward"};

/* Rows after those of fedge_client_memory, whose sum is the first; then an update in each codec. */
enum {
    TOTAL,
    MODEL,
    UPDATE,
    OF_BACKENDS = 2,
    MAX_FIGURES = UPDATE + FEDGE_CODEC_COUNT + OF_BACKENDS + 2 /* operations */
};

typedef struct table {
    const fedge_plan *plan;
    const fedge_client_options *asked;
    uint32_t part; /* examples per pass */
    fedge_layer_memory *layers;
    fedge_layer_flops *flops; /* NULL: not known */
    fedge_client_memory memory;
    figure figures[MAX_FIGURES];
    int num_figures;
} table;

/* Maximum size of an update whose delta has this codec. Statistics have a separate codec, and so
 * may the strategy's section. */
static uint64_t update_size(const fedge_plan *plan, const fedge_codec *codec)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section *section = &plan->sent.sections[i];
        const bool uses_section_codec =
            section->kind == FEDGE_SECTION_BUFFERS ||
            (section->kind == FEDGE_SECTION_HOOKS && plan->update.control.values);
        size += fedge_codec_size(uses_section_codec ? &section->codec : codec, &section->schema);
    }
    return size;
}

#ifdef FEDGE_WITH_CUDA
/* Adds the needs of the first backend that can train the plan; none without such a backend. */
static void add_backend(table *t)
{
    uint64_t all = 0, least = 0;
    fedge_error unwanted;
    const fedge_training_backend *backend = *fedge_training_backends;
    if (!backend ||
        backend->bytes(t->plan, &t->asked->settings, &all, &least, &unwanted) != FEDGE_OK)
        return;
    t->figures[t->num_figures++] =
        (figure){"gpu", "one GPU's, for a batch at once; the examples come on top", all};
    t->figures[t->num_figures++] =
        (figure){"gpu-least", "part by part, the optimizer's state on the host", least};
}
#endif

static double flops_of(const table *t, uint32_t layer, int which)
{
    return which == FORWARD ? t->flops[layer].forward : t->flops[layer].backward;
}

static void add_flops(table *t)
{
    static const char *const NOTES[NUM_FLOPS] = {
        "no bytes: operations of an example's products, forward",
        "and backward, for the gradients"};
    for (int k = 0; t->flops && k < NUM_FLOPS; k++) {
        figure *sum = &t->figures[t->num_figures++];
        double count = 0;
        for (uint32_t i = 0; i < t->plan->model.num_layers; i++)
            count += flops_of(t, i, k);
        snprintf(sum->name, sizeof(sum->name), "%s", FLOPS[k]);
        snprintf(sum->note, sizeof(sum->note), "%s", NOTES[k]);
        sum->number = (uint64_t)count;
    }
}

static void fill_figures(table *t)
{
    t->figures[TOTAL] =
        (figure){"total", "all of these: what policy.max-ram is compared with", t->memory.total};
    t->figures[MODEL] = (figure){
        "model", "of the total, the block it trains in: parameters to scratch", t->memory.model};
    t->num_figures = UPDATE;
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) {
        const char *name = fedge_codec_name(i);
        fedge_codec codec;
        fedge_error unwanted;
        if (fedge_codec_parse(name, &codec, &unwanted) != FEDGE_OK)
            continue; /* codec with an argument */
        figure *update = &t->figures[t->num_figures++];
        snprintf(update->name, sizeof(update->name), "update-%s", name);
        snprintf(update->note, sizeof(update->note), "an update's bytes at most, codec %s", name);
        update->number = update_size(t->plan, &codec);
    }
#ifdef FEDGE_WITH_CUDA
    add_backend(t);
#endif
    add_flops(t);
}

/* Number of layer [i]'s values in an update: tensors that begin in the layer's parameters or
 * statistics. */
static uint64_t count_sent(const table *t, uint32_t i)
{
    const fedge_sent *sent = &t->plan->sent;
    size_t values = 0, buffers = t->plan->num_parameters; /* start of the layer's values */
    for (uint32_t k = 0; k < i; k++) {
        values += t->layers[k].parameters;
        buffers += t->layers[k].buffers;
    }
    uint64_t count = 0;
    for (uint32_t k = 0; k < sent->schema.num_tensors; k++) {
        if ((sent->model_offsets[k] >= values &&
             sent->model_offsets[k] - values < t->layers[i].parameters) ||
            (sent->model_offsets[k] >= buffers &&
             sent->model_offsets[k] - buffers < t->layers[i].buffers))
            count += sent->tensors[k].count;
    }
    return count;
}

/* The trained parameters and statistics become their changes in place, or an update that is larger.
 */
static void measure_layer(const table *t, uint32_t i, uint64_t to[NUM_COLUMNS])
{
    const fedge_layer_memory *layer = &t->layers[i];
    const uint64_t values = layer->parameters + layer->buffers;
    const bool larger = t->plan->sent.schema.num_elements > t->plan->schema.num_elements;
    to[PARAMETERS] = layer->parameters;
    to[VALUES] = layer->values;
    to[OPTIMIZER] = layer->optimizer;
    to[DELTA] = (larger ? count_sent(t, i) : values) * sizeof(float);
    to[ACTIVATIONS] = layer->output;
    to[SAVED] = layer->saved;
    to[GRADIENT] = layer->gradient;
    to[SCRATCH] = layer->scratch;
    to[LAYER_TOTAL] = 0;
    for (int k = VALUES; k < LAYER_TOTAL; k++)
        to[LAYER_TOTAL] += to[k];
}

/* Widths of the first two columns. */
typedef struct widths {
    int name, type;
} widths;

static widths measure_names(const table *t)
{
    widths w = {5, 4};
    for (uint32_t i = 0; i < t->plan->model.num_layers; i++) {
        char text[FEDGE_MAX_LAYER_NAME];
        const int name = (int)strlen(fedge_layer_label(&t->plan->model.layers[i], i, text));
        const int type = (int)strlen(fedge_layer_type_name(t->plan->model.layers[i].type));
        w.name = name > w.name ? name : w.name;
        w.type = type > w.type ? type : w.type;
    }
    return w;
}

static void print_line(const table *t, uint32_t i, widths w)
{
    const fedge_layer_memory *layer = &t->layers[i];
    char name[FEDGE_MAX_LAYER_NAME], shape[FEDGE_SHAPE_TEXT_SIZE];
    uint64_t columns[NUM_COLUMNS];
    measure_layer(t, i, columns);
    printf("%-*s %-*s %-14s", w.name, fedge_layer_label(&t->plan->model.layers[i], i, name), w.type,
           fedge_layer_type_name(t->plan->model.layers[i].type),
           fedge_shape_text(layer->rank, layer->shape, shape));
    for (int k = 0; k < NUM_COLUMNS; k++)
        printf(" %11" PRIu64, columns[k]);
    for (int k = 0; t->flops && k < NUM_FLOPS; k++)
        printf(" %14.0f", flops_of(t, i, k));
    printf("\n");
}

static void print_figure(const char *name, uint64_t number, const char *note)
{
    printf("%-13s %14" PRIu64 "  %s\n", name, number, note);
}

static void print_text(const table *t)
{
    printf("%s: parameters, and bytes for batches of %u, %u at a time\n\n", t->plan->name,
           (unsigned)t->plan->training.batch_size, (unsigned)t->part);
    const widths w = measure_names(t);
    printf("%-*s %-*s %-14s", w.name, "layer", w.type, "type", "output");
    for (int k = 0; k < NUM_COLUMNS; k++)
        printf(" %11s", COLUMNS[k]);
    for (int k = 0; t->flops && k < NUM_FLOPS; k++)
        printf(" %14s", FLOPS[k]);
    printf("\n");
    for (uint32_t i = 0; i < t->plan->model.num_layers; i++)
        print_line(t, i, w);
    printf("\n");
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++)
        print_figure(t->memory.rows[i].name, t->memory.rows[i].bytes, t->memory.rows[i].what);
    for (int i = 0; i < t->num_figures; i++)
        print_figure(t->figures[i].name, t->figures[i].number, t->figures[i].note);
}

static cJSON *layer_object(const table *t, uint32_t i)
{
    const fedge_layer_memory *layer = &t->layers[i];
    uint64_t columns[NUM_COLUMNS];
    char name[FEDGE_MAX_LAYER_NAME];
    cJSON *object = cJSON_CreateObject();
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    cJSON_AddStringToObject(object, "name", fedge_layer_label(&t->plan->model.layers[i], i, name));
    cJSON_AddStringToObject(object, "type", fedge_layer_type_name(t->plan->model.layers[i].type));
    for (uint32_t k = 0; k < layer->rank; k++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber(layer->shape[k]));
    measure_layer(t, i, columns);
    for (int k = 0; k < NUM_COLUMNS; k++)
        cJSON_AddNumberToObject(object, COLUMNS[k], (double)columns[k]);
    for (int k = 0; t->flops && k < NUM_FLOPS; k++)
        cJSON_AddNumberToObject(object, FLOPS[k], flops_of(t, i, k));
    return object;
}

static fedge_status print_json(const table *t, fedge_error *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "name", t->plan->name);
    cJSON_AddNumberToObject(root, "batch-size", t->plan->training.batch_size);
    cJSON_AddNumberToObject(root, "micro-batch-size", t->part);
    cJSON *layers = cJSON_AddArrayToObject(root, "layers");
    for (uint32_t i = 0; i < t->plan->model.num_layers; i++)
        cJSON_AddItemToArray(layers, layer_object(t, i));
    for (int i = 0; i < FEDGE_MEMORY_PARTS; i++)
        cJSON_AddNumberToObject(root, t->memory.rows[i].name, (double)t->memory.rows[i].bytes);
    for (int i = 0; i < t->num_figures; i++)
        cJSON_AddNumberToObject(root, t->figures[i].name, (double)t->figures[i].number);
    char *text = fedge_json_print_tree(root);
    cJSON_Delete(root);
    if (!text)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON text");
    puts(text);
    free(text);
    return FEDGE_OK;
}

static fedge_status report(const fedge_plan *plan, const fedge_client_options *asked,
                           fedge_error *err)
{
    const fedge_model_options options = fedge_plan_model_options(plan);
    table t = {.plan = plan,
               .asked = asked,
               .part = options.micro_batch ? options.micro_batch : options.max_batch};
    if (plan->external) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the model is external: only its own trainer knows what it needs");
    }
    t.layers = calloc(plan->model.num_layers, sizeof(*t.layers));
    if (!t.layers)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a table");
    fedge_status status;
    FEDGE_TRY_OR(fedge_client_memory_of(plan, &t.memory, err), done);
    FEDGE_TRY_OR(fedge_model_layer_memory(&plan->model, &options, t.layers, err), done);
#ifndef FEDGE_SMALL
    t.flops = calloc(plan->model.num_layers, sizeof(*t.flops));
    if (!t.flops)
        FEDGE_TRY_OR(fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a table"), done);
    FEDGE_TRY_OR(fedge_model_flops(&plan->model, t.flops, err), done);
#endif
    fill_figures(&t);
    if (asked->json)
        status = print_json(&t, err);
    else
        print_text(&t);
done:
    free(t.flops);
    free(t.layers);
    return status;
}

fedge_status fedge_plan_report(const fedge_client_options *asked, fedge_error *err)
{
    fedge_plan *plan;
    FEDGE_TRY(fedge_job_load_plan(asked->plan, &plan, err));
    const fedge_status status = report(plan, asked, err);
    fedge_plan_free(plan);
    return status;
}
