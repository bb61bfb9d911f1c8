/* The files of a data set, from a user's paths, folders and patterns.
 *
 * A line is the path of a file, of a folder, which means its files, or a path with '*' in its last
 * component, which matches any characters. Names that begin with a dot are skipped, unless the
 * pattern begins with one. A name that exists as written is not a pattern. Files of a folder or
 * pattern are sorted by name, with numbers by value ("part-2" before "part-10"); lines keep their
 * order. Folders inside a folder are skipped.
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

/* [lines]: separated by '\n'; "" is no file. FEDGE_NOT_FOUND: a file is missing, or a folder or
 * pattern has none; FEDGE_TOO_BIG, FEDGE_DENIED, FEDGE_IO. On failure the list is closed. */
FEDGE_MUST_USE fedge_status fedge_file_list_open(fedge_file_list *list, const char *lines,
                                                 fedge_error *err);
void fedge_file_list_close(fedge_file_list *list); /* a closed one is allowed */

/* Compares names as strcmp does, but numbers in them by value; names that differ only in leading
 * zeros are compared by bytes. */
int fedge_file_list_compare(const char *a, const char *b);

/* Removes all files but [index]. */
void fedge_file_list_keep(fedge_file_list *list, uint32_t index);

#endif
