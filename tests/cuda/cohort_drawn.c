/* A cohort on GPUs against the CPU's trainer, of models, data and clients that are drawn. */
#include "tests/cuda/cohort_drawn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/long.h"

enum { BLOCK = 1 << 20 };

/* Of parameters after training, beside their largest in size: sums in other
 * orders. */
#define BOUND 2e-5

fedge_rng drawn_rng;
static fedge_model_spec spec;
fedge_model_options drawn_options;
fedge_trainer_config drawn_training;
static uint8_t bytes[EXAMPLES * MOST];
float drawn_floats[EXAMPLES * MOST];
static int32_t labels[EXAMPLES];
static const float MEAN[CHANNELS] = {0.5f, 0.25f}, STD[CHANNELS] = {0.25f, 0.5f};
uint32_t drawn_places[EXAMPLES], drawn_firsts[CLIENTS + 1];
size_t drawn_num_values, drawn_example_values;
static size_t num_parameters;
float drawn_start[MAX_VALUES], drawn_corrections[CLIENTS][MAX_VALUES];
float drawn_trained[CLIENTS][MAX_VALUES], drawn_expected[CLIENTS][MAX_VALUES];
fedge_cohort_task drawn_tasks[CLIENTS];
static fedge_trainer_result results[CLIENTS];
static uint32_t next_task;
uint32_t drawn_num_done;
static _Alignas(64) uint8_t block[BLOCK];
static _Alignas(64) uint8_t scratch[BLOCK];

enum drawn_family drawn_family;
fedge_loss_type drawn_loss = FEDGE_LOSS_CROSS_ENTROPY;
uint32_t drawn_outputs = CLASSES;

/* Optimizers in turn, with all that may be added to them. */
static fedge_augmentation augmentation;
static bool augments;

static void choose_optimizer(uint64_t seed)
{
    fedge_optimizer *o = &drawn_training.optimizer;
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
    drawn_options = (fedge_model_options){.max_batch = drawn_training.batch_size,
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

static void draw_examples(void)
{
    const uint32_t classes = drawn_outputs == 1 ? 2 : CLASSES;
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        drawn_places[i] = EXAMPLES - 1 - i;
        labels[i] = (int32_t)fedge_rng_below(&drawn_rng, classes);
        for (uint32_t v = 0; v < MOST; v++) {
            bytes[i * MOST + v] = (uint8_t)fedge_rng_below(&drawn_rng, 256);
            drawn_floats[i * MOST + v] = fedge_rng_float(&drawn_rng) + (float)labels[i];
        }
    }
}

void drawn_model(uint64_t seed)
{
    fedge_tensor_spec tensors[32];
    fedge_schema schema;
    fedge_error err;
    drawn_rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 7, 0, 0);
    spec = drawn_spec(seed);
    for (uint32_t i = 0; i < spec.num_layers; i++)
        spec.layers[i].recompute = drawn_recomputes && i % 3 != 2;
    spec.loss = drawn_loss;
    spec.loss_delta = drawn_loss == FEDGE_LOSS_HUBER || drawn_loss == FEDGE_LOSS_SMOOTH_L1
                          ? 0.25f + (float)(seed % 2)
                          : 0.0f;
    spec.label_smoothing = drawn_loss == FEDGE_LOSS_CROSS_ENTROPY && seed % 3 == 0 ? 0.1f : 0.0f;
    const uint32_t part = drawn_family == DRAWN_PLAIN ? (uint32_t)seed % 10 : 0;
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
    num_parameters = schema.num_elements;
    fedge_schema_init(&schema, tensors, 32);
    if (fedge_model_buffer_schema(&spec, &schema, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    drawn_num_values = num_parameters + schema.num_elements;
    drawn_example_values = fedge_model_input_count(&spec);
    assert_true(drawn_num_values <= MAX_VALUES);
    fedge_model_init_values(&spec, seed, drawn_start);
    fedge_model_init_buffers(&spec, drawn_start + num_parameters);
    const bool few = drawn_family != DRAWN_PLAIN && !fedge_test_is_long();
    drawn_training =
        (fedge_trainer_config){.seed = seed,
                               .round = 3,
                               .local_epochs = 2,
                               .local_steps = few             ? 2
                                              : seed % 3 == 2 ? 5
                                                              : 0,
                               .batch_size = 3 + fedge_rng_below(&drawn_rng, few ? 5 : 18)};
    choose_optimizer(seed);
    augments = drawn_family == DRAWN_PLAIN && seed % 2 == 1 && seed % 4 == 3; /* bytes of images */
    augmentation = (fedge_augmentation){.channels = CHANNELS,
                                        .height = SIDE,
                                        .width = SIDE,
                                        .horizontal_flip = 0.5f,
                                        .crop_padding = 2,
                                        .num_fill = CHANNELS};
    for (int c = 0; c < CHANNELS; c++)
        augmentation.fill[c] = (0.0f - MEAN[c]) / STD[c];
    draw_examples();
    for (uint32_t c = 1; c < CLIENTS; c++) { /* of different sizes, at least one example each */
        drawn_firsts[c] = drawn_firsts[c - 1] + 1 + fedge_rng_below(&drawn_rng, EXAMPLES / CLIENTS);
    }
    drawn_firsts[CLIENTS] = EXAMPLES;
    for (size_t i = 0; i < CLIENTS * MAX_VALUES; i++) {
        drawn_corrections[i / MAX_VALUES][i % MAX_VALUES] =
            fedge_rng_float(&drawn_rng) * 0.1f - 0.05f;
    }
}

/* ---- the CPU
 * ----------------------------------------------------------------------------------
 */

bool drawn_are_floats;

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n,
                                  uint32_t num_next, float *x, int32_t *to, fedge_error *err)
{
    const uint32_t *mine = user;
    (void)num_next;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t example = mine[indices[i]];
        to[i] = labels[example];
        for (size_t v = 0; v < drawn_example_values; v++) {
            const size_t at = example * drawn_example_values + v, channel = v / (SIDE * SIDE);
            x[i * drawn_example_values + v] =
                drawn_are_floats ? drawn_floats[at]
                : drawn_family == DRAWN_TEXT
                    ? (float)bytes[at]
                    : ((float)bytes[at] / 255.0f - MEAN[channel]) / STD[channel];
        }
    }
    return FEDGE_OK;
}

