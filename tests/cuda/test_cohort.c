/* A cohort on GPUs against the CPU's trainer: clients of different sizes,
 * models of the layers that GPUs have, every optimizer. Which slots, how many
 * of them, and the order of threads do not show.
 */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "edge/core/codec.h"
#include "edge/core/rng.h"
#include "edge/train/cuda/cohort.h"
#include "edge/train/layer.h"
#include "edge/train/model.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/long.h"

enum { EXAMPLES = 60, CLIENTS = 5, SIDE = 6, CHANNELS = 2, MOST = CHANNELS * SIDE * SIDE };
enum { WORDS = 20, CLASSES = 3, BLOCK = 1 << 20, MAX_VALUES = 4096 };

#ifdef RACES
enum { SEEDS = 3, LAYER_SEEDS = 6, QUICK_SEEDS = 1, QUICK_LAYER_SEEDS = 4 };
#else
enum { SEEDS = 10, LAYER_SEEDS = 8, QUICK_SEEDS = 3, QUICK_LAYER_SEEDS = 4 };
#endif

/* Of parameters after training, beside their largest in size: sums in other
 * orders. */
#define BOUND 2e-5

static fedge_rng rng;
static fedge_model_spec spec;
static fedge_model_options options;
static fedge_trainer_config training;
static uint8_t bytes[EXAMPLES * MOST];
static float floats[EXAMPLES * MOST];
static int32_t labels[EXAMPLES];
static const float MEAN[CHANNELS] = {0.5f, 0.25f}, STD[CHANNELS] = {0.25f, 0.5f};
static uint32_t places[EXAMPLES], firsts[CLIENTS + 1];
static size_t num_values, example_values;
static float start[MAX_VALUES], corrections[CLIENTS][MAX_VALUES];
static float trained[CLIENTS][MAX_VALUES], expected[CLIENTS][MAX_VALUES];
static fedge_cohort_task tasks[CLIENTS];
static fedge_trainer_result results[CLIENTS];
static uint32_t next_task, num_done;
static _Alignas(64) uint8_t block[BLOCK];
static _Alignas(64) uint8_t scratch[BLOCK];

static fedge_layer_spec linear(uint32_t in, uint32_t out)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_LINEAR,
                              .u.linear = {in, out, out % 2 == 1, 0, 0}};
}

static fedge_layer_spec plain(fedge_layer_type type)
{
    return (fedge_layer_spec){.type = type};
}

static void make_mlp(void)
{
    const uint32_t hidden = 1 + fedge_rng_below(&rng, 40);
    spec = (fedge_model_spec){.input_rank = 1, .input_shape = {MOST}, .num_layers = 3};
    spec.layers[0] = linear(MOST, hidden);
    spec.layers[1] = plain(FEDGE_LAYER_RELU);
    spec.layers[2] = linear(hidden, CLASSES);
}

static void make_cnn(void)
{
    const uint32_t first = 1 + fedge_rng_below(&rng, 18), second = 1 + fedge_rng_below(&rng, 5);
    spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 7};
    spec.layers[0] =
        (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                           .u.conv2d = {CHANNELS, first, {3, 3}, {1, 1}, {1, 1}, true, {0, 0}, 0}};
    spec.layers[1] = plain(FEDGE_LAYER_RELU);
    spec.layers[2] =
        (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {.kernel_size = {2, 2}}};
    spec.layers[3] = (fedge_layer_spec){
        .type = FEDGE_LAYER_CONV2D,
        .u.conv2d = {first, second, {2, 2}, {1, 1}, {0, 0}, second % 2 == 0, {1, 1}, 1}};
    spec.layers[4] = plain(FEDGE_LAYER_RELU);
    spec.layers[5] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[6] = linear(second * 4, CLASSES);
}

static fedge_layer_spec conv(uint32_t in, uint32_t out, uint32_t kernel, uint32_t groups)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                              .u.conv2d = {in,
                                           out,
                                           {kernel, kernel},
                                           {1, 1},
                                           {kernel / 2, kernel / 2},
                                           groups > 1,
                                           {1, 1},
                                           groups}};
}

static fedge_layer_spec group_norm(uint32_t groups, uint32_t channels)
{
    return (fedge_layer_spec){.type = FEDGE_LAYER_GROUPNORM,
                              .u.groupnorm = {groups, channels, 1e-5f, true}};
}

