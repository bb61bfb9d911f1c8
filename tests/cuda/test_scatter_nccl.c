/* Sums of several ranks with emulated GPUs, joined by one communicator of NCCL: those of one
 * process, whatever GPUs each rank has; else MPI joins them, and a rank that is lost ends the
 * others. Ranks are processes here, as they are at work. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, usleep */
#include "tests/edge/core/cmocka_all.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aggregator/reduce/cuda/accumulator_cuda.h"
#include "aggregator/reduce/distributed_accumulator.h"
#include "edge/core/rng.h"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/codec/codecs.h"

enum { MAX_RANKS = LOCAL_RANKS_MAX, VALUES = 2300, ROUNDS = 3, UPDATES = 5 };
enum { TOLD = 9, FAILED = 8 };

typedef struct trial {
    uint32_t num_ranks;
    emulator_config machines[MAX_RANKS];
    bool on_cpu[MAX_RANKS];
    fedge_shard shards[MAX_RANKS];
    const char *join;
    bool on_shards;
    bool changes; /* the last rank opens its GPUs anew before the second round, one of them */
} trial;

/* What the ranks, which are processes, leave behind. */
static struct results {
    int64_t sums[ROUNDS][VALUES], alone[ROUNDS][VALUES];
    float moved[ROUNDS][VALUES], moved_alone[ROUNDS][VALUES];
    fedge_accumulator_totals totals[ROUNDS];
    char told[4096];
    pid_t other; /* rank 1 */
    char message[MAX_RANKS][FEDGE_ERROR_MESSAGE_SIZE];
} * results;

/* In processes, where cmocka's checks cannot fail. */
static void must(fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK) {
        (void)fprintf(stderr, "%s\n", err->message);
        _exit(1);
    }
}

static void write_told(void *user, const char *line, size_t size)
{
    (void)user;
    strncat(results->told, line, size < 1000 ? size : 1000);
}

static const fedge_log LOG = {.level = FEDGE_LOG_INFO, .write = write_told};

/* Tensors that begin and end anywhere in shards, pieces and blocks. */
static fedge_accumulator_config make_config(void)
{
    static fedge_tensor_spec tensors[] = {
        {.name = "a", .count = 700},
        {.name = "b", .count = 1, .offset = 700},
        {.name = "c", .count = VALUES - 701, .offset = 701},
    };
    static fedge_schema schema = {.tensors = tensors, .num_tensors = 3, .num_elements = VALUES};
    static fedge_update_layout layout;
    layout = (fedge_update_layout){.num_sections = 1,
                                   .sections = {{.codec = NONE, .schema = &schema}},
                                   .num_elements = VALUES,
                                   .size = VALUES * sizeof(float)};
    return (fedge_accumulator_config){.layout = &layout, .num_lanes = 1};
}

static void open_as(const fedge_accumulator_ops *kind, const fedge_accumulator_config *config,
                    fedge_accumulator *accumulator)
{
    fedge_error err;
    *accumulator = (fedge_accumulator){.ops = kind};
    must(kind->open(config, &accumulator->state, &err), &err);
}

static void add_updates(fedge_accumulator *accumulator, uint32_t round, uint32_t first, uint32_t by)
{
    int32_t v[VALUES];
    fedge_error err;
    for (uint32_t u = first; u < UPDATES; u += by) {
        fedge_rng stream = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, round, u, 0);
        for (uint32_t i = 0; i < VALUES; i++)
            v[i] = (int32_t)(fedge_rng_u32(&stream) >> 2) - (1 << 29);
        must(fedge_accumulator_begin(accumulator, 1000000 + u, &err), &err);
        must(fedge_accumulator_add_values(accumulator, 0, v, 0, VALUES, 1000000 + u, &err), &err);
    }
}

static void step(fedge_accumulator *accumulator, float *values)
{
    fedge_error err;
    const fedge_step_part part = {.count = VALUES, .bound_log2 = 1, .rate = 0.5, .values = values};
    must(fedge_accumulator_step(accumulator, &part, 1, &err), &err);
}

