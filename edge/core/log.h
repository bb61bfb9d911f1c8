/* Log events: one line each, as key=value text or as a JSON object, given to the caller's sink.
 *
 *   FEDGE_LOG(log, FEDGE_LOG_INFO, "round-closed", fedge_log_int("round", 3),
 *             fedge_log_str("device", id), fedge_log_num("seconds", 1.5));
 *   2026-01-02T03:04:05.678Z info round-closed round=3 device=… seconds=1.5
 *
 * Lines are truncated at FEDGE_LOG_MAX_LINE bytes. Values are escaped, so that an event is always
 * one line, and lose Unicode characters that control a terminal, separate lines or change the
 * direction of text. Thread-safe if the sink is.
 */
#ifndef FEDGE_EDGE_CORE_LOG_H
#define FEDGE_EDGE_CORE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_LOG_MAX_LINE 2048

typedef enum fedge_log_level {
    FEDGE_LOG_ERROR,
    FEDGE_LOG_WARN,
    FEDGE_LOG_INFO,
    FEDGE_LOG_DEBUG
} fedge_log_level;

typedef struct fedge_log {
    fedge_log_level level; /* more verbose events are dropped */
    bool json;
    /* Receives one line with its newline; NULL drops all. */
    void (*write)(void *user, const char *line, size_t size);
    void *user;
} fedge_log;

typedef struct fedge_log_field {
    const char *key;
    enum { FEDGE_LOG_FIELD_STR, FEDGE_LOG_FIELD_INT, FEDGE_LOG_FIELD_NUM } type;
    const char *str;
    int64_t integer;
    double number;
} fedge_log_field;

fedge_log_field fedge_log_str(const char *key, const char *value);
fedge_log_field fedge_log_int(const char *key, int64_t value);
fedge_log_field fedge_log_num(const char *key, double value); /* printed with %.6g */

/* Parses "error", "warn", "info" or "debug"; FEDGE_INVALID_ARGUMENT otherwise. */
FEDGE_MUST_USE fedge_status fedge_log_level_from_name(const char *name, fedge_log_level *level,
                                                      fedge_error *err);

/* [log] may be NULL. [event]: a fixed name in the program's text. */
void fedge_log_write(const fedge_log *log, fedge_log_level level, const char *event,
                     const fedge_log_field *fields, size_t num_fields);

#define FEDGE_LOG(log, level, event, ...)                                                          \
    fedge_log_write(log, level, event, (const fedge_log_field[]){__VA_ARGS__},                     \
                    sizeof((const fedge_log_field[]){__VA_ARGS__}) / sizeof(fedge_log_field))

/* Makes a peer's text safe to show, in place: characters that log values drop or escape become
 * spaces. */
void fedge_text_plain(char *text);

/* Logs an event whose only field is the message of [err]. */
void fedge_log_failure(const fedge_log *log, fedge_log_level level, const char *event,
                       const fedge_error *err);

#endif
