/* Plans: there and back with the same bytes, lenient reading, and what "must" refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"
#include "tests/edge/core/codec/schemas.h"
#include "tests/edge/data/data_files.h"

static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"cnn\", \"seed\": 9007199254740991,"
    " \"model\": {\"input-shape\": [3, 8, 8], \"layers\": ["
    "  {\"type\": \"Conv2d\", \"in_channels\": 3, \"out_channels\": 4, \"kernel_size\": [3, 1],"
    "   \"padding\": [1, 0], \"bias\": false},"
    "  {\"type\": \"ReLU\"}, {\"type\": \"MaxPool2d\", \"kernel_size\": 2}, {\"type\": "
    "\"Flatten\"},"
    "  {\"type\": \"Linear\", \"name\": \"head.fc\", \"in_features\": 64, \"out_features\": 5}]},"
    " \"data\": {\"name\": \"d\", \"shape\": [3, 8, 8], \"dtype\": \"u8\", \"labels\": 5,"
    "  \"normalisation\": {\"divide-by\": 255, \"mean\": [0.1, 0.2, 0.3], \"std\": [0.3, 0.2, "
    "0.1]}},"
    " \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}";

static const char PLAN[] =
    "{\"fedge-plan\":1,\"must\":[\"codec:int8\",\"deflate\",\"layer:Linear\",\"layer:Conv2d\","
    "\"layer:MaxPool2d\",\"layer:ReLU\",\"layer:Flatten\",\"loss:CrossEntropyLoss\","
    "\"optimizer:SGD\",\"normalisation\"],\"name\":\"cnn\",\"seed\":9007199254740991,"
    "\"model\":{\"input-shape\":[3,8,8],\"layers\":[{\"type\":\"Conv2d\",\"in_channels\":3,"
    "\"out_channels\":4,\"kernel_size\":[3,1],\"padding\":[1,0],\"bias\":false},{\"type\":\"ReLU\"}"
    ","
    "{\"type\":\"MaxPool2d\",\"kernel_size\":[2,2],\"stride\":[2,2]},{\"type\":\"Flatten\"},"
    "{\"type\":\"Linear\",\"name\":\"head.fc\",\"in_features\":64,\"out_features\":5,"
    "\"bias\":true}],\"loss\":{\"type\":\"CrossEntropyLoss\"}},\"data\":{\"name\":\"d\","
    "\"shape\":[3,8,8],\"dtype\":\"u8\",\"labels\":5,\"normalisation\":{\"divide-by\":255,"
    "\"mean\":[0.1,0.2,0.3],\"std\":[0.3,0.2,0.1]}},\"training\":{\"local-epochs\":1,"
    "\"local-steps\":0,\"batch-size\":32,\"learning-rate\":0.1,\"optimizer\":{\"type\":\"SGD\"},"
    "\"schedule\":{\"type\":\"ConstantLR\"}},\"update\":{\"codec\":\"int8\",\"deflate\":true,"
    "\"bound-log2\":2}}";

static const char EXTERNAL[] =
    "{\"fedge-plan\":1,\"must\":[\"codec:none\",\"external\"],\"name\":\"own\",\"seed\":0,"
    "\"model\":{\"type\":\"external\",\"tensors\":[{\"name\":\"w\",\"shape\":[10,2],"
    "\"dtype\":\"F32\"},{\"name\":\"b\",\"shape\":[],\"dtype\":\"F32\"}]},"
    "\"training\":{\"local-epochs\":1,\"local-steps\":0,\"batch-size\":32,\"learning-rate\":0,"
    "\"optimizer\":{\"type\":\"SGD\"},\"schedule\":{\"type\":\"ConstantLR\"}},"
    "\"update\":{\"codec\":\"none\",\"deflate\":false,\"bound-log2\":0}}";

static void expect_text(const fedge_plan *plan, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    fedge_error err = {0};
    if (fedge_plan_write(plan, &text, &size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static fedge_plan *parse(const char *text)
{
    fedge_plan *plan = NULL;
    fedge_error err = {0};
    if (fedge_plan_parse(text, strlen(text), &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return plan;
}

/* [text] with [from] replaced by [to] is refused. */
static void expect(const char *text, const char *from, const char *to, fedge_status status,
                   const char *part)
{
    char changed[4096];
    const char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to,
                   at + strlen(from));
    fedge_plan *plan = NULL;
    fedge_error err = {0};
    fedge_status st = fedge_plan_parse(changed, strlen(changed), &plan, &err);
    if (st != status || !strstr(err.message, part)) {
        fail_msg("%s -> %s\n  gave %s: %s\n  expected %s: %s", from, to, fedge_status_text(st),
                 err.message, fedge_status_text(status), part);
    }
    fedge_plan_free(plan);
}

