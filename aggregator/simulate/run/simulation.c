#include "aggregator/simulate/run/simulation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"
#include "edge/plan/client_hooks.h"

/* ---- phases ---------------------------------------------------------------------------------- */

static fedge_status end_phase(fedge_simulation *self, fedge_error *err)
{
    FEDGE_TRY(fedge_simulation_end_time(self, err));
    fedge_rounds_closed(self->rounds, fedge_simulation_now_ms(self));
    return FEDGE_OK;
}

static fedge_status drop_phase(fedge_simulation *self, const fedge_rounds_action *action,
                               fedge_error *err)
{
    const bool train = action->kind == FEDGE_TASK_TRAIN; /* an evaluation is not tried again */
    const fedge_virtual_phase phase = fedge_simulation_virtual_phase(self);
    memcpy(self->asked_failed, phase.asked, train ? sizeof(phase.asked) : 0);
    /* As on devices, a state changes only with an update that the server has counted. */
    fedge_client_states_roll_back(&self->states);
    fedge_sim_ranks_drop(&self->ranks);
    FEDGE_TRY(fedge_global_model_reset(&self->global, err));
    self->failures += train;
    if (self->failures >= FEDGE_SIMULATE_MAX_FAILURES) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "round %" PRIu32 ": too few of %" PRIu32
                          " clients reported, %d attempts in a row; %.180s",
                          action->round, self->num_sent, FEDGE_SIMULATE_MAX_FAILURES, self->why);
    }
    return end_phase(self, err);
}

/* ---- the open phase -------------------------------------------------------------------------- */

static void open_phase(fedge_simulation *self)
{
    self->num_sent = self->num_done = self->num_reported = 0;
    /* A retry adds to those of the attempts before, whose clients have the model already. */
    self->bytes_down = self->failures == 0 ? 0 : self->bytes_down;
    fedge_simulation_begin_round(self);
    self->global.draw = fedge_rounds_draw(self->rounds);
    (void)fedge_rounds_cohort(self->rounds, &self->global.cohort);
    fedge_virtual_clock_open(&self->virtual_clock, self->config.job->rounds.round_deadline_ms);
    self->first_opened_us =
        self->failures == 0 ? self->virtual_clock.now_us : self->first_opened_us;
    fedge_rounds_opened(self->rounds, fedge_simulation_now_ms(self));
}

/* The order of results that arrive at the same time, or of all without virtual time. It is random,
 * or over-selection would favour some clients. */
static uint32_t draw_tie_break(const fedge_simulation *self, const fedge_rounds_action *action)
{
    fedge_rng rng = fedge_rng_stream(self->plan->seed, FEDGE_PURPOSE_TIE_BREAK, action->round,
                                     action->client_index,
                                     fedge_client_profiles_stream(action->kind, action->attempt));
    return fedge_rng_u32(&rng);
}

/* Counts what a client fetches for a task: the model, or a delta to the one it has. */
static void download(fedge_simulation *self, uint32_t client)
{
    const uint32_t had = self->model_rounds[client];
    const uint32_t age = had > 0 ? self->rounds_closed + 1 - had : UINT32_MAX;
    const uint64_t delta = fedge_downlink_size(&self->global.downlink, age);
    self->download = age == 0                                 ? 0
                     : delta > 0 && delta < self->model_bytes ? delta
                                                              : self->model_bytes;
    self->model_rounds[client] = self->rounds_closed + 1;
    self->bytes_down += self->download;
}

static fedge_status send_task(fedge_simulation *self, const fedge_rounds_action *action,
                              fedge_error *err)
{
    download(self, action->client_index);
    const bool may_resume =
        self->config.profiles && self->config.profiles->availability && !action->fresh;
    /* A client that left and is back continues the same task. */
    for (uint32_t i = 0; may_resume && i < self->num_sent; i++) {
        if (self->sent[i].task_id == action->task_id)
            return fedge_simulation_begin_task(self, action, i, err);
    }
    /* Replaced clients make it more than a cohort. */
    if (self->num_sent == self->capacity)
        FEDGE_TRY(fedge_simulation_reserve(self, self->capacity * 2 + 64, err));
    self->sent[self->num_sent++] = (sent_task){
        .task_id = action->task_id,
        .slot = action->slot,
        .tie_break = draw_tie_break(self, action),
        .size = fedge_client_data_train(self->config.client_data, action->client_index).count,
        .work = {.work = action->kind == FEDGE_TASK_TRAIN ? FEDGE_SIM_BACKEND_TRAIN
                                                          : FEDGE_SIM_BACKEND_EVALUATE,
                 .client = action->client_index,
                 .personal =
                     fedge_plan_is_personal(self->plan) || fedge_plan_is_clustered(self->plan)}};
    return self->config.profiles
               ? fedge_simulation_begin_task(self, action, self->num_sent - 1, err)
               : FEDGE_OK;
}

