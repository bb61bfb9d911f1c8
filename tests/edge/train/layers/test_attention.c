/* Layers of attention: gradients against finite differences in double precision, dropout, the
 * memory they take, and what is refused. */
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

/* [type] behind a Linear on (steps, dim), with PyTorch's defaults but no dropout. */
static fedge_layer_spec *sequence(fedge_model_spec *spec, uint32_t steps, uint32_t dim,
                                  fedge_layer_type type)
{
    spec_input(spec, 2, steps, dim, 0);
    spec_linear(spec, dim, dim);
    fedge_layer_spec *layer = spec_add(spec, type);
    if (type == FEDGE_LAYER_MULTIHEADATTENTION) {
        layer->u.multiheadattention.embed_dim = dim;
        layer->u.multiheadattention.num_heads = 1;
        layer->u.multiheadattention.bias = true;
        layer->u.multiheadattention.batch_first = true;
    } else if (type == FEDGE_LAYER_TRANSFORMERENCODERLAYER) {
        layer->u.transformerencoderlayer.d_model = dim;
        layer->u.transformerencoderlayer.nhead = 1;
        layer->u.transformerencoderlayer.dim_feedforward = dim + 3;
        layer->u.transformerencoderlayer.layer_norm_eps = 0.01f;
        layer->u.transformerencoderlayer.bias = true;
        layer->u.transformerencoderlayer.batch_first = true;
        layer->u.transformerencoderlayer.norm_first = true;
    }
    return layer;
}

static void close_with(fedge_model_spec *spec, uint32_t features)
{
    spec_flatten(spec);
    spec_linear(spec, features, 3);
}

static void test_multihead(void **state)
{
    (void)state;
    for (int option = 0; option < 4; option++) {
        for (uint32_t heads = 1; heads <= 4; heads *= 2) {
            fedge_model_spec spec;
            fedge_layer_spec *layer = sequence(&spec, 5, 12, FEDGE_LAYER_MULTIHEADATTENTION);
            layer->u.multiheadattention.num_heads = heads;
            layer->u.multiheadattention.bias = option % 2 == 0;
            layer->u.multiheadattention.is_causal = option >= 2;
            close_with(&spec, 60);
            check_spec(&spec, 2, 12);
        }
    }
}

/* More steps than are worked on at a time, and several chunks of examples. */
static void test_long_sequences(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        fedge_model_spec spec;
        fedge_layer_spec *layer = sequence(&spec, 103, 6, FEDGE_LAYER_MULTIHEADATTENTION);
        layer->u.multiheadattention.num_heads = 2;
        layer->u.multiheadattention.is_causal = causal == 1;
        close_with(&spec, 103 * 6);
        check_spec(&spec, 5, 4);
        layer = sequence(&spec, 103, 6, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
        layer->u.transformerencoderlayer.nhead = 3;
        layer->u.transformerencoderlayer.is_causal = causal == 1;
        layer->u.transformerencoderlayer.activation = (uint32_t)causal;
        close_with(&spec, 103 * 6);
        check_spec(&spec, 3, 3);
    }
}

static void test_one_step(void **state)
{
    (void)state;
    fedge_model_spec spec;
    (void)sequence(&spec, 1, 4, FEDGE_LAYER_MULTIHEADATTENTION);
    close_with(&spec, 4);
    check_spec(&spec, 3, 12);
}

