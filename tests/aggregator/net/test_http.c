#define _GNU_SOURCE /* strtok_r */

#include "tests/edge/core/cmocka_all.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/net/http.h"
#include "edge/core/version.h"

static fedge_http_answer answer;

static fedge_http_facts some_facts(void)
{
    fedge_http_facts facts = {.connections = 3,
                              .num_threads = 2,
                              .thread_connections = {2, 1},
                              .devices = 4,
                              .connections_refused = 5,
                              .uptime_seconds = 1.5,
                              .cpu_seconds = 0.25,
                              .resident_bytes = 12345678};
    facts.run = (fedge_run_status){.healthy = true,
                                   .round = 2,
                                   .rounds_closed = 1,
                                   .num_server_rounds = 10,
                                   .connected = 3,
                                   .incarnation = 1,
                                   .updates_accepted = UINT64_MAX,
                                   .bytes_up = 1000,
                                   .seconds_validate = 0.5,
                                   .accuracy = NAN,
                                   .loss = 0.75};
    snprintf(facts.run.state, sizeof(facts.run.state), "round 2: \"1\" of 3");
    snprintf(facts.run.run_id, sizeof(facts.run.run_id), "abc");
    return facts;
}

static void get(const char *path, const fedge_http_facts *facts)
{
    fedge_error err;
    assert_int_equal(fedge_http_answer_make(true, path, facts, &answer, &err), FEDGE_OK);
    assert_int_equal(answer.size, strlen(answer.body));
    assert_true(answer.size > 0 && answer.body[answer.size - 1] == '\n');
}

static void health(void **state)
{
    (void)state;
    fedge_http_facts facts = some_facts();
    get("/healthz", &facts);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.type, "application/json");
    assert_non_null(strstr(answer.body, "\"status\":\"ok\""));
    assert_non_null(strstr(answer.body, "\"state\":\"round 2: \\\"1\\\" of 3\""));
    assert_non_null(strstr(answer.body, "\"round\":2"));
    facts.run.healthy = false;
    get("/healthz", &facts);
    assert_int_equal(answer.status, 503);
    assert_non_null(strstr(answer.body, "\"status\":\"failed\""));
}

static void assert_has(const char *line)
{
    char whole[160];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (!strstr(answer.body, whole))
        fail_msg("no line '%s' in:\n%s", line, answer.body);
}

static void metrics(void **state)
{
    (void)state;
    fedge_http_facts facts = some_facts();
    get("/metrics", &facts);
    assert_int_equal(answer.status, 200);
    assert_non_null(strstr(answer.type, "version=0.0.4"));
    assert_has("fedge_thread_connections{thread=\"0\"} 2");
    assert_has("fedge_thread_connections{thread=\"1\"} 1");
    assert_has("fedge_round 2");
    assert_has("fedge_connections 3");
    assert_has("fedge_connections_refused_total 5");
    assert_has("fedge_updates_accepted_total 18446744073709551615");
    assert_has("fedge_bytes_received_total 1000");
    assert_has("fedge_stage_seconds_total{stage=\"validate\"} 0.500000");
    assert_has("fedge_test_accuracy_ratio NaN");
    assert_has("fedge_test_loss 0.75");
    assert_has("process_cpu_seconds_total 0.250000");
    assert_has("process_resident_memory_bytes 12345678");
    assert_has("fedge_info{release=\"" FEDGE_VERSION "\",run_id=\"abc\"} 1");
}

