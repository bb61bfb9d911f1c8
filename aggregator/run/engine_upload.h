/* What clients send: uploads and declined tasks.
 *
 * How an upload resumes. The client announces it again (UPLOAD), on any connection and any rank:
 * fedge_engine_upload leases the slot to the rank that the connection belongs to. A rank that has
 * it is asked to give it back first (aggregator/cluster/protocol/slot_lease.h). The new holder's
 * fedge_intake_grant (ingest/intake.c) decides on the first byte: where the upload stopped, if the
 * same update was announced there before; else 0. It answers RESUME with that offset. After a
 * restart the journal has whole updates alone, so an unfinished upload begins at byte 0 again. With
 * an asynchronous strategy an upload that outlives its round waits as a deferred upload
 * (engine_async.h); fedge_engine_resume_deferred grants it in the next phase, whose journal has
 * taken over its bytes (fedge_journal_carry, round_finalizer.c).
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_UPLOAD_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_UPLOAD_H

#include "aggregator/run/engine_state.h"

/* An UPLOAD: the announcement of an update, or a whole evaluation result. Answers RESUME, ACK or
 * REFUSE. */
void fedge_engine_upload(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
/* A phase has opened: grants the uploads that were deferred to it. */
void fedge_engine_resume_deferred(fedge_engine *engine, uint64_t now_ms);
/* A PART: bytes of an update; takes the request's frame. */
void fedge_engine_part(fedge_engine *engine, fedge_request *from, uint64_t now_ms);
/* A DECLINE of one task, or of the whole plan. */
void fedge_engine_decline(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
/* FEDGE_COMPLETION_VALIDATED of this rank's ingest workers: ACK, REFUSE or another try. */
void fedge_engine_on_validated(fedge_engine *engine, const fedge_completion *completion,
                               uint64_t now_ms);

/* The result of validating a slot's update on some rank. */
typedef struct fedge_engine_result {
    uint32_t slot, rank;
    uint64_t task_id;
    uint32_t number; /* last grant that the rank had received */
    bool held;       /* the rank held the slot for this task */
    fedge_status status;
    const char *message;
    double seconds_upload;
} fedge_engine_result;
void fedge_engine_take_result(fedge_engine *engine, const fedge_engine_result *result,
                              uint64_t now_ms);
/* [rank] has given the slot back; the next in line gets it. */
void fedge_engine_released(fedge_engine *engine, uint32_t index, uint32_t rank, uint64_t now_ms);

/* Reports of other ranks. */

/* FEDGE_REQUEST_REPORT: [from] has a fedge_report in its payload. */
void fedge_engine_report(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);

#endif
