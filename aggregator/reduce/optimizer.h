/* The steps of the server's optimizers. With the mean d = S / W · 2^−F, the strategy's rate η, and
 * its moments m and v:
 *
 *     momentum   m ← β1 m + d                                      x ← x + η m
 *     adagrad    m ← β1 m + (1 − β1) d,  v ← v + d²                x ← x + η m / (√v + τ)
 *     adam       m likewise,             v ← β2 v + (1 − β2) d²    likewise
 *     yogi       m likewise,             v ← v − (1 − β2) d² sign(v − d²)
 *     dyn        m ← m − β1 β2 d                                   x ← x + η (d − m / β1)
 *
 * Arithmetic is in double; x, m and v are rounded to float. The strategies' files
 * (aggregator/rounds/strategies) name the formulas' sources and fix the order of operations.
 */
#ifndef FEDGE_AGGREGATOR_REDUCE_OPTIMIZER_H
#define FEDGE_AGGREGATOR_REDUCE_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

typedef enum fedge_step_rule {
    FEDGE_STEP_RULE_MOMENTUM,
    FEDGE_STEP_RULE_ADAGRAD,
    FEDGE_STEP_RULE_ADAM,
    FEDGE_STEP_RULE_YOGI,
    FEDGE_STEP_RULE_DYN
} fedge_step_rule;

typedef struct fedge_optimizer_step {
    fedge_step_rule rule;
    unsigned num_moments; /* 1 or 2 */
    double beta1, beta2, tau;
} fedge_optimizer_step;

/* The sums S, the total weight W, and F = 30 − b. */
typedef struct fedge_optimizer_sums {
    const int64_t *sums; /* (count) */
    size_t count;
    uint64_t total_weight; /* not 0 */
    int bound_log2;
} fedge_optimizer_sums;

/* Takes a step on the host: values (by->count) and step->num_moments vectors moments[k] (by->count)
 * change in place; η is [rate]. The bits do not depend on how a vector is divided into calls. */
void fedge_optimizer_move(const fedge_optimizer_step *step, double rate,
                          const fedge_optimizer_sums *by, float *values, float *const moments[2]);

#endif
