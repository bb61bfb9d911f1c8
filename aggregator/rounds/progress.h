/* Progress of a run on standard output: a line per round, and a bar on a terminal. */
#ifndef FEDGE_AGGREGATOR_ROUNDS_PROGRESS_H
#define FEDGE_AGGREGATOR_ROUNDS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "aggregator/rounds/round_summary.h"

/* Plain data; the caller sets the first three, the others start at 0. */
typedef struct fedge_progress {
    FILE *out;     /* borrowed */
    bool terminal; /* draw the bar */
    uint32_t num_rounds;
    bool headed;   /* the column heads were printed */
    bool barred;   /* the last line on the terminal is the bar */
    char bar[160]; /* the bar last drawn */
} fedge_progress;

/* Whether [out] can show a bar. Ranks of mpirun cannot: Open MPI gives them a terminal but copies
 * their output to its own. */
bool fedge_progress_on_terminal(FILE *out);

/* Prints a line for a phase that has ended, with loss and accuracy on the test set, or else on the
 * validation examples. */
void fedge_progress_round(fedge_progress *progress, const fedge_round_summary *summary);

/* Redraws the bar, with [state] beside it, when something has changed. */
void fedge_progress_draw(fedge_progress *progress, uint32_t rounds_closed, const char *state);

/* Removes the bar, so that other lines may be printed. */
void fedge_progress_clear(fedge_progress *progress);

/* "1.4 MB": three significant digits, decimal units. Returns [text]. */
#define FEDGE_BYTES_TEXT 16
char *fedge_bytes_text(uint64_t bytes, char text[FEDGE_BYTES_TEXT]);

#endif
