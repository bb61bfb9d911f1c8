/* The ingest workers by themselves, with the journal's writes held back where a test wants the
 * queue to be long, and with a clock of its own. */
#include "tests/aggregator/store/store_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/run/ingest/ingest.h"
#include "aggregator/store/journal_file.h"
#include "edge/core/fixed.h"
#include "edge/plan/update.h"

enum { ELEMENTS = 16, UPDATE_SIZE = 4 * ELEMENTS, MAX_COMPLETIONS = 256 };

static const char JOB[] =
    "{\"fedge-job\":1,\"name\":\"tiny\",\"model\":{\"input-shape\":[3],\"layers\":["
    "{\"type\":\"Linear\",\"in_features\":3,\"out_features\":4}]},\"data\":{\"name\":\"points\","
    "\"shape\":[3],\"dtype\":\"f32\",\"labels\":4},\"training\":{\"learning-rate\":0.1},"
    "\"rounds\":{\"num-server-rounds\":1},\"update\":{\"codec\":\"none\",\"deflate\":%s}}";

/* What the test and the workers share. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;        /* writes wait for a permit */
    uint32_t slot;    /* those of this slot alone; UINT32_MAX: all */
    unsigned permits; /* writes that may pass */
    unsigned reached; /* writes that have come */
    uint64_t now_ns;
    fedge_status failure; /* of the next journal call */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- what is put between the workers and the rest ---------------------------------------------
 */

fedge_status __real_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
uint64_t __wrap_fedge_os_monotonic_ns(void);
void __real_fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mailbox_item *item);
void __wrap_fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mailbox_item *item);

static fedge_journal *the_journal;
static atomic_uint num_early; /* updates whose answer was posted before they were on the disk */

fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err)
{
    pthread_mutex_lock(&gate.mutex);
    if (gate.slot == UINT32_MAX || gate.slot == slot) {
        gate.reached++;
        pthread_cond_broadcast(&gate.changed);
        while (gate.held && gate.permits == 0)
            pthread_cond_wait(&gate.changed, &gate.mutex);
        gate.permits -= gate.held;
    }
    fedge_status failure = gate.failure;
    gate.failure = FEDGE_OK;
    pthread_mutex_unlock(&gate.mutex);
    if (failure != FEDGE_OK)
        return fedge_fail(err, failure, "the disk is made of paper");
    return __real_fedge_journal_write(journal, slot, task_id, offset, bytes, size, err);
}

uint64_t __wrap_fedge_os_monotonic_ns(void)
{
    pthread_mutex_lock(&gate.mutex);
    uint64_t now_ns = gate.now_ns;
    pthread_mutex_unlock(&gate.mutex);
    return now_ns;
}

/* Is the acceptance of [task_id] on the disk? */
static bool is_durable(uint64_t task_id)
{
    uint32_t slot = 0;
    bool durable = false;
    if (fedge_journal_find(the_journal, task_id, &slot, NULL) == FEDGE_OK) {
        pthread_mutex_lock(&the_journal->lock);
        const journal_slot *own = &the_journal->slots[slot];
        durable = own->facts.accepted &&
                  own->metadata_offset + own->facts.metadata_size <= the_journal->durable;
        pthread_mutex_unlock(&the_journal->lock);
    }
    return durable;
}

void __wrap_fedge_mailbox_post(fedge_mailbox *mailbox, fedge_mailbox_item *item)
{
    const fedge_completion *completion = (const fedge_completion *)item;
    if (completion->type == FEDGE_COMPLETION_VALIDATED && completion->status == FEDGE_OK)
        num_early += !is_durable(completion->task_id);
    __real_fedge_mailbox_post(mailbox, item);
}

