#include "tests/world/answers.h"

#include <inttypes.h>
#include <string.h>

#include "edge/wire/protocol.h"
#include "tests/world/disk.h"
#include "tests/world/scheduler.h"

#define SECOND_NS ((uint64_t)1000000000)
/* Network and disk take a fraction of a second each, and a round opens with the next tick. */
#define ANSWER_NS (10 * SECOND_NS)
/* Time between reading a result and reporting why it cannot be read. */
#define DECLINE_NS (5 * SECOND_NS)
/* A partition takes up to 4 s. */
#define SEND_NS (8 * SECOND_NS)
/* A task takes at most 3 s, and others may have to report before this client gets the next one. */
#define WORK_NS (45 * SECOND_NS)
/* MAX_ENDS: most ends of connections in a second. Pauses begin at up to 100 ms and double. */
enum { MAX_CLIENTS = 32, MAX_WHOLE = 256, MAX_ENDS = 40 };

/* State of an honest client. */
typedef struct party {
    bool welcome; /* connected, as its messages show */
    bool may_decline;
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    fedge_upload upload;                  /* its last announcement */
    uint64_t whole[MAX_WHOLE], num_whole; /* tasks whose result was sent completely */
    uint64_t ended;          /* the last task that the server has answered or cancelled */
    uint64_t waits_since_ns; /* since when it waits for an answer to a whole result; WORLD_NEVER: it
                                does not */
    uint64_t
        asked_since_ns; /* since when bytes of its result are requested; WORLD_NEVER: none are */
    uint64_t missing_since_ns; /* since when that result is missing on its disk; WORLD_NEVER: it is
                                  there */
    uint64_t ends_since_ns, num_ends; /* ends of its connections since [ends_since_ns] */
    uint64_t worked_ns;               /* time of its last task or WELCOME */
} party;

static struct {
    const fedge_job *job;
    const world_plan *plan;
    const stub_trainer *trainers;
    uint32_t num_clients; /* honest clients */
    uint64_t welcomed_ns; /* time of the last WELCOME to any of them */
    party parties[MAX_CLIENTS];
} answers;

/* Stops waiting for an answer, also for parts under way. [task_id] 0: the client's own action. */
static void answered(party *of, uint64_t task_id)
{
    of->ended = task_id;
    of->waits_since_ns = of->missing_since_ns = of->asked_since_ns = WORLD_NEVER;
}

/* Whether the client's trainer or disk may fail. */
static bool may_decline(uint32_t client)
{
    const stub_trainer_chances *chances = &answers.trainers[client].chances;
    bool may = chances->fails > 0 || chances->is_not_finite > 0;
    for (uint32_t i = 0; i < answers.plan->num_faults; i++) {
        const plan_fault *fault = &answers.plan->faults[i];
        may = may || (fault->node == WORLD_FIRST_CLIENT + client &&
                      (fault->kind == PLAN_BAD_CALL || fault->kind == PLAN_FULL_DISK ||
                       fault->kind == PLAN_FLIP));
    }
    return may;
}

void answers_begin(const fedge_job *job, const world_plan *plan, const stub_trainer *trainers)
{
    answers.job = job;
    answers.plan = plan;
    answers.trainers = trainers;
    answers.num_clients = plan->job.num_clients;
    answers.welcomed_ns = 0;
    memset(answers.parties, 0, sizeof(answers.parties));
    for (uint32_t i = 0; i < answers.num_clients; i++) {
        answered(&answers.parties[i], 0);
        answers.parties[i].may_decline = may_decline(i);
    }
}

void answers_client_warned(uint32_t client, const char *line)
{
    if (client < answers.num_clients && strstr(line, " kept-lost ") &&
        !answers.trainers[client].may_lose && !answers.plan->may_fail)
        world_fail("client %u has lost what it keeps from round to round", client);
}

void answers_client_disconnected(uint32_t client)
{
    if (client >= answers.num_clients)
        return;
    party *of = &answers.parties[client];
    of->welcome = false;
    of->asked_since_ns = WORLD_NEVER;
    if (world_now_ns() - of->ends_since_ns > SECOND_NS) {
        of->ends_since_ns = world_now_ns();
        of->num_ends = 0;
    }
    if (++of->num_ends > MAX_ENDS)
        world_fail("client %u connects without a pause", client);
}

void answers_client_wiped(uint32_t client)
{
    answers.parties[client].welcome = false;
    answered(&answers.parties[client], 0);
}

static bool unpack(uint32_t client, const uint8_t *frame, size_t size, fedge_message *message)
{
    return client < answers.num_clients && size > FEDGE_MESSAGE_HEADER_SIZE &&
           fedge_message_unpack(frame, size, message, NULL) == FEDGE_OK;
}

