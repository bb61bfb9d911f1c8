/* When the session works on a task and when it does not: each once, and of the present run only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/client/fake_server.h"

/* Nothing is trained twice, whatever comes after the answer. */
static void assert_rests(fake *f, unsigned works)
{
    const unsigned fetches = fake_sent(f, FEDGE_MESSAGE_FETCH),
                   uploads = fake_sent(f, FEDGE_MESSAGE_UPLOAD);
    assert_false(f->has_result);
    fake_wait(f, 1000);
    fake_break(f);
    fake_welcome(f);
    assert_false(f->working);
    assert_int_equal(f->num_works, works);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), uploads);
}

static void test_an_answered_task_is_done(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_resume(f, 1, 0);
    fake_ack(f, 1, false);
    assert_rests(f, 1);
    fake_task(f, 2, FAKE_MODEL);
    fake_work_done(f);
    fake_task(f, 3, FAKE_MODEL); /* waits for the answer to the result of 2 */
    assert_int_equal(f->num_works, 2);
    fake_ack(f, 2, true);
    assert_int_equal(f->num_works, 3);
    assert_int_equal(f->work.task_id, 3);
    fake_work_done(f);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 3, FEDGE_REASON_STALE_TASK, 0);
    assert_rests(f, 3);
    fake_task(f, 4, FAKE_MODEL);
    fake_work_done(f);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 4, FEDGE_REASON_STALE_TASK, 0);
    assert_rests(f, 4);
    fake_task(f, 5, FAKE_MODEL);
    f->working = false;
    fedge_session_task_failed(f->session, f->now_ms, FEDGE_REASON_NO_DATA, "no such file");
    fake_run(f);
    assert_rests(f, 5);
}

/* A task that waits for its model, or behind a result, goes with its run. */
static void test_a_task_of_another_run_is_dropped(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_chunk(f, FAKE_MODEL, 0, 65536);
    fake_break(f);
    unsigned fetches = fake_sent(f, FEDGE_MESSAGE_FETCH);
    fake_welcome_as(f, FAKE_RUN, 2, FAKE_PLAN);
    fake_chunk(f, FAKE_MODEL, 0, 65536);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches);
    assert_int_equal(f->model_held, 0);

    fake_task(f, 7, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    f->work_incarnation = 2;
    fake_work_done(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    fake_task(f, 8, FAKE_MODEL);
    fake_break(f);
    fetches = fake_sent(f, FEDGE_MESSAGE_FETCH);
    fake_welcome_as(f, FAKE_RUN, 3, FAKE_PLAN);
    assert_false(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches);
    assert_int_equal(f->num_works, 1);
    fake_task(f, 8, FAKE_MODEL); /* the new run's own */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches + 1);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 2);
    fake_break(f);
    fake_welcome_as(f, FAKE_RUN, 4, FAKE_PLAN);
    assert_true(f->cancel_asked);
    fake_work_done(f); /* of incarnation 2, which nobody wants */
    assert_false(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    assert_int_equal(f->num_works, 2);
}

/* A refusal that names another task, or none, says nothing of the result that is on its way. */
static void test_a_refusal_of_another_task_leaves_the_result(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 7, FEDGE_REASON_STALE_TASK, 0);
    assert_true(f->has_result);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, false, 0, FEDGE_REASON_STALE_TASK, 0);
    assert_true(f->has_result);
    assert_true(f->linked);
    fake_resume(f, 1, 0);
    fake_ack(f, 1, false);
    assert_int_equal(f->num_accepted, 1);
}

/* The policy forbids a task at this moment: before anything is fetched, and when it is at work. */
static void test_policy_declines_for_now(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fedge_session_task_declined(f->session, f->now_ms, FEDGE_REASON_TOO_HOT, 5, "nothing there");
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 0);
    assert_false(fedge_session_has_task(f->session));
    fake_task(f, 1, FAKE_MODEL);
    assert_true(fedge_session_has_task(f->session)); /* while its model comes */
    fedge_session_task_declined(f->session, f->now_ms, FEDGE_REASON_ON_BATTERY, 7000, "battery");
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_true(f->notice.has_task && f->notice.task_id == 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_ON_BATTERY);
    assert_int_equal(f->notice.after_ms, 7000);
    assert_false(fedge_session_has_task(f->session));
    fake_chunk(f, FAKE_MODEL, 0, 100);
    assert_int_equal(f->num_works, 0);
    f->model_held = 0;
    fake_task(f, 2, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
    assert_true(fedge_session_has_task(f->session));
    fedge_session_task_declined(f->session, f->now_ms, FEDGE_REASON_TOO_HOT, 0, "90 degrees");
    fake_run(f);
    assert_false(fedge_session_has_task(f->session)); /* though the work has not ended */
    assert_int_equal(f->num_cancels, 1);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 2);
    assert_int_equal(f->notice.task_id, 2);
    fake_work_done(f); /* it was over in that moment: nobody wants it any more */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 0);
    assert_false(f->has_result);
    assert_true(f->linked);
}

