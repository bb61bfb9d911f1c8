#include "aggregator/reduce/distributed_accumulator.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/codec/codecs.h"
#include "tests/edge/core/no_memory.h"

#define VALUES 1000u
#define UPDATES 7u
#define RANKS 3u

/* What one process makes of the updates, and what rank 0 does of the same, dealt among ranks. */
typedef struct trial {
    float alone[VALUES], together[VALUES];
    int64_t sums_alone[VALUES], sums_together[VALUES];
    fedge_accumulator_totals totals;
    fedge_status failed[RANKS]; /* what ranks come with */
    fedge_status joined[RANKS]; /* what they hear */
    bool empty_after;
} trial;

/* Also in threads, where cmocka's checks cannot fail. */
static void must(fedge_status status)
{
    if (status != FEDGE_OK)
        abort();
}

static void open_cpu(fedge_accumulator *accumulator)
{
    static fedge_tensor_spec tensor = {.name = "w", .count = VALUES};
    static fedge_schema schema = {.tensors = &tensor, .num_tensors = 1, .num_elements = VALUES};
    fedge_error err;
    const fedge_update_layout layout = {.num_sections = 1,
                                        .sections = {{.codec = NONE, .schema = &schema}},
                                        .num_elements = VALUES,
                                        .size = VALUES * sizeof(float)};
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 2};
    must(fedge_accumulator_open("cpu", &config, accumulator, &err));
}

static void add_update(fedge_accumulator *accumulator, uint32_t update)
{
    int32_t v[VALUES];
    fedge_error err;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, update, 0, 0);
    for (uint32_t i = 0; i < VALUES; i++)
        v[i] = (int32_t)(fedge_rng_u32(&rng) >> 2) - (1 << 29);
    must(fedge_accumulator_begin(accumulator, update + 1, &err));
    must(fedge_accumulator_add_values(accumulator, update % 2, v, 0, VALUES, update + 1, &err));
}

static const fedge_accumulator_config SILENT;

static void step(fedge_accumulator *accumulator, float *values)
{
    fedge_error err;
    const fedge_step_part part = {.count = VALUES, .bound_log2 = 2, .rate = 0.5, .values = values};
    memset(values, 0, VALUES * sizeof(*values));
    must(fedge_accumulator_step(accumulator, &part, 1, &err));
}

static void join_as(const fedge_collective *collective, void *user)
{
    trial *self = user;
    const uint32_t rank = collective->rank;
    fedge_accumulator accumulator;
    fedge_error err;
    open_cpu(&accumulator);
    must(fedge_distributed_wrap(&accumulator, collective, VALUES, &SILENT, &err));
    for (uint32_t i = rank; i < UPDATES; i += RANKS)
        add_update(&accumulator, i);
    if (self->failed[rank] != FEDGE_OK)
        (void)fedge_fail(&err, self->failed[rank], "a GPU is lost");
    self->joined[rank] = fedge_distributed_join(&accumulator, self->failed[rank], &err);
    if (rank == 0 && self->joined[rank] == FEDGE_OK) {
        self->totals = fedge_accumulator_get_totals(&accumulator);
        must(fedge_accumulator_read(&accumulator, 0, VALUES, self->sums_together, &err));
        step(&accumulator, self->together);
        must(fedge_accumulator_reset(&accumulator, &err));
        self->empty_after = fedge_accumulator_get_totals(&accumulator).num_updates == 0;
    }
    fedge_accumulator_close(&accumulator);
}

static void joined_sums_are_those_of_one_process(void **state)
{
    (void)state;
    static trial self;
    fedge_accumulator accumulator;
    fedge_error err;
    open_cpu(&accumulator);
    for (uint32_t i = 0; i < UPDATES; i++)
        add_update(&accumulator, i);
    const fedge_accumulator_totals totals = fedge_accumulator_get_totals(&accumulator);
    must(fedge_accumulator_read(&accumulator, 0, VALUES, self.sums_alone, &err));
    step(&accumulator, self.alone);
    fedge_accumulator_close(&accumulator);

    local_ranks_run(RANKS, join_as, &self);
    assert_int_equal(self.totals.num_updates, totals.num_updates);
    assert_int_equal(self.totals.total_weight, totals.total_weight);
    assert_memory_equal(self.sums_together, self.sums_alone, sizeof(self.sums_alone));
    assert_memory_equal(self.together, self.alone, sizeof(self.alone));
    assert_true(self.empty_after);
}

