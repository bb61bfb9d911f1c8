#include "aggregator/run/ingest/ingest.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/ingest/upload.h"
#include "aggregator/threads/worker_pool.h"
#include "edge/core/os.h"
#include "edge/plan/update.h"

/* A worker's task for one slot; [next] is the next of its group. */
typedef struct item {
    fedge_work work;
    struct item *next;
    fedge_journal *journal;
    uint32_t slot;
    uint64_t task_id;       /* argument of rewind_slot */
    fedge_ingest_part part; /* argument of write_part; its data lies in block */
    uint8_t *block;
    fedge_journal_task assigned;   /* argument of assign_slot */
    fedge_ingest_upload *incoming; /* argument of finish_update */
    fedge_upload_source source;
    bool added; /* the sums include it */
    fedge_completion *completion;
} item;

typedef struct worker {
    fedge_ingest *ingest;
    pthread_mutex_t mutex;    /* guards the next two members */
    bool back_pressure;       /* a caller has paused its peer */
    fedge_completion *resume; /* posted when the queue has capacity again */
    fedge_completion *fatal;  /* posted when the disk fails; NULL afterwards */
    _Atomic uint64_t queued_bytes;
    item *group, **group_tail; /* validated and appended, not yet synced */
    uint64_t ticket;           /* ticket of the last addition to the accumulator */
    uint32_t group_size;
    uint64_t group_started_ns;
} worker;

struct fedge_ingest {
    const fedge_plan *plan;
    fedge_accumulator *accumulator;
    fedge_mailbox *mailbox;
    fedge_worker_pool *pool;
    uint32_t num_workers;
    _Atomic uint64_t validate_ns, journal_ns, sum_ns;
    fedge_upload_buffers buffers;
    pthread_mutex_t failed_lock;
    fedge_error failed; /* first fatal failure; FEDGE_OK: none */
    worker workers[];
};

static void work_free(item *work)
{
    free(work->block);
    free(work->incoming);
    free(work->completion);
    free(work);
}

fedge_status fedge_ingest_replay(const fedge_plan *plan, fedge_accumulator *accumulator,
                                 fedge_journal *journal, uint32_t slot, const fedge_upload *upload,
                                 uint32_t weight, fedge_error *err)
{
    fedge_upload_buffer buffer = {0};
    fedge_upload_source source;
    uint64_t ticket = 0;
    fedge_status status;
    FEDGE_TRY_OR(
        fedge_upload_source_open(&source, plan, journal, slot, upload, weight, &buffer, err), done);
    FEDGE_TRY_OR(fedge_upload_source_validate(&source, accumulator, err), done);
    FEDGE_TRY_OR(
        fedge_accumulator_add(accumulator, &(fedge_encoded *){&source.encoded}, 1, &ticket, err),
        done);
    /* The accumulator may read from the buffer until then. */
    status = fedge_accumulator_wait(accumulator, ticket, err);
done:
    fedge_upload_buffer_fini(&buffer);
    return status;
}

/* ---- the worker's side ----------------------------------------------------------------------- */

static void post_result(worker *self, item *work, fedge_status status, const fedge_error *err)
{
    fedge_completion *completion = work->completion;
    work->completion = NULL;
    completion->status = status;
    /* A success needs no message. */
    if (status != FEDGE_OK)
        memcpy(completion->message, err->message, sizeof(completion->message));
    fedge_mailbox_post(self->ingest->mailbox, &completion->item);
    work_free(work);
}

/* Posts a failure of the disk or the sums, once. From here on nothing is acknowledged, and no step
 * is taken. */
static void post_fatal(worker *self, const fedge_error *err)
{
    fedge_ingest *ingest = self->ingest;
    /* The engine's thread reads it before a step, so it must be set even when the completion below
     * was used up by an earlier failure. */
    pthread_mutex_lock(&ingest->failed_lock);
    if (ingest->failed.status == FEDGE_OK)
        ingest->failed = *err;
    pthread_mutex_unlock(&ingest->failed_lock);
    fedge_completion *completion = self->fatal;
    if (completion) {
        self->fatal = NULL;
        completion->status = err->status;
        memcpy(completion->message, err->message, sizeof(completion->message));
        fedge_mailbox_post(self->ingest->mailbox, &completion->item);
    }
}

