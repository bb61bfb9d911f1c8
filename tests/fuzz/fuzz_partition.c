/* Files that divide data: as file: and, with a column "user", as natural:. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/data_file.h"

#define NUM_EXAMPLES 5u
#define MAX_PARTS 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted has an owner for each example, if any, and an example for each owner. */
static void check_owners(const uint32_t *owner, uint32_t num_examples, uint32_t num_parts)
{
    uint32_t has_some = 0;
    for (uint32_t part = 0; part < num_parts; part++) {
        for (uint32_t i = 0; i < num_examples; i++) {
            if (owner[i] == part) {
                has_some++;
                break;
            }
        }
    }
    for (uint32_t i = 0; i < num_examples; i++) {
        if (owner[i] >= num_parts && owner[i] != FEDGE_PARTITION_UNUSED &&
            owner[i] != FEDGE_PARTITION_VALIDATION)
            abort();
    }
    if (has_some != num_parts)
        abort();
}

static uint32_t count_parts(const fedge_partition_spec *spec, const char *values)
{
    uint32_t num_parts = 0;
    fedge_error err;
    if (fedge_partition_num_parts(spec, values, &num_parts, &err))
        return 0;
    return num_parts < MAX_PARTS ? num_parts : MAX_PARTS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_MAX_PATH];
    fuzz_save_file(0, data, size, path);

    fedge_partition_spec spec = {.scheme = FEDGE_PARTITION_FILE};
    memcpy(spec.source, path, sizeof(path));
    uint32_t owner[NUM_EXAMPLES];
    fedge_error err;
    const fedge_partition_data divided = {.num_examples = NUM_EXAMPLES};
    const uint32_t num_parts = count_parts(&spec, NULL);
    if (num_parts > 0 && !fedge_partition_assign(&spec, &divided, num_parts, owner, &err))
        check_owners(owner, NUM_EXAMPLES, num_parts);

    const fedge_data_spec column = {.name = "fuzz",
                                    .rank = 1,
                                    .shape = {1},
                                    .dtype = FEDGE_U8,
                                    .num_labels = 2,
                                    .divide_by = 1};
    fedge_partition_spec natural = {.scheme = FEDGE_PARTITION_NATURAL, .source = "user"};
    const uint32_t num_owners = count_parts(&natural, path);
    fedge_dataset *dataset = NULL;
    uint32_t *owners = NULL;
    if (num_owners > 0 &&
        !fedge_dataset_load_divided(&column, path, "", &(fedge_division){&natural, num_owners, 0},
                                    &dataset, &owners, &err))
        check_owners(owners, fedge_dataset_size(dataset), num_owners);
    free(owners);
    fedge_dataset_free(dataset);
    return 0;
}
