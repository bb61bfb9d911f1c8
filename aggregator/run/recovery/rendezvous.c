#include "aggregator/run/recovery/rendezvous.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/store/disk.h"

#define FAILED UINT64_MAX /* in place of a size */

/* Not shared with a rank below: this one locks it, and numbers it if it has no number yet. */
static fedge_status take_disk(const char *state_dir, uint32_t rank, fedge_rank_disks *disks,
                              fedge_state *state, fedge_error *err)
{
    uint64_t disk = 0;
    fedge_status status = fedge_disk_read(state_dir, false, &disk, err);
    for (uint32_t lower = 0; status == FEDGE_OK && disk != 0 && lower < rank; lower++) {
        if (disks->disks[lower] == disk) {
            disks->disks[rank] = disk;
            return FEDGE_OK;
        }
    }
    if (status == FEDGE_OK)
        status = fedge_state_open(state_dir, state, err);
    return status == FEDGE_OK ? fedge_disk_read(state_dir, true, &disks->disks[rank], err) : status;
}

fedge_status fedge_rendezvous(const fedge_collective *collective, fedge_status status,
                              const char *state_dir, char run_id[FEDGE_RUN_ID_TEXT],
                              fedge_rank_disks *disks, fedge_state *state, fedge_error *err)
{
    *disks = (fedge_rank_disks){.num_ranks = 1};
    if (fedge_collective_is_alone(collective)) {
        return status == FEDGE_OK ? fedge_disk_read(state_dir, false, &disks->disks[0], err)
                                  : status;
    }
    disks->rank = collective->rank;
    disks->num_ranks = collective->num_ranks;
    if (status == FEDGE_OK && collective->rank == 0)
        status = fedge_disk_read(state_dir, true, &disks->disks[0], err);
    status = fedge_collective_agree(collective, status, NULL, 0, err);
    if (status != FEDGE_OK)
        return status;
    fedge_collective_broadcast(collective, run_id, FEDGE_RUN_ID_TEXT, 0);
    fedge_collective_broadcast(collective, &disks->disks[0], sizeof(disks->disks[0]), 0);
    /* One after another, so that the first of a disk numbers it for the others. */
    for (uint32_t rank = 1; rank < collective->num_ranks; rank++) {
        if (rank == collective->rank)
            status = take_disk(state_dir, rank, disks, state, err);
        fedge_collective_broadcast(collective, &disks->disks[rank], sizeof(disks->disks[rank]),
                                   rank);
    }
    return fedge_collective_agree(collective, status, NULL, 0, err);
}

void fedge_rendezvous_broadcast_command(const fedge_collective *collective,
                                        fedge_rendezvous_command *word)
{
    fedge_collective_broadcast(collective, word, sizeof(*word), 0);
}

void fedge_rendezvous_broadcast_phase(const fedge_collective *collective,
                                      fedge_journal_phase *phase, fedge_journal_task *tasks,
                                      uint32_t num_tasks)
{
    fedge_collective_broadcast(collective, phase, sizeof(*phase), 0);
    fedge_collective_broadcast(collective, tasks, num_tasks * sizeof(*tasks), 0);
}

fedge_status fedge_rendezvous_send_updates(const fedge_collective *collective,
                                           fedge_recovered_updates *recovered, fedge_status status,
                                           fedge_error *err)
{
    uint8_t *bytes = NULL;
    uint64_t size = FAILED;
    if (status == FEDGE_OK)
        status = fedge_recovered_updates_pack(recovered, &bytes, &size, err);
    if (status != FEDGE_OK)
        size = FAILED;
    fedge_collective_send(collective, &size, sizeof(size), 0);
    if (status == FEDGE_OK)
        fedge_collective_send(collective, bytes, (size_t)size, 0);
    free(bytes);
    return status;
}

fedge_status fedge_rendezvous_receive_updates(const fedge_collective *collective, uint32_t from,
                                              fedge_recovered_updates *recovered, fedge_error *err)
{
    uint64_t size = 0;
    fedge_collective_receive(collective, &size, sizeof(size), from);
    if (size == FAILED)
        return fedge_fail(err, FEDGE_CLOSED, "rank %u has failed", from);
    uint8_t *bytes = malloc((size_t)size + 1);
    if (!bytes) { /* it would send in vain */
        fedge_collective ending = *collective;
        fedge_collective_abort(&ending, 1);
    }
    fedge_collective_receive(collective, bytes, (size_t)size, from);
    const fedge_status status = fedge_recovered_updates_unpack(recovered, bytes, size, err);
    free(bytes);
    return status;
}

fedge_status fedge_rendezvous_receive_weights(const fedge_collective *collective,
                                              fedge_recovered_updates *recovered, fedge_error *err)
{
    uint64_t count = 0;
    fedge_collective_receive(collective, &count, sizeof(count), 0);
    if (count == FAILED)
        return fedge_fail(err, FEDGE_CLOSED, "rank 0 has failed");
    for (uint32_t i = 0; i < recovered->num; i++) {
        uint32_t *weight = &recovered->items[i].weight;
        fedge_collective_receive(collective, weight, sizeof(*weight), 0);
    }
    return FEDGE_OK;
}

void fedge_rendezvous_send_weights(const fedge_collective *collective, uint32_t to,
                                   const fedge_recovered_updates *recovered, fedge_status status)
{
    const uint64_t count = status == FEDGE_OK ? recovered->num : FAILED;
    fedge_collective_send(collective, &count, sizeof(count), to);
    for (uint32_t i = 0; status == FEDGE_OK && i < recovered->num; i++)
        fedge_collective_send(collective, &recovered->items[i].weight, sizeof(uint32_t), to);
}
