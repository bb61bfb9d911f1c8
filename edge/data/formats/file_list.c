#include "edge/data/formats/file_list.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/core/text.h"

/* --- names ------------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips leading zeros, so that more digits mean a larger value. */
static int compare_numbers(const char **a, const char **b)
{
    *a += strspn(*a, "0");
    *b += strspn(*b, "0");
    const size_t digits_a = strspn(*a, "0123456789"), digits_b = strspn(*b, "0123456789");
    int order = (digits_a > digits_b) - (digits_a < digits_b);
    if (order == 0)
        order = strncmp(*a, *b, digits_a);
    *a += digits_a;
    *b += digits_b;
    return order;
}

int fedge_file_list_compare(const char *a, const char *b)
{
    const char *const whole_a = a, *const whole_b = b;
    for (;;) {
        if (is_digit(*a) && is_digit(*b)) {
            const int order = compare_numbers(&a, &b);
            if (order != 0)
                return order;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else if (*a == '\0') {
            return strcmp(whole_a, whole_b);
        } else {
            a++;
            b++;
        }
    }
}

static int compare_paths(const void *left, const void *right)
{
    return fedge_file_list_compare(*(const char *const *)left, *(const char *const *)right);
}

/* --- the list --------------------------------------------------------------------------------- */

/* folder + "/" + name; folder "" means none. */
static fedge_status add(fedge_file_list *list, const char *folder, size_t folder_length,
                        const char *name, fedge_error *err)
{
    if (list->count == FEDGE_FILE_LIST_MAX) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%.200s: more than the limit of %" PRIu32 " files",
                          name, FEDGE_FILE_LIST_MAX);
    }
    if (list->count == list->capacity) {
        const uint32_t capacity = list->capacity ? list->capacity * 2 : 8;
        char **grown = realloc(list->paths, capacity * sizeof(*grown));
        if (!grown) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the names of %" PRIu32 " files",
                              capacity);
        }
        list->paths = grown;
        list->capacity = capacity;
    }
    const size_t length = strlen(name);
    char *path = malloc(folder_length + length + 1);
    if (!path)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the name of a file");
    memcpy(path, folder, folder_length);
    memcpy(path + folder_length, name, length + 1);
    list->paths[list->count++] = path;
    return FEDGE_OK;
}

/* A folder being listed. */
typedef struct listing {
    fedge_file_list *list;
    const char *folder; /* path with a trailing slash */
    const char *pattern;
} listing;

static fedge_status visit(void *user, const char *name, fedge_error *err)
{
    const listing *l = user;
    if ((name[0] == '.' && l->pattern[0] != '.') || !fedge_glob_matches(l->pattern, name))
        return FEDGE_OK;
    fedge_file_list *list = l->list;
    FEDGE_TRY(add(list, l->folder, strlen(l->folder), name, err));
    if (fedge_os_is_dir(list->paths[list->count - 1]))
        free(list->paths[--list->count]);
    return FEDGE_OK;
}

/* [path] is cut after its last slash. */
static fedge_status add_matching(fedge_file_list *list, char *path, const char *pattern,
                                 fedge_error *err)
{
    const uint32_t first = list->count;
    listing l = {list, path, pattern};
    FEDGE_TRY(fedge_os_list_dir(path[0] ? path : ".", visit, &l, err));
    if (list->count == first) {
        return fedge_fail(err, FEDGE_NOT_FOUND, "%.400s%.100s: there is no %s", path, pattern,
                          strchr(pattern, '*') ? "file whose name fits" : "such file");
    }
    qsort(list->paths + first, list->count - first, sizeof(*list->paths), compare_paths);
    return FEDGE_OK;
}

static fedge_status add_line(fedge_file_list *list, const char *line, size_t length,
                             fedge_error *err)
{
    char path[FEDGE_OS_MAX_PATH + 1], pattern[FEDGE_OS_MAX_PATH];
    if (length >= FEDGE_OS_MAX_PATH) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%.64s…: a path of over %d bytes", line,
                          FEDGE_OS_MAX_PATH - 1);
    }
    memcpy(path, line, length);
    path[length] = '\0';
    if (fedge_os_is_dir(path)) {
        if (path[length - 1] != '/')
            memcpy(path + length, "/", 2);
        return add_matching(list, path, "*", err);
    }
    if (fedge_os_exists(path))
        return add(list, "", 0, path, err);
    char *slash = strrchr(path, '/');
    char *name = slash ? slash + 1 : path;
    if (!strchr(name, '*')) {
        return fedge_fail(err, FEDGE_NOT_FOUND, "%s: there is no such file%s", path,
                          strchr(path, '*') ? "; '*' is allowed in its last part only" : "");
    }
    memcpy(pattern, name, strlen(name) + 1);
    *name = '\0';
    return add_matching(list, path, pattern, err);
}

fedge_status fedge_file_list_open(fedge_file_list *list, const char *lines, fedge_error *err)
{
    *list = (fedge_file_list){.count = 0};
    fedge_status status = FEDGE_OK;
    while (*lines && !status) {
        const size_t length = strcspn(lines, "\n");
        status = add_line(list, lines, length, err);
        lines += length;
        lines += *lines == '\n';
    }
    if (status != FEDGE_OK)
        fedge_file_list_close(list);
    return status;
}

void fedge_file_list_close(fedge_file_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->paths[i]);
    free(list->paths);
    *list = (fedge_file_list){.count = 0};
}

void fedge_file_list_keep(fedge_file_list *list, uint32_t index)
{
    char *path = list->paths[index];
    list->paths[index] = NULL;
    for (uint32_t i = 0; i < list->count; i++)
        free(list->paths[i]);
    list->paths[0] = path;
    list->count = 1;
}
