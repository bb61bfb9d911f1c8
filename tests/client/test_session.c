/* The session against a scripted server: the whole conversation, and every way it can go wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/session_private.h"
#include "edge/core/rng.h"
#include "tests/client/fake_server.h"

static void assert_uploaded(const fake *f)
{
    assert_int_equal(f->uploaded, FAKE_RESULT_SIZE);
    assert_int_equal(f->upload_crc, f->result.crc32);
}

static void test_a_round(void **state)
{
    fake *f = *state;
    assert_int_equal(f->num_connects, 1);
    fake_welcome(f);
    assert_true(f->run_discarded);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 1);
    assert_string_equal(f->fetch.hash, FAKE_PLAN);
    fake_task(f, 1, FAKE_MODEL); /* before the plan is there: waits */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 1);
    fake_plan(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
    assert_string_equal(f->fetch.hash, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
    assert_int_equal(f->work.task_id, 1);
    fake_work_done(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    assert_int_equal(f->upload.size, FAKE_RESULT_SIZE);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_PART), 0); /* not before RESUME */
    fake_resume(f, 1, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_PART), 3);
    assert_uploaded(f);
    assert_true(f->has_result);
    fake_ack(f, 1, false);
    assert_false(f->has_result);
    assert_int_equal(f->num_accepted, 1);
    assert_int_equal(f->num_works, 1);
    fake_task(f, 2, FAKE_MODEL); /* the same model: held, not fetched */
    assert_int_equal(f->num_works, 2);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
}

static void test_parts_wait_for_the_link(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    f->block_after_parts = 1;
    fake_resume(f, 1, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_PART), 1);
    assert_true(fedge_session_wants_write(f->session));
    f->block_after_parts = 0;
    fake_run(f);
    assert_uploaded(f);
    assert_false(fedge_session_wants_write(f->session));
}

static void test_upload_resumes_at_the_byte(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    f->block_after_parts = 2;
    fake_resume(f, 1, 0);
    uint64_t held = f->uploaded;
    assert_int_equal(held, 2 * 65536);
    fake_break(f);
    f->block_after_parts = 0;
    fake_welcome(f);
    assert_false(f->run_discarded);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
    fake_resume(f, 1, held);
    assert_int_equal(f->part_offset, held);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_PART), 3);
    assert_uploaded(f);
    assert_int_equal(f->num_works, 1);
}

static void test_lost_ack_and_duplicate(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_resume(f, 1, 0);
    fake_break(f); /* the ACK is lost */
    assert_true(f->has_result);
    fake_welcome(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
    fake_ack(f, 1, true);
    assert_false(f->has_result);
    assert_int_equal(f->num_accepted, 1);
    fake_break(f);
    fake_welcome(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
}

static void test_restart_offers_the_stored_result(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_restart(f);
    fake_welcome(f);
    assert_false(f->run_discarded);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
    /* The server asks for the task again: the bytes are offered, nothing is trained. */
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
    fake_resume(f, 1, 0);
    assert_uploaded(f);
    fake_ack(f, 1, false);
    assert_false(f->has_result);
}

static void test_a_download_resumes(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_chunk(f, FAKE_MODEL, 0, 65536);
    fake_break(f);
    fake_welcome(f);
    assert_int_equal(f->fetch.offset, 65536);
    fake_restart(f);
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    assert_string_equal(f->fetch.hash, FAKE_MODEL);
    assert_int_equal(f->fetch.offset, 65536);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
}

static void test_a_lost_chunk_is_asked_for_once(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    unsigned fetches = fake_sent(f, FEDGE_MESSAGE_FETCH);
    fake_chunk(f, FAKE_MODEL, 0, 65536);
    fake_chunk(f, FAKE_MODEL, 2 * 65536, 65536);
    fake_chunk(f, FAKE_MODEL, 3 * 65536, 100);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches + 1);
    assert_int_equal(f->fetch.offset, 65536);
    fake_chunk(f, FAKE_MODEL, 0, 65536); /* once more: skipped */
    assert_int_equal(f->model_held, 65536);
    fake_chunk(f, FAKE_MODEL2, 0, 65536); /* not asked for: skipped */
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
}

static void test_a_wrong_hash_is_fetched_again(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    for (unsigned i = 1; i <= FEDGE_SESSION_MAX_REPEATS; i++) {
        fake_serve(f, FAKE_MODEL);
        assert_int_equal(f->num_works, i);
        f->working = false;
        f->model_held = 0;
        fedge_session_blob_bad(f->session, f->now_ms, FAKE_MODEL);
        fake_run(f);
        if (i < FEDGE_SESSION_MAX_REPEATS)
            assert_int_equal(f->fetch.offset, 0);
    }
    assert_false(f->linked); /* enough of this server for now */
    assert_false(f->stopped);
}

static void test_a_bad_plan_blob_is_fetched_again(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_serve(f, FAKE_PLAN);
    assert_true(f->plan_asked);
    f->plan_held = 0;
    fedge_session_blob_bad(f->session, f->now_ms, FAKE_PLAN);
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), 2);
    f->plan_asked = false;
    fake_plan(f);
}

