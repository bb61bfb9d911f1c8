/* Carries out the actions of the round machine: opens and closes phases, sends and cancels tasks.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_PHASE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_PHASE_H

#include "aggregator/run/engine_state.h"

/* Carries out all actions that the round machine has by now. */
void fedge_engine_pump(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_on_opened(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms);
void fedge_engine_on_closed(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms);
FEDGE_MUST_USE fedge_status fedge_engine_new_slots(fedge_engine *engine, uint32_t num_slots,
                                                   fedge_error *err);
void fedge_engine_free_slots(fedge_engine *engine);
/* Takes uploads from now on, into engine->journal, which is new or recovered. */
FEDGE_MUST_USE fedge_status fedge_engine_begin_intake(fedge_engine *engine, fedge_error *err);
/* All other ranks have opened the phase (their worst failure is engine->other_ranks.worst), or
 * closed it. */
void fedge_engine_other_ranks_opened(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_other_ranks_closed(fedge_engine *engine);
/* The task as the journal records it. A client that has just left has no device_id there. */
fedge_journal_task fedge_engine_journal_task(const fedge_engine *engine,
                                             const fedge_rounds_task *of);
/* Sends the task of slot [index] again to a client that has lost track of it. */
void fedge_engine_resend_task(fedge_engine *engine, uint32_t index, uint64_t now_ms);

/* Duty cycle: a client that may hang up (HELLO's hangs-up) needs no connection during a round
 * without a task for it. BYE asks it to stay away until the round is about to end. */

#define FEDGE_ENGINE_NOT_BEFORE_CHECK_MS 1000  /* time between two checks */
#define FEDGE_ENGINE_MIN_NOT_BEFORE_MS 5000    /* a shorter absence is not worth a handshake */
#define FEDGE_ENGINE_FIRST_NOT_BEFORE_MS 60000 /* used while the length of rounds is unknown */

/* A round took [took_ms]: updates the estimate for the next one. */
void fedge_engine_note_round(fedge_engine *engine, uint64_t took_ms);

/* During a phase: sends BYE (come-later) to clients without a task in it. Cheap when called often.
 */
void fedge_engine_send_not_before(fedge_engine *engine, uint64_t now_ms);

#endif
