/* A silo against the CPU's trainer, and against itself: how many GPUs there are, how many parts of
 * a batch fit on one, and where the optimizer's state lies does not show in a single bit.
 */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/silo.h"
#include "edge/train/layer.h"
#include "edge/train/model.h"
#include "tests/cuda/emulator/emulator.h"

enum { EXAMPLES = 37, SIDE = 6, CHANNELS = 2, VALUES = CHANNELS * SIDE * SIDE, CLASSES = 3 };
enum { BLOCK = 1 << 20, MAX_VALUES = 2048, BATCH = 16, MUCH = 50000 };

#ifdef RACES
enum { SEEDS = 2 };
#else
enum { SEEDS = 5 };
#endif

#define BOUND 2e-5 /* of parameters, beside their largest in size */

static fedge_model_spec spec;
static fedge_model_options options;
static fedge_trainer_config training;
static fedge_augmentation augmentation;
static bool augments, bf16;  /* bf16: the optimizer's states */
static uint32_t micro_batch; /* of the CPU's, which it draws for one after another */
static uint8_t bytes[EXAMPLES * VALUES];
static int32_t labels[EXAMPLES];
static uint32_t places[EXAMPLES];
static const float MEAN[CHANNELS] = {0.5f, 0.25f}, STD[CHANNELS] = {0.25f, 0.5f};
static size_t num_values;
static float start[MAX_VALUES], correction[MAX_VALUES];
static float expected[MAX_VALUES], first[MAX_VALUES], trained[MAX_VALUES];
static fedge_trainer_result of_cpu, of_first, of_silo;
static _Alignas(64) uint8_t block[BLOCK];
static _Alignas(64) uint8_t scratch[BLOCK];

/* A convolution, its channels' maxima, what is dropped of them, and a product, of which some seeds
 * train the end alone, or factors of low rank. */
static void make_model(uint64_t seed)
{
    spec =
        (fedge_model_spec){.input_rank = 3, .input_shape = {CHANNELS, SIDE, SIDE}, .num_layers = 6};
    spec.layers[0] =
        (fedge_layer_spec){.type = FEDGE_LAYER_CONV2D,
                           .u.conv2d = {CHANNELS, 5, {3, 3}, {1, 1}, {1, 1}, true, {1, 1}, 1}};
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_RELU};
    spec.layers[2] =
        (fedge_layer_spec){.type = FEDGE_LAYER_MAXPOOL2D, .u.maxpool2d = {.kernel_size = {2, 2}}};
    spec.layers[3] = (fedge_layer_spec){.type = FEDGE_LAYER_FLATTEN};
    spec.layers[4] = (fedge_layer_spec){.type = FEDGE_LAYER_DROPOUT,
                                        .u.dropout = {seed % 2 ? 0.25f : 0.0f, false}};
    spec.layers[5] = (fedge_layer_spec){.type = FEDGE_LAYER_LINEAR,
                                        .u.linear = {45, CLASSES, true, seed == 3 ? 2 : 0, 3.0f}};
    for (uint32_t i = 0; i < 5; i++) { /* two groups of layers, of which one is made again */
        spec.layers[i].recompute = seed == 2 && i != 2;
    }
    if (seed == 4)
        spec.layers[0].train = FEDGE_TRAIN_NONE;
}

