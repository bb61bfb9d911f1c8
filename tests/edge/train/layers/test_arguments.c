/* Numbers that jobs do not take are refused in C too, wherever they stand: layers' arguments, the
 * loss's and the optimizer's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge/train/losses/losses.h"
#include "edge/train/optimizers/optimizers.h"
#include "tests/edge/train/support.h"

enum { STEPS = 4, WIDTH = 4 };

/* A Linear, a layer of [type] with valid arguments, and a Linear. Each type with a real number or a
 * choice among its arguments has a case here. */
static fedge_layer_spec *net_with(fedge_model_spec *spec, fedge_layer_type type)
{
    const bool image = type == FEDGE_LAYER_BATCHNORM2D;
    spec_input(spec, image ? 3 : 2, image ? 2 : STEPS, WIDTH, WIDTH);
    spec_linear(spec, WIDTH, WIDTH);
    fedge_layer_spec *layer = spec_add(spec, type);
    switch ((int)type) {
    case FEDGE_LAYER_LINEAR:
        spec->num_layers--;
        layer = spec_linear(spec, WIDTH, WIDTH);
        layer->u.linear.r = 2;
        break;
    case FEDGE_LAYER_BATCHNORM2D:
        layer->u.batchnorm2d.num_features = 2;
        layer->u.batchnorm2d.eps = 1.0f;
        break;
    case FEDGE_LAYER_GROUPNORM:
        layer->u.groupnorm.num_groups = 2;
        layer->u.groupnorm.num_channels = STEPS;
        layer->u.groupnorm.eps = 1.0f;
        break;
    case FEDGE_LAYER_LAYERNORM:
        layer->u.layernorm.rank = 1;
        layer->u.layernorm.normalized_shape[0] = WIDTH;
        layer->u.layernorm.eps = 1.0f;
        break;
    case FEDGE_LAYER_MULTIHEADATTENTION:
        layer->u.multiheadattention.embed_dim = WIDTH;
        layer->u.multiheadattention.num_heads = 2;
        layer->u.multiheadattention.batch_first = true;
        break;
    case FEDGE_LAYER_TRANSFORMERENCODERLAYER:
        layer->u.transformerencoderlayer.d_model = WIDTH;
        layer->u.transformerencoderlayer.nhead = 2;
        layer->u.transformerencoderlayer.dim_feedforward = 8;
        layer->u.transformerencoderlayer.layer_norm_eps = 1.0f;
        layer->u.transformerencoderlayer.batch_first = true;
        layer->u.transformerencoderlayer.norm_first = true;
        break;
    case FEDGE_LAYER_BATCHNORM1D:
        layer->u.batchnorm2d.num_features = STEPS;
        layer->u.batchnorm2d.eps = 1.0f;
        break;
    case FEDGE_LAYER_RMSNORM:
        layer->u.rmsnorm.rank = 1;
        layer->u.rmsnorm.normalized_shape[0] = WIDTH;
        layer->u.rmsnorm.eps = 1.0f;
        break;
    case FEDGE_LAYER_UPSAMPLE:
        layer->u.upsample.size[0] = layer->u.upsample.size[1] = WIDTH;
        break;
    case FEDGE_LAYER_SOFTPLUS:
        layer->u.softplus.beta = 1.0f;
        break;
    case FEDGE_LAYER_PRELU:
        layer->u.prelu.num_parameters = 1;
        break;
    case FEDGE_LAYER_ELU:
    case FEDGE_LAYER_LEAKYRELU:
    case FEDGE_LAYER_GELU:
    case FEDGE_LAYER_DROPOUT:
        break;
    default:
        fail_msg("%s has a real number or a choice among its arguments: add a case with valid "
                 "arguments for it to net_with in tests/edge/train/layers/test_arguments.c",
                 fedge_layer_type_name(type));
    }
    spec_flatten(spec);
    spec_linear(spec, image ? 2 * WIDTH * WIDTH : STEPS * WIDTH, 2);
    return layer;
}

