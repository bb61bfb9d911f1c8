/* Personalized strategies in the simulator: five rounds against tests/golden/personal
 * (make_golden.py: NumPy, double precision), and what becomes of what clients have for themselves.
 */
#include "aggregator/simulate/run/simulation.h"

#include <math.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#define POINTS_FILE "personal-points.csv"
#include "tests/aggregator/simulate/run/run.h"

#define DIR FEDGE_SOURCE_DIR "/tests/golden/personal/"
#define OWNERS_FILE "personal-owners.csv"
#define GOLDEN_FILE "personal-golden.csv"
#define CLOSE 2e-5 /* single precision: 2^-24 of values below 2, times some tens of operations */

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

/* The clients' examples as a file, and whose they are. */
static uint32_t write_data(const cJSON *clients)
{
    FILE *data = fopen(GOLDEN_FILE, "w"), *owners = fopen(OWNERS_FILE, "w");
    uint32_t client = 0, example = 0;
    const cJSON *of = NULL;
    assert_true(data && owners);
    fprintf(owners, "example,client\n");
    cJSON_ArrayForEach(of, clients)
    {
        const int count = cJSON_GetArraySize(get(of, "labels"));
        for (int i = 0; i < count; i++) {
            const cJSON *value = NULL;
            cJSON_ArrayForEach(value, cJSON_GetArrayItem(get(of, "values"), i))
            {
                fprintf(data, "%.17g,", value->valuedouble);
            }
            fprintf(data, "%d\n", cJSON_GetArrayItem(get(of, "labels"), i)->valueint);
            fprintf(owners, "%u,%u\n", example++, client);
        }
        client++;
    }
    fclose(data);
    fclose(owners);
    return client;
}

static char *text_of(const cJSON *root)
{
    cJSON *model = cJSON_Duplicate(get(root, "model"), true);
    char *parts[] = {NULL, cJSON_PrintUnformatted(get(root, "training")),
                     cJSON_PrintUnformatted(get(root, "strategy")),
                     cJSON_PrintUnformatted(get(get(root, "model"), "input-shape"))};
    cJSON_AddItemToObject(model, "loss", cJSON_Parse("{\"type\":\"CrossEntropyLoss\"}"));
    parts[0] = cJSON_PrintUnformatted(model);
    char *text = malloc(4096);
    assert_non_null(text);
    (void)snprintf(text, 4096,
                   "{\"fedge-job\":1,\"name\":\"golden\",\"model\":%s,\"training\":%s,"
                   "\"strategy\":%s,\"data\":{\"name\":\"points\",\"shape\":%s,\"dtype\":\"f32\","
                   "\"labels\":3},\"rounds\":{\"num-server-rounds\":%d},"
                   "\"update\":{\"codec\":\"none\"}}",
                   parts[0], parts[1], parts[2], parts[3], get(root, "rounds")->valueint);
    cJSON_Delete(model);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        free(parts[i]);
    return text;
}

static void check_close(const cJSON *wanted, const float *values, size_t count, const char *what)
{
    assert_int_equal(cJSON_GetArraySize(wanted), count);
    for (size_t i = 0; i < count; i++) {
        const double value = cJSON_GetArrayItem(wanted, (int)i)->valuedouble;
        if (!(fabs((double)values[i] - value) < CLOSE))
            fail_msg("%s: value %zu is %.9g, not %.9g", what, i, (double)values[i], value);
    }
}

static void check_golden(const char *name)
{
    cJSON *root = load(name);
    char *text = text_of(root);
    const uint32_t clients = write_data(get(root, "clients"));
    fedge_site_data data = {.name = "points", .values = GOLDEN_FILE, .has_partition = true};
    run self = {.num_lines = 0};
    assert_int_equal(fedge_partition_parse("file:" OWNERS_FILE, &data.partition, &self.err),
                     FEDGE_OK);
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &self.job, &self.err) !=
            FEDGE_OK ||
        fedge_client_data_new(&self.job->plan, &data, 0.0, clients, &self.client_data, &self.err) !=
            FEDGE_OK)
        fail_msg("%s: %s", name, self.err.message);
    const fedge_simulation_config config = {
        .job = self.job, .client_data = self.client_data, .num_threads = 2, .evaluate_every = 1};
    assert_int_equal(fedge_simulation_new(&config, &self.simulation, &self.err), FEDGE_OK);
    const fedge_global_model *global = fedge_simulation_model(self.simulation);
    const size_t count = self.job->plan.schema.num_elements;
    for (size_t i = 0; i < count; i++)
        global->values[i] = (float)cJSON_GetArrayItem(get(root, "initial"), (int)i)->valuedouble;
    go(&self);
    check_close(get(root, "final"), global->values, count, name);
    const fedge_client_states *states = fedge_simulation_states(self.simulation);
    float *own = malloc(states->num_values * sizeof(*own));
    assert_non_null(own);
    for (uint32_t c = 0; c < clients; c++) {
        assert_int_equal(fedge_client_states_get(states, c, own, &self.err), FEDGE_OK);
        check_close(cJSON_GetArrayItem(get(root, "own"), (int)c), own, states->num_values - 1,
                    name);
        assert_true(own[states->num_values - 1] == 1.0f);
    }
    free(own);
    free(text);
    cJSON_Delete(root);
    end(&self);
}

