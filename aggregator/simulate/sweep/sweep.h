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
#define FEDGE_SWEEP_TABLE "sweep.csv" /* in options->out, beside the runs */

typedef struct fedge_sweep fedge_sweep;

/* Reads options->axes. Everything is checked that can be without data: each combination's job,
 * client's file and partition must be valid (fedge_experiment_check), no setting and none of its
 * values may stand twice, and without options->resume no run's folder may be there (FEDGE_EXISTS);
 * options->out is made and must be writable. options, the job's text and
 * [collective], of the ranks that deal the runs among them (NULL: alone), outlive the sweep. */
FEDGE_MUST_USE fedge_status fedge_sweep_new(const fedge_simulate_options *options,
                                            const fedge_collective *collective,
                                            const char *job_text, size_t job_size,
                                            fedge_sweep **sweep, fedge_error *err);
void fedge_sweep_free(fedge_sweep *sweep); /* NULL is fine */

/* Runs them all, each into options->out/NAME: all combinations with the first seed, then with the
 * next. Several ranks all call it and deal the runs in turn; at the end rank 0 has what came of
 * all, and the first rank's failure is that of all. As many go side by side, each on its share of
 * the threads, as it takes to keep all threads at work: one at a time where its rounds train as
 * many clients as there are threads, or where memory does not hold two. A run that fails in its
 * rounds (it diverged) or before (the data cannot be divided so) is noted and the others go on.
 * With options->resume, runs that are there are gone on with. FEDGE_CANCELLED when [cancel] said
 * so, which any thread may ask: all under way are interrupted, and what they did is kept. A file
 * that cannot be written, or want of memory in a run's rounds, ends them all likewise with its
 * status. Unless options->quiet or json says not to, standard error has a line for each run that
 * has ended, in the order of their ends, and where it is a terminal a bar meanwhile if one goes at
 * a time; it also has a note of an option whose place an axis takes, and before the first run that
 * nothing will be evaluated when that is so. */
FEDGE_MUST_USE fedge_status fedge_sweep_run(fedge_sweep *sweep, fedge_cancel_fn cancel, void *user,
                                            fedge_error *err);

uint32_t fedge_sweep_num_done(const fedge_sweep *sweep);   /* runs, those that failed too */
uint32_t fedge_sweep_num_unable(const fedge_sweep *sweep); /* of these, those that had no round */

/* The table of what has been run, and why runs failed; options->json: one line of JSON per
 * combination. Where runs have examples for validation, the combination with the best accuracy on
 * them is marked. Columns are those that any run has a number for; losses stand where no
 * accuracy does (losses of real numbers). */
void fedge_sweep_print(const fedge_sweep *sweep, FILE *out);

/* Writes the table as csv to options->out, with every measure that any run has. Does nothing
 * without options->out. Fails as writing a file does. */
FEDGE_MUST_USE fedge_status fedge_sweep_leave(const fedge_sweep *sweep, fedge_error *err);

#endif
