#include "aggregator/server/ingest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/io/update.h"

typedef enum job_type { JOB_WRITE, JOB_REWIND, JOB_ASSIGN, JOB_FINISH, JOB_FLUSH } job_type;

/* A latch that a flush waits on until every worker has passed it. */
typedef struct latch {
    pthread_mutex_t mutex;
    pthread_cond_t passed;
    uint32_t left;
} latch;

typedef struct job {
    struct job *next;
    job_type type;
    fedge_journal *journal;
    uint32_t slot;
    uint64_t task_id; /* WRITE, REWIND */
    uint64_t offset;  /* WRITE */
    uint32_t size;
    uint8_t *data;
    fedge_journal_task assigned;   /* ASSIGN */
    fedge_ingest_upload *incoming; /* FINISH */
    const int8_t *bounds_log2;
    fedge_mail *mail;
    latch *latch; /* FLUSH */
} job;

/* Where one update is unpacked. */
typedef struct space {
    int32_t *v;       /* as many as the plan sends */
    uint8_t *bytes;   /* as uploaded */
    uint8_t *scratch; /* inflated */
    size_t size;      /* of bytes and of scratch */
} space;

typedef struct worker {
    fedge_ingest *ingest;
    fedge_device *device;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    job *head, **tail;
    bool stop;
    bool was_full;      /* a pusher was told so and waits for relief */
    fedge_mail *relief; /* posted when the queue has room again */
    fedge_mail *fatal;  /* posted when the disk fails; NULL afterwards */
    _Atomic uint64_t queued_bytes;
    space space;
    job flush;                /* the marker of a flush; there is one flush at a time */
    job *group, **group_tail; /* validated and appended, not yet synced */
    uint32_t group_size;
    uint64_t group_started_ns;
} worker;

struct fedge_ingest {
    const fedge_plan *plan;
    fedge_device *devices;
    uint32_t num_devices;
    fedge_mailbox *mailbox;
    uint32_t num_workers;
    _Atomic uint64_t validate_ns, journal_ns, sum_ns;
    worker workers[];
};

static void job_free(job *work)
{
    free(work->data);
    free(work->incoming);
    free(work->mail);
    free(work);
}

static fedge_status space_init(space *room, const fedge_plan *plan, fedge_error *err)
{
    room->size = fedge_update_max_size(plan);
    room->v = malloc(plan->sent.schema.num_elements * sizeof(*room->v));
    room->bytes = malloc(room->size);
    room->scratch = malloc(room->size);
    if (!room->v || !room->bytes || !room->scratch) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to unpack updates of %zu elements",
                          plan->sent.schema.num_elements);
    }
    return FEDGE_OK;
}

static void space_fini(space *room)
{
    free(room->v);
    free(room->bytes);
    free(room->scratch);
}

static fedge_status unpack(const fedge_plan *plan, space *room, fedge_journal *journal,
                           uint32_t slot, const fedge_upload *upload, const int8_t *bounds_log2,
                           fedge_error *err)
{
    if (upload->size > room->size) {
        return fedge_fail(err, FEDGE_TOO_BIG, "upload of %llu bytes; the plan allows %zu",
                          (unsigned long long)upload->size, room->size);
    }
    fedge_status status =
        fedge_journal_read(journal, slot, 0, room->bytes, (size_t)upload->size, err);
    if (status != FEDGE_OK) {
        return status;
    }
    return fedge_update_decode(plan, bounds_log2, upload, room->bytes, room->scratch, room->size,
                               room->v, err);
}

fedge_status fedge_ingest_replay(const fedge_plan *plan, fedge_device *device,
                                 fedge_journal *journal, uint32_t slot, const fedge_upload *upload,
                                 const int8_t *bounds_log2, uint32_t weight, fedge_error *err)
{
    space room = {0};
    fedge_status status = space_init(&room, plan, err);
    if (status == FEDGE_OK) {
        status = unpack(plan, &room, journal, slot, upload, bounds_log2, err);
    }
    if (status == FEDGE_OK) {
        status = fedge_device_accumulate(device, room.v, weight, err);
    }
    space_fini(&room);
    return status;
}

/* ---- the worker's side ----------------------------------------------------------------------- */

static void post_result(worker *self, job *work, fedge_status status, const fedge_error *err)
{
    fedge_mail *mail = work->mail;
    work->mail = NULL;
    mail->status = status;
    if (status != FEDGE_OK) {
        memcpy(mail->message, err->message, sizeof(mail->message));
    }
    fedge_mailbox_post(self->ingest->mailbox, mail);
    job_free(work);
}

/* The disk failed: said once; from here on nothing is acknowledged. */
static void post_fatal(worker *self, const fedge_error *err)
{
    fedge_mail *mail = self->fatal;
    if (mail) {
        self->fatal = NULL;
        mail->status = err->status;
        memcpy(mail->message, err->message, sizeof(mail->message));
        fedge_mailbox_post(self->ingest->mailbox, mail);
    }
}