static void hold(bool held)
{
    pthread_mutex_lock(&gate.mutex);
    gate.held = held;
    gate.slot = UINT32_MAX;
    gate.permits = 0;
    gate.reached = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void hold_slot(uint32_t slot)
{
    hold(true);
    pthread_mutex_lock(&gate.mutex);
    gate.slot = slot;
    pthread_mutex_unlock(&gate.mutex);
}

/* Lets [count] writes pass, and waits until [reached] have come in all. */
static void let_pass(unsigned count, unsigned reached)
{
    pthread_mutex_lock(&gate.mutex);
    gate.permits += count;
    pthread_cond_broadcast(&gate.changed);
    while (gate.reached < reached)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

static void set_clock(uint64_t now_ns)
{
    pthread_mutex_lock(&gate.mutex);
    gate.now_ns = now_ns;
    pthread_mutex_unlock(&gate.mutex);
}

static void fail_next(fedge_status failure)
{
    pthread_mutex_lock(&gate.mutex);
    gate.failure = failure;
    pthread_mutex_unlock(&gate.mutex);
}

/* ---- one phase --------------------------------------------------------------------------------
 */

typedef struct fixture {
    fedge_job *job;
    fedge_accumulator accumulator;
    fedge_mailbox *mailbox;
    fedge_ingest *ingest;
    fedge_journal *journal;
    int8_t bounds[FEDGE_MAX_TENSORS];
    fedge_completion completions[MAX_COMPLETIONS]; /* taken so far */
    uint32_t num_completions;
} fixture;

static fixture f;
static bool flat; /* updates have the same value everywhere, and are deflated */

static void begin(const char *dir, uint32_t num_workers, uint32_t num_tasks, uint64_t slot_size)
{
    char text[sizeof(JOB) + 8];
    fedge_error err;
    snprintf(text, sizeof(text), JOB, flat ? "true" : "false");
    memset(&f, 0, sizeof(f));
    num_early = 0;
    hold(false);
    set_clock(1000);
    if (fedge_job_parse(text, strlen(text), "job.json", &f.job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const fedge_update_layout layout = fedge_plan_update_layout(&f.job->plan);
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 2};
    OK(fedge_accumulator_open("cpu", &config, &f.accumulator, &err));
    OK(fedge_mailbox_new(&f.mailbox, NULL, NULL, &err));
    OK(fedge_ingest_new(&f.ingest, &f.job->plan, &f.accumulator, f.mailbox, num_workers, &err));
    fedge_journal_phase phase = test_phase(1, 0);
    phase.slot_size = slot_size;
    phase.num_tasks = num_tasks;
    memset(phase.bounds_log2, 2, sizeof(phase.bounds_log2));
    fedge_journal_task *tasks = calloc(num_tasks, sizeof(*tasks));
    for (uint32_t i = 0; i < num_tasks; i++)
        tasks[i] = test_task(i + 1);
    OK(fedge_journal_create(dir, &phase, tasks, 0, &f.journal, &err));
    the_journal = f.journal;
    free(tasks);
    memset(f.bounds, 2, sizeof(f.bounds));
}

static void flush(void)
{
    fedge_error err = {0};
    if (fedge_ingest_flush(f.ingest, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
}

/* A worker has failed: the sums are not to be used, now and later. */
static void flush_in_vain(fedge_status wanted)
{
    fedge_error err;
    assert_int_equal(fedge_ingest_flush(f.ingest, &err), wanted);
    assert_true(err.message[0] != '\0');
}

static uint32_t take_completions(void);

static void end(void)
{
    hold(false);
    fedge_ingest_free(f.ingest);
    (void)take_completions();
    assert_int_equal(num_early, 0);
    fedge_mailbox_free(f.mailbox);
    fedge_journal_free(f.journal);
    fedge_accumulator_close(&f.accumulator);
    fedge_job_free(f.job);
}

/* Adds what is in the mailbox to f.completions. */
static uint32_t take_completions(void)
{
    for (fedge_mailbox_item *item = fedge_mailbox_take(f.mailbox), *next; item; item = next) {
        fedge_completion *completion = (fedge_completion *)item;
        next = item->next;
        assert_true(f.num_completions < MAX_COMPLETIONS);
        f.completions[f.num_completions++] = *completion;
        free(completion);
    }
    return f.num_completions;
}

static void assert_completion(uint32_t index, fedge_completion_type type, uint64_t task_id,
                              fedge_status status)
{
    assert_true(index < f.num_completions);
    assert_int_equal(f.completions[index].type, type);
    assert_int_equal(f.completions[index].task_id, task_id);
    assert_int_equal(f.completions[index].status, status);
    if (status != FEDGE_OK)
        assert_true(strlen(f.completions[index].message) > 10);
}

/* Value [i] of the update of a task, in 64ths. */
static int32_t value_of(uint64_t task_id, uint32_t i)
{
    return (int32_t)((task_id * 7 + (flat ? 0 : i * 3)) % 128) - 64;
}

static uint32_t weight_of(uint64_t task_id)
{
    return 1 + (uint32_t)task_id % 5;
}

static fedge_ingest_upload *make_upload(uint64_t task_id, uint8_t *bytes)
{
    fedge_error err;
    float values[ELEMENTS];
    fedge_ingest_upload *made = calloc(1, sizeof(*made));
    uint8_t *encoded = NULL;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)value_of(task_id, i) / 64.0f;
    OK(fedge_update_encode(
        &(fedge_update){.plan = &f.job->plan, .bounds_log2 = f.bounds, .changes = values},
        &made->upload, &encoded, &err));
    assert_in_range(made->upload.size, flat ? 1 : UPDATE_SIZE,
                    flat ? UPDATE_SIZE - 1 : UPDATE_SIZE);
    memcpy(bytes, encoded, (size_t)made->upload.size);
    free(encoded);
    made->upload.task_id = task_id;
    made->weight = weight_of(task_id);
    made->meta_size =
        (uint32_t)snprintf(made->meta, sizeof(made->meta), "{\"task\":%u}", (unsigned)task_id);
    return made;
}

static void write_bytes(uint32_t slot, uint64_t task_id, uint64_t offset, const uint8_t *bytes,
                        uint32_t size)
{
    bool full = true;
    const fedge_ingest_part part = {
        .task_id = task_id, .offset = offset, .data = bytes, .size = size};
    OK(fedge_ingest_write(f.ingest, f.journal, slot, &part, NULL, &full, NULL));
    assert_false(full);
}

/* Queues the update of a task in two parts, and its end. */
static void send_update(uint32_t slot, uint64_t task_id)
{
    uint8_t bytes[UPDATE_SIZE];
    fedge_ingest_upload *upload = make_upload(task_id, bytes);
    const uint32_t part = (uint32_t)upload->upload.size / 2;
    write_bytes(slot, task_id, 0, bytes, part);
    write_bytes(slot, task_id, part, bytes + part, (uint32_t)upload->upload.size - part);
    OK(fedge_ingest_finish(f.ingest, f.journal, slot, upload, NULL));
}

/* The sums are those of the updates of these tasks, and of no other. */
static void assert_sum(const uint64_t *task_ids, uint32_t count)
{
    int64_t sums[ELEMENTS], expected[ELEMENTS] = {0};
    uint64_t weight = 0;
    for (uint32_t t = 0; t < count; t++) {
        weight += weight_of(task_ids[t]);
        for (uint32_t i = 0; i < ELEMENTS; i++) { /* 2^28 is one, with a bound of 2² */
            expected[i] += (int64_t)weight_of(task_ids[t]) * value_of(task_ids[t], i) * (1 << 22);
        }
    }
    const fedge_accumulator_totals totals = fedge_accumulator_get_totals(&f.accumulator);
    OK(fedge_accumulator_read(&f.accumulator, 0, ELEMENTS, sums, NULL));
    assert_int_equal(totals.num_updates, count);
    assert_int_equal(totals.total_weight, weight);
    assert_memory_equal(sums, expected, sizeof(sums));
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void store_sum_and_answer(const char *dir)
{
    const uint32_t workers[] = {1, 2, 3, FEDGE_INGEST_MAX_WORKERS};
    for (uint32_t w = 0; w < 4; w++) {
        begin(dir, workers[w], 10, UPDATE_SIZE);
        uint64_t tasks[10];
        for (uint32_t slot = 0; slot < 10; slot++) {
            tasks[slot] = slot + 1;
            send_update(slot, slot + 1);
        }
        flush();
        assert_int_equal(take_completions(), 10);
        bool seen[11] = {false};
        for (uint32_t i = 0; i < 10; i++) {
            assert_completion(i, FEDGE_COMPLETION_VALIDATED, f.completions[i].task_id, FEDGE_OK);
            assert_in_range(f.completions[i].task_id, 1, 10);
            assert_false(seen[f.completions[i].task_id]);
            seen[f.completions[i].task_id] = true;
        }
        assert_sum(tasks, 10);
        char meta[64];
        for (uint32_t slot = 0; slot < 10; slot++) {
            OK(fedge_journal_metadata(f.journal, slot, meta, sizeof(meta), NULL));
            assert_int_equal(strtol(meta + 8, NULL, 10), slot + 1);
        }
        flush(); /* nothing is left: returns at once */
        assert_int_equal(take_completions(), 10);

        /* Recovery reads them back, to the same sums. */
        OK(fedge_accumulator_reset(&f.accumulator, NULL));
        for (uint32_t slot = 0; slot < 10; slot++) {
            uint8_t bytes[UPDATE_SIZE];
            fedge_ingest_upload *upload = make_upload(slot + 1, bytes);
            OK(fedge_ingest_replay(&f.job->plan, &f.accumulator, f.journal, slot, &upload->upload,
                                   upload->weight, NULL));
            free(upload);
        }
        assert_sum(tasks, 10);
        end();
        OK(fedge_os_remove_tree(dir, NULL));
        OK(fedge_os_make_dirs(dir, NULL));
    }
}

static void updates_are_stored_summed_and_answered(void **state)
{
    store_sum_and_answer(*state);
}

static void deflated_updates_are_summed_too(void **state)
{
    flat = true;
    store_sum_and_answer(*state);
    begin(*state, 1, 4, UPDATE_SIZE);
    uint8_t bytes[UPDATE_SIZE];
    fedge_ingest_upload *upload = make_upload(1, bytes);
    bytes[4] ^= 0x55; /* not what was deflated */
    write_bytes(0, 1, 0, bytes, (uint32_t)upload->upload.size);
    OK(fedge_ingest_finish(f.ingest, f.journal, 0, upload, NULL));
    send_update(1, 2);
    flush();
    assert_int_equal(take_completions(), 2);
    const uint32_t good = f.completions[0].status == FEDGE_OK ? 0 : 1;
    assert_completion(1 - good, FEDGE_COMPLETION_VALIDATED, 1, FEDGE_CORRUPT);
    assert_completion(good, FEDGE_COMPLETION_VALIDATED, 2, FEDGE_OK);
    assert_sum((uint64_t[]){2}, 1);
    end();
    flat = false;
}

static uint64_t queued(void)
{
    fedge_ingest_stats stats;
    fedge_ingest_get_stats(f.ingest, &stats);
    return stats.queued_bytes;
}

/* A queue that is over its limit says so at each part; once it is down to half, once, that it has
 * room again. Other workers' queues have room all the time. */
static void a_full_queue_holds_its_senders_back(void **state)
{
    enum { PART = 1 << 16, LIMIT = FEDGE_INGEST_QUEUE_BYTES / PART, SENT = LIMIT + 3 };
    uint8_t *part = calloc(1, PART);
    begin(*state, 2, 4, (SENT + 1) * PART);
    for (uint32_t turn = 0; turn < 2; turn++) {
        hold_slot(2);
        for (uint32_t i = 1; i <= SENT; i++) {
            bool full = i <= LIMIT;
            const fedge_ingest_part sent = {.task_id = 3,
                                            .offset = turn == 0 ? (uint64_t)(i - 1) * PART : 0,
                                            .data = part,
                                            .size = PART};
            OK(fedge_ingest_write(f.ingest, f.journal, 2, &sent, NULL, &full, NULL));
            assert_int_equal(full, i > LIMIT);
            assert_int_equal(queued(), (uint64_t)i * PART);
        }
        write_bytes(1, 2, 0, part, PART);
        let_pass(0, 1);
        for (uint32_t written = 0; written < SENT - 1; written++) {
            assert_int_equal(take_completions(), turn + (SENT - written <= LIMIT / 2));
            let_pass(1, written + 2); /* the next one has come: this one is done */
        }
        hold(false);
        flush();
        assert_int_equal(queued(), 0);
        assert_int_equal(take_completions(), turn + 1);
        assert_completion(turn, FEDGE_COMPLETION_RESUME, 0, FEDGE_OK);
    }
    end();
    free(part);
}

/* What was on its way when a slot changed hands is of no harm to anybody. */
static void late_parts_of_a_slot_that_was_given_away(void **state)
{
    begin(*state, 2, 4, UPDATE_SIZE);
    uint8_t bytes[UPDATE_SIZE];
    fedge_ingest_upload *late = make_upload(1, bytes);
    fedge_journal_task next = test_task(50);
    write_bytes(0, 1, 0, bytes, 24);
    OK(fedge_ingest_assign(f.ingest, f.journal, 0, &next, NULL));
    write_bytes(0, 1, 24, bytes + 24, UPDATE_SIZE - 24); /* a late part */
    OK(fedge_ingest_rewind(f.ingest, f.journal, 0, 1, NULL));
    write_bytes(0, 1, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 0, late, NULL)); /* a late end */
    flush();
    assert_int_equal(take_completions(), 1);
    assert_int_equal(f.completions[0].type, FEDGE_COMPLETION_VALIDATED);
    assert_int_equal(f.completions[0].task_id, 1);
    assert_int_not_equal(f.completions[0].status, FEDGE_OK);
    assert_int_equal(fedge_journal_get_slot(f.journal, 0).written, 0);
    assert_sum(NULL, 0);

    send_update(0, 50);
    uint8_t other[UPDATE_SIZE];
    late = make_upload(1, bytes);
    free(make_upload(50, other));
    write_bytes(0, 1, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 0, late, NULL));
    flush();
    assert_int_equal(take_completions(), 3);
    const uint32_t good = f.completions[1].status == FEDGE_OK ? 1 : 2;
    assert_completion(good, FEDGE_COMPLETION_VALIDATED, 50, FEDGE_OK);
    assert_int_equal(f.completions[3 - good].type, FEDGE_COMPLETION_VALIDATED);
    assert_int_equal(f.completions[3 - good].task_id, 1);
    assert_sum((uint64_t[]){50}, 1);
    OK(fedge_journal_read(f.journal, 0, 0, bytes, sizeof(bytes), NULL));
    assert_memory_equal(bytes, other, sizeof(bytes));
    end();
}

/* A whole update of a slot's old task, with nothing of the new one behind it: by its own bytes it
 * would do, so only whose slot it is speaks against it. */
static void a_late_end_is_stale(void **state)
{
    begin(*state, 1, 4, UPDATE_SIZE);
    uint8_t bytes[UPDATE_SIZE];
    fedge_ingest_upload *late = make_upload(2, bytes);
    fedge_journal_task next = test_task(50);
    write_bytes(1, 2, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_assign(f.ingest, f.journal, 1, &next, NULL));
    OK(fedge_ingest_finish(f.ingest, f.journal, 1, late, NULL));
    flush();
    assert_int_equal(take_completions(), 1);
    assert_completion(0, FEDGE_COMPLETION_VALIDATED, 2, FEDGE_STALE);
    assert_sum(NULL, 0);
    send_update(1, 50);
    flush();
    assert_int_equal(take_completions(), 2);
    assert_completion(1, FEDGE_COMPLETION_VALIDATED, 50, FEDGE_OK);
    assert_sum((uint64_t[]){50}, 1);
    end();
}

/* After an acceptance, and after the phase: nothing more counts, and nothing is wrong. */
static void what_comes_too_late_is_told(void **state)
{
    begin(*state, 2, 4, UPDATE_SIZE);
    send_update(3, 4);
    send_update(3, 4);
    fedge_journal_task next = test_task(50);
    OK(fedge_ingest_assign(f.ingest, f.journal, 3, &next, NULL));
    OK(fedge_ingest_rewind(f.ingest, f.journal, 3, 4, NULL));
    flush();
    assert_int_equal(take_completions(), 2);
    const uint32_t good = f.completions[0].status == FEDGE_OK ? 0 : 1;
    assert_completion(good, FEDGE_COMPLETION_VALIDATED, 4, FEDGE_OK);
    assert_completion(1 - good, FEDGE_COMPLETION_VALIDATED, 4, FEDGE_DUPLICATE);
    assert_sum((uint64_t[]){4}, 1);
    OK(fedge_journal_close(f.journal, NULL));
    send_update(3, 4);
    send_update(0, 1);
    OK(fedge_ingest_assign(f.ingest, f.journal, 1, &next, NULL));
    OK(fedge_ingest_rewind(f.ingest, f.journal, 1, 2, NULL));
    flush();
    assert_int_equal(take_completions(), 4);
    for (uint32_t i = 2; i < 4; i++) {
        assert_int_equal(f.completions[i].type, FEDGE_COMPLETION_VALIDATED);
        assert_int_not_equal(f.completions[i].status, FEDGE_OK);
    }
    assert_sum((uint64_t[]){4}, 1);
    end();
}

/* The new task for which the log has no room is lost, and everything else goes on. */
static void a_full_log_loses_the_new_task_alone(void **state)
{
    begin(*state, 1, 4, UPDATE_SIZE);
    uint64_t task_id = 10;
    while (take_completions() == 0) {
        fedge_journal_task next = test_task(++task_id);
        OK(fedge_ingest_assign(f.ingest, f.journal, 2, &next, NULL));
        flush();
        assert_true(task_id < 1000);
    }
    assert_completion(0, FEDGE_COMPLETION_VALIDATED, task_id, FEDGE_STALE);
    assert_int_equal(fedge_journal_get_slot(f.journal, 2).task.task_id, task_id - 1);
    send_update(2, task_id - 1);
    send_update(0, 1);
    flush();
    assert_int_equal(take_completions(), 3);
    assert_completion(1, FEDGE_COMPLETION_VALIDATED, task_id - 1, FEDGE_OK);
    assert_completion(2, FEDGE_COMPLETION_VALIDATED, 1, FEDGE_OK);
    assert_sum((uint64_t[]){1, task_id - 1}, 2);
    end();
}

static void bad_updates_are_refused_and_can_come_again(void **state)
{
    begin(*state, 1, 4, UPDATE_SIZE);
    uint8_t bytes[UPDATE_SIZE];
    fedge_ingest_upload *upload = make_upload(1, bytes);
    bytes[3] ^= 1;
    write_bytes(0, 1, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 0, upload, NULL));
    upload = make_upload(2, bytes);
    const float wild = NAN;
    memcpy(bytes, &wild, sizeof(wild));
    upload->upload.crc32 = fedge_crc32(0, bytes, UPDATE_SIZE);
    write_bytes(1, 2, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 1, upload, NULL));
    upload = make_upload(3, bytes);
    upload->upload.size = UPDATE_SIZE + 1;
    write_bytes(2, 3, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 2, upload, NULL));
    flush();
    assert_int_equal(take_completions(), 3);
    assert_completion(0, FEDGE_COMPLETION_VALIDATED, 1, FEDGE_CORRUPT);
    assert_completion(1, FEDGE_COMPLETION_VALIDATED, 2, FEDGE_NOT_FINITE);
    assert_completion(2, FEDGE_COMPLETION_VALIDATED, 3, FEDGE_MISMATCH);
    assert_sum(NULL, 0);
    assert_int_equal(fedge_journal_num_accepted(f.journal), 0);
    OK(fedge_ingest_rewind(f.ingest, f.journal, 0, 1, NULL));
    send_update(0, 1);
    flush();
    assert_int_equal(take_completions(), 4);
    assert_completion(3, FEDGE_COMPLETION_VALIDATED, 1, FEDGE_OK);
    assert_sum((uint64_t[]){1}, 1);
    end();
}

