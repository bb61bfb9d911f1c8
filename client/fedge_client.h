/* libfedge_client: take part in federated training with a trainer of your own.
 *
 *   static fedge_status train(void *user, fedge_client *client, const fedge_client_task *task,
 *                             float *values, fedge_client_report *report, fedge_error *err)
 *   {
 *       my_training(values, task->plan->schema->num_elements); // from the global model, in place
 *       report->num_examples = 1000; // the weight of this device in the average
 *       return fedge_client_metric(report, "loss", 0.3, err);
 *   }
 *
 *   fedge_client_callbacks callbacks = {.struct_size = sizeof(callbacks), .train = train};
 *   fedge_client_config config = {.struct_size = sizeof(config), .server = "wss://host:9092",
 *                                 .identity_dir = "identity", .trust_dir = "trust"};
 *   fedge_client *client;
 *   if (fedge_client_new(&config, &callbacks, &client, &err) == FEDGE_OK)
 *       exit_code = fedge_client_run(client, &err);
 *   fedge_client_free(client);
 *
 * examples/own_trainer is the whole of it. The library connects, reconnects, fetches the plan and
 * the model, calls the trainer, computes w_end − w_start, encodes, stores and uploads it, and
 * resumes all of that after a crash. It never prints and never exits. A process may run several
 * clients: each on its own thread, with its own state_dir, and created and freed one at a time.
 *
 * In a process that fedge-simulate --trainer has started (the environment variable FEDGE_SIMULATOR
 * is set) the same program serves virtual clients: [server], the identity and [state_dir] are not
 * used, run_id is 32 zeros, a task has num_clients, and fedge_client_put and fedge_client_get keep
 * the values of each virtual client. Callbacks are called on fedge_client_run's thread; cancel is
 * not called, but fedge_client_cancelled turns true.
 *
 * Threads: fedge_client_run is the thread of the network. plan, train, evaluate and loss are called
 * on one thread of the library's own, one call at a time, and may take as long as they like; cancel
 * is called on the network's thread while one of them runs.
 */
#ifndef FEDGE_CLIENT_FEDGE_CLIENT_H
#define FEDGE_CLIENT_FEDGE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/exit_codes.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/core/version.h"

#define FEDGE_CLIENT_MAX_METRICS 48 /* a trainer's metrics; the library adds others */
#define FEDGE_CLIENT_MAX_METRIC_NAME 64

typedef struct fedge_client fedge_client;
struct fedge_plan; /* edge/plan/plan.h: for programs in fedge's tree */
struct fedge_site; /* fedge_client_site_load */
struct fedge_job;  /* fedge_client_job_parse */

/* The job as a trainer sees it. Valid until the next call of the callback plan, or
 * fedge_client_free. */
typedef struct fedge_client_plan {
    const char *name;   /* job's name */
    const char *run_id; /* id of this run of the job: 32 hex digits */
    bool external;      /* the trainer defines the model; only its tensors are known */
    const fedge_schema *schema;
    uint64_t seed;
    uint32_t local_epochs, local_steps; /* used if steps is 0 */
    uint32_t batch_size;
    float momentum, weight_decay;
    const struct fedge_plan *full; /* the whole plan, for fedge's trainer */
    const char *config;            /* the job's "config", a JSON object; "{}": none */
    size_t num_parameters;         /* values that are trained, before the statistics */
} fedge_client_plan;

/* A tensor of the model in its own type. */
typedef struct fedge_client_tensor {
    const fedge_tensor_spec *spec; /* name, dtype, shape, count, whether it is frozen */
    void *data;                    /* (spec->count) of spec->dtype, row-major and aligned */
} fedge_client_tensor;

/* One training or evaluation. */
typedef struct fedge_client_task {
    uint64_t task_id;
    uint32_t round;        /* round number, from 1 */
    uint32_t client_index; /* this device's index in the server's registry */
    double learning_rate;  /* rate of this round */
    uint64_t deadline_ms;  /* time limit from the task's arrival; a later result may not count */
    const fedge_client_plan *plan;
    const float *correction; /* (plan->num_parameters): added to each parameter's gradient, in
                                schema order, such as SCAFFOLD's c − c_i; NULL: none */
    /* For fedge's trainer; NULL for others. */
    float *personal;      /* personal part of the model */
    const float *others;  /* further models, from which the trainer selects one */
    uint32_t num_clients; /* in a simulation: the number of virtual clients, of which this is
                             client_index; on a device 0 */
    /* What the strategy wants of a trainer, besides [correction]. The trainer heeds all of it by a
     * call of fedge_client_correct between gradient and step, or in its own way; then it sets
     * report->corrected. */
    float proximal_mu; /* μ: every gradient gets μ · (values − anchor) (FedProx, FedDyn, Ditto) */
    const float *anchor; /* (schema->num_elements): the model to stay near; NULL where μ is 0 and
                            all tensors are trained */
    const bool *trained; /* (schema->num_tensors): false where this call is to leave a tensor as it
                            is (FedRep); NULL: all are trained */
    bool personal_model; /* [values] are this device's own model (Ditto), which is trained in a
                            call of its own before the server's; this report is dropped */
    const fedge_client_tensor *tensors; /* (schema->num_tensors), if the callbacks have
                                           typed_tensors; else NULL */
} fedge_client_task;

