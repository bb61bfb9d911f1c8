/* Claims over lossy clients and ranks whose words cross: no update counts twice, and all count in
 * the end. One seed is one course. */
#include "tests/edge/core/cmocka_all.h"

#include "aggregator/cluster/protocol/slot_lease.h"

#define RANKS 5 /* the client sends to 1 and above, since rank 0 hears itself at once */
#define QUEUE 256
#define SEEDS 4000
#define STEPS 400

/* ---- a small world: one slot, its client, and ranks ----------------------------------------- */

typedef enum word_kind { GRANT, RECALL, RELEASED, VALID, REFUSED } word_kind;

typedef struct word {
    word_kind kind;
    uint64_t task_id;
    uint32_t number;
} word;

typedef struct queue {
    word words[QUEUE];
    uint32_t first, count;
} queue;

typedef struct world {
    uint64_t random;
    fedge_slot_lease lease;
    fedge_slot_holder holders[RANKS];
    uint32_t bytes[RANKS]; /* of the update that have come, of 3 */
    uint32_t durable[RANKS];
    queue down[RANKS], up[RANKS]; /* from rank 0, and to it */
    uint32_t rank;                /* where the client is */
    uint64_t task_id;
    bool resumed; /* it may send bytes */
    bool acknowledged;
} world;

static uint32_t draw(world *of, uint32_t below)
{
    of->random = of->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(of->random >> 33) % below;
}

static void say(queue *to, word_kind kind, uint64_t task_id, uint32_t number)
{
    assert_true(to->count < QUEUE);
    to->words[(to->first + to->count++) % QUEUE] = (word){kind, task_id, number};
}

static void act(world *of, fedge_slot_lease_action action)
{
    switch (action) {
    case FEDGE_LEASE_WAIT:
        break;
    case FEDGE_LEASE_GRANT:
        say(&of->down[of->lease.rank], GRANT, of->lease.task_id, of->lease.number);
        break;
    case FEDGE_LEASE_RECALL:
        say(&of->down[of->lease.rank], RECALL, 0, 0);
        break;
    case FEDGE_LEASE_ANSWER_FILLED:
        of->acknowledged = draw(of, 3) > 0; /* else lost on its way */
        break;
    case FEDGE_LEASE_GIVE_UP:
        assert_int_equal(of->lease.task_id, of->task_id);
        of->task_id++;
        break;
    }
}

/* Rank 0 reads one word. */
static void hear(world *of, uint32_t rank)
{
    queue *from = &of->up[rank];
    if (from->count == 0)
        return;
    const word said = from->words[from->first];
    from->first = (from->first + 1) % QUEUE;
    from->count--;
    if (said.kind == RELEASED) {
        act(of, fedge_slot_lease_released(&of->lease, rank));
    } else {
        /* No other task has the slot before it is sure that none comes. */
        assert_true(said.kind != VALID || said.task_id == of->task_id);
        act(of, fedge_slot_lease_validated(&of->lease, rank, said.number, said.kind == VALID));
        if (said.kind == VALID && said.task_id == of->task_id)
            of->acknowledged = of->acknowledged || draw(of, 3) > 0;
    }
}

/* A rank reads one word of rank 0. */
static void obey(world *of, uint32_t rank)
{
    queue *from = &of->down[rank];
    if (from->count == 0)
        return;
    const word said = from->words[from->first];
    from->first = (from->first + 1) % QUEUE;
    from->count--;
    if (said.kind == RECALL) {
        if (fedge_slot_holder_recall(&of->holders[rank]))
            say(&of->up[rank], RELEASED, 0, 0);
        return;
    }
    const fedge_slot_holder_answer answer =
        fedge_slot_holder_grant(&of->holders[rank], said.task_id, said.number);
    if (answer == FEDGE_HOLDER_BEGIN)
        of->bytes[rank] = 0;
    if (answer != FEDGE_HOLDER_IGNORE && of->rank == rank && said.task_id == of->task_id)
        of->resumed = true;
}

static void look_at_update(world *of, uint32_t rank)
{
    fedge_slot_holder *holder = &of->holders[rank];
    if (!holder->finishing)
        return;
    const bool valid = draw(of, 4) > 0;
    if (valid)
        of->durable[rank]++;
    say(&of->up[rank], valid ? VALID : REFUSED, holder->task_id, holder->number);
    if (fedge_slot_holder_validated(holder, valid))
        say(&of->up[rank], RELEASED, 0, 0);
}

