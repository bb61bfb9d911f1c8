/* What memory a process may take, on POSIX systems: Linux's control groups, of which containers are
 * made, may leave it less than the machine has. */
#define _GNU_SOURCE

#include "edge/core/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define PROC_SELF "/proc/self"
#define NO_LIMIT UINT64_MAX

static FILE *open_fact(const char *proc, const char *name)
{
    char path[FEDGE_OS_MAX_PATH];
    const int size = snprintf(path, sizeof(path), "%s/%s", proc, name);
    return size > 0 && size < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* Is [word] one of the comma-separated [list]? */
static bool lists(const char *list, const char *word)
{
    const size_t size = strlen(word);
    for (;; list++) {
        const size_t length = strcspn(list, ",");
        if (length == size && memcmp(list, word, size) == 0)
            return true;
        list += length;
        if (*list == '\0')
            return false;
    }
}

/* Where the process stands in the hierarchy of [controller], "" for cgroup v2's only one: from
 * lines such as "4:memory:/a/b" and "0::/a/b". */
static bool find_group(const char *proc, const char *controller, char group[FEDGE_OS_MAX_PATH])
{
    FILE *file = open_fact(proc, "cgroup");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    while (file && !found && getline(&line, &room, file) > 0) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(++list, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = lists(list, controller) && strlen(path) < FEDGE_OS_MAX_PATH;
        if (found)
            memcpy(group, path, strlen(path) + 1);
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* The number in a file of a control group; "max", or no file, is no limit. */
static uint64_t read_limit(const char *folder, const char *name)
{
    uint64_t limit = NO_LIMIT;
    FILE *file = open_fact(folder, name);
    if (!file)
        return NO_LIMIT;
    if (fscanf(file, "%" SCNu64, &limit) != 1)
        limit = NO_LIMIT;
    fclose(file);
    return limit;
}

/* The least limit of the group and of those that it is in, as far as they are mounted: the mount
 * shows [root] and what is below it. */
static uint64_t least_limit(const char *mount, const char *root, const char *group,
                            const char *name)
{
    char folder[2 * FEDGE_OS_MAX_PATH];
    const size_t top = strlen(mount), above = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const bool below = strncmp(group, root, above) == 0 &&
                       (group[above] == '/' || group[above] == '\0') && !strstr(group, "..");
    (void)snprintf(folder, sizeof(folder), "%s%s", mount, below ? group + above : "");
    uint64_t least = NO_LIMIT;
    for (;;) {
        const uint64_t limit = read_limit(folder, name);
        least = limit < least ? limit : least;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash)
            return least;
        *slash = '\0';
    }
}

/* Of a line such as "36 31 0:35 /root /mount rw shared:1 - cgroup cgroup rw,memory". */
static uint64_t limit_of_mount(const char *proc, const char *line)
{
    char root[FEDGE_OS_MAX_PATH], mount[FEDGE_OS_MAX_PATH], group[FEDGE_OS_MAX_PATH];
    char type[16], options[256];
    const char *dash = strstr(line, " - ");
    if (!dash || sscanf(line, "%*s %*s %*s %511s %511s", root, mount) != 2 ||
        sscanf(dash + 3, "%15s %*s %255s", type, options) != 2)
        return NO_LIMIT;
    if (strcmp(type, "cgroup2") == 0 && find_group(proc, "", group))
        return least_limit(mount, root, group, "memory.max");
    if (strcmp(type, "cgroup") == 0 && lists(options, "memory") &&
        find_group(proc, "memory", group))
        return least_limit(mount, root, group, "memory.limit_in_bytes");
    return NO_LIMIT;
}

uint64_t fedge_os_usable_bytes(const char *proc)
{
    const uint64_t ram = fedge_os_ram_bytes();
    uint64_t least = ram > 0 ? ram : NO_LIMIT;
    char *line = NULL;
    size_t room = 0;
    proc = proc ? proc : PROC_SELF;
    FILE *file = open_fact(proc, "mountinfo");
    while (file && getline(&line, &room, file) > 0) {
        const uint64_t limit = limit_of_mount(proc, line);
        least = limit < least ? limit : least;
    }
    free(line);
    if (file)
        fclose(file);
    return least < NO_LIMIT ? least : 0;
}

void fedge_os_return_freed(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

void fedge_os_return_large_blocks(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* as it is, it grows with what is freed */
    (void)mallopt(M_TRIM_THRESHOLD, 8 << 20); /* else messages' memory comes and goes */
#endif
}
