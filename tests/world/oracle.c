#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "tests/world/oracle.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "edge/plan/client_hooks.h"
#include "tests/world/disk.h"
#include "tests/world/oracle_books.h"
#include "tests/world/scheduler.h"

#define MEMORY ((size_t)1 << 30) /* address space; pages are allocated at first use */
#define TABLE 16384u             /* size of the hash table of tasks; a power of two */
#define PROBES 64u               /* most attempts at a round between two of its tasks */

oracle_books oracle;

static struct {
    uint8_t *base;
    size_t used, touched; /* touched: bytes that may differ from 0 */
} arena;
static oracle_task tasks[ORACLE_MAX_TASKS];
static uint16_t table[TABLE]; /* a task's index + 1; 0: empty */

/* ---- memory ---------------------------------------------------------------------------------- */

void *oracle_memory(size_t size)
{
    size = (size + 15) / 16 * 16;
    if (arena.used + size > MEMORY) {
        world_fail("oracle: out of memory");
        arena.used = 0;
    }
    uint8_t *at = arena.base + arena.used;
    arena.used += size;
    const size_t dirty = arena.used < arena.touched          ? size
                         : arena.used - size < arena.touched ? arena.touched - (arena.used - size)
                                                             : 0;
    memset(at, 0, dirty);
    arena.touched = arena.used > arena.touched ? arena.used : arena.touched;
    return at;
}

void oracle_begin(const fedge_job *job, uint32_t num_clients)
{
    if (!arena.base) {
        void *made = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        arena.base = made == MAP_FAILED ? NULL : made;
        if (!arena.base) {
            world_fail("oracle: no memory");
            return;
        }
    }
    arena.used = 0;
    memset(table, 0, sizeof(table));
    oracle = (oracle_books){.job = job,
                            .models = oracle_models(job),
                            .async = job->rounds.buffer_size > 0,
                            .num_clients = num_clients};
    oracle.tasks = tasks;
    oracle_forget_selection();
}

void oracle_end(void)
{
    oracle.job = NULL;
}

bool oracle_models(const fedge_job *job)
{
    return plain_codec_models(&job->plan) && plain_step_models(job) &&
           job->plan.sent.schema.num_tensors <= sizeof(oracle.tasks->bounds_log2);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static uint16_t *place_of(uint32_t incarnation, uint64_t id)
{
    uint64_t mixed = (id + ((uint64_t)incarnation << 48)) * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(mixed >> 40) & (TABLE - 1);
    while (table[at] != 0) {
        const oracle_task *task = &oracle.tasks[table[at] - 1];
        if (task->id == id && task->incarnation == incarnation)
            break;
        at = (at + 1) & (TABLE - 1);
    }
    return &table[at];
}

oracle_task *oracle_find_task(uint32_t client, uint64_t id)
{
    const uint16_t *place = place_of(oracle.clients[client].incarnation, id);
    return *place > 0 ? &oracle.tasks[*place - 1] : NULL;
}

/* Each attempt has a journal before its first task, and the next one's replaces it. */
uint32_t oracle_attempt_of(uint32_t round)
{
    const uint32_t first = oracle.rounds[round].attempt;
    uint32_t attempt = first;
    bool found = false;
    for (uint32_t i = 0; i < PROBES; i++) {
        char name[ORACLE_JOURNAL_NAME];
        size_t size = 0;
        if (oracle_read_journal(round, first + i, name, &size)) {
            attempt = first + i;
            found = true;
        } else if (found) {
            break;
        }
    }
    return attempt;
}

static uint32_t num_acked(const oracle_round *round, uint32_t attempt)
{
    uint32_t count = 0;
    for (const oracle_task *task = round->tasks; task; task = task->next)
        count += task->acked > 0 && task->attempt == attempt;
    return count;
}

/* The number of reports that an attempt needs, if all clients are present when it opens. */
static uint32_t min_reports(void)
{
    const fedge_rounds_spec *spec = &oracle.job->rounds;
    uint32_t wanted = (uint32_t)floor(spec->fraction_train * oracle.num_clients);
    wanted = wanted < spec->min_train_nodes ? spec->min_train_nodes : wanted;
    wanted = wanted > oracle.num_clients ? oracle.num_clients : wanted;
    wanted = wanted > spec->max_cohort ? spec->max_cohort : wanted;
    wanted = spec->buffer_size > 0 ? spec->buffer_size : wanted;
    const uint32_t reports = (uint32_t)ceil(spec->min_report_fraction * wanted);
    return reports > 0 ? reports : 1;
}

void oracle_begin_attempt(uint32_t number, uint32_t attempt)
{
    oracle_round *round = &oracle.rounds[number];
    const uint32_t acked = num_acked(round, round->attempt);
    if (acked >= min_reports() && !oracle.async && !oracle.damaged) {
        world_fail("oracle: attempt %u at round %u was given up with %u acknowledged updates",
                   round->attempt, number, acked);
    }
    round->attempt = attempt;
    for (uint32_t i = 0; oracle.async && i < oracle.num_tasks; i++) {
        if (oracle.tasks[i].used_in == 0)
            oracle.tasks[i].acked = 0; /* the phase of the update may have failed */
    }
}

/* Forgets closed rounds from [first] on, which the server's disk has lost. */
static void forget_rounds(uint32_t first)
{
    for (uint32_t r = first; r <= ORACLE_MAX_ROUNDS; r++) {
        oracle_round *round = &oracle.rounds[r];
        round->decided = false;
        round->hash[0] = '\0';
        round->num_counted = 0;
        round->num_accepted = round->cohort = 0;
        round->closed = false;
    }
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        if (oracle.tasks[i].used_in >= first)
            oracle.tasks[i].used_in = 0;
    }
    oracle.decided = oracle.decided < first ? oracle.decided : first;
}

