/* The oracle beside the real engine: what it computes itself is what the server makes, for every
 * strategy and codec that it models; and it sees what a wrong server would do. */
#include "tests/edge/core/cmocka_all.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/aggregator/run/federation.h"
#include "tests/world/disk.h"
#include "tests/world/oracle.h"
#include "tests/world/plain_codec.h"
#include "tests/world/scheduler.h"

#define ROUNDS "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"

static federation fed;

/* ---- the world, as far as the oracle knows it ------------------------------------------------ */

static char failure[512];
static char seen_path[256];

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

const uint8_t *world_disk_read(uint32_t node, const char *path, size_t *size)
{
    static uint8_t *content;
    char real[512];
    assert_int_equal(node, WORLD_SERVER);
    free(content);
    content = NULL;
    assert_memory_equal(path, WORLD_DISK_ROOT "/state", strlen(WORLD_DISK_ROOT "/state"));
    snprintf(real, sizeof(real), "%s%s", fed.state_dir, path + strlen(WORLD_DISK_ROOT "/state"));
    return fedge_os_read_file(real, 1 << 20, &content, size, NULL) == FEDGE_OK ? content : NULL;
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

/* The message as the oracle sees it where it is lied to about device 1. */
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

static void tell(uint32_t device, bool by_server, const uint8_t *frame, size_t size)
{
    static uint8_t told[FEDGE_MESSAGE_MAX_SIZE];
    fedge_message message;
    MUST(fedge_message_unpack(frame, size, &message, ERR));
    if (by_server) {
        oracle_server_sent(device, frame, size);
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
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    oracle_end();
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

static void run(uint32_t num_devices)
{
    fedge_error err;
    fed_open(&fed);
    oracle_look();
    fed_join_all(&fed, num_devices);
    fed_finish(&fed, &err);
    assert_string_equal(err.status == FEDGE_OK ? "" : err.message, "");
}

static void must_hold(uint32_t num_devices)
{
    run(num_devices);
    const fedge_run_status status = fed_status(&fed);
    assert_int_equal(status.rounds_closed, 3);
    oracle_complete(status.model_hash, status.rounds_closed);
    assert_string_equal(failure, "");
}

static void strategies_make_its_models(void **state)
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
        "\"type\":\"FedMedian\"",
        "\"type\":\"FedTrimmedAvg\",\"beta\":0.3",
        "\"type\":\"Krum\",\"num-malicious-nodes\":0",
        "\"type\":\"MultiKrum\",\"num-malicious-nodes\":0,\"num-nodes-to-keep\":2",
        "\"type\":\"QFedAvg\"",
        "\"type\":\"FedBN\"",
        "\"type\":\"Ditto\",\"lambda\":0.1",
        "\"type\":\"FedBuff\",\"buffer-size\":3",
        "\"type\":\"FedBuff\",\"buffer-size\":2,\"staleness-weight\":\"hinge\",\"hinge-delay\":0",
        "\"type\":\"FedAsync\"",
    };
    for (size_t i = 0; i < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); i++) {
        print_message("%s\n", STRATEGIES[i]);
        if (i > 0)
            fed_fini(&fed);
        begin(ROUNDS, STRATEGIES[i], NULL);
        must_hold(4);
    }
}

static void codecs_make_its_models(void **state)
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
    }
}

/* ---- what a wrong server would do ------------------------------------------------------------ */

static void must_fail(enum lie about, const char *why)
{
    lie = about;
    begin(ROUNDS, "\"type\":\"FedAvg\"", NULL);
    run(4);
    print_message("%s\n", failure);
    assert_non_null(strstr(failure, why));
}

static void an_update_counts_twice(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(strategies_make_its_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(codecs_make_its_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_update_counts_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_comes_before_the_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_ack_comes_for_other_bytes, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
