/* Data sets on a device: idx (MNIST's format), csv, npy, CIFAR, LEAF and safetensors files, plain
 * or gzip, loaded into memory. Values are stored as in the files (u8 or f32) and normalised on
 * reading.
 *
 * A data set may be divided among clients (edge/data/partitions/partition.h); a device loads only
 * its part. Training and validation views are lists of indices into one copy of the values.
 */
#ifndef FEDGE_EDGE_DATA_DATASET_H
#define FEDGE_EDGE_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/data/partitions/partition.h"
#include "edge/plan/plan.h"
#include "edge/train/trainer.h"

#define FEDGE_DATASET_MAX_BYTES ((uint64_t)8 << 30)        /* bytes of decoded values */
#define FEDGE_DATASET_MAX_EXAMPLES ((uint32_t)1 << 28)     /* examples of all files */
#define FEDGE_DATASET_MAX_EXAMPLE_VALUES ((size_t)1 << 26) /* values of one example */

/* Opaque: values as stored (u8 or f32), labels as int32. Any number of threads may read it. */
typedef struct fedge_dataset fedge_dataset;

/* Loads [values_path] and [labels_path]. Each is a path, folder or pattern, or several, one a line
 * (edge/data/formats/file_list.h); examples of several files are concatenated. The contents
 * determine the format: idx, npy, csv, safetensors or CIFAR (edge/data/formats/data_file.h), or
 * LEAF (edge/data/formats/leaf.h), plain or gzip. labels_path "": the values' files contain the
 * labels, as in LEAF, CIFAR and csv, whose last column is the label. Otherwise there are as many
 * label files, in the same order.
 *
 * All dimensions but the first must equal spec->shape, except that dimensions of 1 are ignored and
 * either side may be flat (one dimension). Values have spec->dtype; f64, f16 and bf16 are read as
 * f32. Labels are integers (idx or npy of one dimension, csv of one column).
 *
 * Every size is checked against [spec] before memory is allocated. FEDGE_MISMATCH: shape, dtype or
 * number of labels; FEDGE_OUT_OF_RANGE: a label not in [0, num_labels); FEDGE_NOT_FINITE: a value;
 * FEDGE_TRUNCATED, with both counts; FEDGE_CORRUPT, FEDGE_UNSUPPORTED, FEDGE_TOO_BIG,
 * FEDGE_NOT_FOUND, FEDGE_IO.
 */
FEDGE_MUST_USE fedge_status fedge_dataset_load(const fedge_data_spec *spec, const char *values_path,
                                               const char *labels_path, fedge_dataset **dataset,
                                               fedge_error *err);

/* Loads as fedge_dataset_load does, but only the examples that [partition] assigns to [part] of
 * [num_parts], in the files' order. The others are never in memory. With natural, the csv column of
 * owners is not a value. With per-file, only file [part] is read. */
FEDGE_MUST_USE fedge_status fedge_dataset_load_part(const fedge_data_spec *spec,
                                                    const char *values_path,
                                                    const char *labels_path,
                                                    const fedge_partition_spec *partition,
                                                    uint32_t part, uint32_t num_parts,
                                                    fedge_dataset **dataset, fedge_error *err);

/* A division among all parts. */
typedef struct fedge_division {
    const fedge_partition_spec *partition;
    uint32_t num_parts; /* 0: load an empty data set and read no file */
    double validation;  /* fraction of the examples that becomes FEDGE_PARTITION_VALIDATION; the
                           others are divided (fedge_partition_assign_with_validation) */
} fedge_division;

/* Loads the whole data set, for a simulation. *owner, malloc'ed, (size): the part of each example,
 * or FEDGE_PARTITION_UNUSED. Part j of fedge_dataset_load_part has the examples of owner j in the
 * same order. On failure both are NULL. */
FEDGE_MUST_USE fedge_status fedge_dataset_load_divided(
    const fedge_data_spec *spec, const char *values_path, const char *labels_path,
    const fedge_division *division, fedge_dataset **dataset, uint32_t **owner, fedge_error *err);

/* Guesses a job's description of these files, so that they can be loaded without a job: examples of
 * one dimension, as in the first file of values, u8 if it stores bytes and f32 otherwise, and as
 * many labels as the largest one needs. [partition]: as for fedge_dataset_load_part, or NULL. Name,
 * normalisation and augmentation stay empty. FEDGE_UNSUPPORTED for LEAF, whose examples need a job;
 * otherwise fails as fedge_dataset_load. */
FEDGE_MUST_USE fedge_status fedge_dataset_guess(const char *values_path, const char *labels_path,
                                                const fedge_partition_spec *partition,
                                                fedge_data_spec *spec, fedge_error *err);

void fedge_dataset_free(fedge_dataset *dataset); /* NULL is allowed */

uint32_t fedge_dataset_size(const fedge_dataset *dataset);
/* (size) examples as stored, of the job's dtype. */
const void *fedge_dataset_values(const fedge_dataset *dataset);
/* (size) labels. */
const int32_t *fedge_dataset_labels(const fedge_dataset *dataset);
/* Labels, writable for simulated attacks before the data set is shared. */
void fedge_dataset_set_label(fedge_dataset *dataset, uint32_t example, int32_t label);
/* Adds a backdoor's trigger: the last FEDGE_DATASET_MARK values of as many last rows, of each
 * channel, become 255, or for f32 the value that divide-by maps to 1. */
#define FEDGE_DATASET_MARK 4u
void fedge_dataset_stamp(fedge_dataset *dataset, uint32_t example);
/* Bytes of an example's stored values. */
size_t fedge_dataset_example_size(const fedge_dataset *dataset);
/* Appends [count] examples, which the caller fills before anyone reads: *values as stored, and
 * *labels. FEDGE_NO_MEMORY leaves the data set unchanged. */
FEDGE_MUST_USE fedge_status fedge_dataset_extend(fedge_dataset *dataset, uint32_t count,
                                                 void **values, int32_t **labels, fedge_error *err);
/* CRC-32 of stored values and labels, independent of the file format. */
uint32_t fedge_dataset_crc32(const fedge_dataset *dataset);

/* A subset of a data set, as examples for the trainer, normalised on reading. {dataset, NULL,
 * fedge_dataset_size(dataset)} is all of it. */
typedef struct fedge_view {
    const fedge_dataset *dataset;
    uint32_t *indices; /* malloc'ed, (count); NULL: all examples in order */
    uint32_t count;
} fedge_view;

/* [view] must outlive the result. Its read fails with FEDGE_OUT_OF_RANGE for an index ≥
 * num_examples. Examples of u8 are finite unless normalising overflows; floats are checked. */
fedge_examples fedge_view_examples(const fedge_view *view);
/* Σ (t − mean of t)² over the targets of [view] in their own units, the mean being that of each
 * target; 0 without targets. FEDGE_NO_MEMORY. */
FEDGE_MUST_USE fedge_status fedge_view_variation(const fedge_view *view, double *variation,
                                                 fedge_error *err);
void fedge_view_fini(fedge_view *view);

/* Moves floor(count · fraction) examples of [view] to [held_out], sampled by (seed, client_index)
 * without regard to labels; both keep the data set's order. fraction in [0, 1); with 0, [held_out]
 * is empty. On failure [held_out] is empty and [view] unchanged. */
FEDGE_MUST_USE fedge_status fedge_view_split(fedge_view *view, double fraction, uint64_t seed,
                                             uint32_t client_index, fedge_view *held_out,
                                             fedge_error *err);

#endif
