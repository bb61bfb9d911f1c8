/* Writes a struct as a JSON object by its table of fields. */
#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/json/json.h"
#include "edge/json/json_lex.h"

static fedge_status no_memory(fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a JSON tree");
}

/* Appends [item], which it takes over, to an array ([key] NULL) or object. */
static fedge_status add(cJSON *parent, const char *key, cJSON *item, fedge_error *err)
{
    if (item &&
        (!key ? cJSON_AddItemToArray(parent, item) : cJSON_AddItemToObject(parent, key, item)))
        return FEDGE_OK;
    cJSON_Delete(item);
    return no_memory(err);
}

/* --- numbers and texts ---------------------------------------------------------------------- */

static bool reads_back(const char *text, double value, bool single)
{
    const double back = strtod(text, NULL);
    return single ? (float)back == (float)value : back == value;
}

/* A number of digits with which no shorter text reads back as [value]. A text of up to DBL_DIG
 * digits (FLT_DIG of a float) survives the way to binary and back, so the value has such a one only
 * if it is this text without its last zeros. Subnormal numbers survive with fewer digits. */
static int least_digits(double value, bool single)
{
    char text[40];
    int digits = single ? FLT_DIG : DBL_DIG;
    if (fabs(value) < (single ? (double)FLT_MIN : DBL_MIN))
        return 1;
    (void)snprintf(text, sizeof(text), "%.*e", digits - 1, value);
    if (!reads_back(text, value, single))
        return digits + 1;
    for (size_t end = strcspn(text, "e"); digits > 1 && text[end - 1] == '0'; end--)
        digits--;
    return digits;
}

/* The fewest digits that read back as [value], as a float if [single]. */
static void print_float(double value, bool single, char text[40])
{
    text[0] = '\0';
    for (int digits = least_digits(value, single); digits <= 17; digits++) {
        (void)snprintf(text, 40, "%.*g", digits, value);
        if (reads_back(text, value, single))
            break;
    }
    for (char *c = text; *c != '\0'; c++) { /* a locale may have another decimal point */
        if (!strchr("0123456789+-e", *c))
            *c = '.';
    }
}

static double load_double(const fedge_json_field *field, const char *at)
{
    float single;
    double value;
    if (field->kind == FEDGE_JSON_F32) {
        memcpy(&single, at, sizeof(single));
        return (double)single;
    }
    memcpy(&value, at, sizeof(value));
    return value;
}

static int64_t load_integer(fedge_json_kind kind, const char *at)
{
    uint32_t u32;
    uint64_t u64;
    int i32;
    if (kind == FEDGE_JSON_I8)
        return (signed char)at[0];
    if (kind == FEDGE_JSON_I32) {
        memcpy(&i32, at, sizeof(i32));
        return i32;
    }
    if (kind == FEDGE_JSON_U64 || kind == FEDGE_JSON_SECONDS) {
        memcpy(&u64, at, sizeof(u64));
        return u64 > FEDGE_JSON_MAX_INTEGER ? INT64_MAX : (int64_t)u64;
    }
    memcpy(&u32, at, sizeof(u32));
    return u32;
}

static fedge_status make_number(const fedge_json_field *field, const char *at, cJSON **item,
                                fedge_error *err)
{
    char text[40];
    if (field->kind == FEDGE_JSON_F32 || field->kind == FEDGE_JSON_F64) {
        double value = load_double(field, at);
        if (!isfinite(value)) {
            return fedge_fail(err, FEDGE_NOT_FINITE, "%s: %g cannot be written in JSON", field->key,
                              value);
        }
        print_float(value, field->kind == FEDGE_JSON_F32, text);
    } else {
        int64_t value = load_integer(field->kind, at);
        if (value > (int64_t)FEDGE_JSON_MAX_INTEGER) {
            return fedge_fail(err, FEDGE_OUT_OF_RANGE,
                              "%s: over 2^53 - 1, the limit of JSON integers", field->key);
        }
        if (field->kind == FEDGE_JSON_SECONDS)
            print_float((double)value / 1000, false, text);
        else
            (void)snprintf(text, sizeof(text), "%" PRId64, value);
    }
    *item = cJSON_CreateRaw(text);
    return FEDGE_OK;
}

