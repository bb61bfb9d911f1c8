/* Jobs of a strategy, and sums of updates, for tests of strategies. */
#ifndef FEDGE_TESTS_AGGREGATOR_ROUNDS_STRATEGY_FIXTURE_H
#define FEDGE_TESTS_AGGREGATOR_ROUNDS_STRATEGY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"

/* A job whose "strategy" is this object, with these keys of training and of rounds. Linear(2, 2).
 */
static inline fedge_status parse_strategy_of(const char *strategy, const char *training,
                                             const char *rounds, fedge_job **job, fedge_error *err)
{
    char text[2048];
    const int size = snprintf(
        text, sizeof(text),
        "{\"fedge-job\": 1, \"name\": \"s\", \"model\": {\"input-shape\": [2], \"layers\": ["
        "{\"type\": \"Linear\", \"in_features\": 2, \"out_features\": 2}]},"
        "\"data\": {\"name\": \"d\", \"shape\": [2], \"dtype\": \"f32\", \"labels\": 2},"
        "\"training\": {%s%s},"
        "\"rounds\": {\"num-server-rounds\": 10, %s},"
        "\"strategy\": %s}",
        strstr(training, "learning-rate") ? "" : "\"learning-rate\": 0.1, ",
        training[0] != '\0' ? training : "\"local-epochs\": 1", rounds, strategy);
    assert_in_range(size, 1, sizeof(text) - 1);
    *err = (fedge_error){0};
    return fedge_strategy_job_parse(text, (size_t)size, "job.json", job, err);
}

static inline fedge_status parse_strategy(const char *strategy, const char *training,
                                          fedge_job **job, fedge_error *err)
{
    return parse_strategy_of(strategy, training, "\"min-available-nodes\": 4", job, err);
}

static inline fedge_job *strategy_job(const char *strategy)
{
    fedge_job *job = NULL;
    fedge_error err;
    if (parse_strategy(strategy, "", &job, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    return job;
}

/* It is refused, and the message has [said] in it. */
static inline void refuse_strategy(const char *strategy, const char *training, const char *said)
{
    fedge_job *job = NULL;
    fedge_error err;
    assert_int_equal(parse_strategy(strategy, training, &job, &err), FEDGE_INVALID_ARGUMENT);
    if (!strstr(err.message, said))
        fail_msg("gave %s\n  expected %s", err.message, said);
}

#endif
