#include "client/client_state.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/data/formats/safetensors.h"

/* A stored value: u64 task id, little-endian, then floats. */
static const char *const KEYS[2][2] = {{"fedge-control", "fedge-control-next"},
                                       {"fedge-residual", "fedge-residual-next"}};
#define HEADER 8
#define NO_MEMORY "no memory for what is kept from round to round"

static const char *key_of(const fedge_plan *plan, unsigned index)
{
    return KEYS[fedge_plan_retains_residual(plan)][index];
}

/* *bytes: the value, malloc'ed; NULL if there is none of this size or it is damaged. */
static fedge_status get(const fedge_client_state *state, const char *key, size_t size,
                        uint8_t **bytes, fedge_error *err)
{
    size_t stored_size = 0;
    const fedge_status status =
        fedge_store_get(state->store, state->run_id, key, bytes, &stored_size, err);
    if (status == FEDGE_CORRUPT)
        fedge_log_failure(state->log, FEDGE_LOG_WARN, "store", err);
    if (status == FEDGE_OK && stored_size != size) {
        free(*bytes);
        *bytes = NULL;
    }
    return status == FEDGE_NOT_FOUND || status == FEDGE_CORRUPT ? FEDGE_OK : status;
}

static fedge_status load(fedge_client_state *state, fedge_hooks_state *hooks,
                         uint64_t last_accepted, fedge_error *err)
{
    const size_t count = hooks->num_client_state, size = HEADER + count * sizeof(float);
    memset(hooks->client_state, 0, count * sizeof(float));
    state->lost = last_accepted != 0;
    /* One of the two may belong to an update that the server did not accept. */
    for (unsigned i = 0; i < 2 && state->lost; i++) {
        uint8_t *bytes = NULL;
        FEDGE_TRY(get(state, key_of(hooks->plan, i), size, &bytes, err));
        if (bytes && fedge_get_u64(bytes) == last_accepted) {
            fedge_get_f32s(bytes + HEADER, hooks->client_state, count);
            state->lost = false;
            state->next = 1 - i;
        }
        free(bytes);
    }
    if (state->lost) {
        FEDGE_LOG(state->log, FEDGE_LOG_WARN, "kept-lost", fedge_log_str("run", state->run_id),
                  fedge_log_str("keeps", fedge_plan_client_state_owner(hooks->plan)));
    }
    return FEDGE_OK;
}

static fedge_status read_broadcast(fedge_hooks_state *hooks, const uint8_t *file, size_t size,
                                   fedge_error *err)
{
    const fedge_schema *schema = &hooks->plan->sent.sections[0].schema;
    const size_t each = hooks->broadcast ? size / hooks->num_broadcast : 0;
    for (uint32_t i = 0; hooks->broadcast && i < hooks->num_broadcast; i++) {
        const fedge_status status = fedge_safetensors_read(
            file + i * each, each, schema, hooks->broadcast + i * hooks->num_trained, err);
        if (status != FEDGE_OK)
            return fedge_error_prefix(err, status, "the task's control file");
    }
    return FEDGE_OK;
}

fedge_status fedge_client_state_begin(fedge_client_state *state, fedge_hooks_state *hooks,
                                      const fedge_task *task, const uint8_t *file, size_t size,
                                      fedge_error *err)
{
    /* An evaluation leaves the state alone, and its task names no update, unless the state is a
     * part of the model. */
    const bool keeps = fedge_plan_has_client_state(hooks->plan) &&
                       (task->kind == FEDGE_TASK_TRAIN || fedge_plan_is_personal(hooks->plan));
    state->lost = false;
    state->next = 0;
    if (keeps && !task->has_last_accepted) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the task does not say which update counted last, which %s needs: "
                          "update the aggregator, it is older than this client",
                          fedge_plan_client_state_owner(hooks->plan));
    }
    FEDGE_TRY(read_broadcast(hooks, file, size, err));
    if (keeps)
        FEDGE_TRY(load(state, hooks, task->last_accepted, err));
    fedge_hooks_begin(hooks);
    return FEDGE_OK;
}

/* Stores the update's decoded values as int32_t, 0 where none is sent. */
static fedge_status take_decoded(void *user, size_t first, const uint32_t *indices, size_t n,
                                 const int32_t *v, fedge_error *err)
{
    int32_t *to = (int32_t *)user + first;
    (void)err;
    for (size_t i = 0; i < n; i++)
        to[indices ? indices[i] : i] = v[i];
    return FEDGE_OK;
}

fedge_status fedge_client_state_encode(fedge_hooks_state *hooks, const fedge_update *update,
                                       fedge_upload *upload, uint8_t **bytes, fedge_error *err)
{
    const fedge_plan *plan = update->plan;
    fedge_update watched = *update;
    int32_t *decoded = NULL;
    *bytes = NULL;
    if (fedge_plan_moves_client_state(plan)) { /* the encoder updates a residual */
        decoded = calloc(plan->sent.schema.num_elements, sizeof(*decoded));
        if (!decoded)
            return fedge_fail(err, FEDGE_NO_MEMORY, NO_MEMORY);
        watched.give = take_decoded;
        watched.user = decoded;
    }
    const fedge_status status = fedge_update_encode(&watched, upload, bytes, err);
    if (status == FEDGE_OK && decoded)
        fedge_hooks_move(plan, update->bounds_log2, decoded, hooks->client_state);
    free(decoded);
    return status;
}

fedge_status fedge_client_state_store(const fedge_client_state *state,
                                      const fedge_hooks_state *hooks, const fedge_upload *upload,
                                      fedge_error *err)
{
    const size_t size = HEADER + hooks->num_client_state * sizeof(float);
    if (!fedge_plan_has_client_state(hooks->plan))
        return FEDGE_OK;
    uint8_t *value = malloc(size);
    if (!value)
        return fedge_fail(err, FEDGE_NO_MEMORY, NO_MEMORY);
    fedge_put_u64(value, upload->task_id);
    fedge_put_f32s(value + HEADER, hooks->client_state, hooks->num_client_state);
    /* The state of the last accepted update stays at the other key in any case. */
    const fedge_status status = fedge_store_put(state->store, upload->run_id,
                                                key_of(hooks->plan, state->next), value, size, err);
    free(value);
    return status;
}
