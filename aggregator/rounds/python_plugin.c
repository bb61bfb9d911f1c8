#include "aggregator/rounds/python_plugin.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/python_process.h"
#include "aggregator/rounds/updates.h"
#include "edge/core/bytes.h"

#define MAX_LISTS 64 /* different lists of metrics in the life of a script */
#define ALIGNMENT 64 /* bytes; of each array in shared memory */
#define NAME_SIZE 64

struct fedge_python_plugin {
    fedge_python *python;
    bool has_strategy, evaluates, root_trains, weighs;
    fedge_strategy_plugin table;
    fedge_plugin_argument arguments[FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS];
    pthread_mutex_t mutex; /* guards the lists */
    struct name_list *lists[MAX_LISTS];
    uint32_t num_lists;
};

/* The names of an evaluation's metrics. */
typedef struct name_list {
    uint32_t num;
    const char *names[FEDGE_METRIC_PLUGIN_MAX_METRICS]; /* point into [texts] */
    char texts[FEDGE_METRIC_PLUGIN_MAX_METRICS][FEDGE_METRIC_PLUGIN_MAX_NAME];
} name_list;

/* ---- the description ------------------------------------------------------------------------- */

static int no_step(const fedge_plugin_round *round, char *message)
{
    (void)round;
    (void)message;
    return 1;
}

static int no_combine(const fedge_plugin_tile *tile, double *combined, char *message)
{
    (void)tile;
    (void)combined;
    (void)message;
    return 1;
}

