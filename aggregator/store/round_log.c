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

/* The phase is the next one, or a later one. */
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
            return FEDGE_OK; /* torn */
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

/* Moves the lines that are whole and in order together; returns their size. */
static size_t keep_good_lines(char *text, size_t size)
{
    fedge_round_log log = {.last_round = 0};
    size_t kept = 0;
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
        memmove(text + kept, line, length + 1);
        kept += length + 1;
    }
    return kept;
}

fedge_status fedge_round_log_mend(const char *path, fedge_error *err)
{
    char aside[FEDGE_OS_MAX_PATH];
    uint8_t *text;
    size_t size;
    if (snprintf(aside, sizeof(aside), "%s" FEDGE_ROUND_LOG_DAMAGED, path) >= (int)sizeof(aside))
        return fedge_fail(err, FEDGE_TOO_BIG, "the path of %.200s... is too long", path);
    fedge_status status = fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err);
    /* A copy first: whatever ends this in between, the log is there, as it was or mended. */
    if (status == FEDGE_OK)
        status = fedge_os_write_file(aside, text, size, 0600, err);
    if (status == FEDGE_OK)
        status = fedge_os_write_file(path, text, keep_good_lines((char *)text, size), 0600, err);
    free(text);
    return status;
}

fedge_status fedge_round_log_open(fedge_round_log *log, const char *path, uint32_t last_closed,
                                  fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0;
    *log = (fedge_round_log){.file = {.fd = -1}};
    fedge_status status = FEDGE_OK;
    if (fedge_os_exists(path)) {
        status = fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err);
        if (status == FEDGE_OK)
            status = scan(log, path, (const char *)text, size, last_closed, err);
    }
    if (status == FEDGE_OK && (!text || log->size < size)) {
        status =
            fedge_os_write_file(path, text ? (const char *)text : "", (size_t)log->size, 0600, err);
    }
    free(text);
    return status == FEDGE_OK ? fedge_os_open(&log->file, path, FEDGE_OS_READ_WRITE, err) : status;
}

static fedge_status make_line(fedge_buffer *line, uint32_t round, fedge_task_kind kind,
                              const char *fields, fedge_error *err)
{
    char seal[FEDGE_SEAL_SIZE + 1];
    fedge_status status =
        fedge_buffer_printf(line, err, "{\"round\":%" PRIu32 ",\"phase\":\"%s\"%s%s}", round,
                            kind_name(kind), fields[0] != '\0' ? "," : "", fields);
    if (status != FEDGE_OK)
        return status;
    fedge_seal_make((const char *)line->data, line->size, seal);
    line->size--; /* the brace */
    status = fedge_buffer_printf(line, err, "%s\n", seal);
    if (status != FEDGE_OK)
        return status;
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

/* On a full disk half of it may have found room: that goes, and the log ends in a whole line. */
static fedge_status write_line(fedge_round_log *log, const fedge_buffer *line, fedge_error *err)
{
    fedge_status status = fedge_os_write_at(&log->file, log->size, line->data, line->size, err);
    if (status != FEDGE_OK) {
        const fedge_status cut = fedge_os_cut(&log->file, log->size, NULL);
        (void)cut; /* what failed first is what is told; opening cuts it too */
    }
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
    fedge_status status = make_line(&line, round, kind, fields, err);
    if (status == FEDGE_OK && log->size + line.size > FEDGE_ROUND_LOG_MAX_SIZE) {
        status = fedge_fail(err, FEDGE_TOO_BIG, "%s has reached its limit of %zu bytes",
                            log->file.path, FEDGE_ROUND_LOG_MAX_SIZE);
    }
    if (status == FEDGE_OK)
        status = write_line(log, &line, err);
    if (status == FEDGE_OK && !log->lazy)
        status = fedge_os_sync(&log->file, err);
    if (status == FEDGE_OK) {
        log->size += line.size;
        log->last_round = round;
        log->last_kind = kind;
    }
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
                                   .validation = {cJSON_HasObjectItem(line, "validation_accuracy"),
                                                  fedge_json_number(line, "validation_loss"),
                                                  fedge_json_number(line, "validation_accuracy")}};
    if (cJSON_IsString(model))
        (void)snprintf(summary.model, sizeof(summary.model), "%s", model->valuestring);
    return summary;
}

/* The updates of a round with a buffer. FEDGE_CORRUPT: they are not pairs of numbers. */
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

fedge_status fedge_round_lines_read(const char *path,
                                    fedge_status (*on_line)(void *user,
                                                            const fedge_round_summary *summary,
                                                            fedge_error *err),
                                    void *user, fedge_error *err)
{
    uint8_t *text = NULL;
    size_t size = 0, number = 0;
    fedge_status status = fedge_os_read_file(path, FEDGE_ROUND_LOG_MAX_SIZE, &text, &size, err);
    for (size_t at = 0; status == FEDGE_OK && at < size;) {
        const uint8_t *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;
        number++;
        if (length > 0) {
            const bool whole =
                fedge_seal_check((const char *)text + at, length, path, NULL) == FEDGE_OK;
            cJSON *line = cJSON_ParseWithLength((const char *)text + at, length);
            fedge_round_summary summary = read_line(line);
            status = whole && cJSON_IsObject(line)
                         ? read_buffered(line, &summary, err)
                         : fedge_fail(err, FEDGE_CORRUPT,
                                      "%s:%zu: not a line of a round, or damaged", path, number);
            if (status == FEDGE_OK)
                status = on_line(user, &summary, err);
            free(summary.buffered);
            cJSON_Delete(line);
        }
        at += length + 1;
    }
    free(text);
    return status;
}
