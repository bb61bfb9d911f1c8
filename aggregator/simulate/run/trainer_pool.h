/* The pool: threads that do virtual clients' work, one client per thread at a time.
 *
 * Each thread has a model, a lane of sums and buffers of its own, taken once; a task takes no
 * memory (but the first of a client of which the strategy keeps something). The global model and
 * the data are shared and only read. Whichever thread takes a task, its result is the same, and
 * sums are of integers, so nothing depends on the number of threads. A thread that waits for work,
 * or for the others to end theirs, looks for a tenth of a millisecond before it sleeps.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_RUN_TRAINER_POOL_H
#define FEDGE_AGGREGATOR_SIMULATE_RUN_TRAINER_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/simulate/run/client_data.h"
#include "aggregator/simulate/run/client_states.h"
#include "edge/core/status.h"
#include "edge/io/dataset.h"
#include "edge/train/trainer.h"

#define FEDGE_TRAINER_POOL_MAX_THREADS FEDGE_ACCUMULATOR_MAX_LANES

typedef struct fedge_trainer_pool fedge_trainer_pool;

typedef enum fedge_trainer_pool_work {
    FEDGE_TRAINER_POOL_TRAIN,    /* a client trains, its update is added to the sums */
    FEDGE_TRAINER_POOL_EVALUATE, /* the global model on a client's held-out examples */
    FEDGE_TRAINER_POOL_TEST      /* the global model on any examples, as the server evaluates it */
} fedge_trainer_pool_work;

/* One piece of work and what came of it. Plain data. */
typedef struct fedge_trainer_pool_task {
    fedge_trainer_pool_work work;
    uint32_t client;    /* TRAIN, EVALUATE */
    fedge_view view;    /* TEST: at most fedge_trainer_pool_config.max_evaluated examples */
    int32_t *predicted; /* TEST: (view.count): the class of each; NULL: not wanted */
    bool may_stop;      /* TEST: FEDGE_CANCELLED when [cancel] says so */
    fedge_status status;
    char message[FEDGE_ERROR_MESSAGE_SIZE]; /* when it failed */
    fedge_trainer_result result;
    uint64_t bytes_up; /* TRAIN: of the update as it would travel */
    uint64_t clamped;
    double seconds; /* of the thread */
} fedge_trainer_pool_task;

typedef struct fedge_trainer_pool_config {
    const fedge_job *job;
    const fedge_client_data *client_data;
    fedge_global_model *global;  /* its accumulator has at least num_threads lanes */
    uint32_t max_evaluated;      /* examples of a TEST; 0: there are none */
    fedge_client_states *states; /* where clients keep something */
    uint32_t num_threads;   /* 1 to FEDGE_TRAINER_POOL_MAX_THREADS; the caller's is one of them */
    fedge_cancel_fn cancel; /* asked between steps of training; may be NULL */
    /* On the caller's thread, each time it has finished a task itself: how many are done. May be
     * NULL. */
    void (*on_done)(void *user, uint32_t num_done);
    void *user; /* of both */
} fedge_trainer_pool_config;

/* Bytes that one thread takes: [config] without its global model and number of threads. */
FEDGE_MUST_USE fedge_status fedge_trainer_pool_size(const fedge_trainer_pool_config *config,
                                                    uint64_t *bytes, fedge_error *err);

/* Takes the memory and starts the threads. What [config] points to outlives the pool. */
FEDGE_MUST_USE fedge_status fedge_trainer_pool_new(const fedge_trainer_pool_config *config,
                                                   fedge_trainer_pool **pool, fedge_error *err);
void fedge_trainer_pool_free(fedge_trainer_pool *pool); /* NULL is fine */

/* Does all [tasks], which are begun in their order, of round [round] and returns when they are
 * done; each has its own status. [bounds_log2]: of the tensors that travel in this round. */
void fedge_trainer_pool_run(fedge_trainer_pool *pool, uint32_t round, const int8_t *bounds_log2,
                            fedge_trainer_pool_task *tasks, uint32_t num_tasks);

/* Bytes that one thread takes. */
uint64_t fedge_trainer_pool_bytes_per_thread(const fedge_trainer_pool *pool);

#endif