/* The client goes elsewhere, announces (perhaps twice) or sends; its task may go to another. */
static void live(world *of)
{
    const uint32_t what = draw(of, 8);
    if (of->acknowledged)
        return;
    if (what == 0) {
        of->rank = 1 + draw(of, RANKS - 1);
        of->resumed = false;
    } else if (what == 1 && draw(of, 6) == 0 && of->lease.state != FEDGE_LEASE_COUNTED) {
        of->resumed = false;
        act(of, fedge_slot_lease_give_up(&of->lease, of->task_id));
    } else if (what < 4) {
        of->resumed = false;
        act(of, fedge_slot_lease_request(&of->lease, of->rank, of->task_id));
    } else if (of->resumed && of->holders[of->rank].uploading &&
               of->holders[of->rank].task_id == of->task_id) {
        if (++of->bytes[of->rank] >= 3) {
            fedge_slot_holder_finish(&of->holders[of->rank]);
            of->resumed = false;
        }
    }
}

static uint32_t num_durable(const world *of)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < RANKS; i++)
        count += of->durable[i];
    return count;
}

static void move(world *of)
{
    const uint32_t rank = 1 + draw(of, RANKS - 1);
    switch (draw(of, 4)) {
    case 0:
        hear(of, rank);
        break;
    case 1:
        obey(of, rank);
        break;
    case 2:
        look_at_update(of, rank);
        break;
    default:
        live(of);
    }
    assert_true(num_durable(of) <= 1);
    if (of->acknowledged)
        assert_int_equal(num_durable(of), 1);
}

static void test_an_update_counts_once_whatever_crosses(void **state)
{
    (void)state;
    uint32_t moved = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world of = {.random = seed * 7919, .rank = 1, .task_id = 1};
        for (uint32_t step = 0; step < STEPS; step++)
            move(&of);
        for (uint32_t step = 0; step < 100 * STEPS && !of.acknowledged; step++)
            move(&of);
        assert_true(of.acknowledged);
        moved += of.durable[1] == 0;
    }
    assert_true(moved > SEEDS / 4); /* other ranks had their share */
}

/* A device that connects again announces its update once more, while the first one is refused. */
static void test_a_grant_that_crosses_a_refusal_holds(void **state)
{
    (void)state;
    fedge_slot_lease lease = {0};
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    const uint32_t first = lease.number;
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    assert_int_equal(fedge_slot_lease_validated(&lease, 1, first, false), FEDGE_LEASE_WAIT);
    assert_int_equal(lease.state, FEDGE_LEASE_HELD);
    assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_RECALL);
}

/* ---- one by one ------------------------------------------------------------------------------ */

static void test_a_slot_goes_to_another_rank_when_it_is_given_back(void **state)
{
    (void)state;
    fedge_slot_lease lease = {0};
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7),
                     FEDGE_LEASE_GRANT); /* connected again */
    assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_RECALL);
    assert_int_equal(fedge_slot_lease_request(&lease, 3, 7), FEDGE_LEASE_WAIT);
    assert_int_equal(fedge_slot_lease_released(&lease, 1), FEDGE_LEASE_GRANT);
    assert_int_equal(lease.rank, 3);
    assert_int_equal(fedge_slot_lease_validated(&lease, 1, lease.number, true),
                     FEDGE_LEASE_WAIT); /* not its */
    assert_int_equal(lease.state, FEDGE_LEASE_HELD);
    assert_int_equal(fedge_slot_lease_validated(&lease, 3, lease.number, true), FEDGE_LEASE_WAIT);
    assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_ANSWER_FILLED);
}

static void test_a_result_that_crosses_the_recall_is_the_answer(void **state)
{
    (void)state;
    fedge_slot_lease lease = {0};
    fedge_slot_holder holder = {0};
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, lease.number), FEDGE_HOLDER_BEGIN);
    fedge_slot_holder_finish(&holder);
    assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_RECALL);
    assert_false(fedge_slot_holder_recall(&holder));
    assert_false(fedge_slot_holder_validated(&holder, true));
    assert_int_equal(fedge_slot_lease_validated(&lease, 1, lease.number, true),
                     FEDGE_LEASE_ANSWER_FILLED);
    /* Said before the recall came. */
    assert_true(fedge_slot_holder_recall(&holder));
    assert_int_equal(fedge_slot_lease_released(&lease, 1), FEDGE_LEASE_WAIT);
    assert_int_equal(lease.state, FEDGE_LEASE_COUNTED);
}

