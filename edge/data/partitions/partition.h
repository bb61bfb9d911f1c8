/* Divides one data set among clients, for demonstrations, experiments and simulation. Each scheme
 * is a pure function of (data, scheme, number of parts, seed): every client computes the whole
 * division and uses its part, and a simulation gets the same division. Each scheme has a file,
 * NAME.c. */
#ifndef FEDGE_EDGE_DATA_PARTITIONS_PARTITION_H
#define FEDGE_EDGE_DATA_PARTITIONS_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_PARTITION_MIN_EXAMPLES 10    /* minimum of each part, for dirichlet and quantity */
#define FEDGE_PARTITION_MAX_ATTEMPTS 10000 /* attempts to reach that minimum */
#define FEDGE_PARTITION_MAX_DRAWS                                                                  \
    ((uint64_t)1 << 25) /* attempts · labels · parts, which takes seconds */
#define FEDGE_PARTITION_MIN_ALPHA 1e-3
#define FEDGE_PARTITION_MAX_ALPHA 1e6
#define FEDGE_PARTITION_MAX_LABELS ((uint32_t)1 << 20) /* labels of data divided by labels */
#define FEDGE_PARTITION_MAX_COUNT 65535u               /* shards or labels of a part */
#define FEDGE_PARTITION_MAX_SOURCE 512u /* bytes of a column's name or a path, with NUL */
#define FEDGE_PARTITION_MAX_TEXT 544u   /* bytes of a scheme's text with NUL */
#define FEDGE_PARTITION_MAX_NAMES ((size_t)1 << 28) /* bytes of all owners' names in a column */
#define FEDGE_PARTITION_UNUSED UINT32_MAX           /* owner of an unused example */
#define FEDGE_PARTITION_VALIDATION (UINT32_MAX - 1) /* owner of a validation example */

/* n examples, N parts, L labels. */
typedef enum fedge_partition_scheme {
    /* iid: a seeded shuffle, cut into equal ranges. */
    FEDGE_PARTITION_IID,

    /* shards:K (McMahan et al., AISTATS 2017): the examples, sorted by label (stably), are cut into
       K · N equal shards; each part gets K at random. */
    FEDGE_PARTITION_SHARDS,

    /* dirichlet:ALPHA (NIID-Bench, Li et al., ICDE 2022, distribution-based label skew): for each
       label p ~ Dir(alpha) over the parts; p := 0 for parts that have n / N examples already, and p
       is renormalised; the shuffled label is cut at the cumulative p. This is repeated until every
       part has at least FEDGE_PARTITION_MIN_EXAMPLES. */
    FEDGE_PARTITION_DIRICHLET,

    /* dirichlet-client:ALPHA (Hsu et al. 2019, arXiv 1909.06335): parts of equal size; each has q ~
       Dir(alpha) over the labels and draws each example's label from q. Parts draw in a random
       order, one example at a time; a label that is used up gets q = 0, and the others are
       renormalised. alpha is the concentration of each label, as in Flower's
       InnerDirichletPartitioner and FedLab, which draw in the same order; the paper's alpha
       multiplies a prior that sums to 1, so it is L times this one. */
    FEDGE_PARTITION_DIRICHLET_CLIENT,

    /* labels:K (NIID-Bench, quantity-based label skew, "#C = K"): part i has label i mod L and K −
       1 random others; a label's shuffled examples are divided equally among the parts that have
       it. Labels without examples are ignored. */
    FEDGE_PARTITION_LABELS,

    /* quantity:ALPHA (NIID-Bench, quantity skew): sizes ~ n · Dir(alpha), repeated until every part
       has FEDGE_PARTITION_MIN_EXAMPLES; a seeded shuffle is cut by them. */
    FEDGE_PARTITION_QUANTITY,

    /* natural:COLUMN: the values' csv files have a header and this column, which is not a value;
       LEAF's files have users: natural:user. It has the owner of each example; owners become parts
       0, 1, … in the order of their first examples. */
    FEDGE_PARTITION_NATURAL,

    /* file:CSV: a given division. The first line is "example,client"; the others have an example's
       index and its part, both from 0, in any order; part -1 is FEDGE_PARTITION_VALIDATION.
       Examples that are not listed are unused. Plain or gzip. */
    FEDGE_PARTITION_FILE,

    /* per-file: each file of values is a part, in the order of fedge_file_list. */
    FEDGE_PARTITION_PER_FILE,

    FEDGE_PARTITION_COUNT
} fedge_partition_scheme;

typedef struct fedge_partition_spec {
    fedge_partition_scheme scheme;
    uint64_t seed;  /* seed of all schemes but natural, file and per-file */
    double alpha;   /* α of dirichlet, dirichlet-client, quantity */
    uint32_t count; /* K of shards and labels */
    char source[FEDGE_PARTITION_MAX_SOURCE]; /* column of natural; path of file */
} fedge_partition_spec;

