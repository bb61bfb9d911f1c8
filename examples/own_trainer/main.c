/* A device with an external trainer: linear regression on measurements that never leave it.
 *
 * The job's model is external (job.json): fedge knows the names and shapes of its tensors and
 * nothing else. This file shows all that a trainer must do; the library does the rest.
 *
 *   own-trainer SERVER IDENTITY-DIR TRUST-DIR DEVICE-NUMBER
 *
 * Simulated, 100 devices in two processes:
 *
 *   fedge-simulate --job job.json --clients 100 --threads 2 --trainer "own-trainer - - - 0"
 */
#define _POSIX_C_SOURCE 200809L /* sigaction */
#include <fedge/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define NUM_EXAMPLES 256
#define NUM_INPUTS 4

/* y = 1 x0 − 2 x1 + 3 x2 − 4 x3 + 0.5; each device has another part of the space. */
static const float truth[NUM_INPUTS] = {1, -2, 3, -4};
static const float truth_bias = 0.5f;

typedef struct sensor {
    float x[NUM_EXAMPLES][NUM_INPUTS], y[NUM_EXAMPLES];
} sensor;

/* For the signal handler, which gets no argument. */
static fedge_client *running;

static void measure(sensor *s, unsigned device)
{
    srand(device + 1);
    for (int i = 0; i < NUM_EXAMPLES; i++) {
        s->y[i] = truth_bias;
        for (int k = 0; k < NUM_INPUTS; k++) {
            s->x[i][k] = (float)rand() / (float)RAND_MAX + (float)(device % 3);
            s->y[i] += truth[k] * s->x[i][k];
        }
    }
}

/* The error of one example; values: the weights, then the bias, in the job's order. */
static float error_of(const sensor *s, const float *values, int i)
{
    float y = values[NUM_INPUTS];
    for (int k = 0; k < NUM_INPUTS; k++)
        y += values[k] * s->x[i][k];
    return y - s->y[i];
}

static double mean_square(const sensor *s, const float *values)
{
    double sum = 0;
    for (int i = 0; i < NUM_EXAMPLES; i++)
        sum += (double)error_of(s, values, i) * (double)error_of(s, values, i);
    return sum / NUM_EXAMPLES;
}

/* Accepts only models of the shape that this trainer knows. */
static fedge_status plan(void *user, fedge_client *client, const fedge_client_plan *plan_in,
                         fedge_error *err)
{
    (void)user;
    (void)client;
    if (!plan_in->external || plan_in->schema->num_elements != NUM_INPUTS + 1) {
        return fedge_fail(err, FEDGE_UNSUPPORTED, "this trainer fits %d weights and a bias",
                          NUM_INPUTS);
    }
    return FEDGE_OK;
}

static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err)
{
    sensor *s = user;
    /* In a simulation this process is each of the devices in turn. */
    if (task->num_clients > 0)
        measure(s, task->client_index);
    float rate = (float)task->learning_rate;
    uint32_t epochs = task->plan->local_epochs ? task->plan->local_epochs : 1;
    for (uint32_t epoch = 0; epoch < epochs; epoch++) {
        if (fedge_client_cancelled(client))
            return fedge_fail(err, FEDGE_CANCELLED, "cancelled in epoch %u", epoch);
        for (int i = 0; i < NUM_EXAMPLES; i++) {
            float e = error_of(s, values, i);
            for (int k = 0; k < NUM_INPUTS; k++)
                values[k] -= rate * e * s->x[i][k];
            values[NUM_INPUTS] -= rate * e;
        }
    }
    report->num_examples = NUM_EXAMPLES;
    return fedge_client_metric(report, "loss", mean_square(s, values), err);
}

static fedge_status evaluate(void *user, fedge_client *client, const fedge_client_task *task,
                             const float *values, fedge_client_report *report, fedge_error *err)
{
    (void)client;
    sensor *s = user;
    if (task->num_clients > 0)
        measure(s, task->client_index);
    int right = 0; /* regression has no accuracy: report the fraction of nearly right results */
    for (int i = 0; i < NUM_EXAMPLES; i++)
        right += error_of(s, values, i) * error_of(s, values, i) < 0.01f;
    report->num_examples = NUM_EXAMPLES;
    const fedge_status status = fedge_client_metric(report, "loss", mean_square(s, values), err);
    return status ? status
                  : fedge_client_metric(report, "accuracy", (double)right / NUM_EXAMPLES, err);
}

static void on_signal(int signal_number)
{
    (void)signal_number;
    fedge_client_stop(running);
}

static void write_line(void *user, const char *line, size_t size)
{
    (void)user;
    fwrite(line, 1, size, stderr);
}

int main(int argc, char **argv)
{
    static sensor data;
    fedge_error err;
    if (argc != 5) {
        fprintf(stderr,
                "usage: own-trainer wss://HOST:PORT IDENTITY-DIR TRUST-DIR DEVICE-NUMBER\n");
        return FEDGE_EXIT_USAGE;
    }
    measure(&data, (unsigned)strtoul(argv[4], NULL, 10));
    const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_line};
    const fedge_client_callbacks callbacks = {.struct_size = sizeof(callbacks),
                                              .user = &data,
                                              .plan = plan,
                                              .train = train,
                                              .evaluate = evaluate};
    const fedge_client_config config = {.struct_size = sizeof(config),
                                        .server = argv[1],
                                        .identity_dir = argv[2],
                                        .trust_dir = argv[3],
                                        .log = &log};
    fedge_status status = fedge_client_new(&config, &callbacks, &running, &err);
    if (status != FEDGE_OK) {
        fprintf(stderr, "own-trainer: %s\n", err.message);
        return (int)fedge_client_exit_code(status);
    }
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    fedge_exit exit_code = fedge_client_run(running, &err);
    fprintf(stderr, "own-trainer: %s\n", err.message);
    fedge_client_free(running);
    return (int)exit_code;
}
