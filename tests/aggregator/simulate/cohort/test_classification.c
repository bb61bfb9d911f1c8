#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/evaluation.h"
#include "edge/core/rng.h"

#define MANY 500u
#define CLASSES 7u

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

/* Classes 3 and 5 occur nowhere, 4 as a prediction only: it counts in the means, they do not. */
static void counts_are_those_by_hand(void **state)
{
    (void)state;
    static const int32_t labels[] = {0, 9, 0, 0, 1, 1, 2, 2, 2, 2};
    static const uint32_t indices[] = {0, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int32_t predicted[] = {0, 0, 1, 1, 4, 2, 2, 0, 2};
    static const char expected[] =
        "\"per_class\":{\"support\":[3,2,4,0,0,0],\"predicted\":[3,2,3,0,1,0],"
        "\"precision\":[0.66666666666666663,0.5,1,null,0,null],"
        "\"recall\":[0.66666666666666663,0.5,0.75,null,0,null],"
        "\"f1\":[0.66666666666666663,0.5,0.857142857142857,null,0,null]},"
        "\"confusion_matrix\":[[2,1,0,0,0,0],[0,1,0,0,1,0],[1,0,3,0,0,0],[0,0,0,0,0,0],"
        "[0,0,0,0,0,0],[0,0,0,0,0,0]]}";
    fedge_classification of;
    fedge_error err;
    assert_int_equal(fedge_classification_init(&of, 6, labels, indices, predicted, 9, &err),
                     FEDGE_OK);
    assert_true(near(of.macro_precision, (2.0 / 3.0 + 0.5 + 1.0 + 0.0) / 4.0));
    assert_true(near(of.macro_recall, (2.0 / 3.0 + 0.5 + 0.75 + 0.0) / 4.0));
    assert_true(near(of.macro_f1, (2.0 / 3.0 + 0.5 + 6.0 / 7.0 + 0.0) / 4.0));
    cJSON *json = cJSON_CreateObject();
    assert_true(fedge_classification_add(json, &of));
    char *text = cJSON_PrintUnformatted(json);
    if (!strstr(text, expected))
        fail_msg("%s is not in %s", expected, text);
    free(text);
    cJSON_Delete(json);
    fedge_classification_fini(&of);
    assert_int_equal(of.num_classes, 0);
}

/* F1 as the harmonic mean of precision and recall, each by counting anew. */
static void means_are_those_of_the_formulas(void **state)
{
    (void)state;
    int32_t labels[MANY], predicted[MANY];
    uint32_t indices[MANY];
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (uint32_t i = 0; i < MANY; i++) {
        labels[i] = (int32_t)fedge_rng_below(&rng, CLASSES);
        predicted[i] = fedge_rng_below(&rng, 2) ? labels[i] : (int32_t)fedge_rng_below(&rng, 5);
        indices[i] = i;
    }
    double precision = 0.0, recall = 0.0, f1 = 0.0;
    for (int32_t c = 0; c < (int32_t)CLASSES; c++) {
        double both = 0.0, of_label = 0.0, of_prediction = 0.0;
        for (uint32_t i = 0; i < MANY; i++) {
            of_label += labels[i] == c;
            of_prediction += predicted[i] == c;
            both += labels[i] == c && predicted[i] == c;
        }
        const double p = both / of_prediction, r = both / of_label;
        precision += p / CLASSES;
        recall += r / CLASSES;
        f1 += 2.0 * p * r / (p + r) / CLASSES;
    }
    fedge_classification of;
    fedge_error err;
    assert_int_equal(
        fedge_classification_init(&of, CLASSES, labels, indices, predicted, MANY, &err), FEDGE_OK);
    assert_true(near(of.macro_precision, precision));
    assert_true(near(of.macro_recall, recall));
    assert_true(near(of.macro_f1, f1));
    fedge_classification_fini(&of);
}

/* Beyond the limits the means are there all the same. */
static void many_classes_are_not_listed(void **state)
{
    (void)state;
    static const int32_t label = 100, predicted = 101;
    static const uint32_t index = 0;
    static const uint32_t nums[] = {FEDGE_CONFUSION_MAX_CLASSES + 1, FEDGE_CLASSES_MAX_LISTED + 1};
    for (int i = 0; i < 2; i++) {
        fedge_classification of;
        fedge_error err;
        assert_int_equal(
            fedge_classification_init(&of, nums[i], &label, &index, &predicted, 1, &err), FEDGE_OK);
        assert_null(of.confusion);
        cJSON *json = cJSON_CreateObject();
        assert_true(fedge_classification_add(json, &of));
        assert_true(cJSON_GetObjectItem(json, "macro_f1")->valuedouble == 0.0);
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "confusion_matrix")));
        assert_int_equal(cJSON_IsNull(cJSON_GetObjectItem(json, "per_class")), i == 1);
        cJSON_Delete(json);
        fedge_classification_fini(&of);
    }
}