static void sync_group(worker *self)
{
    if (!self->group) {
        return;
    }
    fedge_error err;
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status = fedge_journal_sync(self->group->journal, &err);
    atomic_fetch_add(&self->ingest->journal_ns, fedge_os_monotonic_ns() - start);
    job *work = self->group;
    self->group = NULL;
    self->group_tail = &self->group;
    self->group_size = 0;
    if (status != FEDGE_OK) {
        post_fatal(self, &err);
    }
    for (job *next; work; work = next) {
        next = work->next;
        if (status == FEDGE_OK) {
            post_result(self, work, FEDGE_OK, NULL);
        } else {
            job_free(work); /* no answer: it is not durable */
        }
    }
}

/* Decodes, appends and sums one update. *fatal: the failure is the disk's or ours, not the peer's.
 */
static fedge_status take_update(worker *self, job *work, bool *fatal, fedge_error *err)
{
    fedge_ingest *ingest = self->ingest;
    const fedge_ingest_upload *incoming = work->incoming;
    const fedge_upload *upload = &incoming->upload;
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status = unpack(ingest->plan, &self->space, work->journal, work->slot, upload,
                                 work->bounds_log2, err);
    uint64_t unpacked = fedge_os_monotonic_ns();
    atomic_fetch_add(&ingest->validate_ns, unpacked - start);
    *fatal = status == FEDGE_IO;
    if (status != FEDGE_OK) {
        return status;
    }
    status = fedge_journal_accept(work->journal, work->slot, upload->task_id, upload->size,
                                  upload->crc32, incoming->meta, incoming->meta_size, err);
    uint64_t appended = fedge_os_monotonic_ns();
    atomic_fetch_add(&ingest->journal_ns, appended - unpacked);
    *fatal = status == FEDGE_IO || status == FEDGE_NO_SPACE;
    if (status != FEDGE_OK) {
        return status;
    }
    status = fedge_device_accumulate(self->device, self->space.v, incoming->weight, err);
    atomic_fetch_add(&ingest->sum_ns, fedge_os_monotonic_ns() - appended);
    *fatal = status != FEDGE_OK; /* it is in the journal but not in the sum */
    return status;
}

static void finish_update(worker *self, job *work)
{
    fedge_error err;
    bool fatal;
    fedge_status status = take_update(self, work, &fatal, &err);
    if (fatal) {
        post_fatal(self, &err);
        job_free(work);
    } else if (status != FEDGE_OK) {
        post_result(self, work, status, &err);
    } else {
        if (!self->group) {
            self->group_started_ns = fedge_os_monotonic_ns();
        }
        work->next = NULL;
        *self->group_tail = work;
        self->group_tail = &work->next;
        if (++self->group_size == FEDGE_INGEST_MAX_GROUP) {
            sync_group(self);
        }
    }
}

/* Tells who was told that the queue is full that it no longer is. The part that found it full was
 * queued after the flag was set, so its own turn comes here at the latest. */
static void relieve(worker *self)
{
    pthread_mutex_lock(&self->mutex);
    fedge_mail *relief = self->was_full ? self->relief : NULL;
    if (relief) {
        self->was_full = false;
        self->relief = NULL;
    }
    pthread_mutex_unlock(&self->mutex);
    if (relief) {
        fedge_mailbox_post(self->ingest->mailbox, relief);
    }
}

/* A slot that was given away, accepted or closed meanwhile takes no more bytes: nothing is wrong
 * with the disk. */
static bool is_overtaken(fedge_status status)
{
    return status == FEDGE_STALE || status == FEDGE_DUPLICATE || status == FEDGE_CLOSED;
}

static void write_part(worker *self, job *work)
{
    fedge_error err;
    uint64_t start = fedge_os_monotonic_ns();
    fedge_status status = fedge_journal_write(work->journal, work->slot, work->task_id,
                                              work->offset, work->data, work->size, &err);
    if (status != FEDGE_OK && !is_overtaken(status)) {
        post_fatal(self, &err);
    }
    atomic_fetch_add(&self->ingest->journal_ns, fedge_os_monotonic_ns() - start);
    uint64_t left = atomic_fetch_sub(&self->queued_bytes, work->size) - work->size;
    job_free(work);
    if (left <= FEDGE_INGEST_QUEUE_BYTES / 2) {
        relieve(self);
    }
}

static void update_slot(worker *self, job *work)
{
    fedge_error err;
    fedge_status status =
        work->type == JOB_ASSIGN
            ? fedge_journal_assign(work->journal, work->slot, &work->assigned, &err)
            : fedge_journal_rewind(work->journal, work->slot, work->task_id, &err);
    if (status == FEDGE_TOO_BIG) { /* no room for one more record: the new task cannot be kept */
        post_result(self, work, FEDGE_STALE, &err);
        return;
    }
    if (status != FEDGE_OK && !is_overtaken(status)) {
        post_fatal(self, &err);
    }
    job_free(work);
}

