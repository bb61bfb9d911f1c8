/* LEAF's JSON, as values of floats and of bytes, and divided by its users. */
#include <stdlib.h>

#include "tests/fuzz/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void divide(const fedge_data_spec *spec, const uint8_t *data, size_t size)
{
    char path[FUZZ_MAX_PATH];
    fuzz_save_file(0, data, size, path);
    const fedge_partition_spec natural = {.scheme = FEDGE_PARTITION_NATURAL, .source = "user"};
    fedge_error err;
    uint32_t num_parts = 0, *owner = NULL;
    fedge_dataset *dataset = NULL;
    if (fedge_partition_num_parts(&natural, path, &num_parts, &err) || num_parts == 0)
        return;
    if (fedge_dataset_load_divided(spec, path, "", &(fedge_division){&natural, num_parts, 0},
                                   &dataset, &owner, &err))
        return;
    for (uint32_t i = 0; i < fedge_dataset_size(dataset); i++) {
        if (owner[i] >= num_parts)
            abort();
    }
    free(owner);
    fedge_dataset_free(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fedge_data_spec spec = {.name = "fuzz",
                            .rank = 1,
                            .shape = {3},
                            .dtype = FEDGE_F32,
                            .num_labels = 80,
                            .divide_by = 1};
    fuzz_data_file(&spec, data, size);
    divide(&spec, data, size);
    spec.dtype = FEDGE_U8;
    fuzz_data_file(&spec, data, size);
    return 0;
}