/* A text of the struct, with '?' for characters that the reader would refuse. */
static fedge_status make_text(const fedge_json_field *field, const char *at, cJSON **item,
                              fedge_error *err)
{
    const char *end = memchr(at, '\0', field->size);
    size_t length = end ? (size_t)(end - at) : field->size;
    if (field->kind == FEDGE_JSON_HEX &&
        (length != field->size - 1 || strspn(at, "0123456789abcdef") != length)) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s: must be %u lower-case hex digits",
                          field->key, field->size - 1);
    }
    unsigned char *clean = malloc(length + 1);
    if (!clean)
        return no_memory(err);
    memcpy(clean, at, length);
    clean[length] = '\0';
    for (size_t i = 0; i < length;) {
        size_t n = fedge_utf8_sequence(clean + i, length - i);
        if (n == 0 || clean[i] < 0x20 || clean[i] == 0x7f) {
            clean[i] = '?';
            n = 1;
        }
        i += n;
    }
    *item = cJSON_CreateString((const char *)clean);
    free(clean);
    return FEDGE_OK;
}

static fedge_status make_enum(const fedge_json_field *field, unsigned value, cJSON **item,
                              fedge_error *err)
{
    const char *name = value < field->num_names ? field->name_of(value) : NULL;
    if (!name)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "%s: %u has no name", field->key, value);
    *item = cJSON_CreateString(name);
    return FEDGE_OK;
}

static fedge_status make_enums(const fedge_json_field *field, unsigned bits, cJSON **item,
                               fedge_error *err)
{
    cJSON *array = cJSON_CreateArray();
    fedge_status status = !array ? no_memory(err) : FEDGE_OK;
    for (unsigned i = 0; i < field->num_names && status == FEDGE_OK; i++) {
        if (bits >> i & 1u && field->name_of(i))
            status = add(array, NULL, cJSON_CreateString(field->name_of(i)), err);
    }
    if (status != FEDGE_OK) {
        cJSON_Delete(array);
        array = NULL;
    }
    *item = array;
    return status;
}

/* A value equal to the default is omitted, as in plans of older releases. */
static fedge_status make_pair(const fedge_json_field *field, const char *at, cJSON **item,
                              fedge_error *err)
{
    char text[40];
    uint32_t pair[2];
    memcpy(pair, at, sizeof(pair));
    if (pair[0] == pair[1] && (double)pair[0] == field->fallback &&
        !(field->flags & FEDGE_JSON_REQUIRED))
        return FEDGE_OK;
    (void)snprintf(text, sizeof(text), "[%" PRIu32 ",%" PRIu32 "]", pair[0], pair[1]);
    *item = cJSON_CreateRaw(text);
    return !*item ? no_memory(err) : FEDGE_OK;
}

/* A list of the lines of [text]. */
static fedge_status make_lines(const char *text, cJSON **item, fedge_error *err)
{
    cJSON *array = *item = cJSON_CreateArray();
    while (array && *text) {
        const size_t length = strcspn(text, "\n");
        char *line = malloc(length + 1);
        if (!line)
            return no_memory(err);
        memcpy(line, text, length);
        line[length] = '\0';
        cJSON *made = cJSON_CreateString(line);
        free(line);
        if (!made || !cJSON_AddItemToArray(array, made)) {
            cJSON_Delete(made);
            return no_memory(err);
        }
        text += length + (text[length] == '\n');
    }
    return array ? FEDGE_OK : no_memory(err);
}

/* --- values of any kind --------------------------------------------------------------------- */

/* The item for the value at [at]. NULL without an error means that memory is exhausted; add()
 * reports it. */
static fedge_status make_value(const fedge_json_field *field, const char *at, cJSON **item,
                               fedge_error *err)
{
    unsigned value = 0;
    bool flag = false;
    switch (field->kind) {
    case FEDGE_JSON_BOOL:
        memcpy(&flag, at, sizeof(flag));
        *item = cJSON_CreateBool(flag);
        return FEDGE_OK;
    case FEDGE_JSON_TEXT:
    case FEDGE_JSON_HEX:
        return make_text(field, at, item, err);
    case FEDGE_JSON_LINES:
        return make_lines(at, item, err);
    case FEDGE_JSON_ENUM:
        memcpy(&value, at, sizeof(value));
        return make_enum(field, value, item, err);
    case FEDGE_JSON_ENUMS:
        memcpy(&value, at, sizeof(value));
        return make_enums(field, value, item, err);
    case FEDGE_JSON_NAME:
        *item = cJSON_CreateString(field->size > 0 ? at : field->choices[0]);
        return FEDGE_OK;
    case FEDGE_JSON_OBJECT:
        *item = cJSON_CreateObject();
        return !*item ? FEDGE_OK : fedge_json_write(field->fields, at, *item, err);
    default:
        return make_number(field, at, item, err);
    }
}