static void test_encoder(void **state)
{
    (void)state;
    for (uint32_t option = 0; option < 8; option++) {
        fedge_model_spec spec;
        fedge_layer_spec *layer = sequence(&spec, 7, 8, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
        layer->u.transformerencoderlayer.nhead = 1u << option % 3;
        layer->u.transformerencoderlayer.activation = option % 2;
        layer->u.transformerencoderlayer.is_causal = option / 2 % 2 == 1;
        layer->u.transformerencoderlayer.bias = option < 4;
        layer->u.transformerencoderlayer.dim_feedforward = option < 6 ? 19 : 5;
        close_with(&spec, 56);
        check_spec(&spec, 2, 12);
    }
}

static void test_positions(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_layer_spec *layer = sequence(&spec, 5, 6, FEDGE_LAYER_POSITIONALEMBEDDING);
    layer->u.positionalembedding.num_embeddings = 7; /* two rows are never read */
    layer->u.positionalembedding.embedding_dim = 6;
    spec_add(&spec, FEDGE_LAYER_TANH);
    close_with(&spec, 30);
    check_spec(&spec, 3, 42);
}

/* What goes wrong between layers: two in a row, one frozen before another, biases only. */
static void test_stacks(void **state)
{
    (void)state;
    static const fedge_train_mode modes[][3] = {
        {FEDGE_TRAIN_ALL, FEDGE_TRAIN_ALL, FEDGE_TRAIN_ALL},
        {FEDGE_TRAIN_NONE, FEDGE_TRAIN_NONE, FEDGE_TRAIN_ALL},
        {FEDGE_TRAIN_NONE, FEDGE_TRAIN_ALL, FEDGE_TRAIN_NONE},
        {FEDGE_TRAIN_NONE, FEDGE_TRAIN_BIAS, FEDGE_TRAIN_BIAS}};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        fedge_model_spec spec;
        fedge_layer_spec *layer = sequence(&spec, 4, 6, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
        layer->u.transformerencoderlayer.nhead = 2;
        spec.layers[2] = *layer;
        spec.layers[2].u.transformerencoderlayer.activation = 1;
        spec.num_layers = 3;
        for (int k = 0; k < 3; k++)
            spec.layers[k].train = modes[i][k];
        close_with(&spec, 24);
        check_spec(&spec, 3, 8);
    }
}

/* The reference draws the same numbers, so that its masks are the layer's. */
static void test_dropout(void **state)
{
    (void)state;
    fedge_model_spec spec;
    for (int causal = 0; causal < 2; causal++) {
        fedge_layer_spec *layer = sequence(&spec, 9, 6, FEDGE_LAYER_MULTIHEADATTENTION);
        layer->u.multiheadattention.num_heads = 2;
        layer->u.multiheadattention.dropout = 0.3f;
        layer->u.multiheadattention.is_causal = causal == 1;
        close_with(&spec, 54);
        check_spec(&spec, 3, 12);
        layer = sequence(&spec, 9, 6, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
        layer->u.transformerencoderlayer.nhead = 2;
        layer->u.transformerencoderlayer.dropout = 0.3f;
        layer->u.transformerencoderlayer.is_causal = causal == 1;
        layer->u.transformerencoderlayer.activation = (uint32_t)causal;
        close_with(&spec, 54);
        check_spec(&spec, 3, 12);
    }
    spec.layers[0].train = FEDGE_TRAIN_NONE; /* drops where nothing goes backward too */
    spec.layers[1].train = FEDGE_TRAIN_NONE;
    check_spec(&spec, 3, 12);
}

/* A batch smaller than the largest gives the same as a model made for it; evaluation drops
 * nothing. */
static void test_smaller_batch(void **state)
{
    (void)state;
    enum { STEPS = 70, DIM = 8, SIZE = 3 };
    fedge_model_spec spec;
    fedge_layer_spec *layer = sequence(&spec, STEPS, DIM, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
    layer->u.transformerencoderlayer.nhead = 2;
    layer->u.transformerencoderlayer.dropout = 0.5f;
    close_with(&spec, STEPS * DIM);
    float *x = malloc(SIZE * STEPS * DIM * sizeof(*x));
    int32_t labels[SIZE];
    double losses[2][2];
    test_model models[2];
    assert_non_null(x);
    fedge_rng rng = fedge_rng_stream(SEED, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fill_batch(&rng, x, (size_t)SIZE * STEPS * DIM, labels, SIZE, 3);
    for (int i = 0; i < 2; i++) {
        const fedge_model_options options = {.max_batch = i == 0 ? SIZE : 8, .training = true};
        const fedge_optimizer sgd = {.learning_rate = 0.25f};
        fedge_error err = {0};
        uint32_t correct;
        model_open(&models[i], &spec, &options, SEED, 0);
        assert_int_equal(
            fedge_model_step(models[i].model, x, labels, SIZE, &sgd, &losses[i][0], &correct, &err),
            FEDGE_OK);
        assert_int_equal(
            fedge_model_evaluate(models[i].model, x, labels, SIZE, &losses[i][1], &correct, &err),
            FEDGE_OK);
    }
    assert_memory_equal(fedge_model_values(models[0].model), fedge_model_values(models[1].model),
                        fedge_model_num_values(models[0].model) * sizeof(float));
    assert_memory_equal(losses[0], losses[1], sizeof(losses[0]));
    double *wide = to_double(x, (size_t)SIZE * STEPS * DIM);
    double *values =
        to_double(fedge_model_values(models[0].model), fedge_model_num_values(models[0].model));
    spec.layers[1].u.transformerencoderlayer.dropout = 0.0f;
    const double expected = reference_loss(&spec, values, wide, labels, SIZE);
    assert_true(fabs(losses[0][1] - expected) <= 1e-5 * (1.0 + fabs(expected)));
    free(values);
    free(wide);
    free(x);
    model_close(&models[0]);
    model_close(&models[1]);
}

/* Training keeps no (steps, steps) array of weights, and evaluation keeps nothing per example. */
static void test_memory(void **state)
{
    (void)state;
    enum { STEPS = 400, DIM = 8, HEADS = 8, BATCH = 16 };
    fedge_model_spec spec;
    fedge_layer_spec *layer = sequence(&spec, STEPS, DIM, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
    fedge_model_memory training, evaluation;
    fedge_model_options options = {.max_batch = BATCH, .training = true};
    fedge_error err = {0};
    layer->u.transformerencoderlayer.nhead = HEADS;
    layer->u.transformerencoderlayer.dim_feedforward = DIM;
    close_with(&spec, STEPS * DIM);
    assert_int_equal(fedge_model_size(&spec, &options, &training, &err), FEDGE_OK);
    assert_true(training.activations < sizeof(float) * BATCH * HEADS * STEPS * STEPS / 10);
    options.training = false;
    assert_int_equal(fedge_model_size(&spec, &options, &evaluation, &err), FEDGE_OK);
    assert_true(evaluation.activations < training.activations / 3);
}

static void refuse(const fedge_model_spec *spec, const char *word, const char *number)
{
    fedge_error err = {0};
    fedge_tensor_spec tensors[64];
    fedge_schema schema;
    fedge_model_memory memory;
    const fedge_model_options options = {.max_batch = 65536, .training = true};
    fedge_schema_init(&schema, tensors, 64);
    const bool fits = fedge_model_schema(spec, &schema, &err) == FEDGE_OK;
    assert_true(fedge_model_size(spec, &options, &memory, &err) != FEDGE_OK || !fits);
    if (!strstr(err.message, word) || !strstr(err.message, number))
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, number, err.message);
}

static void test_refused_attention(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_layer_spec *layer = sequence(&spec, 5, 6, FEDGE_LAYER_MULTIHEADATTENTION);
    close_with(&spec, 30);
    layer->u.multiheadattention.num_heads = 4;
    refuse(&spec, "layer 1 (MultiheadAttention", "embed_dim 6");
    refuse(&spec, "multiple", "num_heads 4");
    layer->u.multiheadattention.num_heads = 0;
    refuse(&spec, "MultiheadAttention", "num_heads 0");
    layer->u.multiheadattention.num_heads = 2;
    layer->u.multiheadattention.embed_dim = 8;
    refuse(&spec, "[5, 6]", "embed_dim being 8");
    layer->u.multiheadattention.embed_dim = 0;
    refuse(&spec, "MultiheadAttention", "embed_dim 0");
    layer->u.multiheadattention.embed_dim = UINT32_MAX / 2 * 2;
    refuse(&spec, "MultiheadAttention", "16777216");
    layer->u.multiheadattention.embed_dim = 6;
    layer->u.multiheadattention.dropout = NAN;
    refuse(&spec, "dropout", "nan");
    layer->u.multiheadattention.dropout = 0.0f;
    layer->u.multiheadattention.batch_first = false;
    refuse(&spec, "MultiheadAttention", "batch_first");
    spec_input(&spec, 3, 5, 6, 6);
    layer = spec_add(&spec, FEDGE_LAYER_MULTIHEADATTENTION);
    layer->u.multiheadattention.batch_first = true;
    layer->u.multiheadattention.embed_dim = layer->u.multiheadattention.num_heads = 6;
    refuse(&spec, "MultiheadAttention", "[5, 6, 6]");
    layer = sequence(&spec, 65537, 2, FEDGE_LAYER_MULTIHEADATTENTION);
    refuse(&spec, "65537 steps", "65536");
    layer = sequence(&spec, 65536, 16384, FEDGE_LAYER_MULTIHEADATTENTION); /* 2^30 values */
    layer->u.multiheadattention.num_heads = 16384;
    layer->u.multiheadattention.dropout = 0.1f;
    spec_add(&spec, FEDGE_LAYER_SELECT)->u.select.dim = 1;
    spec_linear(&spec, 16384, 1);
    refuse(&spec, "more", sizeof(size_t) > 4 ? "65536" : "268435456"); /* examples; parameters */
}

static void test_refused_encoder(void **state)
{
    (void)state;
    fedge_model_spec spec;
    fedge_layer_spec *layer = sequence(&spec, 5, 6, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
    close_with(&spec, 30);
    layer->u.transformerencoderlayer.nhead = 5;
    refuse(&spec, "d_model 6", "nhead 5");
    layer->u.transformerencoderlayer.nhead = 3;
    layer->u.transformerencoderlayer.norm_first = false;
    refuse(&spec, "norm_first", "pre-norm");
    layer->u.transformerencoderlayer.norm_first = true;
    layer->u.transformerencoderlayer.batch_first = false;
    refuse(&spec, "TransformerEncoderLayer", "batch_first");
    layer->u.transformerencoderlayer.batch_first = true;
    layer->u.transformerencoderlayer.dim_feedforward = 0;
    refuse(&spec, "dim_feedforward 0", "16777216");
    layer->u.transformerencoderlayer.dim_feedforward = 16777217;
    refuse(&spec, "dim_feedforward 16777217", "16777216");
    layer->u.transformerencoderlayer.dim_feedforward = 4;
    layer->u.transformerencoderlayer.activation = 2;
    refuse(&spec, "activation is 2", "gelu");
    layer->u.transformerencoderlayer.activation = 0;
    layer->u.transformerencoderlayer.dropout = -0.5f;
    refuse(&spec, "dropout is -0.5", "give 0 to 1");
    layer->u.transformerencoderlayer.dropout = 0.0f;
    layer->u.transformerencoderlayer.layer_norm_eps = NAN;
    refuse(&spec, "layer_norm_eps is nan", "give 1e-30 to 1");
    layer = sequence(&spec, 65536, 16, FEDGE_LAYER_TRANSFORMERENCODERLAYER);
    layer->u.transformerencoderlayer.dim_feedforward = 1 << 22; /* 2^27 parameters */
    close_with(&spec, 65536 * 16);
    refuse(&spec, "bytes", "65536");
    layer = sequence(&spec, 5, 6, FEDGE_LAYER_POSITIONALEMBEDDING);
    layer->u.positionalembedding.embedding_dim = 6;
    layer->u.positionalembedding.num_embeddings = 4;
    refuse(&spec, "num_embeddings is 4", "5 steps");
    layer->u.positionalembedding.num_embeddings = 5;
    layer->u.positionalembedding.embedding_dim = 7;
    refuse(&spec, "PositionalEmbedding", "[5, 6]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multihead),       cmocka_unit_test(test_long_sequences),
        cmocka_unit_test(test_one_step),        cmocka_unit_test(test_encoder),
        cmocka_unit_test(test_positions),       cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_dropout),         cmocka_unit_test(test_smaller_batch),
        cmocka_unit_test(test_memory),          cmocka_unit_test(test_refused_attention),
        cmocka_unit_test(test_refused_encoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
