/* Models whose file the disk has damaged: they are made anew from what is in memory. */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_MEND_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_MEND_H

#include "aggregator/run/engine_state.h"

/* Looks at the models that clients fetch, while the round finalizer has nothing in hand; one that
 * cannot be mended is the engine's failure: the next start makes it from the journal. */
void fedge_engine_mend_models(fedge_engine *engine);
/* Reads bytes of the newest model, which is mended if need be, when all is done. */
FEDGE_MUST_USE fedge_status fedge_engine_read_model(fedge_engine *engine, uint64_t offset,
                                                    void *out, size_t size, fedge_error *err);

#endif
