/* simulation.json: what distinguishes a simulation of a job from another, as a text, and whether
 * two of them are the same. */
#ifndef FEDGE_AGGREGATOR_SIMULATE_OUTPUT_SETTINGS_H
#define FEDGE_AGGREGATOR_SIMULATE_OUTPUT_SETTINGS_H

#include "aggregator/simulate/output/run_summary.h"
#include "edge/core/status.h"

/* One object of JSON on one line; *text is malloc'ed. Of the files of client profiles there are
 * path and CRC-32. FEDGE_NO_MEMORY, and what reading these files gives. */
FEDGE_MUST_USE fedge_status fedge_settings_text(const fedge_simulation_settings *settings,
                                                char **text, fedge_error *err);

/* May what [found] describes, the contents of [path], go on as [wanted]? FEDGE_MISMATCH says what
 * differs. Files are the same by their contents, wherever they are: those of client profiles by
 * their CRC-32, and that of a division by what it divides, which the caller compares
 * (fedge_results_partition). */
FEDGE_MUST_USE fedge_status fedge_settings_check(const char *path, const char *found,
                                                 const char *wanted, fedge_error *err);

#endif
