/* Training backends: they do the work of virtual clients, on this machine's threads or GPUs.
 *
 * A backend is made for a job's plan and its data. It trains clients from the current global model,
 * adds their updates to the sums of the model's accumulator, and evaluates the model. A task's
 * result does not depend on its thread or GPU, and sums are of integers, so nothing depends on
 * their number. A backend is one entry of a table; nothing else in the tree knows its name.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINING_BACKEND_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINING_BACKEND_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/simulate/cohort/client_data.h"
#include "aggregator/simulate/cohort/client_states.h"
#include "aggregator/simulate/cohort/trainer_values.h"
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/train/trainer.h"

#define FEDGE_SIM_BACKEND_MAX_DESCRIPTION FEDGE_ACCUMULATOR_MAX_DESCRIPTION /* bytes */
#define FEDGE_SIM_BACKEND_MAX_THREADS FEDGE_ACCUMULATOR_MAX_LANES

typedef enum fedge_sim_backend_work {
    FEDGE_SIM_BACKEND_TRAIN,    /* train a client and add its update to the sums */
    FEDGE_SIM_BACKEND_EVALUATE, /* evaluate the global model on a client's held-out examples */
    FEDGE_SIM_BACKEND_TEST      /* evaluate the global model on any examples, as the server does */
} fedge_sim_backend_work;

/* A task and its result. Plain data. */
typedef struct fedge_sim_backend_task {
    fedge_sim_backend_work work;
    uint32_t client;    /* TRAIN, EVALUATE; TEST of its personal model */
    fedge_view view;    /* TEST: at most fedge_sim_backend_config.max_evaluated examples */
    int32_t *predicted; /* TEST: (view.count): the class of each; NULL: not wanted */
    bool may_stop;      /* TEST: FEDGE_CANCELLED when [cancel] says so */
    bool personal;      /* EVALUATE and TEST: use the client's model, where the plan is personal */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* the reason of a failure */
    fedge_trainer_result result;
    uint32_t round;           /* TRAIN: the round in which the client began; 0: the current one */
    const float *start;       /* TRAIN: the model to start from; NULL: the global one */
    fedge_update_facts facts; /* TRAIN: round is given; the backend sets the rest */
    uint32_t update_index;    /* TRAIN: index of the stored update, where the strategy collects */
    uint64_t bytes_up;        /* TRAIN: size of the update as it would be sent */
    uint64_t clamped;
    double seconds; /* elapsed time on its thread */
    uint64_t task_id;
    /* Of a trainer of one's own: the means that it reported, NaN where it did not; the result has
     * its numbers of examples and steps alone. */
    bool has_means;
    double loss, accuracy;
} fedge_sim_backend_task;

struct fedge_trainers; /* aggregator/simulate/cohort/trainer_process.h */

/* State shared by the backends of concurrent runs. A backend sets it. */
typedef struct fedge_sim_shared {
    uint32_t max_runs;     /* runs at a time */
    pthread_mutex_t mutex; /* guards the fields below */
    void *state;           /* NULL: none yet */
    void (*close)(void *state);
} fedge_sim_shared;

void fedge_sim_shared_init(fedge_sim_shared *shared, uint32_t max_runs);
void fedge_sim_shared_fini(fedge_sim_shared *shared); /* Call it after all backends are closed. */

typedef struct fedge_sim_backend_config {
    const fedge_job *job;
    const fedge_client_data *client_data;
    const fedge_dataset *test_set;         /* examples for TEST besides [client_data]; NULL: none */
    fedge_global_model *global;            /* its accumulator has at least num_threads lanes */
    uint32_t max_evaluated;                /* examples of a TEST; 0: none */
    fedge_client_states *states;           /* the clients' states, where the plan has them */
    const struct fedge_trainers *trainers; /* trainers of one's own; NULL: fedge's */
    fedge_trainer_values *values;          /* what these keep for the clients */
    uint32_t num_threads;     /* 1 to FEDGE_SIM_BACKEND_MAX_THREADS; the caller's is one of them */
    uint32_t num_gpus;        /* length of [gpus]; 0: all GPUs */
    const uint32_t *gpus;     /* the driver's numbers */
    fedge_sim_shared *shared; /* what the backends of concurrent runs share; NULL: alone */
    const fedge_log *log;     /* receives the choice and its reason; may be NULL */
    fedge_cancel_fn cancel;   /* asked between steps of training; may be NULL */
    /* Called now and then on the caller's thread with the number of tasks done. May be NULL. */
    void (*on_done)(void *user, uint32_t num_done);
    void *user; /* argument of [cancel] and [on_done] */
} fedge_sim_backend_config;

