#include "aggregator/cluster/rank_worker.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/rounds/global_model.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/run/ingest/intake.h"
#include "aggregator/run/rendezvous.h"
#include "aggregator/store/disk.h"
#include "aggregator/threads/mailbox.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"

struct fedge_rank_worker {
    fedge_rank_worker_config config;
    fedge_rank_worker_callbacks out;
    fedge_state state; /* locked by the lowest rank of its disk */
    fedge_rank_disks disks;
    char run_id[FEDGE_RUN_ID_TEXT];
    char dir[FEDGE_MAX_PATH]; /* folder of its journals */
    fedge_accumulator accumulator;
    fedge_mailbox *completions;
    fedge_ingest *ingest;
    fedge_worker_pool *thread;
    fedge_work look; /* handles completions */
    atomic_bool looking;
    _Atomic uint64_t queued;
    atomic_bool was_full;

    /* Used by the thread alone. */
    fedge_intake intake;
    fedge_journal *journal; /* journal of the open phase; NULL: none */
    uint64_t phase;
    fedge_accumulator_config *wanted; /* GPUs of the next phase; NULL: the present ones */
    atomic_bool stopped;              /* no callback is called any more */
};

/* A task of the thread: a part of an upload, other GPUs, or an order. */
typedef struct task {
    fedge_work work;
    fedge_request *request;           /* part of an upload; NULL: none */
    fedge_accumulator_config *wanted; /* other GPUs; NULL: none */
    fedge_order order;
    uint8_t bytes[]; /* (order.size) */
} task;

/* ---- callbacks ------------------------------------------------------------------------------- */

static void fail(fedge_rank_worker *self, const fedge_error *err)
{
    atomic_store(&self->stopped, true);
    self->out.fail(self->out.user, err);
}

static void reply(void *worker, fedge_reply *content)
{
    fedge_rank_worker *self = worker;
    fedge_error err;
    if (self->out.deliver(self->out.deliver_user, content, &err) != FEDGE_OK)
        fail(self, &err);
}

static void report(fedge_rank_worker *self, fedge_report *what, const void *bytes)
{
    what->rank = self->disks.rank;
    what->phase = self->phase;
    self->out.report(self->out.user, what, bytes);
}

static void resume_all(fedge_rank_worker *self)
{
    fedge_error err;
    fedge_reply *all = calloc(1, sizeof(*all));
    if (!all) {
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory to go on with connections");
        fail(self, &err);
        return;
    }
    all->type = FEDGE_REPLY_RESUME;
    reply(self, all);
}

static void report_released(fedge_rank_worker *self, uint32_t slot)
{
    report(self, &(fedge_report){.kind = FEDGE_REPORT_RELEASED, .slot = slot}, NULL);
}

/* ---- results of the ingest workers ----------------------------------------------------------- */

static void on_validated(fedge_rank_worker *self, const fedge_completion *completion)
{
    const uint32_t slot = completion->slot;
    char meta[FEDGE_JOURNAL_MAX_METADATA + 1];
    fedge_error err;
    if (!self->journal || slot >= self->intake.num_slots)
        return;
    const fedge_intake_slot *state = &self->intake.slots[slot];
    const bool held = state->holder.finishing && state->holder.task_id == completion->task_id;
    fedge_report result = {
        .kind = FEDGE_REPORT_VALIDATED,
        .slot = slot,
        .task_id = completion->task_id,
        .status = completion->status,
        .number = state->holder.number,
        .seconds_upload = state->seconds_upload,
        .location = {.disk = self->disks.disks[self->disks.rank], .rank = self->disks.rank}};
    memcpy(result.message, completion->message, sizeof(result.message));
    if (completion->status == FEDGE_OK) {
        result.facts = fedge_journal_get_slot(self->journal, slot);
        result.size = result.facts.metadata_size;
        if (fedge_journal_metadata(self->journal, slot, meta, sizeof(meta), &err) != FEDGE_OK) {
            fail(self, &err);
            return;
        }
    }
    const bool release =
        held && fedge_intake_validated(&self->intake, slot, completion->status == FEDGE_OK);
    if (!held) { /* the journal had no space for the task: its upload ends, too */
        self->intake.slots[slot].holder.uploading = false;
    }
    report(self, &result, meta);
    if (release)
        report_released(self, slot);
}

