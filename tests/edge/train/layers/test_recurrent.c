/* LSTM and GRU: gradients against finite differences in double precision, the same model with other
 * batches and in evaluation, and what is refused. Against PyTorch: test_golden.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/edge/train/support.h"

#define SEED 17

static fedge_layer_spec *add_recurrent(fedge_model_spec *spec, fedge_layer_type type, uint32_t in,
                                       uint32_t hidden, uint32_t num_layers, bool bias)
{
    fedge_layer_spec *layer = spec_add(spec, type);
    layer->u.recurrent.input_size = in;
    layer->u.recurrent.hidden_size = hidden;
    layer->u.recurrent.num_layers = num_layers;
    layer->u.recurrent.bias = bias;
    layer->u.recurrent.batch_first = true;
    return layer;
}

static void add_both_ways(fedge_model_spec *spec, fedge_layer_type type, uint32_t in,
                          uint32_t hidden, bool bias)
{
    add_recurrent(spec, type, in, hidden, 1, bias)->u.recurrent.bidirectional = true;
}

static void add_last_step(fedge_model_spec *spec)
{
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_SELECT);
    layer->u.select.dim = 1;
    layer->u.select.index = -1;
}

static void add_embedding(fedge_model_spec *spec, uint32_t rows, uint32_t dim)
{
    fedge_layer_spec *layer = spec_add(spec, FEDGE_LAYER_EMBEDDING);
    layer->u.embedding.num_embeddings = rows;
    layer->u.embedding.embedding_dim = dim;
}

static const fedge_layer_type TYPES[2] = {FEDGE_LAYER_LSTM, FEDGE_LAYER_GRU};

/* Every output is seen: sizes around the vectors' and the panels' widths, and more gates than pass
 * through a product together; one step and more. */
static void test_all_steps(void **state)
{
    (void)state;
    /* steps, hidden, layers, bias */
    static const uint32_t cases[][4] = {{1, 5, 1, 1}, {2, 8, 1, 0},  {5, 3, 2, 1},  {4, 16, 2, 0},
                                        {3, 7, 3, 1}, {3, 33, 1, 1}, {2, 130, 1, 1}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t *at = cases[i / 2];
        fedge_model_spec spec;
        spec_input(&spec, 2, at[0], 4, 0);
        spec_linear(&spec, 4, 6);
        add_recurrent(&spec, TYPES[i % 2], 6, at[1], at[2], at[3] != 0);
        spec_flatten(&spec);
        spec_linear(&spec, at[0] * at[1], 3);
        check_spec(&spec, 3, 25);
    }
}

/* From both ends: one step and more, more rows than pass through a product together (whole parts
 * and a rest), other widths of the two products. */
static void test_both_directions(void **state)
{
    (void)state;
    /* steps, hidden, bias, batch */
    static const uint32_t cases[][4] = {{1, 5, 1, 3},  {2, 8, 0, 1},  {5, 3, 1, 4},
                                        {7, 16, 1, 2}, {3, 33, 0, 3}, {2, 130, 1, 1},
                                        {9, 6, 1, 15}, {43, 5, 1, 7}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        const uint32_t *at = cases[i / 2];
        fedge_model_spec spec;
        spec_input(&spec, 2, at[0], 4, 0);
        spec_linear(&spec, 4, 6);
        add_both_ways(&spec, TYPES[i % 2], 6, at[1], at[2] != 0);
        spec_flatten(&spec);
        spec_linear(&spec, 2 * at[0] * at[1], 3);
        check_spec(&spec, at[3], 25);
    }
}

/* Over one another, with the ends of both directions joined, and in part. */
static void test_both_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        fedge_model_spec spec;
        spec_input(&spec, 2, 6, 3, 0);
        add_both_ways(&spec, TYPES[i], 3, 4, true);
        add_both_ways(&spec, TYPES[1 - i], 8, 5, true); /* 1 */
        add_last_step(&spec);
        spec_linear(&spec, 10, 3);
        fedge_layer_spec *first = spec_add(&spec, FEDGE_LAYER_SELECT);
        first->u.select.dim = 1;
        first->num_inputs = 1;
        first->inputs[0] = 1;
        spec_linear(&spec, 10, 3);
        fedge_layer_spec *add = spec_add(&spec, FEDGE_LAYER_ADD);
        add->num_inputs = 2;
        add->inputs[0] = 3;
        add->inputs[1] = 5;
        check_spec(&spec, 3, 25);
        spec.layers[0].train = FEDGE_TRAIN_NONE;
        spec.layers[1].train = FEDGE_TRAIN_BIAS;
        check_spec(&spec, 3, 25);
    }
}

