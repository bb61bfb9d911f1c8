/* safetensors files as data of bytes and of floats. */
#include "tests/fuzz/data_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_both_types(1, data, size);
    return 0;
}
