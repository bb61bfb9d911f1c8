#include "aggregator/simulate/simulation.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/evaluator.h"
#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/memory.h"
#include "aggregator/simulate/simulation_internal.h"
#include "edge/core/os.h"
#include "secure/identity/identity.h"

/* ---- numbers of a phase ---------------------------------------------------------------------- */

static double seconds_since(uint64_t start_ns)
{
    return (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
}

static int by_slot(const void *a, const void *b)
{
    const sent_task *x = a, *y = b;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

uint64_t fedge_simulation_now_ms(const fedge_simulation *self)
{
    return self->config.fleet ? self->timetable.now_us / 1000 : self->now_ms;
}

/* The weighted means of those that were reported, in slot order as the server takes them. */
static fedge_round_summary summarise(fedge_simulation *self, const fedge_action *action)
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
    double loss = 0.0, accuracy = 0.0, weights = 0.0, seconds = 0.0;
    qsort(self->sent, self->num_sent, sizeof(*self->sent), by_slot);
    (void)fedge_rounds_cohort(self->rounds, &summary.asked);
    summary.bytes_down = (uint64_t)self->num_downloads * self->model_bytes;
    for (uint32_t i = 0; i < self->num_sent; i++) {
        const fedge_crew_task *work = &self->sent[i].work;
        if (!self->sent[i].reported) {
            continue;
        }
        const fedge_trainer_result *result = &work->result;
        const double seen = result->num_seen ? (double)result->num_seen : 1.0;
        const double weight = fedge_report_weight(self->config.job, result->num_examples);
        summary.reported++;
        summary.examples += result->num_examples;
        summary.bytes_up += work->bytes_up;
        summary.clamped += work->clamped;
        loss += result->loss_sum / seen * weight;
        accuracy += (double)result->correct / seen * weight;
        weights += weight;
        seconds += work->seconds;
    }
    if (summary.reported > 0) {
        const bool train = action->kind == FEDGE_TASK_TRAIN;
        *(train ? &summary.train_loss : &summary.loss) = loss / weights;
        *(train ? &summary.train_accuracy : &summary.accuracy) = accuracy / weights;
        summary.seconds_train = train ? seconds / summary.reported : NAN;
    }
    return summary;
}

/* The global model on the server's test set and on the examples for validation. */
static fedge_status test_model(fedge_simulation *self, fedge_round_summary *summary,
                               fedge_error *err)
{
    const bool last = summary->round == self->config.job->rounds.num_server_rounds;
    const fedge_view validation = fedge_population_validation(self->config.population);
    summary->validation = (fedge_validation){validation.count > 0, NAN, NAN};
    if (summary->round % self->config.evaluate_every != 0 && !last) {
        return FEDGE_OK;
    }
    const uint64_t start_ns = fedge_os_monotonic_ns();
    fedge_tested_set sets[2];
    const uint32_t tested = self->test_set.count > 0, validated = validation.count > 0;
    if (tested + validated == 0) {
        return FEDGE_OK;
    }
    sets[0] = (fedge_tested_set){.view = self->test_set};
    sets[tested] = validated ? (fedge_tested_set){.view = validation} : sets[tested];
    fedge_status status = fedge_simulation_evaluate(self, sets, tested + validated, false, err);
    if (status == FEDGE_OK && tested) {
        summary->loss = sets[0].loss;
        summary->accuracy = sets[0].accuracy;
    }
    if (status == FEDGE_OK && validated) {
        summary->validation.loss = sets[tested].loss;
        summary->validation.accuracy = sets[tested].accuracy;
    }
    summary->seconds_evaluate = seconds_since(start_ns);
    return status;
}

/* ---- phases ---------------------------------------------------------------------------------- */

fedge_status fedge_simulation_hash(const fedge_simulation *self, char text[FEDGE_HASH_TEXT],
                                   fedge_error *err)
{
    uint8_t *file = NULL;
    size_t size = 0, control_size = 0;
    const fedge_status status =
        fedge_global_model_write(&self->global, &file, &size, &control_size, err);
    if (status == FEDGE_OK) {
        fedge_sha256_text(file, size, text);
    }
    free(file);
    return status;
}

static fedge_status step(fedge_simulation *self, fedge_round_summary *summary, fedge_error *err)
{
    const uint64_t start_ns = fedge_os_monotonic_ns();
    self->torn = true; /* a strategy that fails may leave half a step */
    fedge_status status =
        fedge_global_model_step(&self->global, summary->round, self->bounds_log2, err);
    if (status == FEDGE_OK) { /* at once: whatever fails below, the model is this round's */
        self->torn = false;
        self->rounds_closed = summary->round;
        fedge_variates_keep(&self->variates, summary->round);
        status = fedge_global_model_reset(&self->global, err);
    }
    if (status == FEDGE_OK && !self->config.no_hashes) {
        status = fedge_simulation_hash(self, summary->model, err);
    }
    summary->seconds_step = seconds_since(start_ns);
    return status;
}

static fedge_status end_phase(fedge_simulation *self, fedge_error *err)
{
    const fedge_status status = fedge_simulation_end_time(self, err);
    if (status == FEDGE_OK) {
        fedge_rounds_closed(self->rounds, fedge_simulation_now_ms(self));
    }
    return status;
}

/* What has been summed has been reported. */
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

static fedge_status close_phase(fedge_simulation *self, const fedge_action *action,
                                fedge_error *err)
{
    fedge_round_summary summary = summarise(self, action);
    fedge_status status = check_sums(self, err);
    if (status == FEDGE_OK && action->kind == FEDGE_TASK_TRAIN) {
        status = step(self, &summary, err);
        if (status == FEDGE_OK) {
            status = test_model(self, &summary, err);
        }
    }
    if (!fedge_has_accuracy(self->plan)) {
        summary.accuracy = summary.train_accuracy = summary.validation.accuracy = NAN;
    }
    summary.seconds = seconds_since(self->phase_started_ns);
    self->failures = 0;
    memset(self->asked_in_vain, 0, sizeof(self->asked_in_vain));
    self->clock_us = self->timetable.now_us;
    self->evaluation_due =
        action->kind == FEDGE_TASK_TRAIN && self->config.job->rounds.fraction_evaluate > 0.0;
    if (status == FEDGE_OK && self->config.on_round) {
        status = self->config.on_round(self->config.user, &summary, err);
    }
    return status == FEDGE_OK ? end_phase(self, err) : status;
}

static fedge_status drop_phase(fedge_simulation *self, const fedge_action *action, fedge_error *err)
{
    const bool train = action->kind == FEDGE_TASK_TRAIN; /* an evaluation is not tried again */
    const fedge_virtual_phase phase = fedge_simulation_virtual_phase(self);
    memcpy(self->asked_in_vain, phase.asked, train ? sizeof(phase.asked) : 0);
    fedge_variates_undo(&self->variates); /* what does not count moves no variate */
    fedge_status status = fedge_global_model_reset(&self->global, err);
    self->failures += train;
    if (status == FEDGE_OK && self->failures >= FEDGE_SIMULATE_MAX_FAILURES) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "round %" PRIu32 ": too few of %" PRIu32
                          " clients reported, %d attempts in a row; %.180s",
                          action->round, self->num_sent, FEDGE_SIMULATE_MAX_FAILURES, self->why);
    }
    return status == FEDGE_OK ? end_phase(self, err) : status;
}

