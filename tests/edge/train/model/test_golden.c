/* Every layer, loss and optimizer against PyTorch in double precision: tests/golden/train, made by
 * make_golden.py there. On every kernel level. */
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
#include "edge/plan/plan_fields.h"
#include "tests/edge/train/support.h"

#define FOLDER FEDGE_SOURCE_DIR "/tests/golden/train/"
#define MAX_SIZE ((size_t)1 << 20)
#define MAX_GOLDEN 96
#define STEPS 10
#define RATE 1024.0f /* as in test_gradients.c */

/* Errors, as a share of the largest expected value of the tensor. Outputs and gradients are sums of
 * at most a few hundred products in single precision. The ten steps of Adam divide by the root of
 * squared gradients, which turns a small gradient's relative error into as large a share of a step;
 * those are 1e-3 of how far the parameters went. */
#define OUTPUT_BOUND 1e-5
#define GRADIENT_BOUND 3e-5
#define STEP_BOUND 1e-3
#define FLOOR 2e-6

typedef struct golden {
    char name[64];
    uint8_t *json, *file;
    size_t json_size;
    fedge_schema schema;
    fedge_tensor_spec tensors[MAX_GOLDEN];
    const uint8_t *data;
    fedge_plan *plan; /* model and training only */
} golden;

static const fedge_json_field FIELDS[] = {
    {.key = "model",
     .kind = FEDGE_JSON_CUSTOM,
     .flags = FEDGE_JSON_REQUIRED,
     .read = fedge_model_read,
     .write = fedge_model_write},
    {.key = "training",
     .kind = FEDGE_JSON_OBJECT,
     FEDGE_JSON_AT(fedge_plan, training),
     .fields = fedge_training_fields},
    FEDGE_JSON_END,
};

/* What is in the cases that have been opened. */
static bool has_layer[FEDGE_LAYER_COUNT], has_loss[FEDGE_LOSS_COUNT];
static bool has_optimizer[FEDGE_OPTIMIZER_COUNT];

