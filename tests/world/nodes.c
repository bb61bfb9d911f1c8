/* The start and end of processes, and of several ranks together. */
#include "tests/world/nodes.h"

#include <string.h>

#include "aggregator/threads/ranks_watch.h"
#include "client/exit_codes.h"
#include "tests/world/answers.h"
#include "tests/world/gpus.h"
#include "tests/world/heap.h"
#include "tests/world/network.h"
#include "tests/world/observer.h"
#include "tests/world/oracle.h"

enum { MAX_WORKERS = 3 /* most workers of the server */ };
/* mpirun kills the other ranks within this time after the end of one. */
#define FALL_NS (300 * MS_NS)
/* Slow disks and links delay a rank this much. */
#define MAX_SLOW_NS (10 * SECOND_NS)
/* It notices a machine that does not answer after this (docs/guides/several-machines.md). */
#define CUT_OFF_NS (40 * SECOND_NS)

world_state w;

uint32_t nodes_num(void)
{
    return WORLD_FIRST_CLIENT + plan_num_clients(w.plan);
}

uint32_t nodes_first_hostile(void)
{
    return WORLD_FIRST_CLIENT + w.plan->job.num_clients;
}

uint32_t nodes_end(void)
{
    return w.plan->num_ranks > 1 ? world_rank_node(w.plan->num_ranks - 1) + 1 : nodes_num();
}

bool nodes_exist(uint32_t index)
{
    return index < nodes_num() || index >= WORLD_FIRST_RANK;
}

bool nodes_share_disk(uint32_t index)
{
    return world_is_rank(index) && w.plan->shares_disk;
}

/* ---- processes begin and end ----------------------------------------------------------------- */

bool nodes_serve(void)
{
    for (uint32_t rank = 0; rank < w.plan->num_ranks; rank++) {
        if (w.nodes[world_rank_node(rank)].up)
            return true;
    }
    return false;
}

/* Rank 0 stays on the machine that has the run; the others may change. */
static void move_ranks(void)
{
    const uint32_t most = w.plan->num_ranks;
    if (fedge_rng_below(world_draw(), 2) == 0)
        fedge_rng_shuffle(world_draw(), w.machines + 1, most - 1);
    for (uint32_t rank = 1; rank < most; rank++) {
        const uint32_t index = world_rank_node(rank);
        world_disk_share(index, world_rank_node(w.machines[rank]));
        world_disk_set_faults(index, &w.nodes[index].faults);
    }
}

/* Starts the ranks together, perhaps with another number of them. */
static void start_ranks(void)
{
    const uint32_t most = w.plan->num_ranks;
    w.num_ranks = w.plan->ranks_vary ? 1 + fedge_rng_below(world_draw(), most) : most;
    if (w.plan->ranks_vary && !w.plan->shares_disk)
        move_ranks();
    if ((w.plan->ranks_vary && !w.plan->shares_disk) || w.disk_lost)
        oracle_disks_missing(w.num_ranks, w.restored_first);
    w.disk_lost = w.restored_first = false;
    w.down_ns = 0;
    for (uint32_t rank = 1; rank < most; rank++)
        world_net_boot(world_rank_node(rank)); /* also where no rank starts this time */
    world_ranks_start(w.num_ranks, w.plan->rank_delay_ns);
    for (uint32_t rank = 1; rank < w.num_ranks; rank++) {
        w.nodes[world_rank_node(rank)].start_ns =
            world_now_ns() + fedge_rng_below(world_draw(), 50) * MS_NS;
    }
}

void nodes_start(uint32_t index)
{
    node *of = &w.nodes[index];
    if (index == WORLD_SERVER && w.plan->num_ranks > 1)
        start_ranks();
    of->start_ns = WORLD_NEVER;
    of->up = true;
    w.quiet_since_ns = world_now_ns();
    of->exited = of->failed = false;
    of->started_ns = world_now_ns();
    w.outcome->num_starts++;
    world_net_boot(index);
    world_trace("starts node %u", (unsigned)index);
    const uint32_t hostile = index - nodes_first_hostile();
    if (index == WORLD_SERVER && w.plan->server_is_hostile) {
        world_spawn(index, hostile_server_main, &w.hostile_server, "hostile");
    } else if (world_is_rank(index)) {
        /* The result has the same bits with any number of workers, also after a kill. */
        w.server.num_workers = 1 + (w.plan->num_workers - 1 + w.server_starts++) % MAX_WORKERS;
        world_spawn(index, world_server_main, &w.server, "main");
    } else if (index >= nodes_first_hostile()) {
        world_spawn(index, hostile_client_main, &w.hostile[hostile], "hostile");
    } else {
        world_spawn(index, world_client_main, &w.clients[index - WORLD_FIRST_CLIENT], "main");
    }
}

