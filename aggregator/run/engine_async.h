/* Asynchronous strategies: models and uploads that outlive the round they began in; and models that
 * the disk has damaged.
 *
 * A task that continues in later rounds names the model that it started from, which stays available
 * as long as such a task is open. An upload that is announced or under way while no journal is open
 * is deferred, and continues in the next journal. With other strategies none of this happens.
 */
#ifndef FEDGE_AGGREGATOR_RUN_ENGINE_ASYNC_H
#define FEDGE_AGGREGATOR_RUN_ENGINE_ASYNC_H

#include "aggregator/run/engine_state.h"

/* True when the strategy is asynchronous: it steps when its buffer of updates is full. */
bool fedge_engine_has_buffer(const fedge_engine *engine);

/* The model after [base] rounds; NULL: no open task names it. */
fedge_blob *fedge_engine_model_of(const fedge_engine *engine, uint32_t base);
/* Finds an old model, or the list of its parts, by hash; NULL: none. */
fedge_blob *fedge_engine_find_old_model(const fedge_engine *engine, const char *hash);
/* Call before engine->model is replaced. True: it is kept as an old model, which takes over the
 * reference, since open tasks name it. */
bool fedge_engine_keep_old_model(fedge_engine *engine);
/* Withdraws and releases old models that no open task names. */
void fedge_engine_drop_old_models(fedge_engine *engine);
/* Writes the file of the model after [base] rounds anew, byte by byte as it was. *file is
 * malloc'ed. FEDGE_CORRUPT: the strategy no longer has that model. */
FEDGE_MUST_USE fedge_status fedge_engine_write_old_model(const fedge_engine *engine, uint32_t base,
                                                         uint8_t **file, size_t *size,
                                                         fedge_error *err);
/* After a recovery: makes the old models that open tasks name, from the strategy's state. */
FEDGE_MUST_USE fedge_status fedge_engine_restore_old_models(fedge_engine *engine, fedge_error *err);
void fedge_engine_free_old_models(fedge_engine *engine);

/* Repairs models whose file the disk has damaged, from what is in memory. Does nothing while the
 * round finalizer is at work. A model that cannot be repaired fails the engine: the next start
 * makes it from the journal. */
void fedge_engine_repair_models(fedge_engine *engine);
/* Reads bytes of the newest model, and repairs it first if need be. Call it when the engine is
 * done. */
FEDGE_MUST_USE fedge_status fedge_engine_read_model(fedge_engine *engine, uint64_t offset,
                                                    void *out, size_t size, fedge_error *err);

/* Takes over [grant], of an open task, until a journal is open. */
void fedge_engine_defer_upload(fedge_engine *engine, fedge_grant *grant);
/* Defers the upload of slot [index], whose open task is [task]. */
void fedge_engine_defer_slot(fedge_engine *engine, uint32_t index, const fedge_rounds_task *task);
/* Defers all uploads under way in the phase that has just closed. */
void fedge_engine_defer_uploads(fedge_engine *engine);
/* A phase is open: moves the deferred uploads, oldest first and each with its slot, to *deferred
 * (malloc'ed, *num). Those whose task is over or whose client has left are freed. */
void fedge_engine_take_deferred(fedge_engine *engine, fedge_grant ***deferred, uint32_t *num);
void fedge_engine_free_deferred(fedge_engine *engine);

#endif
