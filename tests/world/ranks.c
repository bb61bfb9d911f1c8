#define _GNU_SOURCE /* kill */

#include "tests/world/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/threads/waiting.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/threads.h"

/* Longest sleep of a thread that polls for messages; messages wake it earlier. */
#define MAX_NAP_NS ((uint64_t)100000000)

typedef struct message {
    struct message *next;
    uint64_t due_ns;
    size_t size;
    uint8_t bytes[];
} message;

/* Messages from one rank to another, oldest first. */
typedef struct line {
    message *first, **last;
    uint64_t last_due_ns;
    uint64_t num_put, num_taken;
} line;

/* A send or receive in progress, of the process that began it. */
typedef struct operation {
    uint64_t done_ns;
} operation;

static struct {
    uint32_t num;
    uint64_t delay_ns;
    line calls[WORLD_MAX_RANKS][WORLD_MAX_RANKS];    /* [from][to]: blocking calls */
    line messages[WORLD_MAX_RANKS][WORLD_MAX_RANKS]; /* non-blocking calls */
    /* Time from which two ranks reach each other. */
    uint64_t apart_ns[WORLD_MAX_RANKS][WORLD_MAX_RANKS];
    uint64_t sent_ns[WORLD_MAX_RANKS]; /* time at which the rank's last message has been sent */
    const void
        *naps[WORLD_MAX_RANKS]; /* address at which the rank's message thread waits, or NULL */
} job;
static const char inbox[WORLD_MAX_RANKS]; /* addresses to wait for */

/* ---- bytes under way ------------------------------------------------------------------------- */

static uint64_t draw_below(uint64_t most)
{
    return most == 0 ? 0 : fedge_rng_u64(world_draw()) % most;
}

static void put(line *to, uint32_t rank, const void *bytes, size_t size)
{
    const uint64_t apart_ns = job.apart_ns[world_rank_of(world_node())][rank];
    const uint64_t now_ns = apart_ns > world_now_ns() ? apart_ns : world_now_ns();
    world_atomic(true); /* it survives the process that sent it */
    message *of = malloc(sizeof(*of) + size);
    world_atomic(false);
    if (!of)
        abort();
    const uint64_t due_ns = now_ns + 1 + draw_below(job.delay_ns) + size;
    *of =
        (message){.due_ns = due_ns > to->last_due_ns ? due_ns : to->last_due_ns + 1, .size = size};
    memcpy(of->bytes, bytes, size);
    *to->last = of;
    to->last = &of->next;
    to->last_due_ns = of->due_ns;
    to->num_put++;
    world_wake_all(&inbox[rank]);
    world_wake_all(job.naps[rank]);
}

static bool has_arrived(const line *from)
{
    return from->first && from->first->due_ns <= world_now_ns();
}

static void take(line *from, void *bytes, size_t size)
{
    message *of = from->first;
    from->first = of->next;
    if (!from->first)
        from->last = &from->first;
    from->num_taken++;
    if (of->size != size)
        world_fail("a rank receives %zu bytes where %zu were sent", size, of->size);
    else
        memcpy(bytes, of->bytes, size);
    free(of);
    world_wake_all(from); /* the sender may wait for that */
}

static void drop_line(line *of)
{
    while (of->first) {
        message *next = of->first->next;
        free(of->first);
        of->first = next;
    }
    *of = (line){.last = &of->first};
}

static void drop_lines(void)
{
    for (uint32_t from = 0; from < WORLD_MAX_RANKS; from++) {
        for (uint32_t to = 0; to < WORLD_MAX_RANKS; to++) {
            drop_line(&job.calls[from][to]);
            drop_line(&job.messages[from][to]);
        }
    }
}

/* What has not arrived waits. */
static void delay_line(line *of, uint64_t until_ns)
{
    uint64_t at = until_ns;
    for (message *each = of->first; each; each = each->next) {
        if (each->due_ns > world_now_ns() && each->due_ns < at)
            each->due_ns = at;
        at = each->due_ns >= at ? each->due_ns + 1 : at;
        of->last_due_ns = each->due_ns;
    }
}

