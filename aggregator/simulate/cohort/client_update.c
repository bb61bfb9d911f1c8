#include "aggregator/simulate/cohort/client_update.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/cohort/memory.h"
#include "edge/core/os.h"
#include "edge/plan/update.h"

/* Values of a copy that holds the trained model, then the update to send. */
static size_t num_copied(const fedge_plan *plan)
{
    const size_t model = plan->schema.num_elements, sent = plan->sent.schema.num_elements;
    return model > sent ? model : sent;
}

/* Hooks may change the values to send, and a residual must not be changed by an update that fails,
 * so all values are checked first. */
static bool hooks_need_copy(const fedge_plan *plan)
{
    return plan->hooks || fedge_plan_makes_residual(plan);
}

/* Is the update needed in fixed point, for states of clients or for a strategy that collects? */
static bool wants_fixed(const fedge_job *job)
{
    const fedge_strategy_ops *strategy = NULL;
    return fedge_plan_moves_client_state(&job->plan) ||
           (fedge_strategy_of(job, &strategy, NULL) == FEDGE_OK && strategy->collects);
}

uint64_t fedge_client_update_size(const fedge_job *job, bool needs_copy)
{
    const fedge_plan *plan = &job->plan;
    uint64_t bytes = (uint64_t)plan->sent.schema.num_elements * sizeof(int64_t);
    bytes += fedge_hooks_state_size(plan);
    bytes += needs_copy || hooks_need_copy(plan) ? num_copied(plan) * sizeof(float) : 0;
    bytes += wants_fixed(job) ? plan->sent.schema.num_elements * sizeof(int32_t) : 0;
    return bytes + (plan->update.deflate ? 2 * (uint64_t)fedge_update_max_size(plan) : 0);
}

fedge_status fedge_client_update_init(fedge_client_update *update,
                                      const fedge_sim_backend_config *config, uint32_t lane,
                                      bool needs_copy, fedge_error *err)
{
    const fedge_plan *plan = &config->job->plan;
    const bool deflated = plan->update.deflate, fixed = wants_fixed(config->job);
    const size_t sent = plan->sent.schema.num_elements;
    uint64_t *total = &update->total;
    fedge_status status = FEDGE_OK;
    *update = (fedge_client_update){.config = config, .lane = lane};
    needs_copy = needs_copy || hooks_need_copy(plan);
    if (needs_copy)
        update->values = fedge_memory_allocate(num_copied(plan) * sizeof(*update->values), total);
    if (fixed)
        update->v = fedge_memory_allocate(sent * sizeof(*update->v), total);
    if (deflated) {
        update->bytes = fedge_memory_allocate(fedge_update_max_size(plan), total);
        update->packed = fedge_memory_allocate(fedge_update_max_size(plan), total);
        status = fedge_deflater_new(&update->deflater, err);
    }
    if (status != FEDGE_OK || (needs_copy && !update->values) || (fixed && !update->v) ||
        (deflated && (!update->bytes || !update->packed))) {
        return fedge_fail(err, FEDGE_NO_MEMORY,
                          "no memory for a client's update (%llu bytes): use fewer --threads or a "
                          "smaller model",
                          (unsigned long long)update->total);
    }
    *total += sent * sizeof(int64_t) + fedge_hooks_state_size(plan);
    return fedge_hooks_state_init(&update->hooks, plan, err);
}

void fedge_client_update_fini(fedge_client_update *update)
{
    free(update->values);
    free(update->v);
    free(update->bytes);
    free(update->packed);
    fedge_deflater_free(update->deflater);
    fedge_hooks_state_fini(&update->hooks);
    *update = (fedge_client_update){0};
}

fedge_status fedge_client_update_begin(fedge_client_update *update, uint32_t client,
                                       const float **correction, fedge_error *err)
{
    const fedge_global_model *global = update->config->global;
    fedge_hooks_state *hooks = &update->hooks;
    if (hooks->broadcast) {
        memcpy(hooks->broadcast, global->strategy->broadcast(global->strategy_state),
               hooks->num_broadcast * hooks->num_trained * sizeof(float));
    }
    if (fedge_plan_has_client_state(&update->config->job->plan)) {
        FEDGE_TRY(
            fedge_client_states_get(update->config->states, client, hooks->client_state, err));
    }
    if (update->values) {
        memcpy(update->values, global->values,
               update->config->job->plan.schema.num_elements * sizeof(float));
        if (fedge_plan_replaces(&update->config->job->plan))
            fedge_personal_put(&update->config->job->plan, hooks->client_state, update->values);
    }
    update->start = global->values;
    fedge_hooks_begin(hooks);
    *correction = hooks->correction;
    return FEDGE_OK;
}

/* Replaces the copy of the trained values by the changes to send. */
static fedge_status make_changes(fedge_client_update *self, fedge_sim_backend_task *task,
                                 double rate, fedge_error *err)
{
    const fedge_plan *plan = &self->config->job->plan;
    if (fedge_plan_replaces(plan))
        fedge_personal_take(plan, self->values, self->hooks.client_state);
    fedge_sections_changes(&plan->sent, self->start, self->values);
    if (fedge_plan_measures(plan))
        task->facts.squared_norm = fedge_squared_norm(plan, self->values);
    return plan->hooks
               ? fedge_hooks_end(&self->hooks, task->result.num_steps, rate, self->values, err)
               : FEDGE_OK;
}

