/* Reads a JSON object into a struct by its table of fields.
 *
 * A format needs only its table: names and aliases, ranges, defaults, and offsets in the struct. So
 * every error in a file is reported with its line, the valid values and the nearest name, and all
 * formats are checked alike. Numbers pass through a double, which represents every allowed integer
 * (below 2^53).
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

#define MAX_KEYS 64  /* keys of a table */
#define MAX_LIST 300 /* bytes of the list of valid names in a message */
#define SHORT_LIST 8 /* choices listed besides the nearest one */

/* --- names and keys ------------------------------------------------------------------------- */

/* Appends ", name" to [list] as far as it fits. */
static void add_to_list(char list[MAX_LIST], const char *name)
{
    size_t length = strlen(list);
    (void)snprintf(list + length, MAX_LIST - length, "%s%s", length > 0 ? ", " : "", name);
}

fedge_status fedge_json_fail_name(const fedge_json *json, const cJSON *node, const char *text,
                                  const char *const *names, size_t count, fedge_error *err)
{
    const char *nearest = fedge_json_nearest(text, names, count);
    char list[MAX_LIST] = "";
    for (size_t i = 0; i < count && (!nearest || count <= SHORT_LIST); i++) {
        if (names[i])
            add_to_list(list, names[i]);
    }
    return fedge_json_fail(json, node, NULL, err, "\"%.64s\" is not known here;%s%s%s%s%s", text,
                           nearest ? " did you mean \"" : "", nearest ? nearest : "",
                           nearest ? "\"?" : "", list[0] ? " valid: " : "", list);
}

/* Whether [key] is the field's key or an alias of it. */
static bool is_key(const fedge_json_field *field, const char *key)
{
    if (field->key[0] == key[0] && strcmp(field->key, key) == 0)
        return true;
    if (!field->aliases)
        return false;
    size_t length = strlen(key);
    for (const char *alias = field->aliases; *alias != '\0';) {
        size_t n = strcspn(alias, " ");
        if (n == length && memcmp(alias, key, n) == 0)
            return true;
        alias += n + (alias[n] == ' ');
    }
    return false;
}

const fedge_json_field *fedge_json_field_of(const fedge_json_field *fields, const char *key)
{
    while (fields && fields->key && !is_key(fields, key))
        fields++;
    return !fields || !fields->key ? NULL : fields;
}

static fedge_status check_keys(const fedge_json *json, const cJSON *object,
                               const fedge_json_field *fields, fedge_error *err)
{
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, object)
    {
        if (fedge_json_field_of(fields, child->string))
            continue;
        const char *keys[MAX_KEYS] = {NULL};
        size_t count = 0;
        for (const fedge_json_field *field = fields; field->key && count < MAX_KEYS; field++)
            keys[count++] = field->key;
        return fedge_json_fail_name(json, child, child->string, keys, count, err);
    }
    return FEDGE_OK;
}

/* The member of [object] under the field's key or an alias; more than one is an error. */
static fedge_status find_member(const fedge_json *json, const cJSON *object,
                                const fedge_json_field *field, const cJSON **node, fedge_error *err)
{
    *node = NULL;
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, object)
    {
        if (!is_key(field, child->string))
            continue;
        if (*node) {
            return fedge_json_fail(json, child, NULL, err, "\"%s\" says the same; keep one",
                                   (*node)->string);
        }
        *node = child;
    }
    return FEDGE_OK;
}

/* --- single values -------------------------------------------------------------------------- */

static void store(void *record, size_t offset, const void *value, size_t size)
{
    memcpy((char *)record + offset, value, size);
}

static void kind_range(const fedge_json_field *field, double *min, double *max)
{
    *min = field->min;
    *max = field->max;
    if (*min != 0 || *max != 0)
        return;
    switch (field->kind) {
    case FEDGE_JSON_I8:
        *min = INT8_MIN;
        *max = INT8_MAX;
        break;
    case FEDGE_JSON_I32:
        *min = INT32_MIN;
        *max = INT32_MAX;
        break;
    case FEDGE_JSON_U32:
    case FEDGE_JSON_PAIR:
        *max = UINT32_MAX;
        break;
    case FEDGE_JSON_F32:
        *max = 3.4028235e38; /* the largest double that rounds to FLT_MAX */
        *min = -*max;
        break;
    case FEDGE_JSON_F64:
        *min = -DBL_MAX;
        *max = DBL_MAX;
        break;
    default:
        *max = (double)FEDGE_JSON_MAX_INTEGER;
    }
}

static bool is_integer_kind(fedge_json_kind kind)
{
    return kind == FEDGE_JSON_U32 || kind == FEDGE_JSON_U64 || kind == FEDGE_JSON_I32 ||
           kind == FEDGE_JSON_I8 || kind == FEDGE_JSON_PAIR;
}

