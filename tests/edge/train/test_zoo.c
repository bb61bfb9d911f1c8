/* The models of examples/zoo against PyTorch in double precision: the gradients at the start, and
 * ten steps of each job's own training at a tenth of its learning rate, on every kernel level.
 * tests/golden/train/make_zoo.py has the formulas of the start and the batch. And the number of
 * parameters that the zoo's README states. */
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
#include "edge/plan/plan.h"
#include "tests/edge/train/support.h"
#include "tests/edge/train/zoo.h"

#define ZOO FEDGE_SOURCE_DIR "/examples/zoo/"
#define GOLDEN FEDGE_SOURCE_DIR "/tests/golden/train/zoo/"
#define MAX_SIZE ((size_t)1 << 20)
#define MAX_BATCH 16
#define STEPS 10
#define PLACES 8

/* Errors of ten steps in single precision, 2^-24 = 6e-8 a rounding. A sum of n products errs by
 * about sqrt(n) roundings of its size, n here at most a few thousand, and random ones cancel:
 * losses and outputs are within 1e-5 of the largest. Gradients of the first layers have been
 * through up to thirty others, and each step starts from the error of the one before: what was
 * added to a tensor is within 2e-4 of its largest value, and each step rounds the weight w itself
 * (AdamW twice: it decays first), which a small change of a large weight shows.
 *
 * mobilenet-small puts three million values through ReLU6 in ten steps. In double precision the one
 * nearest to a kink is 5e-7 from it, less than single precision can tell at that size, so a few may
 * fall on either side; each has a part of about 10^-4 in the gradients before it. */
#define OUTPUT_BOUND 1e-5
#define CHANGE_BOUND 2e-4
#define CHANGE_BOUND_KINKS 1e-3
#define WEIGHT_BOUND (2 * 6e-8) /* of each step */

/* An emulator takes minutes for what is seconds elsewhere: it gets the best kernels only. */
#ifdef FEDGE_EMULATED
#define FIRST_LEVEL(n) ((n)-1)
#else
#define FIRST_LEVEL(n) 0
#endif

typedef struct golden {
    char name[64];
    fedge_job *job;
    uint8_t *file;
    const uint8_t *data;
    fedge_schema schema;
    fedge_tensor_spec tensors[192];
    uint32_t batch;
    float *x;
    int32_t labels[MAX_BATCH];
} golden;

static void make_batch(golden *self)
{
    const fedge_model_spec *spec = &self->job->plan.model;
    const size_t count = fedge_model_input_count(spec) * self->batch;
    const fedge_layer_spec *first = &spec->layers[0];
    self->x = malloc(count * sizeof(*self->x));
    assert_non_null(self->x);
    for (size_t i = 0; i < count; i++) {
        self->x[i] = first->type == FEDGE_LAYER_EMBEDDING
                         ? (float)(zoo_hash(ZOO_INPUTS, i) % first->u.embedding.num_embeddings)
                         : (float)(1.7 * zoo_number(ZOO_INPUTS, i));
    }
    for (uint32_t i = 0; i < self->batch; i++)
        self->labels[i] = (int32_t)(zoo_hash(ZOO_LABELS, i) % fedge_model_num_classes(spec));
}

/* ---- files ---- */

