/* The loop of a world: runs the nodes step by step, begins and ends the plan's faults, and restarts
 * processes. */
#include "tests/world/world.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/net/transport.h"
#include "aggregator/rounds/strategy.h"
#include "client/exit_codes.h"
#include "client/link.h"
#include "edge/core/os.h"
#include "secure/crypto/ciphers.h"
#include "secure/crypto/sha256.h"
#include "tests/world/answers.h"
#include "tests/world/gpus.h"
#include "tests/world/heap.h"
#include "tests/world/network.h"
#include "tests/world/nodes.h"
#include "tests/world/observer.h"
#include "tests/world/oracle.h"
#include "tests/world/root_training.h"
#include "tests/world/scheduler.h"
#include "tests/world/site.h"
#include "tests/world/site_oracle.h"
#include "tests/world/threads.h"
#include "tests/world/trace.h"

#define MAX_STEPS ((uint64_t)3000000)
/* Most memory of a process besides MODELS times the model, and most descriptors. FedBuff stores 20
 * old models and more. */
#define MODELS 64
#define MAX_SERVER_BYTES ((uint64_t)8 << 20)
#define MAX_CLIENT_BYTES ((uint64_t)4 << 20)
#define MAX_DESCRIPTORS 64
/* Memory of each of several ranks besides: the largest message. */
#define MAX_RANK_BYTES ((uint64_t)16 << 20)

/* ---- what is seen ---------------------------------------------------------------------------- */

/* The oracles belong to the world, although a node's fiber calls them. */
#define AS_WORLD(call)                                                                             \
    do {                                                                                           \
        world_atomic(true);                                                                        \
        call;                                                                                      \
        world_atomic(false);                                                                       \
    } while (0)

void world_observe_client_sent(uint32_t client, const uint8_t *frame, size_t size)
{
    w.quiet_since_ns = world_now_ns();
    world_trace("sends message %u of %zu bytes", size > 5 ? frame[5] : 0u, size);
    AS_WORLD(oracle_client_sent(client, frame, size));
    AS_WORLD(site_oracle_client_sent(client, frame, size));
    w.declined = w.declined || (size > 5 && frame[5] == FEDGE_MESSAGE_DECLINE);
    if (!w.plan->server_is_hostile)
        AS_WORLD(answers_client_sent(client, frame, size));
}

void world_observe_client_received(uint32_t client, const uint8_t *frame, size_t size)
{
    AS_WORLD(answers_client_received(client, frame, size));
    AS_WORLD(site_oracle_client_received(client, frame, size));
}

void world_observe_client_disconnected(uint32_t client)
{
    AS_WORLD(answers_client_disconnected(client));
}

void world_observe_hostile_sent(uint32_t client, const uint8_t *frame, size_t size,
                                const uint8_t *bytes, size_t num_bytes)
{
    world_trace("sends hostile message %u of %zu bytes", size > 5 ? frame[5] : 0u, size);
    AS_WORLD(oracle_hostile_sent(client, frame, size, bytes, num_bytes));
}

void world_observe_hostile_answer(uint32_t client, const uint8_t *frame, size_t size)
{
    world_trace("sends hostile message %u of %zu bytes to client %u", size > 5 ? frame[5] : 0u,
                size, (unsigned)client);
    AS_WORLD(site_oracle_server_sent(client, frame, size));
}

static void observe_trained(uint32_t client, uint64_t task_id, const float *before,
                            const float *after)
{
    AS_WORLD(oracle_trained(client, task_id, before, after));
}

void world_root_trained(uint32_t round, const float *before, const float *after)
{
    AS_WORLD(oracle_root_trained(round, before, after));
}

void world_observe_server_sent(uint32_t client, bool arrives, const uint8_t *frame, size_t size)
{
    w.quiet_since_ns = world_now_ns();
    world_trace("sends message %u of %zu bytes to client %u", size > 5 ? frame[5] : 0u, size,
                (unsigned)client);
    AS_WORLD(oracle_server_sent(client, arrives, frame, size));
    AS_WORLD(answers_server_sent(client, frame, size));
    AS_WORLD(site_oracle_server_sent(client, frame, size));
}

