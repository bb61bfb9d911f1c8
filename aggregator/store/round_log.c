#include "aggregator/store/round_log.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/json/json.h"

static const char *kind_name(fedge_task_kind kind)
{
    return kind == FEDGE_TASK_TRAIN ? "train" : "evaluate";
}

static bool comes_after_last(const fedge_round_log *log, uint32_t round, fedge_task_kind kind)
{
    if (round != log->last_round)
        return round > log->last_round;
    return kind == FEDGE_TASK_EVALUATE && log->last_kind == FEDGE_TASK_TRAIN;
}

/* Reads round and phase of one line. */
static bool parse_line(const char *line, size_t size, uint32_t *round, fedge_task_kind *kind)
{
    cJSON *json = cJSON_ParseWithLength(line, size);
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, "round");
    const cJSON *phase = cJSON_GetObjectItemCaseSensitive(json, "phase");
    bool good = cJSON_IsNumber(number) && number->valuedouble >= 1 &&
                number->valuedouble <= (double)UINT32_MAX && cJSON_IsString(phase);
    if (good) {
        *round = (uint32_t)number->valuedouble;
        *kind = strcmp(phase->valuestring, "train") == 0 ? FEDGE_TASK_TRAIN : FEDGE_TASK_EVALUATE;
        good = strcmp(phase->valuestring, kind_name(*kind)) == 0;
    }
    cJSON_Delete(json);
    return good;
}

/* Sets log->size to the end of the last line to keep. */
static fedge_status scan(fedge_round_log *log, const char *path, const char *text, size_t size,
                         uint32_t last_closed, fedge_error *err)
{
    for (size_t at = 0, number = 1; at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        uint32_t round;
        fedge_task_kind kind;
        if (!end)
            return FEDGE_OK; /* the last line is torn */
        size_t length = (size_t)(end - (text + at));
        if (fedge_seal_check(text + at, length, path, NULL) != FEDGE_OK ||
            !parse_line(text + at, length, &round, &kind)) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s:%zu: not a line of a round, or damaged; repair it (and remove "
                              "its member crc32) or move the file away",
                              path, number);
        }
        if (round > last_closed)
            return FEDGE_OK;
        if (!comes_after_last(log, round, kind)) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "%s:%zu: round %" PRIu32 " (%s) comes after round %" PRIu32
                              "; repair it or move the file away",
                              path, number, round, kind_name(kind), log->last_round);
        }
        log->last_round = round;
        log->last_kind = kind;
        at += length + 1;
        log->size = at;
    }
    return FEDGE_OK;
}

/* Compacts [text] to the lines that are intact and in order; returns their size. */
static size_t keep_good_lines(char *text, size_t size)
{
    fedge_round_log log = {.last_round = 0};
    size_t good = 0;
    for (const char *line = text, *end; (end = memchr(line, '\n', size)) != NULL; line = end + 1) {
        const size_t length = (size_t)(end - line);
        uint32_t round;
        fedge_task_kind kind;
        size -= length + 1;
        if (fedge_seal_check(line, length, "", NULL) != FEDGE_OK ||
            !parse_line(line, length, &round, &kind) || !comes_after_last(&log, round, kind))
            continue;
        log.last_round = round;
        log.last_kind = kind;
        memmove(text + good, line, length + 1);
        good += length + 1;
    }
    return good;
}

fedge_status fedge_round_log_mend(const char *path, fedge_error *err)
{
    char aside[FEDGE_OS_MAX_PATH];
    uint8_t *text;
    size_t size;
    if (snprintf(aside, sizeof(aside), "%s" FEDGE_ROUND_LOG_DAMAGED, path) >= (int)sizeof(aside))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s... is too long", path);
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err));
    /* The copy comes first, so that the log exists at every moment, repaired or not. */
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_write_file(aside, text, size, 0600, err), end);
    size = keep_good_lines((char *)text, size);
    status = fedge_os_write_file(path, text, size, 0600, err);
end:
    free(text);
    return status;
}

/* Writes the whole file again as it is, since its last lines may exist in memory only
 * (fedge_os_sync). In place, which needs no space on a full disk. */
static fedge_status write_again(const char *path, const uint8_t *text, size_t size,
                                fedge_error *err)
{
    fedge_os_file file;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, err));
    fedge_status status;
    FEDGE_TRY_OR(fedge_os_write_at(&file, 0, text, size, err), done);
    status = fedge_os_sync(&file, err);
done:
    fedge_os_close(&file);
    return status;
}

/* Cuts the file at the end of the last line to keep, and makes those before it durable. */
static fedge_status cut_file(fedge_round_log *log, const char *path, uint32_t last_closed,
                             fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err));
    fedge_status status;
    FEDGE_TRY_OR(scan(log, path, (const char *)text, size, last_closed, err), end);
    status = log->size < size ? fedge_os_write_file(path, text, (size_t)log->size, 0600, err)
                              : write_again(path, text, size, err);