static void test_oversize_blobs(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fedge_task task = {.task_id = 9,
                       .round = 1,
                       .model_size = FAKE_BLOB_SIZE + 1,
                       .deadline_ms = 1000,
                       .learning_rate = 0.1};
    strcpy(task.model, FAKE_MODEL);
    size_t size;
    assert_int_equal(fedge_task_pack(&task, f->frame, sizeof(f->frame), &size, NULL), FEDGE_OK);
    fake_frame(f, f->frame, size);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_TOO_BIG);
    assert_int_equal(f->notice.task_id, 9);
    assert_true(f->linked);
    /* A blob whose chunks say another size than the task did. */
    fake_task(f, 10, FAKE_MODEL);
    fedge_blob_ref ref = {.offset = 0, .size = FAKE_BLOB_SIZE + 1};
    strcpy(ref.hash, FAKE_MODEL);
    assert_int_equal(fedge_chunk_pack(&ref, f->frame, 16, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_TOO_BIG);
    assert_int_equal(f->model_held, 0);
}

static void test_cancel(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 1, FEDGE_REASON_STALE_TASK, 0); /* while fetching */
    fake_chunk(f, FAKE_MODEL, 0, 100);
    assert_int_equal(f->num_works, 0);
    f->model_held = 0;
    fake_task(f, 2, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 1);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 77, FEDGE_REASON_STALE_TASK, 0); /* another's */
    assert_int_equal(f->num_cancels, 0);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 2, FEDGE_REASON_STALE_TASK, 0); /* at work */
    assert_int_equal(f->num_cancels, 1);
    fake_task(f, 3, FAKE_MODEL);
    assert_int_equal(f->num_works, 1); /* one at a time */
    f->working = false;
    fedge_session_task_failed(f->session, f->now_ms, FEDGE_REASON_NONE, "");
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 0);
    assert_int_equal(f->num_works, 2);
    fake_work_done(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 3, FEDGE_REASON_STALE_TASK, 0); /* stored */
    assert_false(f->has_result);
    assert_int_equal(f->num_accepted, 0);
}

/* The FETCH of a round that closed meanwhile is refused after the next round's TASK has come. */
static void test_a_late_refusal_of_a_fetch(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_notice(f, FEDGE_MESSAGE_CANCEL, true, 1, FEDGE_REASON_STALE_TASK, 0);
    fake_task(f, 2, FAKE_MODEL2);
    unsigned fetches = fake_sent(f, FEDGE_MESSAGE_FETCH);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, false, 0, FEDGE_REASON_STALE_TASK, 0);
    assert_true(f->linked);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches + 1);
    fake_serve(f, FAKE_MODEL2);
    assert_int_equal(f->num_works, 1);
    assert_int_equal(f->work.task_id, 2);
}

/* The model of a task that the server does not serve any more. */
static void test_a_fetch_that_is_refused_again(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    unsigned fetches = fake_sent(f, FEDGE_MESSAGE_FETCH);
    for (int i = 0; i < 3; i++)
        fake_notice(f, FEDGE_MESSAGE_REFUSE, false, 0, FEDGE_REASON_STALE_TASK, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_FETCH), fetches + 1);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_true(f->notice.has_task);
    assert_int_equal(f->notice.task_id, 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_STALE_TASK);
    fake_chunk(f, FAKE_MODEL, 0, 100); /* nobody wants it any more */
    assert_int_equal(f->num_works, 0);
    assert_true(f->linked);
    fake_task(f, 2, FAKE_MODEL2);
    fake_serve(f, FAKE_MODEL2);
    assert_int_equal(f->work.task_id, 2);
}

