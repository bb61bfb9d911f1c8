/* Jobs: every key read, every default, and what each mistake is answered with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/plan.h"
#include "edge/site/site.h"
#include "tests/edge/core/codec/codecs.h"

/* A job in which every key is given; each test changes a part of it. */
static const char JOB[] =
    "{\"fedge-job\": 1, \"$schema\": \"job.schema.json\", \"name\": \"cnn\", \"seed\": 7,\n"
    " \"model\": {\"input-shape\": [1, 28, 28], \"layers\": [\n"
    "  {\"type\": \"Conv2d\", \"in_channels\": 1, \"out_channels\": 16, \"kernel_size\": 3,"
    " \"padding\": [1, 1], \"stride\": 1, \"bias\": true},\n"
    "  {\"type\": \"ReLU\"},\n"
    "  {\"type\": \"MaxPool2d\", \"kernel_size\": 2},\n"
    "  {\"type\": \"Flatten\"},\n"
    "  {\"type\": \"Linear\", \"name\": \"fc\", \"in_features\": 3136, \"out_features\": 10}],\n"
    "  \"loss\": {\"type\": \"CrossEntropyLoss\"}},\n"
    " \"data\": {\"name\": \"fashion-mnist\", \"shape\": [1, 28, 28], \"dtype\": \"u8\","
    " \"labels\": 10,\n"
    "  \"normalisation\": {\"divide-by\": 255, \"mean\": [0.286], \"std\": [0.353]}},\n"
    " \"training\": {\"local-epochs\": 3, \"local-steps\": 0, \"batch-size\": 16,"
    " \"learning-rate\": 0.05,\n"
    "  \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9, \"weight_decay\": 0.0001}},\n"
    " \"rounds\": {\"num-server-rounds\": 10, \"fraction-train\": 0.5, \"fraction-evaluate\": "
    "0.25,\n"
    "  \"min-train-nodes\": 4, \"min-evaluate-nodes\": 3, \"min-available-nodes\": 8,\n"
    "  \"over-selection\": 1.2, \"max-cohort\": 64, \"max-weight\": 60000,\n"
    "  \"round-deadline-s\": 1.5, \"min-report-fraction\": 0.8},\n"
    " \"strategy\": {\"type\": \"FedAvg\", \"server-learning-rate\": 0.7},\n"
    " \"update\": {\"codec\": \"none\", \"deflate\": false, \"bound-log2\": -1},\n"
    " \"test-set\": {\"values\": \"data/images.gz\", \"labels\": \"/data/labels.gz\"},\n"
    " \"initial-model\": \"start.safetensors\", \"keep-checkpoints\": 5, \"min-free-disk\": "
    "1000}\n";

/* As short as it gets. */
static const char SHORT[] =
    "{\"fedge-job\": 1, \"name\": \"lr\", \"model\": {\"input-shape\": [4], \"layers\":"
    " [{\"type\": \"Linear\", \"in_features\": 4, \"out_features\": 2}]},"
    " \"data\": {\"name\": \"d\", \"shape\": [4], \"dtype\": \"f32\", \"labels\": 2},"
    " \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}";

static const char EXTERNAL[] =
    "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\":"
    " [{\"name\": \"w\", \"shape\": [10, 2], \"dtype\": \"F32\"},\n {\"name\": \"b\", \"shape\": "
    "[]}]},"
    " \"rounds\": {\"num-server-rounds\": 3}}";

