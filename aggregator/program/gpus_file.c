#include "aggregator/program/gpus_file.h"

#include <ctype.h>
#include <stdlib.h>

#include "edge/core/os.h"

fedge_status fedge_gpus_file_read(const char *path, fedge_accumulator_config *config,
                                  fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    fedge_status status = fedge_os_read_file(path, FEDGE_GPUS_FILE_MAX_SIZE, &bytes, &size, err);
    if (status != FEDGE_OK)
        return status;
    while (size > 0 && isspace(bytes[size - 1]))
        bytes[--size] = '\0';
    fedge_accumulator_config read = *config;
    status = fedge_accumulator_parse_gpus((const char *)bytes, &read, err);
    free(bytes);
    if (status != FEDGE_OK)
        return fedge_error_prefix(err, status, "%s", path);
    *config = read;
    return FEDGE_OK;
}
