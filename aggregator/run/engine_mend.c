#include "aggregator/run/engine_mend.h"

#include <stdlib.h>

#include "aggregator/run/engine_buffer.h"

/* [base]: of an old model. */
static fedge_status mend(const fedge_engine *engine, fedge_blob *model, uint32_t base,
                         fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, told = 0;
    fedge_status status =
        model == engine->model
            ? fedge_global_model_write(&engine->server.model, &file, &size, &told, err)
            : fedge_engine_write_old_model(engine, base, &file, &size, err);
    if (status == FEDGE_OK && size + told != model->size) {
        free(file);
        status = fedge_fail(err, FEDGE_MISMATCH, "made anew it has another size");
    } else if (status == FEDGE_OK) {
        status = fedge_blob_mend(model, file, err);
    }
    if (status == FEDGE_OK) {
        FEDGE_LOG(engine->config.log, FEDGE_LOG_ERROR, "model-mended",
                  fedge_log_str("file", model->file.path), fedge_log_str("sha256", model->hash),
                  fedge_log_str("why", "it could not be read as it was written"),
                  fedge_log_str("then", "it is served from memory; look at the disk"));
        return FEDGE_OK;
    }
    return fedge_error_prefix(err, status,
                              "%s is damaged, and is made anew when the program is started again",
                              model->file.path);
}

static bool is_idle(const fedge_engine *engine)
{
    const fedge_rounds_state state = fedge_rounds_get_state(engine->rounds);
    return state != FEDGE_ROUNDS_OPENING && state != FEDGE_ROUNDS_CLOSING;
}

void fedge_engine_mend_models(fedge_engine *engine)
{
    fedge_error err;
    fedge_status status = FEDGE_OK;
    if (!is_idle(engine))
        return;
    if (fedge_blob_is_damaged(engine->model))
        status = mend(engine, engine->model, 0, &err);
    for (uint32_t i = 0; i < engine->num_old_models && status == FEDGE_OK; i++) {
        const fedge_engine_old_model *old = &engine->old_models[i];
        if (fedge_blob_is_damaged(old->model))
            status = mend(engine, old->model, old->base, &err);
    }
    if (status != FEDGE_OK)
        fedge_engine_fail(engine, &err);
}

fedge_status fedge_engine_read_model(fedge_engine *engine, uint64_t offset, void *out, size_t size,
                                     fedge_error *err)
{
    fedge_status status = fedge_blob_read(engine->model, offset, out, size, err);
    if (status == FEDGE_OK)
        return FEDGE_OK;
    status = mend(engine, engine->model, 0, err);
    return status == FEDGE_OK ? fedge_blob_read(engine->model, offset, out, size, err) : status;
}
