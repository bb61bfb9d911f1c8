/* rounds.jsonl read back: the lines that fedge_round_summary_write made. */
#ifndef FEDGE_AGGREGATOR_STORE_ROUND_LINES_H
#define FEDGE_AGGREGATOR_STORE_ROUND_LINES_H

#include "aggregator/rounds/round_summary.h"
#include "edge/core/status.h"

/* Gives each line of the file at [path] to [on_line], in order; a failure of it ends the reading.
 * Of a summary all is known that totals and curves need: round, kind, clients, examples, bytes,
 * seconds, losses and accuracies, model, virtual time, validation, and what is told of updates
 * (until [on_line] returns). FEDGE_CORRUPT with the number of a line that is no JSON object,
 * FEDGE_NO_MEMORY, and what reading a file of at most FEDGE_ROUND_LOG_MAX_SIZE gives. */
FEDGE_MUST_USE fedge_status fedge_round_lines_read(
    const char *path,
    fedge_status (*on_line)(void *user, const fedge_round_summary *summary, fedge_error *err),
    void *user, fedge_error *err);

#endif
