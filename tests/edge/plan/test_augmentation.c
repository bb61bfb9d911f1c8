/* Augmentation in jobs and plans, and what is filled in by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/plan/plan.h"
#include "tests/edge/data/data_files.h"

/* Of images; a test puts its own words in the place of AUGMENTATION, and others. */
static const char IMAGES[] =
    "{\"fedge-job\": 1, \"name\": \"a\", \"seed\": 6,\n"
    " \"model\": {\"input-shape\": [3, 5, 4], \"layers\": [{\"type\": \"Flatten\"},"
    " {\"type\": \"Linear\", \"in_features\": 60, \"out_features\": 2}]},\n"
    " \"data\": {\"name\": \"d\", \"shape\": [3, 5, 4], \"dtype\": \"u8\", \"labels\": 2,\n"
    "  \"normalisation\": {\"divide-by\": 255, \"mean\": [0.1, 0.2, 0.3], \"std\": [0.3, 0.2, "
    "0.1]}AUGMENTATION},\n"
    " \"training\": {\"batch-size\": 2, \"learning-rate\": 0.1},"
    " \"rounds\": {\"num-server-rounds\": 3}}";

static const char STEPS[] =
    "{\"fedge-job\": 1, \"name\": \"a\","
    " \"model\": {\"input-shape\": [7, 4], \"layers\": [LAYER{\"type\": \"Flatten\"},"
    " {\"type\": \"Linear\", \"in_features\": 28, \"out_features\": 2}]},"
    " \"data\": {\"name\": \"d\", \"shape\": [7, 4], \"dtype\": \"f32\", \"labels\": 2,"
    " \"augmentation\": {\"horizontal-flip\": 0.5, \"crop\": {\"padding\": 3}}},"
    " \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}";

#define BOTH ", \"augmentation\": {\"horizontal-flip\": 0.25, \"crop\": {\"padding\": 3}}"

static fedge_status try_parse(const char *text, const char *from, const char *to, fedge_job **job,
                              fedge_error *err)
{
    char changed[2048];
    const char *at = strstr(text, from);
    assert_non_null(at);
    const int size = snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to,
                              at + strlen(from));
    assert_in_range(size, 1, sizeof(changed) - 1);
    return fedge_job_parse(changed, (size_t)size, "job.json", job, err);
}

