/* What the round machine asks of the engine: phases open and close, tasks go out. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_PHASE_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_PHASE_H

#include "aggregator/run/engine_state.h"

void fedge_engine_pump(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_on_opened(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms);
void fedge_engine_on_closed(fedge_engine *engine, fedge_completion *completion, uint64_t now_ms);
FEDGE_MUST_USE fedge_status fedge_engine_new_slots(fedge_engine *engine, uint32_t num_slots,
                                                   fedge_error *err);
/* A journal is there, new or recovered: uploads may come. */
FEDGE_MUST_USE fedge_status fedge_engine_begin_intake(fedge_engine *engine, fedge_error *err);
/* All other ranks have answered that the phase opens (engine->other_ranks.worst), or closes. */
void fedge_engine_other_ranks_opened(fedge_engine *engine, uint64_t now_ms);
void fedge_engine_other_ranks_closed(fedge_engine *engine);
/* Who a client is, for the journal. One that has just gone is known by its index alone. */
fedge_journal_task fedge_engine_journal_task(const fedge_engine *engine,
                                             const fedge_rounds_task *of);
/* The task of slot [index] once more, to a client that has lost track of it. */
void fedge_engine_send_again(fedge_engine *engine, uint32_t index, uint64_t now_ms);

/* Duty cycle: clients that may hang up (HELLO's hangs-up) need not hold a connection through a
 * round that has no task for them. They are told when to call again: shortly before it ends. */

#define FEDGE_ENGINE_NOT_BEFORE_CHECK_MS 1000  /* between looks who may rest */
#define FEDGE_ENGINE_MIN_NOT_BEFORE_MS 5000    /* a shorter one is not worth a handshake */
#define FEDGE_ENGINE_FIRST_NOT_BEFORE_MS 60000 /* before a round has shown how long they take */

/* A round was closed that took so long: what the next is expected to take. */
void fedge_engine_note_round(fedge_engine *engine, uint64_t took_ms);

/* While a phase runs: says BYE (come-later) to those without a task in it. Cheap when called often.
 */
void fedge_engine_send_not_before(fedge_engine *engine, uint64_t now_ms);

#endif