/* The last step only, behind indices; a batch of one, and more rows than a tile has. */
static void test_last_step(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        fedge_model_spec spec;
        spec_input(&spec, 1, 9, 0, 0);
        add_embedding(&spec, 5, 3);
        add_recurrent(&spec, TYPES[i % 2], 3, 6, 1 + i / 2, true);
        add_last_step(&spec);
        spec_linear(&spec, 6, 4);
        check_spec(&spec, 1 + 7 * (i / 2), 25);
    }
}

/* One over another and read twice; parts frozen, which frees them of keeping anything. */
static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        fedge_model_spec spec;
        spec_input(&spec, 2, 4, 3, 0);
        add_recurrent(&spec, TYPES[i], 3, 5, 1, true); /* 0 */
        add_recurrent(&spec, TYPES[1 - i], 5, 5, 2, true);
        fedge_layer_spec *add = spec_add(&spec, FEDGE_LAYER_ADD);
        add->num_inputs = 2;
        add->inputs[0] = 0;
        add->inputs[1] = 1;
        spec_add(&spec, FEDGE_LAYER_MEAN)->u.mean.dim = 1;
        spec_linear(&spec, 5, 3);
        check_spec(&spec, 3, 25);
        spec.layers[0].train = FEDGE_TRAIN_NONE;
        check_spec(&spec, 3, 25);
        spec.layers[0].train = FEDGE_TRAIN_BIAS;
        spec.layers[1].train = FEDGE_TRAIN_NONE;
        check_spec(&spec, 3, 25);
    }
}

typedef struct batch_case {
    unsigned steps, hidden, batch, max_batch;
    bool both;
} batch_case;

static void check_batch(fedge_layer_type type, unsigned disabled, const batch_case *of)
{
    enum { WIDE = 5, MAX_VALUES = 8 * 64 * WIDE };
    fedge_model_spec spec;
    spec_input(&spec, 2, of->steps, WIDE, 0);
    add_recurrent(&spec, type, WIDE, of->hidden, of->both ? 1 : 2, true)
        ->u.recurrent.bidirectional = of->both;
    add_last_step(&spec);
    spec_linear(&spec, of->both ? 2 * of->hidden : of->hidden, 3);
    test_model exact, roomy;
    fedge_model_options options = {
        .max_batch = of->batch, .training = true, .disabled_cpu_features = disabled};
    const fedge_optimizer sgd = {.learning_rate = 0.5f};
    model_open(&exact, &spec, &options, SEED, 0);
    options.max_batch = of->max_batch;
    model_open(&roomy, &spec, &options, SEED, 0);
    float x[MAX_VALUES];
    int32_t labels[8];
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 2, of->batch, 0);
    assert_true(of->batch * of->steps * WIDE <= MAX_VALUES && of->batch <= 8);
    fill_batch(&rng, x, of->batch * of->steps * WIDE, labels, of->batch, 3);
    double evaluated, trained, other;
    uint32_t correct;
    fedge_error err = {0};
    assert_int_equal(
        fedge_model_evaluate(roomy.model, x, labels, of->batch, &evaluated, &correct, &err),
        FEDGE_OK);
    assert_int_equal(
        fedge_model_step(exact.model, x, labels, of->batch, &sgd, &trained, &correct, &err),
        FEDGE_OK);
    assert_int_equal(
        fedge_model_step(roomy.model, x, labels, of->batch, &sgd, &other, &correct, &err),
        FEDGE_OK);
    assert_true(trained == other && fabs(trained - evaluated) <= 1e-5 * trained);
    assert_memory_equal(fedge_model_values(exact.model), fedge_model_values(roomy.model),
                        fedge_model_num_values(exact.model) * sizeof(float));
    model_close(&exact);
    model_close(&roomy);
}

/* A model made for larger batches takes the same step, to the bit, and an evaluation, which keeps
 * one step only, sees the loss that the step saw. Weights' gradients of 8 examples go over more
 * rows at a time than those of 10. */