/* Stores [value], which is in range, at record + offset as the field's kind. */
static void store_number(const fedge_json_field *field, double value, void *record, size_t offset)
{
    if (field->kind == FEDGE_JSON_U32 || field->kind == FEDGE_JSON_PAIR)
        store(record, offset, &(uint32_t){(uint32_t)value}, sizeof(uint32_t));
    else if (field->kind == FEDGE_JSON_U64)
        store(record, offset, &(uint64_t){(uint64_t)value}, sizeof(uint64_t));
    else if (field->kind == FEDGE_JSON_SECONDS)
        store(record, offset, &(uint64_t){(uint64_t)(value * 1000 + 0.5)}, sizeof(uint64_t));
    else if (field->kind == FEDGE_JSON_I32)
        store(record, offset, &(int){(int)value}, sizeof(int));
    else if (field->kind == FEDGE_JSON_I8)
        store(record, offset, &(int8_t){(int8_t)value}, sizeof(int8_t));
    else if (field->kind == FEDGE_JSON_F32)
        store(record, offset, &(float){(float)value}, sizeof(float));
    else
        store(record, offset, &value, sizeof(double));
}

static fedge_status read_number(const fedge_json *json, const cJSON *node,
                                const fedge_json_field *field, void *record, size_t offset,
                                fedge_error *err)
{
    double min, max, value = node->valuedouble;
    bool integer = is_integer_kind(field->kind);
    kind_range(field, &min, &max);
    if (!cJSON_IsNumber(node)) {
        return fedge_json_fail(json, node, NULL, err, "must be %s in [%.16g, %.16g]",
                               integer ? "an integer" : "a number", min, max);
    }
    if (!isfinite(value) || value < min || value > max) {
        return fedge_json_fail(json, node, NULL, err, "%.16g is not in [%.16g, %.16g]", value, min,
                               max);
    }
    if (integer && value != floor(value))
        return fedge_json_fail(json, node, NULL, err, "%.16g is not an integer", value);
    /* A rate of 1e-50 would silently become 0. */
    if (field->kind == FEDGE_JSON_F32 && value != 0 && (float)value == 0) {
        return fedge_json_fail(json, node, NULL, err,
                               "%.16g would be rounded to 0: give 0, or more", value);
    }
    store_number(field, value, record, offset);
    return FEDGE_OK;
}

/* One integer for both, or a list of two. */
static fedge_status read_pair(const fedge_json *json, const cJSON *node,
                              const fedge_json_field *field, void *record, size_t offset,
                              fedge_error *err)
{
    if (cJSON_IsArray(node) && cJSON_GetArraySize(node) != 2) {
        return fedge_json_fail(json, node, NULL, err,
                               "must be an integer or a list of two, not of %d",
                               cJSON_GetArraySize(node));
    }
    const cJSON *first = cJSON_IsArray(node) ? node->child : node;
    const cJSON *second = cJSON_IsArray(node) ? first->next : node;
    FEDGE_TRY(read_number(json, first, field, record, offset, err));
    return read_number(json, second, field, record, offset + sizeof(uint32_t), err);
}

fedge_status fedge_json_text(const fedge_json *json, const cJSON *node, size_t min_size, char *out,
                             size_t size, fedge_error *err)
{
    if (!cJSON_IsString(node))
        return fedge_json_fail(json, node, NULL, err, "must be a text in quotes");
    size_t length = strlen(node->valuestring);
    if (length < min_size || length >= size) {
        return fedge_json_fail(json, node, NULL, err, "must have %zu to %zu bytes, not %zu",
                               min_size, size - 1, length);
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)node->valuestring[i];
        if (c < 0x20 || c == 0x7f) {
            return fedge_json_fail(json, node, NULL, err,
                                   "has a control character (0x%02x) at byte %zu", c, i);
        }
    }
    memcpy(out, node->valuestring, length + 1);
    return FEDGE_OK;
}

static fedge_status read_lines(const fedge_json *json, const cJSON *node,
                               const fedge_json_field *field, char *out, fedge_error *err)
{
    if (!cJSON_IsArray(node))
        return fedge_json_text(json, node, (size_t)field->min, out, (size_t)field->max + 1, err);
    if (!node->child)
        return fedge_json_fail(json, node, NULL, err, "must have at least one element");
    size_t used = 0;
    for (const cJSON *line = node->child; line != NULL; line = line->next) {
        if (cJSON_IsString(line) && strlen(line->valuestring) >= field->size - used) {
            return fedge_json_fail(json, node, NULL, err, "has more than the limit of %u bytes",
                                   field->size - 1);
        }
        if (used > 0)
            out[used - 1] = '\n';
        FEDGE_TRY(fedge_json_text(json, line, 1, out + used, (size_t)field->max + 1, err));
        used += strlen(out + used) + 1;
    }
    return FEDGE_OK;
}

