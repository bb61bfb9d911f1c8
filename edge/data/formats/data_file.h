/* One file of a data set: of what format it is, and where its labels or its values are.
 *
 * Internal to edge/data.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_DATA_FILE_H
#define FEDGE_EDGE_DATA_FORMATS_DATA_FILE_H

#include <stdbool.h>

#include "edge/data/formats/array_file.h"
#include "edge/data/formats/reader.h"
#include "edge/plan/plan.h"

typedef enum fedge_data_format {
    FEDGE_DATA_ARRAY, /* idx, npy, CIFAR, safetensors: opened, at the first element */
    FEDGE_DATA_CSV,   /* closed again: fedge_csv_open reads it */
    FEDGE_DATA_LEAF   /* closed again: fedge_leaf_read reads it */
} fedge_data_format;

/* What is wanted of a file. */
typedef enum fedge_data_role {
    FEDGE_DATA_VALUES,     /* values; the labels are in another file */
    FEDGE_DATA_LABELS,     /* labels; the values are in another file */
    FEDGE_DATA_OWN_VALUES, /* the values of a file that has labels too */
    FEDGE_DATA_OWN_LABELS  /* and those labels */
} fedge_data_role;

typedef struct fedge_data_file {
    fedge_data_format format;
    fedge_reader reader;
    fedge_array_info info; /* FEDGE_DATA_ARRAY */
} fedge_data_file;

/* Finds out the format by the contents. [path] must outlive the file. FEDGE_INVALID_ARGUMENT when
 * there are no labels in it, or some that nobody asks for; what its header gives. On failure the
 * file is closed. */
FEDGE_MUST_USE fedge_status fedge_data_file_open(fedge_data_file *file, const fedge_data_spec *spec,
                                                 const char *path, fedge_data_role role,
                                                 fedge_error *err);
void fedge_data_file_close(fedge_data_file *file); /* one that is closed is fine */

#endif
