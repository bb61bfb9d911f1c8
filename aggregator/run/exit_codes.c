#include "aggregator/run/exit_codes.h"

int fedge_exit_code_of(fedge_status status, fedge_exit_code otherwise)
{
    switch (status) {
    case FEDGE_IO:
    case FEDGE_NO_SPACE:
        return FEDGE_EXIT_DISK;
    case FEDGE_NO_MEMORY:
        return FEDGE_EXIT_FAILURE;
    case FEDGE_GPU_LOST:
        return FEDGE_EXIT_GPU;
    case FEDGE_GPU_MEMORY:
        return FEDGE_EXIT_GPU_MEMORY;
    default:
        return (int)otherwise;
    }
}
