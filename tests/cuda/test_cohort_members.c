/* Several models side by side in one cohort: each becomes what it does alone, bit for bit. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "tests/cuda/cohort_drawn.h"
#include "tests/edge/core/long.h"

enum { MEMBERS = 3 };
static float starts[MEMBERS][MAX_VALUES], together[MEMBERS][CLIENTS][MAX_VALUES];
static fedge_trainer_config trainings[MEMBERS];
static uint32_t next_task;
static fedge_cohort_task theirs[MEMBERS * CLIENTS];

static fedge_cohort_task *next_of_members(void *user)
{
    (void)user;
    return next_task < MEMBERS * CLIENTS ? &theirs[next_task++] : NULL;
}

static void member_done(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    assert_non_null(values);
    memcpy(together[task->member][task->client_index], values, drawn_num_values * sizeof(float));
}

/* Each with a start, a seed, a round and a learning rate of its own. */
static void make_members(void)
{
    for (uint32_t m = 0; m < MEMBERS; m++) {
        trainings[m] = drawn_training;
        trainings[m].seed += m;
        trainings[m].round += 2 * m;
        trainings[m].optimizer.learning_rate *= 1.0f + 0.5f * (float)m;
        for (size_t i = 0; i < drawn_num_values; i++)
            starts[m][i] = drawn_start[i] * (1.0f - 0.25f * (float)m);
        for (uint32_t c = 0; c < CLIENTS; c++) { /* in turn, so that slots change hands */
            theirs[c * MEMBERS + m] = (fedge_cohort_task){
                .examples = drawn_places + drawn_firsts[c],
                .num_examples = drawn_firsts[c + 1] - drawn_firsts[c],
                .member = m,
                .client_index = c,
                .correction = drawn_options.correction ? drawn_corrections[c] : NULL};
        }
    }
}

static void train_members(uint64_t seed, uint32_t slots)
{
    fedge_cohort *cohort = NULL;
    fedge_error err;
    fedge_cohort_config config = drawn_config_of(slots);
    fedge_cohort_member members[MEMBERS];
    fedge_cohort_work work = {
        .members = members, .num_members = MEMBERS, .next = next_of_members, .done = member_done};
    config.num_members = MEMBERS;
    for (uint32_t m = 0; m < MEMBERS; m++)
        members[m] = (fedge_cohort_member){.start = starts[m], .training = &trainings[m]};
    drawn_begin(seed);
    next_task = 0;
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    if (fedge_cohort_run(cohort, &work, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const float kept = trainings[1].optimizer.weight_decay;
    trainings[1].optimizer.weight_decay += 0.5f;
    assert_int_equal(fedge_cohort_run(cohort, &work, &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message,
                        "member 1: its optimizer has more of its own than a learning rate");
    work.num_members++;
    assert_int_equal(fedge_cohort_run(cohort, &work, &err), FEDGE_INVALID_ARGUMENT);
    assert_string_equal(err.message, "4 members: this cohort was made for 1 to 3");
    fedge_cohort_free(cohort);
    drawn_end();
    trainings[1].optimizer.weight_decay = kept;
}

static void members_do_not_show(void **state)
{
    (void)state;
    static const uint64_t SEEDS_OF_MEMBERS[] = {9, 2, 5, 4};
    drawn_are_floats = false;
    for (uint32_t i = 0; i < (fedge_test_is_long() ? 4 : 2); i++) {
        drawn_model(SEEDS_OF_MEMBERS[i]);
        if (!fedge_test_is_long())
            drawn_training.local_steps = 3;
        make_members();
        train_members(i, 4);
        for (uint32_t m = 0; m < MEMBERS; m++) {
            memcpy(drawn_start, starts[m], sizeof(drawn_start));
            drawn_training = trainings[m];
            drawn_train_on_gpu(i, 2);
            for (uint32_t c = 0; c < CLIENTS; c++) {
                assert_memory_equal(together[m][c], drawn_trained[c],
                                    drawn_num_values * sizeof(float));
            }
        }
    }
}

static void evaluated(void *user, fedge_cohort_task *task, float *values)
{
    (void)user;
    (void)task;
    assert_null(values);
}

/* Evaluates what [count] members begin with, from member [first] on. */
static void evaluate_members(uint32_t first, uint32_t count, fedge_cohort_task tasks[])
{
    fedge_cohort *cohort = NULL;
    fedge_error err;
    fedge_cohort_config config = drawn_config_of(3);
    fedge_cohort_member members[MEMBERS];
    const fedge_cohort_work work = {
        .members = members, .num_members = count, .next = next_of_members, .done = evaluated};
    config.num_members = MEMBERS;
    next_task = 0;
    for (uint32_t m = 0; m < count; m++)
        members[m] = (fedge_cohort_member){.start = starts[first + m]};
    for (uint32_t i = 0; i < MEMBERS * CLIENTS; i++)
        theirs[i].member = count == 1 ? 0 : i % MEMBERS;
    drawn_begin(first);
    assert_int_equal(fedge_cohort_new(&config, &cohort, &err), FEDGE_OK);
    if (fedge_cohort_run(cohort, &work, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    fedge_cohort_free(cohort);
    drawn_end();
    memcpy(tasks, theirs, sizeof(theirs));
}

static void members_are_evaluated_together_as_alone(void **state)
{
    (void)state;
    static fedge_cohort_task all[MEMBERS * CLIENTS], alone[MEMBERS * CLIENTS];
    drawn_are_floats = false;
    drawn_model(2);
    make_members();
    evaluate_members(0, MEMBERS, all);
    for (uint32_t m = 0; m < MEMBERS; m++) {
        evaluate_members(m, 1, alone);
        for (uint32_t i = m; i < MEMBERS * CLIENTS; i += MEMBERS)
            assert_memory_equal(&all[i].result, &alone[i].result, sizeof(alone[i].result));
    }
    assert_true(all[0].result.loss_sum != all[1].result.loss_sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_do_not_show),
        cmocka_unit_test(members_are_evaluated_together_as_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
