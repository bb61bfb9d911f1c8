#include "tests/world/plan.h"

#include <errno.h>
#include <string.h>

#include "edge/core/rng.h"
#include "tests/world/ranks.h"
#include "tests/world/scheduler.h"

#define SECOND_NS ((uint64_t)1000000000)
#define MS_NS ((uint64_t)1000000)

const char *plan_fault_text(plan_fault_kind kind)
{
    static const char *const TEXTS[] = {
#define PLAN_TEXT(kind, text) [PLAN_##kind] = (text),
        PLAN_FAULTS(PLAN_TEXT)
#undef PLAN_TEXT
    };
    return TEXTS[kind];
}

static uint64_t below(fedge_rng *draw, uint64_t bound)
{
    return fedge_rng_u64(draw) % bound;
}

/* Draws a kind of fault by its weight. */
static plan_fault_kind draw_kind(fedge_rng *draw)
{
    static const uint8_t WEIGHTS[PLAN_NUM_KINDS] = {
        /* Faults of GPUs are drawn separately. */
        [PLAN_KILL] = 20,     [PLAN_POWER] = 20,    [PLAN_STOP] = 6,      [PLAN_DIE_AT_CALL] = 20,
        [PLAN_CUT] = 10,      [PLAN_PARTITION] = 6, [PLAN_SLOW_LINK] = 5, [PLAN_SLOW_DISK] = 8,
        [PLAN_BAD_CALL] = 10, [PLAN_FULL_DISK] = 4, [PLAN_CLOCK] = 4,     [PLAN_REVOKE] = 3,
        [PLAN_LEAVE] = 3,     [PLAN_WIPE] = 3,      [PLAN_RESTORE] = 3,   [PLAN_FLIP] = 3,
        [PLAN_DRAIN] = 3};
    uint32_t sum = 0, kind = 0;
    for (uint32_t i = 0; i < PLAN_NUM_KINDS; i++)
        sum += WEIGHTS[i];
    uint32_t left = fedge_rng_below(draw, sum);
    for (; left >= WEIGHTS[kind]; kind++)
        left -= WEIGHTS[kind];
    return (plan_fault_kind)kind;
}

static int draw_error(fedge_rng *draw)
{
    static const int ERRORS[] = {EIO, ENOSPC, EINTR, EMFILE};
    return ERRORS[fedge_rng_below(draw, sizeof(ERRORS) / sizeof(ERRORS[0]))];
}

static void draw_fault(const world_plan *of, uint32_t index, plan_fault *out)
{
    fedge_rng draw = fedge_rng_stream(of->seed, FEDGE_PURPOSE_TEST, 3, index, 0);
    const uint32_t client = WORLD_FIRST_CLIENT + fedge_rng_below(&draw, of->job.num_clients);
    /* Each draw has its own statement, as the order in an initializer is undefined. */
    out->kind = draw_kind(&draw);
    out->node = fedge_rng_below(&draw, 3) > 0 ? WORLD_SERVER : client;
    /* Early faults are more likely, as many runs are short. */
    const uint64_t before_ns = 1 + below(&draw, 12 * SECOND_NS);
    out->at_ns = below(&draw, before_ns);
    out->lasts_ns = 10 * MS_NS + below(&draw, 4 * SECOND_NS);
    const uint64_t most = 1 + below(&draw, 400);
    out->number = 1 + below(&draw, most);
    out->error = draw_error(&draw);
    switch (out->kind) {
    case PLAN_CUT:
    case PLAN_PARTITION:
    case PLAN_SLOW_LINK:
    case PLAN_REVOKE:
    case PLAN_LEAVE:
    case PLAN_WIPE:
        out->node = client;
        break;
    case PLAN_RESTORE:
    case PLAN_DRAIN:
        out->node = WORLD_SERVER;
        break;
    case PLAN_KILL:
    case PLAN_POWER:
        out->at_step = fedge_rng_below(&draw, 2) == 0 ? 1 + below(&draw, 5000) : 0;
        break;
    default:
        break;
    }
}