static fedge_layer_spec reads(fedge_layer_spec layer, uint32_t count, uint16_t a, uint16_t b)
{
    layer.num_inputs = count;
    layer.inputs[0] = a;
    layer.inputs[1] = b;
    return layer;
}

/* Blocks with a way around them, in every kind: what is read twice, a sum that is read twice, and
 * rectifiers that may not work in place. */
static void make_residual(void)
{
    static const fedge_layer_type FUNCTIONS[] = {FEDGE_LAYER_RELU6, FEDGE_LAYER_LEAKYRELU,
                                                 FEDGE_LAYER_GELU,  FEDGE_LAYER_SIGMOID,
                                                 FEDGE_LAYER_TANH,  FEDGE_LAYER_SILU};
    fedge_layer_spec function = plain(FUNCTIONS[fedge_rng_below(&rng, 6)]);
    if (function.type == FEDGE_LAYER_LEAKYRELU)
        function.u.leakyrelu.negative_slope = 0.1f;
    if (function.type == FEDGE_LAYER_GELU)
        function.u.gelu.approximate = fedge_rng_below(&rng, 2);
    spec = (fedge_model_spec){
        .input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 15};
    spec.layers[0] = conv(CHANNELS, 4, 3, 1);
    spec.layers[1] = group_norm(2, 4);
    spec.layers[2] = plain(FEDGE_LAYER_RELU);
    spec.layers[3] = conv(4, 4, 3, 4);
    spec.layers[4] = function;
    spec.layers[5] = reads(plain(FEDGE_LAYER_ADD), 2, 4, 2);
    spec.layers[6] = plain(FEDGE_LAYER_RELU);
    spec.layers[7] = conv(4, 6, 3, 2);
    spec.layers[8] = reads(conv(4, 6, 1, 1), 1, 6, 0);
    spec.layers[9] = group_norm(3, 6);
    spec.layers[10] = reads(plain(FEDGE_LAYER_ADD), 2, 9, 7);
    spec.layers[11] = reads(plain(FEDGE_LAYER_ADD), 2, 10, 10);
    spec.layers[12] =
        (fedge_layer_spec){.type = FEDGE_LAYER_ADAPTIVEAVGPOOL2D,
                           .u.adaptiveavgpool2d = {{1 + fedge_rng_below(&rng, 4), 2}}};
    spec.layers[13] = plain(FEDGE_LAYER_FLATTEN);
    spec.layers[14] = linear(6 * spec.layers[12].u.adaptiveavgpool2d.output_size[0] * 2, CLASSES);
}

/* Words of a text: places in a table, positions, a norm of each step, a product of each. */
static void make_text(void)
{
    spec = (fedge_model_spec){.input_rank = 1, .input_shape = {WORDS}, .num_layers = 7};
    spec.layers[0] = (fedge_layer_spec){.type = FEDGE_LAYER_EMBEDDING, .u.embedding = {256, 3}};
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_POSITIONALEMBEDDING,
                                        .u.positionalembedding = {WORDS + 2, 3}};
    spec.layers[2] = (fedge_layer_spec){.type = FEDGE_LAYER_LAYERNORM,
                                        .u.layernorm = {1, {3}, 1e-5f, true, true}};
    spec.layers[3] = linear(3, 5);
    spec.layers[4] = plain(FEDGE_LAYER_TANH);
    spec.layers[5] = fedge_rng_below(&rng, 2)
                         ? (fedge_layer_spec){.type = FEDGE_LAYER_MEAN, .u.mean = {1}}
                         : (fedge_layer_spec){.type = FEDGE_LAYER_SELECT, .u.select = {1, -1}};
    spec.layers[6] = linear(5, CLASSES);
}

/* A sequence of vectors through an LSTM or GRU, of one level or more. */
static void make_sequence(uint64_t seed)
{
    const uint32_t hidden = 1 + fedge_rng_below(&rng, 9);
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {SIDE, MOST / SIDE}, .num_layers = 3};
    spec.layers[0] =
        (fedge_layer_spec){.type = seed / 4 % 2 ? FEDGE_LAYER_LSTM : FEDGE_LAYER_GRU,
                           .u.recurrent = {MOST / SIDE, hidden, 1 + fedge_rng_below(&rng, 3),
                                           seed % 8 > 1, true, false}};
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_SELECT, .u.select = {1, -1}};
    spec.layers[2] = linear(hidden, CLASSES);
}

