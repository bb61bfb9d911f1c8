/* Rounds with a buffer: tasks go on while rounds close. */
#include "aggregator/rounds/rounds_internal.h"
#include "edge/core/rng.h"
#include "tests/aggregator/rounds/machine.h"

static fedge_rounds_spec buffer_spec(uint32_t buffer_size, uint32_t rounds)
{
    fedge_rounds_spec spec = base_spec();
    spec.num_server_rounds = rounds;
    spec.buffer_size = buffer_size;
    spec.max_staleness = 2;
    return spec;
}

static const fedge_rounds_task *task_at(const fedge_rounds *rounds, uint32_t slot)
{
    uint32_t num_tasks;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    assert_true(slot < num_tasks);
    return &tasks[slot];
}

static void close_round(fedge_rounds *rounds, uint32_t round)
{
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CLOSE).round, round);
    no_action(rounds);
    fedge_rounds_closed(rounds, 0);
}

static void tasks_go_on_with_the_base_that_they_were_given(void **state)
{
    (void)state;
    const fedge_rounds_spec spec = buffer_spec(1, 4);
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0); /* one slot for each: of one update, none makes room */
    const uint64_t second = task_of(rounds, 1), third = task_of(rounds, 2);
    report(rounds, 0, 0);
    close_round(rounds, 1);
    open_phase(rounds, 0);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    assert_int_equal(task_of(rounds, 0), second);
    assert_int_equal(task_of(rounds, 1), third);
    assert_int_equal(task_at(rounds, 0)->base, 0);
    assert_int_equal(task_at(rounds, 2)->client_index, 0); /* it has reported, and is asked anew */
    assert_int_equal(task_at(rounds, 2)->base, 1);
    report(rounds, 2, 2);
    close_round(rounds, 2);
    open_phase(rounds, 0);
    report(rounds, 2, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 0);
    /* Three rounds old would be one too many. */
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).task_id, second);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).task_id, third);
    open_phase(rounds, 0);
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_int_equal(task_at(rounds, slot)->base, 3);
    report(rounds, 1, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 0);
    take(rounds, FEDGE_ROUNDS_CANCEL); /* the run is over */
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_FINISH);
    no_action(rounds);
    fedge_rounds_free(rounds);
}

/* A buffer of two, with one update of an old model in it: its client is asked again at once. */
static void a_client_is_asked_once_for_each_model(void **state)
{
    (void)state;
    const fedge_rounds_spec spec = buffer_spec(2, 9);
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    for (int i = 0; i < 3; i++)
        take(rounds, FEDGE_ROUNDS_SEND);
    report(rounds, 0, 0);
    no_action(rounds); /* the same model again would bring the same update */
    report(rounds, 1, 1);
    close_round(rounds, 1);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    for (int i = 0; i < 3; i++)
        take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(task_at(rounds, 0)->base, 0);
    report(rounds, 0, 0);
    const fedge_rounds_action again = take(rounds, FEDGE_ROUNDS_SEND);
    assert_true(again.fresh);
    assert_int_equal(again.client_index, 2);
    assert_int_equal(again.slot, 3);
    assert_int_equal(task_at(rounds, 3)->base, 1);
    no_action(rounds);

    /* As a journal has it: the same machine. */
    fedge_rounds_task tasks[4];
    for (uint32_t slot = 0; slot < 4; slot++)
        tasks[slot] = *task_at(rounds, slot);
    const fedge_rounds_progress progress = {
        .last_closed = 1, .next_task_id = 100, .wanted = 2, .tasks = tasks, .num_tasks = 4};
    fedge_rounds_free(rounds);
    rounds = make(&spec);
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 0, NULL), FEDGE_OK);
    assert_int_equal(rounds->num_reported, 1);
    join(rounds, 2, 2);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, tasks[3].task_id);
    join(rounds, 0, 1);
    take(rounds, FEDGE_ROUNDS_SEND);
    take(rounds, FEDGE_ROUNDS_SEND);
    no_action(rounds);
    report(rounds, 3, 3);
    close_round(rounds, 2);
    fedge_rounds_free(rounds);

    tasks[0].state = FEDGE_TASK_OPEN; /* client 2 has two that are open */
    rounds = make(&spec);
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 0, NULL), FEDGE_CORRUPT);
    fedge_rounds_free(rounds);
}

/* An update that became durable after the deadline goes with the attempt, and its client is asked
 * anew, as is one whose update had counted in it; a third goes on with its task. */
