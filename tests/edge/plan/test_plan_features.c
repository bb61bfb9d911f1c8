/* Features: a plan's "must" has each exactly where the plan needs it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"

/* LAYERS, LOSS, DATA, TRAINING and REST, in this order, are filled in. */
static const char JOB[] =
    "{\"fedge-job\": 1, \"name\": \"j\", \"model\": {\"input-shape\": [4, 4], \"layers\": [%s,"
    " {\"type\": \"Flatten\"}, {\"type\": \"Linear\", \"in_features\": %d, \"out_features\": 2%s}],"
    " \"loss\": {\"type\": %s}}, \"data\": {\"name\": \"d\", \"shape\": [4, 4], \"dtype\": \"f32\","
    " \"labels\": 2%s}, \"training\": {\"learning-rate\": 0.1%s},"
    " \"rounds\": {\"num-server-rounds\": 3}%s}";

typedef struct variant {
    const char *layer;
    int features; /* of what Flatten makes */
    const char *linear, *loss, *data, *training, *rest;
    const char *feature;
} variant;

static const variant PLAIN = {"{\"type\": \"ReLU\"}",
                              16,
                              "",
                              "\"CrossEntropyLoss\"",
                              "",
                              "",
                              ", \"update\": {\"deflate\": false}",
                              NULL};

/* What differs from PLAIN; the feature that it needs, "" for none of its own. */
static const variant VARIANTS[] = {
    {.rest = ", \"update\": {\"deflate\": true}", .feature = "deflate"},
    {.rest = ", \"update\": {\"codec\": \"f16\"}", .feature = "codec:f16"},
    {.rest = ", \"update\": {\"deflate\": false, \"error-feedback\": \"on\"}",
     .feature = "error-feedback"},
    {.rest = ", \"update\": {\"codec\": \"topk:0.1+f16\"}", .feature = "codec:topk"},
    {.rest = ", \"update\": {\"deflate\": false, \"layers\": [{\"tensors\": \"*.bias\", "
             "\"codec\": \"int8\"}]}",
     .feature = "codec-by-layer"},
    {.rest = ", \"config\": {}, \"update\": {\"deflate\": false}", .feature = "config"},
    {.rest = ", \"strategy\": {\"type\": \"SCAFFOLD\"}", .feature = "scaffold-counted"},
    {.layer = "{\"type\": \"Tanh\"}", .feature = "layer:Tanh"},
    {.loss = "\"MSELoss\"", .feature = "loss:MSELoss"},
    {.loss = "\"CrossEntropyLoss\", \"label_smoothing\": 0.1", .feature = "label-smoothing"},
    {.training = ", \"optimizer\": {\"type\": \"Adam\"}", .feature = "optimizer:Adam"},
    {.training = ", \"optimizer\": {\"type\": \"RMSprop\"}", .feature = "optimizer:RMSprop"},
    {.training = ", \"optimizer\": {\"type\": \"Lion\"}", .feature = "optimizer:Lion"},
    {.training = ", \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9, \"nesterov\": true}",
     .feature = "optimizer:nesterov"},
    {.training = ", \"clip-norm\": 1", .feature = "clip-norm"},
    {.training = ", \"proximal-mu\": 0.5", .feature = "proximal-mu"},
    {.training = ", \"precision\": \"bf16\"", .feature = "precision:bf16"},
    {.training = ", \"precision\": \"tf32\"", .feature = "precision:tf32"},
    {.training = ", \"evaluation\": \"int8\"", .feature = "evaluation:int8"},
    {.training = ", \"activations\": \"bf16\"", .feature = "activations"},
    {.training = ", \"weights\": \"bf16\"", .feature = "weights"},
    {.linear = ", \"train\": \"bias\"", .feature = "train"},
    {.linear = ", \"train-channels\": [0, 1]", .feature = "train-channels"},
    {.data = ", \"normalisation\": {\"divide-by\": 255}", .feature = "normalisation"},
    {.data = ", \"normalisation\": {\"mean\": [1], \"std\": [2]}", .feature = "normalisation"},
    {.data = ", \"augmentation\": {\"horizontal-flip\": 0.5}",
     .feature = "augmentation:horizontal-flip"},
    {.data = ", \"augmentation\": {\"crop\": {\"padding\": 1}}", .feature = "augmentation:crop"},
    {.layer = "{\"type\": \"MaxPool1d\", \"kernel_size\": 2}",
     .features = 8,
     .feature = "layer:MaxPool1d"},
    {.layer = "{\"type\": \"MaxPool1d\", \"kernel_size\": 2, \"ceil_mode\": true}",
     .features = 8,
     .feature = "pooling"},
    {.layer = "{\"type\": \"MaxPool1d\", \"kernel_size\": 2, \"stride\": 1, \"dilation\": 2}",
     .features = 8,
     .feature = "pooling"},
    {.layer = "{\"type\": \"AvgPool1d\", \"kernel_size\": 2, \"ceil_mode\": true}",
     .features = 8,
     .feature = "pooling"},
    {.layer = "{\"type\": \"LSTM\", \"input_size\": 4, \"hidden_size\": 4, \"batch_first\": true,"
              " \"bidirectional\": true}",
     .features = 32,
     .feature = "bidirectional"},
    {.layer = "{\"type\": \"GRU\", \"input_size\": 4, \"hidden_size\": 4, \"batch_first\": true,"
              " \"bidirectional\": true}",
     .features = 32,
     .feature = "bidirectional"},
};