static fedge_model_spec linear(uint32_t outputs, fedge_loss_type loss)
{
    fedge_model_spec spec = {.input_rank = 1, .input_shape = {2}, .loss = loss, .num_layers = 1};
    spec.layers[0].type = FEDGE_LAYER_LINEAR;
    spec.layers[0].u.linear.in_features = 2;
    spec.layers[0].u.linear.out_features = outputs;
    return spec;
}

static void outputs_stand_for_classes(void **state)
{
    (void)state;
    static const float three[] = {1, 3, 2, 5, 5, 1, -3, -2, -1}, one[] = {-1, 0, 0.5f};
    static const int32_t of_three[] = {1, 0, 2}, of_one[] = {0, 0, 1};
    int32_t predicted[3];
    fedge_model_spec spec = linear(3, FEDGE_LOSS_CROSS_ENTROPY);
    fedge_classify(&spec, three, 3, predicted);
    assert_memory_equal(predicted, of_three, sizeof(predicted));
    spec = linear(1, FEDGE_LOSS_BCE_WITH_LOGITS);
    fedge_classify(&spec, one, 3, predicted);
    assert_memory_equal(predicted, of_one, sizeof(predicted));
}

static void clients_are_those_by_hand(void **state)
{
    (void)state;
    static const uint64_t correct[] = {5, 0, 10, 8};
    static const uint32_t examples[] = {10, 4, 10, 40};
    static const double quantiles[] = {0.0, 0.06, 0.15, 0.35, 0.625, 0.85, 1.0};
    double room[4];
    fedge_client_accuracies of = {.num_eligible = 9};
    fedge_client_accuracies_measure(&of, correct, examples, 4, room);
    assert_int_equal(of.num_clients, 4);
    assert_int_equal(of.num_examples, 64);
    assert_true(near(of.mean, 0.425) && near(of.weighted_mean, 23.0 / 64.0));
    assert_true(near(of.deviation, sqrt(0.5675 / 4.0)));
    assert_true(near(of.worst_tenth, 0.0) && near(of.best_tenth, 1.0));
    for (int q = 0; q < FEDGE_ACCURACY_QUANTILES; q++)
        assert_true(near(of.quantiles.values[q], quantiles[q]));
    cJSON *json = cJSON_CreateObject();
    assert_true(fedge_client_accuracies_add(json, &of));
    const cJSON *to = cJSON_GetObjectItem(json, "per_client_accuracy");
    assert_string_equal(cJSON_GetObjectItem(to, "set")->valuestring, "training");
    assert_true(cJSON_GetObjectItem(to, "clients_with_examples")->valuedouble == 9);
    assert_true(near(cJSON_GetObjectItem(cJSON_GetObjectItem(to, "quantiles"), "0.75")->valuedouble,
                     0.625));
    cJSON_Delete(json);
}

/* Three of 25; and one client is all there is. */
static void tenths_are_rounded_up(void **state)
{
    (void)state;
    uint64_t correct[25];
    uint32_t examples[25];
    double room[25];
    fedge_client_accuracies of = {0};
    for (uint32_t c = 0; c < 25; c++) {
        correct[c] = 24 - c;
        examples[c] = 100;
    }
    fedge_client_accuracies_measure(&of, correct, examples, 25, room);
    assert_true(near(of.worst_tenth, 0.01) && near(of.best_tenth, 0.23));
    fedge_client_accuracies_measure(&of, correct, examples, 1, room);
    assert_true(near(of.worst_tenth, 0.24) && near(of.best_tenth, 0.24));
    assert_true(near(of.quantiles.values[0], 0.24) && near(of.quantiles.values[3], 0.24));
    assert_true(of.deviation == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_by_hand),
        cmocka_unit_test(means_are_those_of_the_formulas),
        cmocka_unit_test(many_classes_are_not_listed),
        cmocka_unit_test(outputs_stand_for_classes),
        cmocka_unit_test(clients_are_those_by_hand),
        cmocka_unit_test(tenths_are_rounded_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
