/* A sweep: one job with every combination of the values of some settings, a simulation of each,
 * and a table of them.
 *
 *     --sweep lr=0.03,0.1 partition=iid,dirichlet:0.3 seeds=3
 *
 * An axis is KEY=VALUE,VALUE…. KEY: partition, clients, rounds; a key of the job with its path
 * (training.batch-size), or one of the short names lr, epochs, batch, fraction, server-lr,
 * momentum, strategy, codec; seeds=N: seeds S, S + 1, … S + N − 1 for job and division, over which
 * the table has mean and sample standard deviation.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_SWEEP_SWEEP_H
#define FEDGE_AGGREGATOR_SIMULATE_SWEEP_SWEEP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "aggregator/reduce/collective.h"
#include "aggregator/simulate/experiment/options.h"
#include "edge/core/status.h"
#include "edge/train/trainer.h"

#define FEDGE_SWEEP_MAX_RUNS 10000u
#define FEDGE_SWEEP_TABLE "sweep.csv" /* a file in options->out, beside the runs */

typedef struct fedge_sweep fedge_sweep;

/* Reads options->axes, and checks what needs no data: each combination's job, client file and
 * partition must be valid (fedge_experiment_check), no setting and no value of one may be given
 * twice, and without options->resume no run's folder may exist (FEDGE_EXISTS). Makes options->out,
 * which must be writable. options, the job's text and [collective], of ranks that divide the runs
 * (NULL: alone), must outlive the sweep. */
FEDGE_MUST_USE fedge_status fedge_sweep_new(const fedge_simulate_options *options,
                                            const fedge_collective *collective,
                                            const char *job_text, size_t job_size,
                                            fedge_sweep **sweep, fedge_error *err);
void fedge_sweep_free(fedge_sweep *sweep); /* NULL is fine */

/* Does all runs, each into options->out/NAME: all combinations with the first seed, then with the
 * next. All ranks call it and take runs in turn; at the end rank 0 has all results, and all ranks
 * have the first failure.
 *
 * Runs go side by side, each on some of the threads, until all threads are busy: one at a time
 * where its rounds train as many clients as there are threads, or where memory does not hold two. A
 * run that fails in its rounds (it diverged) or before (the data cannot be divided in this way) is
 * noted, and the others continue. With options->resume existing runs are continued.
 *
 * FEDGE_CANCELLED: [cancel], which any thread may call, returned true; all runs are interrupted and
 * their results stay. A file that cannot be written, or a lack of memory in a run's rounds, ends
 * all runs in the same way.
 *
 * Unless options->quiet or json, prints a line for each run that has ended to standard error, and
 * on a terminal a bar if one goes at a time. Also notes options that an axis replaces, and before
 * the first run that nothing will be evaluated. */
FEDGE_MUST_USE fedge_status fedge_sweep_run(fedge_sweep *sweep, fedge_cancel_fn cancel, void *user,
                                            fedge_error *err);

/* The number of runs that have ended, with those that failed; of these, those that could not begin.
 */
uint32_t fedge_sweep_num_done(const fedge_sweep *sweep);
uint32_t fedge_sweep_num_unable(const fedge_sweep *sweep);

/* Prints the table of the runs and why runs failed; with options->json a line of JSON for each
 * combination. Marks the combination with the best accuracy on examples for validation. Has columns
 * for which any run has a number, and losses where there is no accuracy. */
void fedge_sweep_print(const fedge_sweep *sweep, FILE *out);

/* Writes the table as csv to options->out, if it is set, with every measure that any run has. Fails
 * as writing a file does. */
FEDGE_MUST_USE fedge_status fedge_sweep_write(const fedge_sweep *sweep, fedge_error *err);

#endif
