/* What a data set is made of, and the loading of its two halves. Internal to edge/io. */
#ifndef FEDGE_EDGE_IO_DATASET_LOAD_H
#define FEDGE_EDGE_IO_DATASET_LOAD_H

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

/* Reads all labels of [labels_path], or those in the last column of [values_path].
 * [example_values]: of one example. *labels is malloc'ed, (*count), each in [0, num_labels). */
FEDGE_MUST_USE fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                                              const char *values_path, const char *labels_path,
                                              int32_t **labels, uint32_t *count, fedge_error *err);

/* Reads the values of [num_examples] examples, which the file must have exactly, and keeps those i
 * with owner[i] == part, dataset->count of them (owner NULL: all), in dataset->values, which it
 * allocates. [label_column]: a csv row ends in a label. */
FEDGE_MUST_USE fedge_status fedge_values_load(fedge_dataset *dataset, const char *path,
                                              bool label_column, uint32_t num_examples,
                                              const uint32_t *owner, uint32_t part,
                                              fedge_error *err);

#endif
