/* The global model with sums on GPUs, which keep its values between steps: the CPU's bits, whatever
 * else writes it meanwhile, and no value is copied to a GPU twice. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/rng.h"
#include "tests/cuda/emulator/emulator.h"

enum { CPU, CUDA, ROUNDS = 24, UPDATES = 3 };
#define PADDING ((size_t)9 * 256 * 4) /* bytes: a block for each tensor and one for each GPU */
typedef enum event { NOTHING, BEGIN, LOAD, FORGET, REOPEN, NUM_EVENTS } event;

static fedge_error err;
static fedge_rng rng;
static const uint32_t GPUS[] = {1, 2, 3};

static fedge_job *parse(const char *strategy)
{
    char text[1024];
    fedge_job *job = NULL;
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"net\", \"model\": {\"input-shape\": [1, 8, 8], \"layers\": "
        "["
        "{\"type\": \"Conv2d\", \"in_channels\": 1, \"out_channels\": 9, \"kernel_size\": 3},"
        "{\"type\": \"BatchNorm2d\", \"num_features\": 9}, {\"type\": \"Flatten\"},"
        "{\"type\": \"Linear\", \"in_features\": 324, \"out_features\": 20}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [1, 8, 8], \"dtype\": \"f32\", \"labels\": 20},"
        "\"training\": {\"learning-rate\": 0.1}, \"strategy\": {\"type\": \"%s\"%s},"
        "\"rounds\": {\"num-server-rounds\": 3}, \"update\": {\"codec\": \"none\"}}",
        strategy,
        strcmp(strategy, "SCAFFOLD") == 0 || strcmp(strategy, "FedDyn") == 0
            ? ", \"num-clients\": 8"
            : "");
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

static fedge_accumulator_config config_of(uint32_t num_gpus)
{
    return (fedge_accumulator_config){.num_lanes = 1,
                                      .num_gpus = num_gpus,
                                      .gpus = {0, 1, 2},
                                      .shard = num_gpus == 3 ? FEDGE_SHARD_COORDINATES
                                                             : FEDGE_SHARD_AUTO};
}

/* The same updates for both. */
static void add_updates(fedge_global_model *models)
{
    static int32_t v[20000];
    const size_t count = models[CPU].plan->sent.schema.num_elements;
    assert_true(count <= sizeof(v) / sizeof(*v));
    for (int u = 0; u < UPDATES; u++) {
        const uint32_t weight = 1 + fedge_rng_below(&rng, 100);
        for (size_t i = 0; i < count; i++)
            v[i] = (int32_t)fedge_rng_below(&rng, 1u << 28) - (1 << 27);
        for (int m = CPU; m <= CUDA; m++) {
            fedge_accumulator *to = &models[m].accumulator;
            assert_int_equal(fedge_accumulator_begin(to, weight, &err), FEDGE_OK);
            assert_int_equal(fedge_accumulator_add_values(to, 0, v, 0, count, weight, &err),
                             FEDGE_OK);
        }
    }
}

/* As after a start from a checkpoint that has [scale] times the present values. */
static void load(fedge_global_model *model, float scale)
{
    uint8_t *file = NULL;
    size_t size = 0, told = 0;
    fedge_buffer state;
    fedge_buffer_init(&state, FEDGE_STRATEGY_MAX_STATE);
    for (size_t i = 0; i < model->plan->schema.num_elements; i++)
        model->values[i] *= scale;
    assert_int_equal(fedge_global_model_write(model, &file, &size, &told, &err), FEDGE_OK);
    assert_int_equal(model->strategy->save(model->strategy_state, &state, &err), FEDGE_OK);
    assert_int_equal(fedge_global_model_load(model, file, size, state.data, state.size, &err),
                     FEDGE_OK);
    free(file);
    fedge_buffer_fini(&state);
}

static void happen(fedge_global_model *models, event what, uint32_t num_gpus)
{
    const fedge_accumulator_config config = config_of(num_gpus);
    for (int m = CPU; m <= CUDA; m++) {
        if (what == BEGIN)
            assert_int_equal(fedge_global_model_begin(&models[m], &err), FEDGE_OK);
        if (what == LOAD)
            load(&models[m], 0.5f);
        if (what == FORGET && models[m].strategy->forget)
            fedge_global_model_forget(&models[m]);
        if (what == REOPEN) {
            assert_int_equal(
                fedge_global_model_reopen(&models[m], m == CPU ? "cpu" : "cuda", &config, &err),
                FEDGE_OK);
        }
    }
}