/* A disk that fails is told once, and nothing is acknowledged from then on. */
static void a_failing_disk_is_fatal(void **state)
{
    begin(*state, 1, 4, UPDATE_SIZE);
    fail_next(FEDGE_IO);
    send_update(0, 1); /* its first part is lost: the second leaves a gap */
    flush_in_vain(FEDGE_IO);
    assert_true(take_completions() >= 1);
    assert_completion(0, FEDGE_COMPLETION_FATAL, 0, FEDGE_IO);
    assert_non_null(strstr(f.completions[0].message, "paper"));
    fail_next(FEDGE_NO_SPACE);
    uint8_t bytes[UPDATE_SIZE];
    free(make_upload(2, bytes));
    write_bytes(1, 2, 0, bytes, UPDATE_SIZE);
    flush_in_vain(FEDGE_IO);
    take_completions();
    for (uint32_t i = 1; i < f.num_completions; i++) {
        assert_int_equal(f.completions[i].type, FEDGE_COMPLETION_VALIDATED);
        assert_int_not_equal(f.completions[i].status, FEDGE_OK);
    }
    end();
}

static void break_disk(void)
{
    pthread_mutex_lock(&the_journal->lock);
    the_journal->broken = true;
    snprintf(the_journal->broken_message, sizeof(the_journal->broken_message), "the disk is gone");
    pthread_mutex_unlock(&the_journal->lock);
}

