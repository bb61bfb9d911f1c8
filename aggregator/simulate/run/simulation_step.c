/* The end of a training phase: the global model's step on what was reported. */
#include <inttypes.h>
#include <stdlib.h>

#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"

fedge_status fedge_simulation_hash(const fedge_simulation *self, char text[FEDGE_HASH_TEXT],
                                   fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, told_size = 0;
    const fedge_status status =
        fedge_global_model_write(&self->global, &file, &size, &told_size, err);
    if (status == FEDGE_OK)
        fedge_sha256_text(file, size, text);
    free(file);
    return status;
}

/* Of what was reported, in slot order as the server has them; [sent] is sorted. */
static fedge_update_facts *list_facts(const fedge_simulation *self)
{
    fedge_update_facts *facts = calloc((size_t)self->num_sent + 1, sizeof(*facts));
    for (uint32_t i = 0, n = 0; facts && i < self->num_sent; i++) {
        if (self->sent[i].reported) {
            const fedge_trainer_result *result = &self->sent[i].work.result;
            facts[n] = self->sent[i].work.facts;
            facts[n++].loss =
                result->loss_sum / (result->num_seen ? (double)result->num_seen : 1.0);
        }
    }
    return facts;
}

/* The updates themselves, in the same order. */
static fedge_status list_updates(fedge_simulation *self, fedge_updates *updates, fedge_error *err)
{
    uint32_t *places = calloc((size_t)self->num_sent + 1, sizeof(*places)), num = 0;
    for (uint32_t i = 0; places && i < self->num_sent; i++) {
        if (self->sent[i].reported)
            places[num++] = self->sent[i].work.place;
    }
    const fedge_status status =
        places
            ? fedge_kept_updates_list(&self->global.kept, places, num, updates, err)
            : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " updates", self->num_sent);
    free(places);
    return status;
}

/* Whose of the updates, in the same order, are malicious. */
static bool *list_liars(const fedge_simulation *self)
{
    bool *lies = calloc((size_t)self->num_sent + 1, sizeof(*lies));
    for (uint32_t i = 0, n = 0; lies && i < self->num_sent; i++) {
        if (self->sent[i].reported)
            lies[n++] = self->sent[i].work.client < self->config.attack.num;
    }
    return lies;
}

/* As a server reads it in its journal. */
static fedge_status note_missed(fedge_simulation *self, fedge_error *err)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(self->rounds, &num_tasks);
    const bool late = self->num_reported < fedge_rounds_wanted(self->rounds);
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < self->num_sent && status == FEDGE_OK; i++) {
        const sent_task *task = &self->sent[i];
        const bool replaced = cohort[task->slot].task_id != task->task_id;
        if (replaced || (late && !task->reported))
            status = fedge_global_model_miss(&self->global, task->work.client, err);
    }
    return status;
}

fedge_status fedge_simulation_step(fedge_simulation *self, fedge_round_summary *summary,
                                   fedge_error *err)
{
    const uint64_t start_ns = fedge_os_monotonic_ns();
    const bool collects = self->global.strategy->collects;
    fedge_updates updates;
    fedge_attacked attacked = {.attack = self->config.attack};
    bool *lies = NULL;
    fedge_update_facts *facts = list_facts(self);
    if (!facts) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a round of %" PRIu32 " clients",
                          self->num_sent);
    }
    fedge_status status = collects ? list_updates(self, &updates, err) : FEDGE_OK;
    if (status == FEDGE_OK && fedge_attack_lies(&attacked.attack)) {
        lies = list_liars(self);
        attacked.honest = updates;
        attacked.lies = lies;
        updates = fedge_attack_updates(&attacked);
        status = lies ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an attack");
    }
    if (status == FEDGE_OK)
        status = fedge_sim_ranks_join(&self->ranks, err);
    if (status == FEDGE_OK) {
        self->mid_step = true; /* a strategy that fails may leave half a step */
        status = fedge_global_model_step(&self->global, summary->round, self->bounds_log2, facts,
                                         collects ? &updates : NULL, err);
    }
    if (status == FEDGE_OK && !fedge_simulation_is_async(self))
        status = note_missed(self, err);
    free(facts);
    free(lies);
    if (status == FEDGE_OK) { /* at once: whatever fails below, the model is this round's */
        self->mid_step = false;
        self->rounds_closed = summary->round;
        fedge_client_states_keep(&self->states, summary->round);
        fedge_sim_ranks_keep(&self->ranks, summary->round);
        status = fedge_global_model_reset(&self->global, err);
    }
    if (status == FEDGE_OK && !self->config.no_hashes)
        status = fedge_simulation_hash(self, summary->model, err);
    summary->seconds_step = (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
    return status;
}