static void test_cancelled_work_that_ends_is_discarded(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    fake_task(f, 2, FAKE_MODEL); /* a newer one: the older is given up */
    assert_int_equal(f->num_cancels, 1);
    fake_work_done(f);
    assert_false(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 0);
    assert_int_equal(f->num_works, 2);
    assert_int_equal(f->work.task_id, 2);
}

static void test_stale_results_are_discarded(void **state)
{
    static const fedge_reason reasons[] = {FEDGE_REASON_STALE_TASK, FEDGE_REASON_STALE_RUN,
                                           FEDGE_REASON_STALE_INCARNATION};
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    for (unsigned i = 0; i < 3; i++) {
        fake_task(f, i + 1, FAKE_MODEL);
        fake_serve(f, FAKE_MODEL);
        fake_work_done(f);
        fake_notice(f, FEDGE_MESSAGE_REFUSE, true, i + 1, reasons[i], 0);
        assert_false(f->has_result);
        assert_true(f->linked);
        assert_false(f->stopped);
    }
}

static void test_another_run_or_incarnation(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_break(f);
    fake_welcome_as(f, FAKE_RUN, 2, FAKE_PLAN); /* restored from a backup */
    assert_true(f->run_discarded);
    assert_false(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    fake_task(f, 1, FAKE_MODEL); /* the plan is loaded, the model is not held any more */
    fake_serve(f, FAKE_MODEL);
    assert_int_equal(f->num_works, 2);
    fake_break(f);
    fake_welcome_as(f, FAKE_OTHER_RUN, 1, FAKE_MODEL2);
    assert_true(f->run_discarded);
    assert_int_equal(f->num_cancels, 1);
    assert_string_equal(f->fetch.hash, FAKE_MODEL2);
    unsigned works = f->num_works;
    fake_work_done(f); /* of the run before */
    assert_false(f->has_result);
    assert_int_equal(f->num_works, works);
}

static void test_refusals_of_an_upload(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_NO_SPACE, 5000);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    assert_true(f->has_result);
    fake_wait(f, 4900);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 1);
    fake_wait(f, 5000 / 8 + 101);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 2);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_BAD_DATA, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 3);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_BAD_DATA, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 4);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_BAD_DATA, 0);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_UPLOAD), 4);
    assert_false(f->has_result);
    assert_false(f->stopped);
    /* A server that has restarted has not counted all of them, and must not wait for more. */
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_true(f->notice.has_task);
    assert_int_equal(f->notice.task_id, 1);
}

static void test_never_ends_the_program(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fake_notice(f, FEDGE_MESSAGE_REFUSE, true, 1, FEDGE_REASON_SCHEMA_MISMATCH, 0);
    assert_true(f->stopped);
    assert_int_equal(f->exit_code, FEDGE_EXIT_REFUSED);
    assert_false(f->has_result);
    assert_non_null(strstr(f->text, "schema-mismatch"));
}

static void test_run_complete(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_RUN_COMPLETE, 0);
    assert_true(f->stopped);
    assert_false(f->linked);
    assert_int_equal(f->exit_code, FEDGE_EXIT_OK);
}

static void test_revoked(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_notice(f, FEDGE_MESSAGE_BYE, false, 0, FEDGE_REASON_REVOKED, 0);
    assert_int_equal(f->exit_code, FEDGE_EXIT_NOT_ADMITTED);
    fake_restart(f);
    f->linked = false;
    fedge_session_disconnected(f->session, f->now_ms, 403, "HTTP");
    fake_run(f);
    assert_true(f->stopped);
    assert_int_equal(f->exit_code, FEDGE_EXIT_NOT_ADMITTED);
}

/* Of ten thousand that have lost their connections each comes at a time of its own. */
static void test_the_way_back_is_wide(void **state)
{
    fake *f = *state;
    uint64_t longest = 0;
    f->return_within_ms = 50000;
    for (unsigned i = 0; i < 6; i++) { /* its own pause grows to 16 s only */
        fake_welcome(f);
        fake_break(f);
        const uint64_t wait = fedge_session_deadline(f->session) - f->now_ms;
        assert_in_range(wait, 0, 50000);
        longest = wait > longest ? wait : longest;
    }
    assert_in_range(longest, 20000, 50000);
}

