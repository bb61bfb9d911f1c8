/* Curves of runs, drawn from their rounds.jsonl. */
#ifndef FEDGE_AGGREGATOR_STORE_PLOT_H
#define FEDGE_AGGREGATOR_STORE_PLOT_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PLOT_MAX_ROUNDS 100000u /* later rounds are not drawn */
#define FEDGE_PLOT_MAX_RUNS 10        /* in one picture */

/* Draws accuracy (top) and loss (below) over rounds: on the server's test set, and on the clients
 * where the run evaluates there. Values that are null leave a gap. [title] stands above. Replaces
 * [svg_path] atomically. */
FEDGE_MUST_USE fedge_status fedge_plot_rounds(const char *jsonl_path, const char *svg_path,
                                              const char *title, fedge_error *err);

/* The same for several runs, on the test set: one curve each, with its name. FEDGE_OUT_OF_RANGE for
 * more than FEDGE_PLOT_MAX_RUNS. */
FEDGE_MUST_USE fedge_status fedge_plot_runs(const char *const *jsonl_paths,
                                            const char *const *names, uint32_t num_runs,
                                            const char *svg_path, const char *title,
                                            fedge_error *err);

#endif
