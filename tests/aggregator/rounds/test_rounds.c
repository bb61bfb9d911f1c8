#include "aggregator/rounds/rounds_internal.h"
#include "aggregator/rounds/sampler.h"
#include "edge/core/rng.h"
#include "tests/aggregator/rounds/machine.h"

static void a_run_goes_through_its_rounds(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 1);
    no_action(rounds);
    assert_described(rounds, "waiting for nodes: 2 of 3 connected");
    join(rounds, 2, 2);
    for (uint32_t round = 1; round <= 2; round++) {
        assert_int_equal(fedge_rounds_round(rounds), round);
        open_phase(rounds, 500 * round);
        assert_int_equal(fedge_rounds_deadline_ms(rounds), 500 * round + 1000);
        assert_int_equal(task_of(rounds, 0), 3 * (round - 1) + 1);
        report(rounds, 0, 1);
        no_action(rounds);
        assert_described(rounds, "2 of 3 reported, 1 at work");
        assert_int_equal(fedge_rounds_report(rounds, task_of(rounds, 0), NULL), FEDGE_DUPLICATE);
        report(rounds, 2, 2);
        assert_int_equal(take(rounds, FEDGE_ROUNDS_CLOSE).round, round);
        no_action(rounds);
        fedge_rounds_closed(rounds, 600 * round);
    }
    take(rounds, FEDGE_ROUNDS_FINISH);
    no_action(rounds);
    assert_int_equal(fedge_rounds_get_state(rounds), FEDGE_ROUNDS_FINISHED);
    assert_described(rounds, "finished after round 2");
    join(rounds, 9, 9);
    fedge_rounds_tick(rounds, 100000);
    no_action(rounds);
    fedge_rounds_free(rounds);
    fedge_rounds_free(NULL);
}

/* Three would do, but all five that are there are in the first cohort. */
static void nothing_opens_before_all_have_joined(void **state)
{
    (void)state;
    static const uint32_t clients[] = {1, 4, 7, 8, 20};
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    uint32_t num_tasks;
    assert_int_equal(fedge_rounds_join_all(rounds, clients, 5, 0, NULL), FEDGE_OK);
    open_phase(rounds, 0);
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    assert_int_equal(num_tasks, 5);
    for (uint32_t slot = 0; slot < 5; slot++)
        assert_int_equal(tasks[slot].client_index, clients[slot]);
    fedge_rounds_free(rounds);
    rounds = make(&spec);
    assert_int_equal(fedge_rounds_join_all(rounds, clients, 2, 0, NULL), FEDGE_OK);
    no_action(rounds);
    join(rounds, 2, 2);
    open_phase(rounds, 0);
    fedge_rounds_free(rounds);
}

static void over_selection_closes_early(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_train = 0.5;
    spec.over_selection = 1.5;
    spec.min_available_nodes = 8;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 7);
    open_phase(rounds, 0);
    uint32_t num_tasks;
    fedge_rounds_cohort(rounds, &num_tasks);
    assert_int_equal(num_tasks, 6);
    assert_int_equal(fedge_rounds_wanted(rounds), 4);
    uint64_t fifth = task_of(rounds, 4), sixth = task_of(rounds, 5);
    report(rounds, 0, 3);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).task_id, fifth);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).task_id, sixth);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    /* One was on its way to the disk: it counts. */
    report(rounds, 4, 4);
    assert_int_equal(rounds->num_reported, 5);
    no_action(rounds);
    fedge_rounds_closed(rounds, 0);
    take(rounds, FEDGE_ROUNDS_OPEN);
    assert_int_equal(fedge_rounds_report(rounds, sixth, NULL), FEDGE_STALE);
    fedge_rounds_free(rounds);
}

