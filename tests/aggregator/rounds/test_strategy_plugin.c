/* Strategies from a shared object: which tables are taken, what a job may say to them, and what
 * ends a run. plugin_of_test.so offers the tables that a test makes. */
#include "tests/edge/core/cmocka_all.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/rounds/root_trainer.h"
#include "aggregator/rounds/strategy_plugin.h"
#include "aggregator/rounds/strategy_plugin_api.h"
#include "edge/core/fixed.h"

#define MAX_WEIGHT 100
#define VALUES 4

static void (*set_tables)(const void *of_strategy, const void *of_metrics);
static fedge_error err;

/* ---- what the plugin does -------------------------------------------------------------------- */

static uint32_t weight_to_give;
static int failure;
static float value_to_set;
static double seen_arguments[2];

static uint32_t weigh(const double *arguments, const fedge_plugin_update *update)
{
    assert_int_equal(update->max_weight, MAX_WEIGHT);
    memcpy(seen_arguments, arguments, sizeof(seen_arguments));
    return weight_to_give;
}

static int step(const fedge_plugin_round *round, char *message)
{
    assert_int_equal(round->num_values, VALUES);
    round->model[2] = value_to_set;
    memset(message, 'm', 256); /* without an end */
    return failure;
}

static const fedge_plugin_argument ARGUMENTS[] = {{"least", -2.0, 3.0, NAN},
                                                  {"most", 0.0, 1.0, 0.25}};

/* The difference of two updates, of clients 3 and 4 with 5 and 6 examples. */
static int combine(const fedge_plugin_tile *tile, double *combined, char *message)
{
    assert_int_equal(tile->struct_size, sizeof(*tile));
    assert_int_equal(tile->num_updates, 2);
    assert_int_equal(tile->num_examples[1], 6);
    assert_int_equal(tile->clients[0], 3);
    assert_true(tile->unit == (tile->tensor == 0 ? 0x1p-28 : 0x1p-29));
    assert_int_equal(tile->first, tile->tensor == 0 ? 0 : 2);
    assert_int_equal(tile->count, 2);
    for (size_t k = 0; k < tile->count; k++)
        combined[k] = (double)(tile->rows[0][k] - tile->rows[1][k]) * tile->unit;
    memset(message, 'c', 256);
    return failure;
}

/* What a step that combines sees is its model. */
static int step_to_mean(const fedge_plugin_round *round, char *message)
{
    (void)message;
    for (size_t i = 0; i < round->num_values; i++)
        round->model[i] = (float)round->mean[i];
    round->vectors[0] = (float)(round->num_examples[0] + round->clients[1]);
    return 0;
}

static fedge_strategy_plugin good(void)
{
    return (fedge_strategy_plugin){.struct_size = sizeof(fedge_strategy_plugin),
                                   .version = FEDGE_STRATEGY_PLUGIN_VERSION,
                                   .num_arguments = 2,
                                   .name = "Own",
                                   .arguments = ARGUMENTS,
                                   .num_vectors = 1,
                                   .weight = weigh,
                                   .step = step};
}

static void add(void *state, const fedge_metric_batch *batch)
{
    (void)state;
    (void)batch;
}

static int finish(const void *state, double *values, char *message)
{
    (void)state;
    (void)values;
    (void)message;
    return 0;
}

static fedge_metric_plugin good_metrics(void)
{
    static const char *const NAMES[] = {"f1"};
    return (fedge_metric_plugin){.struct_size = sizeof(fedge_metric_plugin),
                                 .version = FEDGE_METRIC_PLUGIN_VERSION,
                                 .num_metrics = 1,
                                 .names = NAMES,
                                 .add = add,
                                 .finish = finish};
}

/* ---- loading --------------------------------------------------------------------------------- */