/* ---- the open phase -------------------------------------------------------------------------- */

static void open_phase(fedge_simulation *self)
{
    self->num_sent = self->num_done = self->num_reported = self->num_downloads = 0;
    self->phase_started_ns = fedge_os_monotonic_ns();
    fedge_sections_bounds(self->plan, self->global.values, self->bounds_log2);
    fedge_timetable_open(&self->timetable, self->config.job->rounds.round_deadline_ms);
    self->first_opened_us = self->failures == 0 ? self->timetable.now_us : self->first_opened_us;
    fedge_rounds_opened(self->rounds, fedge_simulation_now_ms(self));
}

/* Whose result comes first of those that are there at the same time, or of all without virtual
 * time: the same for every client, or over-selection would choose among them. */
static uint32_t draw_turn(const fedge_simulation *self, const fedge_action *action)
{
    fedge_rng rng =
        fedge_rng_stream(self->plan->seed, FEDGE_PURPOSE_TURN, action->round, action->client_index,
                         fedge_fleet_stream(action->kind, action->attempt));
    return fedge_rng_u32(&rng);
}

static fedge_status send_task(fedge_simulation *self, const fedge_action *action, fedge_error *err)
{
    self->num_downloads++;
    const bool again = self->config.fleet && self->config.fleet->availability && !action->fresh;
    for (uint32_t i = 0; again && i < self->num_sent; i++) { /* it had gone and is back */
        if (self->sent[i].task_id == action->task_id) {
            return fedge_simulation_begin_task(self, action, i, err);
        }
    }
    if (self->num_sent == self->capacity) { /* more than a cohort: slots that changed hands */
        const uint32_t more = self->capacity * 2 + 64;
        sent_task *sent = realloc(self->sent, more * sizeof(*sent));
        self->sent = sent ? sent : self->sent;
        fedge_crew_task *wave = realloc(self->wave, more * sizeof(*wave));
        self->wave = wave ? wave : self->wave;
        wave_task *order = realloc(self->order, more * sizeof(*order));
        self->order = order ? order : self->order;
        if (!sent || !wave || !order) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " tasks", more);
        }
        self->capacity = more;
    }
    self->sent[self->num_sent++] = (sent_task){
        .task_id = action->task_id,
        .slot = action->slot,
        .turn = draw_turn(self, action),
        .size = fedge_population_train(self->config.population, action->client_index).count,
        .work = {.work = action->kind == FEDGE_TASK_TRAIN ? FEDGE_CREW_TRAIN : FEDGE_CREW_EVALUATE,
                 .client = action->client_index}};
    return self->config.fleet ? fedge_simulation_begin_task(self, action, self->num_sent - 1, err)
                              : FEDGE_OK;
}

