/* The work of tasks, and with client profiles the virtual time that it takes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"
#include "edge/plan/update.h"

/* ---- the work of tasks ----------------------------------------------------------------------- */

bool fedge_simulation_is_async(const fedge_simulation *self)
{
    return self->config.job->rounds.buffer_size > 0;
}

static uint32_t round_of(const fedge_simulation *self)
{
    return fedge_simulation_is_async(self) ? self->rounds_closed + 1
                                           : fedge_rounds_round(self->rounds);
}

uint64_t fedge_simulation_now_ms(const fedge_simulation *self)
{
    return self->config.profiles ? self->virtual_clock.now_us / 1000 : self->now_ms;
}

void fedge_simulation_note_failure(fedge_simulation *self, const fedge_sim_backend_task *work)
{
    (void)fedge_os_format(self->why, sizeof(self->why),
                          "the last to fail: client %" PRIu32 ": %.180s", work->client,
                          work->message);
}

bool fedge_simulation_is_cancelled(const fedge_simulation *self)
{
    return self->config.cancel && self->config.cancel(self->config.user);
}

static fedge_status check_cancelled(const fedge_simulation *self, fedge_error *err)
{
    return fedge_simulation_is_cancelled(self)
               ? fedge_fail(err, FEDGE_CANCELLED, "interrupted in round %" PRIu32, round_of(self))
               : FEDGE_OK;
}

/* The largest first, so that no thread begins a long task at the end. */
static int by_size(const void *a, const void *b)
{
    const batch_task *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1)
                              : (x->slot > y->slot) - (x->slot < y->slot);
}

void fedge_simulation_report_progress(void *user, uint32_t num_done)
{
    const fedge_simulation *self = user;
    if (self->config.on_progress && !self->testing) {
        self->config.on_progress(
            self->config.user, round_of(self), self->num_reported + num_done,
            fedge_simulation_is_async(self) ? self->num_sent : fedge_rounds_wanted(self->rounds));
    }
}

/* Fails for a reason of the machine (memory, disk, GPU, interruption), which the next client would
 * meet too, so that it does not count as a client's failure. */
static fedge_status check_machine(const fedge_simulation *self, uint32_t count, fedge_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        const fedge_status status = self->batch[i].status;
        if (status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE || status == FEDGE_IO ||
            status == FEDGE_GPU_LOST || status == FEDGE_CANCELLED) {
            return fedge_fail(err, status, "round %" PRIu32 ": client %" PRIu32 ": %s",
                              round_of(self), self->batch[i].client, self->batch[i].message);
        }
    }
    return FEDGE_OK;
}

/* Reserves memory for updates where the strategy collects them. */
static fedge_status reserve(fedge_simulation *self, uint32_t count, fedge_error *err)
{
    uint32_t first = 0;
    if (count == 0 || self->batch[0].work != FEDGE_SIM_BACKEND_TRAIN ||
        !self->global.strategy->collects)
        return FEDGE_OK;
    const fedge_status status =
        fedge_stored_updates_reserve(&self->global.stored, count, &first, err);
    for (uint32_t i = 0; i < count; i++)
        self->batch[i].update_index = first + i;
    return status;
}