static void the_deadline_closes_or_fails(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    report(rounds, 0, 0);
    fedge_rounds_tick(rounds, 999);
    no_action(rounds);
    fedge_rounds_tick(rounds, 1000);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    fedge_rounds_action failed = take(rounds, FEDGE_ROUNDS_FAIL); /* 1 of 3 < 0.6 */
    assert_int_equal(failed.attempt, 0);
    uint64_t first = task_of(rounds, 0), second = task_of(rounds, 1);
    assert_int_equal(fedge_rounds_report(rounds, first, NULL), FEDGE_STALE);
    assert_int_equal(fedge_rounds_report(rounds, second, NULL), FEDGE_STALE);
    fedge_rounds_leave(rounds, 2);
    fedge_rounds_closed(rounds, 1000);
    assert_int_equal(fedge_rounds_get_state(rounds), FEDGE_ROUNDS_WAITING);
    assert_int_equal(fedge_rounds_report(rounds, first, NULL), FEDGE_STALE);
    join(rounds, 2, 2);
    assert_int_equal(fedge_rounds_round(rounds), 1);
    assert_int_equal(fedge_rounds_attempt(rounds), 1);
    open_phase(rounds, 2000);
    assert_int_equal(fedge_rounds_report(rounds, first, NULL), FEDGE_STALE);
    report(rounds, 0, 1);
    fedge_rounds_tick(rounds, 3000);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_CLOSE); /* 2 of 3 ≥ 0.6 */
    fedge_rounds_closed(rounds, 3000);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    assert_int_equal(fedge_rounds_attempt(rounds), 0);
    fedge_rounds_free(rounds);
}

static void a_lost_task_goes_to_a_free_client(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_train = 0.5;
    spec.min_available_nodes = 4;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 10, 13);
    open_phase(rounds, 0);
    uint64_t lost = task_of(rounds, 0);
    uint32_t others[2], num_tasks;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    others[0] = tasks[0].client_index;
    others[1] = tasks[1].client_index;
    assert_int_equal(fedge_rounds_lose(rounds, lost, NULL), FEDGE_OK);
    fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_true(sent.fresh);
    assert_int_equal(sent.slot, 0);
    assert_int_equal(sent.task_id, 3);
    assert_true(sent.client_index != others[0] && sent.client_index != others[1]);
    assert_int_equal(fedge_rounds_lose(rounds, lost, NULL), FEDGE_STALE);
    assert_int_equal(fedge_rounds_report(rounds, lost, NULL), FEDGE_STALE);

    /* The last free client fails too, then nobody is left: the slot waits for one that joins, and
     * not for one that has had its chance. */
    assert_int_equal(fedge_rounds_lose(rounds, sent.task_id, NULL), FEDGE_OK);
    sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(fedge_rounds_lose(rounds, sent.task_id, NULL), FEDGE_OK);
    no_action(rounds);
    fedge_rounds_leave(rounds, others[0]);
    join(rounds, others[0], others[0]);
    no_action(rounds);
    join(rounds, 99, 99);
    sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(sent.client_index, 99);
    assert_true(sent.fresh);
    report(rounds, 0, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);
}

/* Nobody is left to ask: with enough reports the phase closes, with too few it waits. */
static void a_phase_without_open_tasks(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    assert_int_equal(fedge_rounds_lose(rounds, task_of(rounds, 0), NULL), FEDGE_OK);
    report(rounds, 1, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 0);
    open_phase(rounds, 0);
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_int_equal(fedge_rounds_lose(rounds, task_of(rounds, slot), NULL), FEDGE_OK);
    no_action(rounds);
    fedge_rounds_tick(rounds, 1000);
    take(rounds, FEDGE_ROUNDS_FAIL);
    fedge_rounds_free(rounds);
}

static void a_client_that_comes_back_gets_its_task(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_leave(rounds, 1);
    fedge_rounds_leave(rounds, 1);
    fedge_rounds_opened(rounds, 0);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).client_index, 0);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).client_index, 2);
    no_action(rounds);
    join(rounds, 1, 1);
    fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(sent.client_index, 1);
    assert_false(sent.fresh);
    join(rounds, 1, 1); /* a second connection of the same device */
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, sent.task_id);
    report(rounds, 1, 1);
    join(rounds, 1, 1); /* it has reported: no more work */
    no_action(rounds);
    assert_int_equal(fedge_rounds_num_connected(rounds), 3);
    fedge_rounds_free(rounds);
}

