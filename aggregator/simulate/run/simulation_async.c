/* Runs of asynchronous strategies: clients train from older models while rounds close.
 *
 * As many clients as a cohort has are busy at any time. When one finishes, another begins with the
 * newest model; tasks take virtual time, or without client profiles all take the same time. A round
 * closes when its buffer is full. A client begins once with each model. The order of tasks follows
 * from seed and profiles alone, so a resumed run repeats it up to its round without training. With
 * a replay each round has the updates that it lists, and no time passes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/sampler.h"
#include "aggregator/simulate/run/simulation_internal.h"
#include "aggregator/store/round_log.h"
#include "edge/plan/update.h"

#define TASK_US ((uint64_t)1000000) /* time of each task without client profiles */
#define STREAM 3                    /* apart from those of rounds.c */

/* The state of the federation. */
typedef struct federation {
    fedge_simulation *of;
    uint32_t max_busy, wanted; /* busy clients at a time; updates in a buffer */
    fedge_event_queue due;     /* one event for each busy client; its task is the version */
    uint32_t *idle;            /* (num_idle) clients that are not busy */
    uint32_t num_idle;
    uint32_t *begun; /* (num_clients): 1 + the version that the client began last; 0: none */
    fedge_rng rng;   /* draws of the current round */
    uint32_t too_stale;
} federation;

static void fini(federation *self)
{
    fedge_event_queue_fini(&self->due);
    free(self->idle);
    free(self->begun);
}

static fedge_status init(federation *self, fedge_simulation *of, fedge_error *err)
{
    const uint32_t clients = of->config.client_data->num_clients;
    const fedge_cohort_size size =
        fedge_cohort_size_of(&of->config.job->rounds, FEDGE_TASK_TRAIN, clients);
    *self = (federation){.of = of,
                         .max_busy = size.asked,
                         .wanted = size.wanted,
                         .idle = malloc(clients * sizeof(uint32_t)),
                         .num_idle = clients,
                         .begun = calloc(clients, sizeof(uint32_t))};
    if (!self->idle || !self->begun)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %" PRIu32 " clients", clients);
    for (uint32_t c = 0; c < clients; c++)
        self->idle[c] = c;
    return FEDGE_OK;
}

/* Bytes that a client fetches to begin with [version]. */
static uint64_t download_of(const fedge_simulation *of, uint32_t version)
{
    return version == 0 && of->from_seed ? 0 : of->model_bytes;
}

/* The end of a client's task, and whether it fails. */
static fedge_event plan_task(const federation *self, uint32_t client, uint32_t version)
{
    const fedge_simulation *of = self->of;
    const fedge_client_profiles *profiles = of->config.profiles;
    fedge_event event = {.client = client, .task = version, .kind = FEDGE_EVENT_FINISH};
    uint64_t duration_us = TASK_US;
    double fraction = 1.0;
    if (profiles) {
        const fedge_client_profiles_work work = {
            .bytes_down = download_of(of, version),
            .bytes_up = fedge_update_max_size(of->plan),
            .examples = fedge_simulation_examples(of, client, FEDGE_TASK_TRAIN)};
        duration_us = fedge_client_profiles_task_us(profiles, client, &work);
        if (fedge_client_profiles_fails(profiles, client, version + 1, 0, FEDGE_TASK_TRAIN,
                                        &fraction)) {
            event.kind = FEDGE_EVENT_FAIL;
            duration_us = (uint64_t)((double)duration_us * fraction);
        }
    }
    event.time_us = of->virtual_clock.now_us + duration_us;
    return event;
}

/* Starts idle clients on [version] until enough are busy. */
static fedge_status fill(federation *self, uint32_t version, fedge_error *err)
{
    while (self->due.count < self->max_busy && self->num_idle > 0) {
        uint32_t at = fedge_rng_below(&self->rng, self->num_idle), looked = 0;
        for (; looked < self->num_idle && self->begun[self->idle[at]] == version + 1; looked++)
            at = (at + 1) % self->num_idle;
        if (looked == self->num_idle)
            return FEDGE_OK; /* all have had this model and wait for the next */
        const uint32_t client = self->idle[at];
        fedge_event event = plan_task(self, client, version);
        event.tie_break = fedge_rng_u32(&self->rng);
        FEDGE_TRY(fedge_event_queue_push(&self->due, event, err));
        self->idle[at] = self->idle[--self->num_idle];
        self->begun[client] = version + 1;
        self->of->bytes_down += download_of(self->of, version);
    }
    return FEDGE_OK;
}

