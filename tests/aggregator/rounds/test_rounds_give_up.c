/* Clients that give up, go away and come anew: what a phase waits for, and what it does not. */
#include "tests/aggregator/rounds/machine.h"

static uint64_t now_ms;

static void give_up(fedge_rounds *rounds, uint32_t slot)
{
    assert_int_equal(fedge_rounds_give_up(rounds, task_of(rounds, slot), NULL), FEDGE_OK);
}

static void join_at(fedge_rounds *rounds, uint32_t client)
{
    assert_int_equal(fedge_rounds_join(rounds, client, now_ms, NULL), FEDGE_OK);
}

static void leave(fedge_rounds *rounds, uint32_t client)
{
    fedge_rounds_leave(rounds, client);
}

/* Takes FAIL, closes. */
static void fail_phase(fedge_rounds *rounds)
{
    take(rounds, FEDGE_ROUNDS_FAIL);
    no_action(rounds);
    fedge_rounds_closed(rounds, now_ms);
}

static fedge_rounds *start(fedge_rounds_spec spec, uint32_t num_clients)
{
    now_ms = 0;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, num_clients - 1);
    return rounds;
}

/* The one client there is declines at once, ends, and comes back mended. */
static void a_round_that_nobody_works_on_is_tried_again(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.min_available_nodes = spec.min_train_nodes = 1;
    spec.round_deadline_ms = 600000;
    for (int opened = 0; opened < 2; opened++) {
        fedge_rounds *rounds = start(spec, 1);
        if (opened) {
            open_phase(rounds, 0);
            give_up(rounds, 0);
        } else { /* while the journal is made */
            take(rounds, FEDGE_ROUNDS_OPEN);
            give_up(rounds, 0);
            leave(rounds, 0);
            no_action(rounds);
            fedge_rounds_opened(rounds, now_ms);
        }
        fail_phase(rounds);
        leave(rounds, 0);
        no_action(rounds);
        assert_true(fedge_rounds_is_stalled(rounds));
        assert_described(rounds, "waiting for nodes: 0 of 1 connected; attempt 2 of round 1");
        assert_described(rounds,
                         "gave up, asked again after a pause, or on connecting anew: client 0");
        join_at(rounds, 0);
        assert_int_equal(fedge_rounds_attempt(rounds), 1);
        open_phase(rounds, now_ms);
        assert_false(fedge_rounds_is_stalled(rounds));
        report(rounds, 0, 0);
        take(rounds, FEDGE_ROUNDS_CLOSE);
        fedge_rounds_free(rounds);
    }
}

/* While the phase is closed as failed it comes back: it is not set aside any more. */
static void who_comes_anew_meanwhile_is_asked(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = start(spec, 3);
    open_phase(rounds, 0);
    for (uint32_t slot = 0; slot < 3; slot++)
        give_up(rounds, slot);
    take(rounds, FEDGE_ROUNDS_FAIL);
    for (uint32_t client = 0; client < 3; client++) {
        leave(rounds, client);
        join_at(rounds, client);
    }
    no_action(rounds);
    fedge_rounds_closed(rounds, now_ms);
    open_phase(rounds, now_ms);
    fedge_rounds_free(rounds);
}

/* It takes its slot again, with another task, while the others are at work. */
static void who_comes_anew_takes_the_empty_slot(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = start(spec, 3);
    open_phase(rounds, 0);
    const uint64_t before = task_of(rounds, 1);
    give_up(rounds, 1);
    no_action(rounds);
    assert_described(rounds, "0 of 3 reported, 2 at work; gave up: client 1");
    leave(rounds, 1);
    join_at(rounds, 1);
    fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(sent.client_index, 1);
    assert_int_equal(sent.slot, 1);
    assert_true(sent.fresh && sent.task_id > before);
    assert_int_equal(fedge_rounds_report(rounds, before, NULL), FEDGE_STALE);
    join_at(rounds, 1); /* now it has a task like any other */
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, sent.task_id);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);
}