/* Also in the table of a script that weighs updates, which fedge_python_run_weigh asks. */
static uint32_t one(const double *arguments, const fedge_plugin_update *update)
{
    (void)arguments;
    (void)update;
    return 1;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = fedge_json_get(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : NAN;
}

/* Also of a number that is no count: 0, or more than any table may have. */
static uint32_t count_of(const cJSON *object, const char *key)
{
    const double value = number_of(object, key);
    return value >= 0.0 ? value < 1e6 ? (uint32_t)value : 1000000 : 0;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *value = fedge_json_get(object, key);
    return cJSON_IsString(value) ? value->valuestring : NULL;
}

/* The description's texts are those of the table: the process keeps it. */
static void make_table(fedge_python_plugin *plugin, const cJSON *strategy)
{
    const cJSON *argument = NULL;
    uint32_t num = 0;
    cJSON_ArrayForEach(argument, fedge_json_get(strategy, "arguments"))
    {
        if (num < FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS) {
            plugin->arguments[num] = (fedge_plugin_argument){
                .name = text_of(argument, "name"),
                .min = number_of(argument, "min"),
                .max = number_of(argument, "max"),
                .by_default = number_of(argument, "default"),
            };
        }
        num++;
    }
    plugin->table = (fedge_strategy_plugin){
        .struct_size = sizeof(plugin->table),
        .version = FEDGE_STRATEGY_PLUGIN_VERSION,
        .num_arguments = num,
        .name = text_of(strategy, "name"),
        .arguments = plugin->arguments,
        .num_vectors = count_of(strategy, "vectors"),
        .weight =
            cJSON_IsTrue(fedge_json_get(strategy, "equal-weights")) || plugin->weighs ? one : NULL,
        .step = no_step,
        .combine = cJSON_IsTrue(fedge_json_get(strategy, "combines")) ? no_combine : NULL,
    };
}

fedge_status fedge_python_plugin_new(const char *script, uint32_t timeout_s,
                                     fedge_python_plugin **plugin, fedge_error *err)
{
    *plugin = NULL;
    fedge_python_plugin *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plugin");
    (void)pthread_mutex_init(&made->mutex, NULL);
    const fedge_status status = fedge_python_new(script, timeout_s, &made->python, err);
    if (status != FEDGE_OK) {
        fedge_python_plugin_free(made);
        return status;
    }
    const cJSON *description = fedge_python_description(made->python);
    const cJSON *strategy = fedge_json_get(description, "strategy");
    made->has_strategy = cJSON_IsObject(strategy);
    made->evaluates = cJSON_IsTrue(fedge_json_get(description, "evaluates"));
    made->root_trains = cJSON_IsTrue(fedge_json_get(description, "root-trains"));
    made->weighs = cJSON_IsTrue(fedge_json_get(strategy, "weighs"));
    if (made->has_strategy)
        make_table(made, strategy);
    *plugin = made;
    return FEDGE_OK;
}

void fedge_python_plugin_free(fedge_python_plugin *plugin)
{
    if (!plugin)
        return;
    fedge_python_free(plugin->python);
    (void)pthread_mutex_destroy(&plugin->mutex);
    for (uint32_t i = 0; i < plugin->num_lists; i++)
        free(plugin->lists[i]);
    free(plugin);
}

const fedge_strategy_plugin *fedge_python_plugin_table(const fedge_python_plugin *plugin)
{
    return plugin->has_strategy ? &plugin->table : NULL;
}

bool fedge_python_plugin_evaluates(const fedge_python_plugin *plugin)
{
    return plugin->evaluates;
}

bool fedge_python_plugin_root_trains(const fedge_python_plugin *plugin)
{
    return plugin->root_trains;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Reserves [size] bytes behind *end; returns their offset. */
static size_t place(size_t *end, size_t size)
{
    const size_t at = *end;
    *end = (at + size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static fedge_status put_tensors(fedge_buffer *out, const fedge_schema *schema, fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(out, err, "\"tensors\":["));
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        cJSON *name = cJSON_CreateString(tensor->name);
        char *quoted = name ? cJSON_PrintUnformatted(name) : NULL;
        cJSON_Delete(name);
        if (!quoted)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a layout");
        const fedge_status status =
            fedge_buffer_printf(out, err, "%s[%s,[", t > 0 ? "," : "", quoted);
        cJSON_free(quoted);
        FEDGE_TRY(status);
        for (uint32_t i = 0; i < tensor->rank; i++)
            FEDGE_TRY(fedge_buffer_printf(out, err, i > 0 ? ",%u" : "%u", tensor->shape[i]));
        FEDGE_TRY(fedge_buffer_printf(out, err, "],\"%s\"]", fedge_dtype_name(tensor->dtype)));
    }
    return fedge_buffer_printf(out, err, "]");
}

/* Makes the memory, which takes the text of [layout]. */
static fedge_status take_layout(fedge_python_memory *memory, const fedge_python_plugin *plugin,
                                size_t size, fedge_buffer *layout, fedge_error *err)
{
    char *text = (char *)layout->data;
    fedge_buffer_init(layout, layout->limit);
    return fedge_python_memory_init(memory, plugin->python, size, text, err);
}

/* ---- a strategy's rounds --------------------------------------------------------------------- */

struct fedge_python_run {
    fedge_python_plugin *plugin;
    fedge_python_memory memory;
    size_t num_values;
    uint32_t max_updates;
    size_t mean, model, vectors, rows, combined, num_examples, clients; /* offsets in the memory */
    pthread_mutex_t mutex;                                              /* guards the failure */
    bool has_failed; /* a weight has, as the next step says */
    fedge_error failure;
};

static fedge_status put_layout(const fedge_python_run *run, const fedge_schema *trained,
                               fedge_buffer *out, fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(
        out, err,
        "{\"values\":%zu,\"vectors\":%u,\"mean-at\":%zu,\"model-at\":%zu,\"vectors-at\":%zu,"
        "\"rows-at\":%zu,\"combined-at\":%zu,\"examples-at\":%zu,\"clients-at\":%zu,",
        run->num_values, (unsigned)run->plugin->table.num_vectors, run->mean, run->model,
        run->vectors, run->rows, run->combined, run->num_examples, run->clients));
    FEDGE_TRY(put_tensors(out, trained, err));
    return fedge_buffer_printf(out, err, "}");
}

fedge_status fedge_python_run_new(fedge_python_plugin *plugin, const fedge_schema *trained,
                                  uint32_t max_updates, fedge_python_run **run, fedge_error *err)
{
    const size_t num = trained->num_elements;
    const bool combines = plugin->table.combine != NULL;
    size_t end = 0;
    fedge_buffer layout;
    *run = NULL;
    fedge_python_run *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plugin's state");
    (void)pthread_mutex_init(&made->mutex, NULL);
    made->plugin = plugin;
    made->num_values = num;
    made->max_updates = max_updates;
    made->mean = place(&end, num * sizeof(double));
    made->model = place(&end, num * sizeof(float));
    made->vectors = place(&end, num * sizeof(float) * plugin->table.num_vectors);
    made->rows =
        place(&end, combines ? (size_t)max_updates * FEDGE_UPDATES_CHUNK * sizeof(int32_t) : 0);
    made->combined = place(&end, combines ? FEDGE_UPDATES_CHUNK * sizeof(double) : 0);
    made->num_examples = place(&end, max_updates * sizeof(uint64_t));
    made->clients = place(&end, max_updates * sizeof(uint32_t));
    fedge_buffer_init(&layout, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(put_layout(made, trained, &layout, err), failed);
    FEDGE_TRY_OR(take_layout(&made->memory, plugin, end, &layout, err), failed);
    *run = made;
    return FEDGE_OK;

failed:
    fedge_buffer_fini(&layout);
    fedge_python_run_free(made);
    return status;
}

void fedge_python_run_free(fedge_python_run *run)
{
    if (!run)
        return;
    fedge_python_memory_fini(&run->memory);
    (void)pthread_mutex_destroy(&run->mutex);
    free(run);
}

double *fedge_python_run_mean(fedge_python_run *run)
{
    return (double *)(void *)(run->memory.data + run->mean);
}

static void give_updates(fedge_python_run *run, uint32_t num, const uint64_t *num_examples,
                         const uint32_t *clients)
{
    memcpy(run->memory.data + run->num_examples, num_examples, num * sizeof(*num_examples));
    memcpy(run->memory.data + run->clients, clients, num * sizeof(*clients));
}

static fedge_status check_num(const fedge_python_run *run, uint32_t num, fedge_error *err)
{
    return num <= run->max_updates
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INTERNAL, "%s: %u updates, and memory for %u of them",
                            run->plugin->table.name, (unsigned)num, (unsigned)run->max_updates);
}

/* Adds what requests have in common, without the end of the object. */
static fedge_status put_round(const fedge_python_run *run, fedge_buffer *out, const char *what,
                              uint32_t round, uint32_t num_updates, const double *arguments,
                              fedge_error *err)
{
    FEDGE_TRY(fedge_buffer_printf(
        out, err,
        "{\"do\":\"%s\",\"memory\":%" PRIu64 ",\"round\":%u,\"updates\":%u,\"arguments\":[", what,
        run->memory.number, (unsigned)round, (unsigned)num_updates));
    for (uint32_t i = 0; i < run->plugin->table.num_arguments; i++)
        FEDGE_TRY(fedge_buffer_printf(out, err, i > 0 ? ",%.17g" : "%.17g", arguments[i]));
    return fedge_buffer_printf(out, err, "]");
}

/* ---- a weight -------------------------------------------------------------------------------- */

static void give_nothing(void *user)
{
    (void)user;
}

static fedge_status take_weight(void *user, const cJSON *answer, fedge_error *err)
{
    double *weight = user;
    *weight = number_of(answer, "weight");
    return isfinite(*weight)
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--strategy-plugin: no weight");
}

static fedge_status weigh(fedge_python_run *run, const double *arguments,
                          const fedge_plugin_update *update, double *weight, fedge_error *err)
{
    char name[NAME_SIZE];
    fedge_buffer text;
    (void)snprintf(name, sizeof(name), "a weight of round %u", (unsigned)update->round);
    fedge_buffer_init(&text, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(put_round(run, &text, "weigh", update->round, 0, arguments, err), done);
    FEDGE_TRY_OR(fedge_buffer_printf(
                     &text, err, ",\"client\":%u,\"examples\":%" PRIu64 ",\"max\":%u}",
                     (unsigned)update->client, update->num_examples, (unsigned)update->max_weight),
                 done);
    const fedge_python_request request = {.name = name,
                                          .text = (const char *)text.data,
                                          .memory = &run->memory,
                                          .give = give_nothing,
                                          .take = take_weight,
                                          .user = weight};
    status = fedge_python_ask(run->plugin->python, &request, err);
done:
    fedge_buffer_fini(&text);
    return status;
}

uint32_t fedge_python_run_weigh(fedge_python_run *run, const double *arguments,
                                const fedge_plugin_update *update)
{
    double weight = 1.0;
    fedge_error err;
    if (!run->plugin->weighs)
        return 1;
    if (weigh(run, arguments, update, &weight, &err) != FEDGE_OK) {
        (void)pthread_mutex_lock(&run->mutex);
        run->failure = run->has_failed ? run->failure : err;
        run->has_failed = true;
        (void)pthread_mutex_unlock(&run->mutex);
        return 1;
    }
    return weight < 1.0 ? 1 : weight > update->max_weight ? update->max_weight : (uint32_t)weight;
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef struct step {
    fedge_python_run *run;
    const fedge_plugin_round *round;
} step;

static void give_step(void *user)
{
    const step *of = user;
    fedge_python_run *run = of->run;
    const fedge_plugin_round *round = of->round;
    const size_t bytes = run->num_values * sizeof(float);
    assert(round->mean == fedge_python_run_mean(run));
    memcpy(run->memory.data + run->model, round->model, bytes);
    memcpy(run->memory.data + run->vectors, round->vectors, bytes * run->plugin->table.num_vectors);
    give_updates(run, round->num_updates, round->num_examples, round->clients);
}

static fedge_status take_step(void *user, const cJSON *answer, fedge_error *err)
{
    const step *of = user;
    const fedge_python_run *run = of->run;
    const size_t bytes = run->num_values * sizeof(float);
    (void)answer;
    (void)err;
    memcpy(of->round->model, run->memory.data + run->model, bytes);
    memcpy(of->round->vectors, run->memory.data + run->vectors,
           bytes * run->plugin->table.num_vectors);
    return FEDGE_OK;
}

static fedge_status check_weights(fedge_python_run *run, fedge_error *err)
{
    (void)pthread_mutex_lock(&run->mutex);
    const bool failed = run->has_failed;
    if (failed)
        *err = run->failure;
    (void)pthread_mutex_unlock(&run->mutex);
    return failed ? FEDGE_INTERNAL : FEDGE_OK;
}

fedge_status fedge_python_run_step(fedge_python_run *run, const fedge_plugin_round *round,
                                   fedge_error *err)
{
    char name[NAME_SIZE];
    fedge_buffer text;
    step of = {run, round};
    FEDGE_TRY(check_num(run, round->num_updates, err));
    FEDGE_TRY(check_weights(run, err));
    (void)snprintf(name, sizeof(name), "the step of round %u", (unsigned)round->round);
    fedge_buffer_init(&text, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(
        put_round(run, &text, "step", round->round, round->num_updates, round->arguments, err),
        done);
    FEDGE_TRY_OR(fedge_buffer_printf(&text, err, ",\"weight\":%" PRIu64 ",\"rate\":%.17g}",
                                     round->total_weight, round->server_learning_rate),
                 done);
    const fedge_python_request request = {.name = name,
                                          .text = (const char *)text.data,
                                          .memory = &run->memory,
                                          .give = give_step,
                                          .take = take_step,
                                          .user = &of};
    status = fedge_python_ask(run->plugin->python, &request, err);
done:
    fedge_buffer_fini(&text);
    return status;
}

/* ---- a tile ---------------------------------------------------------------------------------- */

typedef struct combination {
    fedge_python_run *run;
    const fedge_plugin_tile *tile;
    double *combined;
} combination;

static void give_tile(void *user)
{
    const combination *of = user;
    const fedge_plugin_tile *tile = of->tile;
    uint8_t *rows = of->run->memory.data + of->run->rows;
    const size_t bytes = tile->count * sizeof(int32_t);
    for (uint32_t i = 0; i < tile->num_updates; i++)
        memcpy(rows + i * bytes, tile->rows[i], bytes);
    give_updates(of->run, tile->num_updates, tile->num_examples, tile->clients);
}

static fedge_status take_tile(void *user, const cJSON *answer, fedge_error *err)
{
    const combination *of = user;
    (void)answer;
    (void)err;
    memcpy(of->combined, of->run->memory.data + of->run->combined,
           of->tile->count * sizeof(*of->combined));
    return FEDGE_OK;
}

fedge_status fedge_python_run_combine(fedge_python_run *run, const fedge_plugin_tile *tile,
                                      double *combined, fedge_error *err)
{
    char name[NAME_SIZE];
    fedge_buffer text;
    combination of = {run, tile, combined};
    assert(tile->count <= FEDGE_UPDATES_CHUNK);
    FEDGE_TRY(check_num(run, tile->num_updates, err));
    (void)snprintf(name, sizeof(name), "a combination of round %u", (unsigned)tile->round);
    fedge_buffer_init(&text, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(
        put_round(run, &text, "combine", tile->round, tile->num_updates, tile->arguments, err),
        done);
    FEDGE_TRY_OR(fedge_buffer_printf(&text, err,
                                     ",\"tensor\":%u,\"first\":%zu,\"count\":%zu,\"unit\":%.17g}",
                                     (unsigned)tile->tensor, tile->first, tile->count, tile->unit),
                 done);
    const fedge_python_request request = {.name = name,
                                          .text = (const char *)text.data,
                                          .memory = &run->memory,
                                          .give = give_tile,
                                          .take = take_tile,
                                          .user = &of};
    status = fedge_python_ask(run->plugin->python, &request, err);
done:
    fedge_buffer_fini(&text);
    return status;
}

/* ---- whole models -----------------------------------------------------------------------------
 */

struct fedge_python_model {
    fedge_python_plugin *plugin;
    fedge_python_memory memory; /* the model's values */
    size_t num_values;
};

fedge_status fedge_python_model_new(fedge_python_plugin *plugin, const fedge_schema *schema,
                                    fedge_python_model **model, fedge_error *err)
{
    fedge_buffer layout;
    *model = NULL;
    fedge_python_model *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to share the model");
    const size_t size = schema->num_elements * sizeof(float);
    made->plugin = plugin;
    made->num_values = schema->num_elements;
    fedge_buffer_init(&layout, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(
        fedge_buffer_printf(&layout, err, "{\"values\":%zu,\"model-at\":0,", made->num_values),
        failed);
    FEDGE_TRY_OR(put_tensors(&layout, schema, err), failed);
    FEDGE_TRY_OR(fedge_buffer_printf(&layout, err, "}"), failed);
    FEDGE_TRY_OR(take_layout(&made->memory, plugin, size, &layout, err), failed);
    *model = made;
    return FEDGE_OK;

failed:
    fedge_buffer_fini(&layout);
    fedge_python_model_free(made);
    return status;
}

void fedge_python_model_free(fedge_python_model *model)
{
    if (model)
        fedge_python_memory_fini(&model->memory);
    free(model);
}

/* ---- trainings ------------------------------------------------------------------------------- */

typedef struct training {
    fedge_python_model *model;
    float *values;
} training;

static void give_values(void *user)
{
    const training *of = user;
    memcpy(of->model->memory.data, of->values, of->model->num_values * sizeof(float));
}

static fedge_status take_values(void *user, const cJSON *answer, fedge_error *err)
{
    const training *of = user;
    (void)answer;
    (void)err;
    memcpy(of->values, of->model->memory.data, of->model->num_values * sizeof(float));
    return FEDGE_OK;
}

fedge_status fedge_python_root_train(fedge_python_model *model, const fedge_plugin_root_task *task,
                                     float *values, fedge_error *err)
{
    char name[NAME_SIZE];
    fedge_buffer text;
    training of = {model, values};
    (void)snprintf(name, sizeof(name), "the server's training in round %u", (unsigned)task->round);
    fedge_buffer_init(&text, SIZE_MAX / 2);
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(
        fedge_buffer_printf(
            &text, err,
            "{\"do\":\"root-train\",\"memory\":%" PRIu64 ",\"round\":%u,\"learning_rate\":%.17g,"
            "\"epochs\":%u,\"steps\":%u,\"batch_size\":%u,\"seed\":%" PRIu64
            ",\"momentum\":%.17g,\"weight_decay\":%.17g,\"config\":%s}",
            model->memory.number, (unsigned)task->round, task->learning_rate,
            (unsigned)task->local_epochs, (unsigned)task->local_steps, (unsigned)task->batch_size,
            task->seed, task->momentum, task->weight_decay, task->config),
        done);
    const fedge_python_request request = {.name = name,
                                          .text = (const char *)text.data,
                                          .memory = &model->memory,
                                          .give = give_values,
                                          .take = take_values,
                                          .user = &of};
    status = fedge_python_ask(model->plugin->python, &request, err);
done:
    fedge_buffer_fini(&text);
    return status;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static bool same_names(const name_list *a, const name_list *b)
{
    bool same = a->num == b->num;
    for (uint32_t i = 0; i < a->num && same; i++)
        same = strcmp(a->texts[i], b->texts[i]) == 0;
    return same;
}

/* Lists outlive the lines of rounds, which point to them, so that each list is kept once. */
static const name_list *keep_names(fedge_python_plugin *plugin, const name_list *names)
{
    const name_list *kept = NULL;
    (void)pthread_mutex_lock(&plugin->mutex);
    for (uint32_t i = 0; i < plugin->num_lists && !kept; i++)
        kept = same_names(plugin->lists[i], names) ? plugin->lists[i] : NULL;
    name_list *copy = kept || plugin->num_lists == MAX_LISTS ? NULL : malloc(sizeof(*copy));
    if (copy) {
        *copy = *names;
        for (uint32_t i = 0; i < copy->num; i++)
            copy->names[i] = copy->texts[i];
        plugin->lists[plugin->num_lists++] = copy;
        kept = copy;
    }
    (void)pthread_mutex_unlock(&plugin->mutex);
    return kept;
}

typedef struct measurement {
    fedge_python_model *model;
    const float *values;
    fedge_metric_values *metrics;
} measurement;

static void give_model(void *user)
{
    const measurement *of = user;
    memcpy(of->model->memory.data, of->values, of->model->num_values * sizeof(float));
}

static fedge_status take_metrics(void *user, const cJSON *answer, fedge_error *err)
{
    const measurement *of = user;
    const cJSON *value = NULL;
    name_list names = {0};
    cJSON_ArrayForEach(value, fedge_json_get(answer, "metrics"))
    {
        if (!fedge_metric_is_name(value->string) || names.num == FEDGE_METRIC_PLUGIN_MAX_METRICS) {
            return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                              "--strategy-plugin: the evaluation's metric \"%.40s\": names have at "
                              "most %u bytes of lower case, digits and \"_\", and there are at "
                              "most %u of them",
                              value->string, FEDGE_METRIC_PLUGIN_MAX_NAME - 1,
                              FEDGE_METRIC_PLUGIN_MAX_METRICS);
        }
        of->metrics->values[names.num] = cJSON_IsNumber(value) ? value->valuedouble : NAN;
        (void)snprintf(names.texts[names.num++], FEDGE_METRIC_PLUGIN_MAX_NAME, "%s", value->string);
    }
    const name_list *kept = keep_names(of->model->plugin, &names);
    if (!kept) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "--strategy-plugin: the evaluation has returned %d different lists of "
                          "metrics: return the same names each time",
                          MAX_LISTS);
    }
    of->metrics->num = kept->num;
    of->metrics->names = kept->names;
    return FEDGE_OK;
}

fedge_status fedge_python_evaluate(fedge_python_model *model, uint32_t round, const float *values,
                                   fedge_metric_values *metrics, fedge_error *err)
{
    char name[NAME_SIZE], text[128];
    measurement of = {model, values, metrics};
    (void)snprintf(name, sizeof(name), "the evaluation of round %u", (unsigned)round);
    (void)snprintf(text, sizeof(text), "{\"do\":\"evaluate\",\"memory\":%" PRIu64 ",\"round\":%u}",
                   model->memory.number, (unsigned)round);
    const fedge_python_request request = {.name = name,
                                          .text = text,
                                          .memory = &model->memory,
                                          .give = give_model,
                                          .take = take_metrics,
                                          .user = &of};
    return fedge_python_ask(model->plugin->python, &request, err);
}
