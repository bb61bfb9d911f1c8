/* Rounds of local training: order, steps, short batches, cancelling, learning. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "edge/train/trainer.h"
#include "tests/edge/train/support.h"

enum { NUM_EXAMPLES = 23, FEATURES = 6, BATCH = 5 };

/* Two separable clouds; remembers what was read. */
typedef struct data {
    float x[NUM_EXAMPLES][FEATURES];
    int32_t labels[NUM_EXAMPLES];
    uint32_t order[4096], num_read;
    uint32_t sizes[1024], num_batches;
    uint32_t fail_at; /* the batch that cannot be read, from 1; 0: none */
    uint32_t announced[NUM_EXAMPLES], num_announced; /* not yet read */
} data;

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n,
                                  uint32_t num_next, float *x, int32_t *labels, fedge_error *err)
{
    data *from = user;
    from->sizes[from->num_batches++] = n;
    if (from->num_batches == from->fail_at)
        return fedge_fail(err, FEDGE_IO, "the card is gone");
    if (n + num_next < NUM_EXAMPLES) { /* within a pass */
        assert_int_equal(from->num_announced, n + num_next);
        assert_memory_equal(from->announced, indices, (n + num_next) * sizeof(*indices));
    }
    from->num_announced = num_next;
    memcpy(from->announced, indices + n, num_next * sizeof(*indices));
    for (uint32_t i = 0; i < n; i++) {
        assert_true(indices[i] < NUM_EXAMPLES);
        from->order[from->num_read++] = indices[i];
        memcpy(x + (size_t)i * FEATURES, from->x[indices[i]], sizeof(from->x[0]));
        labels[i] = from->labels[indices[i]];
    }
    return FEDGE_OK;
}

typedef struct fixture {
    fedge_model_spec spec;
    test_model self;
    data data;
    fedge_examples examples;
    void *scratch;
    size_t scratch_size;
    fedge_trainer_result result;
    fedge_error err;
} fixture;

static fixture *open_fixture(void)
{
    fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    spec_input(&f->spec, 1, FEATURES, 0, 0);
    spec_linear(&f->spec, FEATURES, 8);
    spec_relu(&f->spec);
    spec_linear(&f->spec, 8, 2);
    const fedge_model_options options = {.max_batch = BATCH, .training = true};
    model_open(&f->self, &f->spec, &options, 3, 0);
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        f->data.labels[i] = i % 2;
        for (int k = 0; k < FEATURES; k++)
            f->data.x[i][k] = (float)fedge_rng_normal(&rng) * 0.3f + (i % 2 == 0 ? -1.0f : 1.0f);
    }
    f->examples =
        (fedge_examples){.user = &f->data, .num_examples = NUM_EXAMPLES, .read = read_examples};
    f->scratch_size = fedge_trainer_scratch_size(&f->spec, NUM_EXAMPLES, BATCH);
    f->scratch = aligned_alloc(64, f->scratch_size);
    assert_non_null(f->scratch);
    return f;
}

static void close_fixture(fixture *f)
{
    free(f->scratch);
    model_close(&f->self);
    free(f);
}

static fedge_trainer_config config(uint32_t round, uint32_t epochs, uint32_t steps)
{
    return (fedge_trainer_config){.seed = 9,
                                  .round = round,
                                  .client_index = 4,
                                  .local_epochs = epochs,
                                  .local_steps = steps,
                                  .batch_size = BATCH,
                                  .optimizer = {.learning_rate = 0.1f}};
}

static fedge_trainer_workspace workspace_of(const fixture *f)
{
    return (fedge_trainer_workspace){.scratch = f->scratch, .scratch_size = f->scratch_size};
}

static fedge_status run(fixture *f, fedge_trainer_config with)
{
    const fedge_trainer_workspace workspace = workspace_of(f);
    return fedge_trainer_run(f->self.model, &f->examples, &with, &workspace, &f->result, &f->err);
}

