/* Data sets that a simulation changes: spoilt by attacks, or with examples of other ranks. No part
 * of a client. */
#include <inttypes.h>
#include <stdlib.h>

#include "edge/data/dataset_load.h"

void fedge_dataset_set_label(fedge_dataset *dataset, uint32_t example, int32_t label)
{
    dataset->labels[example] = label;
}

static void mark(fedge_dataset *dataset, size_t at)
{
    if (dataset->spec.dtype == FEDGE_U8)
        ((uint8_t *)dataset->values)[at] = UINT8_MAX;
    else
        ((float *)dataset->values)[at] = dataset->spec.divide_by;
}

void fedge_dataset_stamp(fedge_dataset *dataset, uint32_t example)
{
    const fedge_data_spec *spec = &dataset->spec;
    const size_t width = spec->shape[spec->rank - 1];
    const size_t height = spec->rank > 1 ? spec->shape[spec->rank - 2] : 1;
    const size_t rows = height < FEDGE_DATASET_MARK ? height : FEDGE_DATASET_MARK;
    const size_t columns = width < FEDGE_DATASET_MARK ? width : FEDGE_DATASET_MARK;
    const size_t first = (size_t)example * dataset->example_values;
    for (size_t image = height * width; image <= dataset->example_values; image += height * width) {
        for (size_t y = 1; y <= rows; y++) {
            for (size_t x = 1; x <= columns; x++)
                mark(dataset, first + image - (y - 1) * width - x);
        }
    }
}

size_t fedge_dataset_example_size(const fedge_dataset *dataset)
{
    return dataset->example_values * fedge_dtype_size(dataset->spec.dtype);
}

fedge_status fedge_dataset_extend(fedge_dataset *dataset, uint32_t count, void **values,
                                  int32_t **labels, fedge_error *err)
{
    const size_t size = fedge_dataset_example_size(dataset);
    const size_t whole = (size_t)dataset->count + count;
    void *more_values = realloc(dataset->values, whole * size + 1);
    dataset->values = more_values ? more_values : dataset->values;
    int32_t *more_labels = realloc(dataset->labels, whole * sizeof(*more_labels) + 1);
    dataset->labels = more_labels ? more_labels : dataset->labels;
    if (!more_values || !more_labels) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "data '%s': no memory for %" PRIu32 " more examples", dataset->spec.name,
                          count);
    }
    *values = (uint8_t *)dataset->values + dataset->count * size;
    *labels = dataset->labels + dataset->count;
    dataset->count += count;
    return FEDGE_OK;
}
