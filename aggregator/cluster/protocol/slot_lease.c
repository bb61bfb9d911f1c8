#include "aggregator/cluster/protocol/slot_lease.h"

#include <assert.h>

static fedge_slot_lease_action grant(fedge_slot_lease *lease, uint32_t rank, uint64_t task_id)
{
    *lease = (fedge_slot_lease){
        .state = FEDGE_LEASE_HELD, .rank = rank, .task_id = task_id, .number = lease->number + 1};
    return FEDGE_LEASE_GRANT;
}

fedge_slot_lease_action fedge_slot_lease_request(fedge_slot_lease *lease, uint32_t rank,
                                                 uint64_t task_id)
{
    switch (lease->state) {
    case FEDGE_LEASE_FREE:
        return grant(lease, rank, task_id);
    case FEDGE_LEASE_HELD:
        if (lease->rank == rank && lease->task_id == task_id)
            return grant(lease, rank, task_id);
        lease->state = FEDGE_LEASE_RECALLED;
        lease->asked_rank = rank;
        lease->asked_task = task_id;
        return FEDGE_LEASE_RECALL;
    case FEDGE_LEASE_RECALLED:
        lease->asked_rank = rank;
        lease->asked_task = task_id;
        return FEDGE_LEASE_WAIT;
    case FEDGE_LEASE_COUNTED:
        break;
    }
    return FEDGE_LEASE_ANSWER_FILLED;
}

fedge_slot_lease_action fedge_slot_lease_give_up(fedge_slot_lease *lease, uint64_t task_id)
{
    const bool held = lease->state == FEDGE_LEASE_HELD;
    lease->task_id = task_id;
    /* Rank 0 itself says at once whether it has the update. */
    if ((!held && lease->state != FEDGE_LEASE_RECALLED) || lease->rank == 0)
        return FEDGE_LEASE_GIVE_UP;
    lease->state = FEDGE_LEASE_RECALLED;
    lease->asked_task = 0;
    return held ? FEDGE_LEASE_RECALL : FEDGE_LEASE_WAIT;
}

fedge_slot_lease_action fedge_slot_lease_released(fedge_slot_lease *lease, uint32_t rank)
{
    /* A recall that crossed the result is answered too. */
    if (lease->state != FEDGE_LEASE_RECALLED || lease->rank != rank)
        return FEDGE_LEASE_WAIT;
    if (lease->asked_task != 0)
        return grant(lease, lease->asked_rank, lease->asked_task);
    lease->state = FEDGE_LEASE_FREE;
    return FEDGE_LEASE_GIVE_UP;
}

fedge_slot_lease_action fedge_slot_lease_validated(fedge_slot_lease *lease, uint32_t rank,
                                                   uint32_t number, bool valid)
{
    const bool asked = lease->state == FEDGE_LEASE_RECALLED;
    if ((lease->state != FEDGE_LEASE_HELD && !asked) || lease->rank != rank)
        return FEDGE_LEASE_WAIT;
    if (valid) {
        lease->state = FEDGE_LEASE_COUNTED;
        return asked ? FEDGE_LEASE_ANSWER_FILLED : FEDGE_LEASE_WAIT;
    }
    if (!asked && lease->number == number) { /* otherwise the release or another upload follows */
        lease->state = FEDGE_LEASE_FREE;
    }
    return FEDGE_LEASE_WAIT;
}

fedge_slot_holder_answer fedge_slot_holder_grant(fedge_slot_holder *holder, uint64_t task_id,
                                                 uint32_t number)
{
    holder->number = number;
    if (holder->finishing || holder->accepted) {
        assert(holder->accepted || holder->task_id == task_id);
        return FEDGE_HOLDER_IGNORE;
    }
    const bool same = holder->uploading && holder->task_id == task_id;
    *holder = (fedge_slot_holder){.task_id = task_id, .number = number, .uploading = true};
    return same ? FEDGE_HOLDER_RESUME : FEDGE_HOLDER_BEGIN;
}

void fedge_slot_holder_finish(fedge_slot_holder *holder)
{
    assert(holder->uploading);
    holder->uploading = false;
    holder->finishing = true;
}

bool fedge_slot_holder_recall(fedge_slot_holder *holder)
{
    holder->recalled = holder->finishing;
    holder->uploading = false;
    return !holder->finishing;
}

bool fedge_slot_holder_validated(fedge_slot_holder *holder, bool valid)
{
    const bool recalled = holder->recalled && !valid;
    holder->finishing = false;
    holder->recalled = false;
    holder->accepted = valid;
    return recalled;
}
