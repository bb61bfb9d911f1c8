/* What clients send: uploads and declined tasks. */
#ifndef FEDGE_AGGREGATOR_SERVER_ENGINE_UPLOAD_H
#define FEDGE_AGGREGATOR_SERVER_ENGINE_UPLOAD_H

#include "aggregator/server/engine_state.h"

void fedge_engine_upload(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
void fedge_engine_part(fedge_engine *engine, fedge_request *from, uint64_t now_ms);
void fedge_engine_decline(fedge_engine *engine, const fedge_request *from, uint64_t now_ms);
void fedge_engine_on_validated(fedge_engine *engine, const fedge_completion *completion,
                               uint64_t now_ms);

#endif
