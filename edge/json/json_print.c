/* Prints a cJSON tree as cJSON_PrintUnformatted does, byte for byte. cJSON's own function needs
 * sscanf, which is large where programs are linked statically. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/json/json.h"

typedef struct printer {
    char *text; /* (room); NULL: no memory */
    size_t size, room;
} printer;

static void put(printer *p, const char *bytes, size_t count)
{
    if (p->text && p->room - p->size < count) {
        const size_t room = 2 * (p->size + count);
        char *larger = realloc(p->text, room);
        if (!larger)
            free(p->text);
        p->text = larger;
        p->room = room;
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

static void put_string(printer *p, const char *string)
{
    static const char ESCAPED[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
    put_text(p, "\"");
    for (const char *at = string ? string : ""; *at; at++) {
        char control[8];
        const char *escaped = strchr(ESCAPED, *at);
        if (escaped) {
            put_text(p, "\\");
            put(p, LETTERS + (escaped - ESCAPED), 1);
        } else if ((unsigned char)*at < 0x20) {
            (void)snprintf(control, sizeof(control), "\\u%04x", (unsigned)*at);
            put_text(p, control);
        } else {
            put(p, at, 1);
        }
    }
    put_text(p, "\"");
}

/* 15 digits unless they read back as another number, within cJSON's tolerance. */
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
    printer p = {.text = malloc(256), .room = 256};
    put_value(&p, root);
    put(&p, "", 1);
    return p.text;
}
