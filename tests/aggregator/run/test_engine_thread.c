/* The engine's thread, with an engine that the test holds back. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/run/engine_thread.h"
#include "tests/aggregator/misuse.h"

#define PART_BYTES 1000000u

struct fedge_engine {
    fedge_mailbox *replies;
    pthread_mutex_t gate; /* held by the test: the engine handles nothing */
    atomic_uint handled, ticks, completions;
    uint64_t last_conn_id;
    bool in_order;
    atomic_bool done;
};

static fedge_engine engine;
static fedge_engine_thread *thread;
static atomic_uint num_wakes;

/* ---- the engine ------------------------------------------------------------------------------ */

void fedge_engine_hand_over(fedge_engine *self)
{
    (void)self;
}

void fedge_engine_handle(fedge_engine *self, fedge_request *request, uint64_t now_ms)
{
    (void)now_ms;
    pthread_mutex_lock(&self->gate);
    self->in_order = self->in_order && request->conn_id == self->last_conn_id + 1;
    self->last_conn_id = request->conn_id;
    pthread_mutex_unlock(&self->gate);
    fedge_request_free(request);
    atomic_fetch_add(&self->handled, 1);
}

void fedge_engine_resume_all(fedge_engine *self)
{
    fedge_reply *reply = calloc(1, sizeof(*reply));
    assert_non_null(reply);
    reply->type = FEDGE_REPLY_RESUME;
    fedge_mailbox_post(self->replies, &reply->item);
}

void fedge_engine_tick(fedge_engine *self, uint64_t now_ms)
{
    (void)now_ms;
    atomic_fetch_add(&self->ticks, 1);
}

void fedge_engine_handle_completions(fedge_engine *self, uint64_t now_ms)
{
    (void)now_ms;
    atomic_fetch_add(&self->completions, 1);
}

bool fedge_engine_done(const fedge_engine *self, fedge_error *failure)
{
    const bool done = atomic_load(&self->done);
    if (done)
        *failure = (fedge_error){.status = FEDGE_IO};
    return done;
}

void fedge_engine_get_status(const fedge_engine *self, fedge_run_status *status)
{
    *status = (fedge_run_status){.round = atomic_load(&self->handled)};
}

/* ---- what tests are written with ------------------------------------------------------------- */

static void count_wake(void *user)
{
    (void)user;
    atomic_fetch_add(&num_wakes, 1);
}

static int set_up(void **state)
{
    (void)state;
    fedge_error err;
    engine = (fedge_engine){.in_order = true};
    pthread_mutex_init(&engine.gate, NULL);
    atomic_store(&num_wakes, 0);
    assert_int_equal(fedge_engine_thread_new(&thread, count_wake, NULL, &err), FEDGE_OK);
    engine.replies = fedge_engine_thread_replies(thread);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_engine_thread_stop(thread);
    fedge_engine_thread_free(thread);
    pthread_mutex_destroy(&engine.gate);
    return 0;
}

static void start(void)
{
    fedge_error err;
    assert_int_equal(fedge_engine_thread_start(thread, &engine, &err), FEDGE_OK);
}

static bool post(uint64_t conn_id, uint32_t size)
{
    fedge_request *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    request->type = FEDGE_REQUEST_MESSAGE;
    request->message.type = FEDGE_MESSAGE_PART;
    request->conn_id = conn_id;
    request->payload_size = size;
    return fedge_engine_thread_post(thread, request);
}

