/* CIFAR's binary files: the input stands for the first bytes of one or two records, or of none. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/data_file.h"

#define RECORD 3074u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t LABELS[] = {10, 20, 100};
    fedge_data_spec spec = {
        .name = "fuzz", .rank = 3, .shape = {3, 32, 32}, .dtype = FEDGE_U8, .divide_by = 255};
    uint8_t file[2 * RECORD] = {0};
    memcpy(file, data, size < sizeof(file) ? size : sizeof(file));
    for (int i = 0; i < 3; i++) {
        spec.num_labels = LABELS[i];
        fuzz_data_file(&spec, data, size);
        fuzz_data_file(&spec, file, RECORD - 1);
        fuzz_data_file(&spec, file, i > 0 ? sizeof(file) : sizeof(file) - 2);
    }
    return 0;
}
