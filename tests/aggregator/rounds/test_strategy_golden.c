/* Five rounds of each strategy against tests/golden/strategies (make_golden.py: NumPy, double
 * precision), with the state saved and loaded into a new one between rounds. */
#include "tests/aggregator/rounds/strategy_fixture.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

#define DIR FEDGE_SOURCE_DIR "/tests/golden/strategies/"
#define VALUES 6
#define MOST 16 /* updates of a round */
/* Values and states are floats, of a size of about 1: a few roundings a round. */
#define CLOSE 2e-6

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static cJSON *load(const char *name)
{
    char path[256];
    uint8_t *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), DIR "%s.json", name);
    assert_int_equal(fedge_os_read_file(path, 1 << 20, &text, &size, NULL), FEDGE_OK);
    cJSON *root = cJSON_ParseWithLength((const char *)text, size);
    free(text);
    assert_non_null(root);
    return root;
}

/* The keys of an object: ""a": 1, "b": 2". */
static void keys_of(const cJSON *object, char text[512])
{
    const cJSON *item = NULL;
    text[0] = '\0';
    cJSON_ArrayForEach(item, object)
    {
        char *value = cJSON_PrintUnformatted(item);
        const size_t used = strlen(text);
        (void)snprintf(text + used, 512 - used, "%s\"%s\": %s", used > 0 ? ", " : "", item->string,
                       value);
        free(value);
    }
}