void oracle_note_base(uint32_t number, const char *hash)
{
    oracle_round *before = &oracle.rounds[number - 1];
    /* A damaged round is closed again, and with other updates if its journal is lost. */
    if (before->hash[0] && strcmp(before->hash, hash) != 0)
        forget_rounds(number - 1);
    memcpy(before->hash, hash, sizeof(before->hash));
}

static void begin_training(oracle_task *task)
{
    oracle_round *round = &oracle.rounds[task->round];
    const uint32_t attempt = oracle_attempt_of(task->round);
    if (oracle.damaged && oracle.decided > task->round && !oracle.async)
        forget_rounds(task->round);
    if (attempt != round->attempt)
        oracle_begin_attempt(task->round, attempt);
    task->attempt = attempt;
    for (const oracle_task *old = round->tasks; old && !oracle.damaged; old = old->next) {
        if (old->client == task->client && old->acked > 0 && old->attempt == attempt) {
            world_fail("oracle: client %u is asked to train for round %u again (task %" PRIu64
                       ") after its task %" PRIu64 " was acknowledged",
                       task->client, task->round, task->id, old->id);
        }
    }
    task->next = round->tasks;
    round->tasks = task;
}

static oracle_task *new_task(uint32_t client, const fedge_task *of)
{
    oracle_client *asked = &oracle.clients[client];
    if (oracle.num_tasks == ORACLE_MAX_TASKS) {
        world_fail("oracle: more than %d tasks", ORACLE_MAX_TASKS);
        return NULL;
    }
    if (of->round < asked->round && !oracle.damaged) {
        world_fail("oracle: client %u is asked for round %u after round %u", client, of->round,
                   asked->round);
    }
    asked->round = of->round;
    oracle_task *task = &oracle.tasks[oracle.num_tasks++];
    *task = (oracle_task){.id = of->task_id,
                          .incarnation = asked->incarnation,
                          .client = client,
                          .round = of->round,
                          .kind = of->kind,
                          .issued = oracle.now};
    memset(task->bounds_log2, oracle.job->plan.update.bound_log2, sizeof(task->bounds_log2));
    if (of->num_bounds > 0 && of->num_bounds <= sizeof(task->bounds_log2))
        memcpy(task->bounds_log2, of->bounds_log2, of->num_bounds);
    *place_of(task->incarnation, task->id) = (uint16_t)oracle.num_tasks;
    if (of->kind == FEDGE_TASK_TRAIN)
        begin_training(task);
    return task;
}

/* Checks that TASK names as last accepted the device's newest update that is part of the model and
 * of the strategy's state. */