typedef struct fedge_client_metric_value {
    char name[FEDGE_CLIENT_MAX_METRIC_NAME];
    double value;
} fedge_client_metric_value;

/* A trainer's report of its work. The library zeroes it before the call. */
typedef struct fedge_client_report {
    uint64_t num_examples; /* ≥ 1: the weight in the average */
    uint32_t num_metrics;
    fedge_client_metric_value metrics[FEDGE_CLIENT_MAX_METRICS];
    uint64_t num_steps; /* optimizer steps: needed by SCAFFOLD and FedNova */
    uint32_t chosen;    /* with [others]: index of the trained model; 0: the task's */
    bool corrected;     /* the trainer has heeded correction, proximal_mu and trained */
} fedge_client_report;

/* Makes the gradient of a step what the strategy wants: adds task->correction and
 * proximal_mu · (values − anchor), and sets the gradient of tensors that are not trained to 0.
 * values, gradients: (plan->num_parameters), in schema order. Sets report->corrected. Cheap where
 * there is nothing to do, so every trainer may call it. */
void fedge_client_correct(const fedge_client_task *task, const float *values, float *gradients,
                          fedge_client_report *report);

/* Adds a metric; "loss" and "accuracy" are means over the examples. FEDGE_NOT_FINITE;
 * FEDGE_TOO_BIG: too many, or too long a name. */
FEDGE_MUST_USE fedge_status fedge_client_metric(fedge_client_report *report, const char *name,
                                                double value, fedge_error *err);

/* The trainer. Set struct_size to sizeof(fedge_client_callbacks): later releases add at the end. */
typedef struct fedge_client_callbacks {
    size_t struct_size;
    void *user;
    /* Prepares for a plan, e.g. allocates memory. May be NULL. FEDGE_UNSUPPORTED,
     * FEDGE_DENIED or FEDGE_NOT_FOUND (of data) declines the job, with the message as the reason;
     * the client then ends with FEDGE_EXIT_DECLINED. */
    fedge_status (*plan)(void *user, fedge_client *client, const fedge_client_plan *plan,
                         fedge_error *err);
    /* Train [values], schema->num_elements floats (parameters, then statistics; edge/core/tensor.h
     * has the layout of other types): the global model on entry, the trained one on return. Any
     * failure declines this task only. Return FEDGE_CANCELLED soon after fedge_client_cancelled
     * turns true. */
    fedge_status (*train)(void *user, fedge_client *client, const fedge_client_task *task,
                          float *values, fedge_client_report *report, fedge_error *err);
    /* Evaluate [values] on this device's held-out examples; "loss" and "accuracy" must be reported.
     * NULL: such tasks are declined. */
    fedge_status (*evaluate)(void *user, fedge_client *client, const fedge_client_task *task,
                             const float *values, fedge_client_report *report, fedge_error *err);
    /* The running callback should end. May be NULL: fedge_client_cancelled reports it, too. */
    void (*cancel)(void *user, fedge_client *client);
    /* Declines a plan as [plan] does, but before the library makes the job's initial model, for
     * which a device that lacks the data has no use. Called before each [plan]. May be NULL. */
    fedge_status (*check)(void *user, fedge_client *client, const fedge_client_plan *plan,
                          fedge_error *err);
    /* The mean loss of [values] on this device's training examples. QFedAvg reports it, and IFCA
     * trains (or evaluates) the model that has the least; NULL: jobs with these strategies are
     * declined. A loss that is not finite says that the model is not to be chosen.
     */
    fedge_status (*loss)(void *user, fedge_client *client, const fedge_client_task *task,
                         const float *values, double *loss, fedge_error *err);
    bool heeds_plan; /* true: fedge's own trainer, which does what plan->full says */
    /* Tasks have [tensors], which the callbacks use instead of [values]. Data of FEDGE_F32 are
     * those in [values]; of other types they are copies, which the library takes back after train.
     * Changes of frozen tensors are dropped. Builds with FEDGE_SMALL ignore this. */
    bool typed_tensors;
} fedge_client_callbacks;

/* Set struct_size to sizeof(fedge_client_config). 0 and NULL mean the default. Texts are copied;
 * [site] and [log] must outlive the client. */