/* It fails when the update is read back, when it is accepted, or when it is synced: no answer. */
static void nothing_is_acknowledged_without_a_disk(void **state)
{
    for (uint32_t when = 0; when < 3; when++) {
        begin(*state, 1, 4, UPDATE_SIZE);
        send_update(3, 4);
        flush();
        assert_int_equal(take_completions(), 1);
        uint8_t bytes[UPDATE_SIZE];
        hold(true);
        fedge_ingest_upload *upload = make_upload(1, bytes);
        write_bytes(0, 1, 0, bytes, UPDATE_SIZE);
        write_bytes(1, 2, 0, bytes, 8);
        OK(fedge_ingest_finish(f.ingest, f.journal, 0, upload, NULL));
        write_bytes(1, 2, 8, bytes + 8, 8);
        let_pass(1, 2); /* the first is written, the second at the gate */
        const int file = f.journal->file.fd;
        if (when == 0) {
            f.journal->file.fd = -1;
        } else if (when == 1) {
            break_disk();
        } else {
            let_pass(1, 3);
            assert_int_equal(fedge_journal_num_accepted(f.journal), 2);
            break_disk();
        }
        const uint32_t before = take_completions();
        hold(false);
        flush_in_vain(FEDGE_IO);
        f.journal->file.fd = file;
        assert_int_equal(take_completions(), before + 1);
        assert_completion(before, FEDGE_COMPLETION_FATAL, 0, FEDGE_IO);
        end();
        OK(fedge_os_remove_tree(*state, NULL));
        OK(fedge_os_make_dirs(*state, NULL));
    }
}

