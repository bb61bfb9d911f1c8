/* A scripted peer for the session: plays the owner (store, worker, link) and the server, in memory
 * and in virtual time, and lets a test spoil any of it.
 */
#ifndef FEDGE_TESTS_CLIENT_FAKE_SERVER_H
#define FEDGE_TESTS_CLIENT_FAKE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session.h"
#include "edge/wire/protocol.h"

#define FAKE_BLOB_SIZE 200000 /* four parts */
#define FAKE_RESULT_SIZE 150000
#define FAKE_TEXT 64
#define FAKE_YEAR_MS UINT64_C(31536000000)

typedef struct fake {
    fedge_session *session;
    fedge_hello hello;
    uint64_t now_ms;
    uint32_t num_servers; /* of the next session's list; 0: one */

    /* the owner */
    bool linked;                    /* the link is up or coming up */
    char send_to[FEDGE_MAX_SERVER]; /* an address that notices name */
    char sent_to[FEDGE_MAX_SERVER]; /* what the last close says of the next link: its address, */
    bool stays;                     /* and whether it goes to the same server */
    bool working, cancel_asked, plan_asked, run_discarded, stopped;
    fedge_task work;
    uint32_t work_incarnation; /* that its result will be of; 1 unless a test says otherwise */
    fedge_exit exit_code;
    char text[FEDGE_MAX_TEXT];
    uint64_t plan_held, model_held;
    bool has_list; /* tasks have a list of their model's parts, and of these nothing is held */
    uint64_t list_held;
    bool store_fails; /* at each chunk and each lookup: there is no room */
    bool has_result;
    fedge_upload result;
    uint32_t return_within_ms; /* of WELCOME */
    unsigned num_connects, num_works, num_cancels, num_discards, num_accepted, num_welcomed;
    fedge_reason close_reason;
    char last_event[FAKE_TEXT];

    /* what the client sent last, by type */
    unsigned sent[FEDGE_MESSAGE_BYE + 1];
    fedge_blob_ref fetch;
    fedge_notice notice; /* DECLINE or BYE */
    fedge_upload upload;
    uint64_t part_offset;       /* of the last PART */
    uint64_t uploaded;          /* contiguous bytes the server holds */
    uint32_t upload_crc;        /* of those bytes */
    unsigned block_after_parts; /* the link stops taking frames after so many; 0: never */
    uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
} fake;

extern const char FAKE_RUN[], FAKE_OTHER_RUN[], FAKE_PLAN[], FAKE_MODEL[], FAKE_MODEL2[],
    FAKE_LIST[];

void fake_init(fake *f);
void fake_fini(fake *f);
/* For cmocka: a fake of its own for each test. */
int fake_set_up(void **state);
int fake_tear_down(void **state);
/* How many messages of this type the client has sent. */
unsigned fake_sent(const fake *f, fedge_message_type type);
/* To the point where the result of task 1 is announced. */
void fake_go_to_upload(fake *f);
/* Another process on the same store: a new session, restored. */
void fake_restart(fake *f);
/* Performs all actions, with the link writeable. */
void fake_run(fake *f);
/* Lets time pass in one go. */
void fake_wait(fake *f, uint64_t ms);
/* The link comes up, HELLO is taken and WELCOME sent. */
void fake_welcome(fake *f);
void fake_welcome_as(fake *f, const char *run_id, uint32_t incarnation, const char *plan);
/* The plan is fetched (or held) and loaded. */
void fake_plan(fake *f);
void fake_task(fake *f, uint64_t task_id, const char *model);
/* Sends the part of a blob at [offset]. */
void fake_chunk(fake *f, const char *hash, uint64_t offset, uint32_t size);
/* Sends all that is missing of a blob. */
void fake_serve(fake *f, const char *hash);
/* The worker ends with a result, made durable. */
void fake_work_done(fake *f);
void fake_resume(fake *f, uint64_t task_id, uint64_t offset);
void fake_ack(fake *f, uint64_t task_id, bool duplicate);
void fake_notice(fake *f, fedge_message_type type, bool has_task, uint64_t task_id,
                 fedge_reason reason, uint64_t after_ms);
/* The server's end breaks. */
void fake_break(fake *f);
/* Any frame. */
void fake_frame(fake *f, const uint8_t *frame, size_t size);
/* Byte [at] of the result. */
uint8_t fake_result_byte(uint64_t at);

#endif