void world_observe_round(const fedge_round_summary *summary)
{
    world_trace("round %u closed: %u of %u reported", (unsigned)summary->round,
                (unsigned)summary->reported, (unsigned)summary->asked);
    AS_WORLD(oracle_look());
}

void world_observe_opened(const fedge_run_status *status)
{
    world_trace("opened run %.8s, incarnation %u: %s", status->run_id,
                (unsigned)status->incarnation, status->state);
    if (!w.run_id[0])
        memcpy(w.run_id, status->run_id, sizeof(w.run_id));
    if (strcmp(w.run_id, status->run_id) == 0) {
        AS_WORLD(oracle_opened());
    } else if (w.written) { /* it was killed after it had marked the run as finished */
        w.complete = w.server.signals[0].stop = true;
    } else if (!w.plan->may_fail) {
        world_fail("a new run was begun before the end of the old one");
    }
}

void world_observe_complete(const fedge_run_status *status)
{
    w.written = true;
    world_trace("run complete after %u rounds, model %.16s", (unsigned)status->rounds_closed,
                status->model_hash);
    AS_WORLD(oracle_complete(status->model_hash, status->rounds_closed));
}

static void look_at_warning(void *user, const char *line, size_t size)
{
    (void)user, (void)size;
    if (world_node() >= WORLD_FIRST_CLIENT)
        answers_client_warned(world_node() - WORLD_FIRST_CLIENT, line);
}

static void write_log(void *user, const char *line, size_t size)
{
    world_trace("log: %.*s", (int)(size > 0 ? size - 1 : 0), line);
    look_at_warning(user, line, size);
}