static void every_client_of_a_failed_attempt_has_work_again(void **state)
{
    (void)state;
    fedge_rounds_spec spec = buffer_spec(3, 2);
    spec.min_report_fraction = 1.0;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    for (int i = 0; i < 3; i++)
        take(rounds, FEDGE_ROUNDS_SEND);
    const uint64_t late = task_of(rounds, 1), open = task_of(rounds, 2);
    report(rounds, 0, 0);
    fedge_rounds_tick(rounds, spec.round_deadline_ms);
    take(rounds, FEDGE_ROUNDS_FAIL);
    assert_int_equal(fedge_rounds_report(rounds, late, NULL), FEDGE_STALE);
    assert_int_equal(fedge_rounds_report(rounds, late, NULL), FEDGE_STALE);
    fedge_rounds_closed(rounds, spec.round_deadline_ms);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, spec.round_deadline_ms);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, open);
    for (uint32_t client = 0; client < 2; client++) {
        const fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
        assert_int_equal(sent.client_index, client);
        assert_true(sent.task_id > open);
    }
    no_action(rounds);
    report(rounds, 0, 2);
    close_round(rounds, 1);
    fedge_rounds_free(rounds);
}

/* Of six clients three are at work. When they leave, no report follows that would ask others. */
static void others_are_asked_in_the_place_of_who_left(void **state)
{
    (void)state;
    fedge_rounds_spec spec = buffer_spec(3, 2);
    spec.min_available_nodes = 6;
    spec.fraction_train = 0.5;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 5);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    bool asked[6] = {false};
    for (int i = 0; i < 3; i++)
        asked[take(rounds, FEDGE_ROUNDS_SEND).client_index] = true;
    no_action(rounds);
    fedge_rounds_tick(rounds, 1);
    no_action(rounds);
    for (uint32_t slot = 0; slot < 3; slot++)
        fedge_rounds_leave(rounds, task_at(rounds, slot)->client_index);
    no_action(rounds); /* they may be back in a moment */
    fedge_rounds_tick(rounds, 2);
    for (int i = 0; i < 2; i++) { /* a buffer of three makes room for two more */
        const fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
        assert_true(sent.fresh);
        assert_false(asked[sent.client_index]);
        asked[sent.client_index] = true;
    }
    no_action(rounds);
    fedge_rounds_tick(rounds, 3);
    no_action(rounds);
    /* Who comes back goes on with its task. */
    const uint32_t back = task_at(rounds, 0)->client_index;
    join(rounds, back, back);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, task_of(rounds, 0));
    no_action(rounds);
    report(rounds, 0, 0);
    report(rounds, 3, 4);
    close_round(rounds, 1);
    fedge_rounds_free(rounds);
}

/* Between two rounds, for which too few are left: its client is asked anew with the next. */
/* A device that is connected and never answers must not hold the only slot for ever. */
static void a_task_ends_with_the_second_attempt_that_fails(void **state)
{
    (void)state;
    fedge_rounds_spec spec = buffer_spec(1, 1);
    spec.fraction_train = 0.3;
    spec.min_train_nodes = 1;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    const uint64_t hung = task_of(rounds, 0);
    fedge_rounds_tick(rounds, spec.round_deadline_ms);
    take(rounds, FEDGE_ROUNDS_FAIL);
    fedge_rounds_closed(rounds, spec.round_deadline_ms);
    open_phase(rounds, spec.round_deadline_ms);
    assert_int_equal(task_of(rounds, 0), hung);
    fedge_rounds_tick(rounds, 2 * spec.round_deadline_ms);
    take(rounds, FEDGE_ROUNDS_FAIL);
    fedge_rounds_closed(rounds, 2 * spec.round_deadline_ms);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).task_id, hung);
    open_phase(rounds, 2 * spec.round_deadline_ms);
    assert_true(task_of(rounds, 0) > hung);
    fedge_rounds_free(rounds);
}

static void a_task_that_goes_on_may_be_given_up_between_rounds(void **state)
{
    (void)state;
    const fedge_rounds_spec spec = buffer_spec(1, 4);
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    const uint64_t first = task_of(rounds, 0), last = task_of(rounds, 2);
    report(rounds, 1, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_leave(rounds, 1);
    fedge_rounds_closed(rounds, 0);
    no_action(rounds);
    assert_int_equal(fedge_rounds_give_up(rounds, first, NULL), FEDGE_OK);
    assert_int_equal(fedge_rounds_give_up(rounds, first, NULL), FEDGE_STALE);
    join(rounds, 1, 1);
    open_phase(rounds, 0);
    assert_int_equal(task_of(rounds, 0), last);
    assert_int_equal(task_at(rounds, 1)->client_index, 0);
    assert_int_equal(task_at(rounds, 1)->base, 1);
    assert_int_equal(task_at(rounds, 2)->client_index, 1);
    report(rounds, 0, 0);
    close_round(rounds, 2);
    fedge_rounds_free(rounds);
}

/* What holds after any event. */
static void check(const fedge_rounds *rounds, uint32_t clients, uint32_t wanted_at_most)
{
    uint32_t num_tasks, open = 0;
    bool has_task[64] = {false};
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        if (tasks[slot].state != FEDGE_TASK_OPEN)
            continue;
        assert_true(tasks[slot].client_index < clients);
        assert_false(has_task[tasks[slot].client_index]);
        has_task[tasks[slot].client_index] = true;
        assert_true(tasks[slot].base < fedge_rounds_round(rounds));
        if (fedge_rounds_get_state(rounds) == FEDGE_ROUNDS_RUNNING)
            assert_true(fedge_rounds_round(rounds) - 1 - tasks[slot].base <= 2);
        open++;
    }
    assert_true(open <= clients);
    assert_true(rounds->num_reported <= wanted_at_most);
    for (uint32_t p = 0; p < rounds->num_participants; p++) {
        const participant *one = &rounds->participants[p];
        assert_true(p == 0 || rounds->participants[p - 1].client_index < one->client_index);
        assert_int_equal(one->connected, fedge_rounds_is_connected(rounds, one->client_index));
    }
}

