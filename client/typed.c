#include "client/typed.h"

#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/safetensors.h"

fedge_status fedge_typed_init(fedge_typed *typed, const fedge_schema *schema, float *values,
                              fedge_error *err)
{
    size_t size = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        size += spec->dtype == FEDGE_F32 ? 0 : spec->count * fedge_dtype_size(spec->dtype);
    }
    *typed =
        (fedge_typed){.schema = schema,
                      .values = values,
                      .tensors = calloc((size_t)schema->num_tensors + 1, sizeof(*typed->tensors)),
                      .copies = size > 0 ? calloc(size / 8 + 1, 8) : NULL};
    if (!typed->tensors || (size > 0 && !typed->copies)) {
        fedge_typed_fini(typed);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for typed tensors of %zu bytes", size);
    }
    /* In a file's order every copy is aligned. */
    uint8_t *next = (uint8_t *)typed->copies;
    const fedge_tensor_spec *spec = NULL;
    while ((spec = fedge_safetensors_next(schema, spec))) {
        const bool in_place = spec->dtype == FEDGE_F32;
        typed->tensors[spec - schema->tensors] =
            (fedge_client_tensor){spec, in_place ? (void *)(values + spec->offset) : (void *)next};
        next += in_place ? 0 : spec->count * fedge_dtype_size(spec->dtype);
    }
    return FEDGE_OK;
}

void fedge_typed_fini(fedge_typed *typed)
{
    free(typed->tensors);
    free(typed->copies);
    *typed = (fedge_typed){0};
}

void fedge_typed_load(const fedge_typed *typed)
{
    for (uint32_t i = 0; typed->tensors && i < typed->schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = typed->tensors[i].spec;
        const float *from = typed->values + spec->offset;
        uint16_t *halves = typed->tensors[i].data;
        if (spec->dtype == FEDGE_I64)
            memcpy(halves, from, spec->count * sizeof(int64_t));
        for (size_t k = 0; fedge_dtype_is_half(spec->dtype) && k < spec->count; k++)
            halves[k] = fedge_half_of(spec->dtype, from[k]);
    }
}

void fedge_typed_store(const fedge_typed *typed)
{
    for (uint32_t i = 0; typed->tensors && i < typed->schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = typed->tensors[i].spec;
        const uint16_t *halves = typed->tensors[i].data;
        float *to = typed->values + spec->offset;
        const bool is_stored = fedge_dtype_is_half(spec->dtype) && !spec->frozen;
        for (size_t k = 0; is_stored && k < spec->count; k++)
            to[k] = fedge_half_value(spec->dtype, halves[k]);
    }
}