/* [text] with [from] replaced by [to]; the caller frees it. */
static char *change(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("the job has no %s", from);
    size_t size = strlen(text) + strlen(to) + 1;
    char *result = malloc(size);
    (void)snprintf(result, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return result;
}

static fedge_job *parse(const char *text)
{
    fedge_job *job = NULL;
    fedge_error err = {0};
    if (fedge_job_parse(text, strlen(text), "dir/job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static void expect(const char *text, const char *from, const char *to, fedge_status status,
                   const char *part)
{
    char *changed = change(text, from, to);
    fedge_job *job = NULL;
    fedge_error err = {0};
    fedge_status st = fedge_job_parse(changed, strlen(changed), "job.json", &job, &err);
    if (st != status || !strstr(err.message, part)) {
        fail_msg("%s -> %s\n  gave %s: %s\n  expected %s: %s", from, to, fedge_status_text(st),
                 err.message, fedge_status_text(status), part);
    }
    assert_null(job);
    free(changed);
}

static void every_key_is_read(void **state)
{
    (void)state;
    fedge_job *job = parse(JOB);
    const fedge_plan *plan = &job->plan;
    assert_string_equal(plan->name, "cnn");
    assert_int_equal(plan->seed, 7);
    assert_false(plan->external);
    assert_int_equal(plan->model.input_rank, 3);
    assert_int_equal(plan->model.num_layers, 5);
    assert_int_equal(plan->model.layers[0].type, FEDGE_LAYER_CONV2D);
    assert_int_equal(plan->model.layers[0].u.conv2d.kernel_size[1], 3);
    assert_int_equal(plan->model.layers[0].u.conv2d.padding[0], 1);
    assert_int_equal(plan->model.layers[2].u.maxpool2d.stride[1], 2);
    assert_string_equal(plan->model.layers[4].name, "fc");
    assert_true(plan->model.layers[4].u.linear.bias);
    assert_int_equal(plan->schema.num_tensors, 4);
    assert_string_equal(plan->schema.tensors[3].name, "fc.bias");
    assert_true(plan->has_data);
    assert_int_equal(plan->data.dtype, FEDGE_U8);
    assert_int_equal(plan->data.num_channels, 1);
    assert_true(plan->data.divide_by == 255 && plan->data.std[0] == 0.353f);
    assert_int_equal(plan->training.local_epochs, 3);
    assert_int_equal(plan->training.batch_size, 16);
    assert_true(plan->training.optimizer.momentum == 0.9f &&
                plan->training.optimizer.weight_decay == 0.0001f);
    assert_true(fedge_codec_equal(&plan->update.codec, &NONE));
    assert_false(plan->update.deflate);
    assert_int_equal(plan->update.bound_log2, -1);
    assert_int_equal(job->rounds.num_server_rounds, 10);
    assert_true(job->rounds.fraction_train == 0.5 && job->rounds.fraction_evaluate == 0.25);
    assert_int_equal(job->rounds.min_train_nodes, 4);
    assert_int_equal(job->rounds.min_evaluate_nodes, 3);
    assert_int_equal(job->rounds.min_available_nodes, 8);
    assert_int_equal(job->rounds.max_cohort, 64);
    assert_int_equal(job->rounds.max_weight, 60000);
    assert_int_equal(job->rounds.round_deadline_ms, 1500);
    assert_true(job->rounds.over_selection == 1.2 && job->rounds.min_report_fraction == 0.8);
    assert_string_equal(job->strategy, "FedAvg");
    assert_true(job->test_set.present);
    assert_string_equal(job->test_set.images, "dir/data/images.gz");
    assert_string_equal(job->test_set.labels, "/data/labels.gz");
    assert_string_equal(job->initial_model, "dir/start.safetensors");
    assert_int_equal(job->keep_checkpoints, 5);
    assert_int_equal(job->min_free_disk, 1000);
    fedge_job_free(job);
}

/* The plan of SHORT with [update] in place of none. */
static char *plan_with(const char *update)
{
    char text[4096], *plan = NULL;
    const char *rest = SHORT + 1;
    size_t size = 0;
    fedge_error err;
    (void)snprintf(text, sizeof(text), "{\"update\": %s, %s", update, rest);
    fedge_job *job = parse(text);
    assert_int_equal(fedge_plan_write(&job->plan, &plan, &size, &err), FEDGE_OK);
    fedge_job_free(job);
    return plan;
}

/* Both spellings make the same plan, to the byte. */
static void up_stands_for_codec_and_deflate(void **state)
{
    (void)state;
    static const char *const PAIRS[][2] = {
        {"{\"up\": \"int8+deflate\"}", "{}"},
        {"{\"up\": \"int8\"}", "{\"deflate\": false}"},
        {"{\"up\": \"none+deflate\", \"bound-log2\": 1}",
         "{\"codec\": \"none\", \"bound-log2\": 1}"},
        {"{\"up\": \"f16\"}", "{\"codec\": \"f16\", \"deflate\": false}"},
    };
    for (size_t i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        char *up = plan_with(PAIRS[i][0]), *codec = plan_with(PAIRS[i][1]);
        assert_string_equal(up, codec);
        free(up);
        free(codec);
    }
}

static void defaults_are_as_documented(void **state)
{
    (void)state;
    fedge_job *job = parse(SHORT);
    const fedge_plan *plan = &job->plan;
    assert_int_equal(plan->seed, 0);
    assert_int_equal(plan->training.local_epochs, 1);
    assert_int_equal(plan->training.local_steps, 0);
    assert_int_equal(plan->training.batch_size, 32);
    assert_true(plan->training.optimizer.momentum == 0 &&
                plan->training.optimizer.weight_decay == 0);
    assert_int_equal(plan->data.num_channels, 0);
    assert_true(plan->data.divide_by == 1);
    assert_true(fedge_codec_equal(&plan->update.codec, &INT8));
    assert_true(plan->update.deflate);
    assert_int_equal(plan->update.bound_log2, 2);
    assert_true(job->rounds.fraction_train == 1 && job->rounds.fraction_evaluate == 0);
    assert_int_equal(job->rounds.min_train_nodes, 2);
    assert_int_equal(job->rounds.min_evaluate_nodes, 2);
    assert_int_equal(job->rounds.min_available_nodes, 2);
    assert_int_equal(job->rounds.max_cohort, 4096);
    assert_int_equal(job->rounds.max_weight, 1 << 20);
    assert_int_equal(job->rounds.round_deadline_ms, 600000);
    assert_true(job->rounds.over_selection == 1 && job->rounds.min_report_fraction == 1);
    assert_string_equal(job->strategy, "");
    assert_null(job->strategy_settings);
    assert_false(job->test_set.present);
    assert_string_equal(job->initial_model, "");
    assert_int_equal(job->keep_checkpoints, 2);
    assert_int_equal(job->min_free_disk, 64 << 20);
    fedge_job_free(job);
}

static void configs_have_a_limit(void **state)
{
    (void)state;
    char large[FEDGE_MAX_CONFIG + 64];
    memset(large, 'x', sizeof(large));
    memcpy(large, "\"config\": {\"a\":\"", 16);
    (void)snprintf(large + 10 + FEDGE_MAX_CONFIG - 2, 16, "\"}, \"name\"");
    char *text = change(EXTERNAL, "\"name\"", large);
    fedge_job *job = parse(text);
    assert_int_equal(strlen(job->plan.config), FEDGE_MAX_CONFIG);
    fedge_job_free(job);
    free(text);
    (void)snprintf(large + 10 + FEDGE_MAX_CONFIG - 2, 16, "x\"}, \"name\"");
    expect(EXTERNAL, "\"name\"", large, FEDGE_INVALID_ARGUMENT,
           "config: has 4097 bytes without blanks; at most 4096 fit");
    expect(EXTERNAL, "\"name\"", "\"config\": [1], \"name\"", FEDGE_INVALID_ARGUMENT,
           "config: must be an object");
}

static void external_models_need_only_a_schema(void **state)
{
    (void)state;
    fedge_job *job = parse(EXTERNAL);
    assert_true(job->plan.external);
    assert_false(job->plan.has_data);
    assert_int_equal(job->plan.schema.num_tensors, 2);
    assert_int_equal(job->plan.schema.num_elements, 21);
    assert_ptr_equal(job->plan.schema.tensors, job->plan.tensors);
    fedge_job_free(job);
    expect(EXTERNAL, "\"b\"", "\"w\"", FEDGE_INVALID_ARGUMENT, "job.json:2: model.tensors[1]: ");
    expect(EXTERNAL, "[10, 2]", "[10, 0]", FEDGE_INVALID_ARGUMENT, "shape[1]: 0 is not in");
    expect(EXTERNAL, "[10, 2]", "[65536, 65536]", FEDGE_INVALID_ARGUMENT, "model.tensors[0]: ");
    expect(EXTERNAL, "F32", "F64", FEDGE_INVALID_ARGUMENT, "write \"F32\", and convert");
    expect(EXTERNAL, "external", "extern", FEDGE_INVALID_ARGUMENT, "did you mean \"external\"?");
    expect(EXTERNAL, "\"rounds\"", "\"test-set\":{\"values\":\"a\"},\"rounds\"",
           FEDGE_INVALID_ARGUMENT, "cannot evaluate an external model");
}

/* Updates have no tensor that is frozen, as integers are. */
static void tensors_may_be_frozen(void **state)
{
    (void)state;
    char *text = change(EXTERNAL, "\"F32\"}",
                        "\"F16\"}, {\"name\": \"n\", \"shape\": [3], "
                        "\"dtype\": \"I64\"}, {\"name\": \"f\", \"shape\": "
                        "[7], \"frozen\": true}");
    fedge_job *job = parse(text);
    const fedge_plan *plan = &job->plan;
    assert_int_equal(plan->schema.num_tensors, 4);
    assert_int_equal(plan->schema.num_elements, 20 + 6 + 7 + 1);
    assert_true(plan->schema.tensors[1].frozen && plan->schema.tensors[2].frozen);
    assert_int_equal(plan->sent.num_sections, 1);
    assert_int_equal(plan->sent.schema.num_tensors, 2);
    assert_string_equal(plan->sent.tensors[0].name, "w");
    assert_int_equal(plan->sent.tensors[0].dtype, FEDGE_F32);
    assert_string_equal(plan->sent.tensors[1].name, "b");
    assert_int_equal(plan->sent.model_offsets[1], 33);
    assert_false(fedge_section_is_whole(plan, &plan->sent.sections[0]));
    fedge_job_free(job);
    expect(text, "{\"name\": \"b\", \"shape\": []}",
           "{\"name\": \"b\", \"shape\": [], \"frozen\": 1}", FEDGE_INVALID_ARGUMENT,
           "must be true or false");
    free(text);
    text = change(EXTERNAL, "\"F32\"", "\"I64\"");
    expect(text, "\"shape\": []", "\"shape\": [], \"frozen\": true", FEDGE_INVALID_ARGUMENT,
           "every tensor is frozen");
    free(text);
}

static void flowers_older_names_are_read(void **state)
{
    (void)state;
    static const char *const NAMES[][2] = {
        {"num-server-rounds", "num_rounds"},
        {"num-server-rounds", "num-rounds"},
        {"num-server-rounds", "num_server_rounds"},
        {"fraction-train", "fraction_fit"},
        {"fraction-train", "fraction-fit"},
        {"min-train-nodes", "min_fit_clients"},
        {"min-available-nodes", "min_available_clients"},
        {"min-evaluate-nodes", "min_evaluate_clients"},
        {"fraction-evaluate", "fraction_evaluate"},
        {"local-epochs", "local_epochs"},
        {"batch-size", "batch_size"},
        {"learning-rate", "learning_rate"},
        {"learning-rate", "lr"},
        {"normalisation", "normalization"},
    };
    fedge_job *expected = parse(JOB);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char *text = change(JOB, NAMES[i][0], NAMES[i][1]);
        fedge_job *job = parse(text);
        assert_memory_equal(&job->rounds, &expected->rounds, sizeof(job->rounds));
        assert_memory_equal(&job->plan.training, &expected->plan.training,
                            sizeof(job->plan.training));
        assert_int_equal(job->plan.data.num_channels, 1);
        fedge_job_free(job);
        free(text);
    }
    fedge_job_free(expected);
    expect(JOB, "\"fraction-evaluate\"", "\"num_rounds\": 3, \"fraction-evaluate\"",
           FEDGE_INVALID_ARGUMENT, "\"num-server-rounds\" says the same; keep one");
}

/* A part of JOB, what is put in its place, and what the message says then. */
#define CONV1D(arguments)                                                                          \
    "{\"type\": \"Conv1d\", \"in_channels\": 1, \"out_channels\": 1, " arguments "}"

static const struct {
    const char *from, *to, *part;
} MISTAKES[] = {
    {"\"fedge-job\": 1", "\"fedge-job\": 2", "fedge-job: must be 1"},
    {"\"fedge-job\": 1, ", "", "begin the job with \"fedge-job\": 1"},
    {"\"name\": \"cnn\"", "\"name\": \"\"", "job.json:1: name: must have 1 to 63 bytes"},
    {"\"name\": \"cnn\", ", "", "name: is missing"},
    {"\"seed\": 7", "\"seed\": 9007199254740992", "seed: 9007199254740992 is not in"},
    {"\"seed\": 7", "\"seeds\": 7", "seeds: \"seeds\" is not known here; did you mean \"seed\""},
    {"\"model\"", "\"modle\"", "job.json:2: modle: \"modle\" is not known here; did you mean "},
    {"[1, 28, 28], \"layers\"", "[], \"layers\"", "model.input-shape: must have 1 to 3"},
    {"[1, 28, 28], \"layers\"", "[1, 65537, 28], \"layers\"",
     "job.json:2: model.input-shape: the model's input: shape [1, 65537, 28]"},
    {"Conv2d", "Conv3d",
     "job.json:3: model.layers[0].type: \"Conv3d\" is not a layer of this release; did you "
     "mean "
     "\"Conv2d\"?"},
    {"ReLU", "Softmax2d",
     "\"Softmax2d\" is not a layer of this release; leave it out: the loss takes logits"},
    {"ReLU", "Softmax", "model.layers[1].dim: is missing"},
    {"ReLU", "LogSoftmax", "leave it out: the loss takes logits"},
    {"CrossEntropyLoss", "NLLLoss",
     "\"NLLLoss\" is not a loss of this release; CrossEntropyLoss takes logits"},
    {"ReLU", "BatchNorm3d", "take BatchNorm1d or BatchNorm2d"},
    {"ReLU", "relu", "\"relu\" is not a layer of this release; did you mean \"ReLU\"?"},
    {"CrossEntropyLoss", "crossentropy", "did you mean \"CrossEntropyLoss\"?"},
    {"ReLU", "Linea", "did you mean \"Linear\"?; docs/reference/job.md lists them"},
    {"\"type\": \"ReLU\"", "\"typ\": \"ReLU\"", "job.json:4: model.layers[1].type: is missing"},
    {"\"kernel_size\": 3", "\"kernel-size\": 3",
     "model.layers[0].kernel-size: \"kernel-size\" is not known here; did you mean "
     "\"kernel_size\"?"},
    {"\"kernel_size\": 3", "\"kernel_size\": 0", "kernel_size: 0 is not in [1, 65536]"},
    {"\"kernel_size\": 3", "\"kernel_size\": [3]", "an integer or a list of two"},
    {"\"in_channels\": 1, ", "", "job.json:3: model.layers[0].in_channels: is missing"},
    {"\"in_features\": 3136", "\"in_features\": 3000", "job.json:7: model.layers[4]: "},
    {"{\"type\": \"Flatten\"}", "{\"type\": \"ReLU\"}", "job.json:7: model.layers[4]: "},
    {"\"in_channels\": 1", "\"in_channels\": 3", "job.json:3: model.layers[0]: "},
    {"\"name\": \"fc\"", "\"name\": \"\"", "name: must have 1 to 63 bytes, not 0"},
    {"CrossEntropyLoss", "MSELos", "model.loss.type: \"MSELos\" is not a loss of this release"},
    {"\"shape\": [1, 28, 28]", "\"shape\": [3, 28, 28]",
     "job.json:9: data.shape: is [3, 28, 28], but model.input-shape is [1, 28, 28]"},
    {"\"labels\": 10", "\"labels\": 11",
     "data.labels: is 11, but the model's last layer has 10 outputs"},
    {"\"u8\"", "\"i64\"", "data.dtype: \"i64\" is not known here; valid: f32, u8"},
    {"\"divide-by\": 255", "\"divide-by\": 0", "divide-by: 0 is not in"},
    {"\"std\": [0.353]", "\"std\": [0]", "std[0]: 0 is not in"},
    {", \"std\": [0.353]", "", "data.normalisation.std: is missing"},
    {"\"mean\": [0.286], \"std\": [0.353]", "\"mean\": [1, 2], \"std\": [1, 2]",
     "give 1 for all or 1, one for each channel"},
    {"\"local-epochs\": 3", "\"local-epochs\": 0", "local-epochs: 0 is not in [1, 65536]"},
    {"\"local-epochs\": 3", "\"local-epochs\": 65537", "65537 is not in [1, 65536]"},
    {"\"batch-size\": 16", "\"batch-size\": 65537", "batch-size: 65537 is not in [1, 65536]"},
    {", \"learning-rate\": 0.05", "",
     "job.json:11: training.learning-rate: is missing or 0; give e.g. 0.05"},
    {"\"learning-rate\": 0.05", "\"learning-rate\": 0",
     "job.json:11: training.learning-rate: is 0, with which nothing is learnt; give e.g. 0.05"},
    {"\"learning-rate\": 0.05", "\"lr\": 0", "training.lr: is 0, with which nothing is learnt"},
    {"\"learning-rate\": 0.05", "\"learning-rate\": 1e-50", "1e-50 would be rounded to 0: give 0"},
    {"\"local-steps\": 0", "\"clip-norm\": 1e-46",
     "job.json:11: training.clip-norm: 1e-46 would be rounded to 0: give 0, or more"},
    {"\"local-steps\": 0", "\"proximal-mu\": 1e-50", "proximal-mu: 1e-50 would be rounded to 0"},
    {"\"SGD\"", "\"Adams\"",
     "training.optimizer.type: \"Adams\" is not an optimizer of this release"},
    {"\"momentum\": 0.9", "\"momentum\": 1.1", "momentum: 1.1 is not in [0, 1]"},
    {"\"local-steps\": 0", "\"schedule\": {\"type\": \"StepLR\", \"T_max\": 9}",
     "job.json:11: training.schedule.T_max: is not an argument of StepLR, which takes step_size, "
     "gamma and warmup-rounds"},
    {"\"local-steps\": 0", "\"schedule\": {\"type\": \"OneCycleLR\", \"pct_start\": 0.2}",
     "job.json:11: training.schedule: has no total_steps, which OneCycleLR needs"},
    {"\"local-steps\": 0", "\"schedule\": {\"type\": \"ConstantLR\", \"total_steps\": 9}",
     "job.json:11: training.schedule.total_steps: is not an argument of ConstantLR"},
    {"\"local-steps\": 0", "\"accumulation-steps\": 60000",
     "job.json:11: training.accumulation-steps: is 60000, which with batch-size 16 makes steps of "
     "over 65536 examples"},
    {"\"local-steps\": 0", "\"schedule\": {\"type\": \"ExponentialLR\", \"gamma\": 100}",
     "job.json:11: training.schedule.gamma: makes the learning rate of round 5 5e+06, and 1e+06 is "
     "the most; lower it, or num-server-rounds"},
    {"\"local-steps\": 0", "\"schedule\": {\"gamma\": 0.5}",
     "gamma: is not an argument of ConstantLR"},
    {"{\"type\": \"ReLU\"}", CONV1D("\"kernel_size\": 4, \"padding\": \"same\""),
     "model.layers[1].padding: \"same\" would be 3 in all with kernel_size 4 and dilation 1"},
    {"{\"type\": \"ReLU\"}", CONV1D("\"kernel_size\": 3, \"padding\": \"same\", \"stride\": 2"),
     "padding: \"same\" is for stride 1, which is 2"},
    {"{\"type\": \"ReLU\"}", CONV1D("\"kernel_size\": 3, \"padding\": \"circular\""),
     "padding: \"circular\" is not known here; valid: same, valid, or numbers"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"MaxPool1d\", \"kernel_size\": 3, \"padding\": \"same\"}",
     "padding: must be an integer in [0, 65536]"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \"fc\"}",
     "job.json:7: model.layers[4].name: layers 1 and 4 are both called \"fc\""},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \"input\"}",
     "model.layers[1].name: \"input\" is what \"inputs\" call the model's"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \"a..b\"}",
     "model.layers[1].name: \"a..b\" has a dot without a name on both sides"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \"relu.\"}", "\"relu.\" has a dot"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \".\"}", "\".\" has a dot"},
    {"{\"type\": \"ReLU\"}", "{\"type\": \"ReLU\", \"name\": \"2\"}",
     "job.json:5: model.layers[2]: layers 1 and 2 are both called \"2\""},
    {"\"num-server-rounds\": 10, ", "", "job.json:13: rounds.num-server-rounds: is missing"},
    {"\"fraction-train\": 0.5", "\"fraction-train\": 0", "fraction-train: 0 is not in"},
    {"\"fraction-train\": 0.5", "\"fraction-train\": 1.5", "fraction-train: 1.5 is not in"},
    {"\"fraction-evaluate\": 0.25", "\"fraction-evaluate\": -1", "-1 is not in [0, 1]"},
    {"\"over-selection\": 1.2", "\"over-selection\": 0.5", "0.5 is not in [1, 10]"},
    {"\"max-weight\": 60000", "\"max-weight\": 4294967295",
     "job.json:15: rounds.max-cohort: 64 times max-weight 4294967295 is over 2^32, so sums "
     "could overflow; lower max-weight to 67108864 or max-cohort to 1"},
    {"\"min-train-nodes\": 4", "\"min-train-nodes\": 65",
     "job.json:14: rounds.min-train-nodes: 65 is over max-cohort 64"},
    {"\"min-available-nodes\": 8", "\"min-available-nodes\": 3",
     "rounds.min-available-nodes: 3 is less than min-train-nodes 4; raise it"},
    {"\"min-evaluate-nodes\": 3", "\"min-evaluate-nodes\": 9",
     "rounds.min-available-nodes: 8 is less than min-evaluate-nodes 9"},
    {"\"round-deadline-s\": 1.5", "\"round-deadline-s\": 0", "0 is not in [0.001, 2592000]"},
    {"\"min-report-fraction\": 0.8", "\"min-report-fraction\": 0", "0 is not in"},
    {"\"codec\": \"none\"", "\"codec\": \"in8\"",
     "update.codec: \"in8\" is not known here; did you mean \"int8\"?"},
    {"\"codec\": \"none\", \"deflate\": false", "\"up\": \"int9+deflate\"",
     "update.up: \"int9\" is not known here; did you mean"},
    {"\"codec\": \"none\"", "\"up\": \"none\"",
     "update.up: says what \"codec\" and \"deflate\" say"},
    {"\"codec\": \"none\", \"deflate\": false", "\"up\": \"deflate\"",
     "update.up: \"deflate\" goes last in \"up\" or \"down\", behind a codec"},
    {"\"codec\": \"none\", \"deflate\": false", "\"up\": \"int8+deflate:0\"", "a level, 1 to 9"},
    {"\"codec\": \"none\", \"deflate\": false", "\"up\": \"deflate:1+int8\"", "goes last"},
    {"\"codec\": \"none\"", "\"codec\": \"int8+deflate\"",
     "update.codec: \"deflate\" goes last in \"up\""},
    {"\"codec\": \"none\", \"deflate\": false",
     "\"codec\": \"none\", \"layers\": [{\"tensors\": \"no\", \"codec\": \"int8\"}]",
     "update.layers: no tensor that is trained is left for \"no\""},
    {"\"deflate\": false", "\"deflate\": 0", "update.deflate: must be true or false"},
    {"\"bound-log2\": -1", "\"bound-log2\": 21", "21 is not in [-20, 20]"},
    {"\"values\": \"data/images.gz\", ", "", "test-set.values: is missing"},
    {"\"start.safetensors\"", "\"\"", "initial-model: must have 1 to 511 bytes"},
    {"\"keep-checkpoints\": 5", "\"keep-checkpoints\": 0", "0 is not in [1, 1000]"},
    {"\"min-free-disk\": 1000", "\"min-free-disk\": -1", "min-free-disk: -1 is not in"},
    {"\"rounds\": {", "\"rounds\": [], \"x\": {", "\"x\" is not known here"},
};

static void mistakes_name_key_line_and_remedy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(MISTAKES) / sizeof(MISTAKES[0]); i++)
        expect(JOB, MISTAKES[i].from, MISTAKES[i].to, FEDGE_INVALID_ARGUMENT, MISTAKES[i].part);
    expect(JOB, "\"seed\": 7", "\"seed\": 7, \"seed\": 7", FEDGE_CORRUPT, "seed: is given twice");
    expect(JOB, "\"seed\": 7,", "\"seed\": 7", FEDGE_CORRUPT, "job.json:2: not valid JSON");
    expect(SHORT, "\"data\"", "\"strategy\": {}, \"dat\"", FEDGE_INVALID_ARGUMENT, "\"dat\"");
}

