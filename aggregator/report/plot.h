/* rounds.svg: a run's curves, drawn from its rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_REPORT_PLOT_H
#define FEDGE_AGGREGATOR_REPORT_PLOT_H

#include "edge/core/status.h"

/* Draws accuracy, loss and total bytes below each other over rounds, and beside them over simulated
 * time if the run has it, otherwise accuracy and loss over the bytes sent. Accuracy and loss have a
 * line for each of these that the run measured: the server's test set, the examples for validation,
 * the clients' data, and training. Rounds without evaluation are skipped; a loss that is not finite
 * leaves a gap. Replaces [svg_path] atomically. */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

#endif
