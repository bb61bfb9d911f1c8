/* Fetches plans and models, whole, as deltas or by parts, and removes blobs from the store. */
#include <string.h>

#include "client/client_private.h"
#include "edge/core/os.h"
#include "edge/wire/protocol.h"

/* The first of the task's deltas whose base is completely stored, or num_deltas. */
static fedge_status find_base(fedge_client *c, const fedge_task *task, uint32_t *index,
                              fedge_error *err)
{
    for (*index = 0; *index < task->num_deltas; ++*index) {
        const fedge_delta_ref *delta = &task->deltas[*index];
        uint64_t held = 0;
        if (delta->size < task->model_size)
            FEDGE_TRY(fedge_store_blob_held(c->store, delta->base, task->model_size, &held, err));
        if (held == task->model_size)
            break;
    }
    return FEDGE_OK;
}

/* Removes all blobs but the plan, the present model and the base of its delta. */
static fedge_status keep_model(fedge_client *c, const char *model, const char *base,
                               fedge_error *err)
{
    const char *const hashes[] = {c->plan_hash, model, base};
    return fedge_store_blobs_keep(c->store, hashes, sizeof(hashes) / sizeof(hashes[0]), err);
}

/* Tasks remove old blobs, but a server may name one plan after the other and give no task. */
static fedge_status make_room_for_plan(fedge_client *c, const char *plan, bool begun,
                                       fedge_error *err)
{
    unsigned count;
    FEDGE_TRY(fedge_store_blobs_count(c->store, &count, err));
    return count + !begun <= FEDGE_CLIENT_MAX_BLOBS
               ? FEDGE_OK
               : fedge_store_blobs_keep(c->store, &plan, 1, err);
}

static void close_parts(fedge_client *c)
{
    fedge_parts_free(c->parts);
    c->parts = NULL;
}

static void tell_held(fedge_client *c, const char *hash, uint64_t held, uint64_t end)
{
    if (FEDGE_TAKES_PARTS)
        fedge_session_blob_run(c->session, fedge_os_monotonic_ms(), hash, held, end);
    else
        fedge_session_blob_at(c->session, fedge_os_monotonic_ms(), hash, held);
}

/* The model is complete: removes the blobs that its parts came from. */
static void end_parts(fedge_client *c, const char *model)
{
    fedge_error err;
    if (c->parts && keep_model(c, model, "", &err))
        fedge_log_failure(c->config.log, FEDGE_LOG_WARN, "parts", &err);
    close_parts(c);
}

static fedge_status fetch_parts(fedge_client *c, const fedge_task *task, uint64_t *held,
                                uint64_t *end, fedge_error *err)
{
    if (!c->parts)
        FEDGE_TRY(fedge_parts_open(c->store, task, c->plan_hash, &c->parts, err));
    return fedge_parts_go_on(c->parts, held, end, err);
}

/* Continues fetching [task]'s model by parts; *held bytes are stored. False: fetch the remainder
 * whole. */
static bool go_on_by_parts(fedge_client *c, const fedge_task *task, uint64_t *held)
{
    uint64_t end = 0;
    fedge_error err;
    if (fetch_parts(c, task, held, &end, &err)) {
        fedge_log_failure(c->config.log, FEDGE_LOG_WARN, "parts", &err);
        close_parts(c);
        return false;
    }
    if (*held == task->model_size)
        end_parts(c, task->model);
    tell_held(c, task->model, *held, end);
    return true;
}

/* Fetches the model of [task] by parts if possible. */
static bool is_by_parts(fedge_client *c, const fedge_task *task, uint64_t *held)
{
    if (!FEDGE_TAKES_PARTS || task->delta || task->parts_size == 0 || *held == task->model_size)
        return false;
    if (task->list == FEDGE_LIST_HELD)
        return go_on_by_parts(c, task, held);
    fedge_session_wants_list(c->session, fedge_os_monotonic_ms(), task->model);
    return true;
}

/* Logs once if the run's first model, of which [held] bytes are stored, is not that of --seed-blob,
 * which then saves no download. Models of later rounds differ in any case. */
static void compare_seed(fedge_client *c, const fedge_task *task, const char *hash, uint64_t held)
{
#ifndef FEDGE_SMALL
    uint64_t size;
    const char *seed = fedge_store_seed_hash(c->store, &size);
    if (c->seed_compared || !seed[0] || !task || task->round != 1 || strcmp(hash, task->model) != 0)
        return;
    c->seed_compared = true;
    if (held == task->model_size)
        return;
    FEDGE_LOG(c->config.log, FEDGE_LOG_WARN, "seed-blob",
              fedge_log_str("file", c->config.seed_blob), fedge_log_str("has", seed),
              fedge_log_str("wanted", hash), fedge_log_int("bytes", (int64_t)task->model_size),
              fedge_log_str("text", "the run's first model is not that of --seed-blob, so it is "
                                    "fetched, but for parts that the file has"));
#else
    (void)c, (void)task, (void)hash, (void)held;
#endif
}

fedge_status fedge_client_look_up(fedge_client *c, const fedge_session_action *action,
                                  fedge_error *err)
{
    const fedge_task *task = action->task;
    const bool list = FEDGE_TAKES_PARTS && task && task->list == FEDGE_LIST_FETCHED;
    uint64_t held;
    if (FEDGE_TAKES_PARTS && task && task->list == FEDGE_LIST_UNUSED)
        close_parts(c); /* they belong to an earlier task */
    FEDGE_TRY(fedge_store_blob_held(c->store, action->hash, action->size, &held, err));
    compare_seed(c, task, action->hash, held);
    if (task && !task->delta && !list && held == 0) {
        uint32_t index;
        FEDGE_TRY(find_base(c, task, &index, err));
        if (index < task->num_deltas) {
            fedge_session_base_held(c->session, fedge_os_monotonic_ms(), action->hash, index);
            return FEDGE_OK;
        }
    }
    if (task && !list) {
        if (is_by_parts(c, task, &held))
            return FEDGE_OK;
        FEDGE_TRY(keep_model(c, action->hash, task->delta ? task->deltas[task->delta - 1].base : "",
                             err));
    }
    if (!task && held < action->size)
        FEDGE_TRY(make_room_for_plan(c, action->hash, held > 0, err));
    tell_held(c, action->hash, held, 0);
    return FEDGE_OK;
}

fedge_status fedge_client_store_chunk(fedge_client *c, const fedge_session_action *action,
                                      fedge_error *err)
{
    const uint64_t held = action->offset + action->data_size;
    FEDGE_TRY(fedge_store_blob_append(c->store, action->hash, action->offset, action->data,
                                      action->data_size, action->size, err));
    if (FEDGE_TAKES_PARTS && held == action->size && strcmp(action->hash, c->plan_hash) != 0)
        end_parts(c, action->hash);
    fedge_session_blob_at(c->session, fedge_os_monotonic_ms(), action->hash, held);
    return FEDGE_OK;
}