static fedge_plugin *load(const void *strategy, const void *metrics)
{
    fedge_plugin *plugin = NULL;
    set_tables(strategy, metrics);
    if (fedge_plugin_load(PLUGIN, 0, &plugin, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return plugin;
}

static void refused(const void *strategy, const void *metrics, fedge_status status,
                    const char *said)
{
    fedge_plugin *plugin = NULL;
    set_tables(strategy, metrics);
    assert_int_equal(fedge_plugin_load(PLUGIN, 0, &plugin, &err), status);
    assert_null(plugin);
    if (!strstr(err.message, said))
        fail_msg("gave %s\n  expected %s", err.message, said);
}

/* Of a release that has more behind what this one knows: that is not looked at. */
static void a_table_may_have_grown(void **state)
{
    (void)state;
    struct {
        fedge_strategy_plugin known;
        uint64_t more;
    } strategy = {good(), 7};
    struct {
        fedge_metric_plugin known;
        uint64_t more;
    } metrics = {good_metrics(), 7};
    strategy.known.struct_size = sizeof(strategy);
    metrics.known.struct_size = sizeof(metrics);
    fedge_plugin *plugin = load(&strategy, &metrics);
    size_t count = 0;
    while (fedge_plugin_readers(plugin)[count])
        count++;
    assert_string_equal(fedge_plugin_readers(plugin)[count - 1]->name, "Own");
    assert_int_equal(fedge_plugin_metrics(plugin)->num_metrics, 1);
    fedge_plugin_free(plugin);
}

/* Nothing is shorter than the first release's, and of another version everything may differ. */
static void a_table_of_no_release_is_refused(void **state)
{
    (void)state;
    fedge_strategy_plugin strategy = good();
    fedge_metric_plugin metrics = good_metrics();
    strategy.struct_size = offsetof(fedge_strategy_plugin, step); /* without it */
    metrics.struct_size -= sizeof(void *);
    refused(&strategy, NULL, FEDGE_UNSUPPORTED, "build it with this release's fedge/strategy.h");
    refused(NULL, &metrics, FEDGE_UNSUPPORTED, "build it with this release's fedge/metric.h");
    strategy = good();
    metrics = good_metrics();
    strategy.version++;
    metrics.version++;
    refused(&strategy, NULL, FEDGE_UNSUPPORTED, "its table is of version 2");
    refused(NULL, &metrics, FEDGE_UNSUPPORTED, "its table is of version 2");
    refused(NULL, NULL, FEDGE_NOT_FOUND, "has no fedge_strategy_plugin_get or");
}

/* As an older release's is by a newer program. */
static void what_a_table_lacks_is_0(void **state)
{
    (void)state;
    const uint64_t older[2] = {16, 5}, newer[3] = {24, 5, 6};
    uint64_t table[3] = {1, 1, 1};
    fedge_plugin_copy_table(table, sizeof(table), older, sizeof(older));
    assert_true(table[0] == 16 && table[1] == 5 && table[2] == 0);
    table[2] = 9;
    fedge_plugin_copy_table(table, 2 * sizeof(*table), newer, sizeof(newer));
    assert_true(table[0] == 24 && table[1] == 5 && table[2] == 9);
}

static void a_table_that_contradicts_itself_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *name;
        uint32_t num_vectors, num_arguments;
        const fedge_plugin_argument *arguments;
        int (*step)(const fedge_plugin_round *round, char *message);
        const char *said;
    } cases[] = {
        {NULL, 1, 2, ARGUMENTS, step, "its name is missing"},
        {"", 1, 2, ARGUMENTS, step, "its name is missing"},
        {"A2345678901234567890123456789012", 1, 2, ARGUMENTS, step, "over 31 bytes"},
        {"FedAvg", 1, 2, ARGUMENTS, step, "choose another"},
        {"Own", 1, 2, ARGUMENTS, NULL, "it has no step"},
        {"Own", 17, 2, ARGUMENTS, step, "over 16 vectors"},
        {"Own", 1, 17, ARGUMENTS, step, "over 16 arguments"},
        {"Own", 1, 2, NULL, step, "and no list"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_strategy_plugin table = good();
        table.name = cases[i].name;
        table.num_vectors = cases[i].num_vectors;
        table.num_arguments = cases[i].num_arguments;
        table.arguments = cases[i].arguments;
        table.step = cases[i].step;
        refused(&table, NULL, FEDGE_INVALID_ARGUMENT, cases[i].said);
    }
}

static void an_argument_that_is_none_is_refused(void **state)
{
    (void)state;
    static const struct {
        fedge_plugin_argument argument;
        const char *said;
    } CASES[] = {
        {{NULL, 0, 1, 0}, "an argument has no name"},
        {{"", 0, 1, 0}, "an argument has no name"},
        {{"a", 1, 1, 1}, "min is not below its max"},
        {{"a", NAN, 1, 1}, "min is not below its max"},
        {{"a", 0, 1, 2}, "default is not in its range"},
        {{"type", 0, 1, 0}, "a name that every strategy has"},
        {{"server-learning-rate", 0, 1, 0}, "a name that every strategy has"},
        {{"server_learning_rate", 0, 1, 0}, "a name that every strategy has"},
        {{"server-schedule", 0, 1, 0}, "a name that every strategy has"},
        {{"first", 0, 1, 0}, "two arguments have one name"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const fedge_plugin_argument arguments[2] = {{"first", 0, 1, 0}, CASES[i].argument};
        fedge_strategy_plugin table = good();
        table.arguments = arguments;
        refused(&table, NULL, FEDGE_INVALID_ARGUMENT, CASES[i].said);
    }
}

static void metrics_are_checked_too(void **state)
{
    (void)state;
    const fedge_strategy_plugin strategy = good();
    fedge_metric_plugin metrics = good_metrics();
    metrics.finish = NULL;
    refused(&strategy, &metrics, FEDGE_INVALID_ARGUMENT, "its metrics have no add or no finish");
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static fedge_status parse(const fedge_plugin *plugin, const char *arguments, fedge_job **job)
{
    char text[1024];
    (void)snprintf(text, sizeof(text),
                   "{\"fedge-job\": 1, \"name\": \"p\", \"model\": {\"input-shape\": [1], "
                   "\"layers\": [{\"type\": \"Linear\", \"in_features\": 1, \"out_features\": 2}]},"
                   "\"data\": {\"name\": \"d\", \"shape\": [1], \"dtype\": \"f32\", \"labels\": 2},"
                   "\"training\": {\"learning-rate\": 0.1},"
                   "\"rounds\": {\"num-server-rounds\": 3, \"max-weight\": %d},"
                   "\"strategy\": {\"type\": \"Own\"%s}}",
                   MAX_WEIGHT, arguments);
    return fedge_strategy_job_parse_with(fedge_plugin_readers(plugin), text, strlen(text),
                                         "job.json", job, &err);
}

static void arguments_have_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *said;
    } WRONG[] = {
        {"", "strategy.least: is missing"},
        {", \"least\": -2.1", "strategy.least: -2.1 is not in [-2, 3]"},
        {", \"least\": 3.1", "strategy.least: 3.1 is not in [-2, 3]"},
        {", \"least\": 0, \"most\": 1.5", "strategy.most: 1.5 is not in [0, 1]"},
        {", \"least\": \"0\"", "strategy.least"},
        {", \"least\": 0, \"beta\": 0.1", "strategy.beta: is not an argument of Own"},
        {", \"least\": 0, \"lest\": 0.1", "strategy.lest"},
    };
    const fedge_strategy_plugin table = good();
    fedge_plugin *plugin = load(&table, NULL);
    fedge_job *job = NULL;
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        assert_int_equal(parse(plugin, WRONG[i].arguments, &job), FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, WRONG[i].said))
            fail_msg("gave %s\n  expected %s", err.message, WRONG[i].said);
    }
    fedge_plugin_free(plugin);
}