static void what_one_fails_in_all_fail_in(void **state)
{
    (void)state;
    static trial self = {.failed = {FEDGE_OK, FEDGE_OK, FEDGE_GPU_LOST}};
    local_ranks_run(RANKS, join_as, &self);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(self.joined[rank], FEDGE_GPU_LOST);
}

/* ---- on shards ------------------------------------------------------------------------------- */

#define ROUNDS 4u
#define BORDER 700u /* of two tensors, in the midst of a shard */

static const fedge_optimizer_step RULES[] = {
    {.rule = FEDGE_STEP_RULE_MOMENTUM, .num_moments = 1, .beta1 = 0.9},
    {.rule = FEDGE_STEP_RULE_ADAGRAD, .num_moments = 2, .beta1 = 0.1, .tau = 1e-3},
    {.rule = FEDGE_STEP_RULE_ADAM, .num_moments = 2, .beta1 = 0.9, .beta2 = 0.99, .tau = 1e-3},
    {.rule = FEDGE_STEP_RULE_YOGI, .num_moments = 2, .beta1 = 0.9, .beta2 = 0.99, .tau = 1e-3},
    {.rule = FEDGE_STEP_RULE_DYN, .num_moments = 1, .beta1 = 0.01, .beta2 = 0.3}};
#define NUM_RULES (sizeof(RULES) / sizeof(RULES[0]))

typedef struct model {
    float values[VALUES], moments[2][VALUES];
    int64_t sums[VALUES]; /* read in the third round */
} model;

typedef struct rounds {
    const fedge_optimizer_step *rule; /* NULL: FedAvg's */
    model alone, together;
} rounds;

static fedge_status lead(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    (void)user;
    return fedge_distributed_lead(accumulator, err);
}

/* In the last round the values are others than the step before left. */
static void move_model(const rounds *self, fedge_accumulator *accumulator, model *of,
                       uint32_t round)
{
    fedge_error err;
    fedge_step_part parts[2] = {{.count = BORDER, .bound_log2 = 2},
                                {.first = BORDER, .count = VALUES - BORDER, .bound_log2 = 3}};
    of->values[VALUES / 2] = round + 1 == ROUNDS ? 1.0f : of->values[VALUES / 2];
    for (uint32_t i = 0; i < 2; i++) {
        parts[i].rate = 0.5;
        parts[i].values = of->values + parts[i].first;
        parts[i].optimizer = self->rule;
        parts[i].moments[0] = of->moments[0] + parts[i].first;
        parts[i].moments[1] = of->moments[1] + parts[i].first;
        parts[i].unchanged = round > 0 && round + 1 < ROUNDS;
    }
    if (round == 2)
        must(fedge_accumulator_read(accumulator, 0, VALUES, of->sums, &err));
    if (fedge_accumulator_optimizes(accumulator) || !self->rule) {
        must(fedge_accumulator_step(accumulator, parts, 2, &err));
        return;
    }
    int64_t sums[VALUES];
    must(fedge_accumulator_read(accumulator, 0, VALUES, sums, &err));
    for (uint32_t i = 0; i < 2; i++) {
        const fedge_optimizer_sums by = {.sums = sums + parts[i].first,
                                         .count = parts[i].count,
                                         .total_weight =
                                             fedge_accumulator_get_totals(accumulator).total_weight,
                                         .bound_log2 = parts[i].bound_log2};
        fedge_optimizer_move(self->rule, parts[i].rate, &by, parts[i].values, parts[i].moments);
    }
}

static void add_round(fedge_accumulator *accumulator, uint32_t round, uint32_t first, uint32_t by)
{
    for (uint32_t i = first; i < UPDATES; i += by)
        add_update(accumulator, UPDATES * round + i);
}

