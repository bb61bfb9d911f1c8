#include <stdlib.h>

#include "edge/data/partitions/scheme.h"

fedge_status fedge_classes_init(fedge_classes *classes, const fedge_partition_data *data,
                                fedge_error *err)
{
    classes->start = malloc(((size_t)data->num_labels + 1) * sizeof(*classes->start));
    classes->members = malloc(data->num_examples * sizeof(*classes->members));
    if (!classes->start || !classes->members) {
        fedge_classes_fini(classes);
        return fedge_partition_no_memory(data->num_examples, data->num_labels, err);
    }
    /* Labels are not negative, so they are what groups by owner. */
    fedge_partition_group((const uint32_t *)data->labels, data->num_examples, data->num_labels,
                          classes->start, classes->members);
    return FEDGE_OK;
}

void fedge_classes_fini(fedge_classes *classes)
{
    free(classes->start);
    free(classes->members);
    *classes = (fedge_classes){.start = NULL};
}

uint32_t fedge_classes_shuffle(fedge_classes *classes, uint32_t label, fedge_rng rng)
{
    const uint32_t count = classes->start[label + 1] - classes->start[label];
    fedge_rng_shuffle(&rng, classes->members + classes->start[label], count);
    return count;
}
