/* A federation in one process whose sums are on emulated GPUs: the models of the CPU, also when
 * GPUs are changed between rounds, when one is lost at any call of a round, and when it comes back.
 */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/aggregator/run/federation.h"
#include "tests/cuda/emulator/emulator.h"

#define ROUNDS "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"

enum { CLIENTS = 4 };

static federation fed;
static char expected[FEDGE_HASH_TEXT]; /* the CPU's */
static char refused[2048];             /* the last gpus-refused of the log */

static void note_refusal(void *user, const char *line, size_t size)
{
    (void)user;
    if (strstr(line, "gpus-refused"))
        (void)snprintf(refused, sizeof(refused), "%.*s", (int)size, line);
}

static void begin(const char *accumulator, fedge_shard shard, const char *gpus)
{
    fed_init(&fed, "engine-cuda-test", ROUNDS);
    fed.accumulator = accumulator;
    fed.sums.shard = shard;
    fed.log.write = note_refusal;
    fed.log.level = FEDGE_LOG_ERROR;
    refused[0] = '\0';
    assert_int_equal(fedge_accumulator_parse_gpus(gpus, &fed.sums, NULL), FEDGE_OK);
}

static void start(void)
{
    fed_open(&fed);
    fed_join_all(&fed, CLIENTS);
}

static fedge_status finish(void)
{
    fedge_error failure;
    fed_finish(&fed, &failure);
    return failure.status;
}

static void end(void)
{
    fed_fini(&fed);
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

/* Plays to the end, and checks the model. */
static void finish_as_expected(void)
{
    assert_int_equal(finish(), FEDGE_OK);
    const fedge_run_status status = fed_status(&fed);
    assert_int_equal(status.rounds_closed, 3);
    assert_string_equal(status.model_hash, expected);
}

static int set_up(void **state)
{
    (void)state;
    begin("cpu", FEDGE_SHARD_AUTO, "all");
    start();
    assert_int_equal(finish(), FEDGE_OK);
    memcpy(expected, fed_status(&fed).model_hash, sizeof(expected));
    fed_fini(&fed);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (fed.job) { /* a test has failed */
        fed_fini(&fed);
    }
    return 0;
}

/* ---- GPUs are changed -------------------------------------------------------------------------
 */

static void ask_for(const char *gpus)
{
    fedge_request *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    request->type = FEDGE_REQUEST_GPUS;
    assert_int_equal(fedge_accumulator_parse_gpus(gpus, &request->sums, NULL), FEDGE_OK);
    fedge_engine_handle(fed.engine, request, fed.now_ms);
}

static bool first_round_trains(const federation *it)
{
    return it->num_summaries == 0 && it->devices[0].num_acks == 1;
}

static bool second_round_trains(const federation *it)
{
    return it->num_summaries == 1 && it->devices[0].num_acks == 2;
}

static bool third_round_trains(const federation *it)
{
    return it->num_summaries == 2 && it->devices[0].num_acks == 3;
}

static void expect_gpus(const char *gpus)
{
    char text[64] = "";
    const fedge_run_status status = fed_status(&fed);
    for (uint32_t i = 0; i < status.num_gpus; i++) {
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof(text) - used, i > 0 ? ",%u" : "%u", status.gpus[i].gpu);
    }
    assert_string_equal(text, gpus);
}