static void pass(latch *gate)
{
    pthread_mutex_lock(&gate->mutex);
    if (--gate->left == 0) {
        pthread_cond_signal(&gate->passed);
    }
    pthread_mutex_unlock(&gate->mutex);
}

/* Nothing else is to be done, or an update has waited long enough for others to share its sync:
 * a worker that always has parts to write must not keep clients waiting. */
static bool is_group_due(const worker *self)
{
    return self->group && (!self->head || fedge_os_monotonic_ns() - self->group_started_ns >=
                                              FEDGE_INGEST_GROUP_NS);
}

static void *work_loop(void *arg)
{
    worker *self = arg;
    for (;;) {
        pthread_mutex_lock(&self->mutex);
        if (is_group_due(self)) {
            pthread_mutex_unlock(&self->mutex);
            sync_group(self);
            continue;
        }
        while (!self->head && !self->stop) {
            pthread_cond_wait(&self->filled, &self->mutex);
        }
        job *work = self->head;
        if (!work) {
            pthread_mutex_unlock(&self->mutex);
            return NULL;
        }
        self->head = work->next;
        if (!self->head) {
            self->tail = &self->head;
        }
        pthread_mutex_unlock(&self->mutex);
        if (work->type == JOB_WRITE) {
            write_part(self, work);
        } else if (work->type == JOB_FINISH) {
            finish_update(self, work);
        } else if (work->type == JOB_ASSIGN || work->type == JOB_REWIND) {
            update_slot(self, work);
        } else {
            sync_group(self);
            pass(work->latch);
        }
    }
}

/* ---- the service thread's side --------------------------------------------------------------- */

static void push(worker *target, job *work)
{
    work->next = NULL;
    pthread_mutex_lock(&target->mutex);
    *target->tail = work;
    target->tail = &work->next;
    pthread_cond_signal(&target->filled);
    pthread_mutex_unlock(&target->mutex);
}

static worker *worker_of(fedge_ingest *ingest, uint32_t slot)
{
    return &ingest->workers[slot % ingest->num_workers];
}

static fedge_status worker_start(worker *self, fedge_ingest *ingest, fedge_error *err)
{
    self->ingest = ingest;
    self->tail = &self->head;
    self->group_tail = &self->group;
    self->fatal = calloc(1, sizeof(*self->fatal));
    if (!self->fatal) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an ingest worker");
    }
    self->fatal->type = FEDGE_MAIL_FATAL;
    fedge_status status = space_init(&self->space, ingest->plan, err);
    if (status != FEDGE_OK) {
        return status;
    }
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->filled, NULL);
    int failed = pthread_create(&self->thread, NULL, work_loop, self);
    if (failed) {
        return fedge_fail_errno(err, failed, "cannot start an ingest thread");
    }
    return FEDGE_OK;
}

static void worker_release(worker *self)
{
    space_fini(&self->space);
    free(self->relief);
    free(self->fatal);
}

fedge_status fedge_ingest_new(fedge_ingest **ingest, const fedge_plan *plan, fedge_device *devices,
                              uint32_t num_devices, fedge_mailbox *mailbox, uint32_t num_workers,
                              fedge_error *err)
{
    *ingest = NULL;
    if (num_workers == 0 || num_workers > FEDGE_INGEST_MAX_WORKERS) {
        return fedge_fail(err, FEDGE_OUT_OF_RANGE, "%u ingest workers: use 1 to %d", num_workers,
                          FEDGE_INGEST_MAX_WORKERS);
    }
    fedge_ingest *fresh = calloc(1, sizeof(*fresh) + num_workers * sizeof(worker));
    if (!fresh) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u ingest workers", num_workers);
    }
    fresh->plan = plan;
    fresh->devices = devices;
    fresh->num_devices = num_devices;
    fresh->mailbox = mailbox;
    for (uint32_t i = 0; i < num_workers; i++) {
        fresh->workers[i].device = &devices[i % num_devices];
        fedge_status status = worker_start(&fresh->workers[i], fresh, err);
        if (status != FEDGE_OK) {
            worker_release(&fresh->workers[i]);
            fedge_ingest_free(fresh);
            return status;
        }
        fresh->num_workers++;
    }
    *ingest = fresh;
    return FEDGE_OK;
}

