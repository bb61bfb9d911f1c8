/* The end of a phase: its numbers, its step, its evaluation and its line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/error_means.h"
#include "aggregator/rounds/evaluator.h"
#include "aggregator/simulate/run/simulation_internal.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"

void fedge_simulation_begin_round(fedge_simulation *self)
{
    self->phase_started_ns = fedge_os_monotonic_ns();
    fedge_sections_bounds(self->plan, self->global.values, self->bounds_log2);
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
}

static int by_slot(const void *a, const void *b)
{
    const sent_task *x = a, *y = b;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* The means of a task's examples; NaN: its trainer did not report it. */
static double loss_of(const fedge_sim_backend_task *work)
{
    const double seen = work->result.num_seen ? (double)work->result.num_seen : 1.0;
    return work->has_means ? work->loss : work->result.loss_sum / seen;
}

static double accuracy_of(const fedge_sim_backend_task *work)
{
    const double seen = work->result.num_seen ? (double)work->result.num_seen : 1.0;
    return work->has_means ? work->accuracy : (double)work->result.correct / seen;
}

/* ---- the strategy's step -------------------------------------------------------------------- */

fedge_status fedge_simulation_hash(const fedge_simulation *self, char text[FEDGE_HASH_TEXT],
                                   fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, broadcast_size = 0;
    FEDGE_TRY(fedge_global_model_write(&self->global, &file, &size, &broadcast_size, err));
    fedge_sha256_text(file, size, text);
    free(file);
    return FEDGE_OK;
}

/* The facts of the reported updates, in slot order as on the server; [sent] is sorted. */
static fedge_update_facts *list_facts(const fedge_simulation *self)
{
    fedge_update_facts *facts = calloc((size_t)self->num_sent + 1, sizeof(*facts));
    for (uint32_t i = 0, n = 0; facts && i < self->num_sent; i++) {
        if (self->sent[i].reported) {
            const double loss = loss_of(&self->sent[i].work);
            facts[n] = self->sent[i].work.facts;
            facts[n++].loss = isfinite(loss) ? loss : 0.0;
        }
    }
    return facts;
}

/* The updates, in the same order. */
static fedge_status list_updates(fedge_simulation *self, fedge_updates *updates, fedge_error *err)
{
    uint32_t *indices = calloc((size_t)self->num_sent + 1, sizeof(*indices)), num = 0;
    for (uint32_t i = 0; indices && i < self->num_sent; i++) {
        if (self->sent[i].reported)
            indices[num++] = self->sent[i].work.update_index;
    }
    const fedge_status status =
        indices
            ? fedge_stored_updates_list(&self->global.stored, indices, num, updates, err)
            : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " updates", self->num_sent);
    free(indices);
    return status;
}

/* Which of the updates, in the same order, are malicious clients'. */
static bool *list_malicious(const fedge_simulation *self)
{
    bool *malicious = calloc((size_t)self->num_sent + 1, sizeof(*malicious));
    for (uint32_t i = 0, n = 0; malicious && i < self->num_sent; i++) {
        if (self->sent[i].reported)
            malicious[n++] = self->sent[i].work.client < self->config.attack.num;
    }
    return malicious;
}

/* Notes the clients that missed the round, as a server reads them from its journal. */
static fedge_status note_missed(fedge_simulation *self, fedge_error *err)
{
    uint32_t num_tasks = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(self->rounds, &num_tasks);
    const bool timed_out = self->num_reported < fedge_rounds_wanted(self->rounds);
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const sent_task *task = &self->sent[i];
        const bool replaced = cohort[task->slot].task_id != task->task_id;
        if (replaced || (timed_out && !task->reported))
            FEDGE_TRY(fedge_global_model_miss(&self->global, task->work.client, err));
    }
    return FEDGE_OK;
}

