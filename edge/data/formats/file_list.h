/* The files of a data set, from what a user writes: paths, folders and patterns.
 *
 * Each line is one of
 *   - a path of a file,
 *   - a path of a folder: the files in it, but for those whose names begin with a dot;
 *   - a path with '*' in its last part, which stands for any characters: the files that match, with
 *     the same exception unless the pattern itself begins with a dot.
 * A name that exists as it is written is no pattern. Files of a folder or pattern are in the order
 * of their names, numbers within them by their value ("part-2" before "part-10"); lines are in
 * theirs. Folders within a folder are passed over. Internal to edge/data, and for whoever asks
 * whether the files are there.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_FILE_LIST_H
#define FEDGE_EDGE_DATA_FORMATS_FILE_LIST_H

#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_FILE_LIST_MAX ((uint32_t)1 << 20) /* files */

typedef struct fedge_file_list {
    char **paths; /* (count), each malloc'ed */
    uint32_t count, capacity;
} fedge_file_list;

/* [lines]: separated by '\n'; "" is no file at all. FEDGE_NOT_FOUND when a file, or any file in a
 * folder or for a pattern, is not there; FEDGE_TOO_BIG, FEDGE_DENIED, FEDGE_IO. On failure the list
 * is closed. */
FEDGE_MUST_USE fedge_status fedge_file_list_open(fedge_file_list *list, const char *lines,
                                                 fedge_error *err);
void fedge_file_list_close(fedge_file_list *list); /* one that is closed is fine */

/* The order of names: by bytes, numbers within them by their value; those that differ only in zeros
 * before a number by bytes. As strcmp. */
int fedge_file_list_compare(const char *a, const char *b);

/* Leaves file [index] alone in the list. */
void fedge_file_list_keep(fedge_file_list *list, uint32_t index);

#endif
