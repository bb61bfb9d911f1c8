#include "aggregator/run/engine_async.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/safetensors.h"

bool fedge_engine_has_buffer(const fedge_engine *engine)
{
    return engine->config.job->rounds.buffer_size > 0;
}

/* ---- models of earlier rounds ---------------------------------------------------------------- */

static bool is_named(const fedge_engine *engine, uint32_t base)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; i < num_tasks; i++) {
        if (tasks[i].state == FEDGE_TASK_OPEN && tasks[i].base == base)
            return true;
    }
    return false;
}

static fedge_blob *old_model(const fedge_engine *engine, uint32_t base)
{
    for (uint32_t i = 0; i < engine->num_old_models; i++) {
        if (engine->old_models[i].base == base)
            return engine->old_models[i].model;
    }
    return NULL;
}

fedge_blob *fedge_engine_model_of(const fedge_engine *engine, uint32_t base)
{
    return base == engine->rounds_closed || !fedge_engine_has_buffer(engine)
               ? engine->model
               : old_model(engine, base);
}

fedge_blob *fedge_engine_find_old_model(const fedge_engine *engine, const char *hash)
{
    for (uint32_t i = 0; i < engine->num_old_models; i++) {
        fedge_blob *model = engine->old_models[i].model;
        if (strcmp(model->hash, hash) == 0)
            return model;
        if (model->parts && strcmp(model->parts->hash, hash) == 0)
            return model->parts;
    }
    return NULL;
}

static fedge_status add_old_model(fedge_engine *engine, uint32_t base, fedge_blob *model,
                                  fedge_error *err)
{
    assert(!old_model(engine, base)); /* a second entry would never be found */
    const size_t size = (engine->num_old_models + (size_t)1) * sizeof(*engine->old_models);
    fedge_engine_old_model *grown = realloc(engine->old_models, size);
    if (!grown)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to keep the model of round %u", base);
    engine->old_models = grown;
    grown[engine->num_old_models++] = (fedge_engine_old_model){base, model};
    return FEDGE_OK;
}

bool fedge_engine_keep_old_model(fedge_engine *engine)
{
    /* Without memory for it its tasks are lost, like those of clients that vanish. */
    return fedge_engine_has_buffer(engine) && is_named(engine, engine->rounds_closed) &&
           add_old_model(engine, engine->rounds_closed, engine->model, NULL) == FEDGE_OK;
}

void fedge_engine_drop_old_models(fedge_engine *engine)
{
    uint32_t num_retained = 0;
    for (uint32_t i = 0; i < engine->num_old_models; i++) {
        const fedge_engine_old_model old = engine->old_models[i];
        if (is_named(engine, old.base)) {
            engine->old_models[num_retained++] = old;
        } else {
            fedge_engine_withdraw(engine, old.model);
            fedge_blob_release(old.model);
        }
    }
    engine->num_old_models = num_retained;
}

fedge_status fedge_engine_write_old_model(const fedge_engine *engine, uint32_t base, uint8_t **file,
                                          size_t *size, fedge_error *err)
{
    const fedge_global_model *model = &engine->server.model;
    const fedge_schema *schema = &model->plan->schema;
    *file = NULL;
    /* The strategy keeps models of that age and no older ones. */
    if (base > engine->rounds_closed ||
        engine->rounds_closed - base > model->job->rounds.max_staleness) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "the journal of round %u has a task on the model of round %u",
                          engine->rounds_closed + 1, base);
    }
    FEDGE_TRY(fedge_safetensors_size(schema, size, err));
    uint8_t *bytes = malloc(*size);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a model file of %zu bytes", *size);
    const fedge_status status = fedge_safetensors_write(
        schema, model->strategy->base(model->strategy_state, base), bytes, *size, err);
    if (status == FEDGE_OK)
        *file = bytes;
    else
        free(bytes);
    return status;
}

static fedge_status make_old_model(fedge_engine *engine, uint32_t base, fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0;
    fedge_blob *model = NULL;
    FEDGE_TRY(fedge_engine_write_old_model(engine, base, &file, &size, err));
    FEDGE_TRY(fedge_blob_new(file, size, &model, err));
    const fedge_status status = add_old_model(engine, base, model, err);
    if (status != FEDGE_OK)
        fedge_blob_release(model);
    return status;
}

fedge_status fedge_engine_restore_old_models(fedge_engine *engine, fedge_error *err)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; fedge_engine_has_buffer(engine) && i < num_tasks; i++) {
        if (tasks[i].state == FEDGE_TASK_OPEN && !fedge_engine_model_of(engine, tasks[i].base))
            FEDGE_TRY(make_old_model(engine, tasks[i].base, err));
    }
    return FEDGE_OK;
}

void fedge_engine_free_old_models(fedge_engine *engine)
{
    for (uint32_t i = 0; i < engine->num_old_models; i++)
        fedge_blob_release(engine->old_models[i].model);
    free(engine->old_models);
}

/* ---- models that the disk has damaged -------------------------------------------------------- */

/* Makes the model's file anew from the strategy's state. [base]: the round of an old model. */
static fedge_status rebuild(const fedge_engine *engine, fedge_blob *model, uint32_t base,
                            fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, control_size = 0;
    if (model == engine->model) {
        FEDGE_TRY(
            fedge_global_model_write(&engine->server.model, &file, &size, &control_size, err));
    } else {
        FEDGE_TRY(fedge_engine_write_old_model(engine, base, &file, &size, err));
    }
    if (size + control_size != model->size) {
        free(file);
        return fedge_fail(err, FEDGE_MISMATCH, "the rebuilt file has another size");
    }
    return fedge_blob_mend(model, file, err);
}

