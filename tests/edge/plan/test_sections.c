/* What travels of a model: the trained tensors, their trained rows, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "edge/plan/update.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/edge/core/codec/schemas.h"

/* Linear(3, 4), Linear(4, 5), Linear(5, 2): 16 + 25 + 12 parameters. [model] and [first] … are put
 * into the model and its layers. */
static fedge_status parse(const char *model, const char *first, const char *second,
                          const char *third, fedge_job **job, fedge_error *err)
{
    char text[2048];
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"mlp\", \"model\": {\"input-shape\": [3], %s \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 3, \"out_features\": 4%s}, {\"type\": \"ReLU\"},"
        "{\"type\": \"Linear\", \"in_features\": 4, \"out_features\": 5%s}, {\"type\": \"ReLU\"},"
        "{\"type\": \"Linear\", \"name\": \"head\", \"in_features\": 5, \"out_features\": 2%s}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [3], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"update\": {\"codec\": \"none\", \"deflate\": false}}",
        model, first, second, third);
    memset(err, 0, sizeof(*err));
    return fedge_job_parse(text, strlen(text), "job.json", job, err);
}

static fedge_job *must_parse(const char *model, const char *first, const char *second,
                             const char *third)
{
    fedge_error err;
    fedge_job *job = NULL;
    if (parse(model, first, second, third, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static void expect_refusal(const char *model, const char *first, const char *second,
                           const char *part)
{
    fedge_error err;
    fedge_job *job = NULL;
    fedge_status st = parse(model, first, second, "", &job, &err);
    if (st != FEDGE_INVALID_ARGUMENT || !strstr(err.message, part))
        fail_msg("gave %s: %s\n  expected %s", fedge_status_text(st), err.message, part);
}

/* [names]: what travels, "name:values " each. */
static void expect_sent(const fedge_plan *plan, const char *names)
{
    char text[512] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < plan->sent.schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &plan->sent.schema.tensors[i];
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s:%zu ", tensor->name,
                                 tensor->count);
    }
    assert_string_equal(text, names);
}

static void everything_travels_unless_it_is_frozen(void **state)
{
    (void)state;
    fedge_job *job = must_parse("", "", "", "");
    assert_true(fedge_section_is_whole(&job->plan, &job->plan.sent.sections[0]));
    assert_int_equal(job->plan.sent.schema.num_elements, 53);
    fedge_job_free(job);
    job = must_parse("", ", \"train\": \"none\"", ", \"train\": \"bias\"", ", \"r\": 2");
    expect_sent(&job->plan, "2.bias:5 head.lora_A:10 head.lora_B:4 ");
    assert_false(fedge_section_is_whole(&job->plan, &job->plan.sent.sections[0]));
    assert_int_equal(fedge_update_max_size(&job->plan), 4 * 19);
    assert_int_equal(job->plan.schema.num_elements, 53 + 14);
    fedge_job_free(job);
}

static void the_last_layers_with_parameters(void **state)
{
    (void)state;
    fedge_job *job = must_parse("\"train-last\": 1,", "", "", "");
    expect_sent(&job->plan, "head.weight:10 head.bias:2 ");
    fedge_job_free(job);
    job = must_parse("\"train-last\": 2,", "", ", \"train\": \"bias\"", "");
    expect_sent(&job->plan, "2.bias:5 head.weight:10 head.bias:2 ");
    fedge_job_free(job);
    job = must_parse("\"train-last\": 3,", "", "", "");
    assert_int_equal(job->plan.sent.schema.num_elements, 53);
    fedge_job_free(job);
    expect_refusal("\"train-last\": 4,", "", "", "is 4, but the model has 3 layers");
    expect_refusal("\"train-last\": 1,", ", \"train-channels\": [0, 1]", "",
                   "1 freezes layer 0, which has \"train-channels\"");
}

static void rows_of_a_layer(void **state)
{
    (void)state;
    fedge_job *job = must_parse("\"train-last\": 2,", "", ", \"train-channels\": [1, 3]",
                                ", \"train\": \"none\"");
    const fedge_sent *sent = &job->plan.sent;
    expect_sent(&job->plan, "2.weight:8 2.bias:2 ");
    assert_int_equal(sent->model_offsets[0], 16 + 4);
    assert_int_equal(sent->model_offsets[1], 16 + 20 + 1);
    float model[53], start[53], part[10];
    for (int i = 0; i < 53; i++) {
        start[i] = (float)i;
        model[i] = (float)(i + 100 + i * i);
    }
    fedge_section_gather(sent, &sent->sections[0], model, part);
    assert_true(part[0] == model[20] && part[7] == model[27] && part[8] == model[37]);
    float changes[53];
    for (int i = 0; i < 53; i++)
        changes[i] = model[i] - start[i];
    fedge_sections_take(sent, changes);
    fedge_sections_changes(sent, start, model);
    for (int i = 0; i < 10; i++) {
        const int at = i < 8 ? 20 + i : 37 + i - 8;
        assert_true(model[i] == (float)(100 + at * at));
    }
    assert_memory_equal(changes, model, 10 * sizeof(float));
    for (int i = 0; i < 10; i++)
        part[i] = -1.0f - (float)i;
    memcpy(model, start, sizeof(model));
    fedge_section_scatter(sent, &sent->sections[0], part, model);
    for (int i = 0; i < 53; i++) {
        const bool in = (i >= 20 && i < 28) || (i >= 37 && i < 39);
        assert_true(in ? model[i] < 0 : model[i] == start[i]);
    }
    assert_true(model[20] == -1.0f && model[38] == -10.0f);
    fedge_job_free(job);
}

static void ranges_that_are_none(void **state)
{
    (void)state;
    expect_refusal("", ", \"train-channels\": [2, 2]", "", "[2, 2] is not a range within the 4");
    expect_refusal("", ", \"train-channels\": [0, 5]", "", "[0, 5] is not a range within the 4");
    expect_refusal("", ", \"train-channels\": [3, 1]", "", "[3, 1] is not a range within the 4");
    expect_refusal("", ", \"train-channels\": [1]", "", "model.layers[0].train-channels");
    expect_refusal("", ", \"train-channels\": [0, 1], \"train\": \"none\"", "",
                   "without trained parameters");
    expect_refusal("", ", \"train-channels\": [0, 1], \"r\": 2", "",
                   "\"lora_A\" has 2 and \"lora_B\" 4");
}

static void a_model_that_is_all_frozen_is_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = NULL;
    const char *none = ", \"train\": \"none\"";
    assert_int_equal(parse("", none, none, none, &job, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "every layer is frozen"));
}

