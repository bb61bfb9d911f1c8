#include "tests/aggregator/rounds/strategy_fixture.h"

#include <math.h>

#include "edge/core/fixed.h"
#include "edge/plan/client_hooks.h"
#include "tests/aggregator/rounds/strategy_jobs.h"
#include "tests/edge/core/codec/codecs.h"

static fedge_tensor_spec tensors[2];
static fedge_schema schema;

static int make_schema(void **state)
{
    (void)state;
    const uint32_t weight[] = {2, 2}, bias[] = {1};
    fedge_schema_init(&schema, tensors, 2);
    return fedge_schema_add(&schema, "0.weight", FEDGE_F32, 2, weight, NULL) != FEDGE_OK ||
           fedge_schema_add(&schema, "0.bias", FEDGE_F32, 1, bias, NULL) != FEDGE_OK;
}

static void *make(const fedge_strategy_ops *ops, const fedge_job *job)
{
    fedge_strategy_config config = {.schema = &schema, .job = job};
    void *made = NULL;
    fedge_error err;
    assert_int_equal(ops->init(&config, &made, &err), FEDGE_OK);
    return made;
}

/* For updates of [num_sections] sections that are like [schema]. */
static fedge_accumulator open_accumulator(uint32_t num_sections)
{
    fedge_update_layout layout = {.num_sections = num_sections,
                                  .num_elements = num_sections * schema.num_elements};
    for (uint32_t i = 0; i < num_sections; i++)
        layout.sections[i] = (fedge_update_layout_section){.codec = NONE, .schema = &schema};
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
    fedge_accumulator accumulator;
    assert_int_equal(fedge_accumulator_open("cpu", &config, &accumulator, NULL), FEDGE_OK);
    return accumulator;
}

static void add(fedge_accumulator *accumulator, const int32_t *v, size_t count, uint32_t weight)
{
    assert_int_equal(fedge_accumulator_begin(accumulator, weight, NULL), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add_values(accumulator, 0, v, 0, count, weight, NULL),
                     FEDGE_OK);
}

/* Two clients, weights 1 and 3, deltas that are exact in fixed point: the mean is exact. */
static void fedavg_adds_the_weighted_mean(void **state)
{
    (void)state;
    const float first[5] = {1.0f, -1.0f, 0.5f, 0.0f, 8.0f};
    const float second[5] = {0.0f, 1.0f, 0.5f, -2.0f, 4.0f};
    const int8_t bounds_log2[2] = {2, 4};
    int32_t v[5];
    fedge_accumulator accumulator = open_accumulator(1);
    const float *deltas[2] = {first, second};
    const uint32_t weights[2] = {1, 3};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fedge_fixed_quantise_strict(deltas[i], 4, 2, v, NULL), FEDGE_OK);
        assert_int_equal(fedge_fixed_quantise_strict(deltas[i] + 4, 1, 4, v + 4, NULL), FEDGE_OK);
        add(&accumulator, v, 5, weights[i]);
    }
    fedge_strategy_sum round = {.round = 1,
                                .num_updates = 2,
                                .total_weight = 4,
                                .accumulator = &accumulator,
                                .delta = {.schema = &schema, .bounds_log2 = bounds_log2}};
    float model[5] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    fedge_job *jobs[2] = {strategy_job("{}"), strategy_job("{\"server-learning-rate\": 0.5}")};
    void *plain = make(&fedge_strategy_fedavg, jobs[0]);
    assert_int_equal(fedge_strategy_fedavg.step(plain, &round, model, NULL), FEDGE_OK);
    const float expected[5] = {1.25f, 1.5f, 1.5f, -0.5f, 6.0f};
    assert_memory_equal(model, expected, sizeof(model));

    void *half = make(&fedge_strategy_fedavg, jobs[1]);
    assert_int_equal(fedge_strategy_fedavg.step(half, &round, model, NULL), FEDGE_OK);
    const float moved[5] = {1.375f, 1.75f, 1.75f, -1.25f, 8.5f};
    assert_memory_equal(model, moved, sizeof(model));

    round.total_weight = 0;
    assert_int_equal(fedge_strategy_fedavg.step(half, &round, model, NULL), FEDGE_INVALID_ARGUMENT);
    assert_memory_equal(model, moved, sizeof(model));
    fedge_strategy_fedavg.free(plain);
    fedge_strategy_fedavg.free(half);
    fedge_strategy_fedavg.free(NULL);
    fedge_job_free(jobs[0]);
    fedge_job_free(jobs[1]);
    fedge_accumulator_close(&accumulator);
}

