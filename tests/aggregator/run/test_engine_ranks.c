/* One engine, and the shares of three other ranks, in one process: all that they say to each other
 * goes by messages that come late, devices change ranks in the middle of everything and so lose
 * what was on its way to them, bytes of updates are damaged on theirs, a disk has no room, and
 * words of phases that are over come once more. What happens when is drawn from a seed. */
#define _POSIX_C_SOURCE 200809L /* getpid */
#include "tests/edge/core/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/cluster/protocol/rank_message.h"
#include "aggregator/cluster/ranks.h"
#include "aggregator/exchange/exchange.h"
#include "aggregator/reduce/distributed_accumulator.h"
#include "aggregator/run/engine_state.h"
#include "edge/core/os.h"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/aggregator/run/federation.h"

#define ALL_OF_ALL                                                                                 \
    "\"num-server-rounds\":3,\"min-train-nodes\":6,\"min-available-nodes\":6,"                     \
    "\"round-deadline-s\":86400"

enum {
    RANKS = LOCAL_RANKS_MAX,
    ROUNDS = 3,
    SEEDS = 5,
    MOST_SEEDS = 100,
    MAX_OLD = 32,
    PATIENCE_MS = 600000
};

/* Rank messages in the order in which they were said. */
typedef struct line {
    fedge_mailbox *said;
    fedge_mailbox_item *next; /* taken out of it */
} line;

typedef struct place {
    fedge_rank_worker *worker;
    char dir[96];
    line up, down;
    fedge_mailbox *direct; /* fedge_reply: of the share to connections of its rank */
    uint64_t phase;        /* of the last OPEN that it was given */
    /* Guarded: */
    bool ready;
    uint32_t wanted; /* calls of fedge_distributed_follow that have not returned */
} place;

/* Of one that has been said already. */
typedef struct old_word {
    uint32_t rank;
    size_t size;
    uint8_t *bytes; /* (size): a report or an order with what follows it */
} old_word;

/* Of a device's task. */
typedef struct damage {
    uint64_t task_id;
    uint32_t parts;
} damage;

static federation fed;
static place places[RANKS];
static damage damages[FED_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool over;
static uint32_t drawn;
static old_word old_reports[MAX_OLD], old_orders[MAX_OLD];
static uint32_t num_old_reports, num_old_orders;
static unsigned num_stale, num_moves, num_recalls, num_released, num_refusals;

static uint32_t draw(uint32_t below)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 17;
    drawn ^= drawn << 5;
    return drawn % below;
}

/* ---- a disk without room --------------------------------------------------------------------- */

static atomic_uint num_creates, num_full;
static uint32_t full; /* bit n: at the n-th call */

fedge_status __real_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err);
fedge_status __wrap_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err);

fedge_status __wrap_fedge_journal_create(const char *dir, const fedge_journal_phase *phase,
                                         const fedge_journal_task *tasks, uint64_t min_free_bytes,
                                         fedge_journal **journal, fedge_error *err)
{
    *journal = NULL;
    const unsigned call = num_creates++;
    if (call < 32 && full >> call & 1) {
        num_full++;
        return fedge_fail(err, FEDGE_NO_SPACE, "no room, says the test");
    }
    return __real_fedge_journal_create(dir, phase, tasks, min_free_bytes, journal, err);
}

/* ---- words that come once more --------------------------------------------------------------- */

static void remember(old_word *words, uint32_t *count, uint32_t rank, const uint8_t *bytes,
                     size_t size)
{
    const uint32_t at = *count < MAX_OLD ? (*count)++ : draw(MAX_OLD);
    free(words[at].bytes);
    words[at] = (old_word){.rank = rank, .size = size, .bytes = malloc(size)};
    fed_must(words[at].bytes != NULL, "memory", "none");
    memcpy(words[at].bytes, bytes, size);
}

static void forget_words(old_word *words, uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++) {
        free(words[i].bytes);
        words[i].bytes = NULL;
    }
    *count = 0;
}

static void report_arrives(const uint8_t *bytes, size_t size)
{
    fedge_request *request = calloc(1, sizeof(*request));
    uint8_t *frame = malloc(size);
    fed_must(request && frame, "memory", "none");
    memcpy(frame, bytes, size);
    request->type = FEDGE_REQUEST_REPORT;
    request->frame = frame;
    request->payload = frame;
    request->payload_size = (uint32_t)size;
    fedge_engine_handle(fed.engine, request, fed.now_ms);
}