static void test_epochs(void **state)
{
    (void)state;
    fixture *f = open_fixture();
    assert_int_equal(run(f, config(1, 2, 0)), FEDGE_OK);
    assert_int_equal(f->result.num_examples, NUM_EXAMPLES);
    assert_int_equal(f->result.num_steps, 10);
    assert_int_equal(f->result.num_seen, 2 * NUM_EXAMPLES);
    assert_true(f->result.loss_sum > 0.0 && f->result.correct <= f->result.num_seen);
    static const uint32_t sizes[] = {5, 5, 5, 5, 3, 5, 5, 5, 5, 3};
    assert_memory_equal(f->data.sizes, sizes, sizeof(sizes));
    for (int epoch = 0; epoch < 2; epoch++) { /* each example once per epoch */
        uint32_t seen[NUM_EXAMPLES] = {0};
        for (int i = 0; i < NUM_EXAMPLES; i++)
            seen[f->data.order[epoch * NUM_EXAMPLES + i]]++;
        for (int i = 0; i < NUM_EXAMPLES; i++)
            assert_int_equal(seen[i], 1);
    }
    assert_memory_not_equal(f->data.order, f->data.order + NUM_EXAMPLES,
                            NUM_EXAMPLES * sizeof(f->data.order[0]));
    close_fixture(f);
}

static void test_local_steps(void **state)
{
    (void)state;
    fixture *f = open_fixture();
    assert_int_equal(run(f, config(1, 1, 7)), FEDGE_OK); /* local_epochs is not read */
    assert_int_equal(f->result.num_steps, 7);
    assert_int_equal(f->result.num_seen, NUM_EXAMPLES + 10);
    fixture *g = open_fixture();
    assert_int_equal(run(g, config(1, 2, 0)), FEDGE_OK);
    assert_memory_equal(f->data.order, g->data.order,
                        (NUM_EXAMPLES + 10) * sizeof(f->data.order[0]));
    close_fixture(g);
    close_fixture(f);
}

static void test_same_round_same_bits(void **state)
{
    (void)state;
    fixture *f = open_fixture(), *g = open_fixture();
    const size_t bytes = fedge_model_num_values(f->self.model) * sizeof(float);
    assert_int_equal(run(f, config(2, 3, 0)), FEDGE_OK);
    assert_int_equal(run(g, config(2, 3, 0)), FEDGE_OK);
    assert_memory_equal(fedge_model_values(f->self.model), fedge_model_values(g->self.model),
                        bytes);
    assert_true(f->result.loss_sum == g->result.loss_sum);
    close_fixture(g);
    g = open_fixture();
    assert_int_equal(run(g, config(3, 3, 0)), FEDGE_OK); /* another round, another order */
    assert_memory_not_equal(f->data.order, g->data.order, NUM_EXAMPLES * sizeof(uint32_t));
    assert_memory_not_equal(fedge_model_values(f->self.model), fedge_model_values(g->self.model),
                            bytes);
    close_fixture(g);
    close_fixture(f);
}

static void test_learning(void **state)
{
    (void)state;
    fixture *f = open_fixture();
    const fedge_trainer_workspace workspace = workspace_of(f);
    fedge_trainer_result before, after;
    assert_int_equal(
        fedge_trainer_evaluate(f->self.model, &f->examples, BATCH, &workspace, &before, &f->err),
        FEDGE_OK);
    assert_true(before.num_steps == 0 && before.num_seen == NUM_EXAMPLES &&
                before.num_examples == NUM_EXAMPLES);
    for (uint32_t i = 0; i < NUM_EXAMPLES; i++) { /* in order */
        assert_int_equal(f->data.order[i], i);
    }
    assert_int_equal(run(f, config(1, 20, 0)), FEDGE_OK);
    assert_int_equal(
        fedge_trainer_evaluate(f->self.model, &f->examples, BATCH, &workspace, &after, &f->err),
        FEDGE_OK);
    assert_true(after.loss_sum < 0.1 * before.loss_sum);
    assert_int_equal(after.correct, NUM_EXAMPLES);
    close_fixture(f);
}

static bool cancel_at(void *user)
{
    uint32_t *left = user;
    return (*left)-- == 0;
}

