#include "aggregator/rounds/strategy_plugin.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/python_plugin.h"
#include "aggregator/rounds/root_trainer.h"
#include "aggregator/rounds/round_summary.h"
#include "aggregator/rounds/strategy.h"
#include "aggregator/rounds/strategy_plugin_api.h"
#include "aggregator/rounds/tiles.h"
#include "edge/core/fixed.h"
#include "edge/plan/plan_fields.h"

#define MAX_STRATEGIES 63 /* most strategies, the plugin's included */
#define MESSAGE 256
/* Sizes of the first release's tables, the minimum of any table. */
#define END_OF(type, member) (offsetof(type, member) + sizeof(((type *)0)->member))
#define FIRST_STRATEGY END_OF(fedge_strategy_plugin, step)
#define FIRST_METRICS END_OF(fedge_metric_plugin, finish)

typedef struct settings {
    fedge_strategy_common common;
    double arguments[FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS];
} settings;

struct fedge_plugin {
    fedge_strategy_ops ops;
    const fedge_strategy_plugin *table; /* [table_copy]; NULL: it has no strategy */
    const fedge_metric_plugin *metrics; /* [metrics_copy]; NULL: it has none */
    fedge_strategy_plugin
        table_copy; /* copied from the library; fields that its table lacks are 0 */
    fedge_metric_plugin metrics_copy; /* copied from the library */
    fedge_root_ops root;              /* all 0: it does not train */
    void *library;                    /* NULL: it is in Python */
    fedge_python_plugin *python;      /* NULL: it is a shared object */
    fedge_json_field fields[FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS + 1];
    const fedge_strategy_reader *readers[MAX_STRATEGIES + 1];
};

/* ---- as one of the strategies ---------------------------------------------------------------- */

typedef struct plugin_state {
    const fedge_strategy_plugin *table;
    const settings *with;
    double *mean;                    /* (num_values); with [run] in its memory */
    fedge_python_run *run;           /* NULL: a shared object */
    fedge_strategy_vectors *vectors; /* (num_vectors) */
    uint64_t *num_examples;          /* (capacity): of the round's updates */
    uint32_t *clients;               /* (capacity) */
    uint32_t capacity;
} plugin_state;

static void free_state(void *of)
{
    plugin_state *state = of;
    if (state) {
        if (state->run)
            fedge_python_run_free(state->run);
        else
            free(state->mean);
        free(state->vectors);
        free(state->num_examples);
        free(state->clients);
    }
    free(state);
}

/* The plugin whose strategy the job names. */
static const fedge_plugin *plugin_of(const fedge_job *job)
{
    const fedge_strategy_ops *ops = NULL;
    return fedge_strategy_of(job, &ops, NULL) == FEDGE_OK ? (const fedge_plugin *)ops : NULL;
}

static fedge_status init(const fedge_strategy_config *config, void **state, fedge_error *err)
{
    const size_t num = config->schema->num_elements;
    plugin_state *made = calloc(1, sizeof(*made));
    *state = made;
    const fedge_plugin *plugin = plugin_of(config->job);
    if (made && plugin->python) {
        FEDGE_TRY(fedge_python_run_new(plugin->python, config->schema,
                                       config->job->rounds.max_cohort, &made->run, err));
        made->mean = fedge_python_run_mean(made->run);
    } else if (made) {
        made->mean = malloc((num + 1) * sizeof(*made->mean));
    }
    if (!made || !made->mean) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a mean of %zu values",
                          config->job->strategy, num);
    }
    made->table = plugin->table;
    made->with = config->job->strategy_settings;
    return fedge_strategy_vectors_new(config, made->table->num_vectors, &made->vectors, err);
}

static uint32_t weigh(const void *of, const fedge_job *job, const fedge_update_facts *facts)
{
    const plugin_state *state = of;
    const fedge_plugin_update update = {.struct_size = sizeof(update),
                                        .round = facts->round,
                                        .client = facts->client,
                                        .num_examples = facts->num_examples,
                                        .max_weight = job->rounds.max_weight};
    if (state->run)
        return fedge_python_run_weigh(state->run, state->with->arguments, &update);
    const uint32_t weight = state->table->weight(state->with->arguments, &update);
    return weight < 1 ? 1 : weight < update.max_weight ? weight : update.max_weight;
}

static void take_mean(void *user, size_t first, size_t count, const double *mean)
{
    memcpy((double *)user + first, mean, count * sizeof(*mean));
}