static void check_last_counted(uint32_t client, const fedge_task *of)
{
    const uint32_t end = of->kind == FEDGE_TASK_TRAIN ? of->round : of->round + 1;
    uint64_t last = 0;
    uint32_t in = 0;
    bool sure = oracle.models && !oracle.damaged && oracle.decided >= end;
    for (uint32_t i = 0; sure && i < oracle.num_tasks; i++) {
        const oracle_task *task = &oracle.tasks[i];
        if (task->client == client && task->used_in > in && task->used_in < end) {
            in = task->used_in;
            last = task->id;
        }
    }
    for (uint32_t r = 1; sure && r < end; r++) {
        sure = oracle.rounds[r].sure;
        last = r >= in && oracle.rounds[r].forgot ? 0 : last;
    }
    if (sure && of->has_last_accepted && of->last_accepted != last) {
        world_fail("oracle: client %u is told that its update of task %" PRIu64
                   " counted last, and it was that of task %" PRIu64,
                   client, of->last_accepted, last);
    }
}

/* A rank that was hung sends tasks of rounds that have closed meanwhile, or of earlier attempts at
 * the open one. */
static bool is_outdated(uint32_t client, const fedge_task *of)
{
    bool outdated = of->round < oracle.clients[client].round;
    for (const oracle_task *task = oracle.rounds[of->round].tasks; task; task = task->next) {
        outdated = outdated || (task->client == client && task->id > of->task_id &&
                                task->incarnation == oracle.clients[client].incarnation);
    }
    return outdated;
}

static void task_sent(uint32_t client, bool arrives, const fedge_message *message)
{
    static fedge_task of;
    fedge_error err;
    if (fedge_task_read(message, &of, &err) != FEDGE_OK) {
        world_fail("oracle: a TASK for client %u: %s", client, err.message);
        return;
    }
    if (of.round == 0 || of.round > ORACLE_MAX_ROUNDS) {
        world_fail("oracle: task %" PRIu64 " is of round %u", of.task_id, of.round);
        return;
    }
    const bool trains = of.kind == FEDGE_TASK_TRAIN;
    oracle_task *task = oracle_find_task(client, of.task_id);
    if (!task && !arrives && is_outdated(client, &of))
        return;
    if (!task)
        oracle_look();
    if (!task) {
        task = new_task(client, &of);
    } else if (task->client != client || task->round != of.round || task->kind != of.kind) {
        world_fail("oracle: task id %" PRIu64 " is used for client %u, round %u and again for "
                   "client %u, round %u",
                   of.task_id, task->client, task->round, client, of.round);
    } else if (task->acked > 0 && arrives && !oracle.damaged && !oracle.clients[client].hostile) {
        /* A hostile client may also be connected to another rank, which learns of it later. And a
         * rank that was hung sends tasks over connections that have ended meanwhile. */
        world_fail("oracle: client %u gets task %" PRIu64 " again after it was acknowledged",
                   client, of.task_id);
    }
    if (task && of.has_last_accepted)
        task->last_counted = of.last_accepted;
    /* If a file of the strategy follows the model, the hash is not that of the model alone. */
    if (task && of.control_size == 0)
        oracle_name(trains ? of.round - 1 : of.round, of.model, "a task");
    check_last_counted(client, &of);
}

/* ---- results --------------------------------------------------------------------------------- */

static double metric(const fedge_upload *upload, const char *name, double otherwise)
{
    for (uint32_t i = 0; i < upload->num_metrics; i++) {
        if (strcmp(upload->metrics[i].name, name) == 0 && isfinite(upload->metrics[i].value))
            return upload->metrics[i].value;
    }
    return otherwise;
}

static bool is_bytes(const oracle_version *version, const fedge_upload *upload)
{
    return version->bytes.size == upload->size && version->crc32 == upload->crc32;
}

static plain_said said_of(const fedge_upload *upload)
{
    return (plain_said){.num_examples = upload->num_examples,
                        .start_loss = metric(upload, FEDGE_START_LOSS, 0.0),
                        .loss = metric(upload, "loss", 0.0),
                        .squared_norm = metric(upload, FEDGE_SQUARED_NORM, 0.0),
                        .cluster = metric(upload, FEDGE_CLUSTER, -1.0),
                        .state_lost = metric(upload, FEDGE_CLIENT_STATE_LOST, 0.0)};
}

static oracle_version *new_version(oracle_task *task, const fedge_upload *upload)
{
    oracle_version *version = oracle_memory(sizeof(*version));
    const oracle_version *like = task->versions;
    uint8_t *bytes = oracle_memory((size_t)upload->size);
    while (like && !is_bytes(like, upload))
        like = like->next;
    *version =
        (oracle_version){.next = task->versions, .crc32 = upload->crc32, .said = said_of(upload)};
    version->bytes.size = (size_t)upload->size;
    version->bytes.bytes = bytes;
    version->bytes.num_sections = upload->num_sections;
    if (upload->num_sections <= FEDGE_SECTION_KINDS) {
        memcpy(version->bytes.sections, upload->sections,
               upload->num_sections * sizeof(upload->sections[0]));
    }
    if (like) {
        memcpy(bytes, like->bytes.bytes, (size_t)like->sent);
        version->sent = like->sent;
        version->complete = like->complete;
    }
    task->versions = version;
    return version;
}

