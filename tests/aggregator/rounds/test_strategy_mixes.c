/* What does not go together is refused when a job is loaded: by the key, and with what to change.
 * Rounds of these jobs close with 8 updates, if they do not say otherwise. */
#include "tests/aggregator/rounds/strategy_jobs.h"

#define EXTERNAL "{\"type\": \"external\", \"tensors\": [{\"name\": \"w\", \"shape\": [3]}]}"
#define FROZEN                                                                                     \
    "{\"input-shape\": [3], \"layers\": [{\"type\": \"Linear\", \"in_features\": 3, "              \
    "\"out_features\": 4, \"train\": \"none\"}, {\"type\": \"Linear\", \"in_features\": 4, "       \
    "\"out_features\": 4}]}"
#define TEST_SET ", \"test-set\": {\"values\": \"v\", \"labels\": \"l\"}"
#define DOWN ", \"update\": {\"down\": \"int8\"}"
#define RESIDUAL ", \"update\": {\"codec\": \"topk:0.1\"}"
#define ROUNDED ", \"update\": {\"codec\": \"int8\", \"error-feedback\": \"on\"}"
#define CHOSEN ", \"update\": {\"codec\": \"randk:0.1\", \"error-feedback\": \"off\"}"
#define MOMENTUM ", \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9}"
#define ADAM ", \"optimizer\": {\"type\": \"Adam\"}"
#define PROXIMAL ", \"proximal-mu\": 0.1"
#define COSINE(more) ", \"schedule\": {\"type\": \"CosineAnnealingLR\", \"T_max\": 9" more "}"
#define VANISHING ", \"schedule\": {\"type\": \"ExponentialLR\", \"gamma\": 1e-6}"
#define INVERSE                                                                                    \
    ", \"sampler\": {\"type\": \"utility\", \"inverse-probability\": true}, "                      \
    "\"fraction-train\": 0.5"
#define BY_EXAMPLES ", \"sampler\": {\"type\": \"examples\"}, \"fraction-train\": 0.5"

typedef struct mix {
    job_parts parts;
    const char *says[2]; /* what is wrong, and what to change */
} mix;

/* Needs more updates than a round may close with. */
static const mix TOO_FEW[] = {
    {{.strategy = "{\"type\": \"Krum\", \"num-malicious-nodes\": 3}"},
     {"strategy.num-malicious-nodes: Krum with 3 malicious nodes needs 9 updates, and a round of "
      "this job may close with 8",
      "raise rounds.min-train-nodes"}},
    {{.strategy = "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 3}"},
     {"MultiKrum with 3 malicious nodes needs 9 updates", "or lower num-malicious-nodes"}},
    {{.strategy = "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 2}"},
     {"Bulyan with 2 malicious nodes needs 11 updates", "raise rounds.min-train-nodes"}},
    {{.strategy = "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 1}",
      .rounds = ", \"min-report-fraction\": 0.75"},
     {"needs 7 updates, and a round of this job may close with 6", "min-report-fraction"}},
    {{.strategy = "{\"type\": \"Krum\", \"num-malicious-nodes\": 1}",
      .rounds = ", \"min-report-fraction\": 0.5"},
     {"needs 5 updates, and a round of this job may close with 4", "min-report-fraction"}},
    {{.strategy = "{\"type\": \"FedMedian\", \"num-malicious-nodes\": 4, \"mixing\": true}"},
     {"with 4 malicious nodes and mixing needs 9 updates", "lower num-malicious-nodes"}},
    {{.strategy = "{\"type\": \"FLTrust\", \"root-set\": {\"values\": \"v\"}, "
                  "\"num-malicious-nodes\": 4, \"mixing\": true}"},
     {"FLTrust with 4 malicious nodes and mixing needs 9 updates", "lower num-malicious-nodes"}},
    {{.strategy = "{\"type\": \"RFA\", \"mixing\": true}"},
     {"strategy.mixing: ", "set num-malicious-nodes"}},
    {{.strategy =
          "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 2, \"num-nodes-to-keep\": 7}"},
     {"strategy.num-nodes-to-keep: a round may close with 8 updates, 2 of them malicious",
      "keep at most 6"}},
};

