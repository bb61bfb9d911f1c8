/* What the engine waits for, as /healthz and the log say it; and the event of it. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_STATUS_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_STATUS_H

#include "aggregator/run/engine_state.h"

void fedge_engine_describe(const fedge_engine *engine, char *text, size_t size);
void fedge_engine_log_wait(fedge_engine *engine, uint64_t now_ms);

#endif