static void choose_training(uint64_t seed)
{
    training = (fedge_trainer_config){.seed = seed,
                                      .round = 2,
                                      .client_index = 5,
                                      .local_epochs = seed == 1 ? 2 : 1,
                                      .local_steps = seed == 3 ? 4 : 0,
                                      .batch_size = BATCH};
    fedge_optimizer *o = &training.optimizer;
    o->type = seed == 1   ? FEDGE_OPTIMIZER_ADAM
              : seed == 2 ? FEDGE_OPTIMIZER_ADAMW
                          : FEDGE_OPTIMIZER_SGD;
    o->learning_rate = o->type == FEDGE_OPTIMIZER_SGD ? 0.05f : 0.002f;
    o->momentum = o->type == FEDGE_OPTIMIZER_SGD ? 0.9f : 0.0f;
    o->epsilon = o->type == FEDGE_OPTIMIZER_SGD ? 0.0f : 1e-3f;
    o->weight_decay = 0.01f;
    o->proximal_mu = seed == 3 ? 0.1f : 0.0f;
    o->clip_norm = seed == 0 || seed == 2 ? 0.5f : 0.0f;
    options = (fedge_model_options){.max_batch = BATCH,
                                    .training = true,
                                    .momentum = o->momentum,
                                    .optimizer = o->type,
                                    .clip = o->clip_norm > 0.0f,
                                    .proximal = o->proximal_mu > 0.0f,
                                    .correction = seed == 3,
                                    .micro_batch = micro_batch,
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

static void draw(uint64_t seed)
{
    fedge_tensor_spec tensors[8];
    fedge_schema schema;
    fedge_error err;
    fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 11, 0, 0);
    make_model(seed);
    choose_training(seed);
    fedge_schema_init(&schema, tensors, 8);
    assert_int_equal(fedge_model_schema(&spec, &schema, &err), FEDGE_OK);
    num_values = schema.num_elements;
    assert_true(num_values <= MAX_VALUES);
    fedge_model_init_values(&spec, seed, start);
    for (uint32_t i = 0; i < EXAMPLES; i++) {
        places[i] = EXAMPLES - 1 - i;
        labels[i] = (int32_t)fedge_rng_below(&rng, CLASSES);
        for (uint32_t v = 0; v < VALUES; v++)
            bytes[i * VALUES + v] = (uint8_t)fedge_rng_below(&rng, 256);
    }
    for (size_t i = 0; i < num_values; i++)
        correction[i] = fedge_rng_float(&rng) * 0.1f - 0.05f;
}

/* ---- the CPU --------------------------------------------------------------------------------- */

static fedge_status read_examples(void *user, const uint32_t *indices, uint32_t n, uint32_t soon,
                                  float *x, int32_t *to, fedge_error *err)
{
    (void)user;
    (void)soon;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t example = places[indices[i]];
        to[i] = labels[example];
        for (uint32_t v = 0; v < VALUES; v++) {
            x[i * VALUES + v] =
                ((float)bytes[example * VALUES + v] / 255.0f - MEAN[v / (SIDE * SIDE)]) /
                STD[v / (SIDE * SIDE)];
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
    fedge_model_set_state(model, start);
    fedge_model_reset_optimizer(model);
    if (options.correction)
        memcpy(fedge_model_correction(model), correction, num_values * sizeof(float));
    const fedge_examples stored = {NULL, EXAMPLES, read_examples, true};
    fedge_augmented moved;
    const fedge_examples examples =
        augments ? fedge_augment(&moved, &augmentation, &stored, &training) : stored;
    if (fedge_trainer_run(model, &examples, &training, scratch, BLOCK, NULL, NULL, &of_cpu, &err))
        fail_msg("%s", err.message);
    fedge_model_get_trained(model, expected);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static fedge_silo_config config_of(uint32_t part)
{
    return (fedge_silo_config){.cohort = {.model = &spec,
                                          .options = &options,
                                          .sets = {{bytes, labels, EXAMPLES}, {NULL, NULL, 0}},
                                          .dtype = FEDGE_U8,
                                          .num_channels = CHANNELS,
                                          .divide_by = 255.0f,
                                          .mean = MEAN,
                                          .std = STD,
                                          .augmentation = augments ? &augmentation : NULL},
                               .part = part,
                               .states_bf16 = bf16};
}

static fedge_cohort_task task_of(void)
{
    return (fedge_cohort_task){.examples = places,
                               .num_examples = EXAMPLES,
                               .client_index = training.client_index,
                               .correction = options.correction ? correction : NULL};
}

static fedge_status try(const fedge_silo_config *config, fedge_silo_facts *facts, fedge_error *err)
{
    fedge_silo *silo = NULL;
    const fedge_cohort_task task = task_of();
    fedge_status status = fedge_silo_new(config, &silo, err);
    memcpy(trained, start, sizeof(trained));
    if (status == FEDGE_OK) {
        *facts = fedge_silo_facts_of(silo);
        status = fedge_silo_train(silo, &task, &training, trained, NULL, NULL, &of_silo, err);
    }
    fedge_silo_free(silo);
    assert_int_equal(emulator_leaks(), 0);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    return status;
}

static fedge_silo_facts train(uint32_t gpus, uint32_t part, size_t memory)
{
    fedge_error err;
    fedge_silo_facts facts = {0};
    const fedge_silo_config config = config_of(part);
    const emulator_config emulator = {.num_gpus = gpus,
                                      .order = gpus % 2 ? EMULATOR_RANDOM : EMULATOR_LAZY,
                                      .seed = gpus,
                                      .memory_bytes = memory,
                                      .unprotected = gpus != 2};
    if (!emulator_start(&emulator)) { /* there are not so many */
        memcpy(trained, first, sizeof(trained));
        of_silo = of_first;
        return facts;
    }
    if (try(&config, &facts, &err) != FEDGE_OK)
        fail_msg("%u GPUs: %s", gpus, err.message);
    assert_int_equal(facts.num_gpus, gpus < facts.num_parts ? gpus : facts.num_parts);
    return facts;
}

static void keep_first(void)
{
    memcpy(first, trained, sizeof(first));
    of_first = of_silo;
}

static void compare_with_first(void)
{
    assert_memory_equal(trained, first, num_values * sizeof(float));
    assert_memory_equal(&of_silo, &of_first, sizeof(of_first));
}

static void the_number_of_gpus_does_not_show(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        draw(seed);
        train_on_cpu();
        train(1, 0, 0);
        keep_first();
        for (size_t i = 0; i < num_values; i++) {
            if (!(fabs((double)trained[i] - (double)expected[i]) <= BOUND)) {
                fail_msg("seed %u, value %zu: %.9g, and the CPU has %.9g", (unsigned)seed, i,
                         (double)trained[i], (double)expected[i]);
            }
        }
        assert_int_equal(of_silo.num_steps, of_cpu.num_steps);
        assert_int_equal(of_silo.num_seen, of_cpu.num_seen);
        assert_int_equal(of_silo.correct, of_cpu.correct);
        assert_true(fabs(of_silo.loss_sum - of_cpu.loss_sum) <= 1e-4 * of_cpu.loss_sum);
        for (uint32_t gpus = 2; gpus <= 8; gpus += gpus == 3 ? 5 : 1) {
            train(gpus, 0, 0);
            compare_with_first();
        }
    }
}

/* A batch's statistics want all of it on one GPU. */
static void a_batch_norm_is_not_cut(void **state)
{
    (void)state;
    draw(3);
    spec.layers[1] = (fedge_layer_spec){.type = FEDGE_LAYER_BATCHNORM2D,
                                        .u.batchnorm2d = {.num_features = 5,
                                                          .eps = 1e-5f,
                                                          .momentum = 0.1f,
                                                          .affine = true,
                                                          .track_running_stats = true}};
    options.correction = false;
    num_values += 10;
    fedge_model_init_values(&spec, 3, start);
    fedge_model_init_buffers(&spec, start + num_values);
    num_values += 10;
    train_on_cpu();
    const fedge_silo_facts facts = train(3, 0, 0);
    assert_int_equal(facts.num_parts, 1);
    assert_int_equal(facts.num_gpus, 1);
    for (size_t i = 0; i < num_values; i++)
        assert_true(fabs((double)trained[i] - (double)expected[i]) <= BOUND);
    assert_memory_not_equal(trained + num_values - 10, start + num_values - 10, 10 * sizeof(float));
}

/* Where the CPU draws for one micro-batch after another, so does a silo. */
static void micro_batches_drop_the_same(void **state)
{
    (void)state;
    micro_batch = 5;
    draw(3);
    micro_batch = 0;
    train_on_cpu();
    train(1, 5, 0);
    keep_first();
    for (size_t i = 0; i < num_values; i++)
        assert_true(fabs((double)trained[i] - (double)expected[i]) <= BOUND);
    train(3, 5, 0);
    compare_with_first();
}

#ifndef RACES

/* Less and less memory: parts one after another, then the optimizer's state on the host, then an
 * error that has the numbers. */
static void too_little_memory_does_not_show(void **state)
{
    (void)state;
    bool in_waves = false, alone = false, on_host = false;
    fedge_error err;
    draw(1);
    train(1, 2, 0);
    keep_first();
    size_t memory = MUCH;
    for (;; memory -= alone ? 256 : 8192) {
        fedge_silo_facts facts = {0};
        const fedge_silo_config config = config_of(2);
        if (!emulator_start(
                &(emulator_config){.num_gpus = 2, .memory_bytes = memory, .unprotected = true}))
            return;
        const fedge_status status = try(&config, &facts, &err);
        if (status != FEDGE_OK) {
            assert_int_equal(status, FEDGE_NO_MEMORY);
            assert_non_null(strstr(err.message, " MiB are needed"));
            break;
        }
        compare_with_first();
        in_waves |= facts.at_once < (facts.num_parts + 1) / 2 && !facts.states_on_host;
        on_host |= facts.states_on_host;
        alone |= facts.at_once <= 2;
    }
    assert_true(in_waves);
    assert_true(on_host);
}

#endif

/* What is said before there is a GPU is what is taken. */
static void memory_is_told_beforehand(void **state)
{
    (void)state;
    draw(1);
    const fedge_silo_config config = config_of(2);
    uint64_t all = 0, least = 0, of_four = 0;
    fedge_error err;
    assert_int_equal(fedge_silo_bytes(&config, 1, &all, &least, &err), FEDGE_OK);
    assert_int_equal(fedge_silo_bytes(&config, 4, &of_four, &least, &err), FEDGE_OK);
    assert_true(least < of_four && of_four < all);
}

/* Bytes of GPU 0 that a silo of so many GPUs takes for a machine's memory. */
static uint64_t bytes_taken(const fedge_silo_config *config, uint32_t gpus, size_t memory)
{
    fedge_error err;
    fedge_silo *silo = NULL;
    size_t left = 0, total = 0;
    if (!emulator_start(&(emulator_config){.num_gpus = gpus, .memory_bytes = memory}))
        return 0;
    if (fedge_silo_new(config, &silo, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
    fedge_silo_free(silo);
    return total - left;
}

/* Near what fp32 gives, with the same bits for any number of GPUs, with states on the host, and
 * when a task that was lost is begun again. */
static void states_in_bf16_do_not_show_gpus(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) { /* momentum, Adam, AdamW */
        fedge_error err;
        fedge_silo_facts facts = {0};
        draw(seed);
        training.local_epochs = 4;
        train(1, 2, 0);
        const double loss = of_silo.loss_sum;
        memcpy(expected, trained, sizeof(expected));
        bf16 = true;
        train(1, 2, 0);
        keep_first();
        assert_memory_not_equal(first, expected, num_values * sizeof(float));
        assert_true(fabs(of_silo.loss_sum - loss) <= 1e-3 * loss);
        for (size_t i = 0; i < num_values; i++)
            assert_true(fabs((double)trained[i] - (double)expected[i]) <= 0.01);
        train(2, 2, 0);
        compare_with_first();
        train(8, 2, 0);
        compare_with_first();
        uint64_t all = 0, least = 0;
        const fedge_silo_config config = config_of(2);
        assert_int_equal(fedge_silo_bytes(&config, 2, &all, &least, &err), FEDGE_OK);
        size_t memory = (least / 9 + 1) * 10 + EXAMPLES * (VALUES + sizeof(float)) * 10 / 9 + 1000;
        (void)train(2, 2, memory);
        compare_with_first();
        if (emulator_start(&(emulator_config){
                .num_gpus = 2, .fail_at = "step_all", .fail_call = 7, .unprotected = true}))
            assert_int_equal(try(&config, &facts, &err), FEDGE_GPU_LOST);
        train(2, 2, 0);
        compare_with_first();
        bf16 = false;
    }
}

/* Momentum or moments of what is trained alone: of all, of an end, of factors of low rank. */
static void states_are_of_what_is_trained(void **state)
{
    (void)state;
    static const uint32_t TRAINED[][2] = {{1, 95 + 45 * 3 + 3}, {4, 45 * 3 + 3}, {3, 95 + 2 * 48}};
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t all = 0, least = 0, with = 0, without = 0, unused = 0;
        fedge_error err;
        draw(TRAINED[i][0]);
        options.optimizer = FEDGE_OPTIMIZER_ADAM;
        fedge_silo_config config = config_of(2);
        config.cohort.sets[0].count = 0; /* as --plan, which knows of none */
        assert_int_equal(fedge_silo_bytes(&config, 1, &all, &least, &err), FEDGE_OK);
        const uint64_t taken = bytes_taken(&config, 1, 20 * MUCH);
        assert_int_equal(taken, taken > 0 ? all : 0);
        assert_int_equal(bytes_taken(&config, 1, (least / 9 + 1) * 10), taken > 0 ? least : 0);
        options.optimizer = FEDGE_OPTIMIZER_SGD;
        options.momentum = 0.0f;
        assert_int_equal(fedge_silo_bytes(&config, 1, &without, &unused, &err), FEDGE_OK);
        options.momentum = 0.9f;
        assert_int_equal(fedge_silo_bytes(&config, 1, &with, &unused, &err), FEDGE_OK);
        const uint64_t each = ((uint64_t)TRAINED[i][1] * sizeof(float) + 255) / 256 * 256;
        assert_int_equal(with - without, each);
        assert_int_equal(all - without, 2 * each);
        config.states_bf16 = true;
        const uint64_t half = ((uint64_t)TRAINED[i][1] * sizeof(uint16_t) + 255) / 256 * 256;
        assert_int_equal(fedge_silo_bytes(&config, 1, &with, &unused, &err), FEDGE_OK);
        assert_int_equal(with - without, half);
        assert_int_equal(bytes_taken(&config, 1, 20 * MUCH), taken > 0 ? with : 0);
    }
}

#ifndef RACES

/* Every allocation fails once, and every other call: what was taken is given back, and the answer
 * says what happened. */
static void gpus_are_lost_at_every_call(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    draw(0);
    const fedge_silo_config config = config_of(11);
    static const int ERRORS[] = {2, 214}; /* out of memory, ECC */
    training.local_steps = 2;
    if (!emulator_start(&(emulator_config){.num_gpus = 2}))
        return;
    assert_int_equal(try(&config, &facts, &err), FEDGE_OK);
    const uint64_t calls = emulator_calls();
    for (uint64_t i = 1; i <= calls; i += i < 40 ? 1 : 23) {
        const emulator_config emulator = {
            .num_gpus = 2, .fail_call = i, .fail_error = ERRORS[i % 2], .unprotected = true};
        assert_true(emulator_start(&emulator));
        const fedge_status status = try(&config, &facts, &err);
        if (status == FEDGE_OK) { /* while it was freed, or after its state went to the host */
            continue;
        }
        if (status != FEDGE_GPU_LOST && status != FEDGE_NO_MEMORY && status != FEDGE_NOT_FOUND)
            fail_msg("call %u: %s", (unsigned)i, err.message);
    }
}

#endif

static void a_hanging_collective_is_seen(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    draw(0);
    const fedge_silo_config config = config_of(0);
    if (!emulator_start(&(emulator_config){
            .num_gpus = 2, .hang_collective = 3, .nccl_async_error = true, .watched = true}))
        return;
    assert_int_equal(try(&config, &facts, &err), FEDGE_GPU_LOST);
    assert_non_null(strstr(err.message, "NCCL"));
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    draw(0);
    fedge_silo_config config = config_of(0);
    if (!emulator_start(&(emulator_config){.num_gpus = 2, .no_nccl = true}))
        return;
    assert_int_equal(try(&config, &facts, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "NCCL is not found"));
    config.num_gpus = 1;
    config.gpus[0] = 2;
    assert_int_equal(try(&config, &facts, &err), FEDGE_NOT_FOUND);
    assert_string_equal(err.message, "GPU 2 is not there: there are 0 to 1");
}

static void training_that_diverges_is_told(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo_facts facts;
    draw(0);
    training.optimizer.learning_rate = 1e30f;
    const fedge_silo_config config = config_of(0);
    if (!emulator_start(&(emulator_config){.num_gpus = 2}))
        return;
    assert_int_equal(try(&config, &facts, &err), FEDGE_NOT_FINITE);
    assert_non_null(strstr(err.message, "round 2"));
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void evaluation_and_cancelling(void **state)
{
    (void)state;
    fedge_error err;
    fedge_silo *silo = NULL;
    fedge_model_memory memory;
    fedge_model *model = NULL;
    fedge_trainer_result of_gpu;
    draw(0);
    const fedge_silo_config config = config_of(4);
    const fedge_cohort_task task = task_of();
    const fedge_examples examples = {NULL, EXAMPLES, read_examples, true};
    if (!emulator_start(&(emulator_config){.num_gpus = 2}))
        return;
    assert_int_equal(fedge_model_size(&spec, &options, &memory, &err), FEDGE_OK);
    assert_int_equal(fedge_model_new(&model, &spec, &options, block, BLOCK, &err), FEDGE_OK);
    fedge_model_set_state(model, start);
    assert_int_equal(
        fedge_trainer_evaluate(model, &examples, BATCH, scratch, BLOCK, NULL, NULL, &of_cpu, &err),
        FEDGE_OK);
    assert_int_equal(fedge_silo_new(&config, &silo, &err), FEDGE_OK);
    memcpy(trained, start, sizeof(trained));
    assert_int_equal(
        fedge_silo_train(silo, &task, &training, trained, at_once, NULL, &of_silo, &err),
        FEDGE_CANCELLED);
    assert_int_equal(fedge_silo_evaluate(silo, &task, start, NULL, NULL, &of_gpu, &err), FEDGE_OK);
    assert_int_equal(of_gpu.num_seen, EXAMPLES);
    assert_int_equal(of_gpu.correct, of_cpu.correct);
    assert_true(fabs(of_gpu.loss_sum - of_cpu.loss_sum) <= 1e-5 * of_cpu.loss_sum);
    assert_int_equal(fedge_silo_evaluate(silo, &task, start, at_once, NULL, &of_gpu, &err),
                     FEDGE_CANCELLED);
    /* A second task begins anew. */
    assert_int_equal(fedge_silo_train(silo, &task, &training, trained, NULL, NULL, &of_silo, &err),
                     FEDGE_OK);
    memcpy(first, trained, sizeof(first));
    memcpy(trained, start, sizeof(trained));
    assert_int_equal(fedge_silo_train(silo, &task, &training, trained, NULL, NULL, &of_silo, &err),
                     FEDGE_OK);
    assert_memory_equal(trained, first, num_values * sizeof(float));
    fedge_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_gpus_does_not_show),
#ifndef RACES
        cmocka_unit_test(too_little_memory_does_not_show),
        cmocka_unit_test(gpus_are_lost_at_every_call),
#endif
        cmocka_unit_test(a_batch_norm_is_not_cut),
        cmocka_unit_test(micro_batches_drop_the_same),
        cmocka_unit_test(memory_is_told_beforehand),
        cmocka_unit_test(states_in_bf16_do_not_show_gpus),
        cmocka_unit_test(states_are_of_what_is_trained),
        cmocka_unit_test(a_hanging_collective_is_seen),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(training_that_diverges_is_told),
        cmocka_unit_test(evaluation_and_cancelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