/* ---- of clients ------------------------------------------------------------------------------ */

static void upload_sent(uint32_t client, party *of, const fedge_message *message)
{
    if (fedge_upload_read(message, &of->upload, NULL) != FEDGE_OK) {
        world_fail("client %u sends an UPLOAD that cannot be read", client);
        return;
    }
    answered(of, 0);
    if (strcmp(of->upload.run_id, of->run_id) != 0 || of->upload.incarnation != of->incarnation) {
        world_fail("client %u announces a result of run %.8s, incarnation %u, to run %.8s, "
                   "incarnation %u",
                   client, of->upload.run_id, of->upload.incarnation, of->run_id, of->incarnation);
    }
}

static void part_sent(party *of, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) != FEDGE_OK ||
        position.task_id != of->upload.task_id)
        return;
    of->asked_since_ns = WORLD_NEVER;
    if (position.offset + message->payload_size != of->upload.size)
        return;
    of->whole[of->num_whole++ % MAX_WHOLE] = position.task_id;
    of->waits_since_ns = position.task_id == of->ended ? WORLD_NEVER : world_now_ns();
}

/* Reasons that other checks cover, and a model that was withdrawn while it was fetched. */
static bool is_of_others(fedge_reason reason)
{
    return reason == FEDGE_REASON_STALE_TASK || reason == FEDGE_REASON_POLICY ||
           reason > FEDGE_REASON_INTERNAL;
}

static void decline_sent(uint32_t client, party *of, const fedge_message *message)
{
    fedge_notice notice;
    answered(of, 0);
    if (fedge_notice_read(message, &notice, NULL) == FEDGE_OK && !of->may_decline &&
        !is_of_others(notice.reason)) {
        world_fail("client %u declines without a reason: %s: %s", client,
                   fedge_reason_name(notice.reason), notice.text);
    }
}

void answers_client_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    if (!unpack(client, frame, size, &message))
        return;
    party *of = &answers.parties[client];
    if (message.type == FEDGE_MESSAGE_UPLOAD)
        upload_sent(client, of, &message);
    else if (message.type == FEDGE_MESSAGE_PART)
        part_sent(of, &message);
    else if (message.type == FEDGE_MESSAGE_DECLINE)
        decline_sent(client, of, &message);
    else if (message.type == FEDGE_MESSAGE_HELLO)
        answers_client_wiped(client);
    else if (message.type != FEDGE_MESSAGE_FETCH)
        answered(of, 0); /* it disconnects */
}

/* ---- of the server --------------------------------------------------------------------------- */

static void check_last_accepted(uint32_t client, const party *of, const fedge_task *task)
{
    const uint64_t count = of->num_whole < MAX_WHOLE ? of->num_whole : MAX_WHOLE;
    bool whole = !task->has_last_accepted || task->last_accepted == 0;
    for (uint64_t i = 0; i < count; i++)
        whole = whole || of->whole[i] == task->last_accepted;
    if (!whole) {
        world_fail("client %u's update of task %" PRIu64 " is named as accepted, and was never "
                   "sent to its end",
                   client, task->last_accepted);
    }
}

static void task_sent(uint32_t client, party *of, const fedge_message *message)
{
    static fedge_task task;
    if (fedge_task_read(message, &task, NULL) != FEDGE_OK)
        return; /* the oracle reports it */
    of->worked_ns = world_now_ns();
    check_last_accepted(client, of, &task);
}

/* Reasons of a damaged message. Damaged data may come from the server's disk. */
static bool is_of_wrong_message(fedge_reason reason)
{
    return reason >= FEDGE_REASON_BAD_FRAME && reason < FEDGE_REASON_BAD_DATA;
}

static void notice_sent(uint32_t client, party *of, const fedge_message *message)
{
    fedge_notice notice;
    if (fedge_notice_read(message, &notice, NULL) != FEDGE_OK)
        return;
    answered(of, notice.has_task ? notice.task_id : of->upload.task_id);
    if (is_of_wrong_message(notice.reason) && !answers.plan->may_fail) {
        world_fail("client %u is told %s: %s", client, fedge_reason_name(notice.reason),
                   notice.text);
    }
}

static void resume_sent(uint32_t client, const party *of, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) == FEDGE_OK &&
        position.task_id == of->upload.task_id && position.offset >= of->upload.size) {
        world_fail("client %u is asked for byte %" PRIu64 " of a result of %" PRIu64, client,
                   position.offset, of->upload.size);
    }
}