void fedge_simulation_note_failure(fedge_simulation *self, const fedge_crew_task *work)
{
    (void)fedge_os_format(self->why, sizeof(self->why),
                          "the last to fail: client %" PRIu32 ": %.180s", work->client,
                          work->message);
}

static bool is_cancelled(const fedge_simulation *self)
{
    return self->config.cancel && self->config.cancel(self->config.user);
}

fedge_status fedge_simulation_check_cancelled(const fedge_simulation *self, fedge_error *err)
{
    return is_cancelled(self) ? fedge_fail(err, FEDGE_CANCELLED, "interrupted in round %" PRIu32,
                                           fedge_rounds_round(self->rounds))
                              : FEDGE_OK;
}

/* Those with the most work come first, so that no thread begins a long one at the end. */
static int by_size(const void *a, const void *b)
{
    const wave_task *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1)
                              : (x->slot > y->slot) - (x->slot < y->slot);
}

static void on_done(void *user, uint32_t num_done)
{
    const fedge_simulation *self = user;
    if (self->config.on_progress && !self->testing) {
        self->config.on_progress(self->config.user, fedge_rounds_round(self->rounds),
                                 self->num_reported + num_done, fedge_rounds_wanted(self->rounds));
    }
}

/* A machine without memory is no client that declines: whoever was asked next would lack it too. */
static fedge_status check_machine(const fedge_simulation *self, uint32_t count, fedge_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (self->wave[i].status == FEDGE_NO_MEMORY) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "round %" PRIu32 ": client %" PRIu32 ": %s",
                              fedge_rounds_round(self->rounds), self->wave[i].client,
                              self->wave[i].message);
        }
    }
    return FEDGE_OK;
}

/* Does the work of the tasks order[0, count), all threads together. */
fedge_status fedge_simulation_do_work(fedge_simulation *self, uint32_t count, fedge_error *err)
{
    qsort(self->order, count, sizeof(*self->order), by_size);
    for (uint32_t i = 0; i < count; i++) {
        self->wave[i] = self->sent[self->order[i].task].work;
    }
    on_done(self, 0);
    fedge_crew_run(self->crew, fedge_rounds_round(self->rounds), self->bounds_log2, self->wave,
                   count);
    /* What evaluates is not interrupted: its round has closed. */
    const bool train = count > 0 && self->wave[0].work == FEDGE_CREW_TRAIN;
    fedge_status status = train ? fedge_simulation_check_cancelled(self, err) : FEDGE_OK;
    if (status == FEDGE_OK) {
        status = check_machine(self, count, err);
    }
    if (status != FEDGE_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        sent_task *task = &self->sent[self->order[i].task];
        task->work = self->wave[i];
        task->worked = true;
    }
    return FEDGE_OK;
}

/* Tells the machine what became of a task that was worked on. */
fedge_status fedge_simulation_report(fedge_simulation *self, sent_task *task, fedge_error *err)
{
    task->reported = task->work.status == FEDGE_OK;
    self->num_reported += task->reported;
    if (task->reported) {
        return fedge_rounds_report(self->rounds, task->task_id, fedge_simulation_now_ms(self), err);
    }
    fedge_simulation_note_failure(self, &task->work);
    return fedge_rounds_lose(self->rounds, task->task_id, fedge_simulation_now_ms(self), err);
}

