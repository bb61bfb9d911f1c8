/* Runs of a sweep that several ranks share. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/simulate/sweep/sweep_internal.h"

uint32_t fedge_sweep_num_shared(uint32_t num_runs, uint32_t num_ranks)
{
    const uint32_t rest = num_runs % num_ranks;
    return num_runs < num_ranks || 2 * rest <= num_ranks ? rest : 0;
}

/* Of a run that ranks share: for one that is shared nothing has to be known of memory. */
static void on_begun(void *user, uint64_t promised)
{
    (void)user;
    (void)promised;
}

/* The first rank of a group has what came of it; what ends one run ends them all. */
static fedge_status take_outcome(const fedge_sweep *sweep, const sweep_run *run, sweep_outcome *of,
                                 fedge_status ended, fedge_error *err)
{
    if (ended == FEDGE_CANCELLED || (of->begun && fedge_sweep_is_machines(ended)))
        return ended;
    of->done = true;
    of->failed = ended != FEDGE_OK;
    if (of->failed)
        memcpy(of->why, err->message, sizeof(of->why));
    if (!sweep->options->quiet && !sweep->options->json)
        fedge_sweep_print_run(sweep, run, of);
    return FEDGE_OK;
}

/* Any rank of a group but the first: a failure within the rounds is one that the first would wait
 * for in vain. */
static void help(const fedge_sweep *sweep, const sweep_run *run, const sweep_watch *watch)
{
    sweep_outcome of;
    fedge_error err;
    const fedge_status ended = fedge_sweep_run_one(sweep, run, watch, &of, &err);
    if (ended != FEDGE_OK && of.begun) {
        fprintf(stderr, "fedge-simulate: rank %" PRIu32 " on %s: %s\n", sweep->collective->rank,
                sweep->collective->host, err.message);
        fedge_collective_abort(sweep->collective, 1);
    }
}

fedge_status fedge_sweep_share(fedge_sweep *sweep, uint32_t num_threads, fedge_cancel_fn cancel,
                               void *user, fedge_status status, fedge_error *err)
{
    const fedge_collective *all = sweep->collective;
    const uint32_t num_runs = sweep->num_combinations * sweep->num_seeds;
    const uint32_t num_shared = fedge_sweep_num_shared(num_runs, all->num_ranks);
    assert(num_shared > 0);
    const uint32_t group = all->rank % num_shared, at = num_runs - num_shared + group;
    const uint32_t combination = at % sweep->num_combinations;
    const sweep_watch watch = {.cancel = cancel, .begun = on_begun, .user = user};
    fedge_collective part;
    status = fedge_collective_agree(all, status, NULL, 0, err);
    if (status == FEDGE_OK) {
        status = fedge_collective_split(all, group, &part, err);
        status = fedge_collective_agree(all, status, NULL, 0, err);
    }
    if (status != FEDGE_OK)
        return status;
    const bool shared = sweep->shareable[combination] && !fedge_collective_is_alone(&part);
    const bool leads = part.rank == 0;
    const sweep_run run = {.number = at + 1,
                           .combination = combination,
                           .seed = at / sweep->num_combinations,
                           .num_threads = num_threads,
                           .alone = num_shared == 1,
                           .collective = shared ? &part : NULL};
    if (leads) {
        sweep_outcome *of = &sweep->outcomes[(size_t)run.combination * sweep->num_seeds + run.seed];
        const fedge_status ended = fedge_sweep_run_one(sweep, &run, &watch, of, err);
        status = take_outcome(sweep, &run, of, ended, err);
    } else if (shared) {
        help(sweep, &run, &watch);
    }
    fedge_collective_close(&part);
    return status;
}
