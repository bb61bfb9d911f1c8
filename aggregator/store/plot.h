/* Curves of runs, drawn from their rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_STORE_PLOT_H
#define FEDGE_AGGREGATOR_STORE_PLOT_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PLOT_MAX_ROUNDS 100000u /* later rounds are not drawn */
#define FEDGE_PLOT_MAX_RUNS 10        /* in one picture */

/* Draws accuracy, loss and bytes, one below the other, over rounds, and beside them over simulated
 * time where the run has it, else accuracy and loss over the bytes sent. Accuracy and loss: on the
 * server's test set, on the examples for validation, on the clients, and of the clients while they
 * train; what the run has. Bytes: all up to there. A round without evaluation is passed over; a
 * loss that is not finite leaves a gap. [title] stands above. Replaces [svg_path] atomically. */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

/* Several runs side by side: accuracy and loss, one curve for each run with its name, over rounds,
 * over the bytes sent, and over simulated time where all have it. On the test set, or what comes
 * first of validation, clients and training in a run without. FEDGE_OUT_OF_RANGE for more than
 * FEDGE_PLOT_MAX_RUNS. */
FEDGE_MUST_USE fedge_status fedge_plot_runs(const char *const *jsonl_paths,
                                            const char *const *names, uint32_t num_runs,
                                            const char *svg_path, const char *title,
                                            fedge_error *err);

#endif