void fedge_simulation_plan_work(fedge_simulation *self, uint32_t place, uint32_t task)
{
    self->order[place] = (wave_task){self->sent[task].size, self->sent[task].slot, task};
}

static int by_turn(const void *a, const void *b)
{
    const sent_task *x = a, *y = b;
    return x->turn != y->turn ? (x->turn < y->turn ? -1 : 1)
                              : (x->slot > y->slot) - (x->slot < y->slot);
}

/* Without a fleet: does the work of tasks that were sent, as many as the phase still wants, and
 * reports it. The work of clients that would come too late is not done. */
static fedge_status work(fedge_simulation *self, fedge_error *err)
{
    const uint32_t wanted = fedge_rounds_wanted(self->rounds) - self->num_reported;
    const uint32_t left = self->num_sent - self->num_done;
    const uint32_t count = left < wanted ? left : wanted;
    if (count == 0) { /* nobody is left to ask: time passes until the deadline */
        self->now_ms = fedge_rounds_deadline_ms(self->rounds);
        fedge_rounds_tick(self->rounds, self->now_ms);
        return FEDGE_OK;
    }
    if (count < left) {
        qsort(self->sent + self->num_done, left, sizeof(*self->sent), by_turn);
    }
    for (uint32_t i = 0; i < count; i++) {
        fedge_simulation_plan_work(self, i, self->num_done + i);
    }
    self->num_done += count;
    fedge_status status = fedge_simulation_do_work(self, count, err);
    for (uint32_t i = 0; i < count && status == FEDGE_OK; i++) {
        status = fedge_simulation_report(self, &self->sent[self->order[i].task], err);
    }
    return status;
}

static bool cancel(void *user)
{
    return is_cancelled(user);
}

/* ---- the run --------------------------------------------------------------------------------- */

static fedge_status carry_out(fedge_simulation *self, const fedge_action *action, bool *finished,
                              fedge_error *err)
{
    switch (action->type) {
    case FEDGE_ACTION_OPEN:
        open_phase(self);
        return FEDGE_OK;
    case FEDGE_ACTION_SEND:
        self->next_task_id =
            action->task_id >= self->next_task_id ? action->task_id + 1 : self->next_task_id;
        return send_task(self, action, err);
    case FEDGE_ACTION_CLOSE:
        return close_phase(self, action, err);
    case FEDGE_ACTION_FAIL:
        return drop_phase(self, action, err);
    case FEDGE_ACTION_FINISH:
        *finished = true;
        return FEDGE_OK;
    case FEDGE_ACTION_CANCEL:
        return FEDGE_OK; /* its client has not begun */
    }
    return fedge_fail(err, FEDGE_INTERNAL, "unknown action %d", (int)action->type);
}

fedge_status fedge_simulation_run(fedge_simulation *self, fedge_error *err)
{
    fedge_status status = fedge_simulation_join_all(self, err);
    bool finished = false;
    while (status == FEDGE_OK && !finished) {
        fedge_action action;
        if (fedge_rounds_next(self->rounds, &action)) {
            status = carry_out(self, &action, &finished, err);
        } else if (self->config.fleet) {
            status = fedge_simulation_pass_time(self, err);
        } else if (fedge_rounds_get_state(self->rounds) == FEDGE_ROUNDS_RUNNING) {
            status = work(self, err);
        } else {
            char text[128];
            fedge_rounds_describe(self->rounds, text, sizeof(text));
            status = fedge_fail(err, FEDGE_INTERNAL, "the simulation stands still: %s", text);
        }
    }
    if (status != FEDGE_OK) { /* what has closed is kept already */
        fedge_variates_undo(&self->variates);
    }
    if (status == FEDGE_NO_MEMORY) { /* room to write down what has closed */
        fedge_crew_free(self->crew);
        self->crew = NULL;
    }
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool holds_out(const fedge_population *population)
{
    for (uint32_t c = 0; c < population->num_clients; c++) {
        if (fedge_population_held_out(population, c).count > 0) {
            return true;
        }
    }
    return false;
}

fedge_status fedge_simulation_check_clients(const fedge_rounds_spec *spec, uint32_t num_clients,
                                            fedge_error *err)
{
    const uint32_t needed = fedge_cohort_needed(spec, FEDGE_TASK_TRAIN);
    return needed <= num_clients
               ? FEDGE_OK
               : fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                            "the job's rounds need %" PRIu32 " clients (min-available-nodes, "
                            "min-train-nodes), and there are %" PRIu32 ": lower them or raise "
                            "--clients",
                            needed, num_clients);
}