static void test_backoff(void **state)
{
    fake *f = *state;
    uint64_t most = 500, longest = 0, sum = 0;
    for (unsigned i = 0; i < 40; i++) {
        fake_break(f);
        uint64_t wait = fedge_session_deadline(f->session) - f->now_ms;
        assert_in_range(wait, 0, most);
        longest = wait > longest ? wait : longest;
        sum += wait;
        most = most * 2 < 60000 ? most * 2 : 60000;
        unsigned connects = f->num_connects;
        if (wait > 0) {
            fake_wait(f, wait - 1);
            assert_int_equal(f->num_connects, connects);
            fake_wait(f, 1);
        } else {
            fake_wait(f, 0);
        }
        assert_int_equal(f->num_connects, connects + 1);
    }
    assert_in_range(longest, 40000, 60000);
    assert_in_range(sum / 40, 15000, 40000); /* full jitter: half of the cap on average */
    fake_welcome(f);
    fake_break(f); /* WELCOME alone is no progress */
    fake_welcome(f);
    fake_plan(f); /* this is */
    fake_break(f);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
    for (unsigned i = 0; i < 20; i++) {
        fake_wait(f, 60000);
        fake_break(f);
    }
    fake_welcome(f);
    fake_wait(f, 60000); /* idle, but online for long: forgotten, too */
    fake_break(f);
    assert_in_range(fedge_session_deadline(f->session) - f->now_ms, 0, 500);
}

static void test_silence_drops_the_link(void **state)
{
    fake *f = *state;
    fake_wait(f, 29999);
    assert_true(f->linked);
    fake_wait(f, 1); /* the connection does not come up */
    assert_false(f->linked);
    fake_go_to_upload(f);
    fake_wait(f, 30000); /* no RESUME */
    assert_false(f->linked);
    assert_true(f->has_result);
    fake_welcome(f);
    fake_ack(f, 1, true);
    fake_wait(f, 10000000); /* nothing is owed: an idle client stays */
    assert_true(f->linked);
}

static void test_unknown_types(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fedge_message message = {.type = 99, .meta = "{}", .meta_size = 2};
    assert_int_equal(fedge_message_pack(&message, f->frame, sizeof(f->frame), NULL), FEDGE_OK);
    fake_frame(f, f->frame, fedge_message_size(&message));
    assert_true(f->linked);
    message.flags = FEDGE_MESSAGE_FLAG_MUST;
    assert_int_equal(fedge_message_pack(&message, f->frame, sizeof(f->frame), NULL), FEDGE_OK);
    fake_frame(f, f->frame, fedge_message_size(&message));
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_BYE), 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_UNKNOWN_TYPE);
    assert_true(f->stopped);
    assert_int_equal(f->exit_code, FEDGE_EXIT_DECLINED);
}

static void test_garbage(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fedge_session_garbage(f->session, f->now_ms, "a text frame");
    fake_run(f);
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_BAD_FRAME);
    fake_welcome(f);
    fake_task(f, 1, FAKE_MODEL);
    f->frame[30] ^= 1; /* the TASK again with one bit wrong */
    fedge_message message;
    size_t size;
    assert_int_equal(fedge_message_peek(f->frame, sizeof(f->frame), &size, NULL), FEDGE_OK);
    assert_int_not_equal(fedge_message_unpack(f->frame, size, &message, NULL), FEDGE_OK);
    fake_frame(f, f->frame, size);
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_BAD_FRAME);
    fake_welcome(f);
    message = (fedge_message){.type = FEDGE_MESSAGE_TASK, .meta = "{\"task\":", .meta_size = 8};
    assert_int_equal(fedge_message_pack(&message, f->frame, sizeof(f->frame), NULL), FEDGE_OK);
    fake_frame(f, f->frame, fedge_message_size(&message));
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_BAD_META);
    assert_false(f->stopped);
}

/* A server that says nothing that can be read is not asked again and again at once. */
static void test_garbage_is_no_progress(void **state)
{
    fake *f = *state;
    uint64_t longest = 0;
    const fedge_message message = {
        .type = FEDGE_MESSAGE_TASK, .meta = "{\"task\":", .meta_size = 8};
    for (unsigned i = 0; i < 20; i++) {
        fake_welcome(f);
        assert_int_equal(fedge_message_pack(&message, f->frame, sizeof(f->frame), NULL), FEDGE_OK);
        fake_frame(f, f->frame, fedge_message_size(&message));
        assert_false(f->linked);
        const uint64_t wait = fedge_session_deadline(f->session) - f->now_ms;
        longest = wait > longest ? wait : longest;
    }
    assert_in_range(longest, 10000, 60000);
}