static void upload_sent(uint32_t client, const fedge_message *message)
{
    static fedge_upload upload;
    if (fedge_upload_read(message, &upload, NULL) != FEDGE_OK)
        return; /* the server refuses it */
    if (!oracle.clients[client].hostile)
        oracle_check_offered(client, &upload);
    oracle_task *task = oracle_find_task(client, upload.task_id);
    if (!task || task->client != client || task->incarnation != upload.incarnation ||
        task->kind != FEDGE_TASK_TRAIN || upload.size > 2 * PLAIN_MAX_VALUES * sizeof(float))
        return;
    task->current = NULL;
    const plain_said said = said_of(&upload);
    for (oracle_version *old = task->versions; old && !task->current; old = old->next) {
        if (is_bytes(old, &upload) && memcmp(&old->said, &said, sizeof(said)) == 0)
            task->current = old;
    }
    if (!task->current)
        task->current = new_version(task, &upload);
    /* A device that has lost its store trains again and keeps the residual of this training, even
     * if the server has the result of the other one, or both have the same bytes. */
    task->residual = NULL;
    /* A device that does not know yet that a backup was restored may offer what came after it. */
    if (task->current->complete > 0 && !task->current->wrong)
        oracle_check_encoded(task, task->current);
}

static void part_sent(uint32_t client, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) != FEDGE_OK)
        return;
    oracle_task *task = oracle_find_task(client, position.task_id);
    oracle_version *version = task && task->client == client ? task->current : NULL;
    if (!version || version->complete > 0 || position.offset > version->sent ||
        message->payload_size > version->bytes.size - position.offset)
        return;
    memcpy((uint8_t *)(uintptr_t)version->bytes.bytes + position.offset, message->payload,
           message->payload_size);
    version->sent = position.offset + message->payload_size;
    if (version->sent < version->bytes.size)
        return;
    if (fedge_crc32(0, version->bytes.bytes, version->bytes.size) != version->crc32) {
        version->sent = 0; /* the server requests it again */
        return;
    }
    version->complete = oracle.now;
    oracle_check_encoded(task, version);
}

static bool is_cluster(double cluster)
{
    return cluster >= 0.0 && cluster < oracle.job->plan.hooks_arguments.num_clusters &&
           floor(cluster) == cluster;
}

const char *oracle_check(const oracle_task *task, oracle_version *version)
{
    if (!version->v && !version->wrong) {
        int32_t *v = oracle_memory(oracle.job->plan.sent.schema.num_elements * sizeof(*v));
        version->wrong = plain_decode(&oracle.job->plan, task->bounds_log2, &version->bytes, v);
        version->v = version->wrong ? NULL : v;
        if (!version->wrong && version->said.num_examples == 0)
            version->wrong = "it has no examples";
        if (!version->wrong && fedge_plan_is_clustered(&oracle.job->plan) &&
            !is_cluster(version->said.cluster))
            version->wrong = "it is of no cluster";
    }
    return version->wrong;
}

/* ---- acknowledgements ------------------------------------------------------------------------ */

/* Checks that the client has sent the acknowledged update. */
static void check_acked(uint32_t client, const oracle_task *task)
{
    const char *wrong = "not all of its bytes were sent";
    for (oracle_version *version = task->versions; version; version = version->next) {
        if (version->complete > 0)
            wrong = oracle.models ? oracle_check(task, version) : NULL;
        if (version->complete > 0 && !wrong)
            return;
    }
    world_fail("oracle: client %u's update of task %" PRIu64 " is acknowledged: %s", client,
               task->id, wrong);
}

/* A later attempt at the round may only reissue open tasks. */
static void note_attempt(uint32_t round)
{
    if (round == 0 || round > ORACLE_MAX_ROUNDS)
        return;
    const uint32_t attempt = oracle_attempt_of(round);
    if (attempt > oracle.rounds[round].attempt)
        oracle_begin_attempt(round, attempt);
}