static const char *or_plain(const char *text, const char *plain)
{
    return text ? text : plain;
}

/* The text of the plan; malloc'ed. */
static char *plan_of(const char *job_text)
{
    fedge_error err = {0};
    fedge_job *job = NULL;
    char *plan = NULL;
    size_t size = 0;
    if (fedge_job_parse(job_text, strlen(job_text), "job.json", &job, &err) ||
        fedge_plan_write(&job->plan, &plan, &size, &err))
        fail_msg("%s\n%s", job_text, err.message);
    fedge_job_free(job);
    return plan;
}

static char *plan_of_variant(const variant *v)
{
    char job[2048];
    (void)snprintf(job, sizeof(job), JOB, or_plain(v->layer, PLAIN.layer),
                   v->features ? v->features : PLAIN.features, or_plain(v->linear, PLAIN.linear),
                   or_plain(v->loss, PLAIN.loss), or_plain(v->data, PLAIN.data),
                   or_plain(v->training, PLAIN.training), or_plain(v->rest, PLAIN.rest));
    return plan_of(job);
}

/* Is [feature] in "must", which comes second in a plan? */
static bool asks(const char *plan, const char *feature)
{
    char quoted[128];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", feature);
    const char *at = strstr(plan, quoted);
    return at && at < strchr(plan, ']');
}

static void test_plain_plans_ask_for_little(void **state)
{
    (void)state;
    char *plain = plan_of_variant(&PLAIN);
    const char *expected = "{\"fedge-plan\":1,\"must\":[\"codec:int8\",\"layer:Linear\","
                           "\"layer:ReLU\",\"layer:Flatten\",\"loss:CrossEntropyLoss\","
                           "\"optimizer:SGD\"],";
    assert_memory_equal(plain, expected, strlen(expected));
    free(plain);
}

static void test_each_is_asked_for_where_it_is_needed(void **state)
{
    (void)state;
    char *plain = plan_of_variant(&PLAIN);
    for (size_t i = 0; i < sizeof(VARIANTS) / sizeof(*VARIANTS); i++) {
        char *plan = plan_of_variant(&VARIANTS[i]);
        if (!asks(plan, VARIANTS[i].feature) || asks(plain, VARIANTS[i].feature))
            fail_msg("%s\n%s", VARIANTS[i].feature, plan);
        for (size_t k = 0; k < sizeof(VARIANTS) / sizeof(*VARIANTS); k++) { /* and no other word */
            if (!strchr(VARIANTS[k].feature, ':') && strcmp(VARIANTS[k].feature, "deflate") != 0 &&
                strcmp(VARIANTS[k].feature, VARIANTS[i].feature) != 0 &&
                asks(plan, VARIANTS[k].feature))
                fail_msg("%s: %s", VARIANTS[i].feature, plan);
        }
        free(plan);
    }
    free(plain);
}

