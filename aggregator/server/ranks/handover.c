#define _GNU_SOURCE /* setenv is POSIX, not C11 */

#include "aggregator/server/ranks/handover.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/path.h"
#include "edge/core/os.h"

#define NAME "supervised"
#define MAX_SIZE 128u /* bytes of the variable and of the file */

fedge_status fedge_handover_give(const fedge_supervised *self, fedge_error *err)
{
    char text[MAX_SIZE];
    snprintf(text, sizeof(text), "%" PRIu32 ":%s", self->restarts, self->number);
    if (setenv(FEDGE_HANDOVER_VARIABLE, text, true) != 0)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the environment of mpirun");
    return FEDGE_OK;
}

/* What a rank 0 of the same supervisor has left. */
static void read_run(fedge_supervised *self, const char *state_dir)
{
    char path[FEDGE_MAX_PATH], number[FEDGE_SUPERVISOR_NUMBER_TEXT], run_id[FEDGE_RUN_ID_TEXT];
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    if (fedge_path_join(state_dir, NAME, path, &err) == FEDGE_OK &&
        fedge_os_read_file(path, MAX_SIZE, &text, &size, &err) == FEDGE_OK &&
        sscanf((const char *)text, "%16s %32s", number, run_id) == 2 &&
        strcmp(number, self->number) == 0)
        memcpy(self->run_id, run_id, sizeof(run_id));
    free(text);
}

void fedge_handover_take(fedge_supervised *self, const char *state_dir)
{
    const char *text = getenv(FEDGE_HANDOVER_VARIABLE);
    if (!text || sscanf(text, "%" SCNu32 ":%16s", &self->restarts, self->number) != 2)
        return;
    read_run(self, state_dir);
}

fedge_status fedge_handover_opened(const fedge_supervised *self, const char *state_dir,
                                   const char run_id[FEDGE_RUN_ID_TEXT], fedge_error *err)
{
    char path[FEDGE_MAX_PATH], text[MAX_SIZE];
    if (!self->number[0])
        return FEDGE_OK;
    const int size = snprintf(text, sizeof(text), "%s %s\n", self->number, run_id);
    const fedge_status status = fedge_path_join(state_dir, NAME, path, err);
    return status == FEDGE_OK ? fedge_os_write_file(path, text, (size_t)size, 0644, err) : status;
}