fedge_status fedge_simulation_do_work(fedge_simulation *self, uint32_t count, fedge_error *err)
{
    qsort(self->order, count, sizeof(*self->order), by_size);
    for (uint32_t i = 0; i < count; i++) {
        self->batch[i] = self->sent[self->order[i].task].work;
        self->batch[i].task_id = self->sent[self->order[i].task].task_id;
        fedge_update_facts *facts = &self->batch[i].facts;
        facts->round = round_of(self);
        facts->client = self->batch[i].client;
        facts->cohort = self->global.cohort;
        facts->ratio = fedge_update_ratio(&self->global, facts->round, facts->client);
    }
    FEDGE_TRY(reserve(self, count, err));
    fedge_simulation_report_progress(self, 0);
    fedge_sim_backend_run(&self->backend, round_of(self), self->bounds_log2, self->batch, count);
    /* Evaluation is not interrupted, since its round has closed. */
    const bool train = count > 0 && self->batch[0].work == FEDGE_SIM_BACKEND_TRAIN;
    if (train)
        FEDGE_TRY(check_cancelled(self, err));
    FEDGE_TRY(check_machine(self, count, err));
    for (uint32_t i = 0; i < count; i++) {
        sent_task *task = &self->sent[self->order[i].task];
        task->work = self->batch[i];
        task->worked = true;
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_report(fedge_simulation *self, sent_task *task, fedge_error *err)
{
    task->reported = task->work.status == FEDGE_OK;
    self->num_reported += task->reported;
    if (task->reported)
        return fedge_rounds_report(self->rounds, task->task_id, err);
    fedge_simulation_note_failure(self, &task->work);
    return fedge_rounds_lose(self->rounds, task->task_id, err);
}

fedge_status fedge_simulation_reserve(fedge_simulation *self, uint32_t capacity, fedge_error *err)
{
    /* Each pointer is stored at once, since a later realloc may fail. */
    sent_task *sent = realloc(self->sent, capacity * sizeof(*sent));
    self->sent = sent ? sent : self->sent;
    fedge_sim_backend_task *batch = realloc(self->batch, capacity * sizeof(*batch));
    self->batch = batch ? batch : self->batch;
    batch_task *order = realloc(self->order, capacity * sizeof(*order));
    self->order = order ? order : self->order;
    if (!sent || !batch || !order)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " tasks", capacity);
    self->capacity = capacity;
    return FEDGE_OK;
}

void fedge_simulation_plan_work(fedge_simulation *self, uint32_t at, uint32_t task)
{
    self->order[at] = (batch_task){self->sent[task].size, self->sent[task].slot, task};
}

fedge_status fedge_simulation_evaluate(fedge_simulation *simulation, fedge_evaluation_set *sets,
                                       uint32_t num_sets, bool may_stop, fedge_error *err)
{
    simulation->testing = true;
    const fedge_status status =
        fedge_evaluate_sets(&simulation->backend, sets, num_sets, may_stop, err);
    simulation->testing = false;
    return status;
}

fedge_virtual_phase fedge_simulation_virtual_phase(const fedge_simulation *self)
{
    const fedge_client_profiles *profiles = self->config.profiles;
    const fedge_virtual_clock *virtual_clock = &self->virtual_clock;
    fedge_virtual_phase phase = {.present = profiles != NULL};
    if (!profiles)
        return phase;
    phase.time = (double)virtual_clock->now_us * 1e-6;
    phase.seconds = (double)(virtual_clock->now_us - self->first_opened_us) * 1e-6;
    memcpy(phase.asked, self->asked_failed, sizeof(phase.asked));
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const uint8_t quantile = profiles->quantile[self->sent[i].work.client];
        phase.asked[quantile]++;
        phase.reported[quantile] += self->sent[i].reported;
    }
    return phase;
}

/* ---- availability --------------------------------------------------------------------------- */

/* Schedules the client's next arrival or departure. */
static fedge_status watch(fedge_simulation *self, uint32_t client, bool *online, fedge_error *err)
{
    uint64_t until_us = 0;
    *online = fedge_availability_at(self->config.profiles->availability, client,
                                    self->virtual_clock.now_us, &until_us);
    return fedge_virtual_clock_change(&self->virtual_clock, client,
                                      *online ? FEDGE_EVENT_LEAVE : FEDGE_EVENT_JOIN, until_us,
                                      err);
}

static fedge_status change(fedge_simulation *self, const fedge_event *event, fedge_error *err)
{
    bool online;
    if (event->kind == FEDGE_EVENT_LEAVE) {
        fedge_rounds_leave(self->rounds, event->client);
    } else {
        FEDGE_TRY(
            fedge_rounds_join(self->rounds, event->client, fedge_simulation_now_ms(self), err));
    }
    return watch(self, event->client, &online, err);
}

fedge_status fedge_simulation_join_all(fedge_simulation *self, fedge_error *err)
{
    const uint32_t clients = self->config.client_data->num_clients;
    const bool always = !self->config.profiles || !self->config.profiles->availability;
    uint32_t *present = malloc(clients * sizeof(*present)), count = 0;
    if (!present)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " clients", clients);
    fedge_status status;
    self->waiting_us = self->virtual_clock.now_us;
    fedge_virtual_clock_close(&self->virtual_clock);
    for (uint32_t c = 0; c < clients; c++) {
        bool online = true;
        if (!always)
            FEDGE_TRY_OR(watch(self, c, &online, err), done);
        present[count] = c;
        count += online;
    }
    status =
        fedge_rounds_join_all(self->rounds, present, count, fedge_simulation_now_ms(self), err);
