/* Training some rows of a layer: they move as in full training, the others keep their bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/train/layers/layer.h"
#include "tests/edge/train/support.h"

#define SEED 5
#define BATCH 6

/* Conv2d(2, 6), GroupNorm, ReLU, Flatten, Linear(96, 5): rows of the convolution and of the head.
 */
static void make_spec(fedge_model_spec *spec, bool partial)
{
    spec_input(spec, 3, 2, 4, 4);
    fedge_layer_spec *conv = spec_conv(spec, 2, 6, 3, 1, 1);
    spec_relu(spec);
    spec_flatten(spec);
    fedge_layer_spec *head = spec_linear(spec, 96, 5);
    if (partial) {
        conv->num_train_channels = head->num_train_channels = 2;
        conv->train_channels[0] = 1;
        conv->train_channels[1] = 4;
        head->train_channels[1] = 2; /* from 0 */
    }
}

/* One step of each; the partial model's values must be the full one's in the rows, and the first
 * ones elsewhere. */
static void check_step(const fedge_optimizer *optimizer)
{
    fedge_model_spec full, part;
    make_spec(&full, false);
    make_spec(&part, true);
    fedge_model_options options = {.max_batch = BATCH,
                                   .training = true,
                                   .momentum = optimizer->momentum,
                                   .optimizer = optimizer->type,
                                   .proximal = optimizer->proximal_mu > 0,
                                   .general = true};
    test_model a, b;
    model_open(&b, &part, &options, SEED, 64);
    options.clip = true; /* no step within a layer's backward pass: the same gradients */
    model_open(&a, &full, &options, SEED, 0);
    const size_t n = fedge_model_num_values(a.model);
    float x[BATCH * 32], *before = malloc(n * sizeof(*before));
    int32_t labels[BATCH];
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fill_batch(&rng, x, BATCH * 32, labels, BATCH, 5);
    memcpy(before, fedge_model_values(b.model), n * sizeof(*before));
    test_model *both[2] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        double loss;
        uint32_t correct;
        fedge_error err = {0};
        fedge_model_reset_optimizer(both[i]->model);
        if (fedge_model_step(both[i]->model, x, labels, BATCH, optimizer, &loss, &correct, &err) !=
            FEDGE_OK)
            fail_msg("%s", err.message);
    }
    const float *moved = fedge_model_values(a.model), *now = fedge_model_values(b.model);
    size_t differs = 0;
    for (uint32_t t = 0; t < b.schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &b.schema.tensors[t];
        const size_t row = tensor->count / tensor->shape[0];
        const size_t begin = t < 2 ? 1 : 0, end = t < 2 ? 4 : 2;
        for (size_t i = 0; i < tensor->count; i++) {
            const size_t at = tensor->offset + i;
            const bool trained = i / row >= begin && i / row < end;
            assert_memory_equal(&now[at], trained ? &moved[at] : &before[at], sizeof(*now));
            differs += now[at] != before[at];
        }
    }
    assert_true(differs > 0);
    free(before);
    model_close(&a);
    model_close(&b);
}

static void test_rows_move_as_in_full_training(void **state)
{
    (void)state;
    check_step(&(fedge_optimizer){.learning_rate = 0.1f});
    check_step(&(fedge_optimizer){.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f});
    check_step(&(fedge_optimizer){.learning_rate = 0.1f, .proximal_mu = 0.5f});
    check_step(&(fedge_optimizer){
        .learning_rate = 0.01f, .type = FEDGE_OPTIMIZER_ADAMW, .weight_decay = 0.1f});
}

/* The norm is that of what is trained. */
static void test_clipping_counts_trained_rows_only(void **state)
{
    (void)state;
    fedge_model_spec spec;
    make_spec(&spec, true);
    const fedge_model_options options = {.max_batch = BATCH, .training = true, .clip = true};
    const fedge_optimizer optimizer = {.learning_rate = 1.0f, .clip_norm = 1e-3f};
    test_model self;
    model_open(&self, &spec, &options, SEED, 0);
    const size_t n = fedge_model_num_values(self.model);
    float x[BATCH * 32], *before = malloc(n * sizeof(*before));
    int32_t labels[BATCH];
    double loss, squares = 0.0;
    uint32_t correct;
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fill_batch(&rng, x, BATCH * 32, labels, BATCH, 5);
    memcpy(before, fedge_model_values(self.model), n * sizeof(*before));
    assert_int_equal(
        fedge_model_step(self.model, x, labels, BATCH, &optimizer, &loss, &correct, NULL),
        FEDGE_OK);
    for (size_t i = 0; i < n; i++) {
        const double step = (double)fedge_model_values(self.model)[i] - (double)before[i];
        squares += step * step;
    }
    /* A step of length 1e-3 from values below 1: each rounds by at most 2^-25. */
    assert_true(squares > 0.95e-6 && squares < 1.05e-6);
    free(before);
    model_close(&self);
}

static void test_rows_that_are_none_are_refused(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_model_memory memory;
    fedge_error err = {0};
    const fedge_model_options options = {.max_batch = 1, .training = true};
    make_spec(&spec, true);
    spec.layers[0].train_channels[1] = 7;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "[1, 7] is not a range within the 6 channels"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_move_as_in_full_training),
        cmocka_unit_test(test_clipping_counts_trained_rows_only),
        cmocka_unit_test(test_rows_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
