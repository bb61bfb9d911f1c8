/* A client that only moves bytes, for federation.sh: its trainer changes every value by a little
 * and random amount. The job's model is external.
 *
 *   bench_exchange_fedge SERVER IDENTITY-DIR TRUST-DIR STATE-DIR SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/fedge_client.h"

/* Marsaglia's xorshift: quick, and nothing that deflates. */
static uint32_t next(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err)
{
    uint32_t state = *(const uint32_t *)user * 2654435761u + task->round + 1;
    (void)client, (void)err;
    for (size_t i = 0; i < task->plan->schema->num_elements; i++)
        values[i] += (float)(int32_t)next(&state) * 0x1p-36f;
    report->num_examples = 1;
    return FEDGE_OK;
}

static void write_line(void *user, const char *line, size_t size)
{
    (void)user;
    fwrite(line, 1, size, stderr);
}

int main(int argc, char **argv)
{
    fedge_error err;
    fedge_client *client;
    if (argc != 6) {
        fprintf(stderr, "usage: bench_exchange_fedge SERVER IDENTITY TRUST STATE SEED\n");
        return FEDGE_EXIT_USAGE;
    }
    uint32_t seed = (uint32_t)strtoul(argv[5], NULL, 10);
    const fedge_log log = {.level = FEDGE_LOG_INFO, .json = true, .write = write_line};
    const fedge_client_callbacks callbacks = {
        .struct_size = sizeof(callbacks), .user = &seed, .train = train};
    const fedge_client_config config = {.struct_size = sizeof(config),
                                        .server = argv[1],
                                        .identity_dir = argv[2],
                                        .trust_dir = argv[3],
                                        .state_dir = argv[4],
                                        .log = &log};
    fedge_status status = fedge_client_new(&config, &callbacks, &client, &err);
    if (status) {
        fprintf(stderr, "bench_exchange_fedge: %s\n", err.message);
        return (int)fedge_client_exit_code(status);
    }
    fedge_exit exit_code = fedge_client_run(client, &err);
    fedge_client_free(client);
    return (int)exit_code;
}