static void evaluation_follows_training(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_evaluate = 1.0;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    for (uint32_t round = 1; round <= 2; round++) {
        open_phase(rounds, 0);
        report(rounds, 0, 2);
        assert_int_equal(take(rounds, FEDGE_ROUNDS_CLOSE).kind, FEDGE_TASK_TRAIN);
        fedge_rounds_closed(rounds, 0);
        assert_int_equal(fedge_rounds_kind(rounds), FEDGE_TASK_EVALUATE);
        assert_int_equal(fedge_rounds_round(rounds), round);
        open_phase(rounds, 0);
        if (round == 1) {
            report(rounds, 0, 2);
            assert_int_equal(take(rounds, FEDGE_ROUNDS_CLOSE).kind, FEDGE_TASK_EVALUATE);
        } else { /* an evaluation that fails does not hold up the run */
            fedge_rounds_tick(rounds, 1000);
            for (int i = 0; i < 3; i++)
                take(rounds, FEDGE_ROUNDS_CANCEL);
            assert_int_equal(take(rounds, FEDGE_ROUNDS_FAIL).kind, FEDGE_TASK_EVALUATE);
        }
        fedge_rounds_closed(rounds, 0);
    }
    take(rounds, FEDGE_ROUNDS_FINISH);
    fedge_rounds_free(rounds);
}

/* As if the job had no more rounds: the last one's evaluation comes, and the run is complete. */
static void a_run_may_end_early(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.num_server_rounds = 9;
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        spec.fraction_evaluate = evaluated ? 1.0 : 0.0;
        fedge_rounds *rounds = make(&spec);
        join(rounds, 0, 2);
        for (int phase = 0; phase <= evaluated; phase++) {
            open_phase(rounds, 0);
            report(rounds, 0, 2);
            take(rounds, FEDGE_ROUNDS_CLOSE);
            fedge_rounds_end_after(rounds, 1);
            assert_false(fedge_rounds_is_complete(rounds));
            fedge_rounds_closed(rounds, 0);
        }
        take(rounds, FEDGE_ROUNDS_FINISH);
        assert_true(fedge_rounds_is_complete(rounds));
        assert_int_equal(fedge_rounds_round(rounds), 1);
        fedge_rounds_free(rounds);
        rounds = make(&spec); /* and so when it is restored, with the evaluation or after it */
        fedge_rounds_end_after(rounds, 4);
        if (evaluated) {
            fedge_rounds_restore_evaluation(rounds, 4, 10);
            join(rounds, 0, 2);
            open_phase(rounds, 0);
            report(rounds, 0, 2);
            take(rounds, FEDGE_ROUNDS_CLOSE);
            fedge_rounds_closed(rounds, 0);
        } else {
            assert_int_equal(
                fedge_rounds_restore(rounds,
                                     &(fedge_rounds_progress){.last_closed = 4, .next_task_id = 10},
                                     0, NULL),
                FEDGE_OK);
        }
        take(rounds, FEDGE_ROUNDS_FINISH);
        assert_true(fedge_rounds_is_complete(rounds));
        fedge_rounds_free(rounds);
    }
}

static void an_evaluation_that_all_decline_ends(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_evaluate = 1.0;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 0);
    open_phase(rounds, 0);
    for (uint32_t slot = 0; slot < 3; slot++) {
        no_action(rounds);
        assert_int_equal(fedge_rounds_lose(rounds, task_of(rounds, slot), NULL), FEDGE_OK);
    }
    assert_int_equal(take(rounds, FEDGE_ROUNDS_FAIL).kind, FEDGE_TASK_EVALUATE);
    fedge_rounds_closed(rounds, 0);
    assert_int_equal(fedge_rounds_kind(rounds), FEDGE_TASK_TRAIN);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    fedge_rounds_free(rounds);
}

static void draining_ends_after_the_phase(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    fedge_rounds_drain(rounds);
    take(rounds, FEDGE_ROUNDS_FINISH);
    fedge_rounds_drain(rounds);
    no_action(rounds);
    fedge_rounds_free(rounds);

    rounds = make(&spec);
    join(rounds, 0, 2);
    open_phase(rounds, 0);
    fedge_rounds_drain(rounds);
    no_action(rounds);
    report(rounds, 0, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 0);
    take(rounds, FEDGE_ROUNDS_FINISH);
    assert_described(rounds, "drained after round 1");
    fedge_rounds_free(rounds);
}