/* The task of which the update arrives in [round]. */
static sent_task task_of(const federation *self, const fedge_event *event, uint32_t round)
{
    fedge_simulation *of = self->of;
    const fedge_global_model *global = &of->global;
    const uint32_t staleness = round - 1 - event->task;
    return (sent_task){.task_id = of->next_task_id++,
                       .slot = of->num_sent,
                       .size = fedge_client_data_train(of->config.client_data, event->client).count,
                       .work = {.work = FEDGE_SIM_BACKEND_TRAIN,
                                .client = event->client,
                                .round = event->task + 1,
                                .start = staleness == 0 ? NULL
                                                        : global->strategy->base(
                                                              global->strategy_state, event->task),
                                .facts.staleness = staleness}};
}

/* Lists the updates that the replay has for [round]. */
static fedge_status replay(federation *self, uint32_t round, fedge_error *err)
{
    fedge_simulation *of = self->of;
    const fedge_buffered_update *updates = NULL;
    uint32_t num = 0;
    const fedge_status status = fedge_replay_round(of->config.replay, round, &updates, &num, err);
    for (uint32_t i = 0; i < num; i++) {
        if (updates[i].client >= of->config.client_data->num_clients ||
            updates[i].staleness > of->config.job->rounds.max_staleness ||
            updates[i].staleness >= round) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "--replay: round %" PRIu32 " has an update of client %" PRIu32
                              " that is %" PRIu32 " rounds old: the order is of another job, or of "
                              "more clients",
                              round, updates[i].client, updates[i].staleness);
        }
        const fedge_event event = {.client = updates[i].client,
                                   .task = round - 1 - updates[i].staleness};
        of->sent[of->num_sent] = task_of(self, &event, round);
        of->num_sent++;
        of->bytes_down += download_of(of, event.task);
    }
    return status;
}

/* Passes time until the buffer of [round] is full, whose updates are then of->sent.
 * FEDGE_UNSUPPORTED: it never will be. */
static fedge_status gather(federation *self, uint32_t round, fedge_error *err)
{
    fedge_simulation *of = self->of;
    of->num_sent = of->num_reported = 0;
    of->bytes_down = 0;
    if (of->config.replay)
        return replay(self, round, err);
    self->rng = fedge_rng_stream(of->plan->seed, FEDGE_PURPOSE_SAMPLE, round, 0, STREAM);
    FEDGE_TRY(fill(self, round - 1, err));
    while (of->num_sent < self->wanted && self->due.count > 0) {
        const fedge_event event = fedge_event_queue_pop(&self->due);
        of->virtual_clock.now_us = event.time_us;
        self->idle[self->num_idle++] = event.client;
        const bool stale = round - 1 - event.task > of->config.job->rounds.max_staleness;
        self->too_stale += stale;
        if (event.kind == FEDGE_EVENT_FINISH && !stale) {
            of->sent[of->num_sent] = task_of(self, &event, round);
            of->num_sent++;
        }
        FEDGE_TRY(fill(self, round - 1, err));
    }
    if (of->num_sent < self->wanted) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "round %" PRIu32 ": %" PRIu32 " of %" PRIu32
                          " updates came, and all clients have had the model: lower "
                          "strategy.buffer-size or --failure, or raise --clients",
                          round, of->num_sent, self->wanted);
    }
    return FEDGE_OK;
}

static fedge_status train(federation *self, fedge_error *err)
{
    fedge_simulation *of = self->of;
    for (uint32_t i = 0; i < of->num_sent; i++)
        fedge_simulation_plan_work(of, i, i);
    FEDGE_TRY(fedge_simulation_do_work(of, of->num_sent, err));
    for (uint32_t i = 0; i < of->num_sent; i++) {
        of->sent[i].reported = of->sent[i].work.status == FEDGE_OK;
        of->num_reported += of->sent[i].reported;
        if (!of->sent[i].reported)
            fedge_simulation_note_failure(of, &of->sent[i].work);
    }
    if (of->num_reported == 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "round %" PRIu32 ": none of %" PRIu32 " clients could train; %.180s",
                          of->rounds_closed + 1, of->num_sent, of->why);
    }
    return FEDGE_OK;
}

static fedge_status run_round(federation *self, uint32_t round, fedge_error *err)
{
    fedge_simulation *of = self->of;
    fedge_simulation_begin_round(of);
    of->first_opened_us = of->virtual_clock.now_us;
    FEDGE_TRY(gather(self, round, err));
    FEDGE_TRY(train(self, err));
    const fedge_rounds_action closing = {
        .type = FEDGE_ROUNDS_CLOSE, .kind = FEDGE_TASK_TRAIN, .round = round};
    return fedge_simulation_conclude(of, &closing, err);
}

