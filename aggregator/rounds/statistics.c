#include "aggregator/rounds/statistics.h"

#include <stdbool.h>
#include <string.h>

#include "edge/core/fixed.h"

static bool is_variance(const fedge_tensor_spec *tensor)
{
    static const char END[] = ".running_var";
    const size_t length = strlen(tensor->name), end = sizeof END - 1;
    return length >= end && strcmp(tensor->name + length - end, END) == 0;
}

void fedge_statistics_step(const fedge_plan *plan, const int64_t *sum, const int8_t *bounds_log2,
                           uint64_t total_weight, float *model)
{
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_BUFFERS);
    for (uint32_t i = 0; section != NULL && i < section->schema.num_tensors; i++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[i];
        float *values = model + plan->sent.places[section->first + i];
        fedge_fixed_step(values, sum + tensor->offset, tensor->count, total_weight,
                         bounds_log2[section->first + i], 1.0);
        for (size_t k = 0; is_variance(tensor) && k < tensor->count; k++)
            values[k] = values[k] > 0.0f ? values[k] : 0.0f;
    }
}
