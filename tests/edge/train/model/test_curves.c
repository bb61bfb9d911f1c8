/* A hundred steps on real data, each on other examples, against PyTorch in double precision: the
 * loss of each step. tests/golden/train/make_curves.py says how the curves were made. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "tests/edge/train/support.h"
#include "tests/edge/train/zoo.h"

#define FOLDER FEDGE_SOURCE_DIR "/tests/golden/train/curves/"
#define MAX_SIZE ((size_t)1 << 20)
#define STEPS 100
/* An emulator takes minutes for what is seconds elsewhere: it gets the first steps. */
#ifdef FEDGE_EMULATED
#define STEPS_CHECKED 10
#else
#define STEPS_CHECKED STEPS
#endif

/* Absolute, of losses of 1 to 5. Single precision rounds such a loss by 2e-7 and the weights by
 * 6e-8 of themselves in each step, which the next steps carry on; rounding errors are random, so a
 * hundred of them come to ten times one. */
#define BOUND 1e-5

/* A ReLU or a pool may meet a value within rounding of where it switches, and the switch changes
 * all later steps; in mcmahan-cnn's step 62 it does. Which side PyTorch took is chance, so the
 * curve has to be that of one of several starts that differ by one rounding. An error that is
 * larger than rounding is in all of them. */
#define STARTS 5

/* The STEPS losses of curves/NAME.safetensors. */
static void read_curve(const char *name, float curve[STEPS])
{
    char path[512];
    uint8_t *file = NULL;
    size_t size = 0;
    fedge_tensor_spec tensors[1];
    fedge_schema schema;
    const uint8_t *data;
    fedge_error err = {0};
    (void)snprintf(path, sizeof(path), FOLDER "%s.safetensors", name);
    fedge_schema_init(&schema, tensors, 1);
    if (fedge_os_read_file(path, MAX_SIZE, &file, &size, &err) != FEDGE_OK ||
        fedge_safetensors_read_schema(file, size, &schema, &data, &err) != FEDGE_OK)
        fail_msg("%s: %s", path, err.message);
    assert_int_equal(schema.num_elements, STEPS);
    memcpy(curve, data, STEPS * sizeof(*curve));
    free(file);
}

static fedge_dataset *load(const fedge_plan *plan, const char *values, const char *labels)
{
    char paths[2][512];
    fedge_dataset *dataset = NULL;
    fedge_error err = {0};
    (void)snprintf(paths[0], sizeof(paths[0]), "%s%s", values[0] == '/' ? "" : FOLDER, values);
    (void)snprintf(paths[1], sizeof(paths[1]), "%s%s", labels[0] == '/' ? "" : FOLDER, labels);
    const fedge_status status = fedge_dataset_load(&plan->data, paths[0], paths[1], &dataset, &err);
    if (status == FEDGE_NOT_FOUND && values[0] == '/') {
        print_message("the package dataset-fashion-mnist is not installed\n");
        skip();
    }
    if (status != FEDGE_OK)
        fail_msg("%s", err.message);
    return dataset;
}

/* The steps until the losses part. */
static int steps_alike(const double losses[STEPS], const float expected[STEPS])
{
    int step = 0;
    while (step < STEPS_CHECKED && fabs(losses[step] - (double)expected[step]) <= BOUND)
        step++;
    return step;
}

/* The job [name], on the files and with the batch size of its line in curves/cases.txt. */
static void check_curve(const char *name)
{
    char values[256], labels[256], key[64], path[512];
    unsigned batch = 0;
    float expected[STEPS];
    double losses[STEPS];
    fedge_job *job = NULL;
    fedge_error err = {0};
    test_model model;
    uint8_t *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), FEDGE_SOURCE_DIR "/examples/zoo/%s.json", name);
    if (fedge_job_load(path, &job, &err) != FEDGE_OK ||
        fedge_os_read_file(FOLDER "cases.txt", MAX_SIZE, &text, &size, &err) != FEDGE_OK) {
        fail_msg("%s", err.message);
        return;
    }
    const char *line = strstr((const char *)text, name);
    assert_non_null(line);
    assert_int_equal(sscanf(line, "%63s %255s %255s %u", key, values, labels, &batch), 4);
    free(text);
    fedge_dataset *dataset = load(&job->plan, values, labels);
    fedge_model_options options = fedge_plan_model_options(&job->plan);
    options.max_batch = batch;
    model_open(&model, &job->plan.model, &options, 1, 0);
    read_curve(name, expected);
    int parted = 0, furthest = -1;
    for (uint32_t start = 0; start < STARTS && parted < STEPS_CHECKED; start++) {
        if (zoo_train(model.model, &job->plan, dataset, start, STEPS_CHECKED, batch, losses,
                      &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        parted = steps_alike(losses, expected);
        furthest = parted > furthest ? parted : furthest;
    }
    if (furthest < STEPS_CHECKED) {
        fail_msg("%s on %s: none of %d starts has PyTorch's losses for longer than %d steps", name,
                 fedge_model_kernels(model.model), STARTS, furthest);
    }
    model_close(&model);
    fedge_dataset_free(dataset);
    fedge_job_free(job);
}

static void test_cnn(void **state)
{
    (void)state;
    check_curve("mcmahan-cnn");
}

static void test_lstm(void **state)
{
    (void)state;
    check_curve("char-lstm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cnn),
        cmocka_unit_test(test_lstm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