static void test_batches_and_evaluation(void **state)
{
    (void)state;
    static const batch_case CASES[] = {{7, 20, 3, 12, false},   {64, 136, 8, 10, false},
                                       {64, 136, 2, 10, false}, {7, 20, 3, 12, true},
                                       {64, 136, 2, 10, true},  {64, 136, 8, 10, true}};
    unsigned levels[MAX_LEVELS];
    const unsigned num_levels = kernel_levels(levels);
    for (unsigned i = 0; i < 2 * num_levels; i++) {
        for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++)
            check_batch(TYPES[i % 2], levels[i / 2], &CASES[k]);
    }
}

/* Kept between the passes: gates and second states, a number for each of a step's 4 or 5 per unit
 * and layer or direction, and the states between layers. An evaluation's room does not grow with
 * the steps but for the outputs. */
static void test_room(void **state)
{
    (void)state;
    enum { STEPS = 50, HIDDEN = 32, BATCH = 4 };
    for (size_t i = 0; i < 4; i++) {
        const bool lstm = i % 2 == 0, both = i > 1;
        fedge_model_spec spec;
        fedge_model_memory train, test;
        fedge_error err = {0};
        spec_input(&spec, 2, STEPS, 16, 0);
        add_recurrent(&spec, TYPES[i % 2], 16, HIDDEN, both ? 1 : 2, true)
            ->u.recurrent.bidirectional = both;
        add_last_step(&spec);
        spec_linear(&spec, both ? 2 * HIDDEN : HIDDEN, 3);
        fedge_model_options options = {
            .max_batch = BATCH, .training = true, .disabled_cpu_features = ~0u};
        assert_int_equal(fedge_model_size(&spec, &options, &train, &err), FEDGE_OK);
        options.training = false;
        assert_int_equal(fedge_model_size(&spec, &options, &test, &err), FEDGE_OK);
        const size_t states = (size_t)STEPS * BATCH * HIDDEN * sizeof(float);
        const size_t outputs = both ? 2 * states : states;
        const size_t gates = lstm ? 10 : 8, kept = states * (both ? gates : gates + 1);
        assert_in_range(train.activations, kept + outputs,
                        kept + outputs + 3 * states + train.parameters);
        assert_in_range(test.activations, outputs, outputs + outputs / 4);
    }
}

static void refuse(const fedge_model_spec *spec, const char *word)
{
    fedge_error err = {0};
    fedge_model_memory memory;
    const fedge_model_options options = {.max_batch = 4, .training = true};
    assert_int_equal(fedge_model_size(spec, &options, &memory, &err), FEDGE_INVALID_ARGUMENT);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" is not in: %s", word, err.message);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        fedge_model_spec spec;
        spec_input(&spec, 2, 4, 3, 0);
        fedge_layer_spec *layer = add_recurrent(&spec, TYPES[i], 3, 5, 1, true);
        spec_flatten(&spec);
        spec_linear(&spec, 20, 3);
        layer->u.recurrent.batch_first = false;
        refuse(&spec, "batch_first must be true");
        layer->u.recurrent.batch_first = true;
        layer->u.recurrent.num_layers = 4;
        refuse(&spec, "num_layers 4 must be 1 to 3");
        layer->u.recurrent.num_layers = 2;
        layer->u.recurrent.bidirectional = true;
        refuse(&spec, "num_layers must be 1 but is 2: put several of this type after one another, "
                      "the second with input_size 10");
        layer->u.recurrent.bidirectional = false;
        layer->u.recurrent.num_layers = 0;
        refuse(&spec, "num_layers 0");
        layer->u.recurrent.num_layers = 1;
        layer->u.recurrent.hidden_size = 0;
        refuse(&spec, "hidden_size 0");
        layer->u.recurrent.hidden_size = UINT32_MAX;
        refuse(&spec, "hidden_size 4294967295 1 to 16777216");
        layer->u.recurrent.hidden_size = 5;
        layer->u.recurrent.input_size = 2;
        refuse(&spec, "input_size is 2 but the layer before gives steps of 3");
        layer->u.recurrent.input_size = 0;
        refuse(&spec, "input_size 0");
        layer->u.recurrent.input_size = 3;
        spec_input(&spec, 1, 3, 0, 0);
        add_recurrent(&spec, TYPES[i], 3, 5, 1, true);
        refuse(&spec, "must be [steps, features]");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_steps), cmocka_unit_test(test_both_directions),
        cmocka_unit_test(test_both_ends), cmocka_unit_test(test_last_step),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_batches_and_evaluation),
        cmocka_unit_test(test_room),      cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