/* Two encoder layers over such vectors, of one head or two. */
static void make_encoders(uint64_t seed)
{
    spec = (fedge_model_spec){.input_rank = 2, .input_shape = {MOST / SIDE, SIDE}, .num_layers = 4};
    for (uint32_t i = 0; i < 2; i++) {
        spec.layers[i] = (fedge_layer_spec){
            .type = FEDGE_LAYER_TRANSFORMERENCODERLAYER,
            .u.transformerencoderlayer = {.d_model = SIDE,
                                          .nhead = 1 + i,
                                          .dim_feedforward = 1 + fedge_rng_below(&rng, 9),
                                          .layer_norm_eps = 1e-5f,
                                          .activation = seed % 2,
                                          .bias = seed % 8 > 2,
                                          .batch_first = true,
                                          .norm_first = true,
                                          .is_causal = i == 0}};
    }
    spec.layers[2] = (fedge_layer_spec){.type = FEDGE_LAYER_MEAN, .u.mean = {1}};
    spec.layers[3] = linear(SIDE, CLASSES);
}

/* Which models are drawn. */
static enum family { PLAIN, RESIDUAL, TEXT, SEQUENCE, ENCODERS } family;

/* Optimizers in turn, with all that may be added to them. */
static fedge_augmentation augmentation;
static bool augments;

static void choose_optimizer(uint64_t seed)
{
    fedge_optimizer *o = &training.optimizer;
    *o = (fedge_optimizer){.learning_rate = 0.05f};
    o->type = seed % 5 == 3   ? FEDGE_OPTIMIZER_ADAM
              : seed % 5 == 4 ? FEDGE_OPTIMIZER_ADAMW
                              : FEDGE_OPTIMIZER_SGD;
    o->learning_rate = o->type == FEDGE_OPTIMIZER_SGD ? 0.05f : 0.002f;
    o->momentum = seed % 5 == 1 || seed % 5 == 2 ? 0.9f : 0.0f;
    o->nesterov = seed % 5 == 2;
    o->weight_decay = seed % 2 ? 0.01f : 0.0f;
    o->epsilon = o->type == FEDGE_OPTIMIZER_SGD ? 0.0f : 1e-3f;
    o->proximal_mu = seed % 3 == 1 ? 0.1f : 0.0f;
    o->clip_norm = seed % 4 == 2 ? 0.5f : seed % 10 == 5 ? 0.05f : 0.0f;
    options = (fedge_model_options){.max_batch = training.batch_size,
                                    .training = true,
                                    .momentum = o->momentum,
                                    .optimizer = o->type,
                                    .nesterov = o->nesterov,
                                    .clip = o->clip_norm > 0.0f,
                                    .proximal = o->proximal_mu > 0.0f,
                                    .correction = seed % 6 == 5,
                                    .general = true,
                                    .disabled_cpu_features = ~0u};
}

