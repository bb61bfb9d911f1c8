/* Tests the oracle with the real engine: it computes the server's models for every strategy and
 * codec that it covers, and it detects wrong servers. */
#define _GNU_SOURCE /* memmem */

#include "tests/edge/core/cmocka_all.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/store/journal.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/aggregator/run/federation.h"
#include "tests/world/disk.h"
#include "tests/world/oracle.h"
#include "tests/world/plain_codec.h"
#include "tests/world/ranks.h"
#include "tests/world/root_training.h"
#include "tests/world/scheduler.h"

#define ROUNDS "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"
#define EXAMPLES "oracle-examples.csv"
#define TRUST "\"type\":\"FLTrust\",\"root-set\":{\"values\":\"" EXAMPLES "\"}"
#define LONG_ROUNDS                                                                                \
    "\"num-server-rounds\":5,\"min-train-nodes\":3,\"min-available-nodes\":3,\"round-deadline-"    \
    "s\":5"

static federation fed;

/* ---- the world, as far as the oracle knows it ------------------------------------------------ */

static char failure[512];
static char seen_path[256];
static const char *hidden;  /* no file whose path has this in it is there */
static const char *damaged; /* part of the path of a file in which a byte is changed */
static bool torn;           /* the last line of rounds.jsonl begins with bytes never written */

void world_fail(const char *format, ...)
{
    va_list args;
    if (failure[0])
        return;
    va_start(args, format);
    vsnprintf(failure, sizeof(failure), format, args);
    va_end(args);
}

const char *world_failure(void)
{
    return failure[0] ? failure : NULL;
}

void world_trace(const char *format, ...)
{
    (void)format;
}

/* What the oracle has read since the last message: it may look at all of that until it returns. */
static uint8_t *contents[4096];
static uint32_t num_contents;

static void forget_contents(void)
{
    while (num_contents > 0)
        free(contents[--num_contents]);
}

const uint8_t *world_disk_read(uint32_t node, const char *path, size_t *size)
{
    uint8_t *content = NULL;
    char real[512];
    assert_true(node == WORLD_SERVER || world_is_rank(node));
    assert_memory_equal(path, WORLD_DISK_ROOT "/state", strlen(WORLD_DISK_ROOT "/state"));
    snprintf(real, sizeof(real), "%s%s%s", fed.state_dir, node == WORLD_SERVER ? "" : ".rank",
             path + strlen(WORLD_DISK_ROOT "/state"));
    if ((hidden && strstr(path, hidden)) ||
        fedge_os_read_file(real, 1 << 20, &content, size, NULL) != FEDGE_OK)
        return NULL;
    assert_true(num_contents < sizeof(contents) / sizeof(contents[0]));
    contents[num_contents++] = content;
    if (damaged && strstr(path, damaged)) {
        uint8_t *clients = memmem(content, *size, "\"clients\":", 10);
        *(clients ? clients + 10 : content + *size - 3) ^= 1;
    }
    for (size_t i = *size - 1; torn && strstr(path, "rounds.jsonl") && content[i - 1] != '\n'; i--)
        content[i - 1] = '\0';
    return content;
}

static bool unsynced; /* nothing on the disk is synced */

bool world_disk_is_synced(uint32_t node, const char *path, uint64_t begin, uint64_t end)
{
    assert_true(node == WORLD_SERVER || world_is_rank(node));
    assert_true(path[0] != '\0' && begin < end);
    return !unsynced;
}

static fedge_status see_run(void *user, const char *name, fedge_error *err)
{
    (void)user, (void)err;
    snprintf(seen_path, sizeof(seen_path), "%s/state/runs/%s/run.json", WORLD_DISK_ROOT, name);
    return FEDGE_OK;
}