static fedge_job *parse(const char *text, const char *from, const char *to)
{
    fedge_job *job = NULL;
    fedge_error err;
    if (try_parse(text, from, to, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static void expect(const char *text, const char *from, const char *to, const char *part)
{
    fedge_job *job = NULL;
    fedge_error err = {0};
    if (try_parse(text, from, to, &job, &err) != FEDGE_INVALID_ARGUMENT ||
        !strstr(err.message, part))
        fail_msg("%s gave: %s\n  expected: %s", to, err.message, part);
}

static void mistakes_are_refused(void **state)
{
    (void)state;
#define A ", \"augmentation\": "
    static const char *const CASES[][2] = {
        {A "{\"flip\": 1}", "augmentation.flip: \"flip\" is not known here"},
        {A "{\"horizontal-flip\": 1.5}", "horizontal-flip: 1.5 is not in [0, 1]"},
        {A "{\"crop\": {}}", "data.augmentation.crop.padding: is missing"},
        {A "{\"crop\": {\"padding\": 0}}", "padding: 0 is not in [1, 65535]"},
        {A "{\"crop\": {\"padding\": 4}}",
         "job.json:4: data.augmentation.crop.padding: is 4, but examples have a side of 4"},
        {A "{\"crop\": 4}", "data.augmentation.crop: must be an object"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        expect(IMAGES, "AUGMENTATION", CASES[i][0], CASES[i][1]);
    fedge_job_free(parse(IMAGES, "AUGMENTATION", A "{\"horizontal_flip\": 1}"));
    fedge_job_free(parse(STEPS, "LAYER", ""));
    expect(STEPS, "LAYER", "{\"type\": \"LSTM\", \"input_size\": 4, \"hidden_size\": 4}, ",
           "data.augmentation: is for [channels, height, width] and [channels, length], not for "
           "[steps, features]; remove it");
#define SEVENTEEN "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"
    expect("{\"fedge-job\": 1, \"name\": \"a\", \"model\": {\"input-shape\": [17, 4], \"layers\": ["
           "{\"type\": \"Flatten\"}, {\"type\": \"Linear\", \"in_features\": 68, \"out_features\": "
           "2}]},"
           "\"data\": {\"name\": \"d\", \"shape\": [17, 4], \"dtype\": \"f32\", \"labels\": 2,"
           "\"normalisation\": {\"mean\": " SEVENTEEN ", \"std\": " SEVENTEEN "}BOTH},"
           " \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}",
           "BOTH", BOTH, "data.augmentation.crop: is for a mean of up to 16 values, not of 17");
    expect("{\"fedge-job\": 1, \"name\": \"a\", \"model\": {\"input-shape\": [4], \"layers\": ["
           "{\"type\": \"Linear\", \"in_features\": 4, \"out_features\": 2}]}, \"data\": {\"name\":"
           "\"d\", \"shape\": [4], \"dtype\": \"f32\", \"labels\": 2BOTH},"
           " \"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3}}",
           "BOTH", BOTH, "not for [features]; remove it");
    expect("{\"fedge-job\": 1, \"name\": \"a\", \"model\": {\"type\": \"external\", \"tensors\": ["
           "{\"name\": \"w\", \"shape\": [4]}]}, \"data\": {\"name\": \"d\", \"shape\": [1, 4, 4],"
           " \"dtype\": \"f32\", \"labels\": 2BOTH}, \"rounds\": {\"num-server-rounds\": 3}}",
           "BOTH", BOTH, "let your own trainer augment");
#undef A
}

static bool must(const char *plan, const char *word)
{
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", word); /* nowhere else in a plan */
    return strstr(plan, quoted) != NULL;
}

/* As text, and what must be known of it. */
static char *written(const fedge_plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    fedge_error err;
    assert_int_equal(fedge_plan_write(plan, &text, &size, &err), FEDGE_OK);
    return text;
}

static void plans_tell_clients(void **state)
{
    (void)state;
    fedge_error err;
    fedge_job *job = parse(IMAGES, "AUGMENTATION", BOTH);
    char *text = written(&job->plan);
    assert_true(must(text, "augmentation:horizontal-flip") && must(text, "augmentation:crop"));
    assert_non_null(strstr(text, "\"augmentation\":{\"horizontal-flip\":0.25,\"crop\":{"
                                 "\"padding\":3}}"));
    fedge_plan *plan = NULL;
    assert_int_equal(fedge_plan_parse(text, strlen(text), &plan, &err), FEDGE_OK);
    expect_same_data(&plan->data, &job->plan.data);
    assert_true(plan->data.has_augmentation && plan->data.has_crop);
    assert_int_equal(plan->data.crop_padding, 3);
    assert_true(plan->data.horizontal_flip == 0.25f);
    free(text);
    fedge_plan_free(plan);
    fedge_job_free(job);
    job = parse(IMAGES, "AUGMENTATION", ", \"augmentation\": {\"crop\": {\"padding\": 1}}");
    text = written(&job->plan);
    assert_true(!must(text, "augmentation:horizontal-flip") && must(text, "augmentation:crop"));
    free(text);
    fedge_job_free(job);
    job = parse(IMAGES, "AUGMENTATION", "");
    text = written(&job->plan);
    assert_null(strstr(text, "augmentation"));
    free(text);
    fedge_job_free(job);
}

/* Reads both of two examples [epochs] times, as the plan of [job] has them trained on. */
static void read_as_trained(const fedge_job *job, const fedge_dataset *dataset, int epochs,
                            float *x)
{
    const uint32_t both[] = {0, 1};
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples stored = fedge_view_examples(&view);
    const fedge_trainer_config config = fedge_plan_trainer_config(&job->plan, 1, 0, 0.1);
    fedge_augmented augmented;
    const fedge_examples examples = fedge_plan_augment(&job->plan, &config, &stored, &augmented);
    for (int i = 0; i < epochs; i++, x += 120) {
        int32_t labels[2];
        fedge_error err;
        assert_int_equal(examples.read(examples.user, both, 2, 0, x, labels, &err), FEDGE_OK);
        assert_true(labels[0] == 1 && labels[1] == 0);
    }
}

/* What a crop adds are stored zeros: an image of zeros stays as it is, bit for bit. */
static void zeros_are_filled_in(void **state)
{
    (void)state;
    enum { EPOCHS = 20 };
    static bytes b;
    static float plain[EPOCHS * 120], x[EPOCHS * 120];
    const uint8_t labels[2] = {1, 0}, zeros[120 * 4] = {0};
    b.size = 0;
    add_idx_header(&b, 0x08, 1, (uint32_t[]){2});
    add_bytes(&b, labels, sizeof(labels));
    save_file("augmentation-labels", &b, 0);
    static const char *const TYPES[][2] = {{"u8", "|u1"}, {"f32", "<f4"}};
    for (int type = 0; type < 2; type++) {
        char dictionary[96], dtype[16];
        fedge_dataset *dataset = NULL;
        fedge_error err;
        (void)snprintf(dtype, sizeof(dtype), "\"%s\"", TYPES[type][0]);
        (void)snprintf(dictionary, sizeof(dictionary),
                       "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3, 5, 4)}\n",
                       TYPES[type][1]);
        b.size = 0;
        add_npy_header(&b, 1, dictionary);
        add_bytes(&b, zeros, type == 0 ? 120 : 480);
        save_file("augmentation-values", &b, 0);
        char text[2048];
        const char *at = strstr(IMAGES, "\"u8\"");
        (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - IMAGES), IMAGES, dtype, at + 4);
        fedge_job *none = parse(text, "AUGMENTATION", ""), *job = parse(text, "AUGMENTATION", BOTH);
        if (fedge_dataset_load(&job->plan.data, "augmentation-values", "augmentation-labels",
                               &dataset, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        read_as_trained(none, dataset, EPOCHS, plain);
        read_as_trained(job, dataset, EPOCHS, x);
        assert_memory_equal(x, plain, sizeof(x));
        assert_true(plain[0] != plain[20] && plain[0] != 0.0f);
        fedge_dataset_free(dataset);
        fedge_job_free(none);
        fedge_job_free(job);
    }
    (void)remove("augmentation-values");
    (void)remove("augmentation-labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(plans_tell_clients),
        cmocka_unit_test(zeros_are_filled_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