end:
    free(text);
    return status;
}

fedge_status fedge_round_log_open(fedge_round_log *log, const char *path, uint32_t last_closed,
                                  fedge_error *err)
{
    *log = (fedge_round_log){.file = {.fd = -1}};
    bool exists = false;
    FEDGE_TRY(fedge_os_find(path, &exists, err));
    FEDGE_TRY(exists ? cut_file(log, path, last_closed, err)
                     : fedge_os_write_file(path, "", 0, 0600, err));
    return fedge_os_open(&log->file, path, FEDGE_OS_READ_WRITE, err);
}

static fedge_status make_line(fedge_buffer *line, uint32_t round, fedge_task_kind kind,
                              const char *fields, fedge_error *err)
{
    char seal[FEDGE_SEAL_SIZE + 1];
    FEDGE_TRY(fedge_buffer_printf(line, err, "{\"round\":%" PRIu32 ",\"phase\":\"%s\"%s%s}", round,
                                  kind_name(kind), fields[0] != '\0' ? "," : "", fields));
    fedge_seal_make((const char *)line->data, line->size, seal);
    line->size--; /* the seal ends with the brace */
    FEDGE_TRY(fedge_buffer_printf(line, err, "%s\n", seal));
    const char *text = (const char *)line->data;
    cJSON *json = cJSON_ParseWithLength(text, line->size);
    bool good = json && strchr(text, '\n') == text + line->size - 1;
    cJSON_Delete(json);
    if (!good) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "the line of round %" PRIu32 " is not one of JSON: %.200s", round, text);
    }
    return FEDGE_OK;
}

/* Cuts off a line that was written in part, as on a full disk, so that the log ends in a complete
 * one. */
static fedge_status write_line(fedge_round_log *log, const fedge_buffer *line, fedge_error *err)
{
    fedge_status status = fedge_os_write_at(&log->file, log->size, line->data, line->size, err);
    /* The first failure is the one to report; opening the log cuts it too. */
    if (status != FEDGE_OK)
        (void)!fedge_os_cut(&log->file, log->size, NULL);
    return status;
}

fedge_status fedge_round_log_append(fedge_round_log *log, uint32_t round, fedge_task_kind kind,
                                    const char *fields, fedge_error *err)
{
    if (!comes_after_last(log, round, kind)) {
        return fedge_fail(err, FEDGE_DUPLICATE, "%s has round %" PRIu32 " (%s) already",
                          log->file.path, log->last_round, kind_name(log->last_kind));
    }
    fedge_buffer line;
    fedge_buffer_init(&line, FEDGE_ROUND_LOG_MAX_LINE);
    fedge_status status;
    FEDGE_TRY_OR(make_line(&line, round, kind, fields, err), end);
    if (log->size + line.size > FEDGE_ROUND_LOG_MAX_SIZE) {
        status = fedge_fail(err, FEDGE_TOO_BIG, "%s has reached its limit of %zu bytes",
                            log->file.path, FEDGE_ROUND_LOG_MAX_SIZE);
        goto end;
    }
    FEDGE_TRY_OR(write_line(log, &line, err), end);
    if (!log->lazy)
        FEDGE_TRY_OR(fedge_os_sync(&log->file, err), end);
    log->size += line.size;
    log->last_round = round;
    log->last_kind = kind;
end:
    fedge_buffer_fini(&line);
    return status;
}

void fedge_round_log_close(fedge_round_log *log)
{
    fedge_os_close(&log->file);
}

/* ---- reading back ---------------------------------------------------------------------------- */

static uint64_t count_of(const cJSON *line, const char *key)
{
    const double value = fedge_json_number(line, key);
    return value >= 0.0 && value < 1.8e19 ? (uint64_t)value : 0;
}

static void read_counts(const cJSON *line, const char *key, uint32_t counts[FEDGE_SPEED_QUANTILES])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, key);
    for (int i = 0; i < (int)FEDGE_SPEED_QUANTILES; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);
        counts[i] = cJSON_IsNumber(item) ? (uint32_t)item->valuedouble : 0;
    }
}

static fedge_virtual_phase read_virtual(const cJSON *line)
{
    fedge_virtual_phase phase = {.time = fedge_json_number(line, "virtual_time"),
                                 .seconds = fedge_json_number(line, "virtual_seconds")};
    phase.present = isfinite(phase.time);
    read_counts(line, "asked_by_speed", phase.asked);
    read_counts(line, "reported_by_speed", phase.reported);
    return phase;
}

