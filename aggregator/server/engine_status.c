#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/server/engine_internal.h"

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size)
{
    if (engine->failure.status != FEDGE_OK) {
        snprintf(text, size, "%s", engine->failure.message);
        return;
    }
    if (engine->waiting_for_space) {
        snprintf(text, size, "waiting for room on the disk");
        return;
    }
    fedge_rounds_describe(engine->rounds, text, size);
    const size_t used = strlen(text);
    if (engine->gave_up[0] && used < size && fedge_rounds_is_stalled(engine->rounds)) {
        snprintf(text + used, size - used, " (%s)", engine->gave_up);
    }
}

void fedge_engine_log_wait(fedge_engine *engine, uint64_t now_ms)
{
    char text[sizeof(engine->wait_logged)];
    if (engine->done || !fedge_rounds_is_stalled(engine->rounds)) {
        engine->stalled = false;
        return;
    }
    if (!engine->stalled) {
        engine->stalled = true;
        engine->stalled_ms = now_ms;
        engine->wait_logged[0] = '\0';
    }
    const bool again = engine->wait_logged[0] != '\0';
    if (again ? now_ms - engine->wait_logged_ms < FEDGE_ENGINE_WAIT_AGAIN_MS
              : now_ms - engine->stalled_ms < FEDGE_ENGINE_WAIT_MS) {
        return;
    }
    fedge_engine_describe(engine, text, sizeof(text));
    engine->wait_logged_ms = now_ms;
    if (strcmp(text, engine->wait_logged) != 0) {
        memcpy(engine->wait_logged, text, sizeof(text));
        FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "round-waits",
                  fedge_log_int("round", fedge_rounds_round(engine->rounds)),
                  fedge_log_str("for", text));
    }
}

fedge_status fedge_engine_status_json(const fedge_engine_status *status, char **text,
                                      fedge_error *err)
{
    cJSON *json = cJSON_CreateObject();
    /* What is not finite becomes null. */
    bool made = cJSON_AddNumberToObject(json, "rounds", status->rounds_closed) &&
                cJSON_AddNumberToObject(json, "accuracy", status->accuracy) &&
                cJSON_AddNumberToObject(json, "loss", status->loss) &&
                cJSON_AddNumberToObject(json, "bytes_up", (double)status->run_bytes_up) &&
                cJSON_AddNumberToObject(json, "bytes_down", (double)status->run_bytes_down) &&
                cJSON_AddNumberToObject(json, "seconds", status->seconds) &&
                cJSON_AddStringToObject(json, "model_sha256", status->model_hash) &&
                cJSON_AddStringToObject(json, "run_dir", status->run_dir);
    *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
