#include "edge/io/control.h"

#include <math.h>
#include <stdlib.h>

#include "edge/core/fixed.h"

static const fedge_section *delta_of(const fedge_plan *plan)
{
    return &plan->sent.sections[0];
}

fedge_status fedge_control_init(fedge_control *control, const fedge_plan *plan, fedge_error *err)
{
    const size_t trained = delta_of(plan)->schema.num_elements;
    *control = (fedge_control){.plan = plan,
                               .num_trained = trained,
                               .server = calloc(trained, sizeof(float)),
                               .own = calloc(trained, sizeof(float)),
                               .correction = calloc(plan->num_parameters, sizeof(float))};
    if (control->server && control->own && control->correction)
        return FEDGE_OK;
    fedge_control_fini(control);
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for control variates of %zu values",
                      trained);
}

void fedge_control_fini(fedge_control *control)
{
    free(control->server);
    free(control->own);
    free(control->correction);
    *control = (fedge_control){0};
}

void fedge_control_correct(fedge_control *control)
{
    const fedge_schema *schema = &delta_of(control->plan)->schema;
    for (uint32_t t = 0; t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        float *to = control->correction + control->plan->sent.places[t];
        for (size_t i = 0; i < tensor->count; i++)
            to[i] = control->server[tensor->offset + i] - control->own[tensor->offset + i];
    }
}

fedge_status fedge_control_change(const fedge_control *control, uint64_t num_steps,
                                  double learning_rate, float *sent, fedge_error *err)
{
    const fedge_plan *plan = control->plan;
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_CONTROL);
    const double length = (double)num_steps * (double)(float)learning_rate;
    if (!(length > 0))
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "SCAFFOLD needs the trainer's number of steps and a learning rate: %llu "
                          "steps at %g",
                          (unsigned long long)num_steps, learning_rate);
    float *change = sent + section->schema.tensors[0].offset;
    for (size_t i = 0; i < section->schema.num_elements; i++)
        change[i] = (float)(-(double)sent[i] / length - (double)control->server[i]);
    return FEDGE_OK;
}

void fedge_control_move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                        float *own)
{
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_CONTROL);
    for (uint32_t t = 0; t < section->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[t];
        const int32_t *from = v + tensor->offset;
        float *to = own + (tensor->offset - section->schema.tensors[0].offset);
        const int shift = bounds_log2[section->first + t] - FEDGE_FIXED_VALUE_BITS;
        for (size_t i = 0; i < tensor->count; i++)
            to[i] = (float)((double)to[i] + ldexp((double)from[i], shift));
    }
}