static void fedavg_keeps_no_state(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{}");
    void *plain = make(&fedge_strategy_fedavg, job);
    fedge_buffer out;
    fedge_buffer_init(&out, 16);
    assert_int_equal(fedge_strategy_fedavg.save(plain, &out, NULL), FEDGE_OK);
    assert_int_equal(out.size, 0);
    assert_int_equal(fedge_strategy_fedavg.load(plain, NULL, 0, NULL), FEDGE_OK);
    fedge_error err;
    assert_int_equal(fedge_strategy_fedavg.load(plain, (const uint8_t *)"x", 1, &err),
                     FEDGE_CORRUPT);
    fedge_buffer_fini(&out);
    fedge_strategy_fedavg.free(plain);
    fedge_job_free(job);
}

/* Two of four clients: x moves by the mean, c by half of its mean; then there and back. */
static void scaffold_moves_the_control_variate_too(void **state)
{
    (void)state;
    fedge_job *job =
        strategy_job("{\"type\": \"SCAFFOLD\", \"server-learning-rate\": 0.5, \"num-clients\": 4}");
    const int8_t bounds[2] = {2, 4}, control_bounds[2] = {0, 0};
    int32_t v[10];
    for (int i = 0; i < 5; i++) {
        v[i] = (i + 1) << (i < 4 ? 27 : 25);
        v[5 + i] = -((i + 1) << 27);
    }
    fedge_accumulator accumulator = open_accumulator(2);
    add(&accumulator, v, 10, 1);
    add(&accumulator, v, 10, 1);
    fedge_tensor_spec behind[2] = {schema.tensors[0], schema.tensors[1]};
    fedge_schema control = schema;
    control.tensors = behind;
    behind[0].offset += schema.num_elements;
    behind[1].offset += schema.num_elements;
    fedge_strategy_sum round = {.round = 1,
                                .num_updates = 2,
                                .total_weight = 2,
                                .accumulator = &accumulator,
                                .delta = {.schema = &schema, .bounds_log2 = bounds},
                                .hooks = {.schema = &control, .bounds_log2 = control_bounds}};
    const fedge_strategy_ops *ops = &fedge_strategy_scaffold;
    float model[5] = {0};
    fedge_buffer out;
    fedge_error err;
    void *one = make(ops, job), *two = make(ops, job);
    for (int i = 0; i < 5; i++)
        assert_true(ops->broadcast(one)[i] == 0.0f);
    assert_int_equal(ops->step(one, &round, model, &err), FEDGE_OK);
    const float moved[5] = {0.25f, 0.5f, 0.75f, 1.0f, 1.25f};
    const float varied[5] = {-0.0625f, -0.125f, -0.1875f, -0.25f, -0.3125f};
    assert_memory_equal(model, moved, sizeof(model));
    assert_memory_equal(ops->broadcast(one), varied, sizeof(varied));

    fedge_buffer_init(&out, 64);
    assert_int_equal(ops->save(one, &out, &err), FEDGE_OK);
    assert_int_equal(out.size, sizeof(varied));
    assert_int_equal(ops->load(two, out.data, out.size, &err), FEDGE_OK);
    assert_memory_equal(ops->broadcast(two), varied, sizeof(varied));
    assert_int_equal(ops->load(two, out.data, out.size - 1, &err), FEDGE_CORRUPT);

    round.num_updates = 8; /* more than there are said to be: all of the mean, not twice */
    assert_int_equal(ops->step(two, &round, model, &err), FEDGE_OK);
    assert_true(ops->broadcast(two)[0] == -0.0625f - 0.125f);
    ops->forget(two);
    for (int i = 0; i < 5; i++)
        assert_true(ops->broadcast(two)[i] == 0.0f);
    round.hooks.schema = NULL;
    assert_int_equal(ops->step(two, &round, model, &err), FEDGE_INVALID_ARGUMENT);
    fedge_buffer_fini(&out);
    ops->free(one);
    ops->free(two);
    fedge_job_free(job);
    fedge_accumulator_close(&accumulator);
}

