/* A round opens while the checkpoint of the one before is being written, and a crash meanwhile
 * changes nothing. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "aggregator/store/checkpoint.h"
#include "aggregator/store/journal.h"
#include "edge/core/os.h"
#include "tests/aggregator/run/federation.h"

#define ROUNDS                                                                                     \
    "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4,"                     \
    "\"min-report-fraction\":0.75"

enum { CLIENTS = 4, LAST = CLIENTS - 1, DEADLINE_MS = 600000 };

static federation fed;

/* What happens to checkpoints. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t held_round;   /* this one waits; 0: none */
static uint32_t begun_round;  /* the last that was begun */
static uint32_t broken_round; /* this one fails, as on a full disk; 0: none */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __real_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
/* NOLINTEND(bugprone-reserved-identifier) */

fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err)
{
    const uint32_t round = checkpoint->round;
    pthread_mutex_lock(&lock);
    begun_round = round;
    while (held_round != 0 && held_round == round)
        pthread_cond_wait(&changed, &lock);
    const bool fails = broken_round != 0 && broken_round == round;
    pthread_mutex_unlock(&lock);
    return fails ? fedge_fail(err, FEDGE_NO_SPACE, "no room for the checkpoint")
                 : __real_fedge_checkpoint_save(dir, checkpoint, files, err);
}

/* What happens to journals. */
static bool holds_last;             /* a write of the last client in round 2 waits */
static const fedge_journal *in_use; /* by that write */
static bool freed_in_use;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
fedge_status __real_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err);
void __real_fedge_journal_free(fedge_journal *journal);
void __wrap_fedge_journal_free(fedge_journal *journal);
/* NOLINTEND(bugprone-reserved-identifier) */

fedge_status __wrap_fedge_journal_write(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                        uint64_t offset, const void *bytes, size_t size,
                                        fedge_error *err)
{
    const bool watched = slot == LAST && fedge_journal_get_phase(journal)->round == 2;
    pthread_mutex_lock(&lock);
    if (watched && holds_last) {
        in_use = journal;
        pthread_cond_broadcast(&changed);
    }
    while (watched && holds_last)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    const fedge_status status =
        __real_fedge_journal_write(journal, slot, task_id, offset, bytes, size, err);
    pthread_mutex_lock(&lock);
    in_use = watched ? NULL : in_use;
    pthread_mutex_unlock(&lock);
    return status;
}

void __wrap_fedge_journal_free(fedge_journal *journal)
{
    pthread_mutex_lock(&lock);
    const bool used = journal && journal == in_use;
    freed_in_use = freed_in_use || used;
    pthread_mutex_unlock(&lock);
    /* Otherwise the write would not find it. */
    if (!used)
        __real_fedge_journal_free(journal);
}

static void hold_last(bool holds)
{
    pthread_mutex_lock(&lock);
    holds_last = holds;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool last_is_held(void)
{
    pthread_mutex_lock(&lock);
    const bool held = in_use != NULL;
    pthread_mutex_unlock(&lock);
    return held;
}

static void hold(uint32_t round)
{
    pthread_mutex_lock(&lock);
    held_round = round;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static uint32_t last_begun(void)
{
    pthread_mutex_lock(&lock);
    const uint32_t round = begun_round;
    pthread_mutex_unlock(&lock);
    return round;
}

static void begin(void)
{
    fed_init(&fed, "engine-save-test", ROUNDS);
    fed_open(&fed);
    fed_join_all(&fed, CLIENTS);
}

static fedge_error finish(void)
{
    fedge_error failure;
    fed_finish(&fed, &failure);
    return failure;
}

static int tear_down(void **state)
{
    (void)state;
    pthread_mutex_lock(&lock); /* the checkpoint writer may look at both */
    held_round = broken_round = 0;
    holds_last = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    fed_fini(&fed);
    return 0;
}

static void undisturbed(char hash[FEDGE_HASH_TEXT])
{
    begin();
    assert_int_equal(finish().status, FEDGE_OK);
    memcpy(hash, fed_status(&fed).model_hash, FEDGE_HASH_TEXT);
    fed_fini(&fed);
}

static bool all_reported_in_round_2(const federation *it)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (it->devices[i].num_acks < 2)
            return false;
    }
    return true;
}

