#include "edge/data/formats/file_list.h"
#include "edge/data/partitions/scheme.h"

fedge_status fedge_partition_check_files(uint32_t num_files, uint32_t num_parts, fedge_error *err)
{
    if (num_files != num_parts) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "partition per-file: there are %" PRIu32
                          " files of values, but there are to be %" PRIu32
                          " clients; ask for %" PRIu32,
                          num_files, num_parts, num_files);
    }
    return FEDGE_OK;
}

static fedge_status assign(const fedge_partition_spec *spec, const fedge_partition_data *data,
                           uint32_t num_parts, uint32_t *owner, fedge_error *err)
{
    (void)spec;
    FEDGE_TRY(fedge_partition_check_files(data->num_files, num_parts, err));
    uint32_t file = 0;
    for (uint32_t i = 0; i < data->num_examples; i++) {
        while (file + 1 < data->num_files && i >= data->file_ends[file])
            file++;
        owner[i] = file;
    }
    return FEDGE_OK;
}

static fedge_status count_files(const fedge_partition_spec *spec, const char *values_path,
                                uint32_t *num_parts, fedge_error *err)
{
    (void)spec;
    fedge_file_list list;
    FEDGE_TRY(fedge_file_list_open(&list, values_path, err));
    *num_parts = list.count;
    fedge_file_list_close(&list);
    return FEDGE_OK;
}

const fedge_partition_ops fedge_partition_per_file = {.name = "per-file",
                                                      .usage = "per-file",
                                                      .argument = FEDGE_PARTITION_NO_ARGUMENT,
                                                      .min_examples = 1,
                                                      .assign = assign,
                                                      .num_parts = count_files};
