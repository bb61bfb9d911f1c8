#define _POSIX_C_SOURCE 200809L /* gmtime_r */

#include "edge/core/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "edge/core/os.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Bytes reserved for the end of a line: "}", a newline and vsnprintf's NUL. */
#define CLOSING_BYTES 4

/* A line, truncated at its limit. */
typedef struct line {
    char text[FEDGE_LOG_MAX_LINE];
    size_t size;
} line;

__attribute__((format(printf, 2, 3))) static void put(line *out, const char *format, ...)
{
    size_t space = sizeof(out->text) - 1 - out->size; /* reserves a byte for the newline */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text + out->size, space, format, args);
    va_end(args);
    if (n > 0)
        out->size += (size_t)n < space ? (size_t)n : space - 1;
}

void fedge_text_plain(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        const unsigned skipped = fedge_text_steering(p);
        *to++ = skipped > 0 ? ' ' : *p; /* not removed: its neighbours could form another */
        p += skipped > 0 ? skipped - 1 : 0;
    }
    *to = '\0';
}

static void put_escaped(line *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        const unsigned steering = fedge_text_steering(p);
        /* Replaced by a space, as in fedge_text_plain. */
        if (steering > 1)
            put(out, " ");
        else if (steering == 1)
            put(out, "\\u%04x", *p);
        else if (*p == '"' || *p == '\\')
            put(out, "\\%c", *p);
        else
            put(out, "%c", *p);
        p += steering > 1 ? steering - 1 : 0;
    }
}

static bool needs_quotes(const char *text)
{
    if (!*text)
        return true;
    for (const char *p = text; *p; p++) {
        if (*p == ' ' || *p == '"' || *p == '=' || *p == '\\' || fedge_text_steering(p) > 0)
            return true;
    }
    return false;
}

static void put_string(line *out, const char *text, bool always_quote)
{
    bool quote = always_quote || needs_quotes(text);
    if (quote)
        put(out, "\"");
    put_escaped(out, text);
    if (quote)
        put(out, "\"");
}

static void put_field(line *out, const fedge_log_field *field, bool json)
{
    if (json)
        put(out, ",\"%s\":", field->key);
    else
        put(out, " %s=", field->key);
    switch (field->type) {
    case FEDGE_LOG_FIELD_STR:
        put_string(out, field->str ? field->str : "", json);
        break;
    case FEDGE_LOG_FIELD_INT:
        put(out, "%lld", (long long)field->integer);
        break;
    case FEDGE_LOG_FIELD_NUM:
        if (json && !isfinite(field->number))
            put(out, "null");
        else
            put(out, "%.6g", field->number);
        break;
    }
}

static void put_time(line *out)
{
    uint64_t now_ms = fedge_os_unix_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm parts;
    gmtime_r(&seconds, &parts);
    put(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", parts.tm_year + 1900, parts.tm_mon + 1,
        parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, (unsigned)(now_ms % 1000));
}

fedge_log_field fedge_log_str(const char *key, const char *value)
{
    return (fedge_log_field){.key = key, .type = FEDGE_LOG_FIELD_STR, .str = value};
}

fedge_log_field fedge_log_int(const char *key, int64_t value)
{
    return (fedge_log_field){.key = key, .type = FEDGE_LOG_FIELD_INT, .integer = value};
}

fedge_log_field fedge_log_num(const char *key, double value)
{
    return (fedge_log_field){.key = key, .type = FEDGE_LOG_FIELD_NUM, .number = value};
}

fedge_status fedge_log_level_from_name(const char *name, fedge_log_level *level, fedge_error *err)
{
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (fedge_log_level)i;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                      "log level '%s' is not known: use error, warn, info or debug", name);
}

void fedge_log_write(const fedge_log *log, fedge_log_level level, const char *event,
                     const fedge_log_field *fields, size_t num_fields)
{
    if (!log || !log->write || level > log->level)
        return;
    line out = {.size = 0};
    if (log->json) {
        put(&out, "{\"time\":\"");
        put_time(&out);
        put(&out, "\",\"level\":\"%s\",\"event\":\"%s\"", level_names[level], event);
    } else {
        put_time(&out);
        put(&out, " %s %s", level_names[level], event);
    }
    for (size_t i = 0; i < num_fields; i++) {
        /* A truncated JSON field would break the object, so it is omitted. */
        size_t before = out.size;
        put_field(&out, &fields[i], log->json);
        if (log->json && out.size + CLOSING_BYTES >= sizeof(out.text))
            out.size = before;
    }
    if (log->json)
        put(&out, "}");
    out.text[out.size++] = '\n';
    log->write(log->user, out.text, out.size);
}

void fedge_log_failure(const fedge_log *log, fedge_log_level level, const char *event,
                       const fedge_error *err)
{
    FEDGE_LOG(log, level, event, fedge_log_str("error", err->message),
              fedge_log_str("status", fedge_status_text(err->status)));
}
