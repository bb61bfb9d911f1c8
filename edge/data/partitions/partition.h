/* Dividing one data set among clients, for demonstrations, experiments and simulation.
 *
 * Each scheme is a pure function of (data, scheme, number of parts, seed): every client computes
 * the whole division and keeps its own part, and a simulation that divides for all of them gets the
 * same. Each has a file, NAME.c.
 */
#ifndef FEDGE_EDGE_DATA_PARTITIONS_PARTITION_H
#define FEDGE_EDGE_DATA_PARTITIONS_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PARTITION_MIN_EXAMPLES 10               /* of each part; dirichlet and quantity */
#define FEDGE_PARTITION_MAX_ATTEMPTS 10000            /* to get there */
#define FEDGE_PARTITION_MAX_DRAWS ((uint64_t)1 << 25) /* attempts · labels · parts: seconds */
#define FEDGE_PARTITION_MIN_ALPHA 1e-3
#define FEDGE_PARTITION_MAX_ALPHA 1e6
#define FEDGE_PARTITION_MAX_LABELS ((uint32_t)1 << 20) /* of data that is divided by them */
#define FEDGE_PARTITION_MAX_COUNT 65535u               /* shards or labels of a part */
#define FEDGE_PARTITION_MAX_SOURCE 512u /* bytes of a column's name or a path, with NUL */
#define FEDGE_PARTITION_MAX_TEXT 544u   /* of a scheme as text, with NUL */
#define FEDGE_PARTITION_MAX_NAMES ((size_t)1 << 28) /* bytes of the names of a column's owners */
#define FEDGE_PARTITION_UNUSED UINT32_MAX           /* the owner of an unused example */
#define FEDGE_PARTITION_VALIDATION (UINT32_MAX - 1) /* of one that is kept to validate with */

/* n examples, N parts, L labels. */
typedef enum fedge_partition_scheme {
    /* iid: a seeded shuffle, cut into equal runs. */
    FEDGE_PARTITION_IID,

    /* shards:K (McMahan et al., AISTATS 2017): the examples, sorted by label (those of a label stay
     * in the order of the file), are cut into K · N equal shards; each part gets K at random. */
    FEDGE_PARTITION_SHARDS,

    /* dirichlet:ALPHA (NIID-Bench, Li et al., ICDE 2022, distribution-based label skew): per label
     * p ~ Dir(alpha) over the parts; a part that has its fair share, n / N, gets none (p := 0,
     * renormalised); the shuffled label is cut at the cumulative p. All of it is drawn again until
     * every part has at least FEDGE_PARTITION_MIN_EXAMPLES. */
    FEDGE_PARTITION_DIRICHLET,

    /* dirichlet-client:ALPHA (Hsu et al. 2019, arXiv 1909.06335): parts of equal size; each has
     * q ~ Dir(alpha) over the labels, and each of its examples is of a label drawn from q. Parts
     * draw in a random order, an example at a time; a label that is used up has q = 0 from then on,
     * the rest renormalised. alpha is the concentration of every label, as in Flower's
     * InnerDirichletPartitioner and FedLab, which draw in this order too; the paper's alpha stands
     * before a prior that sums to 1, so it is L times this one. */
    FEDGE_PARTITION_DIRICHLET_CLIENT,

    /* labels:K (NIID-Bench, quantity-based label skew, "#C = K"): part i has label i mod L and
     * K − 1 others at random; the shuffled examples of a label are divided equally among the parts
     * that have it. Labels without examples do not count. */
    FEDGE_PARTITION_LABELS,

    /* quantity:ALPHA (NIID-Bench, quantity skew): sizes ~ n · Dir(alpha), drawn again until every
     * part has FEDGE_PARTITION_MIN_EXAMPLES; a seeded shuffle is cut there. */
    FEDGE_PARTITION_QUANTITY,

    /* natural:COLUMN: the values' csv files have a header and a column of this name, which is none
     * of the values; LEAF's files have users, natural:user. It names the owner of each example;
     * owners become parts 0, 1, … in the order of their first examples in the file. */
    FEDGE_PARTITION_NATURAL,

    /* file:CSV: as someone decided. The first line is "example,client"; every other has the index
     * of an example and that of its part, both from 0, in any order; part -1 stands for
     * FEDGE_PARTITION_VALIDATION. An example that is not listed is unused. Plain or gzip. */
    FEDGE_PARTITION_FILE,

    /* per-file: each file of the values is one part's, in the order of fedge_file_list. */
    FEDGE_PARTITION_PER_FILE,

    FEDGE_PARTITION_COUNT
} fedge_partition_scheme;

typedef struct fedge_partition_spec {
    fedge_partition_scheme scheme;
    uint64_t seed;                           /* of all schemes but natural, file and per-file */
    double alpha;                            /* dirichlet, dirichlet-client, quantity */
    uint32_t count;                          /* shards, labels: K */
    char source[FEDGE_PARTITION_MAX_SOURCE]; /* natural: the column; file: the path */
} fedge_partition_spec;