static int by_tie_break(const void *a, const void *b)
{
    const sent_task *x = a, *y = b;
    return x->tie_break != y->tie_break ? (x->tie_break < y->tie_break ? -1 : 1)
                                        : (x->slot > y->slot) - (x->slot < y->slot);
}

/* Without client profiles: does the work of as many sent tasks as the phase still needs, and
 * reports it. With over-selection the others would come too late, so their work is not done. */
static fedge_status work(fedge_simulation *self, fedge_error *err)
{
    const uint32_t wanted = fedge_rounds_wanted(self->rounds) - self->num_reported;
    const uint32_t left = self->num_sent - self->num_done;
    const uint32_t count = left < wanted ? left : wanted;
    if (count == 0) { /* no task is left: time passes until the deadline */
        self->now_ms = fedge_rounds_deadline_ms(self->rounds);
        fedge_rounds_tick(self->rounds, self->now_ms);
        return FEDGE_OK;
    }
    if (count < left) /* else all are taken, in any order */ {
        qsort(self->sent + self->num_done, left, sizeof(*self->sent), by_tie_break);
    }
    for (uint32_t i = 0; i < count; i++)
        fedge_simulation_plan_work(self, i, self->num_done + i);
    self->num_done += count;
    FEDGE_TRY(fedge_simulation_do_work(self, count, err));
    for (uint32_t i = 0; i < count; i++)
        FEDGE_TRY(fedge_simulation_report(self, &self->sent[self->order[i].task], err));
    return FEDGE_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static fedge_status carry_out(fedge_simulation *self, const fedge_rounds_action *action,
                              bool *finished, fedge_error *err)
{
    switch (action->type) {
    case FEDGE_ROUNDS_OPEN:
        open_phase(self);
        return FEDGE_OK;
    case FEDGE_ROUNDS_SEND:
        self->next_task_id =
            action->task_id >= self->next_task_id ? action->task_id + 1 : self->next_task_id;
        return send_task(self, action, err);
    case FEDGE_ROUNDS_CLOSE:
        FEDGE_TRY(fedge_simulation_conclude(self, action, err));
        return end_phase(self, err);
    case FEDGE_ROUNDS_FAIL:
        return drop_phase(self, action, err);
    case FEDGE_ROUNDS_FINISH:
        *finished = true;
        return FEDGE_OK;
    case FEDGE_ROUNDS_CANCEL:
        return FEDGE_OK; /* its client has not begun */
    }
    return fedge_fail(err, FEDGE_INTERNAL, "unknown action %d", (int)action->type);
}

/* Carries out the next action of the round machine, or passes time until there is one. */
static fedge_status advance(fedge_simulation *self, bool *finished, fedge_error *err)
{
    fedge_rounds_action action;
    char text[128];
    if (fedge_rounds_next(self->rounds, &action))
        return carry_out(self, &action, finished, err);
    if (self->config.profiles)
        return fedge_simulation_pass_time(self, err);
    if (fedge_rounds_get_state(self->rounds) == FEDGE_ROUNDS_RUNNING)
        return work(self, err);
    fedge_rounds_describe(self->rounds, text, sizeof(text));
    return fedge_fail(err, FEDGE_INTERNAL, "the simulation cannot go on: %s", text);
}

static fedge_status run_rounds(fedge_simulation *self, fedge_error *err)
{
    bool finished = false;
    if (fedge_simulation_is_async(self))
        return fedge_simulation_run_async(self, err);
    FEDGE_TRY(fedge_simulation_join_all(self, err));
    while (!finished)
        FEDGE_TRY(advance(self, &finished, err));
    return FEDGE_OK;
}

fedge_status fedge_simulation_run(fedge_simulation *self, fedge_error *err)
{
    const fedge_status status = run_rounds(self, err);
    if (status != FEDGE_OK) {
        fedge_client_states_roll_back(&self->states);
        fedge_trainer_values_roll_back(&self->values);
        fedge_sim_ranks_drop(&self->ranks);
    }
    /* Frees most of the memory, which the checkpoint of the closed rounds needs. */
    if (status == FEDGE_NO_MEMORY || status == FEDGE_GPU_LOST)
        fedge_sim_backend_close(&self->backend);
    return status;
}
