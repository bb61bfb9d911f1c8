/* The learning rate over the rounds of a run, by torch.optim.lr_scheduler's closed forms with one
 * scheduler step per round. Round r counts from 1, so t = r − 1 is the number of steps taken.
 *
 *   ConstantLR          lr
 *   StepLR              lr · gamma^floor(t / step_size)
 *   ExponentialLR       lr · gamma^t
 *   CosineAnnealingLR   eta_min + (lr − eta_min) · (1 + cos(π t / T_max)) / 2
 *   OneCycleLR          from lr / div_factor up to lr at t = pct_start · total_steps − 1, then down
 * to lr / (div_factor · final_div_factor) at t = total_steps − 1; with three_phase first down to lr
 * / div_factor, in as many rounds as up. lr is its max_lr
 *
 * After that the one cycle's rate stays. After t = T_max the cosine stays at eta_min (PyTorch's
 * would rise again). In the first warmup_rounds the rate grows linearly, lr · r / (warmup_rounds +
 * 1), and t counts from their end.
 */
#ifndef FEDGE_EDGE_TRAIN_SCHEDULE_H
#define FEDGE_EDGE_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fedge_schedule_type {
    FEDGE_SCHEDULE_CONSTANT,
    FEDGE_SCHEDULE_STEP,
    FEDGE_SCHEDULE_EXPONENTIAL,
    FEDGE_SCHEDULE_COSINE,
    FEDGE_SCHEDULE_ONE_CYCLE,
    FEDGE_SCHEDULE_COUNT
} fedge_schedule_type;

/* How OneCycleLR goes from one rate to the next. */
typedef enum fedge_anneal_strategy {
    FEDGE_ANNEAL_COS,
    FEDGE_ANNEAL_LINEAR,
    FEDGE_ANNEAL_COUNT
} fedge_anneal_strategy;

/* Plain data; a zeroed one is the constant rate. */
typedef struct fedge_schedule {
    fedge_schedule_type type;
    uint32_t step_size; /* ≥ 1, rounds */
    float gamma;
    uint32_t t_max; /* ≥ 1, rounds */
    float eta_min;
    uint32_t warmup_rounds; /* 0: none */
    uint32_t total_steps;   /* ≥ 1, rounds */
    float pct_start;        /* share of total_steps in which the rate rises, in [0, 1] */
    float div_factor, final_div_factor; /* ≥ 1 */
    fedge_anneal_strategy anneal_strategy;
    bool three_phase;
} fedge_schedule;

/* "StepLR", …; NULL for an unknown type. */
const char *fedge_schedule_type_name(fedge_schedule_type type);

/* "cos", "linear"; NULL for an unknown strategy. */
const char *fedge_anneal_strategy_name(fedge_anneal_strategy strategy);

/* The learning rate of round [round] ≥ 1. */
double fedge_schedule_rate(const fedge_schedule *schedule, double learning_rate, uint32_t round);

#endif
