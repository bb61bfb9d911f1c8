#include "aggregator/cluster/protocol/slot_lease.h"

#include <assert.h>

static fedge_claim_action grant(fedge_claim *claim, uint32_t rank, uint64_t task_id)
{
    *claim = (fedge_claim){
        .state = FEDGE_CLAIM_HELD, .rank = rank, .task_id = task_id, .number = claim->number + 1};
    return FEDGE_CLAIM_GRANT;
}

fedge_claim_action fedge_claim_ask(fedge_claim *claim, uint32_t rank, uint64_t task_id)
{
    switch (claim->state) {
    case FEDGE_CLAIM_FREE:
        return grant(claim, rank, task_id);
    case FEDGE_CLAIM_HELD:
        if (claim->rank == rank && claim->task_id == task_id)
            return grant(claim, rank, task_id);
        claim->state = FEDGE_CLAIM_RECALLED;
        claim->asked_rank = rank;
        claim->asked_task = task_id;
        return FEDGE_CLAIM_RECALL;
    case FEDGE_CLAIM_RECALLED:
        claim->asked_rank = rank;
        claim->asked_task = task_id;
        return FEDGE_CLAIM_WAIT;
    case FEDGE_CLAIM_COUNTED:
        break;
    }
    return FEDGE_CLAIM_TELL;
}

fedge_claim_action fedge_claim_released(fedge_claim *claim, uint32_t rank)
{
    /* A recall that crossed the result is answered too. */
    if (claim->state != FEDGE_CLAIM_RECALLED || claim->rank != rank)
        return FEDGE_CLAIM_WAIT;
    return grant(claim, claim->asked_rank, claim->asked_task);
}

fedge_claim_action fedge_claim_validated(fedge_claim *claim, uint32_t rank, uint32_t number,
                                         bool valid)
{
    const bool asked = claim->state == FEDGE_CLAIM_RECALLED;
    if ((claim->state != FEDGE_CLAIM_HELD && !asked) || claim->rank != rank)
        return FEDGE_CLAIM_WAIT;
    if (valid) {
        claim->state = FEDGE_CLAIM_COUNTED;
        return asked ? FEDGE_CLAIM_TELL : FEDGE_CLAIM_WAIT;
    }
    if (!asked && claim->number == number) { /* else the release follows, or another upload */
        claim->state = FEDGE_CLAIM_FREE;
    }
    return FEDGE_CLAIM_WAIT;
}

fedge_hold_answer fedge_hold_grant(fedge_hold *hold, uint64_t task_id, uint32_t number)
{
    hold->number = number;
    if (hold->finishing || hold->accepted) {
        assert(hold->accepted || hold->task_id == task_id);
        return FEDGE_HOLD_IGNORE;
    }
    const bool same = hold->uploading && hold->task_id == task_id;
    *hold = (fedge_hold){.task_id = task_id, .number = number, .uploading = true};
    return same ? FEDGE_HOLD_RESUME : FEDGE_HOLD_BEGIN;
}

void fedge_hold_finish(fedge_hold *hold)
{
    assert(hold->uploading);
    hold->uploading = false;
    hold->finishing = true;
}

bool fedge_hold_recall(fedge_hold *hold)
{
    hold->recalled = hold->finishing;
    hold->uploading = false;
    return !hold->finishing;
}

bool fedge_hold_validated(fedge_hold *hold, bool valid)
{
    const bool recalled = hold->recalled && !valid;
    hold->finishing = false;
    hold->recalled = false;
    hold->accepted = valid;
    return recalled;
}
