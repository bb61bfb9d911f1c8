/* Data sets on a device: idx (MNIST's format), csv, npy, CIFAR, LEAF and safetensors files, plain
 * or gzip, in memory.
 *
 * Values are kept as they are stored (u8 or f32) and normalised on reading. A data set may be
 * divided among clients (edge/data/partitions/partition.h): then only the device's own part is
 * kept. A part or a whole may be split into a training and a validation view by index over one copy
 * of the values.
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

#define FEDGE_DATASET_MAX_BYTES ((uint64_t)8 << 30)        /* of decoded values */
#define FEDGE_DATASET_MAX_EXAMPLES ((uint32_t)1 << 28)     /* in the files */
#define FEDGE_DATASET_MAX_EXAMPLE_VALUES ((size_t)1 << 26) /* of one example */

/* Opaque: values as stored (u8 or f32), labels as int32. Read by any number of threads. */
typedef struct fedge_dataset fedge_dataset;

/* Loads [values_path] and [labels_path]: each a path, folder or pattern, or several, one per line
 * (edge/data/formats/file_list.h); the files' examples one behind the other. Each file by its
 * contents: idx, npy, csv, safetensors (edge/data/formats/data_file.h), LEAF's
 * (edge/data/formats/leaf.h) or CIFAR's (data_file.h), plain or gzip. labels_path
 * "": the files of the values have the labels, as LEAF's, CIFAR's and csv do, where the label is
 * the last column of each row; else as many files, in the same order, have them.
 *
 * Dimensions of the file behind the first must be spec->shape; dimensions of 1 do not matter, and
 * either side may be flat (one dimension). Values: spec->dtype, with f64, f16 and bf16 read as f32.
 * Labels: integers (idx or npy of one dimension, csv of one column).
 *
 * Checks every size against [spec] before memory is taken: FEDGE_MISMATCH for shape, dtype and
 * number of labels, FEDGE_OUT_OF_RANGE for a label not in [0, num_labels), FEDGE_NOT_FINITE for a
 * value; FEDGE_TRUNCATED with both counts, FEDGE_CORRUPT, FEDGE_UNSUPPORTED, FEDGE_TOO_BIG,
 * FEDGE_NOT_FOUND, FEDGE_IO. */
FEDGE_MUST_USE fedge_status fedge_dataset_load(const fedge_data_spec *spec, const char *values_path,
                                               const char *labels_path, fedge_dataset **dataset,
                                               fedge_error *err);

/* As fedge_dataset_load, and keeps only the examples that [partition] gives to [part] of
 * [num_parts], in the order of the files; the others are never in memory. With natural a column of
 * the csv files is no value: the one that names the owners. With per-file only file [part] is read.
 */
FEDGE_MUST_USE fedge_status fedge_dataset_load_part(const fedge_data_spec *spec,
                                                    const char *values_path,
                                                    const char *labels_path,
                                                    const fedge_partition_spec *partition,
                                                    uint32_t part, uint32_t num_parts,
                                                    fedge_dataset **dataset, fedge_error *err);

/* A division among all parts at once. */
typedef struct fedge_division {
    const fedge_partition_spec *partition;
    uint32_t num_parts; /* 0: the data set is empty, and no file is read */
    double validation;  /* fraction of the examples that becomes FEDGE_PARTITION_VALIDATION; the
                           others are divided (fedge_partition_assign_with_validation) */
} fedge_division;

/* Loads the whole data set, as a simulation wants it. *owner, malloc'ed, (size): the part of each
 * example, or FEDGE_PARTITION_UNUSED. Part j of fedge_dataset_load_part has the examples of owner j
 * in the same order. On failure both are NULL. */
FEDGE_MUST_USE fedge_status fedge_dataset_load_divided(
    const fedge_data_spec *spec, const char *values_path, const char *labels_path,
    const fedge_division *division, fedge_dataset **dataset, uint32_t **owner, fedge_error *err);

/* What a job might say of these files, so that they can be loaded without one: examples of one
 * dimension, as the first file of the values has them, u8 if it holds bytes and f32 else, and as
 * many labels as the largest wants. [partition]: of fedge_dataset_load_part, or NULL. No file has a
 * name, normalisation or augmentation, so these stay empty. FEDGE_UNSUPPORTED for LEAF's files,
 * whose examples only a job describes; else as fedge_dataset_load. */
FEDGE_MUST_USE fedge_status fedge_dataset_guess(const char *values_path, const char *labels_path,
                                                const fedge_partition_spec *partition,
                                                fedge_data_spec *spec, fedge_error *err);

void fedge_dataset_free(fedge_dataset *dataset); /* NULL is fine */

uint32_t fedge_dataset_size(const fedge_dataset *dataset);
/* (size) examples as they are stored, of the job's dtype. */
const void *fedge_dataset_values(const fedge_dataset *dataset);
/* (size) labels. */
const int32_t *fedge_dataset_labels(const fedge_dataset *dataset);
/* For simulated attacks on data, before anyone else reads it. */
void fedge_dataset_set_label(fedge_dataset *dataset, uint32_t example, int32_t label);
/* A mark: the last FEDGE_DATASET_MARK values of the last as many rows, of each channel, become
 * 255, or for f32 what is 1 once it is divided (divide-by). */
#define FEDGE_DATASET_MARK 4u
void fedge_dataset_stamp(fedge_dataset *dataset, uint32_t example);
/* Bytes of an example's values as they are stored. */
size_t fedge_dataset_example_size(const fedge_dataset *dataset);
/* Room for [count] examples behind the others, which the caller fills before anyone reads:
 * *values, as they are stored, and *labels. FEDGE_NO_MEMORY leaves the data set as it was. */
FEDGE_MUST_USE fedge_status fedge_dataset_extend(fedge_dataset *dataset, uint32_t count,
                                                 void **values, int32_t **labels, fedge_error *err);
/* CRC-32 of values and labels as they are stored, whatever files they came from. */
uint32_t fedge_dataset_crc32(const fedge_dataset *dataset);

/* A part of a data set, as examples for the trainer: normalised on reading.
 * {dataset, NULL, fedge_dataset_size(dataset)} is all of it. */
typedef struct fedge_view {
    const fedge_dataset *dataset;
    uint32_t *indices; /* malloc'ed, (count); NULL: all examples in order */
    uint32_t count;
} fedge_view;

/* [view] must outlive the result. Its read gives FEDGE_OUT_OF_RANGE for an index ≥ num_examples.
 * Examples of u8 are finite unless their normalisation overflows; those of floats are looked at. */
fedge_examples fedge_view_examples(const fedge_view *view);
void fedge_view_fini(fedge_view *view);

/* Moves floor(count · fraction) examples of [view] to [held_out], chosen by (seed, client_index)
 * without regard to labels; both keep the order of the data set. fraction in [0, 1); 0: held_out
 * is empty. [held_out] is overwritten; on failure it is empty and [view] as it was. */
FEDGE_MUST_USE fedge_status fedge_view_split(fedge_view *view, double fraction, uint64_t seed,
                                             uint32_t client_index, fedge_view *held_out,
                                             fedge_error *err);

#endif