done:
    free(present);
    return status;
}

fedge_status fedge_simulation_end_time(fedge_simulation *self, fedge_error *err)
{
    fedge_virtual_clock *virtual_clock = &self->virtual_clock;
    fedge_virtual_clock_close(virtual_clock);
    self->waiting_us = virtual_clock->now_us;
    while (virtual_clock->changes.count > 0 &&
           virtual_clock->changes.items[0].time_us <= virtual_clock->now_us) {
        const fedge_event event = fedge_event_queue_pop(&virtual_clock->changes);
        FEDGE_TRY(change(self, &event, err));
    }
    return FEDGE_OK;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

double fedge_simulation_examples(const fedge_simulation *self, uint32_t client,
                                 fedge_task_kind kind)
{
    const fedge_client_data *data = self->config.client_data;
    const fedge_training_spec *training = &self->plan->training;
    const bool train = kind == FEDGE_TASK_TRAIN;
    if (self->config.trainers)
        return train ? (double)training->local_steps * training->batch_size : 0.0;
    const fedge_view view =
        train ? fedge_client_data_train(data, client) : fedge_client_data_held_out(data, client);
    return fedge_client_profiles_examples(training, kind, view.count);
}

/* The bytes and examples of a task. */
static fedge_client_profiles_work work_of(const fedge_simulation *self,
                                          const fedge_rounds_action *action)
{
    const bool train = action->kind == FEDGE_TASK_TRAIN;
    return (fedge_client_profiles_work){
        .bytes_down = self->download,
        .bytes_up = train ? fedge_update_max_size(self->plan) : 0,
        .examples = fedge_simulation_examples(self, action->client_index, action->kind)};
}

fedge_status fedge_simulation_begin_task(fedge_simulation *self, const fedge_rounds_action *action,
                                         uint32_t task, fedge_error *err)
{
    const fedge_client_profiles *profiles = self->config.profiles;
    const fedge_client_profiles_work work = work_of(self, action);
    uint64_t duration_us = fedge_client_profiles_task_us(profiles, action->client_index, &work);
    fedge_event_kind kind = FEDGE_EVENT_FINISH;
    double fraction = 1.0;
    if (fedge_client_profiles_fails(profiles, action->client_index, action->round, action->attempt,
                                    action->kind, &fraction)) {
        kind = FEDGE_EVENT_FAIL;
        duration_us = (uint64_t)((double)duration_us * fraction);
    }
    if (profiles->availability) {
        uint64_t until_us = 0;
        (void)fedge_availability_at(profiles->availability, action->client_index,
                                    self->virtual_clock.now_us, &until_us);
        if (until_us - self->virtual_clock.now_us < duration_us) {
            kind = FEDGE_EVENT_LEAVE;
            duration_us = until_us - self->virtual_clock.now_us;
        }
    }
    const fedge_event event = {.tie_break =
                                   kind == FEDGE_EVENT_LEAVE ? 0 : self->sent[task].tie_break,
                               .client = action->client_index,
                               .task = task,
                               .kind = kind};
    return fedge_virtual_clock_begin(&self->virtual_clock, event, duration_us, err);
}

static bool has_empty_slot(const fedge_simulation *self)
{
    uint32_t count = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(self->rounds, &count);
    for (uint32_t slot = 0; slot < count; slot++) {
        if (tasks[slot].state == FEDGE_TASK_LOST)
            return true;
    }
    return false;
}

/* Does the work that will surely be reported and is not done yet. */
static fedge_status work_ahead(fedge_simulation *self, fedge_error *err)
{
    const fedge_event *sure = NULL;
    uint32_t num_sure = 0, count = 0;
    FEDGE_TRY(fedge_virtual_clock_sure(&self->virtual_clock,
                                       fedge_rounds_wanted(self->rounds) - self->num_reported,
                                       has_empty_slot(self), &sure, &num_sure, err));
    for (uint32_t i = 0; i < num_sure; i++) {
        if (!self->sent[sure[i].task].worked)
            fedge_simulation_plan_work(self, count++, sure[i].task);
    }
    return fedge_simulation_do_work(self, count, err);
}

static fedge_status fail_task(fedge_simulation *self, sent_task *task, fedge_error *err)
{
    (void)fedge_os_format(task->work.message, sizeof(task->work.message),
                          "it gave its task up, as --failure or the trace says: lower the "
                          "probability or min-report-fraction");
    fedge_simulation_note_failure(self, &task->work);
    return fedge_rounds_lose(self->rounds, task->task_id, err);
}

/* Is no client busy, because the missing ones gave up? Then the deadline is not the cause. */
static bool is_given_up(const fedge_simulation *self)
{
    uint32_t count = 0;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(self->rounds, &count);
    for (uint32_t slot = 0; slot < count; slot++) {
        if (tasks[slot].state == FEDGE_TASK_OPEN)
            return false;
    }
    return has_empty_slot(self);
}

/* Called at the deadline, or when nothing can happen before it. */
static fedge_status reach_deadline(fedge_simulation *self, fedge_error *err)
{
    char text[128];
    fedge_rounds_describe(self->rounds, text, sizeof(text));
    if (self->virtual_clock.deadline_us == FEDGE_TIME_NEVER) {
        return fedge_fail(
            err, FEDGE_UNSUPPORTED,
            "%s, and no other client will come online: lower min-available-nodes or change "
            "--availability",
            text);
    }
    if (!is_given_up(self)) {
        (void)fedge_os_format(self->why, sizeof(self->why),
                              "the deadline came with %s: raise round-deadline-s or lower "
                              "min-report-fraction",
                              text);
    }
    fedge_rounds_tick(self->rounds, fedge_simulation_now_ms(self));
    return FEDGE_OK;
}

/* A client leaves during its task, and begins it again when it is back. */
static fedge_status leave_task(fedge_simulation *self, const fedge_event *event, fedge_error *err)
{
    const uint64_t now_us = self->virtual_clock.now_us;
    uint64_t until_us = 0;
    (void)fedge_availability_at(self->config.profiles->availability, event->client, now_us,
                                &until_us);
    const fedge_event back = {
        .client = event->client, .task = event->task, .kind = FEDGE_EVENT_JOIN};
    return fedge_virtual_clock_begin(&self->virtual_clock, back, until_us - now_us, err);
}

static fedge_status handle_event(fedge_simulation *self, const fedge_event *event, fedge_error *err)
{
    if (event->task == FEDGE_TIME_NO_TASK)
        return change(self, event, err);
    switch (event->kind) {
    case FEDGE_EVENT_FINISH:
        return fedge_simulation_report(self, &self->sent[event->task], err);
    case FEDGE_EVENT_FAIL:
        return fail_task(self, &self->sent[event->task], err);
    case FEDGE_EVENT_LEAVE:
        return leave_task(self, event, err);
    case FEDGE_EVENT_JOIN:
        return FEDGE_OK; /* the machine sends the task again when the client joins */
    }
    return fedge_fail(err, FEDGE_INTERNAL, "unknown event %d", (int)event->kind);
}

fedge_status fedge_simulation_pass_time(fedge_simulation *self, fedge_error *err)
{
    const fedge_event *first = fedge_virtual_clock_first(&self->virtual_clock);
    const bool waiting = fedge_rounds_get_state(self->rounds) == FEDGE_ROUNDS_WAITING;
    fedge_event event;
    FEDGE_TRY(check_cancelled(self, err));
    if (first && first->kind == FEDGE_EVENT_FINISH && !self->sent[first->task].worked)
        FEDGE_TRY(work_ahead(self, err));
    if (!fedge_virtual_clock_next(&self->virtual_clock, &event))
        return reach_deadline(self, err);
    if (waiting && event.time_us - self->waiting_us > FEDGE_SIMULATE_MAX_WAIT_US) {
        char text[128];
        fedge_rounds_describe(self->rounds, text, sizeof(text));
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "round %" PRIu32 ": %s after %.0f days: lower min-available-nodes or "
                          "change --availability",
                          fedge_rounds_round(self->rounds), text,
                          (double)FEDGE_SIMULATE_MAX_WAIT_US / 86400e6);
    }
    return handle_event(self, &event, err);
}