static void golden_open(golden *self, const char *name)
{
    char path[512];
    fedge_error err = {0};
    fedge_json json;
    size_t size;
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    (void)snprintf(path, sizeof(path), FOLDER "%s.json", name);
    self->plan = calloc(1, sizeof(*self->plan));
    assert_non_null(self->plan);
    if (fedge_os_read_file(path, MAX_SIZE, &self->json, &self->json_size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const fedge_json_options options = {.name = path,
                                        .lines = true,
                                        .strict = true,
                                        .status = FEDGE_INVALID_ARGUMENT,
                                        .max_size = MAX_SIZE,
                                        .max_depth = 8,
                                        .max_values = 10000};
    if (fedge_json_open(&json, (const char *)self->json, self->json_size, &options, &err) !=
            FEDGE_OK ||
        fedge_json_read(&json, json.root, FIELDS, self->plan, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_json_close(&json);
    const fedge_model_spec *model = &self->plan->model;
    for (uint32_t i = 0; i < model->num_layers; i++)
        has_layer[model->layers[i].type] = true;
    has_loss[model->loss] = true;
    has_optimizer[self->plan->training.optimizer.type] = true;
    (void)snprintf(path, sizeof(path), FOLDER "%s.safetensors", name);
    fedge_schema_init(&self->schema, self->tensors, MAX_GOLDEN);
    if (fedge_os_read_file(path, MAX_SIZE, &self->file, &size, &err) != FEDGE_OK ||
        fedge_safetensors_read_schema(self->file, size, &self->schema, &self->data, &err) !=
            FEDGE_OK)
        fail_msg("%s: %s", path, err.message);
}

static void golden_close(golden *self)
{
    free(self->plan);
    free(self->json);
    free(self->file);
}

/* "KIND/NAME", or KIND alone when there is no name; NULL when it is not there. */
static const fedge_tensor_spec *find(const golden *self, const char *kind, const char *name)
{
    char text[FEDGE_MAX_TENSOR_NAME + 8];
    (void)snprintf(text, sizeof(text), "%s%s%s", kind, name[0] == '\0' ? "" : "/", name);
    return fedge_schema_find(&self->schema, text);
}

static float value_at(const golden *self, const fedge_tensor_spec *tensor, size_t i)
{
    float value;
    memcpy(&value, self->data + (tensor->offset + i) * sizeof(value), sizeof(value));
    return value;
}

static float *copy_of(const golden *self, const fedge_tensor_spec *tensor)
{
    float *values = malloc(tensor->count * sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < tensor->count; i++)
        values[i] = value_at(self, tensor, i);
    return values;
}

static double largest_value(const golden *self, const fedge_tensor_spec *expected,
                            const fedge_tensor_spec *base)
{
    double largest = 0.0;
    for (size_t i = 0; i < expected->count; i++) {
        const double from = !base ? 0.0 : (double)value_at(self, base, i);
        const double size = fabs((double)value_at(self, expected, i) - from);
        if (size > largest)
            largest = size;
    }
    return largest;
}

/* Each value within [bound] of the largest expected one. base: what is taken from both first, or
 * NULL. */
static void compare(const golden *self, const char *kernels, const char *kind, const char *name,
                    const float *values, const fedge_tensor_spec *base, double bound)
{
    const fedge_tensor_spec *expected = find(self, kind, name);
    if (!expected) {
        fail_msg("%s: no %s %s", self->name, kind, name);
        return;
    }
    const double largest = largest_value(self, expected, base);
    for (size_t i = 0; i < expected->count; i++) {
        const double wanted = (double)value_at(self, expected, i);
        if (!(fabs((double)values[i] - wanted) <= bound * largest + FLOOR)) {
            fail_msg("%s on %s: %s %s[%zu] is %.9g, PyTorch has %.9g", self->name, kernels, kind,
                     name, i, (double)values[i], wanted);
        }
    }
}

static void load_values(const golden *self, const fedge_schema *schema, float *values)
{
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *start = find(self, "w0", schema->tensors[t].name);
        if (!start || start->count != schema->tensors[t].count) {
            fail_msg("%s: w0/%s is missing or of another size", self->name,
                     schema->tensors[t].name);
            return;
        }
        for (size_t i = 0; i < start->count; i++)
            values[schema->tensors[t].offset + i] = value_at(self, start, i);
    }
}

/* Evaluation: outputs and loss. */
static void check_outputs(const golden *self, test_model *model, const fedge_batch *batch,
                          const char *kind)
{
    fedge_error err = {0};
    double loss;
    uint32_t correct;
    if (fedge_model_test(model->model, batch, &loss, &correct, &err) != FEDGE_OK)
        fail_msg("%s: %s", self->name, err.message);
    assert_true(correct <= batch->size);
    compare(self, fedge_model_kernels(model->model), kind, "", fedge_model_outputs(model->model),
            NULL, kind[1] == '\0' ? OUTPUT_BOUND : STEP_BOUND);
    if (kind[1] == '\0') {
        const float mean = (float)(loss / batch->size);
        compare(self, fedge_model_kernels(model->model), "loss", "", &mean, NULL, OUTPUT_BOUND);
    }
}

/* The gradients by one plain step, with neither clipping nor an optimizer's state. */
static void check_gradients(const golden *self, unsigned disabled, bool general,
                            const fedge_batch *batch)
{
    const fedge_model_spec *spec = &self->plan->model;
    const fedge_model_options options = {.max_batch = batch->size,
                                         .training = true,
                                         .general = general,
                                         .disabled_cpu_features = disabled};
    const fedge_optimizer plain = {.learning_rate = RATE};
    fedge_error err = {0};
    test_model model;
    double loss;
    uint32_t correct;
    model_open(&model, spec, &options, 1, 0);
    float *values = fedge_model_values(model.model);
    load_values(self, &model.schema, values);
    float *before = malloc((model.schema.num_elements + 1) * sizeof(*before));
    assert_non_null(before);
    memcpy(before, values, model.schema.num_elements * sizeof(*before));
    if (fedge_model_train(model.model, batch, &plain, &loss, &correct, &err) != FEDGE_OK)
        fail_msg("%s: %s", self->name, err.message);
    for (size_t i = 0; i < model.schema.num_elements; i++)
        before[i] = (before[i] - values[i]) / RATE;
    for (uint32_t t = 0; t < model.schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &model.schema.tensors[t];
        const float *gradient = before + tensor->offset;
        assert_int_equal(fedge_model_trains(spec, t), find(self, "g0", tensor->name) != NULL);
        if (fedge_model_trains(spec, t)) {
            compare(self, fedge_model_kernels(model.model), "g0", tensor->name, gradient, NULL,
                    GRADIENT_BOUND);
        }
        for (size_t i = 0; !fedge_model_trains(spec, t) && i < tensor->count; i++)
            assert_true(gradient[i] == 0.0f);
    }
    free(before);
    model_close(&model);
}

/* Ten steps as the case's training says. */
static void check_steps(const golden *self, unsigned disabled, bool general,
                        const fedge_batch *batch)
{
    fedge_model_options options = fedge_plan_model_options(self->plan);
    fedge_optimizer optimizer = self->plan->training.optimizer;
    fedge_error err = {0};
    test_model model;
    fedge_tensor_spec tensors[16];
    fedge_schema buffers;
    options.max_batch = batch->size;
    options.general = general;
    options.disabled_cpu_features = disabled;
    optimizer.learning_rate = self->plan->training.learning_rate;
    model_open(&model, &self->plan->model, &options, 1, 0);
    load_values(self, &model.schema, fedge_model_values(model.model));
    fedge_model_reset_optimizer(model.model);
    check_outputs(self, &model, batch, "y");
    for (int step = 0; step < STEPS; step++) {
        double loss;
        uint32_t correct;
        if (fedge_model_train(model.model, batch, &optimizer, &loss, &correct, &err) != FEDGE_OK)
            fail_msg("%s: %s", self->name, err.message);
    }
    const char *kernels = fedge_model_kernels(model.model);
    for (uint32_t t = 0; t < model.schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &model.schema.tensors[t];
        const fedge_tensor_spec *start = find(self, "w0", tensor->name);
        const bool trained = fedge_model_trains(&self->plan->model, t);
        compare(self, kernels, trained ? "w10" : "w0", tensor->name,
                fedge_model_values(model.model) + tensor->offset, trained ? start : NULL,
                trained ? STEP_BOUND : 0.0);
    }
    fedge_schema_init(&buffers, tensors, 16);
    assert_int_equal(fedge_model_buffer_schema(&self->plan->model, &buffers, &err), FEDGE_OK);
    assert_int_equal(buffers.num_elements, fedge_model_num_buffers(model.model));
    for (uint32_t t = 0; t < buffers.num_tensors; t++) {
        compare(self, kernels, "b10", tensors[t].name,
                fedge_model_buffers(model.model) + tensors[t].offset, NULL, STEP_BOUND);
    }
    check_outputs(self, &model, batch, "y10");
    model_close(&model);
}

static void check_case(const char *name)
{
    golden self;
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    golden_open(&self, name);
    const fedge_tensor_spec *x = find(&self, "x", ""), *labels = find(&self, "labels", "");
    const fedge_tensor_spec *targets = find(&self, "targets", "");
    assert_true(x && (labels || targets));
    fedge_batch batch = {.x = copy_of(&self, x), .size = x->shape[0]};
    int32_t numbers[16];
    for (size_t i = 0; labels && i < labels->count; i++) {
        assert_true(i < 16);
        numbers[i] = (int32_t)value_at(&self, labels, i);
        batch.labels = numbers;
    }
    batch.targets = !targets ? NULL : copy_of(&self, targets);
    for (unsigned level = 0; level < 2 * num_levels; level++) {
        const bool general = level >= num_levels;
        check_gradients(&self, levels[level % num_levels], general, &batch);
        check_steps(&self, levels[level % num_levels], general, &batch);
    }
    float *const owned[2] = {(float *)(uintptr_t)batch.x, (float *)(uintptr_t)batch.targets};
    free(owned[0]);
    free(owned[1]);
    golden_close(&self);
}

static void test_cases(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err = {0};
    if (fedge_os_read_file(FOLDER "cases.txt", MAX_SIZE, &text, &size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    for (size_t at = 0; at < size;) {
        char name[64];
        const uint8_t *end = memchr(text + at, '\n', size - at);
        assert_non_null(end);
        (void)snprintf(name, sizeof(name), "%.*s", (int)(end - (text + at)), text + at);
        check_case(name);
        at = (size_t)(end - text) + 1;
    }
    free(text);
    for (int i = 0; i < FEDGE_LAYER_COUNT; i++) {
        if (!has_layer[i]) {
            fail_msg("no case has a %s: add one to make_golden.py",
                     fedge_layer_type_name((fedge_layer_type)i));
        }
    }
    for (int i = 0; i < FEDGE_LOSS_COUNT; i++) {
        if (!has_loss[i])
            fail_msg("no case has %s", fedge_loss_type_name((fedge_loss_type)i));
    }
    for (int i = 0; i < FEDGE_OPTIMIZER_COUNT; i++) {
        if (!has_optimizer[i])
            fail_msg("no case has %s", fedge_optimizer_type_name((fedge_optimizer_type)i));
    }
}

/* What is written of a model and its training reads back the same. */
static void test_descriptions_read_back(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"residual",
                                        "batchnorm2d-frozen",
                                        "layernorm-2d",
                                        "lora",
                                        "adam-options",
                                        "rmsprop-options",
                                        "adagrad-options",
                                        "lion-options",
                                        "conv2d-depthwise-stride",
                                        "gelu-tanh",
                                        "bias-only",
                                        "loss-huber-delta",
                                        "loss-smooth-l1-beta",
                                        "loss-smoothing",
                                        "leakyrelu-steep",
                                        "maxpool2d-dilated",
                                        "maxpool1d-ceil",
                                        "avgpool2d-divisor",
                                        "fedprox-clip",
                                        "select-3d",
                                        "multiheadattention-causal",
                                        "transformerencoderlayer-gelu",
                                        "transformer"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        golden self;
        char *text = NULL;
        size_t size = 0;
        fedge_error err = {0};
        fedge_json json;
        golden_open(&self, NAMES[i]);
        assert_int_equal(fedge_json_print(FIELDS, self.plan, &text, &size, &err), FEDGE_OK);
        const fedge_json_options options = {.name = NAMES[i],
                                            .strict = true,
                                            .status = FEDGE_INVALID_ARGUMENT,
                                            .max_size = MAX_SIZE,
                                            .max_depth = 8,
                                            .max_values = 10000};
        fedge_plan *again = calloc(1, sizeof(*again));
        assert_non_null(again);
        if (fedge_json_open(&json, text, size, &options, &err) != FEDGE_OK ||
            fedge_json_read(&json, json.root, FIELDS, again, &err) != FEDGE_OK)
            fail_msg("%s: %s in %s", NAMES[i], err.message, text);
        fedge_json_close(&json);
        assert_memory_equal(&again->model, &self.plan->model, sizeof(again->model));
        assert_memory_equal(&again->training, &self.plan->training, sizeof(again->training));
        free(again);
        free(text);
        golden_close(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_descriptions_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