/* Adds the updates of a group that are not in the sums yet, some at a time. */
static fedge_status add_group(worker *self, fedge_error *err)
{
    fedge_ingest *ingest = self->ingest;
    fedge_encoded *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
    const uint64_t start = fedge_os_monotonic_ns();
    uint32_t count = 0;
    for (item *work = self->group; work; work = work->next) {
        /* Counted as added before the call: when it fails, part of the batch may be in the sums,
         * and none of the group is tried again. */
        if (!work->added) {
            batch[count++] = &work->source.encoded;
            work->added = true;
        }
        if (count > 0 && (count == FEDGE_ACCUMULATOR_MAX_BATCH || !work->next)) {
            FEDGE_TRY(fedge_accumulator_add(ingest->accumulator, batch, count, &self->ticket, err));
            count = 0;
        }
    }
    atomic_fetch_add(&ingest->sum_ns, fedge_os_monotonic_ns() - start);
    return FEDGE_OK;
}

/* An ACK promises this order: on the disk first, then in the sums, then acknowledged. After a crash
 * between any two, recovery finds the update in the journal and adds it again; the client sends it
 * again and gets the ACK of a duplicate. */
static fedge_status sync_and_add(worker *self, fedge_error *err)
{
    const uint64_t start = fedge_os_monotonic_ns();
    FEDGE_TRY(fedge_journal_sync(self->group->journal, err));
    atomic_fetch_add(&self->ingest->journal_ns, fedge_os_monotonic_ns() - start);
    return add_group(self, err);
}

static void sync_group(worker *self)
{
    if (!self->group)
        return;
    fedge_error err;
    const fedge_status status = sync_and_add(self, &err);
    item *work = self->group;
    self->group = NULL;
    self->group_tail = &self->group;
    self->group_size = 0;
    /* This comes before the items are freed: the engine must not wait for their answers. */
    if (status != FEDGE_OK)
        post_fatal(self, &err);
    for (item *next; work; work = next) {
        next = work->next;
        if (status == FEDGE_OK)
            post_result(self, work, FEDGE_OK, NULL);
        else
            work_free(work); /* it is not durable or not in the sums, so nobody is answered */
    }
}

/* Waits until the sums have all that was added. */
static void wait_for_sums(worker *self)
{
    /* The last ticket covers all before it. */
    fedge_error err;
    if (fedge_accumulator_wait(self->ingest->accumulator, self->ticket, &err) != FEDGE_OK)
        post_fatal(self, &err);
}

/* True unless the failure is the peer's fault. */
static bool is_ours(fedge_status status)
{
    return status == FEDGE_IO || status == FEDGE_NO_SPACE || status == FEDGE_NO_MEMORY ||
           status == FEDGE_GPU_LOST;
}

/* Reads every byte once more from the file: what is summed is what will be replayed. */
static fedge_status validate(fedge_ingest *ingest, item *work, fedge_upload_buffer *buffer,
                             fedge_error *err)
{
    FEDGE_TRY(fedge_upload_source_open(&work->source, ingest->plan, work->journal, work->slot,
                                       &work->incoming->upload, work->incoming->weight, buffer,
                                       err));
    return fedge_upload_source_validate(&work->source, ingest->accumulator, err);
}

/* Checks and appends one update. An update that lies in its buffer is added at once, since the next
 * one needs the buffer; others are added with their group. *fatal: the peer is not at fault. */
static fedge_status take_update(worker *self, item *work, fedge_upload_buffer *buffer, bool *fatal,
                                fedge_error *err)
{
    fedge_ingest *ingest = self->ingest;
    const fedge_ingest_upload *incoming = work->incoming;
    const fedge_upload *upload = &incoming->upload;
    fedge_encoded *encoded = &work->source.encoded;
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status = validate(ingest, work, buffer, err);
    uint64_t validated = fedge_os_monotonic_ns();
    atomic_fetch_add(&ingest->validate_ns, validated - start);
    *fatal = is_ours(status);
    if (status != FEDGE_OK)
        return status;
    /* Nothing is journalled that has not been decoded: recovery adds what it finds there without
     * asking a client again. */
    status = fedge_journal_accept(work->journal, work->slot, upload->task_id, upload->size,
                                  upload->crc32, incoming->meta, incoming->meta_size, err);
    uint64_t appended = fedge_os_monotonic_ns();
    atomic_fetch_add(&ingest->journal_ns, appended - validated);
    *fatal = is_ours(status);
    if (status != FEDGE_OK) {
        fedge_accumulator_drop(ingest->accumulator, encoded);
        return status;
    }
    if (encoded->bytes && !encoded->copied) {
        status = fedge_accumulator_add(ingest->accumulator, &encoded, 1, &self->ticket, err);
        work->added = true;
        *fatal = status != FEDGE_OK; /* the journal has it, but not the sums */
        atomic_fetch_add(&ingest->sum_ns, fedge_os_monotonic_ns() - appended);
    }
    return status;
}