void drawn_train_on_cpu(void)
{
    fedge_model_memory memory;
    const fedge_trainer_workspace workspace = {.scratch = scratch, .scratch_size = BLOCK};
    fedge_model *model = NULL;
    fedge_error err;
    assert_int_equal(fedge_model_size(&spec, &drawn_options, &memory, &err), FEDGE_OK);
    assert_true(memory.total <= BLOCK);
    assert_int_equal(fedge_model_new(&model, &spec, &drawn_options, block, BLOCK, &err), FEDGE_OK);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        const fedge_examples stored = {.user = drawn_places + drawn_firsts[c],
                                       .num_examples = drawn_firsts[c + 1] - drawn_firsts[c],
                                       .read = read_examples};
        fedge_trainer_config config = drawn_training;
        fedge_augmented augmented;
        config.client_index = c;
        const fedge_examples examples =
            augments ? fedge_augment(&augmented, &augmentation, &stored, &config) : stored;
        fedge_model_set_state(model, drawn_start);
        fedge_model_reset_optimizer(model);
        if (drawn_options.correction) {
            memcpy(fedge_model_correction(model), drawn_corrections[c],
                   num_parameters * sizeof(float));
        }
        if (fedge_trainer_run(model, &examples, &config, &workspace, &results[c], &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        fedge_model_get_state(model, drawn_expected[c]);
    }
}

/* ---- the GPU
 * ----------------------------------------------------------------------------------
 */

bool drawn_accumulates;
bool drawn_recomputes;
fedge_cohort_chunk drawn_chunks[MAX_VALUES];
uint32_t drawn_num_chunks;

fedge_cohort_config drawn_config_of(uint32_t slots)
{
    return (fedge_cohort_config){
        .model = &spec,
        .options = &drawn_options,
        .sets = {{drawn_are_floats ? (const void *)drawn_floats : bytes, labels, EXAMPLES}},
        .dtype = drawn_are_floats ? FEDGE_F32 : FEDGE_U8,
        .num_channels = drawn_are_floats || drawn_family == DRAWN_TEXT ? 0 : CHANNELS,
        .divide_by = drawn_are_floats || drawn_family == DRAWN_TEXT ? 1.0f : 255.0f,
        .mean = MEAN,
        .std = STD,
        .augmentation = augments ? &augmentation : NULL,
        .most_slots = slots,
        .num_chunks = drawn_accumulates ? drawn_num_chunks : 0};
}

uint32_t drawn_weight_of(uint32_t client)
{
    return drawn_accumulates ? 1 + 1000 * client : 0;
}

static fedge_cohort_task *next(void *user)
{
    (void)user;
    return next_task < CLIENTS ? &drawn_tasks[next_task++] : NULL;
}

static void done(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    drawn_num_done++;
    if (values)
        memcpy(drawn_trained[task - drawn_tasks], values, drawn_num_values * sizeof(float));
}

void drawn_begin(uint64_t seed)
{
    emulator_start(&(emulator_config){.num_gpus = 1,
                                      .seed = seed,
                                      .order = (emulator_order)(seed % 3),
                                      .unprotected = seed % 3 != 0 || drawn_family != DRAWN_PLAIN});
}

void drawn_end(void)
{
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

fedge_status drawn_run(fedge_cohort *cohort, const fedge_trainer_config *config, fedge_error *err)
{
    const fedge_cohort_member member = {
        .start = drawn_start, .training = config, .chunks = drawn_chunks};
    const fedge_cohort_work work = {.members = &member,
                                    .num_members = 1,
                                    .num_chunks = drawn_accumulates ? drawn_num_chunks : 0,
                                    .next = next,
                                    .done = done};
    next_task = drawn_num_done = 0;
    for (uint32_t c = 0; c < CLIENTS; c++) {
        drawn_tasks[c] = (fedge_cohort_task){
            .examples = drawn_places + drawn_firsts[c],
            .num_examples = drawn_firsts[c + 1] - drawn_firsts[c],
            .client_index = c,
            .correction = drawn_options.correction ? drawn_corrections[c] : NULL,
            .weight = drawn_weight_of(c)};
    }
    return fedge_cohort_run(cohort, &work, err);
}

void drawn_train_on_gpu(uint64_t seed, uint32_t slots)
{
    fedge_cohort *cohort = NULL;
    fedge_error err;
    const fedge_cohort_config config = drawn_config_of(slots);
    drawn_begin(seed);
    if (fedge_cohort_new(&config, &cohort, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(fedge_cohort_slots(cohort), slots);
    for (int round = 0; round < (seed == 0 ? 2 : 1); round++) { /* the second begins anew */
        if (drawn_run(cohort, &drawn_training, &err) != FEDGE_OK)
            fail_msg("%s", err.message);
        assert_int_equal(drawn_num_done, CLIENTS);
    }
    fedge_cohort_free(cohort);
    drawn_end();
}

void drawn_compare(uint64_t seed)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        double largest = 0.0;
        for (size_t i = 0; i < drawn_num_values; i++)
            largest = fmax(largest, fabs((double)drawn_expected[c][i]));
        for (size_t i = 0; i < drawn_num_values; i++) {
            if (!(fabs((double)drawn_trained[c][i] - (double)drawn_expected[c][i]) <=
                  BOUND * largest)) {
                fail_msg("seed %u, client %u, value %zu of %zu: %.9g, and the CPU has %.9g",
                         (unsigned)seed, c, i, drawn_num_values, (double)drawn_trained[c][i],
                         (double)drawn_expected[c][i]);
            }
        }
        assert_int_equal(drawn_tasks[c].status, FEDGE_OK);
        assert_int_equal(drawn_tasks[c].result.num_examples, results[c].num_examples);
        assert_int_equal(drawn_tasks[c].result.num_steps, results[c].num_steps);
        assert_int_equal(drawn_tasks[c].result.num_seen, results[c].num_seen);
        assert_int_equal(drawn_tasks[c].result.correct, results[c].correct);
        assert_true(fabs(drawn_tasks[c].result.loss_sum - results[c].loss_sum) <=
                    1e-4 * results[c].loss_sum);
    }
}

void drawn_agree(enum drawn_family family, uint64_t seed, uint32_t slots)
{
    drawn_are_floats = false;
    drawn_family = family;
    drawn_model(seed);
    drawn_train_on_cpu();
    drawn_train_on_gpu(seed, slots);
    drawn_compare(seed);
    drawn_family = DRAWN_PLAIN;
}
