#include "tests/edge/plan/schema_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/plan/plan.h"

static cJSON *schema;

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static bool lists(const cJSON *array, const char *text)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, array)
    {
        if (strcmp(item->valuestring, text) == 0)
            return true;
    }
    return false;
}

/* One of the "anyOf": [{"required": [key]}, …] that stands for a needed key with other spellings.
 */
static bool lists_any(const cJSON *object, const char *key)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, get(object, "anyOf"))
    {
        if (lists(get(item, "required"), key))
            return true;
    }
    return false;
}

/* The field's other spellings are in [properties], marked as deprecated. Returns how many. */
static int check_aliases(const fedge_json_field *field, const cJSON *properties)
{
    char alias[64];
    int count = 0;
    for (const char *at = field->aliases; at && *at != '\0'; count++) {
        size_t length = strcspn(at, " ");
        assert_in_range(length, 1, sizeof(alias) - 1);
        memcpy(alias, at, length);
        alias[length] = '\0';
        if (!cJSON_IsTrue(get(get(properties, alias), "deprecated")))
            fail_msg("%s: the schema does not have its other spelling %s", field->key, alias);
        at += length + (at[length] == ' ');
    }
    return count;
}

static void check_number(const char *key, const cJSON *node, const char *what, double expected)
{
    const cJSON *item = get(node, what);
    if (!cJSON_IsNumber(item) || item->valuedouble != expected) {
        fail_msg("%s: %s is %.17g in the schema and %.17g in the parser", key, what,
                 item ? item->valuedouble : 0, expected);
    }
}

/* Range and names of a single value, or of a list's elements. */
static void check_value(const fedge_json_field *field, const cJSON *node)
{
    if (field->kind != FEDGE_JSON_LINES && get(node, "oneOf"))
        node = get(node, "oneOf")->child;
    if (field->kind == FEDGE_JSON_LINES) {
        const cJSON *lines = get(node, "oneOf")->child;
        check_number(field->key, lines, "minLength", field->min);
        check_number(field->key, lines, "maxLength", field->max);
        check_number(field->key, lines->next, "minItems", 1);
        check_number(field->key, get(lines->next, "items"), "minLength", 1);
        check_number(field->key, get(lines->next, "items"), "maxLength", field->max);
    } else if (field->kind == FEDGE_JSON_TEXT) {
        check_number(field->key, node, "minLength", field->min);
        check_number(field->key, node, "maxLength", (double)field->size - 1);
    } else if (field->min != 0 || field->max != 0) {
        check_number(field->key, node, "minimum", field->min);
        check_number(field->key, node, "maximum", field->max);
    }
    for (unsigned i = 0; i < field->num_names; i++) {
        if (field->name_of(i) && !lists(get(node, "enum"), field->name_of(i)))
            fail_msg("%s: the schema does not have %s", field->key, field->name_of(i));
    }
    const bool named = field->kind == FEDGE_JSON_NAME;
    if (named && get(node, "const"))
        assert_string_equal(get(node, "const")->valuestring, field->choices[0]);
    for (unsigned i = 0; named && !get(node, "const"); i++) {
        if (!field->choices[i])
            break;
        if (!lists(get(node, "enum"), field->choices[i]))
            fail_msg("%s: the schema does not have %s", field->key, field->choices[i]);
    }
}

static void check_default(const fedge_json_field *field, const cJSON *node)
{
    const cJSON *item = get(node, "default");
    bool number = field->kind <= FEDGE_JSON_SECONDS && field->kind != FEDGE_JSON_BOOL;
    if (field->flags & (FEDGE_JSON_REQUIRED | FEDGE_JSON_LIST))
        return;
    if (field->kind == FEDGE_JSON_BOOL) {
        assert_int_equal(cJSON_IsTrue(item), field->fallback != 0);
    } else if (field->kind == FEDGE_JSON_ENUM) {
        assert_string_equal(item->valuestring, field->name_of((unsigned)field->fallback));
    } else if (number && item) { /* some defaults depend on other keys: test_job has them */
        check_number(field->key, node, "default", field->fallback);
    } else if (number) {
        assert_true(field->fallback == 0 && field->min > 0);
    }
}

/* [node], or what it refers to in $defs. */
static const cJSON *resolve(const cJSON *node)
{
    static const char prefix[] = "#/$defs/";
    const cJSON *reference = get(node, "$ref");
    if (!reference)
        return node;
    assert_int_equal(strncmp(reference->valuestring, prefix, sizeof(prefix) - 1), 0);
    return get(get(schema, "$defs"), reference->valuestring + sizeof(prefix) - 1);
}

static void check_field(const fedge_json_field *field, const cJSON *object)
{
    const cJSON *node = resolve(get(get(object, "properties"), field->key));
    if (!node)
        fail_msg("the schema does not have %s", field->key);
    bool needed = lists(get(object, "required"), field->key) || lists_any(object, field->key);
    /* Of these the parser says more than that they are missing. */
    bool own = strcmp(field->key, "fedge-job") == 0 || strcmp(field->key, "rounds") == 0;
    bool expected = (field->flags & FEDGE_JSON_REQUIRED) || own;
    if (needed != expected)
        fail_msg("%s: the schema and the parser differ on whether it is needed", field->key);
    if (field->kind == FEDGE_JSON_OBJECT && (field->flags & FEDGE_JSON_LIST)) {
        check_number(field->key, node, "maxItems", field->max_count);
        node = resolve(get(node, "items"));
    }
    if (field->kind == FEDGE_JSON_OBJECT)
        check_object(field->fields, node);
    if (field->kind == FEDGE_JSON_OBJECT || field->kind == FEDGE_JSON_CUSTOM ||
        field->kind == FEDGE_JSON_IGNORED)
        return;
    check_default(field, node);
    if (field->flags & FEDGE_JSON_LIST) {
        check_number(field->key, node, "minItems", field->min_count);
        check_number(field->key, node, "maxItems", field->max_count);
        node = get(node, "items");
        if (!get(node, "minimum") && field->min == 0 && field->max == 0)
            return;
    }
    check_value(field, node);
}

void check_object(const fedge_json_field *fields, const cJSON *object)
{
    int count = 0;
    if (!cJSON_IsFalse(get(object, "additionalProperties"))) {
        fail_msg("%s: the schema does not have it, or has it without \"additionalProperties\": "
                 "false",
                 fields->kind == FEDGE_JSON_NAME ? fields->choices[0] : fields->key);
    }
    for (const fedge_json_field *field = fields; field->key != NULL; field++) {
        check_field(field, object);
        count += 1 + check_aliases(field, get(object, "properties"));
    }
    /* All of the parser's keys are there, so an equal number means that there is no other. */
    assert_int_equal(cJSON_GetArraySize(get(object, "properties")), count);
}

const cJSON *schema_root(void)
{
    return schema;
}

int load_schema(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    if (fedge_os_read_file(FEDGE_SOURCE_DIR "/docs/job.schema.json", FEDGE_JOB_MAX_SIZE, &text,
                           &size, &err) != FEDGE_OK)
        return -1;
    schema = cJSON_ParseWithLength((const char *)text, size);
    free(text);
    return schema ? 0 : -1;
}

int free_schema(void **state)
{
    (void)state;
    cJSON_Delete(schema);
    return 0;
}
