#include "tests/cuda/silo_drawn.h"

#include <math.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/train/layers/layer.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/cmocka_all.h"

enum { BLOCK = 1 << 20 };

fedge_model_spec silo_spec;
fedge_model_options silo_options;
fedge_trainer_config silo_training;
static fedge_augmentation augmentation;
static bool augments;
bool silo_bf16;
uint32_t silo_micro_batch; /* of the CPU's, which it draws for one after another */
static uint8_t bytes[EXAMPLES * VALUES];
static int32_t labels[EXAMPLES];
uint32_t silo_places[EXAMPLES];
static const float MEAN[CHANNELS] = {0.5f, 0.25f}, STD[CHANNELS] = {0.25f, 0.5f};
size_t silo_num_values;
float silo_start[MAX_VALUES];
static float correction[MAX_VALUES];
float silo_expected[MAX_VALUES], silo_first[MAX_VALUES], silo_trained[MAX_VALUES];
fedge_trainer_result silo_of_cpu, silo_result;
static fedge_trainer_result of_first;
static _Alignas(64) uint8_t block[BLOCK];
static _Alignas(64) uint8_t scratch[BLOCK];

/* A convolution, its channels' maxima, what is dropped of them, and a product, of which some seeds
 * train the end alone, or factors of low rank. */
static void make_model(uint64_t seed)
{
    silo_spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 6};
    silo_spec.layers[0] =
        (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                           .u.conv2d = {CHANNELS, 5, {3, 3}, {1, 1}, {1, 1}, true, {1, 1}, 1}};
    silo_spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_RELU};
    silo_spec.layers[2] =
        (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {.kernel_size = {2, 2}}};
    silo_spec.layers[3] = (fedge_layer_spec){.type = FEDGE_LAYER_FLATTEN};
    silo_spec.layers[4] = (fedge_layer_spec){.type = FEDGE_LAYER_DROPOUT,
                                             .u.dropout = {seed % 2 ? 0.25f : 0.0f, false}};
    silo_spec.layers[5] = (fedge_layer_spec){
        .type = FEDGE_LAYER_LINEAR, .u.linear = {45, CLASSES, true, seed == 3 ? 2 : 0, 3.0f}};
    for (uint32_t i = 0; i < 5; i++) { /* two groups of layers, of which one is made again */
        silo_spec.layers[i].recompute = seed == 2 && i != 2;
    }
    if (seed == 4)
        silo_spec.layers[0].train = FEDGE_TRAIN_NONE;
}

static void choose_training(uint64_t seed)
{
    silo_training = (fedge_trainer_config){.seed = seed,
                                           .round = 2,
                                           .client_index = 5,
                                           .local_epochs = seed == 1 ? 2 : 1,
                                           .local_steps = seed == 3 ? 4 : 0,
                                           .batch_size = BATCH};
    fedge_optimizer *o = &silo_training.optimizer;
    o->type = seed == 1   ? FEDGE_OPTIMIZER_ADAM
              : seed == 2 ? FEDGE_OPTIMIZER_ADAMW
                          : FEDGE_OPTIMIZER_SGD;
    o->learning_rate = o->type == FEDGE_OPTIMIZER_SGD ? 0.05f : 0.002f;
    o->momentum = o->type == FEDGE_OPTIMIZER_SGD ? 0.9f : 0.0f;
    o->epsilon = o->type == FEDGE_OPTIMIZER_SGD ? 0.0f : 1e-3f;
    o->weight_decay = 0.01f;
    o->proximal_mu = seed == 3 ? 0.1f : 0.0f;
    o->clip_norm = seed == 0 || seed == 2 ? 0.5f : 0.0f;
    silo_options = (fedge_model_options){.max_batch = BATCH,
                                         .training = true,
                                         .momentum = o->momentum,
                                         .optimizer = o->type,
                                         .clip = o->clip_norm > 0.0f,
                                         .proximal = o->proximal_mu > 0.0f,
                                         .correction = seed == 3,
                                         .micro_batch = silo_micro_batch,
                                         .general = true,
                                         .disabled_cpu_features = ~0u};
    augments = seed == 1;
    augmentation = (fedge_augmentation){.channels = CHANNELS,
                                        .height = SIDE,
                                        .width = SIDE,
                                        .horizontal_flip = 0.5f,
                                        .crop_padding = 2,
                                        .num_fill = CHANNELS};
    for (int c = 0; c < CHANNELS; c++)
        augmentation.fill[c] = (0.0f - MEAN[c]) / STD[c];
}

void silo_draw(uint64_t seed)
{
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    fedge_error err;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 11, 0, 0);
    make_model(seed);
    choose_training(seed);
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&silo_spec, &schema, &err), FEDGE_OK);
    silo_num_values = schema.num_elements;
    assert_true(silo_num_values <= MAX_VALUES);
    fedge_model_init_values(&silo_spec, seed, silo_start);
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        silo_places[i] = EXAMPLES - 1 - i;
        labels[i] = (int32_t)fedge_rng_below(&rng, CLASSES);
        for (uint32_t v = 0; v < VALUES; v++)
            bytes[i * VALUES + v] = (uint8_t)fedge_rng_below(&rng, 256);
    }
    for (size_t i = 0; i < silo_num_values; i++)
        correction[i] = fedge_rng_float(&rng) * 0.1f - 0.05f;
}