void world_disk_each(uint32_t node, void (*visit)(void *user, const char *path), void *user)
{
    char dir[128];
    assert_int_equal(node, WORLD_SERVER);
    snprintf(dir, sizeof(dir), "%s/runs", fed.state_dir);
    seen_path[0] = '\0';
    if (fedge_os_list_dir(dir, see_run, NULL, NULL) == FEDGE_OK && seen_path[0])
        visit(user, seen_path);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static enum lie { TRUTH, NO_PARTS, FLIPPED_BIT, HALF_THE_EXAMPLES } lie;

/* Changes a message of device 1 before the oracle sees it. False: the oracle does not see it. */
static bool change(fedge_message *message)
{
    static uint8_t changed[FEDGE_MESSAGE_MAX_SIZE], payload[FEDGE_MESSAGE_MAX_PAYLOAD];
    static fedge_upload upload;
    size_t size = 0;
    if (message->type == FEDGE_MESSAGE_PART && lie == FLIPPED_BIT) {
        memcpy(payload, message->payload, message->payload_size);
        payload[message->payload_size / 2] ^= 4;
        message->payload = payload;
    }
    if (message->type == FEDGE_MESSAGE_UPLOAD && lie == HALF_THE_EXAMPLES) {
        MUST(fedge_upload_read(message, &upload, ERR));
        upload.num_examples /= 2;
        MUST(fedge_upload_pack(&upload, changed, sizeof(changed), &size, ERR));
        MUST(fedge_message_unpack(changed, size, message, ERR));
    }
    return message->type != FEDGE_MESSAGE_PART || lie != NO_PARTS;
}

/* The server's training, which a thread of the engine waits to tell. */
static struct {
    atomic_uint round; /* 0: none */
    float before[FED_ELEMENTS], after[FED_ELEMENTS];
} trained;

void world_root_trained(uint32_t round, const float *before, const float *after)
{
    assert(atomic_load(&trained.round) == 0);
    memcpy(trained.before, before, sizeof(trained.before));
    memcpy(trained.after, after, sizeof(trained.after));
    atomic_store(&trained.round, round);
}

static void tell_training(void)
{
    const uint32_t round = atomic_load(&trained.round);
    if (round > 0) {
        oracle_root_trained(round, trained.before, trained.after);
        atomic_store(&trained.round, 0);
    }
}

static void tell(uint32_t device, bool by_server, const uint8_t *frame, size_t size)
{
    static uint8_t told[FEDGE_MESSAGE_MAX_SIZE];
    fedge_message message;
    forget_contents();
    tell_training();
    MUST(fedge_message_unpack(frame, size, &message, ERR));
    if (by_server) {
        oracle_server_sent(device, true, frame, size);
    } else if (device != 1 || change(&message)) {
        MUST(fedge_message_pack(&message, told, sizeof(told), ERR));
        oracle_client_sent(device, told, fedge_message_size(&message));
    }
}

static int set_up(void **state)
{
    (void)state;
    failure[0] = '\0';
    lie = TRUTH;
    damaged = hidden = NULL;
    unsynced = torn = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char of_rank[96];
    snprintf(of_rank, sizeof(of_rank), "%s.rank", fed.state_dir);
    MUST(fedge_os_remove_tree(of_rank, ERR));
    oracle_end();
    forget_contents();
    fed_fini(&fed);
    return 0;
}

static void begin(const char *rounds, const char *strategy, const char *update)
{
    fed_init_strategy(&fed, "oracle-test", rounds, strategy);
    if (update)
        fed_encode_by(&fed, update);
    fed.tell = tell;
    oracle_begin(fed.job, FED_DEVICES);
    assert_true(oracle_models(fed.job));
}

static void begin_average(void)
{
    begin(ROUNDS, "\"type\":\"FedAvg\"", NULL);
}

static void open_run(void)
{
    fed_open(&fed);
    oracle_look();
}

static void run(uint32_t num_devices)
{
    fedge_error err;
    open_run();
    fed_join_all(&fed, num_devices);
    fed_finish(&fed, &err);
    assert_string_equal(err.status == FEDGE_OK ? "" : err.message, "");
}

/* Writes the results of the finished run as a server does, and so waits for its last line. */
static void complete(uint32_t rounds_closed)
{
    fedge_error err;
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
    const fedge_run_status status = fed_status(&fed);
    assert_int_equal(status.rounds_closed, rounds_closed);
    tell_training();
    oracle_complete(status.model_hash, status.rounds_closed);
}

static void must_hold(uint32_t num_devices)
{
    run(num_devices);
    complete(3);
    assert_string_equal(failure, "");
}

static void models_of_strategies_are_recomputed(void **state)
{
    (void)state;
    static const char *const STRATEGIES[] = {
        "\"type\":\"FedAvg\"",
        "\"type\":\"FedAvg\",\"server-learning-rate\":0.7",
        "\"type\":\"FedProx\",\"proximal-mu\":0.1",
        "\"type\":\"FedAvgM\",\"server-momentum\":0.8",
        "\"type\":\"FedAdagrad\"",
        "\"type\":\"FedAdam\",\"beta2\":0.9",
        "\"type\":\"FedYogi\"",
        "\"type\":\"FedNova\"",
        "\"type\":\"FedNova\",\"server-learning-rate\":0.5",
        "\"type\":\"FedMedian\"",
        "\"type\":\"FedTrimmedAvg\",\"beta\":0.3",
        "\"type\":\"Krum\",\"num-malicious-nodes\":0",
        "\"type\":\"MultiKrum\",\"num-malicious-nodes\":0,\"num-nodes-to-keep\":2",
        "\"type\":\"NormClipping\"",
        "\"type\":\"RFA\"",
        TRUST,
        "\"type\":\"QFedAvg\"",
        "\"type\":\"FedDyn\"",
        "\"type\":\"IFCA\"",
        "\"type\":\"FedBN\"",
        "\"type\":\"Ditto\",\"lambda\":0.1",
        "\"type\":\"FedBuff\",\"buffer-size\":3",
        "\"type\":\"FedBuff\",\"buffer-size\":2,\"staleness-weight\":\"hinge\",\"hinge-delay\":0",
        "\"type\":\"FedAsync\"",
    };
    static const char CSV[] = "0.5,0,1,0\n-1,0.25,0,1\n0,1,0.5,2\n1,1,-1,3\n";
    MUST(fedge_os_write_file(EXAMPLES, CSV, strlen(CSV), 0600, ERR));
    for (size_t i = 0; i < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); i++) {
        print_message("%s\n", STRATEGIES[i]);
        if (i > 0)
            fed_fini(&fed);
        begin(ROUNDS, STRATEGIES[i], NULL);
        must_hold(4);
    }
    assert_int_equal(remove(EXAMPLES), 0);
}