static void read_text(const char *path, uint8_t **text, size_t *size)
{
    fedge_error err = {0};
    if (fedge_os_read_file(path, MAX_SIZE, text, size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
}

static fedge_job *load_job(const char *name)
{
    char path[512];
    fedge_job *job = NULL;
    fedge_error err = {0};
    (void)snprintf(path, sizeof(path), ZOO "%s.json", name);
    if (fedge_job_load(path, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static void golden_open(golden *self, const char *name, uint32_t batch)
{
    char path[512];
    size_t size;
    fedge_error err = {0};
    memset(self, 0, sizeof(*self));
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    (void)snprintf(path, sizeof(path), GOLDEN "%s.safetensors", name);
    self->job = load_job(name);
    self->batch = batch;
    read_text(path, &self->file, &size);
    fedge_schema_init(&self->schema, self->tensors, 192);
    if (fedge_safetensors_read_schema(self->file, size, &self->schema, &self->data, &err) !=
        FEDGE_OK)
        fail_msg("%s: %s", path, err.message);
    make_batch(self);
}

static void golden_close(golden *self)
{
    free(self->x);
    free(self->file);
    fedge_job_free(self->job);
}

static const fedge_tensor_spec *find(const golden *self, const char *prefix, const char *name,
                                     size_t count)
{
    char text[FEDGE_MAX_TENSOR_NAME + 8];
    (void)snprintf(text, sizeof(text), "%s%s", prefix, name);
    const fedge_tensor_spec *tensor = fedge_schema_find(&self->schema, text);
    if (!tensor || tensor->count != count)
        fail_msg("%s: %s of %zu values is not in the golden file", self->name, text, count);
    return tensor;
}

static double value_at(const golden *self, const fedge_tensor_spec *tensor, size_t i)
{
    float value;
    memcpy(&value, self->data + (tensor->offset + i) * sizeof(value), sizeof(value));
    return (double)value;
}

static double largest_of(const golden *self, const fedge_tensor_spec *tensor, size_t count)
{
    double largest = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double size = fabs(value_at(self, tensor, i));
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* ---- comparing ---- */

static void near(const golden *self, const char *kernels, const char *what, size_t i, double value,
                 double wanted, double allowed)
{
    if (!(fabs(value - wanted) <= allowed)) {
        fail_msg("%s on %s: %s [%zu] is %.9g, PyTorch has %.9g, %.2g are allowed", self->name,
                 kernels, what, i, value, wanted, allowed);
    }
}

static void compare_outputs(const golden *self, const char *kernels, const float *outputs,
                            size_t count)
{
    const fedge_tensor_spec *expected = find(self, "y10", "", count);
    const double allowed = OUTPUT_BOUND * largest_of(self, expected, count);
    for (size_t i = 0; i < count; i++)
        near(self, kernels, "output", i, (double)outputs[i], value_at(self, expected, i), allowed);
}

static double change_bound(const golden *self)
{
    const fedge_model_spec *model = &self->job->plan.model;
    for (uint32_t i = 0; i < model->num_layers; i++) {
        if (model->layers[i].type == FEDGE_LAYER_RELU6)
            return CHANGE_BOUND_KINKS;
    }
    return CHANGE_BOUND;
}

/* What the file has of a tensor, and how it comes about. */
typedef struct change {
    const char *prefix;
    double sign; /* times what was added */
    double steps;
} change;

static const change GRADIENT = {"g/", -1.0, 1.0}, TEN_STEPS = {"d10/", 1.0, STEPS};

static void compare_change(const golden *self, const char *kernels, const change *what,
                           const fedge_tensor_spec *tensor, uint32_t stream, const float *values)
{
    const fedge_tensor_spec *expected = find(self, what->prefix, tensor->name, PLACES + 2);
    float *start = malloc(tensor->count * sizeof(*start));
    double squares = 0.0, sum = 0.0, weights = 0.0;
    assert_non_null(start);
    zoo_start(tensor, stream, start);
    for (size_t i = 0; i < tensor->count; i++) {
        const double d = what->sign * ((double)values[i] - (double)start[i]);
        squares += d * d;
        sum += d * zoo_number(stream, i);
        weights += (double)start[i] * (double)start[i];
    }
    const double norm = sqrt(value_at(self, expected, PLACES));
    const double bound = change_bound(self), rounding = what->steps * WEIGHT_BOUND;
    const double allowed = bound * largest_of(self, expected, PLACES);
    for (size_t k = 0; k < PLACES; k++) {
        const size_t i = (2 * k + 1) * tensor->count / (2 * (size_t)PLACES);
        near(self, kernels, tensor->name, i, what->sign * ((double)values[i] - (double)start[i]),
             value_at(self, expected, k), allowed + rounding * fabs((double)start[i]));
    }
    /* With an error e of d: |(d + e)² − d²| ≤ 2 ‖d‖ ‖e‖ + ‖e‖², |e · u| ≤ ‖e‖ ‖u‖. */
    const double off = bound * norm + rounding * sqrt(weights);
    near(self, kernels, tensor->name, PLACES, squares, norm * norm, (2 * norm + off) * off);
    near(self, kernels, tensor->name, PLACES + 1, sum, value_at(self, expected, PLACES + 1),
         off * sqrt((double)tensor->count / 3.0));
    free(start);
}

/* A model at the start. */
static void open_at_start(const golden *self, unsigned disabled, bool general,
                          fedge_model_options options, test_model *model)
{
    options.max_batch = self->batch;
    options.general = general;
    options.disabled_cpu_features = disabled;
    model_open(model, &self->job->plan.model, &options, 1, 0);
    float *values = fedge_model_values(model->model);
    for (uint32_t t = 0; t < model->schema.num_tensors; t++)
        zoo_start(&model->tensors[t], t, values + model->tensors[t].offset);
    fedge_model_reset_optimizer(model->model);
}

static double step_once(const golden *self, fedge_model *model, const fedge_optimizer *optimizer)
{
    const fedge_batch batch = {.x = self->x, .labels = self->labels, .size = self->batch};
    fedge_error err = {0};
    double loss;
    uint32_t correct;
    if (fedge_model_train(model, &batch, optimizer, &loss, &correct, &err) != FEDGE_OK)
        fail_msg("%s: %s", self->name, err.message);
    return loss / self->batch;
}

static void compare_changes(const golden *self, const change *what, const test_model *model)
{
    const float *values = fedge_model_values(model->model);
    for (uint32_t t = 0; t < model->schema.num_tensors; t++) {
        compare_change(self, fedge_model_kernels(model->model), what, &model->tensors[t], t,
                       values + model->tensors[t].offset);
    }
}

/* A step of plain SGD at 1 takes the gradients away. */
static void check_gradients(const golden *self, unsigned disabled, bool general)
{
    fedge_model_options options = fedge_plan_model_options(&self->job->plan);
    const fedge_optimizer plain = {.type = FEDGE_OPTIMIZER_SGD, .learning_rate = 1.0f};
    test_model model;
    options.optimizer = FEDGE_OPTIMIZER_SGD;
    options.clip = false;
    open_at_start(self, disabled, general, options, &model);
    (void)step_once(self, model.model, &plain);
    compare_changes(self, &GRADIENT, &model);
    model_close(&model);
}

static void check_model(const golden *self, unsigned disabled, bool general)
{
    const fedge_plan *plan = &self->job->plan;
    fedge_optimizer optimizer = plan->training.optimizer;
    const fedge_batch batch = {.x = self->x, .labels = self->labels, .size = self->batch};
    fedge_error err = {0};
    test_model model;
    double loss;
    uint32_t correct;
    optimizer.learning_rate = plan->training.learning_rate / 10;
    optimizer.epsilon = 1e-3f; /* Adam's */
    open_at_start(self, disabled, general, fedge_plan_model_options(plan), &model);
    const char *kernels = fedge_model_kernels(model.model);
    const fedge_tensor_spec *losses = find(self, "loss", "", STEPS);
    for (size_t step = 0; step < STEPS; step++) {
        near(self, kernels, "loss", step, step_once(self, model.model, &optimizer),
             value_at(self, losses, step), OUTPUT_BOUND * largest_of(self, losses, STEPS));
    }
    compare_changes(self, &TEN_STEPS, &model);
    if (fedge_model_test(model.model, &batch, &loss, &correct, &err) != FEDGE_OK)
        fail_msg("%s: %s", self->name, err.message);
    compare_outputs(self, kernels, fedge_model_outputs(model.model),
                    (size_t)self->batch * fedge_model_num_classes(&plan->model));
    model_close(&model);
}

/* ---- tests ---- */

/* Parts that a batch passes in when the job does not say; 0: whole. */
static void test_micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t at_10, at_32;
    } CASES[] = {{"2nn", 0, 0},         {"mcmahan-cnn", 0, 0},
                 {"lenet-5", 0, 0},     {"resnet-8-groupnorm", 5, 4},
                 {"char-lstm", 0, 8},   {"mobilenet-small", 5, 4},
                 {"gru-sensors", 0, 8}, {"transformer-small", 5, 4}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        fedge_job *job = load_job(CASES[i].name);
        job->plan.training.batch_size = 10;
        assert_int_equal(fedge_plan_model_options(&job->plan).micro_batch, CASES[i].at_10);
        job->plan.training.batch_size = 32;
        assert_int_equal(fedge_plan_model_options(&job->plan).micro_batch, CASES[i].at_32);
        job->plan.training.micro_batch_size = 32;
        assert_int_equal(fedge_plan_model_options(&job->plan).micro_batch, 32);
        fedge_job_free(job);
    }
}

/* Calls [check] for each line "NAME BATCH" of the list of cases. */
static void for_each_case(void (*check)(const char *name, uint32_t batch))
{
    size_t size, count = 0;
    uint8_t *text = NULL;
    read_text(GOLDEN "cases.txt", &text, &size);
    for (size_t at = 0; at < size; count++) {
        char name[64];
        unsigned batch;
        const uint8_t *end = memchr(text + at, '\n', size - at);
        assert_non_null(end);
        assert_int_equal(sscanf((const char *)text + at, "%63s %u", name, &batch), 2);
        assert_in_range(batch, 1, MAX_BATCH);
        check(name, batch);
        at = (size_t)(end - text) + 1;
    }
    assert_true(count >= 5);
    free(text);
}

static void check_case(const char *name, uint32_t batch)
{
    golden self;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    golden_open(&self, name, batch);
    for (unsigned level = FIRST_LEVEL(num_levels); level < num_levels; level++) {
        check_gradients(&self, levels[level], false);
        check_model(&self, levels[level], false);
    }
    check_gradients(&self, levels[num_levels - 1], true);
    check_model(&self, levels[num_levels - 1], true);
    golden_close(&self);
}

static void test_ten_steps(void **state)
{
    (void)state;
    for_each_case(check_case);
}

/* 1663370 as "1,663,370". */
static void with_commas(size_t number, char text[32])
{
    char digits[32];
    const size_t length = (size_t)snprintf(digits, sizeof(digits), "%zu", number);
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
}

/* The README has the row "| [NAME](NAME.json) | PARAMETERS |". */
static void check_readme(const char *name, uint32_t batch)
{
    (void)batch;
    char row[256], number[32];
    size_t size;
    fedge_job *job = load_job(name);
    uint8_t *text = NULL;
    read_text(ZOO "README.md", &text, &size);
    with_commas(job->plan.schema.num_elements, number);
    (void)snprintf(row, sizeof(row), "\n| [%s](%s.json) | %s |", name, name, number);
    if (!strstr((const char *)text, row))
        fail_msg("the zoo's README has no row that begins with %s", row + 1);
    free(text);
    fedge_job_free(job);
}

static void test_readme_states_the_parameters(void **state)
{
    (void)state;
    for_each_case(check_readme);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_steps),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_readme_states_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