/* Moves some of the server's faults to other ranks. */
static void spread_fault(plan_fault *fault, uint32_t rank)
{
    switch (fault->kind) {
    case PLAN_RESTORE:
    case PLAN_REVOKE:
        break;
    default:
        if (fault->node == WORLD_SERVER)
            fault->node = world_rank_node(rank);
        break;
    }
}

/* Mostly short; some so long that the other ranks give up, and some almost. */
static uint64_t draw_silence(fedge_rng *draw)
{
    const uint32_t kind = fedge_rng_below(draw, 4);
    if (kind < 2)
        return 10 * MS_NS + below(draw, 5 * SECOND_NS);
    return kind == 2 ? below(draw, 85 * SECOND_NS) : 92 * SECOND_NS + below(draw, 30 * SECOND_NS);
}

/* What happens to several ranks alone, or matters to them most; a backup is restored, too. */
static void draw_rank_fault(world_plan *out, fedge_rng *draw)
{
    static const plan_fault_kind KINDS[] = {PLAN_HANG,  PLAN_CUT,       PLAN_RESTORE, PLAN_POWER,
                                            PLAN_POWER, PLAN_SLOW_DISK, PLAN_APART,   PLAN_WIPE};
    plan_fault *fault = &out->faults[out->num_faults++];
    *fault = (plan_fault){.kind = KINDS[fedge_rng_below(draw, out->shares_disk ? 6 : 8)]};
    const uint64_t before_ns = 1 + below(draw, 12 * SECOND_NS);
    fault->at_ns = below(draw, before_ns);
    fault->lasts_ns = fault->kind == PLAN_HANG || fault->kind == PLAN_APART
                          ? draw_silence(draw)
                          : 10 * MS_NS + below(draw, 4 * SECOND_NS);
    fault->number = fedge_rng_below(draw, out->num_ranks);
    fault->node = world_rank_node(fedge_rng_below(draw, out->num_ranks));
    if (fault->kind == PLAN_POWER) {
        /* By steps, of which there are most while updates come. */
        fault->at_step = 200 + below(draw, 4000);
        fault->node = fedge_rng_below(draw, 2) == 0 ? WORLD_SERVER : fault->node;
    }
    if (fault->kind == PLAN_CUT)
        fault->node = WORLD_FIRST_CLIENT + fedge_rng_below(draw, out->job.num_clients);
    if (fault->kind == PLAN_WIPE) {
        /* Not that of rank 0, which has the run. */
        fault->node = world_rank_node(1 + fedge_rng_below(draw, out->num_ranks - 1));
    }
    if (fault->kind == PLAN_RESTORE) {
        fault->node = WORLD_SERVER;
        plan_fault *restored = &out->faults[out->num_faults++];
        *restored = *fault;
        restored->at_ns += below(draw, 5 * SECOND_NS);
    }
}

/* One server in six has several ranks if the job permits it. A separate stream draws them. */
static void draw_ranks(world_plan *out)
{
    static const uint64_t DELAYS_NS[] = {100000, 5 * MS_NS, 50 * MS_NS};
    fedge_rng draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 5, 0, 0);
    out->num_ranks = 1;
    if (fedge_rng_below(&draw, 6) > 0 || out->job.asynchronous || out->server_is_hostile)
        return;
    out->num_ranks = 2 + fedge_rng_below(&draw, WORLD_MAX_RANKS - 1);
    const bool vary = fedge_rng_below(&draw, 2) == 0;
    out->shares_disk = fedge_rng_below(&draw, 2) == 0;
    out->ranks_vary = vary;
    out->rank_delay_ns = DELAYS_NS[fedge_rng_below(&draw, 3)];
    for (uint32_t i = 0; i < out->num_faults; i++)
        spread_fault(&out->faults[i], fedge_rng_below(&draw, out->num_ranks));
    draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 10, 0, 0);
    if (fedge_rng_below(&draw, 2) > 0)
        out->num_hostile = 0;
    const uint32_t last = out->num_faults + fedge_rng_below(&draw, 5);
    while (out->num_faults > 0 && out->num_faults < last && out->num_faults + 2 <= PLAN_MAX_FAULTS)
        draw_rank_fault(out, &draw);
}