void world_ranks_part(uint32_t rank, uint32_t other, uint64_t until_ns)
{
    job.apart_ns[rank][other] = job.apart_ns[other][rank] = until_ns;
    delay_line(&job.calls[rank][other], until_ns);
    delay_line(&job.calls[other][rank], until_ns);
    delay_line(&job.messages[rank][other], until_ns);
    delay_line(&job.messages[other][rank], until_ns);
}

/* ---- calls that wait ------------------------------------------------------------------------- */

static uint32_t self_of(const void *state)
{
    return *(const uint32_t *)state;
}

/* As in MPI, a transfer of no bytes sends nothing. */
static void send_bytes(void *state, const void *bytes, size_t size, uint32_t to)
{
    line *through = &job.calls[self_of(state)][to];
    if (size == 0)
        return;
    put(through, to, bytes, size);
    const uint64_t number = through->num_put;
    if (fedge_rng_below(world_draw(), 2) == 0) {
        while (through->num_taken < number)
            (void)world_wait(through, WORLD_NEVER);
    }
    world_yield();
}

static void receive_bytes(void *state, void *bytes, size_t size, uint32_t from)
{
    const uint32_t self = self_of(state);
    line *through = &job.calls[from][self];
    if (size == 0)
        return;
    while (!has_arrived(through)) {
        (void)world_wait(&inbox[self],
                         through->first ? through->first->due_ns - world_now_ns() : WORLD_NEVER);
    }
    take(through, bytes, size);
    world_yield();
}

static void broadcast(void *state, void *bytes, size_t size, uint32_t from)
{
    if (self_of(state) != from)
        receive_bytes(state, bytes, size, from);
    for (uint32_t to = 0; self_of(state) == from && to < job.num; to++) {
        if (to != from)
            send_bytes(state, bytes, size, to);
    }
}

static void sum(void *state, int64_t *values, size_t count, uint32_t on)
{
    if (self_of(state) != on) {
        send_bytes(state, values, count * sizeof(*values), on);
        return;
    }
    int64_t *theirs = malloc(count * sizeof(*theirs) + 1);
    for (uint32_t rank = 0; rank < job.num && theirs; rank++) {
        if (rank == on)
            continue;
        receive_bytes(state, theirs, count * sizeof(*theirs), rank);
        for (size_t i = 0; i < count; i++)
            values[i] += theirs[i];
    }
    free(theirs);
}

/* ---- messages -------------------------------------------------------------------------------- */

static operation *begin(uint64_t done_ns)
{
    operation *begun = malloc(sizeof(*begun));
    if (begun)
        begun->done_ns = done_ns;
    return begun;
}

static void *begin_send(void *state, const void *bytes, size_t size, uint32_t to)
{
    const uint32_t self = self_of(state);
    line *through = &job.messages[self][to];
    put(through, to, bytes, size);
    const bool at_once = fedge_rng_below(world_draw(), 2) == 0;
    const uint64_t done_ns = at_once ? world_now_ns() : through->last_due_ns;
    job.sent_ns[self] = done_ns > job.sent_ns[self] ? done_ns : job.sent_ns[self];
    return begin(done_ns);
}

static bool is_done(void *state, void *handle)
{
    (void)state;
    const operation *of = handle;
    if (world_now_ns() < of->done_ns)
        return false;
    free(handle);
    return true;
}

static bool probe(void *state, uint32_t *from, size_t *size)
{
    const uint32_t self = self_of(state);
    const uint32_t first = fedge_rng_below(world_draw(), job.num);
    for (uint32_t i = 0; i < job.num; i++) {
        *from = (first + i) % job.num;
        const line *through = &job.messages[*from][self];
        if (has_arrived(through)) {
            *size = through->first->size;
            return true;
        }
    }
    return false;
}

static void *begin_receive(void *state, void *bytes, size_t size, uint32_t from)
{
    take(&job.messages[from][self_of(state)], bytes, size);
    return begin(world_now_ns());
}

/* ---- waiting for messages -------------------------------------------------------------------- */

/* The next time at which the rank's message thread has something to do. */
static uint64_t next_ns(uint32_t self)
{
    const uint64_t now_ns = world_now_ns();
    uint64_t at = job.sent_ns[self] > now_ns ? job.sent_ns[self] : WORLD_NEVER;
    for (uint32_t from = 0; from < job.num; from++) {
        const message *first = job.messages[from][self].first;
        if (first)
            at = first->due_ns < at ? first->due_ns : at;
    }
    return at;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void __real_fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);