static void a_restored_phase_goes_on(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.num_server_rounds = 5;
    const fedge_rounds_task tasks[3] = {
        {.task_id = 7, .client_index = 4, .state = FEDGE_TASK_REPORTED},
        {.task_id = 8, .client_index = 2, .state = FEDGE_TASK_OPEN},
        {.task_id = 11, .client_index = 0, .state = FEDGE_TASK_OPEN},
    };
    fedge_rounds *rounds = make(&spec);
    fedge_rounds_progress progress = {.last_closed = 3,
                                      .attempt = 2,
                                      .next_task_id = 100,
                                      .wanted = 3,
                                      .tasks = tasks,
                                      .num_tasks = 3};
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 50, NULL), FEDGE_OK);
    no_action(rounds);
    assert_int_equal(fedge_rounds_round(rounds), 4);
    assert_int_equal(fedge_rounds_attempt(rounds), 2);
    assert_int_equal(fedge_rounds_deadline_ms(rounds), 1050);
    join(rounds, 2, 4);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).task_id, 8);
    no_action(rounds);
    assert_int_equal(fedge_rounds_report(rounds, 7, NULL), FEDGE_DUPLICATE);
    assert_int_equal(fedge_rounds_report(rounds, 11, NULL), FEDGE_OK);
    assert_int_equal(fedge_rounds_lose(rounds, 8, NULL), FEDGE_OK);
    fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND); /* client 3 had none */
    assert_int_equal(sent.client_index, 3);
    assert_int_equal(sent.task_id, 100);
    report(rounds, 1, 1);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);

    /* As many as wanted had reported: it closes at once. */
    rounds = make(&spec);
    progress = (fedge_rounds_progress){
        .last_closed = 3, .next_task_id = 100, .wanted = 1, .tasks = tasks, .num_tasks = 3};
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 0, NULL), FEDGE_OK);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_CANCEL);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_free(rounds);

    rounds = make(&spec);
    progress = (fedge_rounds_progress){.last_closed = 5, .next_task_id = 100};
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 0, NULL), FEDGE_OK);
    take(rounds, FEDGE_ROUNDS_FINISH);
    fedge_rounds_free(rounds);

    rounds = make(&spec);
    progress = (fedge_rounds_progress){.last_closed = 2, .attempt = 1, .next_task_id = 100};
    assert_int_equal(fedge_rounds_restore(rounds, &progress, 0, NULL), FEDGE_OK);
    join(rounds, 0, 2);
    fedge_rounds_action open = take(rounds, FEDGE_ROUNDS_OPEN);
    assert_int_equal(open.round, 3);
    assert_int_equal(open.attempt, 1);
    assert_int_equal(task_of(rounds, 0), 100);
    fedge_rounds_free(rounds);
}