/* What is divided. */
typedef struct fedge_partition_data {
    uint32_t num_examples;
    uint32_t num_labels;
    const int32_t *labels;   /* (num_examples), each in [0, num_labels); NULL where there are none:
                                for   iid, quantity, natural, file and per-file */
    const char *values_path; /* as fedge_dataset_load has it; for natural, else it may be NULL */
    uint32_t num_files;      /* of the values; 0 when it is not known, as only per-file asks */
    const uint32_t *file_ends; /* (num_files): examples up to and with each file, ascending */
} fedge_partition_data;

/* One of the texts above, "dirichlet:0.5"; spec->seed is left alone. FEDGE_INVALID_ARGUMENT names
 * the nearest scheme and lists all; FEDGE_OUT_OF_RANGE for an argument beyond the limits above. */
FEDGE_MUST_USE fedge_status fedge_partition_parse(const char *text, fedge_partition_spec *spec,
                                                  fedge_error *err);

/* The text that fedge_partition_parse reads back as [spec], but for the seed. */
void fedge_partition_text(const fedge_partition_spec *spec, char text[FEDGE_PARTITION_MAX_TEXT]);

/* Does the scheme say itself how many parts there are? natural, file and per-file do. */
bool fedge_partition_is_counted(const fedge_partition_spec *spec);

/* *num_parts gets how many parts natural, file and per-file have, and 0 for the others, which
 * divide among any number. Reads the file: its errors, as below; FEDGE_INVALID_ARGUMENT when it
 * has none. */
FEDGE_MUST_USE fedge_status fedge_partition_num_parts(const fedge_partition_spec *spec,
                                                      const char *values_path, uint32_t *num_parts,
                                                      fedge_error *err);

/* FEDGE_MISMATCH unless there are as many files as parts: for per-file. */
FEDGE_MUST_USE fedge_status fedge_partition_check_files(uint32_t num_files, uint32_t num_parts,
                                                        fedge_error *err);

/* owner[i] gets the part, in [0, num_parts), of example i; FEDGE_PARTITION_UNUSED or _VALIDATION
 * where file says so. [owner]: (num_examples). Every part has at least one example. Time and memory
 * grow with examples + parts, for the two Dirichlets with parts · labels too.
 *
 * FEDGE_INVALID_ARGUMENT, with what to change, when a part cannot get its minimum (K with shards
 * and labels, FEDGE_PARTITION_MIN_EXAMPLES with dirichlet and quantity, else 1) or no attempt gave
 * it; when a label cannot be given to all the parts that are to have it, or no example has it.
 * FEDGE_OUT_OF_RANGE for a label, example or client that is not there; FEDGE_DUPLICATE for an
 * example that stands twice; FEDGE_MISMATCH when natural's column has more or fewer owners or rows,
 * or per-file other than [num_parts] files;
 * FEDGE_NOT_FOUND for a column or file that does not exist; FEDGE_UNSUPPORTED for natural without a
 * csv file; FEDGE_TOO_BIG for more than FEDGE_PARTITION_MAX_DRAWS, _LABELS or _NAMES; what
 * reading a csv file gives. The same arguments give the same division on every machine whose libm
 * gives the same logarithms and powers (fedge_rng_gamma). */
FEDGE_MUST_USE fedge_status fedge_partition_assign(const fedge_partition_spec *spec,
                                                   const fedge_partition_data *data,
                                                   uint32_t num_parts, uint32_t *owner,
                                                   fedge_error *err);

/* The same for a data set of which floor([fraction] · num_examples) examples, fraction in [0, 1),
 * are first set apart for validation, whatever their labels: they get FEDGE_PARTITION_VALIDATION,
 * and the others are divided as if they were all there is. Which ones depends on spec->seed alone.
 * With natural, file and per-file, where each example has its part already, it loses those that are
 * set apart, of the examples that have one.
 *
 * As fedge_partition_assign; and FEDGE_INVALID_ARGUMENT when the fraction is less than one example,
 * or the file names examples for validation itself. */
FEDGE_MUST_USE fedge_status fedge_partition_assign_with_validation(
    const fedge_partition_spec *spec, const fedge_partition_data *data, double fraction,
    uint32_t num_parts, uint32_t *owner, fedge_error *err);

/* Examples by owner: those of part j, ascending, are examples[start[j]] … examples[start[j + 1] −
 * 1]. owner: (num_examples); those that are not below [num_parts] are left out;
 * start: (num_parts + 1); examples: (num_examples). */
void fedge_partition_group(const uint32_t *owner, uint32_t num_examples, uint32_t num_parts,
                           uint32_t *start, uint32_t *examples);

/* Writes a division as file: reads it, examples in order. Replaces [path] as a whole. */
FEDGE_MUST_USE fedge_status fedge_partition_write_csv(const char *path, const uint32_t *owner,
                                                      uint32_t num_examples, fedge_error *err);

#endif
