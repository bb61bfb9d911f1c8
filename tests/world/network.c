#include "tests/world/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"
#include "tests/world/threads.h"

/* Most bytes under way in one direction; with more the sender waits. */
enum { WINDOW_BYTES = 200000 };
#define LATEST_NOTICE_NS ((uint64_t)3000000000)

typedef struct packet {
    struct packet *next;
    uint64_t due_ns;
    size_t size;
    bool final;
    uint8_t data[];
} packet;

typedef struct packet_queue {
    packet *first, **last;
    uint64_t last_due_ns;
    size_t bytes;
} packet_queue;

struct world_connection {
    bool used;
    uint32_t client;
    uint32_t server;    /* the node at the other end */
    packet_queue to[2]; /* packets by receiving end */
    bool closed[2];     /* the end does not use it any more */
    bool paused[2];
    bool cut;                /* nothing arrives any more */
    uint64_t over_ns[2];     /* time at which the end learns that it is over; WORLD_NEVER */
    uint64_t arrives_ns;     /* time of its arrival at the server */
    bool accepted, admitted; /* by the server */
    uint64_t opens_ns;       /* time at which the client learns that it is admitted */
    unsigned http_status;
};

typedef struct place {
    uint64_t delay_ns, ns_per_byte, partition_ns;
} place;

static struct {
    world_connection connections[NET_MAX_LINKS];
    uint32_t num_used; /* those beyond are free */
    place places[WORLD_MAX_NODES];
    bool is_down[WORLD_MAX_NODES]; /* the machine is off, not only the process */
    bool listens[WORLD_MAX_NODES];
    uint32_t num_ranks; /* ranks of the server; 0: as 1 */
} net;
static const char addresses[WORLD_MAX_NODES];

const void *world_net_address(uint32_t node)
{
    return &addresses[node];
}