/* The errors of numbers among the metrics [key]. */
static fedge_metric_values read_errors(const cJSON *line, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    fedge_metric_values metrics = {0};
    double values[FEDGE_ERROR_METRICS];
    for (int i = 0; i < FEDGE_ERROR_METRICS; i++) {
        if (!cJSON_HasObjectItem(item, fedge_error_metric_names[i]))
            return metrics;
        values[i] = fedge_json_number(item, fedge_error_metric_names[i]);
    }
    fedge_metrics_set_errors(&metrics, values);
    return metrics;
}

static fedge_round_summary read_line(const cJSON *line)
{
    const cJSON *phase = cJSON_GetObjectItemCaseSensitive(line, "phase");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(line, "model_sha256");
    const bool train = cJSON_IsString(phase) && strcmp(phase->valuestring, "train") == 0;
    fedge_round_summary summary = {.round = (uint32_t)count_of(line, "round"),
                                   .kind = train ? FEDGE_TASK_TRAIN : FEDGE_TASK_EVALUATE,
                                   .reported = (uint32_t)count_of(line, "clients"),
                                   .examples = count_of(line, "examples"),
                                   .bytes_up = count_of(line, "bytes_up"),
                                   .bytes_down = count_of(line, "bytes_down"),
                                   .clamped = count_of(line, "clamped"),
                                   .seconds = fedge_json_number(line, "seconds"),
                                   .loss = fedge_json_number(line, "loss"),
                                   .accuracy = fedge_json_number(line, "accuracy"),
                                   .train_loss = fedge_json_number(line, "train_loss"),
                                   .train_accuracy = fedge_json_number(line, "train_accuracy"),
                                   .seconds_evaluate = fedge_json_number(line, "seconds_evaluate"),
                                   .virtual_phase = read_virtual(line),
                                   .metrics = read_errors(line, "metrics"),
                                   .validation = {cJSON_HasObjectItem(line, "validation_accuracy"),
                                                  fedge_json_number(line, "validation_loss"),
                                                  fedge_json_number(line, "validation_accuracy"),
                                                  read_errors(line, "validation_metrics")}};
    if (cJSON_IsString(model))
        (void)snprintf(summary.model, sizeof(summary.model), "%s", model->valuestring);
    return summary;
}

/* Reads the updates of a buffered round. FEDGE_CORRUPT: they are not pairs of numbers. */
static fedge_status read_buffered(const cJSON *line, fedge_round_summary *summary, fedge_error *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "updates"), *pair;
    const int size = cJSON_GetArraySize(list);
    if (size <= 0 || size > (int)FEDGE_ROUND_SUMMARY_MAX_BUFFERED)
        return FEDGE_OK;
    summary->buffered = calloc((size_t)size, sizeof(*summary->buffered));
    if (!summary->buffered)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %d updates", size);
    cJSON_ArrayForEach(pair, list)
    {
        const cJSON *client = cJSON_GetArrayItem(pair, 0), *staleness = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsNumber(client) || !cJSON_IsNumber(staleness) || client->valuedouble < 0 ||
            client->valuedouble > UINT32_MAX || staleness->valuedouble < 0 ||
            staleness->valuedouble > UINT32_MAX) {
            return fedge_fail(err, FEDGE_CORRUPT, "round %u: updates are not pairs of numbers",
                              summary->round);
        }
        summary->buffered[summary->num_buffered++] = (fedge_buffered_update){
            (uint32_t)client->valuedouble, (uint32_t)staleness->valuedouble};
    }
    return FEDGE_OK;
}

static fedge_status visit_line(const char *path, size_t number, const char *text, size_t length,
                               fedge_round_line_visit on_line, void *user, fedge_error *err)
{
    const bool intact = fedge_seal_check(text, length, path, NULL) == FEDGE_OK;
    cJSON *line = cJSON_ParseWithLength(text, length);
    fedge_round_summary summary = read_line(line);
    fedge_status status;
    FEDGE_TRY_OR(intact && cJSON_IsObject(line)
                     ? read_buffered(line, &summary, err)
                     : fedge_fail(err, FEDGE_CORRUPT, "%s:%zu: not a line of a round, or damaged",
                                  path, number),
                 end);
    status = on_line(user, &summary, err);
end:
    free(summary.buffered);
    cJSON_Delete(line);
    return status;
}

fedge_status fedge_round_lines_read(const char *path, fedge_round_line_visit on_line, void *user,
                                    fedge_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0, number = 0;
    FEDGE_TRY(fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &bytes, &size, err));
    const char *text = (const char *)bytes;
    fedge_status status = FEDGE_OK;
    for (size_t at = 0; at < size && status == FEDGE_OK;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;
        number++;
        if (length > 0)
            status = visit_line(path, number, text + at, length, on_line, user, err);
        at += length + 1;
    }
    free(bytes);
    return status;
}
