/* Steps of the round machine, for its tests. */
#ifndef FEDGE_TESTS_AGGREGATOR_ROUNDS_MACHINE_H
#define FEDGE_TESTS_AGGREGATOR_ROUNDS_MACHINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/rounds/rounds.h"

static inline fedge_rounds_spec base_spec(void)
{
    return (fedge_rounds_spec){
        .num_server_rounds = 2,
        .fraction_train = 1.0,
        .min_train_nodes = 2,
        .min_evaluate_nodes = 1,
        .min_available_nodes = 3,
        .over_selection = 1.0,
        .max_cohort = 100,
        .max_weight = 1000,
        .round_deadline_ms = 1000,
        .min_report_fraction = 0.6,
    };
}

static inline fedge_rounds *make(const fedge_rounds_spec *spec)
{
    fedge_rounds *rounds = NULL;
    assert_int_equal(fedge_rounds_new(spec, 42, &rounds, NULL), FEDGE_OK);
    return rounds;
}

static inline void join(fedge_rounds *rounds, uint32_t first, uint32_t last)
{
    for (uint32_t client = first; client <= last; client++)
        assert_int_equal(fedge_rounds_join(rounds, client, 0, NULL), FEDGE_OK);
}

static inline fedge_rounds_action take(fedge_rounds *rounds, fedge_rounds_action_type type)
{
    fedge_rounds_action action;
    assert_true(fedge_rounds_next(rounds, &action));
    assert_int_equal(action.type, type);
    return action;
}

static inline void no_action(fedge_rounds *rounds)
{
    fedge_rounds_action action;
    assert_false(fedge_rounds_next(rounds, &action));
}

/* Takes OPEN, opens, and takes the SEND of every task. */
static inline void open_phase(fedge_rounds *rounds, uint64_t now_ms)
{
    uint32_t num_tasks;
    take(rounds, FEDGE_ROUNDS_OPEN);
    no_action(rounds);
    fedge_rounds_opened(rounds, now_ms);
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    for (uint32_t slot = 0; slot < num_tasks; slot++) {
        fedge_rounds_action action = take(rounds, FEDGE_ROUNDS_SEND);
        assert_int_equal(action.task_id, tasks[slot].task_id);
        assert_int_equal(action.client_index, tasks[slot].client_index);
        assert_int_equal(action.slot, slot);
        assert_false(action.fresh);
    }
    no_action(rounds);
}

static inline uint64_t task_of(const fedge_rounds *rounds, uint32_t slot)
{
    uint32_t num_tasks;
    const fedge_rounds_task *tasks = fedge_rounds_cohort(rounds, &num_tasks);
    assert_true(slot < num_tasks);
    return tasks[slot].task_id;
}

static inline void report(fedge_rounds *rounds, uint32_t first_slot, uint32_t last_slot)
{
    for (uint32_t slot = first_slot; slot <= last_slot; slot++)
        assert_int_equal(fedge_rounds_report(rounds, task_of(rounds, slot), NULL), FEDGE_OK);
}

static inline void assert_described(const fedge_rounds *rounds, const char *part)
{
    char text[256];
    fedge_rounds_describe(rounds, text, sizeof(text));
    if (!strstr(text, part))
        fail_msg("\"%s\" has no \"%s\"", text, part);
}

#endif