/* One of several ranks is down: all ranks end soon, and then they start together. */
static void start_ranks_later(uint32_t index, uint64_t after_ns)
{
    node *of = &w.nodes[index], *first = &w.nodes[WORLD_SERVER];
    const uint64_t now_ns = world_now_ns();
    of->start_ns = WORLD_NEVER;
    w.down_ns = now_ns + after_ns > w.down_ns ? now_ns + after_ns : w.down_ns;
    if (nodes_serve()) {
        if (w.fall_ns == WORLD_NEVER && (!of->exited || of->failed))
            w.fall_ns = now_ns + fedge_rng_u64(world_draw()) % FALL_NS;
        return;
    }
    for (uint32_t rank = 1; rank < w.num_ranks; rank++)
        w.nodes[world_rank_node(rank)].start_ns = WORLD_NEVER;
    w.fall_ns = WORLD_NEVER;
    first->start_ns = first->finished ? WORLD_NEVER : w.down_ns;
    if (w.plan->shares_disk)
        world_disk_drop(WORLD_SERVER);
}

static void start_later(uint32_t index, uint64_t after_ns)
{
    node *of = &w.nodes[index];
    of->up = false;
    if (world_is_rank(index) && w.plan->num_ranks > 1) {
        start_ranks_later(index, after_ns);
        return;
    }
    if (index >= WORLD_FIRST_CLIENT && index < nodes_first_hostile()) {
        answers_client_disconnected(index - WORLD_FIRST_CLIENT);
        w.clients[index - WORLD_FIRST_CLIENT].running = NULL;
        w.clients[index - WORLD_FIRST_CLIENT].stop = false;
    }
    of->start_ns = of->gone || of->finished ? WORLD_NEVER : world_now_ns() + after_ns;
}

/* Whether the documentation lists the exit code. */
static bool is_documented(uint32_t index, int code)
{
    return code >= 0 && code <= (world_is_rank(index) ? 8 : 9);
}

static bool may_lack_disk(void)
{
    bool may = false;
    for (uint32_t i = 0; i < w.plan->num_faults; i++) {
        const plan_fault *fault = &w.plan->faults[i];
        may = may || (world_is_rank(fault->node) &&
                      (fault->kind == PLAN_BAD_CALL || fault->kind == PLAN_FULL_DISK));
    }
    return may;
}

static void server_exits(int code)
{
    if (!world_gpus_allow(code) && !may_lack_disk() && !w.plan->may_fail)
        world_fail("the server has lost a GPU and ended with code %d", code);
    world_gpus_ended(code, false, world_now_ns() - w.nodes[WORLD_SERVER].started_ns);
}

/* The server's process was killed. */
static void server_dies(bool power)
{
    if (power)
        world_gpus_forget();
    else
        world_gpus_ended(0, true, world_now_ns() - w.nodes[WORLD_SERVER].started_ns);
}

/* Whether a fault excuses the node's exit. A fault of one rank excuses all ranks. */
static bool is_excused(uint32_t index)
{
    bool excused = w.nodes[index].excused;
    for (uint32_t rank = 0; rank < w.plan->num_ranks && world_is_rank(index); rank++)
        excused = excused || w.nodes[world_rank_node(rank)].excused;
    return excused;
}

void world_observe_signal(uint32_t index, bool stop)
{
    world_signals *signals = &w.server.signals[world_rank_of(index)];
    signals->stop = signals->stop || stop;
    signals->reload = signals->reload || !stop;
    world_server_signal(world_rank_of(index));
}