static void draw(uint64_t seed)
{
    fedge_tensor_spec tensors[32];
    fedge_schema schema;
    fedge_error err;
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 7, 0, 0);
    if (family == RESIDUAL)
        make_residual();
    else if (family == TEXT)
        make_text();
    else if (family == SEQUENCE)
        make_sequence(seed);
    else if (family == ENCODERS)
        make_encoders(seed);
    else if (seed % 2)
        make_cnn();
    else
        make_mlp();
    spec.label_smoothing = seed % 3 == 0 ? 0.1f : 0.0f;
    const uint32_t part = family == PLAIN ? (uint32_t)seed % 10 : 0;
    if (part == 6) { /* what is not trained, or in part */
        spec.layers[0].train = FEDGE_TRAIN_NONE;
    }
    if (part == 7)
        spec.layers[3].train = FEDGE_TRAIN_BIAS;
    if (part == 5 || part == 8 || part == 9) {
        spec.layers[part % 2 ? 6 : 2].num_train_channels = 2;
        spec.layers[part % 2 ? 6 : 2].train_channels[0] = 1;
        spec.layers[part % 2 ? 6 : 2].train_channels[1] = 2;
    }
    fedge_schema_init(&schema, tensors, 32);
    if (fedge_model_schema(&spec, &schema, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    num_values = schema.num_elements;
    example_values = fedge_model_input_count(&spec);
    assert_true(num_values <= MAX_VALUES);
    fedge_model_init_values(&spec, seed, start);
    training = (fedge_trainer_config){.seed = seed,
                                      .round = 3,
                                      .local_epochs = 2,
                                      .local_steps = seed % 3 == 2 ? 5 : 0,
                                      .batch_size = 3 + fedge_rng_below(&rng, 18)};
    choose_optimizer(seed);
    augments = family == PLAIN && seed % 2 == 1 && seed % 4 == 3; /* bytes of images */
    augmentation = (fedge_augmentation){.channels = CHANNELS,
                                        .height = SIDE,
                                        .width = SIDE,
                                        .horizontal_flip = 0.5f,
                                        .crop_padding = 2,
                                        .num_fill = CHANNELS};
    for (int c = 0; c < CHANNELS; c++)
        augmentation.fill[c] = (0.0f - MEAN[c]) / STD[c];
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        places[i] = EXAMPLES - 1 - i;
        labels[i] = (int32_t)fedge_rng_below(&rng, CLASSES);
        for (uint32_t v = 0; v < MOST; v++) {
            bytes[i * MOST + v] = (uint8_t)fedge_rng_below(&rng, 256);
            floats[i * MOST + v] = fedge_rng_float(&rng) + (float)labels[i];
        }
    }
    for (uint32_t c = 1; c < CLIENTS; c++) { /* of different sizes, at least one example each */
        firsts[c] = firsts[c - 1] + 1 + fedge_rng_below(&rng, EXAMPLES / CLIENTS);
    }
    firsts[CLIENTS] = EXAMPLES;
    for (size_t i = 0; i < CLIENTS * MAX_VALUES; i++)
        corrections[i / MAX_VALUES][i % MAX_VALUES] = fedge_rng_float(&rng) * 0.1f - 0.05f;
}

/* ---- the CPU
 * ----------------------------------------------------------------------------------
 */

static bool are_floats;

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n, uint32_t soon,
                                  float *x, int32_t *to, fedge_error *err)
{
    const uint32_t *mine = user;
    (void)soon;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t example = mine[indices[i]];
        to[i] = labels[example];
        for (size_t v = 0; v < example_values; v++) {
            const size_t at = example * example_values + v, channel = v / (SIDE * SIDE);
            x[i * example_values + v] =
                are_floats       ? floats[at]
                : family == TEXT ? (float)bytes[at]
                                 : ((float)bytes[at] / 255.0f - MEAN[channel]) / STD[channel];
        }
    }
    return FEDGE_OK;
}