static void test_cancel(void **state)
{
    (void)state;
    fixture *f = open_fixture();
    const fedge_trainer_config with = config(1, 5, 0);
    fedge_trainer_workspace workspace = workspace_of(f);
    uint32_t left = 3;
    workspace.cancel = cancel_at;
    workspace.cancel_user = &left;
    assert_int_equal(
        fedge_trainer_run(f->self.model, &f->examples, &with, &workspace, &f->result, &f->err),
        FEDGE_CANCELLED);
    assert_int_equal(f->data.num_batches, 3);
    left = 2;
    assert_int_equal(
        fedge_trainer_evaluate(f->self.model, &f->examples, BATCH, &workspace, &f->result, &f->err),
        FEDGE_CANCELLED);
    assert_int_equal(f->data.num_batches, 5);
    close_fixture(f);
}

static void test_bad_runs(void **state)
{
    (void)state;
    fixture *f = open_fixture();
    fedge_trainer_config with = config(6, 1, 0);
    f->scratch_size--;
    assert_int_equal(run(f, with), FEDGE_TOO_BIG);
    assert_non_null(strstr(f->err.message, "scratch"));
    f->scratch_size++;
    f->examples.num_examples = 0;
    assert_int_equal(run(f, with), FEDGE_INVALID_ARGUMENT);
    f->examples.num_examples = NUM_EXAMPLES;
    with.batch_size = 0;
    assert_int_equal(run(f, with), FEDGE_INVALID_ARGUMENT);
    with.batch_size = BATCH + 1;
    assert_int_equal(run(f, with), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(f->err.message, "batch_size is 6"));
    assert_int_equal(run(f, config(6, 0, 0)), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(run(f, config(6, 65537, 0)), FEDGE_OUT_OF_RANGE);
    assert_int_equal(run(f, config(6, 0, 65536u * 5 + 1)), FEDGE_OUT_OF_RANGE);
    assert_int_equal(f->data.num_batches, 0);
    f->data.fail_at = 3;
    assert_int_equal(run(f, config(6, 1, 0)), FEDGE_IO);
    assert_non_null(strstr(f->err.message, "round 6, step 3: the card is gone"));
    f->data.fail_at = 0;
    with = config(6, 50, 0);
    with.optimizer.learning_rate = 1e6f; /* diverges */
    assert_int_equal(run(f, with), FEDGE_NOT_FINITE);
    assert_non_null(strstr(f->err.message, "round 6, step "));
    assert_int_equal(fedge_trainer_scratch_size(&f->spec, 23, 5), 128 + 64 + 128);
    close_fixture(f);
}

/* BatchNorm2d has no variance of one value: known before the first step, and nothing has changed.
 */
static void test_batches_that_layers_refuse(void **state)
{
    (void)state;
    static fedge_model_spec spec;
    fedge_error err = {0};
    test_model self;
    spec_input(&spec, 3, 2, 2, 2);
    for (uint32_t i = 0; i < 3; i += 2) {
        fedge_layer_spec *norm = spec_add(&spec, FEDGE_LAYER_BATCHNORM2D);
        norm->u.batchnorm2d.num_features = 2;
        norm->u.batchnorm2d.eps = 1e-5f;
        norm->u.batchnorm2d.momentum = 0.1f;
        norm->u.batchnorm2d.track_running_stats = true;
        if (i == 0) {
            fedge_layer_spec *mean = spec_add(&spec, FEDGE_LAYER_ADAPTIVEAVGPOOL2D);
            mean->u.adaptiveavgpool2d.output_size[0] = mean->u.adaptiveavgpool2d.output_size[1] = 1;
        }
    }
    spec_flatten(&spec);
    spec_linear(&spec, 2, 2);
    for (int parts = 0; parts < 2; parts++) {
        const fedge_model_options options = {
            .max_batch = BATCH + 1, .micro_batch = parts ? 2 : 0, .training = true};
        const float x[6 * 8] = {1, 2, 3};
        const int32_t labels[6] = {0};
        const uint32_t size = parts ? 5 : 1; /* two parts, and one of one example */
        const fedge_optimizer sgd = {.learning_rate = 0.1f};
        float before[4], after[4];
        double loss;
        uint32_t correct;
        model_open(&self, &spec, &options, 3, 0);
        memcpy(before, fedge_model_buffers(self.model), sizeof(before));
        assert_int_equal(fedge_model_step(self.model, x, labels, size, &sgd, &loss, &correct, &err),
                         FEDGE_INVALID_ARGUMENT);
        memcpy(after, fedge_model_buffers(self.model), sizeof(after));
        assert_memory_equal(before, after, sizeof(before));
        assert_int_equal(fedge_model_evaluate(self.model, x, labels, size, &loss, &correct, &err),
                         FEDGE_OK);
        fedge_trainer_config with = config(1, 1, 0);
        with.batch_size = 6;
        assert_int_equal(fedge_trainer_check(self.model, 12, &with, &err), FEDGE_OK);
        assert_int_equal(fedge_trainer_check(self.model, 13, &with, &err), FEDGE_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "13 examples in batches of 6, choose another size: "
                                            "layer 2 (BatchNorm2d \"2\"): 1 example of 1 × 1"));
        with.local_steps = 2; /* which do not get there */
        assert_int_equal(fedge_trainer_check(self.model, 13, &with, &err), FEDGE_OK);
        model_close(&self);
    }
}