static void ack_sent(uint32_t client, const fedge_message *message)
{
    fedge_ack ack;
    fedge_error err;
    if (fedge_ack_read(message, &ack, &err) != FEDGE_OK) {
        world_fail("oracle: an ACK for client %u: %s", client, err.message);
        return;
    }
    oracle_task *task = oracle_find_task(client, ack.task_id);
    /* After the restore of a backup there are tasks of the earlier incarnation, whose ids a hostile
     * client may guess. */
    if (!task && ack.duplicate && oracle.clients[client].hostile)
        return;
    if (!task || task->client != client) {
        world_fail("oracle: client %u gets an ACK for task %" PRIu64 ", which it never had", client,
                   ack.task_id);
        return;
    }
    const bool again = task->acked > 0;
    if (oracle.async && !again) {
        oracle_look(); /* a round that has closed does not contain it */
        note_attempt(oracle.decided);
    }
    task->acked = again ? task->acked : oracle.now;
    if (task->kind != FEDGE_TASK_TRAIN || again)
        return;
    check_acked(client, task);
    oracle_check_durable(task);
    if (oracle.models)
        oracle_acked_late(task);
}

static void end_sent(uint32_t client, const fedge_message *message)
{
    fedge_notice notice;
    if (fedge_notice_read(message, &notice, NULL) != FEDGE_OK || !notice.has_task)
        return;
    oracle_task *task = oracle_find_task(client, notice.task_id);
    if (!task || task->client != client)
        return;
    const bool hostile = oracle.clients[client].hostile;
    oracle_version *version = hostile ? NULL : task->current;
    if ((notice.reason == FEDGE_REASON_BAD_VALUE || notice.reason == FEDGE_REASON_SCHEMA_MISMATCH ||
         notice.reason == FEDGE_REASON_INTERNAL) &&
        oracle.models && version && version->complete > 0 && !oracle_check(task, version)) {
        world_fail("oracle: client %u's update of task %" PRIu64 " is refused, and nothing is "
                   "wrong with it: %s",
                   client, task->id, notice.text);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Unpacks a frame; false: the oracle ignores it. The message type is in every header. */
static bool unpack(uint32_t client, const uint8_t *frame, size_t size, fedge_message *message)
{
    oracle.now++;
    return oracle.job && client < ORACLE_MAX_CLIENTS && size > FEDGE_MESSAGE_HEADER_SIZE &&
           fedge_message_unpack(frame, size, message, NULL) == FEDGE_OK;
}

void oracle_client_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    fedge_message message;
    if (!unpack(client, frame, size, &message))
        return;
    if (message.type == FEDGE_MESSAGE_UPLOAD)
        upload_sent(client, &message);
    else if (message.type == FEDGE_MESSAGE_PART)
        part_sent(client, &message);
}

/* The announced result may count once its last byte was sent on any connection. */
static void hostile_upload_sent(uint32_t client, const fedge_message *message, const uint8_t *bytes,
                                size_t num_bytes)
{
    static fedge_upload upload;
    if (fedge_upload_read(message, &upload, NULL) != FEDGE_OK)
        return;
    oracle_task *task = oracle_find_task(client, upload.task_id);
    if (!task || task->client != client)
        return;
    task->current = NULL;
    upload_sent(client, message);
    oracle_version *version = task->current;
    if (version && version->bytes.size == num_bytes &&
        fedge_crc32(0, bytes, num_bytes) == version->crc32) {
        memcpy((uint8_t *)(uintptr_t)version->bytes.bytes, bytes, num_bytes);
        version->sent = num_bytes;
    }
}

static void hostile_part_sent(uint32_t client, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) != FEDGE_OK)
        return;
    const oracle_task *task = oracle_find_task(client, position.task_id);
    const uint64_t end = position.offset + message->payload_size;
    if (!task || task->client != client)
        return;
    for (oracle_version *version = task->versions; version; version = version->next) {
        if (version->sent == end && end == version->bytes.size && version->complete == 0)
            version->complete = oracle.now;
    }
}

void oracle_hostile_sent(uint32_t client, const uint8_t *frame, size_t size, const uint8_t *bytes,
                         size_t num_bytes)
{
    fedge_message message;
    if (!unpack(client, frame, size, &message))
        return;
    oracle.clients[client].hostile = true;
    if (message.type == FEDGE_MESSAGE_UPLOAD)
        hostile_upload_sent(client, &message, bytes, num_bytes);
    else if (message.type == FEDGE_MESSAGE_PART)
        hostile_part_sent(client, &message);
}