static void train_on_cpu(void)
{
    fedge_model_memory memory;
    fedge_model *model = NULL;
    fedge_error err;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_true(memory.total <= BLOCK);
    assert_int_equal(fedge_model_new(&model, &spec, &options, block, BLOCK, &err), FEDGE_OK);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        const fedge_examples stored = {.user = places + firsts[c],
                                       .num_examples = firsts[c + 1] - firsts[c],
                                       .read = read_examples};
        fedge_trainer_config config = training;
        fedge_augmented augmented;
        config.client_index = c;
        const fedge_examples examples =
            augments ? fedge_augment(&augmented, &augmentation, &stored, &config) : stored;
        fedge_model_load(model, start);
        fedge_model_reset_optimizer(model);
        if (options.correction)
            memcpy(fedge_model_correction(model), corrections[c], num_values * sizeof(float));
        if (fedge_trainer_run(model, &examples, &config, scratch, BLOCK, NULL, NULL, &results[c],
                              &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        fedge_model_store(model, expected[c]);
    }
}

/* ---- the GPU
 * ----------------------------------------------------------------------------------
 */

/* Changes are added to sums on the GPU. */
static bool accumulates;
static fedge_cohort_piece pieces[MAX_VALUES];
static uint32_t num_pieces;

static fedge_cohort_config config_of(uint32_t slots)
{
    return (fedge_cohort_config){
        .model = &spec,
        .options = &options,
        .sets = {{are_floats ? (const void *)floats : bytes, labels, EXAMPLES}},
        .dtype = are_floats ? FEDGE_F32 : FEDGE_U8,
        .num_channels = are_floats || family == TEXT ? 0 : CHANNELS,
        .divide_by = are_floats || family == TEXT ? 1.0f : 255.0f,
        .mean = MEAN,
        .std = STD,
        .augmentation = augments ? &augmentation : NULL,
        .most_slots = slots,
        .num_pieces = accumulates ? num_pieces : 0};
}

static uint32_t weight_of(uint32_t client)
{
    return accumulates ? 1 + 1000 * client : 0;
}

static fedge_cohort_task *next(void *user)
{
    (void)user;
    return next_task < CLIENTS ? &tasks[next_task++] : NULL;
}

static void done(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    num_done++;
    if (values)
        memcpy(trained[task - tasks], values, num_values * sizeof(float));
}

static void begin(uint64_t seed)
{
    emulator_start(&(emulator_config){.num_gpus = 1,
                                      .seed = seed,
                                      .order = (emulator_order)(seed % 3),
                                      .unprotected = seed % 3 != 0 || family != PLAIN});
}

static void end(void)
{
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

static fedge_status run_on(fedge_cohort *cohort, const fedge_trainer_config *config,
                           fedge_error *err)
{
    const fedge_cohort_work work = {.start = start,
                                    .training = config,
                                    .pieces = pieces,
                                    .num_pieces = accumulates ? num_pieces : 0,
                                    .next = next,
                                    .done = done};
    next_task = num_done = 0;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        tasks[c] = (fedge_cohort_task){.examples = places + firsts[c],
                                       .num_examples = firsts[c + 1] - firsts[c],
                                       .client_index = c,
                                       .correction = options.correction ? corrections[c] : NULL,
                                       .weight = weight_of(c)};
    }
    return fedge_cohort_run(cohort, &work, err);
}

static void train_on_gpu(uint64_t seed, uint32_t slots)
{
    fedge_cohort *cohort = NULL;
    fedge_error err;
    const fedge_cohort_config config = config_of(slots);
    begin(seed);
    if (fedge_cohort_new(&config, &cohort, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(fedge_cohort_slots(cohort), slots);
    for (int round = 0; round < (seed == 0 ? 2 : 1); round++) { /* the second begins anew */
        if (run_on(cohort, &training, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        assert_int_equal(num_done, CLIENTS);
    }
    fedge_cohort_free(cohort);
    end();
}

static void compare(uint64_t seed)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        double largest = 0.0;
        for (size_t i = 0; i < num_values; i++)
            largest = fmax(largest, fabs((double)expected[c][i]));
        for (size_t i = 0; i < num_values; i++) {
            if (!(fabs((double)trained[c][i] - (double)expected[c][i]) <= BOUND * largest)) {
                fail_msg("seed %u, client %u, value %zu of %zu: %.9g, and the CPU has %.9g",
                         (unsigned)seed, c, i, num_values, (double)trained[c][i],
                         (double)expected[c][i]);
            }
        }
        assert_int_equal(tasks[c].status, FEDGE_OK);
        assert_int_equal(tasks[c].result.num_examples, results[c].num_examples);
        assert_int_equal(tasks[c].result.num_steps, results[c].num_steps);
        assert_int_equal(tasks[c].result.num_seen, results[c].num_seen);
        assert_int_equal(tasks[c].result.correct, results[c].correct);
        assert_true(fabs(tasks[c].result.loss_sum - results[c].loss_sum) <=
                    1e-4 * results[c].loss_sum);
    }
}

static void clients_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? SEEDS : QUICK_SEEDS); seed++) {
        are_floats = seed % 4 == 1;
        draw(seed);
        train_on_cpu();
        train_on_gpu(seed, 1 + (uint32_t)seed % (CLIENTS + 1));
        compare(seed);
    }
}

static void layers_become_what_the_cpu_makes_of_them(void **state)
{
    (void)state;
    are_floats = false;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? LAYER_SEEDS : QUICK_LAYER_SEEDS);
         seed++) {
        static const enum family FAMILIES[] = {RESIDUAL, SEQUENCE, TEXT, ENCODERS};
        family = FAMILIES[seed % 4];
        draw(seed);
        train_on_cpu();
        train_on_gpu(seed, 1 + (uint32_t)seed % (CLIENTS + 1));
        compare(seed);
    }
    family = PLAIN;
}