void answers_client_received(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    fedge_position position;
    if (size <= 5 || frame[5] != FEDGE_MESSAGE_RESUME || !unpack(client, frame, size, &message))
        return;
    party *of = &answers.parties[client];
    if (fedge_position_read(&message, &position, NULL) == FEDGE_OK &&
        position.task_id == of->upload.task_id && position.task_id != of->ended)
        of->asked_since_ns = world_now_ns();
}

static void welcome_sent(party *of, const fedge_message *message)
{
    static fedge_welcome welcome;
    if (fedge_welcome_read(message, &welcome, NULL) != FEDGE_OK)
        return; /* the oracle reports it */
    of->welcome = true;
    answers.welcomed_ns = world_now_ns();
    of->worked_ns = world_now_ns();
    of->incarnation = welcome.incarnation;
    memcpy(of->run_id, welcome.run_id, sizeof(of->run_id));
    answered(of, 0);
}

void answers_server_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    fedge_ack ack;
    if (!unpack(client, frame, size, &message))
        return;
    party *of = &answers.parties[client];
    switch (message.type) {
    case FEDGE_MESSAGE_WELCOME:
        welcome_sent(of, &message);
        break;
    case FEDGE_MESSAGE_TASK:
        task_sent(client, of, &message);
        break;
    case FEDGE_MESSAGE_RESUME:
        resume_sent(client, of, &message);
        break;
    case FEDGE_MESSAGE_ACK:
        if (fedge_ack_read(&message, &ack, NULL) == FEDGE_OK)
            answered(of, ack.task_id);
        break;
    case FEDGE_MESSAGE_REFUSE:
    case FEDGE_MESSAGE_CANCEL:
    case FEDGE_MESSAGE_BYE:
        notice_sent(client, of, &message);
        break;
    default:
        break;
    }
}

/* ---- what is due ----------------------------------------------------------------------------- */

static uint64_t since(uint64_t begin_ns, uint64_t calm_ns)
{
    const uint64_t from_ns = begin_ns > calm_ns ? begin_ns : calm_ns;
    return world_now_ns() > from_ns ? world_now_ns() - from_ns : 0;
}

/* Whether each client must have a task at all times. */
static bool has_work_for_all(void)
{
    return answers.job->rounds.buffer_size > 0 && answers.job->rounds.fraction_train >= 1.0 &&
           answers.job->rounds.max_cohort >= answers.num_clients;
}

/* Since when the server can answer a result that came after its asynchronous round had closed: it
 * waits for the next round, and that for enough devices. WORLD_NEVER: it cannot. */
static uint64_t can_answer_since(void)
{
    uint32_t num_connected = 0;
    if (answers.job->rounds.buffer_size == 0)
        return 0;
    for (uint32_t i = 0; i < answers.num_clients; i++)
        num_connected += answers.parties[i].welcome;
    return num_connected >= answers.job->rounds.min_available_nodes ? answers.welcomed_ns
                                                                    : WORLD_NEVER;
}

static void check_result(uint32_t client, party *of)
{
    size_t size = 0;
    const bool there =
        world_disk_read(WORLD_FIRST_CLIENT + client, WORLD_DISK_ROOT "/state/result", &size);
    if (there || of->waits_since_ns == WORLD_NEVER)
        of->missing_since_ns = WORLD_NEVER;
    else if (of->missing_since_ns == WORLD_NEVER)
        of->missing_since_ns = world_now_ns();
    else if (since(of->missing_since_ns, 0) > DECLINE_NS)
        world_fail("client %u has deleted its result before it was answered", client);
}

static bool gets_no_answer(const party *of, uint64_t calm_ns)
{
    const uint64_t can_ns = can_answer_since();
    return of->waits_since_ns != WORLD_NEVER && can_ns != WORLD_NEVER &&
           since(of->waits_since_ns > can_ns ? of->waits_since_ns : can_ns, calm_ns) > ANSWER_NS;
}

void answers_check(uint64_t calm_ns)
{
    for (uint32_t i = 0; i < answers.num_clients; i++) {
        party *of = &answers.parties[i];
        check_result(i, of);
        if (of->asked_since_ns != WORLD_NEVER && since(of->asked_since_ns, 0) > SEND_NS)
            world_fail("client %u does not send the bytes that it was asked for", i);
        if (calm_ns == WORLD_NEVER || !of->welcome)
            continue;
        if (gets_no_answer(of, calm_ns)) {
            world_fail("client %u has sent its update of task %" PRIu64 " and gets no answer", i,
                       of->upload.task_id);
        }
        if (has_work_for_all() && !answers.plan->may_fail &&
            since(of->worked_ns, calm_ns) > WORK_NS)
            world_fail("client %u gets no work", i);
    }
}
