/* What the engine tells the ranks that take updates besides its own: where a phase opens and
 * closes, and who may take which slot's update. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_ORDERS_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_ORDERS_H

#include "aggregator/run/engine_state.h"

/* The rank that takes the bytes that come over this connection. */
uint32_t fedge_engine_rank_of(const fedge_engine *engine, uint64_t conn_id);

void fedge_engine_grant(fedge_engine *engine, uint32_t rank, const fedge_grant *grant);
void fedge_engine_recall(fedge_engine *engine, uint32_t slot);

/* The phase opens (with engine->other_ranks.tasks) or closes; false: there is nobody to wait for.
 */
bool fedge_engine_open_other_ranks(fedge_engine *engine);
bool fedge_engine_close_other_ranks(fedge_engine *engine, bool dropped);

#endif