/* A codec down of some tensors' own is one of those by layer, too. */
static void test_down_by_layer(void **state)
{
    (void)state;
    static const variant BOTH = {
        .rest = ", \"update\": {\"deflate\": false, \"down\": \"int8\", \"layers\": [{\"tensors\": "
                "\"*.bias\", \"codec\": \"int8\", \"down\": \"none\"}]}"};
    char *plan = plan_of_variant(&BOTH);
    assert_true(asks(plan, "codec-by-layer"));
    assert_true(asks(plan, "down-by-layer"));
    assert_true(asks(plan, "codec:none"));
    assert_non_null(strstr(plan, "\"codec\":\"int8\",\"down\":\"none\"}"));
    free(plan);
}

/* Of a codec that only deltas of the model have, too. */
static void test_codec_down(void **state)
{
    (void)state;
    static const variant DOWN = {
        .rest = ", \"update\": {\"up\": \"int8\", \"down\": \"topk:0.1+int4+deflate\"}"};
    char *plan = plan_of_variant(&DOWN);
    assert_true(asks(plan, "codec:int8"));
    assert_true(asks(plan, "codec:topk"));
    assert_true(asks(plan, "codec:int4"));
    assert_true(asks(plan, "deflate"));
    free(plan);
}

/* A section's own codec is asked for, and travels in the plan. */
static void test_codec_by_section(void **state)
{
    (void)state;
    static const variant CONTROL = {
        .rest = ", \"update\": {\"deflate\": false, \"control\": \"bf16\"}, "
                "\"strategy\": {\"type\": \"SCAFFOLD\"}"};
    char *plan = plan_of_variant(&CONTROL);
    assert_true(asks(plan, "codec-by-section"));
    assert_true(asks(plan, "codec:bf16"));
    assert_true(asks(plan, "codec:int8"));
    assert_non_null(strstr(plan, "\"control\":\"bf16\""));
    assert_null(strstr(plan, "\"buffers\""));
    free(plan);
}

static const char IMAGES[] =
    "{\"fedge-job\": 1, \"name\": \"j\", \"model\": {\"input-shape\": [1, 32, 32], \"layers\":"
    " [{\"type\": \"%s\", \"kernel_size\": %d%s}, {\"type\": \"AdaptiveAvgPool2d\","
    " \"output_size\": 1}, {\"type\": \"BatchNorm2d\", \"num_features\": 1}, {\"type\": "
    "\"Flatten\"},"
    " {\"type\": \"Linear\", \"in_features\": 1, \"out_features\": 2}]}, \"data\": {\"name\": "
    "\"d\","
    " \"shape\": [1, 32, 32], \"dtype\": \"f32\", \"labels\": 2}, \"training\": {\"learning-rate\":"
    " 0.1}, \"rounds\": {\"num-server-rounds\": 3}}";

/* Windows of up to 256 places are as old as the layer. */
static void test_pools_of_images(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int kernel;
        const char *arguments;
        bool is_new;
    } CASES[] = {
        {"MaxPool2d", 16, "", false},
        {"MaxPool2d", 17, "", true},
        {"MaxPool2d", 3, ", \"ceil_mode\": true", true},
        {"MaxPool2d", 2, ", \"dilation\": [1, 2]", true},
        {"MaxPool2d", 2, ", \"dilation\": [2, 1]", true},
        {"AvgPool2d", 17, "", false},
        {"AvgPool2d", 3, ", \"ceil_mode\": true", true},
        {"AvgPool2d", 3, ", \"divisor_override\": 2", true},
        {"AvgPool2d", 3, ", \"count_include_pad\": false", false},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        char job[2048];
        (void)snprintf(job, sizeof(job), IMAGES, CASES[i].type, CASES[i].kernel,
                       CASES[i].arguments);
        char *plan = plan_of(job);
        assert_int_equal(asks(plan, "pooling"), CASES[i].is_new);
        assert_true(asks(plan, "buffers"));
        free(plan);
    }
}