static fedge_status fail_to_add(void *state, fedge_encoded *const *updates, uint32_t count,
                                uint64_t *ticket, fedge_error *err)
{
    (void)state, (void)updates, (void)count, (void)ticket;
    return fedge_fail(err, FEDGE_GPU_LOST, "GPU 1 is lost");
}

/* What is in the journal and not in the sums is for recovery: no answer, and no step. */
static void lose_the_sums(const char *dir)
{
    begin(dir, 2, 4, UPDATE_SIZE);
    const fedge_accumulator_ops *ops = f.accumulator.ops;
    fedge_accumulator_ops failing = *ops;
    failing.add = fail_to_add;
    f.accumulator.ops = &failing;
    send_update(0, 1);
    flush_in_vain(FEDGE_GPU_LOST);
    assert_int_equal(take_completions(), 1);
    assert_completion(0, FEDGE_COMPLETION_FATAL, 0, FEDGE_GPU_LOST);
    assert_int_equal(fedge_journal_num_accepted(f.journal), 1);
    f.accumulator.ops = ops;
    send_update(1, 2); /* on another worker, for which nothing has failed */
    flush_in_vain(FEDGE_GPU_LOST);
    end();
}

static void failing_sums_are_fatal(void **state)
{
    lose_the_sums(*state);
    flat = true; /* added one by one, and not with their group */
    OK(fedge_os_remove_tree(*state, NULL));
    OK(fedge_os_make_dirs(*state, NULL));
    lose_the_sums(*state);
    flat = false;
}