static void a_bad_restore_is_refused(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    fedge_rounds_task tasks[2] = {{.task_id = 7, .client_index = 4},
                                  {.task_id = 8, .client_index = 4}};
    const struct {
        uint64_t next_task_id;
        uint32_t wanted, num_tasks;
        fedge_status status;
    } cases[] = {
        {100, 2, 2, FEDGE_CORRUPT}, /* one client twice */
        {8, 2, 2, FEDGE_CORRUPT},   /* a task from the future */
        {100, 0, 2, FEDGE_INVALID_ARGUMENT},
        {100, 3, 2, FEDGE_INVALID_ARGUMENT},
        {0, 1, 1, FEDGE_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_rounds *rounds = make(&spec);
        fedge_error err;
        assert_int_equal(
            fedge_rounds_restore(rounds,
                                 &(fedge_rounds_progress){.next_task_id = cases[i].next_task_id,
                                                          .wanted = cases[i].wanted,
                                                          .tasks = tasks,
                                                          .num_tasks = cases[i].num_tasks},
                                 0, &err),
            cases[i].status);
        fedge_rounds_free(rounds);
    }
}

static void bad_specs_are_refused(void **state)
{
    (void)state;
    fedge_rounds_spec specs[8];
    for (size_t i = 0; i < 8; i++)
        specs[i] = base_spec();
    specs[0].num_server_rounds = 0;
    specs[1].fraction_train = 0.0;
    specs[2].fraction_train = 1.5;
    specs[3].fraction_evaluate = -0.1;
    specs[4].over_selection = 0.9;
    specs[5].min_report_fraction = 0.0;
    specs[6].max_cohort = 0;
    specs[7].max_cohort = 1; /* below min-train-nodes */
    for (size_t i = 0; i < 8; i++) {
        fedge_rounds *rounds = NULL;
        fedge_error err;
        assert_int_equal(fedge_rounds_new(&specs[i], 1, &rounds, &err), FEDGE_INVALID_ARGUMENT);
        assert_null(rounds);
    }
}

static void cohorts_come_from_the_seed(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.fraction_train = 0.1;
    spec.min_available_nodes = 200;
    uint32_t first[20], different = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        for (int again = 0; again < 2; again++) {
            fedge_rounds *rounds = NULL;
            assert_int_equal(fedge_rounds_new(&spec, seed, &rounds, NULL), FEDGE_OK);
            /* Joining in another order changes nothing. */
            for (uint32_t i = 0; i < 200; i++)
                join(rounds, again ? 199 - i : i, again ? 199 - i : i);
            uint32_t num_tasks;
            const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
            assert_int_equal(num_tasks, 20);
            for (uint32_t slot = 0; slot < 20; slot++) {
                if (again)
                    assert_int_equal(tasks[slot].client_index, first[slot]);
                else if (seed == 2)
                    different += tasks[slot].client_index != first[slot];
                first[slot] = tasks[slot].client_index;
            }
            fedge_rounds_free(rounds);
        }
    }
    assert_true(different > 10);
}

/* The cohort that the stream (seed 42, SAMPLE, round, attempt, [phase]) draws of [num_clients]. */
static void assert_drawn(const fedge_rounds *rounds, uint32_t round, uint32_t attempt,
                         uint16_t phase, uint32_t num_clients)
{
    uint32_t clients[40], num_tasks;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    fedge_rng rng = fedge_rng_stream(42, FEDGE_PURPOSE_SAMPLE, round, attempt, phase);
    assert_true(num_clients <= 40 && num_tasks < num_clients);
    for (uint32_t i = 0; i < num_clients; i++)
        clients[i] = i;
    fedge_sample(&rng, clients, num_clients, num_tasks);
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        bool drawn = false;
        for (uint32_t i = 0; i < num_tasks; i++)
            drawn = drawn || clients[i] == tasks[slot].client_index;
        assert_true(drawn);
        assert_true(slot == 0 || tasks[slot].client_index > tasks[slot - 1].client_index);
    }
}

/* Training is 0, evaluation 1: a job's seed means the same cohorts in every release. */
static void each_phase_has_its_own_stream(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    spec.num_server_rounds = 5;
    spec.fraction_train = spec.fraction_evaluate = 0.3;
    spec.min_report_fraction = 1.0;
    spec.min_available_nodes = 40;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 39);
    uint64_t now_ms = 0;
    for (uint32_t round = 1; round <= 4; round++) {
        for (uint32_t attempt = 0; attempt < round; attempt++, now_ms += 1000) {
            open_phase(rounds, now_ms);
            assert_drawn(rounds, round, attempt, 0, 40);
            if (attempt + 1 < round) { /* nobody reports: once more, with others */
                fedge_rounds_tick(rounds, now_ms + 1000);
                for (uint32_t slot = 0; slot < 12; slot++)
                    take(rounds, FEDGE_ROUNDS_CANCEL);
                take(rounds, FEDGE_ROUNDS_FAIL);
            } else {
                report(rounds, 0, 11);
                take(rounds, FEDGE_ROUNDS_CLOSE);
            }
            fedge_rounds_closed(rounds, now_ms);
        }
        open_phase(rounds, now_ms);
        assert_int_equal(fedge_rounds_kind(rounds), FEDGE_TASK_EVALUATE);
        assert_drawn(rounds, round, 0, 1, 40);
        report(rounds, 0, 11);
        take(rounds, FEDGE_ROUNDS_CLOSE);
        fedge_rounds_closed(rounds, now_ms);
    }
    fedge_rounds_free(rounds);
}

