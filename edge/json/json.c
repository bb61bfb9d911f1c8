#include "edge/json/json.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json_lex.h"

/* --- where a value stands ------------------------------------------------------------------- */

/* Searches [node] below [at], in the order of values' starts, counting the values before it in
 * *index; then path[0, *length) has its keys. The depth bounds the recursion. */
static bool find_node(const cJSON *at, const cJSON *node, uint32_t *index, char *path,
                      size_t length)
{
    if (at == node)
        return true;
    uint32_t i = 0;
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, at)
    {
        (*index)++;
        size_t space = FEDGE_JSON_MAX_PATH - length;
        int n = cJSON_IsArray(at)
                    ? snprintf(path + length, space, "[%u]", i++)
                    : snprintf(path + length, space, "%s%s", length > 0 ? "." : "", child->string);
        size_t end = n < 0 || (size_t)n >= space ? FEDGE_JSON_MAX_PATH - 1 : length + (size_t)n;
        if (find_node(child, node, index, path, end))
            return true;
        path[length] = '\0';
    }
    return false;
}

/* "job.json:12: rounds.seed: message"; [path] may be empty. */
static fedge_status __attribute__((format(printf, 5, 0)))
fail_in(const fedge_json *json, uint32_t index, const char *path, fedge_error *err,
        const char *format, va_list args)
{
    char message[FEDGE_ERROR_MESSAGE_SIZE];
    (void)vsnprintf(message, sizeof(message), format, args);
    char line[16] = "";
    if (json->options.lines)
        (void)snprintf(line, sizeof(line), ":%u", fedge_json_line(json->text, json->size, index));
    return fedge_fail(err, json->options.status, "%s%s: %s%s%s", json->options.name, line, path,
                      path[0] != '\0' ? ": " : "", message);
}

fedge_status fedge_json_fail(const fedge_json *json, const cJSON *node, const char *key,
                             fedge_error *err, const char *format, ...)
{
    char path[FEDGE_JSON_MAX_PATH] = "";
    uint32_t index = 0;
    (void)find_node(json->root, node, &index, path, 0);
    size_t length = strlen(path);
    if (key)
        (void)snprintf(path + length, sizeof(path) - length, "%s%s", length > 0 ? "." : "", key);
    va_list args;
    va_start(args, format);
    fedge_status status = fail_in(json, index, path, err, format, args);
    va_end(args);
    return status;
}

fedge_status fedge_json_fail_at(const fedge_json *json, const char *path, fedge_error *err,
                                const char *format, ...)
{
    const cJSON *node = json->root;
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(part, ".");
        char key[FEDGE_JSON_MAX_PATH];
        (void)snprintf(key, sizeof(key), "%.*s", (int)length, part);
        const cJSON *child = fedge_json_get(node, key);
        if (!child)
            break;
        node = child;
        part += part[length] == '.' ? length + 1 : length;
    }
    char unused[FEDGE_JSON_MAX_PATH] = "";
    uint32_t index = 0;
    (void)find_node(json->root, node, &index, unused, 0);
    va_list args;
    va_start(args, format);
    fedge_status status = fail_in(json, index, path, err, format, args);
    va_end(args);
    return status;
}

/* --- the tree ------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuses duplicate keys of [object]. Sorts them, which is fast for any text. */
static fedge_status check_object(const fedge_json *json, const cJSON *object, fedge_error *err)
{
    int count = cJSON_GetArraySize(object);
    if (count < 2)
        return FEDGE_OK;
    const char **keys = malloc((size_t)count * sizeof(*keys));
    if (!keys) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for %d keys", json->options.name,
                          count);
    }
    size_t n = 0;
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, object) keys[n++] = child->string;
    qsort(keys, n, sizeof(*keys), compare_keys);
    fedge_status status = FEDGE_OK;
    for (size_t i = 1; i < n && status == FEDGE_OK; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            fedge_json broken = *json;
            broken.options.status = FEDGE_CORRUPT;
            status = fedge_json_fail(&broken, object, keys[i], err, "is given twice; keep one");
        }
    }
    free(keys);
    return status;
}

static fedge_status check_duplicates(const fedge_json *json, const cJSON *node, fedge_error *err)
{
    if (cJSON_IsObject(node))
        FEDGE_TRY(check_object(json, node, err));
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        if (child->child)
            FEDGE_TRY(check_duplicates(json, child, err));
    }
    return FEDGE_OK;
}

fedge_status fedge_json_open(fedge_json *json, const char *text, size_t size,
                             const fedge_json_options *options, fedge_error *err)
{
    assert(options->name && options->max_depth <= FEDGE_JSON_MAX_DEPTH);
    *json = (fedge_json){.options = *options, .text = text, .size = size};
    if (size > options->max_size) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s: %zu bytes, the limit is %zu", options->name,
                          size, options->max_size);
    }
    FEDGE_TRY(fedge_json_scan(text, size, options, err));
    /* The scan has accepted the text, so only memory can be missing. */
    json->root = cJSON_ParseWithLength(text, size);
    if (!json->root) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for the JSON tree of %zu bytes",
                          options->name, size);
    }
    fedge_status status =
        cJSON_IsObject(json->root)
            ? check_duplicates(json, json->root, err)
            : fedge_fail(err, FEDGE_CORRUPT, "%s: must be a JSON object, {…}", options->name);
    if (status != FEDGE_OK)
        fedge_json_close(json);
    return status;
}

void fedge_json_close(fedge_json *json)
{
    cJSON_Delete(json->root);
    json->root = NULL;
}

const cJSON *fedge_json_get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* --- the nearest name ----------------------------------------------------------------------- */

#define MAX_COMPARED 64 /* longer names are not checked for typing errors */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Ignores the bit that distinguishes ASCII's cases. */
static bool same_letter(char a, char b)
{
    return ((a ^ b) | 0x20) == 0x20;
}

/* Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. Case is
 * ignored. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX_COMPARED || m > MAX_COMPARED)
        return SIZE_MAX;
    size_t rows[3][MAX_COMPARED +
                   1]; /* the row before the previous one, the previous and the present one */
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(last[j - 1] + !same_letter(a[i - 1], b[j - 1]),
                           least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

const char *fedge_json_nearest(const char *text, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t best = strlen(text) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t distance = names[i] ? edit_distance(text, names[i]) : SIZE_MAX;
        if (distance < best && distance < strlen(names[i])) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}
