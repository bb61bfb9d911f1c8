/* The engine under kill -9 and power failures: a child process runs the federation and ends at one
 * of its events, another one goes on from what is on the disk and in the devices. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, fork, nanosleep */

#include "tests/edge/core/cmocka_all.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aggregator/store/round_log.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "tests/aggregator/run/federation.h"
#include "tests/edge/core/lossy_disk.h"

#define ROUNDS "\"num-server-rounds\":3,\"min-train-nodes\":4,\"min-available-nodes\":4"
#define ROUNDS_WITH_EVALUATION ROUNDS ",\"min-evaluate-nodes\":4,\"fraction-evaluate\":1.0"

enum { NUM_DEVICES = 4, MAX_LIVES = 200 };

/* Shared with the children. */
typedef struct arena {
    federation fed;
    char hash[FEDGE_HASH_TEXT]; /* of the model, once the run is complete */
    char run_dir[FEDGE_MAX_PATH];
    uint32_t rounds_closed;
    bool on_lossy_disk; /* where a process ends, the power fails, too */
    uint64_t draw;      /* what of the unsynced survives that */
} arena;

static arena *shared;
static atomic_uint accepted; /* updates, since the last checkpoint was begun */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal);
fedge_status __real_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err);
fedge_status __real_fedge_journal_accept(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                         uint64_t size, uint32_t crc32, const char *metadata,
                                         uint32_t metadata_size, fedge_error *err);
fedge_status __wrap_fedge_journal_accept(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                         uint64_t size, uint32_t crc32, const char *metadata,
                                         uint32_t metadata_size, fedge_error *err);
/* NOLINTEND(bugprone-reserved-identifier) */

