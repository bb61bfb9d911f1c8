#define _POSIX_C_SOURCE 200809L
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/sweep/sweep_internal.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"

#define STACK_SIZE ((size_t)8 << 20) /* bytes per thread of runs, as a main thread has */

/* The runs of a sweep, side by side where one has no work for all threads. */
typedef struct pool {
    fedge_sweep *sweep;
    fedge_cancel_fn cancel;
    void *user;
    uint32_t num_runs;    /* each done by one rank */
    uint32_t num_threads; /* threads of all runs */
    uint32_t num_batched; /* runs that GPUs train together; 0: each has its threads */
    fedge_sim_shared shared;
    uint64_t usable, at_start; /* bytes: usable, and resident before any run */
    atomic_bool stopping;      /* the machine failed a run: the others end as by Ctrl-C */
    pthread_mutex_t mutex;     /* guards the fields below */
    pthread_cond_t changed;
    uint32_t num_workers;
    uint32_t next;              /* the first run that has not begun */
    uint32_t running, num_busy; /* runs, and their threads */
    uint64_t need;              /* bytes of one run; 0: unknown yet */
    uint32_t interrupted;
    fedge_status status; /* the failure that ended all runs */
    fedge_error err;
} pool;

/* ---- runs at once ---------------------------------------------------------------------------- */

uint32_t fedge_sweep_threads(uint32_t num_threads, uint32_t cohort, uint32_t max_runs)
{
    uint32_t at_once = cohort > 0 ? num_threads / cohort : 1;
    at_once = at_once < max_runs ? at_once : max_runs;
    return num_threads / (at_once > 0 ? at_once : 1);
}