static fedge_status read_hex(const fedge_json *json, const cJSON *node,
                             const fedge_json_field *field, char *out, fedge_error *err)
{
    size_t digits = field->size - 1;
    if (!cJSON_IsString(node) || strlen(node->valuestring) != digits ||
        strspn(node->valuestring, "0123456789abcdef") != digits)
        return fedge_json_fail(json, node, NULL, err, "must be %zu lower-case hex digits", digits);
    memcpy(out, node->valuestring, digits + 1);
    return FEDGE_OK;
}

/* Looks up the node's text by name_of. */
static fedge_status read_enum(const fedge_json *json, const cJSON *node,
                              const fedge_json_field *field, unsigned *value, fedge_error *err)
{
    if (!cJSON_IsString(node))
        return fedge_json_fail(json, node, NULL, err, "must be a text in quotes");
    const char *names[MAX_KEYS];
    assert(field->num_names <= MAX_KEYS);
    for (unsigned i = 0; i < field->num_names; i++) {
        names[i] = field->name_of(i);
        if (names[i] && strcmp(names[i], node->valuestring) == 0) {
            *value = i;
            return FEDGE_OK;
        }
    }
    if (field->flags & FEDGE_JSON_LENIENT) {
        *value = (unsigned)field->fallback;
        return FEDGE_OK;
    }
    return fedge_json_fail_name(json, node, node->valuestring, names, field->num_names, err);
}

static fedge_status read_enums(const fedge_json *json, const cJSON *node,
                               const fedge_json_field *field, void *record, fedge_error *err)
{
    unsigned bits = 0, value = 0;
    const cJSON *child = NULL;
    /* An empty list would mean "all". */
    if (!cJSON_IsArray(node) || !node->child)
        return fedge_json_fail(json, node, NULL, err, "must be a list, […], with at least one");
    cJSON_ArrayForEach(child, node)
    {
        FEDGE_TRY(read_enum(json, child, field, &value, err));
        bits |= 1u << value;
    }
    store(record, field->offset, &bits, sizeof(bits));
    return FEDGE_OK;
}

static fedge_status read_name(const fedge_json *json, const cJSON *node,
                              const fedge_json_field *field, char *out, fedge_error *err)
{
    size_t count = 0;
    if (!cJSON_IsString(node))
        return fedge_json_fail(json, node, NULL, err, "must be a text in quotes");
    for (; field->choices[count] != NULL; count++) {
        if (strcmp(field->choices[count], node->valuestring) != 0)
            continue;
        if (field->size > 0)
            (void)snprintf(out, field->size, "%s", field->choices[count]);
        return FEDGE_OK;
    }
    return fedge_json_fail_name(json, node, node->valuestring, field->choices, count, err);
}

static fedge_status read_bool(const fedge_json *json, const cJSON *node, bool *out,
                              fedge_error *err)
{
    if (!cJSON_IsBool(node))
        return fedge_json_fail(json, node, NULL, err, "must be true or false");
    *out = cJSON_IsTrue(node);
    return FEDGE_OK;
}

/* --- values of any kind --------------------------------------------------------------------- */

/* Reads a value, or an element of a list, to record + offset. */
static fedge_status read_value(const fedge_json *json, const cJSON *node,
                               const fedge_json_field *field, void *record, size_t offset,
                               fedge_error *err)
{
    char *at = (char *)record + offset;
    switch (field->kind) {
    case FEDGE_JSON_BOOL:
        return read_bool(json, node, (bool *)(void *)at, err);
    case FEDGE_JSON_PAIR:
        return read_pair(json, node, field, record, offset, err);
    case FEDGE_JSON_TEXT:
        return fedge_json_text(json, node, (size_t)field->min, at, field->size, err);
    case FEDGE_JSON_LINES:
        return read_lines(json, node, field, at, err);
    case FEDGE_JSON_HEX:
        return read_hex(json, node, field, at, err);
    case FEDGE_JSON_ENUM:
        return read_enum(json, node, field, (unsigned *)(void *)at, err);
    case FEDGE_JSON_ENUMS:
        return read_enums(json, node, field, record, err);
    case FEDGE_JSON_NAME:
        return read_name(json, node, field, at, err);
    case FEDGE_JSON_OBJECT:
        return fedge_json_read(json, node, field->fields, at, err);
    case FEDGE_JSON_CUSTOM:
        return field->read(json, node, at, err);
    case FEDGE_JSON_IGNORED:
        return FEDGE_OK;
    default:
        return read_number(json, node, field, record, offset, err);
    }
}