static void models_of_samplers_are_recomputed(void **state)
{
    (void)state;
    static const char *const SAMPLERS[] = {"available", "examples", "utility"};
    for (size_t i = 0; i < sizeof(SAMPLERS) / sizeof(SAMPLERS[0]); i++) {
        char rounds[256];
        print_message("%s\n", SAMPLERS[i]);
        if (i > 0)
            fed_fini(&fed);
        snprintf(rounds, sizeof(rounds),
                 "\"num-server-rounds\":3,\"min-train-nodes\":2,\"min-available-nodes\":4,"
                 "\"fraction-train\":0.5,\"over-selection\":1.5,\"sampler\":{\"type\":\"%s\","
                 "\"inverse-probability\":true}",
                 SAMPLERS[i]);
        begin(rounds, "\"type\":\"FedAvg\"", NULL);
        must_hold(4);
    }
}

static void models_of_codecs_are_recomputed(void **state)
{
    (void)state;
    static const char *const CODECS[] = {"none",          "f16",           "bf16",
                                         "int8",          "int4",          "topk:0.5",
                                         "topk:0.3+int8", "randk:0.5+f16", "ternary:0.4"};
    for (size_t i = 0; i < sizeof(CODECS) / sizeof(CODECS[0]); i++) {
        char update[128];
        print_message("%s\n", CODECS[i]);
        if (i > 0)
            fed_fini(&fed);
        snprintf(update, sizeof(update), "\"codec\":\"%s\",\"deflate\":%s", CODECS[i],
                 i % 2 == 0 ? "true" : "false");
        begin(ROUNDS, "\"type\":\"FedAvg\"", update);
        must_hold(4);
        fed_fini(&fed);
        snprintf(update, sizeof(update), "\"codec\":\"none\",\"down\":\"%s\"", CODECS[i]);
        begin(ROUNDS, "\"type\":\"FedAvgM\"", update);
        must_hold(4);
    }
}

/* ---- what must hold whatever happens --------------------------------------------------------- */

static fedge_rng draw;