static void unused(const fedge_plugin *plugin, const fedge_job *job, const char *said)
{
    err.message[0] = '\0';
    assert_int_equal(fedge_plugin_is_used(plugin, job, &err), !said);
    if (said && !strstr(err.message, said))
        fail_msg("gave %s\n  expected %s", err.message, said);
}

static void what_a_job_leaves_unused_is_told(void **state)
{
    (void)state;
    const fedge_strategy_plugin table = good();
    const fedge_metric_plugin metrics = good_metrics();
    fedge_plugin *plugin = load(&table, NULL);
    fedge_job *own = NULL;
    assert_int_equal(parse(plugin, ", \"least\": 0", &own), FEDGE_OK);
    fedge_job other = *own;
    (void)snprintf(other.strategy, sizeof(other.strategy), "FedAvg");
    unused(NULL, &other, NULL);
    unused(plugin, own, NULL);
    unused(plugin, &other, "write \"strategy\": {\"type\": \"Own\"} in the job");
    fedge_plugin_free(plugin);
    plugin = load(NULL, &metrics);
    unused(plugin, &other, "give it a \"test-set\"");
    other.test_set.present = true;
    unused(plugin, &other, NULL);
    fedge_job_free(own);
    fedge_plugin_free(plugin);
}

/* ---- a round --------------------------------------------------------------------------------- */