static fedge_status lead(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    (void)user;
    return fedge_distributed_lead(accumulator, err);
}

static void open_rank(const trial *self, const fedge_collective *ranks, bool again,
                      fedge_accumulator *accumulator)
{
    fedge_error err;
    fedge_accumulator_config config = make_config();
    config.join = self->join;
    config.log = &LOG;
    config.shard = self->shards[ranks->rank];
    config.num_gpus = again ? 1 : 0;
    open_as(self->on_cpu[ranks->rank] ? &fedge_accumulator_cpu : &fedge_accumulator_cuda, &config,
            accumulator);
    must(fedge_distributed_wrap(accumulator, ranks, VALUES, &config, &err), &err);
    fedge_distributed_on_shards(accumulator, lead, NULL);
}

static fedge_status join_round(const trial *self, fedge_accumulator *accumulator, bool leads,
                               fedge_error *err)
{
    if (!self->on_shards)
        return fedge_distributed_join(accumulator, FEDGE_OK, err);
    return leads ? fedge_distributed_lead(accumulator, err)
                 : fedge_distributed_follow(accumulator, FEDGE_OK, err);
}

static bool reads(const trial *self, uint32_t round)
{
    return !self->on_shards || round % 2 == 1;
}

/* Rank 0 steps, and reads: on shards every other round, before it, so that all sums come to it. */
static void use_round(const trial *self, fedge_accumulator *accumulator, uint32_t round, bool leads)
{
    fedge_error err;
    float *moved = results->moved[round];
    if (!leads && self->on_shards) { /* after which its sums are 0 */
        must(fedge_distributed_follow(accumulator, FEDGE_OK, &err), &err);
    } else if (leads) {
        results->totals[round] = fedge_accumulator_get_totals(accumulator);
        memcpy(moved, results->moved[round > 0 ? round - 1 : 0], sizeof(results->moved[0]));
        if (reads(self, round))
            must(fedge_accumulator_read(accumulator, 0, VALUES, results->sums[round], &err), &err);
        step(accumulator, moved);
    }
    if (leads || !self->on_shards)
        must(fedge_accumulator_reset(accumulator, &err), &err);
}

static void play(const fedge_collective *ranks, void *user)
{
    const trial *self = user;
    const bool last = ranks->rank + 1 == ranks->num_ranks;
    fedge_accumulator accumulator;
    fedge_error err = {0};
    (void)emulator_start(&self->machines[ranks->rank]);
    open_rank(self, ranks, false, &accumulator);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round == 1 && last && self->changes) {
            fedge_accumulator_close(&accumulator);
            open_rank(self, ranks, true, &accumulator);
        }
        add_updates(&accumulator, round, ranks->rank, ranks->num_ranks);
        if (join_round(self, &accumulator, ranks->rank == 0, &err) != FEDGE_OK) {
            memcpy(results->message[ranks->rank], err.message, sizeof(err.message));
            _exit(FAILED);
        }
        use_round(self, &accumulator, round, ranks->rank == 0);
    }
    fedge_accumulator_close(&accumulator);
    if (emulator_leaks() > 0 || emulator_fault())
        _exit(1);
}

static void play_alone(void)
{
    fedge_accumulator accumulator;
    fedge_error err;
    const fedge_accumulator_config config = make_config();
    open_as(&fedge_accumulator_cpu, &config, &accumulator);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        add_updates(&accumulator, round, 0, 1);
        must(fedge_accumulator_read(&accumulator, 0, VALUES, results->alone[round], &err), &err);
        memcpy(results->moved_alone[round], results->moved_alone[round > 0 ? round - 1 : 0],
               sizeof(results->moved_alone[0]));
        step(&accumulator, results->moved_alone[round]);
        must(fedge_accumulator_reset(&accumulator, &err), &err);
    }
    fedge_accumulator_close(&accumulator);
}

static void begin_anew(void)
{
    memset(results, 0, sizeof(*results));
}