static worker *worker_at(void *ingest, uint32_t index)
{
    return &((fedge_ingest *)ingest)->workers[index];
}

static void finish_update(void *user, uint32_t index, fedge_work *posted)
{
    worker *self = worker_at(user, index);
    item *work = (item *)posted;
    fedge_error err;
    bool fatal;
    fedge_upload_buffers *buffers = &self->ingest->buffers;
    fedge_upload_buffer *buffer =
        fedge_upload_needs_buffer(self->ingest->plan, &work->incoming->upload)
            ? fedge_upload_buffers_take(buffers)
            : NULL;
    fedge_status status = take_update(self, work, buffer, &fatal, &err);
    if (buffer)
        fedge_upload_buffers_give_back(buffers, buffer);
    if (fatal) {
        post_fatal(self, &err);
        work_free(work);
    } else if (status != FEDGE_OK) {
        post_result(self, work, status, &err);
    } else {
        /* The group's age is that of its oldest update, which no later one may prolong. */
        if (!self->group)
            self->group_started_ns = fedge_os_monotonic_ns();
        work->next = NULL;
        *self->group_tail = work;
        self->group_tail = &work->next;
        if (++self->group_size == FEDGE_INGEST_MAX_GROUP)
            sync_group(self);
    }
}

/* Ends back pressure once the queue has room again. The part that found the queue full was queued
 * after the flag was set, so it comes here at the latest. */
static void end_back_pressure(worker *self)
{
    /* Under the lock, since the engine may be setting the flag at this moment; posted outside it,
     * since posting wakes the engine, which takes the lock. */
    pthread_mutex_lock(&self->mutex);
    fedge_completion *resume = self->back_pressure ? self->resume : NULL;
    if (resume) {
        self->back_pressure = false;
        self->resume = NULL;
    }
    pthread_mutex_unlock(&self->mutex);
    if (resume)
        fedge_mailbox_post(self->ingest->mailbox, &resume->item);
}

/* True when the slot was reassigned, accepted or closed meanwhile, and takes no more bytes: nothing
 * is wrong with the disk. */
static bool is_overtaken(fedge_status status)
{
    return status == FEDGE_STALE || status == FEDGE_DUPLICATE || status == FEDGE_CLOSED;
}

static void write_part(void *user, uint32_t index, fedge_work *posted)
{
    worker *self = worker_at(user, index);
    item *work = (item *)posted;
    const fedge_ingest_part *part = &work->part;
    fedge_error err;
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status = fedge_journal_write(work->journal, work->slot, part->task_id,
                                              part->offset, part->data, part->size, &err);
    if (status != FEDGE_OK && !is_overtaken(status))
        post_fatal(self, &err);
    atomic_fetch_add(&self->ingest->journal_ns, fedge_os_monotonic_ns() - start);
    /* The part counts until now: the bound is on memory, and the block is freed below. */
    const uint64_t queued = atomic_fetch_sub(&self->queued_bytes, part->size);
    assert(queued >= part->size);
    const uint64_t left = queued - part->size;
    work_free(work);
    /* Peers resume at half, not at the first free byte; else they would be paused and resumed for
     * each part. */
    if (left <= FEDGE_INGEST_QUEUE_BYTES / 2)
        end_back_pressure(self);
}

static void end_update_slot(worker *self, item *work, fedge_status status, fedge_error *err)
{
    if (status == FEDGE_TOO_BIG) { /* no space for another record: the task is lost */
        post_result(self, work, FEDGE_STALE, err);
        return;
    }
    if (status != FEDGE_OK && !is_overtaken(status))
        post_fatal(self, err);
    work_free(work);
}

static void assign_slot(void *user, uint32_t index, fedge_work *posted)
{
    fedge_error err;
    item *work = (item *)posted;
    const fedge_status status =
        fedge_journal_assign(work->journal, work->slot, &work->assigned, &err);
    end_update_slot(worker_at(user, index), work, status, &err);
}