static fedge_status list_updates(plugin_state *state, const fedge_strategy_sum *sum,
                                 fedge_error *err)
{
    if (sum->num_updates > state->capacity) {
        free(state->num_examples);
        free(state->clients);
        state->num_examples = calloc(sum->num_updates, sizeof(*state->num_examples));
        state->clients = calloc(sum->num_updates, sizeof(*state->clients));
        state->capacity = state->num_examples && state->clients ? sum->num_updates : 0;
    }
    if (state->capacity < sum->num_updates) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to list %u updates",
                          (unsigned)sum->num_updates);
    }
    for (uint32_t i = 0; i < sum->num_updates; i++) {
        state->num_examples[i] = sum->facts[i].num_examples > 0 ? sum->facts[i].num_examples : 1;
        state->clients[i] = sum->facts[i].client;
    }
    return FEDGE_OK;
}

static fedge_status result_of(const plugin_state *state, int failed, char message[MESSAGE],
                              fedge_error *err)
{
    message[MESSAGE - 1] = '\0';
    return failed == 0 ? FEDGE_OK
                       : fedge_fail(err, FEDGE_INTERNAL, "%s failed with %d: %s",
                                    state->table->name, failed, message);
}

typedef struct combination {
    const plugin_state *state;
    const fedge_strategy_sum *sum;
} combination;

/* Tiles share no coordinate, so threads write to the mean without a lock. */
static fedge_status combine_tile(void *user, const fedge_tile *tile, fedge_error *err)
{
    const combination *of = user;
    const plugin_state *state = of->state;
    char message[MESSAGE] = "";
    const int8_t bound_log2 = of->sum->delta.bounds_log2[tile->tensor];
    const fedge_plugin_tile seen = {.struct_size = sizeof(seen),
                                    .round = of->sum->round,
                                    .num_updates = tile->num,
                                    .arguments = state->with->arguments,
                                    .num_examples = state->num_examples,
                                    .clients = state->clients,
                                    .tensor = tile->tensor,
                                    .first = tile->first,
                                    .count = tile->count,
                                    .unit = ldexp(1.0, bound_log2 - FEDGE_FIXED_VALUE_BITS),
                                    .rows = tile->rows};
    double *combined = state->mean + tile->first;
    return state->run
               ? fedge_python_run_combine(state->run, &seen, combined, err)
               : result_of(state, state->table->combine(&seen, combined, message), message, err);
}

static fedge_status combine(plugin_state *state, const fedge_strategy_sum *sum, fedge_error *err)
{
    combination of = {state, sum};
    fedge_tiles tiles = {0};
    fedge_strategy_sum on_cpu = *sum; /* the plugin reads the rows on the CPU */
    on_cpu.accumulator = NULL;
    FEDGE_TRY(fedge_strategy_check_updates(sum, state->table->name, err));
    FEDGE_TRY(fedge_tiles_init(&tiles, &on_cpu, false, err));
    const fedge_status status = fedge_tiles_each(&tiles, combine_tile, &of, err);
    fedge_tiles_fini(&tiles);
    return status;
}

static fedge_status step(void *of, const fedge_strategy_sum *sum, float *model, fedge_error *err)
{
    plugin_state *state = of;
    char message[MESSAGE] = "";
    FEDGE_TRY(fedge_strategy_check_sum(sum, state->table->name, err));
    FEDGE_TRY(list_updates(state, sum, err));
    FEDGE_TRY(state->table->combine
                  ? combine(state, sum, err)
                  : fedge_strategy_each_mean(sum, &sum->delta, take_mean, state->mean, err));
    const fedge_plugin_round round = {.struct_size = sizeof(round),
                                      .round = sum->round,
                                      .num_updates = sum->num_updates,
                                      .total_weight = sum->total_weight,
                                      .server_learning_rate =
                                          fedge_strategy_rate(&state->with->common, sum->round),
                                      .arguments = state->with->arguments,
                                      .num_values = state->vectors->num_values,
                                      .mean = state->mean,
                                      .vectors = state->vectors->values,
                                      .model = model,
                                      .num_examples = state->num_examples,
                                      .clients = state->clients};
    return state->run ? fedge_python_run_step(state->run, &round, err)
                      : result_of(state, state->table->step(&round, message), message, err);
}

static fedge_status save(const void *of, fedge_buffer *out, fedge_error *err)
{
    const plugin_state *state = of;
    return fedge_strategy_vectors_save(state->vectors, out, err);
}