const fedge_log *world_observed_log(void)
{
    static const fedge_log LOGS[] = {{.write = look_at_warning, .level = FEDGE_LOG_WARN},
                                     {.write = write_log, .level = FEDGE_LOG_INFO}};
    /* With the address sanitizer all lines are formatted. A line changes nothing in the world. */
#if defined(__SANITIZE_ADDRESS__)
    return &LOGS[1];
#else
    return &LOGS[world_trace_prints() ? 1 : 0];
#endif
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void set_disk(uint32_t index)
{
    world_disk_set_faults(index, &w.nodes[index].faults);
}

static void heal(uint32_t index)
{
    node *of = &w.nodes[index];
    of->heal_ns = WORLD_NEVER;
    of->faults = (world_disk_faults){.sync_ns = w.plan->sync_ns};
    set_disk(index);
    if (index == WORLD_SERVER)
        world_gpus_mend();
    if (world_is_rank(index) && w.plan->num_ranks > 1)
        w.quiet_since_ns = world_now_ns(); /* it may have stood still */
    if (!world_is_rank(index)) {
        const uint32_t client = index - WORLD_FIRST_CLIENT;
        world_net_place(client, w.plan->delay_ns[client], w.plan->ns_per_byte[client]);
        if (!w.server.admitted[client] && !of->gone) {
            w.server.admitted[client] = true;
            world_observe_signal(world_net_draw_rank(), false);
        }
    }
}

/* The first call backs up the server's disks, or that of rank 0 alone, and a later one restores
 * them: the run between the two is lost. Both stop the server. */
static void back_up_or_restore(const plan_fault *fault)
{
    const bool restores = w.backups[0] != NULL;
    const bool is_of_all = !w.plan->shares_disk && fault->number % 2 == 0;
    nodes_kill_ranks(false, fault->lasts_ns);
    if (!w.run_id[0])
        return; /* there is nothing to back up */
    for (uint32_t rank = 0; rank < (is_of_all ? w.plan->num_ranks : 1); rank++) {
        world_disk_copy **copy = &w.backups[w.machines[rank]];
        if (!restores)
            *copy = world_disk_copy_of(world_rank_node(rank));
        else if (*copy)
            world_disk_restore(world_rank_node(rank), *copy);
    }
    if (!restores) {
        w.backup_mark = oracle_mark();
        return;
    }
    oracle_restored(w.backup_mark);
    w.disk_lost = w.restored_first = !w.plan->shares_disk && w.plan->num_ranks > 1;
    w.server.restored = true;
    for (uint32_t i = 0; i < w.plan->job.num_clients; i++)
        w.trainers[i].may_lose = true;
}

static void wipe(uint32_t index, uint64_t down_ns)
{
    if (world_is_rank(index)) {
        nodes_kill_ranks(false, down_ns);
        world_disk_restore(index, w.empty);
        w.disk_lost = true;
        return;
    }
    nodes_kill(index, false, down_ns);
    world_disk_restore(index, w.empty);
    site_write(w.plan, index - WORLD_FIRST_CLIENT, world_now_ns());
    w.trainers[index - WORLD_FIRST_CLIENT].may_lose = true;
    oracle_client_wiped(index - WORLD_FIRST_CLIENT);
    answers_client_wiped(index - WORLD_FIRST_CLIENT);
}

/* A device leaves for good if enough others stay. */
static void leave(uint32_t index)
{
    uint32_t staying = 0;
    for (uint32_t i = WORLD_FIRST_CLIENT; i < nodes_first_hostile(); i++) {
        staying += i != index && !w.nodes[i].gone &&
                   !plan_site_forbids(&w.plan->sites[i - WORLD_FIRST_CLIENT]);
    }
    if (staying < w.plan->job.min_available_nodes)
        return;
    w.nodes[index].gone = true;
    nodes_kill(index, fedge_rng_below(world_draw(), 2) == 0, 0);
    w.nodes[index].start_ns = WORLD_NEVER;
}

static void begin_on_disk(const plan_fault *fault)
{
    world_disk_faults *faults = &w.nodes[fault->node].faults;
    if (!world_is_rank(fault->node))
        site_oracle_excuse(fault->node - WORLD_FIRST_CLIENT);
    const uint64_t used = world_disk_used(fault->node);
    switch (fault->kind) {
    case PLAN_DIE_AT_CALL:
        faults->die_at = fault->number;
        break;
    case PLAN_SLOW_DISK:
        faults->slow_syncs = 200000;
        faults->slow_ns = fault->lasts_ns;
        break;
    case PLAN_BAD_CALL:
        faults->fail_at = fault->number;
        faults->fail_errno = fault->error;
        faults->short_writes = faults->interrupted = 100000;
        break;
    default: /* PLAN_FULL_DISK */
        faults->capacity = used + 4096;
        break;
    }
    set_disk(fault->node);
}

static void stop(uint32_t index)
{
    if (world_is_rank(index)) {
        if (w.nodes[index].up)
            world_observe_signal(index, true);
    } else {
        world_client_stop(&w.clients[index - WORLD_FIRST_CLIENT]);
    }
}

static void flip(const plan_fault *fault)
{
    /* Any file, or one of those that matter most. */
    static const char *const PARTS[] = {"", "/journal/", "/checkpoints/", "state/"};
    const char *path = "";
    oracle_look();
    if (world_disk_flip(fault->node, PARTS[fault->number % 4], &path))
        world_trace("a bit flips in %s", path);
    if (world_is_rank(fault->node)) {
        oracle_disk_damaged();
        return;
    }
    w.trainers[fault->node - WORLD_FIRST_CLIENT].may_lose = true;
    oracle_client_wiped(fault->node - WORLD_FIRST_CLIENT);
    /* The operator repairs the device's file. */
    site_write(w.plan, fault->node - WORLD_FIRST_CLIENT, world_now_ns());
}

/* Two machines lose each other, or one all others. */
static void part(const plan_fault *fault, uint64_t until_ns)
{
    const uint32_t rank = world_rank_of(fault->node), other = (uint32_t)fault->number;
    if (rank == other)
        nodes_cut_off(rank, fault->lasts_ns);
    else
        world_ranks_part(rank, other, until_ns);
}

static void begin_at_gpus(const plan_fault *fault)
{
    if (fault->kind == PLAN_GPU) {
        world_gpus_fail(fault->number, fault->error == ETIME    ? WORLD_GPU_HANGS
                                       : fault->error == ENOMEM ? WORLD_GPU_IS_FULL
                                                                : WORLD_GPU_FAILS);
        return;
    }
    world_gpus_set_list(fault->number);
    w.server.signals[0].gpus_changed = w.nodes[fault->node].up;
    world_server_signal(0);
}

static void begin_fault(const plan_fault *fault)
{
    node *of = &w.nodes[fault->node];
    const uint32_t client = fault->node - WORLD_FIRST_CLIENT;
    const uint64_t until_ns = world_now_ns() + fault->lasts_ns;
    world_trace("fault at node %u: %s", (unsigned)fault->node, plan_fault_text(fault->kind));
    of->excused = true;
    if (of->heal_ns == WORLD_NEVER || of->heal_ns < until_ns)
        of->heal_ns = until_ns;
    switch (fault->kind) {
    case PLAN_KILL:
    case PLAN_POWER:
        nodes_kill(fault->node, fault->kind == PLAN_POWER, fault->lasts_ns);
        break;
    case PLAN_STOP:
        stop(fault->node);
        break;
    case PLAN_CUT:
        world_net_cut(client);
        break;
    case PLAN_PARTITION:
        world_net_partition(client, until_ns);
        break;
    case PLAN_SLOW_LINK:
        world_net_place(client, 500 * MS_NS, 30000);
        break;
    case PLAN_CLOCK:
        world_set_clocks(fault->node, 0,
                         EPOCH_NS + (fault->number % 200) * 3600 * SECOND_NS -
                             100 * 3600 * SECOND_NS);
        break;
    case PLAN_REVOKE:
        w.server.admitted[client] = false;
        world_observe_signal(world_net_draw_rank(), false);
        break;
    case PLAN_LEAVE:
        leave(fault->node);
        break;
    case PLAN_WIPE:
        wipe(fault->node, fault->lasts_ns);
        break;
    case PLAN_RESTORE:
        back_up_or_restore(fault);
        break;
    case PLAN_FLIP:
        flip(fault);
        break;
    case PLAN_DRAIN:
        w.server.signals[world_rank_of(fault->node)].drain = of->up;
        world_server_signal(world_rank_of(fault->node));
        break;
    case PLAN_HANG:
        if (of->up)
            world_hold(fault->node, until_ns);
        break;
    case PLAN_APART:
        part(fault, until_ns);
        break;
    case PLAN_GPU:
    case PLAN_GPUS:
        begin_at_gpus(fault);
        break;
    default:
        begin_on_disk(fault);
        break;
    }
}

/* Does what is due at this time or step, and notes when more is due. */
static void handle_due_events(void)
{
    const uint64_t now_ns = world_now_ns();
    uint64_t next_ns = site_pass(w.plan, w.passed_ns, now_ns);
    w.passed_ns = now_ns;
    w.look_step = UINT64_MAX;
    for (uint32_t i = 0; i < w.plan->num_faults; i++) {
        const plan_fault *fault = &w.plan->faults[i];
        if (w.done[i])
            continue;
        if (fault->at_step > 0 ? w.steps >= fault->at_step : now_ns >= fault->at_ns) {
            w.done[i] = true;
            begin_fault(fault);
        } else if (fault->at_step > 0) {
            w.look_step = fault->at_step < w.look_step ? fault->at_step : w.look_step;
        } else if (fault->at_ns < next_ns) {
            next_ns = fault->at_ns;
        }
    }
    if (!w.calm && now_ns >= w.plan->healed_ns) {
        w.calm = true;
        for (uint32_t i = 0; i < w.plan->job.num_clients; i++)
            stub_trainer_calm(&w.trainers[i]);
    }
    if (now_ns >= w.fall_ns) {
        w.fall_ns = WORLD_NEVER;
        world_trace("all ranks are ended");
        nodes_kill_ranks(false, 200 * MS_NS);
    }
    next_ns = w.fall_ns < next_ns ? w.fall_ns : next_ns;
    for (uint32_t i = WORLD_SERVER; i < nodes_end(); i++) {
        node *of = &w.nodes[i];
        if (!nodes_exist(i))
            continue;
        if (now_ns >= of->heal_ns)
            heal(i);
        if (!of->up && now_ns >= of->start_ns)
            nodes_start(i);
        next_ns = of->heal_ns < next_ns ? of->heal_ns : next_ns;
        next_ns = !of->up && of->start_ns < next_ns ? of->start_ns : next_ns;
    }
    w.next_ns = next_ns;
    w.look_ns = !w.calm && w.plan->healed_ns < next_ns ? w.plan->healed_ns : next_ns;
}

/* ---- one world ------------------------------------------------------------------------------- */

static bool set_up_job(void)
{
    fedge_error err;
    const char *text = w.plan->job.text;
    if (fedge_strategy_job_parse(text, strlen(text), "job.json", &w.job, &err) != FEDGE_OK) {
        world_fail("the job is refused: %s", err.message);
        return false;
    }
    if (w.plan->job.needs_examples) {
        char csv[WORLD_JOB_EXAMPLES_TEXT];
        const size_t size = world_job_examples(&w.plan->job, csv);
        world_disk_write(WORLD_SERVER, WORLD_JOB_EXAMPLES, csv, size);
    }
    return true;
}

static void begin(const world_plan *plan, world_outcome *outcome)
{
    memset(&w, 0, sizeof(w));
    memset(outcome, 0, sizeof(*outcome));
    w.plan = plan;
    w.outcome = outcome;
    world_scheduler_begin(plan->seed + ((uint64_t)plan->order << 48));
    world_disk_begin(plan->seed);
    world_heap_begin();
    world_net_begin();
    world_ranks_begin();
    world_gpus_begin(plan->num_gpus);
    w.server = (world_server){.job_text = plan->job.text,
                              .accumulator = plan->num_gpus == 0 ? "cpu"
                                             : plan->needs_gpus  ? "gpu"
                                                                 : "auto",
                              .heartbeat_s = 5,
                              .num_devices = plan_num_clients(plan),
                              .queue_bytes = plan->queue_bytes};
    w.empty = world_disk_copy_of(WORLD_SERVER);
    for (uint32_t rank = 0; rank < WORLD_MAX_RANKS; rank++)
        w.machines[rank] = rank;
    w.fall_ns = WORLD_NEVER;
    for (uint32_t i = WORLD_SERVER; i < nodes_end(); i++) {
        w.nodes[i] = (node){.heal_ns = WORLD_NEVER};
        if (!nodes_exist(i))
            continue;
        if (i >= WORLD_FIRST_RANK)
            w.nodes[i].start_ns = WORLD_NEVER;
        if (i >= WORLD_FIRST_RANK && plan->shares_disk)
            world_disk_share(i, WORLD_SERVER);
        world_set_clocks(i, 0, EPOCH_NS);
        heal(i);
    }
    site_oracle_begin(plan);
    for (uint32_t i = 0; i < plan_num_clients(plan); i++) {
        w.server.admitted[i] = true;
        w.nodes[WORLD_FIRST_CLIENT + i].start_ns = plan->starts_ns[i];
    }
    for (uint32_t i = 0; i < plan->job.num_clients; i++) {
        stub_trainer_init(&w.trainers[i], plan->seed, i);
        w.trainers[i].trained = observe_trained;
        w.callbacks[i] = stub_trainer_callbacks(&w.trainers[i]);
        w.clients[i] =
            (world_client){.index = i, .callbacks = &w.callbacks[i], .backoff_cap_ms = 2000};
        if (plan->sites[i].kind != PLAN_SITE_NONE)
            w.clients[i].site_file = SITE_FILE;
        site_write(plan, i, 0);
    }
}

static void set_up_hostile(void)
{
    for (uint32_t i = 0; i < w.plan->num_hostile; i++) {
        w.hostile[i] = (hostile_client){.index = w.plan->job.num_clients + i,
                                        .seed = w.plan->seed,
                                        .plan = &w.job->plan,
                                        .takes_back = w.plan->num_ranks > 1,
                                        .until_ns = w.plan->hostile_until_ns};
        w.nodes[nodes_first_hostile() + i].gone = true; /* it is started once */
    }
    if (!w.plan->server_is_hostile)
        return;
    w.hostile_server = (hostile_server){
        .seed = w.plan->seed, .plan = &w.job->plan, .until_ns = w.plan->hostile_until_ns};
    w.nodes[WORLD_SERVER].gone = true;
    for (uint32_t i = 0; i < w.plan->job.num_clients; i++) {
        w.trainers[i].may_lose = true; /* a new run may discard it */
        w.clients[i].strict = true;
        w.nodes[WORLD_FIRST_CLIENT + i].excused = true;
    }
}

/* Clients that missed the server's goodbye look for it for ever, so they are stopped. */
static void send_home(void)
{
    w.look_ns = 0; /* no start is due any more */
    for (uint32_t i = WORLD_FIRST_CLIENT; i < nodes_num(); i++) {
        w.nodes[i].gone = true;
        w.nodes[i].start_ns = WORLD_NEVER;
        if (i < nodes_first_hostile())
            world_client_stop(&w.clients[i - WORLD_FIRST_CLIENT]);
        else
            hostile_client_stop(&w.hostile[i - nodes_first_hostile()]);
    }
}

static bool is_over(void)
{
    const bool ends = w.plan->server_is_hostile && world_now_ns() >= w.plan->hostile_until_ns;
    w.complete = w.complete || ends;
    bool over = w.complete && !nodes_serve();
    if (over && !w.sent_home) {
        w.sent_home = true;
        send_home();
    }
    for (uint32_t i = WORLD_FIRST_CLIENT; over && i < nodes_num(); i++)
        over = !w.nodes[i].up;
    return over || world_failure();
}

static void check_bounds(void)
{
    for (uint32_t i = WORLD_SERVER; i < nodes_end(); i++) {
        const uint64_t most = MODELS * sizeof(float) * w.plan->job.num_parameters +
                              (!world_is_rank(i)       ? MAX_CLIENT_BYTES
                               : w.plan->num_ranks > 1 ? MAX_SERVER_BYTES + MAX_RANK_BYTES
                                                       : MAX_SERVER_BYTES);
        if (!nodes_exist(i))
            continue;
        if (world_heap_peak(i) > most)
            world_fail("node %u held more than %llu bytes", (unsigned)i, (unsigned long long)most);
        if (world_disk_num_open(i) > MAX_DESCRIPTORS * (nodes_share_disk(i) ? w.num_ranks : 1))
            world_fail("node %u holds more than %d files open", (unsigned)i, MAX_DESCRIPTORS);
    }
    for (uint32_t i = 0; i < w.plan->job.num_clients; i++)
        world_client_check(&w.clients[i]);
}

/* Whether all ranks and honest clients are up and have no faults. */
static bool are_well(void)
{
    for (uint32_t i = WORLD_SERVER; i < nodes_end(); i++) {
        const node *of = &w.nodes[i];
        const bool is_wanted =
            world_is_rank(i) ? world_rank_of(i) < w.num_ranks : i < nodes_first_hostile();
        /* The fault of a rank that is away may be one of the disk that all ranks share. */
        if ((is_wanted || nodes_share_disk(i)) && of->heal_ns != WORLD_NEVER)
            return false;
        if (is_wanted && !of->up && !of->gone)
            return false;
    }
    return true;
}

static_assert(FEDGE_LINK_DEFAULT_HEARTBEAT_S <= FEDGE_DEFAULT_HEARTBEAT_S,
              "docs/guides/network.md: a ping is sent after 20 s of silence");

/* Fails if devices idle while a round needs updates: without faults some message must be sent
 * before the round's deadline ends. Only devices that decline have longer pauses. */
static void check_quiet(void)
{
    const world_job *job = &w.plan->job;
    /* In an asynchronous round the server waits two deadlines for a device that vanished unnoticed.
     */
    const uint64_t most_ns =
        25 * SECOND_NS + (job->asynchronous ? 3 : 1) * job->deadline_ms * MS_NS;
    if (w.written || world_now_ns() < w.quiet_since_ns + most_ns || !w.nodes[WORLD_SERVER].up)
        return;
    if (w.declined || w.plan->num_hostile > 0 || w.plan->server_is_hostile)
        return;
    if (!are_well())
        return;
    world_fail("nothing was said for %.1f s, and the run is not complete",
               (double)(world_now_ns() - w.quiet_since_ns) * 1e-9);
}

/* After the last fault an end of a connection may still have to notice that the other end is gone.
 */
static void check_answers(void)
{
    const node *server = &w.nodes[WORLD_SERVER];
    const uint64_t margin_ns = w.plan->num_faults > 0 ? 40 * SECOND_NS : 0;
    uint64_t calm_ns = w.plan->healed_ns + margin_ns;
    if (server->started_ns + margin_ns > calm_ns)
        calm_ns = server->started_ns + margin_ns;
    if (!are_well())
        calm_ns = WORLD_NEVER;
    answers_check(w.written || w.plan->server_is_hostile ? WORLD_NEVER : calm_ns);
}

/* The time limit of a run, counted from its last fault. */
static uint64_t limit_ns(void)
{
    const world_job *job = &w.plan->job;
    uint64_t declined_ns = 0;
    /* A device that could not read the state of a condition comes back after five minutes. */
    for (uint32_t i = 0; i < job->num_clients; i++) {
        if (w.plan->sites[i].kind != PLAN_SITE_NONE)
            declined_ns = 300 * SECOND_NS;
    }
    return w.plan->healed_ns + declined_ns + 60 * SECOND_NS +
           3 * job->num_rounds * (job->deadline_ms * MS_NS + 10 * SECOND_NS);
}

static void live(void)
{
    const uint64_t end_ns = limit_ns();
    handle_due_events();
    while (!is_over()) {
        (void)world_step(w.next_ns < end_ns ? w.next_ns : end_ns);
        w.steps++;
        if (nodes_notice_deaths() || world_now_ns() >= w.look_ns || w.steps >= w.look_step)
            handle_due_events();
        if (w.steps % 256 == 0) {
            check_bounds();
            check_quiet();
            check_answers();
        }
        if (world_now_ns() >= end_ns || w.steps > MAX_STEPS)
            break;
    }
    if (!is_over() && !w.plan->may_fail) {
        world_fail("the run is not over %.1f s after the last fault (%llu steps)",
                   (double)(world_now_ns() - w.plan->healed_ns) * 1e-9,
                   (unsigned long long)w.steps);
    }
}

static void drop(uint32_t index)
{
    world_heap_drop(index);
    nodes_drop_files(index);
}

void world_set_up(void)
{
    /* Freed memory stays in the program for the next process. */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 28);
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 25);
    (void)mallopt(M_MXFAST, 0); /* else each large block merges all small free ones */
    /* Initialises what a program initialises once, which would otherwise happen in the first node.
     */
    fedge_error err;
    uint8_t hash[32];
    (void)!fedge_ciphers_check(&err);
    (void)fedge_os_cpu_features();
    fedge_sha256("", 0, hash);
    world_at_kill(drop);
}