static bool is_done(void)
{
    fedge_error why;
    return fedge_engine_done(fed.engine, &why);
}

static void backup_path(char path[96])
{
    snprintf(path, 96, "%s.backup", fed.state_dir);
}

static void start_again(void)
{
    fed_close(&fed);
    open_run();
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        if (fedge_rng_below(&draw, 4) > 0)
            fed_join(&fed, i);
    }
}

/* Makes a backup of the state directory. The second call goes back to it. */
static void back_up(uint64_t *mark)
{
    char backup[96], copy[256];
    backup_path(backup);
    fed_close(&fed);
    if (*mark == 0) {
        snprintf(copy, sizeof(copy), "cp -a %s %s", fed.state_dir, backup);
        assert_int_equal(system(copy), 0);
        *mark = oracle_mark();
    } else {
        assert_int_equal(fedge_os_remove_tree(fed.state_dir, NULL), FEDGE_OK);
        assert_int_equal(rename(backup, fed.state_dir), 0);
        oracle_restored(*mark);
        *mark = UINT64_MAX; /* once */
        fed.restored = true;
        fed.num_issued = 0; /* another incarnation may use the same ids */
        for (uint32_t i = 0; i < FED_DEVICES; i++)
            fed.devices[i].has_result = false;
    }
    start_again();
    fed.restored = false;
}

static void happen(uint64_t *mark)
{
    fed_device *device = &fed.devices[fedge_rng_below(&draw, FED_DEVICES)];
    const uint32_t what = fedge_rng_below(&draw, 200);
    if (what < 150)
        fed_step(&fed);
    else if (what < 160)
        fed_leave(&fed, device->index);
    else if (what < 185 && !device->conn)
        fed_join(&fed, device->index);
    else if (what < 188)
        fed.now_ms += fedge_rng_below(&draw, 7000);
    else if (what < 191)
        start_again();
    else if (what < 192)
        device->has_result = device->sending = false;
    else if (what < 193 && *mark != UINT64_MAX)
        back_up(mark);
}

static void random_run(uint64_t seed)
{
    static const char *const STRATEGIES[] = {
        "\"type\":\"FedAvg\"", "\"type\":\"FedAvgM\"", "\"type\":\"FedMedian\"",
        "\"type\":\"FedBuff\",\"buffer-size\":3", "\"type\":\"FedAsync\""};
    static const char *const ROUNDS_OF[] = {
        LONG_ROUNDS ",\"over-selection\":1.4,\"min-report-fraction\":0.6",
        LONG_ROUNDS ",\"fraction-train\":0.5,\"min-report-fraction\":0.6,"
                    "\"sampler\":{\"type\":\"available\",\"inverse-probability\":true}",
        LONG_ROUNDS ",\"over-selection\":1.4,\"min-report-fraction\":0.6", LONG_ROUNDS,
        LONG_ROUNDS};
    uint64_t mark = 0;
    draw = fedge_rng_stream(seed, FEDGE_PURPOSE_SAMPLE, 1, 2, 3);
    const uint32_t strategy = fedge_rng_below(&draw, 5);
    begin(ROUNDS_OF[strategy], STRATEGIES[strategy], NULL);
    open_run();
    fed_join_all(&fed, FED_DEVICES);
    while (!is_done() && !failure[0])
        happen(&mark);
    if (!failure[0])
        complete(5);
    char backup[96];
    backup_path(backup);
    assert_int_equal(fedge_os_remove_tree(backup, NULL), FEDGE_OK);
    if (failure[0])
        fail_msg("seed %llu: %s", (unsigned long long)seed, failure);
    fed_fini(&fed);
}

static void random_runs_hold(void **state)
{
    (void)state;
    const char *first = getenv("FEDGE_SEED"), *many = getenv("FEDGE_SEEDS");
    const uint64_t from = first ? strtoull(first, NULL, 10) : 1;
    const uint64_t num = many ? strtoull(many, NULL, 10) : 12;
    for (uint64_t seed = from; seed < from + num; seed++)
        random_run(seed);
    begin_average(); /* for tear_down */
}