static fedge_status load(void *of, const uint8_t *bytes, size_t size, fedge_error *err)
{
    plugin_state *state = of;
    return fedge_strategy_vectors_load(state->vectors, bytes, size, err);
}

/* ---- as a trainer of the server's -------------------------------------------------------------
 */

typedef struct root_state {
    const fedge_plugin *plugin;
    fedge_python_model *model; /* NULL: a shared object */
} root_state;

static void close_root(void *of)
{
    root_state *state = of;
    if (state)
        fedge_python_model_free(state->model);
    free(state);
}

static fedge_status open_root(const fedge_root_ops *ops, const fedge_job *job, void **state,
                              fedge_error *err)
{
    const size_t at = offsetof(fedge_plugin, root);
    root_state *made = calloc(1, sizeof(*made));
    *state = made;
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to train on the server");
    made->plugin = (const fedge_plugin *)(const void *)((const char *)ops - at);
    const fedge_status status =
        made->plugin->python
            ? fedge_python_model_new(made->plugin->python, &job->plan.sent.sections[0].schema,
                                     &made->model, err)
            : FEDGE_OK;
    if (status != FEDGE_OK) {
        close_root(made);
        *state = NULL;
    }
    return status;
}

static fedge_status train_root(void *of, const fedge_plugin_root_task *task, float *values,
                               fedge_error *err)
{
    const root_state *state = of;
    char message[MESSAGE] = "";
    if (state->model)
        return fedge_python_root_train(state->model, task, values, err);
    const int failed = state->plugin->table_copy.root_train(task, values, message);
    message[MESSAGE - 1] = '\0';
    return failed == 0
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INTERNAL, "root_train failed with %d: %s", failed, message);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether every strategy has an argument of this name. */
static bool is_common(const char *name)
{
    return strcmp(name, "type") == 0 || fedge_json_field_of(fedge_strategy_common_fields, name);
}

static const char *wrong_argument(const fedge_strategy_plugin *table, uint32_t index)
{
    const fedge_plugin_argument *argument = &table->arguments[index];
    const bool has_default = !isnan(argument->by_default);
    if (!argument->name || argument->name[0] == '\0')
        return "an argument has no name";
    for (uint32_t i = 0; i < index; i++) {
        if (strcmp(table->arguments[i].name, argument->name) == 0)
            return "two arguments have one name";
    }
    return is_common(argument->name)
               ? "an argument has a name that every strategy has: choose another"
           : !(argument->min < argument->max) ? "an argument's min is not below its max"
           : has_default &&
                   !(argument->by_default >= argument->min && argument->by_default <= argument->max)
               ? "an argument's default is not in its range"
               : NULL;
}

