/* The members of a data set, and the loading of its labels and values. Internal to edge/data. */
#ifndef FEDGE_EDGE_DATA_DATASET_LOAD_H
#define FEDGE_EDGE_DATA_DATASET_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/data/dataset.h"
#include "edge/data/formats/csv.h"
#include "edge/data/formats/file_list.h"

/* ---- levels ---------------------------------------------------------------------------------- */

/* Levels: the normalised values of a u8:
 *
 * x = (v / divide_by − mean) / std, each operation rounded to float, for v = 0 … 255
 *
 * They are in a table. Where SIMD is faster than a table, it computes them without a division, with
 * the same bits: all 256 are compared when the levels are made.
 */

#define FEDGE_LEVELS 256

/* A division x / d as x · high + x · low, fused; high + low is 1 / d to about 48 bits. */
typedef struct fedge_reciprocal {
    float high, low;
} fedge_reciprocal;

/* Plain data. */
typedef struct fedge_levels {
    float table[FEDGE_LEVELS];
    /* x[0, n) from v, with the bits of the table; NULL: use the table. [next] (n) is prefetched. */
    void (*read)(const struct fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                 float *x);
    fedge_reciprocal divide_by, std;
    float mean;
} fedge_levels;

/* mean 0 and std 1: only divides. [cpu_features]: FEDGE_CPU_… that may be used. */
void fedge_levels_make(fedge_levels *levels, float divide_by, float mean, float std,
                       unsigned cpu_features);

/* x[i] = table[v[i]], i < n. [next] (n) is prefetched; v if there is none. */
void fedge_levels_read(const fedge_levels *levels, const uint8_t *v, size_t n, const uint8_t *next,
                       float *x);

/* Prefetches [size] bytes into the L2 cache on machines that are known to benefit. */
void fedge_levels_fetch(const uint8_t *bytes, size_t size);

/* ---- data sets ------------------------------------------------------------------------------- */

/* Bytes of an example besides its values: label and owner. */
#define FEDGE_DATASET_ROW (sizeof(int32_t) + sizeof(uint32_t))

struct fedge_dataset {
    fedge_data_spec spec;
    size_t example_values; /* product of spec.shape */
    size_t plane;          /* values of one channel of an example */
    uint32_t count;        /* examples loaded */
    void *values;          /* (count, example_values) of spec.dtype */
    int32_t *labels;       /* (count); 0 where numbers are learned */
    uint32_t num_targets;  /* numbers stored for each example besides; 0: none */
    float *targets;        /* (count, num_targets) as in the files */
    fedge_levels *levels;  /* u8 only: (max(1, num_channels)) tables; NULL for more channels than
                              have tables */
    bool finite;           /* u8 only: no level is NaN or infinite; floats are checked one by one */
};

/* The files of a data set. */
typedef struct fedge_dataset_files {
    fedge_file_list values;
    fedge_file_list labels; /* one file for each file of values, in the same order; empty: the
                               values' files have the labels */
    uint32_t *ends; /* (values.count), malloc'ed by fedge_labels_load: examples in the files up to
                       and including this one */
} fedge_dataset_files;

/* Opens a csv file of such data: the column [aside] is set aside, and the columns of the targets
 * follow the others. */
FEDGE_MUST_USE fedge_status fedge_data_csv_open(fedge_csv *csv, const fedge_data_spec *spec,
                                                const char *path, uint64_t columns,
                                                const char *aside, fedge_error *err);

/* The numbers behind the values in a row of csv files that have both: the label, or targets. */
uint32_t fedge_data_inline_columns(const fedge_data_spec *spec);

/* Reads what is learned: dataset->labels of all examples, each in [0, num_labels); or with
 * targets dataset->targets too, and labels of 0. [aside]: a column of csv files of values that is
 * no value, or NULL. *count: examples in all files. */
FEDGE_MUST_USE fedge_status fedge_answers_load(fedge_dataset *dataset, fedge_dataset_files *files,
                                               const char *aside, uint32_t *count,
                                               fedge_error *err);

/* Gives each of [count] examples as its label which of [bins] parts of equal size its first target
 * is in, by rank: for partitions that divide by label. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_targets_bin(fedge_dataset *dataset, uint32_t count, uint32_t bins,
                                              fedge_error *err);

/* Reads all labels. [aside]: a column of csv files of values that is no value, or NULL.
 * [example_values]: of one example. *labels is malloc'ed, (*count), each in [0, num_labels). */
FEDGE_MUST_USE fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                                              fedge_dataset_files *files, const char *aside,
                                              int32_t **labels, uint32_t *count, fedge_error *err);

/* Reads values for as many examples as there are labels, and stores those with owner[i] == [part],
 * dataset->count of them, in dataset->values, which it allocates after checking all headers. owner:
 * of the examples of all files; NULL: store all. [aside]: as above. */
FEDGE_MUST_USE fedge_status fedge_values_load(fedge_dataset *dataset,
                                              const fedge_dataset_files *files, const char *aside,
                                              const uint32_t *owner, uint32_t part,
                                              fedge_error *err);

#endif
