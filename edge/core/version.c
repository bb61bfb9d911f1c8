#include "edge/core/version.h"

const char *fedge_version(void)
{
    return FEDGE_VERSION;
}
