#include "aggregator/run/rendezvous.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/run/ingest/ingest.h"
#include "aggregator/store/disk.h"
#include "edge/core/os.h"

/* ---- which rank reads a folder ----------------------------------------------------------------
 */

bool fedge_rank_disks_reads(const fedge_rank_disks *ranks, uint32_t folder)
{
    const uint64_t disk = ranks->disks[ranks->rank];
    if (folder < ranks->num_ranks && ranks->disks[folder] == disk)
        return folder == ranks->rank;
    for (uint32_t lower = 0; lower < ranks->rank; lower++) {
        if (ranks->disks[lower] == disk)
            return false;
    }
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static fedge_recovered_update *add(fedge_recovered_updates *recovered, fedge_error *err)
{
    if (recovered->num == recovered->capacity) {
        const uint32_t capacity = 2 * recovered->capacity + 16;
        fedge_recovered_update *grown = realloc(recovered->items, capacity * sizeof(*grown));
        if (!grown) {
            (void)fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
            return NULL;
        }
        recovered->items = grown;
        recovered->capacity = capacity;
    }
    recovered->items[recovered->num] = (fedge_recovered_update){0};
    return &recovered->items[recovered->num];
}

static fedge_status take_meta(fedge_recovered_update *update, fedge_error *err)
{
    update->meta = malloc((size_t)update->facts.metadata_size + 1);
    return update->meta ? FEDGE_OK
                        : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
}

static fedge_status add_accepted(fedge_recovered_updates *recovered, fedge_journal *journal,
                                 uint64_t disk, uint32_t folder, fedge_error *err)
{
    const uint32_t num_slots = fedge_journal_get_phase(journal)->num_tasks;
    for (uint32_t slot = 0; slot < num_slots; slot++) {
        const fedge_journal_slot facts = fedge_journal_get_slot(journal, slot);
        if (!facts.accepted)
            continue;
        fedge_recovered_update *update = add(recovered, err);
        if (!update)
            return FEDGE_NO_MEMORY;
        update->slot = slot;
        update->facts = facts;
        update->facts.location = (fedge_journal_location){.disk = disk, .rank = folder};
        FEDGE_TRY(take_meta(update, err));
        recovered->num++;
        FEDGE_TRY(fedge_journal_metadata(journal, slot, update->meta,
                                         facts.metadata_size + (size_t)1, err));
    }
    return FEDGE_OK;
}

static bool is_of_phase(const fedge_journal *journal, const fedge_journal_phase *phase)
{
    const fedge_journal_phase *has = fedge_journal_get_phase(journal);
    return strcmp(has->run_id, phase->run_id) == 0 && strcmp(has->model, phase->model) == 0 &&
           has->incarnation == phase->incarnation && has->num_tasks == phase->num_tasks &&
           has->slot_size == phase->slot_size;
}

static fedge_status read_folder(fedge_recovered_updates *recovered, const char *dir, uint64_t disk,
                                uint32_t folder, const fedge_journal_phase *phase,
                                const fedge_log *log, fedge_error *err)
{
    char path[FEDGE_MAX_PATH];
    fedge_journal *journal = NULL;
    bool exists = false;
    FEDGE_TRY(fedge_journal_make_path(dir, phase->round, phase->attempt, path, err));
    FEDGE_TRY(fedge_os_find(path, &exists, err));
    if (!exists)
        return FEDGE_OK;
    FEDGE_TRY(fedge_journal_recover(path, &journal, err));
    if (fedge_journal_note(journal)[0]) {
        FEDGE_LOG(log, FEDGE_LOG_WARN, "recovered",
                  fedge_log_str("note", fedge_journal_note(journal)));
    }
    if (!is_of_phase(journal, phase)) {
        fedge_journal_free(journal);
        return FEDGE_OK;
    }
    recovered->journals[folder] = journal;
    return add_accepted(recovered, journal, disk, folder, err);
}

fedge_status fedge_recovered_updates_read(fedge_recovered_updates *recovered, const char *state_dir,
                                          const fedge_rank_disks *ranks,
                                          const fedge_journal_phase *phase, const fedge_log *log,
                                          fedge_error *err)
{
    char dir[FEDGE_MAX_PATH];
    const uint64_t disk = ranks->disks[ranks->rank];
    FEDGE_TRY(fedge_disk_folder(state_dir, phase->run_id, FEDGE_DISK_ALL_RANKS, dir, err));
    bool exists = false;
    FEDGE_TRY(fedge_os_find(dir, &exists, err));
    for (uint32_t folder = 1; exists && folder < FEDGE_RANKS_MAX; folder++) {
        FEDGE_TRY(fedge_disk_folder(state_dir, phase->run_id, folder, dir, err));
        if (fedge_rank_disks_reads(ranks, folder))
            FEDGE_TRY(read_folder(recovered, dir, disk, folder, phase, log, err));
    }
    return FEDGE_OK;
}

void fedge_recovered_updates_free(fedge_recovered_updates *recovered)
{
    for (uint32_t i = 0; i < recovered->num; i++)
        free(recovered->items[i].meta);
    free(recovered->items);
    for (uint32_t i = 0; i < FEDGE_RANKS_MAX; i++)
        fedge_journal_free(recovered->journals[i]);
    *recovered = (fedge_recovered_updates){0};
}

/* ---- summing --------------------------------------------------------------------------------- */

static fedge_status sum_one(fedge_recovered_updates *recovered,
                            const fedge_recovered_update *update, const fedge_plan *plan,
                            fedge_accumulator *accumulator, fedge_upload *upload,
                            uint32_t this_rank, fedge_error *err)
{
    fedge_journal *journal = recovered->journals[update->facts.location.rank];
    if (update->weight == 0) {
        return update->facts.location.rank == this_rank
                   ? fedge_journal_lose(journal, update->slot, err)
                   : FEDGE_OK;
    }
    const fedge_message message = {.type = FEDGE_MESSAGE_UPLOAD,
                                   .meta = update->meta,
                                   .meta_size = update->facts.metadata_size};
    FEDGE_TRY(fedge_upload_read(&message, upload, err));
    return fedge_ingest_replay(plan, accumulator, journal, update->slot, upload, update->weight,
                               err);
}

fedge_status fedge_recovered_updates_sum(fedge_recovered_updates *recovered, const fedge_plan *plan,
                                         fedge_accumulator *accumulator, uint32_t this_rank,
                                         fedge_error *err)
{
    fedge_status status = FEDGE_OK;
    fedge_upload *upload = malloc(sizeof(*upload));
    if (!upload)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an upload");
    for (uint32_t i = 0; i < recovered->num; i++) {
        FEDGE_TRY_OR(
            sum_one(recovered, &recovered->items[i], plan, accumulator, upload, this_rank, err),
            done);
    }
done:
    free(upload);
    return status;
}

/* ---- between ranks --------------------------------------------------------------------------- */

fedge_status fedge_recovered_updates_pack(const fedge_recovered_updates *recovered, uint8_t **bytes,
                                          uint64_t *size, fedge_error *err)
{
    *size = 0;
    for (uint32_t i = 0; i < recovered->num; i++)
        *size += sizeof(fedge_recovered_update) + recovered->items[i].facts.metadata_size;
    uint8_t *at = *bytes = malloc((size_t)*size + 1);
    if (!at)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for updates of other ranks");
    for (uint32_t i = 0; i < recovered->num; i++) {
        fedge_recovered_update update = recovered->items[i];
        const char *meta = update.meta;
        update.meta = NULL;
        memcpy(at, &update, sizeof(update));
        memcpy(at + sizeof(update), meta, update.facts.metadata_size);
        at += sizeof(update) + update.facts.metadata_size;
    }
    return FEDGE_OK;
}

fedge_status fedge_recovered_updates_unpack(fedge_recovered_updates *recovered,
                                            const uint8_t *bytes, uint64_t size, fedge_error *err)
{
    uint64_t at = 0;
    while (at < size) {
        fedge_recovered_update *update = add(recovered, err);
        if (!update)
            return FEDGE_NO_MEMORY;
        if (size - at >= sizeof(*update))
            memcpy(update, bytes + at, sizeof(*update));
        if (size - at < sizeof(*update) ||
            update->facts.metadata_size > size - at - sizeof(*update) ||
            update->facts.location.rank >= FEDGE_RANKS_MAX)
            return fedge_fail(err, FEDGE_CORRUPT, "what another rank has found is not whole");
        FEDGE_TRY(take_meta(update, err));
        recovered->num++;
        memcpy(update->meta, bytes + at + sizeof(*update), update->facts.metadata_size);
        update->meta[update->facts.metadata_size] = '\0';
        at += sizeof(*update) + update->facts.metadata_size;
    }
    return FEDGE_OK;
}

/* ---- at a start of all ranks ----------------------------------------------------------------- */

#define FAILED UINT64_MAX /* replaces a size when the sender failed */

/* Locks a disk that no lower rank shares, and numbers it if it has no number yet. */
static fedge_status take_disk(const char *state_dir, uint32_t rank, fedge_rank_disks *disks,
                              fedge_state *state, fedge_error *err)
{
    uint64_t disk = 0;
    FEDGE_TRY(fedge_disk_read(state_dir, false, &disk, err));
    for (uint32_t lower = 0; disk != 0 && lower < rank; lower++) {
        if (disks->disks[lower] == disk) {
            disks->disks[rank] = disk;
            return FEDGE_OK;
        }
    }
    FEDGE_TRY(fedge_state_open(state_dir, state, err));
    return fedge_disk_read(state_dir, true, &disks->disks[rank], err);
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
    FEDGE_TRY(fedge_collective_agree(collective, status, NULL, 0, err));
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
    uint64_t size = 0;
    status =
        status == FEDGE_OK ? fedge_recovered_updates_pack(recovered, &bytes, &size, err) : status;
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
    if (!bytes) { /* the sender cannot stop: it is sending already */
        fedge_collective ending = *collective;
        fedge_collective_abort(&ending, 1);
        return FEDGE_NO_MEMORY;
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