static fedge_job *job_of(const cJSON *root)
{
    char training[512], rounds[512], *strategy = cJSON_PrintUnformatted(get(root, "strategy"));
    fedge_job *job = NULL;
    fedge_error err;
    keys_of(get(root, "training"), training);
    keys_of(get(root, "rounds-spec"), rounds);
    if (parse_strategy_of(strategy, training,
                          rounds[0] != '\0' ? rounds : "\"min-available-nodes\": 4", &job,
                          &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    free(strategy);
    return job;
}

static void quantise(const cJSON *values, int bound_log2, int32_t *v)
{
    float x[VALUES];
    assert_int_equal(cJSON_GetArraySize(values), VALUES);
    for (int i = 0; i < VALUES; i++)
        x[i] = (float)cJSON_GetArrayItem(values, i)->valuedouble;
    assert_int_equal(fedge_fixed_quantise_strict(x, VALUES, bound_log2, v, NULL), FEDGE_OK);
}

static fedge_update_facts facts_of(const cJSON *update, uint32_t round, uint32_t cohort)
{
    const cJSON *loss = get(update, "start-loss"), *norm = get(update, "squared-norm");
    const cJSON *cluster = get(update, "cluster"), *stale = get(update, "staleness");
    return (fedge_update_facts){.round = round,
                                .cohort = cohort,
                                .staleness = stale ? (uint32_t)stale->valuedouble : 0,
                                .cluster = cluster ? (uint32_t)cluster->valuedouble : 0,
                                .num_examples = (uint64_t)get(update, "examples")->valuedouble,
                                .start_loss = loss ? loss->valuedouble : 0,
                                .squared_norm = norm ? norm->valuedouble : 0};
}

static void add(fedge_global_model *model, const cJSON *update, const fedge_update_facts *facts,
                const int8_t *bounds_log2)
{
    int32_t v[2 * VALUES];
    const uint32_t weight = fedge_update_weight(model, facts);
    const size_t count = model->plan->sent.schema.num_elements;
    quantise(get(update, "delta"), bounds_log2[0], v);
    if (count > VALUES) {
        quantise(get(update, "hooks"), bounds_log2[model->plan->sent.sections[1].first],
                 v + VALUES);
    }
    assert_int_equal(fedge_accumulator_begin(&model->accumulator, weight, NULL), FEDGE_OK);
    assert_int_equal(
        fedge_accumulator_add_values(&model->accumulator, 0, v, 0, count, weight, NULL), FEDGE_OK);
    if (model->strategy->collects) {
        uint32_t place = 0;
        assert_int_equal(fedge_stored_updates_reserve(&model->stored, 1, &place, NULL), FEDGE_OK);
        assert_int_equal(fedge_stored_updates_put(&model->stored, place, v, NULL), FEDGE_OK);
    }
}

/* A round's step. */
static void step(fedge_global_model *model, uint32_t round, const int8_t *bounds,
                 const fedge_update_facts *facts, uint32_t count)
{
    static const uint32_t IN_ORDER[MOST] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    fedge_updates updates;
    fedge_error err;
    const bool collects = model->strategy->collects;
    if (collects) {
        assert_int_equal(fedge_stored_updates_list(&model->stored, IN_ORDER, count, &updates, NULL),
                         FEDGE_OK);
    }
    if (fedge_global_model_step(model, round, bounds, facts, collects ? &updates : NULL, &err) !=
        FEDGE_OK)
        fail_msg("%s: %s", model->strategy->reader.name, err.message);
}

/* A new state with what the last one saved. */
static void renew(fedge_global_model *model)
{
    const fedge_strategy_config config = {.schema = &model->plan->sent.sections[0].schema,
                                          .job = model->job};
    fedge_buffer saved;
    void *state = NULL;
    fedge_buffer_init(&saved, 1 << 16);
    assert_int_equal(model->strategy->save(model->strategy_state, &saved, NULL), FEDGE_OK);
    assert_int_equal(saved.size,
                     fedge_strategy_state_per_value(model->strategy, model->job) * VALUES);
    assert_int_equal(model->strategy->init(&config, &state, NULL), FEDGE_OK);
    assert_int_equal(model->strategy->load(state, saved.data, saved.size, NULL), FEDGE_OK);
    if (saved.size > 0) {
        assert_int_equal(model->strategy->load(state, saved.data, saved.size - 1, NULL),
                         FEDGE_CORRUPT);
    }
    model->strategy->free(model->strategy_state);
    model->strategy_state = state;
    fedge_buffer_fini(&saved);
}

static void check(const char *name, uint32_t round, const float *got, const cJSON *expected)
{
    const int count = cJSON_GetArraySize(expected);
    assert_true(count >= VALUES && count % VALUES == 0);
    for (int i = 0; i < count; i++) {
        const double value = cJSON_GetArrayItem(expected, i)->valuedouble;
        if (!(fabs((double)got[i] - value) <= CLOSE * fmax(1.0, fabs(value)))) {
            fail_msg("%s: value %d after round %u is %.9g, and %.9g by the formula", name, i,
                     (unsigned)round, (double)got[i], value);
        }
    }
}

/* What is told at first, where that is drawn. */
static void begin_state(fedge_global_model *model, const cJSON *told)
{
    uint8_t bytes[4 * VALUES * sizeof(float)];
    const int count = told ? cJSON_GetArraySize(told) : 0;
    assert_true(count <= 4 * VALUES);
    for (int i = 0; i < count; i++)
        fedge_put_f32(bytes + 4 * i, (float)cJSON_GetArrayItem(told, i)->valuedouble);
    if (told) {
        assert_int_equal(
            model->strategy->load(model->strategy_state, bytes, (size_t)count * 4, NULL), FEDGE_OK);
    }
}

static void run(const char *name)
{
    cJSON *root = load(name);
    fedge_job *job = job_of(root);
    const fedge_accumulator_config config = {.num_lanes = 1};
    fedge_global_model model;
    fedge_error err = {0};
    int8_t bounds[FEDGE_MAX_TENSORS];
    uint32_t round = 0;
    if (fedge_global_model_init(&model, job, "cpu", &config, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < VALUES; i++)
        model.values[i] = (float)cJSON_GetArrayItem(get(root, "initial"), i)->valuedouble;
    begin_state(&model, get(root, "initial-told"));
    const cJSON *at = NULL, *update = NULL;
    cJSON_ArrayForEach(at, get(root, "rounds"))
    {
        fedge_sections_bounds(&job->plan, model.values, bounds);
        fedge_update_facts facts[MOST];
        const cJSON *updates = get(at, "updates");
        const uint32_t cohort = (uint32_t)cJSON_GetArraySize(updates);
        uint32_t count = 0;
        round++;
        cJSON_ArrayForEach(update, updates)
        {
            facts[count] = facts_of(update, round, cohort);
            add(&model, update, &facts[count++], bounds);
        }
        step(&model, round, bounds, facts, count);
        check(name, round, model.values, get(at, "model"));
        if (get(at, "told"))
            check(name, round, model.strategy->broadcast(model.strategy_state), get(at, "told"));
        assert_int_equal(fedge_global_model_reset(&model, &err), FEDGE_OK);
        renew(&model);
    }
    assert_int_equal(round, 5);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
    cJSON_Delete(root);
}

static void all_follow_their_formulas(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_os_read_file(DIR "cases.txt", 1 << 16, &text, &size, NULL), FEDGE_OK);
    int count = 0;
    for (char *name = strtok((char *)text, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        run(name);
        count++;
    }
    assert_true(count >= 8);
    free(text);
}

/* Is the golden file of [name] in [folder] one of the strategy? */
static bool is_of(const char *folder, const char *name, const char *strategy)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s%s", folder, name);
    cJSON *root = load(path);
    const bool same = strcmp(get(get(root, "strategy"), "type")->valuestring, strategy) == 0;
    cJSON_Delete(root);
    return same;
}

/* Those whose clients have a part of the model have theirs in tests/golden/personal
 * (test_personal.c), which are called as they are. */
static void all_have_a_golden_file(void **state)
{
    (void)state;
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        const char *strategy = fedge_strategy_readers[i]->name;
        const fedge_client_hooks *hooks = fedge_client_hooks_find(strategy);
        uint8_t *text = NULL;
        size_t size = 0;
        bool found = false;
        if (hooks && hooks->personal) {
            char name[FEDGE_MAX_STRATEGY_NAME] = "";
            for (size_t k = 0; strategy[k] != '\0'; k++)
                name[k] = (char)tolower((unsigned char)strategy[k]);
            assert_true(is_of("../personal/", name, strategy));
            continue;
        }
        assert_int_equal(fedge_os_read_file(DIR "cases.txt", 1 << 16, &text, &size, NULL),
                         FEDGE_OK);
        for (char *name = strtok((char *)text, "\n"); name && !found; name = strtok(NULL, "\n"))
            found = is_of("", name, strategy);
        if (!found)
            fail_msg("no golden file is of %s: add one to make_golden.py", strategy);
        free(text);
    }
}

/* A round without updates is refused, and moves nothing. */
static void no_update_is_no_step(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_os_read_file(DIR "cases.txt", 1 << 16, &text, &size, NULL), FEDGE_OK);
    for (char *name = strtok((char *)text, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        cJSON *root = load(name);
        fedge_job *job = job_of(root);
        const fedge_accumulator_config config = {.num_lanes = 1};
        fedge_global_model model;
        int8_t bounds[FEDGE_MAX_TENSORS] = {0};
        assert_int_equal(fedge_global_model_init(&model, job, "cpu", &config, &err), FEDGE_OK);
        assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err),
                         FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "no update to average"));
        for (int i = 0; i < VALUES; i++)
            assert_true(model.values[i] == 0.0f);
        fedge_global_model_fini(&model);
        fedge_job_free(job);
        cJSON_Delete(root);
    }
    free(text);
}

int main(void)
{
    /* Where files that jobs name lie. */
    if (chdir(DIR) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_follow_their_formulas),
        cmocka_unit_test(all_have_a_golden_file),
        cmocka_unit_test(no_update_is_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
