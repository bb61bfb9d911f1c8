/* What a round's end makes of the model: what is trained moves by the mean from where it was, and
 * the rest stays. All numbers are exact in fixed point. */
#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/global_model.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define FILE_NAME "test_global_model.safetensors"

enum { MAX_VALUES = 64 };

static fedge_error err;

/* Linear(3, 4), Linear(4, 2): 16 + 10 parameters; the texts go into the model, its layers and the
 * job. */
static fedge_job *parse(const char *first, const char *second, const char *more)
{
    char text[2048];
    fedge_job *job = NULL;
    (void)snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"mlp\", \"model\": {\"input-shape\": [3], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 3, \"out_features\": 4%s},"
        "{\"type\": \"Linear\", \"in_features\": 4, \"out_features\": 2%s}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [3], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"update\": {\"codec\": \"none\", \"deflate\": false, \"control-bound-log2\": 5}%s}",
        first, second, more);
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

/* Behind the strategy's state lies what clients lack of the parameters that are trained. */
static void what_clients_lack_is_kept(void **state)
{
    (void)state;
    fedge_job *job = parse("", "", "");
    assert_int_equal(fedge_downlink_state_size(&job->plan), 0);
    fedge_job_free(job);
    job = parse(", \"train\": \"none\"", "", "");
    job->plan.update.down = job->plan.update.codec;
    assert_int_equal(fedge_downlink_state_size(&job->plan), 10 * sizeof(float));
    fedge_job_free(job);
}

static fedge_status init(fedge_global_model *model, const fedge_job *job, uint32_t num_lanes)
{
    const fedge_accumulator_config config = {.num_lanes = num_lanes};
    return fedge_global_model_init(model, job, "cpu", &config, &err);
}

static void begin(fedge_global_model *model, const fedge_job *job, uint32_t num_lanes)
{
    assert_int_equal(init(model, job, num_lanes), FEDGE_OK);
    assert_int_equal(fedge_global_model_begin(model, &err), FEDGE_OK);
    assert_true(job->plan.schema.num_elements <= MAX_VALUES);
}

/* An update whose value [i] of all that travels is (first + i · step) / 64. */
static void add(fedge_global_model *model, uint32_t lane, const int8_t *bounds, float first,
                float step, uint32_t weight)
{
    const fedge_schema *sent = &model->plan->sent.schema;
    int32_t v[MAX_VALUES];
    for (uint32_t t = 0; t < sent->num_tensors; t++) {
        const fedge_tensor_spec *tensor = &sent->tensors[t];
        for (size_t k = 0; k < tensor->count; k++) {
            float x = (first + (float)(tensor->offset + k) * step) / 64.0f;
            assert_int_equal(
                fedge_fixed_quantise_strict(&x, 1, bounds[t], &v[tensor->offset + k], &err),
                FEDGE_OK);
        }
    }
    assert_int_equal(fedge_accumulator_begin(&model->accumulator, weight, &err), FEDGE_OK);
    assert_int_equal(fedge_accumulator_add_values(&model->accumulator, lane, v, 0,
                                                  sent->num_elements, weight, &err),
                     FEDGE_OK);
}

static void copy_values(const fedge_global_model *model, float *values)
{
    memcpy(values, model->values, model->plan->schema.num_elements * sizeof(*values));
}

/* Value [i] of what is sent of [before] has moved by ([first] + i · [step]) / 64; the others have
 * not. */
static void assert_moved(const fedge_global_model *model, const float *before, float first,
                         float step)
{
    const fedge_sent *sent = &model->plan->sent;
    const fedge_section *delta = &sent->sections[0];
    float expected[MAX_VALUES];
    memcpy(expected, before, sizeof(expected));
    for (uint32_t t = 0; t < delta->schema.num_tensors; t++) {
        const fedge_tensor_spec *tensor = &delta->schema.tensors[t];
        for (size_t k = 0; k < tensor->count; k++) {
            expected[sent->model_offsets[t] + k] +=
                (first + (float)(tensor->offset + k) * step) / 64.0f;
        }
    }
    for (size_t i = 0; i < model->plan->schema.num_elements; i++) {
        if (model->values[i] != expected[i]) {
            fail_msg("value %zu is %a instead of %a; it was %a", i, (double)model->values[i],
                     (double)expected[i], (double)before[i]);
        }
    }
}