/* [layer]: more arguments of the BatchNorm2d; [more]: keys of the job. */
static fedge_status parse_batchnorm_with(const char *layer, const char *more, fedge_job **job,
                                         fedge_error *err)
{
    char text[2048];
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"bn\", \"model\": {\"input-shape\": [2, 1, 1], \"layers\": ["
        "{\"type\": \"BatchNorm2d\", \"num_features\": 2%s},"
        "{\"type\": \"Flatten\"},"
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 3}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [2, 1, 1], \"dtype\": \"f32\", \"labels\": 3},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}%s}",
        layer, more);
    return fedge_job_parse(text, strlen(text), "job.json", job, err);
}

static fedge_job *parse_batchnorm(const char *layer)
{
    fedge_error err = {0};
    fedge_job *job = NULL;
    if (parse_batchnorm_with(layer, "", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static void statistics_are_a_section_of_their_own(void **state)
{
    (void)state;
    fedge_job *job = parse_batchnorm("");
    const fedge_plan *plan = &job->plan;
    const fedge_section *buffers = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    expect_sent(plan, "0.weight:2 0.bias:2 2.weight:6 2.bias:3 0.running_mean:2 0.running_var:2 ");
    assert_int_equal(plan->num_parameters, 13);
    assert_int_equal(plan->schema.num_elements, 17);
    assert_true(fedge_section_is_whole(plan, &plan->sent.sections[0]));
    assert_int_equal(plan->sent.num_sections, 2);
    assert_int_equal(buffers->first, 4);
    assert_true(fedge_codec_equal(&buffers->codec, &NONE));
    assert_true(fedge_codec_equal(&plan->update.codec, &INT8));
    assert_int_equal(plan->sent.model_offsets[5], 15);

    float model[17] = {0}, start[17] = {0};
    int8_t bounds[6];
    model[14] = -64.0f; /* 4 · 64 is 2^8 */
    model[15] = 65.0f;
    fedge_sections_bounds(plan, model, bounds);
    assert_memory_equal(bounds, ((int8_t[]){2, 2, 2, 2, 8, 9}), 6);
    model[13] = 3e38f;
    fedge_sections_bounds(plan, model, bounds);
    assert_int_equal(bounds[4], 20);

    /* There and back: the delta in int8, the statistics exactly. */
    fedge_upload upload = {0};
    fedge_error err = {0};
    uint8_t *bytes = NULL, scratch[256];
    int32_t v[17];
    for (int i = 0; i < 17; i++) {
        start[i] = (float)i;
        model[i] = (float)i + (i < 13 ? 1.0f : (float)i / 16.0f);
    }
    fedge_sections_bounds(plan, start, bounds);
    fedge_sections_changes(&plan->sent, start, model);
    assert_int_equal(
        fedge_update_encode(&(fedge_update){.plan = plan, .bounds_log2 = bounds, .changes = model},
                            &upload, &bytes, &err),
        FEDGE_OK);
    assert_int_equal(upload.num_sections, 2);
    assert_string_equal(upload.sections[1].name, "buffers");
    assert_int_equal(upload.sections[1].raw_size, 16);
    if (fedge_update_decode(plan, bounds, &upload, bytes, scratch, sizeof(scratch), v, &err) !=
        FEDGE_OK)
        fail_msg("%s", err.message);
    for (int i = 13; i < 17; i++)
        assert_int_equal(v[i], i << 18); /* i / 16 · 2^(30 − 8) */
    upload.sections[1].codec = INT8;
    assert_int_equal(fedge_update_check(plan, &upload, &err), FEDGE_MISMATCH);
    upload.num_sections = 1;
    assert_int_equal(fedge_update_check(plan, &upload, &err), FEDGE_MISMATCH);
    free(bytes);
    fedge_job_free(job);
}

static void sections_have_codecs_of_their_own(void **state)
{
    (void)state;
    static const struct {
        const char *more, *layer, *says;
    } WRONG[] = {
        {", \"update\": {\"buffers\": \"topk:0.1+int8\"}", "",
         "update.buffers: chooses what travels"},
        {", \"update\": {\"buffers\": \"int8+deflate\"}", "", "\"deflate\" goes last"},
        {", \"update\": {\"buffers\": \"f16\"}", ", \"frozen\": true",
         "update.buffers: is for what this job's clients do not send: remove it"},
        {", \"update\": {\"control\": \"f16\"}", "",
         "update.control: is for what this job's clients do not send: remove it"},
    };
    fedge_job *job = NULL;
    fedge_error err = {0};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        assert_int_equal(parse_batchnorm_with(WRONG[i].layer, WRONG[i].more, &job, &err),
                         FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, WRONG[i].says))
            fail_msg("%s gave %s", WRONG[i].more, err.message);
    }
    assert_int_equal(
        parse_batchnorm_with("", ", \"update\": {\"up\": \"topk:0.5+int8\", \"buffers\": \"f16\"}",
                             &job, &err),
        FEDGE_OK);
    const fedge_section *buffers = fedge_sections_find(&job->plan.sent, FEDGE_SECTION_BUFFERS);
    assert_true(fedge_codec_has(&buffers->codec, "f16"));
    assert_null(buffers->codec.sparsifier);
    assert_non_null(job->plan.sent.sections[0].codec.sparsifier);
    fedge_job_free(job);
}

static void statistics_that_never_change_do_not_travel(void **state)
{
    (void)state;
    fedge_job *job = parse_batchnorm(", \"frozen\": true");
    assert_int_equal(job->plan.sent.num_sections, 1);
    assert_int_equal(job->plan.schema.num_elements, 17);
    fedge_job_free(job);
    job = parse_batchnorm(", \"track_running_stats\": false");
    assert_int_equal(job->plan.sent.num_sections, 1);
    assert_int_equal(job->plan.schema.num_elements, 13);
    fedge_job_free(job);
}

/* [training]: more keys of it; [strategy]: the object, and keys behind it. */
static fedge_status parse_scaffold(const char *training, const char *strategy, fedge_job **job,
                                   fedge_error *err)
{
    char text[2048];
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 3, \"train\": \"bias\"},"
        "{\"type\": \"Linear\", \"in_features\": 3, \"out_features\": 3}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 3},"
        "\"training\": {\"learning-rate\": 0.1%s}, \"update\": {\"control-bound-log2\": 5},"
        "\"rounds\": {\"num-server-rounds\": 3, \"min-available-nodes\": 7},"
        "\"strategy\": %s}",
        training, strategy);
    memset(err, 0, sizeof(*err));
    return fedge_job_parse(text, strlen(text), "job.json", job, err);
}