fedge_status fedge_client_update_add(fedge_client_update *update, fedge_sim_backend_task *task,
                                     uint32_t round, const int8_t *bounds_log2, double rate,
                                     float *parameters, float *buffers, fedge_error *err)
{
    const fedge_plan *plan = &update->config->job->plan;
    const fedge_update made_of = {
        .plan = plan,
        .bounds_log2 = bounds_log2,
        .changes = update->values,
        .start = update->start,
        .parameters = parameters,
        .buffers = buffers,
        .residual = fedge_plan_makes_residual(plan) ? update->hooks.client_state : NULL,
        .round = round,
        .deflater = update->deflater,
        .bytes = update->bytes,
        .packed = update->packed};
    task->facts.num_examples = task->result.num_examples;
    fedge_update_made made;
    if (update->values)
        FEDGE_TRY(make_changes(update, task, rate, err));
    FEDGE_TRY(fedge_accumulate_update(&made_of, &update->config->global->accumulator, update->lane,
                                      fedge_update_weight(update->config->global, &task->facts),
                                      update->v, &made, err));
    if (update->config->global->strategy->collects) {
        FEDGE_TRY(fedge_stored_updates_put(&update->config->global->stored, task->update_index,
                                           update->v, err));
    }
    task->bytes_up = made.size;
    task->clamped = made.clamped;
    if (fedge_plan_moves_client_state(plan))
        fedge_hooks_move(plan, bounds_log2, update->v, update->hooks.client_state);
    return fedge_plan_has_client_state(plan)
               ? fedge_client_states_put(update->config->states, task->client,
                                         update->hooks.client_state, err)
               : FEDGE_OK;
}

/* ---- encoding and accumulating --------------------------------------------------------------- */

#define WINDOW 1024u /* sums that are added at once around sparse values */

/* FEDGE_NOT_FINITE for a NaN; differences of finite numbers are never NaN. */
static fedge_status check_changes(const fedge_update *update, fedge_error *err)
{
    const fedge_schema *schema = &update->plan->sent.schema;
    for (uint32_t t = 0; update->changes && t < schema->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &schema->tensors[t];
        for (size_t i = 0; i < tensor->count; i++) {
            if (isnan(update->changes[tensor->offset + i])) {
                return fedge_fail(err, FEDGE_NOT_FINITE,
                                  "value %zu of tensor \"%s\" is NaN; training has diverged", i,
                                  tensor->name);
            }
        }
    }
    return FEDGE_OK;
}

/* The destination of an update's chunks. */
typedef struct destination {
    fedge_accumulator *accumulator;
    uint32_t lane, weight;
    int32_t *v;
} destination;

/* Adds the values at [indices] with zeros between them, in windows that have at least one. */
static fedge_status add_sparse(const destination *to, size_t first, const uint32_t *indices,
                               size_t n, const int32_t *v, fedge_error *err)
{
    int32_t window[WINDOW];
    for (size_t i = 0; i < n;) {
        const uint32_t begin = indices[i];
        uint32_t end = begin;
        memset(window, 0, sizeof(window));
        for (; i < n && indices[i] - begin < WINDOW; i++) {
            window[indices[i] - begin] = v[i];
            end = indices[i] + 1;
        }
        FEDGE_TRY(fedge_accumulator_add_values(to->accumulator, to->lane, window, first + begin,
                                               end - begin, to->weight, err));
    }
    return FEDGE_OK;
}

static fedge_status add(void *user, size_t first, const uint32_t *indices, size_t n,
                        const int32_t *v, fedge_error *err)
{
    const destination *to = user;
    if (indices) {
        for (size_t i = 0; to->v && i < n; i++)
            to->v[first + indices[i]] = v[i];
        return add_sparse(to, first, indices, n, v, err);
    }
    if (to->v)
        memcpy(to->v + first, v, n * sizeof(*v));
    return fedge_accumulator_add_values(to->accumulator, to->lane, v, first, n, to->weight, err);
}

fedge_status fedge_accumulate_update(const fedge_update *update, fedge_accumulator *accumulator,
                                     uint32_t lane, uint32_t weight, int32_t *v,
                                     fedge_update_made *made, fedge_error *err)
{
    destination to = {.accumulator = accumulator, .lane = lane, .weight = weight, .v = v};
    fedge_update chunks = *update;
    chunks.give = add;
    chunks.user = &to;
    FEDGE_TRY(check_changes(update, err));
    if (v) { /* values that are not sent are 0 */
        memset(v, 0, update->plan->sent.schema.num_elements * sizeof(*v));
    }
    FEDGE_TRY(fedge_accumulator_begin(accumulator, weight, err));
    const fedge_status status = fedge_update_run(&chunks, made, err);
    assert(status != FEDGE_NOT_FINITE); /* it would leave sums half added */
    return status;
}