bool fedge_sweep_has_memory(uint32_t running, uint64_t at_start, uint64_t need, uint64_t usable)
{
    const bool known = need > 0;
    return running == 0 ||
           (known && (usable == 0 ||
                      (at_start < usable && (usable - at_start) / need >= (uint64_t)running + 1)));
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* On GPUs each run has all threads. */
static uint32_t threads_of(const pool *self, uint32_t combination, uint32_t max_runs)
{
    const bool on_cpu = strcmp(self->sweep->backend, "cpu") == 0;
    return on_cpu
               ? fedge_sweep_threads(self->num_threads, self->sweep->cohorts[combination], max_runs)
               : self->num_threads;
}

/* This rank's runs from [next] on. */
static uint32_t runs_of_rank(const pool *self, uint32_t next)
{
    const fedge_collective *all = self->sweep->collective;
    const uint32_t ranks = fedge_collective_is_alone(all) ? 1 : all->num_ranks;
    return (self->num_runs - next + ranks - 1) / ranks;
}

/* One run of every combination comes first, so that a sweep stopped early can be compared. */
static sweep_run next_run(pool *self)
{
    const uint32_t combinations = self->sweep->num_combinations;
    sweep_run run = {.number = self->next + 1,
                     .combination = self->next % combinations,
                     .seed = self->next / combinations};
    const uint32_t left = self->running + runs_of_rank(self, self->next);
    run.num_threads = threads_of(self, run.combination, min_u32(left, self->num_workers));
    run.alone = self->num_batched < 2 && run.num_threads == self->num_threads;
    run.shared = self->num_batched > 1 ? &self->shared : NULL;
    return run;
}

/* Moves to this rank's next run. */
static void skip_others(pool *self)
{
    const fedge_collective *all = self->sweep->collective;
    while (!fedge_collective_is_alone(all) && self->next < self->num_runs &&
           self->next % all->num_ranks != all->rank)
        self->next++;
}

/* Waits until the next run may begin. False: none is left. */
static bool take(pool *self, sweep_run *run)
{
    pthread_mutex_lock(&self->mutex);
    bool taken = false;
    skip_others(self);
    while (!taken && self->next < self->num_runs) {
        *run = next_run(self);
        const bool free = self->num_batched > 0
                              ? self->running < self->num_batched
                              : self->num_busy + run->num_threads <= self->num_threads;
        taken =
            free && fedge_sweep_has_memory(self->running, self->at_start, self->need, self->usable);
        if (!taken)
            pthread_cond_wait(&self->changed, &self->mutex);
    }
    if (taken) {
        self->next++;
        skip_others(self);
        self->running++;
        self->num_busy += run->num_threads;
    }
    pthread_cond_broadcast(&self->changed); /* the next run has changed */
    pthread_mutex_unlock(&self->mutex);
    return taken;
}

/* ---- while they run -------------------------------------------------------------------------- */

static bool is_stopped(void *user)
{
    pool *self = user;
    return atomic_load_explicit(&self->stopping, memory_order_relaxed) ||
           (self->cancel && self->cancel(self->user));
}

/* Called when a run has its data and is about to train; measures a run's memory. That of its
 * threads may not be resident yet. */
static void on_begun(void *user, uint64_t promised)
{
    pool *self = user;
    const uint64_t resident = fedge_os_resident_bytes();
    pthread_mutex_lock(&self->mutex);
    const uint64_t grown =
        resident > self->at_start ? (resident - self->at_start) / self->running : 0;
    if (grown + promised > self->need)
        self->need = grown + promised;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

/* Takes a run's result, which may end the others. */
static void take_outcome(pool *self, const sweep_run *run, sweep_outcome *of, fedge_status ended,
                         const fedge_error *why)
{
    const bool machine_failed = of->begun && fedge_sweep_is_machine_failure(ended);
    if (ended == FEDGE_CANCELLED || machine_failed) {
        self->next = self->num_runs;
        self->interrupted += ended == FEDGE_CANCELLED;
        if (self->status == FEDGE_OK || (self->status == FEDGE_CANCELLED && machine_failed)) {
            self->status = ended;
            self->err = *why;
        }
        if (machine_failed)
            atomic_store(&self->stopping, true);
        return;
    }
    fedge_sweep_end_run(self->sweep, run, of, ended, why);
}

/* Waits until no other run is under way. True: there was one. */
static bool wait_for_others(pool *self, const sweep_run *run)
{
    pthread_mutex_lock(&self->mutex);
    const bool alone = self->running == 1;
    if (!alone) {
        self->running--;
        self->num_busy -= run->num_threads;
        pthread_cond_broadcast(&self->changed);
        while (self->running > 0)
            pthread_cond_wait(&self->changed, &self->mutex);
        self->running++;
        self->num_busy += run->num_threads;
    }
    pthread_mutex_unlock(&self->mutex);
    return !alone;
}

/* With "auto", GPUs were chosen before the data were loaded. Where these leave no memory for a
 * client, the run takes the last backend of the table for itself. */
static fedge_status run_on_fallback(pool *self, const sweep_run *run,
                                    const sweep_callbacks *callbacks, sweep_outcome *to,
                                    fedge_error *err)
{
    sweep_run other = *run;
    char name[FEDGE_SWEEP_MAX_FOLDER];
    for (const fedge_sim_backend_ops *const *at = fedge_sim_backends; *at; at++)
        other.backend = (*at)->name;
    other.shared = NULL;
    fprintf(stderr, "fedge-simulate: %s: --engine auto is %s: %s\n",
            fedge_sweep_folder_name(self->sweep, run->combination, run->seed, name), other.backend,
            err->message);
    return fedge_sweep_run_one(self->sweep, &other, callbacks, to, err);
}

/* A run that finds too little memory waits until no other is under way, and tries once more. */
static fedge_status run_or_wait(pool *self, const sweep_run *run, const sweep_callbacks *callbacks,
                                sweep_outcome *to, fedge_error *err)
{
    const bool has_other = strcmp(self->sweep->options->backend, FEDGE_SIM_BACKEND_AUTO) == 0 &&
                           fedge_sim_backend_batches_runs(self->sweep->backend);
    fedge_status status = fedge_sweep_run_one(self->sweep, run, callbacks, to, err);
    if (to->begun ||
        (status != FEDGE_TOO_BIG && status != FEDGE_NO_MEMORY && status != FEDGE_GPU_MEMORY))
        return status;
    if (wait_for_others(self, run))
        status = fedge_sweep_run_one(self->sweep, run, callbacks, to, err);
    return !to->begun && status == FEDGE_NO_MEMORY && has_other
               ? run_on_fallback(self, run, callbacks, to, err)
               : status;
}

static void work(pool *self)
{
    const sweep_callbacks callbacks = {.cancel = is_stopped, .begun = on_begun, .user = self};
    sweep_run run;
    while (take(self, &run)) {
        fedge_error why;
        sweep_outcome *to =
            &self->sweep->outcomes[(size_t)run.combination * self->sweep->num_seeds + run.seed];
        const fedge_status ended = run_or_wait(self, &run, &callbacks, to, &why);
        pthread_mutex_lock(&self->mutex);
        self->running--;
        self->num_busy -= run.num_threads;
        take_outcome(self, &run, to, ended, &why);
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->mutex);
    }
}

static void work_on_thread(void *user, uint32_t worker)
{
    (void)worker;
    work(user);
}

/* ---- runs on ranks --------------------------------------------------------------------------- */

uint32_t fedge_sweep_num_shared(uint32_t num_runs, uint32_t num_ranks)
{
    const uint32_t left = num_runs % num_ranks;
    return num_runs < num_ranks || 2 * left <= num_ranks ? left : 0;
}

/* Takes the result on a group's first rank. A failure of the machine ends all runs. */
static fedge_status take_group_outcome(const fedge_sweep *sweep, const sweep_run *run,
                                       sweep_outcome *of, fedge_status ended, fedge_error *err)
{
    if (ended == FEDGE_CANCELLED || (of->begun && fedge_sweep_is_machine_failure(ended)))
        return ended;
    fedge_sweep_end_run(sweep, run, of, ended, err);
    return FEDGE_OK;
}

/* Serves a group's first rank. After a failure within the rounds that rank would wait for this one,
 * so all ranks are ended. */
static void serve_group(const fedge_sweep *sweep, const sweep_run *run,
                        const sweep_callbacks *callbacks)
{
    sweep_outcome of;
    fedge_error err;
    const fedge_status ended = fedge_sweep_run_one(sweep, run, callbacks, &of, &err);
    if (ended != FEDGE_OK && of.begun) {
        fprintf(stderr, "fedge-simulate: rank %" PRIu32 " on %s: %s\n", sweep->collective->rank,
                sweep->collective->host, err.message);
        fedge_collective_abort(sweep->collective, 1);
    }
}

/* Does the last runs, each by a group of ranks; all ranks call it. [status], with [err]: this
 * rank's so far; after a failure of one nothing is done. Returns the first failure on all ranks. */
static fedge_status run_groups(fedge_sweep *sweep, uint32_t num_threads, fedge_cancel_fn cancel,
                               void *user, fedge_status status, fedge_error *err)
{
    const fedge_collective *all = sweep->collective;
    const uint32_t num_runs = sweep->num_combinations * sweep->num_seeds;
    const uint32_t num_shared = fedge_sweep_num_shared(num_runs, all->num_ranks);
    assert(num_shared > 0);
    const uint32_t group = all->rank % num_shared, at = num_runs - num_shared + group;
    const uint32_t combination = at % sweep->num_combinations;
    const sweep_callbacks callbacks = {.cancel = cancel, .user = user};
    fedge_collective part;
    FEDGE_TRY(fedge_collective_agree(all, status, NULL, 0, err));
    status = fedge_collective_split(all, group, &part, err);
    FEDGE_TRY(fedge_collective_agree(all, status, NULL, 0, err));
    const bool shared = sweep->shareable[combination] && !fedge_collective_is_alone(&part);
    const bool leads = part.rank == 0;
    const sweep_run run = {.number = at + 1,
                           .combination = combination,
                           .seed = at / sweep->num_combinations,
                           .num_threads = num_threads,
                           .alone = num_shared == 1,
                           .collective = shared ? &part : NULL};
    if (leads) {
        sweep_outcome *of = &sweep->outcomes[(size_t)run.combination * sweep->num_seeds + run.seed];
        const fedge_status ended = fedge_sweep_run_one(sweep, &run, &callbacks, of, err);
        status = take_group_outcome(sweep, &run, of, ended, err);
    } else if (shared) {
        serve_group(sweep, &run, &callbacks);
    }
    fedge_collective_close(&part);
    return status;
}

/* ---- all runs -------------------------------------------------------------------------------- */

/* Notes the options that axes replace. */
static void print_replaced(const fedge_sweep *sweep)
{
    const fedge_simulate_options *options = sweep->options;
    for (uint32_t i = 0; i < sweep->num_axes; i++) {
        const char *key = sweep->axes[i].key;
        if ((strcmp(key, "partition") == 0 && options->partition) ||
            (strcmp(key, "clients") == 0 && options->num_clients > 0)) {
            fprintf(stderr, "fedge-simulate: --sweep has %s=…, which takes the place of --%s\n",
                    key, key);
        }
    }
}

/* Says which backend "auto" is. */
static void print_backend(const fedge_sweep *sweep)
{
    if (fedge_sim_backend_batches_runs(sweep->backend)) {
        fprintf(stderr, "fedge-simulate: --engine auto is %s: the runs are trained together\n",
                sweep->backend);
    } else {
        const bool mixed = strcmp(sweep->backend, FEDGE_SIM_BACKEND_AUTO) == 0;
        fprintf(stderr, "fedge-simulate: --engine auto is %s: %s\n",
                mixed ? "another for some runs, which take turns" : sweep->backend,
                sweep->no_gpus[0] ? sweep->no_gpus : "it is the only one");
    }
}

/* The most runs at once, each on a thread; the caller's thread is one of them. */
static uint32_t max_runs_at_once(const pool *self)
{
    uint32_t max_runs = self->num_batched > 0 ? self->num_batched : 1;
    for (uint32_t c = 0; c < self->sweep->num_combinations; c++) {
        const uint32_t each = threads_of(self, c, runs_of_rank(self, 0));
        max_runs = self->num_threads / each > max_runs ? self->num_threads / each : max_runs;
    }
    return min_u32(max_runs, runs_of_rank(self, 0));
}

/* With fewer workers than wanted, fewer runs go side by side. */
static fedge_status work_on_all(pool *self, fedge_error *err)
{
    assert(self->num_workers > 0);
    const fedge_worker_pool_config config = {.name = "thread for runs",
                                             .thread = "run",
                                             .num_workers = self->num_workers - 1,
                                             .allow_fewer = true,
                                             .stack_size = STACK_SIZE};
    fedge_worker_pool *others = NULL;
    FEDGE_TRY(fedge_worker_pool_new(&others, &config, err));
    self->num_workers = fedge_worker_pool_size(others) + 1;
    fedge_worker_pool_begin(others, work_on_thread, self);
    work(self);
    fedge_worker_pool_end(others);
    fedge_worker_pool_free(others);
    return FEDGE_OK;
}

/* Sends the other ranks' results to rank 0, and the first failure to all. */
static fedge_status gather_outcomes(fedge_sweep *sweep, fedge_status status, fedge_error *err)
{
    const fedge_collective *all = sweep->collective;
    const uint32_t num_runs = sweep->num_combinations * sweep->num_seeds;
    if (fedge_collective_is_alone(all))
        return status;
    for (uint32_t i = 0; all->rank > 0 && i < num_runs; i++)
        fedge_collective_send(all, &sweep->outcomes[i], sizeof(*sweep->outcomes), 0);
    for (uint32_t rank = 1; all->rank == 0 && rank < all->num_ranks; rank++) {
        for (uint32_t i = 0; i < num_runs; i++) {
            sweep_outcome of;
            fedge_collective_receive(all, &of, sizeof(of), rank);
            sweep->outcomes[i] = of.done || of.begun ? of : sweep->outcomes[i];
        }
    }
    return fedge_collective_agree(all, status, NULL, 0, err);
}

fedge_status fedge_sweep_run(fedge_sweep *sweep, fedge_cancel_fn cancel, void *user,
                             fedge_error *err)
{
    const uint32_t threads = sweep->options->num_threads;
    const uint32_t num_runs = sweep->num_combinations * sweep->num_seeds;
    const uint32_t num_shared = fedge_sweep_num_shared(
        num_runs, fedge_collective_is_alone(sweep->collective) ? 1 : sweep->collective->num_ranks);
    pool self = {.sweep = sweep,
                 .cancel = cancel,
                 .user = user,
                 .num_runs = num_runs - num_shared,
                 .num_threads = threads > 0 ? threads : fedge_os_num_cpus(),
                 .usable = fedge_os_usable_bytes(NULL),
                 .at_start = fedge_os_resident_bytes()};
    if (fedge_sim_backend_batches_runs(sweep->backend))
        self.num_batched = min_u32(runs_of_rank(&self, 0), FEDGE_SWEEP_MAX_BATCHED);
    fedge_sim_shared_init(&self.shared, self.num_batched);
    print_replaced(sweep);
    if (strcmp(sweep->options->backend, FEDGE_SIM_BACKEND_AUTO) == 0)
        print_backend(sweep);
    if (!sweep->uses_plugin) {
        fputs("fedge-simulate: no run uses all of --strategy-plugin: name its strategy, as in "
              "--sweep "
              "strategy=…, and give the job a \"test-set\" for its metrics\n",
              stderr);
    }
    if (!sweep->is_measured)
        fprintf(stderr, "fedge-simulate: nothing will be evaluated: " FEDGE_SWEEP_MEASURE "\n");
    atomic_init(&self.stopping, false);
    pthread_mutex_init(&self.mutex, NULL);
    pthread_cond_init(&self.changed, NULL);
    self.num_workers = max_runs_at_once(&self);
    const fedge_status started = self.num_runs > 0 ? work_on_all(&self, err) : FEDGE_OK;
    fedge_sim_shared_fini(&self.shared);
    pthread_cond_destroy(&self.changed);
    pthread_mutex_destroy(&self.mutex);
    fedge_status status = started == FEDGE_OK ? self.status : started;
    if (started == FEDGE_OK && status == FEDGE_CANCELLED && self.interrupted > 1) {
        status = fedge_fail(err, FEDGE_CANCELLED, "interrupted with %" PRIu32 " runs under way",
                            self.interrupted);
    } else if (started == FEDGE_OK && status != FEDGE_OK) {
        *err = self.err;
    }
    if (num_shared > 0)
        status = run_groups(sweep, self.num_threads, cancel, user, status, err);
    return gather_outcomes(sweep, status, err);
}

uint32_t fedge_sweep_num_done(const fedge_sweep *sweep)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < sweep->num_combinations * sweep->num_seeds; i++)
        done += sweep->outcomes[i].done;
    return done;
}

uint32_t fedge_sweep_num_unable(const fedge_sweep *sweep)
{
    uint32_t unable = 0;
    for (uint32_t i = 0; i < sweep->num_combinations * sweep->num_seeds; i++)
        unable += sweep->outcomes[i].done && !sweep->outcomes[i].begun;
    return unable;
}