static void slots_and_threads_do_not_show(void **state)
{
    (void)state;
    static float first[CLIENTS][MAX_VALUES];
    for (uint64_t seed = 0; seed < 6; seed++) {
        static const enum family FAMILIES[] = {PLAIN, PLAIN, RESIDUAL, TEXT, SEQUENCE, ENCODERS};
        family = FAMILIES[seed];
        draw(seed);
        train_on_gpu(seed, 1);
        memcpy(first, trained, sizeof(first));
        for (uint32_t slots = 2; slots <= (family == PLAIN ? CLIENTS : 3); slots += 2) {
            train_on_gpu(seed + 10 * slots, slots);
            assert_memory_equal(first, trained, sizeof(first));
        }
    }
    family = PLAIN;
}

static double distance(float of[CLIENTS][MAX_VALUES], float from[CLIENTS][MAX_VALUES])
{
    double largest = 0.0, most = 0.0;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (size_t i = 0; i < num_values; i++) {
            largest = fmax(largest, fabs((double)from[c][i]));
            most = fmax(most, fabs((double)of[c][i] - (double)from[c][i]));
        }
    }
    return most / largest;
}

/* Where factors are rounded, results are near the CPU's in bf16 and near fp32's in tf32, but not
 * those of fp32; slots do not show. */
static void factors_are_rounded(void **state)
{
    (void)state;
    static float in_fp32[CLIENTS][MAX_VALUES], alone[CLIENTS][MAX_VALUES];
    static const fedge_precision PRECISIONS[] = {FEDGE_PRECISION_BF16, FEDGE_PRECISION_TF32};
    static const double BOUNDS[] = {2e-3, 1e-3}, LEAST[] = {1e-4, 1e-5};
    are_floats = false;
    for (uint64_t seed = 0; seed < 3; seed++) {
        family = seed < 2 ? PLAIN : ENCODERS;
        draw(seed);
        train_on_gpu(1, 3);
        memcpy(in_fp32, trained, sizeof(trained));
        options.precision = PRECISIONS[seed % 2];
        train_on_cpu(); /* which has fp32 in place of tf32 */
        train_on_gpu(1, 1);
        memcpy(alone, trained, sizeof(trained));
        train_on_gpu(2, 3);
        assert_memory_equal(alone, trained, sizeof(alone));
        const double off = distance(trained, expected), rounded = distance(trained, in_fp32);
        if (!(off <= BOUNDS[seed % 2] && rounded >= LEAST[seed % 2]))
            fail_msg("seed %u: %g from the CPU, %g from fp32", (unsigned)seed, off, rounded);
    }
    family = PLAIN;
}

static void old_chips_are_refused(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .old_chip = true}))
        return;
    draw(0);
    options.precision = FEDGE_PRECISION_TF32;
    const fedge_cohort_config config = config_of(1);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_UNSUPPORTED);
    assert_string_equal(err.message, "GPU 0 has compute capability 7.5, and precision tf32 wants "
                                     "8.0: set the job's precision to fp32");
    options.precision = FEDGE_PRECISION_FP32;
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    fedge_cohort_free(cohort);
    end();
}

/* Pieces of random lengths, as tensors have them, with gaps between their sums. */
static size_t make_pieces(int64_t *sums)
{
    size_t at = 0;
    num_pieces = 0;
    for (size_t i = 0; i < num_values;) {
        const size_t left = num_values - i, most = 1 + fedge_rng_below(&rng, FEDGE_COHORT_PIECE);
        const size_t count = left < most ? left : most;
        pieces[num_pieces++] =
            (fedge_cohort_piece){.sums = sums + at,
                                 .first = (uint32_t)i,
                                 .count = (uint16_t)count,
                                 .bound_log2 = (int8_t)fedge_rng_below(&rng, 8) - 7,
                                 .codec = (uint8_t)fedge_rng_below(&rng, 2)};
        i += count;
        at += count + fedge_rng_below(&rng, 3);
    }
    return at;
}

/* What the codecs make of the changes in [trained], added to [sums]; how many of a client's were
 * cut. */
