/* safetensors files as data of bytes and of floats. */
#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fedge_data_spec spec = {.name = "fuzz",
                            .rank = 1,
                            .shape = {2},
                            .dtype = FEDGE_U8,
                            .num_labels = 10,
                            .divide_by = 2};
    fuzz_data_file(&spec, data, size);
    spec.dtype = FEDGE_F32;
    fuzz_data_file(&spec, data, size);
    return 0;
}