static void gpus_change_between_rounds(void **state)
{
    (void)state;
    const struct {
        fedge_shard shard;
        const char *first, *second, *third;
    } cases[] = {{FEDGE_SHARD_CLIENTS, "0", "2,1", "0,1,2,3"},
                 {FEDGE_SHARD_CLIENTS, "0,1,2", "3", "all"},
                 {FEDGE_SHARD_COORDINATES, "1,0", "2", "3,2"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        emulator_start(&(emulator_config){.num_gpus = 4, .order = EMULATOR_RANDOM, .seed = i});
        begin("cuda", cases[i].shard, cases[i].first);
        start();
        fed_until(&fed, first_round_trains, "the first round");
        ask_for(cases[i].second);
        expect_gpus(cases[i].first); /* the open round ends with the old ones */
        fed_until(&fed, second_round_trains, "the second round");
        expect_gpus(cases[i].second);
        ask_for("7");
        ask_for(cases[i].third); /* the last one counts */
        fed_until(&fed, third_round_trains, "the third round");
        expect_gpus(strcmp(cases[i].third, "all") == 0 ? "0,1,2,3" : cases[i].third);
        finish_as_expected();
        assert_string_equal(refused, "");
        end();
    }
}

/* Once it can be opened, what was refused is taken. */
static void what_cannot_be_opened_is_refused(void **state)
{
    (void)state;
    emulator_start(&(emulator_config){.num_gpus = 2});
    begin("auto", FEDGE_SHARD_AUTO, "1");
    start();
    fed_until(&fed, first_round_trains, "the first round");
    ask_for("1,2");
    fed_until(&fed, second_round_trains, "the second round");
    assert_non_null(strstr(refused, "GPU 2 is not there: there are 0 to 1"));
    expect_gpus("1");
    assert_string_equal(fed_status(&fed).accumulator, "cuda");
    refused[0] = '\0';
    ask_for("0,1");
    fed_until(&fed, third_round_trains, "the third round");
    expect_gpus("0,1");
    finish_as_expected();
    assert_string_equal(refused, "");
    end();
}

/* A GPU that an earlier process has lost is left out, until somebody names it. */
static void a_lost_gpu_comes_back_when_it_is_named(void **state)
{
    (void)state;
    static const char *const lists[] = {"0,1", "all"};
    for (size_t i = 0; i < 2; i++) {
        fedge_lost_gpus lost = {.numbers = 1, .there = 2};
        emulator_start(&(emulator_config){.num_gpus = 2});
        begin("auto", FEDGE_SHARD_COORDINATES, "0,1");
        fed.sums.lost = &lost;
        fed.sums.skip_missing = true;
        start();
        expect_gpus("1");
        fed_until(&fed, first_round_trains, "the first round");
        ask_for(lists[i]);
        fed_until(&fed, second_round_trains, "the second round");
        expect_gpus("0,1");
        finish_as_expected();
        assert_string_equal(refused, "");
        assert_int_equal(atomic_load(&lost.numbers), 0);
        end();
    }
}

static bool first_round_is_closed(const federation *it)
{
    return it->num_summaries == 1;
}

static void the_same_list_changes_nothing(void **state)
{
    (void)state;
    emulator_start(&(emulator_config){.num_gpus = 2});
    begin("cuda", FEDGE_SHARD_COORDINATES, "1,0");
    start();
    fed_until(&fed, first_round_trains, "the first round");
    ask_for("1,0");
    fed_until(&fed, first_round_is_closed, "the first round's end");
    const uint64_t decoded = fed_status(&fed).gpus[0].decoded_bytes;
    ask_for("1,0");
    finish_as_expected();
    expect_gpus("1,0");
    assert_int_equal(fed_status(&fed).gpus[0].decoded_bytes, 3 * decoded); /* not opened anew */
    end();
}

/* With "auto" and no GPU at the start the CPU sums, until there is a list that can be opened. */
static void the_cpu_gives_way(void **state)
{
    (void)state;
    emulator_start(&(emulator_config){.num_gpus = 2});
    begin("auto", FEDGE_SHARD_AUTO, "5");
    start();
    assert_string_equal(fed_status(&fed).accumulator, "cpu");
    fed_until(&fed, first_round_trains, "the first round");
    ask_for("6");
    fed_until(&fed, second_round_trains, "the second round");
    assert_string_equal(fed_status(&fed).accumulator, "cpu");
    ask_for("0,1");
    fed_until(&fed, third_round_trains, "the third round");
    assert_string_equal(fed_status(&fed).accumulator, "cuda");
    expect_gpus("0,1");
    finish_as_expected();
    end();
}

/* With "auto" a GPU that others have, that is broken, or that this build has no code for, is none.
 */
static void the_cpu_stands_in(void **state)
{
    (void)state;
    const emulator_config machines[] = {
        {.num_gpus = 1, .fail_at = "memory", .fail_call = 1, .fail_error = 2},
        {.num_gpus = 1, .fail_at = "choosing", .fail_call = 1, .fail_error = 46},
        {.num_gpus = 1, .fail_at = "choosing", .fail_call = 1, .fail_error = 214},
        {.num_gpus = 1, .fail_at = "memory", .fail_call = 1, .fail_error = 999},
        {.num_gpus = 1, .no_code = true}};
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        emulator_start(&machines[i]);
        begin("auto", FEDGE_SHARD_AUTO, "all");
        start();
        assert_string_equal(fed_status(&fed).accumulator, "cpu");
        finish_as_expected();
        end();
    }
}