static fedge_status add_value(const fedge_json_field *field, const char *at, cJSON *parent,
                              const char *key, fedge_error *err)
{
    cJSON *item = NULL;
    fedge_status status = make_value(field, at, &item, err);
    if (status == FEDGE_OK)
        return add(parent, key, item, err);
    cJSON_Delete(item);
    return status;
}

static fedge_status write_list(const fedge_json_field *field, const char *record, cJSON *object,
                               fedge_error *err)
{
    uint32_t count;
    memcpy(&count, record + field->extra, sizeof(count));
    assert(count <= field->max_count);
    if (count == 0 && !(field->flags & FEDGE_JSON_REQUIRED))
        return FEDGE_OK;
    const char *at = record + field->offset;
    if (field->flags & FEDGE_JSON_HEAP)
        memcpy(&at, record + field->offset, sizeof(at));
    cJSON *array = cJSON_CreateArray();
    FEDGE_TRY(add(object, field->key, array, err));
    for (uint32_t i = 0; i < count; i++, at += field->size)
        FEDGE_TRY(add_value(field, at, array, NULL, err));
    return FEDGE_OK;
}

/* Whether the value at [at] equals the field's default. */
static bool is_fallback(const fedge_json_field *field, const char *at)
{
    bool flag = false;
    unsigned value = 0;
    switch (field->kind) {
    case FEDGE_JSON_BOOL:
        memcpy(&flag, at, sizeof(flag));
        return flag == (field->fallback != 0);
    case FEDGE_JSON_ENUM:
        memcpy(&value, at, sizeof(value));
        return (double)value == field->fallback;
    case FEDGE_JSON_F32:
        return load_double(field, at) == (double)(float)field->fallback;
    default:
        return (double)load_integer(field->kind, at) == field->fallback;
    }
}

static fedge_status write_field(const fedge_json_field *field, const char *record, cJSON *object,
                                fedge_error *err)
{
    const char *at = record + field->offset;
    bool optional = !(field->flags & FEDGE_JSON_REQUIRED);
    bool there = true;
    if (field->flags & FEDGE_JSON_PRESENCE)
        memcpy(&there, record + field->extra, sizeof(there));
    if (!there || field->kind == FEDGE_JSON_IGNORED)
        return FEDGE_OK;
    if (field->flags & FEDGE_JSON_LIST)
        return write_list(field, record, object, err);
    if (field->kind == FEDGE_JSON_CUSTOM)
        return field->write(at, field->key, object, err);
    if ((field->flags & FEDGE_JSON_SPARSE) && field->kind != FEDGE_JSON_PAIR &&
        is_fallback(field, at))
        return FEDGE_OK;
    if (field->kind == FEDGE_JSON_PAIR) {
        cJSON *item = NULL;
        fedge_status status = make_pair(field, at, &item, err);
        return status != FEDGE_OK || !item ? status : add(object, field->key, item, err);
    }
    bool is_text = field->kind == FEDGE_JSON_TEXT || field->kind == FEDGE_JSON_HEX ||
                   field->kind == FEDGE_JSON_LINES;
    if (optional && is_text && at[0] == '\0')
        return FEDGE_OK;
    return add_value(field, at, object, field->key, err);
}

fedge_status fedge_json_write(const fedge_json_field *fields, const void *record, cJSON *object,
                              fedge_error *err)
{
    for (const fedge_json_field *field = fields; field->key; field++)
        FEDGE_TRY(write_field(field, record, object, err));
    return FEDGE_OK;
}