/* One world in four has GPUs. Separate streams draw them, so worlds without GPUs keep all else
 * unchanged. */
static void draw_gpus(world_plan *out)
{
    static const int ERRORS[] = {EIO, EIO, ETIME, ENOMEM};
    fedge_rng draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 4, 0, 0);
    if (fedge_rng_below(&draw, 4) > 0)
        return;
    out->num_gpus = 1 + fedge_rng_below(&draw, 4);
    out->needs_gpus = fedge_rng_below(&draw, 4) == 0;
    const uint32_t last = out->num_faults + 1 + fedge_rng_below(&draw, 3);
    while (out->num_faults > 0 && out->num_faults < last) {
        plan_fault *fault = &out->faults[out->num_faults];
        draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 4, ++out->num_faults, 0);
        *fault = (plan_fault){.node = WORLD_SERVER};
        fault->kind = fedge_rng_below(&draw, 3) > 0 ? PLAN_GPU : PLAN_GPUS;
        fault->at_ns = below(&draw, 4 * SECOND_NS);
        fault->lasts_ns = SECOND_NS + below(&draw, 8 * SECOND_NS);
        /* A list may name GPUs that do not exist, or none, which means "all". */
        fault->number = fault->kind == PLAN_GPU ? 1 + below(&draw, 30)
                                                : below(&draw, (uint64_t)2 << out->num_gpus);
        fault->error = ERRORS[fedge_rng_below(&draw, 4)];
    }
}

static void draw_places(world_plan *out, fedge_rng *draw, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const bool near = fedge_rng_below(draw, 3) > 0;
        out->delay_ns[i] = near ? 1 + below(draw, 5 * MS_NS) : 1 + below(draw, 300 * MS_NS);
        out->ns_per_byte[i] = near ? below(draw, 20) : below(draw, 20000);
        out->starts_ns[i] = below(draw, fedge_rng_below(draw, 4) == 0 ? 5 * SECOND_NS : SECOND_NS);
    }
}

/* One world in five has hostile clients. A separate stream draws them, so all else is unchanged
 * without them. */
static void draw_hostile(world_plan *out)
{
    fedge_rng draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 5, 0, 0);
    if (fedge_rng_below(&draw, 5) > 0)
        return;
    out->num_hostile = 1 + fedge_rng_below(&draw, PLAN_MAX_HOSTILE);
    out->hostile_until_ns = SECOND_NS + below(&draw, 20 * SECOND_NS);
    draw_places(out, &draw, out->job.num_clients, plan_num_clients(out));
}

/* One world in twenty has a hostile server and no other faults. */
static void draw_hostile_server(world_plan *out)
{
    fedge_rng draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 8, 0, 0);
    if (fedge_rng_below(&draw, 20) > 0)
        return;
    out->server_is_hostile = true;
    out->num_hostile = out->num_faults = 0;
    out->hostile_until_ns = 4 * SECOND_NS + below(&draw, 16 * SECOND_NS);
}

bool plan_site_forbids(const plan_site *site)
{
    return site->kind > PLAN_SITE_ALLOWS;
}

/* Draws a kind of site that forbids the job. */
static plan_site_kind draw_forbidding(const world_plan *of, fedge_rng *draw)
{
    const plan_site_kind kind =
        (plan_site_kind)(PLAN_SITE_JOBS + fedge_rng_below(draw, PLAN_NUM_SITES - PLAN_SITE_JOBS));
    const bool fits = (kind != PLAN_SITE_DATA || !of->job.external) &&
                      (kind != PLAN_SITE_EPOCHS || !strstr(of->job.text, "\"local-epochs\":1"));
    return fits ? kind : PLAN_SITE_JOBS;
}

