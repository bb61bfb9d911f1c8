#include "aggregator/reduce/joined.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/rng.h"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/edge/core/cmocka_all.h"
#include "tests/edge/core/codecs.h"

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
    const fedge_layout layout = {.num_sections = 1,
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
    must(fedge_joined_wrap(&accumulator, collective, VALUES, &err));
    for (uint32_t i = rank; i < UPDATES; i += RANKS)
        add_update(&accumulator, i);
    if (self->failed[rank] != FEDGE_OK)
        (void)fedge_fail(&err, self->failed[rank], "a GPU is lost");
    self->joined[rank] = fedge_joined_join(&accumulator, self->failed[rank], &err);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_sums_are_those_of_one_process),
        cmocka_unit_test(what_one_fails_in_all_fail_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