/* Both the schema and the plan give it this status. */
static void check_status_is(const fedge_model_spec *spec, fedge_status expected, const char *where,
                            const char *name)
{
    const fedge_model_options options = {.max_batch = 4, .training = true};
    fedge_model_memory memory;
    fedge_error err[2] = {0};
    fedge_tensor_spec tensors[32];
    fedge_schema schema;
    fedge_schema_init(&schema, tensors, 32);
    const fedge_status found[2] = {fedge_model_schema(spec, &schema, &err[0]),
                                   fedge_model_size(spec, &options, &memory, &err[1])};
    for (int i = 0; i < 2; i++) {
        if (found[i] != expected)
            fail_msg("%s, %s: %s %s", where, name, fedge_status_text(found[i]), err[i].message);
        if (expected != FEDGE_OK &&
            (!strstr(err[i].message, where) || !strstr(err[i].message, name)))
            fail_msg("\"%s\" and \"%s\" are not in: %s", where, name, err[i].message);
    }
}

/* Both refuse it, or both take it. */
static void check_spec_is(const fedge_model_spec *spec, bool valid, const char *where,
                          const char *name)
{
    check_status_is(spec, valid ? FEDGE_OK : FEDGE_INVALID_ARGUMENT, where, name);
}

/* Values of [argument] at both ends of its range, and around it; from 2 on they are bad. */
static void values_of(const fedge_argument *argument, float values[7])
{
    values[0] = (float)argument->min;
    values[1] = (float)argument->max;
    values[2] = nextafterf((float)argument->min, -INFINITY);
    values[3] = nextafterf((float)argument->max, INFINITY);
    values[4] = NAN;
    values[5] = INFINITY;
    values[6] = -INFINITY;
}

/* Every real number and choice of every layer. */
static void test_layers(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    int count = 0;
    for (int type = 0; type < FEDGE_LAYER_COUNT; type++) {
        const fedge_argument *argument = fedge_layer_ops_of((fedge_layer_type)type)->arguments;
        for (; argument && argument->name; argument++) {
            const bool real = argument->kind == FEDGE_ARGUMENT_F32;
            if (!real && argument->kind != FEDGE_ARGUMENT_CHOICE)
                continue;
            char where[64];
            fedge_layer_spec *layer = net_with(&spec, (fedge_layer_type)type);
            void *at = (unsigned char *)layer + argument->offset;
            (void)snprintf(where, sizeof(where), "layer 1 (%s \"1\"): %s is ",
                           fedge_layer_type_name((fedge_layer_type)type), argument->name);
            check_spec_is(&spec, true, where, "");
            float values[7];
            values_of(argument, values);
            for (int i = 0; real && i < 7; i++) {
                memcpy(at, &values[i], sizeof(values[i]));
                check_spec_is(&spec, i < 2, where, ": give ");
            }
            if (!real) {
                memcpy(at, &argument->num_choices, sizeof(unsigned));
                check_spec_is(&spec, false, where, argument->choice_name(0));
            }
            count++;
        }
    }
    assert_true(count >= 12);
}

/* Every whole number of every layer, at its most and above it. */
static void test_whole_numbers(void **state)
{
    (void)state;
    int count = 0;
    for (int type = 0; type < FEDGE_LAYER_COUNT; type++) {
        const fedge_argument *all = fedge_layer_ops_of((fedge_layer_type)type)->arguments;
        fedge_layer_spec layer = {.type = (fedge_layer_type)type};
        for (const fedge_argument *at = all; at && at->name; at++) {
            const float least = (float)at->min;
            if (at->kind == FEDGE_ARGUMENT_F32)
                memcpy((unsigned char *)&layer + at->offset, &least, sizeof(least));
        }
        for (const fedge_argument *at = all; at && at->name; at++) {
            if (at->kind != FEDGE_ARGUMENT_U32)
                continue;
            fedge_error err = {0};
            const uint32_t most = (uint32_t)at->max;
            char expected[96];
            uint32_t *value = (uint32_t *)(void *)((unsigned char *)&layer + at->offset);
            *value = most;
            assert_int_equal(fedge_arguments_check(all, &layer, &err), FEDGE_OK);
            *value = most + 1;
            assert_int_equal(fedge_arguments_check(all, &layer, &err), FEDGE_TOO_BIG);
            (void)snprintf(expected, sizeof(expected), "%s is %u: give at most %u", at->name,
                           (unsigned)*value, (unsigned)most);
            assert_string_equal(err.message, expected);
            *value = most;
            count++;
        }
    }
    assert_true(count >= 30);
}