/* NULL: nothing is. */
static const char *wrong_table(const fedge_strategy_plugin *table)
{
    const fedge_strategy_ops *ops = NULL;
    if (!table->name || table->name[0] == '\0' || strlen(table->name) >= FEDGE_MAX_STRATEGY_NAME)
        return "its name is missing or over 31 bytes";
    if (fedge_strategy_find(table->name, &ops, NULL) == FEDGE_OK)
        return "fedge has a strategy of that name: choose another";
    if (!table->step)
        return "it has no step";
    if (table->num_vectors > FEDGE_STRATEGY_PLUGIN_MAX_VECTORS)
        return "it keeps over 16 vectors";
    if (table->num_arguments > FEDGE_STRATEGY_PLUGIN_MAX_ARGUMENTS ||
        (table->num_arguments > 0 && !table->arguments))
        return "it has over 16 arguments, or a number of them and no list";
    for (uint32_t i = 0; i < table->num_arguments; i++) {
        const char *wrong = wrong_argument(table, i);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static void make_fields(fedge_plugin *plugin)
{
    const fedge_strategy_plugin *table = plugin->table;
    for (uint32_t i = 0; i < table->num_arguments; i++) {
        const fedge_plugin_argument *argument = &table->arguments[i];
        const bool needed = isnan(argument->by_default);
        plugin->fields[i] = (fedge_json_field){
            .key = argument->name,
            .kind = FEDGE_JSON_F64,
            .flags = needed ? FEDGE_JSON_REQUIRED : 0,
            .offset = (uint32_t)(offsetof(settings, arguments) + i * sizeof(double)),
            .size = sizeof(double),
            .min = argument->min,
            .max = argument->max,
            .fallback = needed ? 0.0 : argument->by_default};
    }
}

/* A reader's check for a strategy that sees single updates: nothing sums these statistics. */
static fedge_status refuse_statistics(const fedge_json *json, const fedge_job *job,
                                      fedge_error *err)
{
    return fedge_sections_find(&job->plan.sent, FEDGE_SECTION_BUFFERS)
               ? fedge_json_fail_at(json, "model.layers", err,
                                    "%s combines single updates, which leaves out BatchNorm's "
                                    "statistics: use GroupNorm in the model",
                                    job->strategy)
               : FEDGE_OK;
}

/* Of the mean and the vectors; Python has copies of the vectors and the model. */
static size_t bytes_per_value(const fedge_plugin *plugin)
{
    const size_t vectors = plugin->table->num_vectors * sizeof(float);
    return sizeof(double) + vectors + (plugin->python ? vectors + sizeof(float) : 0);
}

static void make_ops(fedge_plugin *plugin)
{
    const fedge_strategy_plugin *table = plugin->table;
    size_t num = 0;
    plugin->ops =
        (fedge_strategy_ops){.reader = {.name = table->name,
                                        .arguments = plugin->fields,
                                        .settings_size = sizeof(settings),
                                        .check = table->combine ? refuse_statistics : NULL},
                             .weight = table->weight ? weigh : NULL,
                             .init = init,
                             .step = step,
                             .save = save,
                             .load = load,
                             .free = free_state,
                             .state_per_value = bytes_per_value(plugin),
                             .collects = table->combine != NULL};
    for (; fedge_strategy_readers[num] && num + 1 < MAX_STRATEGIES; num++)
        plugin->readers[num] = fedge_strategy_readers[num];
    plugin->readers[num] = &plugin->ops.reader;
}

/* Calls the library's function of that name; NULL: there is none. */
static const void *call(void *library, const char *name)
{
    const void *(*get)(void) = NULL;
    void *found = dlsym(library, name);
    memcpy(&get, &found, sizeof(get)); /* POSIX: dlsym returns functions as addresses of data */
    return get ? get() : NULL;
}

void fedge_plugin_copy_table(void *to, size_t to_size, const void *from, size_t size)
{
    memset(to, 0, to_size);
    memcpy(to, from, size < to_size ? size : to_size);
}

static fedge_status check_version(const char *path, const char *header, uint32_t version,
                                  size_t size, uint32_t program_version, size_t first_size,
                                  fedge_error *err)
{
    if (size >= first_size && version == program_version)
        return FEDGE_OK;
    return fedge_fail(err, FEDGE_UNSUPPORTED,
                      "--strategy-plugin %s: its table is of version %u and %zu bytes, and this "
                      "program takes version %u of at least %zu: build it with this release's %s",
                      path, (unsigned)version, size, (unsigned)program_version, first_size, header);
}

static fedge_status take_strategy(fedge_plugin *plugin, const char *path, fedge_error *err)
{
    const fedge_strategy_plugin *found = call(plugin->library, FEDGE_STRATEGY_PLUGIN_GET);
    if (!found)
        return FEDGE_OK;
    FEDGE_TRY(check_version(path, "fedge/strategy.h", found->version, found->struct_size,
                            FEDGE_STRATEGY_PLUGIN_VERSION, FIRST_STRATEGY, err));
    fedge_plugin_copy_table(&plugin->table_copy, sizeof(plugin->table_copy), found,
                            found->struct_size);
    plugin->table =
        plugin->table_copy.name || !plugin->table_copy.root_train ? &plugin->table_copy : NULL;
    return FEDGE_OK;
}

static fedge_status take_metrics(fedge_plugin *plugin, const char *path, fedge_error *err)
{
    const fedge_metric_plugin *found = call(plugin->library, FEDGE_METRIC_PLUGIN_GET);
    if (!found)
        return FEDGE_OK;
    FEDGE_TRY(check_version(path, "fedge/metric.h", found->version, found->struct_size,
                            FEDGE_METRIC_PLUGIN_VERSION, FIRST_METRICS, err));
    fedge_plugin_copy_table(&plugin->metrics_copy, sizeof(plugin->metrics_copy), found,
                            found->struct_size);
    plugin->metrics = &plugin->metrics_copy;
    return FEDGE_OK;
}

static fedge_status take_tables(fedge_plugin *plugin, const char *path, fedge_error *err)
{
    if (plugin->python) {
        plugin->table = fedge_python_plugin_table(plugin->python);
    } else {
        FEDGE_TRY(take_strategy(plugin, path, err));
        FEDGE_TRY(take_metrics(plugin, path, err));
    }
    if (plugin->table_copy.root_train ||
        (plugin->python && fedge_python_plugin_root_trains(plugin->python))) {
        plugin->root =
            (fedge_root_ops){.open = open_root, .train = train_root, .close = close_root};
    }
    if (!plugin->table && !plugin->metrics && !plugin->python && !plugin->root.train) {
        return fedge_fail(err, FEDGE_NOT_FOUND,
                          "--strategy-plugin %s: it has no " FEDGE_STRATEGY_PLUGIN_GET
                          " or " FEDGE_METRIC_PLUGIN_GET " that returns a table",
                          path);
    }
    const char *wrong = plugin->table ? wrong_table(plugin->table) : NULL;
    if (!wrong && plugin->metrics)
        wrong = fedge_metrics_wrong(plugin->metrics);
    return !wrong
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT, "--strategy-plugin %s: %s", path, wrong);
}

static fedge_status open_plugin(fedge_plugin *plugin, const char *path, uint32_t timeout_s,
                                fedge_error *err)
{
    const size_t length = strlen(path);
    if (length > 3 && strcmp(path + length - 3, ".py") == 0)
        return fedge_python_plugin_new(path, timeout_s, &plugin->python, err);
    plugin->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return plugin->library
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_NOT_FOUND,
                            "--strategy-plugin: %s; name a file with its folder, as in ./rule.so",
                            dlerror());
}