/* While its result is with the workers, who bring it later, the task stays open. */
static void who_declines_with_a_result_on_its_way_is_there_once(void **state)
{
    (void)state;
    const fedge_rounds_spec spec = buffer_spec(1, 4);
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    fedge_rounds_decline(rounds, 0, 0);
    report(rounds, 1, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_leave(rounds, 1);
    fedge_rounds_closed(rounds, 0);
    check(rounds, 3, 1);
    fedge_rounds_leave(rounds, 0);
    fedge_rounds_leave(rounds, 2);
    check(rounds, 3, 1);
    assert_int_equal(fedge_rounds_num_available(rounds), 0);
    no_action(rounds);
    assert_described(rounds, "declined the job: client 0");
    /* The workers found its result bad, and it is as absent as before. */
    assert_int_equal(fedge_rounds_lose(rounds, task_of(rounds, 0), NULL), FEDGE_OK);
    check(rounds, 3, 1);
    assert_described(rounds, "declined the job: client 0");
    fedge_rounds_tick(rounds, spec.round_deadline_ms);
    fedge_rounds_free(rounds);
}

static void any_events_leave_one_task_for_each_client(void **state)
{
    (void)state;
    enum { CLIENTS = 9, ROUNDS = 60 };
    for (uint32_t seed = 0; seed < 40; seed++) {
        fedge_rng rng = fedge_rng_stream(seed, FEDGE_PURPOSE_SAMPLE, 0, 0, 9);
        const uint32_t buffer = 1 + seed % 4;
        fedge_rounds_spec spec = buffer_spec(buffer, ROUNDS);
        spec.fraction_train = seed % 2 ? 1.0 : 0.5;
        fedge_rounds *rounds = make(&spec);
        uint64_t now_ms = 0;
        for (uint32_t event = 0; event < 20000; event++) {
            fedge_rounds_action action;
            while (fedge_rounds_next(rounds, &action)) {
                now_ms++;
                if (action.type == FEDGE_ROUNDS_OPEN)
                    fedge_rounds_opened(rounds, now_ms);
                else if (action.type == FEDGE_ROUNDS_CLOSE || action.type == FEDGE_ROUNDS_FAIL)
                    fedge_rounds_closed(rounds, now_ms);
                check(rounds, CLIENTS, buffer);
            }
            if (fedge_rounds_get_state(rounds) == FEDGE_ROUNDS_FINISHED)
                break;
            uint32_t num_tasks;
            const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
            const uint32_t what = fedge_rng_below(&rng, 16);
            const uint32_t client = fedge_rng_below(&rng, CLIENTS);
            const uint32_t slot = num_tasks > 0 ? fedge_rng_below(&rng, num_tasks) : 0;
            const bool open = num_tasks > 0 && tasks[slot].state == FEDGE_TASK_OPEN;
            fedge_status status = FEDGE_OK;
            if (what < 4)
                status = fedge_rounds_join(rounds, client, now_ms, NULL);
            else if (what == 4)
                fedge_rounds_leave(rounds, client);
            else if (what == 5 && open)
                status = fedge_rounds_give_up(rounds, tasks[slot].task_id, NULL);
            else if (what == 7 && client < 2)
                fedge_rounds_decline(rounds, client, now_ms); /* its connection ends later */
            else if (what == 6)
                fedge_rounds_tick(rounds, now_ms += 400);
            else if (open)
                status = fedge_rounds_report(rounds, tasks[slot].task_id, NULL);
            assert_true(status == FEDGE_OK || status == FEDGE_STALE);
            check(rounds, CLIENTS, buffer);
        }
        assert_int_equal(fedge_rounds_get_state(rounds), FEDGE_ROUNDS_FINISHED);
        fedge_rounds_free(rounds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_go_on_with_the_base_that_they_were_given),
        cmocka_unit_test(a_client_is_asked_once_for_each_model),
        cmocka_unit_test(a_task_ends_with_the_second_attempt_that_fails),
        cmocka_unit_test(a_task_that_goes_on_may_be_given_up_between_rounds),
        cmocka_unit_test(every_client_of_a_failed_attempt_has_work_again),
        cmocka_unit_test(others_are_asked_in_the_place_of_who_left),
        cmocka_unit_test(who_declines_with_a_result_on_its_way_is_there_once),
        cmocka_unit_test(any_events_leave_one_task_for_each_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