/* Every sample follows its own HELP and TYPE, each given once; counters end in _total. */
static void metrics_are_well_formed(void **state)
{
    (void)state;
    fedge_http_facts facts = some_facts();
    get("/metrics", &facts);
    char name[80] = "";
    char type[16] = "";
    int samples = 0;
    char *rest = NULL;
    for (char *line = strtok_r(answer.body, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char found[80];
        double value = 0;
        if (sscanf(line, "# HELP %79s", found) == 1) {
            assert_string_not_equal(found, name);
            snprintf(name, sizeof(name), "%s", found);
            type[0] = '\0';
        } else if (sscanf(line, "# TYPE %79s %15s", found, type) == 2) {
            assert_string_equal(found, name);
        } else {
            assert_int_equal(sscanf(line, "%79[a-z_]%*[^ ] %lf", found, &value) == 2 ||
                                 sscanf(line, "%79[a-z_] %lf", found, &value) == 2,
                             1);
            assert_string_equal(found, name);
            size_t length = strlen(name);
            bool total = length > 6 && strcmp(name + length - 6, "_total") == 0;
            assert_string_equal(type, total ? "counter" : "gauge");
            samples++;
        }
    }
    assert_true(samples >= 25);
}

static void anything_else(void **state)
{
    (void)state;
    fedge_http_facts facts = some_facts();
    const char *const paths[] = {"/", "", "/healthz/", "/metrics2", "/admin/v1"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        get(paths[i], &facts);
        assert_int_equal(answer.status, 404);
    }
    fedge_error err;
    assert_int_equal(fedge_http_answer_make(false, "/metrics", &facts, &answer, &err), FEDGE_OK);
    assert_int_equal(answer.status, 405);
    assert_int_equal(fedge_http_answer_make(false, "/nothing", &facts, &answer, &err), FEDGE_OK);
    assert_int_equal(answer.status, 404);
}

static void hosts(void **state)
{
    (void)state;
    const char *const good[] = {"127.0.0.1",      "127.0.0.1:9093",  "10.0.0.7:1", "localhost",
                                "LocalHost:9093", "[::1]",           "[::1]:9093", "[fe80::1]:80",
                                "box.example",    "Box.Example:9093"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(fedge_http_host_allowed(good[i], "box.example"));
    const char *const bad[] = {"",
                               ":",
                               ":9093",
                               "[]",
                               "[]:1",
                               "evil.example",
                               "evil.example:9093",
                               "localhost.evil.example",
                               "127.0.0.1.evil.example",
                               "127.0.0.1x",
                               "127.0.0.1:x",
                               "[::1",
                               "::1",
                               "[127.0.0.1]",
                               "[localhost]",
                               "localhost,evil",
                               "127.0.0.1, evil",
                               "xbox.example",
                               "1234",
                               "127.0.0.1:9093:9093"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fedge_http_host_allowed(bad[i], "box.example"));
    char vast[2000];
    memset(vast, '1', sizeof(vast) - 1);
    vast[sizeof(vast) - 1] = '\0';
    assert_false(fedge_http_host_allowed(vast, NULL));
    assert_false(fedge_http_host_allowed("box.example", NULL));
}

static void hosts_are_well_formed(void **state)
{
    (void)state;
    const char *const good[] = {"localhost", "a.b-c_d.example:1", "127.0.0.1:65535",
                                "[::1]",     "[fe80::1]:9092",    "x%41.example"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(fedge_http_host_valid(good[i]));
    const char *const bad[] = {"",
                               ":",
                               ":9092",
                               "a b",
                               "a,b",
                               "a/b",
                               "user@host",
                               "a:",
                               "a:x",
                               "a:65536",
                               "a:123456",
                               "a:1:2",
                               "::1",
                               "[::1",
                               "[::1]x",
                               "[::1]:",
                               "[::1]:70000",
                               "[]",
                               "[a]",
                               "[127.0.0.1]",
                               "localhost:9093, localhost",
                               "\xff.example",
                               "a\t"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(fedge_http_host_valid(bad[i]));
}

/* As many GPUs as there may be fit in an answer, each with its numbers; without any, none. */
static void gpus_have_their_metrics(void **state)
{
    (void)state;
    fedge_http_facts facts = some_facts();
    snprintf(facts.run.accumulator, sizeof(facts.run.accumulator), "cuda");
    get("/metrics", &facts);
    assert_non_null(strstr(answer.body, "fedge_accumulator_info{kind=\"cuda\"} 1\n"));
    assert_null(strstr(answer.body, "fedge_gpu_"));
    facts.run.num_gpus = FEDGE_ACCUMULATOR_MAX_GPUS;
    for (uint32_t i = 0; i < facts.run.num_gpus; i++) {
        facts.run.gpus[i] = (fedge_gpu_stats){.gpu = 100 + i,
                                              .memory_bytes = UINT64_MAX - i,
                                              .decoded_bytes = UINT64_MAX,
                                              .seconds_copy = 1e9 + 0.125,
                                              .seconds_decode = 2e9,
                                              .seconds_reduce = 3e9,
                                              .seconds_step = 4e9 + i};
    }
    get("/metrics", &facts);
    assert_non_null(
        strstr(answer.body, "fedge_gpu_memory_bytes{gpu=\"163\"} 18446744073709551552\n"));
    assert_non_null(strstr(answer.body, "fedge_gpu_decoded_bytes_total{gpu=\"101\"} "));
    const char *times[] = {
        "102\",work=\"copy\"} 1000000000.125000\n", "102\",work=\"decode\"} 2000000000.000000\n",
        "102\",work=\"reduce\"} 3000000000.000000\n", "163\",work=\"step\"} 4000000063.000000\n"};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        const char *found = strstr(answer.body, times[i]);
        const char head[] = "fedge_gpu_seconds_total{gpu=\"";
        assert_true(found && strncmp(found - (sizeof(head) - 1), head, sizeof(head) - 1) == 0);
    }
    assert_non_null(strstr(answer.body, "process_resident_memory_bytes 12345678\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health),
        cmocka_unit_test(metrics),
        cmocka_unit_test(metrics_are_well_formed),
        cmocka_unit_test(anything_else),
        cmocka_unit_test(hosts),
        cmocka_unit_test(hosts_are_well_formed),
        cmocka_unit_test(gpus_have_their_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
