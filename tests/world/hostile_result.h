/* Results of tasks that a hostile client makes: right ones, and all kinds of wrong ones. */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_RESULT_H
#define FEDGE_TESTS_WORLD_HOSTILE_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/plan/plan.h"
#include "edge/wire/protocol.h"

/* Plain data; owns [bytes] (size), which may differ from what [upload] announces. */
typedef struct hostile_result {
    fedge_upload upload;
    uint8_t *bytes; /* malloc'ed */
    size_t size;
} hostile_result;

/* Makes a result of the task that counts; [out] has none. False: it cannot be encoded. */
bool hostile_result_make(fedge_rng *draw, const fedge_plan *plan, const fedge_task *task,
                         const fedge_welcome *welcome, hostile_result *out);
/* Makes it wrong in a drawn way; few of them leave it as it was. */
void hostile_result_spoil(fedge_rng *draw, hostile_result *result);
void hostile_result_free(hostile_result *result); /* all 0 is fine; leaves it so */

#endif