static void each_is_as_in_its_paper(void **state)
{
    (void)state;
    check_golden("fedper");
    check_golden("fedrep");
    check_golden("fedbn");
    check_golden("ditto");
    check_golden("ditto-statistics");
}

/* Clients whose labels differ are served better by what is their own, in every quantile's order. */
static void clients_are_evaluated_by_their_own(void **state)
{
    (void)state;
    static const char rounds[] = "\"num-server-rounds\":8,\"fraction-evaluate\":1";
    double medians[2];
    for (int own = 0; own < 2; own++) {
        run self;
        assert_int_equal(begin(&self, rounds, own ? ",\"strategy\":{\"type\":\"FedPer\"}" : "",
                               "shards:1", 6, 2),
                         FEDGE_OK);
        go(&self);
        const fedge_round_summary *last = &self.lines[self.num_lines - 1];
        assert_int_equal(last->kind, FEDGE_TASK_EVALUATE);
        assert_true(last->quantiles.present);
        for (int q = 1; q < FEDGE_ACCURACY_QUANTILES; q++)
            assert_true(last->quantiles.values[q] >= last->quantiles.values[q - 1]);
        medians[own] = last->quantiles.values[3];
        assert_false(self.lines[0].quantiles.present);
        end(&self);
    }
    assert_true(medians[1] >= medians[0] && medians[1] > 0.9);
}

/* However many threads there are, and where only some train in a round. */
static void threads_change_nothing(void **state)
{
    (void)state;
    static const char *const strategies[] = {",\"strategy\":{\"type\":\"FedPer\"}",
                                             ",\"strategy\":{\"type\":\"FedRep\"}",
                                             ",\"strategy\":{\"type\":\"Ditto\",\"lambda\":0.5}"};
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        run one, three;
        static const char rounds[] =
            "\"num-server-rounds\":4,\"fraction-train\":0.5,\"fraction-evaluate\":1";
        assert_int_equal(begin(&one, rounds, strategies[i], "dirichlet:0.5", 7, 1), FEDGE_OK);
        assert_int_equal(begin(&three, rounds, strategies[i], "dirichlet:0.5", 7, 3), FEDGE_OK);
        go(&one);
        go(&three);
        assert_int_equal(one.num_lines, 8);
        for (uint32_t n = 0; n < one.num_lines; n++) {
            assert_string_equal(one.lines[n].model, three.lines[n].model);
            assert_true(n % 2 == 0 || one.lines[n].loss == three.lines[n].loss);
        }
        end(&one);
        end(&three);
    }
}

/* What evaluates the server's model, whose own layers nobody trains. */
static void what_goes_on_without_them_is_refused(void **state)
{
    (void)state;
    static const char JOB[] =
        "{\"fedge-job\":1,\"name\":\"points\",\"model\":{\"input-shape\":[2],\"layers\":["
        "{\"type\":\"Linear\",\"in_features\":2,\"out_features\":4},{\"type\":\"ReLU\"},"
        "{\"type\":\"Linear\",\"in_features\":4,\"out_features\":3}]},\"data\":{\"name\":"
        "\"points\",\"shape\":[2],\"dtype\":\"f32\",\"labels\":3},\"training\":{"
        "\"learning-rate\":0.1},\"rounds\":{\"num-server-rounds\":1},\"strategy\":{\"type\":"
        "\"FedPer\"},\"test-set\":{\"values\":\"" POINTS_FILE "\"}}";
    fedge_job *job = NULL;
    fedge_error err;
    assert_int_equal(fedge_strategy_job_parse(JOB, sizeof(JOB) - 1, "job.json", &job, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "test-set: does not go with FedPer"));
    run self = {.job = make_job("\"num-server-rounds\":2", ",\"strategy\":{\"type\":\"FedPer\"}")};
    self.client_data = make_split_client_data(self.job, "iid", 4, 0.0, 0.25);
    const fedge_simulation_config config = {
        .job = self.job, .client_data = self.client_data, .num_threads = 1, .evaluate_every = 1};
    assert_int_equal(fedge_simulation_new(&config, &self.simulation, &self.err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(self.err.message, "--validation-split"));
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_as_in_its_paper),
        cmocka_unit_test(clients_are_evaluated_by_their_own),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(what_goes_on_without_them_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
