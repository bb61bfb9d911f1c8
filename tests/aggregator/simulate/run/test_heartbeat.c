/* Beats between ranks that are threads here; their words lie in a list. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/simulate/run/heartbeat.h"
#include "edge/core/os.h"

#define PATIENCE_MS 600000u

enum { RANKS = 3, MAX_WORDS = 4096, LAST_WORD = 2 };

/* Of one rank to another, in the order in which they were said. */
typedef struct word {
    uint32_t from, to;
    uint8_t said;
    bool was_read;
} word;

typedef struct place {
    uint32_t rank;
    fedge_collective collective;
    fedge_heartbeat *heartbeat;
    fedge_error told; /* guarded; status FEDGE_OK: nothing */
    pthread_t thread;
} place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static word words[MAX_WORDS]; /* guarded */
static uint32_t num_words;    /* guarded */
static place places[RANKS];
static uint32_t num_failing; /* guarded: last words that find no memory */

void __real_fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank);
void __wrap_fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank);

static uint32_t num_heard; /* guarded */

void __wrap_fedge_ranks_watch_heard(fedge_ranks_watch *watch, uint32_t rank)
{
    pthread_mutex_lock(&lock);
    num_heard++;
    pthread_mutex_unlock(&lock);
    __real_fedge_ranks_watch_heard(watch, rank);
}

/* ---- the collective -------------------------------------------------------------------------- */

static fedge_status split(void *state, uint32_t group, void **part, uint32_t *rank,
                          uint32_t *num_ranks, fedge_error *err)
{
    (void)group, (void)err;
    *part = state;
    *rank = ((place *)state)->rank;
    *num_ranks = RANKS;
    return FEDGE_OK;
}

static void close_part(void *state)
{
    (void)state;
}

static void *begin_send(void *state, const void *bytes, size_t size, uint32_t to)
{
    pthread_mutex_lock(&lock);
    if (size != 1 || num_words == MAX_WORDS)
        abort();
    if (*(const uint8_t *)bytes == LAST_WORD && num_failing > 0) {
        num_failing--;
        pthread_mutex_unlock(&lock);
        return NULL;
    }
    words[num_words++] =
        (word){.from = ((place *)state)->rank, .to = to, .said = *(const uint8_t *)bytes};
    pthread_mutex_unlock(&lock);
    return malloc(1);
}

static bool is_done(void *state, void *handle)
{
    (void)state;
    free(handle);
    return true;
}

static word *next_of(uint32_t rank)
{
    for (uint32_t i = 0; i < num_words; i++) {
        if (words[i].to == rank && !words[i].was_read)
            return &words[i];
    }
    return NULL;
}

static bool probe(void *state, uint32_t *from, size_t *size)
{
    pthread_mutex_lock(&lock);
    const word *found = next_of(((place *)state)->rank);
    if (found)
        *from = found->from;
    pthread_mutex_unlock(&lock);
    *size = 1;
    return found != NULL;
}

static void *begin_receive(void *state, void *bytes, size_t size, uint32_t from)
{
    pthread_mutex_lock(&lock);
    word *found = next_of(((place *)state)->rank);
    if (size != 1 || !found || found->from != from)
        abort();
    *(uint8_t *)bytes = found->said;
    found->was_read = true;
    pthread_mutex_unlock(&lock);
    return malloc(1);
}

static const fedge_collective_ops LISTED = {.name = "listed",
                                            .split = split,
                                            .close = close_part,
                                            .begin_send = begin_send,
                                            .is_done = is_done,
                                            .probe = probe,
                                            .begin_receive = begin_receive};

/* ---- ranks ----------------------------------------------------------------------------------- */

static void on_silence(void *user, const fedge_error *err)
{
    pthread_mutex_lock(&lock);
    place *self = user;
    if (self->told.status == FEDGE_OK)
        self->told = *err;
    pthread_mutex_unlock(&lock);
}

static bool said_end(uint32_t rank)
{
    pthread_mutex_lock(&lock);
    const bool was = places[rank].told.status != FEDGE_OK;
    pthread_mutex_unlock(&lock);
    return was;
}

