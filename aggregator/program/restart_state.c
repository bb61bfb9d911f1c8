#define _GNU_SOURCE /* setenv is POSIX, not C11 */

#include "aggregator/program/restart_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/disk.h"
#include "aggregator/store/json_file.h"

#define NAME "supervised"
#define MAX_SIZE 256u /* bytes of the variable and of the file */

fedge_status fedge_restart_state_export(const fedge_supervised *self, fedge_error *err)
{
    char text[MAX_SIZE];
    snprintf(text, sizeof(text), "%" PRIu32 ":%s", self->restarts, self->number);
    if (setenv(FEDGE_RESTART_STATE_VARIABLE, text, true) != 0)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the environment of mpirun");
    return FEDGE_OK;
}

/* What a rank 0 of the same supervisor has left; [run_id] stays "" when another one has. */
static fedge_status read_run(const fedge_supervised *self, const char *path,
                             char run_id[FEDGE_RUN_ID_TEXT], fedge_error *err)
{
    char number[FEDGE_SUPERVISOR_NUMBER_TEXT], found[FEDGE_RUN_ID_TEXT];
    cJSON *json = NULL;
    fedge_status status = fedge_json_file_read(path, MAX_SIZE, &json, err);
    if (status == FEDGE_OK)
        status = fedge_json_get_text(json, "supervisor", path, number, sizeof(number), err);
    if (status == FEDGE_OK)
        status = fedge_json_get_text(json, "run-id", path, found, sizeof(found), err);
    if (status == FEDGE_OK && strcmp(number, self->number) == 0)
        memcpy(run_id, found, sizeof(found));
    cJSON_Delete(json);
    return status;
}

void fedge_restart_state_import(fedge_supervised *self, const char *state_dir, const fedge_log *log)
{
    char path[FEDGE_MAX_PATH];
    fedge_error err;
    const char *text = getenv(FEDGE_RESTART_STATE_VARIABLE);
    if (!text || sscanf(text, "%" SCNu32 ":%16s", &self->restarts, self->number) != 2)
        return;
    fedge_status status = fedge_path_join(state_dir, NAME, path, &err);
    if (status == FEDGE_OK)
        status = read_run(self, path, self->run_id, &err);
    /* The first rank 0 finds none. */
    if (status != FEDGE_OK && status != FEDGE_NOT_FOUND)
        fedge_log_failure(log, FEDGE_LOG_WARN, "supervised-discarded", &err);
}

fedge_status fedge_restart_state_run_opened(const fedge_supervised *self, const char *state_dir,
                                            const char run_id[FEDGE_RUN_ID_TEXT], fedge_error *err)
{
    char path[FEDGE_MAX_PATH], text[MAX_SIZE];
    if (!self->number[0])
        return FEDGE_OK;
    const int size = snprintf(text, sizeof(text), "{\"supervisor\":\"%s\",\"run-id\":\"%s\"}",
                              self->number, run_id);
    FEDGE_TRY(fedge_path_join(state_dir, NAME, path, err));
    return fedge_json_file_write(path, text, (size_t)size, err);
}