static void wait_until_handled(uint32_t count)
{
    while (atomic_load(&engine.handled) < count)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void requests_are_handled_in_order(void **state)
{
    (void)state;
    assert_true(post(1, 0)); /* before it runs */
    start();
    for (uint64_t i = 2; i <= 1000; i++)
        assert_true(post(i, 0));
    wait_until_handled(1000);
    assert_true(engine.in_order);
}

static void completions_wake_it(void **state)
{
    (void)state;
    start();
    for (int i = 0; i < 3; i++) {
        const unsigned before = atomic_load(&engine.completions);
        fedge_engine_thread_wake(thread);
        while (atomic_load(&engine.completions) == before)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    while (atomic_load(&engine.ticks) < 3) { /* nobody wakes it for these */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Who sends more than the inbox holds waits, and is told when to go on. */
static void a_full_inbox_holds_senders_back(void **state)
{
    (void)state;
    const uint32_t fit = FEDGE_ENGINE_INBOX_BYTES / (PART_BYTES + sizeof(fedge_request));
    pthread_mutex_lock(&engine.gate);
    start();
    for (uint32_t i = 1; i <= fit; i++)
        assert_true(post(i, PART_BYTES));
    assert_false(post(fit + 1, PART_BYTES));
    assert_null(fedge_engine_thread_take(thread));
    pthread_mutex_unlock(&engine.gate);
    wait_until_handled(fit + 1);
    fedge_reply *reply = NULL;
    while (!(reply = fedge_engine_thread_take(thread)))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_int_equal(reply->type, FEDGE_REPLY_RESUME);
    assert_int_equal(reply->conn_id, FEDGE_CONN_ALL);
    while (atomic_load(&num_wakes) == 0) { /* whoever takes replies may be faster than the wake */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    fedge_reply_free(reply);
    assert_true(post(fit + 2, PART_BYTES));
}

static void its_state_and_its_end_are_seen(void **state)
{
    (void)state;
    fedge_run_status status;
    fedge_error failure = {.status = FEDGE_OK};
    start();
    assert_false(fedge_engine_thread_done(thread, &failure));
    assert_true(post(1, 0));
    do {
        fedge_engine_thread_status(thread, &status);
    } while (status.round == 0);
    atomic_store(&engine.done, true);
    while (!fedge_engine_thread_done(thread, &failure))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(failure.status, FEDGE_IO);
    const uint32_t round = status.round;
    fedge_engine_thread_stop(thread);
    fedge_engine_thread_status(thread, &status); /* nobody is there to answer */
    assert_int_equal(status.round, round);
}

/* Requests and replies that nobody wants any more are freed with it. */
static void what_is_left_is_freed(void **state)
{
    (void)state;
    fedge_engine_resume_all(&engine);
    assert_true(post(1, 0));
}

/* ---- replies that cannot be delivered -------------------------------------------------------- */

static fedge_status refuse_reply(void *user, fedge_reply *reply, fedge_error *err)
{
    unsigned *refused = user;
    fedge_reply_free(reply);
    return fedge_fail(err, FEDGE_IO, "reply %u", ++*refused);
}

static void the_first_that_was_lost_says_why(void **state)
{
    (void)state;
    unsigned refused = 0;
    fedge_error failure = {.status = FEDGE_OK};
    fedge_engine_thread_deliver_to(thread, refuse_reply, &refused);
    fedge_engine_resume_all(&engine);
    fedge_engine_resume_all(&engine);
    start();
    while (!fedge_engine_thread_done(thread, &failure))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(refused, 2);
    assert_string_equal(failure.message, "reply 1");
}

/* ---- what must not be ------------------------------------------------------------------------ */

static void deliver_late(void *user)
{
    start();
    fedge_engine_thread_deliver_to(thread, refuse_reply, user);
}

static void ask_early(void *user)
{
    (void)user;
    fedge_run_status status;
    fedge_engine_thread_status(thread, &status);
}

static bool forward_nothing(void *user, fedge_request *request)
{
    (void)user;
    fedge_request_free(request);
    return true;
}

static void stand_in_late(void *user)
{
    start();
    fedge_engine_thread_stand_in(thread, forward_nothing, user);
}

static void it_is_set_up_before_it_starts(void **state)
{
    (void)state;
    assert_misuse(deliver_late, NULL);
    assert_misuse(stand_in_late, NULL);
    assert_misuse(ask_early, NULL);
    fedge_engine_thread_stand_in(thread, forward_nothing, NULL);
    assert_true(post(1, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_are_handled_in_order),   TEST(completions_wake_it),
        TEST(a_full_inbox_holds_senders_back), TEST(its_state_and_its_end_are_seen),
        TEST(what_is_left_is_freed),           TEST(the_first_that_was_lost_says_why),
        TEST(it_is_set_up_before_it_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
