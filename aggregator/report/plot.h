/* Curves of runs, drawn from their rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_REPORT_PLOT_H
#define FEDGE_AGGREGATOR_REPORT_PLOT_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PLOT_MAX_CURVES 14 /* in one picture: as many can be told apart */

/* Draws accuracy, loss and bytes, one below the other, over rounds, and beside them over simulated
 * time where the run has it, else accuracy and loss over the bytes sent. Accuracy and loss: on the
 * server's test set, on the examples for validation, on the clients, and of the clients while they
 * train; what the run has. Bytes: all up to there. A round without evaluation is passed over; a
 * loss that is not finite leaves a gap. [title] stands above. Replaces [svg_path] atomically. */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

/* A curve of a picture with several: a run, or the mean of several as fedge_curve_read (curve.h)
 * has it, with a band from the lowest to the highest of them. */
typedef struct fedge_plot_curve {
    const char *name; /* in the legend, which says of how many it is the mean */
    const char *const *jsonl_paths;
    uint32_t num_runs; /* ≥ 1 */
} fedge_plot_curve;

/* Curves side by side: accuracy and loss over rounds, over the bytes sent, and over simulated time
 * where all have it. On the test set, or what comes first of validation, clients and training in a
 * curve without. FEDGE_OUT_OF_RANGE for more than FEDGE_PLOT_MAX_CURVES. */
FEDGE_MUST_USE fedge_status fedge_plot_curves(const fedge_plot_curve *curves, uint32_t num_curves,
                                              const char *svg_path, const char *title,
                                              fedge_error *err);

#endif