/* The sums and models of one process, and what the log says of the way, [times] each. */
static void expect_same(trial *self, const char *words, int times)
{
    int codes[MAX_RANKS] = {0};
    begin_anew();
    play_alone();
    local_ranks_fork(self->num_ranks, play, self, codes);
    for (uint32_t rank = 0; rank < self->num_ranks; rank++)
        assert_int_equal(codes[rank], 0);
    assert_memory_equal(results->moved, results->moved_alone, sizeof(results->moved));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        assert_int_equal(results->totals[round].num_updates, UPDATES);
        if (reads(self, round)) {
            assert_memory_equal(results->sums[round], results->alone[round],
                                sizeof(int64_t[VALUES]));
        }
    }
    for (const char *at = results->told; (at = strstr(at, "sums-joined-by")) != NULL; at++)
        times--;
    assert_int_equal(times, 0);
    if (!strstr(results->told, words))
        fail_msg("\"%s\" does not say \"%s\"", results->told, words);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void sums_are_those_of_one_process(void **state)
{
    (void)state;
    static const uint32_t GPUS[][MAX_RANKS] = {{1, 1}, {2, 1}, {1, 3, 2}, {2, 2, 2, 2}};
    for (size_t i = 0; i < sizeof(GPUS) / sizeof(GPUS[0]); i++) {
        for (int order = EMULATOR_EAGER; order <= EMULATOR_RANDOM; order++) {
            trial self = {.on_shards = i % 2 == 0};
            while (self.num_ranks < MAX_RANKS && GPUS[i][self.num_ranks] > 0) {
                self.machines[self.num_ranks] =
                    (emulator_config){.num_gpus = GPUS[i][self.num_ranks],
                                      .order = (emulator_order)order,
                                      .seed = 7 + self.num_ranks};
                self.num_ranks++;
            }
            expect_same(&self, "kind=nccl", 1);
        }
    }
}

static void other_gpus_make_another_communicator(void **state)
{
    (void)state;
    trial self = {.num_ranks = 2, .machines = {{.num_gpus = 2}, {.num_gpus = 2}}, .changes = true};
    expect_same(&self, "kind=nccl", 2);
}

static void mpi_joins_where_a_rank_cannot(void **state)
{
    (void)state;
    static const struct {
        trial with;
        const char *words;
    } CASES[] = {
        {{.num_ranks = 2, .machines = {{.num_gpus = 2}, {.num_gpus = 1}}, .join = "mpi"},
         "kind=mpi because=\"as asked for\""},
        {{.num_ranks = 2, .machines = {{.num_gpus = 1}, {.num_gpus = 1}}, .on_cpu = {false, true}},
         "because=\"rank 1 on here: its accumulator is cpu\""},
        {{.num_ranks = 2, .machines = {{.num_gpus = 1}, {.num_gpus = 1, .no_nccl = true}}},
         "because=\"rank 1 on here: NCCL is not found"},
        {{.num_ranks = 2, .machines = {{.num_gpus = 1}, {.num_gpus = 1, .nccl_version = 2708}}},
         "because=\"rank 1 on here: NCCL is version 2.7.8"},
        {{.num_ranks = 2, .machines = {{.num_gpus = 1}, {.num_gpus = 1, .nccl_version = 22708}}},
         "what joins sums is nccl 2.27.8, and on rank 0 nccl 2.28.9"},
        {{.num_ranks = 2,
          .machines = {{.num_gpus = 2}, {.num_gpus = 1}},
          .shards = {FEDGE_SHARD_COORDINATES}},
         "because=\"its GPUs share the coordinates"},
        {{.num_ranks = 2,
          .machines =
              {{.num_gpus = 1},
               {.num_gpus = 2, .fail_at = "ncclCommInitRank", .fail_call = 2, .fail_error = 999}}},
         "is lost while starting NCCL"},
        {{.num_ranks = 2,
          .machines =
              {{.num_gpus = 1, .fail_at = "ncclGetUniqueId", .fail_call = 1, .fail_error = 999},
               {.num_gpus = 1}}},
         "is lost while starting NCCL"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        trial self = CASES[i].with;
        expect_same(&self, CASES[i].words, 1);
    }
}

static void what_was_asked_for_by_name_must_be_had(void **state)
{
    (void)state;
    trial self = {.num_ranks = 2,
                  .machines = {{.num_gpus = 1}, {.num_gpus = 1, .no_nccl = true}},
                  .join = "nccl"};
    int codes[2];
    fedge_error err;
    begin_anew();
    local_ranks_fork(2, play, &self, codes);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(codes[rank], FAILED);
        assert_non_null(strstr(results->message[rank], "sums cannot be joined by nccl: rank 1 on"));
    }
    assert_int_equal(fedge_distributed_check_name("nccl", &err), FEDGE_OK);
    assert_int_equal(fedge_distributed_check_name("pipes", &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "auto, mpi, nccl"));
}