/* Another server when one ends a link, that which it names, or the same when it is only for later.
 */
static void test_where_it_goes_next(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    strcpy(f->send_to, "wss://b.example");
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_SHUTTING_DOWN, 0);
    assert_false(f->stays);
    assert_string_equal(f->sent_to, "wss://b.example");
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
    fake_wait(f, 500);
    strcpy(f->send_to, "");
    fake_welcome(f); /* and it is forgotten on the new one */
    fake_wait(f, 1);
    fedge_session_garbage(f->session, f->now_ms, "a text frame");
    fake_run(f);
    assert_false(f->stays);
    assert_string_equal(f->sent_to, "");
    fake_wait(f, 60000);
    fake_welcome(f);
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_COME_LATER, 1000);
    assert_true(f->stays);
    fake_wait(f, 1125);
    fake_wait(f, 30000); /* and is not to be had there any more */
    assert_false(f->linked);
    assert_false(f->stays);
    fake_wait(f, 60000);
    fake_welcome(f);
    strcpy(f->send_to, "wss://c.example");
    fake_notice(f, FEDGE_MESSAGE_REFUSE, false, 0, FEDGE_REASON_BUSY, 10);
    assert_string_equal(f->sent_to, "wss://c.example");
}

static void test_later(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_SHUTTING_DOWN, 120000);
    assert_false(f->linked);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 120000, 135000);
    fake_wait(f, 119999);
    assert_int_equal(f->num_connects, 1);
    fake_wait(f, 15001);
    assert_int_equal(f->num_connects, 2);
    fake_welcome(f);
    /* Who waits for its site's hours must not miss them. */
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_COME_LATER, 86400000);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 86400000, 86460000);
    fake_wait(f, 86460000);
    fake_welcome(f);
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_COME_LATER, FAKE_YEAR_MS);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 86400000, 86460000);
}

/* The time of one server holds for that one, and for a day at most. */
static void test_later_with_other_servers(void **state)
{
    static const fedge_reason reasons[] = {FEDGE_REASON_SHUTTING_DOWN, FEDGE_REASON_COME_LATER};
    fake *f = *state;
    for (int i = 0; i < 2; i++) {
        f->num_servers = 2;
        fake_restart(f);
        fake_welcome(f);
        fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, reasons[i], FAKE_YEAR_MS);
        assert_false(f->stays);
        assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
    }
}

static void test_a_result_that_may_come_later(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_NO_SPACE, FAKE_YEAR_MS);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 86400000, 86400000 * 9 / 8);
}

/* Another device with this one's identity takes its place whenever it comes, work or no work. */
static void test_backoff_of_the_replaced(void **state)
{
    fake *f = *state;
    uint64_t longest = 0;
    for (unsigned i = 0; i < 40; i++) {
        fake_welcome(f);
        if (i == 0)
            fake_plan(f);
        fake_task(f, 1, FAKE_MODEL);
        fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_REPLACED, 0);
        const uint64_t wait = fedge_session_deadline(f->session) - f->now_ms;
        assert_in_range(wait, 0, i < 6 ? 1000 << i : 60000);
        longest = wait > longest ? wait : longest;
        fake_wait(f, wait);
    }
    assert_in_range(longest, 40000, 60000);
    fake_welcome(f);
    fake_wait(f, 60000); /* the other is gone */
    fake_break(f);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
}

/* What cannot be stored does not bring the client back at once. */
static void test_a_chunk_without_room_is_no_progress(void **state)
{
    fake *f = *state;
    uint64_t longest = 0;
    for (unsigned i = 0; i < 20; i++) {
        fake_welcome(f);
        f->store_fails = true;
        fake_chunk(f, FAKE_PLAN, 0, 65536);
        f->store_fails = false;
        fake_break(f);
        const uint64_t wait = fedge_session_deadline(f->session) - f->now_ms;
        longest = wait > longest ? wait : longest;
    }
    assert_in_range(longest, 10000, 60000);
    fake_welcome(f);
    fake_chunk(f, FAKE_PLAN, 0, 65536);
    fake_break(f);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
}