/* The data to divide. */
typedef struct fedge_partition_data {
    uint32_t num_examples;
    uint32_t num_labels;
    const int32_t *labels;     /* (num_examples), each in [0, num_labels); may be NULL for iid,
                                  quantity, natural, file and per-file */
    const char *values_path;   /* path as passed to fedge_dataset_load; needed by natural */
    uint32_t num_files;        /* number of values' files; 0 if unknown; needed by per-file */
    const uint32_t *file_ends; /* (num_files): examples up to and including each file, ascending */
} fedge_partition_data;

/* Parses a scheme, such as "dirichlet:0.5"; does not set spec->seed. FEDGE_INVALID_ARGUMENT names
 * the nearest scheme and lists all; FEDGE_OUT_OF_RANGE: an argument is beyond the limits above. */
FEDGE_MUST_USE fedge_status fedge_partition_parse(const char *text, fedge_partition_spec *spec,
                                                  fedge_error *err);

/* Formats [spec], without its seed, for fedge_partition_parse. */
void fedge_partition_text(const fedge_partition_spec *spec, char text[FEDGE_PARTITION_MAX_TEXT]);

/* Whether the data determine the number of parts, as with natural, file and per-file. */
bool fedge_partition_is_counted(const fedge_partition_spec *spec);

/* *num_parts: the number of parts of natural, file and per-file; 0 for other schemes, which allow
 * any number. Reads the file, with the errors below; FEDGE_INVALID_ARGUMENT: it has none. */
FEDGE_MUST_USE fedge_status fedge_partition_num_parts(const fedge_partition_spec *spec,
                                                      const char *values_path, uint32_t *num_parts,
                                                      fedge_error *err);

/* Parts of equal size, by rank of the first target, that stand for labels where numbers are
 * learned.
 */
#define FEDGE_PARTITION_BINS 10u
/* Whether the scheme divides by labels. */
bool fedge_partition_needs_labels(const fedge_partition_spec *spec);

/* For per-file: FEDGE_MISMATCH unless there are as many files as parts. */
FEDGE_MUST_USE fedge_status fedge_partition_check_files(uint32_t num_files, uint32_t num_parts,
                                                        fedge_error *err);

/* Assigns parts: owner[i], (num_examples), is the part of example i, in [0, num_parts), or
 * FEDGE_PARTITION_UNUSED or _VALIDATION for file. Every part has at least one example. Time and
 * memory grow with examples + parts, for the two Dirichlets also with parts · labels.
 *
 * FEDGE_INVALID_ARGUMENT, with a remedy: a part cannot get its minimum (K with shards and labels,
 * FEDGE_PARTITION_MIN_EXAMPLES with dirichlet and quantity, else 1) or no attempt gave it; a label
 * has too few examples for its parts, or no part. FEDGE_OUT_OF_RANGE: a bad label, example or
 * client; FEDGE_DUPLICATE: an example is listed twice; FEDGE_MISMATCH: natural's column has another
 * number of owners or rows, or there are not [num_parts] files for per-file; FEDGE_NOT_FOUND: a
 * missing column or file; FEDGE_UNSUPPORTED: natural without a csv file; FEDGE_TOO_BIG: more than
 * FEDGE_PARTITION_MAX_DRAWS, _LABELS or _NAMES; errors of reading a csv file.
 *
 * Equal arguments give the same division on all machines whose libm gives the same logarithms and
 * powers (fedge_rng_gamma).
 */
FEDGE_MUST_USE fedge_status fedge_partition_assign(const fedge_partition_spec *spec,
                                                   const fedge_partition_data *data,
                                                   uint32_t num_parts, uint32_t *owner,
                                                   fedge_error *err);

/* Assigns floor([fraction] · num_examples) random examples, fraction in [0, 1), to
 * FEDGE_PARTITION_VALIDATION, and divides the others as if they were the whole data set. The choice
 * depends only on spec->seed. With natural, file and per-file, it is made among the examples that
 * have a part.
 *
 * Fails as fedge_partition_assign; FEDGE_INVALID_ARGUMENT also if the fraction is less than one
 * example, or file lists validation examples.
 */
FEDGE_MUST_USE fedge_status fedge_partition_assign_with_validation(
    const fedge_partition_spec *spec, const fedge_partition_data *data, double fraction,
    uint32_t num_parts, uint32_t *owner, fedge_error *err);

/* Groups examples by owner: part j has examples[start[j]] … examples[start[j + 1] − 1], ascending.
 * owner: (num_examples), ignored if ≥ [num_parts]; start: (num_parts + 1); examples:
 * (num_examples). */
void fedge_partition_group(const uint32_t *owner, uint32_t num_examples, uint32_t num_parts,
                           uint32_t *start, uint32_t *examples);

/* Writes a division in the format of file, sorted by example. Replaces [path] atomically. */
FEDGE_MUST_USE fedge_status fedge_partition_write_csv(const char *path, const uint32_t *owner,
                                                      uint32_t num_examples, fedge_error *err);

#endif