static fedge_status mend(const fedge_engine *engine, fedge_blob *model, uint32_t base,
                         fedge_error *err)
{
    const fedge_status status = rebuild(engine, model, base, err);
    if (status != FEDGE_OK) {
        return fedge_error_prefix(err, status,
                                  "%s is damaged; it is rebuilt when the program is started again",
                                  model->file.path);
    }
    FEDGE_LOG(engine->config.log, FEDGE_LOG_ERROR, "model-mended",
              fedge_log_str("file", model->file.path), fedge_log_str("sha256", model->hash),
              fedge_log_str("why", "it could not be read as it was written"),
              fedge_log_str("then", "it is served from memory; look at the disk"));
    return FEDGE_OK;
}

static fedge_status mend_all(const fedge_engine *engine, fedge_error *err)
{
    if (fedge_blob_is_damaged(engine->model))
        FEDGE_TRY(mend(engine, engine->model, 0, err));
    for (uint32_t i = 0; i < engine->num_old_models; i++) {
        const fedge_engine_old_model *old = &engine->old_models[i];
        if (fedge_blob_is_damaged(old->model))
            FEDGE_TRY(mend(engine, old->model, old->base, err));
    }
    return FEDGE_OK;
}

static bool is_idle(const fedge_engine *engine)
{
    const fedge_rounds_state state = fedge_rounds_get_state(engine->rounds);
    return state != FEDGE_ROUNDS_OPENING && state != FEDGE_ROUNDS_CLOSING;
}

void fedge_engine_repair_models(fedge_engine *engine)
{
    fedge_error err;
    if (is_idle(engine) && mend_all(engine, &err) != FEDGE_OK)
        fedge_engine_fail(engine, &err);
}

fedge_status fedge_engine_read_model(fedge_engine *engine, uint64_t offset, void *out, size_t size,
                                     fedge_error *err)
{
    if (fedge_blob_read(engine->model, offset, out, size, err) == FEDGE_OK)
        return FEDGE_OK;
    FEDGE_TRY(mend(engine, engine->model, 0, err));
    return fedge_blob_read(engine->model, offset, out, size, err);
}

/* ---- deferred uploads ------------------------------------------------------------------------ */

void fedge_engine_defer_upload(fedge_engine *engine, fedge_grant *grant)
{
    assert(fedge_engine_has_buffer(engine));
    /* Announced twice: the later announcement names the present connection. */
    for (uint32_t i = 0; i < engine->num_deferred; i++) {
        if (engine->deferred[i]->task.task_id == grant->task.task_id) {
            fedge_grant_free(engine->deferred[i]);
            engine->deferred[i] = grant;
            return;
        }
    }
    fedge_grant **grown =
        realloc(engine->deferred, (engine->num_deferred + (size_t)1) * sizeof(fedge_grant *));
    if (!grown) { /* its client announces the update again after a time-out */
        fedge_grant_free(grant);
        return;
    }
    engine->deferred = grown;
    grown[engine->num_deferred++] = grant;
}

void fedge_engine_defer_slot(fedge_engine *engine, uint32_t index, const fedge_rounds_task *task)
{
    assert(index < engine->num_slots && index < engine->intake.num_slots);
    fedge_intake_slot *slot = &engine->intake.slots[index];
    fedge_grant *grant = engine->slots[index].announced;
    engine->slots[index].announced = NULL;
    if (!grant && slot->incoming && slot->holder.task_id == task->task_id) {
        grant = calloc(1, sizeof(*grant));
        if (grant) {
            *grant = (fedge_grant){.conn_id = slot->conn_id, .incoming = slot->incoming};
            slot->incoming = NULL;
        }
    }
    if (grant) {
        grant->task.task_id = task->task_id;
        fedge_engine_defer_upload(engine, grant);
    }
}

void fedge_engine_defer_uploads(fedge_engine *engine)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(engine->rounds, &num_tasks);
    for (uint32_t i = 0; i < num_tasks && i < engine->intake.num_slots && i < engine->num_slots;
         i++) {
        if (fedge_engine_has_buffer(engine) && tasks[i].state == FEDGE_TASK_OPEN)
            fedge_engine_defer_slot(engine, i, &tasks[i]);
    }
}

void fedge_engine_take_deferred(fedge_engine *engine, fedge_grant ***deferred, uint32_t *num)
{
    *deferred = engine->deferred;
    *num = 0;
    for (uint32_t i = 0; i < engine->num_deferred; i++) {
        uint32_t slot = 0;
        fedge_grant *grant = engine->deferred[i];
        const fedge_rounds_task *task =
            fedge_rounds_find(engine->rounds, grant->task.task_id, &slot);
        /* After a reconnect the client announces it again. */
        if (task && task->state == FEDGE_TASK_OPEN && slot < engine->num_slots &&
            fedge_engine_conn_of(engine, task->client_index) == grant->conn_id) {
            grant->slot = slot;
            (*deferred)[(*num)++] = grant;
        } else {
            fedge_grant_free(grant);
        }
    }
    engine->deferred = NULL;
    engine->num_deferred = 0;
}

void fedge_engine_free_deferred(fedge_engine *engine)
{
    for (uint32_t i = 0; i < engine->num_deferred; i++)
        fedge_grant_free(engine->deferred[i]);
    free(engine->deferred);
}