typedef struct run {
    fedge_plugin *plugin;
    fedge_job *job;
    fedge_global_model model;
} run;

static void begin_with(run *self, fedge_strategy_plugin with)
{
    static fedge_strategy_plugin table;
    const fedge_accumulator_config config = {.num_lanes = 1};
    table = with;
    weight_to_give = 7;
    failure = 0;
    value_to_set = 0.5f;
    self->plugin = load(&table, NULL);
    if (parse(self->plugin, ", \"least\": -1.5", &self->job) != FEDGE_OK ||
        fedge_global_model_init(&self->model, self->job, "cpu", &config, &err) != FEDGE_OK ||
        fedge_global_model_begin(&self->model, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
}

static void begin(run *self)
{
    begin_with(self, good());
}

static void end(run *self)
{
    fedge_global_model_fini(&self->model);
    fedge_job_free(self->job);
    fedge_plugin_free(self->plugin);
}

static uint32_t weight_of(const run *self, uint32_t given)
{
    weight_to_give = given;
    return fedge_update_weight(&self->model, &(fedge_update_facts){.num_examples = 5});
}

static void weights_are_cut(void **state)
{
    (void)state;
    run self;
    begin(&self);
    assert_int_equal(weight_of(&self, 0), 1);
    assert_int_equal(weight_of(&self, 1), 1);
    assert_int_equal(weight_of(&self, 42), 42);
    assert_int_equal(weight_of(&self, MAX_WEIGHT), MAX_WEIGHT);
    assert_int_equal(weight_of(&self, MAX_WEIGHT + 1), MAX_WEIGHT);
    assert_int_equal(weight_of(&self, UINT32_MAX), MAX_WEIGHT);
    assert_true(seen_arguments[0] == -1.5 && seen_arguments[1] == 0.25);
    end(&self);
}

static fedge_status take_step(run *self)
{
    const int32_t v[VALUES] = {0};
    const int8_t bounds[FEDGE_MAX_TENSORS] = {2, 2};
    /* The sums are not reset: a second step has two updates. */
    const fedge_update_facts facts[2] = {{.num_examples = 5}, {.num_examples = 5}};
    assert_int_equal(fedge_accumulator_begin(&self->model.accumulator, 1, NULL), FEDGE_OK);
    assert_int_equal(
        fedge_accumulator_add_values(&self->model.accumulator, 0, v, 0, VALUES, 1, NULL), FEDGE_OK);
    return fedge_global_model_step(&self->model, 1, bounds, facts, NULL, &err);
}

static void a_step_that_fails_ends_the_run(void **state)
{
    (void)state;
    run self;
    begin(&self);
    assert_int_equal(take_step(&self), FEDGE_OK);
    assert_true(self.model.values[2] == 0.5f);
    failure = -3;
    assert_int_equal(take_step(&self), FEDGE_INTERNAL);
    assert_non_null(strstr(err.message, "Own failed with -3: mmm"));
    end(&self);
}

static fedge_status step_of_two(run *self)
{
    static const uint32_t IN_ORDER[] = {0, 1};
    const int32_t v[2][VALUES] = {{1 << 28, 1, 2, 1 << 29}, {-(1 << 28), 0, 5, 0}};
    const int8_t bounds[FEDGE_MAX_TENSORS] = {2, 1};
    const fedge_update_facts facts[2] = {{.num_examples = 5, .client = 3},
                                         {.num_examples = 6, .client = 4}};
    fedge_updates updates;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t at = 0;
        assert_int_equal(fedge_accumulator_begin(&self->model.accumulator, 1, NULL), FEDGE_OK);
        assert_int_equal(fedge_stored_updates_reserve(&self->model.stored, 1, &at, NULL), FEDGE_OK);
        assert_int_equal(fedge_stored_updates_put(&self->model.stored, at, v[i], NULL), FEDGE_OK);
    }
    assert_int_equal(fedge_stored_updates_list(&self->model.stored, IN_ORDER, 2, &updates, NULL),
                     FEDGE_OK);
    return fedge_global_model_step(&self->model, 1, bounds, facts, &updates, &err);
}

static void single_updates_come_as_tiles(void **state)
{
    (void)state;
    static const float EXPECTED[VALUES] = {2.0f, 0x1p-28f, -3 * 0x1p-29f, 1.0f};
    fedge_strategy_plugin table = good();
    run self;
    table.combine = combine;
    table.step = step_to_mean;
    begin_with(&self, table);
    assert_true(self.model.strategy->collects);
    assert_int_equal(step_of_two(&self), FEDGE_OK);
    assert_memory_equal(self.model.values, EXPECTED, sizeof(EXPECTED));
    fedge_buffer saved;
    fedge_buffer_init(&saved, 1 << 10);
    assert_int_equal(self.model.strategy->save(self.model.strategy_state, &saved, &err), FEDGE_OK);
    float first;
    memcpy(&first, saved.data, sizeof(first));
    assert_true(first == 9.0f);
    fedge_buffer_fini(&saved);
    failure = 4;
    assert_int_equal(fedge_global_model_reset(&self.model, &err), FEDGE_OK);
    assert_int_equal(step_of_two(&self), FEDGE_INTERNAL);
    assert_non_null(strstr(err.message, "Own failed with 4: ccc"));
    end(&self);
}

/* Its table ends before what later ones have. */
static void a_table_of_the_first_release_sees_no_single_updates(void **state)
{
    (void)state;
    fedge_strategy_plugin table = good();
    run self;
    table.struct_size = offsetof(fedge_strategy_plugin, combine);
    table.combine = combine;
    begin_with(&self, table);
    assert_false(self.model.strategy->collects);
    end(&self);
}

static void a_model_that_is_no_number_ends_the_run(void **state)
{
    (void)state;
    static const float VALUE[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(VALUE) / sizeof(VALUE[0]); i++) {
        run self;
        begin(&self);
        value_to_set = VALUE[i];
        assert_int_equal(take_step(&self), FEDGE_NOT_FINITE);
        assert_non_null(strstr(err.message, "Own made value 2 of the model infinite"));
        end(&self);
    }
}

/* ---- training on the server ------------------------------------------------------------------ */

static int root_train(const fedge_plugin_root_task *task, float *values, char *message)
{
    assert_int_equal(task->struct_size, sizeof(*task));
    assert_int_equal(task->round, 3);
    assert_int_equal(task->num_values, 2);
    assert_int_equal(task->local_steps, 4);
    assert_true(task->learning_rate == 0.5);
    assert_string_equal(task->config, "{\"a\":1}");
    values[0] += 1.0f;
    values[1] = value_to_set;
    memset(message, 't', 256);
    return failure;
}

static const char TRUSTED[] =
    "{\"fedge-job\": 1, \"name\": \"j\", \"model\": {\"type\": \"external\", \"tensors\": "
    "[{\"name\": \"w\", \"shape\": [2]}]}, \"config\": {\"a\": 1}, \"training\": "
    "{\"learning-rate\": 0.5, \"local-steps\": 4}, \"rounds\": {\"num-server-rounds\": 5}, "
    "\"strategy\": {\"type\": \"FLTrust\"}}";

static void a_table_may_train_on_the_server(void **state)
{
    (void)state;
    static const float MODEL[] = {0.25f, 0.5f};
    static const int8_t BOUNDS[] = {2};
    const fedge_strategy_plugin table = {.struct_size = sizeof(table),
                                         .version = FEDGE_STRATEGY_PLUGIN_VERSION,
                                         .root_train = root_train};
    const fedge_test_set none = {.present = false};
    fedge_plugin *plugin = load(&table, NULL);
    fedge_root_trainer *trainer = NULL;
    fedge_job *job = NULL;
    const int32_t *v = NULL;
    assert_ptr_equal(fedge_plugin_readers(plugin), fedge_strategy_readers);
    assert_int_equal(fedge_strategy_job_parse_with(fedge_plugin_readers(plugin), TRUSTED,
                                                   strlen(TRUSTED), "job.json", &job, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_root_trainer_new(job, &none, &trainer, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "FLTrust compares updates with one of the server's"));
    fedge_plugin_serve(plugin, job);
    assert_int_equal(fedge_root_trainer_new(job, &none, &trainer, &err), FEDGE_OK);
    failure = 0;
    value_to_set = 0.25f;
    assert_int_equal(fedge_root_trainer_run(trainer, 3, MODEL, BOUNDS, &v, &err), FEDGE_OK);
    assert_int_equal(v[0], 1 << (FEDGE_FIXED_VALUE_BITS - 2));
    assert_int_equal(v[1], -(1 << (FEDGE_FIXED_VALUE_BITS - 4)));
    value_to_set = NAN;
    assert_int_equal(fedge_root_trainer_run(trainer, 3, MODEL, BOUNDS, &v, &err), FEDGE_NOT_FINITE);
    failure = 4;
    assert_int_equal(fedge_root_trainer_run(trainer, 3, MODEL, BOUNDS, &v, &err), FEDGE_INTERNAL);
    assert_non_null(strstr(err.message, "root_train failed with 4: ttt"));
    fedge_root_trainer_free(trainer);
    fedge_job_free(job);
    fedge_plugin_free(plugin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_may_train_on_the_server),
        cmocka_unit_test(a_table_may_have_grown),
        cmocka_unit_test(a_table_of_no_release_is_refused),
        cmocka_unit_test(what_a_table_lacks_is_0),
        cmocka_unit_test(a_table_of_the_first_release_sees_no_single_updates),
        cmocka_unit_test(a_table_that_contradicts_itself_is_refused),
        cmocka_unit_test(an_argument_that_is_none_is_refused),
        cmocka_unit_test(metrics_are_checked_too),
        cmocka_unit_test(arguments_have_ranges),
        cmocka_unit_test(what_a_job_leaves_unused_is_told),
        cmocka_unit_test(weights_are_cut),
        cmocka_unit_test(a_step_that_fails_ends_the_run),
        cmocka_unit_test(single_updates_come_as_tiles),
        cmocka_unit_test(a_model_that_is_no_number_ends_the_run),
    };
    /* For as long as the program runs, so that a plugin which is loaded is this one. */
    void *library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "plugin_set_tables") : NULL;
    if (!found) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    memcpy(&set_tables, &found, sizeof(set_tables));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)dlclose(library);
    return failed;
}
