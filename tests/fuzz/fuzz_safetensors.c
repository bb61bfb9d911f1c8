/* safetensors files: a header that is accepted describes the data exactly, and can be written back.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "edge/data/formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fedge_tensor_spec storage[FEDGE_MAX_TENSORS];
    fedge_schema schema;
    fedge_error err;
    const uint8_t *values;
    fedge_schema_init(&schema, storage, FEDGE_MAX_TENSORS);
    if (fedge_safetensors_read_schema(data, size, &schema, &values, &err))
        return 0;
    size_t bytes = 0;
    for (uint32_t i = 0; i < schema.num_tensors; i++)
        bytes += schema.tensors[i].count * fedge_dtype_size(schema.tensors[i].dtype);
    if (values + bytes != data + size)
        abort();
    float *floats = malloc((schema.num_elements + 1) * sizeof(*floats));
    if (!floats)
        return 0;
    if (!fedge_safetensors_read(data, size, &schema, floats, &err)) {
        size_t exact = 0;
        for (uint32_t i = 0; i < schema.num_tensors; i++)
            storage[i].dtype = storage[i].dtype == FEDGE_F64 ? FEDGE_F32 : storage[i].dtype;
        if (fedge_safetensors_size(&schema, &exact, &err))
            abort();
        uint8_t *file = malloc(exact);
        if (file && fedge_safetensors_write(&schema, floats, file, exact, &err))
            abort();
        if (file && fedge_safetensors_read(file, exact, &schema, floats, &err))
            abort();
        free(file);
    }
    free(floats);
    return 0;
}