fedge_status fedge_plugin_load(const char *path, uint32_t timeout_s, fedge_plugin **plugin,
                               fedge_error *err)
{
    *plugin = NULL;
    fedge_plugin *made = calloc(1, sizeof(*made));
    if (!made)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a plugin");
    fedge_status status = FEDGE_OK;
    FEDGE_TRY_OR(open_plugin(made, path, timeout_s, err), failed);
    FEDGE_TRY_OR(take_tables(made, path, err), failed);
    if (made->table) {
        make_fields(made);
        make_ops(made);
    }
    *plugin = made;
    return FEDGE_OK;

failed:
    fedge_plugin_free(made);
    return status;
}

void fedge_plugin_free(fedge_plugin *plugin)
{
    if (!plugin)
        return;
    if (plugin->library)
        (void)dlclose(plugin->library);
    fedge_python_plugin_free(plugin->python);
    free(plugin);
}

const fedge_strategy_reader *const *fedge_plugin_readers(const fedge_plugin *plugin)
{
    return plugin && plugin->table ? plugin->readers : fedge_strategy_readers;
}

bool fedge_plugin_is_used(const fedge_plugin *plugin, const fedge_job *job, fedge_error *why)
{
    fedge_status status = FEDGE_OK;
    if (plugin && plugin->table && strcmp(job->strategy, plugin->table->name) != 0) {
        status = fedge_fail(why, FEDGE_UNSUPPORTED,
                            "the job's strategy is %s and not %s, which --strategy-plugin has: "
                            "write \"strategy\": {\"type\": \"%s\"} in the job to train with it",
                            job->strategy, plugin->table->name, plugin->table->name);
    } else if (plugin && plugin->metrics && !job->test_set.present) {
        status = fedge_fail(why, FEDGE_UNSUPPORTED,
                            "the metrics of --strategy-plugin are measured on the server's test "
                            "set, and the job has none: give it a \"test-set\"");
    }
    return status == FEDGE_OK;
}

const fedge_metric_plugin *fedge_plugin_metrics(const fedge_plugin *plugin)
{
    return plugin ? plugin->metrics : NULL;
}

void fedge_plugin_serve(const fedge_plugin *plugin, fedge_job *job)
{
    job->server_evaluates = fedge_plugin_evaluates(plugin);
    job->root = plugin && plugin->root.train ? &plugin->root : NULL;
}

bool fedge_plugin_evaluates(const fedge_plugin *plugin)
{
    return plugin && plugin->python && fedge_python_plugin_evaluates(plugin->python);
}

fedge_status fedge_plugin_evaluation(const fedge_plugin *plugin, const fedge_schema *schema,
                                     fedge_python_model **evaluation, fedge_error *err)
{
    *evaluation = NULL;
    return fedge_plugin_evaluates(plugin)
               ? fedge_python_model_new(plugin->python, schema, evaluation, err)
               : FEDGE_OK;
}