/* Two of three are enough: the one that is away is waited for as long as it would be enough. */
static void who_is_away_is_waited_for(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = start(spec, 3);
    open_phase(rounds, 0);
    give_up(rounds, 0);
    report(rounds, 1, 1);
    leave(rounds, 2);
    no_action(rounds); /* it may come back before the deadline */
    assert_true(fedge_rounds_is_stalled(rounds));
    assert_described(rounds,
                     "1 of 3 reported, 0 at work; not connected: client 2; gave up: client 0");
    now_ms = 900;
    fedge_rounds_tick(rounds, now_ms);
    no_action(rounds);
    join_at(rounds, 2);
    take(rounds, FEDGE_ROUNDS_SEND);
    report(rounds, 2, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);

    /* Three of three are needed: nobody who is away can make up for who gave up. */
    spec.min_report_fraction = 1.0;
    rounds = start(spec, 3);
    open_phase(rounds, 0);
    give_up(rounds, 0);
    report(rounds, 1, 1);
    no_action(rounds); /* client 2 is at work, and somebody may come */
    leave(rounds, 2);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).client_index, 2);
    fail_phase(rounds);
    assert_int_equal(fedge_rounds_attempt(rounds), 1);
    fedge_rounds_free(rounds);

    /* Nobody has given up: all are waited for. */
    rounds = start(spec, 3);
    open_phase(rounds, 0);
    for (uint32_t client = 0; client < 3; client++)
        leave(rounds, client);
    no_action(rounds);
    assert_described(rounds, "not connected: clients 0, 1, 2");
    fedge_rounds_free(rounds);
}

/* Clients that stay and decline everything are not asked without a pause: the others first, then
 * nobody, then all again. */
static void who_gave_up_is_left_out_for_a_while(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.min_available_nodes = 2;
    spec.fraction_train = 0.5;
    spec.min_report_fraction = 1.0;
    fedge_rounds *rounds = start(spec, 2);
    join(rounds, 2, 3);
    open_phase(rounds, 0);
    uint32_t num_tasks;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    assert_int_equal(num_tasks, 2);
    assert_int_equal(tasks[0].client_index, 0);
    assert_int_equal(tasks[1].client_index, 1);
    give_up(rounds, 0);
    take(rounds, FEDGE_ROUNDS_SEND);
    give_up(rounds, 1);
    take(rounds, FEDGE_ROUNDS_SEND);
    leave(rounds, 2);
    leave(rounds, 3);
    no_action(rounds); /* away; those two would do */
    join_at(rounds, 2);
    join_at(rounds, 3);
    take(rounds, FEDGE_ROUNDS_SEND);
    take(rounds, FEDGE_ROUNDS_SEND);
    give_up(rounds, 0);
    give_up(rounds, 1);
    fail_phase(rounds);
    no_action(rounds); /* four are there, and nobody who may be asked */
    assert_described(rounds, "waiting for nodes: 0 of 2 ready, 4 connected; attempt 2 of round 1");
    assert_described(rounds,
                     "gave up, asked again after a pause, or on connecting anew: clients 0, 1");
    join_at(rounds, 4);
    no_action(rounds);
    join_at(rounds, 5);
    open_phase(rounds, now_ms);
    tasks = fedge_rounds_cohort(rounds, &num_tasks);
    assert_int_equal(num_tasks, 2);
    assert_int_equal(tasks[0].client_index, 4);
    assert_int_equal(tasks[1].client_index, 5);
    give_up(rounds, 0); /* its slot does not go to one that is set aside */
    no_action(rounds);
    give_up(rounds, 1);
    fail_phase(rounds);
    now_ms = 2 * FEDGE_ROUNDS_RETRY_MS - 1;
    fedge_rounds_tick(rounds, now_ms);
    no_action(rounds);
    now_ms++;
    fedge_rounds_tick(rounds, now_ms);
    open_phase(rounds, now_ms);
    assert_int_equal(fedge_rounds_attempt(rounds), 2);
    (void)fedge_rounds_cohort(rounds, &num_tasks);
    assert_int_equal(num_tasks, 3); /* half of six */
    fedge_rounds_free(rounds);
}

/* A client that comes anew and declines again does not make the others train without a pause; the
 * next round, or a deadline, forgets all that. */