static const mix WEIGHTS[] = {
    {{.strategy = "{\"type\": \"FedMedian\"}", .rounds = INVERSE},
     {"rounds.sampler.inverse-probability: FedMedian weighs updates in its own way", "leave it"}},
    {{.strategy = "{\"type\": \"FedNova\"}", .rounds = INVERSE},
     {"FedNova weighs updates", "use FedAvg"}},
    {{.strategy = "{\"type\": \"QFedAvg\"}", .rounds = INVERSE},
     {"QFedAvg weighs updates", "use FedAvg"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .rounds = INVERSE},
     {"IFCA weighs updates", "use FedAvg"}},
    {{.strategy = "{\"type\": \"FedNova\"}", .rounds = BY_EXAMPLES},
     {"rounds.sampler.type: examples draws clients by their examples, and FedNova",
      "take uniform"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .rounds = BY_EXAMPLES},
     {"rounds.sampler.type: examples draws clients by their examples, and IFCA", "or FedAvg"}},
    {{.strategy = "{}", .rounds = ", \"sampler\": {\"inverse-probability\": true}"},
     {"uniform draws all clients with one probability", "use another type"}},
};

/* What a server would evaluate, or begin with, is not what clients have. */
static const mix MODELS_OF_CLIENTS[] = {
    {{.strategy = "{\"type\": \"FedPer\"}", .more = TEST_SET},
     {"test-set: does not go with FedPer", "remove it, and set rounds.fraction-evaluate"}},
    {{.strategy = "{\"type\": \"FedRep\"}", .more = TEST_SET},
     {"test-set: does not go with FedRep", "remove it, and set rounds.fraction-evaluate"}},
    {{.strategy = "{\"type\": \"FedBN\"}", .model = BATCHNORM, .more = TEST_SET},
     {"test-set: does not go with FedBN", "remove it, and set rounds.fraction-evaluate"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .more = TEST_SET},
     {"test-set: does not go with IFCA", "remove it, and set rounds.fraction-evaluate"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .more = ", \"initial-model\": \"m\""},
     {"initial-model: does not go with IFCA", "remove it"}},
    {{.strategy = "{\"type\": \"FedPer\", \"personal-layers\": 2}"},
     {"strategy.personal-layers: is 2, and the model has 2 layers with parameters", "lower it"}},
    {{.strategy = "{\"type\": \"FedRep\", \"personal-layers\": 2}"},
     {"strategy.personal-layers: is 2, and the model has 2 layers with parameters", "lower it"}},
    {{.strategy = "{\"type\": \"FedBN\"}"}, {"model.layers: have no BatchNorm2d", "take FedAvg"}},
    {{.strategy = "{\"type\": \"FedPer\"}", .model = EXTERNAL},
     {"strategy.personal-tensors: is missing", "such as [\"w\"]"}},
    {{.strategy = "{\"type\": \"FedBN\"}", .model = EXTERNAL},
     {"strategy.personal-tensors: is missing", "give the names"}},
    {{.strategy = "{\"type\": \"FedRep\", \"personal-tensors\": [\"w*\", \"v\"]}",
      .model = EXTERNAL},
     {"strategy.personal-tensors: has \"v\", which no tensor", "the first is \"w\""}},
    {{.strategy = "{\"type\": \"FedPer\", \"personal-tensors\": \"*\"}", .model = EXTERNAL},
     {"strategy.personal-tensors: names all tensors", "at least one must be the server's"}},
    {{.strategy = "{\"type\": \"FedPer\", \"personal-tensors\": \"1.*\"}"},
     {"strategy.personal-tensors: is for external models", "remove it"}},
    {{.strategy = "{\"type\": \"Ditto\"}", .training = ", \"weights\": \"bf16\""},
     {"training.weights: must be \"fp32\" with Ditto", "remove it"}},
    {{.strategy = "{\"type\": \"FedPer\"}", .more = RESIDUAL},
     {"update: leaves a residual, and with FedPer", "take a codec that does not choose"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .more = RESIDUAL},
     {"update: leaves a residual, and with SCAFFOLD", "take a codec that does not choose"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .more = DOWN},
     {"update.down: does not go with SCAFFOLD", "leave it away"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .more = DOWN},
     {"update.down: does not go with IFCA", "leave it away"}},
    {{.strategy = "{\"type\": \"IFCA\", \"num-clusters\": 3, \"initial-models\": \"a\"}",
      .model = EXTERNAL},
     {"strategy.initial-models: has 1 files", "2 further models need one each"}},
    {{.strategy = "{\"type\": \"IFCA\", \"initial-models\": \"a\"}"},
     {"strategy.initial-models: is for external models", "remove it"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .model = BATCHNORM},
     {"model: has BatchNorm's statistics", "take FedAvg"}},
    {{.strategy = "{\"type\": \"IFCA\"}", .model = FROZEN},
     {"model: has layers that are not trained", "take FedAvg"}},
};