static fedge_status step(fedge_simulation *self, fedge_round_summary *summary, fedge_error *err)
{
    const uint64_t start_ns = fedge_os_monotonic_ns();
    const bool collects = self->global.strategy->collects;
    fedge_updates updates;
    fedge_attacked attacked = {.attack = self->config.attack};
    bool *malicious = NULL;
    fedge_update_facts *facts = list_facts(self);
    if (!facts) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a round of %" PRIu32 " clients",
                          self->num_sent);
    }
    fedge_status status = FEDGE_OK;
    if (collects)
        FEDGE_TRY_OR(list_updates(self, &updates, err), done);
    if (fedge_attack_forges_updates(&attacked.attack)) {
        malicious = list_malicious(self);
        attacked.honest = updates;
        attacked.malicious = malicious;
        updates = fedge_attack_updates(&attacked);
        FEDGE_TRY_OR(malicious ? FEDGE_OK
                               : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an attack"),
                     done);
    }
    FEDGE_TRY_OR(fedge_sim_ranks_join(&self->ranks, err), done);
    self->mid_step = true; /* a strategy that fails may leave half a step */
    FEDGE_TRY_OR(fedge_global_model_step(&self->global, summary->round, self->bounds_log2, facts,
                                         collects ? &updates : NULL, err),
                 done);
    if (!fedge_simulation_is_async(self))
        status = note_missed(self, err);
done:
    free(facts);
    free(malicious);
    FEDGE_TRY(status);
    self->mid_step = false; /* whatever fails below, the model is this round's */
    self->rounds_closed = summary->round;
    fedge_client_states_commit(&self->states, summary->round);
    fedge_sim_ranks_commit(&self->ranks, summary->round);
    FEDGE_TRY(fedge_global_model_reset(&self->global, err));
    if (!self->config.no_hashes)
        FEDGE_TRY(fedge_simulation_hash(self, summary->model, err));
    summary->seconds_step = seconds_since(start_ns);
    return FEDGE_OK;
}

/* ---- the numbers of a phase ------------------------------------------------------------------ */

/* A weighted mean of the numbers that were reported; NaN without any. */
typedef struct mean {
    double sum, weight;
} mean;

static void add(mean *to, double value, double weight)
{
    to->sum += isfinite(value) ? value * weight : 0.0;
    to->weight += isfinite(value) ? weight : 0.0;
}

/* Adds the errors of a client's evaluation. */
static void add_errors(fedge_error_means *to, const fedge_simulation *self,
                       const fedge_sim_backend_task *work, double weight)
{
    double values[FEDGE_ERROR_METRICS], variation = NAN;
    fedge_error err;
    if (work->result.errors.count == 0)
        return;
    const fedge_view view = fedge_client_data_held_out(self->config.client_data, work->client);
    if (fedge_view_variation(&view, &variation, &err) != FEDGE_OK)
        variation = NAN; /* a metric is missing; the round goes on */
    fedge_errors_values(&work->result.errors, variation, values);
    fedge_error_means_add(to, values, weight);
}

static void set_errors(fedge_metric_values *metrics, const fedge_error_means *errors)
{
    double values[FEDGE_ERROR_METRICS];
    fedge_error_means_get(errors, values);
    fedge_metrics_set_errors(metrics, values);
}

/* Of the global model, on the test set or the validation examples. */
static fedge_status measure_errors(const fedge_simulation *self, const fedge_evaluation_set *set,
                                   fedge_metric_values *metrics, fedge_error *err)
{
    double values[FEDGE_ERROR_METRICS], variation = 0.0;
    if (!fedge_plan_has_errors(self->plan))
        return FEDGE_OK;
    FEDGE_TRY(fedge_view_variation(&set->view, &variation, err));
    const fedge_errors none = {0}; /* the model has diverged */
    fedge_errors_values(isnan(set->loss) ? &none : &set->errors, variation, values);
    fedge_metrics_set_errors(metrics, values);
    return FEDGE_OK;
}

