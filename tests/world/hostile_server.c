#include "tests/world/hostile_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/safetensors.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/sha256.h"
#include "tests/world/hostile_frame.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/scheduler.h"
#include "tests/world/site_oracle.h"

#define MS ((uint64_t)1000000)
#define LARGEST (((uint64_t)1 << 53) - 1)
enum { MAX_CALLERS = 16, MAX_RESENT = 40, MAX_POURED = 4 };

/* Kinds of its blobs. */
typedef enum blob_kind {
    BLOB_PLAN,       /* the job's plan */
    BLOB_PLAN_MUST,  /* needs a feature that no client has */
    BLOB_PLAN_OTHER, /* a plan of a job that no site allows */
    BLOB_PLAN_CUT,   /* half of it */
    BLOB_MODEL,
    BLOB_MODEL_CUT, /* half of it */
    NUM_BLOBS
} blob_kind;

typedef struct blob {
    uint8_t *bytes;
    size_t size;
    char hash[FEDGE_HASH_TEXT];
} blob;

/* A blob that is announced with a huge size; all its bytes are 0. */
typedef struct flood {
    char hash[FEDGE_HASH_TEXT];
    uint64_t size, offset;
} flood;

typedef struct caller {
    world_connection *connection; /* NULL: none */
    bool greeted;
    uint64_t upload_size; /* size in the last UPLOAD */
    flood announced;      /* the last announced flood; hash "": none */
    bool floods;          /* the client has requested it */
    hostile_inbox in;
} caller;

typedef struct process {
    hostile_server *config;
    fedge_rng draw;
    uint32_t honesty; /* percentage of right answers */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    uint64_t num_tasks, next_ns;
    blob blobs[NUM_BLOBS];
    caller callers[MAX_CALLERS];
    uint8_t tx[FEDGE_MESSAGE_MAX_SIZE];
} process;

static uint32_t below(process *self, uint32_t bound)
{
    return fedge_rng_below(&self->draw, bound);
}

static bool chance(process *self, uint32_t percent)
{
    return below(self, 100) < percent;
}

static bool is_honest(process *self)
{
    return chance(self, self->honesty);
}

/* A number that may cause errors. */
static uint64_t draw_number(process *self)
{
    static const uint64_t NUMBERS[] = {
        0, 1, 2, 1000, 65536, ((uint64_t)1 << 31) - 1, (uint64_t)1 << 32, LARGEST};
    return NUMBERS[below(self, sizeof(NUMBERS) / sizeof(NUMBERS[0]))];
}

/* ---- sending --------------------------------------------------------------------------------- */

static void put(process *self, const caller *to, size_t size)
{
    if (!to->connection || size == 0 || !world_net_may_send(to->connection, NET_SERVER_END))
        return;
    world_observe_hostile_answer(world_net_client(to->connection), self->tx, size);
    world_net_send(to->connection, NET_SERVER_END, self->tx, size);
}