/* Of an external model only what its updates and data need. */
static void test_external_models(void **state)
{
    (void)state;
    char *plan = plan_of(
        "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\":"
        " [{\"name\": \"w\", \"shape\": [4]}]}, \"data\": {\"name\": \"d\", \"shape\": [4],"
        " \"dtype\": \"f32\", \"labels\": 2, \"normalisation\": {\"divide-by\": 2}}, \"training\":"
        " {\"clip-norm\": 1, \"precision\": \"bf16\", \"optimizer\": {\"type\": \"Adam\"}},"
        " \"rounds\": {\"num-server-rounds\": 3}}");
    const char *expected = "{\"fedge-plan\":1,\"must\":[\"codec:int8\",\"deflate\",\"external\","
                           "\"normalisation\"],";
    assert_memory_equal(plan, expected, strlen(expected));
    free(plan);
}

/* A client that is older than what its trainer would be told has to decline. */
static void test_external_models_of_strategies(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        bool asks;
    } CASES[] = {
        {"\"FedAvg\"", false},
        {"\"FedAvg\"}, \"training\": {\"proximal-mu\": 0.1", true},
        {"\"FedNova\"", true},
        {"\"SCAFFOLD\"", true},
        {"\"QFedAvg\"", true},
        {"\"FedBuff\"", false},
        {"\"FedPer\", \"personal-tensors\": [\"head.*\", \"w\"]", true},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        char job[1024];
        (void)snprintf(job, sizeof(job),
                       "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": "
                       "\"external\", \"tensors\": [{\"name\": \"w\", \"shape\": [4]}, "
                       "{\"name\": \"head.b\", \"shape\": [2]}, {\"name\": \"v\", "
                       "\"shape\": [3]}]}, \"rounds\": "
                       "{\"num-server-rounds\": 3}, \"strategy\": {\"type\": %s}}",
                       CASES[i].strategy);
        char *plan = plan_of(job);
        assert_int_equal(asks(plan, "external:strategy"), CASES[i].asks);
        fedge_plan *read;
        assert_int_equal(fedge_plan_parse(plan, strlen(plan), &read, NULL), FEDGE_OK);
        const bool is_personal = strstr(job, "head.*") != NULL;
        assert_int_equal(read->sent.sections[0].schema.num_tensors, is_personal ? 1 : 3);
        assert_int_equal(read->personal.num_values, is_personal ? 6 : 0);
        fedge_plan_free(read);
        free(plan);
    }
}

/* Clients without them decline. */
static void test_tensors(void **state)
{
    (void)state;
    static const char *const CASES[][2] = {{"\"dtype\": \"F16\"", "tensor:F16"},
                                           {"\"dtype\": \"BF16\"", "tensor:BF16"},
                                           {"\"dtype\": \"I64\"", "tensor:I64"},
                                           {"\"frozen\": true", "tensor:frozen"},
                                           {"\"frozen\": false", NULL}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text),
                       "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\","
                       " \"tensors\": [{\"name\": \"w\", \"shape\": [4]}, {\"name\": \"v\","
                       " \"shape\": [2], %s}]}, \"rounds\": {\"num-server-rounds\": 3}}",
                       CASES[i][0]);
        char *plan = plan_of(text);
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(asks(plan, CASES[k][1]),
                             k == i || (k == 3 && i == 2)); /* integers are frozen */
        }
        free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_plans_ask_for_little),
        cmocka_unit_test(test_each_is_asked_for_where_it_is_needed),
        cmocka_unit_test(test_down_by_layer),
        cmocka_unit_test(test_codec_down),
        cmocka_unit_test(test_codec_by_section),
        cmocka_unit_test(test_pools_of_images),
        cmocka_unit_test(test_external_models),
        cmocka_unit_test(test_external_models_of_strategies),
        cmocka_unit_test(test_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
