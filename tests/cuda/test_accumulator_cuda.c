/* The accumulator on 1, 2, 3 and 8 GPUs, both ways to spread: the sums and the step of the scalar
 * references, bit for bit; and every failure ends with a status that says so. */
#include "tests/edge/core/cmocka_all.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/fixed.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/rounds.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/edge/core/long.h"

enum { SEEDS = 5, QUICK_SEEDS = 2, THREADS = 12 };

static void test_same_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (fedge_test_is_long() ? SEEDS : QUICK_SEEDS); seed++) {
        seed_all(seed, seed % 2 ? &INT8 : &NONE, seed < 4 ? 2000 : 60);
        check_all_machines(4, seed);
        free_updates();
    }
}

/* With room for one copy on the GPU, the others are only checked, and read again. */
static void test_little_memory(void **state)
{
    (void)state;
    fedge_error err = {0};
    seed_all(9, &NONE, 3000);
    size_t memory = 100000;
    fedge_status status = FEDGE_NO_MEMORY;
    for (; status == FEDGE_NO_MEMORY; memory += memory / 20) {
        if (!emulator_start(
                &(emulator_config){.num_gpus = 2, .memory_bytes = memory, .unprotected = true}))
            skip();
        status = run_rounds(1, FEDGE_SHARD_AUTO, 1, &err);
        if (status != FEDGE_OK) {
            size_t has = 0, needs = 0;
            const char *said = strstr(err.message, "GPU 0 has");
            assert_non_null(said);
            assert_int_equal(sscanf(said, "GPU 0 has %zu MiB free and needs %zu MiB", &has, &needs),
                             2);
            assert_int_equal(has, memory >> 20);
            assert_in_range(needs, has, 16);
        }
    }
    assert_int_equal(status, FEDGE_OK);
    /* By coordinates half is enough for each, and that is chosen. */
    emulator_start(
        &(emulator_config){.num_gpus = 2, .memory_bytes = memory / 10 * 7, .unprotected = true});
    assert_int_equal(run_rounds(1, FEDGE_SHARD_AUTO, 1, &err), FEDGE_NO_MEMORY);
    assert_int_equal(run_rounds(2, FEDGE_SHARD_CLIENTS, 1, &err), FEDGE_NO_MEMORY);
    assert_int_equal(run_rounds(2, FEDGE_SHARD_AUTO, 2, &err), FEDGE_OK);
    free_updates();
}

/* What an update lies in may be used again once its ticket is over: nothing is under way then. */
static void test_wait(void **state)
{
    (void)state;
    num_updates = 1;
    seed_all(21, &NONE, 2000);
    for (uint32_t gpus = 1; gpus <= 3; gpus++) {
        const fedge_accumulator_config config = {.layout = &layout,
                                                 .shard = FEDGE_SHARD_COORDINATES};
        fedge_encoded update = encoded(0);
        fedge_encoded *batch = &update;
        uint64_t ticket = 0;
        void *opened = NULL;
        if (!emulator_start(
                &(emulator_config){.num_gpus = gpus, .order = EMULATOR_LAZY, .watched = true}))
            continue;
        assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
        assert_int_equal(ops->validate(opened, &update, NULL), FEDGE_OK);
        assert_int_equal(ops->add(opened, &batch, 1, &ticket, NULL), FEDGE_OK);
        assert_int_not_equal(emulator_pending(), 0);
        assert_int_equal(ops->wait(opened, ticket, NULL), FEDGE_OK);
        assert_int_equal(emulator_pending(), 0);
        ops->close(opened);
    }
    free_updates();
    num_updates = UPDATES;
}

typedef struct worker {
    void *state;
    int first;
    fedge_status status;
} worker;

static void *work(void *argument)
{
    worker *self = argument;
    for (int u = self->first; u < num_updates && self->status == FEDGE_OK; u += THREADS) {
        fedge_encoded update = encoded(u);
        fedge_encoded *batch = &update;
        uint64_t ticket = 0;
        self->status = ops->validate(self->state, &update, NULL);
        if (self->status == FEDGE_OK)
            self->status = ops->add(self->state, &batch, 1, &ticket, NULL);
        if (self->status == FEDGE_OK)
            self->status = ops->wait(self->state, ticket, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    seed_all(11, &INT8, 4000);
    for (int run = 0; run < 8; run++) {
        void *opened = NULL;
        pthread_t threads[THREADS];
        worker workers[THREADS];
        const fedge_accumulator_config config = {
            .layout = &layout, .shard = run & 2 ? FEDGE_SHARD_CLIENTS : FEDGE_SHARD_COORDINATES};
        const emulator_config machine = {.num_gpus = run & 1 ? 2 : 1,
                                         .joins = (run & 3) == 3,
                                         .order = EMULATOR_RANDOM,
                                         .memory_bytes = run & 4 ? 900000 : 0};
        if (!emulator_start(&machine))
            continue;
        assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){opened, i, FEDGE_OK};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(workers[i].status, FEDGE_OK);
        }
        assert_int_equal(ops->read(opened, 0, layout.num_elements, sums, NULL), FEDGE_OK);
        assert_memory_equal(sums, expected, layout.num_elements * sizeof(*sums));
        ops->close(opened);
        assert_null(emulator_fault());
    }
    free_updates();
}