static const mix TRAINING[] = {
    {{.strategy = "{\"type\": \"FedProx\", \"proximal-mu\": 1}", .training = PROXIMAL},
     {"training.proximal-mu: is in strategy.proximal-mu already", "remove"}},
    {{.strategy = "{\"type\": \"FedDyn\"}", .training = PROXIMAL},
     {"training.proximal-mu: FedDyn has a proximal term of its own", "remove"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .training = MOMENTUM},
     {"training.optimizer: SCAFFOLD's control variates hold for plain SGD", "or FedAvg"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .training = ADAM},
     {"training.optimizer: SCAFFOLD's control variates hold for plain SGD", "take SGD"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .training = PROXIMAL},
     {"training.proximal-mu: SCAFFOLD", "remove this"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\", \"num-clients\": 7}"},
     {"strategy.num-clients: 7 is less than min-available-nodes 8", "raise it"}},
    {{.strategy = "{\"type\": \"FedDyn\", \"num-clients\": 7}"},
     {"strategy.num-clients: 7 is less than min-available-nodes 8", "raise it"}},
    {{.strategy = "{\"type\": \"FedNova\"}", .training = ADAM},
     {"training.optimizer: FedNova counts the steps of SGD only", "use SGD"}},
    {{.strategy = "{\"type\": \"FLTrust\", \"root-set\": {\"values\": \"v\"}}", .model = EXTERNAL},
     {"strategy.root-set: is for models of fedge's layers", "take a rule without one"}},
    {{.strategy = "{\"type\": \"FLTrust\"}", .model = FROZEN},
     {"model: has layers that are not trained", "take another strategy"}},
    {{.strategy = "{\"type\": \"FLTrust\", \"root-set\": {\"values\": \"v\"}}", .model = FROZEN},
     {"model: has layers that are not trained", "take another strategy"}},
    {{.strategy = "{\"type\": \"FLTrust\", \"root-set\": {\"labels\": \"l\"}}"},
     {"strategy.root-set.values: is missing", ""}},
};

/* Of those that divide by the learning rate. */
static const mix NO_RATE[] = {
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .training = COSINE("")},
     {"training.schedule: makes the learning rate of round 10 0, by which SCAFFOLD divides",
      "set eta_min"}},
    {{.strategy = "{\"type\": \"QFedAvg\"}", .training = COSINE("")},
     {"training.schedule: makes the learning rate of round 10 0, by which QFedAvg divides",
      "lower num-server-rounds"}},
    {{.strategy = "{\"type\": \"SCAFFOLD\"}", .training = VANISHING}, /* as a float */
     {"makes the learning rate of round 9 0", "raise gamma"}},
};

/* Of both that go on while rounds close; the type is put before. */
static const mix WITHOUT_WAITING[] = {
    {{.rounds = ", \"over-selection\": 1.5"},
     {"rounds.over-selection: does not go with ", "remove it"}},
    {{.rounds = ", \"fraction-evaluate\": 0.5"},
     {"rounds.fraction-evaluate: does not go with ", "remove it, and use a test-set"}},
    {{.rounds = ", \"sampler\": {\"type\": \"available\"}"},
     {"rounds.sampler: does not go with ", "remove it"}},
    {{.more = DOWN}, {"update.down: does not go with ", "remove it"}},
    {{.more = RESIDUAL}, {"update: does not go with ", "take a codec that does not choose"}},
    {{.more = CHOSEN}, {"update: does not go with ", "take a codec that does not choose"}},
    {{.more = ROUNDED}, {"update: does not go with ", "without error-feedback"}},
    {{.model = BATCHNORM}, {"model.layers: ", "use GroupNorm and train all layers"}},
    {{.model = FROZEN}, {"model.layers: ", "use GroupNorm and train all layers"}},
};

static void refuse(const mix *of)
{
    fedge_job *job = NULL;
    fedge_error err;
    const fedge_status status = parse_parts(&of->parts, &job, &err);
    if (status != FEDGE_INVALID_ARGUMENT || !strstr(err.message, of->says[0]) ||
        !strstr(err.message, of->says[1])) {
        fail_msg("%s gave %d \"%s\"\n  expected \"%s … %s\"", of->parts.strategy, (int)status,
                 err.message, of->says[0], of->says[1]);
    }
    assert_null(job);
}

#define REFUSE_ALL(list)                                                                           \
    for (size_t i = 0; i < sizeof(list) / sizeof((list)[0]); i++)                                  \
    refuse(&(list)[i])

static void rules_need_enough_updates(void **state)
{
    (void)state;
    REFUSE_ALL(TOO_FEW);
}

