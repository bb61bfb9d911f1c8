/* Samplers: scores, exact probabilities, weights against them, and what was seen of clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/rounds/sampler.h"
#include "tests/aggregator/rounds/machine.h"

#define CLIENTS 6
#define DRAWS 20000

static const uint64_t EXAMPLES[CLIENTS] = {10, 20, 30, 40, 100, 0}; /* the last is not known: 40 */

static void look(fedge_client_history *history)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (EXAMPLES[i] > 0) {
            assert_int_equal(
                fedge_client_history_report(history, i, i + 1, EXAMPLES[i], 1.0 + i, NULL),
                FEDGE_OK);
        }
    }
}

static fedge_draw draw(const fedge_sampler_spec *spec, const fedge_client_history *history,
                       uint32_t number, uint32_t k, uint32_t *items)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        items[i] = i;
    fedge_rng rng = fedge_rng_stream(3, FEDGE_PURPOSE_SAMPLE, number, 0, 0);
    return fedge_draw_cohort(spec, history, 9, &rng, items, CLIENTS, k);
}

/* How often each is drawn, in shares. */
static void count(const fedge_sampler_spec *spec, const fedge_client_history *history, uint32_t k,
                  double shares[CLIENTS])
{
    uint32_t counts[CLIENTS] = {0}, items[CLIENTS];
    for (uint32_t number = 0; number < DRAWS; number++) {
        draw(spec, history, number, k, items);
        for (uint32_t i = 0; i < k; i++)
            counts[items[i]]++;
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        shares[i] = (double)counts[i] / DRAWS;
}

static void each_is_drawn_with_its_probability(void **state)
{
    (void)state;
    /* Two of 240: 1/12, 1/6, 1/4, 1/3, 5/6, 1/3. Three: client 4 for sure, two of 140. */
    const double expected[2][CLIENTS] = {
        {1 / 12.0, 1 / 6.0, 0.25, 1 / 3.0, 5 / 6.0, 1 / 3.0},
        {1 / 7.0, 2 / 7.0, 3 / 7.0, 4 / 7.0, 1.0, 4 / 7.0},
    };
    fedge_client_history history = {0};
    const fedge_sampler_spec spec = {.type = FEDGE_SAMPLER_examples};
    look(&history);
    for (uint32_t k = 2; k <= 3; k++) {
        double shares[CLIENTS];
        count(&spec, &history, k, shares);
        for (uint32_t i = 0; i < CLIENTS; i++) { /* 5 standard deviations */
            assert_float_equal(shares[i], expected[k - 2][i], 0.018);
        }
    }
    fedge_client_history_fini(&history);
}

static void all_are_drawn_when_all_are_wanted(void **state)
{
    (void)state;
    fedge_client_history history = {0};
    const fedge_sampler_spec spec = {.type = FEDGE_SAMPLER_examples};
    uint32_t items[CLIENTS], seen = 0;
    look(&history);
    const fedge_draw all = draw(&spec, &history, 0, CLIENTS, items);
    for (uint32_t i = 0; i < CLIENTS; i++)
        seen |= 1u << items[i];
    assert_int_equal(seen, (1u << CLIENTS) - 1);
    assert_true(fedge_draw_ratio(&all, &spec, &history, 9, 0) == 1.0);
    assert_true(fedge_draw_ratio(&(fedge_draw){0}, &spec, &history, 9, 0) == 1.0);
    fedge_client_history_fini(&history);
}

static void a_minimum_share_lifts_the_least(void **state)
{
    (void)state;
    fedge_client_history history = {0};
    const fedge_sampler_spec spec = {.type = FEDGE_SAMPLER_examples, .minimum_share = 1.0};
    uint32_t items[CLIENTS];
    look(&history);
    const fedge_draw drawn = draw(&spec, &history, 0, 2, items);
    assert_int_equal(drawn.floor, 40); /* the mean */
    assert_int_equal(fedge_draw_score(&drawn, &spec, &history, 9, 0), 40);
    assert_int_equal(fedge_draw_score(&drawn, &spec, &history, 9, 4), 100);
    assert_int_equal(fedge_draw_score(&drawn, &spec, &history, 9, 99), 40);
    fedge_client_history_fini(&history);
}

/* Horvitz and Thompson: the mean of Σ x_i / π_i over draws is Σ x_i. */
static void ratios_undo_the_draw(void **state)
{
    (void)state;
    fedge_client_history history = {0};
    const fedge_sampler_spec spec = {.type = FEDGE_SAMPLER_examples, .inverse_probability = true};
    uint32_t items[CLIENTS];
    double sum = 0.0;
    look(&history);
    for (uint32_t number = 0; number < DRAWS; number++) {
        const fedge_draw drawn = draw(&spec, &history, number, 2, items);
        for (uint32_t i = 0; i < 2; i++)
            sum += items[i] * fedge_draw_ratio(&drawn, &spec, &history, 9, items[i]);
    }
    /* x_i = i: 15 in all, and the ratio is 2 / 6 of 1 / π_i. */
    assert_float_equal(sum / DRAWS, 15.0 / 3.0, 0.1);
    fedge_client_history_fini(&history);
}

static void scores_follow_what_was_seen(void **state)
{
    (void)state;
    const fedge_client_record keen = {.reported = 3}, lost = {.missed = 3}, none = {0};
    const fedge_sampler_ops *available = fedge_sampler_of(FEDGE_SAMPLER_available);
    assert_int_equal(available->score(&keen, 1), FEDGE_SAMPLER_MAX_SCORE / 5 * 4 + 0);
    assert_int_equal(available->score(&lost, 1), FEDGE_SAMPLER_MAX_SCORE / 5);
    assert_int_equal(available->score(&none, 1), FEDGE_SAMPLER_MAX_SCORE / 2);
    const fedge_sampler_ops *utility = fedge_sampler_of(FEDGE_SAMPLER_utility);
    const fedge_client_record old = {.examples = 100, .loss = 2.0, .last_round = 1};
    const fedge_client_record late = {.examples = 100, .loss = 2.0, .last_round = 8};
    const fedge_client_record sure = {.examples = 100, .loss = 0.0, .last_round = 8};
    assert_int_equal(utility->score(&none, 8), 0);
    /* 1600 (1 + √(0.1 · 3 ln 2)) = 2329.6; 1600 (1 + √(0.1 · 3 ln 2 / 8)) = 1857.9 */
    assert_int_equal(utility->score(&old, 8), 2329);
    assert_int_equal(utility->score(&late, 8), 1857);
    assert_int_equal(utility->score(&sure, 8), 1);
    const fedge_client_record huge = {.examples = UINT64_MAX, .loss = 1e300, .last_round = 1};
    assert_int_equal(utility->score(&huge, 1000000), FEDGE_SAMPLER_MAX_SCORE);
    assert_int_equal(fedge_sampler_of(FEDGE_SAMPLER_examples)->score(&huge, 1),
                     FEDGE_SAMPLER_MAX_SCORE);
}

static void history_is_saved(void **state)
{
    (void)state;
    fedge_client_history history = {0}, again = {0};
    fedge_buffer bytes;
    fedge_buffer_init(&bytes, 4096);
    look(&history);
    assert_int_equal(fedge_client_history_miss(&history, 2, NULL), FEDGE_OK);
    assert_int_equal(fedge_buffer_append(&bytes, "abc", 3, NULL), FEDGE_OK);
    assert_int_equal(fedge_client_history_save(&history, &bytes, NULL), FEDGE_OK);
    size_t size = bytes.size;
    assert_int_equal(fedge_client_history_load(&again, bytes.data, &size, NULL), FEDGE_OK);
    assert_int_equal(size, 3);
    assert_int_equal(again.num, history.num);
    assert_memory_equal(again.of, history.of, history.num * sizeof(*history.of));
    assert_int_equal(fedge_client_history_get(&again, 2).missed, 1);
    for (size_t cut = 1; cut < 4; cut++) {
        size = cut;
        assert_int_equal(fedge_client_history_load(&again, bytes.data, &size, NULL),
                         FEDGE_TRUNCATED);
    }
    size = bytes.size - 4; /* ends in a record: a number that is too large */
    fedge_put_u32(bytes.data + size - 4, 1000);
    assert_int_equal(fedge_client_history_load(&again, bytes.data, &size, NULL), FEDGE_TRUNCATED);
    fedge_buffer_fini(&bytes);
    fedge_client_history_fini(&history);
    fedge_client_history_fini(&again);
}

/* A slot that is lost goes by the scores as well, and never to one that has had a task. */
static void a_lost_slot_goes_by_score(void **state)
{
    (void)state;
    fedge_client_history history = {0};
    fedge_rounds_spec spec = base_spec();
    spec.sampler.type = FEDGE_SAMPLER_examples;
    spec.min_available_nodes = CLIENTS;
    spec.fraction_train = 0.34;
    look(&history);
    for (uint32_t i = 0; i < 4; i++) { /* as good as never */
        assert_int_equal(fedge_client_history_report(&history, i, 1, 1, 1.0, NULL), FEDGE_OK);
    }
    for (uint32_t i = 4; i < CLIENTS; i++)
        assert_int_equal(fedge_client_history_report(&history, i, 1, 1000000, 1.0, NULL), FEDGE_OK);
    fedge_rounds *rounds = make(&spec);
    fedge_rounds_draw_by(rounds, &history);
    join(rounds, 0, CLIENTS - 1);
    uint32_t num = 0;
    const fedge_rounds_task *cohort = fedge_rounds_cohort(rounds, &num);
    assert_int_equal(num, 2);
    assert_int_equal(cohort[0].client_index + cohort[1].client_index, 9);
    assert_int_equal(fedge_rounds_draw(rounds).available, CLIENTS);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    const fedge_rounds_action sent = take(rounds, FEDGE_ROUNDS_SEND);
    take(rounds, FEDGE_ROUNDS_SEND);
    assert_int_equal(fedge_rounds_lose(rounds, sent.task_id, NULL), FEDGE_OK);
    assert_in_range(take(rounds, FEDGE_ROUNDS_SEND).client_index, 0, 3);
    fedge_rounds_free(rounds);
    fedge_client_history_fini(&history);
}

/* The cohort of 3 of 6 clients, of which the first [resting] rest until [until_ms] and then [anew],
 * if below 6, joins anew, as bits; the last to come opens the round at [now_ms]. */
static unsigned cohort_of(uint32_t resting, uint64_t until_ms, uint32_t anew, uint64_t now_ms)
{
    fedge_rounds_spec spec = base_spec();
    unsigned clients = 0;
    uint32_t num = 0;
    spec.min_available_nodes = 6;
    spec.fraction_train = 0.5;
    fedge_rounds *rounds = make(&spec);
    join(rounds, 0, 4);
    for (uint32_t i = resting; i > 0; i--)
        fedge_rounds_defer(rounds, i - 1, 2000);
    for (uint32_t i = 0; i < resting; i++)
        fedge_rounds_defer(rounds, i, until_ms); /* the last word counts */
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(fedge_rounds_not_before(rounds, i), i < resting ? until_ms : 0);
    if (anew < 6)
        assert_int_equal(fedge_rounds_join(rounds, anew, 0, NULL), FEDGE_OK);
    assert_int_equal(fedge_rounds_join(rounds, 5, now_ms, NULL), FEDGE_OK);
    const fedge_rounds_task *cohort = fedge_rounds_cohort(rounds, &num);
    assert_int_equal(num, 3);
    for (uint32_t i = 0; i < num; i++)
        clients |= 1u << cohort[i].client_index;
    fedge_rounds_free(rounds);
    return clients;
}

static void who_rests_is_asked_last(void **state)
{
    (void)state;
    const unsigned any = cohort_of(0, 1000, 6, 0);
    assert_int_equal(cohort_of(3, 1000, 6, 999), 0x38);     /* 3, 4 and 5 */
    assert_int_equal(cohort_of(3, 1000, 6, 1000), any);     /* their time has come */
    assert_int_equal(cohort_of(4, 1000, 6, 0), any);        /* two others are not enough */
    assert_int_equal(cohort_of(3, 1000, 0, 999), 0x38);     /* 0 has come before its time */
    assert_int_equal(cohort_of(4, UINT64_MAX, 0, 0), 0x31); /* 0 has come anew */
}

/* Of clients 0 to 5 three get a task, and one of them gives it up; who gets it then, for as long as
 * somebody is free. [resting] are the last that are free. */
static void lost_slots_of(unsigned sampler, uint32_t resting)
{
    fedge_rounds_spec spec = base_spec();
    fedge_client_history history = {0};
    spec.min_available_nodes = 6;
    spec.fraction_train = 0.5;
    spec.sampler.type = sampler;
    fedge_rounds *rounds = make(&spec);
    fedge_rounds_draw_by(rounds, &history);
    join(rounds, 0, 5);
    take(rounds, FEDGE_ROUNDS_OPEN);
    fedge_rounds_opened(rounds, 0);
    uint32_t had[6] = {0};
    fedge_rounds_action sent;
    for (int i = 0; i < 3; i++) {
        sent = take(rounds, FEDGE_ROUNDS_SEND);
        had[sent.client_index] = 1;
    }
    for (uint32_t i = 6, left = resting; i > 0 && left > 0; i--) {
        if (!had[i - 1]) {
            fedge_rounds_defer(rounds, i - 1, 1000);
            left--;
        }
    }
    for (uint32_t free = 3; free > 0; free--) {
        assert_int_equal(fedge_rounds_give_up(rounds, sent.task_id, NULL), FEDGE_OK);
        sent = take(rounds, FEDGE_ROUNDS_SEND);
        assert_int_equal(had[sent.client_index]++, 0);
        assert_int_equal(fedge_rounds_not_before(rounds, sent.client_index),
                         free <= resting ? 1000 : 0);
    }
    fedge_rounds_free(rounds);
    fedge_client_history_fini(&history);
}

static void who_rests_gets_a_lost_slot_last(void **state)
{
    (void)state;
    for (uint32_t resting = 0; resting <= 3; resting++) {
        lost_slots_of(FEDGE_SAMPLER_uniform, resting);
        lost_slots_of(FEDGE_SAMPLER_available, resting);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_drawn_with_its_probability),
        cmocka_unit_test(all_are_drawn_when_all_are_wanted),
        cmocka_unit_test(a_minimum_share_lifts_the_least),
        cmocka_unit_test(ratios_undo_the_draw),
        cmocka_unit_test(scores_follow_what_was_seen),
        cmocka_unit_test(history_is_saved),
        cmocka_unit_test(a_lost_slot_goes_by_score),
        cmocka_unit_test(who_rests_is_asked_last),
        cmocka_unit_test(who_rests_gets_a_lost_slot_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