static fedge_status check(const fedge_simulation_config *config, fedge_error *err)
{
    const fedge_rounds_spec *spec = &config->job->rounds;
    const uint32_t clients = config->population->num_clients;
    if (config->job->plan.external) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "the job's model is external: only built-in models are simulated");
    }
    const fedge_status enough = fedge_simulation_check_clients(spec, clients, err);
    if (enough != FEDGE_OK) {
        return enough;
    }
    if (config->job->plan.scaffold && config->job->num_clients != clients) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "strategy.num-clients, by which SCAFFOLD's control variates are "
                          "weighed, is %" PRIu32 ", and there are %" PRIu32
                          " clients: set it to %" PRIu32
                          " or leave it out, fedge-simulate counts them",
                          config->job->num_clients, clients, clients);
    }
    if (spec->fraction_evaluate > 0 && !holds_out(config->population)) {
        return fedge_fail(
            err, FEDGE_INVALID_ARGUMENT,
            "the job's fraction-evaluate is over 0, and no client holds out examples: "
            "set 'validation-fraction' in the clients' file, high enough for one "
            "example of a client, or fraction-evaluate to 0");
    }
    if (config->evaluate_every == 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "evaluate-every is 0: at least 1");
    }
    return FEDGE_OK;
}

static fedge_status list_test_set(fedge_simulation *self, fedge_error *err)
{
    if (!self->config.test_set) {
        return FEDGE_OK;
    }
    const uint32_t count = fedge_dataset_size(self->config.test_set);
    self->test_set = (fedge_view){self->config.test_set, calloc(count, sizeof(uint32_t)), count};
    if (!self->test_set.indices) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " test examples", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        self->test_set.indices[i] = i;
    }
    return FEDGE_OK;
}

uint32_t fedge_simulation_most_tested(const fedge_simulation_config *config)
{
    const bool tested = config->test_set && fedge_dataset_size(config->test_set) > 0;
    const bool validated = fedge_population_validation(config->population).count > 0;
    return config->rounds_only && !tested && !validated ? 0 : FEDGE_TESTED_PORTION;
}

/* Before any memory is filled. */
static fedge_status check_memory(fedge_simulation *self, fedge_error *err)
{
    fedge_memory memory;
    const fedge_status status = fedge_memory_count(&memory, &self->config, err);
    if (status != FEDGE_OK) {
        return status;
    }
    self->promised = memory.model + memory.threads + memory.variates + memory.tasks;
    return fedge_memory_check(&memory, fedge_os_usable_bytes(NULL), err);
}