void __wrap_fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us);

/* A polling message thread would take most of a world's steps, so it sleeps until there is a
 * message. */
void __wrap_fedge_condition_wait_us(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t us)
{
    const bool looks = world_is_rank(world_node()) && strcmp(world_thread_name(), "ranks") == 0;
    if (looks) {
        const uint32_t self = world_rank_of(world_node());
        const uint64_t now_ns = world_now_ns(), at_ns = next_ns(self);
        const uint64_t nap_ns = at_ns - now_ns < MAX_NAP_NS ? at_ns - now_ns : MAX_NAP_NS;
        if (at_ns > now_ns && nap_ns / 1000 + 1 > us)
            us = nap_ns / 1000 + 1;
        job.naps[self] = condition;
        __real_fedge_condition_wait_us(condition, mutex, us);
        job.naps[self] = NULL;
    } else {
        __real_fedge_condition_wait_us(condition, mutex, us);
    }
}

int __real_kill(pid_t process, int number);
int __wrap_kill(pid_t process, int number);

/* Ranks pass signals on to their own processes. */
int __wrap_kill(pid_t process, int number)
{
    if (!world_is_rank(world_node()))
        return __real_kill(process, number);
    world_observe_signal(world_node(), number == SIGTERM);
    return 0;
}

int __wrap_fprintf(FILE *to, const char *format, ...);
int __wrap___fprintf_chk(FILE *to, int flag, const char *format, ...);

/* A rank that gives up says why on the standard error stream. */
static char said[256];
#define PRINT(to, format)                                                                          \
    va_list arguments;                                                                             \
    va_start(arguments, format);                                                                   \
    const int size = world_node() == WORLD_ITSELF                                                  \
                         ? vfprintf(to, format, arguments)                                         \
                         : vsnprintf(said, sizeof(said), format, arguments);                       \
    va_end(arguments);                                                                             \
    return size
int __wrap_fprintf(FILE *to, const char *format, ...)
{
    PRINT(to, format);
}

int __wrap___fprintf_chk(FILE *to, int flag, const char *format, ...)
{
    (void)flag;
    PRINT(to, format);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- life ------------------------------------------------------------------------------------ */

/* Waits for all ranks. */
static void close_job(void *state)
{
    uint8_t end = 0;
    for (uint32_t to = 0; to < job.num; to++) {
        if (to != self_of(state))
            put(&job.calls[self_of(state)][to], to, &end, sizeof(end));
    }
    for (uint32_t from = 0; from < job.num; from++) {
        if (from != self_of(state))
            receive_bytes(state, &end, sizeof(end), from);
    }
    free(state);
}

static void abort_job(void *state, int code)
{
    (void)state;
    world_observe_exit(world_node(), code, said[0] ? said : "a rank has ended all");
    world_die();
}

static const fedge_collective_ops WORLD = {
    .name = "world",
    .close = close_job,
    .abort = abort_job,
    .sum = sum,
    .broadcast = broadcast,
    .send = send_bytes,
    .receive = receive_bytes,
    .begin_send = begin_send,
    .is_done = is_done,
    .probe = probe,
    .begin_receive = begin_receive,
};

void world_ranks_begin(void)
{
    memset(&job, 0, sizeof(job));
    drop_lines();
}

void world_ranks_end(void)
{
    drop_lines();
}

void world_ranks_start(uint32_t num, uint64_t delay_ns)
{
    drop_lines();
    said[0] = '\0';
    world_net_set_ranks(num);
    job.num = num;
    job.delay_ns = delay_ns;
    memset(job.sent_ns, 0, sizeof(job.sent_ns));
    memset(job.naps, 0, sizeof(job.naps));
}

void world_ranks_open(fedge_collective *collective)
{
    uint32_t *state = job.num > 1 ? malloc(sizeof(*state)) : NULL;
    *collective = (fedge_collective){0};
    if (!state)
        return;
    *state = world_rank_of(world_node());
    *collective = (fedge_collective){
        .ops = &WORLD, .state = state, .rank = *state, .num_ranks = job.num, .host = "here"};
}
