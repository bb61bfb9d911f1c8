/* The folder of a simulation:
 *
 *     OUT/simulation.json     the settings; --resume demands the same
 *     OUT/job.json            the job's bytes; --resume demands the same
 *     OUT/rounds.jsonl        a line per phase, as the server writes them (round_summary.h)
 *     OUT/rounds.svg          their curves
 *     OUT/partition.csv       which client has which example (partition.h, file:CSV)
 *     OUT/partition.svg       the same as a picture (partition_plot.h)
 *     OUT/summary.json        the run in numbers, complete or not (run_summary.h)
 *     OUT/model.safetensors   the last model
 *     OUT/model-best.safetensors   with keep-best: the best round's
 *     OUT/checkpoints/        where --resume continues; also variates-RRRRRR.bin, the states of
 *                             clients, where the strategy has them, and values-RRRRRR.bin, what
 *                             trainers of one's own keep for the clients
 *     OUT/lock                held by the program that writes here
 *
 * Lines are written as rounds end and synced with a checkpoint, every FEDGE_RESULTS_CHECKPOINT_MS
 * (or 20 times what writing one took, if that is longer) and at the end. A crash loses at most the
 * rounds since then.
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
#define FEDGE_RESULTS_MAX_NOTE (FEDGE_MAX_PATH + 128) /* bytes of fedge_results_describe's text */

typedef struct fedge_results {
    char dir[FEDGE_MAX_PATH];         /* "": nothing is written */
    char checkpoints[FEDGE_MAX_PATH]; /* DIR/checkpoints */
    bool resumed, locked;
    int lock; /* descriptor of DIR/lock */
    const fedge_job *job;
    fedge_simulation_settings settings;
    fedge_run_summary run_summary;
    fedge_best_model best; /* used with keep-best */
    fedge_round_log log;
    bool unsynced;          /* lines may not be on the disk: no further checkpoint */
    bool has_continued;     /* a phase has followed: the summary of an earlier end is removed */
    uint32_t checkpoint;    /* the newest one's round; 0: none */
    uint64_t checkpoint_ms; /* monotonic time of the newest checkpoint */
    uint64_t interval_ms;   /* time from the newest checkpoint to the next */
} fedge_results;

typedef struct fedge_results_config {
    const char *dir; /* NULL: nothing is written */
    bool resume;
    const fedge_job *job; /* outlives the results */
    const char *job_text;
    size_t job_size;
    const fedge_simulation_settings *settings;
    const double *targets; /* (num_targets), accuracies */
    uint32_t num_targets;
} fedge_results_config;

/* Makes the folder, or with config->resume opens one that was begun with the same job and settings,
 * if there is one: then results->resumed is true, and half-written files are removed. FEDGE_BUSY:
 * another program writes there. FEDGE_EXISTS: the folder has a simulation already, or other
 * files. FEDGE_MISMATCH says what differs. */
FEDGE_MUST_USE fedge_status fedge_results_open(fedge_results *results,
                                               const fedge_results_config *config,
                                               fedge_error *err);
void fedge_results_close(fedge_results *results); /* Call it also after a failed open. */

/* Writes partition.csv and partition.svg. FEDGE_MISMATCH: a resumed run had another division. */
FEDGE_MUST_USE fedge_status fedge_results_partition(const fedge_results *results,
                                                    const fedge_client_data *client_data,
                                                    fedge_error *err);

/* Restores [simulation] and the run summary from the newest checkpoint, if there is one, and cuts
 * rounds.jsonl after its round. FEDGE_MISMATCH: rounds.jsonl ends before that round. Call it
 * without --resume too. */
FEDGE_MUST_USE fedge_status fedge_results_begin(fedge_results *results,
                                                fedge_simulation *simulation, fedge_error *err);

/* Writes the line of a phase that has ended, and a checkpoint when the last one is old. Ends
 * [simulation] where early-stopping says so. */
FEDGE_MUST_USE fedge_status fedge_results_round(fedge_results *results,
                                                fedge_simulation *simulation,
                                                const fedge_round_summary *summary,
                                                fedge_error *err);

/* Writes picture and summary of the rounds so far, whatever the state of the model. */
FEDGE_MUST_USE fedge_status fedge_results_write_summary(
    const fedge_results *results, const fedge_final_evaluation *final_evaluation,
    const char *ending, fedge_error *err);

/* After a run's end or interruption: writes checkpoint, model, picture and summary. A checkpoint
 * for which the disk is too full is removed, and the model is written if it fits. */
FEDGE_MUST_USE fedge_status fedge_results_finish(fedge_results *results,
                                                 fedge_simulation *simulation,
                                                 const fedge_final_evaluation *final_evaluation,
                                                 const char *ending, fedge_error *err);

/* After a failed run: writes checkpoint and model of the last closed round if model, run summary
 * and the last line are of that round and the disk has space, else leaves the last checkpoint.
 * Writes picture and summary. [resume_note]: fedge_results_describe. */
void fedge_results_fail(fedge_results *results, fedge_simulation *simulation,
                        const fedge_final_evaluation *final_evaluation,
                        char resume_note[FEDGE_RESULTS_MAX_NOTE]);
/* Writes how many rounds the folder has and where --resume would continue; "" without a folder. */
void fedge_results_describe(const fedge_results *results, char resume_note[FEDGE_RESULTS_MAX_NOTE]);

#endif