/* The weighted means of the reported results, in slot order as on the server. */
static fedge_round_summary summarise(fedge_simulation *self, const fedge_rounds_action *action)
{
    fedge_round_summary summary = {.round = action->round,
                                   .attempt = action->attempt,
                                   .kind = action->kind,
                                   .loss = NAN,
                                   .accuracy = NAN,
                                   .train_loss = NAN,
                                   .train_accuracy = NAN,
                                   .seconds_encode = NAN,
                                   .seconds_upload = NAN,
                                   .seconds_train = NAN,
                                   .virtual_phase = fedge_simulation_virtual_phase(self)};
    mean loss = {0}, accuracy = {0};
    fedge_error_means errors = {{0}, {0}};
    double seconds = 0.0;
    double *each = malloc(((size_t)self->num_sent + 1) * sizeof(*each)); /* NULL: no quantiles */
    qsort(self->sent, self->num_sent, sizeof(*self->sent), by_slot);
    if (fedge_simulation_is_async(self))
        summary.asked = self->num_sent;
    else
        (void)fedge_rounds_cohort(self->rounds, &summary.asked);
    summary.bytes_down = self->bytes_down;
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const fedge_sim_backend_task *work = &self->sent[i].work;
        if (!self->sent[i].reported)
            continue;
        const fedge_trainer_result *result = &work->result;
        const double weight = fedge_report_weight(self->config.job, result->num_examples);
        if (each)
            each[summary.reported] = accuracy_of(work);
        summary.reported++;
        summary.examples += result->num_examples;
        summary.bytes_up += work->bytes_up;
        summary.clamped += work->clamped;
        add(&loss, loss_of(work), weight);
        add(&accuracy, accuracy_of(work), weight);
        add_errors(&errors, self, work, weight);
        seconds += work->seconds;
    }
    if (summary.reported > 0) {
        const bool train = action->kind == FEDGE_TASK_TRAIN;
        *(train ? &summary.train_loss : &summary.loss) = loss.sum / loss.weight;
        *(train ? &summary.train_accuracy : &summary.accuracy) = accuracy.sum / accuracy.weight;
        summary.seconds_train = train ? seconds / summary.reported : NAN;
        if (!train && fedge_plan_has_errors(self->plan))
            set_errors(&summary.metrics, &errors);
    }
    if (each && action->kind == FEDGE_TASK_EVALUATE && fedge_has_accuracy(self->plan))
        fedge_accuracy_quantiles_measure(&summary.quantiles, each, summary.reported);
    free(each);
    return summary;
}

/* Evaluates the global model on the test set and on the examples for validation. */
static fedge_status test_model(fedge_simulation *self, fedge_round_summary *summary,
                               fedge_error *err)
{
    const bool last = summary->round == self->config.job->rounds.num_server_rounds;
    const fedge_view validation = fedge_client_data_validation(self->config.client_data);
    summary->validation = (fedge_validation){validation.count > 0, NAN, NAN, {0}};
    if (summary->round % self->config.evaluate_every != 0 && !last)
        return FEDGE_OK;
    const uint64_t start_ns = fedge_os_monotonic_ns();
    fedge_evaluation_set sets[2];
    const uint32_t tested = self->test_set.count > 0, validated = validation.count > 0;
    if (tested + validated == 0 && !self->evaluator)
        return FEDGE_OK;
    sets[0] = (fedge_evaluation_set){.view = self->test_set};
    sets[tested] = validated ? (fedge_evaluation_set){.view = validation} : sets[tested];
    if (tested + validated > 0)
        FEDGE_TRY(fedge_simulation_evaluate(self, sets, tested + validated, false, err));
    if (tested) {
        summary->loss = sets[0].loss;
        summary->accuracy = sets[0].accuracy;
    }
    if (validated) {
        summary->validation.loss = sets[tested].loss;
        summary->validation.accuracy = sets[tested].accuracy;
        FEDGE_TRY(measure_errors(self, &sets[tested], &summary->validation.metrics, err));
    }
    if (self->evaluator)
        FEDGE_TRY(fedge_evaluator_measure(self->evaluator, self->global.values, summary, err));
    if (tested)
        FEDGE_TRY(measure_errors(self, &sets[0], &summary->metrics, err));
    summary->seconds_evaluate = seconds_since(start_ns);
    return FEDGE_OK;
}