static void accumulate_on_cpu(int64_t *all, const int64_t *first, uint64_t cut[CLIENTS])
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        fedge_codec_stats stats = {0};
        for (uint32_t p = 0; p < num_pieces; p++) {
            const fedge_cohort_piece *piece = &pieces[p];
            const fedge_codec_ops *codec =
                piece->codec == FEDGE_COHORT_CODEC_INT8 ? &fedge_codec_int8 : &fedge_codec_none;
            float change[FEDGE_COHORT_PIECE];
            int32_t v[FEDGE_COHORT_PIECE];
            for (uint32_t i = 0; i < piece->count; i++)
                change[i] = trained[c][piece->first + i] - start[piece->first + i];
            codec->encode(piece->bound_log2, change, piece->count, v, NULL, &stats);
            for (uint32_t i = 0; i < piece->count; i++)
                all[piece->sums - first + i] += (int64_t)weight_of(c) * v[i];
        }
        cut[c] = stats.clamped;
    }
}

static void check_accumulate(uint64_t seed)
{
    static int64_t all[2 * MAX_VALUES], fetched[2 * MAX_VALUES];
    fedge_cohort *cohort = NULL;
    fedge_error err;
    void *memory = NULL, *pinned = NULL;
    uint64_t cut[CLIENTS];
    draw(seed);
    train_on_gpu(seed, 3);
    accumulates = true;
    begin(seed);
    assert_int_equal(cudaMalloc(&memory, sizeof(all)), cudaSuccess);
    assert_int_equal(cudaHostAlloc(&pinned, sizeof(all), cudaHostAllocPortable), cudaSuccess);
    int64_t *sums = memory;
    const size_t count = make_pieces(sums);
    memset(all, 0, sizeof(all));
    accumulate_on_cpu(all, sums, cut);
    const fedge_cohort_config config = config_of(2);
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(memory, 0, sizeof(all), stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(run_on(cohort, &training, &err), FEDGE_OK);
    assert_int_equal(cudaMemcpyAsync(pinned, memory, sizeof(all), cudaMemcpyDeviceToHost, stream),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    memcpy(fetched, pinned, sizeof(all));
    assert_memory_equal(fetched, all, count * sizeof(*all));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        assert_int_equal(tasks[c].clamped, cut[c]);
        assert_int_equal(tasks[c].bad_value, UINT32_MAX);
    }
    fedge_cohort_free(cohort);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    assert_int_equal(cudaFreeHost(pinned), cudaSuccess);
    end();
    accumulates = false;
}

static void changes_are_summed_as_codecs_make_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++)
        check_accumulate(seed);
}

/* What diverges is told of its client, with the step; the others go on. */
static void losses_that_are_no_numbers_are_told(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    are_floats = true;
    draw(20);
    for (size_t v = 0; v < example_values; v++) { /* of client 0 */
        floats[places[firsts[0]] * example_values + v] = 1e38f;
    }
    const fedge_cohort_config config = config_of(3);
    begin(2);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(run_on(cohort, &training, &err), FEDGE_OK);
    assert_int_equal(num_done, CLIENTS);
    assert_int_equal(tasks[0].status, FEDGE_NOT_FINITE);
    assert_non_null(strstr(tasks[0].error.message, "round 3, step "));
    assert_non_null(strstr(tasks[0].error.message, "CrossEntropyLoss: the loss of a batch of "));
    for (uint32_t c = 1; c < CLIENTS; c++)
        assert_int_equal(tasks[c].status, FEDGE_OK);
    fedge_cohort_free(cohort);
    end();
    are_floats = false;
}

static void clients_without_examples_are_told(void **state)
{
    (void)state;
    fedge_cohort *cohort = NULL;
    fedge_error err;
    draw(0);
    const uint32_t kept = firsts[1];
    firsts[1] = firsts[0];
    const fedge_cohort_config config = config_of(2);
    begin(0);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    assert_int_equal(run_on(cohort, &training, &err), FEDGE_OK);
    assert_int_equal(tasks[0].status, FEDGE_INVALID_ARGUMENT);
    assert_string_equal(tasks[0].error.message, "there are no examples to read");
    assert_int_equal(tasks[1].status, FEDGE_OK);
    fedge_cohort_free(cohort);
    end();
    firsts[1] = kept;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(layers_become_what_the_cpu_makes_of_them),
        cmocka_unit_test(slots_and_threads_do_not_show),
        cmocka_unit_test(factors_are_rounded),
        cmocka_unit_test(old_chips_are_refused),
        cmocka_unit_test(changes_are_summed_as_codecs_make_them),
        cmocka_unit_test(losses_that_are_no_numbers_are_told),
        cmocka_unit_test(clients_without_examples_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