/* Two rounds in two lanes; weights 1 and 3. */
static void play(const fedge_job *job)
{
    fedge_global_model model;
    float before[MAX_VALUES] = {0};
    int8_t bounds[FEDGE_MAX_TENSORS];
    begin(&model, job, 2);
    fedge_sections_bounds(&job->plan, model.values, bounds);
    for (uint32_t round = 1; round <= 2; round++) {
        copy_values(&model, before);
        add(&model, 0, bounds, 4.0f, 4.0f, 1);
        add(&model, 1, bounds, 8.0f, 0.0f, 3);
        assert_int_equal(fedge_global_model_step(&model, round, bounds, NULL, NULL, &err),
                         FEDGE_OK);
        assert_moved(&model, before, 7.0f, 1.0f);
        assert_int_equal(fedge_global_model_reset(&model, &err), FEDGE_OK);
        add(&model, 0, bounds, 0.0f, 0.0f, 5); /* nothing has changed: nothing moves */
        copy_values(&model, before);
        assert_int_equal(fedge_global_model_step(&model, round, bounds, NULL, NULL, &err),
                         FEDGE_OK);
        assert_moved(&model, before, 0.0f, 0.0f);
        assert_int_equal(fedge_global_model_reset(&model, &err), FEDGE_OK);
    }
    fedge_global_model_fini(&model);
}

static void what_is_trained_moves_and_the_rest_stays(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},                                                  /* all of it */
        {", \"train\": \"none\"", ""},                             /* the last layer */
        {"", ", \"train\": \"none\""},                             /* the first */
        {", \"train\": \"bias\"", ", \"train\": \"bias\""},        /* tensors here and there */
        {", \"train-channels\": [1, 3]", ", \"train\": \"none\""}, /* rows */
        {", \"train-channels\": [0, 1]", ", \"train-channels\": [1, 2]"},
        {", \"r\": 2", ", \"train\": \"none\""}, /* LoRA */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_job *job = parse(cases[i][0], cases[i][1], "");
        const bool whole = fedge_section_is_whole(&job->plan, &job->plan.sent.sections[0]);
        assert_int_equal(whole, i == 0);
        play(job);
        fedge_job_free(job);
    }
}