/* Updates that wait share a sync: as long as there is other work, but not for long. */
static void updates_wait_for_one_another_for_a_while(void **state)
{
    begin(*state, 1, 4, UPDATE_SIZE);
    uint8_t bytes[UPDATE_SIZE], other[UPDATE_SIZE];
    hold(true);
    fedge_ingest_upload *one = make_upload(1, bytes), *two = make_upload(2, other);
    write_bytes(0, 1, 0, bytes, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 0, one, NULL));
    write_bytes(1, 2, 0, other, UPDATE_SIZE);
    OK(fedge_ingest_finish(f.ingest, f.journal, 1, two, NULL));
    free(make_upload(3, bytes));
    write_bytes(2, 3, 0, bytes, 8);
    write_bytes(2, 3, 8, bytes + 8, 8);
    write_bytes(2, 3, 16, bytes + 16, 8);
    const uint64_t num_syncs = fedge_journal_num_syncs(f.journal);
    let_pass(1, 2);
    set_clock(1000 + FEDGE_INGEST_GROUP_NS - 1);
    let_pass(1, 3); /* both are accepted; the third slot's first part is at the gate */
    assert_int_equal(fedge_journal_num_accepted(f.journal), 2);
    let_pass(1, 4);
    assert_int_equal(take_completions(), 0);
    assert_int_equal(fedge_journal_num_syncs(f.journal), num_syncs);
    set_clock(1000 + FEDGE_INGEST_GROUP_NS);
    let_pass(1, 5); /* the wait of the first is over before the last part's turn */
    assert_int_equal(take_completions(), 2);
    assert_completion(0, FEDGE_COMPLETION_VALIDATED, 1, FEDGE_OK);
    assert_completion(1, FEDGE_COMPLETION_VALIDATED, 2, FEDGE_OK);
    assert_int_equal(fedge_journal_num_syncs(f.journal), num_syncs + 1);
    end();
}