static fedge_status set_up(fedge_simulation *self, fedge_error *err)
{
    const fedge_simulation_config *config = &self->config;
    size_t control = 0;
    uint8_t *file = NULL;
    fedge_status status = check_memory(self, err);
    if (status == FEDGE_OK) {
        status = list_test_set(self, err);
    }
    if (status == FEDGE_OK) {
        fedge_accumulator_config sums = config->sums;
        sums.num_lanes = config->num_threads;
        status =
            fedge_global_model_init(&self->global, config->job,
                                    config->accumulator ? config->accumulator : "cpu", &sums, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_global_model_begin(&self->global, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_global_model_write(&self->global, &file, &self->model_bytes, &control, err);
        self->model_bytes += control;
        free(file);
    }
    if (status == FEDGE_OK && self->plan->scaffold) {
        status = fedge_variates_init(&self->variates, config->population->num_clients,
                                     self->plan->sent.sections[0].schema.num_elements, err);
    }
    if (status == FEDGE_OK) {
        const fedge_crew_config crew = {.job = config->job,
                                        .population = config->population,
                                        .global = &self->global,
                                        .most_tested = fedge_simulation_most_tested(config),
                                        .variates = &self->variates,
                                        .num_threads = config->num_threads,
                                        .cancel = config->cancel ? cancel : NULL,
                                        .on_done = on_done,
                                        .user = self};
        status = fedge_crew_new(&crew, &self->crew, err);
    }
    /* Everybody is there before the first round opens. */
    fedge_rounds_spec spec = config->job->rounds;
    if (!config->fleet || !config->fleet->availability) {
        spec.min_available_nodes = config->population->num_clients;
    }
    return status == FEDGE_OK ? fedge_rounds_new(&spec, config->job->plan.seed, &self->rounds, err)
                              : status;
}

fedge_status fedge_simulation_new(const fedge_simulation_config *config,
                                  fedge_simulation **simulation, fedge_error *err)
{
    *simulation = NULL;
    fedge_status status = check(config, err);
    if (status != FEDGE_OK) {
        return status;
    }
    fedge_simulation *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a simulation");
    }
    fresh->config = *config;
    fresh->plan = &config->job->plan;
    fresh->next_task_id = 1;
    status = set_up(fresh, err);
    if (status != FEDGE_OK) {
        fedge_simulation_free(fresh);
        return status;
    }
    *simulation = fresh;
    return FEDGE_OK;
}

void fedge_simulation_free(fedge_simulation *simulation)
{
    if (!simulation) {
        return;
    }
    fedge_crew_free(simulation->crew);
    fedge_rounds_free(simulation->rounds);
    fedge_global_model_fini(&simulation->global);
    fedge_variates_fini(&simulation->variates);
    fedge_view_fini(&simulation->test_set);
    free(simulation->sent);
    free(simulation->wave);
    free(simulation->order);
    fedge_timetable_fini(&simulation->timetable);
    free(simulation);
}

fedge_status fedge_simulation_restore(fedge_simulation *simulation,
                                      const fedge_simulation_state *state, const uint8_t *file,
                                      size_t file_size, const uint8_t *strategy,
                                      size_t strategy_size, fedge_error *err)
{
    const uint32_t rounds = simulation->config.job->rounds.num_server_rounds;
    if (simulation->plan->scaffold && state->rounds_closed < rounds &&
        state->rounds_closed != simulation->variates.round) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "SCAFFOLD cannot go on after round %" PRIu32 " of %" PRIu32
                          " with its clients' variates of round %" PRIu32,
                          state->rounds_closed, rounds, simulation->variates.round);
    }
    fedge_status status =
        fedge_global_model_load(&simulation->global, file, file_size, strategy, strategy_size, err);
    if (status == FEDGE_OK && state->evaluation_due && state->rounds_closed > 0) {
        fedge_rounds_restore_evaluation(simulation->rounds, state->rounds_closed,
                                        state->next_task_id);
    } else if (status == FEDGE_OK) {
        status = fedge_rounds_restore(simulation->rounds, state->rounds_closed, 0,
                                      state->next_task_id, 0, NULL, 0, simulation->now_ms, err);
    }
    simulation->rounds_closed = state->rounds_closed;
    simulation->next_task_id = state->next_task_id;
    simulation->evaluation_due = state->evaluation_due;
    simulation->clock_us = simulation->timetable.now_us = state->clock_us;
    return status;
}

fedge_simulation_state fedge_simulation_get_state(const fedge_simulation *simulation)
{
    return (fedge_simulation_state){simulation->rounds_closed, simulation->next_task_id,
                                    simulation->clock_us, simulation->evaluation_due};
}

void fedge_simulation_end_after(fedge_simulation *simulation, uint32_t round)
{
    fedge_rounds_end_after(simulation->rounds, round);
}

bool fedge_simulation_is_whole(const fedge_simulation *simulation)
{
    return !simulation->torn &&
           (!simulation->plan->scaffold || simulation->variates.round == simulation->rounds_closed);
}

const fedge_global_model *fedge_simulation_model(const fedge_simulation *simulation)
{
    return &simulation->global;
}

const fedge_variates *fedge_simulation_variates(const fedge_simulation *simulation)
{
    return simulation->plan->scaffold ? &simulation->variates : NULL;
}

fedge_status fedge_simulation_load_variates(fedge_simulation *simulation, const char *path,
                                            fedge_error *err)
{
    return fedge_variates_load(&simulation->variates, path, err);
}

uint64_t fedge_simulation_promised_bytes(const fedge_simulation *simulation)
{
    return simulation->promised;
}

uint64_t fedge_simulation_bytes_per_thread(const fedge_simulation *simulation)
{
    return fedge_crew_bytes_per_thread(simulation->crew);
}

fedge_view fedge_simulation_test_set(const fedge_simulation *simulation)
{
    return simulation->test_set;
}

fedge_status fedge_simulation_evaluate(fedge_simulation *simulation, fedge_tested_set *sets,
                                       uint32_t num_sets, bool may_stop, fedge_error *err)
{
    simulation->testing = true;
    const fedge_status status =
        fedge_evaluate_sets(simulation->crew, sets, num_sets, may_stop, err);
    simulation->testing = false;
    return status;
}