static void test_out_of_place(void **state)
{
    fake *f = *state;
    fedge_session_connected(f->session, f->now_ms);
    fake_run(f);
    fake_ack(f, 1, false); /* before WELCOME */
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_BAD_STATE);
    fake_welcome(f);
    const fedge_message hello = {.type = FEDGE_MESSAGE_HELLO, .meta = "{}", .meta_size = 2};
    assert_int_equal(fedge_message_pack(&hello, f->frame, sizeof(f->frame), NULL), FEDGE_OK);
    fake_frame(f, f->frame, fedge_message_size(&hello));
    assert_false(f->linked);
    fake_go_to_upload(f);
    fake_ack(f, 8, false); /* of another task: skipped */
    fake_resume(f, 8, 0);  /* likewise */
    assert_true(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_PART), 0);
    fake_resume(f, 1, FAKE_RESULT_SIZE + 1);
    assert_false(f->linked);
    assert_true(f->has_result);
}

/* The run that the client is in is not changed under it. */
static void test_a_second_welcome(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fedge_welcome welcome = {.protocol = 1, .incarnation = 2, .plan_size = 1, .heartbeat_s = 30};
    size_t size;
    strcpy(welcome.run_id, FAKE_OTHER_RUN);
    strcpy(welcome.plan, FAKE_PLAN);
    assert_int_equal(fedge_welcome_pack(&welcome, f->frame, sizeof(f->frame), &size, NULL),
                     FEDGE_OK);
    fake_frame(f, f->frame, size);
    assert_false(f->linked);
    assert_int_equal(f->close_reason, FEDGE_REASON_BAD_STATE);
    assert_int_equal(f->num_welcomed, 1);
}

static void test_plan_declined(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_serve(f, FAKE_PLAN);
    fedge_session_plan_failed(f->session, f->now_ms, FAKE_PLAN, FEDGE_REASON_POLICY,
                              FEDGE_EXIT_DECLINED, "max-ram");
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(f->notice.reason, FEDGE_REASON_POLICY);
    assert_false(f->notice.has_task);
    assert_true(f->stopped);
    assert_int_equal(f->exit_code, FEDGE_EXIT_DECLINED);
}

static void test_failed_work_is_declined(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    f->working = false;
    fedge_session_task_failed(f->session, f->now_ms, FEDGE_REASON_INTERNAL, "diverged");
    fake_run(f);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_true(f->notice.has_task);
    assert_string_equal(f->notice.text, "diverged");
    assert_true(f->linked);
}

static void test_stop(void **state)
{
    fake *f = *state;
    fake_welcome(f);
    fake_plan(f);
    fake_task(f, 1, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    fedge_session_stop(f->session, f->now_ms, FEDGE_EXIT_OK, "SIGTERM");
    fake_run(f);
    assert_int_equal(f->num_cancels, 1);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_BYE), 1);
    assert_true(f->stopped);
    assert_int_equal(f->exit_code, FEDGE_EXIT_OK);
    /* A link that takes nothing does not delay the end. */
    fake_restart(f);
    fake_welcome(f);
    f->block_after_parts = 1;
    f->sent[FEDGE_MESSAGE_PART] = 1;
    fedge_session_stop(f->session, f->now_ms, FEDGE_EXIT_OK, "SIGTERM");
    fake_run(f);
    assert_false(f->stopped);
    assert_int_equal(fedge_session_deadline(f->session), f->now_ms + FEDGE_SESSION_FAREWELL_MS);
    fake_wait(f, FEDGE_SESSION_FAREWELL_MS);
    assert_true(f->stopped);
}

static void test_a_lost_result_is_declined(void **state)
{
    fake *f = *state;
    fake_go_to_upload(f);
    fedge_session_result_lost(f->session, f->now_ms, "flash is worn out");
    fake_run(f);
    assert_false(f->has_result);
    assert_int_equal(fake_sent(f, FEDGE_MESSAGE_DECLINE), 1);
    assert_int_equal(f->notice.task_id, 1);
}