static bool has_journal_of(uint32_t round)
{
    char dir[FEDGE_MAX_PATH], path[FEDGE_MAX_PATH];
    bool exists = false;
    (void)snprintf(dir, sizeof(dir), "%.400s/journal", fed_status(&fed).run_dir);
    assert_int_equal(fedge_journal_make_path(dir, round, 0, path, NULL), FEDGE_OK);
    FILE *file = fopen(path, "rb");
    if (file) {
        exists = true;
        (void)fclose(file);
    }
    return exists;
}

/* Updates of round 2 are acknowledged while round 1 is being saved; round 2 ends behind that. */
static void a_round_opens_while_the_last_is_saved(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    undisturbed(hash);
    hold(1);
    begin();
    fed_until(&fed, all_reported_in_round_2, "the updates of round 2");
    assert_int_equal(last_begun(), 1);
    for (int i = 0; i < 50; i++)
        fed_step(&fed);
    assert_int_equal(fed.num_summaries, 1); /* no second step before the first one's checkpoint */
    assert_true(has_journal_of(1) && has_journal_of(2));
    hold(0);
    assert_int_equal(finish().status, FEDGE_OK);
    assert_string_equal(fed_status(&fed).model_hash, hash);
}

/* The process ends between the first round's step and its checkpoint: both journals are there, and
 * the next process closes the first again and goes on with the second. */
static void what_was_acknowledged_meanwhile_counts(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    undisturbed(hash);
    broken_round = 1;
    hold(1);
    begin();
    fed_until(&fed, all_reported_in_round_2, "the updates of round 2");
    hold(0);
    const fedge_error failure = finish();
    assert_int_equal(failure.status, FEDGE_NO_SPACE);
    assert_string_equal(failure.message, "no room for the checkpoint");
    fed_close(&fed);
    broken_round = 0;
    fed_open(&fed);
    assert_int_equal(fed_status(&fed).rounds_closed, 1);
    fed_join_all(&fed, CLIENTS);
    assert_int_equal(finish().status, FEDGE_OK);
    assert_string_equal(fed_status(&fed).model_hash, hash);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(fed.devices[i].num_asked_again, 0);
        assert_int_equal(fed.devices[i].num_acks, 3);
    }
}

static bool last_has_reported(const federation *it)
{
    return it->devices[LAST].num_acks == 1;
}

static bool others_reported_in_round_2(const federation *it)
{
    for (uint32_t i = 0; i < LAST; i++) {
        if (it->devices[i].num_acks < 2)
            return false;
    }
    return it->devices[LAST].num_acks == 1;
}

/* The checkpoint of round 1 fails while round 2 ends, and a part of a late update is being written:
 * its journal stays until that is done. */
static void a_journal_outlives_its_writes(void **state)
{
    (void)state;
    fedge_error failure = {0};
    broken_round = 1;
    hold(1);
    begin();
    fed_until(&fed, last_has_reported, "the last client's update of round 1");
    fed.devices[LAST].idle = true;
    fed_until(&fed, others_reported_in_round_2, "the updates of round 2");
    hold_last(true);
    fed.devices[LAST].idle = false;
    fed_make_result(&fed.devices[LAST]);
    while (!last_is_held())
        fed_step(&fed);
    fed.now_ms += DEADLINE_MS;
    for (int i = 0; i < 5; i++)
        fed_step(&fed);
    hold(0);
    while (!fedge_engine_done(fed.engine, &failure))
        fed_step(&fed);
    assert_int_equal(failure.status, FEDGE_NO_SPACE);
    (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* time to do it wrong */
    hold_last(false);
    fed_close(&fed);
    assert_false(freed_in_use);
}

/* A run is over when its last checkpoint is written. */
static void the_end_waits_for_the_last_checkpoint(void **state)
{
    (void)state;
    fedge_error err;
    broken_round = 3;
    begin();
    (void)finish();
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_NO_SPACE);
    fed_close(&fed);
    broken_round = 0;
    fed_open(&fed);
    assert_int_equal(finish().status, FEDGE_OK);
    assert_int_equal(fedge_engine_export(fed.engine, &err), FEDGE_OK);
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_round_opens_while_the_last_is_saved),
        TEST(what_was_acknowledged_meanwhile_counts),
        TEST(a_journal_outlives_its_writes),
        TEST(the_end_waits_for_the_last_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
