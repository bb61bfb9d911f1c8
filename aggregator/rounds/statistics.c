#include "aggregator/rounds/statistics.h"

#include <stdbool.h>
#include <string.h>

static bool is_variance(const fedge_tensor_spec *tensor)
{
    static const char END[] = ".running_var";
    const size_t length = strlen(tensor->name), end = sizeof(END) - 1;
    return length >= end && strcmp(tensor->name + length - end, END) == 0;
}

fedge_status fedge_statistics_step(const fedge_plan *plan, fedge_accumulator *accumulator,
                                   const int8_t *bounds_log2, float *model, fedge_error *err)
{
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; section && i < section->schema.num_tensors && status == FEDGE_OK; i++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[i];
        float *values = model + plan->sent.places[section->first + i];
        const fedge_step_part part = {.first = tensor->offset,
                                      .count = tensor->count,
                                      .bound_log2 = bounds_log2[section->first + i],
                                      .rate = 1.0,
                                      .values = values};
        status = fedge_accumulator_step(accumulator, &part, 1, err);
        for (size_t k = 0; is_variance(tensor) && k < tensor->count; k++)
            values[k] = values[k] > 0.0f ? values[k] : 0.0f;
    }
    return status;
}
