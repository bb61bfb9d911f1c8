/* Training backends: what does the work of virtual clients (this machine's threads, its GPUs).
 *
 * A backend is made for a job's plan and its data. It trains clients from the present global model,
 * adds what they would send to the sums of the model's accumulator, and evaluates the model.
 * Whatever thread or GPU takes a piece of work, its result is the same, and sums are of integers,
 * so nothing depends on how many there are. A backend is one entry of a table; nothing else in the
 * tree knows its name.
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
#include "edge/core/log.h"
#include "edge/core/status.h"
#include "edge/data/dataset.h"
#include "edge/train/trainer.h"

#define FEDGE_SIM_BACKEND_MAX_DESCRIPTION FEDGE_ACCUMULATOR_MAX_DESCRIPTION /* bytes */
#define FEDGE_SIM_BACKEND_MAX_THREADS FEDGE_ACCUMULATOR_MAX_LANES

typedef enum fedge_sim_backend_work {
    FEDGE_SIM_BACKEND_TRAIN,    /* a client trains, its update is added to the sums */
    FEDGE_SIM_BACKEND_EVALUATE, /* the global model on a client's held-out examples */
    FEDGE_SIM_BACKEND_TEST      /* the global model on any examples, as the server evaluates it */
} fedge_sim_backend_work;

/* One piece of work and what came of it. Plain data. */
typedef struct fedge_sim_backend_task {
    fedge_sim_backend_work work;
    uint32_t client;    /* TRAIN, EVALUATE; TEST of its own model */
    fedge_view view;    /* TEST: at most fedge_sim_backend_config.max_evaluated examples */
    int32_t *predicted; /* TEST: (view.count): the class of each; NULL: not wanted */
    bool may_stop;      /* TEST: FEDGE_CANCELLED when [cancel] says so */
    bool personal;      /* where the plan is personal, EVALUATE and TEST: the client's model */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* when it failed */
    fedge_trainer_result result;
    uint32_t round;           /* TRAIN: that the client began in; 0: the present one */
    const float *start;       /* TRAIN: the model that it began with; NULL: the global one */
    fedge_update_facts facts; /* TRAIN: its round is given; the rest is what the update says */
    uint32_t update_index;    /* TRAIN: of the update, when the strategy collects them */
    uint64_t bytes_up;        /* TRAIN: of the update as it would travel */
    uint64_t clamped;
    double seconds; /* of the thread */
} fedge_sim_backend_task;

/* What the backends of runs that go side by side have in common, if they have anything: a backend
 * of theirs keeps it here. */
typedef struct fedge_sim_shared {
    uint32_t most_runs;    /* at a time */
    pthread_mutex_t mutex; /* of what follows */
    void *state;           /* NULL: nothing yet */
    void (*close)(void *state);
} fedge_sim_shared;

void fedge_sim_shared_init(fedge_sim_shared *shared, uint32_t most_runs);
void fedge_sim_shared_fini(fedge_sim_shared *shared); /* when all backends are closed */

typedef struct fedge_sim_backend_config {
    const fedge_job *job;
    const fedge_client_data *client_data;
    const fedge_dataset *test_set; /* what TEST may name besides the client data; NULL: none */
    fedge_global_model *global;    /* its accumulator has at least num_threads lanes */
    uint32_t max_evaluated;        /* examples of a TEST; 0: there are none */
    fedge_client_states *states;   /* where clients keep something for the strategy */
    uint32_t num_threads;     /* 1 to FEDGE_SIM_BACKEND_MAX_THREADS; the caller's is one of them */
    uint32_t num_gpus;        /* of gpus[]; 0: all that there are */
    const uint32_t *gpus;     /* the driver's numbers */
    fedge_sim_shared *shared; /* with the backends of other runs, which have it too; NULL: alone */
    const fedge_log *log;     /* is told what was chosen, and why; may be NULL */
    fedge_cancel_fn cancel;   /* asked between steps of training; may be NULL */
    /* On the caller's thread, now and then: how many tasks are done. May be NULL. */
    void (*on_done)(void *user, uint32_t num_done);
    void *user; /* of both */
} fedge_sim_backend_config;

