/* The work of a simulation's tasks: begun by all threads together, then reported to the machine. */
#include <inttypes.h>
#include <stdlib.h>

#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"

bool fedge_simulation_is_async(const fedge_simulation *self)
{
    return self->config.job->rounds.buffer_size > 0;
}

uint32_t fedge_simulation_round(const fedge_simulation *self)
{
    return fedge_simulation_is_async(self) ? self->rounds_closed + 1
                                           : fedge_rounds_round(self->rounds);
}

uint64_t fedge_simulation_now_ms(const fedge_simulation *self)
{
    return self->config.profiles ? self->virtual_clock.now_us / 1000 : self->now_ms;
}

void fedge_simulation_note_failure(fedge_simulation *self, const fedge_trainer_engine_task *work)
{
    (void)fedge_os_format(self->why, sizeof(self->why),
                          "the last to fail: client %" PRIu32 ": %.180s", work->client,
                          work->message);
}

bool fedge_simulation_is_cancelled(const fedge_simulation *self)
{
    return self->config.cancel && self->config.cancel(self->config.user);
}

fedge_status fedge_simulation_check_cancelled(const fedge_simulation *self, fedge_error *err)
{
    return fedge_simulation_is_cancelled(self)
               ? fedge_fail(err, FEDGE_CANCELLED, "interrupted in round %" PRIu32,
                            fedge_simulation_round(self))
               : FEDGE_OK;
}

/* Those with the most work come first, so that no thread begins a long one at the end. */
static int by_size(const void *a, const void *b)
{
    const wave_task *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1)
                              : (x->slot > y->slot) - (x->slot < y->slot);
}

void fedge_simulation_tell_progress(void *user, uint32_t num_done)
{
    const fedge_simulation *self = user;
    if (self->config.on_progress && !self->testing) {
        self->config.on_progress(
            self->config.user, fedge_simulation_round(self), self->num_reported + num_done,
            fedge_simulation_is_async(self) ? self->num_sent : fedge_rounds_wanted(self->rounds));
    }
}

/* A machine without memory or disk, or that has lost a GPU, is no client that declines: whoever was
 * asked next would lack it too. Nor is a rank that was told to end. */
static fedge_status check_machine(const fedge_simulation *self, uint32_t count, fedge_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        const fedge_status status = self->wave[i].status;
        if (status == FEDGE_NO_MEMORY || status == FEDGE_NO_SPACE || status == FEDGE_IO ||
            status == FEDGE_GPU_LOST || status == FEDGE_CANCELLED) {
            return fedge_fail(err, status, "round %" PRIu32 ": client %" PRIu32 ": %s",
                              fedge_simulation_round(self), self->wave[i].client,
                              self->wave[i].message);
        }
    }
    return FEDGE_OK;
}

/* Places for the updates, where the strategy wants them one by one. */
static fedge_status reserve(fedge_simulation *self, uint32_t count, fedge_error *err)
{
    uint32_t first = 0;
    if (count == 0 || self->wave[0].work != FEDGE_TRAINER_ENGINE_TRAIN ||
        !self->global.strategy->collects)
        return FEDGE_OK;
    const fedge_status status = fedge_kept_updates_reserve(&self->global.kept, count, &first, err);
    for (uint32_t i = 0; i < count; i++)
        self->wave[i].place = first + i;
    return status;
}

fedge_status fedge_simulation_do_work(fedge_simulation *self, uint32_t count, fedge_error *err)
{
    qsort(self->order, count, sizeof(*self->order), by_size);
    for (uint32_t i = 0; i < count; i++) {
        self->wave[i] = self->sent[self->order[i].task].work;
        fedge_update_facts *facts = &self->wave[i].facts;
        facts->round = fedge_simulation_round(self);
        facts->client = self->wave[i].client;
        facts->cohort = self->global.cohort;
        facts->ratio = fedge_update_ratio(&self->global, facts->round, facts->client);
    }
    FEDGE_TRY(reserve(self, count, err));
    fedge_simulation_tell_progress(self, 0);
    fedge_trainer_engine_run(&self->engine, fedge_simulation_round(self), self->bounds_log2,
                             self->wave, count);
    /* What evaluates is not interrupted: its round has closed. */
    const bool train = count > 0 && self->wave[0].work == FEDGE_TRAINER_ENGINE_TRAIN;
    if (train)
        FEDGE_TRY(fedge_simulation_check_cancelled(self, err));
    FEDGE_TRY(check_machine(self, count, err));
    for (uint32_t i = 0; i < count; i++) {
        sent_task *task = &self->sent[self->order[i].task];
        task->work = self->wave[i];
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

void fedge_simulation_plan_work(fedge_simulation *self, uint32_t place, uint32_t task)
{
    self->order[place] = (wave_task){self->sent[task].size, self->sent[task].slot, task};
}

fedge_status fedge_simulation_evaluate(fedge_simulation *simulation, fedge_evaluation_set *sets,
                                       uint32_t num_sets, bool may_stop, fedge_error *err)
{
    simulation->testing = true;
    const fedge_status status =
        fedge_evaluate_sets(&simulation->engine, sets, num_sets, may_stop, err);
    simulation->testing = false;
    return status;
}
