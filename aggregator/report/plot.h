/* rounds.svg: a run's curves, drawn from its rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_REPORT_PLOT_H
#define FEDGE_AGGREGATOR_REPORT_PLOT_H

#include "edge/core/status.h"

/* Draws accuracy, loss and bytes, one below the other, over rounds, and beside them over simulated
 * time where the run has it, else accuracy and loss over the bytes sent. Accuracy and loss are
 * those on the server's test set, on the examples for validation, on the clients, and of the
 * clients while they train, as far as the run has them. Bytes are all sent so far. A round without
 * evaluation is left out; a loss that is not finite leaves a gap. Replaces [svg_path] atomically.
 */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

#endif