static void draw_condition(plan_site *site, fedge_rng *draw)
{
    site->condition =
        (plan_condition)(1 + fedge_rng_below(draw, (uint32_t)PLAN_NUM_CONDITIONS - 1));
    if (fedge_rng_below(draw, 2) == 0) {
        site->unmet_from_ns = below(draw, 6 * SECOND_NS);
        site->unmet_until_ns = site->unmet_from_ns + 300 * MS_NS + below(draw, 5 * SECOND_NS);
    }
}

/* One world in four has clients with sites. Few sites forbid the job, so that rounds can open
 * without their clients. */
static void draw_sites(world_plan *out)
{
    fedge_rng draw = fedge_rng_stream(out->seed, FEDGE_PURPOSE_TEST, 7, 0, 0);
    uint32_t spare = out->job.num_clients - out->job.min_available_nodes;
    if (fedge_rng_below(&draw, 4) > 0)
        return;
    for (uint32_t i = 0; i < out->job.num_clients; i++) {
        plan_site *site = &out->sites[i];
        const uint32_t kind = fedge_rng_below(&draw, 10);
        if (kind < 3)
            continue;
        site->kind = PLAN_SITE_ALLOWS;
        if (kind >= 7 && spare > 0) {
            site->kind = draw_forbidding(out, &draw);
            spare--;
        }
        if (fedge_rng_below(&draw, 2) == 0)
            draw_condition(site, &draw);
        /* A device that disconnects between tasks would be away for minutes when its condition is
         * not met. */
        site->hangs_up = site->unmet_until_ns == 0 && fedge_rng_below(&draw, 6) == 0;
    }
}

uint32_t plan_num_clients(const world_plan *of)
{
    return of->job.num_clients + of->num_hostile;
}

void plan_draw(uint64_t seed, world_plan *out)
{
    fedge_rng draw = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 2, 0, 0);
    memset(out, 0, sizeof(*out));
    out->seed = seed;
    world_job_draw(&draw, &out->job);
    out->num_workers = 1 + fedge_rng_below(&draw, 3);
    out->queue_bytes = fedge_rng_below(&draw, 4) == 0 ? 3000 : (uint64_t)64 << 20;
    out->sync_ns = below(&draw, 3) == 0 ? 20 * MS_NS : 200000;
    draw_places(out, &draw, 0, out->job.num_clients);
    draw_hostile(out);
    draw_sites(out);
    /* One world in eight has no faults; failures there need none. */
    out->num_faults = fedge_rng_below(&draw, 8) == 0 ? 0 : 1 + fedge_rng_below(&draw, 6);
    for (uint32_t i = 0; i < out->num_faults; i++)
        draw_fault(out, i, &out->faults[i]);
    draw_hostile_server(out);
    draw_ranks(out);
    if (!out->server_is_hostile && out->num_ranks == 1)
        draw_gpus(out);
    plan_finish(out);
}

void plan_finish(world_plan *of)
{
    of->healed_ns = of->num_hostile > 0 || of->server_is_hostile ? of->hostile_until_ns : 0;
    of->may_fail = false;
    of->silent_ns = 0;
    for (uint32_t i = 0; i < of->job.num_clients; i++) {
        const uint64_t until_ns = of->sites[i].unmet_until_ns;
        of->healed_ns = until_ns > of->healed_ns ? until_ns : of->healed_ns;
    }
    for (uint32_t i = 0; i < of->num_faults; i++) {
        const plan_fault *fault = &of->faults[i];
        const uint64_t over_ns = fault->at_ns + fault->lasts_ns;
        of->healed_ns = over_ns > of->healed_ns ? over_ns : of->healed_ns;
        of->may_fail = of->may_fail || fault->kind == PLAN_FLIP;
        if (fault->kind == PLAN_HANG || fault->kind == PLAN_APART)
            of->silent_ns += fault->lasts_ns;
    }
}