static void on_stuck(const fedge_error *err)
{
    memcpy(results->message[0], err->message, sizeof(err->message));
    (void)kill(results->other, SIGKILL); /* it hangs */
    _exit(err->status == FEDGE_GPU_LOST ? TOLD : 1);
}

/* The scatter alone: rank 0 says what it finds. */
static void sum_once(const fedge_collective *ranks, void *user)
{
    const trial *self = user;
    fedge_accumulator accumulator;
    fedge_error err = {0};
    int64_t own[VALUES];
    void *opened = NULL;
    char release[FEDGE_COLLECTIVE_FACT_TEXT];
    fedge_accumulator_config config = make_config();
    if (ranks->rank == 0)
        config.stuck = on_stuck;
    else
        results->other = getpid();
    (void)emulator_start(&self->machines[ranks->rank]);
    open_as(&fedge_accumulator_cuda, &config, &accumulator);
    must(fedge_scatter_nccl.prepare(accumulator.state, release, &err), &err);
    must(fedge_scatter_nccl.open(accumulator.state, ranks, VALUES, &opened, &err), &err);
    const fedge_status status = fedge_scatter_nccl.sum(opened, own, &err);
    memcpy(results->message[ranks->rank], err.message, sizeof(err.message));
    _exit(status == FEDGE_GPU_LOST ? FAILED : 1);
}

static void a_rank_that_is_killed_ends_the_others(void **state)
{
    (void)state;
    for (uint64_t call = 1; call <= 3; call++) {
        trial self = {.num_ranks = 2,
                      .machines = {{.num_gpus = 2},
                                   {.num_gpus = 1,
                                    .fail_at = "ncclReduceScatter",
                                    .fail_call = call,
                                    .fail_error = EMULATOR_DIES}}};
        int codes[2];
        begin_anew();
        local_ranks_fork(2, sum_once, &self, codes);
        assert_int_equal(codes[1], -SIGKILL);
        assert_int_equal(codes[0], FAILED);
        assert_non_null(strstr(results->message[0],
                               "one of GPUs 0,1 or of another rank's is lost while joining sums"));
    }
}

/* Nothing tells of it, as when a machine is cut off. */
static void a_rank_that_is_silent_ends_the_others_in_time(void **state)
{
    (void)state;
    trial self = {.num_ranks = 2,
                  .machines = {{.num_gpus = 1},
                               {.num_gpus = 1,
                                .fail_at = "ncclReduceScatter",
                                .fail_call = 2,
                                .fail_error = EMULATOR_HANGS}}};
    int codes[2];
    begin_anew();
    local_ranks_fork(2, sum_once, &self, codes);
    assert_int_equal(codes[0], TOLD);
    assert_non_null(
        strstr(results->message[0], "is lost while joining sums of ranks: no progress"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_one_process),
        cmocka_unit_test(other_gpus_make_another_communicator),
        cmocka_unit_test(mpi_joins_where_a_rank_cannot),
        cmocka_unit_test(what_was_asked_for_by_name_must_be_had),
        cmocka_unit_test(a_rank_that_is_killed_ends_the_others),
        cmocka_unit_test(a_rank_that_is_silent_ends_the_others_in_time),
    };
    results =
        mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