typedef struct fedge_sim_backend_ops {
    const char *name; /* "cpu" */
    bool joins_runs;  /* runs with a share of it are worked for together, and wait for each other */

    /* Can it do this job's work on this machine? FEDGE_UNSUPPORTED with what it cannot do;
     * FEDGE_NOT_FOUND: the hardware or driver that is not there; FEDGE_NO_MEMORY: not one client
     * fits, with the numbers; FEDGE_GPU_LOST. [config] without its global model, and perhaps
     * without data. NULL: it can do all. */
    fedge_status (*check)(const fedge_sim_backend_config *config, fedge_error *err);

    /* Does it add what clients have changed to the sums of an accumulator of its hardware, where
     * they are trained? [config] as for check. NULL: it never does. */
    bool (*adds_in_place)(const fedge_sim_backend_config *config);

    /* Bytes of this machine's memory, for each thread: [config] without its global model. */
    fedge_status (*size)(const fedge_sim_backend_config *config, uint64_t *bytes, fedge_error *err);

    /* Takes the memory and starts the threads. What [config] points to outlives it. *state is NULL
     * on failure. */
    fedge_status (*open)(const fedge_sim_backend_config *config, void **state, fedge_error *err);
    void (*close)(void *state); /* NULL is fine */

    /* Does all [tasks] of round [round], in any order, and returns when they are done; each has its
     * own status. [bounds_log2]: of the tensors that travel in this round. */
    void (*run)(void *state, uint32_t round, const int8_t *bounds_log2,
                fedge_sim_backend_task *tasks, uint32_t num_tasks);

    uint64_t (*bytes_per_thread)(const void *state);
    /* For people, a line for each place: how many clients are trained there at once, in which
     * memory. */
    void (*describe)(const void *state, char *text, size_t size);
} fedge_sim_backend_ops;

/* Every backend of this program, the best first; NULL behind the last. */
extern const fedge_sim_backend_ops *const fedge_sim_backends[];

/* Does [name] name a backend that joins runs? "auto" does not: it may be any. */
bool fedge_sim_backend_joins_runs(const char *name);

/* What --engine is for the first of the table that can do the work. */
#define FEDGE_SIM_BACKEND_AUTO "auto"

/* ops->check, where it has one. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_check(const fedge_sim_backend_ops *ops,
                                                    const fedge_sim_backend_config *config,
                                                    fedge_error *err);

/* One that is open, or all 0. */
typedef struct fedge_sim_backend {
    const fedge_sim_backend_ops *ops;
    void *state;
} fedge_sim_backend;

/* Is [name] that of a backend, or "auto"? FEDGE_INVALID_ARGUMENT has the names there are. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_check_name(const char *name, fedge_error *err);

/* The backend [name], which must be able to do the work; with "auto" the first that is, and
 * config->log is told why the ones before it are not. A lost GPU is no reason to take another. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_choose(const char *name,
                                                     const fedge_sim_backend_config *config,
                                                     const fedge_sim_backend_ops **ops,
                                                     fedge_error *err);
/* The first behind *ops, with "auto", where [why] says that *ops has no memory: what else the GPUs
 * hold by then may leave less than was there when it was chosen. Otherwise *ops stays and *err is
 * [why], whose status is returned. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_choose_again(const char *name,
                                                           const fedge_sim_backend_config *config,
                                                           const fedge_sim_backend_ops **ops,
                                                           fedge_status status, fedge_error *err);

/* The operations of an open backend, as the table has them. */
FEDGE_MUST_USE fedge_status fedge_sim_backend_open(fedge_sim_backend *backend,
                                                   const fedge_sim_backend_ops *ops,
                                                   const fedge_sim_backend_config *config,
                                                   fedge_error *err);
void fedge_sim_backend_close(fedge_sim_backend *backend); /* one that is all 0 is fine */
void fedge_sim_backend_run(fedge_sim_backend *backend, uint32_t round, const int8_t *bounds_log2,
                           fedge_sim_backend_task *tasks, uint32_t num_tasks);

/* The backend "cpu": threads that do virtual clients' work, one client per thread at a time.
 *
 * Each thread has a model, a lane of sums and buffers of its own, taken once; a task takes no
 * memory (but the first of a client of which the strategy keeps something). The global model and
 * the data are shared and only read. Tasks are begun in their order. A thread that waits for work,
 * or for the others to end theirs, looks for a tenth of a millisecond before it sleeps.
 */

extern const fedge_sim_backend_ops fedge_sim_backend_cpu;

/* The backend "cuda": cohorts of virtual clients trained side by side on this
 * machine's GPUs (edge/train/cuda).
 *
 * Each GPU has a thread, which takes clients from one queue as its slots become
 * free, encodes what they have become, and adds it to the sums. The data lie on
 * each GPU. More clients than there are slots are trained one after another.
 */

extern const fedge_sim_backend_ops fedge_sim_backend_cuda;

#endif