fedge_status fedge_json_print(const fedge_json_field *fields, const void *record, char **text,
                              size_t *size, fedge_error *err)
{
    *text = NULL;
    cJSON *object = cJSON_CreateObject();
    if (!object)
        return no_memory(err);
    fedge_status status;
    FEDGE_TRY_OR(fedge_json_write(fields, record, object, err), done);
    *text = fedge_json_print_tree(object);
    if (*text)
        *size = strlen(*text);
    else
        status = no_memory(err);
done:
    cJSON_Delete(object);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Prints a cJSON tree with the bytes of cJSON_PrintUnformatted. cJSON's function needs sscanf,
 * which is large in statically linked programs. */

typedef struct printer {
    char *text; /* (capacity); NULL: no memory */
    size_t size, capacity;
} printer;

static void put(printer *p, const char *bytes, size_t count)
{
    if (p->text && p->capacity - p->size < count) {
        const size_t capacity = 2 * (p->size + count);
        char *larger = realloc(p->text, capacity);
        if (!larger)
            free(p->text);
        p->text = larger;
        p->capacity = capacity;
    }
    if (!p->text)
        return;
    memcpy(p->text + p->size, bytes, count);
    p->size += count;
}

static void put_text(printer *p, const char *text)
{
    put(p, text, strlen(text));
}

/* How many bytes of the text are printed as they are, up to the first that is not. */
static size_t count_plain(const char *text)
{
    size_t count = 0;
    while ((unsigned char)text[count] >= 0x20 && text[count] != '"' && text[count] != '\\')
        count++;
    return count;
}

static void put_string(printer *p, const char *string)
{
    static const char ESCAPED[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
    put_text(p, "\"");
    for (const char *at = string ? string : "";; at++) {
        char control[8];
        const size_t plain = count_plain(at);
        put(p, at, plain);
        at += plain;
        if (*at == '\0')
            break;
        const char *escaped = strchr(ESCAPED, *at);
        if (escaped) {
            put_text(p, "\\");
            put(p, LETTERS + (escaped - ESCAPED), 1);
        } else {
            (void)snprintf(control, sizeof(control), "\\u%04x", (unsigned)*at);
            put_text(p, control);
        }
    }
    put_text(p, "\"");
}

/* 15 digits, or 17 if these do not read back within cJSON's tolerance. */
static void put_number(printer *p, const cJSON *item)
{
    char text[32];
    const double number = item->valuedouble;
    if (!isfinite(number)) {
        put_text(p, "null");
        return;
    }
    if (number == (double)item->valueint) {
        (void)snprintf(text, sizeof(text), "%d", item->valueint);
    } else {
        (void)snprintf(text, sizeof(text), "%1.15g", number);
        const double back = strtod(text, NULL);
        const double larger = fabs(back) > fabs(number) ? fabs(back) : fabs(number);
        if (!(fabs(back - number) <= larger * DBL_EPSILON))
            (void)snprintf(text, sizeof(text), "%1.17g", number);
    }
    put_text(p, text);
}

static void put_value(printer *p, const cJSON *item)
{
    if (cJSON_IsNumber(item)) {
        put_number(p, item);
    } else if (cJSON_IsString(item)) {
        put_string(p, item->valuestring);
    } else if (cJSON_IsArray(item) || cJSON_IsObject(item)) {
        const char *brackets = cJSON_IsArray(item) ? "[]" : "{}";
        put(p, brackets, 1);
        for (const cJSON *child = item->child; child; child = child->next) {
            if (child != item->child)
                put_text(p, ",");
            if (cJSON_IsObject(item)) {
                put_string(p, child->string);
                put_text(p, ":");
            }
            put_value(p, child);
        }
        put(p, brackets + 1, 1);
    } else {
        put_text(p, cJSON_IsRaw(item)    ? item->valuestring
                    : cJSON_IsTrue(item) ? "true"
                    : cJSON_IsNull(item) ? "null"
                                         : "false");
    }
}

char *fedge_json_print_tree(const cJSON *root)
{
    printer p = {.text = malloc(256), .capacity = 256};
    put_value(&p, root);
    put(&p, "", 1);
    return p.text;
}

/* ---- seals ----------------------------------------------------------------------------------- */

#define MAX_DAMAGED 2

void fedge_seal_make(const char *object, size_t size, char seal[FEDGE_SEAL_SIZE + 1])
{
    (void)snprintf(seal, FEDGE_SEAL_SIZE + 1, ",\"crc32\":\"%08lx\"}",
                   (unsigned long)fedge_crc32(0, object, size - 1));
}

fedge_status fedge_seal_check(const char *text, size_t size, const char *name, fedge_error *err)
{
    char seal[FEDGE_SEAL_SIZE + 1];
    unsigned damaged = 0;
    if (size > 0 && text[size - 1] == '\n')
        size--;
    if (size <= FEDGE_SEAL_SIZE)
        return FEDGE_OK;
    size -= FEDGE_SEAL_SIZE;
    fedge_seal_make(text, size + 1, seal);
    if (memcmp(text + size, seal, FEDGE_SEAL_SIZE) == 0)
        return FEDGE_OK;
    for (size_t i = 0; i < FEDGE_SEAL_SIZE; i++)
        damaged += (i < 10 || i >= 18) && text[size + i] != seal[i];
    return damaged > MAX_DAMAGED
               ? FEDGE_OK
               : fedge_fail(
                     err, FEDGE_CORRUPT,
                     "%s is damaged: its checksum is another (after a change by hand, remove its "
                     "member crc32)",
                     name);
}