static void handle_completions(fedge_rank_worker *self)
{
    fedge_mailbox_item *item = fedge_mailbox_take(self->completions);
    for (fedge_mailbox_item *next; item; item = next) {
        fedge_completion *completion = (fedge_completion *)item;
        next = item->next;
        if (atomic_load(&self->stopped)) {
            free(completion);
            continue;
        }
        if (completion->type == FEDGE_COMPLETION_VALIDATED) {
            on_validated(self, completion);
        } else if (completion->type == FEDGE_COMPLETION_RESUME) {
            resume_all(self);
        } else {
            fedge_error err = {.status = completion->status};
            memcpy(err.message, completion->message, sizeof(err.message));
            fail(self, &err);
        }
        free(completion);
    }
}

static void look(void *user, uint32_t worker, fedge_work *work)
{
    fedge_rank_worker *self = user;
    (void)worker, (void)work;
    /* This comes before the mailbox is read: a completion that comes meanwhile posts this task once
     * more, so that it does not wait for the next one. */
    atomic_store(&self->looking, false);
    handle_completions(self);
}

/* Called by an ingest worker. */
static void wake(void *worker)
{
    fedge_rank_worker *self = worker;
    /* One post at most is under way, since the task is a member and can be in the queue only once.
     */
    if (!atomic_exchange(&self->looking, true))
        fedge_worker_pool_post(self->thread, 0, &self->look);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void forget_phase(fedge_rank_worker *self)
{
    fedge_intake_end(&self->intake);
    fedge_journal_free(self->journal);
    self->journal = NULL;
}

/* A journal of that name was never opened: rank 0 creates its own last. */
static fedge_status make_journal(fedge_rank_worker *self, const fedge_journal_phase *phase,
                                 const fedge_journal_task *tasks, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    FEDGE_TRY(fedge_journal_make_path(self->dir, phase->round, phase->attempt, path, err));
    FEDGE_TRY(fedge_os_remove_tree(path, err));
    FEDGE_TRY(fedge_journal_create(self->dir, phase, tasks, self->config.job->min_free_disk,
                                   &self->journal, err));
    return fedge_intake_begin(&self->intake, self->journal, err);
}

static fedge_status open_sums(fedge_rank_worker *self, fedge_error *err)
{
    const fedge_update_layout layout = fedge_plan_update_layout(&self->config.job->plan);
    fedge_accumulator_config sums = self->config.sums;
    sums.layout = &layout;
    FEDGE_TRY(fedge_accumulator_open(self->config.accumulator, &sums, &self->accumulator, err));
    return fedge_distributed_wrap(&self->accumulator, self->config.collective, layout.num_elements,
                                  &sums, err);
}

/* Called between phases: the sums are 0, and the ingest workers are idle. */
static fedge_status change_gpus(fedge_rank_worker *self, fedge_error *err)
{
    fedge_accumulator_config *wanted = self->wanted, before = self->config.sums;
    fedge_error why;
    self->wanted = NULL;
    if (!wanted)
        return FEDGE_OK;
    fedge_accumulator_close(&self->accumulator);
    self->config.sums = *wanted;
    self->config.sums.skip_missing = false; /* GPUs requested by number must exist */
    free(wanted);
    if (open_sums(self, &why) == FEDGE_OK)
        return FEDGE_OK;
    fedge_log_failure(self->config.log, FEDGE_LOG_ERROR, "gpus-refused", &why);
    self->config.sums = before;
    return open_sums(self, err);
}

static fedge_status begin_phase(fedge_rank_worker *self, const task *posted, fedge_error *err)
{
    fedge_journal_phase phase;
    assert(posted->order.size >= sizeof(phase));
    memcpy(&phase, posted->bytes, sizeof(phase));
    /* The phase's number changes with it, so carry_out ignores queued orders of the phase before.
     */
    forget_phase(self);
    self->phase = posted->order.phase;
    FEDGE_TRY(change_gpus(self, err));
    /* Rank 0 may not have used the sums of the phase before. */
    if (fedge_accumulator_get_totals(&self->accumulator).num_updates > 0)
        FEDGE_TRY(fedge_accumulator_reset(&self->accumulator, err));
    FEDGE_TRY(fedge_disk_tidy(self->dir, posted->order.oldest, err));
    /* A phase's size is a multiple of 8, and so is a task's. */
    return make_journal(self, &phase,
                        (const fedge_journal_task *)(const void *)(posted->bytes + sizeof(phase)),
                        err);
}

static void open_phase(fedge_rank_worker *self, const task *posted)
{
    fedge_report answer = {.kind = FEDGE_REPORT_OPENED};
    fedge_error err = {.status = FEDGE_OK};
    answer.status = begin_phase(self, posted, &err);
    memcpy(answer.message, err.message, sizeof(answer.message));
    report(self, &answer, NULL);
}

static void grant(fedge_rank_worker *self, const task *posted)
{
    fedge_error err;
    fedge_ingest_upload *incoming = malloc(sizeof(*incoming));
    /* Without a journal the phase could not be opened, as was reported to rank 0. */
    if (!self->journal || posted->order.slot >= self->intake.num_slots ||
        posted->order.size > sizeof(incoming->meta)) {
        free(incoming);
        return;
    }
    if (!incoming) {
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory for an upload");
        fail(self, &err);
        return;
    }
    incoming->weight = posted->order.weight;
    incoming->meta_size = posted->order.size;
    memcpy(incoming->meta, posted->bytes, posted->order.size);
    const fedge_message message = {
        .type = FEDGE_MESSAGE_UPLOAD, .meta = incoming->meta, .meta_size = incoming->meta_size};
    fedge_grant given = {.slot = posted->order.slot,
                         .number = posted->order.number,
                         .task = posted->order.task,
                         .conn_id = posted->order.conn_id,
                         .incoming = incoming};
    fedge_status status = fedge_upload_read(&message, &incoming->upload, &err);
    if (status == FEDGE_OK)
        status = fedge_intake_grant(&self->intake, &given, fedge_os_monotonic_ms(), &err);
    else
        free(incoming);
    if (status != FEDGE_OK)
        fail(self, &err);
}

/* Reports all results of the ingest workers before FLUSHED. */
static void close_phase(fedge_rank_worker *self, bool dropped)
{
    fedge_error err;
    fedge_status status = fedge_ingest_flush(self->ingest, &err);
    handle_completions(self);
    forget_phase(self);
    /* Sums of a phase that is not dropped stay, for the close to join them; the next phase resets
     * them. */
    if (status == FEDGE_OK && dropped)
        status = fedge_accumulator_reset(&self->accumulator, &err);
    if (status != FEDGE_OK)
        fail(self, &err);
    else
        report(self, &(fedge_report){.kind = FEDGE_REPORT_FLUSHED}, NULL);
}

static void carry_out(fedge_rank_worker *self, const task *posted)
{
    const fedge_order *order = &posted->order;
    if (order->kind == FEDGE_ORDER_OPEN)
        open_phase(self, posted);
    else if (order->phase != self->phase)
        return;
    else if (order->kind == FEDGE_ORDER_GRANT)
        grant(self, posted);
    else if (order->kind == FEDGE_ORDER_CLOSE)
        close_phase(self, order->dropped);
    else if (order->slot < self->intake.num_slots &&
             fedge_intake_recall(&self->intake, order->slot))
        report_released(self, order->slot);
}

static void take_part(fedge_rank_worker *self, fedge_request *from)
{
    fedge_error err;
    uint32_t slot = 0;
    /* Otherwise the part was on its way when the slot moved to another rank or the device
     * reconnected. */
    if (fedge_intake_find(&self->intake, from->message.position.task_id, &slot) &&
        self->intake.slots[slot].conn_id == from->conn_id &&
        self->intake.slots[slot].holder.uploading &&
        fedge_intake_part(&self->intake, slot, from, fedge_os_monotonic_ms(), &err) != FEDGE_OK)
        fail(self, &err);
}

static uint64_t size_of(const fedge_request *request)
{
    return sizeof(*request) + request->meta_size + request->payload_size;
}

static void run_task(void *user, uint32_t worker, fedge_work *work)
{
    fedge_rank_worker *self = user;
    task *posted = (task *)work;
    (void)worker;
    if (posted->request) {
        const uint64_t size = size_of(posted->request);
        if (!atomic_load(&self->stopped))
            take_part(self, posted->request);
        /* Peers resume at half; else they would be paused and resumed for each part. */
        if (atomic_fetch_sub(&self->queued, size) - size <= FEDGE_RANK_WORKER_INBOX_BYTES / 2 &&
            atomic_exchange(&self->was_full, false) && !atomic_load(&self->stopped))
            resume_all(self);
        fedge_request_free(posted->request);
    } else if (posted->wanted) {
        free(self->wanted);
        self->wanted = posted->wanted;
    } else if (!atomic_load(&self->stopped)) {
        carry_out(self, posted);
    }
    free(posted);
}

/* ---- from other threads ---------------------------------------------------------------------- */

void fedge_rank_worker_connect(fedge_rank_worker *worker,
                               const fedge_rank_worker_callbacks *callbacks)
{
    worker->out = *callbacks;
}

bool fedge_rank_worker_post(fedge_rank_worker *worker, fedge_request *request)
{
    task *posted = calloc(1, sizeof(*posted));
    const uint64_t size = size_of(request);
    if (!posted) {
        fedge_error err;
        (void)fedge_fail(&err, FEDGE_NO_MEMORY, "no memory for a part of an upload");
        fedge_request_free(request);
        worker->out.fail(worker->out.user, &err);
        return true;
    }
    posted->work.run = run_task;
    posted->request = request;
    const bool full =
        atomic_fetch_add(&worker->queued, size) + size > FEDGE_RANK_WORKER_INBOX_BYTES;
    if (full) { /* set before the post, as in engine_thread.c */
        atomic_store(&worker->was_full, true);
    }
    fedge_worker_pool_post(worker->thread, 0, &posted->work);
    return !full;
}

fedge_status fedge_rank_worker_order(fedge_rank_worker *worker, const fedge_order *order,
                                     const void *bytes, fedge_error *err)
{
    task *posted = calloc(1, sizeof(*posted) + order->size);
    if (!posted)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an order of rank 0");
    posted->work.run = run_task;
    posted->order = *order;
    if (order->size > 0)
        memcpy(posted->bytes, bytes, order->size);
    fedge_worker_pool_post(worker->thread, 0, &posted->work);
    return FEDGE_OK;
}

fedge_status fedge_rank_worker_change_gpus(fedge_rank_worker *worker,
                                           const fedge_accumulator_config *sums, fedge_error *err)
{
    task *posted = calloc(1, sizeof(*posted));
    fedge_accumulator_config *wanted = malloc(sizeof(*wanted));
    if (!posted || !wanted) {
        free(posted);
        free(wanted);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to change GPUs; ask again");
    }
    *wanted = *sums;
    wanted->log = worker->config.sums.log;
    *posted = (task){.work = {.run = run_task}, .wanted = wanted};
    fedge_worker_pool_post(worker->thread, 0, &posted->work);
    return FEDGE_OK;
}

fedge_accumulator *fedge_rank_worker_accumulator(fedge_rank_worker *worker)
{
    return &worker->accumulator;
}

/* ---- the start ------------------------------------------------------------------------------- */

static fedge_status make(fedge_rank_worker *self, fedge_error *err)
{
    const fedge_worker_pool_config thread = {
        .name = "rank worker", .thread = "rank worker", .num_workers = 1, .user = self};
    FEDGE_TRY(open_sums(self, err));
    FEDGE_TRY(fedge_worker_pool_new(&self->thread, &thread, err));
    FEDGE_TRY(fedge_mailbox_new(&self->completions, wake, self, err));
    FEDGE_TRY(fedge_ingest_new(&self->ingest, &self->config.job->plan, &self->accumulator,
                               self->completions, self->config.num_workers, err));
    self->look.run = look;
    self->intake = (fedge_intake){.ingest = self->ingest, .reply = reply, .user = self};
    return FEDGE_OK;
}

/* Recovers this rank's updates of a phase, gets their weights from rank 0 and sums them. */
static fedge_status recover_updates(fedge_rank_worker *self, const fedge_journal_phase *phase,
                                    const fedge_journal_task *tasks, fedge_error *err)
{
    fedge_recovered_updates recovered = {0};
    const uint32_t rank = self->disks.rank;
    fedge_error why;
    forget_phase(self);
    fedge_status status = fedge_recovered_updates_read(&recovered, self->config.state_dir,
                                                       &self->disks, phase, self->config.log, err);
    status = fedge_rendezvous_send_updates(self->config.collective, &recovered, status, err);
    const fedge_status weighed = fedge_rendezvous_receive_weights(
        self->config.collective, &recovered, &why); /* rank 0 reports [why] */
    if (status == FEDGE_OK && weighed == FEDGE_OK) {
        status = fedge_recovered_updates_sum(&recovered, &self->config.job->plan,
                                             &self->accumulator, rank, err);
        self->journal = recovered.journals[rank];
        recovered.journals[rank] = NULL;
        if (status == FEDGE_OK && self->journal)
            status = fedge_intake_begin(&self->intake, self->journal, err);
        else if (status == FEDGE_OK)
            status = make_journal(self, phase, tasks, err);
    }
    fedge_recovered_updates_free(&recovered);
    self->phase = 1; /* rank 0 numbers the phase alike */
    return fedge_collective_agree(self->config.collective, status, NULL, 0, err);
}

static fedge_status receive_phase(fedge_rank_worker *self, uint32_t num_tasks, fedge_error *err)
{
    fedge_journal_phase phase;
    fedge_journal_task *tasks = calloc(num_tasks, sizeof(*tasks));
    if (!tasks) { /* rank 0 would wait forever */
        fedge_collective ending = *self->config.collective;
        fedge_collective_abort(&ending, 1);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a cohort of %u", num_tasks);
    }
    fedge_rendezvous_broadcast_phase(self->config.collective, &phase, tasks, num_tasks);
    const fedge_status status = recover_updates(self, &phase, tasks, err);
    free(tasks);
    return status;
}

static fedge_status follow_rank_0(fedge_rank_worker *self, fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    for (;;) {
        fedge_rendezvous_command command;
        fedge_collective_broadcast(self->config.collective, &command, sizeof(command), 0);
        switch ((fedge_rendezvous_command_kind)command.kind) {
        case FEDGE_RENDEZVOUS_RECOVER:
            status = receive_phase(self, command.num_tasks, err);
            break;
        case FEDGE_RENDEZVOUS_SUMS:
            status = fedge_distributed_follow(&self->accumulator, status, err);
            break;
        case FEDGE_RENDEZVOUS_END:
            return status;
        }
    }
}

static fedge_status make_dir(fedge_rank_worker *self, fedge_error *err)
{
    FEDGE_TRY(
        fedge_disk_folder(self->config.state_dir, self->run_id, self->disks.rank, self->dir, err));
    return fedge_os_make_dirs(self->dir, err);
}

static fedge_status recover(fedge_rank_worker *self, fedge_error *err)
{
    const fedge_status status = make_dir(self, err);
    /* A failed rank follows, too: rank 0 waits for this rank in each command. */
    const fedge_status followed = follow_rank_0(self, status == FEDGE_OK ? err : &(fedge_error){0});
    return status == FEDGE_OK ? followed : status;
}

fedge_status fedge_rank_worker_open(const fedge_rank_worker_config *config,
                                    fedge_rank_worker **worker, fedge_error *err)
{
    *worker = NULL;
    fedge_rank_worker *fresh = calloc(1, sizeof(*fresh));
    fedge_state no_state = {.lock = -1};
    fedge_status status = FEDGE_NO_MEMORY;
    fedge_rank_disks none;
    char run_id[FEDGE_RUN_ID_TEXT];
    if (!fresh) {
        (void)fedge_fail(err, FEDGE_NO_MEMORY, "no memory for the rank worker");
        return fedge_rendezvous(config->collective, status, config->state_dir, run_id, &none,
                                &no_state, err);
    }
    fresh->config = *config;
    fresh->state.lock = -1;
    status = make(fresh, err);
    FEDGE_TRY_OR(fedge_rendezvous(config->collective, status, config->state_dir, fresh->run_id,
                                  &fresh->disks, &fresh->state, err),
                 failed);
    FEDGE_TRY_OR(recover(fresh, err), failed);
    *worker = fresh;
    return FEDGE_OK;
failed:
    fedge_rank_worker_free(fresh);
    return status;
}

static void nothing(void *user, uint32_t worker)
{
    (void)user, (void)worker;
}

void fedge_rank_worker_stop(fedge_rank_worker *worker)
{
    if (!worker)
        return;
    atomic_store(&worker->stopped, true);
    fedge_worker_pool_begin(worker->thread, nothing, NULL);
    fedge_worker_pool_end(worker->thread);
}

void fedge_rank_worker_free(fedge_rank_worker *worker)
{
    if (!worker)
        return;
    atomic_store(&worker->stopped, true);
    fedge_ingest_free(worker->ingest);
    fedge_worker_pool_free(worker->thread);
    fedge_mailbox_item *item = worker->completions ? fedge_mailbox_take(worker->completions) : NULL;
    for (fedge_mailbox_item *next; item; item = next) {
        next = item->next;
        free(item);
    }
    fedge_mailbox_free(worker->completions);
    forget_phase(worker);
    free(worker->wanted);
    fedge_accumulator_close(&worker->accumulator);
    fedge_state_close(&worker->state);
    free(worker);
}