static void plans_come_from_jobs_and_read_back(void **state)
{
    (void)state;
    fedge_job *job = NULL;
    fedge_error err = {0};
    if (fedge_job_parse(JOB, strlen(JOB), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    expect_text(&job->plan, PLAN);
    fedge_plan *plan = parse(PLAN);
    expect_text(plan, PLAN);
    assert_schemas_equal(&job->plan.schema, &plan->schema);
    assert_memory_equal(&plan->training, &job->plan.training, sizeof(plan->training));
    expect_same_data(&plan->data, &job->plan.data);
    fedge_plan_free(plan);
    fedge_job_free(job);
}

/* A job of tabular data with a mean and a std for each of [features]; malloc'ed. */
static char *tabular_job(unsigned features)
{
    const size_t room = 1024 + 32 * (size_t)features;
    char *text = malloc(room);
    assert_non_null(text);
    size_t at = (size_t)snprintf(
        text, room,
        "{\"fedge-job\": 1, \"name\": \"table\", \"model\": {\"input-shape\": [%u], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": %u, \"out_features\": 2}]}, \"data\": {\"name\":"
        "\"d\", \"shape\": [%u], \"dtype\": \"f32\", \"labels\": 2, \"normalisation\": {\"mean\": "
        "[",
        features, features, features);
    for (unsigned i = 0; i < features; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%u.5", i ? "," : "", i);
    at += (size_t)snprintf(text + at, room - at, "], \"std\": [");
    for (unsigned i = 0; i < features; i++)
        at += (size_t)snprintf(text + at, room - at, "%s0.%u1", i ? "," : "", i);
    at += (size_t)snprintf(text + at, room - at,
                           "]}}, \"training\": {\"learning-rate\": 0.1}, \"rounds\": "
                           "{\"num-server-rounds\": 3}}");
    assert_true(at < room);
    return text;
}

/* More than 16 values are asked for by name: clients that cannot do them decline. */
static void every_feature_has_its_normalisation(void **state)
{
    (void)state;
    static const unsigned FEATURES[] = {16, 17, FEDGE_MAX_NORMALISED};
    for (size_t i = 0; i < sizeof(FEATURES) / sizeof(FEATURES[0]); i++) {
        char *text = tabular_job(FEATURES[i]), *written = NULL;
        size_t size = 0;
        fedge_job *job = NULL;
        fedge_error err = {0};
        if (fedge_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        const fedge_data_spec *data = &job->plan.data;
        assert_int_equal(data->num_channels, FEATURES[i]);
        assert_true(data->mean[0] == 0.5f && data->mean[15] == 15.5f && data->std[15] == 0.151f);
        assert_true(data->mean[FEATURES[i] - 1] == (float)FEATURES[i] - 0.5f);
        assert_int_equal(fedge_plan_write(&job->plan, &written, &size, &err), FEDGE_OK);
        assert_int_equal(strstr(written, "\"normalisation:features\"") != NULL, FEATURES[i] > 16);
        assert_true(strstr(written, "\"normalisation\",") || /* in the list, no key */
                    strstr(written, "\"normalisation\"]"));
        fedge_plan *plan = parse(written);
        expect_same_data(&plan->data, data);
        fedge_plan_free(plan);
        fedge_job_free(job);
        free(written);
        free(text);
    }
    char *text = tabular_job(FEDGE_MAX_NORMALISED + 1);
    fedge_job *job = NULL;
    fedge_error err = {0};
    assert_int_equal(fedge_job_parse(text, strlen(text), "job.json", &job, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "data.normalisation.mean: must have 0 to 8192 elements"));
    free(text);
}

static void external_plans_read_back(void **state)
{
    (void)state;
    fedge_plan *plan = parse(EXTERNAL);
    assert_true(plan->external);
    assert_int_equal(plan->schema.num_elements, 21);
    expect_text(plan, EXTERNAL);
    fedge_plan_free(plan);
}

static void configs_travel_as_they_are(void **state)
{
    (void)state;
    static const char CONFIG[] = "{\"warm-up\":[1,0.5,null],\"deep\":{\"a\":\"b\"}}";
    static const char TENSORS[] = "\"own\",\"seed\":0,";
    char text[4096];
    const char *at = strstr(EXTERNAL, ",\"training\"");
    assert_non_null(at);
    (void)snprintf(text, sizeof(text), "%.*s,\"config\":%s%s", (int)(at - EXTERNAL), EXTERNAL,
                   CONFIG, at);
    fedge_plan *plan = parse(text);
    assert_string_equal(plan->config, CONFIG);
    fedge_plan_free(plan);
    expect(EXTERNAL, TENSORS, "\"own\",\"config\":3,\"seed\":0,", FEDGE_CORRUPT,
           "config: must be an object");
}

static void unknown_keys_are_skipped_unless_they_must_be_known(void **state)
{
    (void)state;
    expect(PLAN, "\"seed\"", "\"privacy\":{\"epsilon\":1},\"seed\"", FEDGE_OK, "");
    expect(PLAN, "\"batch-size\"", "\"shuffle\":true,\"batch-size\"", FEDGE_OK, "");
    expect(PLAN, "\"deflate\",", "\"deflate\",\"privacy\",", FEDGE_UNSUPPORTED,
           "plan: must[2]: this release (");
    expect(PLAN, "\"codec:int8\"", "\"codec:int3\"", FEDGE_UNSUPPORTED,
           "cannot do \"codec:int3\"; a newer one may");
    expect(PLAN, "\"fedge-plan\":1", "\"fedge-plan\":2", FEDGE_UNSUPPORTED, "this release knows 1");
}

static void layers_may_be_made_again(void **state)
{
    (void)state;
    fedge_plan *plan = parse(PLAN);
    char *text = NULL;
    size_t size = 0;
    assert_false(plan->model.layers[0].recompute);
    plan->model.layers[1].recompute = true;
    assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
    fedge_plan_free(plan);
    plan = parse(text);
    assert_true(!plan->model.layers[0].recompute && plan->model.layers[1].recompute);
    fedge_plan_free(plan);
    free(text);
}

/* A micro-batch reaches the model's options, is written when it is given, and may not be larger
 * than the batch. */
static void micro_batches_are_optional(void **state)
{
    (void)state;
    fedge_plan *plan = parse(PLAN);
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_plan_model_options(plan).micro_batch, 0);
    assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
    assert_null(strstr(text, "micro"));
    free(text);
    plan->training.micro_batch_size = 1;
    assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
    fedge_plan_free(plan);
    plan = parse(text);
    assert_int_equal(fedge_plan_model_options(plan).micro_batch, 1);
    plan->training.micro_batch_size = 0;
    plan->training.optimizer.type = FEDGE_OPTIMIZER_ADAM; /* not on the fused stages */
    plan->training.batch_size = 2048;
    const uint32_t chosen = fedge_plan_model_options(plan).micro_batch;
    assert_in_range(chosen, 1, 2047);
    plan->training.micro_batch_size = 2048; /* all at once */
    assert_int_equal(fedge_plan_model_options(plan).micro_batch, 2048);
    fedge_plan_free(plan);
    free(text);
    expect(PLAN, "\"batch-size\"", "\"micro-batch-size\":65536,\"batch-size\"", FEDGE_CORRUPT,
           "training.micro-batch-size: is 65536, over batch-size");
}

/* What is not the default is written, must be known, and reaches the model's options. */
static void precision_is_asked_for_by_name(void **state)
{
    (void)state;
    fedge_plan *plan = parse(PLAN);
    assert_int_equal(fedge_plan_model_options(plan).precision, FEDGE_PRECISION_FP32);
    fedge_model_options evaluation;
    assert_false(fedge_plan_evaluation_options(plan, &evaluation));
    plan->training.precision = FEDGE_PRECISION_BF16;
    plan->training.evaluation = FEDGE_EVALUATION_INT8;
    plan->training.activations = FEDGE_STORAGE_FP16;
    plan->training.weights = FEDGE_STORAGE_BF16;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
    fedge_plan_free(plan);
    assert_non_null(strstr(text, "\"precision:bf16\""));
    assert_non_null(strstr(text, "\"precision\":\"bf16\""));
    assert_non_null(strstr(text, "\"evaluation:int8\""));
    assert_non_null(strstr(text, "\"evaluation\":\"int8\""));
    plan = parse(text);
    assert_int_equal(fedge_plan_model_options(plan).precision, FEDGE_PRECISION_BF16);
    assert_non_null(strstr(text, "\"activations\":\"fp16\""));
    assert_int_equal(fedge_plan_model_options(plan).activations, FEDGE_STORAGE_FP16);
    assert_int_equal(fedge_plan_model_options(plan).weights, FEDGE_STORAGE_BF16);
    assert_true(fedge_plan_evaluation_options(plan, &evaluation));
    assert_false(evaluation.training);
    assert_int_equal(evaluation.precision, FEDGE_PRECISION_INT8);
    fedge_plan_free(plan);
    free(text);
}

/* Arguments that older clients do not know, and would skip. */
static void new_arguments_must_be_known(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) {
        fedge_plan *plan = parse(PLAN);
        fedge_layer_spec *pool = &plan->model.layers[2];
        pool->u.maxpool2d.ceil_mode = i == 1;
        pool->u.maxpool2d.dilation[1] = i == 2 ? 2 : 1;
        pool->u.maxpool2d.kernel_size[0] = i == 3 ? 129 : 2;
        plan->model.label_smoothing = i == 4 ? 0.25f : 0;
        if (i > 4) {
            *pool = (fedge_layer_spec){.type = FEDGE_LAYER_AVGPOOL2D};
            pool->u.avgpool2d.ceil_mode = i == 5;
            pool->u.avgpool2d.divisor_override = i == 6 ? 3 : 0;
        }
        char *text = NULL;
        size_t size = 0;
        assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
        assert_int_equal(strstr(text, "\"pooling\"") != NULL, i != 0 && i != 4);
        assert_int_equal(strstr(text, "\"label-smoothing\"") != NULL, i == 4);
        assert_int_equal(strstr(text, "\"label_smoothing\":0.25") != NULL, i == 4);
        free(text);
        fedge_plan_free(plan);
    }
}

static void two_directions_must_be_known(void **state)
{
    (void)state;
    static const fedge_layer_type TYPES[] = {FEDGE_LAYER_LSTM, FEDGE_LAYER_GRU};
    for (int i = 0; i < 4; i++) {
        fedge_plan *plan = parse(PLAN);
        fedge_layer_spec *layer = &plan->model.layers[0];
        *layer = (fedge_layer_spec){.type = TYPES[i / 2]};
        layer->u.recurrent.input_size = layer->u.recurrent.hidden_size = 4;
        layer->u.recurrent.num_layers = 1;
        layer->u.recurrent.batch_first = true;
        layer->u.recurrent.bidirectional = i % 2 != 0;
        char *text = NULL;
        size_t size = 0;
        assert_int_equal(fedge_plan_write(plan, &text, &size, NULL), FEDGE_OK);
        assert_int_equal(strstr(text, "\"bidirectional\"],") != NULL, i % 2 != 0);
        assert_int_equal(strstr(text, "\"bidirectional\":true") != NULL, i % 2 != 0);
        free(text);
        fedge_plan_free(plan);
    }
}

static void broken_plans_are_corrupt(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *part;
    } CASES[] = {
        {"{\"fedge-plan\":1,", "{", "fedge-plan: is missing"},
        {"\"must\":[", "\"must\":7,\"x\":[", "must: must be a list"},
        {"\"must\":[", "\"must\":[7,", "must[0]: must be a text"},
        {"\"name\":\"cnn\",", "", "name: is missing"},
        {"\"name\":\"cnn\",", "\"name\":\"cnn\",\"name\":\"cnn\",", "name: is given twice"},
        {"\"seed\":9007199254740991", "\"seed\":-1", "seed: -1 is not in"},
        {"\"in_features\":64", "\"in_features\":65", "model.layers[4]: "},
        {"\"labels\":5", "\"labels\":6", "data.labels: is 6"},
        {"\"batch-size\"", "\"precision\":\"int8\",\"batch-size\"",
         "precision: \"int8\" is not known"},
        {"\"batch-size\"", "\"precision\":\"fp8\",\"batch-size\"",
         "precision: \"fp8\" is not known"},
        {"\"learning-rate\":0.1", "\"learning-rate\":\"0.1\"", "learning-rate: must be a number"},
        {"\"codec\":\"int8\"", "\"codec\":\"int5\"", "update.codec: \"int5\" is not known"},
        {"\"mean\":[0.1,0.2,0.3],", "\"mean\":[0.1,0.2],", "has 3 elements, but the list that"},
        {"\"mean\":[0.1,0.2,0.3],\"std\":[0.3,0.2,0.1]", "\"mean\":[1,2],\"std\":[1,2]",
         "give 1 for all or 3"},
        {"\"mean\":[0.1,0.2,0.3],", "", "std: needs \"mean\" too"},
        {",\"std\":[0.3,0.2,0.1]", "", "std: is missing"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect(PLAN, CASES[i].from, CASES[i].to, FEDGE_CORRUPT, CASES[i].part);
    fedge_plan *plan = NULL;
    fedge_error err;
    for (size_t cut = 0; cut < strlen(PLAN); cut += 7)
        assert_int_equal(fedge_plan_parse(PLAN, cut, &plan, &err), FEDGE_CORRUPT);
    char *big = calloc(1, FEDGE_PLAN_MAX_SIZE + 1);
    assert_int_equal(fedge_plan_parse(big, FEDGE_PLAN_MAX_SIZE + 1, &plan, &err), FEDGE_TOO_BIG);
    free(big);
    assert_null(plan);
}

static void every_codec_and_layer_is_a_feature(void **state)
{
    (void)state;
    unsigned codecs = 0, layers = 0, count = 0;
    for (const char *name = NULL; (name = fedge_plan_feature(count)) != NULL; count++) {
        assert_true(strlen(name) < FEDGE_MAX_FEATURE);
        for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++)
            codecs += strncmp(name, "codec:", 6) == 0 && strcmp(name + 6, fedge_codec_name(i)) == 0;
        for (int i = 0; i < FEDGE_LAYER_COUNT; i++) {
            layers += strncmp(name, "layer:", 6) == 0 &&
                      strcmp(name + 6, fedge_layer_type_name((fedge_layer_type)i)) == 0;
        }
    }
    assert_int_equal(codecs, FEDGE_CODEC_COUNT);
    assert_int_equal(layers, FEDGE_LAYER_COUNT);
    assert_in_range(count, 1, FEDGE_MAX_FEATURES);
}

/* Targets that a loss of one output cannot learn. */
static void labels_of_one_output(void **state)
{
    (void)state;
    static const struct {
        const char *loss;
        unsigned labels;
        const char *part; /* of the message; NULL: none */
    } CASES[] = {
        {"BCEWithLogitsLoss", 2, NULL},
        {"BCEWithLogitsLoss", 1, "data.labels: is 1, but BCEWithLogitsLoss of one output"},
        {"BCEWithLogitsLoss", 3, "data.labels: is 3, but BCEWithLogitsLoss of one output"},
        {"MSELoss", 3, NULL},
        {"CrossEntropyLoss", 1, "model.loss: CrossEntropyLoss of one output is always 0"},
        {"CrossEntropyLoss", 2, "model.loss: CrossEntropyLoss of one output is always 0"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[1024];
        fedge_job *job = NULL;
        fedge_error err = {0};
        (void)snprintf(text, sizeof(text),
                       "{\"fedge-job\": 1, \"name\": \"one\", \"model\": {\"input-shape\": [4],"
                       " \"layers\": [{\"type\": \"Linear\", \"in_features\": 4,"
                       " \"out_features\": 1}], \"loss\": {\"type\": \"%s\"}},"
                       " \"data\": {\"name\": \"d\", \"shape\": [4], \"dtype\": \"f32\","
                       " \"labels\": %u}, \"training\": {\"learning-rate\": 0.1},"
                       " \"rounds\": {\"num-server-rounds\": 1}}",
                       CASES[i].loss, CASES[i].labels);
        const fedge_status st = fedge_job_parse(text, strlen(text), "job.json", &job, &err);
        if (!CASES[i].part ? st != FEDGE_OK
                           : st != FEDGE_INVALID_ARGUMENT || !strstr(err.message, CASES[i].part))
            fail_msg("%s, %u labels: %s", CASES[i].loss, CASES[i].labels, err.message);
        fedge_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_come_from_jobs_and_read_back),
        cmocka_unit_test(every_feature_has_its_normalisation),
        cmocka_unit_test(external_plans_read_back),
        cmocka_unit_test(configs_travel_as_they_are),
        cmocka_unit_test(unknown_keys_are_skipped_unless_they_must_be_known),
        cmocka_unit_test(new_arguments_must_be_known),
        cmocka_unit_test(two_directions_must_be_known),
        cmocka_unit_test(layers_may_be_made_again),
        cmocka_unit_test(micro_batches_are_optional),
        cmocka_unit_test(labels_of_one_output),
        cmocka_unit_test(precision_is_asked_for_by_name),
        cmocka_unit_test(broken_plans_are_corrupt),
        cmocka_unit_test(every_codec_and_layer_is_a_feature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