/* ---- the CPU --------------------------------------------------------------------------------- */

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n,
                                  uint32_t num_next, float *x, int32_t *to, fedge_error *err)
{
    (void)user;
    (void)num_next;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t example = silo_places[indices[i]];
        to[i] = labels[example];
        for (uint32_t v = 0; v < VALUES; v++) {
            x[i * VALUES + v] =
                ((float)bytes[example * VALUES + v] / 255.0f - MEAN[v / (SIDE * SIDE)]) /
                STD[v / (SIDE * SIDE)];
        }
    }
    return FEDGE_OK;
}

fedge_examples silo_examples(void)
{
    return (fedge_examples){.num_examples = EXAMPLES, .read = read_examples, .finite = true};
}

fedge_model *silo_model(void)
{
    fedge_model_memory memory;
    fedge_model *model = NULL;
    fedge_error err;
    assert_int_equal(fedge_model_size(&silo_spec, &silo_options, &memory, &err), FEDGE_OK);
    assert_true(memory.total <= BLOCK);
    assert_int_equal(fedge_model_new(&model, &silo_spec, &silo_options, block, BLOCK, &err),
                     FEDGE_OK);
    fedge_model_set_state(model, silo_start);
    return model;
}

void silo_train_on_cpu(void)
{
    fedge_error err;
    fedge_model *model = silo_model();
    fedge_model_reset_optimizer(model);
    if (silo_options.correction)
        memcpy(fedge_model_correction(model), correction, silo_num_values * sizeof(float));
    const fedge_trainer_workspace workspace = {.scratch = scratch, .scratch_size = BLOCK};
    const fedge_examples stored = silo_examples();
    fedge_augmented moved;
    const fedge_examples examples =
        augments ? fedge_augment(&moved, &augmentation, &stored, &silo_training) : stored;
    if (fedge_trainer_run(model, &examples, &silo_training, &workspace, &silo_of_cpu, &err))
        fail_msg("%s", err.message);
    fedge_model_get_trained(model, silo_expected);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

fedge_silo_config silo_config_of(uint32_t part)
{
    return (fedge_silo_config){.cohort = {.model = &silo_spec,
                                          .options = &silo_options,
                                          .sets = {{bytes, labels, EXAMPLES}, {NULL, NULL, 0}},
                                          .dtype = FEDGE_U8,
                                          .num_channels = CHANNELS,
                                          .divide_by = 255.0f,
                                          .mean = MEAN,
                                          .std = STD,
                                          .augmentation = augments ? &augmentation : NULL},
                               .part = part,
                               .states_bf16 = silo_bf16};
}

fedge_cohort_task silo_task_of(void)
{
    return (fedge_cohort_task){.examples = silo_places,
                               .num_examples = EXAMPLES,
                               .client_index = silo_training.client_index,
                               .correction = silo_options.correction ? correction : NULL};
}

fedge_status silo_try(const fedge_silo_config *config, fedge_silo_facts *facts, fedge_error *err)
{
    fedge_silo *silo = NULL;
    const fedge_cohort_task task = silo_task_of();
    fedge_status status = fedge_silo_new(config, &silo, err);
    memcpy(silo_trained, silo_start, sizeof(silo_trained));
    if (status == FEDGE_OK) {
        *facts = fedge_silo_facts_of(silo);
        status = fedge_silo_train(silo, &task, &silo_training, silo_trained, NULL, NULL,
                                  &silo_result, err);
    }
    fedge_silo_free(silo);
    assert_int_equal(emulator_leaks(), 0);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    return status;
}

fedge_silo_facts silo_train_on(uint32_t gpus, uint32_t part, size_t memory)
{
    fedge_error err;
    fedge_silo_facts facts = {0};
    const fedge_silo_config config = silo_config_of(part);
    const emulator_config emulator = {.num_gpus = gpus,
                                      .joins = gpus > 1,
                                      .order = gpus % 2 ? EMULATOR_RANDOM : EMULATOR_LAZY,
                                      .seed = gpus,
                                      .memory_bytes = memory,
                                      .unprotected = gpus != 2};
    if (!emulator_start(&emulator)) { /* there are not so many */
        memcpy(silo_trained, silo_first, sizeof(silo_trained));
        silo_result = of_first;
        return facts;
    }
    if (silo_try(&config, &facts, &err) != FEDGE_OK)
        fail_msg("%u GPUs: %s", gpus, err.message);
    assert_int_equal(facts.num_gpus, gpus < facts.num_parts ? gpus : facts.num_parts);
    return facts;
}

void silo_keep_first(void)
{
    memcpy(silo_first, silo_trained, sizeof(silo_first));
    of_first = silo_result;
}

void silo_compare_with_first(void)
{
    assert_memory_equal(silo_trained, silo_first, silo_num_values * sizeof(float));
    assert_memory_equal(&silo_result, &of_first, sizeof(of_first));
}

void silo_compare_with_cpu(void)
{
    for (size_t i = 0; i < silo_num_values; i++) {
        if (!(fabs((double)silo_trained[i] - (double)silo_expected[i]) <= SILO_BOUND)) {
            fail_msg("value %zu: %.9g, and the CPU has %.9g", i, (double)silo_trained[i],
                     (double)silo_expected[i]);
        }
    }
}
