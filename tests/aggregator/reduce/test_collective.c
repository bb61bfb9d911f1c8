#define _POSIX_C_SOURCE 200809L /* unsetenv */
#include "aggregator/reduce/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/edge/core/cmocka_all.h"

#define RANKS 3u

static void alone_nothing_is_said(void **state)
{
    (void)state;
    fedge_error err = {.message = "why"};
    fedge_collective alone;
    int64_t values[2] = {5, -7};
    unsetenv("OMPI_COMM_WORLD_SIZE");
    assert_int_equal(fedge_collective_open(&alone, &err), FEDGE_OK);
    assert_true(fedge_collective_is_alone(&alone));
    assert_true(fedge_collective_is_alone(NULL));
    fedge_collective_sum(&alone, values, 2);
    fedge_collective_broadcast(&alone, values, sizeof(values), 0);
    assert_int_equal(values[0], 5);
    assert_int_equal(values[1], -7);
    assert_int_equal(fedge_collective_agree(&alone, FEDGE_OK, NULL, 0, &err), FEDGE_OK);
    assert_int_equal(fedge_collective_agree(&alone, FEDGE_IO, NULL, 0, &err), FEDGE_IO);
    assert_string_equal(err.message, "why");
    fedge_collective_abort(&alone, 1);
    fedge_collective_close(&alone);
}

/* What each rank comes with, and what all are told. */
typedef struct meeting {
    fedge_status status[RANKS];
    const char *job[RANKS];
    fedge_status verdict[RANKS];
    char message[RANKS][FEDGE_ERROR_MESSAGE_SIZE];
} meeting;

static void meet(const fedge_collective *collective, void *user)
{
    meeting *self = user;
    const uint32_t rank = collective->rank;
    fedge_error err = {.message = ""};
    fedge_collective_fact facts[2] = {{.name = "the release", .text = "1.0"},
                                      {.name = "the job", .advice = "copy it"}};
    (void)snprintf(facts[1].text, sizeof(facts[1].text), "%s", self->job[rank]);
    if (self->status[rank] != FEDGE_OK)
        (void)fedge_fail(&err, self->status[rank], "no such file");
    self->verdict[rank] = fedge_collective_agree(collective, self->status[rank], facts, 2, &err);
    memcpy(self->message[rank], err.message, sizeof(err.message));
}

static void all_hear_the_same(const meeting *self, fedge_status verdict, const char *message)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(self->verdict[rank], verdict);
        assert_string_equal(self->message[rank], message);
    }
}

static void ranks_agree_or_hear_the_first_that_does_not(void **state)
{
    (void)state;
    meeting self = {.job = {"a", "a", "a"}};
    local_ranks_run(RANKS, meet, &self);
    all_hear_the_same(&self, FEDGE_OK, "");

    self = (meeting){.job = {"a", "a", "b"}};
    local_ranks_run(RANKS, meet, &self);
    all_hear_the_same(&self, FEDGE_MISMATCH,
                      "rank 2 on here: the job is b, and on rank 0 a: copy it");

    self = (meeting){.job = {"a", "a", "b"}, .status = {FEDGE_OK, FEDGE_NOT_FOUND}};
    local_ranks_run(RANKS, meet, &self);
    all_hear_the_same(&self, FEDGE_NOT_FOUND, "rank 1 on here: no such file");

    self = (meeting){.job = {"a", "a", "b"}, .status = {FEDGE_IO}};
    local_ranks_run(RANKS, meet, &self);
    all_hear_the_same(&self, FEDGE_IO, "no such file");
}

/* Rank r says r times its number; who has nothing to compare ("") agrees with all. */
static void gather(const fedge_collective *collective, void *user)
{
    bool *whole = user;
    const uint8_t words[RANKS] = {(uint8_t)collective->rank, (uint8_t)collective->rank,
                                  (uint8_t)collective->rank};
    static const uint8_t ALL[] = {1, 2, 2};
    static const size_t STARTS[] = {0, 0, 1, 3};
    fedge_collective_gathered said;
    fedge_error err;
    fedge_collective_fact fact = {.name = "the test set"};
    (void)snprintf(fact.text, sizeof(fact.text), "%s", collective->rank == 1 ? "" : "here");
    whole[collective->rank] =
        fedge_collective_gather(collective, words, collective->rank, &said, &err) == FEDGE_OK &&
        memcmp(said.starts, STARTS, sizeof(STARTS)) == 0 &&
        memcmp(said.bytes, ALL, sizeof(ALL)) == 0 &&
        fedge_collective_agree(collective, FEDGE_OK, &fact, 1, &err) == FEDGE_OK;
    fedge_collective_gathered_fini(&said);
}

static void all_hear_what_all_say(void **state)
{
    (void)state;
    bool whole[RANKS] = {false};
    local_ranks_run(RANKS, gather, whole);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_true(whole[rank]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_nothing_is_said),
        cmocka_unit_test(ranks_agree_or_hear_the_first_that_does_not),
        cmocka_unit_test(all_hear_what_all_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