/* Of an earlier phase, or it would mean what it says. */
static void say_again(void)
{
    fedge_report report;
    fedge_order order;
    if (num_old_reports > 0) {
        const old_word *word = &old_reports[draw(num_old_reports)];
        memcpy(&report, word->bytes, sizeof(report));
        if (report.phase != fed.engine->other_ranks.phase) {
            report_arrives(word->bytes, word->size);
            num_stale++;
        }
    }
    if (num_old_orders > 0) {
        const old_word *word = &old_orders[draw(num_old_orders)];
        memcpy(&order, word->bytes, sizeof(order));
        if (order.phase != places[word->rank].phase) {
            MUST(fedge_rank_worker_order(places[word->rank].worker, &order,
                                         word->bytes + sizeof(order), ERR));
            num_stale++;
        }
    }
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static void put(line *in, fedge_rank_message *message)
{
    fed_must(message != NULL, "memory", "none");
    fedge_mailbox_post(in->said, &message->item);
}

static fedge_rank_message *take(line *from)
{
    if (!from->next)
        from->next = fedge_mailbox_take(from->said);
    fedge_rank_message *message = (fedge_rank_message *)from->next;
    if (message)
        from->next = message->item.next;
    return message;
}

/* For fedge_rank_link. */
static void say(void *user, uint32_t to, const fedge_order *order, const void *bytes)
{
    (void)user;
    num_recalls += order->kind == FEDGE_ORDER_RECALL;
    put(&places[to].down, fedge_rank_message_with(FEDGE_RANK_MESSAGE_ORDER, order, sizeof(*order),
                                                  bytes, order->size, to));
}

/* For fedge_rank_worker_callbacks, on the share's thread. */
static void report(void *user, const fedge_report *what, const void *bytes)
{
    put(&((place *)user)->up, fedge_rank_message_with(FEDGE_RANK_MESSAGE_REPORT, what,
                                                      sizeof(*what), bytes, what->size, 0));
}

static fedge_status deliver(void *user, fedge_reply *reply, fedge_error *err)
{
    (void)err;
    fedge_mailbox_post(((place *)user)->direct, &reply->item);
    return FEDGE_OK;
}

static void fail_worker(void *user, const fedge_error *err)
{
    (void)user;
    fed_must(false, "a share", err->message);
}

/* Never all uploads that a task may have: the last would lose it, and with it the round, which
 * wants all devices. That is as it should be, and the next attempt would be a second one. */
static void damage_some(fedge_request *part)
{
    damage *of = &damages[part->client_index];
    if (of->task_id != part->message.position.task_id)
        *of = (damage){.task_id = part->message.position.task_id};
    if (of->parts + 1 < FEDGE_ENGINE_MAX_BAD_UPLOADS && draw(8) == 0) {
        of->parts++;
        part->frame[(size_t)(part->payload - part->frame) + draw(part->payload_size)] ^= 1;
    }
}

/* For the federation. */
static void post(federation *of, uint32_t rank, fedge_request *request)
{
    const bool is_part =
        request->type == FEDGE_REQUEST_MESSAGE && request->message.type == FEDGE_MESSAGE_PART;
    if (is_part)
        damage_some(request);
    if (rank == 0) {
        fedge_engine_handle(of->engine, request, of->now_ms);
    } else if (is_part) {
        (void)fedge_rank_worker_post(places[rank].worker, request);
    } else {
        put(&places[rank].up, fedge_rank_message_of_request(request));
        fedge_request_free(request);
    }
}

static void pass_on(federation *of, const fedge_reply *reply)
{
    (void)of;
    const uint32_t rank = fedge_slots_tag(reply->conn_id) / FEDGE_RANKS_TAGS;
    for (uint32_t to = 1; to < RANKS; to++) {
        if (reply->conn_id == FEDGE_CONN_ALL || rank == to)
            put(&places[to].down, fedge_rank_message_of_reply(reply, to));
    }
}

static void goes_up(uint32_t rank, const fedge_rank_message *message)
{
    fedge_rank_message_head head;
    const uint8_t *body = NULL;
    fedge_request *request = NULL;
    MUST(fedge_rank_message_open(message->bytes, message->size, &head, &body, ERR));
    if (head.kind == FEDGE_RANK_MESSAGE_REQUEST) {
        MUST(fedge_rank_message_request(&head, body, &request, ERR));
        fedge_engine_handle(fed.engine, request, fed.now_ms);
        return;
    }
    fedge_report said;
    memcpy(&said, body, sizeof(said));
    num_released += said.kind == FEDGE_REPORT_RELEASED;
    remember(old_reports, &num_old_reports, rank, body, head.body_size);
    report_arrives(body, head.body_size);
}

static void goes_down(uint32_t rank, const fedge_rank_message *message)
{
    fedge_rank_message_head head;
    fedge_order order;
    const uint8_t *body = NULL;
    MUST(fedge_rank_message_open(message->bytes, message->size, &head, &body, ERR));
    if (head.kind == FEDGE_RANK_MESSAGE_REPLY) {
        fedge_reply *reply = NULL;
        MUST(fedge_rank_message_reply(&head, body, &reply, ERR));
        reply->blob = message->blob ? fedge_blob_retain(message->blob) : NULL;
        fed_give(&fed, rank, reply);
        fedge_reply_free(reply);
        return;
    }
    memcpy(&order, body, sizeof(order));
    /* An OPEN has no phase before it to be late for. */
    if (order.kind == FEDGE_ORDER_OPEN)
        places[rank].phase = order.phase;
    else
        remember(old_orders, &num_old_orders, rank, body, head.body_size);
    MUST(fedge_rank_worker_order(places[rank].worker, &order, body + sizeof(order), ERR));
}

/* The thread of a rank that joins sums reads no messages. */
static bool is_joining(const place *at)
{
    pthread_mutex_lock(&lock);
    const bool joins = at->wanted > 0;
    pthread_mutex_unlock(&lock);
    return joins;
}

static void move_messages(void)
{
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        place *at = &places[rank];
        fedge_mailbox_item *item = fedge_mailbox_take(at->direct);
        for (fedge_mailbox_item *next; item; item = next) {
            next = item->next;
            fed_give(&fed, rank, (fedge_reply *)item);
            fedge_reply_free((fedge_reply *)item);
        }
        fedge_rank_message *message = draw(2) ? take(&at->up) : NULL;
        if (message)
            goes_up(rank, message);
        fedge_rank_message_free(message);
        message = draw(2) && !is_joining(at) ? take(&at->down) : NULL;
        if (message)
            goes_down(rank, message);
        fedge_rank_message_free(message);
        fed_take_replies(&fed);
    }
}