static void rewind_slot(void *user, uint32_t index, fedge_work *posted)
{
    fedge_error err;
    item *work = (item *)posted;
    const fedge_status status =
        fedge_journal_rewind(work->journal, work->slot, work->task_id, &err);
    end_update_slot(worker_at(user, index), work, status, &err);
}

/* Syncs a group when there is no other work, or when an update has waited long enough for others: a
 * worker that always has parts to write must not keep clients waiting. */
static bool sync_due_group(void *user, uint32_t index, bool more)
{
    worker *self = worker_at(user, index);
    const bool due = self->group && (!more || fedge_os_monotonic_ns() - self->group_started_ns >=
                                                  FEDGE_INGEST_GROUP_NS);
    if (due)
        sync_group(self);
    return due;
}

static void flush(void *user, uint32_t index)
{
    worker *self = worker_at(user, index);
    sync_group(self);
    wait_for_sums(self);
}

/* ---- the engine's side ----------------------------------------------------------------------- */

static void push(fedge_ingest *ingest, item *work)
{
    /* All of a slot's work goes to one worker, so its parts, its rewinds and its end keep their
     * order without a lock. */
    fedge_worker_pool_post(ingest->pool, work->slot % ingest->num_workers, &work->work);
}

static worker *worker_of(fedge_ingest *ingest, uint32_t slot)
{
    return &ingest->workers[slot % ingest->num_workers];
}

static fedge_status worker_init(worker *self, fedge_ingest *ingest, fedge_error *err)
{
    self->ingest = ingest;
    self->group_tail = &self->group;
    /* Allocated now: lack of memory is one of the failures that it reports. */
    self->fatal = calloc(1, sizeof(*self->fatal));
    if (!self->fatal)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an ingest worker");
    self->fatal->type = FEDGE_COMPLETION_FATAL;
    pthread_mutex_init(&self->mutex, NULL);
    return FEDGE_OK;
}

static void worker_fini(worker *self)
{
    pthread_mutex_destroy(&self->mutex);
    free(self->resume);
    free(self->fatal);
}

fedge_status fedge_ingest_new(fedge_ingest **ingest, const fedge_plan *plan,
                              fedge_accumulator *accumulator, fedge_mailbox *mailbox,
                              uint32_t num_workers, fedge_error *err)
{
    *ingest = NULL;
    if (num_workers == 0 || num_workers > FEDGE_INGEST_MAX_WORKERS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u ingest workers: use 1 to %d", num_workers,
                          FEDGE_INGEST_MAX_WORKERS);
    }
    fedge_ingest *fresh = calloc(1, sizeof(*fresh) + num_workers * sizeof(worker));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u ingest workers", num_workers);
    fresh->plan = plan;
    fresh->accumulator = accumulator;
    fresh->mailbox = mailbox;
    pthread_mutex_init(&fresh->failed_lock, NULL);
    fedge_upload_buffers_init(&fresh->buffers, fedge_update_max_size(plan), num_workers);
    fedge_status status;
    for (; fresh->num_workers < num_workers; fresh->num_workers++)
        FEDGE_TRY_OR(worker_init(&fresh->workers[fresh->num_workers], fresh, err), failed);
    const fedge_worker_pool_config config = {.name = "ingest thread",
                                             .advice = "give a smaller --workers",
                                             .thread = "ingest",
                                             .num_workers = num_workers,
                                             .user = fresh,
                                             .between = sync_due_group};
    FEDGE_TRY_OR(fedge_worker_pool_new(&fresh->pool, &config, err), failed);
    *ingest = fresh;
    return FEDGE_OK;
failed:
    fedge_ingest_free(fresh);
    return status;
}

void fedge_ingest_free(fedge_ingest *ingest)
{
    if (!ingest)
        return;
    /* Its threads finish what was posted, and use all that is freed below. */
    fedge_worker_pool_free(ingest->pool);
    for (uint32_t i = 0; i < ingest->num_workers; i++)
        worker_fini(&ingest->workers[i]);
    fedge_upload_buffers_fini(&ingest->buffers);
    pthread_mutex_destroy(&ingest->failed_lock);
    free(ingest);
}