static void a_job_without_data_or_rounds_is_refused(void **state)
{
    (void)state;
    expect(SHORT, "\"data\": {\"name\": \"d\", \"shape\": [4], \"dtype\": \"f32\", \"labels\": 2},",
           "", FEDGE_INVALID_ARGUMENT, "data: is missing; only an external model does without");
    expect(SHORT, ", \"rounds\": {\"num-server-rounds\": 3}", "", FEDGE_INVALID_ARGUMENT,
           "rounds: is missing: give e.g. \"rounds\": {\"num-server-rounds\": 10}");
}

static void long_paths_are_refused(void **state)
{
    (void)state;
    char name[600] = "", path[512];
    memset(name, 'd', 300);
    (void)snprintf(name + 300, sizeof(name) - 300, "/job.json");
    memset(path, 'p', 300);
    path[300] = '\0';
    char *text = change(JOB, "start.safetensors", path);
    fedge_job *job = NULL;
    fedge_error err;
    assert_int_equal(fedge_job_parse(text, strlen(text), name, &job, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "initial-model: is over 511 bytes"));
    free(text);
}

static void files_are_loaded(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = NULL;
    assert_int_equal(fedge_os_write_file("test_job.json", JOB, strlen(JOB), 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_job_load("test_job.json", &job, &err), FEDGE_OK);
    assert_string_equal(job->initial_model, "start.safetensors");
    fedge_job_free(job);
    assert_int_equal(fedge_os_remove("test_job.json", &err), FEDGE_OK);
    assert_int_equal(fedge_job_load("no-such-job.json", &job, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "no-such-job.json"));
    fedge_job_free(NULL);
}

/* The JSON between "```json" and "```" behind [heading] of the page [path]; the caller frees it. */
static char *example(const char *path, const char *heading)
{
    uint8_t *page = NULL;
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_os_read_file(path, FEDGE_JOB_MAX_SIZE, &page, &size, &err), FEDGE_OK);
    char *start = strstr((char *)page, heading);
    assert_non_null(start);
    start = strstr(start, "```json");
    assert_non_null(start);
    start += strlen("```json");
    char *end = strstr(start, "```");
    assert_non_null(end);
    memmove(page, start, (size_t)(end - start));
    page[end - start] = '\0';
    return (char *)page;
}

static void the_examples_of_the_manual_are_accepted(void **state)
{
    (void)state;
    char *text = example(FEDGE_SOURCE_DIR "/docs/reference/job.md", "\n## A job\n");
    fedge_job *job = parse(text);
    assert_string_equal(job->test_set.images, "dir/t10k-images-idx3-ubyte.gz");
    fedge_job_free(job);
    free(text);
    text = example(FEDGE_SOURCE_DIR "/docs/reference/client-file.md", "");
    fedge_site *site = NULL;
    fedge_error err = {0};
    if (fedge_site_parse(text, strlen(text), "client.json", &site, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(site->num_jobs, 1);
    fedge_site_free(site);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(up_stands_for_codec_and_deflate),
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(external_models_need_only_a_schema),
        cmocka_unit_test(tensors_may_be_frozen),
        cmocka_unit_test(configs_have_a_limit),
        cmocka_unit_test(flowers_older_names_are_read),
        cmocka_unit_test(mistakes_name_key_line_and_remedy),
        cmocka_unit_test(a_job_without_data_or_rounds_is_refused),
        cmocka_unit_test(long_paths_are_refused),
        cmocka_unit_test(files_are_loaded),
        cmocka_unit_test(the_examples_of_the_manual_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