void fedge_ingest_free(fedge_ingest *ingest)
{
    if (!ingest) {
        return;
    }
    for (uint32_t i = 0; i < ingest->num_workers; i++) {
        worker *self = &ingest->workers[i];
        pthread_mutex_lock(&self->mutex);
        self->stop = true;
        pthread_cond_signal(&self->filled);
        pthread_mutex_unlock(&self->mutex);
        pthread_join(self->thread, NULL);
        pthread_cond_destroy(&self->filled);
        pthread_mutex_destroy(&self->mutex);
        worker_release(self);
    }
    free(ingest);
}

fedge_status fedge_ingest_write(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                uint64_t task_id, uint64_t offset, const uint8_t *data,
                                uint32_t size, bool *full, fedge_error *err)
{
    worker *target = worker_of(ingest, slot);
    *full = false;
    job *work = calloc(1, sizeof(*work));
    uint8_t *copy = malloc(size);
    if (!work || !copy) {
        free(work);
        free(copy);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for %u bytes of an upload", size);
    }
    memcpy(copy, data, size);
    *work = (job){.type = JOB_WRITE,
                  .journal = journal,
                  .slot = slot,
                  .task_id = task_id,
                  .offset = offset,
                  .size = size,
                  .data = copy};
    uint64_t queued = atomic_fetch_add(&target->queued_bytes, size) + size;
    if (queued > FEDGE_INGEST_QUEUE_BYTES) {
        pthread_mutex_lock(&target->mutex);
        if (!target->relief) {
            target->relief = calloc(1, sizeof(*target->relief));
        }
        if (target->relief) {
            target->relief->type = FEDGE_MAIL_RELIEVED;
            target->was_full = true;
            *full = true;
        }
        pthread_mutex_unlock(&target->mutex);
    }
    push(target, work);
    return FEDGE_OK;
}

fedge_status fedge_ingest_finish(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 fedge_ingest_upload *upload, const int8_t *bounds_log2,
                                 fedge_error *err)
{
    job *work = calloc(1, sizeof(*work));
    fedge_mail *mail = calloc(1, sizeof(*mail));
    if (!work || !mail) {
        free(work);
        free(mail);
        free(upload);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to finish an upload");
    }
    mail->type = FEDGE_MAIL_VALIDATED;
    mail->task_id = upload->upload.task_id;
    *work = (job){.type = JOB_FINISH,
                  .journal = journal,
                  .slot = slot,
                  .incoming = upload,
                  .bounds_log2 = bounds_log2,
                  .mail = mail};
    push(worker_of(ingest, slot), work);
    return FEDGE_OK;
}

static fedge_status push_copy(fedge_ingest *ingest, const job *wanted, fedge_error *err)
{
    job *work = malloc(sizeof(*work));
    fedge_mail *mail = calloc(1, sizeof(*mail));
    if (!work || !mail) {
        free(work);
        free(mail);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a journal record");
    }
    mail->type = FEDGE_MAIL_VALIDATED;
    mail->task_id = wanted->assigned.task_id;
    *work = *wanted;
    work->mail = mail;
    push(worker_of(ingest, wanted->slot), work);
    return FEDGE_OK;
}

fedge_status fedge_ingest_assign(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 const fedge_journal_task *task, fedge_error *err)
{
    return push_copy(
        ingest, &(job){.type = JOB_ASSIGN, .journal = journal, .slot = slot, .assigned = *task},
        err);
}

fedge_status fedge_ingest_rewind(fedge_ingest *ingest, fedge_journal *journal, uint32_t slot,
                                 uint64_t task_id, fedge_error *err)
{
    return push_copy(
        ingest, &(job){.type = JOB_REWIND, .journal = journal, .slot = slot, .task_id = task_id},
        err);
}

void fedge_ingest_flush(fedge_ingest *ingest)
{
    latch gate = {.left = ingest->num_workers};
    pthread_mutex_init(&gate.mutex, NULL);
    pthread_cond_init(&gate.passed, NULL);
    for (uint32_t i = 0; i < ingest->num_workers; i++) {
        worker *target = &ingest->workers[i];
        target->flush = (job){.type = JOB_FLUSH, .latch = &gate};
        push(target, &target->flush);
    }
    pthread_mutex_lock(&gate.mutex);
    while (gate.left > 0) {
        pthread_cond_wait(&gate.passed, &gate.mutex);
    }
    pthread_mutex_unlock(&gate.mutex);
    pthread_cond_destroy(&gate.passed);
    pthread_mutex_destroy(&gate.mutex);
}

void fedge_ingest_get_stats(const fedge_ingest *ingest, fedge_ingest_stats *stats)
{
    *stats = (fedge_ingest_stats){.validate_ns = atomic_load(&ingest->validate_ns),
                                  .journal_ns = atomic_load(&ingest->journal_ns),
                                  .sum_ns = atomic_load(&ingest->sum_ns)};
    for (uint32_t i = 0; i < ingest->num_workers; i++) {
        stats->queued_bytes += atomic_load(&ingest->workers[i].queued_bytes);
    }
}