static uint32_t said_by(uint32_t rank)
{
    uint32_t count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < num_words; i++)
        count += words[i].from == rank;
    pthread_mutex_unlock(&lock);
    return count;
}

static uint32_t num_last_read(void)
{
    uint32_t count = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < num_words; i++)
        count += words[i].was_read && words[i].said == LAST_WORD;
    pthread_mutex_unlock(&lock);
    return count;
}

static void begin(uint32_t rank)
{
    fedge_error err;
    place *self = &places[rank];
    *self = (place){.rank = rank};
    self->collective =
        (fedge_collective){.ops = &LISTED, .state = self, .rank = rank, .num_ranks = RANKS};
    assert_int_equal(
        fedge_heartbeat_new(&self->collective, on_silence, self, &self->heartbeat, &err), FEDGE_OK);
}

static void *end(void *user)
{
    fedge_heartbeat_end(((place *)user)->heartbeat);
    return NULL;
}

static void begin_to_end(uint32_t rank)
{
    assert_int_equal(pthread_create(&places[rank].thread, NULL, end, &places[rank]), 0);
}

static int set_up(void **state)
{
    (void)state;
    num_words = num_heard = 0;
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void all_end_together(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        begin(rank);
    for (uint32_t rank = RANKS; rank-- > 0;)
        begin_to_end(rank);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(pthread_join(places[rank].thread, NULL), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_false(said_end(rank));
        /* A beat, and the last word; rank 0 to both others. */
        assert_in_range(said_by(rank), rank == 0 ? 4 : 2, MAX_WORDS);
    }
    assert_null(next_of(0));
    /* The watch hears of each beat, and before the first one that it is expected. */
    uint32_t heartbeat = 0;
    for (uint32_t i = 0; i < num_words; i++)
        heartbeat += words[i].was_read && words[i].said != LAST_WORD;
    assert_int_equal(num_heard, 4 + heartbeat);
}

/* Although there was no memory for it when all others had ended, which wait for it. */
static void a_last_word_without_memory_is_said_later(void **state)
{
    (void)state;
    const uint64_t patience_end = fedge_os_monotonic_ms() + PATIENCE_MS;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        begin(rank);
    begin_to_end(1);
    begin_to_end(2);
    while (num_last_read() < 2 && fedge_os_monotonic_ms() < patience_end)
        (void)sched_yield();
    pthread_mutex_lock(&lock);
    num_failing = 2;
    pthread_mutex_unlock(&lock);
    begin_to_end(0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(pthread_join(places[rank].thread, NULL), 0);
    assert_int_equal(num_failing, 0);
    assert_int_equal(num_last_read(), 4);
}

/* And not one that has ended. */
static void a_rank_that_says_nothing_is_told(void **state)
{
    (void)state;
    const uint64_t patience_end = fedge_os_monotonic_ms() + PATIENCE_MS;
    setenv(FEDGE_RANKS_SILENCE_VARIABLE, "1", true);
    begin(2);
    begin_to_end(2);
    begin(0);
    unsetenv(FEDGE_RANKS_SILENCE_VARIABLE);
    while (!said_end(0) && fedge_os_monotonic_ms() < patience_end)
        (void)sched_yield();
    assert_non_null(strstr(places[0].told.message, "rank 1 has said nothing for 1 s"));
    begin(1);
    for (uint32_t rank = 0; rank < 2; rank++)
        begin_to_end(rank);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(pthread_join(places[rank].thread, NULL), 0);
}

static void alone_there_are_none(void **state)
{
    (void)state;
    const fedge_collective alone = {0};
    fedge_heartbeat *heartbeat = NULL;
    assert_int_equal(fedge_heartbeat_new(&alone, on_silence, NULL, &heartbeat, NULL), FEDGE_OK);
    assert_null(heartbeat);
    fedge_heartbeat_end(heartbeat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_end_together, set_up),
        cmocka_unit_test_setup(a_last_word_without_memory_is_said_later, set_up),
        cmocka_unit_test_setup(a_rank_that_says_nothing_is_told, set_up),
        cmocka_unit_test(alone_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
