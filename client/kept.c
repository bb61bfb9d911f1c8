#include "client/kept.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/data/formats/safetensors.h"

/* In the store, two places: u64 task id, little-endian, and the values. */
static const char *const KEYS[2][2] = {{"fedge-control", "fedge-control-next"},
                                       {"fedge-residual", "fedge-residual-next"}};
#define HEADER 8
#define NO_MEMORY "no memory for what is kept from round to round"

static const char *key_of(const fedge_plan *plan, unsigned place)
{
    return KEYS[fedge_plan_keeps_residual(plan)][place];
}

/* A value of the store, malloc'ed; NULL where there is none of this size, or a damaged one. */
static fedge_status get(fedge_store *store, const char *run_id, const char *key, size_t size,
                        const fedge_log *log, uint8_t **bytes, fedge_error *err)
{
    size_t found = 0;
    fedge_status status = fedge_store_get(store, run_id, key, bytes, &found, err);
    if (status == FEDGE_CORRUPT)
        fedge_log_failure(log, FEDGE_LOG_WARN, "store", err);
    if (!status && found != size) {
        free(*bytes);
        *bytes = NULL;
    }
    return status == FEDGE_NOT_FOUND || status == FEDGE_CORRUPT ? FEDGE_OK : status;
}

static fedge_status load_own(fedge_hooks_state *state, uint64_t last_accepted, fedge_store *store,
                             const char *run_id, const fedge_log *log, fedge_kept *kept,
                             fedge_error *err)
{
    const size_t count = state->num_kept, size = HEADER + count * sizeof(float);
    fedge_status status = FEDGE_OK;
    memset(state->own, 0, count * sizeof(float));
    *kept = (fedge_kept){.lost = last_accepted != 0};
    /* One of the two places may be of an update that the server never counted; the task id tells.
     */
    for (unsigned i = 0; i < 2 && kept->lost && !status; i++) {
        uint8_t *bytes = NULL;
        status = get(store, run_id, key_of(state->plan, i), size, log, &bytes, err);
        if (!status && bytes && fedge_get_u64(bytes) == last_accepted) {
            fedge_get_f32s(bytes + HEADER, state->own, count);
            *kept = (fedge_kept){.next = 1 - i};
        }
        free(bytes);
    }
    if (!status && kept->lost) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "kept-lost", fedge_log_str("run", run_id),
                  fedge_log_str("keeps", fedge_plan_keeper_name(state->plan)));
    }
    return status;
}

/* What is told with the model. */
static fedge_status read_told(fedge_hooks_state *state, const uint8_t *file, size_t size,
                              fedge_error *err)
{
    const fedge_plan *plan = state->plan;
    if (!state->told)
        return FEDGE_OK;
    fedge_status status = FEDGE_OK;
    const size_t each = size / state->num_told;
    for (uint32_t i = 0; i < state->num_told && !status; i++) {
        status = fedge_safetensors_read(file + i * each, each, &plan->sent.sections[0].schema,
                                        state->told + i * state->num_trained, err);
    }
    return status ? fedge_error_prefix(err, status, "the task's control file") : status;
}

fedge_status fedge_kept_begin(fedge_hooks_state *state, const fedge_task *task, const uint8_t *file,
                              size_t size, fedge_store *store, const char *run_id,
                              const fedge_log *log, fedge_kept *kept, fedge_error *err)
{
    *kept = (fedge_kept){0};
    const bool keeps = fedge_plan_keeps(state->plan);
    if (keeps && !task->has_last_accepted) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the task does not say which update counted last, which %s needs: "
                          "update the aggregator, it is older than this client",
                          fedge_plan_keeper_name(state->plan));
    }
    fedge_status status = read_told(state, file, size, err);
    if (!status && keeps)
        status = load_own(state, task->last_accepted, store, run_id, log, kept, err);
    if (!status)
        fedge_hooks_begin(state);
    return status;
}

/* Values of the update as they will be decoded: int32_t (all that can travel), 0 at first. */
static fedge_status take_decoded(void *user, size_t first, const uint32_t *places, size_t n,
                                 const int32_t *v, fedge_error *err)
{
    int32_t *to = (int32_t *)user + first;
    (void)err;
    for (size_t i = 0; i < n; i++)
        to[places ? places[i] : i] = v[i];
    return FEDGE_OK;
}

fedge_status fedge_kept_encode(fedge_hooks_state *state, const fedge_update *update,
                               fedge_upload *upload, uint8_t **bytes, fedge_error *err)
{
    const fedge_plan *plan = update->plan;
    fedge_update watched = *update;
    int32_t *decoded = NULL;
    *bytes = NULL;
    if (fedge_plan_moves(plan)) { /* a residual moves as it is encoded */
        decoded = calloc(plan->sent.schema.num_elements, sizeof(*decoded));
        if (!decoded)
            return fedge_fail(err, FEDGE_NO_MEMORY, NO_MEMORY);
        watched.give = take_decoded;
        watched.user = decoded;
    }
    const fedge_status status = fedge_update_encode(&watched, upload, bytes, err);
    if (!status && decoded)
        fedge_hooks_move(plan, update->bounds_log2, decoded, state->own);
    free(decoded);
    return status;
}

fedge_status fedge_kept_store(const fedge_hooks_state *state, const fedge_kept *kept,
                              fedge_store *store, const fedge_upload *upload, fedge_error *err)
{
    const size_t size = HEADER + state->num_kept * sizeof(float);
    if (!fedge_plan_keeps(state->plan))
        return FEDGE_OK;
    uint8_t *value = malloc(size);
    if (!value)
        return fedge_fail(err, FEDGE_NO_MEMORY, NO_MEMORY);
    /* At the place that the update counted last does not have, so that one stays whatever comes of
     * this one. */
    fedge_put_u64(value, upload->task_id);
    fedge_put_f32s(value + HEADER, state->own, state->num_kept);
    fedge_status status =
        fedge_store_put(store, upload->run_id, key_of(state->plan, kept->next), value, size, err);
    free(value);
    return status;
}