static void pauses_grow_and_end(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.min_report_fraction = 1.0;
    spec.round_deadline_ms = 100000;
    fedge_rounds *rounds = start(spec, 3);
    uint64_t pause_ms = 0;
    for (uint32_t attempt = 0; attempt < 12; attempt++) {
        if (pause_ms > 0) {
            now_ms += pause_ms - 1;
            fedge_rounds_tick(rounds, now_ms);
            no_action(rounds);
            assert_described(rounds, "after a pause");
            now_ms++;
            fedge_rounds_tick(rounds, now_ms);
        }
        assert_int_equal(fedge_rounds_attempt(rounds), attempt);
        open_phase(rounds, now_ms);
        give_up(rounds, 1);
        report(rounds, 0, 0);
        report(rounds, 2, 2);
        fail_phase(rounds);
        leave(rounds, 1);
        join_at(rounds, 1);
        pause_ms = attempt == 0 ? 0 : attempt == 1 ? FEDGE_ROUNDS_PAUSE_MS : 2 * pause_ms;
        pause_ms = pause_ms < FEDGE_ROUNDS_MAX_PAUSE_MS ? pause_ms : FEDGE_ROUNDS_MAX_PAUSE_MS;
    }
    now_ms += pause_ms;
    fedge_rounds_tick(rounds, now_ms);
    open_phase(rounds, now_ms);
    now_ms += 100000;
    fedge_rounds_tick(rounds, now_ms);
    for (int i = 0; i < 3; i++)
        take(rounds, FEDGE_ROUNDS_CANCEL);
    fail_phase(rounds); /* by the deadline: at once, and with everybody */
    open_phase(rounds, now_ms);
    give_up(rounds, 1);
    report(rounds, 0, 0);
    report(rounds, 2, 2);
    fail_phase(rounds);
    join_at(rounds, 1); /* the first in a row again: no pause */
    open_phase(rounds, now_ms);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, now_ms);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    open_phase(rounds, now_ms);
    fedge_rounds_free(rounds);
}

static void decline(fedge_rounds *rounds, uint32_t client)
{
    fedge_rounds_decline(rounds, client, now_ms);
    leave(rounds, client);
}

/* Before it could be opened, of training or evaluation: once, and whoever comes then is asked. */
static void a_round_that_all_have_declined_ends_by_its_deadline(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = start(spec, 2);
    decline(rounds, 0);
    now_ms = 600;
    decline(rounds, 1);
    assert_described(rounds, "waiting for nodes: 0 of 3 connected; declined the job: clients 0, 1");
    now_ms = 999;
    fedge_rounds_tick(rounds, now_ms);
    no_action(rounds);
    now_ms = 1000;
    fedge_rounds_tick(rounds, now_ms);
    fail_phase(rounds);
    assert_int_equal(fedge_rounds_attempt(rounds), 1);
    assert_described(rounds, "declined the job: clients 0, 1");
    now_ms = 5000;
    fedge_rounds_tick(rounds, now_ms);
    no_action(rounds);
    for (uint32_t client = 0; client < 3; client++)
        join_at(rounds, client);
    open_phase(rounds, now_ms);
    assert_described(rounds, "0 of 3 reported, 3 at work");
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);

    spec.fraction_evaluate = 1.0;
    spec.min_evaluate_nodes = 2;
    rounds = start(spec, 3);
    open_phase(rounds, now_ms);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    for (uint32_t client = 0; client < 3; client++)
        leave(rounds, client);
    fedge_rounds_closed(rounds, now_ms);
    join_at(rounds, 1);
    decline(rounds, 1);
    now_ms = 1000;
    fedge_rounds_tick(rounds, now_ms);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_FAIL).kind, FEDGE_TASK_EVALUATE);
    fedge_rounds_closed(rounds, now_ms);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    fedge_rounds_free(rounds);
}

/* Those who are left, or have come anew, are waited for as ever. */
static void a_round_is_not_ended_by_who_is_mended(void **state)
{
    (void)state;
    fedge_rounds *rounds = start(base_spec(), 2);
    decline(rounds, 1);
    join_at(rounds, 1);
    now_ms = 1000;
    fedge_rounds_tick(rounds, now_ms);
    no_action(rounds);
    join_at(rounds, 2);
    open_phase(rounds, now_ms);
    report(rounds, 1, 1);
    decline(rounds, 1); /* what it has done counts: it is not asked for it again */
    assert_described(rounds, "1 of 3 reported, 2 at work; declined the job: client 1");
    join_at(rounds, 1);
    no_action(rounds);
    decline(rounds, 1);
    report(rounds, 0, 0);
    report(rounds, 2, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, now_ms);
    assert_described(rounds, "waiting for nodes: 2 of 3 connected; declined the job: client 1");
    join_at(rounds, 1);
    open_phase(rounds, now_ms);
    fedge_rounds_free(rounds);
}

static void an_evaluation_without_anybody_ends(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_evaluate = 1.0;
    spec.min_report_fraction = 1.0;
    fedge_rounds *rounds = start(spec, 3);
    open_phase(rounds, 0);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, now_ms);
    open_phase(rounds, now_ms);
    give_up(rounds, 0);
    leave(rounds, 1);
    no_action(rounds);
    leave(rounds, 2);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    fail_phase(rounds);
    assert_int_equal(fedge_rounds_round(rounds), 2); /* it is not repeated */
    join_at(rounds, 1);
    join_at(rounds, 2);
    open_phase(rounds, now_ms); /* and who gave up there is asked to train */
    fedge_rounds_free(rounds);
}