/* check_ended checks the heap once the fiber has ended. */
void world_observe_exit(uint32_t index, int code, const char *why)
{
    node *of = &w.nodes[index];
    world_trace("exits with code %d: %s", code, why);
    of->exited = true;
    of->failed = code != 0;
    if (index == WORLD_SERVER)
        server_exits(code);
    /* A rank waits so long for another one, not less. */
    if (code != 0 && (strstr(why, "has said nothing") || strstr(why, "has not ended in")) &&
        w.plan->silent_ns + MAX_SLOW_NS < (uint64_t)FEDGE_RANKS_SILENCE_MS * MS_NS)
        world_fail("node %u gave up a rank that was only slow: %s", (unsigned)index, why);
    if (!is_documented(index, code))
        world_fail("node %u ended with code %d, which is not documented", (unsigned)index, code);
    const bool declines = !world_is_rank(index) && code == FEDGE_EXIT_DECLINED &&
                          plan_site_forbids(&w.plan->sites[index - WORLD_FIRST_CLIENT]);
    if (declines && fedge_rng_below(world_draw(), 2) == 0)
        of->gone = true; /* its supervisor does not start it again */
    if (code != 0 && !declines && !is_excused(index) && !w.plan->may_fail)
        world_fail("node %u ended with code %d without a reason: %s", (unsigned)index, code, why);
    w.complete = w.complete || (code == 0 && index == WORLD_SERVER && w.written);
    if (code == 0 && w.complete)
        of->finished = true;
    /* Without faults a client ends only at the end of the run. */
    if (code == 0 && !world_is_rank(index) && w.plan->num_faults == 0)
        of->gone = true;
}

/* Ranks that share a disk lose their open files together. */
void nodes_drop_files(uint32_t index)
{
    if (!nodes_share_disk(index))
        world_disk_drop(index);
}

/* Checks that a process that has ended by itself has freed all its resources. */
static void check_ended(uint32_t index)
{
    if (world_heap_blocks(index) > 0) {
        world_fail("node %u ended with %llu blocks of memory in use", (unsigned)index,
                   (unsigned long long)world_heap_blocks(index));
    }
    if (world_disk_num_open(index) > 0 && !nodes_share_disk(index)) {
        world_fail("node %u ended with %u files open", (unsigned)index,
                   (unsigned)world_disk_num_open(index));
    }
    world_net_drop(index, false);
    world_heap_drop(index);
    nodes_drop_files(index);
    start_later(index, 200 * MS_NS + fedge_rng_below(world_draw(), 1000) * MS_NS);
}

static void kill_process(uint32_t index, bool power, uint64_t down_ns)
{
    const node *of = &w.nodes[index];
    if (!of->up)
        return;
    world_kill(index);
    w.outcome->num_kills++;
    if (index == WORLD_SERVER && !of->exited)
        server_dies(power);
    world_net_drop(index, power);
    if (power)
        world_set_clocks(index, 0 - world_now_ns(), EPOCH_NS);
    start_later(index, down_ns);
}

void nodes_kill_ranks(bool power, uint64_t down_ns)
{
    for (uint32_t rank = 0; rank < w.plan->num_ranks; rank++)
        kill_process(world_rank_node(rank), power, down_ns);
}

void nodes_kill(uint32_t index, bool power, uint64_t down_ns)
{
    const bool was_up = w.nodes[index].up;
    kill_process(index, power, down_ns);
    if (was_up && power && nodes_share_disk(index))
        nodes_kill_ranks(true, down_ns);
    /* A machine that is off does not say so: the others may go on until it is back. */
    if (was_up && power && w.fall_ns != WORLD_NEVER && fedge_rng_below(world_draw(), 3) == 0)
        w.fall_ns = world_now_ns() + (down_ns < CUT_OFF_NS ? down_ns : CUT_OFF_NS);
    if (was_up && power) {
        world_disk_power_off(index);
        oracle_forget_selection();
        if (world_is_rank(index))
            oracle_power_failed();
    }
}

void nodes_cut_off(uint32_t rank, uint64_t lasts_ns)
{
    const uint64_t now_ns = world_now_ns();
    for (uint32_t other = 0; other < w.plan->num_ranks; other++) {
        if (other != rank)
            world_ranks_part(rank, other, now_ns + lasts_ns);
    }
    if (lasts_ns < CUT_OFF_NS || rank >= w.num_ranks || !nodes_serve())
        return;
    w.fall_ns = now_ns + CUT_OFF_NS < w.fall_ns ? now_ns + CUT_OFF_NS : w.fall_ns;
    w.down_ns = now_ns + lasts_ns > w.down_ns ? now_ns + lasts_ns : w.down_ns;
}

/* A process may also be killed in its own system call. */
bool nodes_notice_deaths(void)
{
    if (world_num_ends() == w.num_ends)
        return false;
    w.num_ends = world_num_ends();
    for (uint32_t i = WORLD_SERVER; i < nodes_end(); i++) {
        node *of = &w.nodes[i];
        if (!of->up || world_num_fibers(i) > 0)
            continue;
        if (i == WORLD_SERVER && !of->exited)
            server_dies(false);
        if (of->faults.die_at > 0) {
            of->faults.die_at = 0;
            world_disk_set_faults(i, &of->faults);
        }
        check_ended(i);
    }
    return true;
}
