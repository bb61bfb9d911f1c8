#include "client/control.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/fixed.h"
#include "edge/io/safetensors.h"
#include "edge/io/update.h"

/* In the store: u64 task id, little-endian, and the values. */
#define KEY_OWN "fedge-control"
#define KEY_NEXT "fedge-control-next"
#define HEADER 8

static const fedge_section *delta_of(const fedge_plan *plan)
{
    return &plan->sent.sections[0];
}

fedge_status fedge_control_init(fedge_control *control, const fedge_plan *plan, fedge_error *err)
{
    const size_t trained = delta_of(plan)->schema.num_elements;
    *control = (fedge_control){.plan = plan,
                               .server = calloc(trained, sizeof(float)),
                               .own = calloc(trained, sizeof(float)),
                               .correction = calloc(plan->num_parameters, sizeof(float)),
                               .decoded = calloc(plan->sent.schema.num_elements, sizeof(int32_t))};
    if (control->server && control->own && control->correction && control->decoded)
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
    free(control->decoded);
    *control = (fedge_control){0};
}

static fedge_status load_own(fedge_control *control, fedge_store *store, const char *run_id,
                             fedge_error *err)
{
    const size_t count = delta_of(control->plan)->schema.num_elements;
    uint8_t *bytes = NULL;
    size_t size = 0;
    memset(control->own, 0, count * sizeof(float));
    fedge_status status = fedge_store_get(store, run_id, KEY_OWN, &bytes, &size, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK;
    if (!status && size == HEADER + count * sizeof(float))
        fedge_get_f32s(bytes + HEADER, control->own, count);
    free(bytes);
    return status;
}

fedge_status fedge_control_begin(fedge_control *control, const uint8_t *file, size_t size,
                                 fedge_store *store, const char *run_id, fedge_error *err)
{
    const fedge_section *delta = delta_of(control->plan);
    fedge_status status = fedge_safetensors_read(file, size, &delta->schema, control->server, err);
    if (status)
        return fedge_error_prefix(err, status, "the task's control variate");
    status = load_own(control, store, run_id, err);
    for (uint32_t t = 0; t < delta->schema.num_tensors && !status; t++) {
        const fedge_tensor_spec *tensor = &delta->schema.tensors[t];
        float *to = control->correction + control->plan->sent.places[t];
        for (size_t i = 0; i < tensor->count; i++)
            to[i] = control->server[tensor->offset + i] - control->own[tensor->offset + i];
    }
    return status;
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

fedge_status fedge_control_keep(fedge_control *control, fedge_store *store,
                                const int8_t *bounds_log2, const fedge_upload *upload,
                                const uint8_t *bytes, fedge_error *err)
{
    const fedge_plan *plan = control->plan;
    const fedge_section *section = fedge_sections_find(&plan->sent, FEDGE_SECTION_CONTROL);
    const size_t scratch_size = fedge_update_max_size(plan);
    const size_t size = HEADER + section->schema.num_elements * sizeof(float);
    uint8_t *scratch = malloc(scratch_size), *kept = malloc(size);
    fedge_status status = !scratch || !kept
                              ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a control variate")
                              : fedge_update_decode(plan, bounds_log2, upload, bytes, scratch,
                                                    scratch_size, control->decoded, err);
    for (uint32_t t = 0; t < section->schema.num_tensors && !status; t++) {
        const fedge_tensor_spec *tensor = &section->schema.tensors[t];
        const int32_t *v = control->decoded + tensor->offset;
        float *own = control->own + (tensor->offset - section->schema.tensors[0].offset);
        const int shift = bounds_log2[section->first + t] - FEDGE_FIXED_VALUE_BITS;
        for (size_t i = 0; i < tensor->count; i++)
            own[i] = (float)((double)own[i] + ldexp((double)v[i], shift));
    }
    if (!status) {
        fedge_put_u64(kept, upload->task_id);
        fedge_put_f32s(kept + HEADER, control->own, section->schema.num_elements);
        status = fedge_store_put(store, upload->run_id, KEY_NEXT, kept, size, err);
    }
    free(scratch);
    free(kept);
    return status;
}

fedge_status fedge_control_commit(fedge_store *store, const fedge_upload *upload, fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_status status = fedge_store_get(store, upload->run_id, KEY_NEXT, &bytes, &size, err);
    if (status == FEDGE_NOT_FOUND)
        return FEDGE_OK;
    if (!status && size >= HEADER && fedge_get_u64(bytes) == upload->task_id)
        status = fedge_store_put(store, upload->run_id, KEY_OWN, bytes, size, err);
    free(bytes);
    return status;
}
