/* What clients send: uploads and declined tasks. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_UPLOAD_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_UPLOAD_H

#include "aggregator/run/engine_state.h"

void fedge_engine_upload(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
/* When a phase is open: uploads that were held for it are asked for (engine_async.h). */
void fedge_engine_resume_deferred(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_part(fedge_engine *engine, fedge_request *from, uint64_t now_ms);
void fedge_engine_decline(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
void fedge_engine_on_validated(fedge_engine *engine, const fedge_completion *completion,
                               uint64_t now_ms);

/* What was found of a slot's update, on which rank. */
typedef struct fedge_engine_result {
    uint32_t slot, rank;
    uint64_t task_id;
    uint32_t number; /* of the last grant that the rank had had */
    bool held;       /* the rank had the slot for it */
    fedge_status status;
    const char *message;
    double seconds_upload;
} fedge_engine_result;
void fedge_engine_take_result(fedge_engine *engine, const fedge_engine_result *result,
                              uint64_t now_ms);
/* The rank has given the slot back. */
void fedge_engine_released(fedge_engine *engine, uint32_t index, uint32_t rank, uint64_t now_ms);

/* What the engine hears of the ranks that take updates besides its own. */

/* [from] has a fedge_report in its payload. */
void fedge_engine_report(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);

#endif