/* Declined at once, on a link that stays; the next task goes on from what the store holds. */
static void test_a_model_without_room_is_declined(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_chunk(f, FAKE_MODEL, 0, 65536);
    f->store_fails = true;
    fake_chunk(f, FAKE_MODEL, 65536, 65536);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_NO_SPACE);
    assert_int_equal(f->notice.task_id, 1);
    assert_string_equal(f->notice.text, "no room");
    fake_chunk(f, FAKE_MODEL, 131072, 65536); /* was on its way */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
    assert_true(f->linked);
    assert_int_equal(fedge_session_deadline(f->session), FEDGE_SESSION_NEVER);
    f->store_fails = false;
    f->model_held += 1000; /* of the chunk that failed */
    fake_task(f, 2, FAKE_MODEL);
    assert_int_equal(f->fetch.offset, 66536);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->work.task_id, 2);
    assert_int_equal(f->num_connects, 1);
}

/* The same with the plan, which is fetched again for the next task. */
static void test_a_plan_without_room(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    f->store_fails = true;
    fake_chunk(f, FAKE_PLAN, 0, 65536);
    fake_chunk(f, FAKE_PLAN, 65536, 4464);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 1);
    fake_task(f, 1, FAKE_MODEL); /* it cannot even be looked up */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(f->notice.task_id, 1);
    f->store_fails = false;
    fake_task(f, 2, FAKE_MODEL);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
    assert_string_equal(f->fetch.hash, FAKE_PLAN);
    f->store_fails = true;
    fake_chunk(f, FAKE_PLAN, 0, 65536);
    assert_int_equal(f->notice.task_id, 2);
    f->store_fails = false;
    fake_task(f, 3, FAKE_MODEL);
    fake_plan(f);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->work.task_id, 3);
    assert_int_equal(f->num_connects, 1);
}

/* The list before the model, and then the model, of which the list says what is to be fetched. */
static void test_a_list_of_parts_comes_before_the_model(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    f->has_list = true;
    fake_task(f, 1, FAKE_MODEL);
    assert_string_equal(f->fetch.hash, FAKE_LIST);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
    fedge_session_wants_list(f->session, f->now_ms, FAKE_MODEL); /* late: it is under way */
    fedge_session_wants_list(f->session, f->now_ms, FAKE_LIST);
    fake_run(f);
    fake_serve(f, FAKE_LIST);
    assert_string_equal(f->fetch.hash, FAKE_MODEL);
    assert_int_equal(f->fetch.size, FAKE_BLOB_SIZE);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 3);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->work.task_id, 1);
    assert_int_equal(f->num_connects, 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fake_set_up, fake_tear_down)

/* Nothing of a task's model is fetched before the site has allowed the plan of now. */
static void test_another_plan_of_the_run(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    assert_string_equal(f->fetch.hash, FAKE_MODEL);
    fake_break(f);
    fake_welcome_as(f, FAKE_RUN, 1, FAKE_MODEL2);
    assert_false(f->run_discarded);
    assert_string_equal(f->fetch.hash, FAKE_MODEL2);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 3);
}

/* As often as an honest server may need, not for ever: neither on one link nor over many. */
static void test_a_server_that_begins_anew_each_time(void **state)
{
    fake *f = *state;
    unsigned times = 1;
    fake_go_to_upload(f);
    for (; times < 100 && f->has_result; times++) {
        fake_resume(f, 1, 0);
        if (times % 5 == 0 && f->has_result) {
            fake_break(f);
            fake_welcome(f);
        }
    }
    assert_false(f->has_result);
    assert_in_range(times, FEDGE_SESSION_MAX_RESENT, FEDGE_SESSION_MAX_RESENT + 3);
    fake_task(f, 2, FAKE_MODEL); /* the next is as good as ever */
    assert_int_equal(f->num_works, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_server_that_begins_anew_each_time),
        TEST(test_a_list_of_parts_comes_before_the_model),
        TEST(test_where_it_goes_next),
        TEST(test_later),
        TEST(test_later_with_other_servers),
        TEST(test_a_result_that_may_come_later),
        TEST(test_backoff_of_the_replaced),
        TEST(test_policy_declines_for_now),
        TEST(test_an_answered_task_is_done),
        TEST(test_a_refusal_of_another_task_leaves_the_result),
        TEST(test_a_task_of_another_run_is_dropped),
        TEST(test_another_plan_of_the_run),
        TEST(test_a_chunk_without_room_is_no_progress),
        TEST(test_a_model_without_room_is_declined),
        TEST(test_a_plan_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