/* After anything, another process on an emptied store gets a round done. */
static void still_works(fake *f)
{
    if (f->linked)
        fake_break(f);
    f->plan_held = f->model_held = 0;
    f->store_fails = false;
    fake_restart(f);
    fake_welcome(f);
    fake_plan(f);
    if (f->has_result)
        fake_ack(f, f->result.task_id, false);
    fake_task(f, 50, FAKE_MODEL);
    fake_serve(f, FAKE_MODEL);
    fake_work_done(f);
    f->uploaded = f->upload_crc = 0;
    fake_resume(f, 50, 0);
    assert_uploaded(f);
}

/* Random events and frames in random order: the session keeps its promises (asserts, the fake's
 * checks) and always gets a round done afterwards. */
static void test_random_events(void **state)
{
    fake *f = *state;
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    fake_welcome(f);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t task = 1 + fedge_rng_below(&rng, 4);
        fedge_reason reason = fedge_rng_below(&rng, FEDGE_REASON_COUNT);
        if (strcmp(fedge_reason_class(reason), "never") == 0)
            reason = FEDGE_REASON_STALE_TASK;
        switch (fedge_rng_below(&rng, 14)) {
        case 0:
            fake_task(f, task, fedge_rng_below(&rng, 2) ? FAKE_MODEL : FAKE_MODEL2);
            break;
        case 1:
            fake_resume(f, task, fedge_rng_below(&rng, FAKE_RESULT_SIZE + 1));
            break;
        case 2:
            fake_ack(f, task, false);
            break;
        case 3:
            fake_notice(f, FEDGE_MESSAGE_CANCEL, true, task, reason, 0);
            break;
        case 4:
            fake_notice(f, FEDGE_MESSAGE_REFUSE, fedge_rng_below(&rng, 2), task, reason, 10);
            break;
        case 5:
            fake_chunk(f, FAKE_MODEL, fedge_rng_below(&rng, 3) * 65536, 65536);
            break;
        case 6:
            if (fedge_rng_below(&rng, 8) == 0 && f->linked)
                fake_break(f);
            break;
        case 7:
            if (f->working)
                fake_work_done(f);
            break;
        case 8:
            fake_wait(f, fedge_rng_below(&rng, 2000));
            break;
        case 9:
            if (f->plan_asked)
                fake_plan(f);
            break;
        case 10:
            f->uploaded = 0;
            f->model_held = fedge_rng_below(&rng, 3) ? f->model_held : FAKE_BLOB_SIZE;
            break;
        case 11:
            if (f->session->link != LINK_ONLINE)
                fake_welcome(f);
            break;
        case 12:
            f->store_fails = fedge_rng_below(&rng, 4) == 0;
            break;
        default:
            fake_chunk(f, FAKE_PLAN, f->plan_held, 10000);
            break;
        }
        assert_false(f->stopped);
    }
    assert_true(f->num_works > 10);
    still_works(f);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fake_set_up, fake_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_round),
        TEST(test_parts_wait_for_the_link),
        TEST(test_upload_resumes_at_the_byte),
        TEST(test_lost_ack_and_duplicate),
        TEST(test_restart_offers_the_stored_result),
        TEST(test_a_download_resumes),
        TEST(test_a_lost_chunk_is_asked_for_once),
        TEST(test_a_wrong_hash_is_fetched_again),
        TEST(test_a_bad_plan_blob_is_fetched_again),
        TEST(test_oversize_blobs),
        TEST(test_cancel),
        TEST(test_a_late_refusal_of_a_fetch),
        TEST(test_a_fetch_that_is_refused_again),
        TEST(test_cancelled_work_that_ends_is_discarded),
        TEST(test_stale_results_are_discarded),
        TEST(test_another_run_or_incarnation),
        TEST(test_refusals_of_an_upload),
        TEST(test_never_ends_the_program),
        TEST(test_run_complete),
        TEST(test_revoked),
        TEST(test_backoff),
        TEST(test_the_way_back_is_wide),
        TEST(test_silence_drops_the_link),
        TEST(test_unknown_types),
        TEST(test_garbage),
        TEST(test_garbage_is_no_progress),
        TEST(test_out_of_place),
        TEST(test_a_second_welcome),
        TEST(test_plan_declined),
        TEST(test_failed_work_is_declined),
        TEST(test_stop),
        TEST(test_a_lost_result_is_declined),
        TEST(test_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