static void say(process *self, const caller *to, size_t size)
{
    put(self, to,
        !is_honest(self) && chance(self, 25) ? hostile_damage(&self->draw, self->tx, size) : size);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

static void set_blob(blob *of, const void *bytes, size_t size)
{
    of->bytes = calloc(size + 1, 1);
    of->size = size;
    memcpy(of->bytes, bytes, size);
    fedge_sha256_text(of->bytes, size, of->hash);
}

/* The plan with [old] replaced by [new]. */
static void set_changed_plan(blob *of, const char *plan, const char *old, const char *new)
{
    const char *at = strstr(plan, old);
    const size_t head = at ? (size_t)(at - plan) : 0, size = strlen(plan) + strlen(new) + 1;
    char *text = calloc(size, 1);
    (void)snprintf(text, size, "%.*s%s%s", (int)head, plan, at ? new : "",
                   plan + head + (at ? strlen(old) : 0));
    set_blob(of, text, strlen(text));
    free(text);
}

static void make_blobs(process *self)
{
    const fedge_plan *plan = self->config->plan;
    fedge_error err;
    char *text = NULL;
    size_t size = 0;
    if (fedge_plan_write(plan, &text, &size, &err) != FEDGE_OK ||
        fedge_safetensors_size(&plan->schema, &(size_t){0}, &err) != FEDGE_OK) {
        world_fail("the hostile server has no plan: %s", err.message);
        free(text);
        return;
    }
    set_blob(&self->blobs[BLOB_PLAN], text, size);
    set_blob(&self->blobs[BLOB_PLAN_CUT], text, size / 2);
    set_changed_plan(&self->blobs[BLOB_PLAN_MUST], text, "\"must\":[", "\"must\":[\"telepathy\",");
    set_changed_plan(&self->blobs[BLOB_PLAN_OTHER], text, "\"name\":\"world\"",
                     "\"name\":\"elsewhere\"");
    site_oracle_forbid(self->blobs[BLOB_PLAN_OTHER].hash);
    free(text);
    float *values = calloc(plan->schema.num_elements, sizeof(*values));
    if (fedge_safetensors_size(&plan->schema, &size, &err) == FEDGE_OK) {
        uint8_t *file = calloc(size, 1);
        fedge_plan_initial_values(plan, values);
        if (fedge_safetensors_write(&plan->schema, values, file, size, &err) == FEDGE_OK) {
            set_blob(&self->blobs[BLOB_MODEL], file, size);
            set_blob(&self->blobs[BLOB_MODEL_CUT], file, size / 2);
        }
        free(file);
    }
    free(values);
}

static const blob *find_blob(const process *self, const char *hash)
{
    for (int i = 0; i < NUM_BLOBS; i++) {
        if (self->blobs[i].bytes && strcmp(self->blobs[i].hash, hash) == 0)
            return &self->blobs[i];
    }
    return NULL;
}

static void new_hash(process *self, char hash[FEDGE_HASH_TEXT])
{
    for (int i = 0; i < FEDGE_HASH_TEXT - 1; i++)
        hash[i] = "0123456789abcdef"[below(self, 16)];
    hash[FEDGE_HASH_TEXT - 1] = '\0';
}

/* ---- messages -------------------------------------------------------------------------------- */

static void announce_flood(process *self, caller *to, uint64_t size, char hash[FEDGE_HASH_TEXT])
{
    new_hash(self, hash);
    to->floods = false;
    to->announced = (flood){.size = size};
    memcpy(to->announced.hash, hash, FEDGE_HASH_TEXT);
}

static void spoil_welcome(process *self, caller *to, fedge_welcome *welcome)
{
    switch (below(self, 9)) {
    case 8:
        welcome->plan_size = FEDGE_PLAN_MAX_SIZE;
        announce_flood(self, to, welcome->plan_size, welcome->plan);
        break;
    case 0:
        welcome->protocol = below(self, 4);
        break;
    case 1:
        welcome->run_id[below(self, FEDGE_RUN_ID_TEXT - 1)] = '0';
        break;
    case 2:
        welcome->incarnation = (uint32_t)draw_number(self);
        break;
    case 3:
        new_hash(self, welcome->plan);
        break;
    case 4:
        welcome->plan_size = draw_number(self);
        break;
    case 5:
        welcome->heartbeat_s = (uint32_t)draw_number(self);
        break;
    case 6:
        welcome->server_time_ms = draw_number(self);
        break;
    default:
        new_hash(self, welcome->initial_model);
        break;
    }
}

static void welcome(process *self, caller *to)
{
    const bool honest = is_honest(self);
    const blob *plan = &self->blobs[honest ? BLOB_PLAN : below(self, BLOB_MODEL)];
    fedge_welcome made = {.protocol = 1,
                          .client_index = world_net_client(to->connection),
                          .server_time_ms = 1767225600000u,
                          .incarnation = self->incarnation,
                          .plan_size = plan->size,
                          .heartbeat_s = 5};
    memcpy(made.run_id, self->run_id, sizeof(made.run_id));
    memcpy(made.plan, plan->hash, sizeof(made.plan));
    memcpy(made.initial_model, self->blobs[BLOB_MODEL].hash, sizeof(made.initial_model));
    if (!honest && chance(self, 60))
        spoil_welcome(self, to, &made);
    HOSTILE_SAY(self, to, fedge_welcome_pack, &made);
}

static void spoil_task(process *self, caller *to, fedge_task *task)
{
    switch (below(self, 11)) {
    case 10:
        task->model_size = (uint64_t)1 << (20 + below(self, 30));
        announce_flood(self, to, task->model_size, task->model);
        break;
    case 0:
        new_hash(self, task->model);
        break;
    case 1:
        task->model_size = draw_number(self);
        break;
    case 2:
        task->round = (uint32_t)draw_number(self);
        break;
    case 3:
        task->deadline_ms = draw_number(self);
        break;
    case 4:
        task->control_size = draw_number(self);
        break;
    case 5:
        task->num_bounds = 1 + below(self, 40);
        memset(task->bounds_log2, (int)below(self, 256), task->num_bounds);
        break;
    case 6:
        task->num_deltas = 1 + below(self, FEDGE_MAX_DELTAS);
        for (uint32_t i = 0; i < task->num_deltas; i++) {
            new_hash(self, task->deltas[i].base);
            memcpy(task->deltas[i].hash, self->blobs[below(self, NUM_BLOBS)].hash, FEDGE_HASH_TEXT);
            task->deltas[i].size = 1 + draw_number(self);
        }
        break;
    case 7:
        memcpy(task->parts, self->blobs[below(self, NUM_BLOBS)].hash, FEDGE_HASH_TEXT);
        task->parts_size = FEDGE_PART_LIST_HEAD + draw_number(self) % 4096;
        break;
    case 8:
        memcpy(task->model, self->blobs[BLOB_MODEL_CUT].hash, FEDGE_HASH_TEXT);
        task->model_size = self->blobs[BLOB_MODEL_CUT].size;
        break;
    default:
        task->learning_rate = chance(self, 50) ? -1e30 : 1e30;
        task->last_accepted = draw_number(self);
        break;
    }
}

static void give_task(process *self, caller *to)
{
    static fedge_task task;
    const blob *model = &self->blobs[BLOB_MODEL];
    task = (fedge_task){.task_id = chance(self, 90) ? ++self->num_tasks : draw_number(self),
                        .kind = chance(self, 80) ? FEDGE_TASK_TRAIN : FEDGE_TASK_EVALUATE,
                        .round = 1 + (uint32_t)(self->num_tasks / 8),
                        .model_size = model->size,
                        .deadline_ms = 500 + below(self, 8000),
                        .learning_rate = 0.1,
                        .has_last_accepted = chance(self, 70)};
    memcpy(task.model, model->hash, sizeof(task.model));
    if (!is_honest(self))
        spoil_task(self, to, &task);
    HOSTILE_SAY(self, to, fedge_task_pack, &task);
}

static void notify(process *self, const caller *to, fedge_message_type type, uint64_t task_id)
{
    fedge_notice notice = {.task_id = task_id,
                           .has_task = type == FEDGE_MESSAGE_CANCEL || chance(self, 50),
                           .reason = (fedge_reason)below(self, FEDGE_REASON_COUNT),
                           .after_ms = chance(self, 85) ? below(self, 2000) : draw_number(self)};
    (void)snprintf(notice.text, sizeof(notice.text), "%s", chance(self, 20) ? "\x1b[2J" : "no");
    if (type == FEDGE_MESSAGE_BYE && chance(self, 30)) {
        (void)snprintf(notice.server, sizeof(notice.server), "%s",
                       chance(self, 50) ? "wss://elsewhere:1" : "wss://server:9092");
    }
    HOSTILE_SAY(self, to, fedge_notice_pack, type, &notice);
}

static void acknowledge(process *self, const caller *to, uint64_t task_id)
{
    const fedge_ack ack = {.task_id = task_id, .duplicate = chance(self, 20)};
    HOSTILE_SAY(self, to, fedge_ack_pack, &ack);
}

static void ask(process *self, const caller *to, uint64_t task_id, uint64_t offset)
{
    const fedge_position position = {.task_id = task_id, .offset = offset};
    HOSTILE_SAY(self, to, fedge_resume_pack, &position);
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Sends bytes of a blob, which may be wrong. */
static void serve_chunk(process *self, const caller *to, const blob *of, uint64_t offset,
                        uint32_t most)
{
    fedge_blob_ref ref = {.offset = offset, .size = of->size};
    const uint64_t left = offset < of->size ? of->size - offset : 0;
    uint32_t size = left < most ? (uint32_t)left : most;
    const uint8_t *bytes = of->bytes + (left > 0 ? offset : 0);
    memcpy(ref.hash, of->hash, sizeof(ref.hash));
    if (!is_honest(self)) {
        const blob *other = &self->blobs[below(self, NUM_BLOBS)];
        switch (below(self, 5)) {
        case 0:
            ref.offset = draw_number(self);
            break;
        case 1:
            ref.size = draw_number(self);
            break;
        case 2:
            bytes = other->bytes;
            size = other->size < size ? (uint32_t)other->size : size;
            break;
        case 3:
            memcpy(ref.hash, other->hash, sizeof(ref.hash));
            break;
        default:
            size = 0;
            break;
        }
    }
    HOSTILE_SAY(self, to, fedge_chunk_pack, &ref, bytes, size);
}

/* Sends the announced and requested flood until the window is full. The window of a client that has
 * disconnected never fills; MAX_POURED messages fill that of any other. */
static void pour(process *self, caller *to)
{
    static const uint8_t nothing[50000];
    flood *of = &to->announced;
    for (int i = 0; i < MAX_POURED && to->connection && to->floods && of->offset < of->size &&
                    world_net_may_send(to->connection, NET_SERVER_END);
         i++) {
        fedge_blob_ref ref = {.offset = of->offset, .size = of->size};
        const uint64_t left = of->size - of->offset;
        const uint32_t size = left < sizeof(nothing) ? (uint32_t)left : sizeof(nothing);
        size_t packed = 0;
        memcpy(ref.hash, of->hash, sizeof(ref.hash));
        if (fedge_chunk_pack(&ref, nothing, size, self->tx, sizeof(self->tx), &packed, NULL) ==
            FEDGE_OK)
            put(self, to, packed);
        of->offset += size;
    }
}

static void serve(process *self, caller *to, const fedge_message *message)
{
    fedge_blob_ref ref;
    if (fedge_fetch_read(message, &ref, NULL) != FEDGE_OK)
        return;
    if (strcmp(ref.hash, to->announced.hash) == 0) {
        to->announced.offset = ref.offset;
        to->floods = true;
        return;
    }
    const blob *of = find_blob(self, ref.hash);
    if (!of || chance(self, 3)) {
        if (chance(self, 80))
            notify(self, to, FEDGE_MESSAGE_REFUSE, 0);
        return;
    }
    uint64_t end = of->size, at = ref.offset;
    if (ref.size > 0 && ref.size < of->size - at)
        end = at + ref.size;
    while (at < end) {
        const uint64_t left = end - at;
        const uint32_t most = 1 + below(self, 4000), size = left < most ? (uint32_t)left : most;
        serve_chunk(self, to, of, at, size);
        at += size;
    }
}

static void take_upload(process *self, caller *from, const fedge_message *message)
{
    static fedge_upload upload;
    if (fedge_upload_read(message, &upload, NULL) != FEDGE_OK)
        return;
    from->upload_size = upload.size;
    if (is_honest(self)) {
        if (upload.size > 0)
            ask(self, from, upload.task_id, 0);
        else
            acknowledge(self, from, upload.task_id);
        return;
    }
    switch (below(self, 5)) {
    case 0:
        ask(self, from, upload.task_id, upload.size + draw_number(self));
        break;
    case 1:
        ask(self, from, upload.task_id + 1, 0);
        break;
    case 2:
        acknowledge(self, from, upload.task_id + below(self, 2));
        break;
    case 3:
        notify(self, from, FEDGE_MESSAGE_REFUSE, upload.task_id);
        break;
    default:
        for (uint32_t i = below(self, MAX_RESENT); i > 0; i--)
            ask(self, from, upload.task_id, below(self, (uint32_t)upload.size + 1));
        break;
    }
}

static void take_part(process *self, const caller *from, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) != FEDGE_OK ||
        position.offset + message->payload_size < from->upload_size)
        return;
    if (is_honest(self))
        acknowledge(self, from, position.task_id);
    else if (chance(self, 50))
        notify(self, from, FEDGE_MESSAGE_REFUSE, position.task_id);
    else
        ask(self, from, position.task_id, 0);
}