/* As on a slow disk: updates of the next round are acknowledged before a checkpoint is written. */
fedge_status __wrap_fedge_checkpoint_save(const char *dir, fedge_checkpoint *checkpoint,
                                          const fedge_checkpoint_files *files, fedge_error *err)
{
    atomic_store(&accepted, 0);
    for (int ms = 0; ms < 20 && checkpoint->round > 0 && atomic_load(&accepted) < 3; ms++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return __real_fedge_checkpoint_save(dir, checkpoint, files, err);
}

fedge_status __wrap_fedge_journal_accept(fedge_journal *journal, uint32_t slot, uint64_t task_id,
                                         uint64_t size, uint32_t crc32, const char *metadata,
                                         uint32_t metadata_size, fedge_error *err)
{
    atomic_fetch_add(&accepted, 1);
    return __real_fedge_journal_accept(journal, slot, task_id, size, crc32, metadata, metadata_size,
                                       err);
}

int __wrap_kill(pid_t pid, int signal)
{
    if (shared->on_lossy_disk)
        lossy_disk_power_off(shared->draw);
    return __real_kill(pid, signal);
}

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* The child: from the state directory to the end of the run, or to its death. */
static void live(void)
{
    federation *fed = &shared->fed;
    fedge_error failure;
    if (shared->on_lossy_disk) {
        must(fedge_os_make_dirs(fed->state_dir, NULL) == FEDGE_OK);
        lossy_disk_begin(fed->state_dir);
    }
    fed_revive(fed);
    fed_open(fed);
    fed_join_all(fed, NUM_DEVICES);
    fed_finish(fed, &failure);
    if (failure.status != FEDGE_OK) {
        fprintf(stderr, "the run failed: %s\n", failure.message);
        abort();
    }
    fedge_run_status status = fed_status(fed);
    shared->rounds_closed = status.rounds_closed;
    memcpy(shared->hash, status.model_hash, sizeof(shared->hash));
    memcpy(shared->run_dir, status.run_dir, sizeof(shared->run_dir));
    _exit(0);
}

/* One life, which ends at event [die_at] (0: never). True when the run is complete. */
static bool run_once(uint64_t die_at, uint32_t num_workers)
{
    federation *fed = &shared->fed;
    fed->die_at = die_at;
    fed->num_workers = num_workers;
    fed->num_summaries = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        live();
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return false;
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    return true;
}

static void begin_strategy(const char *rounds, const char *strategy)
{
    fed_init_strategy(&shared->fed, "kill-test", rounds, strategy);
    /* What a killed process has written is there, synced or not: a disk would only be slower. */
    lossy_disk_place("kill-test", shared->fed.state_dir);
    fedge_job_free(shared->fed.job); /* each child has its own */
    shared->fed.job = NULL;
    memset(shared->hash, 0, sizeof(shared->hash));
}

static void begin(const char *rounds)
{
    begin_strategy(rounds, "\"type\":\"FedAvg\"");
}

static void end(void)
{
    for (uint32_t i = 0; i < NUM_DEVICES; i++)
        shared->fed.devices[i].conn = NULL;
    shared->fed.engine = NULL;
    shared->fed.replies = NULL;
    shared->fed.job = NULL;
    fed_fini(&shared->fed);
}

static void assert_same_run(const char *hash, uint64_t die_at)
{
    if (strcmp(shared->hash, hash) != 0 || shared->rounds_closed != 3) {
        fail_msg("killed at event %llu: %u rounds, model %s instead of %s",
                 (unsigned long long)die_at, shared->rounds_closed, shared->hash, hash);
    }
    for (uint32_t i = 0; i < NUM_DEVICES; i++) {
        if (shared->fed.devices[i].num_asked_again > 0) {
            fail_msg("killed at event %llu: device %u was asked again for what was acknowledged",
                     (unsigned long long)die_at, i);
        }
    }
}

/* Killed once, at every event of the undisturbed run. */
static void kill_everywhere(const char *rounds)
{
    char hash[FEDGE_HASH_TEXT];
    begin(rounds);
    assert_true(run_once(0, 2));
    uint64_t num_events = shared->fed.events;
    memcpy(hash, shared->hash, sizeof(hash));
    end();
    for (uint64_t die_at = 1; die_at <= num_events; die_at++) {
        begin(rounds);
        shared->fed.turn = (uint32_t)die_at;
        if (!run_once(die_at, 1 + (uint32_t)die_at % 3))
            assert_true(run_once(0, 1 + (uint32_t)die_at % 4));
        assert_same_run(hash, die_at);
        end();
    }
}

static void a_kill_at_any_event_changes_nothing(void **state)
{
    (void)state;
    kill_everywhere(ROUNDS);
}

static fedge_status count_line(void *user, const fedge_round_summary *summary, fedge_error *err)
{
    (void)err;
    uint32_t *num_lines = user;
    assert_int_equal(summary->round, *num_lines / 2 + 1);
    assert_int_equal(summary->kind, *num_lines % 2 ? FEDGE_TASK_EVALUATE : FEDGE_TASK_TRAIN);
    assert_int_equal(summary->reported, NUM_DEVICES);
    ++*num_lines;
    return FEDGE_OK;
}

/* Each round has its line and one of its evaluation: one that is cut off is repeated. */
static void assert_all_evaluated(uint64_t die_at)
{
    fedge_error err;
    uint32_t num_lines = 0;
    char path[FEDGE_MAX_PATH + 16];
    snprintf(path, sizeof(path), "%s/rounds.jsonl", shared->run_dir);
    assert_int_equal(fedge_round_lines_read(path, count_line, &num_lines, &err), FEDGE_OK);
    if (num_lines != 6)
        fail_msg("killed at event %llu: %u lines", (unsigned long long)die_at, num_lines);
}

static void a_kill_during_evaluation_changes_nothing(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    begin(ROUNDS_WITH_EVALUATION);
    assert_true(run_once(0, 2));
    uint64_t num_events = shared->fed.events;
    memcpy(hash, shared->hash, sizeof(hash));
    end();
    for (uint64_t die_at = 5; die_at <= num_events; die_at += 11) {
        begin(ROUNDS_WITH_EVALUATION);
        if (!run_once(die_at, 2))
            assert_true(run_once(0, 3));
        assert_same_run(hash, die_at);
        assert_all_evaluated(die_at);
        end();
    }
}

static void many_kills_change_nothing(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    begin(ROUNDS);
    assert_true(run_once(0, 2));
    memcpy(hash, shared->hash, sizeof(hash));
    end();
    for (uint64_t every = 35; every <= 59; every += 12) {
        begin(ROUNDS);
        uint32_t lives = 1;
        while (!run_once(shared->fed.events + every, 1 + lives % 3)) {
            shared->fed.turn++;
            assert_true(++lives < MAX_LIVES);
        }
        assert_true(lives > 1);
        assert_same_run(hash, every);
        end();
    }
}

/* Sanitizers, which look for something else, make a life fifty times as long. */
static uint64_t stride(void)
{
    const char *sanitizers = getenv("FEDGE_SANITIZE");
    return sanitizers && sanitizers[0] != '\0' ? 7 : 1;
}

/* The server's own examples, for FLTrust. */
#define ROOT "kill-test-root.csv"

static const char *const STRATEGIES[] = {
    "\"type\":\"FedNova\"",
    "\"type\":\"FedProx\",\"proximal-mu\":0.5",
    "\"type\":\"FedAvgM\",\"server-momentum\":0.7",
    "\"type\":\"FedAdagrad\"",
    "\"type\":\"QFedAvg\",\"q\":2",
    "\"type\":\"FedBN\"",
    "\"type\":\"Krum\",\"num-malicious-nodes\":0",
    "\"type\":\"MultiKrum\",\"num-nodes-to-keep\":2,\"num-malicious-nodes\":0",
    "\"type\":\"Bulyan\",\"num-malicious-nodes\":0",
    "\"type\":\"NormClipping\"",
    "\"type\":\"FLTrust\",\"root-set\":{\"values\":\"" ROOT "\"}",
};
enum { NUM_STRATEGIES = sizeof(STRATEGIES) / sizeof(STRATEGIES[0]) };

static void write_root_set(void)
{
    FILE *file = fopen(ROOT, "w");
    assert_non_null(file);
    for (int i = 0; i < 12; i++)
        fprintf(file, "%d,%d,%d,%d\n", i % 4 == 0, i % 4 == 1, i % 4 == 2, i % 4);
    assert_int_equal(fclose(file), 0);
}

/* Every other time the power fails. Of all moments these are a few, other ones for each strategy:
 * tests/run.sh --all takes all of them. */
static void kills_change_nothing_that_a_strategy_makes(void **state)
{
    (void)state;
    const bool all = getenv("FEDGE_TEST_LONG") != NULL;
    write_root_set();
    for (uint32_t s = 0; s < NUM_STRATEGIES; s++) {
        char hash[FEDGE_HASH_TEXT];
        begin_strategy(ROUNDS, STRATEGIES[s]);
        assert_true(run_once(0, 2));
        const uint64_t num_events = shared->fed.events;
        memcpy(hash, shared->hash, sizeof(hash));
        end();
        const uint64_t step = all ? stride() : num_events / (stride() > 1 ? 1 : 4);
        for (uint64_t die_at = 1 + 11 * s % step; die_at <= num_events; die_at += step) {
            begin_strategy(ROUNDS, STRATEGIES[s]);
            shared->on_lossy_disk = (die_at + s) % 2 == 0;
            shared->draw = s;
            if (!run_once(die_at, 1 + (uint32_t)die_at % 3))
                assert_true(run_once(0, 2));
            shared->on_lossy_disk = false;
            if (strcmp(shared->hash, hash) != 0)
                print_error("%s\n", STRATEGIES[s]);
            assert_same_run(hash, die_at);
            end();
        }
    }
    assert_int_equal(remove(ROOT), 0);
}

/* What was acknowledged, and no more than that, must have been synced. */
static void a_power_failure_at_any_event_changes_nothing(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    begin(ROUNDS);
    assert_true(run_once(0, 2));
    uint64_t num_events = shared->fed.events;
    memcpy(hash, shared->hash, sizeof(hash));
    end();
    shared->on_lossy_disk = true;
    for (uint64_t die_at = 1; die_at <= num_events; die_at += stride()) {
        begin(ROUNDS);
        shared->fed.turn = (uint32_t)die_at;
        shared->draw = die_at % 2 == 0 ? 0 : die_at; /* every other time all is lost that can be */
        if (!run_once(die_at, 1 + (uint32_t)die_at % 3))
            assert_true(run_once(0, 1 + (uint32_t)die_at % 4));
        assert_same_run(hash, die_at);
        end();
    }
    shared->on_lossy_disk = false;
}

/* Lives of random lengths, in training, in evaluations and while recovering: no task id is used
 * twice (the federation looks), and no result is taken for another task's. */
static void task_ids_are_never_used_twice(void **state)
{
    (void)state;
    uint32_t num_kills = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        fedge_rng draw = fedge_rng_stream(seed, FEDGE_PURPOSE_SAMPLE, 0, 0, 0);
        begin(ROUNDS_WITH_EVALUATION);
        uint32_t lives = 1;
        while (!run_once(shared->fed.events + 1 + fedge_rng_below(&draw, 70), 1 + lives % 3)) {
            shared->fed.turn++;
            assert_true(++lives < MAX_LIVES);
        }
        num_kills += lives - 1;
        assert_all_evaluated(seed);
        for (uint32_t i = 0; i < NUM_DEVICES; i++) {
            assert_true(shared->fed.devices[i].num_refusals == 0 ||
                        shared->fed.devices[i].refusal == FEDGE_REASON_STALE_TASK);
        }
        end();
    }
    assert_true(num_kills > 50);
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_event_changes_nothing),
        cmocka_unit_test(a_kill_during_evaluation_changes_nothing),
        cmocka_unit_test(many_kills_change_nothing),
        cmocka_unit_test(kills_change_nothing_that_a_strategy_makes),
        cmocka_unit_test(a_power_failure_at_any_event_changes_nothing),
        cmocka_unit_test(task_ids_are_never_used_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