/* A client may say of its update what it likes: no more than all values at their bounds counts,
 * which is 4 · 4² + 16². */
static void qfedavg_bounds_what_clients_say(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{\"type\": \"QFedAvg\", \"q\": 1}");
    const double said[3] = {319.0, 320.0, 1e30};
    const int8_t bounds[2] = {2, 4};
    const int32_t v[5] = {1 << 28, 1 << 27, 1 << 26, -(1 << 28), 1 << 25};
    const fedge_strategy_ops *ops = NULL;
    float models[3][5] = {{0}};
    assert_int_equal(fedge_strategy_find("QFedAvg", &ops, NULL), FEDGE_OK);
    for (int i = 0; i < 3; i++) {
        fedge_update_facts facts = {
            .round = 1, .num_examples = 1, .start_loss = 0.5, .squared_norm = said[i]};
        fedge_accumulator accumulator = open_accumulator(1);
        add(&accumulator, v, 5, 1);
        fedge_strategy_sum round = {.round = 1,
                                    .num_updates = 1,
                                    .total_weight = 1,
                                    .facts = &facts,
                                    .job = job,
                                    .accumulator = &accumulator,
                                    .delta = {.schema = &schema, .bounds_log2 = bounds}};
        void *made = make(ops, job);
        assert_int_equal(ops->step(made, &round, models[i], NULL), FEDGE_OK);
        ops->free(made);
        fedge_accumulator_close(&accumulator);
    }
    assert_memory_not_equal(models[0], models[1], sizeof(models[0]));
    assert_memory_equal(models[1], models[2], sizeof(models[0]));
    fedge_job_free(job);
}

/* n_i / a_i, for five epochs in batches of ten with momentum 0.75. */
static const struct {
    uint64_t num_examples;
    double value;
    uint32_t before; /* rounded to 1024ths */
} NOVA[] = {
    {3, 0.27655743608210298, 283}, {37, 0.5438133151862935, 557}, {600, 0.50505050505050508, 517}};