/* A drain ends a phase that nobody works on: closed with enough, left open with fewer. */
static void a_drain_does_not_wait_for_who_is_away(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.round_deadline_ms = 600000;
    for (uint32_t reported = 1; reported <= 2; reported++) {
        fedge_rounds *rounds = start(spec, 3);
        open_phase(rounds, 0);
        report(rounds, 0, reported - 1);
        leave(rounds, 1);
        leave(rounds, 2);
        now_ms = 1000000 / 2;
        fedge_rounds_tick(rounds, now_ms);
        no_action(rounds); /* without a drain it is waited for */
        fedge_rounds_drain(rounds);
        fedge_rounds_tick(rounds, now_ms);
        now_ms += FEDGE_ROUNDS_GRACE_MS - 1;
        fedge_rounds_tick(rounds, now_ms);
        no_action(rounds);
        join_at(rounds, 2); /* at work: the time begins anew */
        take(rounds, FEDGE_ROUNDS_SEND);
        now_ms++;
        fedge_rounds_tick(rounds, now_ms);
        leave(rounds, 2);
        fedge_rounds_tick(rounds, now_ms);
        now_ms += FEDGE_ROUNDS_GRACE_MS;
        no_action(rounds);
        fedge_rounds_tick(rounds, now_ms);
        if (reported == 2) {
            take(rounds, FEDGE_ROUNDS_CANCEL);
            take(rounds, FEDGE_ROUNDS_CLOSE);
            fedge_rounds_closed(rounds, now_ms);
        }
        take(rounds, FEDGE_ROUNDS_FINISH);
        assert_false(fedge_rounds_is_complete(rounds));
        assert_int_equal(fedge_rounds_report(rounds, task_of(rounds, 2), NULL), FEDGE_STALE);
        fedge_rounds_free(rounds);
    }
}

static void a_drain_of_a_restored_phase_waits_longer(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.round_deadline_ms = 600000;
    const fedge_rounds_task task = {.task_id = 7, .client_index = 4};
    fedge_rounds *rounds = make(&spec);
    assert_int_equal(
        fedge_rounds_restore(rounds,
                             &(fedge_rounds_progress){
                                 .next_task_id = 100, .wanted = 1, .tasks = &task, .num_tasks = 1},
                             0, NULL),
        FEDGE_OK);
    fedge_rounds_drain(rounds);
    fedge_rounds_tick(rounds, 0);
    fedge_rounds_tick(rounds, FEDGE_ROUNDS_RESTORED_GRACE_MS - 1);
    no_action(rounds);
    fedge_rounds_tick(rounds, FEDGE_ROUNDS_RESTORED_GRACE_MS);
    take(rounds, FEDGE_ROUNDS_FINISH);
    fedge_rounds_free(rounds);
}

/* An empty slot is restored as one: the client that had it has another, and a third takes it. */
static void a_restored_empty_slot_is_filled(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    const fedge_rounds_task tasks[] = {{.task_id = 9, .client_index = 4},
                                       {.task_id = 8, .client_index = 4, .state = FEDGE_TASK_LOST}};
    fedge_rounds *rounds = make(&spec);
    assert_int_equal(
        fedge_rounds_restore(rounds,
                             &(fedge_rounds_progress){
                                 .next_task_id = 100, .wanted = 2, .tasks = tasks, .num_tasks = 2},
                             0, NULL),
        FEDGE_OK);
    join_at(rounds, 4);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, 9);
    assert_int_equal(fedge_rounds_report(rounds, 8, NULL), FEDGE_STALE);
    join_at(rounds, 5);
    fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(sent.slot, 1);
    assert_true(sent.fresh && sent.task_id == 100);
    report(rounds, 0, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_that_nobody_works_on_is_tried_again),
        cmocka_unit_test(who_comes_anew_meanwhile_is_asked),
        cmocka_unit_test(who_comes_anew_takes_the_empty_slot),
        cmocka_unit_test(who_is_away_is_waited_for),
        cmocka_unit_test(who_gave_up_is_left_out_for_a_while),
        cmocka_unit_test(pauses_grow_and_end),
        cmocka_unit_test(a_round_that_all_have_declined_ends_by_its_deadline),
        cmocka_unit_test(a_round_is_not_ended_by_who_is_mended),
        cmocka_unit_test(an_evaluation_without_anybody_ends),
        cmocka_unit_test(a_drain_does_not_wait_for_who_is_away),
        cmocka_unit_test(a_drain_of_a_restored_phase_waits_longer),
        cmocka_unit_test(a_restored_empty_slot_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
