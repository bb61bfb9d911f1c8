/* Results of a hostile client: right ones, and wrong ones of many kinds. */
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
    uint8_t *bytes; /* allocated by malloc */
    size_t size;
} hostile_result;

/* Makes a valid result of the task. [out] holds none before. False: it cannot be encoded. */
bool hostile_result_make(fedge_rng *draw, const fedge_plan *plan, const fedge_task *task,
                         const fedge_welcome *welcome, hostile_result *out);
/* Makes the result wrong in a random way. A few ways leave it valid. */
void hostile_result_spoil(fedge_rng *draw, hostile_result *result);
void hostile_result_free(
    hostile_result *result); /* [result] may be all 0, and is all 0 afterwards */

#endif
