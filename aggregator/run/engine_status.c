#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/run/engine_status.h"
#include "aggregator/store/json_file.h"

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size)
{
    if (engine->failure.status != FEDGE_OK) {
        snprintf(text, size, "%s", engine->failure.message);
        return;
    }
    if (engine->waiting_for_space) {
        snprintf(text, size, "waiting for room on the disk: %s", engine->lacks);
        return;
    }
    fedge_rounds_describe(engine->rounds, text, size);
    const size_t used = strlen(text);
    if (engine->gave_up[0] && used < size && fedge_rounds_is_stalled(engine->rounds))
        snprintf(text + used, size - used, " (%s)", engine->gave_up);
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
              : now_ms - engine->stalled_ms < FEDGE_ENGINE_WAIT_MS)
        return;
    fedge_engine_describe(engine, text, sizeof(text));
    engine->wait_logged_ms = now_ms;
    if (strcmp(text, engine->wait_logged) != 0) {
        memcpy(engine->wait_logged, text, sizeof(text));
        FEDGE_LOG(engine->config.log, FEDGE_LOG_INFO, "round-waits",
                  fedge_log_int("round", fedge_rounds_round(engine->rounds)),
                  fedge_log_str("for", text));
    }
}

/* Nothing without keep-best or early-stopping. */
static bool add_selection(cJSON *json, const fedge_run_status *status)
{
    const fedge_selected *best = &status->best;
    const bool any = best->round > 0;
    if (status->stopped_early && !cJSON_AddTrueToObject(json, "stopped_early"))
        return false;
    return !status->keeps_best ||
           (cJSON_AddNumberToObject(json, "best_round", any ? (double)best->round : (double)NAN) &&
            cJSON_AddStringToObject(json, "best_metric", fedge_criterion_text(status->criterion)) &&
            cJSON_AddNumberToObject(json, "best_value", any ? status->best_value : NAN) &&
            cJSON_AddNumberToObject(json, "best_accuracy", any ? best->accuracy : NAN) &&
            cJSON_AddNumberToObject(json, "best_loss", any ? best->loss : NAN) &&
            (best->model[0] ? cJSON_AddStringToObject(json, "best_model_sha256", best->model)
                            : cJSON_AddNullToObject(json, "best_model_sha256")));
}

fedge_status fedge_engine_status_json(const fedge_run_status *status, char **text, fedge_error *err)
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
                add_selection(json, status) &&
                cJSON_AddStringToObject(json, "run_dir", status->run_dir) &&
                fedge_json_keep_digits(json);
    *text = made ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    return *text ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the summary");
}
