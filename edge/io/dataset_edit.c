/* Data sets that are spoilt on purpose: simulated attacks. No part of a client. */
#include "edge/io/dataset_load.h"

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