typedef struct fedge_client_config {
    size_t struct_size;
    const char *server;            /* wss://HOST[:9092], or several with commas between: the device
                                      id chooses the first, and the next is tried when one fails */
    const char *identity_dir;      /* key.pem, chain.pem */
    const char *trust_dir;         /* roots, *.pem */
    const char *state_dir;         /* NULL: in memory, nothing outlives the process */
    const struct fedge_site *site; /* policy and names of data sets; NULL: no policy */
    const fedge_log *log;          /* NULL: silence */
    uint64_t backoff_base_ms;      /* 500: a reconnect waits uniformly in [0, base · 2^n] */
    uint64_t backoff_cap_ms;       /* 60,000: the longest such wait */
    uint64_t progress_timeout_ms;  /* 60,000: a link without progress is dropped */
    uint64_t max_store_bytes;      /* 8 GiB: the limit of each blob, result and value */
    uint64_t stop_grace_ms;        /* 500: how long a stopped client waits for its trainer */
    const char *seed_blob;         /* a model's file, used in place of a download; NULL: none */
    const char *proxy; /* http://HOST:PORT; "": none; NULL: by https_proxy and no_proxy */
} fedge_client_config;

/* Loads the client's file (docs/reference/client-file.md): the names of this device's data sets,
 * which HELLO reports to the server, and the policy that every plan must meet. FEDGE_NOT_FOUND, or
 * the status of the first fault in it. Free it after the client. */
FEDGE_MUST_USE fedge_status fedge_client_site_load(const char *path, struct fedge_site **site,
                                                   fedge_error *err);
void fedge_client_site_free(struct fedge_site *site); /* NULL is fine */
/* Its "servers", one a line, as fedge_client_config.server takes them; "": none. Valid as long as
 * the site. */
const char *fedge_client_site_servers(const struct fedge_site *site);
/* Whether its policy has "show-errors": texts of the trainer's failures that may quote data may be
 * shown to the server. */
bool fedge_client_site_shows_errors(const struct fedge_site *site);

/* Loads the identity, opens the state. After a failure fedge_client_exit_code gives the exit code
 * for its status. FEDGE_INVALID_ARGUMENT: struct_size, no train, a bad server address. */
FEDGE_MUST_USE fedge_status fedge_client_new(const fedge_client_config *config,
                                             const fedge_client_callbacks *callbacks,
                                             fedge_client **client, fedge_error *err);

/* Takes part until the run is complete, the server refuses for good, or fedge_client_stop. The
 * exit code says which, [err] why. Returns within stop_grace_ms of the end even when the trainer
 * is still busy: see fedge_client_busy. */
FEDGE_MUST_USE fedge_exit fedge_client_run(fedge_client *client, fedge_error *err);

/* Makes fedge_client_run say goodbye and return FEDGE_EXIT_OK. From any thread, and from signal
 * handlers. */
void fedge_client_stop(fedge_client *client);

/* True while a callback has not returned. After run: fedge_client_free would wait for it; a
 * program may rather exit, as the state survives that. */
bool fedge_client_busy(fedge_client *client);

void fedge_client_free(fedge_client *client); /* NULL is fine */

/* --- for callbacks --- */

/* True when the work under way should end with FEDGE_CANCELLED. Cheap; any thread. */
bool fedge_client_cancelled(fedge_client *client);
/* Stores a value of the trainer (residuals, say) until another run or incarnation begins. Keys: 1
 * to 64 letters, digits, "-", "_", "."; at most 64 of them; those of the library begin with
 * "fedge-". */
FEDGE_MUST_USE fedge_status fedge_client_put(fedge_client *client, const char *key,
                                             const void *data, size_t size, fedge_error *err);
/* Reads such a value; the caller frees *data. FEDGE_NOT_FOUND; FEDGE_CORRUPT: the disk has damaged
 * it, and it was removed. */
FEDGE_MUST_USE fedge_status fedge_client_get(fedge_client *client, const char *key, void **data,
                                             size_t *size, fedge_error *err);
/* The log of the configuration, for the trainer's events. */
const fedge_log *fedge_client_log(const fedge_client *client);

/* The exit code for a failure of fedge_client_new with this status. */
fedge_exit fedge_client_exit_code(fedge_status status);

/* --- for programs that write jobs --- */

/* Reads a job as an aggregator does, except for its strategy's arguments and the files that it
 * names. The status of the first fault in it, with a message that says what to change. */
FEDGE_MUST_USE fedge_status fedge_client_job_parse(const char *text, size_t size,
                                                   struct fedge_job **job, fedge_error *err);
/* The tensors of its model: parameters, then statistics. Valid as long as the job. */
const fedge_schema *fedge_client_job_schema(const struct fedge_job *job);
void fedge_client_job_free(struct fedge_job *job); /* NULL is fine */

#endif
