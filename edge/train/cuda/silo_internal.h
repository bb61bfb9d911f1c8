/* A silo's insides; private to edge/train/cuda. */
#ifndef FEDGE_EDGE_TRAIN_CUDA_SILO_INTERNAL_H
#define FEDGE_EDGE_TRAIN_CUDA_SILO_INTERNAL_H

#include "edge/train/cuda/cohort_internal.h"
#include "edge/train/cuda/nccl_api.h"
#include "edge/train/cuda/silo.h"
#include "edge/train/optimizers/optimizers.h"

typedef struct fedge_silo_gpu {
    fedge_cohort *cohort; /* its slots are parts of a batch */
    uint32_t first_part, num_parts;
    fedge_cohort_tally *tallies; /* pinned, (num_parts) */
} fedge_silo_gpu;

struct fedge_silo {
    fedge_silo_config config;
    fedge_cohort_share share;
    uint32_t num_parts; /* of a batch */
    fedge_silo_gpu gpus[FEDGE_COHORT_MAX_GPUS];
    fedge_nccl nccl; /* with more than one */
    fedge_gpu_watch watch;
    char names[32];                          /* for it: "one of 2 GPUs" */
    ncclComm_t comms[FEDGE_COHORT_MAX_GPUS]; /* NULL: not made, when a start failed half-way */
    uint32_t num_comms;
    bool lost;
    fedge_cohort_slot order;  /* of the task's examples */
    uint32_t *indices;        /* (batch) */
    fedge_cohort_move *moves; /* (batch) */
};

/* FEDGE_GPU_LOST: what was being done, and what NCCL says. */
fedge_status fedge_silo_nccl(const fedge_silo *silo, fedge_nccl_result result, const char *doing,
                             fedge_error *err);

#endif