/* The strategy's rate is for what is trained. */
static void the_servers_rate_counts(void **state)
{
    (void)state;
    fedge_job *job = parse(", \"train\": \"none\"", "",
                           ", \"strategy\": {\"type\": \"FedAvg\", \"server-learning-rate\": 0.5}");
    fedge_global_model model;
    float before[MAX_VALUES] = {0};
    int8_t bounds[FEDGE_MAX_TENSORS];
    begin(&model, job, 1);
    copy_values(&model, before);
    fedge_sections_bounds(&job->plan, model.values, bounds);
    add(&model, 0, bounds, 4.0f, 2.0f, 7);
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    assert_moved(&model, before, 2.0f, 1.0f);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

/* The whole delta and behind it BatchNorm's statistics, whose variances never fall below 0. */
static void statistics_move_by_the_plain_mean(void **state)
{
    (void)state;
    static const char text[] =
        "{\"fedge-job\": 1, \"name\": \"bn\", \"model\": {\"input-shape\": [2, 1, 1], \"layers\": ["
        "{\"type\": \"BatchNorm2d\", \"num_features\": 2}, {\"type\": \"Flatten\"},"
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 3, \"train\": \"none\"}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [2, 1, 1], \"dtype\": \"f32\", \"labels\": 3},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"strategy\": {\"type\": \"FedAvg\", \"server-learning-rate\": 0.5}}";
    fedge_job *job = NULL;
    fedge_global_model model;
    float before[MAX_VALUES] = {0};
    int8_t bounds[FEDGE_MAX_TENSORS];
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    begin(&model, job, 1);
    copy_values(&model, before);
    assert_true(before[13] == 0.0f && before[15] == 1.0f && before[16] == 1.0f);
    fedge_sections_bounds(&job->plan, model.values, bounds);
    assert_int_equal(job->plan.sent.schema.num_elements, 8); /* 4 trained, 2 means, 2 variances */
    add(&model, 0, bounds, 20.0f, -16.0f, 7);
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    for (int i = 0; i < 4; i++) { /* half, for the strategy's rate */
        assert_true(model.values[i] == before[i] + (20.0f - 16.0f * (float)i) / 128.0f);
    }
    for (int i = 4; i < 13; i++)
        assert_true(model.values[i] == before[i]);
    assert_true(model.values[13] == -44.0f / 64.0f && model.values[14] == -60.0f / 64.0f);
    assert_true(model.values[15] == 0.0f && model.values[16] == 0.0f); /* 1 − 76/64, 1 − 92/64 */
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

static void scaffolds_variate_is_of_what_is_trained(void **state)
{
    (void)state;
    fedge_job *job = parse(", \"train\": \"none\"", "",
                           ", \"strategy\": {\"type\": \"SCAFFOLD\", \"num-clients\": 4}");
    fedge_global_model model;
    float before[MAX_VALUES] = {0};
    int8_t bounds[FEDGE_MAX_TENSORS];
    begin(&model, job, 1);
    copy_values(&model, before);
    fedge_sections_bounds(&job->plan, model.values, bounds);
    const size_t count = job->plan.sent.sections[0].schema.num_elements;
    assert_int_equal(job->plan.sent.schema.num_elements, 2 * count);
    add(&model, 0, bounds, 4.0f, 1.0f,
        fedge_update_weight(&model, &(fedge_update_facts){.num_examples = 17}));
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    assert_moved(&model, before, 4.0f, 1.0f);
    const float *control = model.strategy->broadcast(model.strategy_state);
    for (size_t i = 0; i < count; i++) { /* a quarter of the clients */
        assert_true(control[i] == (4.0f + (float)(count + i)) / 64.0f / 4.0f);
    }
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

/* Where it has come from a strategy's step, of all values and of some. */
static void a_value_that_is_no_number_ends_the_run(void **state)
{
    (void)state;
    static const char *const PARTS[] = {"", ", \"train\": \"none\""};
    for (size_t i = 0; i < 2; i++) {
        fedge_job *job = parse(PARTS[i], "", ", \"strategy\": {\"type\": \"QFedAvg\"}");
        fedge_global_model model;
        int8_t bounds[FEDGE_MAX_TENSORS];
        const fedge_update_facts facts = {.num_examples = 1, .start_loss = 1.0};
        begin(&model, job, 1);
        fedge_sections_bounds(&job->plan, model.values, bounds);
        add(&model, 0, bounds, 0.0f, 0.0f, 1);
        assert_int_equal(fedge_global_model_step(&model, 1, bounds, &facts, NULL, &err), FEDGE_OK);
        /* The rate by which it divides is 0 from now on, as no job that is read has it. */
        job->plan.training.schedule = (fedge_schedule){.type = FEDGE_SCHEDULE_COSINE, .t_max = 1};
        assert_int_equal(fedge_global_model_step(&model, 2, bounds, &facts, NULL, &err),
                         FEDGE_NOT_FINITE);
        assert_non_null(strstr(err.message, "QFedAvg made value 0 of the model infinite"));
        fedge_global_model_fini(&model);
        fedge_job_free(job);
        job = parse(PARTS[i], "", "");
        begin(&model, job, 1);
        add(&model, 0, bounds, 0.0f, 0.0f, 1);
        model.values[job->plan.schema.num_elements - 1] = -INFINITY;
        assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err),
                         FEDGE_NOT_FINITE);
        assert_non_null(strstr(err.message, i == 0 ? "FedAvg made value 25" : "made value 9"));
        fedge_global_model_fini(&model);
        fedge_job_free(job);
    }
}

/* A client's word is worth no more than its values can make true. */
static void a_norm_is_at_most_what_the_bounds_allow(void **state)
{
    (void)state;
    fedge_job *job = parse("", "", ", \"strategy\": {\"type\": \"QFedAvg\"}");
    float before[MAX_VALUES] = {0}, after[2][MAX_VALUES] = {{0}};
    const double said[2] = {26 * 16.0, 1e308}; /* values, of at most 4 */
    for (size_t i = 0; i < 2; i++) {
        fedge_global_model model;
        int8_t bounds[FEDGE_MAX_TENSORS];
        const fedge_update_facts facts = {
            .num_examples = 1, .start_loss = 1.0, .squared_norm = said[i]};
        begin(&model, job, 1);
        copy_values(&model, before);
        fedge_sections_bounds(&job->plan, model.values, bounds);
        add(&model, 0, bounds, 64.0f, 0.0f, fedge_update_weight(&model, &facts));
        assert_int_equal(fedge_global_model_step(&model, 1, bounds, &facts, NULL, &err), FEDGE_OK);
        copy_values(&model, after[i]);
        fedge_global_model_fini(&model);
    }
    assert_memory_equal(after[0], after[1], sizeof(after[0]));
    assert_true(after[1][0] > before[0]);
    fedge_job_free(job);
}

/* 1000 models of 9,003,000 parameters: refused before memory is taken. */
static void a_state_that_no_checkpoint_has_room_for_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"fedge-job\": 1, \"name\": \"big\", \"model\": {\"input-shape\": [3000], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 3000, \"out_features\": 3000}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [3000], \"dtype\": \"f32\", \"labels\": 3000},"
        "\"training\": {\"learning-rate\": 0.1}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"strategy\": {\"type\": \"FedBuff\", \"max-staleness\": 1000}}";
    const fedge_accumulator_config config = {.num_lanes = 1};
    fedge_job *job = NULL;
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    assert_int_equal(fedge_global_model_check(job, &config, &err), FEDGE_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "FedBuff keeps 36012000000 bytes"));
    assert_non_null(strstr(err.message, "max-staleness"));
    fedge_job_free(job);
}

