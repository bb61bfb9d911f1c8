#include "edge/plan/path.h"

#include <string.h>

bool fedge_path_resolve(const char *file, char path[FEDGE_MAX_PATH])
{
    const char *slash = strrchr(file, '/');
    size_t folder = slash ? (size_t)(slash - file) + 1 : 0, length = strlen(path);
    if (length == 0 || path[0] == '/' || folder == 0)
        return true;
    if (folder + length >= FEDGE_MAX_PATH)
        return false;
    memmove(path + folder, path, length + 1);
    memcpy(path, file, folder);
    return true;
}

bool fedge_paths_resolve(const char *file, char paths[FEDGE_MAX_PATHS])
{
    char resolved[FEDGE_MAX_PATHS], path[FEDGE_MAX_PATH];
    size_t used = 0;
    for (const char *line = paths;; line++) {
        const size_t length = strcspn(line, "\n");
        if (length >= sizeof(path))
            return false;
        memcpy(path, line, length);
        path[length] = '\0';
        if (!fedge_path_resolve(file, path) || strlen(path) >= sizeof(resolved) - used)
            return false;
        memcpy(resolved + used, path, strlen(path));
        used += strlen(path);
        line += length;
        resolved[used++] = *line;
        if (*line == '\0')
            break;
    }
    memcpy(paths, resolved, used);
    return true;
}