void world_run(const world_plan *plan, world_outcome *outcome)
{
    begin(plan, outcome);
    if (set_up_job()) {
        set_up_hostile();
        if (!plan->server_is_hostile)
            oracle_begin(w.job, plan_num_clients(plan));
        answers_begin(w.job, plan, w.trainers);
        live();
        oracle_end();
    }
    world_scheduler_end();
    fedge_job_free(w.job);
    world_disk_free_copy(w.empty);
    for (uint32_t i = 0; i < WORLD_MAX_RANKS; i++)
        world_disk_free_copy(w.backups[i]);
    outcome->failed = world_failure();
    outcome->complete = w.complete;
    (void)snprintf(outcome->why, sizeof(outcome->why), "%s",
                   outcome->failed ? world_failure() : "");
    outcome->server_bytes = world_heap_peak(WORLD_SERVER);
    for (uint32_t i = WORLD_FIRST_CLIENT; i < nodes_first_hostile(); i++) {
        const uint64_t bytes = world_heap_peak(i);
        outcome->client_bytes = bytes > outcome->client_bytes ? bytes : outcome->client_bytes;
    }
    outcome->hash = world_trace_hash();
    outcome->steps = w.steps;
    outcome->seconds = (double)world_now_ns() * 1e-9;
    world_ranks_end();
    world_net_end();
    world_disk_end();
}