static fedge_status read_list(const fedge_json *json, const cJSON *node,
                              const fedge_json_field *field, void *record, fedge_error *err)
{
    if (!cJSON_IsArray(node))
        return fedge_json_fail(json, node, NULL, err, "must be a list, […]");
    uint32_t expected = 0, count = (uint32_t)cJSON_GetArraySize(node);
    memcpy(&expected, (char *)record + field->extra, sizeof(expected));
    if ((field->flags & FEDGE_JSON_SAME_COUNT) && count != expected) {
        return expected == 0
                   ? fedge_json_fail(json, node, NULL, err, "needs \"%s\" too, as long a list",
                                     field[-1].key)
                   : fedge_json_fail(json, node, NULL, err,
                                     "has %u elements, but the list that goes with it has %u",
                                     count, expected);
    }
    if (count < field->min_count || count > field->max_count) {
        return fedge_json_fail(json, node, NULL, err, "must have %u to %u elements, not %u",
                               field->min_count, field->max_count, count);
    }
    size_t offset = field->offset;
    void *list = record;
    if (field->flags & FEDGE_JSON_HEAP) {
        /* Stored before it is filled, so that the caller frees it after an error in an element. */
        list = calloc(count + 1, field->size); /* never 0 bytes */
        if (!list)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a list");
        store(record, offset, &list, sizeof(list));
        offset = 0;
    }
    const cJSON *child = NULL;
    cJSON_ArrayForEach(child, node)
    {
        FEDGE_TRY(read_value(json, child, field, list, offset, err));
        offset += field->size;
    }
    store(record, field->extra, &count, sizeof(count));
    return FEDGE_OK;
}

static void default_value(const fedge_json_field *field, void *record)
{
    char *at = (char *)record + field->offset;
    unsigned value = (unsigned)(field->fallback > 0 ? field->fallback : 0);
    switch (field->kind) {
    case FEDGE_JSON_BOOL:
        store(record, field->offset, &(bool){field->fallback != 0}, sizeof(bool));
        break;
    case FEDGE_JSON_PAIR:
        store_number(field, field->fallback, record, field->offset);
        store_number(field, field->fallback, record, field->offset + sizeof(uint32_t));
        break;
    case FEDGE_JSON_TEXT:
    case FEDGE_JSON_LINES:
    case FEDGE_JSON_HEX:
        at[0] = '\0';
        break;
    case FEDGE_JSON_ENUM:
    case FEDGE_JSON_ENUMS:
        store(record, field->offset, &value, sizeof(value));
        break;
    case FEDGE_JSON_NAME:
        if (field->size > 0)
            (void)snprintf(at, field->size, "%s", field->choices[0]);
        break;
    case FEDGE_JSON_OBJECT:
        fedge_json_defaults(field->fields, at);
        break;
    case FEDGE_JSON_CUSTOM:
    case FEDGE_JSON_IGNORED:
        break;
    default:
        store_number(field, field->fallback, record, field->offset);
    }
}

static void default_field(const fedge_json_field *field, void *record)
{
    if (field->flags & FEDGE_JSON_PRESENCE)
        store(record, field->extra, &(bool){false}, sizeof(bool));
    if (!(field->flags & FEDGE_JSON_LIST))
        default_value(field, record);
    else if (!(field->flags & FEDGE_JSON_SAME_COUNT))
        store(record, field->extra, &(uint32_t){0}, sizeof(uint32_t));
}

void fedge_json_defaults(const fedge_json_field *fields, void *record)
{
    for (const fedge_json_field *field = fields; field->key != NULL; field++)
        default_field(field, record);
}

static fedge_status read_field(const fedge_json *json, const cJSON *object,
                               const fedge_json_field *field, void *record, fedge_error *err)
{
    const cJSON *node = NULL;
    FEDGE_TRY(find_member(json, object, field, &node, err));
    if (!node) {
        uint32_t count = 0;
        if (field->flags & FEDGE_JSON_SAME_COUNT)
            memcpy(&count, (char *)record + field->extra, sizeof(count));
        if ((field->flags & FEDGE_JSON_REQUIRED) || count > 0)
            return fedge_json_fail(json, object, field->key, err, "is missing");
        default_field(field, record);
        return FEDGE_OK;
    }
    if (field->flags & FEDGE_JSON_PRESENCE)
        store(record, field->extra, &(bool){true}, sizeof(bool));
    if (field->flags & FEDGE_JSON_LIST)
        return read_list(json, node, field, record, err);
    return read_value(json, node, field, record, field->offset, err);
}

fedge_status fedge_json_read(const fedge_json *json, const cJSON *object,
                             const fedge_json_field *fields, void *record, fedge_error *err)
{
    if (!cJSON_IsObject(object))
        return fedge_json_fail(json, object, NULL, err, "must be an object, {…}");
    if (json->options.strict)
        FEDGE_TRY(check_keys(json, object, fields, err));
    for (const fedge_json_field *field = fields; field->key; field++)
        FEDGE_TRY(read_field(json, object, field, record, err));
    return FEDGE_OK;
}