/* However long the queue: no more than FEDGE_INGEST_MAX_GROUP share a sync. */
static void groups_are_bounded(void **state)
{
    enum { MANY = FEDGE_INGEST_MAX_GROUP * 2 + 2 };
    begin(*state, 1, MANY, UPDATE_SIZE);
    hold(true);
    for (uint32_t slot = 0; slot < MANY; slot++)
        send_update(slot, slot + 1);
    const uint64_t num_syncs = fedge_journal_num_syncs(f.journal);
    let_pass(2 * FEDGE_INGEST_MAX_GROUP - 1, 2 * FEDGE_INGEST_MAX_GROUP);
    assert_int_equal(fedge_journal_num_syncs(f.journal), num_syncs);
    assert_int_equal(take_completions(), 0);
    let_pass(2, 2 * FEDGE_INGEST_MAX_GROUP + 2);
    assert_int_equal(fedge_journal_num_syncs(f.journal), num_syncs + 1);
    assert_int_equal(take_completions(), FEDGE_INGEST_MAX_GROUP);
    hold(false);
    flush();
    assert_int_equal(fedge_journal_num_syncs(f.journal), num_syncs + 3);
    assert_int_equal(take_completions(), MANY);
    for (uint32_t i = 0; i < MANY; i++) { /* in the order of their ends */
        assert_completion(i, FEDGE_COMPLETION_VALIDATED, i + 1, FEDGE_OK);
    }
    end();
}

