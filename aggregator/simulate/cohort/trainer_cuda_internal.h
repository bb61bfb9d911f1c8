/* Internals of the backend "cuda".
 *
 * A team is a set of GPUs with their cohorts, and the runs whose clients they train: one run, or
 * several runs of a sweep at once. Each run is a member of every cohort's work. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_CUDA_INTERNAL_H
#define FEDGE_AGGREGATOR_SIMULATE_COHORT_TRAINER_CUDA_INTERNAL_H

#include <pthread.h>

#include "aggregator/simulate/cohort/client_update.h"
#include "aggregator/simulate/cohort/training_backend.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/plan/client_hooks.h"
#include "edge/train/cuda/cohort.h"

typedef struct trainer_cuda trainer_cuda;
typedef struct trainer_cuda_team trainer_cuda_team;

/* Storage to which a cohort's configuration points. */
typedef struct trainer_cuda_storage {
    fedge_model_options options;
    fedge_augmented augmented;
} trainer_cuda_storage;

/* One GPU and its thread. */
typedef struct trainer_cuda_gpu {
    trainer_cuda_team *team;
    fedge_cohort *cohort;
    fedge_cohort_memory memory;
    uint32_t index;
    uint64_t last_ns; /* monotonic time at which its last task ended */
    fedge_status status;
    fedge_error error;
} trainer_cuda_gpu;

/* A task, and its client's work on a GPU. */
typedef struct trainer_cuda_job {
    fedge_cohort_task cohort; /* must be first: the cohort returns it */
    fedge_sim_backend_task *task;
    trainer_cuda *backend;
    bool done;
} trainer_cuda_job;

struct trainer_cuda_team {
    /* The inputs of the cohorts. [plan] is the first run's, as text. */
    char *plan;
    uint32_t crc32[FEDGE_COHORT_SETS], counts[FEDGE_COHORT_SETS];
    trainer_cuda_storage storage;
    uint32_t num_gpus, max_members;
    trainer_cuda_gpu *gpus;
    fedge_worker_pool *threads; /* one for each GPU but the first */
    pthread_mutex_t mutex;      /* guards the queue and all fields below */
    pthread_cond_t changed;
    trainer_cuda *runs[FEDGE_COHORT_MAX_MEMBERS];
    uint32_t num_runs, num_waiting;
    bool busy; /* the last run to arrive does the work of all that wait */
    /* The current work. */
    trainer_cuda *members[FEDGE_COHORT_MAX_MEMBERS];
    uint32_t num_members, next_member;
    bool training, lost;
};

/* One run. */
struct trainer_cuda {
    fedge_sim_backend_config config;
    const fedge_plan *plan;
    trainer_cuda_team *team;
    bool is_shared;               /* the team is config.shared's */
    fedge_client_update *updates; /* (num_gpus) */
    fedge_cohort_chunk **chunks;  /* (num_gpus), (num_chunks): the sums of changes on each GPU */
    uint64_t host_bytes;
    bool accumulates;    /* GPUs add changes to the sums themselves */
    uint32_t num_chunks; /* chunks on each GPU; used if [accumulates] */
    size_t update_bytes; /* size of an encoded update; used if [accumulates] */
    trainer_cuda_job *jobs;
    uint32_t capacity, num_jobs, next, num_done;
    bool waiting; /* it waits for the team's other runs, or for the one that works for all */
    bool failed;  /* its work cannot begin: [error] says why */
    fedge_error error;
    const int8_t *bounds_log2;
    double rate;
    fedge_trainer_config trainer;
};

/* ---- trainer_cuda_team.c */

/* Gives [self] a team: the shared one if it can join, else a new one. */
fedge_status fedge_trainer_cuda_join(trainer_cuda *self, fedge_error *err);
void fedge_trainer_cuda_leave(trainer_cuda *self);

/* Waits until all runs of the team have jobs; the last to arrive does the work of all. */
void fedge_trainer_cuda_run_together(trainer_cuda *self);

/* ---- trainer_cuda_work.c */

/* FEDGE_NOT_FOUND: the driver has no GPU of a number in [config]. */
fedge_status fedge_trainer_cuda_count_gpus(const fedge_sim_backend_config *config, uint32_t *count,
                                           fedge_error *err);
/* The configuration of a cohort on one of [num_gpus] GPUs, for [num_members] runs. Fills [storage],
 * which must outlive the result. */
fedge_cohort_config fedge_trainer_cuda_cohort_of(const fedge_sim_backend_config *config,
                                                 uint32_t num_gpus, uint32_t num_members,
                                                 trainer_cuda_storage *storage);
/* The driver's number of GPU [index]. */
uint32_t fedge_trainer_cuda_number(const fedge_sim_backend_config *config, uint32_t index);

/* Chunks of an update's values; 0: the GPUs lack one of its codecs, or it is not a plain change. */
uint32_t fedge_trainer_cuda_count_chunks(const fedge_plan *plan);
/* Clients of the largest cohort. */
uint32_t fedge_trainer_cuda_clients_asked(const fedge_sim_backend_config *config);

/* Sets self->chunks to the sums on each GPU, with the bounds of this round. */
fedge_status fedge_trainer_cuda_set_chunks(trainer_cuda *self, fedge_error *err);

/* Does the jobs of all waiting runs. */
void fedge_trainer_cuda_work(trainer_cuda_team *team);

#endif