static void take(process *self, caller *from, size_t size)
{
    fedge_message message;
    if (fedge_message_unpack(from->in.bytes, size, &message, NULL) != FEDGE_OK)
        return;
    if (message.type == FEDGE_MESSAGE_HELLO) {
        from->greeted = true;
        if (is_honest(self) || chance(self, 90))
            welcome(self, from);
    } else if (message.type == FEDGE_MESSAGE_FETCH) {
        serve(self, from, &message);
    } else if (message.type == FEDGE_MESSAGE_UPLOAD) {
        take_upload(self, from, &message);
    } else if (message.type == FEDGE_MESSAGE_PART) {
        take_part(self, from, &message);
    }
}

/* ---- connections ----------------------------------------------------------------------------- */

static void hang_up(caller *on)
{
    world_net_close(on->connection, NET_SERVER_END);
    on->connection = NULL;
}

static void listen(process *self, caller *from)
{
    size_t size = 0;
    while (from->connection &&
           hostile_receive(from->connection, NET_SERVER_END, &from->in, &size)) {
        if (size > 0)
            take(self, from, size);
        else if (chance(self, 90))
            world_net_send(from->connection, NET_SERVER_END, NULL, 0); /* a pong */
    }
    if (from->connection && world_net_is_over(from->connection, NET_SERVER_END))
        hang_up(from);
}