/* How often something is copied to a GPU in the step. */
static uint64_t step(fedge_global_model *model, uint32_t round)
{
    int8_t bounds[FEDGE_MAX_TENSORS];
    const fedge_update_facts facts[UPDATES] = {{.round = round, .num_examples = 1},
                                               {.round = round, .num_examples = 1},
                                               {.round = round, .num_examples = 1}};
    fedge_sections_bounds(model->plan, model->values, bounds);
    const uint64_t before = emulator_counted();
    if (fedge_global_model_step(model, round, bounds, facts, NULL, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const uint64_t copies = emulator_counted() - before;
    assert_int_equal(fedge_global_model_reset(model, &err), FEDGE_OK);
    return copies;
}

static void check_same(const fedge_global_model *models, const char *strategy, uint32_t round)
{
    const fedge_plan *plan = models[CPU].plan;
    const fedge_strategy_ops *ops = models[CPU].strategy;
    if (memcmp(models[CPU].values, models[CUDA].values,
               plan->schema.num_elements * sizeof(float)) != 0)
        fail_msg("%s: the models differ in round %u", strategy, (unsigned)round);
    fedge_buffer kept[2];
    for (int m = CPU; m <= CUDA; m++) {
        fedge_buffer_init(&kept[m], FEDGE_STRATEGY_MAX_STATE);
        assert_int_equal(ops->save(models[m].strategy_state, &kept[m], &err), FEDGE_OK);
    }
    assert_int_equal(kept[CPU].size, kept[CUDA].size);
    if (kept[CPU].size > 0)
        assert_memory_equal(kept[CPU].data, kept[CUDA].data, kept[CPU].size);
    for (int m = CPU; m <= CUDA; m++)
        fedge_buffer_fini(&kept[m]);
    if (ops->broadcast) {
        assert_memory_equal(ops->broadcast(models[CPU].strategy_state),
                            ops->broadcast(models[CUDA].strategy_state),
                            plan->sent.sections[0].schema.num_elements * sizeof(float));
    }
}

static void play(const char *strategy, uint32_t num_gpus, uint64_t seed)
{
    fedge_job *job = parse(strategy);
    fedge_global_model models[2];
    const fedge_accumulator_config config = config_of(num_gpus);
    uint64_t statistics = 0; /* copies of what the server corrects after each step */
    rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 4, 0, 0);
    assert_true(emulator_start(&(emulator_config){.num_gpus = 3,
                                                  .order = (emulator_order)(seed % 3),
                                                  .seed = seed,
                                                  .fail_at = "copy",
                                                  .unprotected = true}));
    for (int m = CPU; m <= CUDA; m++) {
        assert_int_equal(
            fedge_global_model_init(&models[m], job, m == CPU ? "cpu" : "cuda", &config, &err),
            FEDGE_OK);
    }
    happen(models, BEGIN, num_gpus);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        event what = round % 2 ? NOTHING : (event)fedge_rng_below(&rng, NUM_EVENTS);
        if (what == FORGET && !models[CPU].strategy->forget)
            what = NOTHING;
        happen(models, what, GPUS[fedge_rng_below(&rng, 3)]);
        add_updates(models);
        (void)step(&models[CPU], round);
        const bool all = round == 1 || what != NOTHING;
        const uint64_t copies = step(&models[CUDA], round);
        if (all)
            assert_true(copies > statistics);
        else if (statistics > 0)
            assert_int_equal(copies, statistics);
        else
            statistics = copies;
        statistics = what == REOPEN ? 0 : statistics;
        check_same(models, strategy, round);
    }
    for (int m = CPU; m <= CUDA; m++)
        fedge_global_model_fini(&models[m]);
    fedge_job_free(job);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

static void kept_values_are_those_of_the_model(void **state)
{
    (void)state;
    static const char *const strategies[] = {"FedAvg", "SCAFFOLD"};
    for (uint64_t seed = 0; seed < 6; seed++)
        play(strategies[seed % 2], GPUS[seed / 2], seed);
}

/* What they keep is on the GPUs too, and comes to the host for the checkpoint. */
static void optimizers_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static const char *const strategies[] = {"FedAvgM", "FedAdagrad", "FedAdam", "FedYogi",
                                             "FedDyn"};
    for (uint64_t seed = 0; seed < 10; seed++)
        play(strategies[seed % 5], GPUS[seed % 3], seed);
}

/* Bytes that are taken on GPU [gpu]. */
static size_t taken(uint32_t gpu)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cudaSetDevice((int)gpu), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    return total_bytes - free_bytes;
}

/* What a strategy's model takes on each GPU, from its open on, as its statistics say. Returns the
 * values that are trained. */