typedef struct fedge_sim_backend_ops {
    const char *name;  /* "cpu" */
    bool batches_runs; /* trains concurrent runs together; they wait for each other */

    /* Checks that it can do the job on this machine. FEDGE_UNSUPPORTED says what it cannot do;
     * FEDGE_NOT_FOUND: hardware or driver is missing; FEDGE_NO_MEMORY: no client fits, with the
     * numbers; FEDGE_GPU_LOST. [config] has no global model, and perhaps no data. NULL: it can do
     * every job. */
    fedge_status (*check)(const fedge_sim_backend_config *config, fedge_error *err);

    /* Does it add clients' changes to the sums of an accumulator on the same hardware? [config] as
     * for check. NULL: never. */
    bool (*adds_in_place)(const fedge_sim_backend_config *config);

    /* Bytes of this machine's memory for each thread. [config] has no global model. */
    fedge_status (*size)(const fedge_sim_backend_config *config, uint64_t *bytes, fedge_error *err);

    /* Takes the memory and starts the threads. What [config] points to must outlive it. *state is
     * NULL on failure. */
    fedge_status (*open)(const fedge_sim_backend_config *config, void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* Does all [tasks] of round [round], in any order, and returns when they are done; each has its
     * own status. [bounds_log2]: of the tensors sent in this round. */
    void (*run)(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_sim_backend_task *tasks, uint32_t num_tasks);

    uint64_t (*bytes_per_thread)(const void *state);
    /* Writes a line for the CPU or each GPU: its clients at once and their memory. */
    void (*describe)(const void *state, char *text, size_t size);
} fedge_sim_backend_ops;

/* The backends of this program, the best first; NULL after the last. */
extern const fedge_sim_backend_ops *const fedge_sim_backends[];

/* Is [name] a backend that batches runs? False for "auto", which may be any. */
bool fedge_sim_backend_batches_runs(const char *name);

/* The --engine that takes the first of the table that can do the job. */
#define FEDGE_SIM_BACKEND_AUTO "auto"

/* ops->check, where it has one. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_check(const fedge_sim_backend_ops *ops,
                                                    const fedge_sim_backend_config *config,
                                                    fedge_error *err);

/* An open backend, or all 0. */
typedef struct fedge_sim_backend {
    const fedge_sim_backend_ops *ops;
    void *state;
} fedge_sim_backend;

/* FEDGE_INVALID_ARGUMENT unless [name] is a backend or "auto"; the message lists the names. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_check_name(const char *name, fedge_error *err);

/* The backend [name], if it can do the job; with "auto" the first that can, and config->log says
 * why the ones before cannot. FEDGE_GPU_LOST: a lost GPU is no reason to take another. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_choose(const char *name,
                                                     const fedge_sim_backend_config *config,
                                                     const fedge_sim_backend_ops **ops,
                                                     fedge_error *err);
/* After *ops failed with [status] and *err: with "auto" and FEDGE_NO_MEMORY the next that can do
 * the job, since another program may have taken the GPU's memory since the choice. Otherwise *ops
 * stays and [status] is returned. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_choose_fallback(
    const char *name, const fedge_sim_backend_config *config, const fedge_sim_backend_ops **ops,
    fedge_status status, fedge_error *err);

/* These call the entries of the table. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_open(fedge_sim_backend *backend,
                                                   const fedge_sim_backend_ops *ops,
                                                   const fedge_sim_backend_config *config,
                                                   fedge_error *err);
void fedge_sim_backend_close(fedge_sim_backend *backend); /* all 0 is fine */
void fedge_sim_backend_run(fedge_sim_backend *backend, uint32_t round, const int8_t *bounds_log2,
                           fedge_sim_backend_task *tasks, uint32_t num_tasks);

/* The backend "cpu": threads that do virtual clients' work, one client per thread at a time.
 *
 * Each thread has a model, a lane of sums and buffers of its own, taken once; a task takes no
 * memory, except a client's first with a state. The global model and the data are shared and only
 * read. Tasks begin in order. A waiting thread spins for a tenth of a millisecond before it sleeps.
 */

extern const fedge_sim_backend_ops fedge_sim_backend_cpu;

/* The backend "cuda": cohorts of virtual clients trained side by side on this machine's GPUs
 * (edge/train/cuda).
 *
 * Each GPU has a thread, which takes clients from one queue as its slots become free, encodes their
 * updates and adds them to the sums. Each GPU has all the data. Clients beyond the number of slots
 * are trained one after another.
 */

extern const fedge_sim_backend_ops fedge_sim_backend_cuda;

/* The backend "process": clients trained by programs of the user's, each in a process of its own
 * (trainer_process.h). It is not in the table of those that "auto" may take. */

extern const fedge_sim_backend_ops fedge_sim_backend_process;

#endif
