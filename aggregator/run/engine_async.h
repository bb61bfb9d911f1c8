/* Asynchronous strategies: models and uploads that outlive the round they began in.
 *
 * A task that goes on into the next rounds names the model that it was given, so that model stays
 * to be fetched as long as one does. An upload that is under way, or announced, while there is no
 * open journal is held until the next one is there, and goes on in it. Nothing of this is done with
 * other strategies.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_MODELS_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_MODELS_H

#include "aggregator/run/engine_state.h"

bool fedge_engine_has_buffer(const fedge_engine *engine);

/* The model of a task with this base; NULL: no task names it. */
fedge_blob *fedge_engine_model_of(const fedge_engine *engine, uint32_t base);
/* One of them, or the list of its parts, by its hash; NULL: none. */
fedge_blob *fedge_engine_find_old_model(const fedge_engine *engine, const char *hash);
/* Another model takes the place of engine->model, which is of rounds_closed: true when it stays,
 * with the engine's reference, since open tasks name it. */
bool fedge_engine_keep_old_model(fedge_engine *engine);
/* Old models that no open task names are withdrawn. */
void fedge_engine_drop_old_models(fedge_engine *engine);
/* The file of the model after [base] rounds, as when it was the newest: the models of asynchronous
 * jobs are trained whole. *file: malloc'ed. FEDGE_CORRUPT: the strategy does not keep it. */
FEDGE_MUST_USE fedge_status fedge_engine_write_old_model(const fedge_engine *engine, uint32_t base,
                                                         uint8_t **file, size_t *size,
                                                         fedge_error *err);
/* After a recovery: makes the models that open tasks name from the strategy's state. */
FEDGE_MUST_USE fedge_status fedge_engine_restore_old_models(fedge_engine *engine, fedge_error *err);
void fedge_engine_free_old_models(fedge_engine *engine);

/* Models whose file the disk has damaged: they are made anew from what is in memory. */

/* Looks at the models that clients fetch, while the round finalizer has nothing in hand; one that
 * cannot be mended is the engine's failure: the next start makes it from the journal. */
void fedge_engine_mend_models(fedge_engine *engine);
/* Reads bytes of the newest model, which is mended if need be, when all is done. */
FEDGE_MUST_USE fedge_status fedge_engine_read_model(fedge_engine *engine, uint64_t offset,
                                                    void *out, size_t size, fedge_error *err);

/* Takes [grant], of an open task: it is asked for again when a journal is there. */
void fedge_engine_defer_upload(fedge_engine *engine, fedge_grant *grant);
/* The upload of slot [index], whose task is [task] and open. */
void fedge_engine_defer_slot(fedge_engine *engine, uint32_t index, const fedge_rounds_task *task);
/* All uploads that are under way in the slots of the phase that has closed. */
void fedge_engine_defer_uploads(fedge_engine *engine);
/* A phase is open: takes those that are held, the first that came first, into *deferred, malloc'ed
 * with *num of them, each with its slot. Those whose task is over, or whose client has gone, are
 * forgotten. */
void fedge_engine_take_deferred(fedge_engine *engine, fedge_grant ***deferred, uint32_t *num);
void fedge_engine_free_deferred(fedge_engine *engine);

#endif