static size_t measure(const char *strategy, uint32_t num_gpus, size_t all[3])
{
    const fedge_accumulator_config config = config_of(num_gpus);
    fedge_job *job = parse(strategy);
    fedge_global_model model;
    fedge_gpu_stats stats[3];
    assert_true(emulator_start(&(emulator_config){.num_gpus = 3, .unprotected = true}));
    assert_int_equal(fedge_global_model_init(&model, job, "cuda", &config, &err), FEDGE_OK);
    assert_int_equal(fedge_global_model_begin(&model, &err), FEDGE_OK);
    for (uint32_t g = 0; g < num_gpus; g++)
        all[g] = taken(g);
    assert_int_equal(fedge_accumulator_begin(&model.accumulator, 1, &err), FEDGE_OK);
    (void)step(&model, 1);
    assert_int_equal(fedge_accumulator_stats(&model.accumulator, stats, 3), num_gpus);
    for (uint32_t g = 0; g < num_gpus; g++) {
        assert_int_equal(taken(g), all[g]);
        assert_int_equal(stats[g].memory_bytes, all[g]);
    }
    const size_t trained = model.plan->sent.sections[0].schema.num_elements;
    fedge_global_model_fini(&model);
    fedge_job_free(job);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return trained;
}

/* Each GPU has what is kept of its share alone, whichever way the work is divided, and has it from
 * the open on. */
static void what_optimizers_keep_is_divided_as_the_sums_are(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t num_gpus = GPUS[i];
        size_t plain[3], kept[3], all = 0;
        (void)measure("FedAvg", num_gpus, plain);
        const size_t whole = 2 * sizeof(float) * measure("FedAdam", num_gpus, kept);
        for (uint32_t g = 0; g < num_gpus; g++) {
            assert_in_range(kept[g] - plain[g], 1, whole / num_gpus + 2 * PADDING);
            all += kept[g] - plain[g];
        }
        assert_in_range(all, whole, whole + 2 * num_gpus * PADDING);
    }
}

static unsigned num_told;

static void count_told(void *user, const char *line, size_t size)
{
    (void)user;
    (void)size;
    num_told += strstr(line, "optimizer-on-cpu") != NULL;
}

/* As if others had taken the memory for what the optimizer keeps: the open has taken none. */
static void open_without_kept(fedge_global_model *model, uint32_t num_gpus, const fedge_log *log)
{
    const fedge_update_layout layout = fedge_plan_update_layout(model->plan);
    fedge_accumulator_config config = config_of(num_gpus);
    config.layout = &layout;
    config.log = log;
    fedge_accumulator_close(&model->accumulator);
    assert_int_equal(fedge_accumulator_open("cuda", &config, &model->accumulator, &err), FEDGE_OK);
}

/* One step of each model, the second's allocation [call] of it failing. Bits and what is kept are
 * those of the CPU, the log says so, and the GPUs take the next step when there is room. */
static bool step_without_room(const char *strategy, uint64_t call)
{
    fedge_job *job = parse(strategy);
    fedge_global_model models[2];
    const fedge_accumulator_config config = config_of(2);
    const fedge_log log = {.level = FEDGE_LOG_WARN, .write = count_told};
    num_told = 0;
    rng = fedge_rng_stream(call, FEDGE_PURPOSE_TEST, 6, 0, 0);
    /* What opening takes is counted first: it must not be what fails. */
    uint64_t before = 0;
    for (int pass = 0; pass < 2; pass++) {
        assert_true(emulator_start(&(emulator_config){.num_gpus = 2,
                                                      .unprotected = true,
                                                      .fail_at = "allocation",
                                                      .fail_call = pass == 1 ? before + call : 0,
                                                      .fail_error = 2 /* no memory */}));
        for (int m = CPU; m <= CUDA; m++) {
            assert_int_equal(
                fedge_global_model_init(&models[m], job, m == CPU ? "cpu" : "cuda", &config, &err),
                FEDGE_OK);
        }
        open_without_kept(&models[CUDA], 2, &log);
        before = emulator_counted();
        for (int m = CPU; m <= CUDA && pass == 0; m++)
            fedge_global_model_fini(&models[m]);
    }
    happen(models, BEGIN, 2);
    for (uint32_t round = 1; round <= 3; round++) {
        add_updates(models);
        (void)step(&models[CPU], round);
        (void)step(&models[CUDA], round);
        check_same(models, strategy, round);
    }
    const bool failed = emulator_failed();
    assert_int_equal(num_told, failed);
    for (int m = CPU; m <= CUDA; m++)
        fedge_global_model_fini(&models[m]);
    fedge_job_free(job);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    return failed;
}

static void optimizers_step_on_the_host_where_gpus_have_no_room(void **state)
{
    (void)state;
    static const char *const strategies[] = {"FedAvgM", "FedAdagrad", "FedAdam", "FedYogi",
                                             "FedDyn"};
    for (uint32_t i = 0; i < sizeof(strategies) / sizeof(*strategies); i++) {
        uint64_t call = 1;
        while (step_without_room(strategies[i], call))
            call++;
        /* On each of two GPUs a vector or two were not to be had. */
        assert_in_range(call - 1, 2, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_values_are_those_of_the_model),
        cmocka_unit_test(optimizers_have_the_bits_of_the_cpu),
        cmocka_unit_test(what_optimizers_keep_is_divided_as_the_sums_are),
        cmocka_unit_test(optimizers_step_on_the_host_where_gpus_have_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