/* A restored phase is 2. Free clients take the slots of those who are lost, by rank. */
static void a_restored_phase_has_its_own_stream(void **state)
{
    (void)state;
    fedge_rounds_spec spec = base_spec();
    const fedge_rounds_task tasks[3] = {{.task_id = 7, .client_index = 3},
                                        {.task_id = 8, .client_index = 11},
                                        {.task_id = 9, .client_index = 19}};
    fedge_rounds *rounds = make(&spec);
    assert_int_equal(fedge_rounds_restore(rounds,
                                          &(fedge_rounds_progress){.last_closed = 1,
                                                                   .attempt = 4,
                                                                   .next_task_id = 100,
                                                                   .wanted = 3,
                                                                   .tasks = tasks,
                                                                   .num_tasks = 3},
                                          0, NULL),
                     FEDGE_OK);
    fedge_rng rng = fedge_rng_stream(42, FEDGE_PURPOSE_SAMPLE, 2, 4, 2);
    uint32_t free_clients[17], num_free = 0;
    for (uint32_t client = 0; client < 20; client++) {
        join(rounds, client, client);
        if (client != 3 && client != 11 && client != 19)
            free_clients[num_free++] = client;
        else
            assert_false(take(rounds, FEDGE_ROUNDS_SEND).fresh);
    }
    uint64_t lost = 7;
    for (; num_free > 0; num_free--) {
        uint32_t rank = fedge_rng_below(&rng, num_free);
        assert_int_equal(fedge_rounds_lose(rounds, lost, NULL), FEDGE_OK);
        fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
        assert_int_equal(sent.client_index, free_clients[rank]);
        assert_int_equal(sent.slot, 0);
        memmove(free_clients + rank, free_clients + rank + 1,
                (num_free - rank - 1) * sizeof(free_clients[0]));
        lost = sent.task_id;
    }
    fedge_rounds_free(rounds);
}

/* Those whose tasks were cancelled as the phase was to close get them again, too. */
static void a_phase_that_was_to_close_goes_on(void **state)
{
    (void)state;
    const fedge_rounds_spec spec = base_spec();
    fedge_rounds *rounds = make(&spec);
    const uint32_t first = 0;
    join(rounds, 1, 3);
    open_phase(rounds, 0);
    report(rounds, 0, 1);
    fedge_rounds_tick(rounds, 1000);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_CANCEL).slot, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_reopen(rounds, &first, 1, 1500);
    assert_int_equal(fedge_rounds_get_state(rounds), FEDGE_ROUNDS_RUNNING);
    assert_int_equal(fedge_rounds_deadline_ms(rounds), 2500);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).slot, 0);
    assert_int_equal(take(rounds, FEDGE_ROUNDS_SEND).slot, 2);
    no_action(rounds);
    report(rounds, 0, 0);
    no_action(rounds);
    report(rounds, 2, 2);
    take(rounds, FEDGE_ROUNDS_CLOSE);
    fedge_rounds_closed(rounds, 2000);
    assert_int_equal(fedge_rounds_round(rounds), 2);
    fedge_rounds_free(rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_goes_through_its_rounds),
        cmocka_unit_test(nothing_opens_before_all_have_joined),
        cmocka_unit_test(over_selection_closes_early),
        cmocka_unit_test(the_deadline_closes_or_fails),
        cmocka_unit_test(a_lost_task_goes_to_a_free_client),
        cmocka_unit_test(a_phase_without_open_tasks),
        cmocka_unit_test(a_client_that_comes_back_gets_its_task),
        cmocka_unit_test(evaluation_follows_training),
        cmocka_unit_test(a_run_may_end_early),
        cmocka_unit_test(an_evaluation_that_all_decline_ends),
        cmocka_unit_test(draining_ends_after_the_phase),
        cmocka_unit_test(a_restored_phase_goes_on),
        cmocka_unit_test(a_bad_restore_is_refused),
        cmocka_unit_test(bad_specs_are_refused),
        cmocka_unit_test(cohorts_come_from_the_seed),
        cmocka_unit_test(each_phase_has_its_own_stream),
        cmocka_unit_test(a_restored_phase_has_its_own_stream),
        cmocka_unit_test(a_phase_that_was_to_close_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