/* The end waits for what is queued. */
static void nothing_queued_is_lost_at_the_end(void **state)
{
    begin(*state, 3, 9, UPDATE_SIZE);
    hold(true);
    for (uint32_t slot = 0; slot < 9; slot++)
        send_update(slot, slot + 1);
    hold(false);
    fedge_ingest_free(f.ingest);
    f.ingest = NULL;
    assert_int_equal(take_completions(), 9);
    assert_int_equal(fedge_journal_num_accepted(f.journal), 9);
    end();
}

static void bad_numbers_of_workers_are_refused(void **state)
{
    (void)state;
    fedge_error err;
    fedge_ingest *ingest = NULL;
    assert_int_equal(fedge_ingest_new(&ingest, NULL, NULL, NULL, 0, &err), FEDGE_OUT_OF_RANGE);
    assert_int_equal(
        fedge_ingest_new(&ingest, NULL, NULL, NULL, FEDGE_INGEST_MAX_WORKERS + 1, &err),
        FEDGE_OUT_OF_RANGE);
    assert_null(ingest);
    fedge_ingest_free(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(updates_are_stored_summed_and_answered),
        TEST(deflated_updates_are_summed_too),
        TEST(a_full_queue_holds_its_senders_back),
        TEST(late_parts_of_a_slot_that_was_given_away),
        TEST(a_late_end_is_stale),
        TEST(what_comes_too_late_is_told),
        TEST(a_full_log_loses_the_new_task_alone),
        TEST(bad_updates_are_refused_and_can_come_again),
        TEST(a_failing_disk_is_fatal),
        TEST(nothing_is_acknowledged_without_a_disk),
        TEST(failing_sums_are_fatal),
        TEST(updates_wait_for_one_another_for_a_while),
        TEST(groups_are_bounded),
        TEST(nothing_queued_is_lost_at_the_end),
        TEST(bad_numbers_of_workers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