static void play_on_shards(const fedge_collective *collective, void *user)
{
    rounds *self = user;
    fedge_accumulator accumulator;
    fedge_error err;
    open_cpu(&accumulator);
    must(fedge_distributed_wrap(&accumulator, collective, VALUES, &SILENT, &err));
    fedge_distributed_on_shards(&accumulator, lead, NULL);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        add_round(&accumulator, round, collective->rank, collective->num_ranks);
        if (collective->rank > 0) { /* to join, and to step or give its sums */
            must(fedge_distributed_follow(&accumulator, FEDGE_OK, &err));
            must(fedge_distributed_follow(&accumulator, FEDGE_OK, &err));
            continue;
        }
        must(fedge_distributed_lead(&accumulator, &err));
        move_model(self, &accumulator, &self->together, round);
        must(fedge_accumulator_reset(&accumulator, &err));
    }
    fedge_accumulator_close(&accumulator);
}

static void play_alone(rounds *self)
{
    fedge_accumulator accumulator;
    fedge_error err;
    open_cpu(&accumulator);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        add_round(&accumulator, round, 0, 1);
        move_model(self, &accumulator, &self->alone, round);
        must(fedge_accumulator_reset(&accumulator, &err));
    }
    fedge_accumulator_close(&accumulator);
}

static void steps_on_shards_are_those_of_one_process(void **state)
{
    (void)state;
    static rounds self;
    for (size_t rule = 0; rule <= NUM_RULES; rule++) {
        for (uint32_t num_ranks = 2; num_ranks <= LOCAL_RANKS_MAX; num_ranks++) {
            memset(&self, 0, sizeof(self));
            self.rule = rule < NUM_RULES ? &RULES[rule] : NULL;
            play_alone(&self);
            local_ranks_run(num_ranks, play_on_shards, &self);
            assert_true(self.alone.values[0] != 0.0f);
            assert_memory_equal(&self.together, &self.alone, sizeof(self.alone));
        }
    }
}

/* In a process of its own, as one that has ended is not waited for. */
static void step_without_room(const fedge_collective *collective, void *user)
{
    static float values[VALUES];
    const fedge_step_part part = {.count = VALUES, .bound_log2 = 2, .rate = 0.5, .values = values};
    fedge_accumulator accumulator;
    fedge_error err;
    fedge_status heard;
    (void)user;
    open_cpu(&accumulator);
    must(fedge_distributed_wrap(&accumulator, collective, VALUES, &SILENT, &err));
    fedge_distributed_on_shards(&accumulator, lead, NULL);
    add_round(&accumulator, 0, collective->rank, collective->num_ranks);
    if (collective->rank > 0) {
        must(fedge_distributed_follow(&accumulator, FEDGE_OK, &err));
        no_memory.left = collective->rank == 1 ? 0 : -1;
        heard = fedge_distributed_follow(&accumulator, FEDGE_OK, &err);
    } else {
        must(fedge_distributed_lead(&accumulator, &err));
        heard = fedge_accumulator_step(&accumulator, &part, 1, &err);
    }
    if (heard != FEDGE_NO_MEMORY || !strstr(err.message, "no memory for a shard"))
        abort();
    fedge_accumulator_close(&accumulator);
}

static void none_waits_for_a_rank_without_room_for_a_step(void **state)
{
    (void)state;
    int codes[RANKS];
    local_ranks_fork(RANKS, step_without_room, NULL, codes);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(codes[rank], 0);
}

static void a_shard_is_what_is_left_of_the_others(void **state)
{
    (void)state;
    for (uint32_t num_ranks = 1; num_ranks <= 64; num_ranks++) {
        const fedge_collective collective = {.num_ranks = num_ranks};
        for (size_t count = 0; count < 300; count += 7) {
            size_t at = 0;
            for (uint32_t rank = 0; rank < num_ranks; rank++) {
                const fedge_collective_shard shard =
                    fedge_collective_shard_of(&collective, count, rank);
                assert_int_equal(shard.first, at);
                assert_in_range(shard.count, count / num_ranks, count / num_ranks + 1);
                at += shard.count;
            }
            assert_int_equal(at, count);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_sums_are_those_of_one_process),
        cmocka_unit_test(what_one_fails_in_all_fail_in),
        cmocka_unit_test(steps_on_shards_are_those_of_one_process),
        cmocka_unit_test(none_waits_for_a_rank_without_room_for_a_step),
        cmocka_unit_test(a_shard_is_what_is_left_of_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