static void a_written_model_is_read_again(void **state)
{
    (void)state;
    fedge_job *job = parse(", \"train\": \"bias\"", "",
                           ", \"strategy\": {\"type\": \"SCAFFOLD\", \"num-clients\": 2}");
    fedge_global_model one, two;
    int8_t bounds[FEDGE_MAX_TENSORS];
    uint8_t *file = NULL;
    size_t size = 0, control_size = 0;
    fedge_buffer saved;
    fedge_buffer_init(&saved, FEDGE_STRATEGY_MAX_STATE);
    begin(&one, job, 1);
    fedge_sections_bounds(&job->plan, one.values, bounds);
    add(&one, 0, bounds, 3.0f, 5.0f, 2);
    assert_int_equal(fedge_global_model_step(&one, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    assert_int_equal(fedge_global_model_write(&one, &file, &size, &control_size, &err), FEDGE_OK);
    assert_true(control_size > 0);
    assert_int_equal(one.strategy->save(one.strategy_state, &saved, &err), FEDGE_OK);

    assert_int_equal(init(&two, job, 1), FEDGE_OK);
    assert_int_equal(fedge_global_model_load(&two, file, size, saved.data, saved.size - 1, &err),
                     FEDGE_CORRUPT);
    assert_int_equal(fedge_global_model_load(&two, file, size - 1, saved.data, saved.size, &err),
                     FEDGE_TRUNCATED);
    assert_int_equal(fedge_global_model_load(&two, file, size, saved.data, saved.size, &err),
                     FEDGE_OK);
    assert_memory_equal(one.values, two.values, job->plan.schema.num_elements * sizeof(float));
    assert_memory_equal(one.strategy->broadcast(one.strategy_state),
                        two.strategy->broadcast(two.strategy_state),
                        job->plan.sent.sections[0].schema.num_elements * sizeof(float));
    fedge_global_model_fini(&two);

    /* And a job may begin with it. */
    float values[MAX_VALUES];
    assert_int_equal(fedge_os_write_file(FILE_NAME, file, size, 0600, &err), FEDGE_OK);
    snprintf(job->initial_model, sizeof(job->initial_model), "%s", FILE_NAME);
    assert_int_equal(fedge_initial_values(job, values, &err), FEDGE_OK);
    assert_memory_equal(one.values, values, job->plan.schema.num_elements * sizeof(float));
    assert_int_equal(fedge_os_write_file(FILE_NAME, file, size - 3, 0600, &err), FEDGE_OK);
    assert_int_equal(fedge_initial_values(job, values, &err), FEDGE_TRUNCATED);
    assert_non_null(strstr(err.message, "initial-model " FILE_NAME));
    assert_int_equal(fedge_os_remove(FILE_NAME, &err), FEDGE_OK);
    assert_int_equal(fedge_initial_values(job, values, &err), FEDGE_NOT_FOUND);
    free(file);
    fedge_buffer_fini(&saved);
    fedge_global_model_fini(&one);
    fedge_job_free(job);
}

static void weights_are_bounded(void **state)
{
    (void)state;
    fedge_job *job = parse("", "", "");
    job->rounds.max_weight = 100;
    assert_int_equal(fedge_report_weight(job, 0), 1);
    assert_int_equal(fedge_report_weight(job, 1), 1);
    assert_int_equal(fedge_report_weight(job, 99), 99);
    assert_int_equal(fedge_report_weight(job, 100), 100);
    assert_int_equal(fedge_report_weight(job, (uint64_t)1 << 40), 100);
    fedge_global_model model = {.job = job, .strategy = &fedge_strategy_fedavg};
    assert_int_equal(fedge_update_weight(&model, &(fedge_update_facts){.num_examples = 99}), 99);
    model.strategy = &fedge_strategy_scaffold;
    assert_int_equal(fedge_update_weight(&model, &(fedge_update_facts){.num_examples = 99}), 1);
    fedge_job_free(job);
}

static void lanes_are_joined(void **state)
{
    (void)state;
    fedge_job *job = parse("", "", "");
    fedge_global_model model;
    int8_t bounds[FEDGE_MAX_TENSORS];
    float before[MAX_VALUES] = {0};
    assert_int_equal(fedge_global_model_init(&model, job, "abacus",
                                             &(fedge_accumulator_config){.num_lanes = 1}, &err),
                     FEDGE_INVALID_ARGUMENT);
    fedge_global_model_fini(&model);
    begin(&model, job, FEDGE_ACCUMULATOR_MAX_LANES);
    copy_values(&model, before);
    fedge_sections_bounds(&job->plan, model.values, bounds);
    for (uint32_t i = 0; i < FEDGE_ACCUMULATOR_MAX_LANES; i++)
        add(&model, i, bounds, 4.0f, 1.0f, 1);
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    assert_moved(&model, before, 4.0f, 1.0f);
    assert_int_equal(fedge_global_model_reset(&model, &err), FEDGE_OK);
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err),
                     FEDGE_INVALID_ARGUMENT);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

/* Halves have values that files have of them; what is frozen stays. */
static void types_are_those_of_files(void **state)
{
    (void)state;
    static const char TEXT[] =
        "{\"fedge-job\": 1, \"name\": \"own\", \"model\": {\"type\": \"external\", \"tensors\": ["
        "{\"name\": \"n\", \"shape\": [2], \"dtype\": \"I64\"}, {\"name\": \"h\", \"shape\": [3],"
        "\"dtype\": \"F16\"}, {\"name\": \"f\", \"shape\": [2], \"frozen\": true},"
        "{\"name\": \"w\", \"shape\": [2]}]}, \"rounds\": {\"num-server-rounds\": 3},"
        "\"update\": {\"codec\": \"none\"}}";
    static const int64_t COUNTS[2] = {-1, INT64_MAX};
    fedge_global_model model, again;
    fedge_job *job = NULL;
    uint8_t *file = NULL;
    size_t size = 0, broadcast = 0;
    int8_t bounds[FEDGE_MAX_TENSORS];
    if (fedge_strategy_job_parse(TEXT, strlen(TEXT), "job.json", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    begin(&model, job, 1);
    memcpy(model.values, COUNTS, sizeof(COUNTS));
    model.values[4] = 2048; /* F16 has even numbers from here on */
    model.values[9] = model.values[10] = 0.1f;
    fedge_sections_bounds(&job->plan, model.values, bounds);
    add(&model, 0, bounds, 64.0f, 0.0f, 1);
    assert_int_equal(fedge_global_model_step(&model, 1, bounds, NULL, NULL, &err), FEDGE_OK);
    static const float EXPECTED[7] = {2048, 1, 1, 0, 0, 1.1f, 1.1f};
    assert_memory_equal(model.values, COUNTS, sizeof(COUNTS));
    assert_memory_equal(model.values + 4, EXPECTED, 7 * sizeof(float));
    assert_int_equal(fedge_global_model_write(&model, &file, &size, &broadcast, &err), FEDGE_OK);
    begin(&again, job, 1);
    fedge_buffer kept = {0};
    assert_int_equal(fedge_global_model_save(&model, &kept, &err), FEDGE_OK);
    assert_int_equal(fedge_global_model_load(&again, file, size, kept.data, kept.size, &err),
                     FEDGE_OK);
    assert_memory_equal(again.values, model.values, job->plan.schema.num_elements * sizeof(float));
    fedge_buffer_fini(&kept);
    free(file);
    fedge_global_model_fini(&again);
    fedge_global_model_fini(&model);
    fedge_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_clients_lack_is_kept),
        cmocka_unit_test(what_is_trained_moves_and_the_rest_stays),
        cmocka_unit_test(the_servers_rate_counts),
        cmocka_unit_test(statistics_move_by_the_plain_mean),
        cmocka_unit_test(scaffolds_variate_is_of_what_is_trained),
        cmocka_unit_test(a_value_that_is_no_number_ends_the_run),
        cmocka_unit_test(a_norm_is_at_most_what_the_bounds_allow),
        cmocka_unit_test(a_state_that_no_checkpoint_has_room_for_is_refused),
        cmocka_unit_test(a_written_model_is_read_again),
        cmocka_unit_test(weights_are_bounded),
        cmocka_unit_test(lanes_are_joined),
        cmocka_unit_test(types_are_those_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