/* ---- what they did ----------------------------------------------------------------------------
 */

/* The number behind [key] of GPU [gpu] in a line of rounds.jsonl. */
static double number_of(const char *line, uint32_t gpu, const char *key)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "{\"gpu\":%u,", gpu);
    const char *at = strstr(line, text);
    assert_non_null(at);
    (void)snprintf(text, sizeof(text), "\"%s\":", key);
    at = strstr(at, text);
    assert_non_null(at);
    return strtod(at + strlen(text), NULL);
}

/* Each line has its own round: together they are what the metrics have. */
static void lines_tell_what_gpus_did(void **state)
{
    (void)state;
    emulator_start(&(emulator_config){.num_gpus = 2});
    begin("cuda", FEDGE_SHARD_CLIENTS, "all");
    start();
    finish_as_expected();
    const fedge_run_status status = fed_status(&fed);
    char path[FEDGE_MAX_PATH + 16];
    uint8_t *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/rounds.jsonl", status.run_dir);
    assert_int_equal(fedge_os_read_file(path, 1 << 20, &text, &size, NULL), FEDGE_OK);
    fedge_gpu_stats told[2] = {0};
    uint32_t lines = 0;
    for (char *line = strtok((char *)text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        for (uint32_t g = 0; g < 2; g++) {
            assert_true(number_of(line, g, "memory_bytes") == (double)status.gpus[g].memory_bytes);
            assert_true(number_of(line, g, "seconds_copy") > 0.0);
            told[g].decoded_bytes += (uint64_t)number_of(line, g, "decoded_bytes");
            told[g].seconds_copy += number_of(line, g, "seconds_copy");
            told[g].seconds_decode += number_of(line, g, "seconds_decode");
            told[g].seconds_reduce += number_of(line, g, "seconds_reduce");
            told[g].seconds_step += number_of(line, g, "seconds_step");
        }
    }
    free(text);
    assert_int_equal(lines, 3);
    for (uint32_t g = 0; g < 2; g++) {
        const fedge_gpu_stats *all = &status.gpus[g];
        assert_int_equal(told[g].decoded_bytes, all->decoded_bytes);
        assert_true(fabs(told[g].seconds_copy - all->seconds_copy) < 1e-12);
        assert_true(fabs(told[g].seconds_decode - all->seconds_decode) < 1e-12);
        assert_true(fabs(told[g].seconds_reduce - all->seconds_reduce) < 1e-12);
        assert_true(fabs(told[g].seconds_step - all->seconds_step) < 1e-12);
    }
    end();
}

/* ---- GPUs are lost ----------------------------------------------------------------------------
 */

/* A process of an aggregator, until the end of the run or a failure that ends it. */
static fedge_status try_to_live(void)
{
    fedge_error err = {0};
    fedge_status status = fed_try_open(&fed, &err);
    if (status == FEDGE_OK) {
        fed_join_all(&fed, CLIENTS);
        status = finish();
    }
    if (status == FEDGE_OK)
        assert_string_equal(fed_status(&fed).model_hash, expected);
    fed_close(&fed);
    return status;
}

/* False when a GPU was lost in it. */
static bool live(void)
{
    const fedge_status status = try_to_live();
    if (status != FEDGE_OK)
        assert_int_equal(status, FEDGE_GPU_LOST);
    return status == FEDGE_OK;
}

/* The first life loses a GPU at call [nth] of [name], the second goes on with [left] GPUs, and so
 * does the third, with all of them, when the second has lost one at its own call [nth]. False:
 * there are not so many calls. */
static bool lose(fedge_shard shard, uint32_t gpus, uint32_t left, const char *name, uint64_t nth)
{
    const emulator_config machine = {.num_gpus = gpus,
                                     .order = (emulator_order)(nth % 3),
                                     .seed = nth,
                                     .unprotected = true,
                                     .fail_call = nth,
                                     .fail_at = name};
    emulator_config smaller = machine;
    smaller.num_gpus = left;
    begin("cuda", shard, "all");
    emulator_start(&machine);
    bool done = live();
    const bool failed = emulator_failed();
    assert_true(done != failed);
    if (!done) {
        assert_int_equal(emulator_leaks(), 0);
        emulator_start(&smaller);
        done = live();
    }
    if (!done) {
        assert_int_equal(emulator_leaks(), 0);
        emulator_start(&(emulator_config){.num_gpus = gpus, .unprotected = true});
        assert_true(live());
    }
    end();
    return failed;
}

static void lose_everywhere(fedge_shard shard, uint32_t gpus, uint32_t left)
{
    static const char *const NAMES[] = {"copy",       "stage", "read",
                                        "accumulate", "step",  "ncclReduceScatter"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        uint64_t nth = 1;
        while (lose(shard, gpus, left, NAMES[i], nth))
            nth += nth < 3 ? 1 : 11; /* all of the first calls, and some of the others */
        const bool joins = shard == FEDGE_SHARD_CLIENTS && gpus > 1;
        if (nth < 3 && (joins || strcmp(NAMES[i], "ncclReduceScatter") != 0))
            fail_msg("%s is called %d times", NAMES[i], (int)nth - 1);
    }
}

static void a_gpu_is_lost_by_clients(void **state)
{
    (void)state;
    lose_everywhere(FEDGE_SHARD_CLIENTS, 2, 1);
    lose_everywhere(FEDGE_SHARD_CLIENTS, 3, 2);
}

static void a_gpu_is_lost_by_coordinates(void **state)
{
    (void)state;
    lose_everywhere(FEDGE_SHARD_COORDINATES, 2, 1);
}

static void the_only_gpu_is_lost(void **state)
{
    (void)state;
    lose_everywhere(FEDGE_SHARD_AUTO, 1, 1);
}

/* A GPU that lacks memory at work is not lost. Another process goes on with the round. */
static void memory_ends_at_work(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"copy", "stage", "read", "accumulate", "step"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        begin("cuda", FEDGE_SHARD_COORDINATES, "all");
        /* Not the copies of an open. */
        emulator_start(&(emulator_config){.num_gpus = 2,
                                          .unprotected = true,
                                          .fail_call = i == 0 ? 20 : 3,
                                          .fail_at = NAMES[i],
                                          .fail_error = 2});
        const fedge_status status = try_to_live();
        assert_true(emulator_failed());
        if (status != FEDGE_NO_MEMORY)
            fail_msg("%s: status %d", NAMES[i], (int)status);
        assert_int_equal(emulator_leaks(), 0);
        emulator_start(&(emulator_config){.num_gpus = 2, .unprotected = true});
        assert_true(live());
        end();
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gpus_change_between_rounds), TEST(what_cannot_be_opened_is_refused),
        TEST(lines_tell_what_gpus_did),   TEST(the_same_list_changes_nothing),
        TEST(the_cpu_gives_way),          TEST(the_cpu_stands_in),
        TEST(a_gpu_is_lost_by_clients),   TEST(a_gpu_is_lost_by_coordinates),
        TEST(the_only_gpu_is_lost),       TEST(a_lost_gpu_comes_back_when_it_is_named),
        TEST(memory_ends_at_work),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