static void accept_one(process *self, world_connection *connection)
{
    caller *of = self->callers;
    while (of < self->callers + MAX_CALLERS && of->connection)
        of++;
    if (of == self->callers + MAX_CALLERS || chance(self, 3)) {
        static const unsigned STATUSES[] = {403, 404, 500, 503};
        world_net_refuse(connection, STATUSES[below(self, 4)]);
        return;
    }
    of->greeted = of->floods = false;
    of->announced = (flood){0};
    of->in.size = 0;
    of->connection = connection;
    world_net_admit(connection);
}

/* Sends a message without a request. */
static void act(process *self, caller *to)
{
    const uint64_t id = below(self, (uint32_t)self->num_tasks + 2);
    if (!to->greeted && chance(self, 95))
        return;
    if (is_honest(self) || chance(self, 40)) {
        give_task(self, to);
        return;
    }
    switch (below(self, 9)) {
    case 0:
        notify(self, to, FEDGE_MESSAGE_CANCEL, id);
        break;
    case 1:
        acknowledge(self, to, id);
        break;
    case 2:
        ask(self, to, id, draw_number(self));
        break;
    case 3:
        notify(self, to, FEDGE_MESSAGE_REFUSE, id);
        break;
    case 4:
        notify(self, to, FEDGE_MESSAGE_BYE, id);
        break;
    case 5:
        put(self, to, hostile_garbage(&self->draw, self->tx));
        break;
    case 6:
        serve_chunk(self, to, &self->blobs[below(self, NUM_BLOBS)], draw_number(self), 1000);
        break;
    case 7:
        welcome(self, to);
        break;
    default:
        hang_up(to);
        break;
    }
}

