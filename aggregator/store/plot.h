/* rounds.svg: the curve of a run, drawn from its rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_STORE_PLOT_H
#define FEDGE_AGGREGATOR_STORE_PLOT_H

#include "edge/core/status.h"

#define FEDGE_PLOT_MAX_ROUNDS 100000u /* later rounds are not drawn */

/* Draws accuracy (top) and loss (below) over rounds: on the server's test set, and on the clients
 * where the run evaluates there. Values that are null leave a gap. [title] stands above. Replaces
 * [svg_path] atomically. */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

#endif