/* The message of a bad value is the CPU's. */
static void check_refused(void *opened, fedge_encoded *update, uint32_t tensor, size_t index,
                          fedge_status status)
{
    fedge_error err = {0};
    char place[64];
    (void)snprintf(place, sizeof(place), "value %zu of tensor \"%s\"", index, specs[tensor].name);
    assert_int_equal(ops->validate(opened, update, &err), status);
    if (!strstr(err.message, place))
        fail_msg("\"%s\" does not name %s", err.message, place);
    assert_null(update->staged);
}

static fedge_status fail_to_read(void *user, uint64_t offset, uint8_t *to, size_t size,
                                 fedge_error *err)
{
    memcpy(to, (const uint8_t *)user + offset, size);
    return offset == 0 ? FEDGE_OK : fedge_fail(err, FEDGE_IO, "the disk is gone");
}

static void check_refusals(uint32_t gpus, fedge_shard shard)
{
    void *opened = NULL;
    fedge_error err = {0};
    uint64_t ticket = 0;
    const fedge_accumulator_config config = {
        .layout = &layout, .num_gpus = gpus, .gpus = {0, 1, 2}, .shard = shard};
    const bool joins = gpus > 1 && shard == FEDGE_SHARD_CLIENTS;
    if (!emulator_start(&(emulator_config){.num_gpus = gpus, .joins = joins}))
        return;
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    const size_t floats = fedge_codec_size(&INT8, &schemas[0]);
    for (uint32_t t = 0; t < 8; t++) {
        const bool is_int8 = t < 4;
        const size_t index = specs[t].count - 1;
        size_t at = is_int8 ? index + 2 * (index / 256 + 1)
                            : floats + (specs[t].offset - specs[4].offset + index) * 4;
        for (uint32_t before = 0; is_int8 && before < t; before++)
            at += specs[before].count + 2 * ((specs[before].count + 255) / 256);
        uint8_t saved[4];
        memcpy(saved, bytes[1] + at, is_int8 ? 1 : 4);
        fedge_encoded update = encoded(1);
        if (is_int8)
            bytes[1][at] = 0x80;
        else
            fedge_put_u32(bytes[1] + at, t % 2 ? 0x7fc00000 : 0x7e000000);
        check_refused(opened, &update, t, index,
                      is_int8 ? FEDGE_CORRUPT
                      : t % 2 ? FEDGE_NOT_FINITE
                              : FEDGE_OUT_OF_RANGE);
        memcpy(bytes[1] + at, saved, is_int8 ? 1 : 4);
    }
    char text[512], place[64];
    fedge_gpu_stats stats[3];
    ops->describe(opened, text, sizeof(text));
    (void)snprintf(place, sizeof(place), "GPU %u, by %s:", gpus - 1,
                   shard == FEDGE_SHARD_CLIENTS ? "clients" : "coordinates");
    assert_non_null(strstr(text, place));
    assert_int_equal(ops->stats(opened, stats, 3), gpus);
    assert_true(stats[gpus - 1].gpu == gpus - 1 && stats[gpus - 1].memory_bytes > 0);
    fedge_encoded update = encoded(1);
    fedge_encoded *batch = &update;
    update.bytes = NULL;
    update.read = fail_to_read;
    update.user = bytes[1];
    assert_int_equal(ops->validate(opened, &update, &err), FEDGE_IO);
    assert_string_equal(err.message, "the disk is gone");
    update = encoded(1);
    update.weight = UINT32_MAX;
    assert_int_equal(ops->validate(opened, &update, NULL), FEDGE_OK);
    assert_int_equal(ops->begin(opened, 2, NULL), FEDGE_OK);
    assert_int_equal(ops->add(opened, &batch, 1, &ticket, &err), FEDGE_OUT_OF_RANGE);
    update.weight = 0;
    assert_int_equal(ops->add(opened, &batch, 1, &ticket, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(ops->begin(opened, 0, NULL), FEDGE_OUT_OF_RANGE);
    ops->drop(opened, &update);
    assert_int_equal(ops->read(opened, 0, layout.num_elements, sums, NULL), FEDGE_OK);
    for (size_t i = 0; i < layout.num_elements; i++)
        assert_int_equal(sums[i], 0);
    ops->close(opened);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

/* Bytes that nobody has encoded: what the codec's decoder says of them, to the word. */
static void test_any_bytes(void **state)
{
    (void)state;
    const fedge_codec *const CODECS[] = {&NONE, &INT8, &F16, &BF16, &INT4};
    for (uint32_t run = 0; run < 50; run++) {
        void *opened = NULL;
        fedge_error err = {0}, wanted = {0};
        seed_all(100 + run, CODECS[run % 5], 40);
        const fedge_accumulator_config config = {.layout = &layout, .num_gpus = 1};
        if (!emulator_start(&(emulator_config){.num_gpus = 1}))
            skip();
        assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
        const size_t size = fedge_codec_size(CODECS[run % 5], &schemas[0]);
        for (uint32_t n = 0; n < 20; n++) {
            bytes[0][fedge_rng_below(&rng, (uint32_t)size)] = (uint8_t)fedge_rng_u32(&rng);
            fedge_encoded update = encoded(0);
            const fedge_status status = fedge_codec_decode(CODECS[run % 5], &schemas[0], bounds,
                                                           bytes[0], size, fixed, &wanted);
            assert_int_equal(ops->validate(opened, &update, &err), status);
            if (status == FEDGE_OK)
                ops->drop(opened, &update);
            else
                assert_string_equal(err.message, wanted.message);
        }
        ops->close(opened);
        assert_null(emulator_fault());
        assert_int_equal(emulator_leaks(), 0);
        free_updates();
    }
}

static void test_refusals(void **state)
{
    (void)state;
    seed_all(13, &INT8, 3000);
    check_refusals(1, FEDGE_SHARD_CLIENTS);
    check_refusals(3, FEDGE_SHARD_CLIENTS);
    check_refusals(3, FEDGE_SHARD_COORDINATES);
    free_updates();
}

static void expect_open(emulator_config machine, fedge_shard shard, uint32_t gpus,
                        fedge_status status, const char *word)
{
    void *opened = NULL;
    fedge_error err = {0};
    const fedge_accumulator_config config = {
        .layout = &layout, .shard = shard, .num_gpus = gpus, .gpus = {0, 1}};
    if (!emulator_start(&machine))
        return;
    char text[512];
    assert_int_equal(ops->forecast(&config, text, sizeof(text), &err), status);
    const fedge_error forecast = err;
    emulator_start(&machine); /* what fails once fails here, too */
    assert_int_equal(ops->open(&config, &opened, &err), status);
    assert_string_equal(err.message, forecast.message);
    if (status != FEDGE_OK) {
        assert_null(opened);
        if (!strstr(err.message, word))
            fail_msg("\"%s\" does not say \"%s\"", err.message, word);
    }
    ops->close(opened);
    assert_int_equal(emulator_leaks(), 0);
}

/* Each process's first call of that name, with an error that goes by. */
static emulator_config failing(const char *call, int error)
{
    return (emulator_config){.num_gpus = 2, .fail_at = call, .fail_call = 1, .fail_error = error};
}

static char told[4096];

static void write_told(void *user, const char *line, size_t size)
{
    (void)user;
    const size_t used = strlen(told);
    assert_true(used + size < sizeof(told));
    memcpy(told + used, line, size);
}

/* The way to share that was chosen, and why, with what is missing. */
static void expect_told(emulator_config machine, const char *words)
{
    void *opened = NULL;
    const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_told};
    const fedge_accumulator_config config = {.layout = &layout, .log = &log};
    if (!emulator_start(&machine))
        return;
    memset(told, 0, sizeof(told));
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    ops->close(opened);
    if (!strstr(told, words))
        fail_msg("\"%s\" does not say \"%s\"", told, words);
}

/* NCCL is there but does not start: by clients as asked for, the error says what does without it
 * and lists the GPUs as they were; with either way sums are right. */
static void expect_no_start(emulator_config machine)
{
    void *opened = NULL;
    fedge_error err = {0};
    const fedge_accumulator_config config = {
        .layout = &layout, .shard = FEDGE_SHARD_CLIENTS, .num_gpus = 2, .gpus = {1, 0}};
    if (!emulator_start(&machine))
        return;
    assert_int_equal(ops->open(&config, &opened, &err), FEDGE_GPU_LOST);
    if (!strstr(err.message, "one of GPUs 1,0 is lost while starting NCCL") ||
        !strstr(err.message, "--shard coordinates"))
        fail_msg("\"%s\" does not name GPUs and advice", err.message);
    assert_int_equal(emulator_leaks(), 0);
    emulator_start(&machine);
    assert_int_equal(run_rounds(2, FEDGE_SHARD_AUTO, 1, &err), FEDGE_OK);
}

static void test_hardware(void **state)
{
    (void)state;
    seed_all(15, &NONE, 100);
    const fedge_shard any = FEDGE_SHARD_AUTO, clients = FEDGE_SHARD_CLIENTS;
    expect_open((emulator_config){.no_driver = true}, any, 0, FEDGE_NOT_FOUND,
                "this machine has no NVIDIA driver: install one, or sum on the CPU");
    expect_open(
        (emulator_config){.no_driver = true, .driver_version = 11080}, any, 0, FEDGE_NOT_FOUND,
        "the NVIDIA driver is for CUDA up to 11.8, and this build is of 12.8: install a newer ");
    expect_open((emulator_config){.num_gpus = 0}, any, 0, FEDGE_NOT_FOUND, "no GPU");
    expect_open((emulator_config){.num_gpus = 1}, any, 2, FEDGE_NOT_FOUND, "GPU 1");
    expect_open((emulator_config){.num_gpus = 2, .memory_bytes = 5000}, any, 0, FEDGE_NO_MEMORY,
                "MiB");
    expect_open(failing("memory", 2), any, 2, FEDGE_NO_MEMORY, "GPU 0 has no memory left");
    expect_open(failing("choosing", 2), any, 2, FEDGE_NO_MEMORY, "GPU 0 has no memory left");
    expect_open(failing("choosing", 46), any, 2, FEDGE_NOT_FOUND, "compute mode");
    /* Who takes all that there are gets those that work. */
    static const struct {
        const char *call;
        int error;
        const char *words;
    } BROKEN[] = {{"memory", 2, "GPU 0 has no memory left"}, {"choosing", 46, "compute mode"},
                  {"choosing", 214, "GPU 0 is lost"},        {"choosing", 999, "GPU 0 is lost"},
                  {"memory", 214, "GPU 0 is lost"},          {"memory", 999, "GPU 0 is lost"}};
    for (size_t i = 0; i < sizeof(BROKEN) / sizeof(BROKEN[0]); i++) {
        emulator_config machine = failing(BROKEN[i].call, BROKEN[i].error);
        expect_told(machine, BROKEN[i].words);
        expect_told(machine, "gpu-left-out gpu=0");
        expect_told(machine, "gpus=1 ");
        machine.num_gpus = 1;
        expect_open(machine, any, 0, i == 0 ? FEDGE_NO_MEMORY : FEDGE_NOT_FOUND, BROKEN[i].words);
        if (BROKEN[i].error > 100)
            expect_open(machine, any, 1, FEDGE_GPU_LOST, BROKEN[i].words);
    }
    expect_open((emulator_config){.num_gpus = 2, .no_code = true, .old_chip = true}, any, 0,
                FEDGE_NOT_FOUND, "GPU 0 has compute capability 7.5, and this build has no code");
    const emulator_config no_nccl = {.num_gpus = 2, .no_nccl = true};
    const emulator_config old_nccl = {.num_gpus = 2, .nccl_version = 2708};
    const emulator_config no_start = {
        .num_gpus = 2, .fail_at = "ncclCommInitAll", .fail_call = 1, .fail_error = 999};
    expect_open(no_nccl, clients, 0, FEDGE_NOT_FOUND, "NCCL");
    expect_open(old_nccl, clients, 0, FEDGE_UNSUPPORTED, "2.7.8");
    expect_open(no_nccl, any, 0, FEDGE_OK, "");
    expect_open(no_nccl, clients, 1, FEDGE_OK, "");
    expect_told((emulator_config){.num_gpus = 2, .joins = true},
                "shard=clients because=\"the sums fit on each\"");
    expect_told(no_nccl, "shard=coordinates because=\"NCCL cannot be had: ");
    expect_told(old_nccl, "2.7.8");
    expect_told((emulator_config){.num_gpus = 1}, "because=\"there is one\"");
    expect_told(no_start, "shard=coordinates because=\"NCCL cannot be started: one of GPUs 0,1");
    expect_no_start(no_start);
    free_updates();
}

/* A round on the GPUs that are not marked as lost; how it ends. What the log says is in told. */
static fedge_status play_without_lost(emulator_config machine, fedge_lost_gpus *lost,
                                      bool skip_missing, fedge_error *err)
{
    void *opened = NULL;
    const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_told};
    const fedge_accumulator_config config = {.layout = &layout,
                                             .num_gpus = 2,
                                             .gpus = {0, 1},
                                             .skip_missing = skip_missing,
                                             .lost = lost,
                                             .log = &log};
    memset(told, 0, sizeof(told));
    assert_true(emulator_start(&machine));
    fedge_status status = ops->open(&config, &opened, err);
    if (status == FEDGE_OK)
        status = run_round(opened, err);
    ops->close(opened);
    return status;
}

/* A GPU that fails at work, and that the driver lists all the same, is not taken again until
 * somebody says so; nor is anything remembered of GPUs that may be others now. */
static void test_lost(void **state)
{
    (void)state;
    fedge_lost_gpus lost = {0};
    fedge_error err = {0};
    const emulator_config sound = {.num_gpus = 2}, one = {.num_gpus = 1}, three = {.num_gpus = 3};
    if (!emulator_start(&(emulator_config){
            .num_gpus = 2, .fail_at = "accumulate", .fail_call = 1, .watched = true}))
        skip();
    seed_all(31, &INT8, 800);
    for (uint64_t call = 1; call <= 2; call++) {
        const emulator_config fails = {.num_gpus = 2, .fail_at = "accumulate", .fail_call = call};
        const uint64_t before = atomic_load(&lost.numbers);
        assert_int_equal(play_without_lost(fails, &lost, true, &err), FEDGE_GPU_LOST);
        const uint64_t numbers = atomic_load(&lost.numbers);
        assert_true(numbers != before && (numbers & before) == before);
        assert_int_equal(play_without_lost(sound, &lost, true, &err),
                         numbers == 3 ? FEDGE_NOT_FOUND : FEDGE_OK);
        assert_non_null(strstr(told, "gpu-left-out"));
        assert_non_null(strstr(told, "it was lost before"));
        if (numbers != 3)
            assert_non_null(strstr(told, numbers == 1 ? "gpus=1 " : "gpus=0 "));
    }
    assert_int_equal(atomic_load(&lost.numbers), 3);
    assert_non_null(strstr(err.message, "each was lost before"));
    /* Somebody names it. */
    fedge_lost_gpus_forget(&lost, (const uint32_t[]){1}, 1);
    assert_int_equal(atomic_load(&lost.numbers), 1);
    assert_int_equal(play_without_lost(sound, &lost, false, &err), FEDGE_OK);
    assert_non_null(strstr(told, "gpus=1 "));
    fedge_lost_gpus_forget(&lost, NULL, 0);
    assert_int_equal(play_without_lost(sound, &lost, false, &err), FEDGE_OK);
    assert_non_null(strstr(told, "gpus=0,1 "));
    /* One is gone, and the other may have its number; later there are more again. */
    atomic_store(&lost.numbers, 1);
    assert_int_equal(play_without_lost(one, &lost, true, &err), FEDGE_OK);
    assert_non_null(strstr(told, "gpus=0 "));
    atomic_store(&lost.numbers, 1);
    assert_int_equal(play_without_lost(three, &lost, true, &err), FEDGE_OK);
    assert_non_null(strstr(told, "gpus=0,1 "));
    fedge_lost_gpus_forget(NULL, (const uint32_t[]){200}, 1); /* nobody remembers */
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    free_updates();
}

/* ---- how long GPUs work ----------------------------------------------------------------------
 */

/* A round, and what the GPUs' times say of it, together: in the emulator's time (emulator.h).
 * [counted]: calls of [name]. */
static fedge_gpu_stats measure(uint32_t gpus, fedge_shard shard, const char *name,
                               uint64_t *counted)
{
    fedge_gpu_stats stats[8], all = {0};
    void *opened = NULL;
    fedge_error err = {0};
    const fedge_accumulator_config config = {.layout = &layout, .shard = shard};
    rng = fedge_rng_stream(gpus, FEDGE_PURPOSE_TEST, 3, 0, 0); /* the same batches each time */
    assert_true(emulator_start(&(emulator_config){
        .num_gpus = gpus, .order = EMULATOR_RANDOM, .fail_at = name, .watched = true}));
    assert_int_equal(ops->open(&config, &opened, &err), FEDGE_OK);
    if (run_round(opened, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(ops->stats(opened, stats, 8), gpus);
    for (uint32_t g = 0; g < gpus; g++) {
        assert_true(stats[g].seconds_copy > 0.0 && stats[g].seconds_decode > 0.0);
        assert_true(stats[g].seconds_reduce > 0.0 && stats[g].seconds_step > 0.0);
        all.seconds_copy += stats[g].seconds_copy;
        all.seconds_decode += stats[g].seconds_decode;
        all.seconds_reduce += stats[g].seconds_reduce;
        all.seconds_step += stats[g].seconds_step;
    }
    *counted = emulator_counted();
    ops->close(opened);
    return all;
}

static void assert_ns(double seconds, uint64_t ns)
{
    assert_int_equal((int64_t)(seconds * 1e9 + 0.5), (int64_t)ns);
}

/* Each update is copied once, and its values as fixed point where they came so; every launch takes
 * its time. */
static void check_times(uint32_t gpus, fedge_shard shard)
{
    const uint64_t copied = (uint64_t)num_updates * layout.size + 4 * layout.num_elements;
    uint64_t stages, adds, fixed_adds, joins, steps;
    fedge_gpu_stats all = measure(gpus, shard, "stage", &stages);
    assert_ns(all.seconds_copy, copied);
    assert_ns(all.seconds_decode, stages * EMULATOR_LAUNCH_NS);
    (void)measure(gpus, shard, "accumulate", &adds);
    (void)measure(gpus, shard, "ncclReduceScatter", &joins);
    all = measure(gpus, shard, "add_fixed", &fixed_adds);
    assert_ns(all.seconds_reduce, (adds + fixed_adds + joins) * EMULATOR_LAUNCH_NS);
    all = measure(gpus, shard, "step", &steps);
    assert_true(all.seconds_step * 1e9 > (double)(steps * EMULATOR_LAUNCH_NS));
}

static void test_times(void **state)
{
    (void)state;
    if (!emulator_start(&(emulator_config){.num_gpus = 3, .watched = true}))
        skip();
    num_updates = 20;
    seed_all(21, &INT8, 3000);
    check_times(1, FEDGE_SHARD_AUTO);
    check_times(3, FEDGE_SHARD_CLIENTS);
    check_times(3, FEDGE_SHARD_COORDINATES);
    free_updates();
    num_updates = UPDATES;
}

static void add_twice(void *opened, const int32_t *v, size_t count)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->add_values(opened, 0, v, 0, count, 1, NULL), FEDGE_OK);
}

/* A table that goes by the buffers of sums ends no span that was measured there before. */
static void test_tables_are_no_sums(void **state)
{
    (void)state;
    enum { COUNT = 100, NUM = 8 };
    const int32_t v[COUNT] = {0};
    const uint32_t far[NUM * NUM] = {0};
    const fedge_tile_config wanted = {.num = NUM, .num_threads = 1, .size = 64, .mixes = true};
    void *opened = NULL, *place = NULL, *tiles = NULL;
    uint32_t num_places = 0;
    fedge_gpu_stats stats;
    if (!emulator_start(&(emulator_config){.num_gpus = 1, .watched = true}))
        skip();
    num_updates = 1;
    seed_all(33, &INT8, 200);
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    const size_t count = specs[0].count < COUNT ? specs[0].count : COUNT;
    add_twice(opened, v, count);
    const fedge_tile_ops *tile = ops->tiles(opened, &place, &num_places);
    assert_int_equal(ops->stats(opened, &stats, 1), 1);
    const uint64_t before = stats.memory_bytes;
    assert_int_equal(tile->open(place, &wanted, &tiles, NULL), FEDGE_OK);
    assert_int_equal(tile->mix(tiles, far, NUM, NUM, NULL), FEDGE_OK);
    add_twice(opened, v, count);
    size_t left = 0, total = 0;
    assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
    assert_int_equal(ops->stats(opened, &stats, 1), 1);
    assert_ns(stats.seconds_reduce, 2 * EMULATOR_LAUNCH_NS);
    assert_ns(stats.seconds_copy, 2 * count * sizeof(*v));
    /* And what tiles take is counted. */
    assert_true(stats.memory_bytes > before);
    assert_int_equal(stats.memory_bytes, total - left);
    tile->close(tiles);
    ops->close(opened);
    assert_null(emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
    free_updates();
    num_updates = UPDATES;
}

/* The forecast takes nothing, and says what an open takes. */
static void check_forecast(uint32_t gpus, fedge_shard shard, size_t memory, unsigned num_moments)
{
    const fedge_accumulator_config config = {
        .layout = &layout, .shard = shard, .num_moments = num_moments};
    const emulator_config machine = {.num_gpus = gpus, .memory_bytes = memory};
    char forecast[2048], text[2048];
    fedge_gpu_stats stats[8];
    void *opened = NULL;
    if (!emulator_start(&machine))
        return;
    assert_int_equal(ops->forecast(&config, forecast, sizeof(forecast), NULL), FEDGE_OK);
    assert_int_equal(emulator_leaks(), 0);
    assert_int_equal(ops->open(&config, &opened, NULL), FEDGE_OK);
    ops->describe(opened, text, sizeof(text));
    assert_string_equal(text, forecast);
    assert_int_equal(ops->stats(opened, stats, 8), gpus);
    const char *line = text;
    for (uint32_t g = 0; g < gpus; g++) {
        size_t left = 0, total = 0, said = 0, sums_part = 0, moved_part = 0, moments = 0, held = 0;
        size_t slot = 0, others = 0;
        const char *optimizer = strstr(line, " that the optimizer keeps");
        unsigned slots = 0;
        assert_int_equal(cudaSetDevice((int)g), cudaSuccess);
        assert_int_equal(cudaMemGetInfo(&left, &total), cudaSuccess);
        assert_int_equal(sscanf(strchr(line, ':'), ": %zu bytes, %zu of sums, %zu of values, %zu",
                                &said, &sums_part, &moved_part, &moments),
                         4);
        assert_true((optimizer != NULL) == (num_moments > 0));
        moments = optimizer ? moments : 0;
        assert_int_equal(moments, num_moments * moved_part);
        assert_int_equal(sscanf(strstr(optimizer ? optimizer : line, optimizer ? "," : "values,"),
                                "%*[^0-9]%zu of %u updates of %zu, %zu of buffers", &held, &slots,
                                &slot, &others),
                         4);
        assert_int_equal(said, total - left);
        assert_int_equal(said, stats[g].memory_bytes);
        assert_int_equal(said, sums_part + moved_part + moments + held + others);
        assert_int_equal(held, slots * slot);
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : line;
    }
    ops->close(opened);
    assert_int_equal(emulator_leaks(), 0);
    /* Too small for a line, too small for all. */
    char small[40] = "";
    assert_int_equal(ops->forecast(&config, small, 30, NULL), FEDGE_OK);
    assert_int_equal(strlen(small), 29);
    assert_memory_equal(small, forecast, 29);
}

static void test_forecast(void **state)
{
    (void)state;
    for (int codec = 0; codec < 2; codec++) {
        seed_all(17, codec ? &INT8 : &NONE, 5000);
        check_forecast(1, FEDGE_SHARD_AUTO, 1 << 30, 0);
        check_forecast(1, FEDGE_SHARD_AUTO, 1 << 20, 0); /* fewer updates */
        check_forecast(1, FEDGE_SHARD_AUTO, 1 << 20, 2);
        check_forecast(3, FEDGE_SHARD_CLIENTS, 1 << 30, 1);
        check_forecast(3, FEDGE_SHARD_COORDINATES, 1 << 30, 2);
        free_updates();
    }
}

enum { OUT_OF_MEMORY = 2 };

/* A GPU whose memory others have is not lost, and the message says what to do. NCCL does not tell
 * which error it had. */
static void check_short_of_memory(fedge_status status, const fedge_error *err)
{
    assert_int_equal(atomic_load(&lost_gpus.numbers), 0);
    if (status == FEDGE_GPU_LOST
            ? !strstr(err->message, "NCCL")
            : status == FEDGE_NO_MEMORY && !strstr(err->message, "(--accumulator cpu)"))
        fail_msg("status %d: %s", (int)status, err->message);
}

/* With the numbers: what was to be taken, and what is free. */
static void check_numbers(const fedge_error *err)
{
    unsigned gpu = 0;
    size_t wanted = 0, left = 0, total = 0;
    const int pinned = sscanf(err->message, "GPU %u: the host cannot pin %zu bytes", &gpu, &wanted);
    const int own =
        sscanf(err->message,
               "GPU %u has no memory left while taking %zu bytes: %zu of its %zu MiB are free",
               &gpu, &wanted, &left, &total);
    if (wanted == 0 || (pinned != 2 && (own != 4 || total != 248 || left > total)))
        fail_msg("\"%s\" does not have the numbers", err->message);
}

static void test_out_of_memory_at_every_allocation(void **state)
{
    (void)state;
    num_updates = 5;
    seed_all(37, &INT8, 150);
    for (int machine = 0; machine < 3; machine++) {
        const uint32_t gpus = machine == 0 ? 1 : 2;
        const fedge_shard shard = machine == 2 ? FEDGE_SHARD_COORDINATES : FEDGE_SHARD_CLIENTS;
        uint64_t call = 1;
        for (;; call++) {
            fedge_error err = {0};
            if (!emulator_start(&(emulator_config){.num_gpus = gpus,
                                                   .unprotected = true,
                                                   .fail_at = "allocation",
                                                   .fail_call = call,
                                                   .fail_error = OUT_OF_MEMORY}))
                skip();
            const fedge_status status = run_rounds(gpus, shard, 1, &err);
            if (!emulator_failed()) {
                assert_int_equal(status, FEDGE_OK);
                break;
            }
            assert_int_equal(status, FEDGE_NO_MEMORY);
            check_short_of_memory(status, &err);
            check_numbers(&err);
        }
        assert_true(call > 40 * gpus);
    }
    free_updates();
    num_updates = UPDATES;
}

/* Each call of CUDA and NCCL fails once, in turn: with an error of the GPU that stays, or of
 * memory. */
static void check_failures(uint32_t gpus, fedge_shard shard, int error, uint32_t stride)
{
    fedge_status status = FEDGE_INTERNAL;
    uint64_t call = 1;
    for (; status != FEDGE_OK; call += 1 + fedge_rng_below(&rng, stride)) {
        fedge_error err = {0};
        if (!emulator_start(&(emulator_config){.num_gpus = gpus,
                                               .order = (emulator_order)(call % 3),
                                               .seed = call,
                                               .unprotected = true,
                                               .fail_call = call,
                                               .fail_error = error}))
            skip();
        status = run_rounds(gpus, shard, 1, &err);
        if (emulator_calls() < call) {
            assert_int_equal(status, FEDGE_OK);
        } else if (status != FEDGE_OK) {
            /* Or no GPU, or no NCCL, where the first calls fail. */
            assert_true(status == FEDGE_GPU_LOST || status == FEDGE_NO_MEMORY ||
                        status == FEDGE_NOT_FOUND);
            assert_non_null(strstr(err.message, "GPU"));
            if (error == OUT_OF_MEMORY)
                check_short_of_memory(status, &err);
        } else {
            status = FEDGE_INTERNAL; /* it failed while closing, or could be done without */
        }
    }
    assert_true(call > 100);
}

static void test_failures(void **state)
{
    (void)state;
    const uint32_t stride = fedge_test_is_long() ? 1 : 6; /* 6: some two calls of seven */
    num_updates = 5;
    seed_all(17, &INT8, 150);
    check_failures(1, FEDGE_SHARD_CLIENTS, 214, 1);
    check_failures(2, FEDGE_SHARD_CLIENTS, 719, stride);
    check_failures(3, FEDGE_SHARD_COORDINATES, 700, stride);
    check_failures(1, FEDGE_SHARD_CLIENTS, OUT_OF_MEMORY, stride);
    check_failures(2, FEDGE_SHARD_CLIENTS, OUT_OF_MEMORY, stride);
    check_failures(8, FEDGE_SHARD_CLIENTS, 214, 20);
    free_updates();
    num_updates = UPDATES;
}

/* A collective that never ends is found by what NCCL says, or by the time that it takes. */
static void test_hang(void **state)
{
    (void)state;
    seed_all(19, &NONE, 4000);
    for (int tells = 0; tells < 2; tells++) {
        fedge_error err = {0};
        if (!emulator_start(&(emulator_config){
                .num_gpus = 3, .hang_collective = 2, .nccl_async_error = tells == 1}))
            skip();
        assert_int_equal(run_rounds(3, FEDGE_SHARD_CLIENTS, 1, &err), FEDGE_GPU_LOST);
        assert_non_null(strstr(err.message, tells ? "NCCL" : "no progress"));
    }
    free_updates();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_hardware),  cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_out_of_memory_at_every_allocation),
        cmocka_unit_test(test_failures),  cmocka_unit_test(test_hang),
        cmocka_unit_test(test_forecast),  cmocka_unit_test(test_wait),
        cmocka_unit_test(test_times),     cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_lost),      cmocka_unit_test(test_tables_are_no_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