/* Values are looked through, but not those of a source that is known to make finite ones only. */
static void test_looks_for_what_is_not_finite(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        fixture *f = open_fixture();
        f->examples.finite = known;
        f->data.x[NUM_EXAMPLES - 1][2] = NAN;
        assert_int_equal(run(f, config(6, 1, 0)), FEDGE_NOT_FINITE);
        assert_int_equal(strstr(f->err.message, "clean the data") != NULL, !known);
        close_fixture(f);
    }
}

/* One step after which the loss was finite and a tensor is not. */
static void check_overflow(fedge_model_options options, bool norm, const char *expected)
{
    fixture *f = open_fixture();
    model_close(&f->self);
    options.max_batch = BATCH;
    options.training = true;
    if (norm) { /* a mean is finite, its variance is not */
        spec_input(&f->spec, 3, FEATURES, 1, 1);
        fedge_layer_spec *layer = spec_add(&f->spec, FEDGE_LAYER_BATCHNORM2D);
        layer->u.batchnorm2d.num_features = FEATURES;
        layer->u.batchnorm2d.eps = 1e-5f;
        layer->u.batchnorm2d.momentum = 1.0f;
        layer->u.batchnorm2d.track_running_stats = true;
        spec_flatten(&f->spec);
        spec_linear(&f->spec, FEATURES, 2);
    }
    model_open(&f->self, &f->spec, &options, 3, 0);
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++)
            f->data.x[i][k] = norm ? (i % 2 == 0 ? -1e30f : 1e30f) : 1e36f;
    }
    if (!norm) { /* outputs of 0, however large the inputs */
        float values[FEATURES * 8 + 8 + 16 + 2] = {0};
        values[FEATURES * 8] = 1.0f;
        values[FEATURES * 8 + 8] = 1.0f;
        fedge_model_load(f->self.model, values);
    }
    fedge_trainer_config with = config(6, 0, 1);
    with.optimizer.learning_rate = norm ? 0.1f : 1e6f;
    assert_int_equal(run(f, with), FEDGE_NOT_FINITE);
    if (!strstr(f->err.message, expected))
        fail_msg("\"%s\" is not in: %s", expected, f->err.message);
    assert_int_equal(f->result.num_steps, 1);
    close_fixture(f);
}

static void test_overflow(void **state)
{
    (void)state;
    static const char weight[] = "round 6: layer 0 (Linear): after training, value 0 of its "
                                 "\"weight\" is ";
    check_overflow((fedge_model_options){0}, false, weight);
    check_overflow((fedge_model_options){.general = true}, false, weight);
    check_overflow((fedge_model_options){.weights = FEDGE_STORAGE_BF16}, false, weight);
    check_overflow((fedge_model_options){0}, true,
                   "round 6: layer 0 (BatchNorm2d): after training, value 0 of its "
                   "\"running_var\" is inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_local_steps),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_same_round_same_bits),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_bad_runs),
        cmocka_unit_test(test_batches_that_layers_refuse),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_looks_for_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
