#include "aggregator/store/disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/journal.h"
#include "edge/core/os.h"

#define TEXT 32 /* most bytes of the file */

static fedge_status make_number(const char *path, uint64_t *disk, fedge_error *err)
{
    char text[TEXT];
    FEDGE_TRY(fedge_os_random(disk, sizeof(*disk), err));
    if (*disk == 0)
        *disk = 1;
    const int size = snprintf(text, sizeof(text), "%016" PRIx64 "\n", *disk);
    return fedge_os_write_file(path, text, (size_t)size, 0644, err);
}

fedge_status fedge_disk_read(const char *state_dir, bool make, uint64_t *disk, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    uint8_t *text = NULL;
    size_t size = 0;
    bool exists = false;
    *disk = 0;
    FEDGE_TRY(fedge_path_join(state_dir, "disk", path, err));
    FEDGE_TRY(fedge_os_find(path, &exists, err));
    if (!exists)
        return make ? make_number(path, disk, err) : FEDGE_OK;
    FEDGE_TRY(fedge_os_read_file(path, TEXT, &text, &size, err));
    const bool valid = sscanf((const char *)text, "%16" SCNx64, disk) == 1 && *disk != 0;
    free(text);
    return valid ? FEDGE_OK
                 : fedge_fail(err, FEDGE_CORRUPT,
                              "%s does not have a disk's number: restore it, or remove it to give "
                              "up what other ranks acknowledged in the open round",
                              path);
}

fedge_status fedge_disk_folder(const char *state_dir, const char *run_id, uint32_t rank,
                               char path[FEDGE_MAX_PATH], fedge_error *err)
{
    const int length =
        rank == FEDGE_DISK_ALL_RANKS
            ? snprintf(path, FEDGE_MAX_PATH, "%s/ranks/%s", state_dir, run_id)
            : snprintf(path, FEDGE_MAX_PATH, "%s/ranks/%s/%" PRIu32, state_dir, run_id, rank);
    return length > 0 && length < FEDGE_MAX_PATH
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_TOO_BIG, "the path %.60s… is too long", state_dir);
}

typedef struct journal_filter {
    const char *dir;
    uint32_t oldest; /* journals of earlier rounds are removed */
} journal_filter;

static fedge_status tidy_one(void *user, const char *name, fedge_error *err)
{
    const journal_filter *filter = user;
    uint32_t round = 0, attempt = 0;
    char path[FEDGE_MAX_PATH];
    if (!fedge_path_ends_with(name, FEDGE_OS_TEMPORARY_SUFFIX) &&
        (!fedge_journal_parse_name(name, &round, &attempt) || round >= filter->oldest))
        return FEDGE_OK;
    FEDGE_TRY(fedge_path_join(filter->dir, name, path, err));
    return fedge_os_remove_tree(path, err);
}

fedge_status fedge_disk_tidy(const char *dir, uint32_t oldest, fedge_error *err)
{
    journal_filter filter = {dir, oldest};
    return fedge_os_list_dir(dir, tidy_one, &filter, err);
}

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

bool fedge_path_ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), end_length = strlen(end);
    return length >= end_length && strcmp(path + length - end_length, end) == 0;
}