/* A client whose task goes to another has missed it: its later updates weigh more. */
static void a_task_that_goes_to_another_is_missed(void **state)
{
    (void)state;
    fed_device *device = &fed.devices[0];
    bool declined = false;
    begin("\"num-server-rounds\":8,\"min-train-nodes\":3,\"min-available-nodes\":6,"
          "\"fraction-train\":0.67,"
          "\"sampler\":{\"type\":\"available\",\"inverse-probability\":true}",
          "\"type\":\"FedAvg\"", NULL);
    open_run();
    device->idle = true;
    fed_join_all(&fed, FED_DEVICES);
    while (!is_done()) {
        fed_step(&fed);
        if (!declined && device->num_tasks > 0) {
            fed_decline(device, true);
            fed_leave(&fed, 0);
            device->idle = false;
            fed_join(&fed, 0); /* as a client that was mended, which is drawn again */
            declined = true;
        }
    }
    complete(8);
    assert_string_equal(failure, "");
    assert_true(declined && device->num_acks > 0);
}

/* ---- what a wrong server would do ------------------------------------------------------------ */

static void must_fail(enum lie about, const char *why)
{
    lie = about;
    begin_average();
    run(4);
    print_message("%s\n", failure);
    assert_non_null(strstr(failure, why));
}

static void another_weight_is_detected(void **state)
{
    (void)state;
    must_fail(HALF_THE_EXAMPLES, "no set of updates makes model");
}

static void an_ack_comes_before_the_bytes(void **state)
{
    (void)state;
    must_fail(NO_PARTS, "is acknowledged: not all of its bytes were sent");
}

static void an_ack_comes_for_other_bytes(void **state)
{
    (void)state;
    must_fail(FLIPPED_BIT, "is acknowledged: not all of its bytes were sent");
}

static void an_ack_comes_before_the_sync(void **state)
{
    (void)state;
    unsynced = true;
    must_fail(TRUTH, "is acknowledged: its record is not synced");
}

static void must_see(const char *why)
{
    print_message("%s\n", failure);
    assert_non_null(strstr(failure, why));
    failure[0] = '\0';
}

/* Sends the oracle a TASK for a device, as from the server. [arrives] false: over a connection that
 * has ended. */
static void forge_sent(uint32_t device, uint64_t id, uint32_t round, const char *model,
                       bool arrives)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    static fedge_task task;
    task = fed.devices[0].task;
    task.task_id = id;
    task.round = round;
    snprintf(task.model, sizeof(task.model), "%s", model);
    MUST(fedge_task_pack(&task, frame, sizeof(frame), &size, ERR));
    fed.devices[device].task = task;
    oracle_server_sent(device, arrives, frame, size);
}

static void forge_task(uint32_t device, uint64_t id, uint32_t round, const char *model)
{
    forge_sent(device, id, round, model, true);
}

static void forge_ack(uint32_t device, uint64_t id)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    MUST(fedge_ack_pack(&(fedge_ack){.task_id = id}, frame, sizeof(frame), &size, ERR));
    oracle_server_sent(device, true, frame, size);
}

static void forge_update(uint32_t device)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    const fedge_upload *result = &fed.devices[device].result;
    fed.devices[device].welcome = fed.devices[0].welcome;
    fed_make_result(&fed.devices[device]);
    MUST(fedge_upload_pack(result, frame, sizeof(frame), &size, ERR));
    oracle_client_sent(device, frame, size);
    MUST(fedge_part_pack(&(fedge_position){.task_id = result->task_id}, fed.devices[device].bytes,
                         (uint32_t)result->size, frame, sizeof(frame), &size, ERR));
    oracle_client_sent(device, frame, size);
}

/* Device 5 trains for task [id], going on from what task [last] left. */
static void forge_training(uint64_t id, uint64_t last, const char *model)
{
    static const float none[PLAIN_MAX_VALUES];
    fed.devices[0].task.has_last_accepted = true;
    fed.devices[0].task.last_accepted = last;
    forge_task(5, id, 4, model);
    oracle_trained(5, id, none, none);
}

