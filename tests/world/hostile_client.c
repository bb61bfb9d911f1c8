#include "tests/world/hostile_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/wire/protocol.h"
#include "tests/world/hostile_frame.h"
#include "tests/world/hostile_result.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/scheduler.h"

#define MS ((uint64_t)1000000)
enum { NUM_LINKS = 2, MAX_TASKS = 6, MAX_RESULTS = 3 };

/* Its behaviour on one connection. */
typedef enum mood {
    MOOD_HONEST, /* acts as an honest client */
    MOOD_LIAR,   /* sends well-formed messages about wrong results */
    MOOD_RUDE,   /* sends damaged frames */
    MOOD_ANY,    /* does all of these */
    MOOD_SILENT, /* says nothing */
    MOOD_DEAF,   /* requests much and reads nothing */
    MOOD_HASTY,  /* connects and disconnects quickly */
    MOOD_SHY,    /* declines tasks */
    NUM_MOODS
} mood;

/* A connection. */
typedef struct line {
    world_connection *connection; /* NULL: none */
    mood mood;
    bool said_hello;
    hostile_inbox in;
} line;

/* A task of this client, and the number of results that it has announced for it. */
typedef struct job_task {
    fedge_task task;
    uint32_t num_results;
} job_task;

typedef struct process {
    hostile_client *config;
    fedge_rng draw;
    uint64_t next_ns; /* time of its next action */
    line lines[NUM_LINKS];
    fedge_welcome welcome; /* the last WELCOME; run_id "": none */
    uint32_t num_tasks;    /* tasks so far */
    job_task tasks[MAX_TASKS];
    hostile_result result; /* the result announced last */
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

static bool is_honest(const line *on)
{
    return on->mood == MOOD_HONEST;
}

static bool is_open(const line *on)
{
    return on->connection && world_net_is_open(on->connection) &&
           !world_net_is_over(on->connection, NET_CLIENT_END);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void put(process *self, const line *on, size_t size)
{
    if (!is_open(on) || !world_net_may_send(on->connection, NET_CLIENT_END) || size == 0)
        return;
    world_observe_hostile_sent(self->config->index, self->tx, size, self->result.bytes,
                               self->result.size);
    if (size > 1 && (on->mood == MOOD_RUDE || on->mood == MOOD_ANY) && chance(self, 5)) {
        /* The rest never follows, or the next message begins in its place. */
        world_net_send_part(on->connection, NET_CLIENT_END, self->tx,
                            1 + below(self, (uint32_t)size - 1));
        return;
    }
    world_net_send(on->connection, NET_CLIENT_END, self->tx, size);
}

/* Sends the frame in [tx], perhaps damaged. */
static void say(process *self, const line *on, size_t size)
{
    const bool damages = on->mood == MOOD_RUDE  ? chance(self, 40)
                         : on->mood == MOOD_ANY ? chance(self, 8)
                                                : false;
    put(self, on, damages ? hostile_damage(&self->draw, self->tx, size) : size);
}

static void say_hello(process *self, line *on)
{
    fedge_hello *hello = calloc(1, sizeof(*hello));
    fedge_error err;
    size_t size = 0;
    *hello = (fedge_hello){.protocol_min = 1, .protocol_max = 1, .release = "0", .arch = "any"};
    hello->hangs_up = !is_honest(on) && chance(self, 10);
    on->said_hello = true;
    if (!is_honest(on) && chance(self, 5))
        hello->protocol_min = hello->protocol_max = 2 + below(self, 3);
    if (fedge_hello_pack(hello, self->tx, sizeof(self->tx), &size, &err) == FEDGE_OK)
        put(self, on, size);
    free(hello);
}

/* Its newest task, or a random one; NULL: none yet. */
static job_task *draw_task(process *self, bool newest)
{
    const uint32_t known = self->num_tasks < MAX_TASKS ? self->num_tasks : MAX_TASKS;
    if (known == 0)
        return NULL;
    return &self->tasks[newest ? (self->num_tasks - 1) % MAX_TASKS : below(self, known)];
}

static void say_notice(process *self, const line *on, fedge_message_type type)
{
    fedge_notice notice = {.reason = (fedge_reason)below(self, FEDGE_REASON_COUNT)};
    const job_task *of = chance(self, 80) ? draw_task(self, false) : NULL;
    notice.has_task = type == FEDGE_MESSAGE_DECLINE && chance(self, 85);
    if (notice.has_task)
        notice.task_id = of ? of->task.task_id : below(self, 40);
    notice.after_ms = chance(self, 50) ? below(self, 5000) : ((uint64_t)1 << 53) - 1;
    HOSTILE_SAY(self, on, fedge_notice_pack, type, &notice);
}

/* ---- results --------------------------------------------------------------------------------- */

static void announce(process *self, const line *on)
{
    const bool honest = is_honest(on);
    job_task *of = draw_task(self, honest || chance(self, 70));
    if (!of || of->num_results == MAX_RESULTS)
        return;
    of->num_results++;
    hostile_result_free(&self->result);
    if (!hostile_result_make(&self->draw, self->config->plan, &of->task, &self->welcome,
                             &self->result))
        return;
    if (!honest && chance(self, 85))
        hostile_result_spoil(&self->draw, &self->result);
    HOSTILE_SAY(self, on, fedge_upload_pack, &self->result.upload);
}

/* The bytes from [offset] on of the result that was announced last. */
static void say_part(process *self, const line *on, uint64_t offset, uint32_t most)
{
    const hostile_result *result = &self->result;
    const fedge_position position = {.task_id = result->upload.task_id, .offset = offset};
    const uint64_t from = offset < result->size ? offset : result->size;
    const uint64_t left = result->size - from;
    const uint32_t size = left < most ? (uint32_t)left : most;
    HOSTILE_SAY(self, on, fedge_part_pack, &position, result->bytes + from, size);
}

static void say_wrong_part(process *self, const line *on)
{
    const uint32_t size = (uint32_t)self->result.size;
    if (!self->result.bytes)
        return;
    switch (below(self, 4)) {
    case 0: /* beyond the end */
        say_part(self, on, size + below(self, 100), 1000);
        break;
    case 1: /* no bytes */
        say_part(self, on, below(self, size + 1), 0);
        break;
    case 2: /* at the greatest offsets */
        say_part(self, on, ((uint64_t)1 << 53) - 1 - below(self, 3), 1000);
        break;
    default: /* anywhere */
        say_part(self, on, below(self, size + 1), 1 + below(self, 2000));
        break;
    }
}

/* Declines the task whose result has just been sent: the slot goes to another device while a rank
 * still validates the bytes. */
static void take_back(process *self, const line *on)
{
    const fedge_notice notice = {
        .has_task = true, .task_id = self->result.upload.task_id, .reason = FEDGE_REASON_INTERNAL};
    HOSTILE_SAY(self, on, fedge_notice_pack, FEDGE_MESSAGE_DECLINE, &notice);
}

/* Sends the bytes of a result that the server requests. */
static void resume(process *self, const line *on, const fedge_message *message)
{
    fedge_position position;
    if (fedge_position_read(message, &position, NULL) != FEDGE_OK || !self->result.bytes)
        return;
    if (!is_honest(on) && chance(self, 10)) {
        say_wrong_part(self, on);
        return;
    }
    uint64_t at = position.offset;
    while (at < self->result.size) {
        const uint32_t most = 1 + below(self, 3000);
        say_part(self, on, at, most);
        at += most;
        if (!is_honest(on) && chance(self, 5))
            return; /* leaves it incomplete */
    }
    if (self->config->takes_back && chance(self, 40))
        take_back(self, on);
}

/* ---- what comes from the server -------------------------------------------------------------- */

static void take_task(process *self, const line *on, const fedge_message *message)
{
    job_task *of = &self->tasks[self->num_tasks % MAX_TASKS];
    static fedge_task task;
    const job_task *last = draw_task(self, true);
    if (fedge_task_read(message, &task, NULL) != FEDGE_OK)
        return;
    if (!last || last->task.task_id != task.task_id) {
        *of = (job_task){.task = task};
        self->num_tasks++;
    }
    if (on->mood == MOOD_SHY)
        say_notice(self, on, FEDGE_MESSAGE_DECLINE);
    else if (is_honest(on) || chance(self, 70))
        announce(self, on);
}

static void take_welcome(process *self, const fedge_message *message)
{
    fedge_welcome read;
    if (fedge_welcome_read(message, &read, NULL) == FEDGE_OK)
        self->welcome = read;
}

static void take(process *self, const line *on, size_t size)
{
    fedge_message message;
    if (fedge_message_unpack(on->in.bytes, size, &message, NULL) != FEDGE_OK)
        return;
    if (message.type == FEDGE_MESSAGE_WELCOME)
        take_welcome(self, &message);
    else if (message.type == FEDGE_MESSAGE_TASK)
        take_task(self, on, &message);
    else if (message.type == FEDGE_MESSAGE_RESUME)
        resume(self, on, &message);
}

static void hang_up(line *on)
{
    world_net_close(on->connection, NET_CLIENT_END);
    on->connection = NULL;
}

static void listen(process *self, line *on)
{
    size_t size = 0;
    while (on->connection && world_net_is_open(on->connection) &&
           hostile_receive(on->connection, NET_CLIENT_END, &on->in, &size)) {
        if (size > 0)
            take(self, on, size);
    }
    if (on->connection && world_net_is_over(on->connection, NET_CLIENT_END))
        hang_up(on);
}

/* ---- what it does by itself ------------------------------------------------------------------ */

static mood draw_mood(process *self)
{
    static const uint8_t WEIGHTS[NUM_MOODS] = {
        [MOOD_HONEST] = 25, [MOOD_LIAR] = 25, [MOOD_RUDE] = 14, [MOOD_ANY] = 14,
        [MOOD_SILENT] = 5,  [MOOD_DEAF] = 5,  [MOOD_HASTY] = 7, [MOOD_SHY] = 5};
    uint32_t left = below(self, 100), drawn = 0;
    for (; left >= WEIGHTS[drawn]; drawn++)
        left -= WEIGHTS[drawn];
    return (mood)drawn;
}

static void connect_line(process *self, line *on)
{
    *on = (line){.mood = draw_mood(self)};
    world_trace("connects in mood %d", (int)on->mood);
    on->connection = world_net_connect(self->config->index);
    world_net_pause(on->connection, NET_CLIENT_END, on->mood == MOOD_DEAF);
}

static void fetch(process *self, const line *on)
{
    fedge_blob_ref ref = {0};
    const job_task *of = draw_task(self, false);
    const char *hash = of && chance(self, 60)          ? of->task.model
                       : of && chance(self, 50)        ? of->task.parts
                       : self->welcome.plan[0] != '\0' ? self->welcome.plan
                                                       : "";
    if (hash[0] && chance(self, 80))
        memcpy(ref.hash, hash, sizeof(ref.hash));
    else
        memset(ref.hash, 'a', sizeof(ref.hash) - 1);
    if (chance(self, 30))
        ref.offset = chance(self, 50) ? below(self, 5000) : ((uint64_t)1 << 53) - 1;
    if (chance(self, 30))
        ref.size = chance(self, 50) ? below(self, 5000) : ((uint64_t)1 << 53) - 1;
    HOSTILE_SAY(self, on, fedge_fetch_pack, &ref);
}

/* Sends many requests at once; a deaf client reads none of the answers. */
static void fetch_much(process *self, const line *on)
{
    fedge_blob_ref ref = {0};
    const char *hash = self->welcome.plan;
    for (uint32_t i = 0; i < 40 && hash[0]; i++) {
        memcpy(ref.hash, hash, sizeof(ref.hash));
        HOSTILE_SAY(self, on, fedge_fetch_pack, &ref);
    }
}

static void decline(process *self, const line *on)
{
    const uint32_t count = chance(self, 20) ? 20 : 1;
    for (uint32_t i = 0; i < count; i++)
        say_notice(self, on, FEDGE_MESSAGE_DECLINE);
}

static void bye(process *self, const line *on)
{
    say_notice(self, on, FEDGE_MESSAGE_BYE);
}

static void talk_nonsense(process *self, const line *on)
{
    put(self, on, hostile_garbage(&self->draw, self->tx));
}

static void ping(process *self, const line *on)
{
    (void)self;
    if (is_open(on))
        world_net_send(on->connection, NET_CLIENT_END, NULL, 0);
}

static void act(process *self, line *on)
{
    static void (*const ANY[])(process * self, const line *on) = {
        announce,   announce, announce, say_wrong_part, fetch, fetch,
        fetch_much, decline,  bye,      talk_nonsense,  ping};
    if (!is_open(on))
        return;
    if (!on->said_hello) {
        if (on->mood != MOOD_SILENT && (is_honest(on) || chance(self, 95)))
            say_hello(self, on);
        if (is_honest(on) || on->mood == MOOD_SILENT || chance(self, 80))
            return;
    }
    if (on->mood == MOOD_HASTY || (!is_honest(on) && chance(self, 5))) {
        hang_up(on);
    } else if (is_honest(on) || on->mood == MOOD_SILENT) {
        ping(self, on);
        if (chance(self, 5))
            hang_up(on);
    } else if (on->mood == MOOD_DEAF) {
        fetch_much(self, on);
    } else {
        ANY[below(self, sizeof(ANY) / sizeof(ANY[0]))](self, on);
    }
}

static uint64_t draw_pause_ns(process *self)
{
    const uint32_t kind = below(self, 10);
    return (1 + below(self, kind < 5 ? 50 : kind < 9 ? 500 : 3000)) * MS;
}

static void live(process *self)
{
    line *on = &self->lines[below(self, 10) == 0 ? 1 : 0];
    if (!on->connection)
        connect_line(self, on);
    else
        act(self, on);
    self->next_ns = world_now_ns() + draw_pause_ns(self);
}

void hostile_client_main(void *client)
{
    process *self = calloc(1, sizeof(*self));
    self->config = client;
    const uint64_t end_ns = self->config->until_ns;
    self->draw =
        fedge_rng_stream(self->config->seed, FEDGE_PURPOSE_TEST, 6, self->config->index, 0);
    while (!self->config->stop && world_now_ns() < end_ns) {
        for (uint32_t i = 0; i < NUM_LINKS; i++)
            listen(self, &self->lines[i]);
        if (world_now_ns() >= self->next_ns)
            live(self);
        world_net_wait(WORLD_FIRST_CLIENT + self->config->index,
                       self->next_ns < end_ns ? self->next_ns : end_ns);
    }
    for (uint32_t i = 0; i < NUM_LINKS; i++) {
        if (self->lines[i].connection)
            hang_up(&self->lines[i]);
    }
    hostile_result_free(&self->result);
    free(self);
}

void hostile_client_stop(hostile_client *client)
{
    client->stop = true;
    world_wake_all(world_net_address(WORLD_FIRST_CLIENT + client->index));
}
