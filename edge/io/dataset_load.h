/* What a data set is made of, and the loading of its two halves. Internal to edge/io. */
#ifndef FEDGE_EDGE_IO_DATASET_LOAD_H
#define FEDGE_EDGE_IO_DATASET_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/io/dataset.h"

#define FEDGE_DATASET_LEVELS 256 /* values of a u8 */

struct fedge_dataset {
    fedge_data_spec spec;
    size_t example_values; /* product of spec.shape */
    size_t plane;          /* values of one channel of an example */
    uint32_t count;        /* examples kept */
    void *values;          /* (count, example_values) of spec.dtype */
    int32_t *labels;       /* (count) */
    float *table;          /* u8 only: (max(1, num_channels), 256), a stored value normalised */
};

/* Which of a file's examples are wanted. */
typedef struct fedge_selection {
    uint32_t num_examples; /* in the file */
    const uint32_t *owner; /* (num_examples); NULL: all are wanted */
    uint32_t part;         /* those i with owner[i] == part */
} fedge_selection;

/* Reads all labels of [labels_path], or those in the last column of [values_path]. [aside]: a
 * column of a csv file of values that is no value, or NULL. [example_values]: of one example.
 * *labels is malloc'ed, (*count), each in [0, num_labels). */
FEDGE_MUST_USE fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                                              const char *values_path, const char *labels_path,
                                              const char *aside, int32_t **labels, uint32_t *count,
                                              fedge_error *err);

/* Reads the values of the examples, as many as the selection says and no more, and keeps those that
 * are wanted, dataset->count of them, in dataset->values, which it allocates. [label_column]: a csv
 * row ends in a label. [aside]: as above. */
FEDGE_MUST_USE fedge_status fedge_values_load(fedge_dataset *dataset, const char *path,
                                              bool label_column, const char *aside,
                                              const fedge_selection *kept, fedge_error *err);

#endif
