/* What a simulation leaves in its folder:
 *
 *     OUT/simulation.json     the settings; --resume demands the same
 *     OUT/job.json            the job's bytes, likewise
 *     OUT/rounds.jsonl        a line per phase, as the server writes them (round_summary.h)
 *     OUT/rounds.svg          their curves
 *     OUT/partition.csv       which client has which example (partition.h, file:CSV)
 *     OUT/partition.svg       the same as a picture (partition_plot.h)
 *     OUT/summary.json        the run in numbers, complete or not (run_summary.h)
 *     OUT/model.safetensors   the last model
 *     OUT/model-best.safetensors   with keep-best: the best round's
 *     OUT/checkpoints/        where --resume goes on; where clients keep something also
 * variates-RRRRRR.bin there OUT/lock                held by the program that writes here
 *
 * Lines are written as rounds end and synced with a checkpoint, every FEDGE_RESULTS_CHECKPOINT_MS
 * (or 20 times what writing one took, if that is longer) and at the end: a crash costs at most that
 * much.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_OUTPUT_RESULTS_H
#define FEDGE_AGGREGATOR_SIMULATE_OUTPUT_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aggregator/rounds/round_summary.h"
#include "aggregator/simulate/output/best_model.h"
#include "aggregator/simulate/output/run_summary.h"
#include "aggregator/simulate/run/simulation.h"
#include "aggregator/store/round_log.h"
#include "edge/core/status.h"

#define FEDGE_RESULTS_CHECKPOINT_MS 30000
#define FEDGE_RESULTS_KEPT (FEDGE_MAX_PATH + 128) /* bytes of what is told of a failed run */

typedef struct fedge_results {
    char dir[FEDGE_MAX_PATH]; /* "": nothing is written */
    bool resumed, locked;
    int lock; /* on DIR/lock */
    const fedge_job *job;
    fedge_simulation_settings settings;
    fedge_run_summary run_summary;
    fedge_best_model best; /* with keep-best */
    fedge_round_log log;
    bool unsynced;          /* lines may not be on the disk: no checkpoint any more */
    bool goes_on;           /* a phase has followed: what an earlier end told is removed */
    uint32_t checkpoint;    /* the newest one's round; 0: none */
    uint64_t checkpoint_ms; /* of the last one, monotonic */
    uint64_t interval_ms;   /* until the next one */
} fedge_results;

/* Makes the folder, or with [resume] opens one that was begun with the same job and settings, if it
 * is there: results->resumed says so, and what a killed program left half written is removed.
 * FEDGE_BUSY while another program writes there, FEDGE_EXISTS when there is a simulation already,
 * or somebody's files, FEDGE_MISMATCH says what differs. [dir] NULL: nothing is written. job
 * outlives the results. */
FEDGE_MUST_USE fedge_status fedge_results_open(fedge_results *results, const char *dir, bool resume,
                                               const fedge_job *job, const char *job_text,
                                               size_t job_size,
                                               const fedge_simulation_settings *settings,
                                               const double *targets, uint32_t num_targets,
                                               fedge_error *err);
void fedge_results_close(fedge_results *results); /* also after a failed open */

/* Writes partition.csv and partition.svg; when it goes on, FEDGE_MISMATCH if the division was
 * another one. */
FEDGE_MUST_USE fedge_status fedge_results_partition(const fedge_results *results,
                                                    const fedge_client_data *client_data,
                                                    fedge_error *err);

/* Brings [simulation] to where the folder's newest checkpoint stands, and the run summary with it.
 * Cuts rounds.jsonl there, FEDGE_MISMATCH when it does not reach so far; needed without --resume
 * too. */
FEDGE_MUST_USE fedge_status fedge_results_begin(fedge_results *results,
                                                fedge_simulation *simulation, fedge_error *err);

/* A phase has ended. Checkpoints when the last one is old. With early-stopping it may be that no
 * round follows: [simulation] is told. */
FEDGE_MUST_USE fedge_status fedge_results_round(fedge_results *results,
                                                fedge_simulation *simulation,
                                                const fedge_round_summary *summary,
                                                fedge_error *err);

/* Picture and summary of the rounds so far; the model may be between two of them. */
FEDGE_MUST_USE fedge_status fedge_results_write_summary(
    const fedge_results *results, const fedge_final_evaluation *final_evaluation,
    const char *ending, fedge_error *err);

/* The run is over, or was interrupted: checkpoint, model, picture, summary. Where a checkpoint has
 * no room nothing is left of it, and the model is written if that has. */
FEDGE_MUST_USE fedge_status fedge_results_finish(fedge_results *results,
                                                 fedge_simulation *simulation,
                                                 const fedge_final_evaluation *final_evaluation,
                                                 const char *ending, fedge_error *err);

/* The run has failed: checkpoint and model of the last closed round, if the model, the run summary
 * and the last line are all of that round and the disk takes it, or else the checkpoint there was;
 * picture, summary. [kept]: fedge_results_describe. */
void fedge_results_fail(fedge_results *results, fedge_simulation *simulation,
                        const fedge_final_evaluation *final_evaluation,
                        char kept[FEDGE_RESULTS_KEPT]);
/* How many rounds the folder has, and where --resume would go on, for people; "" without one. */
void fedge_results_describe(const fedge_results *results, char kept[FEDGE_RESULTS_KEPT]);

#endif