/* Passes time again as in the closed rounds, after which the same clients are busy. */
static fedge_status repeat_rounds(federation *self, fedge_error *err)
{
    fedge_simulation *of = self->of;
    const uint64_t saved_us = of->virtual_clock.now_us, next_task_id = of->next_task_id;
    of->virtual_clock.now_us = 0;
    fedge_status status = FEDGE_OK;
    for (uint32_t round = 1; round <= of->rounds_closed && status == FEDGE_OK; round++)
        status = gather(self, round, err);
    of->next_task_id = next_task_id;
    FEDGE_TRY(status);
    if (of->rounds_closed > 0 && of->config.profiles && of->virtual_clock.now_us != saved_us) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "the run ended at %.6f virtual seconds, but with these profiles it "
                          "reaches %.6f: give the options that it began with",
                          (double)saved_us * 1e-6, (double)of->virtual_clock.now_us * 1e-6);
    }
    return FEDGE_OK;
}

fedge_status fedge_simulation_run_async(fedge_simulation *of, fedge_error *err)
{
    federation self;
    fedge_status status;
    FEDGE_TRY_OR(init(&self, of, err), done);
    FEDGE_TRY_OR(fedge_simulation_reserve(
                     of, of->config.replay ? of->config.replay->max_updates : self.wanted, err),
                 done);
    FEDGE_TRY_OR(repeat_rounds(&self, err), done);
    while (of->rounds_closed < of->last_round)
        FEDGE_TRY_OR(run_round(&self, of->rounds_closed + 1, err), done);
done:
    fini(&self);
    return status;
}

/* ---- the order of an earlier run ------------------------------------------------------------- */

void fedge_replay_fini(fedge_replay *replay)
{
    free(replay->updates);
    free(replay->ends);
    *replay = (fedge_replay){0};
}

static fedge_status grow_replay(fedge_replay *self, uint32_t more, fedge_error *err)
{
    if (more > FEDGE_REPLAY_MAX_UPDATES - self->num_updates)
        return fedge_fail(err, FEDGE_TOO_BIG, "more than %u updates", FEDGE_REPLAY_MAX_UPDATES);
    const size_t updates = self->num_updates + (size_t)more, rounds = self->num_rounds + (size_t)1;
    fedge_buffered_update *grown = realloc(self->updates, updates * sizeof(*grown));
    self->updates = grown ? grown : self->updates;
    uint32_t *ends = grown ? realloc(self->ends, rounds * sizeof(*ends)) : NULL;
    self->ends = ends ? ends : self->ends;
    return ends ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %zu updates", updates);
}

static fedge_status add_round(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    fedge_replay *self = user;
    if (summary->kind != FEDGE_TASK_TRAIN)
        return FEDGE_OK;
    if (summary->round != self->num_rounds + 1) {
        return fedge_fail(err, FEDGE_MISMATCH, "round %" PRIu32 " where %" PRIu32 " comes next",
                          summary->round, self->num_rounds + 1);
    }
    if (summary->num_buffered == 0 || summary->num_buffered != summary->reported) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "round %" PRIu32
                          " does not name its updates: only rounds that close while "
                          "clients train, of at most %u updates, do",
                          summary->round, FEDGE_ROUND_SUMMARY_MAX_BUFFERED);
    }
    FEDGE_TRY(grow_replay(self, summary->num_buffered, err));
    memcpy(self->updates + self->num_updates, summary->buffered,
           summary->num_buffered * sizeof(*summary->buffered));
    self->num_updates += summary->num_buffered;
    self->ends[self->num_rounds++] = self->num_updates;
    self->max_updates =
        summary->num_buffered > self->max_updates ? summary->num_buffered : self->max_updates;
    return FEDGE_OK;
}

fedge_status fedge_replay_read(const char *path, fedge_replay *replay, fedge_error *err)
{
    *replay = (fedge_replay){0};
    const fedge_status status = fedge_round_lines_read(path, add_round, replay, err);
    if (status != FEDGE_OK) {
        fedge_replay_fini(replay);
        return fedge_error_prefix(err, status, "--replay %s", path);
    }
    return FEDGE_OK;
}

fedge_status fedge_replay_round(const fedge_replay *replay, uint32_t round,
                                const fedge_buffered_update **updates, uint32_t *num,
                                fedge_error *err)
{
    *num = 0;
    if (round == 0 || round > replay->num_rounds) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "--replay: the file has %" PRIu32 " rounds, and round %" PRIu32
                          " is to be run: lower rounds.num-server-rounds",
                          replay->num_rounds, round);
    }
    const uint32_t first = round > 1 ? replay->ends[round - 2] : 0;
    *updates = replay->updates + first;
    *num = replay->ends[round - 1] - first;
    return FEDGE_OK;
}