/* Device 5 announces a result, for which it had lost what it keeps. */
static void forge_loss(void)
{
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    static fedge_upload upload;
    fed_make_result(&fed.devices[5]);
    upload = fed.devices[5].result;
    upload.num_metrics = 1;
    upload.metrics[0].value = 1.0;
    snprintf(upload.metrics[0].name, sizeof(upload.metrics[0].name), "%s", FEDGE_CLIENT_STATE_LOST);
    MUST(fedge_upload_pack(&upload, frame, sizeof(frame), &size, ERR));
    oracle_client_sent(5, frame, size);
}

/* A device keeps what its newest training has left, and what that one went on from. */
static void a_device_goes_on_from_an_older_task(void **state)
{
    (void)state;
    uint8_t welcome[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    begin_average();
    must_hold(4);
    char model[FEDGE_HASH_TEXT];
    snprintf(model, sizeof(model), "%s", fed_status(&fed).model_hash);
    oracle_disk_damaged();
    MUST(fedge_welcome_pack(&fed.devices[0].welcome, welcome, sizeof(welcome), &size, ERR));
    fed.devices[5].welcome = fed.devices[0].welcome;
    oracle_server_sent(5, true, welcome, size);
    forge_training(900, 0, model);
    forge_training(901, 900, model);
    forge_loss();
    must_see("client 5 has lost its state of task 900");
    forge_training(902, 901, model);
    forge_loss();
    must_see("client 5 has lost its state of task 901");
    forge_training(903, 900, model); /* of which nothing is left since task 902 */
    forge_loss();
    assert_string_equal(failure, "");
}

static void wrong_messages_are_detected(void **state)
{
    (void)state;
    begin_average();
    must_hold(5);
    const fedge_task last = fed.devices[0].task;
    uint8_t welcome[FEDGE_MESSAGE_MAX_SIZE];
    size_t welcome_size = 0;
    MUST(fedge_welcome_pack(&fed.devices[0].welcome, welcome, sizeof(welcome), &welcome_size, ERR));
    char other[FEDGE_HASH_TEXT];
    memset(other, 'a', sizeof(other) - 1);
    other[sizeof(other) - 1] = '\0';
    const uint32_t device = last.round == 3 ? 0 : 1;
    forge_task(device, fed.devices[device].task.task_id, 3, last.model);
    must_see("again after it was acknowledged");
    forge_sent(device, 0, 3, last.model, false); /* by a rank that was hung */
    assert_string_equal(failure, "");
    forge_task(device, 900, 3, last.model);
    must_see("is asked to train for round 3 again");
    forge_task(device, 901, 2, last.model);
    must_see("is asked for round 2 after round 3");
    forge_task(3 - device, 900, 3, last.model);
    must_see("task id 900 is used for client");
    forge_task(device, 902, 4, other);
    must_see("names the model of round 3 aaaaaaaa");
    forge_ack(device, 999);
    must_see("which it never had");
    forge_ack(3 - device, 900);
    must_see("which it never had");
    oracle_server_sent(5, true, welcome, welcome_size);
    forge_task(5, 903, 3, last.model);
    assert_string_equal(failure, "");
    forge_update(5);
    assert_string_equal(failure, "");
    forge_ack(5, 903);
    must_see("is acknowledged, but does not count in round 3");
}

/* Gives rank 1's disk a number. */
static void number_disk(uint64_t disk)
{
    char path[128], text[32];
    const int size = snprintf(text, sizeof(text), "%016llx\n", (unsigned long long)disk);
    snprintf(path, sizeof(path), "%s.rank/disk", fed.state_dir);
    MUST(fedge_os_write_file(path, text, (size_t)size, 0600, ERR));
}

/* Puts the result of device 0 into the journal of rank 1, and its place into rank 0's. */
static void accept_elsewhere(uint64_t disk)
{
    const fed_device *device = &fed.devices[0];
    const fedge_upload *result = &device->result;
    fedge_journal *mine = NULL, *theirs = NULL;
    fedge_journal_task tasks[FED_DEVICES];
    uint32_t slot = 0;
    char dir[256], make[300], path[300];
    snprintf(path, sizeof(path), "%s/runs/%s/journal/round-000001-a0.fj", fed.state_dir,
             device->welcome.run_id);
    snprintf(dir, sizeof(dir), "%s.rank/ranks/%s/1", fed.state_dir, device->welcome.run_id);
    snprintf(make, sizeof(make), "mkdir -p %s", dir);
    assert_int_equal(system(make), 0);
    MUST(fedge_journal_recover(path, &mine, ERR));
    const fedge_journal_phase *phase = fedge_journal_get_phase(mine);
    for (uint32_t i = 0; i < phase->num_tasks; i++)
        tasks[i] = fedge_journal_get_slot(mine, i).task;
    MUST(fedge_journal_create(dir, phase, tasks, 0, &theirs, ERR));
    MUST(fedge_journal_find(theirs, result->task_id, &slot, ERR));
    MUST(fedge_journal_write(theirs, slot, result->task_id, 0, device->bytes, result->size, ERR));
    MUST(fedge_journal_accept(theirs, slot, result->task_id, result->size, result->crc32, "", 0,
                              ERR));
    const fedge_journal_slot facts = fedge_journal_get_slot(theirs, slot);
    const fedge_journal_location location = {.disk = disk, .rank = 1};
    MUST(fedge_journal_accept_elsewhere(mine, slot, &facts, &location, "", ERR));
    fedge_journal_free(mine);
    fedge_journal_free(theirs);
}

/* After the restore of a backup an update on another disk than rank 0's journal names may be of an
 * earlier acknowledgement, and is asked for again. */
static void a_named_update_is_on_another_disk(void **state)
{
    (void)state;
    char model[FEDGE_HASH_TEXT];
    begin_average();
    open_run();
    for (uint32_t i = 0; i < 4; i++)
        fed.devices[i].idle = true;
    fed_join_all(&fed, 4);
    while (fed.devices[0].num_tasks == 0)
        fed_step(&fed);
    fed_close(&fed);
    snprintf(model, sizeof(model), "%s", fed.devices[0].task.model);
    forge_update(0);
    accept_elsewhere(7);
    forge_ack(0, fed.devices[0].result.task_id);
    assert_string_equal(failure, "");
    number_disk(7);
    oracle_disks_missing(2, true);
    forge_task(0, 900, 1, model);
    must_see("client 0 is asked to train for round 1 again");
    number_disk(8);
    oracle_disks_missing(2, true);
    forge_task(0, 901, 1, model);
    assert_string_equal(failure, "");
}

static void wrong_files_are_detected(void **state)
{
    (void)state;
    begin_average();
    must_hold(4);
    fed_close(&fed); /* the last checkpoint is written */
    damaged = "round-000003/model";
    oracle_look();
    must_see("the checkpoint of round 3 has another model");
    damaged = "rounds.jsonl";
    oracle_look();
    must_see("rounds.jsonl has 5 clients in round 1");
}

/* Which updates an asynchronous round has is known from its journal alone. */
static void a_journal_is_lost(void **state)
{
    (void)state;
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        if (is_damaged)
            fed_fini(&fed);
        begin(ROUNDS, "\"type\":\"FedBuff\",\"buffer-size\":3", NULL);
        hidden = "journal/round-000002";
        if (is_damaged)
            oracle_disk_damaged();
        run(4);
        if (is_damaged)
            complete(3);
        else
            must_see("round 2: it has no journal that was closed");
        assert_string_equal(failure, "");
    }
}

/* A start repairs what a power failure has torn. */
static void a_line_is_torn(void **state)
{
    (void)state;
    begin_average();
    must_hold(4);
    torn = true;
    oracle_power_failed();
    oracle_look();
    assert_string_equal(failure, "");
    oracle_opened();
    must_see("rounds.jsonl has no line of the training of round 3");
}

static void a_round_has_no_line(void **state)
{
    (void)state;
    begin_average();
    must_hold(4);
    oracle_complete(fed_status(&fed).model_hash, 4);
    must_see("4 rounds have closed, and rounds.jsonl ends with the training of round 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_of_strategies_are_recomputed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_of_samplers_are_recomputed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_of_codecs_are_recomputed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_runs_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_task_that_goes_to_another_is_missed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_weight_is_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_comes_before_the_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_comes_for_other_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_comes_before_the_sync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_device_goes_on_from_an_older_task, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_messages_are_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_named_update_is_on_another_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_files_are_detected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_journal_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_is_torn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_round_has_no_line, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