static void fednova_weighs_as_finely_as_a_cohort_allows(void **state)
{
    (void)state;
    const job_parts parts = {.strategy = "{\"type\": \"FedNova\"}",
                             .training = ", \"local-epochs\": 5, \"batch-size\": 10, "
                                         "\"optimizer\": {\"type\": \"SGD\", \"momentum\": 0.75}"};
    fedge_job *job = NULL;
    fedge_error err;
    if (parse_parts(&parts, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const fedge_strategy_ops *ops = &fedge_strategy_fednova;
    void *made = make(ops, job);
    uint64_t first = 0;
    for (uint32_t i = 0; i < 3; i++) {
        fedge_update_facts facts = {.round = 1, .num_examples = NOVA[i].num_examples};
        /* As in the journals of releases that rounded them so. */
        assert_int_equal(ops->weight(made, job, &facts), NOVA[i].before);
        facts.cohort = 10;
        const uint64_t weight = ops->weight(made, job, &facts);
        first = i == 0 ? weight : first;
        const double ratio = NOVA[i].value / NOVA[0].value;
        assert_true(fabs((double)weight / (double)first / ratio - 1.0) < 1e-7);
        /* The largest is that of one whole batch: ten of it are not over 2^32. */
        facts.num_examples = 10;
        assert_in_range(ops->weight(made, job, &facts), UINT32_MAX / 11, UINT32_MAX / 10 + 1);
        facts.cohort = 1 << 20;
        assert_in_range(ops->weight(made, job, &facts), 1, 1 << 12);
    }
    ops->free(made);
    fedge_job_free(job);
}

/* Trainers of external models report them: a client of twice the steps gets half the weight. */
static void fednova_takes_the_steps_that_clients_report(void **state)
{
    (void)state;
    const job_parts parts = {
        .strategy = "{\"type\": \"FedNova\"}",
        .model = "{\"type\": \"external\", \"tensors\": [{\"name\": \"w\", \"shape\": [3]}]}"};
    fedge_job *job = NULL;
    fedge_error err;
    if (parse_parts(&parts, &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_true(fedge_plan_counts_steps(&job->plan));
    const fedge_strategy_ops *ops = &fedge_strategy_fednova;
    void *made = make(ops, job);
    fedge_update_facts facts = {.round = 1, .num_examples = 64, .cohort = 8, .num_steps = 7};
    const uint32_t weight = ops->weight(made, job, &facts);
    facts.num_steps = 14;
    assert_in_range(weight, 2 * ops->weight(made, job, &facts) - 1,
                    2 * ops->weight(made, job, &facts) + 1);
    assert_true(weight > 1024); /* of some resolution, and not clamped */
    assert_true(weight < INT32_MAX);
    ops->free(made);
    fedge_job_free(job);
}

/* Clients choose among them by their losses: of two that are alike the second is never chosen. */
static void models_of_ifca_begin_unlike(void **state)
{
    (void)state;
    fedge_job *job = strategy_job("{\"type\": \"IFCA\", \"num-clusters\": 3}");
    const fedge_strategy_ops *ops = NULL;
    float models[3][6];
    assert_int_equal(fedge_strategy_find("IFCA", &ops, NULL), FEDGE_OK);
    fedge_model_init_values(&job->plan.model, job->plan.seed, models[0]);
    const fedge_strategy_config config = {.schema = &job->plan.schema, .job = job};
    void *ifca = NULL;
    assert_int_equal(job->plan.schema.num_elements, 6);
    assert_int_equal(ops->init(&config, &ifca, NULL), FEDGE_OK);
    memcpy(models[1], ops->broadcast(ifca), 2 * sizeof(models[0]));
    for (int i = 0; i < 3; i++)
        assert_memory_not_equal(models[i], models[(i + 1) % 3], sizeof(models[0]));
    ops->free(ifca);
    fedge_job_free(job);
}

static void names_are_found_exactly(void **state)
{
    (void)state;
    const fedge_strategy_ops *ops = NULL;
    fedge_error err;
    assert_int_equal(fedge_strategy_find("FedAvg", &ops, &err), FEDGE_OK);
    assert_ptr_equal(ops, &fedge_strategy_fedavg);
    const char *wrong[] = {"fedavg", "FedAv", "FedAvgg", ""};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(fedge_strategy_find(wrong[i], &ops, &err), FEDGE_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fedavg_adds_the_weighted_mean),
        cmocka_unit_test(fedavg_keeps_no_state),
        cmocka_unit_test(scaffold_moves_the_control_variate_too),
        cmocka_unit_test(qfedavg_bounds_what_clients_say),
        cmocka_unit_test(fednova_weighs_as_finely_as_a_cohort_allows),
        cmocka_unit_test(fednova_takes_the_steps_that_clients_report),
        cmocka_unit_test(models_of_ifca_begin_unlike),
        cmocka_unit_test(names_are_found_exactly),
    };
    return cmocka_run_group_tests(tests, make_schema, NULL);
}