static void welcome_sent(uint32_t client, const fedge_message *message)
{
    static fedge_welcome welcome;
    fedge_error err;
    oracle_client *of = &oracle.clients[client];
    if (fedge_welcome_read(message, &welcome, &err) != FEDGE_OK) {
        world_fail("oracle: a WELCOME for client %u: %s", client, err.message);
        return;
    }
    if (welcome.incarnation != of->incarnation)
        of->round = 0;
    of->incarnation = welcome.incarnation;
    memcpy(oracle.run_id, welcome.run_id, sizeof(oracle.run_id));
    if (welcome.initial_model[0])
        oracle_name(0, welcome.initial_model, "a WELCOME");
}

void oracle_server_sent(uint32_t client, bool arrives, const uint8_t *frame, size_t size)
{
    fedge_message message;
    if (size > 5 && (frame[5] == FEDGE_MESSAGE_CHUNK || frame[5] == FEDGE_MESSAGE_RESUME))
        return; /* these have most of all bytes and nothing to check */
    if (!unpack(client, frame, size, &message)) {
        if (oracle.job && client < ORACLE_MAX_CLIENTS)
            world_fail("oracle: the server sent client %u a damaged message", client);
        return;
    }
    if (message.type == FEDGE_MESSAGE_TASK)
        task_sent(client, arrives, &message);
    else if (message.type == FEDGE_MESSAGE_ACK)
        ack_sent(client, &message);
    else if (message.type == FEDGE_MESSAGE_REFUSE || message.type == FEDGE_MESSAGE_CANCEL)
        end_sent(client, &message);
    else if (message.type == FEDGE_MESSAGE_WELCOME)
        welcome_sent(client, &message);
}

/* ---- losses ---------------------------------------------------------------------------------- */

uint64_t oracle_mark(void)
{
    oracle_look();
    return oracle.now++;
}

void oracle_restored(uint64_t mark)
{
    uint32_t first = 0;
    while (first < oracle.decided && oracle.rounds[first].when <= mark)
        first++;
    oracle_forget_selection();
    forget_rounds(first);
    for (uint32_t r = first; r <= ORACLE_MAX_ROUNDS; r++)
        oracle.rounds[r].attempt = 0;
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        oracle_task *task = &oracle.tasks[i];
        uint32_t *attempt = &oracle.rounds[task->round].attempt;
        if (task->issued <= mark && task->round >= first && task->attempt > *attempt)
            *attempt = task->attempt;
        task->acked = task->acked > mark ? 0 : task->acked;
        for (oracle_version *version = task->versions; version; version = version->next) {
            if (version->complete > mark)
                version->wrong = "it was sent after the backup";
        }
    }
    for (uint32_t i = 0; i < ORACLE_MAX_CLIENTS; i++)
        oracle.clients[i].round = 0;
}

/* Forgets the last round that has closed, if it has no checkpoint yet: it may be opened again, and
 * then what came for later rounds is asked for again. */
static void forget_last_round(void)
{
    char name[64];
    size_t size = 0;
    uint32_t last = 0;
    for (uint32_t r = 1; r <= ORACLE_MAX_ROUNDS; r++)
        last = r < oracle.decided || oracle.rounds[r].num_counted > 0 ? r : last;
    snprintf(name, sizeof(name), "checkpoints/round-%06" PRIu32 "/model.safetensors", last);
    if (last == 0 || oracle_read(name, &size))
        return;
    forget_rounds(last);
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        if (oracle.tasks[i].round > last)
            oracle.tasks[i].acked = 0;
    }
    for (uint32_t i = 0; i < ORACLE_MAX_CLIENTS; i++)
        oracle.clients[i].round = 0;
}

void oracle_disks_missing(uint32_t num_ranks, bool restored)
{
    oracle_look();
    forget_last_round();
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        oracle_task *task = &oracle.tasks[i];
        if (task->used_in == 0 && !oracle_is_in_journal(task, num_ranks, restored))
            task->acked = 0;
    }
}

void oracle_power_failed(void)
{
    oracle.torn = true;
}

void oracle_disk_damaged(void)
{
    oracle.damaged = true;
    for (uint32_t i = 0; i < oracle.num_tasks; i++) {
        if (oracle.tasks[i].used_in == 0)
            oracle.tasks[i].acked = 0;
    }
}

void oracle_client_wiped(uint32_t client)
{
    if (client < ORACLE_MAX_CLIENTS)
        oracle.clients[client].may_lose = true; /* results that it has sent may still count */
}
