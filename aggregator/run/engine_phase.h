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

#endif