/* And in a model: with the layer's name. */
static void test_whole_numbers_of_models(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    spec_input(&spec, 1, 4, 0, 0);
    spec_linear(&spec, 4, 20000000);
    check_status_is(&spec, FEDGE_TOO_BIG, "layer 0 (Linear \"0\"): out_features is 20000000",
                    ": give at most 16777216");
    spec_input(&spec, 2, STEPS, WIDTH, 0);
    spec_linear(&spec, WIDTH, WIDTH);
    fedge_layer_spec *layer = spec_add(&spec, FEDGE_LAYER_POSITIONALEMBEDDING);
    layer->u.positionalembedding.num_embeddings = 100000000;
    layer->u.positionalembedding.embedding_dim = WIDTH;
    spec_flatten(&spec);
    spec_linear(&spec, STEPS * WIDTH, 2);
    check_status_is(&spec, FEDGE_TOO_BIG,
                    "layer 1 (PositionalEmbedding \"1\"): num_embeddings is 100000000",
                    ": give at most 16777216");
    layer->u.positionalembedding.num_embeddings = STEPS;
    check_spec_is(&spec, true, "", "");
    spec.layers[0].num_train_channels = 1;
    spec.layers[0].train_channels[1] = 1;
    check_spec_is(&spec, false, "layer 0 (Linear \"0\"): train-channels has 1 numbers",
                  ": give 2 or none");
    spec.layers[0].num_train_channels = 2;
    check_spec_is(&spec, true, "", "");
}

static void test_loss(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    const fedge_argument *delta = fedge_loss_ops_of(FEDGE_LOSS_HUBER)->arguments;
    float values[7];
    net_with(&spec, FEDGE_LAYER_GELU);
    spec.loss = FEDGE_LOSS_HUBER;
    check_spec_is(&spec, true, "0 is PyTorch's default", "");
    values_of(delta, values);
    for (int i = 0; i < 7; i++) {
        spec.loss_delta = i == 2 ? -1.0f : values[i];
        check_spec_is(&spec, i < 2, "the loss (HuberLoss): delta is ", ": give 1e-30 to 1e+30");
    }
}

/* Does a step with it leave the model as it was, with an error that names [name]? */
static void refuse_step(test_model *self, const fedge_optimizer *optimizer, const char *name)
{
    static const float x[STEPS * WIDTH] = {1.0f};
    const int32_t label = 0;
    const size_t n = self->schema.num_elements;
    float before[256];
    double loss;
    uint32_t correct;
    fedge_error err = {0};
    assert_true(n <= 256);
    memcpy(before, fedge_model_values(self->model), n * sizeof(*before));
    assert_int_equal(fedge_model_step(self->model, x, &label, 1, optimizer, &loss, &correct, &err),
                     FEDGE_INVALID_ARGUMENT);
    char expected[64];
    (void)snprintf(expected, sizeof(expected), "the optimizer (%s): %s",
                   fedge_optimizer_type_name(optimizer->type), name);
    if (!strstr(err.message, expected))
        fail_msg("\"%s\" is not in: %s", expected, err.message);
    assert_memory_equal(before, fedge_model_values(self->model), n * sizeof(*before));
}

