#include "edge/io/path.h"

#include <string.h>

bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH])
{
    const char *slash = strrchr(file, '/');
    size_t folder = slash != NULL ? (size_t)(slash - file) + 1 : 0, length = strlen(path);
    if (length == 0 || path[0] == '/' || folder == 0)
        return true;
    if (folder + length >= FEDGE_MAX_PATH)
        return false;
    memmove(path + folder, path, length + 1);
    memcpy(path, file, folder);
    return true;
}