/* At once where no other rank can have the update; later if one asks for the slot first. */
/* A result on its way carries the number of the last grant, however late that came. */
static void test_a_holder_knows_its_last_grant(void **state)
{
    (void)state;
    fedge_slot_holder holder = {0};
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, 1), FEDGE_HOLDER_BEGIN);
    assert_true(fedge_slot_holder_recall(&holder));
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, 2), FEDGE_HOLDER_BEGIN);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, 3), FEDGE_HOLDER_RESUME);
    fedge_slot_holder_finish(&holder);
    assert_false(holder.uploading);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, 4), FEDGE_HOLDER_IGNORE);
    assert_int_equal(holder.number, 4);
}

static void test_a_task_is_given_up_when_no_rank_has_it(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        fedge_slot_lease lease = {0};
        assert_int_equal(fedge_slot_lease_give_up(&lease, 6), FEDGE_LEASE_GIVE_UP);
        assert_int_equal(lease.task_id, 6);
        assert_int_equal(fedge_slot_lease_request(&lease, rank, 7), FEDGE_LEASE_GRANT);
        if (rank == 0) {
            assert_int_equal(fedge_slot_lease_give_up(&lease, 7), FEDGE_LEASE_GIVE_UP);
            continue;
        }
        assert_int_equal(fedge_slot_lease_give_up(&lease, 7), FEDGE_LEASE_RECALL);
        assert_int_equal(fedge_slot_lease_give_up(&lease, 7), FEDGE_LEASE_WAIT);
        assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_WAIT);
        assert_int_equal(fedge_slot_lease_released(&lease, 1), FEDGE_LEASE_GRANT);
        assert_int_equal(fedge_slot_lease_request(&lease, 3, 7), FEDGE_LEASE_RECALL);
        assert_int_equal(fedge_slot_lease_give_up(&lease, 7), FEDGE_LEASE_WAIT);
        assert_int_equal(fedge_slot_lease_released(&lease, 1), FEDGE_LEASE_WAIT);
        assert_int_equal(fedge_slot_lease_released(&lease, 2), FEDGE_LEASE_GIVE_UP);
        assert_int_equal(lease.task_id, 7);
        assert_int_equal(lease.state, FEDGE_LEASE_FREE);
    }
}

static void test_a_refusal_frees_the_slot(void **state)
{
    (void)state;
    fedge_slot_lease lease = {0};
    fedge_slot_holder holder = {0};
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    assert_int_equal(fedge_slot_lease_validated(&lease, 1, lease.number, false), FEDGE_LEASE_WAIT);
    assert_int_equal(lease.state, FEDGE_LEASE_FREE);
    assert_int_equal(fedge_slot_lease_request(&lease, 1, 7), FEDGE_LEASE_GRANT);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, lease.number), FEDGE_HOLDER_BEGIN);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, lease.number), FEDGE_HOLDER_RESUME);
    fedge_slot_holder_finish(&holder);
    assert_int_equal(fedge_slot_holder_grant(&holder, 7, lease.number), FEDGE_HOLDER_IGNORE);
    assert_int_equal(fedge_slot_lease_request(&lease, 2, 7), FEDGE_LEASE_RECALL);
    assert_false(fedge_slot_holder_recall(&holder));
    assert_true(fedge_slot_holder_validated(&holder, false));
    assert_int_equal(fedge_slot_lease_validated(&lease, 1, lease.number, false), FEDGE_LEASE_WAIT);
    assert_int_equal(lease.state, FEDGE_LEASE_RECALLED);
    assert_int_equal(fedge_slot_lease_released(&lease, 1), FEDGE_LEASE_GRANT);
    assert_int_equal(lease.rank, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_update_counts_once_whatever_crosses),
        cmocka_unit_test(test_a_grant_that_crosses_a_refusal_holds),
        cmocka_unit_test(test_a_slot_goes_to_another_rank_when_it_is_given_back),
        cmocka_unit_test(test_a_result_that_crosses_the_recall_is_the_answer),
        cmocka_unit_test(test_a_holder_knows_its_last_grant),
        cmocka_unit_test(test_a_task_is_given_up_when_no_rank_has_it),
        cmocka_unit_test(test_a_refusal_frees_the_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