/* Refuses the argument's bad values, the others being good. */
static void check_optimizer_argument(test_model *self, const fedge_optimizer *good,
                                     const fedge_argument *argument)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, -1e-9f,
                         nextafterf((float)argument->max, INFINITY)};
    const bool list = argument->kind == FEDGE_ARGUMENT_F32S;
    for (int k = 0; k < 5 && (list || argument->kind == FEDGE_ARGUMENT_F32); k++) {
        fedge_optimizer optimizer = *good;
        memcpy((unsigned char *)&optimizer + argument->offset, &bad[k], sizeof(bad[k]));
        refuse_step(self, &optimizer, argument->name);
    }
    if (list) {
        fedge_optimizer optimizer = *good;
        const uint32_t one = 1;
        memcpy((unsigned char *)&optimizer + argument->extra, &one, sizeof(one));
        char expected[64];
        (void)snprintf(expected, sizeof(expected), "%s has 1 numbers", argument->name);
        refuse_step(self, &optimizer, expected);
    }
}

static void test_optimizers(void **state)
{
    (void)state;
    static const fedge_argument common[] = {
        FEDGE_F32_ARGUMENT("learning_rate", offsetof(fedge_optimizer, learning_rate), 0, 1e6, 0),
        FEDGE_F32_ARGUMENT("clip_norm", offsetof(fedge_optimizer, clip_norm), 0, 1e30, 0),
        FEDGE_F32_ARGUMENT("proximal_mu", offsetof(fedge_optimizer, proximal_mu), 0, 1e6, 0),
        FEDGE_NO_ARGUMENT,
    };
    static fedge_model_spec spec;
    net_with(&spec, FEDGE_LAYER_GELU);
    for (int i = 0; i < FEDGE_OPTIMIZER_COUNT; i++) {
        const fedge_optimizer_type type = (fedge_optimizer_type)i;
        const fedge_model_options options = {.max_batch = 1,
                                             .training = true,
                                             .optimizer = type,
                                             .momentum = 0.5f,
                                             .centered = true,
                                             .clip = true,
                                             .proximal = true};
        const fedge_optimizer good = {
            .type = type, .learning_rate = 0.1f, .num_betas = 2, .betas = {0.9f, 0.99f}};
        const fedge_argument *own = fedge_optimizer_ops_of(type)->arguments;
        test_model self;
        model_open(&self, &spec, &options, 1, 0);
        for (const fedge_argument *of = common; of->name; of++)
            check_optimizer_argument(&self, &good, of);
        assert_non_null(own->name);
        for (; own->name; own++)
            check_optimizer_argument(&self, &good, own);
        model_close(&self);
    }
}

/* A step that needs more than the model reserves is refused, with what is missing. */
static void test_reserved(void **state)
{
    (void)state;
    static const struct {
        fedge_optimizer optimizer;
        const char *missing;
    } cases[] = {{{.type = FEDGE_OPTIMIZER_SGD, .momentum = 0.9f}, "momentum"},
                 {{.type = FEDGE_OPTIMIZER_RMSPROP, .momentum = 0.9f}, "momentum"},
                 {{.type = FEDGE_OPTIMIZER_RMSPROP, .centered = true}, "centered"}};
    static fedge_model_spec spec;
    static const float x[STEPS * WIDTH] = {1.0f};
    net_with(&spec, FEDGE_LAYER_GELU);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const fedge_model_options options = {
            .max_batch = 1, .training = true, .optimizer = cases[i].optimizer.type};
        const int32_t label = 0;
        double loss;
        uint32_t correct;
        fedge_error err = {0};
        test_model self;
        model_open(&self, &spec, &options, 1, 0);
        fedge_status status =
            fedge_model_step(self.model, x, &label, 1, &cases[i].optimizer, &loss, &correct, &err);
        if (status != FEDGE_INVALID_ARGUMENT || !strstr(err.message, cases[i].missing))
            fail_msg("case %zu: %s", i, err.message);
        model_close(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_whole_numbers_of_models),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
