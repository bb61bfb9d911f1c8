#define _POSIX_C_SOURCE 200809L
#include "tests/aggregator/reduce/local_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/edge/core/cmocka_all.h"

typedef struct local_rank {
    fedge_collective collective;
    int (*pipes)[LOCAL_RANKS_MAX][2]; /* [from][to] */
    void (*work)(const fedge_collective *collective, void *user);
    void *user;
} local_rank;

static void send_bytes(void *state, const void *bytes, size_t size, uint32_t to)
{
    const local_rank *self = state;
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(self->pipes[self->collective.rank][to][1],
                                (const char *)bytes + done, size - done);
        if (n <= 0)
            abort();
        done += (size_t)n;
    }
}

static void receive_bytes(void *state, void *bytes, size_t size, uint32_t from)
{
    const local_rank *self = state;
    for (size_t done = 0; done < size;) {
        const ssize_t n =
            read(self->pipes[from][self->collective.rank][0], (char *)bytes + done, size - done);
        if (n <= 0)
            abort();
        done += (size_t)n;
    }
}

static void broadcast(void *state, void *bytes, size_t size, uint32_t from)
{
    const local_rank *self = state;
    if (self->collective.rank != from) {
        receive_bytes(state, bytes, size, from);
        return;
    }
    for (uint32_t to = 0; to < self->collective.num_ranks; to++) {
        if (to != from)
            send_bytes(state, bytes, size, to);
    }
}

static void sum(void *state, int64_t *values, size_t count, uint32_t on)
{
    const local_rank *self = state;
    if (self->collective.rank != on) {
        send_bytes(state, values, count * sizeof(*values), on);
        return;
    }
    for (uint32_t rank = 0; rank < self->collective.num_ranks; rank++) {
        for (size_t i = 0; rank != on && i < count; i++) {
            int64_t value = 0;
            receive_bytes(state, &value, sizeof(value), rank);
            values[i] += value;
        }
    }
}

static const fedge_collective_ops LOCAL = {
    .name = "local",
    .sum = sum,
    .broadcast = broadcast,
    .send = send_bytes,
    .receive = receive_bytes,
};

static void *run(void *arg)
{
    local_rank *self = arg;
    self->work(&self->collective, self->user);
    return NULL;
}

/* Of [num_ranks] × [num_ranks], the ends that are not [rank]'s; or all. */
static void close_pipes(int (*pipes)[LOCAL_RANKS_MAX][2], uint32_t num_ranks, uint32_t rank)
{
    for (uint32_t from = 0; from < num_ranks; from++) {
        for (uint32_t to = 0; to < num_ranks; to++) {
            if (to != rank)
                close(pipes[from][to][0]);
            if (from != rank)
                close(pipes[from][to][1]);
        }
    }
}

static void make_ranks(local_rank *ranks, int (*pipes)[LOCAL_RANKS_MAX][2], uint32_t num_ranks,
                       void (*work)(const fedge_collective *collective, void *user), void *user)
{
    assert_true(num_ranks <= LOCAL_RANKS_MAX);
    for (uint32_t from = 0; from < num_ranks; from++) {
        for (uint32_t to = 0; to < num_ranks; to++)
            assert_int_equal(pipe(pipes[from][to]), 0);
    }
    for (uint32_t i = 0; i < num_ranks; i++) {
        ranks[i] = (local_rank){.pipes = pipes, .work = work, .user = user};
        ranks[i].collective = (fedge_collective){
            .ops = &LOCAL, .state = &ranks[i], .rank = i, .num_ranks = num_ranks, .host = "here"};
    }
}

void local_ranks_run(uint32_t num_ranks,
                     void (*work)(const fedge_collective *collective, void *user), void *user)
{
    int pipes[LOCAL_RANKS_MAX][LOCAL_RANKS_MAX][2];
    local_rank ranks[LOCAL_RANKS_MAX];
    pthread_t threads[LOCAL_RANKS_MAX];
    make_ranks(ranks, pipes, num_ranks, work, user);
    for (uint32_t i = 0; i < num_ranks; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    for (uint32_t i = 0; i < num_ranks; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    close_pipes(pipes, num_ranks, LOCAL_RANKS_MAX);
}

void local_ranks_fork(uint32_t num_ranks,
                      void (*work)(const fedge_collective *collective, void *user), void *user,
                      int *codes)
{
    int pipes[LOCAL_RANKS_MAX][LOCAL_RANKS_MAX][2];
    local_rank ranks[LOCAL_RANKS_MAX];
    pid_t pids[LOCAL_RANKS_MAX];
    make_ranks(ranks, pipes, num_ranks, work, user);
    (void)fflush(NULL);
    for (uint32_t i = 0; i < num_ranks; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            close_pipes(pipes, num_ranks, i);
            (void)run(&ranks[i]);
            _exit(0);
        }
    }
    close_pipes(pipes, num_ranks, LOCAL_RANKS_MAX);
    /* In the order in which they end, for one that is not waited for seems to live. */
    for (uint32_t ended = 0; ended < num_ranks; ended++) {
        int status = 0;
        const pid_t pid = wait(&status);
        for (uint32_t i = 0; i < num_ranks; i++) {
            if (pids[i] == pid)
                codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
    }
}
