#include "aggregator/store/path.h"

#include <stdio.h>

fedge_status fedge_path_join(const char *dir, const char *name, char path[FEDGE_MAX_PATH],
                             fedge_error *err)
{
    const int length = snprintf(path, FEDGE_MAX_PATH, "%s/%s", dir, name);
    return length > 0 && length < FEDGE_MAX_PATH
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG,
                            "the path %.60s.../%.60s is over %d bytes: use a shorter folder", dir,
                            name, FEDGE_MAX_PATH - 1);
}