static void scaffold_sends_variates_of_what_is_trained(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = NULL;
    fedge_plan *plan = NULL;
    char *text = NULL;
    size_t size = 0;
    if (parse_scaffold("", "{\"type\": \"SCAFFOLD\"}", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_true(fedge_plan_model_options(&job->plan).correction);
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
    assert_non_null(strstr(text, "\"scaffold\":true"));
    if (fedge_plan_parse(text, size, &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    expect_sent(plan, "0.bias:3 1.weight:9 1.bias:3 "
                      "control:0.bias:3 control:1.weight:9 control:1.bias:3 ");
    assert_int_equal(plan->sent.model_offsets[0], 6);
    assert_int_equal(plan->sent.model_offsets[3], 6);
    int8_t bounds[6];
    const float model[21] = {0};
    fedge_sections_bounds(plan, model, bounds);
    assert_memory_equal(bounds, ((int8_t[]){2, 2, 2, 5, 5, 5}), 6);
    free(text);
    fedge_plan_free(plan);
    fedge_job_free(job);
}

static void scaffold_is_refused_where_its_formula_does_not_hold(void **state)
{
    (void)state;
    static const char TYPE[] = "{\"type\": \"SCAFFOLD\"}";
    static const char *const CASES[][3] = {
        {", \"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.9}", TYPE, "without momentum"},
        {", \"optimizer\": {\"type\": \"Adam\"}", TYPE, "take SGD"},
        {", \"proximal-mu\": 0.1", TYPE, "training.proximal-mu: SCAFFOLD corrects"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        fedge_error err;
        fedge_job *job = NULL;
        assert_int_equal(parse_scaffold(CASES[i][0], CASES[i][1], &job, &err),
                         FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, CASES[i][2]))
            fail_msg("gave %s\n  expected %s", err.message, CASES[i][2]);
    }
}

/* The plan says it layer by layer, and reads back to the same. */
static void the_plan_has_it_too(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_job *job = must_parse("\"train-last\": 2,", "", ", \"train-channels\": [1, 3]", "");
    char *text = NULL;
    size_t size = 0;
    fedge_plan *plan = NULL;
    assert_int_equal(fedge_plan_write(&job->plan, &text, &size, &err), FEDGE_OK);
    assert_non_null(strstr(text, "\"train\",\"train-channels\""));
    assert_null(strstr(text, "train-last"));
    if (fedge_plan_parse(text, size, &plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_schemas_equal(&job->plan.sent.schema, &plan->sent.schema);
    assert_memory_equal(plan->sent.model_offsets, job->plan.sent.model_offsets,
                        plan->sent.schema.num_tensors * sizeof(plan->sent.model_offsets[0]));
    free(text);
    fedge_plan_free(plan);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_travels_unless_it_is_frozen),
        cmocka_unit_test(the_last_layers_with_parameters),
        cmocka_unit_test(rows_of_a_layer),
        cmocka_unit_test(ranges_that_are_none),
        cmocka_unit_test(a_model_that_is_all_frozen_is_refused),
        cmocka_unit_test(statistics_are_a_section_of_their_own),
        cmocka_unit_test(sections_have_codecs_of_their_own),
        cmocka_unit_test(statistics_that_never_change_do_not_travel),
        cmocka_unit_test(scaffold_sends_variates_of_what_is_trained),
        cmocka_unit_test(scaffold_is_refused_where_its_formula_does_not_hold),
        cmocka_unit_test(the_plan_has_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
