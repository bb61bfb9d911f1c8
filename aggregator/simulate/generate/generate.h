/* Writes synthetic data (synthetic.h) as ordinary files, with a job that learns them:
 *
 *     DIR/train-values.npy, train-labels.npy   client by client
 *     DIR/test-values.npy, test-labels.npy     the job's test set
 *     DIR/owners.csv                           the owner of each example (partition.h, file:CSV)
 *     DIR/client.json                          names these
 *     DIR/job.json                             written last
 *
 * Values are float32 or uint8, labels int32.
 */
#ifndef FEDGE_AGGREGATOR_SIMULATE_GENERATE_GENERATE_H
#define FEDGE_AGGREGATOR_SIMULATE_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "aggregator/simulate/generate/synthetic.h"
#include "edge/core/bytes.h"
#include "edge/core/command_line.h"
#include "edge/core/status.h"

#define FEDGE_GENERATE_MAX_TEXT 64 /* bytes of a kind as text, with NUL */

typedef struct fedge_generate_settings {
    fedge_synthetic_spec data;
    char text[FEDGE_GENERATE_MAX_TEXT]; /* the kind, as given */
    const char *dir;
    uint64_t seed;
    uint32_t num_clients;
    uint32_t num_examples; /* training examples per client; 0: fedprox's law gives the number */
    uint32_t num_test;     /* test examples, but for fedprox each client adds its own */
    bool force;            /* replace existing files */
} fedge_generate_settings;

typedef struct fedge_generate_report {
    uint64_t num_train, num_test;
    uint32_t min_train, max_train; /* training examples of a client */
    double best_accuracy;          /* the highest possible on the test set; NAN: unknown */
} fedge_generate_report;

/* Writes the files. FEDGE_EXISTS names an existing one; FEDGE_TOO_BIG: more examples or bytes than
 * a data set may have, before anything is written; FEDGE_NO_SPACE. After a later failure the
 * written files are removed. */
FEDGE_MUST_USE fedge_status fedge_generate(const fedge_generate_settings *settings,
                                           fedge_generate_report *report, fedge_error *err);

/* The text of job.json. */
FEDGE_MUST_USE fedge_status fedge_generate_job(const fedge_generate_settings *settings,
                                               fedge_buffer *text, fedge_error *err);
/* The command line of fedge-simulate generate. */

typedef struct fedge_generate_options {
    fedge_generate_settings settings; /* dir is argv's */
    bool help;
} fedge_generate_options;

/* Reads argv, whose first word is "generate". FEDGE_INVALID_ARGUMENT; FEDGE_OUT_OF_RANGE: of a
 * kind's numbers. */
FEDGE_MUST_USE fedge_status fedge_generate_options_parse(int argc, char **argv,
                                                         fedge_generate_options *options,
                                                         fedge_error *err);

/* For --help: fits a screen; returns [text]. */
const char *fedge_generate_options_help(char text[FEDGE_HELP_SIZE]);

#endif