fedge_status fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                const fedge_ingest_part *part, uint8_t **block, bool *full,
                                fedge_error *err)
{
    const uint32_t size = part->size;
    worker *target = worker_of(ingest, slot);
    *full = false;
    item *work = calloc(1, sizeof(*work));
    /* A part in a block of its own is not copied; any other is. */
    uint8_t *bytes = block ? *block : malloc(size);
    if (!work || !bytes) {
        free(work);
        free(block ? NULL : bytes);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u bytes of an upload", size);
    }
    *work = (item){.work = {.run = write_part},
                   .journal = journal,
                   .slot = slot,
                   .part = *part,
                   .block = bytes};
    if (block)
        *block = NULL;
    else
        work->part.data = memcpy(bytes, part->data, size);
    /* This precedes the post: the worker subtracts the part when it is written, perhaps at once. */
    uint64_t queued = atomic_fetch_add(&target->queued_bytes, size) + size;
    /* The part is queued all the same, since its bytes are here. Each connection exceeds the limit
     * by one part at most: then it is paused. */
    if (queued > FEDGE_INGEST_QUEUE_BYTES) {
        pthread_mutex_lock(&target->mutex);
        if (!target->resume)
            target->resume = calloc(1, sizeof(*target->resume));
        /* Without memory for the completion the peer is not paused: nothing would resume it. */
        if (target->resume) {
            target->resume->type = FEDGE_COMPLETION_RESUME;
            target->back_pressure = true;
            *full = true;
        }
        pthread_mutex_unlock(&target->mutex);
    }
    push(ingest, work);
    return FEDGE_OK;
}

fedge_status fedge_ingest_finish(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 fedge_ingest_upload *upload, fedge_error *err)
{
    item *work = calloc(1, sizeof(*work));
    fedge_completion *completion = calloc(1, sizeof(*completion));
    if (!work || !completion) {
        free(work);
        free(completion);
        free(upload);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to finish an upload");
    }
    completion->type = FEDGE_COMPLETION_VALIDATED;
    completion->task_id = upload->upload.task_id;
    completion->slot = slot;
    *work = (item){.work = {.run = finish_update},
                   .journal = journal,
                   .slot = slot,
                   .incoming = upload,
                   .completion = completion};
    push(ingest, work);
    return FEDGE_OK;
}

static fedge_status push_copy(fedge_ingest *ingest, const item *wanted, fedge_error *err)
{
    item *work = malloc(sizeof(*work));
    fedge_completion *completion = calloc(1, sizeof(*completion));
    if (!work || !completion) {
        free(work);
        free(completion);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a journal record");
    }
    completion->type = FEDGE_COMPLETION_VALIDATED;
    completion->task_id = wanted->assigned.task_id;
    completion->slot = wanted->slot;
    *work = *wanted;
    work->completion = completion;
    push(ingest, work);
    return FEDGE_OK;
}

fedge_status fedge_ingest_assign(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 const fedge_journal_task *task, fedge_error *err)
{
    return push_copy(
        ingest,
        &(item){.work = {.run = assign_slot}, .journal = journal, .slot = slot, .assigned = *task},
        err);
}

fedge_status fedge_ingest_rewind(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 uint64_t task_id, fedge_error *err)
{
    return push_copy(
        ingest,
        &(item){.work = {.run = rewind_slot}, .journal = journal, .slot = slot, .task_id = task_id},
        err);
}

fedge_status fedge_ingest_flush(fedge_ingest *ingest, fedge_error *err)
{
    /* The flush runs behind all that was posted before: when it ends, every update is on the disk
     * and in the sums, or the failure is noted. */
    fedge_worker_pool_begin(ingest->pool, flush, ingest);
    fedge_worker_pool_end(ingest->pool);
    /* Between phases nothing is unpacked, and the model takes memory for its file. */
    fedge_upload_buffers_empty(&ingest->buffers);
    pthread_mutex_lock(&ingest->failed_lock);
    const fedge_error failed = ingest->failed;
    pthread_mutex_unlock(&ingest->failed_lock);
    return failed.status == FEDGE_OK ? FEDGE_OK
                                     : fedge_fail(err, failed.status, "%s", failed.message);
}

void fedge_ingest_get_stats(const fedge_ingest *ingest, fedge_ingest_stats *stats)
{
    *stats = (fedge_ingest_stats){.validate_ns = atomic_load(&ingest->validate_ns),
                                  .journal_ns = atomic_load(&ingest->journal_ns),
                                  .sum_ns = atomic_load(&ingest->sum_ns)};
    for (uint32_t i = 0; i < ingest->num_workers; i++)
        stats->queued_bytes += atomic_load(&ingest->workers[i].queued_bytes);
}
