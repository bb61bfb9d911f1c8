/* What the engine hears of the ranks that take updates besides its own. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_REPORTS_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_REPORTS_H

#include "aggregator/run/engine_state.h"

/* [from] has a fedge_report in its payload. */
void fedge_engine_report(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);

#endif