/* Checks that each summed update was reported. */
static fedge_status check_sums(const fedge_simulation *self, fedge_error *err)
{
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const sent_task *task = &self->sent[i];
        if (task->worked && task->work.status == FEDGE_OK && !task->reported) {
            return fedge_fail(err, FEDGE_INTERNAL,
                              "client %" PRIu32 " was trained and not waited for",
                              task->work.client);
        }
    }
    return FEDGE_OK;
}

/* Lists the updates of a buffer for the round's line. */
static fedge_status name_updates(const fedge_simulation *self, fedge_round_summary *summary,
                                 fedge_error *err)
{
    if (!fedge_simulation_is_async(self) || summary->reported > FEDGE_ROUND_SUMMARY_MAX_BUFFERED)
        return FEDGE_OK;
    summary->buffered = calloc((size_t)summary->reported + 1, sizeof(*summary->buffered));
    if (!summary->buffered)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a line of a round");
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const fedge_update_facts *facts = &self->sent[i].work.facts;
        if (self->sent[i].reported) {
            summary->buffered[summary->num_buffered++] =
                (fedge_buffered_update){self->sent[i].work.client, facts->staleness};
        }
    }
    return FEDGE_OK;
}

/* Lists the devices that trained for the round's line. As on the server, a loss of 0 was not
 * reported. */
static fedge_status name_devices(const fedge_simulation *self, fedge_round_summary *summary,
                                 fedge_error *err)
{
    for (uint32_t i = 0; summary->kind == FEDGE_TASK_TRAIN && i < self->num_sent; i++) {
        const fedge_sim_backend_task *work = &self->sent[i].work;
        const double loss = loss_of(work);
        const fedge_device_part part = {work->client, work->result.num_examples,
                                        loss != 0.0 ? loss : NAN};
        if (self->sent[i].reported)
            FEDGE_TRY(fedge_round_summary_add_device(summary, &part, err));
    }
    return FEDGE_OK;
}

/* The round's step and tests, where clients have trained. */
static fedge_status close_phase(fedge_simulation *self, const fedge_rounds_action *action,
                                fedge_round_summary *summary, fedge_error *err)
{
    FEDGE_TRY(check_sums(self, err));
    if (action->kind == FEDGE_TASK_TRAIN) {
        FEDGE_TRY(step(self, summary, err));
        FEDGE_TRY(test_model(self, summary, err));
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_conclude(fedge_simulation *self, const fedge_rounds_action *action,
                                       fedge_error *err)
{
    fedge_round_summary summary = summarise(self, action);
    fedge_status status = close_phase(self, action, &summary, err);
    /* Else the run fails, and takes them back. */
    if (status == FEDGE_OK || self->rounds_closed == action->round)
        fedge_trainer_values_commit(&self->values);
    if (!fedge_has_accuracy(self->plan))
        summary.accuracy = summary.train_accuracy = summary.validation.accuracy = NAN;
    summary.seconds = seconds_since(self->phase_started_ns);
    self->failures = 0;
    memset(self->asked_failed, 0, sizeof(self->asked_failed));
    self->clock_us = self->virtual_clock.now_us;
    self->evaluation_due =
        action->kind == FEDGE_TASK_TRAIN && self->config.job->rounds.fraction_evaluate > 0.0;
    FEDGE_TRY(status);
    FEDGE_TRY_OR(name_updates(self, &summary, err), done);
    FEDGE_TRY_OR(name_devices(self, &summary, err), done);
    if (self->config.on_round)
        status = self->config.on_round(self->config.user, &summary, err);
done:
    fedge_round_summary_fini(&summary);
    return status;
}
