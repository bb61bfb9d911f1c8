/* What a run's rounds.jsonl has to draw, or the mean of several runs that differ in their seeds. */
#ifndef FEDGE_AGGREGATOR_REPORT_CURVE_H
#define FEDGE_AGGREGATOR_REPORT_CURVE_H

#include <stdbool.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_CURVE_MAX_ROUNDS 100000u /* phases; later ones are left out */

/* What accuracy and loss are measured on, in the order of preference. */
typedef enum fedge_curve_set {
    FEDGE_CURVE_TEST,
    FEDGE_CURVE_VALIDATION,
    FEDGE_CURVE_CLIENTS,
    FEDGE_CURVE_TRAINING,
    FEDGE_CURVE_SETS
} fedge_curve_set;

/* Over the runs; of one run all three are the same. NaN: not known of every run, or not finite. */
typedef struct fedge_curve_value {
    double mean, low, high;
} fedge_curve_value;

/* A phase; what has no range is the mean. */
typedef struct fedge_curve_row {
    double round, time, up, down; /* time: simulated, or NaN; bytes: all so far */
    bool evaluation;              /* on clients, of the round's model */
    fedge_curve_value loss[FEDGE_CURVE_SETS], accuracy[FEDGE_CURVE_SETS];
} fedge_curve_row;

typedef struct fedge_curve {
    fedge_curve_row *rows; /* malloc'ed */
    uint32_t count;
    uint32_t num_runs;
    bool has[FEDGE_CURVE_SETS]; /* evaluations on it */
    bool has_time, has_accuracy, has_loss;
} fedge_curve;

/* Reads one run, or several, of which the phases count that all have: the mean of runs goes as far
 * as the shortest. FEDGE_CORRUPT, FEDGE_NO_MEMORY, and what reading a file gives; then *curve is
 * empty. */
FEDGE_MUST_USE fedge_status fedge_curve_read(const char *const *jsonl_paths, uint32_t num_runs,
                                             fedge_curve *curve, fedge_error *err);
void fedge_curve_fini(fedge_curve *curve);

/* The first set that there are evaluations on; the last when there are none. */
fedge_curve_set fedge_curve_best_set(const fedge_curve *curve);

#endif