static void live(process *self)
{
    for (caller *of = self->callers; of < self->callers + MAX_CALLERS; of++) {
        if (of->connection && chance(self, 50))
            act(self, of);
    }
    if (chance(self, 2))
        self->incarnation += below(self, 2) == 0 ? 1 : (uint32_t)-1;
    self->next_ns = world_now_ns() + (20 + below(self, 600)) * MS;
}

void hostile_server_main(void *server)
{
    process *self = calloc(1, sizeof(*self));
    self->config = server;
    const uint64_t end_ns = self->config->until_ns;
    self->draw = fedge_rng_stream(self->config->seed, FEDGE_PURPOSE_TEST, 9, 0, 0);
    self->honesty = 40 + below(self, 60);
    self->incarnation = 1 + below(self, 3);
    (void)snprintf(self->run_id, sizeof(self->run_id), "%032x", below(self, 1000));
    make_blobs(self);
    world_net_listen(true);
    while (world_now_ns() < end_ns) {
        for (world_connection *made = world_net_accept(); made; made = world_net_accept())
            accept_one(self, made);
        for (caller *of = self->callers; of < self->callers + MAX_CALLERS; of++) {
            listen(self, of);
            pour(self, of);
        }
        if (world_now_ns() >= self->next_ns)
            live(self);
        world_net_wait(WORLD_SERVER, self->next_ns < end_ns ? self->next_ns : end_ns);
    }
    world_net_listen(false);
    for (caller *of = self->callers; of < self->callers + MAX_CALLERS; of++) {
        if (of->connection)
            hang_up(of);
    }
    for (int i = 0; i < NUM_BLOBS; i++)
        free(self->blobs[i].bytes);
    free(self);
}
