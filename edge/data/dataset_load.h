/* What a data set is made of, and the loading of its two halves. Internal to edge/data. */
#ifndef FEDGE_EDGE_DATA_DATASET_LOAD_H
#define FEDGE_EDGE_DATA_DATASET_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/data/dataset.h"
#include "edge/data/formats/file_list.h"
#include "edge/data/levels.h"

/* Bytes of an example besides its values: its label, and whose it is. */
#define FEDGE_DATASET_ROW (sizeof(int32_t) + sizeof(uint32_t))

struct fedge_dataset {
    fedge_data_spec spec;
    size_t example_values; /* product of spec.shape */
    size_t plane;          /* values of one channel of an example */
    uint32_t count;        /* examples kept */
    void *values;          /* (count, example_values) of spec.dtype */
    int32_t *labels;       /* (count) */
    fedge_levels *levels;  /* u8 only: (max(1, num_channels)), a stored value normalised; NULL for
                              more channels than have tables */
    bool finite;           /* u8 only: no level is NaN or infinite; floats are looked through */
};

/* The files that a data set comes from. */
typedef struct fedge_dataset_files {
    fedge_file_list values;
    fedge_file_list
        labels;     /* as many, in the same order; none: the values' files have the labels */
    uint32_t *ends; /* (values.count), malloc'ed by fedge_labels_load: the number of
                       examples in the files up to and including this one */
} fedge_dataset_files;

/* Reads all labels, file by file. [aside]: a column of csv files of values that is no value, or
 * NULL. [example_values]: of one example. *labels is malloc'ed, (*count), each in [0, num_labels).
 */
FEDGE_MUST_USE fedge_status fedge_labels_load(const fedge_data_spec *spec, size_t example_values,
                                              fedge_dataset_files *files, const char *aside,
                                              int32_t **labels, uint32_t *count, fedge_error *err);

/* Reads the values of as many examples as there are labels, and keeps those i that have owner[i] ==
 * [part], dataset->count of them, in dataset->values, which it allocates once all headers are
 * checked. owner: by example over all files; NULL: all are kept. [aside]: as above. */
FEDGE_MUST_USE fedge_status fedge_values_load(fedge_dataset *dataset,
                                              const fedge_dataset_files *files, const char *aside,
                                              const uint32_t *owner, uint32_t part,
                                              fedge_error *err);

#endif