static void the_next_fewer_malicious_nodes_are_fine(void **state)
{
    (void)state;
    static const char *const FINE[] = {
        "{\"type\": \"Krum\", \"num-malicious-nodes\": 2}",
        "{\"type\": \"MultiKrum\", \"num-malicious-nodes\": 2, \"num-nodes-to-keep\": 6}",
        "{\"type\": \"Bulyan\", \"num-malicious-nodes\": 1}",
        "{\"type\": \"FedMedian\", \"num-malicious-nodes\": 3, \"mixing\": true}",
    };
    for (size_t i = 0; i < sizeof(FINE) / sizeof(FINE[0]); i++) {
        fedge_job *job = NULL;
        fedge_error err;
        if (parse_parts(&(job_parts){.strategy = FINE[i]}, &job, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        fedge_job_free(job);
    }
}

static void weights_against_the_draw_need_weights(void **state)
{
    (void)state;
    REFUSE_ALL(WEIGHTS);
}

static void a_server_does_not_have_the_models_of_clients(void **state)
{
    (void)state;
    REFUSE_ALL(MODELS_OF_CLIENTS);
}

static void training_is_as_the_strategy_needs_it(void **state)
{
    (void)state;
    REFUSE_ALL(TRAINING);
}

static void a_rate_that_is_divided_by_is_not_0(void **state)
{
    (void)state;
    static const job_parts FINE[] = {
        {.strategy = "{\"type\": \"SCAFFOLD\"}", .training = COSINE(", \"eta_min\": 1e-4")},
        {.strategy = "{\"type\": \"QFedAvg\"}", .training = COSINE(", \"eta_min\": 1e-4")},
        {.strategy = "{\"type\": \"FedAvg\"}", .training = COSINE("")},
    };
    REFUSE_ALL(NO_RATE);
    for (size_t i = 0; i < sizeof(FINE) / sizeof(FINE[0]); i++) {
        fedge_job *job = NULL;
        fedge_error err;
        const char *key = NULL;
        if (parse_parts(&FINE[i], &job, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        job->rounds.num_server_rounds = 2000; /* as where a run is made longer */
        assert_int_equal(fedge_job_check_rates(job, &key, &err), FEDGE_OK);
        fedge_job_free(job);
    }
}

static void nobody_waits(void **state)
{
    (void)state;
    static const char *const TYPES[] = {"{\"type\": \"FedBuff\"}", "{\"type\": \"FedAsync\"}"};
    for (size_t t = 0; t < 2; t++) {
        for (size_t i = 0; i < sizeof(WITHOUT_WAITING) / sizeof(WITHOUT_WAITING[0]); i++) {
            mix of = WITHOUT_WAITING[i];
            of.parts.strategy = TYPES[t];
            refuse(&of);
        }
    }
    refuse(&(mix){{.strategy = "{\"type\": \"FedBuff\", \"buffer-size\": 9}",
                   .rounds = ", \"max-cohort\": 8"},
                  {"strategy.buffer-size: does not go with FedBuff", "raise rounds.max-cohort"}});
}

/* All rules that look at updates one by one, by the table, but those that have models beside the
 * server's (IFCA says so in its own words). */
static void rules_do_not_guard_statistics(void **state)
{
    (void)state;
    unsigned count = 0;
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        const fedge_strategy_ops *ops = (const fedge_strategy_ops *)fedge_strategy_readers[i];
        fedge_job *job = NULL;
        fedge_error err;
        if (!ops->collects)
            continue;
        cJSON *strategy = least_strategy(fedge_strategy_readers[i]);
        assert_int_equal(
            parse_strategy_object(strategy, &(job_parts){.model = BATCHNORM}, &job, &err),
            FEDGE_INVALID_ARGUMENT);
        if (!ops->broadcast && (!strstr(err.message, "model.layers: ") ||
                                !strstr(err.message, "use GroupNorm in the model, or FedAvg")))
            fail_msg("%s gave %s", fedge_strategy_readers[i]->name, err.message);
        cJSON_Delete(strategy);
        count++;
    }
    assert_int_equal(count, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_need_enough_updates),
        cmocka_unit_test(the_next_fewer_malicious_nodes_are_fine),
        cmocka_unit_test(weights_against_the_draw_need_weights),
        cmocka_unit_test(a_server_does_not_have_the_models_of_clients),
        cmocka_unit_test(training_is_as_the_strategy_needs_it),
        cmocka_unit_test(a_rate_that_is_divided_by_is_not_0),
        cmocka_unit_test(nobody_waits),
        cmocka_unit_test(rules_do_not_guard_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