static uint32_t node_of(const world_connection *connection, int end)
{
    return end == NET_SERVER_END ? connection->server : WORLD_FIRST_CLIENT + connection->client;
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Packets belong to the system: they outlive the process that sent them. */
static packet *new_packet(size_t size)
{
    world_atomic(true);
    packet *made = malloc(sizeof(*made) + size);
    world_atomic(false);
    if (!made)
        abort();
    return made;
}

static void drop_packets(packet_queue *queue)
{
    while (queue->first) {
        packet *of = queue->first;
        queue->first = of->next;
        free(of);
    }
    queue->last = &queue->first;
    queue->bytes = 0;
}

static uint64_t draw_ns(uint64_t most_ns)
{
    return most_ns == 0 ? 0 : fedge_rng_u64(world_draw()) % most_ns;
}

/* The arrival time of a packet that is sent now. */
static uint64_t arrival_ns(const world_connection *connection, const packet_queue *queue,
                           size_t size)
{
    const place *where = &net.places[connection->client];
    uint64_t at = world_now_ns();
    at = at < where->partition_ns ? where->partition_ns : at;
    at += 1 + where->delay_ns / 2 + draw_ns(where->delay_ns) + size * where->ns_per_byte;
    return at <= queue->last_due_ns ? queue->last_due_ns + 1 : at;
}

static void put(world_connection *connection, int to, const uint8_t *data, size_t size, bool final)
{
    packet_queue *queue = &connection->to[to];
    if (connection->cut)
        return;
    packet *of = new_packet(size);
    *of = (packet){.due_ns = arrival_ns(connection, queue, size), .size = size, .final = final};
    if (size > 0)
        memcpy(of->data, data, size);
    *queue->last = of;
    queue->last = &of->next;
    queue->last_due_ns = of->due_ns;
    queue->bytes += size;
}

bool world_net_may_send(const world_connection *connection, int end)
{
    return connection->to[1 - end].bytes < WINDOW_BYTES;
}

void world_net_send_part(world_connection *connection, int end, const uint8_t *data, size_t size)
{
    const int to = 1 - end;
    if (connection->closed[to] || size == 0)
        return;
    put(connection, to, data, size, false);
    world_wake_all(world_net_address(node_of(connection, to)));
}

bool world_net_receive(world_connection *connection, int end, uint8_t *out, size_t out_size,
                       world_arrival *arrival)
{
    packet_queue *queue = &connection->to[end];
    packet *of = queue->first;
    if (!of || of->due_ns > world_now_ns() || connection->paused[end])
        return false;
    if (of->size > out_size)
        abort();
    queue->first = of->next;
    if (!queue->first)
        queue->last = &queue->first;
    queue->bytes -= of->size;
    *arrival = (world_arrival){of->size, of->final};
    memcpy(out, of->data, of->size);
    free(of);
    /* The other end may be waiting for room in its window. */
    world_wake_all(world_net_address(node_of(connection, 1 - end)));
    return true;
}

void world_net_pause(world_connection *connection, int end, bool paused)
{
    connection->paused[end] = paused;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void tell(world_connection *connection, int end, uint64_t at_ns)
{
    if (at_ns < connection->over_ns[end])
        connection->over_ns[end] = at_ns;
    world_wake_all(world_net_address(node_of(connection, end)));
}

void world_net_send(world_connection *connection, int end, const uint8_t *data, size_t size)
{
    const int to = 1 - end;
    if (connection->closed[to]) {
        if (!net.is_down[node_of(connection, to)])
            tell(connection, end, arrival_ns(connection, &connection->to[end], 0));
        return;
    }
    size_t at = 0;
    while (to == NET_SERVER_END && size - at > 1 && fedge_rng_below(world_draw(), 3) == 0) {
        const size_t part = 1 + fedge_rng_below(world_draw(), (uint32_t)(size - at - 1));
        put(connection, to, data + at, part, false);
        at += part;
    }
    put(connection, to, data + at, size - at, true);
    world_wake_all(world_net_address(node_of(connection, to)));
}

static void release_unused(world_connection *connection)
{
    if (connection->closed[0] && connection->closed[1])
        connection->used = false;
}

bool world_net_is_over(const world_connection *connection, int end)
{
    return !connection->to[end].first && world_now_ns() >= connection->over_ns[end];
}

bool world_net_is_left(const world_connection *connection, int end)
{
    return connection->closed[1 - end];
}

void world_net_close(world_connection *connection, int end)
{
    connection->closed[end] = true;
    drop_packets(&connection->to[end]);
    if (!connection->closed[1 - end])
        tell(connection, 1 - end, arrival_ns(connection, &connection->to[1 - end], 0));
    release_unused(connection);
}

void world_net_cut(uint32_t client)
{
    for (uint32_t i = 0; i < net.num_used; i++) {
        world_connection *connection = &net.connections[i];
        if (!connection->used || connection->client != client)
            continue;
        connection->cut = true;
        for (int end = 0; end < 2; end++) {
            packet_queue *queue = &connection->to[end];
            /* Packets that have not arrived are lost from a random one on. */
            packet **from = &queue->first;
            while (*from && fedge_rng_below(world_draw(), 4) > 0)
                from = &(*from)->next;
            packet_queue lost = {.first = *from};
            *from = NULL;
            queue->last = from;
            for (packet *of = lost.first; of; of = of->next)
                queue->bytes -= of->size;
            drop_packets(&lost);
            if (!connection->closed[end])
                tell(connection, end, world_now_ns() + draw_ns(LATEST_NOTICE_NS));
        }
    }
}

void world_net_drop(uint32_t node, bool power)
{
    for (uint32_t i = 0; i < net.num_used; i++) {
        world_connection *connection = &net.connections[i];
        for (int end = 0; end < 2; end++) {
            if (!connection->used || connection->closed[end] || node_of(connection, end) != node)
                continue;
            const uint64_t other_ns = connection->over_ns[1 - end];
            world_net_close(connection, end);
            /* A machine without power sends nothing. */
            if (power)
                connection->over_ns[1 - end] = other_ns;
        }
    }
    net.is_down[node] = power;
    net.listens[node] = false;
}

void world_net_boot(uint32_t node)
{
    net.is_down[node] = false;
}

/* ---- life ------------------------------------------------------------------------------------ */

void world_net_begin(void)
{
    memset(&net, 0, sizeof(net));
}

void world_net_end(void)
{
    for (uint32_t i = 0; i < net.num_used; i++) {
        if (net.connections[i].used) {
            drop_packets(&net.connections[i].to[0]);
            drop_packets(&net.connections[i].to[1]);
        }
    }
    net.num_used = 0;
}

void world_net_place(uint32_t client, uint64_t delay_ns, uint64_t ns_per_byte)
{
    net.places[client].delay_ns = delay_ns;
    net.places[client].ns_per_byte = ns_per_byte;
}

void world_net_partition(uint32_t client, uint64_t until_ns)
{
    net.places[client].partition_ns = until_ns;
    for (uint32_t i = 0; i < net.num_used; i++) {
        world_connection *connection = &net.connections[i];
        for (int end = 0; end < 2 && connection->used && connection->client == client; end++) {
            packet_queue *queue = &connection->to[end];
            uint64_t at = until_ns;
            for (packet *of = queue->first; of; of = of->next) {
                if (of->due_ns < at)
                    of->due_ns = at++;
                queue->last_due_ns = of->due_ns;
            }
        }
    }
}

uint64_t world_net_due_ns(uint32_t node)
{
    uint64_t due_ns = WORLD_NEVER;
    for (uint32_t i = 0; i < net.num_used; i++) {
        const world_connection *connection = &net.connections[i];
        for (int end = 0; end < 2; end++) {
            if (!connection->used || connection->closed[end] || node_of(connection, end) != node)
                continue;
            uint64_t at = connection->over_ns[end];
            if (connection->to[end].first)
                at = connection->paused[end] ? WORLD_NEVER : connection->to[end].first->due_ns;
            if (end == NET_SERVER_END && !connection->accepted && connection->arrives_ns < at)
                at = connection->arrives_ns;
            if (end == NET_CLIENT_END && connection->opens_ns > world_now_ns() &&
                connection->opens_ns < at)
                at = connection->opens_ns;
            due_ns = at < due_ns ? at : due_ns;
        }
    }
    return due_ns;
}

void world_net_wait(uint32_t node, uint64_t until_ns)
{
    const uint64_t arrives_ns = world_net_due_ns(node), now_ns = world_now_ns();
    const uint64_t due_ns = arrives_ns < until_ns ? arrives_ns : until_ns;
    if (due_ns > now_ns)
        (void)world_wait(world_net_address(node), due_ns - now_ns);
    else
        world_yield();
}

/* ---- the client's end ------------------------------------------------------------------------ */

void world_net_set_ranks(uint32_t num)
{
    net.num_ranks = num;
}

uint32_t world_net_draw_rank(void)
{
    return net.num_ranks > 1 ? world_rank_node(fedge_rng_below(world_draw(), net.num_ranks))
                             : WORLD_SERVER;
}

world_connection *world_net_connect(uint32_t client)
{
    uint32_t i = 0;
    while (i < net.num_used && net.connections[i].used)
        i++;
    if (i == NET_MAX_LINKS) {
        fprintf(stderr, "world: more than %d connections\n", NET_MAX_LINKS);
        abort();
    }
    net.num_used += i == net.num_used;
    world_connection *made = &net.connections[i];
    *made = (world_connection){.used = true,
                               .client = client,
                               .server = world_net_draw_rank(),
                               .over_ns = {WORLD_NEVER, WORLD_NEVER},
                               .opens_ns = WORLD_NEVER};
    for (int end = 0; end < 2; end++)
        made->to[end].last = &made->to[end].first;
    made->arrives_ns = arrival_ns(made, &made->to[NET_SERVER_END], 0);
    if (net.listens[made->server]) {
        world_wake_all(world_net_address(made->server));
    } else {
        made->closed[NET_SERVER_END] = true;
        made->over_ns[NET_CLIENT_END] = made->arrives_ns;
    }
    return made;
}

bool world_net_is_open(const world_connection *connection)
{
    return connection->admitted && world_now_ns() >= connection->opens_ns;
}

unsigned world_net_http_status(const world_connection *connection)
{
    return connection->http_status;
}

/* ---- the server's end ------------------------------------------------------------------------ */

/* The rank whose fiber runs. */
static uint32_t self(void)
{
    return world_is_rank(world_node()) ? world_node() : WORLD_SERVER;
}

void world_net_listen(bool listens)
{
    net.listens[self()] = listens;
}

world_connection *world_net_accept(void)
{
    for (uint32_t i = 0; i < net.num_used; i++) {
        world_connection *connection = &net.connections[i];
        if (connection->used && connection->server == self() && !connection->accepted &&
            !connection->closed[NET_SERVER_END] && world_now_ns() >= connection->arrives_ns) {
            connection->accepted = true;
            return connection;
        }
    }
    return NULL;
}

void world_net_admit(world_connection *connection)
{
    connection->admitted = true;
    connection->opens_ns = arrival_ns(connection, &connection->to[NET_CLIENT_END], 0);
    connection->to[NET_CLIENT_END].last_due_ns = connection->opens_ns;
    world_wake_all(world_net_address(node_of(connection, NET_CLIENT_END)));
}

void world_net_refuse(world_connection *connection, unsigned http_status)
{
    connection->http_status = http_status;
    world_net_close(connection, NET_SERVER_END);
}

uint32_t world_net_client(const world_connection *connection)
{
    return connection->client;
}