/* ---- devices --------------------------------------------------------------------------------- */

static void change_rank(fed_device *device)
{
    fed_leave(&fed, device->index);
    device->rank = draw(RANKS);
    fed_join(&fed, device->index);
    num_moves++;
}

static void disturb(void)
{
    fed_device *device = &fed.devices[draw(FED_DEVICES)];
    if (draw(20) == 0)
        change_rank(device);
    else if (draw(30) == 0 && device->conn && device->welcomed && device->announced)
        fed_announce(device); /* once more */
    if (draw(10) == 0)
        say_again();
    if (fed.engine->waiting_for_space)
        fed.now_ms += FEDGE_ENGINE_SPACE_RETRY_MS;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static fedge_status together(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    (void)user;
    pthread_mutex_lock(&lock);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        places[rank].wanted++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return fedge_distributed_lead(accumulator, err);
}

static void follow(const fedge_collective *collective)
{
    place *at = &places[collective->rank];
    const fedge_rank_worker_config config = {.job = fed.job,
                                             .state_dir = at->dir,
                                             .num_workers = 1,
                                             .accumulator = fed.accumulator,
                                             .sums = fed.sums,
                                             .collective = collective,
                                             .log = &fed.log};
    const fedge_rank_worker_callbacks callbacks = {
        .deliver = deliver, .deliver_user = at, .report = report, .fail = fail_worker, .user = at};
    MUST(fedge_rank_worker_open(&config, &at->worker, ERR));
    fedge_rank_worker_connect(at->worker, &callbacks);
    pthread_mutex_lock(&lock);
    at->ready = true;
    for (pthread_cond_broadcast(&changed); !over;) {
        if (at->wanted == 0) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        MUST(fedge_distributed_follow(fedge_rank_worker_accumulator(at->worker), FEDGE_OK, ERR));
        pthread_mutex_lock(&lock);
        at->wanted--;
    }
    pthread_mutex_unlock(&lock);
    fedge_rank_worker_stop(at->worker);
    fedge_rank_worker_free(at->worker);
}

static void wait_for_shares(void)
{
    pthread_mutex_lock(&lock);
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        while (!places[rank].ready)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* A client that has done nothing wrong must not be told so: it would end for good. */
static void check_farewells(void)
{
    for (uint32_t i = 0; i < FED_DEVICES; i++)
        fed_must(fed.devices[i].farewell != FEDGE_REASON_BAD_STATE, "a device", "is out of step");
}

static void lead(const fedge_collective *collective, fedge_run_status *status)
{
    const fedge_rank_link link = {
        .collective = collective, .send_order = say, .join_sums = together};
    fedge_error failure = {0};
    const uint64_t end = fedge_os_monotonic_ms() + PATIENCE_MS;
    fed.ranks = &link;
    fed.post = post;
    fed.pass_on = pass_on;
    fed_open(&fed);
    wait_for_shares();
    for (uint32_t i = 0; i < FED_DEVICES; i++)
        fed.devices[i].rank = i % RANKS;
    fed_join_all(&fed, FED_DEVICES);
    while (!fedge_engine_done(fed.engine, &failure)) {
        if (fedge_os_monotonic_ms() > end)
            fed_must(false, "waited in vain for the end", fed_status(&fed).state);
        move_messages();
        disturb();
        fed_step(&fed);
        check_farewells();
    }
    fed_must(failure.status == FEDGE_OK, "the run", failure.message);
    *status = fed_status(&fed);
    for (uint32_t i = 0; i < FED_DEVICES; i++) {
        fed_must(fed.devices[i].num_asked_again == 0, "a device", "was asked again after an ACK");
        num_refusals += fed.devices[i].num_refusals;
    }
    fed_close(&fed);
    pthread_mutex_lock(&lock);
    over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void work(const fedge_collective *collective, void *user)
{
    if (collective->rank == 0)
        lead(collective, user);
    else
        follow(collective);
}

static void open_places(void)
{
    over = false;
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        place *at = &places[rank];
        *at = (place){0};
        snprintf(at->dir, sizeof(at->dir), "%s-rank%u", fed.state_dir, (unsigned)rank);
        MUST(fedge_os_remove_tree(at->dir, ERR));
        MUST(fedge_mailbox_new(&at->up.said, NULL, NULL, ERR));
        MUST(fedge_mailbox_new(&at->down.said, NULL, NULL, ERR));
        MUST(fedge_mailbox_new(&at->direct, NULL, NULL, ERR));
    }
}

static void close_places(void)
{
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        place *at = &places[rank];
        line *const both[] = {&at->up, &at->down};
        for (int i = 0; i < 2; i++) {
            for (fedge_rank_message *message = take(both[i]); message; message = take(both[i]))
                fedge_rank_message_free(message);
            fedge_mailbox_free(both[i]->said);
        }
        for (fedge_mailbox_item *item = fedge_mailbox_take(at->direct), *next; item; item = next) {
            next = item->next;
            fedge_reply_free((fedge_reply *)item);
        }
        fedge_mailbox_free(at->direct);
        MUST(fedge_os_remove_tree(at->dir, ERR));
    }
    forget_words(old_reports, &num_old_reports);
    forget_words(old_orders, &num_old_orders);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void play_alone(char hash[FEDGE_HASH_TEXT])
{
    fedge_error failure;
    full = 0;
    fed_init(&fed, "engine-ranks-test", ALL_OF_ALL);
    fed_open(&fed);
    fed_join_all(&fed, FED_DEVICES);
    fed_finish(&fed, &failure);
    assert_int_equal(failure.status, FEDGE_OK);
    memcpy(hash, fed_status(&fed).model_hash, FEDGE_HASH_TEXT);
    fed_fini(&fed);
}

static void play_on_ranks(uint32_t seed, const char *hash)
{
    fedge_run_status status = {0};
    drawn = 2654435761u * (seed + 1);
    fed_init(&fed, "engine-ranks-test", ALL_OF_ALL);
    full = draw(UINT32_MAX) & draw(UINT32_MAX) & draw(UINT32_MAX);
    num_creates = 0;
    memset(damages, 0, sizeof(damages));
    open_places();
    local_ranks_run(RANKS, work, &status);
    close_places();
    assert_int_equal(status.updates_accepted, ROUNDS * FED_DEVICES);
    assert_int_equal(fed.num_summaries, ROUNDS);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(fed.summaries[i].reported, FED_DEVICES);
        assert_int_equal(fed.summaries[i].attempt, 0);
    }
    assert_string_equal(status.model_hash, hash);
    fed_fini(&fed);
}

static bool all_has_happened(void)
{
    return num_moves > 0 && num_stale > 0 && num_full > 0 && num_recalls > 0 && num_released > 0 &&
           num_refusals > 0;
}

static void every_update_counts_once_on_any_ranks(void **state)
{
    (void)state;
    char hash[FEDGE_HASH_TEXT];
    play_alone(hash);
    /* The threads' order decides when the last of it has happened. */
    for (uint32_t seed = 0; seed < SEEDS || (seed < MOST_SEEDS && !all_has_happened()); seed++)
        play_on_ranks(seed, hash);
    assert_true(all_has_happened());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_update_counts_once_on_any_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
