/* Attacks: what malicious clients send, what can be asked for, and what a rule makes of it. */
#include <math.h>

#define POINTS_FILE "attacks.csv"
#include "aggregator/simulate/cohort/attacks.h"
#include "tests/aggregator/simulate/run/run.h"

#define NUM 4u /* the first lies */
#define COUNT 3u

static const int32_t UPDATES[NUM][COUNT] = {{10, -7, 900000000}, {1, 4, 5}, {2, 4, 5}, {3, 10, 5}};

static fedge_status read_honest(void *user, uint32_t index, uint32_t tensor, size_t at,
                                size_t count, int32_t *v, fedge_error *err)
{
    (void)user;
    (void)tensor;
    (void)err;
    memcpy(v, UPDATES[index] + at, count * sizeof(*v));
    return FEDGE_OK;
}

static void check_lie(const char *text, const int32_t expected[COUNT])
{
    static const bool malicious[NUM] = {true};
    fedge_attacked attacked = {.honest = {.num = NUM, .read = read_honest}, .malicious = malicious};
    int32_t v[COUNT];
    assert_int_equal(fedge_attack_parse(text, &attacked.attack, NULL), FEDGE_OK);
    const fedge_updates updates = fedge_attack_updates(&attacked);
    assert_int_equal(updates.num, NUM);
    assert_int_equal(updates.read(updates.user, 0, 0, 0, COUNT, v, NULL), FEDGE_OK);
    assert_memory_equal(v, expected, sizeof(v));
    assert_int_equal(updates.read(updates.user, 2, 0, 0, COUNT, v, NULL), FEDGE_OK);
    assert_memory_equal(v, UPDATES[2], sizeof(v));
}

static void lies_follow_their_formulas(void **state)
{
    (void)state;
    check_lie("sign-flip:1", (const int32_t[]){-40, 28, -1073741824}); /* cut at the bound */
    check_lie("ipm:1:10", (const int32_t[]){-20, -60, -50});
    /* 2 − 2 √(2/3) = 0.37, 6 − 2 √8 = 0.34, 5 */
    check_lie("alie:1:2", (const int32_t[]){0, 0, 5});
    check_lie("alie:1:0", (const int32_t[]){2, 6, 5});
}

static void what_is_no_attack_is_refused(void **state)
{
    (void)state;
    const char *wrong[] = {"",
                           "ipm",
                           "ipm:",
                           "ipm:0",
                           "ipm:-1",
                           "ipm:2x",
                           "lie:2",
                           "ipm:2:",
                           "ipm:2:-1",
                           "ipm:2:nan",
                           "ip:2",
                           "ipm:2:1x",
                           "ipm:2:1e9",
                           "ipm:99999999999",
                           "label-flip:2:1.1",
                           "backdoor:2:2"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        fedge_attack attack;
        fedge_error err;
        assert_int_equal(fedge_attack_parse(wrong[i], &attack, &err), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "sign-flip"));
        assert_null(attack.kind);
    }
}

static void data_are_spoilt_as_asked(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 2; kind++) {
        fedge_job *job = make_job("\"num-server-rounds\":1", "");
        fedge_client_data *spoilt = make_client_data(job, "iid", 10, 0.2);
        fedge_client_data *clean = make_client_data(job, "iid", 10, 0.2);
        const char *text = kind == 0 ? "label-flip:2:0.25" : "backdoor:2:0.25";
        fedge_attack attack;
        uint32_t flipped = 0, stamped = 0, expected = 0, own = 0;
        assert_int_equal(fedge_attack_parse(text, &attack, NULL), FEDGE_OK);
        assert_int_equal(fedge_attack_poison_data(&attack, &job->plan, spoilt, NULL), FEDGE_OK);
        const float *x = fedge_dataset_values(spoilt->dataset);
        const float *was = fedge_dataset_values(clean->dataset);
        const int32_t *y = fedge_dataset_labels(spoilt->dataset);
        const int32_t *label = fedge_dataset_labels(clean->dataset);
        for (uint32_t c = 0; c < 2; c++)
            expected += fedge_client_data_train(spoilt, c).count / 4;
        for (uint32_t i = 0; i < POINTS; i++) {
            const bool marked = x[2 * i] == 1.0f && x[2 * i + 1] == 1.0f;
            stamped += marked;
            flipped += y[i] != label[i];
            if (!marked)
                assert_memory_equal(x + 2 * i, was + 2 * i, 2 * sizeof(float));
            assert_true(y[i] == label[i] || y[i] == (kind == 0 ? 2 - label[i] : 0));
            assert_true(kind == 0 || y[i] == label[i] || marked);
        }
        for (uint32_t c = 0; c < 2; c++) { /* a label in the middle stays what it is */
            const fedge_view view = fedge_client_data_train(spoilt, c);
            for (uint32_t i = 3; i < view.count; i += 4)
                own += label[view.indices[i]] != (kind == 0 ? 1 : 0);
        }
        assert_int_equal(flipped, own);
        assert_true(own > 0);
        assert_int_equal(stamped, kind == 0 ? 0 : expected);
        fedge_client_data_free(spoilt);
        fedge_client_data_free(clean);
        fedge_job_free(job);
    }
}

/* The accuracy after a run of ten clients, of whom [attack]'s lie. */
static double accuracy_of(const char *strategy, const char *attack, fedge_status expected)
{
    run self = {.job = make_job("\"num-server-rounds\":12", strategy)};
    self.client_data = make_client_data(self.job, "iid", 10, 0);
    fedge_simulation_config config = {.job = self.job,
                                      .client_data = self.client_data,
                                      .test_set = self.client_data->dataset,
                                      .num_threads = 2,
                                      .evaluate_every = 1,
                                      .cancel = is_over,
                                      .on_round = on_round,
                                      .user = &self};
    if (attack) {
        assert_int_equal(fedge_attack_parse(attack, &config.attack, NULL), FEDGE_OK);
        assert_int_equal(
            fedge_attack_poison_data(&config.attack, &self.job->plan, self.client_data, NULL),
            FEDGE_OK);
    }
    assert_int_equal(fedge_simulation_new(&config, &self.simulation, &self.err), expected);
    double accuracy = NAN;
    if (expected == FEDGE_OK) {
        go(&self);
        accuracy = self.lines[self.num_lines - 1].accuracy;
    }
    end(&self);
    return accuracy;
}

static void a_rule_withstands_what_a_mean_does_not(void **state)
{
    (void)state;
    const char *mean = ",\"strategy\":{\"type\":\"FedTrimmedAvg\",\"beta\":0}";
    const char *median = ",\"strategy\":{\"type\":\"FedMedian\"}";
    const double honest = accuracy_of(mean, NULL, FEDGE_OK);
    assert_true(honest > 0.8);
    assert_true(accuracy_of(mean, "sign-flip:3:20", FEDGE_OK) < honest - 0.3);
    assert_true(accuracy_of(median, "sign-flip:3:20", FEDGE_OK) > honest - 0.1);
    assert_true(isnan(accuracy_of("", "ipm:3", FEDGE_UNSUPPORTED)));
    /* The test set is the clients' data here, so what is counted as wrong is spoilt too. */
    assert_true(accuracy_of("", "label-flip:4", FEDGE_OK) < honest - 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_follow_their_formulas),
        cmocka_unit_test(what_is_no_attack_is_refused),
        cmocka_unit_test(data_are_spoilt_as_asked),
        cmocka_unit_test(a_rule_withstands_what_a_mean_does_not),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
