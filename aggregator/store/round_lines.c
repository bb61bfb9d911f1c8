#include "aggregator/store/round_lines.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/json_file.h"
#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "edge/json/json.h"

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
static fedge_status read_told(const cJSON *line, fedge_round_summary *summary, fedge_error *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "updates"), *pair;
    const int size = cJSON_GetArraySize(list);
    if (size <= 0 || size > (int)FEDGE_ROUND_SUMMARY_MAX_TOLD)
        return FEDGE_OK;
    summary->told = calloc((size_t)size, sizeof(*summary->told));
    if (!summary->told)
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
        summary->told[summary->num_told++] =
            (fedge_told_update){(uint32_t)client->valuedouble, (uint32_t)staleness->valuedouble};
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
                         ? read_told(line, &summary, err)
                         : fedge_fail(err, FEDGE_CORRUPT,
                                      "%s:%zu: not a line of a round, or damaged", path, number);
            if (status == FEDGE_OK)
                status = on_line(user, &summary, err);
            free(summary.told);
            cJSON_Delete(line);
        }
        at += length + 1;
    }
    free(text);
    return status;
}
